"""The wrong answers of exercise 04 that its checks know by name.

What is right stands in `classroom.checks.masks_answers`. The checks use `CATALOGUE` for diagnosis, and the tests hand
each of its answers to the grader.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from classroom.checks import masks_answers as modules
from classroom.checks.masks_answers import (
    FUELS,
    LONG,
    REAL,
    SHARE,
    T_SMALL,
    W_SMALL,
    WIDE,
    pairs,
    reach,
    seen,
    unrepaired,
)
from classroom.checks.tensors import TOUCHED
from classroom.terms import word
from plainformer import masks
from plainformer.attention import attention

# ---- the slips ----


def _mask_as(name: str, rule: Callable[..., Tensor], start: bool = False) -> dict:
    """`rule` says from queries, keys and the window who may look; with `start` queries stand at the first keys."""

    def wrong(n_query: int, n_key: int, **window: int) -> Tensor:
        first = 0 if start else n_key - n_query
        return rule(torch.arange(first, first + n_query)[:, None], torch.arange(n_key), *window.values())

    return {name: wrong}


def _padding_as(rule: Callable[[Tensor, Tensor, int], Tensor]) -> dict:
    return {"padding_mask": lambda lengths, n_key: rule(torch.arange(n_key), lengths[:, None], n_key)}


def _combined_as(rule: Callable[[Tensor, Tensor, Tensor, int], Tensor]) -> dict:
    """`rule` gets causal, window and padding masks."""

    def wrong(lengths: Tensor, n_positions: int, window: int) -> Tensor:
        three = (masks.causal(n_positions), masks.sliding_window(n_positions, window=window))
        return rule(*three, masks.padding(lengths, n_positions)) & torch.ones(len(lengths), 1, 1, 1, dtype=torch.bool)

    return {"combined": wrong}


def _attend_as(weigh: Callable[[Tensor, Tensor], Tensor]) -> dict:
    """`weigh` makes weights from scores and mask."""

    def wrong(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return weigh(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), mask) @ v

    return {"masked_attention": wrong}


def _renormalised(scores: Tensor, mask: Tensor) -> Tensor:
    kept = scores.softmax(-1) * mask
    return kept / kept.sum(-1, keepdim=True)


def _turned_in_place(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    right = attention(q, k, v, mask)
    mask.logical_not_()
    return right


def _filled(constant: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda scores, mask: scores.masked_fill(~mask, constant).softmax(-1)


def _itself(scores: Tensor, mask: Tensor) -> Tensor:
    return _filled(-math.inf)(scores, mask | torch.eye(*scores.shape[-2:], dtype=torch.bool))


def _front_as(rule: Callable[[Tensor, Tensor, Tensor], Tensor]) -> dict:
    """`rule` makes the mask from the suspect's, rows that are filler, and keys that are."""

    def wrong(n_filler: Tensor, n_key: int) -> Tensor:
        filler = torch.arange(n_key) < n_filler[:, None]
        return rule(unrepaired(n_filler, n_key), filler[:, None, :, None], filler[:, None, None, :])

    return {"repaired": wrong}


def _reach_as(value: Callable[[list[int]], int]) -> dict:
    return {"reach": lambda windows: value(windows)}


def _always(answer: bool) -> dict:
    return {"leaks": lambda module, n_positions, d_model: answer}


def _pairs_with(**changes: int) -> dict:
    return {"pairs": pairs() | changes}


_AHEAD = "later keys are seen: a query looks at its own position and at earlier ones"
_TURNED = "True and False are turned round: True means that a query may look"
_START = "with fewer queries than keys the last query stands at the last key; yours begin at the first"

# check → what the slip is → the answers it gives
CATALOGUE: dict[str, dict[str, dict]] = {
    "predict": {
        "a share is more than 0": {"guess": -0.1},
        "a share is less than 1: many pairs are forbidden": {"guess": 40},
    },
    "pairs": {
        "a position looks at itself, too": _pairs_with(causal=T_SMALL * (T_SMALL - 1) // 2),
        "every pair is counted: the causal mask leaves those with j ≤ i": _pairs_with(causal=T_SMALL**2),
        f"a query's own position is one of the {word(W_SMALL)}": _pairs_with(
            window=pairs(W=W_SMALL + 1)["window"]
        ),
        f"the first {word(W_SMALL - 1)} rows have fewer than {word(W_SMALL)} keys": _pairs_with(
            window=T_SMALL * W_SMALL
        ),
        "filler is hidden as a key; its rows still look, and count": _pairs_with(
            filled=pairs(REAL)["causal"], both=pairs(REAL)["window"]
        ),
        "what any of the masks forbids is forbidden: the window counts as well": _pairs_with(
            both=pairs()["filled"]
        ),
    },
    "rows": {
        "the hidden weights were set to zero after the softmax: what is left must add up to 1": {
            "causal_row": [fuel / sum(FUELS) for fuel in FUELS[:3]] + [0],
        },
        "the query looks at its own position, too": {"causal_row": seen(0, 1)},
        "the last position comes after the query and is hidden": {"causal_row": seen(0, 1, 2, 3)},
        "a score of 0 is no mask: its exponential is 1, not 0": {
            "causal_row": [fuel / (sum(FUELS[:3]) + 1) for fuel in (*FUELS[:3], 1)],
        },
        "a window of two holds the query's own position and one more": {"window_row": seen(0, 1, 2)},
        "a window reaches back, not ahead": {"window_row": seen(2, 3)},
    },
    "share": {
        "the first rows have fewer keys than the window is wide": {"share": WIDE / LONG},
        "that is the causal mask without a window": {"share": (LONG + 1) / (2 * LONG)},
        "compare with all pairs, not with those that the causal mask leaves": {
            "share": SHARE * LONG**2 / (LONG * (LONG + 1) // 2),
        },
        "give a fraction such as 0.25, not per cent": {"share": 100 * SHARE},
    },
    "causal_mask": {
        "a query looks at its own position, too": _mask_as("causal_mask", lambda i, j: j < i),
        "queries see the future and not the past: rows are queries, columns are keys": _mask_as(
            "causal_mask", lambda i, j: j >= i
        ),
        "each query sees one position too far": _mask_as("causal_mask", lambda i, j: j <= i + 1),
        _TURNED: _mask_as("causal_mask", lambda i, j: j > i),
        _START: _mask_as("causal_mask", lambda i, j: j <= i, start=True),
    },
    "window_mask": {
        "a query's own position is one of the window: yours is one key too wide": _mask_as(
            "window_mask", lambda i, j, w: (j <= i) & (j >= i - w)
        ),
        "your window is one key too narrow": _mask_as("window_mask", lambda i, j, w: (j <= i) & (j > i - w + 1)),
        "your window looks ahead as far as back": _mask_as("window_mask", lambda i, j, w: (j - i).abs() < w),
        _AHEAD: _mask_as("window_mask", lambda i, j, w: j > i - w),
        _TURNED: _mask_as("window_mask", lambda i, j, w: (j > i) | (j <= i - w)),
        _START: _mask_as("window_mask", lambda i, j, w: (j <= i) & (j > i - w), start=True),
    },
    "padding_mask": {
        "one key too many: a text of n tokens has the positions 0 to n − 1": _padding_as(
            lambda j, n, t: (j <= n)[:, None, None, :]
        ),
        "filler stands at the end of a text": _padding_as(lambda j, n, t: (j >= t - n)[:, None, None, :]),
        "the axes of heads and queries are missing: the mask must fit scores (B, h, T, T)": _padding_as(
            lambda j, n, t: j < n
        ),
        "filler is hidden as a key, in the last axis": _padding_as(lambda j, n, t: (j < n)[:, None, :, None]),
        _TURNED: _padding_as(lambda j, n, t: (j >= n)[:, None, None, :]),
    },
    "combined": {
        "a key is seen if one mask allows it: it must be allowed by all": _combined_as(lambda c, w, p: w | p),
        "the window is missing": _combined_as(lambda c, w, p: c & p),
        "filler is seen": _combined_as(lambda c, w, p: w),
        "rows of filler are hidden too: only keys are": _combined_as(lambda c, w, p: w & p & p.transpose(-2, -1)),
        "all texts have the filler of the first: each has a length of its own": _combined_as(lambda c, w, p: w & p[:1]),
    },
    "masked_attention": {
        "weights were set to zero after the softmax: a row must add up to 1, and the future must not divide it":
            _attend_as(lambda scores, mask: scores.softmax(-1) * mask),
        _TURNED: _attend_as(lambda scores, mask: scores.masked_fill(mask, -math.inf).softmax(-1)),
        "hidden keys get −10⁹: that hides more than −10,000, but not all": _attend_as(_filled(-1e9)),
        "hidden keys get −10,000: where the visible scores lie below that, the hidden ones win": _attend_as(
            _filled(-1e4)
        ),
        "hidden scores become 0: the exponential of 0 is 1": _attend_as(
            lambda scores, mask: (scores * mask).softmax(-1)
        ),
        "−10,000 is added to the hidden scores: a hidden score that is larger by more is seen": _attend_as(
            lambda scores, mask: (scores - 1e4 * ~mask).softmax(-1)
        ),
        "weights are set to zero and made to add up to 1 again: where hidden scores are far larger, 0/0 is left":
            _attend_as(_renormalised),
        "the scores are not divided by √d_k": _attend_as(
            lambda scores, mask: _filled(-math.inf)(scores * math.sqrt(6), mask)
        ),
        TOUCHED: {"masked_attention": _turned_in_place},
    },
    "empty_rows": {
        "softmax over nothing is 0/0, which is no number: such a query gets zeros": _attend_as(_filled(-math.inf)),
        "such a query gets the mean of values that it must not see": _attend_as(
            _filled(torch.finfo(torch.float64).min)
        ),
        "such a query sees itself though the mask forbids it": _attend_as(_itself),
    },
    "catches": {
        "a module without any mask passes": _always(False),
        "a module whose every position sees the next one passes: an output far away stays, the one just before moves": {
            "leaks": modules.last_and_first,
        },
        "a module with one position that sees the next one passes: change every position, not the last alone": {
            "leaks": modules.last_and_all,
        },
        "a module with a right mask is said to leak": _always(True),
    },
    "extremes": {
        "a module with −10,000 in the place of −∞ passes: it hides as long as numbers are ordinary, so try others": {
            "leaks": lambda module, n_positions, d_model: modules.leaks(module, n_positions, d_model, scales=(1.0,)),
        },
        "a module that adds −10,000 to hidden scores passes: where all positions are alike, so are all scores": {
            "leaks": modules.alike,
        },
        "a module with −∞ is said to leak": _always(True),
    },
    "deep": {
        "a module whose second layer has no mask passes": _always(False),
        "a module with two heads, one of them without a mask, passes: watch all features of an output": {
            "leaks": lambda module, n_positions, d_model: modules.leaks(module, n_positions, d_model, features=1),
        },
        "a module that lets a thousandth of the text's mean through passes: what you call equal is too coarse": {
            "leaks": lambda module, n_positions, d_model: modules.leaks(module, n_positions, d_model, tolerance=1e-2),
        },
        "two layers with right masks are said to leak": _always(True),
    },
    "spares": {
        "a module in which every position depends on itself alone is said to leak: change later positions only": {
            "leaks": modules.own_too,
        },
        "a module that hands on the position before is said to leak: watch outputs before a change, not after it": {
            "leaks": modules.wrong_side,
        },
        "a module with a right mask is said to leak: 0 · ∞ is no number, so fill in numbers that are finite": {
            "leaks": modules.infinite,
        },
        "a module is said to leak whose outputs differ by rounding alone": {
            "leaks": lambda module, n_positions, d_model: modules.leaks(module, n_positions, d_model, tolerance=0.0),
        },
        "a module without any mask passes": _always(False),
    },
    "evidence": {
        "the first real position sees itself, the last filler position does not": {"empty": [0, 1, 4]},
        "the first real position sees itself: its row is not empty": {"empty": [0, 3, 6]},
        "those are the rows that see something": {"empty": [8, 6, 3]},
        "a weight of 0 times nan is nan: no row with such a value stays clean": {"spread": [2, 2]},
        "in the first layer only the empty rows turn to nan: values are still numbers there": {"spread": [8, 8]},
        "an empty row is nan in the first layer already": {"spread": [0, 2]},
    },
    "repair": {
        "that is still the suspect's mask": {"repaired": lambda n_filler, n_key: unrepaired(n_filler, n_key)},
        "filler sees other filler: itself alone is asked for": _front_as(
            lambda old, row, key: old | row & masks.causal(old.shape[-1])
        ),
        "real positions see the filler before them": _front_as(lambda old, row, key: old | masks.causal(old.shape[-1])),
        "filler looks ahead": _front_as(lambda old, row, key: old | row),
    },
    "reached": {
        "a layer with a window of w reaches w − 1 back: the position itself is one of w": _reach_as(sum),
        "the position itself is not behind itself": _reach_as(lambda windows: reach(windows) + 1),
        "that is the widest window alone: layers stand on each other": _reach_as(lambda windows: max(windows) - 1),
        "every layer has a window of its own": _reach_as(lambda windows: len(windows) * (windows[0] - 1)),
    },
    "cover": {
        "8 windows of 4,096 are 32,768, but each layer reaches 4,095 back": {"needed": 8},
        "that is more than enough: one layer less reaches far enough": {"needed": 10},
        "the last position is 32,767 away from the first, not 32,768": {"short_by": 8},
        "eight layers do not reach: 8 · 4,095 is less than 32,767": {"short_by": 0},
    },
    "verdict": {
        "no key of the first position is compared with a query of the last: what arrives was mixed eight times": {
            "verdict": "A",
        },
        "your `reach` says that something can arrive": {"verdict": "B"},
        "a mask has no weights": {"verdict": "D"},
        "a window reaches back alone, and so do many": {"verdict": "E"},
    },
}  # fmt: skip
