"""Checks of exercise 11: how large a cache is, attention that keeps one, and what a step has to read.

One mechanism a check. The notebook calls each on the student's names; a hidden test hands other sizes to it.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence

import torch
from torch import Tensor

from classroom.checks.cache_answers import last_rows, uncached
from classroom.checks.cache_answers import problem as problem  # for the hidden tests of the notebook
from classroom.checks.cache_slips import (
    CATALOGUE,
    EVEN,
    GROUP,
    KEPT,
    LIMITS,
    N_SERVED,
    PER_TOKEN,
    SITUATIONS,
    fits,
    latents,
    limit,
    stored,
)
from classroom.checks.cache_slips import balance as _balance
from classroom.checks.cache_slips import step as _step
from classroom.checks.expect import UNANSWERED, CheckFailed, call, given, number, passed, refuse, same
from classroom.checks.expect import hidden_test as hidden_test
from classroom.checks.progress import graded
from classroom.checks.tensors import numbers

ROUNDED = 6e-4  # an answer may be rounded to three decimals
EXACT = 1e-9  # a few roundings of float64, as a part of the result
ROUNDING = 1e-5  # a result that was collected in float32 is right too: 24 bits lose 6e-8 of a number


def _wrong(check: str, name: str) -> dict:
    return {says: answers[name] for says, answers in CATALOGUE[check].items()}


def _wrong_results(check: str, name: str, arguments: dict) -> dict:
    return {says: function(**arguments) for says, function in _wrong(check, name).items()}


# ---- problem 1: predict ----


@graded
def predict(guess) -> None:
    """Any number of conversations that could be meant."""
    _plausible(guess)
    passed("noted; problem 2 tells how far off it is")


def _plausible(guess) -> int | float:
    value = number(guess, "guess", such_as="20")
    few, many = CATALOGUE["predict"]
    refuse("guess", (value < 1, few), (value > EVEN * KEPT, many))
    return value


def how_far(guess, per_token) -> None:
    """Tell the ratio of a guess to what follows from the answer of problem 2."""
    value, own = _plausible(guess), number(per_token, "per_token", such_as="20_000")
    if own <= 0:
        raise CheckFailed("per_token: a number of bytes is positive.")
    right = EVEN * PER_TOKEN / own
    print(f"By your per_token it takes {right:.0f} conversations. Your guess is {value / right:.2g} times that.")


# ---- problem 2: by hand ----


@graded
def per_token(per_token) -> None:
    same(per_token, PER_TOKEN, "per_token", wrong=_wrong("per_token", "per_token"), reveal=False)
    passed("bytes of a token")


@graded
def ungrouped(ungrouped) -> None:
    same(ungrouped, GROUP * PER_TOKEN, "ungrouped", wrong=_wrong("ungrouped", "ungrouped"), reveal=False)
    passed("without grouped keys")


@graded
def served(served_gib) -> None:
    right, wrong = N_SERVED * KEPT * PER_TOKEN / 2**30, _wrong("served", "served_gib")
    same(served_gib, right, "served_gib", wrong=wrong, tolerance=ROUNDED, reveal=False)
    passed(f"{N_SERVED} conversations")


# ---- problem 3: bytes of a served batch ----


@graded
def batch(cache_bytes, *cases: dict) -> None:
    visible = _case(), _case(lengths=[17], n_bytes=1)
    _sizes("batch", "cache_bytes", cache_bytes, cases or visible, stored)
    passed("a batch")


@graded
def windowed_bytes(cache_bytes, *cases: dict) -> None:
    visible = _case(lengths=[50, 9, 30], window=20), _case(lengths=[50, 9, 30], window=50)
    _sizes("windowed_bytes", "cache_bytes", cache_bytes, cases or visible, stored)
    passed("a batch behind a window")


@graded
def latent(latent_bytes, *cases: dict) -> None:
    visible = {"lengths": [50, 9, 30], "n_layers": 5, "d_latent": 24, "d_rotary": 4, "n_bytes": 2}
    _sizes("latent", "latent_bytes", latent_bytes, cases or (visible,), latents)
    passed("latents")


def _case(**changes) -> dict:
    case = {"lengths": [50, 9, 30], "n_layers": 5, "n_kv_heads": 3, "d_head": 8, "n_bytes": 4, "window": None}
    return case | changes


def _sizes(check: str, name: str, function, cases: Sequence[dict], truth) -> None:
    for arguments in cases:
        actual = call(function, name, **copy.deepcopy(arguments))
        what = f"{name}({', '.join(f'{k}={v!r}' for k, v in arguments.items())})"
        same(actual, truth(**arguments), what, wrong=_wrong_results(check, name, arguments))


# ---- problem 4: the largest batch that fits ----


@graded
def largest_batch(largest_batch, *cases: tuple) -> None:
    """Cases are (memory, weight_bytes, bytes_per_token, n_positions, window)."""
    visible = (1_000, 300, 7, 9, None), (1_000, 370, 7, 9, None), (1_000, 300, 7, 90, 11), (1_000, 300, 7, 9, 11)
    _fit("largest_batch", largest_batch, cases or visible)
    passed("largest batch")


@graded
def none_fits(largest_batch, *cases: tuple) -> None:
    """Cases as above."""
    visible = (1_000, 1_300, 7, 9, None), (1_000, 950, 7, 9, None), (1_000, 937, 7, 9, None)  # and room for just one
    _fit("none_fits", largest_batch, cases or visible)
    passed("no room")


def _fit(check: str, function, cases: tuple) -> None:
    names = ("memory", "weight_bytes", "bytes_per_token", "n_positions", "window")
    _sizes(check, "largest_batch", function, [dict(zip(names, case)) for case in cases], fits)


# ---- problem 5: attention that keeps a cache ----


@graded
def whole(attend, *problems: dict) -> None:
    """One chunk, an empty cache, as many key heads as query heads."""
    _chunks("whole", attend, problems or (problem(),), cuts=lambda n: [[n]])
    passed("one chunk")


@graded
def chunks(attend, *problems: dict) -> None:
    _chunks("chunks", attend, problems or (problem(),), cuts=lambda n: [[n - n // 2, n // 2], [n - 3, 1, 2], [1] * n])
    passed("any cut")


@graded
def grouped(attend, *problems: dict) -> None:
    _chunks("grouped", attend, problems or (problem(n_kv_heads=2),), cuts=lambda n: [[n], [n - 3, 1, 2]])
    passed("grouped keys")


@graded
def windowed(attend, *problems: dict) -> None:
    """A problem may say its window."""
    visible = problem() | {"window": 3}, problem() | {"window": 5}
    _chunks("windowed", attend, problems or visible, cuts=lambda n: [[n], [n - 3, 1, 2], [1] * n, [1, n - 1]])
    passed("a window")


def _chunks(check: str, attend, problems: tuple[dict, ...], cuts) -> None:
    """However the rows are cut, the results are those without a cache."""
    for case in problems:
        right = uncached(**case)
        for cut in cuts(len(case["x"])):
            cut = [n for n in cut if n > 0]
            outs = _outs(attend, case, cut)
            wrong = {says: _outs(f, case, cut) for says, f in _wrong(check, "attend").items()}
            for k, part in enumerate(right.split(cut, -2)):
                window = f", window={case['window']}" if case.get("window") else ""
                what = f"out of chunk {k + 1} of {cut}{window}"
                known = {says: other[k] for says, other in wrong.items()}
                same(outs[k], part, what, wrong=known, tolerance=ROUNDING * max(1, part.abs().max().item()))


def _outs(attend, case: dict, cut: list[int]) -> list[Tensor]:
    cache, outs = None, []
    for rows, positions in zip(case["x"].split(cut), case["positions"].split(cut)):
        out, cache = _attended(attend, case | {"x": rows, "positions": positions}, cache)
        outs.append(out)
    return outs


def _attended(attend, case: dict, cache) -> tuple:
    """What `attend` returns, called on copies of its tensors."""
    arguments = {k: v.clone() if isinstance(v, Tensor) else v for k, v in case.items()}
    returned = call(attend, "attend", cache=cache, **arguments)
    if type(returned) not in (tuple, list) or len(returned) != 2:
        raise CheckFailed("attend must return two things: the result and the cache, as in `return out, cache`.")
    for name, value in arguments.items():
        if isinstance(value, Tensor) and not torch.equal(value, case[name]):
            says = f"an argument has changed: {name}"
            raise CheckFailed(f"attend: {says}", slip=says)
    return returned[0], returned[1]


@graded
def untouched(attend, *problems: dict) -> None:
    """Arguments stay as they are, and one start can be continued in two ways."""
    for case in problems or (problem(),):
        n = len(case["x"]) // 2
        start = case | {"x": case["x"][:n], "positions": case["positions"][:n]}
        rest = case | {"x": case["x"][n:], "positions": case["positions"][n:]}
        other = rest | {"x": numbers(*rest["x"].shape, key=9)}
        _, cache = _attended(attend, start, None)
        for once, way in enumerate((rest, other)):
            out, _ = _attended(attend, way, cache)
            right = uncached(**(case | {"x": torch.cat([start["x"], way["x"]])}))[..., n:, :]
            try:
                same(out, right, "out", tolerance=ROUNDING * max(1, right.abs().max().item()))
            except CheckFailed as error:
                says = next(iter(CATALOGUE["untouched"]))
                if not once:
                    raise CheckFailed(f"already the first continuation is wrong: {error}") from None
                raise CheckFailed(f"attend: {says}", slip=says) from None
    passed("nothing is changed from outside")


# ---- problem 6: hunt a bug ----


@graded
def hunt(Ring, safe_at, leaks_at) -> None:
    leaks, nothing, larger = CATALOGUE["hunt"]
    for what, answer in (("safe_at", safe_at), ("leaks_at", leaks_at)):
        if type(given(answer, what)) is not dict or sorted(answer) != ["first", "second", "window"]:
            raise CheckFailed(f"{what} must be a dict with the keys window, first, second.")
        for name, value in answer.items():
            if type(given(value, f"{what}[{name!r}]")) is not int or not 1 <= value <= 10_000:
                raise CheckFailed(f"{what}: {name} is {value!r}; give a whole number from 1 to 10,000.")
        shown = _played(Ring, "Ring", answer["window"], [answer["first"], answer["second"]])
        leaked = any(row.startswith("1") for row in shown[-1])
        if leaked != (what == "leaks_at"):
            raise CheckFailed(f"{what}: {leaks if leaked else nothing}", slip=leaks if leaked else nothing)
    if leaks_at["window"] > 2:  # a ring of one place is filled by any row
        raise CheckFailed(f"leaks_at: {larger}", slip=larger)
    passed("ring exposed")


@graded
def repair(repaired, *cases: tuple[int, list[int]]) -> None:
    """Cases are a window and the lengths of conversations that one ring serves, one after the other."""
    for window, lengths in cases or ((3, [2]), (3, [3, 2, 7, 1]), (1, [2, 1])):
        texts = [[f"{c}.{k}" for k in range(length)] for c, length in enumerate(lengths, start=1)]
        every = [row for text in texts for row in text]
        rows = dict(zip(every, random.SystemRandom().sample(range(10**6), len(every))))  # which tell no conversation
        back = {number: row for row, number in rows.items()}
        right = [last_rows(text[: n + 1], window) for text in texts for n in range(len(text))]
        actual = _played(repaired, "repaired", window, lengths, rows)
        actual = [[back.get(row, row) if type(row) is int else row for row in shown] for shown in actual]
        wrong = {says: _played(f, "", window, lengths) for says, f in _wrong("repair", "repaired").items()}
        same(actual, right, f"what a ring of {window} shows, row by row", wrong=wrong)
    passed("ring repaired")


def _played(make, what: str, window: int, lengths: list[int], rows: dict | None = None) -> list[list]:
    """What one ring shows after every row; row k of conversation c is the text "c.k", or its stand-in in `rows`."""
    ring, shown = call(make, what, window=window), []
    try:
        for c, length in enumerate(lengths, start=1):
            if c > 1:
                ring.start_over()
            for k in range(length):
                ring.add(rows[f"{c}.{k}"] if rows else f"{c}.{k}")
                shown.append(list(ring.visible()))
    except NotImplementedError:
        raise CheckFailed(f"{what}: {UNANSWERED}.") from None
    except Exception as error:
        kind = type(error).__name__
        raise CheckFailed(f"{what}: a ring of {window} raises {kind} in conversation {c}: {error}") from None
    return shown


# ---- problem 7: investigate ----


@graded
def step(step_seconds, *cases: tuple) -> None:
    """Cases are (n_sequences, n_weights, kept_bytes, n_bytes, bandwidth, peak)."""
    for case in cases or ((11, 7_000, 900, 2, 50.0, 4_000.0), (3, 7_000, 900, 4, 50.0, 4_000.0)):
        arguments = dict(zip(("n_sequences", "n_weights", "kept_bytes", "n_bytes", "bandwidth", "peak"), case))
        right, results = _step(**arguments), _wrong_results("step", "step_seconds", arguments)
        tolerance = EXACT * min(right.values())
        what = f"step_seconds with {arguments}"
        same(call(step_seconds, "step_seconds", **arguments), right, what, wrong=results, tolerance=tolerance)
    passed("seconds of a step")


@graded
def balance(balance_batch, *cases: tuple) -> None:
    """Cases are (n_bytes, bandwidth, peak)."""
    for case in cases or ((2, 3, 1_000), (4, 3, 1_000), (0.5, 3, 1_000), (2, 4, 1_000)):
        arguments = dict(zip(("n_bytes", "bandwidth", "peak"), case))
        wrong, what = _wrong_results("balance", "balance_batch", arguments), f"balance_batch with {arguments}"
        same(call(balance_batch, "balance_batch", **arguments), _balance(**arguments), what, wrong=wrong)
    passed("the batch at which weights are no limit")


@graded
def limits(limits) -> None:
    if type(given(limits, "limits")) is not dict or sorted(limits) != sorted(SITUATIONS):
        raise CheckFailed('limits must be a dict with the keys "A", "B", "C".')
    for name, situation in SITUATIONS.items():
        wrong = {says: answers["limits"][name] for says, answers in CATALOGUE["limits"].items()}
        what = f"limits[{name!r}]"
        same(limits[name], limit(*situation), what, wrong=wrong, choices=LIMITS, reveal=False)
    passed("what limits each step")


@graded
def reason(reason) -> None:
    same(reason, "B", "reason", wrong=_wrong("reason", "reason"), choices=tuple("ABCD"), reveal=False)
    passed("reason. A longer text makes the cache the limit, and no batch helps against that")
