"""The MLP: widen, apply a nonlinearity, narrow, the same at every position."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import nn

from plainformer.config import Config
from plainformer.shapes import Float, Int

ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,  # x Φ(x), exact. Hendrycks and Gimpel 2016
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),  # the approximation that GPT-2 was trained with
    "swiglu": F.silu,  # x σ(x), here the gate of a gated MLP
}


def swiglu_width(d_model: int, *, multiple_of: int = 256) -> int:
    """8 d / 3, rounded up to a multiple: three matrices then hold about the 8 d² of two with width 4 d."""
    if d_model < 1 or multiple_of < 1:
        raise ValueError(f"widths are positive, got d_model={d_model}, multiple_of={multiple_of}.")
    return -(-8 * d_model // (3 * multiple_of)) * multiple_of


class MLP(nn.Module):
    """down(φ(up(x))): two matrices. Vaswani et al. 2017, section 3.3."""

    def __init__(self, config: Config):
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        self.activation = ACTIVATIONS[config.mlp]

    def forward(self, x: Float["... d_model"]) -> Float["... d_model"]:
        return self.down(self.activation(self.up(x)))


class GatedMLP(nn.Module):
    """down(silu(gate(x)) · up(x)): three matrices, one widened copy gates the other. Shazeer 2020."""

    def __init__(self, config: Config):
        super().__init__()
        self.gate = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.up = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        self.activation = ACTIVATIONS[config.mlp]

    def forward(self, x: Float["... d_model"]) -> Float["... d_model"]:
        return self.down(self.activation(self.gate(x)) * self.up(x))


class MixtureOfExperts(nn.Module):
    """Several MLPs; a router sends each token through its best few. Jiang et al. 2024 (Mixtral), section 2.1."""

    def __init__(self, config: Config):
        super().__init__()
        self.router = nn.Linear(config.d_model, config.n_experts, bias=False)
        self.experts = nn.ModuleList(dense(config) for _ in range(config.n_experts))
        self.n_active = config.n_active_experts

    def forward(self, x: Float["... d_model"]) -> Float["... d_model"]:
        tokens = x.reshape(-1, x.shape[-1])
        weights, chosen = route(self.router(tokens), self.n_active)
        mixed = torch.zeros_like(tokens)
        for n, expert in enumerate(self.experts):
            token, place = (chosen == n).nonzero(as_tuple=True)  # an expert that nobody chose gets no rows
            mixed.index_add_(0, token, expert(tokens[token]) * weights[token, place, None])
        return mixed.view_as(x)


def route(scores: Float["token expert"], n_active: int) -> tuple[Float["token active"], Int["token active"]]:
    """The best ``n_active`` experts of each token, and their weights: a softmax over the chosen scores alone."""
    best, chosen = scores.topk(n_active, -1)
    return best.softmax(-1), chosen


def dense(config: Config) -> nn.Module:
    """The MLP of one expert, or of a block without experts."""
    return GatedMLP(config) if config.mlp == "swiglu" else MLP(config)


def build(config: Config) -> nn.Module:
    """The MLP of a block."""
    return MixtureOfExperts(config) if config.n_experts > 1 else dense(config)
