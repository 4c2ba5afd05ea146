"""What is right in exercise 10, and the wrong answers that its checks know by name.

Truth comes from `plainformer.flops` and from published counts. The checks use `CATALOGUE` for diagnosis, and the
tests hand each of its answers to the grader.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from classroom import terms
from plainformer import flops
from plainformer.config import Config, preset, published

D, T = terms.numbers("flops")  # problems 1 to 3
ROWS = (T // 2, 2 * T)  # the rows of the table between which problem 3 draws a line
WIDTH = 4_096  # problem 5 draws a layer of this width
REAL = "llama-3-8b"  # problem 8
LAST, MEAN = "last token", "causal mean"  # the labels of the two lines of problem 5
N_POINTS = 20

# All sizes differ, so that a count that confuses two of them shows; d_ff is not 4 · d_model either.
_CASE = {"n_positions": 20, "d_model": 48, "n_heads": 8, "n_kv_heads": 2, "d_ff": 112, "gated": True, "causal": False}


# ---- what is right ----


def share(d_model: int, n_positions: int, mean: bool) -> float:
    return flops.attention_share(d_model, n_positions, attention="mean" if mean else "last")


def on_line(at: int, low: int, high: int, scale: Callable[[float], float]) -> float:
    """The share that a straight line between two rows gives, on paper with this scale."""
    way = (scale(at) - scale(low)) / (scale(high) - scale(low))
    return share(D, low, False) + way * (share(D, high, False) - share(D, low, False))


def case(**changes) -> dict:
    """The visible checks' arguments of `block_flops`, with other sizes or choices."""
    return _CASE | changes


def block(n_positions, d_model, n_heads, n_kv_heads, d_ff, gated, causal) -> dict[str, int]:
    """What `block_flops` of the exercise returns."""
    config = Config(
        n_layers=1, d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads, d_ff=d_ff, n_vocab=7, n_context=9,
        mlp="swiglu" if gated else "gelu", positions="none",
    )  # fmt: skip
    parts = flops.sequence(config, n_positions, attention="mean" if causal else "full", output=False)
    projections = sum(parts.pop(name) for name in ("query", "key", "value", "out"))
    scores, mix = parts.pop("scores"), parts.pop("mix")
    return {"projections": projections, "scores": scores, "mix": mix, "mlp": sum(parts.values())}


def forward_pass(n_layers: int, d_model: int, d_ff: int, n_vocab: int, n_positions: int) -> int:
    """What the colleague's counter of problem 7 ought to return."""
    config = Config(
        n_layers=n_layers, d_model=d_model, n_heads=1, n_kv_heads=1, d_ff=d_ff, n_vocab=n_vocab, n_context=9,
        mlp="gelu", positions="none",
    )  # fmt: skip
    return sum(flops.sequence(config, n_positions, attention="full").values())


def days(n_parameters: float, n_tokens: float, n_devices: int, reached: float) -> float:
    return flops.training_days(flops.training_flops(n_parameters, n_tokens), reached, n_devices=n_devices)


_MULTIPLYING = flops.multiplying_weights(preset(REAL))
_TOKEN = flops.forward(preset(REAL), preset(REAL).n_context, attention="mean")
TABLE_ADDS = published(REAL) / _MULTIPLYING - 1
ATTENTION_ADDS = (_TOKEN["scores"] + _TOKEN["mix"]) / (2 * _MULTIPLYING)
RULE_ERROR = 2 * published(REAL) / sum(_TOKEN.values()) - 1


# ---- the slips ----


def _share_as(value: Callable[[int, int], float]) -> dict[str, Callable]:
    return {"attention_share": lambda d_model, n_positions, mean: float(value(d_model, n_positions))}


def _block_as(*names: str, times: Callable[[dict], float] = lambda given: 1, **changes) -> dict[str, Callable]:
    """An answer that counts another block, or a multiple of the right count, in the parts `names`."""

    def wrong(**given) -> dict[str, int]:
        other = block(**(given | {k: v(given) if callable(v) else v for k, v in changes.items()}))
        return block(**given) | {name: int(other[name] * times(given)) for name in names}

    return {"block_flops": wrong}


def _repaired_as(value: Callable[..., int]) -> dict[str, Callable]:
    def wrong(n_layers, d_model, d_ff, n_vocab, n_positions) -> int:
        right = forward_pass(n_layers, d_model, d_ff, n_vocab, n_positions)
        mix = 2 * n_positions**2 * d_model
        return right - n_layers * mix + value(n_layers, d_model, n_positions, mix)

    return {"repaired": wrong}


def _days_as(factor: Callable[[int], float]) -> dict[str, Callable]:
    return {"training_days": lambda **given: days(**given) * factor(given["n_devices"])}


def drawing(
    labels: tuple[str, str] = (LAST, MEAN), n_points: int = 40, longest: float = 64, halves: tuple[int, ...] = (6, 12),
    at: Callable[[float, float], float] = lambda n, half: n / (n + half), log: bool = True,
    names: tuple[str, str] = ("length T", "share"), legend: bool = True,
) -> dict[str, Callable]:  # fmt: skip
    """An answer to problem 5, right but for what is given here."""

    def draw(d_model: int):
        from matplotlib.figure import Figure

        first, last = math.log(d_model / 8), math.log(longest * d_model)
        grid = [math.exp(first + (last - first) * n / (n_points - 1)) for n in range(n_points)]
        ax = Figure().add_subplot()
        for label, half in zip(labels, (6, 12)):
            lengths = sorted(grid + [other * d_model for other in halves])
            ax.plot(lengths, [at(n, half * d_model) for n in lengths], label=label)
        ax.set(xlabel=names[0], ylabel=names[1], xscale="log" if log else "linear")
        if legend:
            ax.legend()
        return ax

    return {"draw": draw}


_LLAMA = {"n_layers": 3, "d_model": 48, "d_ff": 112, "n_vocab": 1_000}
_CLOSE, _FAR = _LLAMA | {"n_positions": 2}, _LLAMA | {"n_positions": 48_000}
_MACS = "these are multiply-adds; a multiplication and an addition are two FLOPs"
_ONE_TOKEN = "one token is counted; the sequence has n_positions of them"
_LINEAR, _LOG = on_line(T, *ROWS, float), on_line(T, *ROWS, math.log)

# check → what the slip is → the answers it gives
CATALOGUE: dict[str, dict[str, dict]] = {
    "predict": {
        "a share is more than 0": {"guess": 0},
        "a share is less than 1: write 20 per cent as 0.2": {"guess": 30},
    },
    "layer": {
        _MACS: {"weight_flops": 12 * D**2, "attention_flops": 4 * T * D},
        "the width is not squared": {"weight_flops": 24 * D, "attention_flops": 4 * T * D},
        "16 d² is the MLP alone; the projections take 8 d² more": {"weight_flops": 16 * D**2, "attention_flops": 0},
        "this is all T tokens' attention; take the last token's": {
            "weight_flops": 24 * D**2, "attention_flops": 4 * T**2 * D,
        },
        "2 T d is the scores alone; mixing the values takes as much": {
            "weight_flops": 24 * D**2, "attention_flops": 2 * T * D,
        },
    },
    "share": {
        "give the share as a fraction of 1, not in per cent": {"share": 100 * share(D, T, False)},
        "divide by the whole layer, attention included": {"share": T / (6 * D)},
        "this is the share of the weights' work; attention's is the rest": {"share": 1 - share(D, T, False)},
        "this is the causal mean; the last token meets all T keys": {"share": share(D, T, True)},
    },
    "half_way": {
        "one half of the layer is where both terms are equal: 4 T d = 24 d²": {
            "crossover": 24 * D, "mean_crossover": 48 * D,
        },
        "that is the width; there attention takes one seventh": {"crossover": D, "mean_crossover": 2 * D},
        "the mean token meets half as many keys, so it needs a longer text, not a shorter one": {
            "crossover": 6 * D, "mean_crossover": 3 * D,
        },
        "that is the last token's length again; the mean token meets half as many keys": {
            "crossover": 6 * D, "mean_crossover": 6 * D,
        },
    },
    "readings": {
        f"{T:,} is the middle on the logarithmic axis, not on the plain one": {"linear": _LOG, "on_log": _LOG},
        f"{T:,} lies one third of the way on the plain axis; on the logarithmic one it lies elsewhere": {
            "linear": _LINEAR, "on_log": _LINEAR,
        },
        "give fractions of 1, not per cent": {"linear": 100 * _LINEAR, "on_log": 100 * _LOG},
        "this is what the formula gives; read it off the line": {"linear": share(D, T, False), "on_log": _LOG},
    },
    "errs": {
        "compare your `linear` with your `share`": {
            "linear_errs": "high", "log_errs": "high", "log_errs_beyond": "low",
        },
        "compare your `on_log` with your `share`": {"linear_errs": "low", "log_errs": "low", "log_errs_beyond": "low"},
        f"{4 * T:,} lies beyond the half-way point: compute the formula and the middle of the two rows": {
            "linear_errs": "low", "log_errs": "high", "log_errs_beyond": "high",
        },
    },
    "why": {
        "the errors are several points; rounding to one decimal moves a reading by a twentieth of a point": {
            "why": "A",
        },
        "then both lines would lie below the curve": {"why": "B"},
        "it is the other way round: where a curve bends upwards, a line between two of its points lies above it": {
            "why": "D",
        },
        "a line may be read anywhere, not at its middle alone": {"why": "E"},
    },
    "last_token": {
        "the projections' 8 d² are missing in the whole": _share_as(lambda d, t: t / (t + 4 * d)),
        "the MLP's 16 d² are missing in the whole": _share_as(lambda d, t: t / (t + 2 * d)),
        "divide by the whole layer, attention included": _share_as(lambda d, t: t / (6 * d)),
        "2 T d is the scores alone; mixing the values takes as much": _share_as(lambda d, t: share(d, t, True)),
        "give a fraction of 1, not per cent": _share_as(lambda d, t: 100 * share(d, t, False)),
    },
    "causal_mean": {
        "that is the last token's share; look at mean": _share_as(lambda d, t: share(d, t, False)),
        "halve attention's FLOPs, not the share: they stand below the line too": _share_as(
            lambda d, t: share(d, t, False) / 2
        ),
        "the mean token meets fewer keys than the last one, not more": _share_as(lambda d, t: t / (t + 3 * d)),
        "take T / 2 for the number of keys, not (T + 1) / 2": _share_as(lambda d, t: (t + 1) / (t + 1 + 12 * d)),
    },
    "curves": {
        f"label the two lines {LAST!r} and {MEAN!r}, exactly so": drawing(labels=("last", "mean")),
        f"a line needs at least {N_POINTS} points": drawing(n_points=4),
        "the lines must reach from d_model / 4 or less to 32 · d_model or more": drawing(longest=20),
        "the two labels are exchanged": drawing(labels=(MEAN, LAST)),
        "draw fractions of 1, not per cent": drawing(at=lambda n, half: 100 * n / (n + half)),
    },
    "crossing": {
        "no point of the last token's line stands at its half-way length; put 6 · d_model among the lengths": drawing(
            halves=(12,)
        ),
        "no point of the causal mean's line stands at its half-way length; put 12 · d_model among the lengths": drawing(
            halves=(6,)
        ),
        f"a half-way point alone is no line: draw {N_POINTS} points or more, from well below it to well above": drawing(
            n_points=0
        ),
        "the half-way point is right, but others on its line are not: each is the share at its length": drawing(
            at=lambda n, half: min(1.0, n / (2 * half))
        ),
    },
    "axes": {
        "the x axis is plain; make it logarithmic": drawing(log=False),
        "an axis has no label": drawing(names=("length T", "")),
        "the legend is missing: call ax.legend()": drawing(legend=False),
    },
    "projections": {
        _MACS: _block_as("projections", times=lambda s: 0.5),
        _ONE_TOKEN: _block_as("projections", times=lambda s: 1 / s["n_positions"]),
        "keys and values have n_kv_heads heads, not n_heads": _block_as(
            "projections", n_kv_heads=lambda s: s["n_heads"]
        ),
        "there are four projections: query, key, value and out": {
            "block_flops": lambda **s: block(**s)
            | {"projections": block(**s)["projections"] - 2 * s["n_positions"] * s["d_model"] ** 2}
        },
    },
    "pairs": {
        _MACS: _block_as("scores", "mix", times=lambda s: 0.5),
        "one query is counted; there are n_positions of them": _block_as(
            "scores", "mix", times=lambda s: 1 / s["n_positions"]
        ),
        "each head is d_model / n_heads wide; all heads together are d_model wide": _block_as(
            "scores", "mix", times=lambda s: s["n_heads"]
        ),
        "one head is counted; there are n_heads": _block_as("scores", "mix", times=lambda s: 1 / s["n_heads"]),
        "grouped keys are shared, not skipped: every query head still meets every key": _block_as(
            "scores", "mix", times=lambda s: s["n_kv_heads"] / s["n_heads"]
        ),
        "all pairs are counted though causal=True": _block_as("scores", "mix", causal=False),
        "hidden pairs are left out though causal=False": _block_as("scores", "mix", causal=True),
        "a token meets itself too: there are T (T + 1) / 2 pairs": _block_as(
            "scores", "mix", times=lambda s: (s["n_positions"] - 1) / (s["n_positions"] + 1) if s["causal"] else 1
        ),
        "half of T² loses half of the diagonal: there are T (T + 1) / 2 pairs": _block_as(
            "scores", "mix", times=lambda s: s["n_positions"] / (s["n_positions"] + 1) if s["causal"] else 1
        ),
    },
    "mlp": {
        _MACS: _block_as("mlp", times=lambda s: 0.5),
        _ONE_TOKEN: _block_as("mlp", times=lambda s: 1 / s["n_positions"]),
        "the gate is missing: gated=True means three matrices": _block_as("mlp", gated=False),
        "a gate is counted where there is none": _block_as("mlp", gated=True),
        "the hidden width is taken as 4 · d_model; it is d_ff": _block_as("mlp", d_ff=lambda s: 4 * s["d_model"]),
    },
    "hunt": {
        "that product is there: read the loop again and ask which part of the block each line is": {
            "missing": "scores", "close_at": _CLOSE, "far_at": _FAR,
        },
        "there the suspect is 1 per cent off or more": {
            "missing": "mix", "close_at": _LLAMA | {"n_positions": 400}, "far_at": _FAR,
        },
        "there the suspect is 40 per cent off or less": {
            "missing": "mix", "close_at": _CLOSE, "far_at": _LLAMA | {"n_positions": 400},
        },
        "sizes are whole numbers of at least 1": {"missing": "mix", "close_at": _CLOSE | {"d_ff": 0}, "far_at": _FAR},
    },
    "repair": {
        "that is still the suspect's answer": _repaired_as(lambda n, d, t, mix: 0),
        "every block mixes; you count it in one": _repaired_as(lambda n, d, t, mix: mix),
        "every token mixes; you count the last one": _repaired_as(lambda n, d, t, mix: n * mix // t),
    },
    "days": {
        "2 N D is the forward pass alone; training takes three times that": _days_as(lambda n: 1 / 3),
        "the devices share the work": _days_as(lambda n: n),
        "these are seconds": _days_as(lambda n: 86_400),
        "these are hours": _days_as(lambda n: 24),
        "more devices need fewer days, not more": _days_as(lambda n: n**2),
    },
    "effects": {
        "the other way round: divide by the weights that multiply": {
            "table_adds": 1 - 1 / (1 + TABLE_ADDS), "attention_adds": ATTENTION_ADDS, "rule_error": RULE_ERROR,
        },
        "that is the last token's attention; the causal mean is half of it": {
            "table_adds": TABLE_ADDS, "attention_adds": 2 * ATTENTION_ADDS, "rule_error": RULE_ERROR,
        },
        "one layer is counted; all blocks have attention": {
            "table_adds": TABLE_ADDS, "attention_adds": ATTENTION_ADDS / 32, "rule_error": RULE_ERROR,
        },
        "the sign is missing: a rule that says too little has a negative error": {
            "table_adds": TABLE_ADDS, "attention_adds": ATTENTION_ADDS, "rule_error": -RULE_ERROR,
        },
        "the two changes do not add up: divide one whole by the other": {
            "table_adds": TABLE_ADDS, "attention_adds": ATTENTION_ADDS, "rule_error": TABLE_ADDS - ATTENTION_ADDS,
        },
        "give fractions of 1, not per cent": {
            "table_adds": 100 * TABLE_ADDS, "attention_adds": 100 * ATTENTION_ADDS, "rule_error": 100 * RULE_ERROR,
        },
    },
    "reason": {
        "looking a row up multiplies nothing; the rule counts the table all the same": {"reason": "A"},
        "attention's backward pass costs twice its forward pass, as everything else does": {"reason": "B"},
        "all norms together hold less than one parameter in ten thousand": {"reason": "C"},
        "compare your first two numbers: which is larger?": {"reason": "D"},
    },
}  # fmt: skip
