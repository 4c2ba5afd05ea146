"""Blocks against their formulas, spelled out; and the numbers that a model starts from."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from plainformer import masks
from plainformer.attention import attention, fast_attention
from plainformer.block import Block, initialise
from plainformer.config import Config
from plainformer.model import EncoderDecoder, Transformer
from plainformer.norms import LayerNorm, RMSNorm
from plainformer.positions import rotary_angles

BATCH, LENGTH, SOURCE, WIDTH = 2, 5, 7, 24
BOTH = [attention, fast_attention]


def config(**change) -> Config:
    sizes = {"n_vocab": 11, "d_model": WIDTH, "n_heads": 6, "n_kv_heads": 3, "n_context": 13, "d_ff": 10}
    return Config(**sizes | {"n_layers": 1, "bias": True, "norm_eps": 0.05} | change)


def draw(length=LENGTH):
    return torch.randn(BATCH, length, WIDTH, dtype=torch.float64)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("experts", [1, 4])
@pytest.mark.parametrize("attend", BOTH)
def test_pre_norm_adds_to_a_stream_that_no_norm_touches(attend, experts, norm, fill):
    block, x = fill(Block(config(norm=norm, n_experts=experts)).double()), draw()
    rotary = rotary_angles(torch.arange(LENGTH), 4, dtype=torch.float64)
    how = {"causal": True, "rotary": rotary, "attend": attend}
    middle = x + block.attn(block.attn_norm(x), **how)
    wanted = middle + block.mlp(block.mlp_norm(middle))
    torch.testing.assert_close(block(x, **how), wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("attend", BOTH)
def test_post_norm_norms_each_sum(attend, norm, fill):
    block, x = fill(Block(config(norm=norm, norm_placement="post")).double()), draw()
    mask = masks.padding(torch.tensor([5, 3]), LENGTH)
    middle = block.attn_norm(x + block.attn(x, mask, attend=attend))
    wanted = block.mlp_norm(middle + block.mlp(middle))
    torch.testing.assert_close(block(x, mask=mask, attend=attend), wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_a_block_that_looks_across_does_so_between_the_two(placement, fill):
    block = fill(Block(config(norm="layer", norm_placement=placement), cross=True).double())
    x, memory, mask = draw(), draw(SOURCE), masks.padding(torch.tensor([7, 2]), SOURCE)
    steps = [
        (block.attn_norm, lambda x: block.attn(x, causal=True)),
        (block.cross_norm, lambda x: block.cross(x, mask, memory=memory)),
        (block.mlp_norm, block.mlp),
    ]
    wanted = x
    for norm, sublayer in steps:
        wanted = wanted + sublayer(norm(wanted)) if placement == "pre" else norm(wanted + sublayer(wanted))
    result = block(x, causal=True, memory=memory, memory_mask=mask)
    torch.testing.assert_close(result, wanted, rtol=0, atol=1e-13)


def test_norms_are_of_the_kind_and_epsilon_of_the_config():
    for kind, norm in (("layer", LayerNorm), ("rms", RMSNorm)):
        block = Block(config(norm=kind), cross=True)
        for part in (block.attn_norm, block.cross_norm, block.mlp_norm):
            assert type(part) is norm and part.eps == 0.05


def test_a_block_is_blind_to_a_constant_in_front_of_layer_norm(fill):
    block, x = fill(Block(config(norm="layer")).double()), draw()
    torch.testing.assert_close(block(x + 3) - (x + 3), block(x) - x, rtol=0, atol=1e-12)


def test_post_norm_hands_on_normed_rows():
    block = Block(config(norm="layer", norm_placement="post", norm_eps=1e-12)).double()
    y = block(draw())
    torch.testing.assert_close(y.square().mean(-1), torch.ones(BATCH, LENGTH).double())


# --- the start -------------------------------------------------------------------------------------------------------


def spread_is(tensor: torch.Tensor, wanted: float) -> bool:
    """Within five standard errors: of n normal numbers the spread is off by a share of 1/√(2n), the mean by 1/√n."""
    n = tensor.numel()
    right_spread = abs(tensor.std().item() / wanted - 1) < 5 / math.sqrt(2 * n)
    return right_spread and abs(tensor.mean().item()) < 5 * wanted / math.sqrt(n)


BIG = {"n_vocab": 700, "d_model": 96, "n_heads": 4, "n_kv_heads": 2, "n_context": 50, "d_ff": 130, "n_layers": 3}


@pytest.mark.parametrize("mlp", ["gelu", "swiglu"])
@pytest.mark.parametrize("experts", [1, 2])
def test_a_model_starts_with_small_weights_and_smaller_ones_where_it_writes(experts, mlp):
    config = Config(**BIG, mlp=mlp, n_experts=experts, bias=True, norm="layer", positions="learned")
    model, writes, seen = Transformer(config), 0.02 / math.sqrt(2 * 3), 0
    for name, parameter in model.named_parameters():
        owner = name.split(".")[-2]
        if "norm" in owner:
            assert (parameter == (1 if name.endswith("weight") else 0)).all()
        elif name.endswith("bias"):
            assert (parameter == 0).all()
        else:
            assert spread_is(parameter.detach(), writes if owner in ("out", "down") else 0.02), name
            seen += owner in ("out", "down")
    assert seen == 3 * (1 + experts)
    assert spread_is(model.embed.weight.detach(), 0.02) and spread_is(model.unembed.weight.detach(), 0.02)


def test_two_stacks_count_all_their_layers():
    config = dataclasses.replace(
        Config(**BIG, mlp="relu", positions="sinusoidal", tied=True, norm_placement="post"), n_encoder_layers=5
    )
    model = EncoderDecoder(config)
    for stack in (model.encoder, model.decoder):
        assert spread_is(stack[0].attn.out.weight.detach(), 0.02 / math.sqrt(2 * 8))
        assert spread_is(stack[0].attn.query.weight.detach(), 0.02)


def test_initialise_replaces_what_was_there_and_leaves_norms():
    model = nn.ModuleDict({"up": nn.Linear(300, 200), "down": nn.Linear(200, 300), "norm": RMSNorm(300, 1e-5)})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)
    initialise(model, 8)
    assert spread_is(model["up"].weight.detach(), 0.02) and spread_is(model["down"].weight.detach(), 0.005)
    assert (model["up"].bias == 0).all() and (model["norm"].weight == 7).all()


def test_the_same_seed_gives_the_same_model():
    config = Config(**BIG)
    states = []
    for _ in "12":
        torch.manual_seed(3)
        states.append(Transformer(config).state_dict())
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())
