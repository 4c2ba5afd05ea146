"""A student sees how many of an exercise's checks pass."""

import importlib
import sys

import nbformat
import pytest
from nbgrader.utils import is_grade

from classroom.checks import progress
from classroom.checks.expect import CheckFailed, hidden_test, same
from classroom.grading import course


@pytest.fixture
def kernel(monkeypatch):
    """A kernel that has imported no checks yet."""
    monkeypatch.setattr(progress, "_latest", {})


@pytest.mark.parametrize("name", course.assignments())
def test_exactly_the_checks_of_graded_cells_count(name, kernel, monkeypatch):
    stem = name.partition("_")[2]
    for module in [m for m in sys.modules if m.startswith(f"classroom.checks.{stem}")]:
        monkeypatch.delitem(sys.modules, module)
    importlib.import_module(f"classroom.checks.{stem}")
    notebook = nbformat.read(course.ROOT / "solutions" / name / f"{name}.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and is_grade(cell)]
    assert sorted(check.rpartition(".")[2] for check in progress._latest) == sorted(
        cell.metadata.nbgrader.grade_id.split("-", 1)[1] for cell in cells
    )


def test_the_line_follows_the_latest_run_of_each_check(kernel, capsys):
    @progress.graded
    def doubled(answer):
        same(answer, 4, "answer")

    @progress.graded
    def named(answer, *cases):
        for case in cases or ("north",):
            same(answer, case, "answer")

    def said():
        return capsys.readouterr().out.strip()

    assert progress.progress() == "0 of 2 checks pass"
    doubled(4)
    assert said() == "1 of 2 checks pass"
    named("north")
    assert said() == "2 of 2 checks pass"
    with pytest.raises(CheckFailed):
        doubled(5)
    assert progress.progress() == "1 of 2 checks pass"
    doubled(4)
    said()
    with pytest.raises(CheckFailed), hidden_test():  # it says nothing, and takes back what its visible part said
        named("north", "south")
    assert (said(), progress.progress()) == ("", "1 of 2 checks pass")
