"""The demonstration class of an assignment: right answers in several styles, typical wrong ones, and no answers.

The submissions and their expected marks stand in `demo_class`, in a module of the assignment's stem.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbgrader.utils import is_grade
from traitlets.config import Config

from classroom.grading import course, demo_class
from classroom.grading.course import ROOT, GradingFailed
from classroom.grading.demo_class.submission import Submission


@dataclass(frozen=True)
class Row:
    """One submission: points by problem, and what they should be (None: nbgrader gave no marks)."""

    student: str
    points: dict[str, float] | None
    expected: dict[str, float]

    @property
    def total(self) -> float:
        return sum((self.points or {}).values())

    @property
    def as_expected(self) -> bool:
        return self.points == self.expected


def submissions(assignment: str) -> list[Submission]:
    """The demonstration class of an assignment."""
    names = {module.name for module in pkgutil.iter_modules(demo_class.__path__)}
    there = sorted(names & {name.partition("_")[2] for name in course.assignments()})
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
