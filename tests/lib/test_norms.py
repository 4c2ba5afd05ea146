"""Norms against their closed forms in plain Python, against torch's modules, and what they are blind to."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import nn

from plainformer.norms import NORMS, LayerNorm, RMSNorm, layer_norm, rms_norm

BATCH, LENGTH, WIDTH, EPS = 2, 3, 5, 0.07  # epsilon is large enough to be seen


def draw(dtype=torch.float64):
    x = torch.randn(BATCH, LENGTH, WIDTH, dtype=dtype)
    return x, torch.randn(WIDTH, dtype=dtype), torch.randn(WIDTH, dtype=dtype)


def by_loop(kind, row, weight, bias, eps):
    mean = math.fsum(row) / len(row) if kind == "layer" else 0.0
    size = math.sqrt(math.fsum((value - mean) ** 2 for value in row) / len(row) + eps)
    return [(value - mean) / size * w + b for value, w, b in zip(row, weight, bias)]


def module(kind, weight, bias, eps=EPS):
    norm = NORMS[kind](WIDTH, eps).to(weight.dtype)
    with torch.no_grad():
        norm.weight.copy_(weight)
        if kind == "layer":
            norm.bias.copy_(bias)
    return norm


@pytest.mark.parametrize("eps", [1e-6, EPS, 3.0])
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_function_and_module_equal_the_definition(kind, eps):
    x, weight, bias = draw()
    if kind == "rms":
        bias = torch.zeros(WIDTH, dtype=x.dtype)
    rows = [[by_loop(kind, row, weight.tolist(), bias.tolist(), eps) for row in text] for text in x.tolist()]
    wanted = torch.tensor(rows, dtype=torch.float64)
    result = layer_norm(x, weight, bias, eps) if kind == "layer" else rms_norm(x, weight, eps)
    torch.testing.assert_close(result, wanted, rtol=0, atol=1e-13)
    torch.testing.assert_close(module(kind, weight, bias, eps)(x), wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_modules_equal_torch(kind, dtype):
    x, weight, bias = draw(dtype)
    theirs = (nn.LayerNorm if kind == "layer" else nn.RMSNorm)(WIDTH, eps=EPS, dtype=dtype)
    theirs.load_state_dict(module(kind, weight, bias).state_dict())
    assert torch.equal(module(kind, weight, bias)(x), theirs(x))


def test_layer_norm_sends_equal_features_to_zero_and_rms_norm_does_not():
    """What a mean takes away: (1, 1) has no spread, so LayerNorm sees nothing in it."""
    ones, weight, zeros = torch.ones(2), torch.ones(2), torch.zeros(2)
    assert layer_norm(ones, weight, zeros, 1e-5).tolist() == [0.0, 0.0]
    assert LayerNorm(2, 1e-5)(ones).tolist() == [0.0, 0.0]
    torch.testing.assert_close(RMSNorm(2, 1e-5)(ones), ones, rtol=0, atol=1e-5)
    assert rms_norm(ones, weight, 3.0).tolist() == [0.5, 0.5]  # 1 / √(1 + 3)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_fresh_norms_give_vectors_of_one_size(kind):
    norm = NORMS[kind](WIDTH, 1e-12).double()
    assert [tuple(p.shape) for p in norm.parameters()] == [(WIDTH,)] * (2 if kind == "layer" else 1)
    x = draw()[0]
    y = norm(x * 50 + 20)
    torch.testing.assert_close(y.square().mean(-1), torch.ones(BATCH, LENGTH).double())
    if kind == "layer":
        torch.testing.assert_close(y.mean(-1), torch.zeros(BATCH, LENGTH).double(), rtol=0, atol=1e-13)


@given(st.integers(0, 10**6), st.floats(0.1, 1e3), st.floats(-1e3, 1e3))
def test_what_norms_are_blind_to(seed, scale, shift):
    x = torch.randn(LENGTH, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    layer, rms = (NORMS[kind](WIDTH, 1e-300).double() for kind in ("layer", "rms"))
    torch.testing.assert_close(layer(x * scale + shift), layer(x), rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(rms(x * scale), rms(x), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(rms(-x), -rms(x), rtol=0, atol=0)


def test_each_position_is_normed_by_itself():
    x, weight, bias = draw()
    for norm in (module("layer", weight, bias), module("rms", weight, bias)):
        changed = x.clone()
        changed[:, 1] *= 3
        assert torch.equal(norm(changed)[:, [0, 2]], norm(x)[:, [0, 2]])


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_rows_of_zeros_stay_finite(kind):
    assert torch.equal(NORMS[kind](WIDTH, 1e-5)(torch.zeros(LENGTH, WIDTH)), torch.zeros(LENGTH, WIDTH))
