"""What is right in exercise 03, and attention with one slip at a time.

Truth comes from `plainformer.heads`, `plainformer.parameters` and `plainformer.cache`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from classroom import terms
from plainformer.cache import numbers_per_token
from plainformer.config import Config
from plainformer.heads import MultiHeadAttention, grouped_attention, join, split
from plainformer.parameters import block_breakdown

LONG, TEN_1, TEN_2, TIMES_0, TIMES_1, T_CUT, D_CUT, H_CUT = terms.numbers("heads")
GUESSED = {"n_positions": LONG, "d_model": 4096, "n_heads": 32, "n_kv_heads": 32, "n_bytes": 2}  # problem 1
ROWS = torch.tensor([[float(ten + n) for n in range(1, 7)] for ten in (TEN_1, TEN_2)])  # problem 2, three heads
DOTS = (0.0, 2 * math.log(TIMES_0), 0.0), (2 * math.log(TIMES_1), 0.0, 0.0)  # problem 2, two heads of width 4
CUT = (2, T_CUT, D_CUT), H_CUT  # problem 3: the shape whose strides are asked for, and its heads


# ---- what is right ----


def config(d_model: int, n_heads: int, n_kv_heads: int) -> Config:
    return Config(
        n_vocab=2, d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads, d_ff=1, n_context=1, n_layers=1,
        positions="none",
    )  # fmt: skip


def layer(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor, n_heads: int, n_kv_heads: int = 0) -> Tensor:
    """The library's attention with these weights."""
    module = MultiHeadAttention(config(x.shape[-1], n_heads, n_kv_heads or n_heads)).double()
    for part, W in ((module.query, W_Q), (module.key, W_K), (module.value, W_V), (module.out, W_O)):
        part.weight.data = W.T
    return module(x).detach()


def parts(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor, n_heads: int) -> Tensor:
    """What each head adds: the layer again, with all rows of W_O but the head's own set to zero."""
    own = torch.arange(len(W_O)) // (len(W_O) // n_heads)
    return torch.stack([layer(x, W_Q, W_K, W_V, W_O * (own == head)[:, None], n_heads) for head in range(n_heads)])


def averaged(W: Tensor, n_heads: int, n_kv_heads: int) -> Tensor:
    heads = split(W[None], n_heads)[0]  # (head, row, column of the head)
    group = n_heads // n_kv_heads
    return join(torch.stack([heads[n : n + group].mean(0) for n in range(0, n_heads, group)])[None])[0]


def costs(n_positions: int, d_model: int, n_heads: int, n_kv_heads: int, n_bytes: int) -> dict[str, int]:
    sizes = config(d_model, n_heads, n_kv_heads)
    return {
        "weights": sum(block_breakdown(sizes)[part] for part in ("query", "key", "value", "out")),
        "scores": n_heads * n_positions**2 * n_bytes,
        "kept": n_positions * numbers_per_token(sizes) * n_bytes,
    }


def longest(n_heads: int, n_bytes: int, budget: int) -> int:
    return math.isqrt(budget // (n_heads * n_bytes))


def shared_out(n_heads: int, n_kv_heads: int) -> list[int]:
    """The key head of each query head, as the library deals them out."""
    keys = torch.arange(n_kv_heads, dtype=torch.float64)[None, :, None, None]
    queries = torch.ones(1, n_heads, 1, 1, dtype=torch.float64)
    return grouped_attention(queries, keys, keys).flatten().tolist()  # one position: each head gets its only value


# ---- attention with a slip ----


def viewed(x: Tensor, n_heads: int) -> Tensor:
    """The right shape with the wrong numbers: whole positions are dealt out, not columns."""
    return x.reshape(len(x), n_heads, x.shape[1], -1)


def viewed_back(x: Tensor) -> Tensor:
    return x.reshape(len(x), x.shape[2], -1)


def in_turn(x: Tensor, n: int) -> Tensor:
    """0 1 2 0 1 2 … in place of 0 0 1 1 2 2 …"""
    return torch.cat([x] * n, dim=1)


def one_by_one(x: Tensor, n: int) -> Tensor:
    return x.repeat_interleave(n, 1)


def first_alone(x: Tensor, n: int) -> Tensor:
    return x[:, :1].expand(-1, n * x.shape[1], -1, -1)


def spelled_out(
    x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor | None, n_heads: int, n_kv_heads: int = 0,
    *, cut: Callable = split, put: Callable = join, keys: Callable = one_by_one, values: Callable = one_by_one,
    width: int | None = 0, axis: int = -1,
) -> Tensor:  # fmt: skip
    """Right by default; each of the other arguments brings in a slip. ``width=None`` scales by d_model."""
    n_kv_heads = n_kv_heads or n_heads
    q, k, v = cut(x @ W_Q, n_heads), cut(x @ W_K, n_kv_heads), cut(x @ W_V, n_kv_heads)
    k, v = keys(k, n_heads // n_kv_heads), values(v, n_heads // n_kv_heads)
    width = x.shape[-1] if width is None else width or x.shape[-1] // n_heads
    scores = q @ k.transpose(-2, -1) / math.sqrt(width)
    mixed = put(scores.softmax(axis) @ v)
    return mixed if W_O is None else mixed @ W_O


def pattern(dots: tuple[float, ...], width: float) -> list[float]:
    fuels = [math.exp(dot / math.sqrt(width)) for dot in dots]
    return [fuel / sum(fuels) for fuel in fuels]
