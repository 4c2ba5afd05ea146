"""Counts against published ones, against Hugging Face's models and against torch's own modules, to the last unit."""

import dataclasses
import re
import tomllib
from collections import Counter
from importlib import resources

import hypothesis.strategies as st
import pytest
import torch
import transformers
from hypothesis import given
from torch import nn

from plainformer.config import Config, preset, presets, published
from plainformer.model import EncoderDecoder, Transformer
from plainformer.parameters import active, block_breakdown, breakdown, estimate, total

transformers.logging.set_verbosity_error()


def hugging_face(config: Config) -> nn.Module:
    """Hugging Face's model of the same sizes, on the meta device: shapes without memory."""
    sizes = {
        "vocab_size": config.n_vocab,
        "max_position_embeddings": config.n_context,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "tie_word_embeddings": config.tied,
    }
    if not config.causal:
        kind, theirs = transformers.BertModel, transformers.BertConfig(**sizes, type_vocab_size=config.n_token_types)
    elif config.norm == "layer":
        kind, theirs = transformers.GPT2LMHeadModel, transformers.GPT2Config(**sizes, n_inner=config.d_ff)
    elif config.n_experts > 1:
        sizes |= {"num_local_experts": config.n_experts, "num_experts_per_tok": config.n_active_experts}
        sizes |= {"num_key_value_heads": config.n_kv_heads}
        kind, theirs = transformers.MixtralForCausalLM, transformers.MixtralConfig(**sizes)
    elif config.window is not None:
        sizes |= {"num_key_value_heads": config.n_kv_heads, "sliding_window": config.window}
        kind, theirs = transformers.MistralForCausalLM, transformers.MistralConfig(**sizes)
    else:
        sizes |= {"num_key_value_heads": config.n_kv_heads, "attention_bias": config.bias, "mlp_bias": config.bias}
        kind, theirs = transformers.LlamaForCausalLM, transformers.LlamaConfig(**sizes)
    with torch.device("meta"):
        return kind(theirs)


# Hugging Face's names, in the order of looking: the first that stands in a parameter's name says its part.
PARTS = {
    "embed": ("wte", "embed_tokens", "word_embeddings"),
    "positions": ("wpe", "position_embeddings"),
    "token_types": ("token_type_embeddings",),
    "embed_norm": ("embeddings.LayerNorm",),
    "norms": ("ln_1", "ln_2", "layernorm", "output.LayerNorm"),
    "final_norm": ("ln_f", "model.norm"),
    "attention": ("attn", "attention"),
    "router": ("mlp.gate.weight",),
    "mlp": ("mlp", "intermediate", "output.dense"),
    "pool": ("pooler",),
    "unembed": ("lm_head",),
}
BLOCK = {  # of block 0; GPT-2 keeps query, key and value in one matrix, Mixtral gate and up
    "attn_norm": ("ln_1", "input_layernorm", "attention.output.LayerNorm"),
    "mlp_norm": ("ln_2", "post_attention_layernorm", "output.LayerNorm"),
    "query": ("q_proj", "self.query"),
    "key": ("k_proj", "self.key"),
    "value": ("v_proj", "self.value"),
    "query + key + value": ("c_attn",),
    "out": ("attn.c_proj", "o_proj", "attention.output.dense"),
    "router": ("mlp.gate.weight",),
    "gate + up": ("gate_up_proj",),
    "gate": ("gate_proj",),
    "up": ("c_fc", "up_proj", "intermediate"),
    "down": ("mlp.c_proj", "down_proj", "output.dense"),
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


def on_meta(config: Config) -> Transformer | EncoderDecoder:
    with torch.device("meta"):
        return EncoderDecoder(config) if config.n_encoder_layers else Transformer(config)


def record(name: str) -> dict:
    """What the family's file says was published of a model."""
    for file in resources.files("plainformer.families").iterdir():
        if file.name.endswith(".toml"):
            models = tomllib.loads(file.read_text(encoding="utf-8"))["models"]
            if name in models:
                return models[name]["published"]
    raise AssertionError(f"no family has {name}")


@pytest.mark.parametrize("name", presets())
def test_three_counts_are_equal(name):
    """The closed form, the parameters of our module, and the released checkpoint's count, to the last unit.

    Of two models only a rounded figure was printed: there the rounding is checked, and that no exact count is claimed.
    """
    config, printed = preset(name), record(name)
    counted = total(config)
    assert counted == size(on_meta(config))
    if "n_parameters" in printed:
        assert counted == published(name)
    else:
        with pytest.raises(ValueError, match="only a rounded figure"):
            published(name)
        figure, unit = printed["printed"].split()
        figure = float(figure) * {"M": 1e6, "B": 1e9}[unit]
        assert abs(counted / figure - 1) <= printed["within"]


# The module that each part of the closed form counts.
OURS = {
    "embed": r"embed\.",
    "positions": r"positions\.",
    "token_types": r"token_types\.",
    "embed_norm": r"embed_norm\.",
    "attention": r".*\.attn\.",
    "cross_attention": r".*\.cross\.",
    "router": r".*\.mlp\.router\.",
    "mlp": r".*\.mlp\.",
    "norms": r".*\.(attn|cross|mlp)_norm\.",
    "final_norm": r"(final|encoder)_norm\.",
    "pool": r"pool\.",
    "unembed": r"unembed\.",
}


def our_parts(model: nn.Module) -> Counter:
    counts = Counter()
    for name, parameter in model.named_parameters():
        counts[next(part for part, pattern in OURS.items() if re.match(pattern, name))] += parameter.numel()
    return counts


@pytest.mark.parametrize("name", presets())
def test_every_part_equals_our_module(name):
    config = preset(name)
    model = on_meta(config)
    assert {part: n for part, n in breakdown(config).items() if n} == our_parts(model)
    block = model.decoder[0] if config.n_encoder_layers else model.blocks[0]
    counted = Counter()
    for path, parameter in block.named_parameters():
        owner, *rest = path.removesuffix(".weight").removesuffix(".bias").split(".")
        part = f"cross_{rest[-1]}" if owner == "cross" else rest[-1] if rest else owner
        counted[part] += parameter.numel()
    assert block_breakdown(config, cross=config.n_encoder_layers > 0) == counted


IN_HUGGING_FACE = [name for name in presets() if name != "vaswani-base"]  # which torch itself has, see below


@pytest.mark.parametrize("name", IN_HUGGING_FACE)
def test_every_part_equals_hugging_face(name):
    config = preset(name)
    model = hugging_face(config)
    assert total(config) == sum(parameter.numel() for parameter in model.parameters())
    assert {part: n for part, n in breakdown(config).items() if n} == by_part(model, PARTS)
    layer = {"GPT2LMHeadModel": ".h.0.", "BertModel": ".layer.0."}.get(type(model).__name__, ".layers.0.")
    block, theirs = block_breakdown(config), by_part(model, BLOCK, within=layer)
    for together in [part for part in theirs if "+" in part]:
        block[together] = sum(block.pop(part) for part in together.split(" + "))
    assert block == theirs


def test_the_2017_model_equals_torch_s_own():
    config = dataclasses.replace(preset("vaswani-base"), attn_bias=True)  # torch has biases in all or in none
    with torch.device("meta"):
        theirs = nn.Transformer(config.d_model, config.n_heads, 6, 6, config.d_ff, batch_first=True)
    parts = breakdown(config)
    # torch adds a norm behind each stack, which the paper's post-norm blocks do not need
    assert size(theirs) == total(config) - parts["embed"] + 2 * 2 * config.d_model
    for part, pattern in {"attention": "self_attn", "cross_attention": "multihead_attn", "mlp": "linear"}.items():
        assert parts[part] == sum(p.numel() for name, p in theirs.named_parameters() if pattern in name)
    without = breakdown(preset("vaswani-base"))
    assert parts["attention"] - without["attention"] == 12 * 4 * 512
    assert parts["cross_attention"] - without["cross_attention"] == 6 * 4 * 512


def test_a_token_of_mixtral_meets_two_experts_of_eight():
    config = preset("mixtral-8x7b")
    assert active(config) == record("mixtral-8x7b")["n_active"]
    # the same sum from Hugging Face's tensors: all of it, less six eighths of every tensor that holds experts
    theirs = hugging_face(config)
    experts = sum(p.numel() for name, p in theirs.named_parameters() if "experts" in name)
    assert active(config) == size(theirs) - experts * 6 // 8
    assert (round(total(config) / 1e9, 1), round(active(config) / 1e9, 1)) == (46.7, 12.9)  # the paper's figures
    for name in presets():
        if preset(name).n_experts == 1:
            assert active(preset(name)) == total(preset(name))


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
        "n_experts": draw(st.integers(1, 3)),
    }
    return Config(**choices | fixed)


@st.composite
def any_configs(draw):
    """What `configs` draws, and what only some of our models have."""
    config = draw(configs())
    more = {"n_active_experts": draw(st.integers(1, config.n_experts)), "attn_bias": draw(st.none() | st.booleans())}
    if draw(st.booleans()):
        more |= {"n_encoder_layers": draw(st.integers(1, 3))}
        more |= {"positions": draw(st.sampled_from(["none", "sinusoidal"]))}
    else:
        more |= {"n_token_types": draw(st.integers(0, 3)), "embed_norm": draw(st.booleans())}
        more |= {"output": draw(st.sampled_from(["logits", "states", "pooled"])), "causal": draw(st.booleans())}
    return dataclasses.replace(config, **more)


@given(any_configs())
def test_any_configuration_equals_our_module(config):
    model = on_meta(config)
    assert total(config) == size(model)
    assert {part: n for part, n in breakdown(config).items() if n} == our_parts(model)
    idle = config.n_experts - config.n_active_experts
    stacks = [getattr(model, name) for name in ("blocks", "encoder", "decoder") if hasattr(model, name)]
    experts = [block.mlp.experts[0] for stack in stacks for block in stack] if config.n_experts > 1 else []
    assert active(config) == total(config) - idle * sum(map(size, experts))


def built(config: Config) -> nn.ModuleDict:
    """The same model from torch's own layers, on the meta device."""
    d, kv = config.d_model, config.n_kv_heads * (config.d_model // config.n_heads)

    def linear(d_in, d_out):
        return nn.Linear(d_in, d_out, bias=config.bias)

    def norm():
        return nn.LayerNorm(d) if config.norm == "layer" else nn.RMSNorm(d)

    def experts(d_in, d_out):
        return nn.ModuleList([linear(d_in, d_out) for _ in range(config.n_experts)])

    def block():
        wide = ["gate", "up"] if config.mlp == "swiglu" else ["up"]
        return nn.ModuleDict(
            {"attn_norm": norm(), "mlp_norm": norm()}
            | {"query": linear(d, d), "key": linear(d, kv), "value": linear(d, kv), "out": linear(d, d)}
            | ({"router": nn.Linear(d, config.n_experts, bias=False)} if config.n_experts > 1 else {})
            | {name: experts(d, config.d_ff) for name in wide}
            | {"down": experts(config.d_ff, d)}
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
    of_parts = {"attention": attention, "mlp": mlp, "norms": ("attn_norm", "mlp_norm"), "router": ("router",)}
    for part, names in of_parts.items():
        assert parts[part] == sum(size(block[name]) for block in model["blocks"] for name in names if name in block)


@given(configs())
def test_the_parts_add_up(config):
    assert total(config) == sum(breakdown(config).values())
    parts = breakdown(config)
    block = sum(block_breakdown(config).values())
    assert parts["attention"] + parts["router"] + parts["mlp"] + parts["norms"] == config.n_layers * block
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
        gates = config.n_experts * (d * config.d_ff + config.bias * config.d_ff)
        assert given_to(mlp="gelu") == config.n_layers * gates
    if config.bias:
        wide = 1 + (config.mlp == "swiglu")
        a_block = 2 * d + 2 * config.n_kv_heads * config.d_head + config.n_experts * (d + wide * config.d_ff)
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


@pytest.mark.parametrize("count", [estimate, block_breakdown, breakdown, total, active])
@pytest.mark.parametrize("given", ["gpt2-small", None, {"n_layers": 2}, Config], ids=repr)
def test_what_is_no_config_is_refused(count, given):
    with pytest.raises(TypeError, match=rf"takes a Config, not {type(given).__name__}.*preset"):
        count(given)
