"""nbgrader's converters on one course folder, with the settings of nbgrader_config.py.

A course folder holds ``solutions/NN_stem``, and gets ``exercises``, ``submitted``, ``autograded``, ``feedback``,
a gradebook and nbgrader's log. So a demonstration or a test never touches a teacher's folders.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import glob
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import alembic.config
import nbformat
import nbgrader.api
from alembic.script import ScriptDirectory
from nbgrader.api import Assignment, Gradebook, SubmittedAssignment
from nbgrader.converters import Autograde, GenerateAssignment, GenerateFeedback
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import is_solution
from sqlalchemy import Engine, event, make_url
from sqlalchemy.exc import SAWarning
from traitlets.config import Config, PyFileConfigLoader

from .. import kernels

ROOT = Path(__file__).resolve().parents[3]


@functools.cache
def _alembic_version() -> str:
    """The version of nbgrader's tables, which nbgrader has a program tell it: two seconds a new gradebook."""
    options = alembic.config.Config()
    options.set_main_option("script_location", str(Path(nbgrader.api.__file__).parent / "alembic"))
    return ScriptDirectory.from_config(options).get_current_head()


nbgrader.api.get_alembic_version = _alembic_version


class GradingFailed(Exception):
    """Something that stops a release or a grading run; the message says what to do."""


def assignments() -> list[str]:
    """Names of the exercises that can be released."""
    return sorted(path.parent.name for path in (ROOT / "solutions").glob("*/*.ipynb") if path.stem == path.parent.name)


def known(assignment: str) -> str:
    """`assignment`, if there is one of this name; otherwise `GradingFailed` lists what there is."""
    there = assignments()
    if assignment not in there:
        raise GradingFailed(f"no assignment is called {assignment!r}; solutions/ has: {', '.join(there) or 'none'}.")
    return assignment


def settings(folder: Path, gradebook: str | None = None) -> Config:
    """nbgrader_config.py, moved into `folder`; `gradebook` is a database URL (default: a file in `folder`)."""
    config = teachers_settings()
    place = config.CourseDirectory
    place.root = str(folder)
    for step in ("submitted", "autograded", "feedback", "solution"):
        place[f"{step}_directory"] = step
    place.db_url = gradebook or f"sqlite:///{(folder / 'gradebook.db').as_posix()}"
    return config


def of_class(folder: Path) -> Config:
    """`settings`, with the gradebook that nbgrader_config.py names if `folder` is the real class's."""
    return settings(folder, teachers_gradebook() if folder.resolve() == ROOT / "grading" else None)


def gradebook_file(config: Config) -> Path | None:
    """The file of the gradebook, there or not; None if it is in a server."""
    url = make_url(config.CourseDirectory.db_url)
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None


def teachers_settings() -> Config:
    """nbgrader_config.py as it stands: those of the real class."""
    return PyFileConfigLoader("nbgrader_config.py", path=str(ROOT)).load_config()


def teachers_gradebook() -> str:
    """Database URL of the real gradebook."""
    return teachers_settings().CourseDirectory.db_url


def submitted(config: Config) -> Path:
    """Folder of the submissions: in it one of each student, with one of each assignment."""
    return Path(config.CourseDirectory.root) / config.CourseDirectory.submitted_directory


def generate(config: Config, assignment: str) -> Path:
    """Make the students' version of an assignment; returns its folder."""
    failed = _run(GenerateAssignment, config, assignment, force=True)
    folder = Path(config.CourseDirectory.root)
    if failed:
        raise GradingFailed(f"nbgrader could not release {assignment}:\n{end_of_log(folder)}")
    return folder / config.CourseDirectory.release_directory / assignment


def autograde(config: Config, assignment: str) -> bool:
    """Grade everything under submitted/; False if nbgrader gave up on some submission (the others are graded)."""
    config = copy.deepcopy(config)
    with kernels.by_files() as transport:
        config.merge(transport)
        return not _run(Autograde, config, assignment)


def feedback(config: Config, assignment: str, students: str = "*") -> bool:
    """Write a page of feedback for each graded submission of `students`; False if one could not be written.

    Who is not in the gradebook gets none: their notebook stays under autograded/ when a person removes them there.
    """
    return not _run(_Feedback, config, assignment, students, force=True)


class _Feedback(GenerateFeedback):
    """nbgrader's own, but for those who are not in the gradebook, at whom it would fail.

    Its `student_id_exclude` is a list with commas, and a student's name may hold one. And it takes a name such as
    "[a]" for a pattern: that student would get no page, and one called "*" would stand for all.
    """

    def init_notebooks(self) -> None:
        self.notebooks, self.assignments = [], {}
        for folder in glob.glob(self._format_source(self.coursedir.assignment_id, self.coursedir.student_id)):
            if found := glob.glob(os.path.join(glob.escape(folder), f"{self.coursedir.notebook_id}.ipynb")):
                self.assignments[folder] = found
        if not self.assignments:
            self.log.error("Nobody has a graded notebook of %s", self.coursedir.assignment_id)
            raise NbGraderException

    def init_destination(self, assignment_id: str, student_id: str) -> bool:
        if student_id not in self._graded:
            self.log.warning("%s of %s is not in the gradebook: no feedback", assignment_id, student_id)
            return False
        return super().init_destination(assignment_id, student_id)

    @functools.cached_property
    def _graded(self) -> set[str]:
        with Gradebook(self.coursedir.db_url, self.coursedir.course_id) as gradebook:
            found = gradebook.db.query(SubmittedAssignment.student_id).join(Assignment)
            return {student for (student,) in found.filter(Assignment.name == self.coursedir.assignment_id)}


def marks(config: Config, assignment: str) -> dict[str, dict[str, float]]:
    """Points of every graded submission: student → test cell → points."""
    found: dict[str, dict[str, float]] = {}
    with Gradebook(config.CourseDirectory.db_url, config.CourseDirectory.course_id) as gradebook:
        for submission in gradebook.assignment_submissions(assignment):
            grades = [grade for notebook in submission.notebooks for grade in notebook.grades]
            found[submission.student.id] = {grade.name: grade.score for grade in grades}
    return found


def left_to_a_person(config: Config, assignment: str) -> set[str]:
    """The cells that the autograder could not mark, in any submission: an essay, or a test cell that was damaged."""
    with Gradebook(config.CourseDirectory.db_url, config.CourseDirectory.course_id) as gradebook:
        return {
            grade.name
            for submission in gradebook.assignment_submissions(assignment)
            for notebook in submission.notebooks
            for grade in notebook.grades
            if grade.needs_manual_grade
        }


def answers(notebook: nbformat.NotebookNode) -> dict[str, str]:
    """The source of every answer cell, without the markers around a solution."""
    marker = re.compile(r"^\s*### (BEGIN|END) SOLUTION\n?", re.MULTILINE)
    return {
        cell.metadata.nbgrader.grade_id: marker.sub("", cell.source) for cell in notebook.cells if is_solution(cell)
    }


def answered(released: Path, answers: dict[str, str]) -> nbformat.NotebookNode:
    """The released notebook with these sources in its answer cells; the others stay as they came."""
    notebook = nbformat.read(released, as_version=4)
    cells = {cell.metadata.nbgrader.grade_id: cell for cell in notebook.cells if is_solution(cell)}
    if unknown := set(answers) - set(cells):
        raise GradingFailed(f"{released.stem} has no answer cell {sorted(unknown)}; it has: {', '.join(cells)}.")
    for name, source in answers.items():
        cells[name].source = source
    return notebook


def submit(config: Config, assignment: str, student: str, released: Path, answers: dict[str, str]) -> None:
    """Hand in the released notebook with these answers."""
    folder = submitted(config) / student / assignment
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(answered(released, answers), folder / released.name)


@contextlib.contextmanager
def throwaway() -> Iterator[None]:
    """In here, no gradebook waits until the disk has what it wrote: for one that does not outlive the run."""

    def hasten(connection, _) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    event.listen(Engine, "connect", hasten)
    try:
        yield
    finally:
        event.remove(Engine, "connect", hasten)


def end_of_log(folder: Path) -> str:
    """What nbgrader said last in a course folder, and before it what it called an error there."""
    log = folder / "nbgrader.log"
    if not log.is_file():
        return "(no log)"
    messages = re.split(r"^(?=(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) )", log.read_text(encoding="utf-8"), flags=re.M)
    errors = [message for message in messages[:-20] if message.startswith(("ERROR", "CRITICAL"))]
    return "".join([*errors[-10:], *messages[-20:]]).rstrip("\n")


def _run(converter: type, config: Config, assignment: str, students: str = "*", **options) -> bool:
    """Run one of nbgrader's converters; True if it failed for some submission."""
    folder = Path(config.CourseDirectory.root)
    coursedir = CourseDirectory(config=config)
    coursedir.assignment_id, coursedir.student_id = assignment, students
    with _quiet(folder / "nbgrader.log"), _environment(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)  # nbgrader's own use of its database
        try:
            converter(coursedir=coursedir, config=config, **options).start()
        except (NbGraderException, SystemExit):
            return True
    return False


@contextlib.contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """Send nbgrader's messages to a file for the time of a run."""
    logger = logging.getLogger("traitlets")
    handler = logging.FileHandler(log, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    before = logger.handlers, logger.level, logger.propagate
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        handler.close()
        logger.handlers, logger.level, logger.propagate = before


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """One thread for a kernel, and this Python's own programs first: nbgrader starts `alembic` from the PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    changed = {"PATH": path, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
