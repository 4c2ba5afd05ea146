"""Checks of exercise 09: estimate and count the parameters of a Transformer. One mechanism a check.

The notebook calls each check on the student's names; a hidden test hands other sizes to the same check.
"""

from __future__ import annotations

import math

from classroom.checks.expect import CheckFailed, call, given, number, passed, refuse, same
from classroom.checks.expect import hidden_test as hidden_test  # for the hidden tests of the notebook
from classroom.checks.parameters_slips import (
    CATALOGUE,
    GPT2,
    NEAREST,
    RATIOS,
    TIER,
    D,
    L,
    V,
    block,
    block_units,
    count,
    error,
    estimated,
    model,
    sizes,
)
from classroom.checks.progress import graded
from plainformer.config import Config, preset, published

ROUNDED = 6e-4  # an answer may be rounded to three decimals


def _wrong(check: str, name: str) -> dict:
    return {says: answers[name] for says, answers in CATALOGUE[check].items()}


def _wrong_results(check: str, name: str, arguments: dict) -> dict:
    return {says: function(**arguments) for says, function in _wrong(check, name).items()}


# ---- problem 1: predict ----


@graded
def predict(guess) -> None:
    """Any number that could be a model's size."""
    _plausible(guess, "guess")
    passed("noted; problem 2 tells how far off it is")


def _plausible(answer, what: str) -> int | float:
    """`answer`, if a model of this size could be."""
    value = number(answer, what, such_as="3e7")
    negative, small, large = CATALOGUE["predict"]
    refuse(what, (value <= 0, negative), (value < 1e5, small), (value > 1e13, large))
    return value


def how_far(guess, total) -> None:
    """Tell the ratio of a guess to the total computed by hand."""
    predict_ratio = _plausible(guess, "guess") / _plausible(total, "total")
    factor = max(predict_ratio, 1 / predict_ratio)
    verdict = "the right order of magnitude" if factor < math.sqrt(10) else "another order of magnitude"
    print(f"Your guess is {predict_ratio:.3g} times the total: {verdict}.")


# ---- problem 2: by hand ----


@graded
def blocks(blocks) -> None:
    same(blocks, 12 * L * D**2, "blocks", wrong=_wrong("blocks", "blocks"), reveal=False)
    passed("blocks")


@graded
def whole(table, total) -> None:
    same(table, V * D, "table", wrong=_wrong("whole", "table"), reveal=False)
    same(total, estimated(L, D, V, 1), "total", wrong=_wrong("whole", "total"), reveal=False)
    passed("table and total")


@graded
def share(table_share) -> None:
    right = V * D / estimated(L, D, V, 1)
    same(table_share, right, "table_share", wrong=_wrong("share", "table_share"), tolerance=ROUNDED, reveal=False)
    passed("share of the table")


# ---- problem 3: what it compares with ----


@graded
def tier(tier) -> None:
    same(tier, TIER, "tier", wrong=_wrong("tier", "tier"), choices=("below", "inside", "above"), reveal=False)
    passed("tier")


@graded
def ratios(ratios) -> None:
    same(ratios, RATIOS, "ratios", wrong=_wrong("ratios", "ratios"), tolerance=ROUNDED, reveal=False)
    passed("ratios")


@graded
def near_match(near_match) -> None:
    wrong = _wrong("near_match", "near_match")
    same(near_match, NEAREST, "near_match", wrong=wrong, choices=GPT2, reveal=False)
    passed(f"near match: ours has {RATIOS[near_match]:.0%} of its {published(near_match):,} parameters")


# ---- problem 4: the shortcut as a function ----


@graded
def estimate_tied(estimate, *cases: tuple[int, int, int]) -> None:
    """Cases are (n_layers, d_model, n_vocab)."""
    _estimates("estimate_tied", estimate, cases or ((3, 10, 700),), tied=True)
    passed("estimate, tied")


@graded
def estimate_untied(estimate, *cases: tuple[int, int, int]) -> None:
    """Cases are (n_layers, d_model, n_vocab)."""
    _estimates("estimate_untied", estimate, cases or ((3, 10, 700),), tied=False)
    passed("estimate, not tied")


def _estimates(check: str, function, cases: tuple, tied: bool) -> None:
    for n_layers, d_model, n_vocab in cases:
        arguments = {"n_layers": n_layers, "d_model": d_model, "n_vocab": n_vocab, "tied": tied}
        actual = call(function, "estimate", **arguments)
        right = estimated(n_layers, d_model, n_vocab, 1 if tied else 2)
        wrong = _wrong_results(check, "estimate", arguments)
        same(actual, right, f"estimate with tied={tied}", wrong=wrong)


# ---- problem 5: the exact count ----


def _parts(check: str, names: tuple[str, ...], count_parameters, models: dict[str, Config]) -> None:
    """Compare the named parts for every model; `models` maps the mechanism that it brings in to a model."""
    for mechanism, config in models.items():
        arguments = sizes(config)
        actual = call(count_parameters, "count_parameters", **arguments)
        if type(actual) is not dict:
            raise CheckFailed(f"count_parameters returns a {type(actual).__name__}; a dict of parts was expected.")
        results = _wrong_results(check, "count_parameters", arguments)
        for part in names:
            if part not in actual:
                raise CheckFailed(f"the dict has no part {part!r}; it has: {', '.join(map(str, actual)) or 'none'}.")
            wrong = {says: result[part] for says, result in results.items()}
            same(actual[part], count(config)[part], f"{part} ({mechanism})", wrong=wrong)


def _named(models: tuple[Config, ...]) -> dict[str, Config]:
    return {f"other sizes, model {k}": config for k, config in enumerate(models, start=1)}


@graded
def attention(count_parameters, *models: Config) -> None:
    visible = {
        "without grouping or biases": model(),
        "grouped keys": model(n_kv_heads=2),
        "grouped keys, biases": model(n_kv_heads=2, bias=True),
    }
    _parts("attention", ("attention",), count_parameters, _named(models) or visible)
    passed("attention")


@graded
def mlp(count_parameters, *models: Config) -> None:
    visible = {
        "two matrices": model(),
        "a gated MLP": model(mlp="swiglu"),
        "two matrices, biases": model(bias=True),
        "a gated MLP, biases": model(mlp="swiglu", bias=True),
    }
    _parts("mlp", ("mlp",), count_parameters, _named(models) or visible)
    passed("MLP")


@graded
def norms(count_parameters, *models: Config) -> None:
    visible = {"RMSNorm": model(), "LayerNorm": model(norm="layer")}
    _parts("norms", ("norms",), count_parameters, _named(models) or visible)
    passed("norms")


@graded
def tables(count_parameters, *models: Config) -> None:
    visible = {
        "tied, no learned positions": model(),
        "not tied": model(tied=False),
        "learned positions": model(positions="learned"),
    }
    _parts("tables", ("embed", "positions", "unembed"), count_parameters, _named(models) or visible)
    passed("tables")


@graded
def real_models(count_parameters, *names: str) -> None:
    """The sum of the parts against the count that was published: a truth that our library had no part in."""
    for name in names or ("gpt2-small", "smollm2-135m"):
        arguments = sizes(preset(name))
        actual = call(count_parameters, "count_parameters", **arguments)
        if type(actual) is not dict:
            raise CheckFailed(f"count_parameters returns a {type(actual).__name__}; a dict of parts was expected.")
        if actual.keys() != count(preset(name)).keys():
            raise CheckFailed(f"the dict must have the parts {', '.join(count(preset(name)))}.")
        for part, value in actual.items():
            if type(value) is not int:
                kind = type(value).__name__
                raise CheckFailed(
                    f"count_parameters: {part!r} is {value!r}, of type {kind}; every part must be an int."
                )
        wrong = {}
        for check in ("attention", "mlp", "norms", "tables"):
            for says, parts in _wrong_results(check, "count_parameters", arguments).items():
                wrong[says] = sum(parts.values())
        same(sum(actual.values()), published(name), f"the whole of {name}", wrong=wrong)
    passed("real models")


# ---- problem 6: hunt a bug ----


@graded
def hunt(suspect, right_at, wrong_at) -> None:
    is_right, is_wrong, larger, impossible = CATALOGUE["hunt"]
    expected_keys = ["d_ff", "d_model", "n_heads", "n_kv_heads"]
    for what, answer in (("right_at", right_at), ("wrong_at", wrong_at)):
        if type(given(answer, what)) is not dict or sorted(answer) != expected_keys:
            raise CheckFailed(f"{what} must be a dict with the keys {', '.join(expected_keys)}.")
        for name, value in answer.items():
            given(value, f"{what}[{name!r}]")
        try:
            right = block(**answer)
        except (TypeError, ValueError) as error:
            raise CheckFailed(f"{what}: {impossible}: {error}", slip=impossible) from None
        suspect_is_right = call(suspect, "suspect", **answer) == right
        if suspect_is_right != (what == "right_at"):
            says = is_right if suspect_is_right else is_wrong
            raise CheckFailed(f"{what}: {says}", slip=says)
    if wrong_at["d_model"] > 2:  # two heads of width 1 on one key head: the smallest grouped block there is
        raise CheckFailed(f"wrong_at: {larger}", slip=larger)
    passed("suspect exposed")


@graded
def repair(repaired, *cases: tuple[int, int, int, int]) -> None:
    """Cases are (d_model, n_heads, n_kv_heads, d_ff)."""
    for d_model, n_heads, n_kv_heads, d_ff in cases or ((48, 8, 8, 112), (48, 8, 2, 112)):
        arguments = {"d_model": d_model, "n_heads": n_heads, "n_kv_heads": n_kv_heads, "d_ff": d_ff}
        wrong = _wrong_results("repair", "repaired", arguments)
        same(call(repaired, "repaired", **arguments), block(**arguments), f"repaired with {arguments}", wrong=wrong)
    passed("suspect repaired")


# ---- problem 7: investigate ----


@graded
def units(units) -> None:
    same(units, block_units("llama-2-70b"), "units", wrong=_wrong("units", "units"), tolerance=ROUNDED, reveal=False)
    passed("one block in units of d²")


@graded
def errors(shortcut_error, *names: str) -> None:
    for name in names or ("gpt2-small", "llama-2-7b"):
        for with_tables in (False, True):
            arguments = {"name": name, "with_tables": with_tables}
            actual = call(shortcut_error, "shortcut_error", **arguments)
            wrong = {says: f(**arguments) for says, f in _wrong("errors", "shortcut_error").items()}
            what = f"shortcut_error({name!r}, with_tables={with_tables})"
            same(actual, error(name, with_tables), what, wrong=wrong, tolerance=ROUNDED)
    passed("errors of the shortcut")


@graded
def effects(mlp_alone, both) -> None:
    config = block_units("llama-2-70b")
    right = {"mlp_alone": (4 + config["mlp"]) / 12 - 1, "both": sum(config.values()) / 12 - 1}
    for name, answer in (("mlp_alone", mlp_alone), ("both", both)):
        same(answer, right[name], name, wrong=_wrong("effects", name), tolerance=ROUNDED, reveal=False)
    passed("two effects")


@graded
def reason(reason) -> None:
    same(reason, "E", "reason", wrong=_wrong("reason", "reason"), choices=tuple("ABCDE"), reveal=False)
    passed("reason. Before you trust the shortcut, look at a model's d_ff, n_kv_heads and n_vocab")
