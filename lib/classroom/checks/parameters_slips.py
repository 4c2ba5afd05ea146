"""What is right in exercise 09, and the wrong answers that its checks know by name.

Truth comes from `plainformer.parameters` and from published counts. Most slips are the exact count of another
model: "you counted as if ...". The checks use `CATALOGUE` for diagnosis, and the tests hand each of its answers
to the grader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from classroom import terms
from plainformer import parameters
from plainformer.config import Config, preset, published

L, D, V = terms.numbers("parameters")  # the model of problems 1 to 3
GPT2 = ("gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl")

# All sizes differ, so that a count that confuses two of them shows; d_ff is not 4 · d_model either.
_MODEL = Config(
    n_layers=3, d_model=48, n_heads=8, n_kv_heads=8, d_ff=112, n_vocab=1000, n_context=64,
    positions="none", norm="rms", mlp="gelu", bias=False, tied=True,
)  # fmt: skip


def model(**changes) -> Config:
    """The visible checks' model with other sizes or choices."""
    return replace(_MODEL, **changes)


# ---- what is right ----


def count(config: Config) -> dict[str, int]:
    """What `count_parameters` of the exercise returns for this model."""
    parts = parameters.breakdown(config)
    parts["norms"] += parts.pop("final_norm")
    return {part: parts[part] for part in ("embed", "positions", "attention", "mlp", "norms", "unembed")}


def sizes(config: Config) -> dict:
    """The arguments of the exercise's `count_parameters` for this model."""
    names = ("n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff", "n_vocab", "n_context", "norm", "bias", "tied")
    mlp = "gelu" if config.mlp.startswith("gelu") else config.mlp  # both forms of GELU hold no parameters
    return {name: getattr(config, name) for name in names} | {
        "mlp": mlp,
        "learned_positions": config.positions == "learned",
    }


def _config(learned_positions: bool, **given_sizes) -> Config:
    return Config(positions="learned" if learned_positions else "none", **given_sizes)


def estimated(n_layers: int, d_model: int, n_vocab: int, tables: int) -> int:
    parts = parameters.estimate(model(n_layers=n_layers, d_model=d_model, n_vocab=n_vocab, n_heads=1, n_kv_heads=1))
    return parts["blocks"] + tables * parts["embed"]


def block(d_model: int, n_heads: int, n_kv_heads: int, d_ff: int) -> int:
    """Matrices of one block with a gated MLP."""
    config = model(d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads, d_ff=d_ff, n_layers=1, mlp="swiglu")
    return sum(count(config)[part] for part in ("attention", "mlp"))


def error(name: str, with_tables: bool) -> float:
    config = preset(name)
    tables = (1 if config.tied else 2) * with_tables
    return estimated(config.n_layers, config.d_model, config.n_vocab, tables) / published(name) - 1


def block_units(name: str, **changes) -> dict[str, float]:
    config = replace(preset(name), **changes)
    block = count(replace(config, n_layers=1))
    return {part: block[part] / config.d_model**2 for part in ("attention", "mlp")}


# ---- the slips ----


def _as_if(**changes) -> dict[str, Callable]:
    """An answer that counts another model: a change is a value, or a function of the right model."""

    def wrong(learned_positions: bool, **given_sizes) -> dict[str, int]:
        right = _config(learned_positions, **given_sizes)
        return count(replace(right, **{k: v(right) if callable(v) else v for k, v in changes.items()}))

    return {"count_parameters": wrong}


def _with(part: str, value: Callable[[Config, dict], int]) -> dict[str, Callable]:
    """An answer that is right but for one part."""

    def wrong(learned_positions: bool, **given_sizes) -> dict[str, int]:
        config = _config(learned_positions, **given_sizes)
        parts = count(config)
        return parts | {part: value(config, parts)}

    return {"count_parameters": wrong}


def _narrow(config: Config, parts: dict) -> int:
    """All four matrices of attention as narrow as the keys."""
    d_kv = config.n_kv_heads * config.d_head
    return config.n_layers * (4 * config.d_model * d_kv + config.bias * (2 * config.d_model + 2 * d_kv))


def _block_as_if(**changes) -> dict[str, Callable]:
    def wrong(**given_sizes) -> int:
        return block(**(given_sizes | {k: v(given_sizes) for k, v in changes.items()}))

    return {"repaired": wrong}


def _estimate_as(value: Callable[[int, int, int, int], int]) -> dict[str, Callable]:
    def wrong(n_layers: int, d_model: int, n_vocab: int, tied: bool) -> int:
        return value(n_layers, d_model, n_vocab, 1 if tied else 2)

    return {"estimate": wrong}


def _error_as(value: Callable[[str, bool], float]) -> dict[str, Callable]:
    return {"shortcut_error": lambda name, with_tables: value(name, with_tables)}


def _with_tables(name: str, tables: int) -> float:
    config = preset(name)
    return estimated(config.n_layers, config.d_model, config.n_vocab, tables) / published(name) - 1


RATIOS = {name: estimated(L, D, V, 1) / published(name) for name in GPT2}
NEAREST = min(GPT2, key=lambda name: abs(RATIOS[name] - 1))
TIER = "below" if estimated(L, D, V, 1) < 10**9 else "inside" if estimated(L, D, V, 1) <= 4 * 10**9 else "above"
_TIERS = {
    "below": "the range begins at 1 B = 1,000,000,000, and your total is no smaller",
    "inside": "the range is from 1 B = 1,000,000,000 to 4 B: compare your total with both numbers",
    "above": "the range ends at 4 B = 4,000,000,000: compare your total with that number",
}


def _other(name: str) -> str:
    """Why this size of GPT-2 is not the nearest."""
    trusted = "a source of this course says so too; " if name == "gpt2-xl" else ""
    return f"{trusted}your own ratio says that {name} has {1 / RATIOS[name]:.2g} times as many parameters"


_ONE_BLOCK = "one block is counted; the model has n_layers of them"
_NO_BIAS = "the biases are missing: bias=True gives one to every output of every matrix"
_BIAS = "biases are counted though bias=False"

# check → what the slip is → the answers it gives
CATALOGUE: dict[str, dict[str, dict]] = {
    "predict": {
        "a count is positive": {"guess": -7e8},
        f"that is less than one matrix of one block holds: d_model · d_model is {D**2:,}": {"guess": L * D},
        "that is more than any published model has": {"guess": 1e15},
    },
    "blocks": {
        "the width is not squared": {"blocks": 12 * L * D},
        "the number of blocks is squared too": {"blocks": 12 * L**2 * D**2},
        f"this is one block; the model has {L}": {"blocks": 12 * D**2},
        "4 L d² is attention alone; the MLP holds 8 L d² more": {"blocks": 4 * L * D**2},
        "8 L d² is the MLP alone; attention holds 4 L d² more": {"blocks": 8 * L * D**2},
        "this is the total; blocks is its first term alone": {"blocks": 12 * L * D**2 + V * D},
    },
    "whole": {
        "the formula has one table of V rows, d wide; you count two": {
            "table": 2 * V * D, "total": 12 * L * D**2 + 2 * V * D,
        },
        "the table has d columns, not d²": {"table": V * D**2, "total": 12 * L * D**2 + V * D**2},
        "the total is the blocks and the table together": {"table": V * D, "total": 12 * L * D**2},
    },
    "share": {
        "give the share as a fraction of 1, not in per cent": {"table_share": 100 * V * D / (12 * L * D**2 + V * D)},
        "divide by the whole model, not by the blocks": {"table_share": V * D / (12 * L * D**2)},
        "this is the share of the blocks; the table is the rest": {"table_share": 12 * D * L / (12 * D * L + V)},
    },
    "tier": {says: {"tier": answer} for answer, says in _TIERS.items() if answer != TIER},
    "ratios": {
        "the fraction is upside down: divide our model by GPT-2": {"ratios": {k: 1 / v for k, v in RATIOS.items()}},
        "give ratios such as 0.5, not per cent": {"ratios": {k: 100 * v for k, v in RATIOS.items()}},
        "divide the whole estimate, the table included": {
            "ratios": {name: 12 * L * D**2 / published(name) for name in GPT2},
        },
    },
    "near_match": {
        _other(name): {"near_match": name} for name in reversed(GPT2) if name != NEAREST
    },
    "estimate_tied": {
        "the table is counted twice though tied=True": _estimate_as(lambda n, d, v, t: estimated(n, d, v, 2)),
        _ONE_BLOCK: _estimate_as(lambda n, d, v, t: estimated(1, d, v, t)),
        "the width is not squared": _estimate_as(lambda n, d, v, t: 12 * n * d + t * v * d),
        "the tables are missing": _estimate_as(lambda n, d, v, t: estimated(n, d, v, 0)),
    },
    "estimate_untied": {
        "the second table is missing: tied=False means two": _estimate_as(lambda n, d, v, t: estimated(n, d, v, 1)),
        "only the table doubles when it is not tied, never the blocks": _estimate_as(
            lambda n, d, v, t: t * estimated(n, d, v, 1)
        ),
        "the blocks are lost: Python reads `a + b if tied else 2 * b` as `(a + b) if tied else (2 * b)`": _estimate_as(
            lambda n, d, v, t: estimated(n, d, v, 1) if t == 1 else 2 * v * d
        ),
    },
    "attention": {
        "keys and values have the size they would have without grouping: they are n_kv_heads · d_head wide":
            _as_if(n_kv_heads=lambda c: c.n_heads),
        "one head of keys and values is counted; there are n_kv_heads": _as_if(n_kv_heads=1),
        "queries and outputs are as narrow as the keys; they stay d_model wide": _with("attention", _narrow),
        "the output matrix is missing: there are four, query, key, value and out": _with(
            "attention", lambda c, parts: parts["attention"] - c.n_layers * parameters.block_breakdown(c)["out"]
        ),
        "every bias is d_model wide; those of keys and values are n_kv_heads · d_head wide": _with(
            "attention",
            lambda c, parts: count(replace(c, bias=False))["attention"] + c.bias * 4 * c.n_layers * c.d_model,
        ),
        _NO_BIAS: _as_if(bias=False),
        _BIAS: _as_if(bias=True),
        _ONE_BLOCK: _as_if(n_layers=1),
    },
    "mlp": {
        "the gate is missing: mlp=\"swiglu\" has three matrices": _as_if(mlp="gelu"),
        "a gate is counted where there is none: only mlp=\"swiglu\" has three matrices": _as_if(mlp="swiglu"),
        "the hidden width is taken as 4 · d_model; it is d_ff": _as_if(d_ff=lambda c: 4 * c.d_model),
        "every bias is d_model wide; those into the hidden layer are d_ff wide": _with(
            "mlp",
            lambda c, parts: count(replace(c, bias=False))["mlp"]
            + c.bias * c.n_layers * c.d_model * (3 if c.mlp == "swiglu" else 2),
        ),
        "every bias is d_ff wide; down's bias is d_model wide": _with(
            "mlp",
            lambda c, parts: count(replace(c, bias=False))["mlp"]
            + c.bias * c.n_layers * c.d_ff * (3 if c.mlp == "swiglu" else 2),
        ),
        _NO_BIAS: _as_if(bias=False),
        _BIAS: _as_if(bias=True),
        _ONE_BLOCK: _as_if(n_layers=1),
    },
    "norms": {
        "the final norm is missing": _as_if(norm_placement="post"),
        "one norm a block is counted; there are two": _with(
            "norms", lambda c, parts: parts["norms"] * (c.n_layers + 1) // (2 * c.n_layers + 1)
        ),
        "LayerNorm's shift is missing: it learns a scale and a shift": _as_if(norm="rms"),
        "RMSNorm learns a scale alone, no shift": _as_if(norm="layer"),
        _ONE_BLOCK: _as_if(n_layers=1),
    },
    "tables": {
        "the unembedding is counted though it is tied: it is the embedding table": _as_if(tied=False),
        "the unembedding is missing: tied=False means a second table": _as_if(tied=True),
        "learned positions are missing: one row for each of n_context places": _as_if(positions="none"),
        "positions are counted though none are learned": _as_if(positions="learned"),
        "the position table has n_context rows, not n_vocab": _as_if(n_context=lambda c: c.n_vocab),
    },
    "hunt": {
        "there the suspect is right: it errs only where n_kv_heads is smaller than n_heads": {
            "right_at": {"d_model": 4, "n_heads": 2, "n_kv_heads": 2, "d_ff": 8},
            "wrong_at": {"d_model": 4, "n_heads": 4, "n_kv_heads": 4, "d_ff": 8},
        },
        "there the suspect is wrong": {
            "right_at": {"d_model": 4, "n_heads": 4, "n_kv_heads": 2, "d_ff": 8},
            "wrong_at": {"d_model": 2, "n_heads": 2, "n_kv_heads": 1, "d_ff": 8},
        },
        "that exposes the suspect, and a smaller d_model does too": {
            "right_at": {"d_model": 4, "n_heads": 2, "n_kv_heads": 2, "d_ff": 8},
            "wrong_at": {"d_model": 64, "n_heads": 8, "n_kv_heads": 2, "d_ff": 8},
        },
        "no such model can be built": {
            "right_at": {"d_model": 4, "n_heads": 2, "n_kv_heads": 2, "d_ff": 8},
            "wrong_at": {"d_model": 2, "n_heads": 4, "n_kv_heads": 1, "d_ff": 8},
        },
    },
    "repair": {
        "that is still the suspect's answer": _block_as_if(n_kv_heads=lambda s: s["n_heads"]),
        "one head of keys and values is counted; there are n_kv_heads": _block_as_if(n_kv_heads=lambda s: 1),
    },
    "units": {
        "attention is counted without grouped keys: look at n_kv_heads": {
            "units": block_units("llama-2-70b", n_kv_heads=preset("llama-2-70b").n_heads),
        },
        "the MLP's gate is missing: it has three matrices": {"units": block_units("llama-2-70b", mlp="gelu")},
        "the MLP's hidden width is d_ff, not 8/3 · d_model": {"units": block_units("llama-2-70b") | {"mlp": 8.0}},
        "these are parameters; divide by d_model²": {
            "units": {k: v * preset("llama-2-70b").d_model**2 for k, v in block_units("llama-2-70b").items()},
        },
    },
    "errors": {
        "the sign is missing: an under-count is negative": _error_as(lambda n, t: abs(error(n, t))),
        "give a fraction such as -0.05, not per cent": _error_as(lambda n, t: 100 * error(n, t)),
        "the fraction is upside down: the published count is what the error is relative to": _error_as(
            lambda n, t: 1 / (1 + error(n, t)) - 1
        ),
        "the difference is divided by the shortcut; divide it by the published count": _error_as(
            lambda n, t: error(n, t) / (1 + error(n, t))
        ),
        "one table is counted; this model is not tied and has two": _error_as(lambda n, t: _with_tables(n, int(t))),
        "two tables are counted; this model is tied and has one": _error_as(lambda n, t: _with_tables(n, 2 * t)),
        "the tables are counted though with_tables=False": _error_as(lambda n, t: error(n, True)),
        "the tables are missing though with_tables=True": _error_as(lambda n, t: error(n, False)),
    },
    "effects": {
        "give the change as a fraction of 12 d², not in units of d²": {"mlp_alone": 2.5, "both": 0.75},
        "give the change, not the ratio: subtract 1": {"mlp_alone": 14.5 / 12, "both": 12.75 / 12},
        "give fractions such as 0.05, not per cent": {"mlp_alone": 250 / 12, "both": 75 / 12},
        "this is the MLP against its own 8 d²; compare with the whole block, 12 d²": {
            "mlp_alone": 10.5 / 8 - 1, "both": 0.75 / 12,
        },
        "attention takes part in the second number: grouped keys make it smaller": {
            "mlp_alone": 2.5 / 12, "both": 2.5 / 12,
        },
    },
    "reason": {
        "your shortcut counts both tables already": {"reason": "A"},
        "the norms are less than one parameter in ten thousand": {"reason": "B"},
        "alone it would make the block a fifth larger, and the shortcut would miss far more": {"reason": "C"},
        "alone they make the block smaller, and the shortcut would count too many": {"reason": "D"},
    },
}  # fmt: skip
