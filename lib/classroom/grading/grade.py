"""`python -m classroom grade ASSIGNMENT`: mark what a class has handed in, in parallel and isolated."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path

import filelock
from nbgrader.utils import parse_utc
from sqlalchemy.exc import SQLAlchemyError
from traitlets.config import Config

from classroom.grading import authority as authorities
from classroom.grading import cluster, course, intake, workers
from classroom.grading import gradebook as gradebooks
from classroom.grading import handed_in as handed_in_files
from classroom.grading.batch import Batch, IsThere, Merge, Summary
from classroom.grading.course import ROOT, GradingFailed
from classroom.grading.intake import Intake
from classroom.grading.progress import Progress, place, text
from classroom.grading.task import Limits
from classroom.grading.versions import version

COURSE = ROOT / "grading"
LIMITS = Limits()
MARK = "classroom.grading.marking:mark"
NO_ISOLATION = (
    "Nothing was graded: students' code would run with your rights.\n{}\n"
    "To grade all the same, say --without-isolation."
)
NOT_LINUX = (
    "Nothing was graded: submissions are marked on Linux alone. Grade in the container that the page for instructors\n"
    "describes, or on a cluster (--scheduler)."
)
Gradebook = Callable[[Config, str, Mapping[str, str]], contextlib.AbstractContextManager[Merge]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("assignment", metavar="ASSIGNMENT", help="such as 09_parameters")
    parser.add_argument("--workers", type=int, metavar="N", help="processes that mark (default: one a core)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="mark on a Dask cluster, such as tcp://host:8786")
    parser.add_argument(
        "--tls", nargs=3, type=Path, metavar=("CA", "CERT", "KEY"), help="PEM files for a scheduler at tls://..."
    )
    parser.add_argument(
        "--course", type=Path, default=COURSE, metavar="FOLDER", help="where submitted/ lies (grading/)"
    )
    parser.add_argument("--student", action="append", metavar="NAME", help="this one alone; can be said several times")
    parser.add_argument("--again", action="store_true", help="mark also what has not changed")
    parser.add_argument("--without-isolation", action="store_true", help="run students' code with your rights")
    parser.add_argument("--feedback", action="store_true", help="write the pages of feedback afterwards")


def run(options: argparse.Namespace) -> int:
    """Grade. 0: everything is marked or listed with a reason; 1: nothing could be graded; 130: stopped by Ctrl-C."""
    try:
        tls = tuple(options.tls) if options.tls else None
        if tls and not options.scheduler:
            raise GradingFailed("--tls is for a cluster: name its scheduler too (--scheduler tls://...).")
        if options.workers is not None and options.workers < 1:
            raise GradingFailed(f"--workers {options.workers}: at least one process must mark.")
        course.known(options.assignment)
        with Progress() as watch:
            summary = grade(
                options.assignment,
                options.course,
                n_workers=options.workers,
                scheduler=cluster.Scheduler(options.scheduler, tls) if options.scheduler else None,
                only=options.student,
                again=options.again,
                isolated=not options.without_isolation,
                watch=watch,
            )
        print(text(summary))
        if options.feedback:
            config = course.of_class(options.course)
            if not course.feedback(config, options.assignment):
                raise GradingFailed(f"Some feedback could not be written:\n{course.end_of_log(options.course)}")
            pages = Path(config.CourseDirectory.root) / config.CourseDirectory.feedback_directory
            print(f"Feedback:  {place(pages)}")
    except BrokenPipeError:
        raise
    except (GradingFailed, OSError, SQLAlchemyError) as error:  # a full disk too: what is marked is kept
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        how = "start it without --again: it" if options.again else "the same command"
        print(f"\nStopped. What is marked is kept; {how} goes on from there.", file=sys.stderr)
        return 130
    return 0


def grade(
    assignment: str,
    folder: Path,
    *,
    n_workers: int | None = None,
    scheduler: cluster.Scheduler | None = None,
    only: list[str] | None = None,
    again: bool = False,
    isolated: bool = True,
    limits: Limits = LIMITS,
    mark: str = MARK,
    authority: Mapping[str, str] | None = None,
    gradebook: Gradebook | None = None,
    watch: Callable[[int, int], None] = lambda n_done, n_all: None,
) -> Summary:
    """Grade what was handed in below `folder`, by local processes (default: one a core) or on a cluster.

    `only`: these students; `again`: unchanged work too. `mark` ("module:function"), `authority` (notebook → JSON text)
    and `gradebook` take the place of the course's own. `watch` hears of each submission.
    Raises `GradingFailed` if nothing can be graded at all; what is wrong with one submission stands in the summary.
    """
    began = time.monotonic()
    if folder != COURSE and not folder.is_dir():
        raise GradingFailed(f"there is no folder {folder}")
    authority = authorities.authority(assignment) if authority is None else authority
    config = course.of_class(folder)
    students = handed_in(config, assignment, only)
    if sys.platform != "linux" and scheduler is None:
        raise GradingFailed(NOT_LINUX)
    if isolated and not scheduler and (why := importlib.import_module(mark.partition(":")[0]).why_not()):
        raise GradingFailed(NO_ISOLATION.format(why))
    _check_rights(config, assignment)
    with alone(folder):
        is_there = _is_there(config, assignment) if gradebook is None or not _exists(config) else lambda *_: True
        with (gradebook or _gradebook)(config, assignment, authority) as merge:
            batch = Batch(
                config,
                assignment,
                authority,
                version=version(mark),
                limits=limits,
                isolated=isolated,
                take=partial(_take, config, assignment, authority),
                merge=merge,
            )
            to_mark = batch.look_through(students, again, is_there)
            watch(0, len(to_mark))
            if scheduler:
                marking = partial(cluster.marked, mark=mark, isolated=isolated, scheduler=scheduler)
            else:
                marking = partial(workers.marked, mark=mark, n_workers=min(n_workers or n_cores(), len(to_mark)))
            for n_done in batch.run(to_mark, marking) if to_mark else ():
                watch(n_done, len(to_mark))
    batch.summary.graded.sort()  # they ended in any order
    batch.summary.seconds = time.monotonic() - began
    return batch.summary


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """In here, no other run may use the course folder. The system opens the lock when this process ends, however."""
    lock = filelock.FileLock(folder / "grade.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise GradingFailed(f"Another run is grading in {folder}. Wait for its end, or stop it.") from None
    try:
        yield
    finally:
        lock.release()


def handed_in(config: Config, assignment: str, only: list[str] | None) -> list[str]:
    """The students who handed in, sorted; `GradingFailed` if there are none, or if `only` names somebody else."""
    submitted = course.submitted(config)
    there = intake.students(submitted, assignment)
    if not there:
        raise GradingFailed(
            f"Nobody has handed in {assignment}: there is no folder {submitted}/STUDENT/{assignment}.\n"
            "To sort a platform's archive: python -m classroom.grading collect --help"
        )
    if unknown := sorted(set(only or ()) - set(there)):
        raise GradingFailed(
            f"No submission of {assignment} is from: {', '.join(map(repr, unknown))}. Look in {submitted}."
        )
    return sorted(set(only)) if only else there


def n_cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_rights(config: Config, assignment: str) -> None:
    """`GradingFailed` if results or gradebook could not be written: that must not come out after the first mark."""
    root = Path(config.CourseDirectory.root).absolute()
    places = [root, root / "results" / assignment]
    if file := course.gradebook_file(config):
        places += [file.absolute().parent, file.absolute()]
    for there in places:
        while not os.path.exists(there):  # it is made later, in what is there
            there = there.parent
        if not os.access(there, os.W_OK):
            raise GradingFailed(f"You may not write in {there}: it takes the results or the gradebook.")


def _take(
    config: Config, assignment: str, authority: Mapping[str, str], student: str
) -> tuple[Intake, datetime | None]:
    folder = course.submitted(config) / student / assignment
    taken, stamp = intake.take(folder, authority), folder / "timestamp.txt"
    if not os.path.lexists(stamp):
        return taken, None
    try:
        written = handed_in_files.content(stamp)[:100].decode("utf-8", "replace").strip()
    except handed_in_files.Refused as error:
        taken.flags.append(f"timestamp.txt cannot be read: {error}. Was it handed in late?")
        return taken, None
    try:
        return taken, parse_utc(written)
    except (ValueError, OverflowError):
        taken.flags.append(f"timestamp.txt holds no time: {written!r}. Was it handed in late?")
        return taken, None


@contextlib.contextmanager
def _gradebook(config: Config, assignment: str, authority: Mapping[str, str]) -> Iterator[Merge]:
    gradebooks.register(config, assignment, dict(authority))
    with gradebooks.Writer(config, assignment) as writer:
        yield writer.merge


def _is_there(config: Config, assignment: str) -> IsThere:
    held = gradebooks.points(config, assignment) if _exists(config) else {}
    return lambda student, found: gradebooks.is_merged(config, assignment, student, found, held.get(student))


def _exists(config: Config) -> bool:
    """Whether the gradebook can hold anything yet."""
    file = course.gradebook_file(config)
    return file is None or file.is_file()
