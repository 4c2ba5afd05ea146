"""Norms: each position's vector is brought to one size before a sublayer reads it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from plainformer.shapes import Float


def layer_norm(
    x: Float["... d_model"], weight: Float["d_model"], bias: Float["d_model"], eps: float
) -> Float["... d_model"]:
    """(x − mean) / √(variance + eps) · weight + bias, each position by itself. Ba et al. 2016."""
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return centred / (variance + eps).sqrt() * weight + bias


def rms_norm(x: Float["... d_model"], weight: Float["d_model"], eps: float) -> Float["... d_model"]:
    """x / √(mean of squares + eps) · weight: no mean, no shift. Zhang and Sennrich 2019."""
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight


class LayerNorm(nn.Module):
    """`layer_norm` with its learned scale and shift, by torch's fused kernel."""

    def __init__(self, d_model: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Float["... d_model"]) -> Float["... d_model"]:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """`rms_norm` with its learned scale, by torch's fused kernel."""

    def __init__(self, d_model: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Float["... d_model"]) -> Float["... d_model"]:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


NORMS = {"layer": LayerNorm, "rms": RMSNorm}
