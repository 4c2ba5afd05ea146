"""The wrong answers of exercise 03 that its checks know by name.

Most are another exact computation, by `spelled_out` of `classroom.checks.heads_answers`. The checks use `CATALOGUE`
for diagnosis, and the tests hand each of its answers to the grader.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from classroom.checks.heads_answers import (
    D_CUT,
    DOTS,
    H_CUT,
    ROWS,
    T_CUT,
    costs,
    first_alone,
    in_turn,
    layer,
    longest,
    one_by_one,
    pattern,
    spelled_out,
    viewed,
    viewed_back,
)
from classroom.checks.tensors import TOUCHED
from plainformer.heads import join, split


def _layer_as(name: str, **slip) -> dict:
    def wrong(x, W_Q, W_K, W_V, W_O, n_heads, n_kv_heads=0):
        return spelled_out(x, W_Q, W_K, W_V, W_O, n_heads, n_kv_heads, **slip)

    return {name: wrong}


def _single(x, W_Q, W_K, W_V, W_O, n_heads):
    return spelled_out(x, W_Q, W_K, W_V, W_O, 1)


def _without_out(x, W_Q, W_K, W_V, W_O, n_heads):
    return spelled_out(x, W_Q, W_K, W_V, None, n_heads)


def _scale_in_place(x, W_Q, W_K, W_V, W_O, n_heads):
    right = layer(x, W_Q, W_K, W_V, W_O, n_heads)
    W_Q /= math.sqrt(x.shape[-1] // n_heads)
    return right


def _parts_as(write: Callable[[Tensor, Tensor, slice], Tensor], axis: int = 0, cut: Callable = split) -> dict:
    """`write` makes a head's part from its result, W_O and the head's columns."""

    def wrong(x, W_Q, W_K, W_V, W_O, n_heads):
        d_k = x.shape[-1] // n_heads
        heads = spelled_out(x, W_Q, W_K, W_V, None, n_heads, cut=cut, put=lambda y: y).unbind(1)
        own = [slice(n * d_k, (n + 1) * d_k) for n in range(n_heads)]
        return torch.stack([write(head, W_O, columns) for head, columns in zip(heads, own)], axis)

    return {"head_parts": wrong}


def _in_its_columns(head: Tensor, W_O: Tensor, own: slice) -> Tensor:
    wide = head.new_zeros(*head.shape[:-1], len(W_O))
    wide[..., own] = head
    return wide


def _averaged_as(value: Callable[[Tensor, int, int], Tensor]) -> dict:
    """`value` gets W as (d, heads, d_k), the number of key heads, and that of query heads for each."""

    def wrong(W, n_heads, n_kv_heads):
        return value(W.unflatten(-1, (n_heads, -1)), n_kv_heads, n_heads // n_kv_heads).flatten(1)

    return {"average_heads": wrong}


def _costs_as(part: str, value: Callable[[int, int, int, int, int], int]) -> dict:
    """`value` gets T, d, h, h_kv and bytes."""

    def wrong(n_positions, d_model, n_heads, n_kv_heads, n_bytes):
        case = (n_positions, d_model, n_heads, n_kv_heads, n_bytes)
        return costs(*case) | {part: value(*case)}

    return {"costs": wrong}


def _longest_as(value: Callable[[int, int, int], int]) -> dict:
    return {"longest": lambda n_heads, n_bytes, budget: value(n_heads, n_bytes, budget)}


def _cut_as(value: Callable[[Tensor, int], Tensor]) -> dict:
    return {"split_heads": lambda x, n_heads: value(x, n_heads)}


def _merged_as(value: Callable[[Tensor], Tensor]) -> dict:
    return {"merge_heads": lambda x: value(x)}


def _repaired_as(keys: Callable, values: Callable) -> dict:
    def wrong(q, k, v):
        n = q.shape[1] // k.shape[1]
        return (q @ keys(k, n).transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1) @ values(v, n)

    return {"repaired": wrong}


def _scaled(x: Tensor) -> Tensor:
    right = join(x)
    x *= 2
    return right


_BY_VIEW = "heads were cut with a view and no transpose: that deals out positions, not columns"
_VIEWS = "heads were cut and merged with views and no transpose: the round trip is right, attention is not"
_D_MODEL = "your scores look divided by √d_model: the width of a head is what matters"
_IN_TURN = "keys and values are repeated in turn, 0 1 2 0 1 2: a group's query heads are neighbours, 0 0 1 1 2 2"

# check → what the slip is → the answers it gives
CATALOGUE: dict[str, dict[str, dict]] = {
    "predict": {
        "an amount of memory is positive": {"guess": -1},
        "that is more memory than the largest machines have": {"guess": 1e9},
    },
    "cut_by_hand": {
        "the numbers were dealt out in the order of memory: a head takes its columns from every position": {
            "head_1": viewed(ROWS[None], 3)[0, 1].tolist(),
        },
        "a head's columns stand next to each other; you took every third": {"head_1": ROWS[:, 1::3].tolist()},
        "that is the first head: heads are counted from 0 here": {"head_1": ROWS[:, :2].tolist()},
        "rows are positions: two of them, with two numbers each": {"head_1": ROWS[:, 2:4].T.tolist()},
    },
    "patterns": {
        _D_MODEL: {"weights": [pattern(dots, 8) for dots in DOTS]},
        "the dot products are not divided by √d_k": {"weights": [pattern(dots, 1) for dots in DOTS]},
        "they are divided by d_k: take its square root": {"weights": [pattern(dots, 16) for dots in DOTS]},
        "the two heads' scores are added: each head has a softmax of its own": {
            "weights": [pattern(tuple(map(sum, zip(*DOTS))), 4)] * 2,
        },
    },
    "split_heads": {
        _BY_VIEW: _cut_as(viewed),
        "a head's columns stand next to each other; you took every n_heads-th": _cut_as(
            lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2)
        ),
        "heads come before positions: swap the two axes": _cut_as(lambda x, h: x.unflatten(-1, (h, -1))),
        "the batch comes first, then the heads": _cut_as(lambda x, h: torch.stack(x.chunk(h, -1))),
        "the numbers of a head stand in the last axis, positions in the one before": _cut_as(
            lambda x, h: split(x, h).transpose(-2, -1)
        ),
    },
    "merge_heads": {
        "merged with a view and no transpose: that strings together positions of one head": _merged_as(viewed_back),
        "heads were swapped with columns: each head's numbers stay together": _merged_as(
            lambda x: x.permute(0, 2, 3, 1).flatten(-2)
        ),
        "heads are added up: they stand side by side": _merged_as(lambda x: x.sum(1)),
        TOUCHED: _merged_as(_scaled),
    },
    "layout": {
        "those are the steps before the two axes are swapped": {"strides": (T_CUT * D_CUT, D_CUT, D_CUT // H_CUT, 1)},
        "those are the steps in a copy: the transpose moves no number": {
            "strides": (T_CUT * D_CUT, T_CUT * D_CUT // H_CUT, D_CUT // H_CUT, 1),
        },
        "that is the shape: the steps in memory are asked for": {
            "strides": (2, H_CUT, T_CUT, D_CUT // H_CUT),
        },
        "cutting only reads the same numbers in another order, with other steps": {"copies": "split"},
        "cutting moves nothing: only one of the two must copy": {"copies": "both"},
        "no single step leads from the end of one head's numbers to the next head's at the same position, and on to "
        "the next position": {"copies": "neither"},
    },
    "multi_head": {
        _D_MODEL: _layer_as("multi_head", width=None),
        "the scores are not divided by √d_k": _layer_as("multi_head", width=1),
        "the softmax runs along the queries: a query's weights add up to 1 over the keys": _layer_as(
            "multi_head", axis=-2
        ),
        _BY_VIEW: _layer_as("multi_head", cut=viewed),
        _VIEWS: _layer_as(
            "multi_head", cut=viewed, put=viewed_back
        ),
        "heads were merged with a view and no transpose": _layer_as("multi_head", put=viewed_back),
        "the heads of one position attend to each other: positions must stand in the last axis but one": _layer_as(
            "multi_head", cut=lambda x, h: x.unflatten(-1, (h, -1)), put=lambda x: x.flatten(-2)
        ),
        "there is one pattern for all columns: cut before you compute scores": {"multi_head": _single},
        "W_O is missing: it mixes the joined heads": {"multi_head": _without_out},
        TOUCHED: {"multi_head": _scale_in_place},
    },
    "head_parts": {
        "W_O is cut by columns: a head's numbers meet its own rows of W_O": _parts_as(
            lambda head, W_O, own: head @ W_O[:, own].T
        ),
        "each head's result stands in its own columns, but W_O has not mixed it": _parts_as(_in_its_columns),
        "heads come first, then the batch": _parts_as(lambda head, W_O, own: head @ W_O[own], axis=1),
        "every head uses the first rows of W_O: each has rows of its own": _parts_as(
            lambda head, W_O, own: head @ W_O[: head.shape[-1]]
        ),
        _BY_VIEW: _parts_as(lambda head, W_O, own: head @ W_O[own], cut=viewed),
    },
    "grouped": {
        _IN_TURN: _layer_as("grouped", keys=in_turn, values=in_turn),
        "keys are dealt out rightly, values in turn": _layer_as("grouped", values=in_turn),
        "values are dealt out rightly, keys in turn": _layer_as("grouped", keys=in_turn),
        "all query heads use the first head of keys and values": _layer_as(
            "grouped", keys=first_alone, values=first_alone
        ),
        _D_MODEL: _layer_as("grouped", width=None),
        _BY_VIEW: _layer_as("grouped", cut=viewed),
        _VIEWS: _layer_as("grouped", cut=viewed, put=viewed_back),
    },
    "average_heads": {
        "heads are averaged in turn: a group's heads stand next to each other": _averaged_as(
            lambda W, n, group: W.unflatten(1, (group, n)).mean(1)
        ),
        "heads are added up: take their mean": _averaged_as(lambda W, n, group: W.unflatten(1, (n, group)).sum(2)),
        "the first head of each group is kept and the others are lost": _averaged_as(lambda W, n, group: W[:, ::group]),
        "neighbouring columns are averaged: the first column of a head meets the first of the others": _averaged_as(
            lambda W, n, group: W.flatten(1).unflatten(1, (-1, group)).mean(-1)
        ),
    },
    "weights": {
        "keys and values are as wide as queries: shared heads make their matrices narrower": _costs_as(
            "weights", lambda t, d, h, h_kv, b: 4 * d * d
        ),
        "each head is counted as a d × d matrix: it has d_model / n_heads columns": _costs_as(
            "weights", lambda t, d, h, h_kv, b: 2 * d * d * (h + h_kv)
        ),
        "queries and the output shrink too: only keys and values are shared": _costs_as(
            "weights", lambda t, d, h, h_kv, b: 4 * d * d * h_kv // h
        ),
        "the output matrix is missing": _costs_as("weights", lambda t, d, h, h_kv, b: d * d + 2 * d * d * h_kv // h),
        "a number of weights is asked for, not bytes": _costs_as(
            "weights", lambda t, d, h, h_kv, b: b * costs(t, d, h, h_kv, b)["weights"]
        ),
    },
    "scores": {
        "one head's square is counted: every query head has one": _costs_as(
            "scores", lambda t, d, h, h_kv, b: t * t * b
        ),
        "heads of keys are counted: every query head has a square of its own": _costs_as(
            "scores", lambda t, d, h, h_kv, b: h_kv * t * t * b
        ),
        "pairs that a mask forbids are left out: here the whole square is kept": _costs_as(
            "scores", lambda t, d, h, h_kv, b: h * t * (t + 1) // 2 * b
        ),
        "a score is one number, however wide the head": _costs_as("scores", lambda t, d, h, h_kv, b: d * t * t * b),
        "give bytes, not numbers": _costs_as("scores", lambda t, d, h, h_kv, b: h * t * t),
    },
    "kept": {
        "keys alone are counted: values are kept too": _costs_as(
            "kept", lambda t, d, h, h_kv, b: t * d // h * h_kv * b
        ),
        "all query heads are counted: n_kv_heads are kept": _costs_as("kept", lambda t, d, h, h_kv, b: 2 * t * d * b),
        "one token is counted: n_positions are kept": _costs_as("kept", lambda t, d, h, h_kv, b: 2 * d // h * h_kv * b),
        "one head is counted: n_kv_heads are kept": _costs_as("kept", lambda t, d, h, h_kv, b: 2 * t * d // h * b),
        "give bytes, not numbers": _costs_as("kept", lambda t, d, h, h_kv, b: 2 * t * d // h * h_kv),
    },
    "longest": {
        "one head's square is counted: every head has one": _longest_as(lambda h, b, m: math.isqrt(m // b)),
        "numbers are counted as one byte each": _longest_as(lambda h, b, m: math.isqrt(m // h)),
        "scores grow with the square of the length": _longest_as(lambda h, b, m: m // (h * b)),
        "that text is one position too long": _longest_as(lambda h, b, m: longest(h, b, m - 1) + 1),
        "only half of the square is counted": _longest_as(lambda h, b, m: math.isqrt(2 * m // (h * b))),
    },
    "evidence": {
        "with as many heads of keys as of queries nothing is repeated": {"fine_for": [1]},
        "with a single head of keys every order is the same": {"fine_for": [12]},
        "those all divide 12, but the suspect is wrong for most of them": {"fine_for": [1, 2, 3, 4, 6, 12]},
        "query heads are counted from 0": {"right_heads": [1, 3, 6, 8]},
        "those are the heads that it gets wrong": {"right_heads": [1, 3, 4, 6]},
        "those use key head 0 in the suspect; some of the others are right too, and not all of those": {
            "right_heads": [0, 2, 4, 6],
        },
    },
    "repair": {
        "that is still the suspect's answer": _repaired_as(in_turn, in_turn),
        "the keys are mended, the values are not": _repaired_as(one_by_one, in_turn),
        "the values are mended, the keys are not": _repaired_as(in_turn, one_by_one),
        "all query heads use the first head of keys and values": _repaired_as(first_alone, first_alone),
    },
    "blind_spot": {
        "the suspect's position 4 cannot see them all: change one position of x at a time and look": {
            "sees": [0, 1, 2, 3, 4, 5],
        },
        "it sees more than itself": {"sees": [4]},
        "no mask is at work here: it sees a later one, and not all the earlier ones": {"sees": [0, 1, 2, 3, 4]},
        "positions are counted from 0": {"sees": [3, 4]},
        "there heads are made of whole positions, and that is the fault": {"harmless": 3},
        "nought positions are no text": {"harmless": 0},
    },
    "verdict": {
        "they undo each other as long as nothing happens in between, but attention does": {"verdict": "A"},
        "then every position could still look at every other; your `sees` says no": {"verdict": "B"},
        "inside a head the order of positions stays, so a mask still hides what comes later": {"verdict": "D"},
        "your `sees` says that a position does not see the whole text": {"verdict": "E"},
    },
}  # fmt: skip
