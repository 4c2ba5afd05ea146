"""Positions: where a token stands, added to its row or turned into its queries and keys."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from plainformer.shapes import Float, Int


def sinusoids(
    n_positions: int, d_model: int, *, base: float = 10_000.0, dtype: torch.dtype | None = None
) -> Float["position d_model"]:
    """Fixed rows: feature 2n is sin(p / base^(2n/d)), feature 2n + 1 its cosine. Vaswani et al. 2017, section 3.5."""
    if n_positions < 1 or d_model < 2 or d_model % 2:
        raise ValueError(f"sinusoids need a position and an even width, got {n_positions} × {d_model}.")
    angles = torch.outer(torch.arange(n_positions, dtype=torch.float64), _frequencies(d_model, base))
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2).to(dtype or torch.get_default_dtype())


def rotary_angles(
    positions: Int["..."], d_head: int, *, base: float = 10_000.0, dtype: torch.dtype | None = None
) -> tuple[Float["... pair"], Float["... pair"]]:
    """Cosine and sine of p · base^(−2n/d_head) for each position p and each of d_head / 2 pairs of features.

    ``positions`` has any shape; both results have one more axis, of d_head / 2. Su et al. 2021, section 3.2.2.
    """
    if d_head < 2 or d_head % 2:
        raise ValueError(f"rotary positions turn pairs of features, so d_head must be even, got {d_head}.")
    # float64 inside: at position 100,000 a float32 angle is already off by a hundredth
    angles = positions[..., None].double() * _frequencies(d_head, base).to(positions.device)
    dtype = dtype or torch.get_default_dtype()
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(
    x: Float["... d_head"], cos: Float["... pair"], sin: Float["... pair"], *, pairing: str = "halves"
) -> Float["... d_head"]:
    """Turns each pair of features by its angle, so that a dot product depends on the distance alone.

    ``cos`` and ``sin`` broadcast to (…, d_head / 2). Pairs are feature n with feature n + d_head / 2
    ("halves", as Llama's files at Hugging Face) or neighbours ("even-odd", as the paper).
    """
    if pairing == "halves":
        first, second = x.chunk(2, -1)
    elif pairing == "even-odd":
        first, second = x[..., ::2], x[..., 1::2]
    else:
        raise ValueError(f"pairing={pairing!r} is not known; expected 'halves' or 'even-odd'.")
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    turned = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat(turned, -1) if pairing == "halves" else torch.stack(turned, -1).flatten(-2)


def convert_pairing(weight: Float["row ..."], n_heads: int, *, to: str) -> Float["row ..."]:
    """Reorders the output rows of a query or key projection (or its bias) made for the other pairing.

    ``weight`` is (n_heads · d_head, …). Scores stay the same, since queries and keys are reordered alike.
    """
    d_head = weight.shape[0] // n_heads
    if weight.shape[0] % n_heads or d_head % 2:
        raise ValueError(f"{weight.shape[0]} rows are not {n_heads} heads of an even width.")
    if to == "halves":
        return weight.reshape(n_heads, d_head // 2, 2, -1).transpose(1, 2).reshape(weight.shape)
    if to == "even-odd":
        return weight.reshape(n_heads, 2, d_head // 2, -1).transpose(1, 2).reshape(weight.shape)
    raise ValueError(f"to={to!r} is not known; expected 'halves' or 'even-odd'.")


def _frequencies(width: int, base: float) -> Tensor:
    return torch.exp(-math.log(base) * torch.arange(0, width, 2, dtype=torch.float64) / width)
