"""Somebody whom a person took out of the gradebook: the next feedback and report are without them, and go on."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, writes
from nbgrader.api import Gradebook

from classroom.grading import course, gradebook, report
from classroom.grading.task import Result

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")  # nbgrader's own use of its database

NAME = "09_parameters"
GONE = ["X", "a,b", "*", "[st]ay", "stay?", "Ünï 学生 (2)"]
# which a list with commas, or a pattern, would take for some of these, or these for some of those
STAY = ["a", "b", "s", "tay", "stay", "stays", "Ünï", "a, b", "[X]", "?", "[!a]*"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A class that was graded and has its feedback; then some left, as the page for instructors says."""
    root = tmp_path_factory.mktemp("course")
    config = course.settings(root)
    test = new_code_cell("1")
    test.metadata.nbgrader = {"grade_id": "p1-test", "grade": True, "solution": False, "locked": True, "points": 1}
    test.metadata.nbgrader |= {"schema_version": 3, "task": False, "cell_type": "code"}
    text = writes(new_notebook(cells=[new_markdown_cell("Text"), test]))
    gradebook.register(config, NAME, {NAME: text})
    (root / "results" / NAME).mkdir(parents=True)
    for number, student in enumerate([*GONE, *STAY]):
        (root / "submitted" / student / NAME).mkdir(parents=True)
        one = Result(student=student, key=student, notebook=text, points={"p1-test": 1.0})
        gradebook.merge(config, NAME, student, {NAME: one})
        (root / "results" / NAME / f"{number}.json").write_text(json.dumps(asdict(one)), encoding="utf-8")
    assert course.feedback(config, NAME), course.end_of_log(root)
    assert set(pages(root)) == {*GONE, *STAY}
    with Gradebook(config.CourseDirectory.db_url, config.CourseDirectory.course_id) as book:
        for student in GONE:
            book.remove_student(student)
            shutil.rmtree(root / "submitted" / student)
    for page in pages(root).values():
        page.unlink()
    return root


def pages(root: Path) -> dict[str, Path]:
    return {path.parent.parent.name: path for path in (root / "feedback").glob(f"*/{NAME}/{NAME}.html")}


def reported(root: Path) -> set[str]:
    _, table = report.write(NAME, root)
    with table.open(encoding="utf-8", newline="") as file:
        return {row["student"] for row in csv.DictReader(file)}


def test_the_others_get_feedback(folder):
    assert {path.name for path in (folder / "autograded").iterdir()} == {*GONE, *STAY}
    assert course.feedback(course.settings(folder), NAME), course.end_of_log(folder)
    assert set(pages(folder)) == set(STAY)


def test_the_log_says_who_got_none(folder):
    course.feedback(course.settings(folder), NAME)
    log = (folder / "nbgrader.log").read_text(encoding="utf-8")
    assert all(f"{NAME} of {student} is not in the gradebook" in log for student in GONE)
    assert not any(f"{NAME} of {student} is not in the gradebook" in log for student in STAY)


def test_the_report_is_without_them(folder):
    assert reported(folder) == set(STAY)


def test_who_has_only_a_submission_or_only_marks_is_in_the_report(folder, tmp_path):
    root = tmp_path / "course"
    shutil.copytree(folder, root)
    shutil.rmtree(root / "submitted" / "stay")
    (root / "submitted" / "X" / NAME).mkdir(parents=True)
    assert reported(root) == {*STAY, "X"}


def test_without_a_gradebook_the_results_are_all_that_is_known(folder, tmp_path):
    root = tmp_path / "course"
    shutil.copytree(folder, root)
    (root / "gradebook.db").unlink()
    assert len(report.collect(NAME, root).students) == len(GONE) + len(STAY)
