"""Scaled dot-product attention: every position takes a weighted average of the others' values."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plainformer import masks
from plainformer.shapes import Bool, Float


def attention_weights(
    q: Float["... query d_head"],
    k: Float["... key d_head"],
    mask: Bool["..."] | None = None,
    *,
    causal: bool = False,
) -> Float["... query key"]:
    """softmax(q kᵀ / √d_head) along the keys. Vaswani et al. 2017, section 3.2.1.

    Every row is non-negative and sums to one. ``mask`` is True where a query may look
    and broadcasts to (…, query, key); ``causal`` forbids later keys, whatever it says.
    A query that may look at nothing gets zeros.
    """
    _check(q, k, k, mask)
    mask = _with_past(q, k, mask) if causal else mask
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is None:
        return scores.softmax(-1)
    nothing = ~mask.any(-1, keepdim=True)  # here softmax would be 0/0: leave it unmasked,
    scores = scores.masked_fill(~(mask | nothing), -math.inf)
    return scores.softmax(-1).masked_fill(nothing, 0.0)  # and drop the result


def attention(
    q: Float["... query d_head"],
    k: Float["... key d_head"],
    v: Float["... key d_value"],
    mask: Bool["..."] | None = None,
    *,
    causal: bool = False,
) -> Float["... query d_value"]:
    """softmax(q kᵀ / √d_head) v, written out: the whole square of weights is in memory."""
    _check(q, k, v, mask)
    return attention_weights(q, k, mask, causal=causal) @ v


def fast_attention(
    q: Float["... query d_head"],
    k: Float["... key d_head"],
    v: Float["... key d_value"],
    mask: Bool["..."] | None = None,
    *,
    causal: bool = False,
) -> Float["... query d_value"]:
    """The same numbers by torch's fused kernel, which never holds the whole square."""
    _check(q, k, v, mask)
    whole = causal and mask is None and q.shape[-2] == k.shape[-2]  # the kernel's own case
    if causal and not whole:
        mask = _with_past(q, k, mask)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=whole)


class SelfAttention(nn.Module):
    """One attention over one stream: q, k and v are three projections of the same rows.

    ``causal=True``, the default, is a decoder's: no position looks at a later one,
    whatever ``mask`` allows. ``attend`` is `attention` to look inside or to count,
    `fast_attention` to run.
    """

    def __init__(
        self,
        d_model: int,
        d_head: int,
        *,
        bias: bool = False,
        causal: bool = True,
        attend: Callable[..., Tensor] = attention,
    ):
        super().__init__()
        self.query = nn.Linear(d_model, d_head, bias=bias)
        self.key = nn.Linear(d_model, d_head, bias=bias)
        self.value = nn.Linear(d_model, d_head, bias=bias)
        self.out = nn.Linear(d_head, d_model, bias=bias)
        self.causal = causal
        self.attend = attend

    def forward(
        self,
        x: Float["... position d_model"],
        mask: Bool["..."] | None = None,
    ) -> Float["... position d_model"]:
        d_model = self.query.in_features
        if x.dim() < 2 or x.shape[-1] != d_model:
            raise ValueError(f"x must have shape (…, position, {d_model=}), got {tuple(x.shape)}.")
        if not x.is_floating_point():
            raise TypeError(f"x must be floating point, got {x.dtype}: embed ids first.")
        q, k, v = self.query(x), self.key(x), self.value(x)
        return self.out(self.attend(q, k, v, mask, causal=self.causal))


def _with_past(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor | None:
    """The mask, and no look ahead: the last query stands at the last key."""
    if q.shape[-2] == 1:  # a single query stands at the last key and may see every one
        return mask
    past = masks.causal(q.shape[-2], k.shape[-2], device=q.device)
    return past if mask is None else mask & past


def _check(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> None:
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if min(q.dim(), k.dim(), v.dim()) < 2:
        raise ValueError(f"q, k and v need the shape (…, position, width), got {shapes}.")
    if not q.is_floating_point() or not q.dtype == k.dtype == v.dtype:
        raise TypeError(
            f"q, k and v must be floating point of one type, got {q.dtype}, {k.dtype} and {v.dtype}. "
            "Usual cause: token ids passed in place of their embedded rows."
        )
    if 0 in q.shape or 0 in k.shape or 0 in v.shape:
        raise ValueError(f"an empty sequence has nothing to attend to or from, got {shapes}.")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"a query meets a key in a dot product, so both need one width d_head, got {shapes}. "
            "Usual cause: d_model in one place and d_head in the other."
        )
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        raise ValueError(
            f"q, k and v need the same leading axes (batch, head, …), got {shapes}. "
            "Usual cause: grouped keys and values that were not yet given to their query heads."
        )
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"every key has one value, so k and v need the same number of positions, got {shapes}.")
    if mask is not None:
        _check_mask(mask, (*q.shape[:-1], k.shape[-2]))


def _check_mask(mask: Tensor, scores: tuple[int, ...]) -> None:
    kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
    if kind != torch.bool:
        raise TypeError(
            f"a mask is a boolean tensor, True where a query may look; got {kind}. Usual cause: a mask of 0 and −∞ "
            "(or of 1 and 0) meant to be added. Write mask == 0 (or mask.bool()) instead."
        )
    fits = mask.dim() <= len(scores) and all(
        have in (1, want) for have, want in zip(reversed(mask.shape), reversed(scores))
    )
    if not fits or mask.dim() < 2:
        raise ValueError(
            f"a mask must broadcast to the scores, shape (…, query, key) = {scores}; got {tuple(mask.shape)}. "
            "Usual cause: a padding mask of shape (batch, key) that lacks its head and query axes."
        )
