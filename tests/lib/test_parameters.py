"""Counts against published ones, against Hugging Face's models and against torch's own modules, to the last unit."""

import dataclasses
from collections import Counter

import hypothesis.strategies as st
import pytest
import torch
import transformers
from hypothesis import given
from torch import nn

from plainformer.config import Config, preset, presets, published
from plainformer.parameters import block_breakdown, breakdown, estimate, total

transformers.logging.set_verbosity_error()


def hugging_face(config: Config) -> nn.Module:
    """Hugging Face's model of the same sizes, on the meta device: shapes without memory."""
    if config.norm == "layer":
        sizes = transformers.GPT2Config(
            vocab_size=config.n_vocab,
            n_positions=config.n_context,
            n_embd=config.d_model,
            n_layer=config.n_layers,
            n_head=config.n_heads,
            n_inner=config.d_ff,
            tie_word_embeddings=config.tied,
        )
        kind = transformers.GPT2LMHeadModel
    else:
        sizes = transformers.LlamaConfig(
            vocab_size=config.n_vocab,
            max_position_embeddings=config.n_context,
            hidden_size=config.d_model,
            intermediate_size=config.d_ff,
            num_hidden_layers=config.n_layers,
            num_attention_heads=config.n_heads,
            num_key_value_heads=config.n_kv_heads,
            attention_bias=config.bias,
            mlp_bias=config.bias,
            tie_word_embeddings=config.tied,
        )
        kind = transformers.LlamaForCausalLM
    with torch.device("meta"):
        return kind(sizes)


# Hugging Face's names, in the order of looking: the first that stands in a parameter's name says its part.
PARTS = {
    "embed": ("wte", "embed_tokens"),
    "positions": ("wpe",),
    "norms": ("ln_1", "ln_2", "layernorm"),
    "final_norm": ("ln_f", "model.norm"),
    "attention": ("attn",),
    "mlp": ("mlp",),
    "unembed": ("lm_head",),
}
BLOCK = {  # of block 0; GPT-2 keeps query, key and value in one matrix
    "attn_norm": ("ln_1", "input_layernorm"),
    "mlp_norm": ("ln_2", "post_attention_layernorm"),
    "query": ("q_proj",),
    "key": ("k_proj",),
    "value": ("v_proj",),
    "query, key and value": ("c_attn",),
    "out": ("attn.c_proj", "o_proj"),
    "gate": ("gate_proj",),
    "up": ("c_fc", "up_proj"),
    "down": ("mlp.c_proj", "down_proj"),
}


def by_part(model: nn.Module, parts: dict, within: str = "") -> Counter:
    """Numbers of parameters by part; a tied table has one name here and so counts once."""
    counts = Counter()
    for name, parameter in model.named_parameters():
        if within in name:
            counts[next(part for part, words in parts.items() if any(word in name for word in words))] += (
                parameter.numel()
            )
    return counts


@pytest.mark.parametrize("name", presets())
def test_total_is_the_published_count(name):
    assert total(preset(name)) == published(name)


@pytest.mark.parametrize("name", presets())
def test_every_part_equals_hugging_face(name):
    config = preset(name)
    model = hugging_face(config)
    assert total(config) == sum(parameter.numel() for parameter in model.parameters())
    assert {part: n for part, n in breakdown(config).items() if n} == by_part(model, PARTS)
    block, theirs = (
        block_breakdown(config),
        by_part(model, BLOCK, within="layers.0." if config.norm == "rms" else "h.0."),
    )
    if "query, key and value" in theirs:
        block["query, key and value"] = sum(block.pop(part) for part in ("query", "key", "value"))
    assert block == theirs


def test_both_tyings_of_a_real_model_equal_hugging_face():
    for name in ("gpt2-small", "llama-3-8b"):
        for tied in (True, False):
            config = dataclasses.replace(preset(name), tied=tied)
            assert total(config) == sum(p.numel() for p in hugging_face(config).parameters())


# --- any configuration -----------------------------------------------------------------------------------------------


@st.composite
def configs(draw, **fixed):
    d_head, n_kv_heads, group = draw(st.integers(1, 6)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    n_heads = n_kv_heads * group
    choices = {
        "n_vocab": draw(st.integers(1, 300)),
        "d_model": n_heads * d_head * 2,
        "n_heads": n_heads,
        "n_kv_heads": n_kv_heads,
        "n_context": draw(st.integers(1, 70)),
        "d_ff": draw(st.integers(1, 90)),
        "n_layers": draw(st.integers(1, 5)),
        "positions": draw(st.sampled_from(["none", "sinusoidal", "learned", "rotary"])),
        "norm": draw(st.sampled_from(["layer", "rms"])),
        "norm_placement": draw(st.sampled_from(["pre", "post"])),
        "mlp": draw(st.sampled_from(["relu", "gelu", "gelu_tanh", "swiglu"])),
        "bias": draw(st.booleans()),
        "tied": draw(st.booleans()),
    }
    return Config(**choices | fixed)


def built(config: Config) -> nn.ModuleDict:
    """The same model from torch's own layers, on the meta device."""
    d, kv = config.d_model, config.n_kv_heads * (config.d_model // config.n_heads)

    def linear(d_in, d_out):
        return nn.Linear(d_in, d_out, bias=config.bias)

    def norm():
        return nn.LayerNorm(d) if config.norm == "layer" else nn.RMSNorm(d)

    def block():
        wide = ["gate", "up"] if config.mlp == "swiglu" else ["up"]
        return nn.ModuleDict(
            {"attn_norm": norm(), "mlp_norm": norm()}
            | {"query": linear(d, d), "key": linear(d, kv), "value": linear(d, kv), "out": linear(d, d)}
            | {name: linear(d, config.d_ff) for name in wide}
            | {"down": linear(config.d_ff, d)}
        )

    with torch.device("meta"):
        model = nn.ModuleDict({"embed": nn.Embedding(config.n_vocab, d)})
        if config.positions == "learned":
            model["positions"] = nn.Embedding(config.n_context, d)
        model["blocks"] = nn.ModuleList([block() for _ in range(config.n_layers)])
        if config.norm_placement == "pre":
            model["final_norm"] = norm()
        model["unembed"] = nn.Linear(d, config.n_vocab, bias=False)
        if config.tied:
            model["unembed"].weight = model["embed"].weight
    return model


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@given(configs())
def test_any_configuration_equals_torch_s_layers(config):
    model = built(config)
    assert total(config) == size(model)
    assert block_breakdown(config) == {name: size(part) for name, part in model["blocks"][0].items()}
    parts = breakdown(config)
    for name in ("embed", "positions", "final_norm"):
        assert parts[name] == (size(model[name]) if name in model else 0)
    assert parts["unembed"] == (0 if config.tied else size(model["unembed"]))
    attention, mlp = ("query", "key", "value", "out"), ("gate", "up", "down")
    for part, names in {"attention": attention, "mlp": mlp, "norms": ("attn_norm", "mlp_norm")}.items():
        assert parts[part] == sum(size(block[name]) for block in model["blocks"] for name in names if name in block)


@given(configs())
def test_the_parts_add_up(config):
    assert total(config) == sum(breakdown(config).values())
    parts = breakdown(config)
    block = sum(block_breakdown(config).values())
    assert parts["attention"] + parts["mlp"] + parts["norms"] == config.n_layers * block
    assert all(type(n) is int and n >= 0 for n in [*parts.values(), *block_breakdown(config).values()])


@given(configs(tied=False))
def test_what_one_choice_costs(config):
    n, d = total(config), config.d_model
    given_to = lambda **change: n - total(dataclasses.replace(config, **change))  # noqa: E731
    assert given_to(tied=True) == config.n_vocab * d
    one_more = dataclasses.replace(config, n_layers=config.n_layers + 1)
    assert total(one_more) - n == sum(block_breakdown(config).values())
    if config.positions == "learned":
        assert given_to(positions="rotary") == given_to(positions="none") == config.n_context * d
    norms = 2 * config.n_layers + (config.norm_placement == "pre")
    if config.norm == "layer":
        assert given_to(norm="rms") == norms * d
    if config.mlp == "swiglu":
        assert given_to(mlp="gelu") == config.n_layers * (d * config.d_ff + config.bias * config.d_ff)
    if config.bias:
        wide = 1 + (config.mlp == "swiglu")
        a_block = 3 * d + 2 * config.n_kv_heads * config.d_head + wide * config.d_ff
        assert given_to(bias=False) == config.n_layers * a_block
    if config.n_kv_heads > 1:
        saved = config.n_layers * 2 * (config.n_kv_heads - 1) * config.d_head * (d + config.bias)
        assert given_to(n_kv_heads=1) == saved


# --- the shortcut ----------------------------------------------------------------------------------------------------


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 300), st.sampled_from(["relu", "gelu_tanh", "swiglu"]))
def test_the_shortcut_is_exact_where_its_assumptions_hold(n_heads, n_layers, n_vocab, mlp):
    d = 6 * n_heads
    config = Config(
        n_vocab=n_vocab,
        d_model=d,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        n_context=9,
        d_ff=8 * d // 3 if mlp == "swiglu" else 4 * d,  # an MLP of 8 d²: three matrices or two
        n_layers=n_layers,
        mlp=mlp,
        tied=True,
    )
    parts = breakdown(config)
    assert estimate(config) == {"blocks": parts["attention"] + parts["mlp"], "embed": parts["embed"]}
    assert sum(estimate(config).values()) == total(config) - parts["norms"] - parts["final_norm"]


@given(configs())
def test_the_shortcut_looks_at_layers_width_and_vocabulary_alone(config):
    layers, d, vocabulary = config.n_layers, config.d_model, config.n_vocab
    assert estimate(config) == {"blocks": 12 * layers * d * d, "embed": vocabulary * d}


@pytest.mark.parametrize("count", [estimate, block_breakdown, breakdown, total])
@pytest.mark.parametrize("given", ["gpt2-small", None, {"n_layers": 2}, Config], ids=repr)
def test_what_is_no_config_is_refused(count, given):
    with pytest.raises(TypeError, match=rf"takes a Config, not {type(given).__name__}.*preset"):
        count(given)
