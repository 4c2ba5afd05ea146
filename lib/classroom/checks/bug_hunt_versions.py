"""Exercise 16's suspects: attention, a norm, a memory and a stack of layers, right in several styles and broken.

`bug_hunt_broken` lists the broken ones; most of them were found in public courses.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from plainformer import masks
from plainformer.attention import attention_weights
from plainformer.heads import join, split


def past(scores: Tensor, ahead: int = 0) -> Tensor:
    return torch.ones(scores.shape[-2:], dtype=torch.bool).tril(ahead)


def hide_later(scores: Tensor) -> Tensor:
    return scores.masked_fill(~masks.causal(scores.shape[-1]), -math.inf)


# ---- attention: candidate(x, W_Q, W_K, W_V, n_heads) ----


def attention(
    *,
    width: Callable[[Tensor, Tensor, Tensor, int], float] = lambda x, q, v, n_heads: q.shape[-1],
    cut: Callable[[Tensor, int], Tensor] = split,
    joined: Callable[[Tensor], Tensor] = join,
    keys: Callable[[Tensor], Tensor] = lambda k: k,
    values: Callable[[Tensor], Tensor] = lambda v: v,
    weights: Callable[[Tensor], Tensor] = lambda scores: hide_later(scores).softmax(-1),
    after: Callable[[Tensor, Tensor], Tensor] = lambda out, x: out,
    spoil: Callable[..., Tensor | None] = lambda **inputs: None,
) -> Callable:
    """Causal attention of many heads, right but for what is given here."""

    def candidate(x, W_Q, W_K, W_V, n_heads):
        q, k, v = (cut(x @ W, n_heads) for W in (W_Q, W_K, W_V))
        k, v = keys(k), values(v)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width(x, q, v, n_heads))
        out = after(joined(weights(scores) @ v), x)
        spoil(x=x, W_Q=W_Q, W_K=W_K, W_V=W_V, d_head=q.shape[-1])
        return out

    return candidate


def by_einsum() -> Callable:
    def candidate(x, W_Q, W_K, W_V, n_heads):
        q, k, v = (torch.einsum("btd,dhk->bhtk", x, W.unflatten(1, (n_heads, -1))) for W in (W_Q, W_K, W_V))
        scores = torch.einsum("bhik,bhjk->bhij", q * q.shape[-1] ** -0.5, k)
        return torch.einsum("bhij,bhjv->bihv", hide_later(scores).softmax(-1), v).flatten(2)

    return candidate


def by_loops() -> Callable:
    def candidate(x, W_Q, W_K, W_V, n_heads):
        heads = []
        for W_q, W_k, W_v in zip(*(W.chunk(n_heads, 1) for W in (W_Q, W_K, W_V))):
            q, k, v = x @ (W_q / math.sqrt(W_q.shape[1])), x @ W_k, x @ W_v
            rows = [((k[:, : i + 1] @ q[:, i, :, None]).softmax(1) * v[:, : i + 1]).sum(1) for i in range(x.shape[1])]
            heads.append(torch.stack(rows, 1))
        return torch.cat(heads, -1)

    return candidate


def in_double() -> Callable:
    def candidate(x, W_Q, W_K, W_V, n_heads):
        return attention()(x.double(), W_Q.double(), W_K.double(), W_V.double(), n_heads).to(x.dtype)

    return candidate


def cut_by_view(x: Tensor, n_heads: int) -> Tensor:
    return x.reshape(x.shape[0], n_heads, x.shape[1], -1)


def joined_by_view(x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], x.shape[2], -1)


def plus(constant: float) -> Callable[[Tensor], Tensor]:
    return lambda scores: (scores + constant * ~past(scores)).softmax(-1)


def without_maximum(scores: Tensor, subtract: Callable[[Tensor], Tensor] = torch.zeros_like) -> Tensor:
    parts = (scores - subtract(scores)).exp() * past(scores)
    return parts / parts.sum(-1, keepdim=True)


def seen(ahead: int) -> Callable[[Tensor], Tensor]:
    return lambda scores: scores.masked_fill(~past(scores, ahead), -math.inf).softmax(-1)


def masked_up_to(n: int) -> Callable[[Tensor], Tensor]:
    """A mask that was made for n positions; behind them nothing is hidden."""
    return lambda scores: seen(0 if scores.shape[-1] <= n else scores.shape[-1])(scores)


def remembers(name: str) -> Callable:
    """Keeps keys (or values), and uses them again whenever the shape is the same."""
    kept: dict[tuple, Tensor] = {}
    return attention(**{name: lambda part: kept.setdefault(tuple(part.shape), part.clone())})


# ---- a norm: candidate(x, weight, bias, eps) ----


def norm(
    *,
    mean: Callable[[Tensor], Tensor] = lambda x: x.mean(-1, keepdim=True),
    variance: Callable[[Tensor], Tensor] = lambda x: x.var(-1, keepdim=True, unbiased=False),
    root: Callable[[Tensor, float], Tensor] = lambda variance, eps: (variance + eps).sqrt(),
    learned: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda x, weight, bias: x * weight + bias,
) -> Callable:
    """LayerNorm, right but for what is given here."""
    return lambda x, weight, bias, eps: learned((x - mean(x)) / root(variance(x), eps), weight, bias).to(x.dtype)


def norm_by_loops() -> Callable:
    def candidate(x, weight, bias, eps):
        rows = []
        for row in x.reshape(-1, x.shape[-1]):
            centred = row - row.sum() / len(row)
            rows.append(weight * centred * (centred @ centred / len(row) + eps) ** -0.5 + bias)
        return torch.stack(rows).reshape(x.shape)

    return candidate


def squares(x: Tensor) -> Tensor:
    return (x.square().mean(-1, keepdim=True) - x.mean(-1, keepdim=True).square()).clamp(min=0)


# ---- a memory: make(window) gives an object with step(q, k, v) and reset() ----


class Ring:
    """The last rows of a text, written round and round; `slip` names what is wrong with it."""

    def __init__(self, window: int, slip: str = "", places: dict | None = None):
        self.window = {"long": window + 1, "short": max(1, window - 1), "two": max(window, 2)}.get(slip, window)
        self.slip, self.places = slip, {} if places is None else places
        self.n_rows, self.is_full = 0, False
        if slip == "clears":
            self.places.clear()

    def step(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        place = self.n_rows % self.window
        keys = self.places.setdefault("keys", [torch.zeros_like(k)] * self.window)
        values = self.places.setdefault("values", [torch.zeros_like(v)] * self.window)
        keys[place] = k if self.slip == "holds k" else k.clone()
        values[place] = v if self.slip == "holds v" else v.clone()
        self.n_rows += 1
        self.is_full = self.is_full or self.n_rows >= self.window
        n = self.window if self.is_full or self.slip == "empty places" else self.n_rows
        if self.slip == "an empty place":
            n = min(n + 1, self.window)
        weights = (torch.stack(keys[:n]) @ q / math.sqrt(len(q))).softmax(0)
        if self.slip in ("changes q", "changes k"):
            (q if self.slip == "changes q" else k).div_(math.sqrt(len(q)))
        return weights @ torch.stack(values[:n])

    def reset(self) -> None:
        if self.slip == "no reset":
            return
        if self.slip == "old keys":
            self.places["keys"] = [torch.zeros_like(k) for k in self.places.get("keys", [])]
        self.n_rows = min(self.n_rows, 1) if self.slip == "first row stays" else 0
        self.is_full = self.is_full and self.slip in ("stays full", "old keys")


class Listed:
    """A list of rows that is cut at its head. `keep` says how."""

    def __init__(self, window: int, keep: Callable[[list, int], list] = lambda rows, window: rows[-window:]):
        self.window, self.keep, self.rows = window, keep, []

    def step(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.rows = self.keep([*self.rows, (k.clone(), v.clone())], self.window)
        keys, values = map(torch.stack, zip(*self.rows))
        return (attention_weights(q[None], keys) @ values)[0]

    def reset(self) -> None:
        self.rows = []


def memory(make: Callable = Ring, **slip) -> Callable:
    return lambda window: make(window, **slip)


def shared(slip: str = "") -> Callable:
    """All memories that one `make` gives write into the same places."""
    places: dict = {}
    return lambda window: Ring(window, slip, places)


# ---- a stack of layers: candidate(x, layers) ----


def stack(
    *,
    hides: Callable[[int, int], bool] = lambda layer, n_layers: True,
    sees: Callable[[Tensor, Tensor], Tensor] = lambda x, first: x,
    weigh: Callable[[Tensor], Tensor] = lambda scores: hide_later(scores).softmax(-1),
    keys: Callable[[Tensor], Tensor] = lambda k: k,
    shown: Callable[[Tensor, Tensor, list], Tensor] = lambda used, scores, maps: used,
) -> Callable:
    """Layers of causal attention on one stream, right but for what is given here."""

    def candidate(x, layers):
        first, maps = x, []
        for layer, (W_Q, W_K, W_V) in enumerate(layers):
            read = sees(x, first)
            scores = read @ W_Q @ keys(read @ W_K).transpose(-2, -1) / math.sqrt(W_Q.shape[1])
            used = weigh(scores) if hides(layer, len(layers)) else scores.softmax(-1)
            maps.append(shown(used, scores, maps))
            x = x + used @ (read @ W_V)
        return x, maps

    return candidate


def stack_by_einsum() -> Callable:
    def candidate(x, layers):
        maps = []
        for W_Q, W_K, W_V in layers:
            scores = torch.einsum("bid,dk,ek,bje->bij", x, W_Q * W_Q.shape[1] ** -0.5, W_K, x)
            maps.append(scores.add(torch.full_like(scores[0], -math.inf).triu(1)).softmax(-1))
            x = torch.einsum("bij,bjd,de->bie", maps[-1], x, W_V) + x
        return x, tuple(maps)

    return candidate


def for_some(part: slice) -> Callable[[Tensor], Tensor]:
    """Later tokens are hidden in some sequences of the batch alone."""

    def weigh(scores: Tensor) -> Tensor:
        scores = scores.clone()
        scores[part] = hide_later(scores[part])
        return scores.softmax(-1)

    return weigh
