"""The simulated class: what its broken files get in the real command, and how wrong marks are told."""

import csv
import os
import re
from pathlib import Path

import nbformat
import pytest

from classroom.grading import answers as taking
from classroom.grading import broken_files, course, demo, intake, robots, trial
from classroom.grading.authority import authority
from classroom.grading.broken import ALL, NONE, SOME, Broken
from classroom.grading.course import ROOT, GradingFailed
from classroom.grading.robots import Robot, Row

NAME, KIND = "09_parameters", "broken files"


def class_of(assignment: str) -> list[Robot]:
    return robots.robots(assignment, ROOT / "exercises" / assignment / f"{assignment}.ipynb")


def table_of(assignment: str) -> dict[str, Broken]:
    release = nbformat.read(ROOT / "exercises" / assignment / f"{assignment}.ipynb", as_version=4)
    return broken_files.table(assignment, release, trial.answers_with({}, trial.Assignment(assignment)))


# ---- graded by the command ----


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("robots")


@pytest.fixture(scope="module")
def rows(folder, boxes) -> list[Row]:
    return robots.grade(NAME, folder, kinds=[KIND], n_workers=2, feedback=False)


def test_every_broken_file_gets_the_points_that_it_must_get(rows):
    expected = [broken for broken in table_of(NAME).values() if not broken.is_large]
    assert len(rows) == len(expected) - (os.geteuid() == 0)
    assert "NOT OK" not in robots.table(rows), robots.table(rows)
    totals = {row.robot.student: sum((row.got or {}).values()) for row in rows}
    full = trial.Assignment(NAME).points
    assert totals["broken-nothing-wrong"] == full and totals["broken-untouched"] == 0
    assert 0 < totals["broken-broken-off-in-the-middle"] < full
    assert [row.robot.student for row in rows if row.got is None] == ["broken-no-folder"]


def test_the_points_are_written_to_a_file(rows, folder):
    with (folder / "marks.csv").open(encoding="utf-8", newline="") as file:
        written = {row["student"]: row for row in csv.DictReader(file)}
    assert [*written] == [row.robot.student for row in rows]
    assert {row["as expected"] for row in written.values()} == {"yes"}


def test_a_robot_stays_in_its_own_folder(rows, folder):
    assert {path.name for path in (folder / "submitted").iterdir()} == {row.robot.student for row in rows}


# ---- what is expected, and how it is told ----


def test_marks_that_are_not_as_expected_are_shown():
    robot = Robot("broken-x", KIND, lambda folder: None, {"p1": 1.0, "p2-test": 2.0, "total": 3.0})
    fine, poor = Row(robot, {"p1-a": 0.5, "p1-b": 0.5, "p2-test": 2.0}), Row(robot, {"p1-a": 0.5, "p2-test": 2.0})
    absent, rich = Row(robot, None), Row(robot, {"p1-a": 1.0, "p2-test": 2.0, "p3-extra": 1.0})
    assert re.fullmatch(f"{KIND} +1 of +1 as expected", robots.table([fine]))
    assert robots.table([fine, poor]).splitlines()[1:] == [
        "NOT OK: broken-x, p1: 0.5 points; 1 were expected",
        "NOT OK: broken-x, total: 2.5 points; 3 were expected",
    ]
    assert re.match(f"{KIND} +1 of +2 as expected\n", robots.table([fine, poor]))
    assert {*absent.faults} == {"p1", "p2-test", "total"} and {*rich.faults} == {"total"}


def test_nothing_is_removed_where_a_class_cannot_be():
    with pytest.raises(GradingFailed, match="own folder"):
        robots.grade(NAME, ROOT)


@pytest.mark.parametrize("assignment", course.assignments())
def test_every_assignment_has_robots_with_broken_files(assignment):
    class_ = class_of(assignment)
    assert len({robot.student for robot in class_}) == len(class_)
    broken = {robot.student: robot.points for robot in class_ if robot.kind == KIND}
    assert len(broken) > 100 and all(re.fullmatch(r"broken(-[a-z0-9]+)+", student) for student in broken)
    full = trial.Assignment(assignment).points
    assert broken["broken-nothing-wrong"]["total"] == full and broken["broken-untouched"]["total"] == 0
    for points in broken.values():
        assert points and sum(demo.by_problem(points).values()) - points.get("total", 0) <= full


@pytest.mark.parametrize("assignment", course.assignments())
def test_what_is_found_in_part_says_which_answers_are_right_and_which_are_lost(assignment):
    for kind, broken in table_of(assignment).items():
        if broken.found == SOME:
            assert broken.lost and not {*broken.lost} & {*broken.right}, kind
        else:
            assert not broken.lost and not broken.right, kind
    assert sum(broken.found == ALL for broken in table_of(assignment).values()) > 50


SLOW = {"50,000 cells", "very many files", broken_files.UNREADABLE}  # they do not depend on the assignment


@pytest.mark.parametrize("assignment", course.assignments())
def test_what_a_broken_file_holds_is_found_in_every_assignment(assignment, tmp_path):
    texts = authority(assignment)
    graded_by = nbformat.reads(texts[assignment], as_version=4)
    answers = trial.answers_with({}, trial.Assignment(assignment))
    for k, (kind, broken) in enumerate(table_of(assignment).items()):
        if broken.is_large or kind in SLOW:
            continue
        folder = tmp_path / str(k) / assignment
        folder.mkdir(parents=True)
        broken.build(folder)
        there = intake.take(folder, texts)
        found, findings, flags = {}, there.findings, there.flags
        if assignment in there.notebooks:
            placed = taking.placed(there.notebooks[assignment], graded_by)
            findings, flags = findings + placed.findings, flags + placed.flags
            if placed.notebook and len(placed.unanswered) < len(answers):
                found = course.answers(placed.notebook)
        right = {name for name, text in answers.items() if found.get(name) in (text, text + "\n# \ufffd")}
        assert {ALL: right == {*answers}, NONE: not found}.get(broken.found, bool(found)), (kind, findings)
        assert {*broken.right} <= right and not {*broken.lost} & right, (kind, findings)
        assert broken.says in "\n".join(findings) and bool(broken.says) == bool(findings), (kind, findings)
        assert broken.flag in "\n".join(flags), (kind, flags)
