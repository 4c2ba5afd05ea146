"""Exercise 11's longer answers: attention with a cache and a ring of rows, right and with known slips.

What is right is told by `uncached`, the library's attention over all rows at once, and by `last_rows`, a list.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from classroom.checks.tensors import numbers
from plainformer import masks
from plainformer.attention import attention
from plainformer.positions import rotary_angles, rotate


def problem(n_tokens=9, d_model=7, n_heads=6, n_kv_heads=6, d_head=4, d_value=8, start=0, times=1.0, plus=0.0) -> dict:
    """Rows, positions and weights for `attend`; by default all sizes differ but those of heads."""
    scale = d_model**-0.5
    return {
        "x": times * numbers(n_tokens, d_model, key=1) + plus,
        "positions": torch.arange(start, start + n_tokens),
        "W_Q": scale * numbers(n_heads, d_model, d_head, key=2),
        "W_K": scale * numbers(n_kv_heads, d_model, d_head, key=3),
        "W_V": scale * numbers(n_kv_heads, d_model, d_value, key=4),
    }


def turn(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary positions, as the exercise gives them."""
    return rotate(x, *rotary_angles(positions, x.shape[-1], dtype=x.dtype))


def uncached(x, positions, W_Q, W_K, W_V, window=None) -> Tensor:
    """All rows at once, by the library: what every way to cut them must give."""
    q, k, v = turn(x @ W_Q, positions), turn(x @ W_K, positions), x @ W_V
    k, v = (part.repeat_interleave(len(W_Q) // len(W_K), 0) for part in (k, v))
    mask = masks.sliding_window(len(x), window=window) if window else masks.causal(len(x))
    return attention(q, k, v, mask)


def attend(
    *,
    scale: Callable[[Tensor, int], float] = lambda x, d_head: math.sqrt(d_head),
    at: Callable[[Tensor], Tensor] = lambda positions: positions,  # what a chunk's rows are turned by
    turned: str = "qk",
    allowed: Callable[[Tensor, Tensor], Tensor] = lambda query, key: key <= query,
    near: Callable[[Tensor, Tensor, int], Tensor] = lambda query, key, window: key > query - window,
    forget: bool = False,
    trim: bool = False,
    order: int = 1,
    group: Callable[[Tensor, int], Tensor] = lambda part, n: part.repeat_interleave(n, 0),
    in_place: str = "",
) -> Callable:
    """An answer to problem 5, right but for what is given here."""

    def answer(x, positions, cache, W_Q, W_K, W_V, window=None):
        turns = at(positions)
        q, k, v = (turn(x @ W, turns) if name in turned else x @ W for name, W in zip("qkv", (W_Q, W_K, W_V)))
        rows = [(positions, 0), (k, -2), (v, -2)]  # and the axis of positions
        if cache is not None and not forget:
            rows = [(torch.cat([old, part][::order], axis), axis) for old, (part, axis) in zip(cache["rows"], rows)]
        if trim and window:
            rows = [(part.narrow(axis, start := max(0, part.shape[axis] - window), part.shape[axis] - start), axis)
                    for part, axis in rows]  # fmt: skip
        new = cache if cache is not None and in_place == "cache" else {}
        new["rows"] = key_positions, k, v = [part for part, _ in rows]
        mask = allowed(positions[:, None], key_positions[None])
        if window:
            mask = mask & near(positions[:, None], key_positions[None], window)
        n = len(W_Q) // len(W_K)
        scores = q @ group(k, n).transpose(-2, -1) / scale(x, q.shape[-1])
        out = scores.masked_fill(~mask, -math.inf).softmax(-1) @ group(v, n)
        if in_place == "x":
            x.mul_(2)
        return out, new

    return answer


def last_rows(rows: list, window: int) -> list:
    """What a ring of this window must show."""
    return rows[-window:]


class Ring:
    """The ring of problem 6, mended; `slip` names what is wrong with it."""

    slip = ""

    def __init__(self, window):
        self.slots, self.n_added, self.full = [None] * window, 0, False

    def add(self, row):
        self.slots[self.n_added % len(self.slots)] = row
        self.n_added += 1
        self.full = self.full or self.n_added >= len(self.slots)

    def visible(self):
        if not self.full:
            return self.slots[: self.n_added]
        start = 0 if self.slip == "unordered" else self.n_added % len(self.slots)
        rows = self.slots[start:] + self.slots[:start]
        return rows[1:] if self.slip == "short" else rows

    def start_over(self):
        if self.slip == "kept":
            return
        self.n_added = 0
        if self.slip == "empty":
            self.slots = [None] * len(self.slots)
        elif self.slip != "suspect":
            self.full = False
