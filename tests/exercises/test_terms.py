"""New numbers each term: every line is found, the way back is exact, and the checks go by the numbers of the term."""

import importlib
import importlib.util
import inspect
import io
import shutil
from contextlib import redirect_stdout

import nbformat
import pytest
from nbgrader.utils import is_grade

from classroom import terms
from classroom.checks.expect import CheckFailed
from classroom.grading import course, release, term
from classroom.grading.__main__ import main
from classroom.grading.course import ROOT, GradingFailed
from classroom.notebooks import NotebookFailed

VARIED = term.varied()
HERE = {stem: terms.numbers(stem) for stem in VARIED.values()}  # a test gives the checks other numbers
SEEDS = (1, 2027)


def source(name: str) -> str:
    return (ROOT / "solutions" / name / f"{name}.ipynb").read_text(encoding="utf-8")


def written(name: str, drawn: tuple, before: tuple | None = None, text: str | None = None) -> str:
    """The solution with these numbers, without running it."""
    return term.rewritten(text or source(name), VARIED[name], before or HERE[VARIED[name]], drawn, name)


@pytest.fixture(params=VARIED)
def name(request) -> str:
    return request.param


@pytest.fixture
def set_term(name, monkeypatch):
    """Loads the checks of the assignment with other numbers, and afterwards with those of the term."""
    stem = VARIED[name]
    modules = [f"classroom.checks.{stem}{part}" for part in ("_answers", "_slips", "")]
    modules = [importlib.import_module(one) for one in modules if importlib.util.find_spec(one)]
    original = terms.numbers

    def load(drawn: tuple) -> None:
        monkeypatch.setattr(
            terms, "numbers", lambda of, *seed: drawn if of == stem and not seed else original(of, *seed)
        )
        for module in modules:
            importlib.reload(module)

    yield load
    monkeypatch.undo()
    for module in modules:
        importlib.reload(module)


# ---- drawing ----


def test_every_assignment_has_numbers_and_a_module_for_each_that_has():
    assert list(VARIED) == course.assignments()
    assert sorted(VARIED.values()) == terms.stems()


def test_the_printed_numbers_are_seed_0():
    shown = {stem: next(terms.draws(stem)) for stem in terms.stems()}
    assert {stem: terms.numbers(stem, 0) for stem in shown} == shown
    assert shown["parameters"] == (24, 1536, 32_000)
    assert shown["flops"] == (4096, 16_384)


def test_a_seed_draws_the_same_numbers_everywhere_and_never_a_printed_one(name):
    stem = VARIED[name]
    possible = set(terms.draws(stem))
    assert len(possible) >= 6
    for seed in range(1, 40):
        drawn = terms.numbers(stem, seed)
        assert drawn in possible and terms.numbers(stem, seed) == drawn
        for key, (printed, *_) in terms.module(stem).NUMBERS.items():
            names = key if isinstance(key, tuple) else (key,)
            one = tuple(terms.named(stem, drawn)[n] for n in names)
            assert one != (printed if isinstance(key, tuple) else (printed,))
    assert len({terms.numbers(stem, seed) for seed in range(1, 40)}) >= 4


def test_draws_are_fixed_by_the_seed_alone():
    assert terms.numbers("parameters", 1) == (28, 1792, 100_000)  # from SHA-256, in every version of Python


# ---- writing ----


def test_every_line_stands_in_its_cell_once_and_the_way_back_is_exact(name):
    stem = VARIED[name]
    here, there = terms.numbers(stem), source(name)
    drawn = [terms.numbers(stem, seed) for seed in SEEDS]
    for numbers in [*drawn, next(terms.draws(stem))]:
        changed = written(name, numbers)
        assert (changed == there) == (numbers == here)
        assert written(name, here, numbers, changed) == there
    assert written(name, drawn[1], drawn[0], written(name, drawn[0])) == written(name, drawn[1])


def test_whatever_is_drawn_can_be_found_again(name):
    """Lines for all draws are as many, one line each, and never the same twice in a cell."""
    stem = VARIED[name]
    printed = {cell: len(lines) for cell, lines in terms.lines(stem, next(terms.draws(stem))).items()}
    cells = {cell.metadata.nbgrader.grade_id: cell.source for cell in nbformat.reads(source(name), 4).cells}
    fixed = {
        cell: set(cells[cell].split("\n")) - set(lines)
        for cell, lines in terms.lines(stem, terms.numbers(stem)).items()
    }
    for drawn in terms.draws(stem):
        lines = terms.lines(stem, drawn)
        assert {cell: len(found) for cell, found in lines.items()} == printed
        for cell, found in lines.items():
            assert not [line for line in found if "\n" in line or line in fixed[cell] or found.count(line) > 1]


def test_a_line_that_somebody_changed_is_named_with_its_cell():
    text = source("09_parameters").replace("and a vocabulary of", "with a vocabulary of")
    with pytest.raises(GradingFailed, match=r"09_parameters, cell 'p1'[\s\S]*A model has[\s\S]*Nothing was written"):
        written("09_parameters", terms.numbers("parameters", 1), text=text)


# ---- the checks ----


def cells_of(text: str):
    return [cell for cell in nbformat.reads(text, 4).cells if cell.cell_type == "code"]


def answers(text: str, problems: set[str]) -> dict:
    """Every name that the cells before the first problem and those of these problems define."""
    names: dict = {}
    with redirect_stdout(io.StringIO()):
        for cell in cells_of(text):
            grade_id = cell.metadata.nbgrader.grade_id
            if not is_grade(cell) and (grade_id == "start" or grade_id in {f"{p}-answer" for p in problems}):
                exec(cell.source, names)
    return names


def checks_of(name: str, problems: set[str]) -> list[str]:
    """The graded checks of these problems that a number decides."""
    ids = [cell.metadata.nbgrader.grade_id for cell in cells_of(source(name)) if is_grade(cell)]
    return [check for problem, _, check in (one.partition("-") for one in ids) if problem in problems]


def problems_of(name: str) -> set[str]:
    """The problems whose answers hold numbers of the term."""
    held = terms.lines(VARIED[name], HERE[VARIED[name]])
    return {cell.split("-")[0] for cell in held if cell.endswith("-answer")}


def run(name: str, check: str, names: dict) -> None:
    function = getattr(importlib.import_module(f"classroom.checks.{VARIED[name]}"), check)
    wanted = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    with redirect_stdout(io.StringIO()):
        function(*[names[one] for one in wanted])


def typed(value) -> bool:
    """Whether a student types such an answer, as against writing a function."""
    return not callable(value)


def test_the_checks_take_the_terms_answers_and_no_other(name, set_term):
    stem, problems = VARIED[name], problems_of(name)
    keeps = terms.module(stem).KEEPS
    decided = [check for check in checks_of(name, problems) if check not in keeps]
    assert decided and set(keeps) <= set(checks_of(name, problems | {"p1"}))
    printed = answers(written(name, next(terms.draws(stem))), problems)
    for seed in SEEDS:
        drawn = terms.numbers(stem, seed)
        set_term(drawn)
        right = answers(written(name, drawn), problems)
        for check in checks_of(name, problems):
            run(name, check, right)
        for check in decided:
            with pytest.raises(CheckFailed):
                run(name, check, printed)


def test_no_slip_is_right_and_no_printed_answer_whatever_is_drawn(name, set_term):
    """Each value of each number once with some of the others: no check looks at two that are drawn apart and clash."""
    stem, problems = VARIED[name], problems_of(name)
    decided = [check for check in checks_of(name, problems) if check not in terms.module(stem).KEEPS]
    printed = answers(written(name, next(terms.draws(stem))), problems)
    for k, drawn in enumerate(terms.draws(stem)):
        set_term(drawn)
        right = answers(written(name, drawn), problems)
        known = importlib.import_module(f"classroom.checks.{stem}_slips").CATALOGUE
        for check in decided:
            run(name, check, right)
            if k:
                with pytest.raises(CheckFailed):
                    run(name, check, printed)
            for says, wrong in known.get(check, {}).items():
                with pytest.raises(CheckFailed) as failure:
                    run(name, check, right | wrong)
                assert failure.value.slip == says, (drawn, check, says, str(failure.value))


# ---- the command: all or nothing ----


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A tree of its own, where solutions are not run and releases are plain copies."""
    for folder in ("solutions", "exercises"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns(".*"))
    (tmp_path / "seed.txt").write_text("0\n", encoding="utf-8")
    for name, stem in VARIED.items():  # the tests run in a term too
        printed = term.rewritten(source(name), stem, HERE[stem], terms.numbers(stem, 0), name)
        (tmp_path / "solutions" / name / f"{name}.ipynb").write_text(printed, encoding="utf-8")
    monkeypatch.setattr(terms, "SEED_FILE", tmp_path / "seed.txt")
    monkeypatch.setattr(term, "ROOT", tmp_path)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(term, "execute", lambda path: path.read_text(encoding="utf-8"))
    monkeypatch.setattr(
        term,
        "release",
        lambda name, gradebook: (tmp_path / "exercises" / name / f"{name}.ipynb").write_text("released"),
    )
    return tmp_path


def files(folder) -> dict:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_term_changes_every_assignment_and_seed_0_brings_back_the_sources(checkout, monkeypatch):
    before, said = files(checkout / "solutions"), []
    term.change(5, said.append)
    assert terms.seed() == 5 and len(said) == 2 * len(VARIED)
    after = files(checkout / "solutions")
    assert all(after[checkout / "solutions" / n / f"{n}.ipynb"] != data for n, data in named(before).items())
    assert set(named(files(checkout / "exercises")).values()) == {b"released"}
    monkeypatch.setattr(term, "is_replaceable", lambda path: True)
    term.change(0, said.append)
    assert terms.seed() == 0 and files(checkout / "solutions") == before


def named(found: dict) -> dict:
    return {path.stem: data for path, data in found.items() if path.stem in VARIED}


def test_the_term_that_is_here_already_writes_nothing(checkout):
    before, said = files(checkout), []
    term.change(0, said.append)
    assert said == [] and files(checkout) == before


@pytest.mark.parametrize("error", [NotebookFailed("10_flops fails"), KeyboardInterrupt()])
def test_a_solution_that_fails_leaves_every_file_as_it_was(checkout, monkeypatch, error):
    def failing(path):
        if path.stem == "10_flops":
            raise error
        return path.read_text(encoding="utf-8")

    monkeypatch.setattr(term, "execute", failing)
    before = files(checkout)
    with pytest.raises(GradingFailed if isinstance(error, NotebookFailed) else KeyboardInterrupt):
        term.change(5, lambda line: None)
    assert files(checkout) == before


def test_an_exercise_that_somebody_wrote_into_stops_it_before_anything_is_written(checkout):
    path = checkout / "exercises" / "09_parameters" / "09_parameters.ipynb"
    path.write_text(path.read_text(encoding="utf-8").replace("guess = ...", "guess = 3e8"), encoding="utf-8")
    before = files(checkout)
    with pytest.raises(GradingFailed, match="somebody's answers"):
        term.change(5, lambda line: None)
    assert files(checkout) == before


@pytest.mark.parametrize("text", ["", "two", "-3", "1.5"])
def test_a_seed_file_without_a_number_is_answered_in_words(checkout, text):
    terms.SEED_FILE.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="whole number"):
        terms.seed()
    with pytest.raises(GradingFailed, match="whole number"):
        term.change(-3)
    with pytest.raises(GradingFailed, match=r"seed\.txt must hold"):
        term.change(3)


def test_the_command_shows_the_seed_and_the_numbers(capsys):
    assert main(["term"]) == 0
    shown = capsys.readouterr().out
    assert f"seed {terms.seed()}" in shown
    assert all(name in shown for name in VARIED) and "WEIGHT = " in shown
