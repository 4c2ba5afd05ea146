"""The graders graded: every known wrong answer and the demonstration class through nbgrader's own autograder.

`CATALOGUE` in classroom/checks/STEM_slips.py holds the wrong answers that each check knows, `SUBMISSIONS` in
demo_class/STEM.py right answers in several styles, typical wrong ones, an untouched notebook and one that does not
run. A submission carries several slips, none of which touches the answer of another, so that a table costs few runs.
chapters/data/graders.json keeps the table for the book; the tests compare it with what they measure.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.utils import is_grade, is_task
from traitlets.config import Config

from classroom.grading import course, demo, warm
from classroom.grading.course import ROOT, GradingFailed
from classroom.grading.release import build
from classroom.notebooks import write_if_changed

TABLE = ROOT / "chapters" / "data" / "graders.json"
REFERENCE, UNTOUCHED, BROKEN = "demo-perfect", "demo-untouched", "demo-does-not-run"  # in every demonstration class


@dataclass(frozen=True)
class Assignment:
    """What the names of an assignment's files and cells say about it."""

    name: str

    @property
    def stem(self) -> str:
        return self.name.partition("_")[2]

    @property
    def slips_module(self) -> str:
        return f"classroom.checks.{self.stem}_slips"

    @property
    def catalogue(self) -> dict[str, dict[str, dict]]:
        """Check → what a slip is → names of the answer cell and the wrong values that the slip gives them."""
        return importlib.import_module(self.slips_module).CATALOGUE

    @property
    def slips_in(self) -> str:
        """Whose right answers the slips are put into: another's than the reference, where these take long to run."""
        return getattr(importlib.import_module(f"classroom.grading.demo_class.{self.stem}"), "SLIPS_IN", REFERENCE)

    @cached_property
    def source(self) -> NotebookNode:
        return nbformat.read(ROOT / "solutions" / self.name / f"{self.name}.ipynb", as_version=4)

    @property
    def tests(self) -> dict[str, str]:
        """The check that each graded cell is named after → the cell's id."""
        ids = [cell.metadata.nbgrader.grade_id for cell in tests(self.source)]
        return {name.split("-", 1)[1]: name for name in ids}

    @property
    def points(self) -> float:
        """What the autograder gives for right answers."""
        return sum(cell.metadata.nbgrader.points for cell in tests(self.source))

    @property
    def points_by_hand(self) -> float:
        """What a person gives, who reads an essay."""
        return sum(cell.metadata.nbgrader.points for cell in self.source.cells if is_task(cell))


def tests(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells that the autograder marks."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and is_grade(cell)]


@dataclass(frozen=True)
class Slip:
    """A known wrong answer, the points that its cell got for it, and what the cell answered."""

    check: str
    says: str
    points: float
    answer: str

    @property
    def is_named(self) -> bool:
        return self.says in self.answer


@dataclass(frozen=True)
class Trial:
    """What came of everything that was handed in."""

    assignment: Assignment
    slips: list[Slip]
    class_: dict[str, demo.Row]  # student → marks by problem beside those expected
    untouched: NotebookNode  # the released notebook, run
    left_to_a_person: set[str]  # cells of any submission that nbgrader gave no mark

    @property
    def false_accepts(self) -> int:
        """Slips that keep a point, and problems of the class with more points than the answers are worth."""
        return sum(slip.points > 0 for slip in self.slips) + self._misjudged(lambda got, due: got > due)

    @property
    def false_rejects(self) -> int:
        """Problems of the class with fewer points than the answers are worth."""
        return self._misjudged(lambda got, due: got < due)

    def _misjudged(self, wrongly) -> int:
        """How many problems of the class got wrong marks, a notebook without marks counting as nothing."""
        pairs = [((row.points or {}).get(p, 0), due) for row in self.class_.values() for p, due in row.expected.items()]
        return sum(wrongly(got, due) for got, due in pairs)

    def styles(self) -> dict[str, float]:
        """Points of the right answers other than the reference, by their style."""
        right = [row for row in self.class_.values() if sum(row.expected.values()) == self.assignment.points]
        return {_style(row.student): _plain(row.total) for row in right if row.student != REFERENCE}

    def record(self) -> dict:
        """A row of the table, and the slips by check."""
        known = self.assignment.catalogue
        return {
            "points": _plain(self.assignment.points),
            "by_hand": _plain(self.assignment.points_by_hand),
            "checks": len(self.assignment.tests),
            "reference": _plain(self.class_[REFERENCE].total),
            "styles": self.styles(),
            "untouched": _plain(self.class_[UNTOUCHED].total),
            "broken": _plain(self.class_[BROKEN].total),
            "tried": len(self.slips),
            "rejected": sum(slip.points == 0 for slip in self.slips),
            "named": sum(slip.is_named for slip in self.slips),
            "false_accepts": self.false_accepts,
            "false_rejects": self.false_rejects,
            "slips": {check: [*known[check]] for check in self.assignment.tests if check in known},
        }


def run(name: str, folder: Path) -> Trial:
    """Hand everything in and have it graded, in the course folder `folder`, which is empty or absent."""
    assignment = Assignment(course.known(name))
    released = build(name, folder) / f"{name}.ipynb"
    config = course.settings(folder)
    rounds = {f"slips-{k}": slips for k, slips in enumerate(pack(assignment.catalogue))}
    for student, slips in rounds.items():
        course.submit(config, name, student, released, answers_with(slips, assignment))
    demo.hand_in(config, name, released)
    with warm.kernels(), course.throwaway():
        complete = course.autograde(config, name)
    if not complete:
        raise GradingFailed(f"nbgrader could not grade all of {name}:\n{course.end_of_log(folder)}")

    marks = course.marks(config, name)
    tried = []
    for student, slips in rounds.items():
        answers = said(_graded(config, name, student))
        for check, says in slips.items():
            cell = assignment.tests[check]
            tried.append(Slip(check, says, marks[student][cell], answers[cell]))
    return Trial(
        assignment,
        tried,
        {row.student: row for row in demo.rows(name, released, marks)},
        _graded(config, name, UNTOUCHED),
        course.left_to_a_person(config, name),
    )


def pack(catalogue: dict[str, dict[str, dict]]) -> list[dict[str, str]]:
    """Each slip in some round, check → what it is; no two slips of a round in a name or a check that they share."""
    rounds: list[tuple[dict[str, str], set[str]]] = []
    for check, known in catalogue.items():
        for says, answers in known.items():
            slips, taken = next((one for one in rounds if not one[1] & {*answers} and check not in one[0]), ({}, set()))
            if not slips:
                rounds.append((slips, taken))
            slips[check] = says
            taken |= {*answers}
    return [slips for slips, _ in rounds]


def said(notebook: NotebookNode) -> dict[str, str]:
    """What each graded cell answered: the id of the cell → the messages of its errors."""
    return {
        cell.metadata.nbgrader.grade_id: "\n".join(
            "\n".join([*out.get("traceback", ()), out.get("evalue", "")]) for out in cell.outputs
        )
        for cell in tests(notebook)
    }


def table(records: dict[str, dict]) -> str:
    """The rows as text."""
    heads = ("points", "reference", "styles", "untouched", "broken", "tried", "rejected", "named")
    heads += ("false_accepts", "false_rejects")
    lines = [["assignment", *(head.replace("_", " ") for head in heads)]]
    for name, record in records.items():
        cells = record | {"styles": " ".join(f"{points:g}" for points in record["styles"].values())}
        lines.append([name, *(str(cells[head]) for head in heads)])
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(cell.rjust(wide) for cell, wide in zip(line, widths)) for line in lines)


def committed() -> dict[str, dict]:
    """The table as it stands in chapters/data/graders.json."""
    return json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.is_file() else {}


def write(records: dict[str, dict]) -> bool:
    """Put these rows into the table, and take rows of assignments out that are there no more; True if it changed."""
    rows = committed() | records
    kept = {name: rows[name] for name in course.assignments() if name in rows}
    return write_if_changed(TABLE, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def answers_with(slips: dict[str, str], assignment: Assignment) -> dict[str, str]:
    """Right answers, with names given wrong values at the end of their cells."""
    submission = next(one for one in demo.submissions(assignment.name) if one.student == assignment.slips_in)
    answers = submission.answers(course.answers(assignment.source))
    for check, says in slips.items():
        cell = f"{assignment.tests[check].split('-')[0]}-answer"
        answers[cell] += f"\n\nfrom {assignment.slips_module} import CATALOGUE\n"
        for name in assignment.catalogue[check][says]:
            answers[cell] += f"{name} = CATALOGUE[{check!r}][{says!r}][{name!r}]\n"
    return answers


def _graded(config: Config, name: str, student: str) -> NotebookNode:
    place = config.CourseDirectory
    return nbformat.read(Path(place.root, place.autograded_directory, student, name, f"{name}.ipynb"), as_version=4)


def _style(student: str) -> str:
    return student.removeprefix("demo-")


def _plain(points: float) -> int | float:
    return int(points) if points == int(points) else points
