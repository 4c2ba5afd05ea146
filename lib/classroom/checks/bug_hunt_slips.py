"""What is right in exercise 16, and the weak tests that its checks know by name.

An answer is a test here. It is right if it lets every version in `bug_hunt_broken.RIGHT` pass and rejects every one
of `BROKEN`. Below, each slip is the remark that a check makes, and the answer is a test that earns it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial

from classroom import terms
from classroom.checks.bug_hunt_answers import (
    attention_test,
    causality_test,
    identical,
    layers_test,
    memory_test,
    nan_is_close,
    norm_test,
    same_shape,
)
from classroom.checks.bug_hunt_broken import BROKEN, PROBLEM, RIGHT
from classroom.checks.bug_hunt_versions import remembers

REJECTS = "it rejects a right version"
ROUNDING = "it rejects a right version that adds in another order: leave room for rounding"
RETURNS = "it returns its verdict; a test must raise an error, as `assert` does"

# problem 2: a visible score, a hidden one and what is added to it; numbers, and an ε
TIMES, SPREAD, EPS = terms.numbers("bug_hunt")
SCORES, ADDED = (-10_000.0, math.log(TIMES)), -10_000.0
ROW = (SPREAD, -SPREAD)


def leaked(visible: float, hidden: float, added: float) -> float:
    """The weight of a hidden key beside one visible key."""
    return 1 / (1 + math.exp(visible - hidden - added))


def rooted(eps_inside: float, eps_outside: float, correction: int = 0) -> float:
    """The first number of `ROW`, normed."""
    variance = sum(x**2 for x in ROW) / (len(ROW) - correction)  # its mean is 0
    return ROW[0] / (math.sqrt(variance + eps_inside) + eps_outside)


INSIDE, OUTSIDE = rooted(EPS, 0), rooted(0, EPS)


# ---- problem 7: how good is a test? ----

CHANGES = ("as it is", "20 seeds", "sizes differ", "huge scores")


def colleague(seeds: int = 1, sizes_differ: bool = False, times: float = 1.0) -> Callable:
    """A colleague's test of attention: compares with the library, all sizes 4 unless they are to differ."""
    return attention_test(
        sizes=(2, 5, 3, 4, 6) if sizes_differ else (4, 4, 4, 4, 4),
        lengths=(7,) if sizes_differ else (4,),
        times=(times,), seeds=seeds, inputs=(),
    )  # fmt: skip


def right_versions() -> list[Callable]:
    return [make() for make in RIGHT["test_attention"]]


def wrong_versions() -> list[Callable]:
    """The broken ones of the visible checks, but for the one that remembers who tested it."""
    makers = [visible for check in PROBLEM["test_attention"] for visible, _ in BROKEN[check].values()]
    return [make() for make in makers if not (isinstance(make, partial) and make.func is remembers)]


def rejects(test: Callable, candidate) -> bool:
    try:
        test(candidate)
    except Exception:
        return True
    return False


def rated(test: Callable, right: Sequence, wrong: Sequence) -> float:
    """What `score` of the exercise returns."""
    if any(rejects(test, candidate) for candidate in right):
        return 0.0
    return sum(rejects(test, candidate) for candidate in wrong) / len(wrong)


@cache
def rates() -> dict[str, float]:
    tests = colleague(), colleague(seeds=20), colleague(sizes_differ=True), colleague(times=300.0)
    return {name: rated(test, right_versions(), wrong_versions()) for name, test in zip(CHANGES, tests)}


def _careless(test, right, wrong):
    return rated(test, [], wrong)


def _counts(test, right, wrong):
    return round(len(wrong) * rated(test, right, wrong))


def _survivors(test, right, wrong):
    return 1 - rated(test, [], wrong) if rated(test, right, wrong) else 0.0


def _strict(test, right, wrong):
    """Takes an `AssertionError` alone for a rejection."""

    def rejected(candidate):
        try:
            test(candidate)
        except AssertionError:
            return True
        return False

    right_ones = [rejected(candidate) for candidate in right]
    return 0.0 if any(right_ones) else sum(map(rejected, wrong)) / len(wrong)


def _lenient(test, right, wrong):
    return 0.0 if all(rejects(test, candidate) for candidate in right) else rated(test, [], wrong)


def raises(candidate) -> None:
    raise AssertionError("no version is good enough")


def says_so(candidate) -> bool:
    return not rejects(attention_test(), candidate)


def _weak(check: str, name: str, *tests: Callable, **others: Callable) -> dict[str, dict]:
    """The remarks of a check in their order, each with a test that earns it, and general ones before."""
    remarks = {says: {name: test} for says, test in zip(BROKEN[check], tests, strict=True)}
    known = {"rejects": REJECTS, "rounding": ROUNDING, "returns": RETURNS}
    return {known[which]: {name: test} for which, test in others.items()} | remarks


def _scores(change: Callable[[float], float]) -> dict:
    return {"scores": {name: change(value) for name, value in rates().items()}}


_FORMS = layers_test(results=False, maps=False, forms=True)

# check → what the slip is → the answers it gives
CATALOGUE: dict[str, dict[str, dict]] = {
    "predict": {
        "that is fewer than none": {"guess": -5},
        "that is more than all: give per cent": {"guess": 120},
    },
    "leak": {
        "hidden means −∞; adding −10,000 makes a number, and softmax looks at the visible one beside it": {
            "leaked_weight": 0.0,
        },
        "the visible key counts too: the two scores share the weight": {"leaked_weight": 1.0},
    },
    "root": {
        "the two are the other way round": {"inside": OUTSIDE, "outside": INSIDE},
        "ε is missing": {"inside": 1.0, "outside": OUTSIDE},
        "the variance divides by d, not by d − 1": {"inside": rooted(EPS, 0, 1), "outside": rooted(0, EPS, 1)},
    },
    "scale": _weak(
        "scale", "test_attention",
        attention_test(compare=same_shape),
        attention_test(sizes=(2, 4, 1, 4, 6)),
        attention_test(sizes=(2, 5, 3, 4, 4)),
        rejects=raises, rounding=attention_test(compare=identical), returns=says_so,
    ),
    "heads": _weak(
        "heads", "test_attention",
        attention_test(sizes=(2, 5, 1, 4, 6)),
        attention_test(looks_at=lambda out: out[..., :6]),
        attention_test(sizes=(1, 5, 3, 4, 6)),
    ),
    "huge": _weak("huge", "test_attention", attention_test(times=(1.0,)), attention_test(compare=nan_is_close)),
    "future": _weak(
        "future", "test_attention",
        attention_test(looks_at=lambda out: out[:, -1:]),
        causality_test(keys=1.0, rows=slice(1)),
        causality_test(keys=0.0, rows=slice(-1)),
    ),
    "length": _weak(
        "length", "test_attention", attention_test(lengths=(7, 64)), attention_test(lengths=(7, 1)),
    ),
    "untouched": _weak(
        "untouched", "test_attention",
        attention_test(inputs=()),
        attention_test(inputs=("x",)),
        attention_test(times=(1.0,), seeds=1),
    ),
    "epsilon": _weak(
        "epsilon", "test_norm",
        norm_test(epsilons=(1e-12,)),
        norm_test(epsilons=(1e-5,), spread=0.01, offsets=(0.0,)),
        norm_test(spread=1e-6, offsets=(0.0,)),
        rejects=raises, rounding=norm_test(compare=identical),
    ),
    "spread": _weak(
        "spread", "test_norm",
        norm_test(shape=(2, 3, 4096), tolerance=1e-3),
        norm_test(shape=(1, 1, 5)),
        norm_test(learned=False),
        norm_test(offsets=(0.0,)),
    ),
    "edge": _weak(
        "edge", "test_memory",
        memory_test(windows=(12,), at_once=False),
        memory_test(windows=(4,), lengths=(9, 9), every_step=False),
        memory_test(windows=(4,)),
        rejects=raises,
    ),
    "reset": _weak(
        "reset", "test_memory", memory_test(lengths=(9,)), memory_test(windows=(4,), lengths=(3, 2)),
    ),
    "apart": _weak(
        "apart", "test_memory",
        memory_test(at_once=False), memory_test(writes=False), memory_test(inputs=False),
    ),
    "layers": _weak(
        "layers", "test_layers",
        layers_test(n_layers=1),
        layers_test(results=False, maps=False, forms=True, change=True),
        rounding=layers_test(compare=identical),
    ),
    "maps": _weak("maps", "test_layers", _FORMS, layers_test(maps=False), layers_test(maps=False, forms=True)),
    "batch": _weak("batch", "test_layers", layers_test(n_texts=1), _FORMS),
    "score": {
        "one rejected right version is one too many": {"score": _lenient},
        "a test that rejects right versions is worth nothing": {"score": _careless},
        "give the fraction of broken versions, not their number": {"score": _counts},
        "that is the fraction of those that survive": {"score": _survivors},
        "an error of any kind is a rejection: catch `Exception`": {"score": _strict},
    },
    "scores": {
        "give fractions such as 0.5, not per cent": _scores(lambda rate: 100 * rate),
        "these are the fractions that survive": _scores(lambda rate: 1 - rate),
        "every test gets the same here: hand each of the four to score": _scores(lambda rate: rates()["as it is"]),
    },
    "reason": {
        "a missing division makes scores larger, and these are the sizes at which all is compared": {"reason": "A"},
        "float64 reaches 10³⁰⁸; the right versions take part and differ by less than the tolerance": {"reason": "C"},
        "the same version fails the test with small scores: what is done to the scores does matter": {"reason": "D"},
    },
}  # fmt: skip
