"""Every exercise is what its solution releases, and gives nothing away."""

import ast
import re
import shutil

import nbformat
import pytest
from nbgrader.utils import compute_checksum, is_grade, is_solution

from classroom import terms
from classroom.grading import course, release
from classroom.grading.course import ROOT, GradingFailed
from classroom.notebooks import canonical, text

ASSIGNMENTS = course.assignments()


def read(folder: str, name: str):
    return nbformat.read(ROOT / folder / name / f"{name}.ipynb", as_version=4)


@pytest.fixture(scope="module", params=ASSIGNMENTS)
def built(request, tmp_path_factory):
    """A fresh release of one assignment."""
    return release.build(request.param, tmp_path_factory.mktemp(request.param))


def test_there_is_an_exercise_for_every_solution():
    assert ASSIGNMENTS
    assert sorted(path.name for path in (ROOT / "exercises").iterdir() if path.is_dir()) == ASSIGNMENTS


def test_the_committed_exercise_is_fresh(built):
    committed = ROOT / "exercises" / built.name

    def files(folder):
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    committed_files = {name: data for name, data in files(committed).items() if not name.startswith(".ipynb_")}
    assert committed_files == files(built), f"run: python -m classroom.grading release {built.name}"


def marked(source: str, what: str) -> list[str]:
    """The lines of a cell between BEGIN and END of `what`."""
    return [
        line
        for part in re.findall(rf"### BEGIN {what}\n(.*?)### END {what}", source, re.DOTALL)
        for line in part.splitlines()
    ]


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_no_line_or_number_of_an_answer_or_a_hidden_test_is_released(name):
    source, released = read("solutions", name), (ROOT / "exercises" / name / f"{name}.ipynb").read_text("utf-8")
    regions = ("SOLUTION", "HIDDEN TESTS")
    given = {line.strip() for cell in read("exercises", name).cells for line in cell.source.splitlines()}
    secret = [line.strip() for cell in source.cells for what in regions for line in marked(cell.source, what)]
    assert len(secret) > 20
    # a line such as `)` or `d_head = d_model // n_heads` may stand in a cell that is given
    shared = {"d_head = d_model // n_heads", "return query + key + value + out + gate + up + down"}
    assert [line for line in secret if len(line) > 6 and line in given - shared] == []
    for word in ("BEGIN SOLUTION", "END SOLUTION", "HIDDEN TEST", "hidden_test", "MARK SCHEME"):
        assert word not in released
    number = re.compile(r"\b\d[\d_,]{5,}\b")
    shown = {plain(n) for cell in read("exercises", name).cells for n in number.findall(cell.source.replace("{,}", ""))}
    given_sizes = {
        str(n) for n in terms.numbers(name.partition("_")[2])
    }  # of this term; an answer is computed from them
    typed = {plain(n) for line in secret for n in number.findall(line)}
    assert typed & shown <= given_sizes | {"32000"}, "a number gives it away"


def plain(number: str) -> str:
    return number.replace("_", "").replace(",", "")


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_a_released_notebook_is_empty_and_its_answers_are_stubs(name):
    for cell in read("exercises", name).cells:
        assert not cell.get("outputs") and cell.get("execution_count") is None
        if is_solution(cell):
            assert 'raise NotImplementedError("not answered yet")' in cell.source
        if cell.cell_type == "code":
            ast.parse(cell.source)  # what a student gets can be run


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_problems_state_their_effort_and_their_points_add_up(name):
    cells = read("solutions", name).cells
    stated = {}
    for cell in cells:
        for match in re.finditer(
            r"## Problem (\d).*?\n\n\*difficulty [1-5] of 5 · (\d) points? · (\d+) minutes\*", cell.source
        ):
            stated[f"p{match[1]}"] = (int(match[2]), int(match[3]))
    points = {}
    for cell in cells:
        if is_grade(cell):
            problem = cell.metadata.nbgrader.grade_id.split("-")[0]
            points[problem] = points.get(problem, 0) + cell.metadata.nbgrader.points
    assert points == {problem: worth for problem, (worth, _) in stated.items()}
    assert (
        f"**{sum(points.values())} points** | **{sum(minutes for _, minutes in stated.values())}**" in cells[0].source
    )


# ---- nobody's work is overwritten ----


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A tree without git that holds one solution and its release."""
    for folder in ("solutions", "exercises"):
        shutil.copytree(ROOT / folder / ASSIGNMENTS[0], tmp_path / folder / ASSIGNMENTS[0])
    monkeypatch.setattr(release, "ROOT", tmp_path)
    return tmp_path / "exercises" / ASSIGNMENTS[0] / f"{ASSIGNMENTS[0]}.ipynb"


def answered(notebook):
    next(cell for cell in notebook.cells if is_solution(cell)).source = "guess = 1e9"


def extended(notebook):
    notebook.cells.insert(2, nbformat.v4.new_code_cell("1 + 1"))


def executed(notebook):
    cell = next(cell for cell in notebook.cells if cell.cell_type == "code")
    cell.outputs = [nbformat.v4.new_output("stream", text="hello\n")]


@pytest.mark.parametrize("change", [answered, extended, executed])
def test_a_notebook_that_somebody_worked_in_is_not_untouched(checkout, change):
    assert release.is_untouched(checkout)
    notebook = nbformat.read(checkout, as_version=4)
    change(notebook)
    nbformat.write(notebook, checkout)
    assert not release.is_untouched(checkout)


def test_a_release_refuses_to_overwrite_answers_until_it_is_told_to(checkout):
    name, fresh = checkout.stem, checkout.read_bytes()
    notebook = nbformat.read(checkout, as_version=4)
    answered(notebook)
    nbformat.write(notebook, checkout)
    mine = checkout.read_bytes()
    with pytest.raises(GradingFailed, match="--force"):
        release.release(name)
    assert checkout.read_bytes() == mine
    assert release.release(name, force=True) == [f"exercises/{name}/{name}.ipynb"]
    assert checkout.read_bytes() == fresh


def test_an_older_release_is_replaced_without_asking(checkout):
    fresh = checkout.read_bytes()
    notebook = nbformat.read(checkout, as_version=4)
    notebook.cells[0].source = "# The text of last year"
    notebook.cells[0].metadata.nbgrader.checksum = compute_checksum(notebook.cells[0])
    checkout.write_text(text(canonical(notebook, checkout.stem)), encoding="utf-8")
    assert release.release(checkout.stem)
    assert checkout.read_bytes() == fresh


def test_an_unknown_assignment_is_answered_with_the_names_there_are():
    with pytest.raises(GradingFailed, match=ASSIGNMENTS[0]):
        release.release("09_paramters")
