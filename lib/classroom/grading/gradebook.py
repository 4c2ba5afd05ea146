"""Marked notebooks into nbgrader's gradebook and autograded/, as its own Autograde would have put them there.

Nothing is run here. nbgrader's own steps read the marks from the outputs of a notebook, and assign late penalties.
One writer merges the marks of a class: each student's rows change in one transaction, and the file under autograded/
is renamed into its place after it. It holds the key of its `Result`, so `is_merged` tells whether both were done.
A submission's other files are not copied: only answers are taken from it.
"""

from __future__ import annotations

import contextlib
import html
import json
import math
import os
import warnings
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.api import Assignment, BaseCell, Grade, SubmittedAssignment, SubmittedNotebook, TaskCell
from nbgrader.converters import Autograde
from nbgrader.coursedir import CourseDirectory
from nbgrader.nbgraderformat import ValidationError
from nbgrader.preprocessors import CheckCellMetadata, ClearOutput, ComputeChecksums, Execute, OverwriteCells, SaveCells
from nbgrader.utils import determine_grade, is_grade, is_locked, is_solution, is_task, parse_utc
from sqlalchemy.exc import SAWarning
from traitlets.config import Config

from classroom.grading.course import GradingFailed
from classroom.grading.task import Result
from classroom.grading.transaction import Held, Merging, lent, opened

LONGEST_ID = 128  # characters of a student's id in nbgrader's tables
NOT_RUN = "Not run: nothing in the file that was handed in could be read.\n\n"


def register(config: Config, assignment: str, authority: dict[str, str]) -> None:
    """Bring the gradebook's cells of an assignment up to date, as nbgrader's GenerateAssignment does.

    `authority`: the instructor's notebooks, name → JSON text, answers cleared and hidden tests kept.
    Raises `GradingFailed` if cells came or went although marks are in the gradebook: then nothing is changed.
    """
    with opened(Held, config) as book, lent(book, SaveCells):
        there = book.update_or_create_assignment(assignment)
        before = {notebook.name for notebook in there.notebooks}
        if before and before != set(authority) and there.submissions:
            raise _cells_changed(assignment, f"it had the notebooks {sorted(before)}, and has {sorted(authority)}")
        for name in before - set(authority):
            book.remove_notebook(name, assignment)
        for name, text in authority.items():
            notebook = nbformat.v4.reads(text)
            try:
                for step in (CheckCellMetadata(), ComputeChecksums(), SaveCells()):
                    notebook, _ = step(notebook, _resources(config, assignment, name))
            except ValidationError as error:
                raise GradingFailed(f"nbgrader's metadata in {name} are damaged: {error}") from error
            except RuntimeError as error:
                raise _cells_changed(assignment, str(error)) from error
        book.keep()


def merge(
    config: Config, assignment: str, student: str, results: dict[str, Result], submitted_at: datetime | None = None
) -> None:
    """Merge one student's results; a `Writer` does the same for many at less cost."""
    with Writer(config, assignment) as writer:
        writer.merge(student, results, submitted_at)


def points(config: Config, assignment: str) -> dict[str, dict[str, float | None]]:
    """What the checks gave, as the gradebook has it: student → graded cell → points."""
    found: dict[str, dict[str, float | None]] = {}
    with opened(Held, config) as book:
        query = book.db.query(SubmittedAssignment.student_id, BaseCell.name, Grade.auto_score).select_from(Grade)
        query = query.join(BaseCell, Grade.cell_id == BaseCell.id).join(SubmittedNotebook).join(SubmittedAssignment)
        query = query.join(Assignment, SubmittedAssignment.assignment_id == Assignment.id)
        for student, cell, score in query.filter(Assignment.name == assignment):
            found.setdefault(student, {})[cell] = score
    return found


def is_merged(
    config: Config, assignment: str, student: str, results: dict[str, Result], held: Mapping[str, float | None] | None
) -> bool:
    """Whether these very results are under autograded/ and in the gradebook, of which `held` is this student's part.

    It may have been made anew since they were merged, or put back from a backup.
    """
    folder = _folder(CourseDirectory(config=config), student, assignment)
    if held is None or not all(_key(folder / f"{name}.ipynb") == result.key for name, result in results.items()):
        return False
    given = {cell: points for result in results.values() for cell, points in result.points.items()}
    return all(math.isclose(held.get(cell) or 0, points or 0) for cell, points in given.items())


class Writer:
    """Merges results of one assignment into the gradebook, `every` so many students in one transaction.

    For one thread. Left by an exception, it keeps nothing of the transaction that is under way.
    """

    def __init__(self, config: Config, assignment: str, every: int = 1):
        self.config, self.assignment, self.every = config, assignment, every
        self.stock = Autograde(coursedir=CourseDirectory(config=config), config=config)
        # What nbgrader does to a submitted notebook, but for clearing its outputs and running it. The metadata of
        # cells are the instructor's, and `register` has checked them; that takes longer than everything else.
        kinds = [*self.stock.sanitize_preprocessors, *self.stock.autograde_preprocessors]
        self.kinds = [kind for kind in kinds if kind not in (ClearOutput, Execute, CheckCellMetadata)]
        self.steps = [kind(parent=self.stock) for kind in self.kinds]
        self.waiting: list[tuple[Path, Path | None]] = []  # a file, and the one to put there (None: it goes)
        self.n_waiting = 0  # students

    def __enter__(self) -> Writer:
        with contextlib.ExitStack() as closing:
            self.book = closing.enter_context(opened(Merging, self.config))
            self.book.load(self.assignment)
            self.closing = closing.pop_all()
        return self

    def __exit__(self, kind, error, trace) -> bool | None:
        if kind is not None:
            return self.closing.__exit__(kind, error, trace)
        with self.closing:
            self.commit()
        return None

    def commit(self) -> None:
        """Make what was merged last: first the rows, then the files."""
        self.book.keep()
        for target, beside in self.waiting:
            if beside is None:
                target.unlink(missing_ok=True)
            else:
                os.replace(beside, target)
        self.waiting, self.n_waiting = [], 0

    def merge(self, student: str, results: dict[str, Result], submitted_at: datetime | None = None) -> None:
        """Put a student's results into the gradebook: notebook name → result. None for a notebook: no points.

        `submitted_at` is UTC if it has no time zone; None keeps what is known. What a person gave stays: marks,
        extra credit, comments, flags. If the work is the one that was merged before, so does their "reviewed".
        Raises `GradingFailed` for a notebook or a student that the gradebook cannot hold; that changes nothing.
        """
        notebooks = self._checked(student, results)
        try:
            self._merge(student, results, notebooks, submitted_at)
        except BaseException:
            self.book.drop()
            self.waiting, self.n_waiting = [], 0
            raise
        self.n_waiting += 1
        if self.n_waiting >= self.every:
            self.commit()

    def _checked(self, student: str, results: dict[str, Result]) -> dict[str, NotebookNode]:
        """The notebooks of results, if every mark can be stored."""
        if len(student) > LONGEST_ID or student != student.encode("utf-8", "replace").decode():
            raise GradingFailed(
                f"the name {student[:40]!r} cannot stand in the gradebook: at most {LONGEST_ID} characters of any "
                "script, in UTF-8. Rename the folder of the submission."
            )
        if unknown := set(results) - set(self.book.sources):
            raise GradingFailed(
                f"the gradebook has no notebook {sorted(unknown)} of {self.assignment}; "
                f"it has: {', '.join(sorted(self.book.sources))}. Grade it under one of these names."
            )
        notebooks = {}
        for name, result in results.items():
            if result.notebook is not None:
                try:
                    notebooks[name] = notebook = nbformat.v4.reads(result.notebook)
                    cells = [cell.metadata.nbgrader.grade_id for cell in notebook.cells if _is_stored(cell)]
                    for cell in filter(is_grade, notebook.cells):
                        determine_grade(cell)
                except (ValueError, KeyError, AttributeError, TypeError) as error:
                    raise GradingFailed(f"the marked {name} of {student} cannot be read: {error!r}") from error
                if sorted(cells) != sorted(self.book.sources[name]):
                    raise GradingFailed(
                        f"the marked {name} of {student} has not the cells of the gradebook: it was marked for another "
                        f"version of {self.assignment}. Grade it again."
                    )
        return notebooks

    def _merge(self, student: str, results: dict[str, Result], notebooks: dict, submitted_at: datetime | None) -> None:
        folder = _folder(self.stock.coursedir, student, self.assignment)
        folder.mkdir(parents=True, exist_ok=True)
        when = {} if submitted_at is None else {"timestamp": parse_utc(submitted_at)}
        with warnings.catch_warnings(), lent(self.book, *self.kinds):
            warnings.simplefilter("ignore", SAWarning)  # nbgrader's own use of its database
            self.book.update_or_create_student(student)
            submission = self.book.update_or_create_submission(self.assignment, student, **when)
            for rows in self.book.rows_of(submission):
                target, result = folder / f"{rows.name}.ipynb", results.get(rows.name)
                marked = self._merge_notebook(student, rows, result, notebooks.get(rows.name), _key(target))
                self._put(target, marked and nbformat.v4.writes(marked) + "\n")
            self.book.db.flush()
        if submission.timestamp:
            self._put(folder / "timestamp.txt", f"{submission.timestamp.isoformat(' ')} UTC\n")
        if self.stock.coursedir.groupshared:
            self.stock.set_permissions(self.assignment, student)

    def _merge_notebook(
        self, student: str, rows: SubmittedNotebook, result: Result | None, notebook: NotebookNode | None, before: str
    ) -> NotebookNode | None:
        """Set the rows of one notebook, `before` being its key so far; returns what belongs under autograded/."""
        same_work = result is not None and result.key == before
        reviewed = [grade for grade in rows.grades if same_work and not grade.needs_manual_grade]
        if notebook is None:
            for grade in rows.grades:
                grade.auto_score, grade.needs_manual_grade = 0.0, result is not None
            for comment in rows.comments:
                comment.auto_comment = None
            rows.late_submission_penalty = None
            if result is None:
                return None
            notebook = self._unreadable(rows.name, result)
        else:
            resources = _resources(self.config, self.assignment, rows.name, student)
            for step in self.steps:
                notebook, resources = step(notebook, resources)
            for name, grade in self.book.grades.items():  # a task, which no step of nbgrader touches
                if isinstance(self.book.graded[rows.name][name], TaskCell) and grade.manual_score is None:
                    grade.auto_score, grade.needs_manual_grade = None, True
        for grade in reviewed:
            grade.needs_manual_grade = False
        if not same_work and (result.flags or result.notebook is None):
            rows.flagged = True
        notebook.metadata["classroom"] = {"key": result.key}
        return notebook

    def _unreadable(self, name: str, result: Result) -> NotebookNode:
        """For a file in which nothing could be read: why, and the graded cells, so that a person can mark them."""
        why = [f"- {html.escape(finding)}" for finding in result.findings or ["The file could not be read."]]
        cells = [nbformat.v4.new_markdown_cell("\n".join(["**Not marked.**", "", *why]), id="why")]
        putting_back = OverwriteCells(missing_cell_notification=NOT_RUN)
        for source in self.book.sources[name].values():
            if graded := self.book.graded[name].get(source.name):
                kind = {"is_solution": source.name in self.book.answers[name], "is_task": isinstance(graded, TaskCell)}
                cell = putting_back.missing_cell_transform(source, self.book.points[name][source.name], **kind)
                cells.append(NotebookNode(cell, id=f"graded-{len(cells)}"))
        return nbformat.v4.new_notebook(cells=cells)

    def _put(self, target: Path, text: str | None) -> None:
        """Have `commit` put a file there, or take it away."""
        beside = None
        if text is not None:
            beside = target.with_name(f".{target.stem}.new.ipynb")  # a hidden notebook is nothing to nbgrader
            beside.unlink(missing_ok=True)  # one that was left is write-protected
            beside.write_bytes(text.encode("utf-8", "replace"))
            beside.chmod(int(str(self.stock.permissions), 8))
        self.waiting.append((target, beside))


# ---- small pieces ----


def _resources(config: Config, assignment: str, notebook: str, student: str = ".") -> dict:
    """What nbgrader tells its steps."""
    about = {"assignment": assignment, "notebook": notebook, "student": student}
    return {"unique_key": notebook, "nbgrader": {**about, "db_url": config.CourseDirectory.db_url}}


def _is_stored(cell: NotebookNode) -> bool:
    """Whether nbgrader's SaveCells keeps this cell."""
    return is_grade(cell) or is_solution(cell) or is_locked(cell) or is_task(cell)


def _folder(place: CourseDirectory, student: str, assignment: str) -> Path:
    return Path(place.format_path(place.autograded_directory, student, assignment))


def _key(path: Path) -> str | None:
    """The key of the result that a file under autograded/ was made of; None if nobody knows."""
    try:
        return json.loads(path.read_bytes())["metadata"]["classroom"]["key"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _cells_changed(assignment: str, what: str) -> GradingFailed:
    return GradingFailed(
        f"the cells of {assignment} have changed since it was graded, and nbgrader keeps marks by cell: {what}. "
        "Go back to the cells as they were, give the new version another name, or remove the assignment with its "
        f"marks: nbgrader db assignment remove {assignment} --force."
    )
