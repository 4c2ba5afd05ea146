"""Every grader is graded, by one convention for all assignments: classroom.grading.trial says which.

One run of nbgrader's autograder for each assignment serves all tests here, the untouched notebook included.
"""

import copy
import functools
import importlib
import inspect
import io
import re
from contextlib import redirect_stdout

import pytest
import torch
from nbgrader.utils import is_grade, is_solution, is_task

from classroom import terms
from classroom.checks.expect import UNANSWERED, CheckFailed, same
from classroom.grading import course, demo, trial
from classroom.grading.trial import BROKEN, REFERENCE, UNTOUCHED, Assignment


@pytest.fixture(scope="module", params=course.assignments())
def assignment(request) -> Assignment:
    return Assignment(request.param)


@pytest.fixture(scope="module")
def right(assignment) -> dict:
    """Every name that the reference answers and the given cells define."""
    names = {}
    with redirect_stdout(io.StringIO()):
        for cell in assignment.source.cells:
            if cell.cell_type == "code":
                exec(cell.source, names)
    return names


def visible_check(assignment: Assignment, check: str, answers: dict) -> None:
    """The check that students see on these answers, by the names of its parameters."""
    function = getattr(importlib.import_module(f"classroom.checks.{assignment.stem}"), check)
    names = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    function(*[answers[name] for name in names])


def test_the_visible_check_names_every_slip(assignment, right):
    """At least ten typical wrong answers an assignment, each told which one it is."""
    slips = [(check, says) for check, known in assignment.catalogue.items() for says in known]
    assert len(slips) >= 10
    assert set(assignment.catalogue) <= set(assignment.tests)
    for check, says in slips:
        with pytest.raises(CheckFailed) as failure, redirect_stdout(io.StringIO()):
            visible_check(assignment, check, right | assignment.catalogue[check][says])
        assert failure.value.slip == says, (check, says, str(failure.value))
        assert says in str(failure.value)


def overwritten(value) -> bool:
    """Tensors, and those of a model, become zeros; a list or a dict of other things loses its last one."""
    if isinstance(value, torch.nn.Module):
        return any([overwritten(weight) for weight in value.parameters()])
    if isinstance(value, torch.Tensor):
        with torch.no_grad():
            value.zero_()
        return True
    parts = list(value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ())
    changed = any([overwritten(part) for part in parts])
    if parts and not isinstance(value, tuple) and not isinstance(parts[0], torch.Tensor):
        value.pop() if isinstance(value, list) else value.popitem()
        changed = True
    return changed


def overwriting(function, one: str, tells: list):
    """The answer for what this argument is after it was written into; `tells` grows where that is another one."""

    @functools.wraps(function)
    def answer(**arguments):
        right = function(**copy.deepcopy(arguments))
        changed = overwritten(arguments.get(one))
        wrong = function(**arguments)
        try:
            same([wrong], [right], "answer")
        except CheckFailed:
            tells.extend([function.__name__] * changed)
        return wrong

    return answer


# any merges give a round trip
RIGHT_ALL_THE_SAME = {("round_trip", "encode")}


def test_no_check_is_fooled_by_an_answer_that_writes_into_its_arguments(assignment, right):
    """What is expected follows from what was handed in, and the next check finds that as it was."""
    if any("set_default_dtype(torch.float64)" in cell.source for cell in assignment.source.cells):
        torch.set_default_dtype(torch.float64)  # until the end of this test
    source = "\n".join(cell.source for cell in assignment.source.cells if is_solution(cell))
    functions = {name for name in right if re.search(rf"^(def {name}\(|{name} = lambda)", source, re.MULTILINE)}
    module = importlib.import_module(f"classroom.checks.{assignment.stem}")
    for check in assignment.tests:
        for name in functions & {*inspect.signature(getattr(module, check)).parameters}:
            passes = passing(assignment, check, right)
            for one in inspect.signature(right[name]).parameters:
                tells = []
                fooled = passing(assignment, check, right | {name: overwriting(right[name], one, tells)})
                assert not (fooled and tells) or (check, name) in RIGHT_ALL_THE_SAME, (check, name, one)
            assert passing(assignment, check, right) == passes, (check, name)


def passing(assignment: Assignment, check: str, answers: dict) -> bool:
    with redirect_stdout(io.StringIO()):
        try:
            visible_check(assignment, check, answers)
        except CheckFailed:
            return False
    return True


@pytest.fixture(scope="module")
def tried(assignment, tmp_path_factory) -> trial.Trial:
    return trial.run(assignment.name, tmp_path_factory.mktemp(assignment.name))


def test_every_slip_loses_its_points_and_is_told_so(assignment, tried):
    known = [(check, says) for check, slips in assignment.catalogue.items() for says in slips]
    assert sorted((slip.check, slip.says) for slip in tried.slips) == sorted(known)
    assert [(slip.check, slip.says) for slip in tried.slips if slip.points != 0] == []
    assert [(slip.check, slip.says, slip.answer) for slip in tried.slips if not slip.is_named] == []


def test_right_answers_in_any_style_get_full_marks_and_the_class_its_own(assignment, tried):
    wrong = [row for row in tried.class_.values() if not row.as_expected]
    assert wrong == []
    assert tried.class_[REFERENCE].total == assignment.points
    assert len(tried.styles()) >= 2
    assert tried.class_[UNTOUCHED].total == tried.class_[BROKEN].total == 0
    assert sum(0 < row.total < assignment.points for row in tried.class_.values()) >= 2
    assert tried.false_accepts == tried.false_rejects == 0


def test_nothing_but_an_essay_waits_for_a_person(assignment, tried):
    by_hand = {cell.metadata.nbgrader.grade_id for cell in assignment.source.cells if is_task(cell)}
    assert tried.left_to_a_person == by_hand


def test_the_table_of_the_book_says_what_was_measured(assignment, tried):
    row, measured = trial.committed().get(assignment.name), tried.record()
    if row and terms.seed():  # the descriptions hold numbers of the term; the table, the printed ones
        for each in (row, measured):
            each["slips"] = {check: len(known) for check, known in each["slips"].items()}
    assert row == measured, f"run: python -m classroom.grading trial {assignment.name}"


def test_an_untouched_notebook_runs_to_its_end(assignment, tried):
    """Only what waits for an answer fails: the answer itself, its checks, and given cells of the same problem."""
    for cell in tried.untouched.cells:
        name = cell.metadata.nbgrader.grade_id
        errors = [out for out in cell.get("outputs", ()) if out.output_type == "error"]
        if is_solution(cell):
            assert [(error.ename, error.evalue) for error in errors] in (
                [],
                [("NotImplementedError", UNANSWERED)],
            ), name
        elif is_grade(cell):
            assert [error.ename for error in errors] == ["CheckFailed"], (name, errors)
            assert UNANSWERED in errors[0].evalue, (name, errors[0].evalue)
        elif errors:
            assert re.match(r"p\d-", name), (name, errors)


@pytest.mark.parametrize("name", trial.committed())
def test_the_table_gives_no_answer_away(name):
    """A description of a slip holds no line of a solution, and no large number that students do not have, up to one."""
    released = (course.ROOT / "exercises" / name / f"{name}.ipynb").read_text(encoding="utf-8")
    solution = "\n".join(
        part
        for cell in Assignment(name).source.cells
        for part in re.findall(r"### BEGIN (?:SOLUTION|HIDDEN TESTS)\n(.*?)### END", cell.source, re.DOTALL)
    )
    lines = {line.strip() for line in solution.splitlines() if len(line.strip()) > 12}
    theirs = numbers_in(released.replace("{,}", ""))
    numbers = numbers_in(solution) - {number + k for number in theirs for k in (-1, 0, 1)}
    assert lines
    for check, slips in trial.committed()[name]["slips"].items():
        for says in slips:
            assert not [line for line in lines if line in says], (check, says)
            assert not numbers_in(says) & numbers, (check, says)


def numbers_in(text: str) -> set[int]:
    """Numbers of five digits or more, without their separators."""
    return {int(re.sub(r"\D", "", number)) for number in re.findall(r"\d[\d_,]{3,}\d", text)}


def test_the_table_has_a_row_for_each_assignment():
    assert [*trial.committed()] == course.assignments(), "run: python -m classroom.grading trial"


# ---- the trial itself ----


def trial_of(slips=(), **class_) -> trial.Trial:
    rows = {student: demo.Row(student, got, due) for student, (got, due) in class_.items()}
    return trial.Trial(Assignment("00_none"), list(slips), rows, None, set())


def test_what_is_judged_wrongly_is_counted():
    slips = [trial.Slip("c", "a slip", points, said) for points, said in ((0, "✗ a slip"), (1, "✗ a slip"), (0, "✗"))]
    assert [slip.is_named for slip in slips] == [True, True, False]
    assert trial_of(slips).false_accepts == 1
    assert trial_of(one=({"p1": 2, "p2": 0}, {"p1": 1, "p2": 3})).false_accepts == 1
    assert trial_of(one=({"p1": 2, "p2": 0}, {"p1": 1, "p2": 3})).false_rejects == 1
    assert trial_of(one=(None, {"p1": 1, "p2": 3})).false_rejects == 2
    assert trial_of(one=({"p1": 1.0}, {"p1": 1})).false_rejects == 0


def test_slips_of_one_round_touch_no_common_name():
    known = {"a": {"1": {"x": 0}, "2": {"x": 0}}, "b": {"3": {"x": 0, "y": 0}, "4": {"y": 0}}, "c": {"5": {"z": 0}}}
    assert trial.pack(known) == [{"a": "1", "b": "4", "c": "5"}, {"a": "2"}, {"b": "3"}]
