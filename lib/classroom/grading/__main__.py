"""The command line: ``python -m classroom.grading release|collect|demo|trial|term``, each with ``--help``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from classroom.grading import course, robots, term, trial
from classroom.grading.collect import PLATFORMS, collect
from classroom.grading.course import ROOT, GradingFailed
from classroom.grading.progress import Progress
from classroom.grading.release import release

DEMO = ROOT / "grading" / "demo"


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, release or grade, and say where the result lies."""
    parser = argparse.ArgumentParser(prog="python -m classroom.grading", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    releasing = commands.add_parser("release", help="generate exercises/ from solutions/")
    releasing.add_argument("name", nargs="?", help="one assignment, such as 09_parameters (default: all)")
    releasing.add_argument("--force", action="store_true", help="overwrite an exercise that somebody wrote into")
    collecting = commands.add_parser("collect", help="sort the archive of a learning platform into grading/submitted/")
    collecting.add_argument("name", help="the assignment, such as 09_parameters")
    collecting.add_argument("--zip", type=Path, required=True, metavar="FILE", help="all submissions, as downloaded")
    collecting.add_argument("--from", dest="platform", choices=sorted(PLATFORMS), required=True, help="where from")
    collecting.add_argument("--force", action="store_true", help="replace what a student handed in before")
    grading = commands.add_parser("demo", help="grade a simulated class of an assignment")
    grading.add_argument("name", nargs="?", default="04_masks", help="the assignment (default: %(default)s)")
    trying = commands.add_parser(
        "trial",
        help="try the graders on every known wrong answer",
        description="Hand in every known wrong answer and the demonstration class, and write what came of it into "
        "chapters/data/graders.json: about half a minute for each assignment.",
    )
    trying.add_argument("name", nargs="?", help="one assignment (default: all)")
    drawing = commands.add_parser(
        "term",
        help="give the exercises new numbers",
        description="Give every exercise the numbers of a seed, in solutions/ and exercises/, and run each solution: "
        "that takes some minutes. If one fails, every file stays as it was. Without SEED: show this term's numbers.",
    )
    drawing.add_argument("seed", nargs="?", type=int, metavar="SEED", help="a whole number; 0: the printed numbers")
    options = parser.parse_args(arguments)
    try:
        if options.command == "collect":
            return _collect(options.name, options.zip, options.platform, options.force)
        if options.command == "term":
            return _term(options.seed)
        if options.command == "trial":
            return _trial([options.name] if options.name else course.assignments())
        return _release(options.name, options.force) if options.command == "release" else _demo(options.name)
    except GradingFailed as error:
        print(error, file=sys.stderr)
        return 1


def _release(name: str | None, force: bool) -> int:
    for assignment in [course.known(name)] if name else course.assignments():
        changed = release(assignment, force, course.teachers_gradebook())
        print(f"exercises/{assignment}: {'wrote ' + ', '.join(changed) if changed else 'unchanged'}")
    return 0


def _collect(assignment: str, archive: Path, platform: str, force: bool) -> int:
    submitted = course.submitted(course.teachers_settings())
    done = collect(course.known(assignment), archive, platform, submitted, force)
    for student, word in sorted(done.placed.items()):
        print(f"{word:10} {_shown(done.written[student])}")
    if done.left_out:
        print("\nNot collected:")
    for path, why in sorted(done.left_out.items()):
        print(f"  {path}: {why}")
    if done.without:
        print(f"\nNo notebook from: {', '.join(done.without)}")
    print(f"\nNotebooks collected: {len(done.placed)}. Files left out: {len(done.left_out)}.")
    if not done.placed:
        print(f"Is it a download of {platform.capitalize()} for {assignment}?", file=sys.stderr)
    return 0 if done.placed else 1


def _term(seed: int | None) -> int:
    if seed is not None:
        os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # as make chapters
        os.environ.pop("MPLBACKEND", None)  # another one than the kernel's own stores no pictures
        term.change(seed)
    print(term.listing())
    return 0


def _trial(assignments: list[str]) -> int:
    records = {}
    for name in map(course.known, assignments):
        print(f"Trying the graders of {name} ...", flush=True)
        with tempfile.TemporaryDirectory(prefix="trial-") as folder:
            records[name] = trial.run(name, Path(folder)).record()
    print(trial.table(records))
    print(f"{_shown(trial.TABLE)}: {'written' if trial.write(records) else 'unchanged'}")
    return 1 if any(row["false_accepts"] or row["false_rejects"] for row in records.values()) else 0


def _demo(assignment: str) -> int:
    print(f"Grading a class of robots in {assignment} ...", flush=True)
    folder = DEMO
    with Progress() as watch:
        rows = robots.grade(assignment, folder, watch=watch)
    print(robots.table(rows))
    pages = sorted((folder / "feedback").glob(f"*/{assignment}/*.html"))
    ok = sum(not row.faults for row in rows)
    print(f"\n{ok} of {len(rows)} submissions have the expected marks.")
    print(f"Marks:    {_shown(folder / 'marks.csv')}")
    print(f"Feedback: {len(pages)} pages, such as {_shown(pages[0]) if pages else 'none'}")
    return 0 if ok == len(rows) and pages else 1


def _shown(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


if __name__ == "__main__":
    sys.exit(main())
