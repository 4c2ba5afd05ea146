"""Signs that a submission deals with the grading itself."""

from __future__ import annotations

import json

import nbformat
import pytest

from classroom.grading import course
from classroom.grading.demo_class.hostile import attacks
from classroom.grading.meddling import SIGNS, signs

SOLUTIONS = sorted((course.ROOT / "solutions").glob("*/*.ipynb"))
FORGED = "import classroom.memory\nclassroom.memory.Memory._add = lambda *_: None"


def with_own(source: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_right_answers_show_none(path):
    assert signs(nbformat.read(path, as_version=4)) == []


def test_a_forged_count_of_memory_is_left_to_a_person():
    assert signs(with_own(FORGED)) == ["the submission deals with the counting of memory"]


def test_every_sign_is_that_of_some_attack():
    sources = [attack.own + "\n".join(attack.answers.values()) for attack in attacks()]
    found = {line for source in [*sources, FORGED] for line in signs(with_own(source))}
    assert found == {f"the submission deals with {what}" for what in SIGNS}


@pytest.mark.parametrize("before", [0, 1_800, 1_990, 2_000, 50_000])
def test_a_sign_is_seen_wherever_it_stands_in_a_line(before):
    line = "x = '" + "y" * before + "'; import classroom.memory; " + "z" * 3_000
    assert signs(with_own(line)) == ["the submission deals with the counting of memory"]


def test_locked_cells_and_text_are_not_looked_at():
    notebook = with_own(FORGED)
    notebook.cells[0].metadata["nbgrader"] = {
        "locked": True,
        "solution": False,
        "grade": True,
        "grade_id": "a",
        "points": 1,
    }
    notebook.cells.append(nbformat.v4.new_markdown_cell(FORGED))
    assert signs(nbformat.from_dict(json.loads(json.dumps(notebook)))) == []
