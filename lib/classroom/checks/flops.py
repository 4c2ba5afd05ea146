"""Checks of exercise 10: FLOPs of a block, attention's share of them, and the days of a training run.

One mechanism a check. The notebook calls each on the student's names; a hidden test hands other sizes to it.
The checks of problem 5 come from `flops_drawing`.
"""

from __future__ import annotations

import math

from classroom.checks.expect import CheckFailed, call, given, number, passed, refuse, same
from classroom.checks.expect import hidden_test as hidden_test  # for the hidden tests of the notebook
from classroom.checks.flops_drawing import axes as axes
from classroom.checks.flops_drawing import crossing as crossing
from classroom.checks.flops_drawing import curves as curves
from classroom.checks.flops_slips import (
    ATTENTION_ADDS,
    CATALOGUE,
    ROWS,
    RULE_ERROR,
    TABLE_ADDS,
    D,
    T,
    block,
    forward_pass,
    on_line,
)
from classroom.checks.flops_slips import case as case  # for the hidden tests too
from classroom.checks.flops_slips import days as _days
from classroom.checks.flops_slips import share as _share
from classroom.checks.progress import graded

ROUNDED = 6e-4  # an answer may be rounded to three decimals
EXACT = 1e-9  # a few roundings of float64 in numbers of about 1


def _wrong(check: str, name: str) -> dict:
    return {says: answers[name] for says, answers in CATALOGUE[check].items()}


def _wrong_results(check: str, name: str, arguments: dict) -> dict:
    return {says: function(**arguments) for says, function in _wrong(check, name).items()}


# ---- problem 1: predict ----


@graded
def predict(guess) -> None:
    """Any number that could be a share."""
    _plausible(guess, "guess")
    passed("noted; problem 2 tells how far off it is")


def _plausible(answer, what: str) -> int | float:
    value = number(answer, what, such_as="0.2")
    small, large = CATALOGUE["predict"]
    refuse(what, (value <= 0, small), (value >= 1, large))
    return value


def how_far(guess, share) -> None:
    """Tell how far a guess was off."""
    points = 100 * (_plausible(guess, "guess") - _plausible(share, "share"))
    print(f"Your guess is {abs(points):.0f} percentage points too {'high' if points > 0 else 'low'}.")


# ---- problem 2: by hand ----


@graded
def layer(weight_flops, attention_flops) -> None:
    same(weight_flops, 24 * D**2, "weight_flops", wrong=_wrong("layer", "weight_flops"), reveal=False)
    same(attention_flops, 4 * T * D, "attention_flops", wrong=_wrong("layer", "attention_flops"), reveal=False)
    passed("one layer")


@graded
def share(share) -> None:
    right = _share(D, T, False)
    same(share, right, "share", wrong=_wrong("share", "share"), tolerance=ROUNDED, reveal=False)
    passed("attention's share")


@graded
def half_way(crossover, mean_crossover) -> None:
    same(crossover, 6 * D, "crossover", wrong=_wrong("half_way", "crossover"), reveal=False)
    same(mean_crossover, 12 * D, "mean_crossover", wrong=_wrong("half_way", "mean_crossover"), reveal=False)
    passed("where attention does half of the work")


# ---- problem 3: between two rows of a table ----


@graded
def readings(linear, on_log) -> None:
    for name, answer, scale in (("linear", linear, float), ("on_log", on_log, math.log)):
        right = on_line(T, *ROWS, scale)
        same(answer, right, name, wrong=_wrong("readings", name), tolerance=ROUNDED, reveal=False)
    passed("two readings")


@graded
def errs(linear_errs, log_errs, log_errs_beyond) -> None:
    answers = {"linear_errs": linear_errs, "log_errs": log_errs, "log_errs_beyond": log_errs_beyond}
    for (name, answer), right in zip(answers.items(), ("low", "high", "low")):
        same(answer, right, name, wrong=_wrong("errs", name), choices=("low", "high"), reveal=False)
    passed("which way each line errs")


@graded
def why(why) -> None:
    same(why, "C", "why", wrong=_wrong("why", "why"), choices=tuple("ABCDE"), reveal=False)
    passed("why. With three multiplications at hand there is no need to interpolate")


# ---- problem 4: the share as a function ----


@graded
def last_token(attention_share, *cases: tuple[int, int]) -> None:
    """Cases are (d_model, n_positions)."""
    _shares("last_token", attention_share, cases or ((48, 100), (4_096, 2_048)), mean=False)
    passed("share, last token")


@graded
def causal_mean(attention_share, *cases: tuple[int, int]) -> None:
    """Cases are (d_model, n_positions)."""
    _shares("causal_mean", attention_share, cases or ((48, 100), (4_096, 2_048)), mean=True)
    passed("share, causal mean")


def _shares(check: str, function, cases: tuple, mean: bool) -> None:
    for d_model, n_positions in cases:
        arguments = {"d_model": d_model, "n_positions": n_positions, "mean": mean}
        actual = call(function, "attention_share", **arguments)
        wrong = _wrong_results(check, "attention_share", arguments)
        what = f"attention_share({d_model=}, {n_positions=}, {mean=})"
        same(actual, _share(**arguments), what, wrong=wrong, tolerance=EXACT)


# ---- problem 6: one block ----


@graded
def projections(block_flops, *cases: dict) -> None:
    visible = {"grouped keys": case(), "not grouped": case(n_kv_heads=8)}
    _parts("projections", ("projections",), block_flops, _named(cases) or visible)
    passed("projections")


@graded
def pairs(block_flops, *cases: dict) -> None:
    visible = {"all pairs": case(), "causal": case(causal=True)}
    _parts("pairs", ("scores", "mix"), block_flops, _named(cases) or visible)
    passed("scores and mix")


@graded
def mlp(block_flops, *cases: dict) -> None:
    visible = {"two matrices": case(gated=False), "a gated MLP": case()}
    _parts("mlp", ("mlp",), block_flops, _named(cases) or visible)
    passed("MLP")


def _named(cases: tuple[dict, ...]) -> dict[str, dict]:
    return {f"other sizes, case {k}": arguments for k, arguments in enumerate(cases, start=1)}


def _parts(check: str, names: tuple[str, ...], block_flops, cases: dict[str, dict]) -> None:
    """Compare the named parts for every case; `cases` maps the mechanism that it brings in to arguments."""
    for mechanism, arguments in cases.items():
        actual = call(block_flops, "block_flops", **arguments)
        if type(actual) is not dict:
            raise CheckFailed(f"block_flops returns a {type(actual).__name__}; a dict of parts was expected.")
        results = _wrong_results(check, "block_flops", arguments)
        for part in names:
            if part not in actual:
                raise CheckFailed(f"the dict has no part {part!r}; it has: {', '.join(map(str, actual)) or 'none'}.")
            wrong = {says: result[part] for says, result in results.items()}
            same(actual[part], block(**arguments)[part], f"{part} ({mechanism})", wrong=wrong)


# ---- problem 7: hunt a bug ----


@graded
def hunt(suspect, missing, close_at, far_at) -> None:
    _, is_off, is_near, impossible = CATALOGUE["hunt"]
    words = ("projections", "scores", "mix", "mlp", "unembed")
    there = next(iter(CATALOGUE["hunt"]))
    wrong = dict.fromkeys((there,), given(missing, "missing"))  # every other part is there
    same(missing, "mix", "missing", wrong=wrong, choices=words, reveal=False)
    keys = ["d_ff", "d_model", "n_layers", "n_positions", "n_vocab"]
    for what, answer in (("close_at", close_at), ("far_at", far_at)):
        if type(given(answer, what)) is not dict or sorted(answer) != keys:
            raise CheckFailed(f"{what} must be a dict with the keys {', '.join(keys)}.")
        for name, value in answer.items():
            if type(given(value, f"{what}[{name!r}]")) is not int or value < 1:
                raise CheckFailed(f"{what}: {impossible}; {name} is {value!r}.", slip=impossible)
        lost = 1 - call(suspect, "suspect", **answer) / forward_pass(**answer)
        says, fine = (is_off, lost < 0.01) if what == "close_at" else (is_near, lost > 0.4)
        if not fine:
            raise CheckFailed(f"{what}: {says}: it misses {lost:.1%}.", slip=says)
    passed("suspect exposed")


@graded
def repair(repaired, *cases: tuple[int, int, int, int, int]) -> None:
    """Cases are (n_layers, d_model, d_ff, n_vocab, n_positions)."""
    for n_layers, d_model, d_ff, n_vocab, n_positions in cases or ((3, 48, 112, 1_000, 20),):
        arguments = {"n_layers": n_layers, "d_model": d_model, "d_ff": d_ff}
        arguments |= {"n_vocab": n_vocab, "n_positions": n_positions}
        wrong = _wrong_results("repair", "repaired", arguments)
        actual = call(repaired, "repaired", **arguments)
        same(actual, forward_pass(**arguments), f"repaired with {arguments}", wrong=wrong)
    passed("suspect repaired")


# ---- problem 8: investigate ----


@graded
def days(training_days, *cases: tuple[float, float, int, float]) -> None:
    """Cases are (n_parameters, n_tokens, n_devices, reached)."""
    for n_parameters, n_tokens, n_devices, reached in cases or ((7e9, 2e12, 1_000, 4e14),):
        arguments = {"n_parameters": n_parameters, "n_tokens": n_tokens, "n_devices": n_devices, "reached": reached}
        actual, right = call(training_days, "training_days", **arguments), _days(**arguments)
        wrong = _wrong_results("days", "training_days", arguments)
        same(actual, right, f"training_days with {arguments}", wrong=wrong, tolerance=EXACT * right)
    passed("days")


@graded
def effects(table_adds, attention_adds, rule_error) -> None:
    answers = {"table_adds": table_adds, "attention_adds": attention_adds, "rule_error": rule_error}
    for (name, answer), right in zip(answers.items(), (TABLE_ADDS, ATTENTION_ADDS, RULE_ERROR)):
        same(answer, right, name, wrong=_wrong("effects", name), tolerance=ROUNDED, reveal=False)
    passed("two effects and what they make together")


@graded
def reason(reason) -> None:
    same(reason, "E", "reason", wrong=_wrong("reason", "reason"), choices=tuple("ABCDE"), reveal=False)
    passed("reason. The rule is meant for short texts and for weights that multiply")
