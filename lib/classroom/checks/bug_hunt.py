"""Checks of exercise 16: the answers are tests, and each check tries one on right and on broken versions.

A test must let all right versions pass, whatever their style; then it earns a check's point by rejecting all of
the check's broken versions. One mechanism a check; a hidden test has other versions with the same faults.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable

import torch

from classroom.checks.bug_hunt_slips import (
    ADDED,
    BROKEN,
    CATALOGUE,
    INSIDE,
    OUTSIDE,
    REJECTS,
    RETURNS,
    RIGHT,
    ROUNDING,
    SCORES,
    leaked,
    rated,
    rates,
    rejects,
)
from classroom.checks.bug_hunt_slips import colleague as colleague  # for problem 7 of the notebook
from classroom.checks.bug_hunt_slips import right_versions as right_versions
from classroom.checks.bug_hunt_slips import wrong_versions as wrong_versions
from classroom.checks.expect import UNANSWERED, CheckFailed, call, in_any_order, number, passed, refuse, same
from classroom.checks.expect import hidden_test as hidden_test  # for the hidden tests of the notebook
from classroom.checks.progress import graded

ROUNDED = 6e-4  # an answer may be rounded to three decimals
EXACT = 1e-9  # one division


def _wrong(check: str, name: str) -> dict:
    return {says: answers[name] for says, answers in CATALOGUE[check].items()}


# ---- problem 1: predict ----


@graded
def predict(guess) -> None:
    """Any percentage."""
    value = number(guess, "guess", such_as="40")
    few, many = CATALOGUE["predict"]
    refuse("guess", (value < 0, few), (value > 100, many))
    passed("noted; the next cell tells")


def how_far(guess, test) -> None:
    """Try a test on the broken versions of attention."""
    guess, versions = number(guess, "guess", such_as="40"), wrong_versions()
    n = sum(rejects(test, version) for version in versions)
    print(f"It rejects {n} of {len(versions)} broken versions, {n / len(versions):.0%}. Your guess was {guess:g}%.")


# ---- problem 2: by hand ----


@graded
def leak(leaked_weight) -> None:
    right = leaked(*SCORES, ADDED)
    wrong = _wrong("leak", "leaked_weight")
    same(leaked_weight, right, "leaked_weight", wrong=wrong, tolerance=ROUNDED, reveal=False)
    passed(f"a hidden key with {right:.0%} of the weight")


@graded
def root(inside, outside) -> None:
    for name, answer, right in (("inside", inside, INSIDE), ("outside", outside, OUTSIDE)):
        same(answer, right, name, wrong=_wrong("root", name), tolerance=ROUNDED, reveal=False)
    passed("ε inside the root and outside")


# ---- problems 3 to 6: the student's tests ----


@graded
def scale(test_attention, *, other: bool = False) -> None:
    _hunt("scale", "test_attention", test_attention, other)
    passed("scores divided by the wrong number")


@graded
def heads(test_attention, *, other: bool = False) -> None:
    _hunt("heads", "test_attention", test_attention, other)
    passed("heads and texts that are mixed")


@graded
def huge(test_attention, *, other: bool = False) -> None:
    _hunt("huge", "test_attention", test_attention, other)
    passed("scores that are too large for it")


@graded
def future(test_attention, *, other: bool = False) -> None:
    _hunt("future", "test_attention", test_attention, other)
    passed("a look ahead")


@graded
def length(test_attention, *, other: bool = False) -> None:
    _hunt("length", "test_attention", test_attention, other)
    passed("the shortest text and the longest")


@graded
def untouched(test_attention, *, other: bool = False) -> None:
    _hunt("untouched", "test_attention", test_attention, other)
    passed("traces that a call leaves behind")


@graded
def epsilon(test_norm, *, other: bool = False) -> None:
    _hunt("epsilon", "test_norm", test_norm, other)
    passed("an ε in the wrong place")


@graded
def spread(test_norm, *, other: bool = False) -> None:
    _hunt("spread", "test_norm", test_norm, other)
    passed("a wrong spread")


@graded
def edge(test_memory, *, other: bool = False) -> None:
    _hunt("edge", "test_memory", test_memory, other)
    passed("the edge of the window")


@graded
def reset(test_memory, *, other: bool = False) -> None:
    _hunt("reset", "test_memory", test_memory, other)
    passed("a conversation that leaks into the next")


@graded
def apart(test_memory, *, other: bool = False) -> None:
    _hunt("apart", "test_memory", test_memory, other)
    passed("a memory that shares what it should own")


@graded
def layers(test_layers, *, other: bool = False) -> None:
    _hunt("layers", "test_layers", test_layers, other)
    passed("faults behind the first layer")


@graded
def maps(test_layers, *, other: bool = False) -> None:
    _hunt("maps", "test_layers", test_layers, other)
    passed("maps that are not what was used")


@graded
def batch(test_layers, *, other: bool = False) -> None:
    _hunt("batch", "test_layers", test_layers, other)
    passed("faults in some texts of a batch")


def _hunt(check: str, name: str, test: Callable, other: bool) -> None:
    """`CheckFailed` unless `test` passes every right version and rejects the broken ones of this check."""
    if test is None or test is ...:
        raise CheckFailed(f"{name}: {UNANSWERED}.")
    if not callable(test):
        raise CheckFailed(f"{name} is no function. Usual cause: a later line gives the name to something else.")
    right = [make() for make in RIGHT[name]]
    made = {says: versions[other]() for says, versions in BROKEN[check].items()}
    errors = in_any_order(lambda version: _error(name, test, version, other), [*right, *made.values()])
    for k, error in enumerate(errors[: len(right)]):
        if error is not None:
            if isinstance(error, NotImplementedError):
                raise CheckFailed(f"{name}: {str(error) or UNANSWERED}.")
            says = ROUNDING if k else REJECTS
            raise CheckFailed(f"{name}: {says}\n{_told(error, test)}", slip=says)
    survivors = [says for says, error in zip(made, errors[len(right) :]) if error is None]
    if survivors:
        shown = f"of {len(made)} broken versions it rejects {len(made) - len(survivors)}"
        raise CheckFailed(f"{name}: {survivors[0]}\n({shown})", slip=survivors[0])


def _error(name: str, test: Callable, version: Callable, other: bool) -> BaseException | None:
    """What the test raises. Random numbers that it may draw are the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(16 + other)
        try:
            verdict = test(version)
        except (Exception, SystemExit) as error:
            return error
    if verdict is False or (isinstance(verdict, torch.Tensor) and verdict.numel() == 1 and not verdict):
        raise CheckFailed(f"{name}: {RETURNS}", slip=RETURNS)
    return None


def _told(error: BaseException, test: Callable) -> str:
    """The error in a line, and the last line of the test that it went through."""
    words = f"{type(error).__name__}: {error}".strip(": ").splitlines()
    code = getattr(test, "__code__", None)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if code and f.filename == code.co_filename]
    return words[0] + (f"\nat line {frames[-1].lineno}: {frames[-1].line}" if frames else "")


# ---- problem 7: how good is a test? ----


class Trouble(Exception):
    """An error that is no `AssertionError`."""


@graded
def score(score, *cases: tuple[dict, int, int]) -> None:
    """Versions are 0, 1, 2, … A case: what the test raises for some, how many are right, how many broken."""
    failed, broke = AssertionError, Trouble
    every_right = {0: failed, 1: failed, 3: failed}
    visible = (
        ({}, 2, 3),
        ({3: failed}, 2, 4),
        ({4: failed, 5: broke}, 2, 5),
        (every_right, 2, 4),
        ({1: failed, 3: failed}, 2, 4),
    )
    for errors, n_right, n_broken in cases or visible:
        test = _raiser(errors)
        right, wrong = [*range(n_right)], [*range(n_right, n_right + n_broken)]
        what = f"score of a test that rejects {sorted(errors)}; right are {right}, broken {wrong}"
        strict = [*CATALOGUE["score"]][-1]
        results = {says: float(f(test, right, wrong)) for says, f in _wrong("score", "score").items() if says != strict}
        try:
            actual = call(score, "score", test=test, right=[*right], wrong=[*wrong])
        except CheckFailed as failure:
            if isinstance(failure.__context__, tuple(errors.values())):
                raise CheckFailed(f"score: {strict}", slip=strict) from None
            raise
        same(actual, float(rated(test, right, wrong)), what, wrong=results, tolerance=EXACT)
    passed("score")


def _raiser(errors: dict[int, type[Exception]]) -> Callable:
    def test(candidate):
        if candidate in errors:
            raise errors[candidate]("this version is broken")

    return test


@graded
def scores(scores) -> None:
    same(scores, rates(), "scores", wrong=_wrong("scores", "scores"), tolerance=ROUNDED, reveal=False)
    passed("four tests, and what each of them finds")


@graded
def reason(reason) -> None:
    same(reason, "B", "reason", wrong=_wrong("reason", "reason"), choices=tuple("ABCD"), reveal=False)
    passed("reason. Huge scores belong beside ordinary ones, not in their place")
