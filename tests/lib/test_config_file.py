"""What a file says of its model becomes the right Config, and whatever it says beyond that is known or refused."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import save_file

from plainformer.checkpoints import Checkpoint, CheckpointError, Stored
from plainformer.config import Config, preset
from plainformer.config_file import family_of_file, family_of_preset, read_config, table_of

SHARED = {"vocab_size": 23, "bos_token_id": None}
LLAMA = SHARED | {"hidden_size": 48, "intermediate_size": 19, "num_hidden_layers": 2, "num_attention_heads": 8}
LLAMA |= {"num_key_value_heads": 4, "max_position_embeddings": 13, "rms_norm_eps": 0.05}
LLAMA |= {"rope_parameters": {"rope_type": "default", "rope_theta": 77.0}}
GPT2 = SHARED | {"n_positions": 13, "n_embd": 48, "n_layer": 2, "n_head": 8, "n_inner": 19, "layer_norm_epsilon": 0.05}
BERT = LLAMA | {"layer_norm_eps": 0.05, "type_vocab_size": 9}
for name in ("num_key_value_heads", "rms_norm_eps", "rope_parameters"):
    BERT = {key: value for key, value in BERT.items() if key != name}
SIZES = {"n_vocab": 23, "d_model": 48, "n_heads": 8, "n_kv_heads": 4, "n_context": 13, "d_ff": 19, "n_layers": 2}
SIZES |= {"norm_eps": 0.05}
# their config, the preset whose choices it has, and what differs from it
FAMILIES = {
    "gpt2": (transformers.GPT2Config(**GPT2), "gpt2-small", {"n_kv_heads": 8}),
    "gpt2 with relu, untied": (
        transformers.GPT2Config(**GPT2, activation_function="relu", tie_word_embeddings=False),
        "gpt2-small",
        {"n_kv_heads": 8, "mlp": "relu", "tied": False},
    ),
    "llama": (transformers.LlamaConfig(**LLAMA), "llama-2-7b", {"rope_base": 77.0}),
    "llama, tied": (
        transformers.LlamaConfig(**LLAMA, tie_word_embeddings=True),
        "smollm2-135m",
        {"rope_base": 77.0},
    ),
    "mistral": (transformers.MistralConfig(**LLAMA, sliding_window=3), "mistral-7b", {"rope_base": 77.0, "window": 3}),
    "mistral without window": (
        transformers.MistralConfig(**LLAMA, sliding_window=None),
        "mistral-7b",
        {"rope_base": 77.0, "window": None},
    ),
    "mixtral": (
        transformers.MixtralConfig(**LLAMA, num_local_experts=7, num_experts_per_tok=3),
        "mixtral-8x7b",
        {"rope_base": 77.0, "n_experts": 7, "n_active_experts": 3},
    ),
    "bert": (transformers.BertConfig(**BERT), "bert-base", {"n_kv_heads": 8, "n_token_types": 9}),
    "bert with tanh": (
        transformers.BertConfig(**BERT, hidden_act="gelu_new"),
        "bert-base",
        {"n_kv_heads": 8, "n_token_types": 9, "mlp": "gelu_tanh"},
    ),
}


def folder_of(folder: Path, config: transformers.PretrainedConfig, **change) -> Path:
    config.save_pretrained(folder)
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    content = {key: value for key, value in (content | change).items() if value != "gone"}
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    save_file({"x": torch.zeros(1)}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("name", FAMILIES)
def test_hugging_face_s_own_config_is_read(name, tmp_path):
    theirs, like, change = FAMILIES[name]
    assert read_config(folder_of(tmp_path, theirs)) == dataclasses.replace(preset(like), **SIZES | change)


# The older form: rope_theta at the top, n_inner left out, fields of training beside those of the model.
OLDER = {
    "gpt2-small": {
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
        "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
        "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": None, "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True, "summary_type": "cls_index", "summary_use_proj": True,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}, "vocab_size": 50257,
    },
    "bert-base": {
        "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "gradient_checkpointing": False,
        "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02,
        "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
        "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0, "position_embedding_type": "absolute",
        "transformers_version": "4.6.0.dev0", "type_vocab_size": 2, "use_cache": True, "vocab_size": 30522,
    },
    "mixtral-8x7b": {
        "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
        "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
        "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32,
        "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
        "output_router_logits": False, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02,
        "sliding_window": None, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "transformers_version": "4.36.0.dev0", "use_cache": True, "vocab_size": 32000,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", OLDER)
def test_a_config_in_the_older_form_gives_the_preset(name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(OLDER[name]), encoding="utf-8")
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert read_config(tmp_path) == preset(name)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("llama", {"hidden_size": "gone"}, "the field hidden_size is missing"),
        ("llama", {"max_position_embeddings": None}, "the field max_position_embeddings is missing"),
        ("gpt2", {"n_head": "gone"}, "the field n_head is missing"),
        ("gpt2", {"n_inner": "gone", "n_embd": "gone"}, "the field n_embd is missing"),
        ("llama", {"qk_norm": True}, "qk_norm=True is a field that this library does not know"),
        ("llama", {"rope_scaling": {"factor": 8.0}}, r"rope_scaling\.factor=8\.0 is a field"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "llama3"}},
            "rope_type='llama3' is not supported; expected 'default'",
        ),
        ("llama", {"attention_bias": True}, "attention_bias=True is not supported; expected False"),
        ("llama", {"rope_theta": 78.0}, r"rope_theta=77\.0 contradicts rope_theta=78\.0"),
        ("llama", {"hidden_act": "gelu"}, r"hidden_act='gelu'; expected one of \['silu'\]"),
        ("llama", {"hidden_act": ["silu"]}, "hidden_act="),
        ("llama", {"head_dim": 12}, "says d_head=12, expected 6"),
        ("llama", {"hidden_size": 49}, "make no model.*d_model=49 does not divide"),
        ("llama", {"hidden_size": "48"}, "make no model.*d_model='48' must be an int"),
        ("llama", {"num_hidden_layers": 0}, "make no model.*n_layers=0"),
        (
            "bert",
            {"position_embedding_type": "relative_key"},
            "position_embedding_type='relative_key' is not supported",
        ),
        ("bert", {"is_decoder": True}, "is_decoder=True is not supported"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "is not supported; expected False"),
        ("llama", {"model_type": "qwen3"}, "model_type='qwen3' is of no family here"),
        ("llama", {"model_type": "gone"}, "model_type=None is of no family here"),
    ],
)
def test_a_field_that_is_missing_unknown_or_wrong_is_refused(name, change, message, tmp_path):
    folder = folder_of(tmp_path, FAMILIES[name][0], **change)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_config(folder)
    assert str(folder) in str(caught.value)


def test_fields_that_may_be_absent_mean_what_the_format_says(tmp_path):
    read = read_config(folder_of(tmp_path, FAMILIES["gpt2"][0], n_inner=None, tie_word_embeddings="gone"))
    assert read.d_ff == 4 * 48 and read.tied
    absent = dict.fromkeys(["num_key_value_heads", "tie_word_embeddings", "rope_parameters", "head_dim"], "gone")
    read = read_config(folder_of(tmp_path, FAMILIES["llama"][0], **absent))
    assert (read.n_kv_heads, read.tied, read.rope_base) == (8, False, 10_000)


GGUF = {
    "GGUF.version": 3, "general.architecture": "llama", "general.name": "x", "tokenizer.ggml.model": "gpt2",
    "llama.vocab_size": 23, "llama.context_length": 13, "llama.embedding_length": 48, "llama.block_count": 2,
    "llama.attention.head_count": 8, "llama.attention.head_count_kv": 4, "llama.rope.dimension_count": 6,
    "llama.feed_forward_length": 19, "llama.attention.layer_norm_rms_epsilon": 0.05, "llama.rope.freq_base": 77.0,
}  # fmt: skip


def gguf_of(*tensors: str, **change) -> Checkpoint:
    fields = {key: value for key, value in (GGUF | change).items() if value is not None}
    return Checkpoint(Path("a.gguf"), "gguf", fields, {name: Stored((1,), lambda: None) for name in tensors})


def test_gguf_s_metadata_are_read():
    expected = Config(**SIZES, rope_base=77.0, tied=True)
    assert read_config(gguf_of()) == expected
    assert read_config(gguf_of("output.weight")) == dataclasses.replace(expected, tied=False)
    absent = {"llama.attention.head_count_kv": None, "llama.rope.freq_base": None, "llama.rope.dimension_count": None}
    assert read_config(gguf_of(**absent)) == dataclasses.replace(expected, n_kv_heads=8, rope_base=10_000.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"llama.block_count": None}, "llama.block_count is missing"),
        ({"llama.expert_count": 8}, "llama.expert_count=8 is a field that this library does not know"),
        ({"llama.rope.scaling.factor": 4.0}, "llama.rope.scaling.factor"),
        ({"llama.rope.dimension_count": 3}, "says d_head=3, expected 6"),
        ({"general.architecture": "qwen2"}, "general.architecture='qwen2' is of no family"),
    ],
)
def test_gguf_s_metadata_are_checked(change, message):
    with pytest.raises(CheckpointError, match=rf"a\.gguf: .*{message}"):
        read_config(gguf_of(**change))


def test_families_and_their_tables():
    assert family_of_preset("smollm2-135m") == "llama" and family_of_preset("mixtral-8x7b") == "mistral"
    assert family_of_file(gguf_of()) == "llama"
    assert table_of("gpt2", "safetensors")["names"]
    with pytest.raises(ValueError, match=r"family='vaswani' has no table for safetensors.*'bert'.*'gpt2'"):
        table_of("vaswani", "safetensors")
    with pytest.raises(ValueError, match=r"family='bert' has no table for gguf files; expected one of \['llama'\]"):
        table_of("bert", "gguf")
