"""Exercise 09: its truth, answers that are no slip of the mind, and slips in the parts of a model."""

import inspect
import io
from contextlib import redirect_stdout
from pathlib import Path

import nbformat
import pytest

from classroom.checks import parameters as checks
from classroom.checks.expect import CheckFailed
from classroom.checks.parameters_slips import CATALOGUE, D, L, V, count, model, sizes
from classroom.grading import course

NAME = "09_parameters"
SOURCE = nbformat.read(course.ROOT / "solutions" / NAME / f"{NAME}.ipynb", as_version=4)


@pytest.fixture(scope="module")
def right() -> dict:
    """Every name that the reference answers and the given cells define."""
    names = {}
    with redirect_stdout(io.StringIO()):
        for cell in SOURCE.cells:
            if cell.cell_type == "code":
                exec(cell.source, names)
    return names


def run_check(check: str, answers: dict) -> None:
    """The visible check on these answers, by the names of its parameters."""
    function = getattr(checks, check)
    names = [p.name for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_POSITIONAL]
    function(*[answers[name] for name in names])


# the slip that no real model shows: none has both biases and grouped keys
UNSEEN = "every bias is d_model wide; those of keys and values are n_kv_heads · d_head wide"
IN_PARTS = [(check, says) for check in ("attention", "mlp", "norms", "tables") for says in CATALOGUE[check]]


@pytest.mark.parametrize(("check", "says"), [slip for slip in IN_PARTS if slip[1] != UNSEEN])
def test_no_slip_in_a_part_survives_the_real_models(right, check, says):
    (cell,) = [cell for cell in SOURCE.cells if cell.metadata.nbgrader.grade_id == "p5-real_models"]
    with pytest.raises(CheckFailed):
        exec(cell.source, right | CATALOGUE[check][says])  # with its hidden test


def test_sizes_differ_so_that_none_can_stand_for_another():
    config = model(n_kv_heads=2, positions="learned")
    numbers = [value for value in sizes(config).values() if type(value) is int] + [config.d_head]
    assert len(set(numbers)) == len(numbers)
    assert config.d_ff not in (4 * config.d_model, config.d_model * 8 // 3)


def test_the_exercises_parts_add_up_to_the_published_count():
    from plainformer.config import preset, presets, published

    named = [name for name in presets() if any(f'"{name}"' in cell.source for cell in SOURCE.cells)]
    assert len(named) > 8
    for name in named:
        assert sum(count(preset(name)).values()) == published(name), name


def test_a_slip_in_the_library_fails_the_reference(right, monkeypatch):
    from plainformer import parameters

    whole = parameters.block_breakdown

    def ungrouped(config, **options):
        block = whole(config, **options)
        return block | {"key": block["query"], "value": block["query"]}

    monkeypatch.setattr(parameters, "block_breakdown", ungrouped)
    with pytest.raises(CheckFailed):
        run_check("attention", right)


# ---- answers that are no slip of the mind ----


@pytest.mark.parametrize(
    ("check", "answer"),
    [("tier", "Below"), ("near_match", "GPT2-large"), ("near_match", "gpt2_large"), ("reason", "e")],
)
def test_a_right_word_in_other_letters_is_told_how_it_is_written(right, check, answer):
    with pytest.raises(CheckFailed, match=r"write one of .*, exactly so"):
        run_check(check, right | {check: answer})


@pytest.mark.parametrize(
    "guess", ["700 million", 0, -5e8, True, float("nan"), pytest.param(10**400, id="huge"), 3, ...]
)
@pytest.mark.parametrize("check", ["predict", "how_far"])
def test_an_impossible_guess_is_answered_in_words(right, check, guess):
    with pytest.raises(CheckFailed, match="guess"):
        run_check(check, right | {"guess": guess})


@pytest.mark.parametrize("total", ["728 million", 0, -7e8, None, pytest.param(10**400, id="huge")])
def test_how_far_needs_a_total(right, total):
    with pytest.raises(CheckFailed, match="total"):
        run_check("how_far", right | {"total": total})


@pytest.mark.parametrize(
    ("times", "says"), [(1, "the right order"), (0.4, "the right order"), (10, "another order"), (0.1, "another order")]
)
def test_how_far_tells_the_order_of_magnitude(right, capsys, times, says):
    run_check("how_far", right | {"guess": times * right["total"]})
    printed = capsys.readouterr().out
    assert f"{times:.3g} times" in printed and f"{says} of magnitude" in printed


def test_ratios_with_two_decimals_are_asked_for_three(right):
    two = {name: round(ratio, 2) for name, ratio in right["ratios"].items()}
    with pytest.raises(CheckFailed, match="three decimals or more"):
        run_check("ratios", right | {"ratios": two})
    assert "three decimals or more" in next(c.source for c in SOURCE.cells if "## Problem 3" in c.source)


@pytest.mark.parametrize("times", [99.3, 100, 100.7])
def test_a_share_in_per_cent_is_known_however_it_is_rounded(right, times):
    share = times * V / (12 * L * D + V)
    with pytest.raises(CheckFailed, match="not in per cent"):
        run_check("share", right | {"table_share": share})


def test_real_models_names_the_part_that_is_no_int(right):
    def halves(**given):
        parts = right["count_parameters"](**given)
        return parts | {"mlp": parts["mlp"] / 1}

    with pytest.raises(CheckFailed, match=r"'mlp' is \d+\.0, of type float; every part must be an int"):
        run_check("real_models", right | {"count_parameters": halves})


def test_the_notebook_is_all_that_a_student_gets():
    assert [path.name for path in (Path(course.ROOT) / "solutions" / NAME).glob("[!.]*")] == [f"{NAME}.ipynb"]
