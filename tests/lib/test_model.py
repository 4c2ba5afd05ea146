"""Whole models against Hugging Face's and torch's, with the same weights; and what holds for any weights.

Every size differs from every other, biases are not zero and norms not one, and weights are large (`fill` in
conftest.py), so that a swapped axis or a forgotten part changes the numbers.
"""

import dataclasses
import itertools

import pytest
import torch
import transformers
from torch import nn
from transformers.models.llama import modeling_llama
from transformers.models.mistral import modeling_mistral
from transformers.models.mixtral import modeling_mixtral

from plainformer.attention import attention, fast_attention
from plainformer.config import Config, preset
from plainformer.model import EncoderDecoder, Transformer
from plainformer.positions import sinusoids

transformers.logging.set_verbosity_error()
BOTH = [attention, fast_attention]
BATCH, LENGTH = 5, 11
SIZES = {"n_vocab": 23, "d_model": 48, "n_heads": 8, "n_kv_heads": 4, "n_context": 13, "d_ff": 19, "n_layers": 2}
MIXTURE = {"n_experts": 7, "n_active_experts": 3}
LENGTHS = [11, 4, 1, 10, 7]


def test_the_sizes_of_these_tests_are_all_different():
    numbers = [*SIZES.values(), *MIXTURE.values(), SIZES["d_model"] // SIZES["n_heads"], BATCH, LENGTH]
    assert len(numbers) == len({*numbers})


def config_of(family: str, **change) -> Config:
    """A tiny model of a family: its choices are the preset's, only the sizes are small and epsilon is visible."""
    of = {"gpt2": "gpt2-small", "llama": "llama-3-8b", "mistral": "mistral-7b", "mixtral": "mixtral-8x7b"}
    of |= {"bert": "bert-base", "vaswani": "vaswani-base"}
    sizes = SIZES | ({"n_kv_heads": SIZES["n_heads"]} if family in ("gpt2", "bert", "vaswani") else {})
    sizes |= {"mixtral": MIXTURE, "mistral": {"window": 3}, "bert": {"n_token_types": 9}}.get(family, {})
    sizes |= {"vaswani": {"n_encoder_layers": 3}}.get(family, {})
    return dataclasses.replace(preset(of[family]), **sizes | {"norm_eps": 0.05} | change)


def draw_ids(*shape, seed=1, n_vocab=SIZES["n_vocab"]) -> torch.Tensor:
    return torch.randint(n_vocab, shape or (BATCH, LENGTH), generator=torch.Generator().manual_seed(seed))


# --- Hugging Face ----------------------------------------------------------------------------------------------------

# Their name of each of our tensors; {} is the layer. A second word is what is done to ours on the way.
LLAMA = {
    "embed.weight": "model.embed_tokens.weight",
    "blocks.{}.attn_norm.weight": "model.layers.{}.input_layernorm.weight",
    "blocks.{}.attn.query.weight": "model.layers.{}.self_attn.q_proj.weight",
    "blocks.{}.attn.key.weight": "model.layers.{}.self_attn.k_proj.weight",
    "blocks.{}.attn.value.weight": "model.layers.{}.self_attn.v_proj.weight",
    "blocks.{}.attn.out.weight": "model.layers.{}.self_attn.o_proj.weight",
    "blocks.{}.mlp_norm.weight": "model.layers.{}.post_attention_layernorm.weight",
    "blocks.{}.mlp.gate.weight": "model.layers.{}.mlp.gate_proj.weight",
    "blocks.{}.mlp.up.weight": "model.layers.{}.mlp.up_proj.weight",
    "blocks.{}.mlp.down.weight": "model.layers.{}.mlp.down_proj.weight",
    "final_norm.weight": "model.norm.weight",
    "unembed.weight": "lm_head.weight",
}
BERT = {
    "embed.weight": "embeddings.word_embeddings.weight",
    "positions.weight": "embeddings.position_embeddings.weight",
    "token_types.weight": "embeddings.token_type_embeddings.weight",
    "embed_norm.*": "embeddings.LayerNorm.*",
    "blocks.{}.attn.query.*": "encoder.layer.{}.attention.self.query.*",
    "blocks.{}.attn.key.*": "encoder.layer.{}.attention.self.key.*",
    "blocks.{}.attn.value.*": "encoder.layer.{}.attention.self.value.*",
    "blocks.{}.attn.out.*": "encoder.layer.{}.attention.output.dense.*",
    "blocks.{}.attn_norm.*": "encoder.layer.{}.attention.output.LayerNorm.*",
    "blocks.{}.mlp.up.*": "encoder.layer.{}.intermediate.dense.*",
    "blocks.{}.mlp.down.*": "encoder.layer.{}.output.dense.*",
    "blocks.{}.mlp_norm.*": "encoder.layer.{}.output.LayerNorm.*",
    "pool.*": "pooler.dense.*",
}


def their_tensors(family: str, ours: dict[str, torch.Tensor], n_layers: int) -> dict[str, torch.Tensor]:
    if family == "gpt2":
        return gpt2_tensors(ours, n_layers)
    theirs, left = {}, dict(ours)
    if family == "mixtral":
        for n in range(n_layers):
            block, layer = f"blocks.{n}.mlp.", f"model.layers.{n}.mlp."
            theirs[layer + "gate.weight"] = left.pop(block + "router.weight")
            gate, up, down = (
                torch.stack([left.pop(f"{block}experts.{e}.{name}.weight") for e in range(MIXTURE["n_experts"])])
                for name in ("gate", "up", "down")
            )
            theirs |= {layer + "experts.gate_up_proj": torch.cat([gate, up], 1), layer + "experts.down_proj": down}
    for name, other in (BERT if family == "bert" else LLAMA).items():
        for n in range(n_layers if "{}" in name else 1):
            for kind in ("weight", "bias") if "*" in name else ("",):
                mine = name.format(n).replace("*", kind)
                if mine in left:
                    theirs[other.format(n).replace("*", kind)] = left.pop(mine)
    if "lm_head.weight" not in theirs and family != "bert":  # tied
        theirs["lm_head.weight"] = ours["embed.weight"]
    assert not left, f"no name of theirs for {list(left)}"
    return theirs


def gpt2_tensors(ours: dict[str, torch.Tensor], n_layers: int) -> dict[str, torch.Tensor]:
    """Their linear layers keep weights transposed, and query, key and value side by side."""
    theirs = {"transformer.wte.weight": ours["embed.weight"], "lm_head.weight": ours["embed.weight"]}
    theirs["transformer.wpe.weight"] = ours["positions.weight"]
    for kind, n in itertools.product(("weight", "bias"), range(n_layers)):
        block, layer = f"blocks.{n}.", f"transformer.h.{n}."
        qkv = torch.cat([ours[f"{block}attn.{name}.{kind}"] for name in ("query", "key", "value")])
        theirs[f"{layer}ln_1.{kind}"] = ours[f"{block}attn_norm.{kind}"]
        theirs[f"{layer}attn.c_attn.{kind}"] = qkv.T if kind == "weight" else qkv
        theirs[f"{layer}ln_2.{kind}"] = ours[f"{block}mlp_norm.{kind}"]
        for name, other in {"attn.out": "attn.c_proj", "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"}.items():
            tensor = ours[f"{block}{name}.{kind}"]
            theirs[f"{layer}{other}.{kind}"] = tensor.T if kind == "weight" else tensor
    return theirs | {f"transformer.ln_f.{kind}": ours[f"final_norm.{kind}"] for kind in ("weight", "bias")}


def hugging_face(family: str, config: Config, ours: Transformer) -> nn.Module:
    """Their model of the same sizes with our weights; loading is strict, so that no tensor is left out."""
    sizes = {
        "vocab_size": config.n_vocab,
        "max_position_embeddings": config.n_context,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "tie_word_embeddings": config.tied,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
        "attn_implementation": "eager",
    }
    rotary = {"num_key_value_heads": config.n_kv_heads, "rms_norm_eps": config.norm_eps}
    rotary |= {"rope_parameters": {"rope_type": "default", "rope_theta": config.rope_base}}
    epsilon, no_dropout = config.norm_eps, {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    build, more = {
        "gpt2": (transformers.GPT2LMHeadModel, {"n_inner": config.d_ff, "layer_norm_epsilon": epsilon} | no_dropout),
        "llama": (transformers.LlamaForCausalLM, rotary),
        "mistral": (transformers.MistralForCausalLM, rotary | {"sliding_window": config.window}),
        "mixtral": (
            transformers.MixtralForCausalLM,
            rotary
            | {"num_local_experts": config.n_experts, "num_experts_per_tok": config.n_active_experts}
            | {"experts_implementation": "eager"},  # their other ones know no float64
        ),
        "bert": (transformers.BertModel, {"type_vocab_size": config.n_token_types, "layer_norm_eps": epsilon}),
    }[family]
    kind = {"gpt2": transformers.GPT2Config, "bert": transformers.BertConfig}.get(family, build.config_class)
    model = build(kind(**sizes, **more)).to(ours.embed.weight.dtype)
    model.load_state_dict(their_tensors(family, ours.state_dict(), config.n_layers), strict=True)
    return model.eval()


class _DoubleTorch:
    """Torch, but what it calls float32 is float64."""

    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def cast_nothing(monkeypatch) -> None:
    """Their norms, rotary angles, softmax and router compute in float32 whatever the model's type is.

    Compared in float64 they would differ from ours by float32's rounding. Here the same code runs, with float32
    read as float64: their formulas, without the casts.
    """
    for module in (modeling_llama, modeling_mistral, modeling_mixtral):
        monkeypatch.setattr(module, "torch", _DoubleTorch())
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


@pytest.fixture
def nothing_cast_to_float32(monkeypatch):
    cast_nothing(monkeypatch)


FAMILIES = ["gpt2", "llama", "mistral", "mixtral", "bert"]


def both_outputs(family, dtype, attend, fill, *, lengths=None, **change) -> list[tuple[torch.Tensor, torch.Tensor]]:
    config = config_of(family, **change)
    ours = fill(Transformer(config, attend=attend).to(dtype))
    ids = draw_ids()
    real = torch.arange(LENGTH) < torch.tensor(lengths or [LENGTH] * BATCH)[:, None]
    given = {"attention_mask": real.long()} if lengths else {}
    how = {"lengths": lengths} if lengths else {}
    if family == "bert":
        how["token_types"] = given["token_type_ids"] = draw_ids(seed=3, n_vocab=config.n_token_types)
    with torch.no_grad():
        theirs = hugging_face(family, config, ours)(ids, **given)
        if family == "bert":
            states = ours.states(ids, **how)
            return [(states[real], theirs.last_hidden_state[real]), (ours(ids, **how), theirs.pooler_output)]
        return [(ours(ids, **how)[real], theirs.logits[real])]


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "padded"])
@pytest.mark.parametrize("attend", BOTH)
@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_equal_hugging_face_in_float64(family, attend, lengths, fill, nothing_cast_to_float32):
    for ours, theirs in both_outputs(family, torch.float64, attend, fill, lengths=lengths):
        assert ours.dtype == theirs.dtype == torch.float64
        assert ours.std() > 0.1 and (ours - theirs).abs().max() < 1e-9


@pytest.mark.parametrize("attend", BOTH)
@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_equal_hugging_face_in_float32(family, attend, fill, monkeypatch):
    """Within 1e-5 of the largest logit, and no further from the exact numbers than their own float32 is, times ten."""
    single = both_outputs(family, torch.float32, attend, fill, lengths=LENGTHS)
    cast_nothing(monkeypatch)
    double = both_outputs(family, torch.float64, attend, fill, lengths=LENGTHS)
    for (ours, theirs), (_, exact) in zip(single, double):
        assert ours.dtype == torch.float32
        scale = exact.abs().max()
        assert (ours - theirs).abs().max() < 1e-5 * scale
        assert (ours - exact).abs().max() < 10 * max((theirs - exact).abs().max(), 1e-6 * scale)


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("gpt2", {"n_layers": 3}),
        ("llama", {"tied": True}),
        ("llama", {"n_kv_heads": 1}),
        ("llama", {"n_kv_heads": 8, "rope_base": 100.0}),
        ("mistral", {"window": 1}),
        ("mistral", {"window": LENGTH - 1}),
        ("mistral", {"window": LENGTH}),
        ("mistral", {"window": LENGTH + 1}),
        ("mixtral", {"n_active_experts": 1}),
        ("mixtral", {"n_active_experts": 7}),
        ("bert", {"output": "states"}),
    ],
    ids=str,
)
def test_variants_equal_hugging_face(family, change, fill, nothing_cast_to_float32):
    if change.get("output") == "states":  # their model with its pooler left out
        config = config_of(family, **change)
        ours = fill(Transformer(config).double())
        pooled = fill(Transformer(dataclasses.replace(config, output="pooled")).double())
        pooled.load_state_dict(ours.state_dict(), strict=False)
        theirs = hugging_face(family, dataclasses.replace(config, output="pooled"), pooled)
        assert (ours(draw_ids()) - theirs(draw_ids()).last_hidden_state).abs().max() < 1e-9
        return
    for attend in BOTH:
        [(ours, theirs)] = both_outputs(family, torch.float64, attend, fill, **change)
        assert (ours - theirs).abs().max() < 1e-9


# --- the model of 2017 -----------------------------------------------------------------------------------------------


def torch_transformer(config: Config, ours: EncoderDecoder) -> nn.Transformer:
    """torch's own, without the norm behind each stack that the paper does not have; our weights in it."""
    pre = config.norm_placement == "pre"
    how = dict(dim_feedforward=config.d_ff, dropout=0.0, activation="relu", layer_norm_eps=config.norm_eps)
    how |= dict(batch_first=True, norm_first=pre, dtype=torch.float64)
    norms = [nn.LayerNorm(config.d_model, config.norm_eps, dtype=torch.float64) for _ in "12"] if pre else [None, None]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(config.d_model, config.n_heads, **how),
        config.n_encoder_layers,
        norm=norms[0],
        enable_nested_tensor=False,
    )
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(config.d_model, config.n_heads, **how), config.n_layers, norm=norms[1]
    )
    theirs = nn.Transformer(
        config.d_model, config.n_heads, custom_encoder=encoder, custom_decoder=decoder, batch_first=True
    )
    state, mine = {}, ours.state_dict()
    for kind in ("weight", "bias"):
        for stack, n_blocks in {"encoder": config.n_encoder_layers, "decoder": config.n_layers}.items():
            crossing = {"cross": "multihead_attn"} if stack == "decoder" else {}
            order = ["attn_norm", *(f"{name}_norm" for name in crossing), "mlp_norm"]
            for n in range(n_blocks):
                block, layer = f"{stack}.{n}.", f"{stack}.layers.{n}."
                for name, other in {"attn": "self_attn", **crossing}.items():
                    qkv = [mine[f"{block}{name}.{part}.{kind}"] for part in ("query", "key", "value")]
                    state[f"{layer}{other}.in_proj_{kind}"] = torch.cat(qkv)
                    state[f"{layer}{other}.out_proj.{kind}"] = mine[f"{block}{name}.out.{kind}"]
                for place, name in enumerate(order, start=1):
                    state[f"{layer}norm{place}.{kind}"] = mine[f"{block}{name}.{kind}"]
                state[f"{layer}linear1.{kind}"] = mine[f"{block}mlp.up.{kind}"]
                state[f"{layer}linear2.{kind}"] = mine[f"{block}mlp.down.{kind}"]
        if pre:
            state |= {f"encoder.norm.{kind}": mine[f"encoder_norm.{kind}"]}
            state |= {f"decoder.norm.{kind}": mine[f"final_norm.{kind}"]}
    theirs.load_state_dict(state, strict=True)
    return theirs.eval()


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "padded"])
@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("attend", BOTH)
def test_the_2017_model_equals_torch_transformer(attend, tied, placement, lengths, fill):
    # torch has biases in all projections or in none, so attention gets them too here; the paper's has none
    config = config_of("vaswani", attn_bias=True, tied=tied, norm_placement=placement)
    ours = fill(EncoderDecoder(config, attend=attend).double())
    source, target = draw_ids(BATCH, LENGTH), draw_ids(BATCH, 9, seed=2)
    table = ours.embed.weight

    def rows(ids):
        features = torch.arange(config.d_model, dtype=torch.float64)
        angles = torch.arange(ids.shape[1], dtype=torch.float64)[:, None] / 10_000 ** ((features // 2) * 2 / 48)
        return table[ids] * 48**0.5 + torch.where(features % 2 == 0, angles.sin(), angles.cos())

    hidden = torch.arange(LENGTH) >= torch.tensor(lengths or [LENGTH] * BATCH)[:, None]  # theirs: True is hidden
    with torch.no_grad():
        theirs = torch_transformer(config, ours)
        states = theirs(
            rows(source),
            rows(target),
            tgt_mask=torch.ones(9, 9, dtype=torch.bool).triu(1),
            src_key_padding_mask=hidden if lengths else None,
            memory_key_padding_mask=hidden if lengths else None,
        )
        unembed = table if tied else ours.unembed.weight
        logits = ours(source, target, lengths=lengths)
    assert logits.std() > 0.1 and (logits - states @ unembed.T).abs().max() < 1e-9


def test_encoder_decoder_sees_the_whole_source_and_the_target_s_past(fill):
    ours = fill(EncoderDecoder(config_of("vaswani")).double())
    source, target = draw_ids(BATCH, LENGTH), draw_ids(BATCH, 9, seed=2)
    logits = ours(source, target)
    for t in range(9):
        changed = target.clone()
        changed[:, t] = (changed[:, t] + 1) % SIZES["n_vocab"]
        moved = (ours(source, changed) - logits).abs().amax((0, 2))
        assert (moved[:t] == 0).all() and moved[t] > 1e-6
    changed = source.clone()
    changed[:, -1] = (changed[:, -1] + 1) % SIZES["n_vocab"]
    assert ((ours(changed, target) - logits).abs().amax((0, 2)) > 1e-6).all()
    assert ((ours.encode(changed) - ours.encode(source)).abs().amax((0, 2)) > 1e-6).all()


@pytest.mark.parametrize("attend", BOTH)
def test_encoder_decoder_does_not_see_filler(attend, fill):
    ours = fill(EncoderDecoder(config_of("vaswani"), attend=attend).double())
    source, target = draw_ids(BATCH, LENGTH), draw_ids(BATCH, 9, seed=2)
    logits = ours(source, target, lengths=LENGTHS)
    for b, length in enumerate(LENGTHS):
        alone = ours(source[b : b + 1, :length], target[b : b + 1])
        torch.testing.assert_close(alone[0], logits[b], rtol=0, atol=1e-12)


# --- what holds for any weights --------------------------------------------------------------------------------------

VARIANTS = {
    "gpt2": config_of("gpt2"),
    "llama": config_of("llama"),
    "multi-query, even-odd": config_of("llama", n_kv_heads=1, pairing="even-odd"),
    "mistral": config_of("mistral"),
    "mixtral": config_of("mixtral"),
    "sinusoidal, post-norm": config_of("llama", positions="sinusoidal", norm_placement="post", embed_norm=True),
    "no positions, ReLU": config_of("gpt2", positions="none", mlp="relu", window=4, embed_scale=True),
    "token types, states": config_of("gpt2", n_token_types=9, output="states"),
}


@pytest.mark.parametrize("attend", BOTH)
@pytest.mark.parametrize("name", VARIANTS)
def test_a_later_token_changes_no_earlier_output(name, attend, fill):
    model, ids = fill(Transformer(VARIANTS[name], attend=attend).double()), draw_ids()
    before = model(ids)
    for t in range(LENGTH):
        changed = ids.clone()
        changed[:, t] = (changed[:, t] + 1) % SIZES["n_vocab"]
        moved = (model(changed) - before).abs().amax((0, 2))
        # not exactly 0: which tokens share an expert's product, and so the order of its sums, may change
        assert (moved[:t] < 1e-13).all() and moved[t] > 1e-6


@pytest.mark.parametrize("attend", BOTH)
@pytest.mark.parametrize("window", [1, 2, 3, 5, 6])
def test_a_window_reaches_window_less_one_further_with_each_layer(window, attend, fill):
    for n_layers in (1, 2):
        config = config_of("mistral", window=window, n_layers=n_layers)
        model, ids = fill(Transformer(config, attend=attend).double()), draw_ids()
        changed = ids.clone()
        changed[:, 0] = (changed[:, 0] + 1) % SIZES["n_vocab"]
        moved = (model(changed) - model(ids)).abs().amax((0, 2))
        reach = n_layers * (window - 1)
        assert (moved[: reach + 1] > 1e-9).all() and (moved[reach + 1 :] == 0).all()


@pytest.mark.parametrize("attend", BOTH)
def test_an_encoder_s_every_position_sees_every_token(attend, fill):
    model, ids = fill(Transformer(config_of("bert", output="states"), attend=attend).double()), draw_ids()
    for t in (0, 5, LENGTH - 1):
        changed = ids.clone()
        changed[:, t] = (changed[:, t] + 1) % SIZES["n_vocab"]
        assert ((model(changed) - model(ids)).abs().amax((0, 2)) > 1e-9).all()


@pytest.mark.parametrize("attend", BOTH)
@pytest.mark.parametrize("name", [*VARIANTS, "bert"])
def test_filler_changes_nothing(name, attend, fill):
    """Each row of a padded batch gives what it gives alone, whatever stands behind its end, even past the context."""
    config = VARIANTS[name] if name in VARIANTS else config_of("bert", output="states")
    model, ids = fill(Transformer(config, attend=attend).double()), draw_ids()
    padded = torch.cat([ids, draw_ids(BATCH, 6, seed=5)], 1)  # 17 columns, the context is 13
    outputs = model(padded, lengths=LENGTHS)
    last = model(padded, lengths=LENGTHS, last_only=True)
    for b, length in enumerate(LENGTHS):
        alone = model(ids[b : b + 1, :length])[0]
        torch.testing.assert_close(outputs[b, :length], alone, rtol=0, atol=1e-12)
        torch.testing.assert_close(last[b], alone[-1:], rtol=0, atol=1e-12)


def test_the_pooled_position_is_the_first(fill):
    model, ids = fill(Transformer(config_of("bert")).double()), draw_ids()
    states = model.states(ids, lengths=LENGTHS)
    wanted = torch.tanh(states[:, 0] @ model.pool.weight.T + model.pool.bias)
    assert model(ids, lengths=LENGTHS).shape == (BATCH, SIZES["d_model"])
    torch.testing.assert_close(model(ids, lengths=LENGTHS), wanted)
    torch.testing.assert_close(model(ids, lengths=LENGTHS, last_only=True), wanted)


@pytest.mark.parametrize("name", VARIANTS)
def test_last_only_is_the_last_row(name, fill):
    model, ids = fill(Transformer(VARIANTS[name]).double()), draw_ids()
    whole, last = model(ids), model(ids, last_only=True)
    assert last.shape == (BATCH, 1, whole.shape[-1])
    torch.testing.assert_close(last, whole[:, -1:])


def test_token_types_are_added_and_default_to_the_first(fill):
    model, ids = fill(Transformer(config_of("bert", output="states")).double()), draw_ids()
    assert torch.equal(model(ids), model(ids, token_types=torch.zeros_like(ids)))
    assert not torch.allclose(model(ids), model(ids, token_types=torch.ones_like(ids)))


@pytest.mark.parametrize("name", [name for name in VARIANTS if VARIANTS[name].norm_placement == "pre"])
def test_the_stream_is_the_embedding_and_the_sum_of_what_was_added(name, fill):
    """Pre-norm: what the final norm reads is the first row plus every attention's and every MLP's result."""
    model, updates, seen = fill(Transformer(VARIANTS[name]).double()), [], []
    model.blocks[0].register_forward_pre_hook(lambda module, inputs: updates.append(inputs[0]))
    for block in model.blocks:
        for sublayer in (block.attn, block.mlp):
            sublayer.register_forward_hook(lambda module, inputs, output: updates.append(output))
    model.final_norm.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model(draw_ids())
    assert len(updates) == 1 + 2 * len(model.blocks)
    torch.testing.assert_close(sum(updates), seen[0], rtol=0, atol=1e-12)


def test_tied_means_one_table():
    tied, untied = (Transformer(config_of("llama", tied=tied)).double() for tied in (True, False))
    assert {*dict(untied.named_parameters())} - {*dict(tied.named_parameters())} == {"unembed.weight"}
    x = torch.randn(3, 48, dtype=torch.float64)
    torch.testing.assert_close(tied.logits(x), x @ tied.embed.weight.T)
    torch.testing.assert_close(untied.logits(x), x @ untied.unembed.weight.T)
    assert not torch.allclose(untied.unembed.weight, untied.embed.weight)
    ids = draw_ids()
    torch.testing.assert_close(tied(ids), tied.logits(tied.states(ids)))


@pytest.mark.parametrize("name", [*VARIANTS, "bert"])
def test_the_attention_passed_in_is_the_one_used(name):
    config, calls = VARIANTS.get(name, config_of("bert")), []

    def counted(*args, **kwargs):
        calls.append(1)
        return attention(*args, **kwargs)

    Transformer(config, attend=counted)(draw_ids())
    assert len(calls) == config.n_layers
    if name == "gpt2":
        calls.clear()
        EncoderDecoder(config_of("vaswani"), attend=counted)(draw_ids(), draw_ids())
        assert len(calls) == 3 + 2 * 2


@pytest.mark.parametrize("attend", BOTH)
@pytest.mark.parametrize("name", VARIANTS)
def test_gradients_reach_every_parameter(name, attend, fill):
    model = fill(Transformer(VARIANTS[name], attend=attend).double())
    model(draw_ids()).square().sum().backward()
    # a table's row that no id chose, or an expert that no token chose, has none; each tensor as a whole does
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", VARIANTS)
def test_outputs_have_the_weights_type(name, dtype):
    assert Transformer(VARIANTS[name]).to(dtype)(draw_ids()).dtype == dtype


def test_nothing_is_mutated(fill):
    model = fill(Transformer(config_of("bert")))
    ids, types, lengths = draw_ids(), draw_ids(seed=3, n_vocab=9), list(LENGTHS)
    copies = ids.clone(), types.clone(), list(lengths)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model(ids, token_types=types, lengths=lengths)
    assert torch.equal(ids, copies[0]) and torch.equal(types, copies[1]) and lengths == copies[2]
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


def test_sinusoids_are_no_parameters():
    model = Transformer(config_of("llama", positions="sinusoidal"))
    assert {*model.state_dict()} == {*Transformer(config_of("llama", positions="none")).state_dict()}
    assert sinusoids(SIZES["n_context"], SIZES["d_model"]).shape == (13, 48)


# --- bad input -------------------------------------------------------------------------------------------------------

IDS = torch.zeros(BATCH, LENGTH, dtype=torch.int64)
REFUSED = {  # family, ids, further arguments; error; what the message names
    "one axis": ("llama", IDS[0], {}, ValueError, ["(11,)", "(batch, position)", "batch of 1"]),
    "three axes": ("llama", IDS[None], {}, ValueError, ["(1, 5, 11)"]),
    "no position": ("llama", IDS[:, :0], {}, ValueError, ["(5, 0)", "empty"]),
    "floats": ("llama", IDS.float(), {}, TypeError, ["torch.float32", "int64"]),
    "id too large": ("llama", IDS + 23, {}, ValueError, ["0 … 22", "23"]),
    "negative id": ("llama", IDS - 1, {}, ValueError, ["0 … 22", "-1"]),
    "longer than the context": ("llama", torch.zeros(2, 14).long(), {}, ValueError, ["14", "n_context=13"]),
    "learned positions too": ("gpt2", torch.zeros(2, 14).long(), {}, ValueError, ["14", "n_context=13"]),
    "too few lengths": ("llama", IDS, {"lengths": [3, 4]}, ValueError, ["5 numbers", "[3, 4]"]),
    "length of 0": ("llama", IDS, {"lengths": [3, 4, 0, 1, 2]}, ValueError, ["1 … 11", "[3, 4, 0, 1, 2]"]),
    "length too large": ("bert", IDS, {"lengths": [12] * 5}, ValueError, ["1 … 11", "12"]),
    "half a token": ("llama", IDS, {"lengths": [2.5] * 5}, TypeError, ["float"]),
    "types of none": ("llama", IDS, {"token_types": IDS}, ValueError, ["n_token_types=0"]),
    "types of another shape": ("bert", IDS, {"token_types": IDS[:1]}, ValueError, ["(5, 11)", "(1, 11)"]),
    "type too large": ("bert", IDS, {"token_types": IDS + 9}, ValueError, ["0 … 8", "9"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused(case):
    family, ids, how, error, names = REFUSED[case]
    with pytest.raises(error) as caught:
        Transformer(config_of(family))(ids, **how)
    assert all(name in str(caught.value) for name in names), str(caught.value)


def test_each_family_has_its_class():
    with pytest.raises(ValueError, match=r"n_encoder_layers=3.*EncoderDecoder"):
        Transformer(config_of("vaswani"))
    with pytest.raises(ValueError, match=r"n_encoder_layers=0.*Transformer"):
        EncoderDecoder(config_of("gpt2"))


@pytest.mark.parametrize(
    ("source", "target", "error", "names"),
    [
        (IDS[0], IDS, ValueError, ["(11,)"]),
        (IDS, IDS[0], ValueError, ["(11,)"]),
        (IDS + 23, IDS, ValueError, ["0 … 22"]),
        (IDS, IDS + 23, ValueError, ["0 … 22"]),
        (torch.zeros(5, 14).long(), IDS, ValueError, ["14", "n_context=13"]),
        (IDS, torch.zeros(5, 14).long(), ValueError, ["14", "n_context=13"]),
        (IDS, IDS[:2], ValueError, ["leading axes"]),
    ],
    ids=["source's axes", "target's axes", "source's id", "target's id", "long source", "long target", "batches"],
)
def test_encoder_decoder_refuses_bad_input(source, target, error, names):
    with pytest.raises(error) as caught:
        EncoderDecoder(config_of("vaswani"))(source, target)
    assert all(name in str(caught.value) for name in names), str(caught.value)
