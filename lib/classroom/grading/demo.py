"""`make grade`: a demonstration class, graded by nbgrader's own autograder.

Everything lies under grading/demo/ and has its own gradebook: a teacher's real class is never touched.
The submissions and their expected marks stand in `demo_class`, in a module of the assignment's stem.
"""

from __future__ import annotations

import csv
import importlib
import pkgutil
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbgrader.utils import is_grade, rmtree
from traitlets.config import Config

from classroom.grading import course, demo_class
from classroom.grading.course import ROOT, GradingFailed
from classroom.grading.demo_class.submission import Submission
from classroom.grading.release import build


@dataclass(frozen=True)
class Row:
    """One submission of the table: points by problem, and what they should be (None: nbgrader gave no marks)."""

    student: str
    points: dict[str, float] | None
    expected: dict[str, float]

    @property
    def total(self) -> float:
        return sum((self.points or {}).values())

    @property
    def as_expected(self) -> bool:
        return self.points == self.expected


def grade(assignment: str, folder: Path, *, feedback: bool = True) -> list[Row]:
    """Grade the demonstration class of `assignment` in `folder`, with marks.csv and, if asked for, feedback pages.

    Removes what an earlier run left there, and nothing else.
    """
    if folder.resolve() == ROOT:
        raise GradingFailed("the demonstration class must not be graded in the repository's own folder.")
    submissions(course.known(assignment))  # refuses, before anything is removed
    _clear(folder)
    folder.mkdir(parents=True, exist_ok=True)
    released = build(assignment, folder) / f"{assignment}.ipynb"
    config = course.settings(folder)
    hand_in(config, assignment, released)
    course.autograde(config, assignment)
    graded = rows(assignment, released, course.marks(config, assignment))
    if feedback:
        course.feedback(config, assignment)
    _write_marks(folder / "marks.csv", assignment, graded)
    return graded


def submissions(assignment: str) -> list[Submission]:
    """The demonstration class of an assignment."""
    there = sorted(module.name for module in pkgutil.iter_modules(demo_class.__path__) if module.name != "submission")
    stem = assignment.partition("_")[2]
    if stem not in there:
        raise GradingFailed(f"{assignment} has no demonstration class; there is one for: {', '.join(there)}.")
    return importlib.import_module(f"classroom.grading.demo_class.{stem}").SUBMISSIONS


def hand_in(config: Config, assignment: str, released: Path) -> None:
    """Submit the notebooks of the demonstration class in a course folder."""
    reference = course.answers(nbformat.read(ROOT / "solutions" / assignment / f"{assignment}.ipynb", as_version=4))
    for submission in submissions(assignment):
        course.submit(config, assignment, submission.student, released, submission.answers(reference))


def rows(assignment: str, released: Path, marks: dict[str, dict[str, float]]) -> list[Row]:
    """What each of the class got (`marks` as of `course.marks`) beside what it must get."""
    tests = [cell.metadata.nbgrader for cell in nbformat.read(released, as_version=4).cells if is_grade(cell)]
    full = by_problem({test.grade_id: test.points for test in tests})
    return [
        Row(one.student, by_problem(marks[one.student]) if one.student in marks else None, one.expected(full))
        for one in submissions(assignment)
    ]


def by_problem(points: dict[str, float]) -> dict[str, float]:
    """Points by problem: the id of a test cell begins with its problem, as in ``p5-norms``."""
    totals: dict[str, float] = {}
    for name in sorted(points):
        problem = name.split("-")[0]
        totals[problem] = totals.get(problem, 0) + points[name]
    return totals


def table(rows: list[Row]) -> str:
    """The rows as text."""
    problems = list(rows[0].expected)
    wide = max(len(row.student) for row in rows)
    lines = [f"{'submission':{wide}}  {' '.join(f'{p:>3}' for p in problems)}  total  expected"]
    for row in rows:
        points = [f"{row.points[p]:3g}" if row.points else "  –" for p in problems]
        expected = sum(row.expected.values())
        verdict = "ok" if row.as_expected else f"NOT OK: by problem {row.expected} was expected"
        lines.append(f"{row.student:{wide}}  {' '.join(points)}  {row.total:5g}  {expected:8g}  {verdict}")
    return "\n".join(lines)


def _clear(folder: Path) -> None:
    for name in ("solutions", "exercises", "submitted", "autograded", "feedback"):
        if (folder / name).is_dir():
            rmtree(str(folder / name))  # nbgrader's own, since it write-protects what it graded
    for name in ("gradebook.db", "marks.csv", "nbgrader.log"):
        (folder / name).unlink(missing_ok=True)


def _write_marks(path: Path, assignment: str, rows: list[Row]) -> None:
    problems = list(rows[0].expected)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["assignment", "student", *problems, "total", "max"])
        largest = max(sum(row.expected.values()) for row in rows)
        for row in rows:
            points = [*(row.points[p] for p in problems), row.total] if row.points else [""] * (len(problems) + 1)
            writer.writerow([assignment, row.student, *(f"{x:g}" if x != "" else x for x in points), largest])
