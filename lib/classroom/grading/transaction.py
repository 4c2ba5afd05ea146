"""nbgrader's gradebook with the commits in our hands: one student, one transaction.

nbgrader's steps open the gradebook anew for each notebook, ask it for each cell and commit each row. Here they are
lent one that is open, has the rows at hand and commits when it is told to. SQLite and PostgreSQL differ in the URL.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from nbgrader.api import (
    Gradebook,
    GradeCell,
    InvalidEntry,
    MissingEntry,
    Notebook,
    SourceCell,
    SubmittedAssignment,
    SubmittedNotebook,
    TaskCell,
)
from nbgrader.coursedir import CourseDirectory
from sqlalchemy import event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.orm import Session, scoped_session, selectinload, sessionmaker
from traitlets.config import Config

from classroom.grading.course import GradingFailed

ATTEMPTS = 6  # to open a gradebook that another process is making
FAILURES = (SQLAlchemyError, InvalidEntry, ImportError)  # of a database, of nbgrader's rows, of a missing driver


class _Session(Session):
    def commit(self) -> None:
        """Nothing yet: nbgrader commits after every row."""
        self.flush()


class Held(Gradebook):
    """A gradebook in which nothing is committed but by `keep`, and which nbgrader's steps cannot close.

    It belongs to the thread that opened it.
    """

    def __init__(self, url: str, course_id: str):
        super().__init__(url, course_id)
        self.db.remove()
        self.db = scoped_session(sessionmaker(bind=self.engine, class_=_Session))

    def keep(self) -> None:
        """Commit, and forget what was read."""
        try:
            Session.commit(self.db())
        finally:
            self.db.remove()

    def drop(self) -> None:
        """Forget everything since the last `keep`."""
        self.db.remove()

    def close(self) -> None:
        """Nothing: it is shared."""

    def end(self) -> None:
        """Close it."""
        super().close()


class Merging(Held):
    """With the assignment's cells, and the rows of the notebook under way, at hand: a query each takes too long."""

    def load(self, assignment: str) -> None:
        """Read the cells of an assignment; `GradingFailed` if it has none."""
        self.sources: dict[str, dict[str, SourceCell]] = {}  # of each notebook: cell name → cell
        self.graded: dict[str, dict[str, GradeCell | TaskCell]] = {}
        self.points: dict[str, dict[str, float]] = {}
        self.answers: dict[str, set[str]] = {}
        self.names: dict[str, str] = {}  # a cell's row → its name
        for notebook in self.db.query(Notebook).join(Notebook.assignment).filter_by(name=assignment).all():
            graded = [*notebook.grade_cells, *notebook.task_cells]
            self.sources[notebook.name] = {cell.name: cell for cell in notebook.source_cells}
            self.graded[notebook.name] = {cell.name: cell for cell in graded}
            self.points[notebook.name] = {cell.name: cell.max_score for cell in graded}  # read before they go
            self.answers[notebook.name] = {cell.name for cell in notebook.solution_cells}
            self.names |= {cell.id: cell.name for cell in (*graded, *notebook.solution_cells)}
        if not self.sources:
            raise GradingFailed(f"the gradebook has no cells of {assignment!r}: register the assignment first.")
        self.db.expunge_all()
        self.db.remove()

    def rows_of(self, submission: SubmittedAssignment) -> Iterator[SubmittedNotebook]:
        """The notebooks of a submission, each with its grades and comments at hand while it is the current one."""
        query = self.db.query(SubmittedNotebook).filter_by(assignment_id=submission.id)
        parts = (SubmittedNotebook.notebook, SubmittedNotebook.grades, SubmittedNotebook.comments)
        for rows in query.options(*map(selectinload, parts)).all():
            self.grades = {self.names[grade.cell_id]: grade for grade in rows.grades}
            self.comments = {self.names[comment.cell_id]: comment for comment in rows.comments}
            yield rows

    # what nbgrader's steps ask for, answered from memory

    def find_source_cell(self, name, notebook, assignment):
        return _found(self.sources[notebook], name)

    def find_graded_cell(self, name, notebook, assignment):
        return _found(self.graded[notebook], name)

    def find_grade(self, grade_cell, notebook, assignment, student):
        return _found(self.grades, grade_cell)

    def find_comment(self, solution_cell, notebook, assignment, student):
        return _found(self.comments, solution_cell)


def _found(rows: dict, name: str):
    if name not in rows:
        raise MissingEntry(f"No such cell: {name}")
    return rows[name]


@contextlib.contextmanager
def opened(kind: type[Held], config: Config) -> Iterator[Held]:
    """The gradebook of a course. Of processes that make it at the same time, the later find it made.

    Raises `GradingFailed` for a database that cannot be opened, or fails on the way.
    """
    place = CourseDirectory(config=config)
    try:
        book = _open(kind, place)
        try:
            yield book
        finally:
            book.end()
    except FAILURES as error:
        raise GradingFailed(
            f"the gradebook {_shown(place.db_url)} fails: {(str(error) or repr(error)).splitlines()[0]}\nLook at "
            "c.CourseDirectory.db_url in nbgrader_config.py. PostgreSQL needs its server, and the package psycopg."
        ) from error


def _open(kind: type[Held], place: CourseDirectory) -> Held:
    for attempt in range(ATTEMPTS):
        try:
            book = kind(place.db_url, place.course_id)
            break
        except (DBAPIError, InvalidEntry):
            if attempt + 1 == ATTEMPTS:
                raise
            time.sleep(0.1 * 2**attempt)
    if book.engine.dialect.name == "sqlite":
        book.engine.dispose()

        @event.listens_for(book.engine, "connect")
        def wait_for_others(connection, _) -> None:
            connection.execute("PRAGMA busy_timeout = 60000")  # milliseconds

    return book


def _shown(url: str) -> str:
    """A database URL without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "of this course"


@contextlib.contextmanager
def lent(book: Held, *kinds: type) -> Iterator[None]:
    """In here, these steps of nbgrader use `book` where each would open a gradebook of its own."""
    modules = {sys.modules[kind.__module__] for kind in kinds}
    before = {module: module.Gradebook for module in modules if hasattr(module, "Gradebook")}
    try:
        for module in before:
            module.Gradebook = lambda *_, **__: book
        yield
    finally:
        for module, name in before.items():
            module.Gradebook = name
