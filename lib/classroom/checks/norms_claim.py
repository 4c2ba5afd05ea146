"""Checks of the 1,000-layer claim, problems 1 and 6 to 8 of exercise 06: measured evidence, then an essay.

Small models check the student's functions exactly. What they measured on 1,000 blocks is held against numbers known
beforehand and, where it differs, measured again here. The essay must cite these numbers; a person marks what it says.
"""

from __future__ import annotations

import copy
import functools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import torch

from classroom.checks.expect import UNANSWERED, CheckFailed, call, given, number, passed, same
from classroom.checks.norms_claim_slips import (
    AGAIN,
    CATALOGUE,
    CITED,
    D_DEEP,
    FIRST,
    IDS,
    MEASURED,
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
ROUNDED_LOSS = 0.01  # relative: a loss may be rounded to two decimals
ROUNDED_SIZE = 0.02  # relative: the gradients and sizes may be rounded to two digits
ROUNDED_EXPONENT = 6e-3  # from sizes that are rounded to three digits
NEAR = 0.06  # relative: so near was measured, with a step more perhaps; whether it is right another check says


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


# ---- what was measured, and is measured again ----


def _agree(answer: dict, right: dict, share: float) -> bool:
    return all(abs(value - right[key]) <= share * abs(right[key]) for key, value in answer.items())


def _again(what: str, answer: dict, measure: Callable[[], dict], share: float, says: str = AGAIN) -> None:
    """`CheckFailed` unless the numbers are those known beforehand, or those that are measured here and now."""
    if not _agree(answer, MEASURED[what], share) and not _agree(answer, measure(), share):
        says = says.format(what)
        raise CheckFailed(f"{says}.\nYou have {what} = {answer}.", slip=says)


@functools.lru_cache(maxsize=1)
def _gradients(stack: Callable, ids) -> dict:
    models = {place: call(stack, "stack", n_layers=1_000, place=place) for place in ("pre", "post")}
    return {place: length(block_gradients(model, ids)) for place, model in models.items()}


@functools.lru_cache(maxsize=1)
def _rms(stack: Callable, ids) -> dict:
    found = stream(call(stack, "stack", n_layers=1_000, place="pre"), ids)
    return {n: root_mean_square(found[n]) for n in (250, 1000)}


@functools.lru_cache(maxsize=1)
def _runs(learn: Callable, wide) -> dict:
    deep = replace(wide, n_layers=N_DEEP, d_model=D_DEEP, d_ff=2 * D_DEEP)
    shapes = {"wide": (wide, STEPS), "deep": (deep, STEPS_DEEP)}
    return {name: call(learn, "learn", config=config, n_steps=n) for name, (config, n) in shapes.items()}


def _last(runs: dict) -> dict:
    return {name: sum(run[-5:]) / 5 for name, run in runs.items()}


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
    """1,000 blocks, in numbers that are measured, and the exponent from one's own two sizes."""
    exchanged, both, other, behind, ratio, square, root, *_ = CATALOGUE["depth"]
    measured, size = _lengths(gradient, "gradient"), _pair(rms, "rms", (250, 1000), "12.3")
    if measured["pre"] < 1e-3 and measured["post"] > 1e-2:
        raise CheckFailed(f"gradient: {exchanged}.", slip=exchanged)
    if not 0.3 < measured["pre"] < 100 or measured["post"] > 1e-5:
        says = both if math.isclose(*measured.values(), rel_tol=0.1) else other
        raise CheckFailed(f"gradient: {says}.\nYou have {measured}.", slip=says)
    _again("gradient", measured, lambda: _gradients(stack, ids), ROUNDED_SIZE)
    for n in (250, 1000):
        if abs(size[n] - 1) < 0.05:
            raise CheckFailed(f"{behind}.\nYou have {size}.", slip=behind)
    if size[1000] < size[250]:
        raise CheckFailed(f"rms[1000] is {size[1000]:.3g}, less than rms[250]. Did you exchange the two?")
    _again("rms", size, lambda: _rms(stack, ids), ROUNDED_SIZE)
    exponent, times = number(exponent, "exponent", "0.123"), size[1000] / size[250]
    # from the sizes as they are given, or as they were before they were rounded
    rights = [math.log(t) / math.log(4) for t in (times, MEASURED["rms"][1000] / MEASURED["rms"][250])]
    right = min(rights, key=lambda one: abs(exponent - one))
    wrong = {ratio: times, square: 2 * right, root: 0.5}
    same(exponent, right, "exponent", wrong=wrong, tolerance=ROUNDED_EXPONENT, reveal=False)
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
    """The number of steps exactly, both losses as they are measured."""
    same(steps_deep, STEPS_DEEP, "steps_deep", wrong=_wrong("budget", "steps_deep"), reveal=False)
    loss = _pair(losses, "losses", ("wide", "deep"), "1.85")
    if not _agree(loss, MEASURED["losses"], ROUNDED_LOSS):
        runs = _runs(learn, wide)
        run, last = runs["wide"], _last(runs)
        exchanged, whole, first, _ = _wrong("budget", "losses")
        for says, slip in {exchanged: last["deep"], whole: sum(run) / len(run), first: run[0]}.items():
            if abs(slip - loss["wide"]) < 0.02 < abs(loss["wide"] - last["wide"]):
                raise CheckFailed(says, slip=says)
        _again("losses", loss, lambda: last, ROUNDED_LOSS)
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
def cites_depth(essay, gradient, rms, stack, ids) -> None:
    """Length, and the measured numbers of problem 6. An own number that nobody measured is nothing to cite."""
    few, many, *_ = CATALOGUE["cites_depth"]
    n_words = len(_text(essay).split())
    for failed, says in ((n_words < 100, few), (n_words > 400, many)):
        if failed:
            raise CheckFailed(f"{says}: it has {n_words}.", slip=says)
    own, size = _lengths(gradient, "gradient"), _pair(rms, "rms", (250, 1000), "12.3")
    _again("gradient", own, lambda: _gradients(stack, ids), NEAR, FIRST.format("{}", 6))
    _again("rms", size, lambda: _rms(stack, ids), NEAR, FIRST.format("{}", 6))
    _cited(essay, own | {"top": size[1000]})
    passed(f"the essay has {n_words} words and cites what you measured on 1,000 blocks")


@graded
def cites_budget(essay, losses, width_1000, learn, wide) -> None:
    """The numbers of problem 7: both losses as measured, and the width as the student has it."""
    _text(essay)
    width = float(number(width_1000, "width_1000", "123.4"))
    loss = _pair(losses, "losses", ("wide", "deep"), "1.85")
    _again("losses", loss, lambda: _last(_runs(learn, wide)), NEAR, FIRST.format("{}", 7))
    _cited(essay, loss | {"width": width})
    passed("the essay cites what the same budget buys")


def _text(essay) -> str:
    if type(given(essay, "essay")) is not str:
        raise CheckFailed('essay must be a text between three quotation marks: """ ... """.')
    if essay.strip() in ("", "..."):
        raise CheckFailed(f"essay: {UNANSWERED}.")
    return essay


def _cited(essay: str, measured: dict[str, float]) -> None:
    found = [n for n in numbers(essay) if math.isfinite(n)]
    for name, value in measured.items():
        same_sign = [n for n in found if n * value > 0]
        if any(abs(n - value) < max(_unit(n), _unit(value)) for n in same_sign):
            continue
        says = NO_NUMBER.format(CITED[name])
        near = min(same_sign, key=lambda n: abs(math.log(n / value)), default=None)
        told = f"\nYou measured {value:.3g}" + (f"; the nearest number in the essay is {near:.3g}." if near else ".")
        raise CheckFailed(says + told, slip=says)


def _unit(written: float) -> float:
    """What 1 is worth in the last digit of a number, but in the second or third: 0.1 in 3.4 and 2.0, 10 in 730.

    Digits after the third may be another machine's.
    """
    number = Decimal(repr(written)).normalize()
    return 10.0 ** min(max(number.as_tuple().exponent, number.adjusted() - 2), number.adjusted() - 1)
