"""Exercise 04: its masks against loops, and every module that it hands out against two proofs of causality."""

import math

import pytest
import torch
import torch.nn.functional as F

from classroom.checks import masks as checks
from classroom.checks import masks_answers as truth
from classroom.checks.expect import CheckFailed
from classroom.checks.masks_slips import CATALOGUE
from classroom.checks.tensors import numbers

KEY, T, D = 300, 9, 6
LEAKY = {
    "unmasked": truth.unmasked(KEY),
    "one ahead": truth.one_ahead(KEY),
    "one hole": truth.one_hole(KEY),
    "−10,000": truth.masked(KEY, constant=-1e4),
    "−10,000 added": truth.masked(KEY, constant=-1e4, add=True),
    "second layer": truth.stacked(truth.masked(KEY), truth.unmasked(KEY + 2)),
    "one head": truth.one_head_open(KEY),
    "faint": truth.faint(KEY),
}
CLEAN = {
    "masked": truth.masked(KEY),
    "alone": truth.alone(KEY),
    "previous": truth.previous(KEY),
    "rounded": truth.rounded(KEY),
    "stacked": truth.stacked(truth.masked(KEY), truth.alone(KEY + 2), truth.masked(KEY + 3)),
}


def cut_off(module, x) -> float:
    """How far the outputs of a text's beginnings are from those of the whole text, relative to its numbers."""
    whole = module(x)
    apart = [(module(x[:, :n]) - whole[:, :n]).abs().max() for n in range(1, x.shape[1])]
    return (max(apart) / x.abs().max()).item()


def slope(module, x) -> float:
    """The largest derivative of an output by a later input."""
    by_pair = torch.autograd.functional.jacobian(module, x)[0, :, :, 0].abs().amax((1, 3))
    return by_pair.triu(1).max().item()


@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize("name", CLEAN)
def test_clean_modules_are_clean(name, scale):
    x = numbers(1, T, D, key=1, scale=scale)
    assert cut_off(CLEAN[name], x) < truth.ROUNDING / 1e3
    assert slope(CLEAN[name], x) < truth.ROUNDING / 1e3


@pytest.mark.parametrize("name", LEAKY)
def test_leaky_modules_leak_far_above_rounding(name):
    scale = 1e3 if "10,000" in name else 1.0
    x = numbers(1, T, D, key=1, scale=scale)
    assert cut_off(LEAKY[name], x) > 1e4 * truth.ROUNDING
    assert slope(LEAKY[name], x) > 1e4 * truth.ROUNDING


@pytest.mark.parametrize("name", ["−10,000", "−10,000 added"])
def test_an_almost_good_mask_needs_extreme_numbers(name):
    assert cut_off(LEAKY[name], numbers(1, T, D, key=1)) < truth.ROUNDING / 1e3


def test_each_module_of_a_check_has_its_slip():
    for check, n_modules in {"catches": 4, "extremes": 3, "deep": 4, "spares": 5}.items():
        assert len(CATALOGUE[check]) == n_modules
        getattr(checks, check)(truth.leaks)


@pytest.mark.parametrize("answer", [lambda **_: torch.tensor(True), lambda **_: 1, lambda **_: "yes"])
def test_an_answer_must_be_true_or_false(answer):
    says = "a module with a right mask" if isinstance(answer(), torch.Tensor) else "True or False was expected"
    with pytest.raises(CheckFailed, match=says):
        checks.catches(answer)


# ---- masks ----


def test_masks_are_what_loops_say():
    lengths, n, window = [4, 1, 6], 7, 3
    right = [[[[j <= i and i - j < window and j < length for j in range(n)] for i in range(n)]] for length in lengths]
    assert truth.both(torch.tensor(lengths), n, window).tolist() == right
    n_filler = [0, 3, 1]
    right = [[[[j == i or filler <= j <= i for j in range(n)] for i in range(n)]] for filler in n_filler]
    assert truth.front(torch.tensor(n_filler), n).tolist() == right


def test_counts_are_those_of_formulas():
    assert truth.pairs() == {"causal": 28, "window": 3 * 7 - 3, "filled": 28 - 1 - 2, "both": 18 - 1 - 2}
    seen = sum(min(i + 1, truth.WIDE) for i in range(truth.LONG))
    assert math.isclose(truth.SHARE, seen / truth.LONG**2)
    for windows in ([4, 2, 7], [1, 1], [5], [3] * 40):
        assert truth.reach(windows) == sum(windows) - len(windows)


@pytest.mark.parametrize("case", checks.hidden_keys()[:4])
def test_the_reference_is_torchs(case):
    right = F.scaled_dot_product_attention(case["q"], case["k"], case["v"], case["mask"])
    torch.testing.assert_close(checks.attention(**case), right)


def test_only_some_cases_have_rows_that_see_nothing():
    assert all(case["mask"].any(-1).all() for case in checks.hidden_keys())
    assert not any(case["mask"].any(-1).all() for case in checks.nothing_to_see())


def test_a_mask_of_numbers_is_told_what_a_mask_holds():
    with pytest.raises(CheckFailed, match="True and False"):
        checks.causal_mask(lambda n_query, n_key: torch.ones(n_query, n_key).tril(n_key - n_query))


@pytest.mark.parametrize("pairs", [{"causal": 28}, [28, 18, 25, 15], {"causal": 28.0, "window": 18}, ...])
def test_pairs_of_another_form_are_answered_in_words(pairs):
    with pytest.raises(CheckFailed, match="pairs"):
        checks.pairs(pairs)


@pytest.mark.parametrize("guess", ["half", 0, 1, 40, True, float("nan"), ...])
def test_an_impossible_guess_is_answered_in_words(guess):
    with pytest.raises(CheckFailed, match="guess"):
        checks.predict(guess)
    with pytest.raises(CheckFailed, match="guess"):
        checks.how_far(guess, 0.1)
