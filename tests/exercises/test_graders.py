"""Every grader is graded, by one convention for all assignments.

`CATALOGUE` in classroom/checks/STEM_slips.py holds each check's known slips, `SUBMISSIONS` in
classroom/grading/demo_class/STEM.py right answers in several styles and typical wrong ones.
"""

import importlib
import inspect
import io
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property

import nbformat
import pytest
from nbgrader.utils import is_grade

from classroom.checks.expect import CheckFailed
from classroom.grading import course, demo
from classroom.grading.release import build

ASSIGNMENTS = [name for name in course.assignments() if name != "09_parameters"]  # test_parameters.py and test_demo.py


@dataclass(frozen=True)
class Assignment:
    name: str

    @property
    def stem(self) -> str:
        return self.name.partition("_")[2]

    @property
    def slips_module(self) -> str:
        return f"classroom.checks.{self.stem}_slips"

    @property
    def catalogue(self) -> dict[str, dict[str, dict]]:
        return importlib.import_module(self.slips_module).CATALOGUE

    @cached_property
    def source(self):
        return nbformat.read(course.ROOT / "solutions" / self.name / f"{self.name}.ipynb", as_version=4)

    @property
    def tests(self) -> dict[str, str]:
        """The check that each graded cell is named after → the cell's id."""
        ids = [cell.metadata.nbgrader.grade_id for cell in self.source.cells if is_grade(cell) and is_code(cell)]
        return {name.split("-", 1)[1]: name for name in ids}

    def run(self, check: str, answers: dict) -> None:
        """The visible check on these answers, by the names of its parameters."""
        function = getattr(importlib.import_module(f"classroom.checks.{self.stem}"), check)
        names = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        function(*[answers[name] for name in names])


def is_code(cell) -> bool:
    return cell.cell_type == "code"


@pytest.fixture(scope="module", params=ASSIGNMENTS)
def assignment(request) -> Assignment:
    return Assignment(request.param)


@pytest.fixture(scope="module")
def right(assignment) -> dict:
    """Every name that the reference answers and the given cells define."""
    names = {}
    with redirect_stdout(io.StringIO()):
        for cell in filter(is_code, assignment.source.cells):
            exec(cell.source, names)
    return names


def test_the_visible_check_names_every_slip(assignment, right):
    """At least ten typical wrong answers an assignment, each told which one it is."""
    slips = [(check, says) for check, known in assignment.catalogue.items() for says in known]
    assert len(slips) >= 10
    assert set(assignment.catalogue) <= set(assignment.tests)
    for check, says in slips:
        with pytest.raises(CheckFailed) as failure, redirect_stdout(io.StringIO()):
            assignment.run(check, right | assignment.catalogue[check][says])
        assert failure.value.slip == says, (check, says, str(failure.value))
        assert says in str(failure.value)


@pytest.fixture(scope="module")
def graded(assignment, tmp_path_factory):
    """Submissions with several slips each, so that the whole table costs few runs; and what each cell answered."""
    folder = tmp_path_factory.mktemp("slips")
    released = build(assignment.name, folder) / f"{assignment.name}.ipynb"
    config, reference = course.settings(folder), course.answers(assignment.source)
    rounds = pack(assignment)
    for k, slips in enumerate(rounds):
        answers = dict(reference)
        for check, says in slips.items():
            cell = f"{problem(assignment, check)}-answer"
            answers[cell] += f"\n\nfrom {assignment.slips_module} import CATALOGUE\n"
            for name in assignment.catalogue[check][says]:
                answers[cell] += f"{name} = CATALOGUE[{check!r}][{says!r}][{name!r}]\n"
        course.submit(config, assignment.name, f"slip-{k}", released, answers)
    assert course.autograde(config, assignment.name), (folder / "nbgrader.log").read_text(encoding="utf-8")[-3000:]
    marks = course.marks(config, assignment.name)
    pages = [folder / "autograded" / f"slip-{k}" / assignment.name / released.name for k in range(len(rounds))]
    return [(slips, marks[f"slip-{k}"], said(page)) for k, (slips, page) in enumerate(zip(rounds, pages))]


def pack(assignment: Assignment) -> list[dict[str, str]]:
    """Each slip in some round, and no two slips of a round in answers of the same name."""
    rounds: list[tuple[dict[str, str], set[str]]] = []
    for check, known in assignment.catalogue.items():
        for says, answers in known.items():
            slips, taken = next((one for one in rounds if not one[1] & {*answers} and check not in one[0]), ({}, set()))
            if not slips:
                rounds.append((slips, taken))
            slips[check] = says
            taken |= {*answers}
    return [slips for slips, _ in rounds]


def problem(assignment: Assignment, check: str) -> str:
    return assignment.tests[check].split("-")[0]


def said(page) -> dict[str, str]:
    """What each graded cell answered."""
    cells = [cell for cell in nbformat.read(page, as_version=4).cells if is_code(cell) and is_grade(cell)]
    return {
        cell.metadata.nbgrader.grade_id: "\n".join(
            "\n".join(out.get("traceback", [])) + out.get("evalue", "") for out in cell.outputs
        )
        for cell in cells
    }


def test_every_slip_loses_its_points_and_is_told_so(assignment, graded):
    tried = [(check, says) for slips, *_ in graded for check, says in slips.items()]
    assert sorted(tried) == sorted((check, says) for check, known in assignment.catalogue.items() for says in known)
    for slips, marks, answers in graded:
        for check, says in slips.items():
            cell = assignment.tests[check]
            assert marks[cell] == 0, f"accepted: {says}"
            assert says in answers[cell], f"{cell} says nothing of: {says}\n{answers[cell]}"


def test_right_answers_in_any_style_get_full_marks_and_the_class_its_own(assignment, tmp_path):
    rows = {row.student: row for row in demo.grade(assignment.name, tmp_path / "demo", feedback=False)}
    assert {student for student, row in rows.items() if not row.as_expected} == set(), demo.table([*rows.values()])
    full = sum(cell.metadata.nbgrader.points for cell in assignment.source.cells if is_grade(cell) and is_code(cell))
    complete = [student for student, row in rows.items() if row.total == full]
    assert len(complete) >= 3 and "demo-perfect" in complete
    for student in ("demo-untouched", "demo-does-not-run"):
        assert rows[student].total == 0
    assert sum(0 < row.total < full for row in rows.values()) >= 2
