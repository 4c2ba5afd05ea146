"""Checks of the 1,000-layer claim, problems 1 and 6 to 8 of exercise 06: measured evidence, then an essay.

Small models check the student's functions exactly. What they measured on 1,000 blocks is held against a part of it
that is measured again here, and against bounds. The essay must cite these numbers; a person marks what it says.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable

import torch

from classroom.checks.expect import UNANSWERED, CheckFailed, call, given, number, passed, same
from classroom.checks.norms_claim_slips import (
    CATALOGUE,
    CITED,
    IDS,
    N_DEEP,
    NO_NUMBER,
    STEPS,
    STEPS_DEEP,
    WIDTH_1000,
    block_gradients,
    length,
    root_mean_square,
    small_model,
    stream,
)
from classroom.checks.progress import graded

ROUNDED = 6e-4  # an answer may be rounded to three decimals
EXACT = 1e-8  # float64, numbers of up to a hundred, sums of a thousand terms
MEASURED = 0.01  # relative: an answer may be rounded to three digits
CLOSE = 0.06  # relative: a number in an essay may be rounded to two digits


def _wrong(check: str, name: str) -> dict:
    return {says: answers[name] for says, answers in CATALOGUE[check].items() if name in answers}


def _pair(answer, what: str, keys: tuple, such_as: str) -> dict:
    if type(given(answer, what)) is not dict or set(answer) != set(keys):
        raise CheckFailed(f"{what} must be a dict with the keys {' and '.join(map(repr, keys))}.")
    return {key: float(number(answer[key], f"{what}[{key!r}]", such_as)) for key in keys}


# ---- problem 1: predict ----


@graded
def predict(guess) -> None:
    """Any two lengths."""
    _lengths(guess, "guess")
    passed("noted; problem 6 tells how far off it is")


def _lengths(answer, what: str) -> dict:
    positive, largest = CATALOGUE["predict"]
    for key in ("pre", "post") if type(answer) is dict else ():
        if type(answer.get(key)) is int and abs(answer[key]) > 10**308:
            raise CheckFailed(f"{what}: {largest}.", slip=largest)
    lengths = _pair(answer, what, ("pre", "post"), "1e-3")
    if min(lengths.values()) <= 0:
        raise CheckFailed(f"{what}: {positive}.", slip=positive)
    return lengths


def how_far(guess, gradient) -> None:
    """Tell by how many powers of ten each guess was off."""
    guessed, measured = _lengths(guess, "guess"), _lengths(gradient, "gradient")
    for place in ("pre", "post"):
        powers = math.log10(guessed[place] / measured[place])
        print(f"{place + '-norm:':10} guessed {guessed[place]:.1e}, measured {measured[place]:.1e}: "
              f"{abs(powers):.0f} powers of ten apart")  # fmt: skip


# ---- problem 6: what depth does ----


@graded
def first_block(first_gradient, *cases: tuple) -> None:
    """Cases are (model, ids). Twice each: a second call must not see the first."""
    for model, ids in cases or ((small_model(), IDS), (small_model(norm_placement="post"), IDS)):
        right = length(block_gradients(model, ids))
        wrong = {}
        for says, slip in _wrong("first_block", "first_gradient").items():
            fresh = copy.deepcopy(model)
            wrong[says] = [slip(fresh, ids) for _ in range(2)][1]
        own = copy.deepcopy(model)
        for _ in range(2):
            actual = call_briefly(first_gradient, "first_gradient", model=own, ids=ids.clone())
            same(actual, right, "first_gradient", wrong=wrong, tolerance=EXACT)
    passed("gradient of the first block")


@graded
def sizes(stream_sizes, *cases: tuple) -> None:
    """Cases are (model, ids)."""
    for model, ids in cases or ((small_model(), IDS),):
        found = stream(model, ids)
        wrong = {}
        for says, slip in _wrong("sizes", "stream_sizes").items():
            if "final norm" not in says or model.config.norm_placement == "pre":
                wrong[says] = slip(model, ids)
        right = [root_mean_square(x) for x in found]
        actual = call_briefly(stream_sizes, "stream_sizes", model=copy.deepcopy(model), ids=ids.clone())
        if isinstance(actual, torch.Tensor):
            actual = actual.tolist()
        same(actual, right, "stream_sizes", wrong=wrong, tolerance=EXACT)
    passed("size of the stream")


def call_briefly(function: Callable, what: str, /, **arguments):
    """`call`, without the arguments in its message: a model and a tensor are long to print."""
    try:
        return call(function, what, **arguments)
    except CheckFailed as failure:
        _, raises, reason = str(failure).partition(") raises ")
        if raises:
            raise CheckFailed(f"{what} raises {reason}") from None
        if ") returns None" in str(failure):
            raise CheckFailed(f"{what} returns None. Did you forget `return`?") from None
        raise


@graded
def depth(gradient, rms, exponent, stack, ids) -> None:
    """1,000 blocks by bounds; the first 250 measured again."""
    exchanged, both, other, behind, ratio, square = CATALOGUE["depth"]
    measured, size = _lengths(gradient, "gradient"), _pair(rms, "rms", (250, 1000), "12.3")
    if measured["pre"] < 1e-3 and measured["post"] > 1e-2:
        raise CheckFailed(f"gradient: {exchanged}.", slip=exchanged)
    if not 0.3 < measured["pre"] < 100 or measured["post"] > 1e-5:
        says = both if math.isclose(*measured.values(), rel_tol=0.1) else other
        raise CheckFailed(f"gradient: {says}.\nYou have {measured}.", slip=says)
    right = root_mean_square(stream(call(stack, "stack", n_layers=250, place="pre"), ids)[-1])
    for n in (250, 1000):
        if abs(size[n] - 1) < 0.05:
            raise CheckFailed(f"{behind}.\nYou have {size}.", slip=behind)
    same(size[250], right, "rms[250]", tolerance=MEASURED * right)
    if not 1.5 < size[1000] / size[250] < 2.6:
        raise CheckFailed(f"rms[1000] is {size[1000]:.3g}: not about twice rms[250]. Did you exchange the two?")
    times = size[1000] / size[250]
    wrong = {ratio: times, square: 2 * math.log(times) / math.log(4)}
    same(exponent, math.log(times) / math.log(4), "exponent", wrong=wrong, tolerance=0.02)
    passed(f"1,000 blocks measured: the stream grows like depth to the power {exponent:.2f}")


# ---- problem 7: the same budget ----


@graded
def shapes(n_deep, width_1000, ratio_1000) -> None:
    same(n_deep, N_DEEP, "n_deep", wrong=_wrong("shapes", "n_deep"), reveal=False)
    wrong = _wrong("shapes", "width_1000")
    same(width_1000, WIDTH_1000, "width_1000", wrong=wrong, tolerance=0.6, reveal=False)
    wrong = _wrong("shapes", "ratio_1000")
    same(ratio_1000, WIDTH_1000 / 1000, "ratio_1000", wrong=wrong, tolerance=6e-3, reveal=False)
    passed("shapes of equal size. Llama 2 7B has 128 features of width for each of its blocks")


@graded
def budget(steps_deep, losses, learn, wide) -> None:
    """The number of steps exactly, the wide model's loss measured again, the deep one's by bounds."""
    same(steps_deep, STEPS_DEEP, "steps_deep", wrong=_wrong("budget", "steps_deep"), reveal=False)
    loss = _pair(losses, "losses", ("wide", "deep"), "1.85")
    run = call(learn, "learn", config=wide, n_steps=STEPS)
    known = {"exchanged": loss["deep"], "whole run": sum(run) / len(run), "first step": run[0]}
    last = sum(run[-5:]) / 5
    for says in _wrong("budget", "losses"):
        slip = next(value for part, value in known.items() if part in says)
        if abs(slip - (last if "exchanged" in says else loss["wide"])) < 0.02 < abs(loss["wide"] - last):
            raise CheckFailed(says, slip=says)
    same(loss["wide"], last, 'losses["wide"]', tolerance=MEASURED * last)
    if not 1.85 < loss["deep"] < 2.4:
        raise CheckFailed(f'losses["deep"] is {loss["deep"]:.3g}; {STEPS_DEEP} steps of 18 blocks do not end there.')
    passed(f"the same FLOPs: wide and shallow {loss['wide']:.2f}, deep and narrow {loss['deep']:.2f}")


# ---- problem 8: the essay ----

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


def numbers(text: str) -> list[float]:
    """The numbers in a text: 1,000, 3.4e-10, 3.4 · 10⁻¹⁰, $3.4 \\times 10^{-10}$, 1.64."""
    text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda m: "^" + m[0].translate(_RAISED), text).replace("−", "-")
    text = re.sub(r"[${}\\ \u2009\u202f]|\\,", lambda m: " " if m[0] == " " else "", text)
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)  # 1,000
    text = re.sub(r"(?<=\d),(?=\d)", ".", text)  # 1,64 as some write it
    power = r"10\s*(?:\^|\*\*)\s*\(?\s*([-+]?\d+)\)?"
    text = re.sub(rf"(\d(?:\.\d+)?)\s*(?:·|×|\*|x|times|cdot)\s*{power}", r"\1e\2", text)
    text = re.sub(rf"(?<![\w.]){power}", r"1e\1", text)
    return [float(found) for found in _NUMBER.findall(text)]


@graded
def cites_depth(essay, gradient, rms) -> None:
    """Length, and the measured numbers of problem 6."""
    few, many, *_ = CATALOGUE["cites_depth"]
    n_words = len(_text(essay).split())
    for failed, says in ((n_words < 100, few), (n_words > 400, many)):
        if failed:
            raise CheckFailed(f"{says}: it has {n_words}.", slip=says)
    measured = _lengths(gradient, "gradient") | {"top": _pair(rms, "rms", (250, 1000), "12.3")[1000]}
    _cited(essay, measured)
    passed(f"the essay has {n_words} words and cites what you measured on 1,000 blocks")


@graded
def cites_budget(essay, losses, width_1000) -> None:
    """The numbers of problem 7."""
    width = float(number(width_1000, "width_1000", "123.4"))
    _cited(_text(essay), _pair(losses, "losses", ("wide", "deep"), "1.85") | {"width": width})
    passed("the essay cites what the same budget buys")


def _text(essay) -> str:
    if type(given(essay, "essay")) is not str:
        raise CheckFailed('essay must be a text between three quotation marks: """ ... """.')
    if essay.strip() in ("", "..."):
        raise CheckFailed(f"essay: {UNANSWERED}.")
    return essay


def _cited(essay: str, measured: dict[str, float]) -> None:
    found = numbers(essay)
    for name, value in measured.items():
        if any(abs(n - value) <= CLOSE * abs(value) for n in found):
            continue
        says = NO_NUMBER.format(CITED[name])
        near = min((n for n in found if n > 0), key=lambda n: abs(math.log(n / value)), default=None)
        told = f"\nYou measured {value:.3g}" + (f"; the nearest number in the essay is {near:.3g}." if near else ".")
        raise CheckFailed(says + told, slip=says)
