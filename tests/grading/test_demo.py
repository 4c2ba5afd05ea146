"""`make grade`: the simulated class, graded by the command for real classes, and what it leaves behind."""

import csv
import io
import re
from contextlib import redirect_stdout
from functools import partial
from html import unescape

import nbformat
import pytest

from classroom.grading import __main__ as command
from classroom.grading import robots
from classroom.grading.course import ROOT, GradingFailed
from classroom.grading.feedback import StripHiddenTests
from classroom.grading.robots import Robot, Row

NAME = "09_parameters"
FULL = 20
QUICK = ("right", "partly right", "nothing right")  # the others take minutes; tests of their own grade them


@pytest.fixture(scope="module")
def graded(tmp_path_factory, boxes):
    """The folder of a demonstration, its exit code and what it printed."""
    folder = tmp_path_factory.mktemp("grading") / "demo"
    (folder / "feedback" / "stale").mkdir(parents=True)
    (folder / "mine.txt").write_text("a file of the teacher's")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "DEMO", folder)
        patch.setattr(robots, "grade", partial(robots.grade, kinds=QUICK))
        patch.setenv("PATH", "/usr/bin:/bin")  # nbgrader looks for alembic here; .venv/bin is not on it
        printed = io.StringIO()
        with redirect_stdout(printed):
            code = command.main(["demo", NAME])
    return folder, code, printed.getvalue()


@pytest.fixture(scope="module")
def marks(graded) -> dict[str, dict[str, str]]:
    with (graded[0] / "marks.csv").open(encoding="utf-8", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def test_every_robot_gets_the_marks_that_it_must_get(graded, marks):
    folder, code, printed = graded
    assert code == 0, printed
    assert f"{len(marks)} of {len(marks)} submissions have the expected marks" in printed
    assert "NOT OK" not in printed and {row["as expected"] for row in marks.values()} == {"yes"}
    for path in ("marks.csv", "feedback"):
        assert str(folder / path) in printed


def test_the_class_has_robots_of_each_kind(marks):
    assert {row["kind"] for row in marks.values()} == {*QUICK}
    assert {row["assignment"] for row in marks.values()} == {NAME}
    assert len([student for student in marks if student.startswith("demo-")]) == 8


def test_right_answers_in_any_style_get_full_marks(marks):
    for student in ("demo-perfect", "demo-loops", "demo-terse"):
        assert float(marks[student]["total"]) == FULL


def test_untouched_and_broken_notebooks_get_nothing_and_stop_nobody(marks):
    for student in ("demo-untouched", "demo-does-not-run"):
        assert {float(points) for column, points in marks[student].items() if re.match(r"p\d", column)} == {0.0}
        assert marks[student]["total"] == "0"


def test_wrong_answers_lose_some_points_and_keep_some(marks):
    for student in ("demo-no-grouping", "demo-trusting", "demo-forgetful"):
        assert 0 < float(marks[student]["total"]) < FULL


def test_feedback_shows_the_slip_and_no_hidden_test(graded):
    source = nbformat.read(ROOT / "solutions" / NAME / f"{NAME}.ipynb", as_version=4)
    hidden = [
        line.strip()
        for cell in source.cells
        for part in re.findall(r"### BEGIN HIDDEN TESTS\n(.*?)### END HIDDEN TESTS", cell.source, re.DOTALL)
        for line in part.splitlines()
        if "(" in line and "=" in line
    ]
    assert hidden
    pages = {page.parts[-3]: page for page in (graded[0] / "feedback").glob(f"*/{NAME}/*.html")}
    assert len(pages) == 8
    for page in pages.values():
        text = unescape(re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8")))
        assert [line for line in ["HIDDEN TESTS", "hidden_test", *hidden] if line in text] == []
    assert "n_kv_heads · d_head wide" in pages["demo-no-grouping"].read_text(encoding="utf-8")


def test_only_an_earlier_demonstration_is_removed(graded):
    assert (graded[0] / "mine.txt").is_file()
    assert not (graded[0] / "feedback" / "stale").exists()
    with pytest.raises(GradingFailed):
        robots.grade(NAME, ROOT)
    assert (ROOT / "solutions" / NAME).is_dir()


def test_an_unknown_assignment_is_refused_with_the_names_there_are(capsys):
    assert command.main(["demo", "9_parameters"]) == 1
    assert NAME in capsys.readouterr().err
    assert command.main(["release", "nope"]) == 1
    assert NAME in capsys.readouterr().err


def test_a_row_that_is_not_as_expected_is_shown():
    robot = Robot("someone", "right", lambda folder: None, {"p1": 1})
    for got in ({"p1-check": 0.0}, None):
        row = Row(robot, got)
        assert row.faults == {"p1": (0, 1)}
        assert "NOT OK: someone, p1: 0 points; 1 were expected" in robots.table([row])
        assert re.search(r"right +0 of +1 as expected", robots.table([row]))
    fine = Row(robot, {"p1-check": 0.5, "p1-other": 0.5})
    assert not fine.faults and "NOT OK" not in robots.table([fine])


@pytest.mark.parametrize("part", ["p1", "p1-check", "total"])
def test_points_may_be_those_of_a_problem_a_test_cell_or_all(part):
    robot = Robot("someone", "right", lambda folder: None, {part: 2})
    assert not robot.faults({"p1-check": 2.0}) and robot.faults({"p1-check": 1.0, "p2-check": 2.0})


def test_a_traceback_through_a_hidden_test_is_cut():
    source = "check(f)\n### BEGIN HIDDEN TESTS\nf(98765)\n### END HIDDEN TESTS"
    cell = nbformat.v4.new_code_cell(source, metadata={"nbgrader": {"grade": True, "solution": False}})
    cell.outputs = [
        nbformat.v4.new_output("error", ename="NameError", evalue="f is missing", traceback=["----> 3 f(98765)"]),
    ]
    stripped, _ = StripHiddenTests().preprocess_cell(cell, {}, 0)
    assert "98765" not in str(stripped) and "f is missing" in stripped.outputs[0].traceback[0]
    own = nbformat.v4.new_code_cell(
        "### BEGIN HIDDEN TESTS\n1", metadata={"nbgrader": {"grade": False, "solution": True}}
    )
    assert StripHiddenTests().preprocess_cell(own, {}, 0)[0].source == own.source


def test_feedback_keeps_the_task_and_not_its_marking_scheme():
    cell = nbformat.v4.new_markdown_cell(
        "Marked by hand.\n=== BEGIN MARK SCHEME ===\nfull: cites 98765\n=== END MARK SCHEME ==="
    )
    cell.metadata.nbgrader = {"grade_id": "p8-essay", "task": True, "grade": False, "solution": False, "points": 4}
    stripped, _ = StripHiddenTests().preprocess_cell(cell, {}, 0)
    assert "Marked by hand." in stripped.source and "98765" not in stripped.source
