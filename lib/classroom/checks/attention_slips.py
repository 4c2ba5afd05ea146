"""The wrong answers of exercise 02 that its checks know by name.

Most are another exact computation, by `classroom.checks.attention_answers`. The checks use `CATALOGUE` for
diagnosis, and the tests hand each of its answers to the grader.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from classroom.checks.attention_answers import (
    DISTINCT,
    FUND,
    GAP,
    MOVED,
    RIGHT_FAULT,
    RIGHT_HARMLESS,
    VALUES,
    W_K,
    X,
    by_hand,
    first,
    jacobian,
    lone,
    needed,
    over_everything,
    projected,
    self_attention,
    shares,
    spelled_out,
    third,
    trace,
)
from classroom.checks.tensors import TOUCHED, numbers
from plainformer.attention import attention, attention_weights


def _called(name: str, **slip) -> dict:
    return {name: lambda q, k, v: spelled_out(q, k, v, **slip)}


def _by(name: str, divisor: Callable[[Tensor, Tensor, Tensor], float]) -> dict:
    return {name: lambda q, k, v: spelled_out(q, k, v, divisor=divisor(q, k, v))}


def _divide_in_place(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q /= math.sqrt(q.shape[-1])
    return spelled_out(q, k, v, divisor=1)


def _layer_as(value: Callable) -> dict:
    return {"self_attention": lambda x, W_Q, W_K, W_V, W_O: value(x, W_Q, W_K, W_V, W_O)}


def _add_in_place(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> Tensor:
    right = self_attention(x, W_Q, W_K, W_V, W_O)
    x += right
    return right


def _all_texts(x: Tensor, *weights: Tensor) -> Tensor:
    return self_attention(x.flatten(0, 1), *weights).view_as(x)


def _matrix_as(value: Callable[[Tensor, Tensor], Tensor]) -> dict:
    return {"one_matrix": lambda W_Q, W_K: value(W_Q, W_K)}


def _jacobian_as(value: Callable[[Tensor, Tensor], Tensor]) -> dict:
    """`value` gets the diagonal matrix of a, and the products a_i a_j."""
    return {"jacobian": lambda a: value(torch.diag_embed(a), a[..., :, None] * a[..., None, :])}


def _lone_as(value: Callable[[float, int], float]) -> dict:
    return {"lone": lambda gap, n_keys: value(gap, n_keys)}


def _test_as(
    n_positions: int = 5, d_model: int = 7, d_k: int = 3, scale: float = 1, sizes: bool = True, exact: bool = False
) -> dict:
    """A student's test on one set of numbers, and one of large numbers if `sizes`."""

    def exposes(attention):
        for spread in (scale, 1000 * scale)[: 1 + sizes]:
            x = numbers(n_positions, d_model, key=70, scale=spread)
            given = (x, *(numbers(d_model, width, key=71 + n) for n, width in enumerate((d_k, d_k, 4))))
            actual, right = attention(*given), projected(*given)
            if not (torch.equal(actual, right) if exact else torch.allclose(actual, right)):
                return True
        return False

    return {"exposes": exposes}


_QUERIES = "the softmax runs along the queries: a query's weights add up to 1 over the keys"
_UNSCALED = "the scores are not divided by √d_k"
_NO_ROOT = "the scores are divided by d_k: take its square root"
_EVERYTHING = "one softmax runs over the whole square: every query has a softmax of its own"
_D_MODEL = "your scores look divided by √d_model: the width of queries and keys is what matters"
_OVERFLOW = "large scores give no number, since e^1000 is infinite: take the largest score away first, or use softmax"
_IT = by_hand([0, 1, 2], 2).tolist()
_RAW, _DIVIDED = needed(GAP, 1.0)

# check → what the slip is → the answers it gives
CATALOGUE: dict[str, dict[str, dict]] = {
    "predict": {
        "a share is not negative": {"guess": -0.2},
        "a share of the whole is at most 1: divide per cent by 100": {"guess": 75},
    },
    "fund_row": {
        "the scores are not divided by √2": {"fund_weights": by_hand([0, 1, 2], 0, 1).tolist()},
        "the scores are divided by 2: take its square root": {"fund_weights": by_hand([0, 1, 2], 0, 2).tolist()},
        "that is the row of `it`: the query of `fund` is the first row of W_Q": {"fund_weights": _IT},
        "W_Q was multiplied with a column: vectors are rows here, x W_Q": {
            "fund_weights": by_hand([0, 1, 2], 1).tolist(),  # the first column of W_Q is the query of pays
        },
    },
    "fund_moved": {
        "keys are mixed: mix the values, x W_V": {"fund_vector": (FUND @ X @ W_K).tolist()},
        "x is added to the result: that is the block's work, not attention's": {
            "fund_vector": (FUND @ VALUES + X[0]).tolist(),
        },
        "every value has the same weight here: use your own weights": {"fund_vector": VALUES.mean(0).tolist()},
        "values are added up without weights": {"fund_vector": VALUES.sum(0).tolist()},
    },
    "repeated_row": {
        "the second `it` shares the weight of the first alone: softmax makes room at the cost of all": {
            "repeated": [*_IT[:2], _IT[2] / 2, _IT[2] / 2],
        },
        "these add up to more than 1: divide by the new sum": {"repeated": [*_IT, _IT[2]]},
        "a mask hides the second `it`: here there is none": {"repeated": [*_IT, 0.0]},
        "the scores are not divided by √2": {"repeated": by_hand([0, 1, 2, 2], 2, 1).tolist()},
    },
    "attend": {
        _UNSCALED: _called("attend", divisor=1),
        _NO_ROOT: _by("attend", lambda q, k, v: q.shape[-1]),
        "your scores look divided by the root of the number of keys: take the width of a key": _by(
            "attend", lambda q, k, v: math.sqrt(len(k))
        ),
        "your scores look divided by √d_v: take the width of queries and keys": _by(
            "attend", lambda q, k, v: math.sqrt(v.shape[-1])
        ),
        _QUERIES: _called("attend", soften=lambda s: s.softmax(0)),
        _EVERYTHING: _called("attend", soften=over_everything),
        "weights are divided by √d_k: divide the scores, before the softmax": {
            "attend": lambda q, k, v: spelled_out(q, k, v, divisor=1) / math.sqrt(q.shape[-1])
        },
        "these are the weights: mix the values with them": {"attend": lambda q, k, v: attention_weights(q, k)},
        _OVERFLOW: _called("attend", soften=shares),
        TOUCHED: {"attend": _divide_in_place},
    },
    "attend_many": {
        "your scores look divided by the root of the number of heads: the width is the last axis here": _by(
            "attend_many", lambda q, k, v: math.sqrt(q.shape[1])
        ),
        "the softmax runs over the heads: keys are the last axis here": _called(
            "attend_many", soften=lambda s: s.softmax(1)
        ),
        _QUERIES: _called("attend_many", soften=lambda s: s.softmax(-2)),
        _UNSCALED: _called("attend_many", divisor=1),
        "the first head's weights serve all heads": _called(
            "attend_many", soften=lambda s: s[:, :1].softmax(-1).expand_as(s)
        ),
        _OVERFLOW: _called("attend_many", soften=shares),
    },
    "self_attention": {
        _D_MODEL: _layer_as(lambda x, Q, K, V, out: first(x, Q, K, V) @ out),
        _UNSCALED: _layer_as(lambda x, Q, K, V, out: projected(x, Q, K, V, divisor=1) @ out),
        _QUERIES: _layer_as(lambda x, Q, K, V, out: projected(x, Q, K, V, soften=lambda s: s.softmax(-2)) @ out),
        "the texts of the batch look at each other": _layer_as(_all_texts),
        "keys are made with W_Q: they have a matrix of their own": _layer_as(
            lambda x, Q, K, V, out: self_attention(x, Q, Q, V, out)
        ),
        "W_O is missing: it brings the result back to the width of the stream": _layer_as(
            lambda x, Q, K, V, out: projected(x, Q, K, V)
        ),
        "x is added to the result: that is the block's work, not attention's": _layer_as(
            lambda x, *weights: x + self_attention(x, *weights)
        ),
        "later positions are hidden: no mask is asked for": _layer_as(
            lambda x, Q, K, V, out: attention(x @ Q, x @ K, x @ V, causal=True) @ out
        ),
        _OVERFLOW: _layer_as(lambda x, Q, K, V, out: third(x, Q, K, V) @ out),
        TOUCHED: _layer_as(_add_in_place),
    },
    "one_matrix": {
        "queries and keys have changed places: x_i asks, x_j answers": _matrix_as(
            lambda Q, K: K @ Q.T / math.sqrt(Q.shape[1])
        ),
        "√d_k is missing: M gives the scores that go into the softmax": _matrix_as(lambda Q, K: Q @ K.T),
        "M is divided by √d: d_k is the number of columns": _matrix_as(lambda Q, K: Q @ K.T / math.sqrt(len(Q))),
        "M meets rows of x on both sides, so it is d × d": _matrix_as(lambda Q, K: Q.T @ K / math.sqrt(Q.shape[1])),
    },
    "jacobian": {
        "the diagonal lacks a_i: there the entry is a_i (1 − a_i)": _jacobian_as(lambda D, aa: -aa),
        "off the diagonal stands −a_i a_j: weights compete": {"jacobian": lambda a: torch.diag_embed(a * (1 - a))},
        "the products are added: δ minus a_j, not plus": _jacobian_as(lambda D, aa: D + aa),
        "the factor a_i belongs to δ too: the diagonal is a_i (1 − a_i), not 1 − a_i²": {
            "jacobian": lambda a: torch.eye(a.shape[-1], dtype=a.dtype) - a[..., :, None] * a[..., None, :],
        },
        "softmax was taken again: a holds weights already": {"jacobian": lambda a: jacobian(a.softmax(-1))},
    },
    "trace": {
        "that is Σ a², which is what 1 lacks": {"trace": lambda a: a.square().sum(-1)},
        "the factor a_i is missing: Σ (1 − a_i) is the number of keys less one": {"trace": lambda a: (1 - a).sum(-1)},
        "that is the largest entry of the diagonal: add them up": {"trace": lambda a: (a * (1 - a)).amax(-1)},
        "that is the mean of the diagonal: add it up": {"trace": lambda a: trace(a) / a.shape[-1]},
        "that runs along the rows: a row's weights lie in the last axis": {"trace": lambda a: (a - a**2).sum(0)},
    },
    "lone": {
        "all n_keys are counted beside the lone one: it is one of them": _lone_as(
            lambda gap, n: math.exp(gap) / (math.exp(gap) + n) if gap < 700 else 1.0
        ),
        "the sign of the gap is turned round: the lone key has the larger score": _lone_as(
            lambda gap, n: lone(-gap, n)
        ),
        "a large gap gives no number: divide above and below the line by e^gap": _lone_as(
            lambda gap, n: (torch.tensor(gap).double().exp() / (torch.tensor(gap).double().exp() + n - 1)).item()
        ),
        "scores are compared, not their exponentials": _lone_as(lambda gap, n: gap / (gap + n - 1) if gap else 1 / n),
    },
    "needed": {
        "the lone key is one of the keys: count it too": {"needed": {"raw": _RAW - 1, "divided": _DIVIDED - 1}},
        "the division is by √64 and comes before the exponential: the count itself is not divided": {
            "needed": {"raw": _RAW, "divided": _RAW // 8},
        },
        "a standard deviation of the undivided scores is √64, not 64 and not 1": {
            "needed": {"raw": _DIVIDED, "divided": _DIVIDED},
        },
        "with one key fewer it has less than half too": {"needed": {"raw": _RAW + 1, "divided": _DIVIDED + 1}},
    },
    "fault": {
        "first does divide, and by a root: look at the number under it": {"fault": RIGHT_FAULT | {"first": "B"}},
        "second has a softmax for each column, and columns belong to keys": {"fault": RIGHT_FAULT | {"second": "D"}},
        "third divides by the width of the keys, as it should": {"fault": RIGHT_FAULT | {"third": "A"}},
        "third's softmax runs along the keys, as it should": {"fault": RIGHT_FAULT | {"third": "C"}},
        "first mixes values, as it should": {"fault": RIGHT_FAULT | {"first": "F"}},
    },
    "harmless": {
        "the root is taken of x's width: nothing has to be a square": {"harmless": RIGHT_HARMLESS | {"first": 144}},
        "with no more than one column there is one product, but the root is still that of x's width": {
            "harmless": RIGHT_HARMLESS | {"first": 1},
        },
        "with two positions a column has two weights to share already": {"harmless": RIGHT_HARMLESS | {"second": 2}},
        "e to that is infinite already": {"harmless": RIGHT_HARMLESS | {"third": 710}},
        "e to a little more is a number still: float64 holds up to 1.8e308": {
            "harmless": RIGHT_HARMLESS | {"third": 308},
        },
        "that is where float32 ends: tensors are float64 here": {"harmless": RIGHT_HARMLESS | {"third": 88}},
    },
    "exposes": {
        "it misses the wrong axis: try more than one position, and queries that differ": _test_as(n_positions=1),
        "it misses the wrong scale: let x be wider than queries and keys": _test_as(d_model=3, d_k=3),
        "it misses the overflow: try large numbers too": _test_as(sizes=False),
        "it rejects a right answer that differs in the last digits: compare with torch.allclose": _test_as(exact=True),
        "it rejects a right answer: return True only for a wrong one": {"exposes": lambda attention: True},
        "it exposes nothing: return True if the attention is wrong": {"exposes": lambda attention: False},
    },
    "moved": {
        "without a mask the other positions take an average over the same set: only the two that moved notice": {
            "moved": MOVED | {"free": [0, 1, 2, 3, 4, 5]},
        },
        "position 2 stands between the two: another token of them lies in its past now": {
            "moved": MOVED | {"causal": [1, 3]},
        },
        "positions 4 and 5 have both tokens in their past: one average does not tell in which order": {
            "moved": MOVED | {"causal": [1, 2, 3, 4, 5]},
        },
        "no number of layers without a mask sees the order": {"moved": MOVED | {"two free": [0, 1, 2, 3, 4, 5]}},
        "in the second layer position 2 has changed, and positions 4 and 5 look at it": {
            "moved": MOVED | {"two causal": [1, 2, 3]},
        },
        "positions are counted from 0": {
            "moved": {name: [n + 1 for n in places] for name, places in MOVED.items()},
        },
    },
    "distinct": {
        "an average over equal values is that value, over one of them or over five": {
            "distinct": DISTINCT | {"aaaaa": [1, 5]},
        },
        "without a mask every a sees the same set": {"distinct": DISTINCT | {"baaaa": [5, 5]}},
        "behind a b each a sees one more a than the last one: the b has a smaller share": {
            "distinct": DISTINCT | {"baaaa": [2, 2]},
        },
        "in aaaab no a can look ahead to the b": {"distinct": DISTINCT | {"aaaab": [2, 5]}},
        "the mask comes second in each pair": {
            "distinct": {text: pair[::-1] for text, pair in DISTINCT.items()},
        },
    },
    "verdict": {
        "look at aaaaa: all its rows are the same, wherever they stand": {"verdict": "A"},
        "look at two causal layers: the positions after both tokens notice": {"verdict": "B"},
        "look at position 2 with the mask: it did not move, and it notices": {"verdict": "D"},
        "look at two layers without the mask: only the positions that moved notice": {"verdict": "E"},
    },
}  # fmt: skip
