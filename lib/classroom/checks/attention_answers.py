"""What is right in exercise 02, and attention with one slip at a time.

Truth comes from `plainformer.attention` and torch's own derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from classroom import terms
from classroom.checks.tensors import numbers
from plainformer.attention import SelfAttention, attention, attention_weights

GAP = 8.0  # problem 1
K_1, K_2, N_KEYS, V_1, V_2 = terms.numbers("attention")  # diagonal of W_K; keys of problem 1; diagonal of W_V
X, W_Q, W_K, W_V = (
    torch.tensor(rows, dtype=torch.float64)
    for rows in ([[1, 0], [0, 1], [1, 1]], [[1, 0], [1, 1]], [[K_1, 0], [0, K_2]], [[V_1, 0], [0, V_2]])
)  # the three-token example of the chapter, fund, pays, it, with the term's keys and values
STATES = {"free": (False, 1), "causal": (True, 1), "two free": (False, 2), "two causal": (True, 2)}
TEXTS = "aaaaa", "baaaa", "aaaab"


# ---- what is right ----


def by_hand(tokens: list[int], looking: int, scale: float = math.sqrt(2)) -> Tensor:
    """The looking token's weights in a text of the three tokens."""
    q, k = X[[looking]] @ W_Q, X[tokens] @ W_K
    return attention_weights(q * math.sqrt(2) / scale, k)[0]


FUND, REPEATED = by_hand([0, 1, 2], 0), by_hand([0, 1, 2, 2], 2)
VALUES = X @ W_V


def self_attention(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> Tensor:
    return attention(x @ W_Q, x @ W_K, x @ W_V) @ W_O


def jacobian(a: Tensor) -> Tensor:
    """By torch's own derivative of softmax, at scores that have these weights."""
    rows = a.log().reshape(-1, a.shape[-1])
    squares = [torch.autograd.functional.jacobian(lambda s: s.softmax(-1), row) for row in rows]
    return torch.stack(squares).reshape(*a.shape, a.shape[-1])


def trace(a: Tensor) -> Tensor:
    return (a - a.square()).sum(-1)


def lone(gap: float, n_keys: int) -> float:
    return torch.tensor([gap] + [0.0] * (n_keys - 1), dtype=torch.float64).softmax(-1)[0].item()


def needed(*gaps: float) -> list[int]:
    """The fewest keys, the lone one among them, with which it has less than half."""
    return [next(n for n in range(math.floor(math.exp(gap)), 10**6) if lone(gap, n) < 0.5) for gap in gaps]


def layers() -> list[SelfAttention]:
    """Two layers of width 12, with the same numbers in every run."""
    made = [SelfAttention(12, 5).double() for _ in range(2)]
    for n, layer in enumerate(made):
        for m, part in enumerate((layer.query, layer.key, layer.value, layer.out)):
            part.weight.data = numbers(*part.weight.shape, key=50 + 4 * n + m, scale=0.5)
    return made


def through(x: Tensor, causal: bool, n_layers: int) -> Tensor:
    for layer in layers()[:n_layers]:
        layer.causal = causal
        x = x + layer(x)
    return x.detach()


def moved() -> dict[str, list[int]]:
    x = numbers(6, 12, key=60)
    swapped = x[[0, 3, 2, 1, 4, 5]]
    gaps = {name: (through(x, *state) - through(swapped, *state)).abs().amax(-1) for name, state in STATES.items()}
    return {name: (gap > 1e-9).nonzero().flatten().tolist() for name, gap in gaps.items()}


def distinct() -> dict[str, list[int]]:
    rows = numbers(2, 12, key=61)
    xs = {text: rows[["ab".index(token) for token in text]] for text in TEXTS}
    return {text: [_n_rows(through(x, causal, 1)) for causal in (False, True)] for text, x in xs.items()}


def _n_rows(y: Tensor) -> int:
    """How many rows differ from all those before them."""
    apart = torch.cdist(y, y, compute_mode="donot_use_mm_for_euclid_dist") > 1e-9
    return sum(bool(apart[n, :n].all()) for n in range(len(y)))


# ---- problem 7, measured ----

MOVED, DISTINCT = moved(), distinct()


# ---- attention with a slip; right by default ----


def shares(scores: Tensor, axis: int | tuple[int, ...] = -1) -> Tensor:
    """Softmax without the largest score taken away."""
    return scores.exp() / scores.exp().sum(axis, keepdim=True)


def spelled_out(
    q: Tensor, k: Tensor, v: Tensor, *, divisor: float | None = None, soften: Callable = lambda s: s.softmax(-1)
) -> Tensor:
    scores = q @ k.transpose(-2, -1) / (math.sqrt(q.shape[-1]) if divisor is None else divisor)
    return soften(scores) @ v


def over_everything(scores: Tensor) -> Tensor:
    return scores.flatten(-2).softmax(-1).view_as(scores)


def projected(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, **slip) -> Tensor:
    return spelled_out(x @ W_Q, x @ W_K, x @ W_V, **slip)


def first(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> Tensor:
    return projected(x, W_Q, W_K, W_V, divisor=math.sqrt(x.shape[-1]))


def second(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> Tensor:
    return projected(x, W_Q, W_K, W_V, soften=lambda s: s.softmax(0))


def third(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> Tensor:
    return projected(x, W_Q, W_K, W_V, soften=shares)


SUSPECTS = {"first": first, "second": second, "third": third}
RIGHT_FAULT = {"first": "A", "second": "C", "third": "E"}
RIGHT_HARMLESS = {"first": 12, "second": 1, "third": math.floor(math.log(torch.finfo(torch.float64).max))}
