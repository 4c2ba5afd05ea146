"""A student sees how many of an exercise's checks pass."""

import json
import subprocess
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


# in a process of its own, since a module that is imported twice leaves two copies behind
COUNT = """
import importlib, json, sys
from classroom.checks import progress
counted = {}
for stem in sys.argv[1:]:
    for module in [m for m in sys.modules if m.startswith("classroom.checks.") and not m.endswith(".progress")]:
        del sys.modules[module]
    progress._latest.clear()
    importlib.import_module(f"classroom.checks.{stem}")
    counted[stem] = [check.rpartition(".")[2] for check in progress._latest]
print(json.dumps(counted))
"""


def test_exactly_the_checks_of_graded_cells_count():
    stems = {name.partition("_")[2]: name for name in course.assignments()}
    done = subprocess.run([sys.executable, "-c", COUNT, *stems], capture_output=True, text=True, check=True)
    for stem, counted in json.loads(done.stdout).items():
        name = stems[stem]
        notebook = nbformat.read(course.ROOT / "solutions" / name / f"{name}.ipynb", as_version=4)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code" and is_grade(cell)]
        assert sorted(counted) == sorted(cell.metadata.nbgrader.grade_id.split("-", 1)[1] for cell in cells), name


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
