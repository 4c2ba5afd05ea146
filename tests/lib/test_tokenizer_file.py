"""Tokenizer files: Hugging Face reads ours, we read theirs, anything else is refused by name."""

import json
import os
from pathlib import Path

import pytest
from tokenizers import Tokenizer as HuggingFace
from tokenizers import decoders, models, pre_tokenizers, trainers

from plainformer.pieces import SPLITS
from plainformer.tokenizer_file import BYTE_ORDER, from_visible, visible
from plainformer.tokens import Tokenizer

BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
HF_SPLITS = {
    "gpt2": BYTE_LEVEL,
    "single-digits": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTE_LEVEL]),
}


def hf_trained(text: str, n_vocab: int, split: str = "gpt2") -> HuggingFace:
    """The independent implementation with the same settings."""
    tokenizer = HuggingFace(models.BPE())
    tokenizer.pre_tokenizer = HF_SPLITS[split]
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=n_vocab, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


ENGLISH = (
    "The fund pays it. The funds paid what they'd pay: 1,024 coins, then 20 more!\n\n\tWho's paying? We'll pay, "
    "they've paid; it isn't   paid yet.\r\n  (See page 307, table 12.)  The bank of the river isn't a bank.\n"
)
UNICODE = (
    "Zażółć gęślą jaźń — naïve café, 東京は夜の七時 №４２ ½ ², नमस्ते दुनिया 🙂🙂 👩\u200d👩\u200d👧 "
    "\u00a0\u2003x\u0301 שלום  مرحبا\u200b"
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(ENGLISH + UNICODE, 400)


def test_visible_characters_are_hugging_face_s_and_give_the_bytes_back():
    assert {visible(bytes([byte])) for byte in range(256)} == set(pre_tokenizers.ByteLevel.alphabet())
    assert all(from_visible(visible(bytes([byte]))) == bytes([byte]) for byte in range(256))
    # the order of the first 256 ids: by visible character
    assert [visible(bytes([byte])) for byte in BYTE_ORDER] == sorted(pre_tokenizers.ByteLevel.alphabet())


@pytest.mark.parametrize("split", SPLITS)
def test_saved_file_is_read_back_by_us_and_by_hugging_face(split, tmp_path):
    ours = Tokenizer.train(ENGLISH + UNICODE, 390, split=split)
    ours.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (again.vocabulary, again.merges, again.split) == (ours.vocabulary, ours.merges, split)
    theirs = HuggingFace.from_file(str(tmp_path / "tokenizer.json"))
    for text in (ENGLISH, UNICODE):
        assert ours.encode(text) == again.encode(text) == theirs.encode(text).ids
        assert theirs.decode(theirs.encode(text).ids) == text


@pytest.mark.parametrize("split", SPLITS)
def test_we_read_hugging_face_s_file(split, tmp_path):
    theirs = hf_trained(ENGLISH + UNICODE, 390, split)
    theirs.save(str(tmp_path / "theirs.json"))
    ours = Tokenizer.load(str(tmp_path / "theirs.json"))  # a path may be a string
    assert ours.split == split
    for text in (ENGLISH, UNICODE):
        assert ours.encode(text) == theirs.encode(text).ids


def test_any_order_of_the_vocabulary_survives_a_round_trip(tmp_path):
    vocabulary = [b"th", *(bytes([byte]) for byte in reversed(range(256))), b"the"]
    ids = {entry: i for i, entry in enumerate(vocabulary)}
    odd = Tokenizer(vocabulary, [(ids[b"t"], ids[b"h"]), (ids[b"th"], ids[b"e"])])
    assert odd.encode("the th") == [ids[b"the"], ids[b" "], ids[b"th"]]
    odd.save(tmp_path / "odd.json")
    assert Tokenizer.load(tmp_path / "odd.json").vocabulary == vocabulary


@pytest.mark.parametrize("failing", ["write_text", "write half", "replace"])
def test_a_failed_save_leaves_the_old_file(failing, tmp_path, tokenizer, monkeypatch):
    target = tmp_path / "tokenizer.json"
    Tokenizer.train("old old", 258).save(target)
    before = target.read_bytes()

    def no_space(*args, **kwargs):
        raise OSError("no space left on device")

    def half(self, data, *args, **kwargs):
        with open(self, "w", encoding="utf-8") as file:
            file.write(data[: len(data) // 2])
        raise OSError("no space left on device")

    if failing == "replace":
        monkeypatch.setattr(os, "replace", no_space)
        monkeypatch.setattr(Path, "replace", no_space)
    else:
        monkeypatch.setattr(Path, "write_text", half if failing == "write half" else no_space)
    with pytest.raises(OSError, match="no space"):
        tokenizer.save(target)
    monkeypatch.undo()
    assert target.read_bytes() == before
    tokenizer.save(target)  # and what the failure left behind is not in the way of the next one
    assert Tokenizer.load(target).vocabulary == tokenizer.vocabulary
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]


def _hf_json(change) -> str:
    content = json.loads(hf_trained("old old", 258).to_str())
    change(content)
    return json.dumps(content)


WRONG_FILES = {
    "no JSON": "a,b\n1,2\n",
    "empty": "",
    "bytes": b"\x89PNG\r\n\xff\xfe",
    "a list": "[1, 2, 3]",
    "a word": '"tokenizer"',
    "no model": _hf_json(lambda c: c.pop("model")),
    "WordPiece": _hf_json(lambda c: c["model"].update(type="WordPiece")),
    "no pre-tokenizer": _hf_json(lambda c: c.update(pre_tokenizer=None)),
    "split at white space": _hf_json(lambda c: c.update(pre_tokenizer={"type": "Whitespace"})),
    "a gap in the ids": _hf_json(lambda c: c["model"]["vocab"].update(zz=9999)),
    "a merge of nothing": _hf_json(lambda c: c["model"]["merges"].append(["qq", "rr"])),
    "a merge of three": _hf_json(lambda c: c["model"]["merges"].append(["o", "l", "d"])),
    "an entry of no byte": _hf_json(lambda c: c["model"]["vocab"].update({"東": 258})),
    "not all bytes": _hf_json(lambda c: c["model"].update(vocab={"a": 0}, merges=[])),
    # files that Hugging Face would read, and that would encode otherwise here
    "a space put in front": _hf_json(lambda c: c["pre_tokenizer"].update(add_prefix_space=True)),
    "no split at all": _hf_json(lambda c: c["pre_tokenizer"].update(use_regex=False)),
    "digits in runs": _hf_json(
        lambda c: c.update(
            pre_tokenizer={
                "type": "Sequence",
                "pretokenizers": [{"type": "Digits", "individual_digits": False}, c["pre_tokenizer"]],
            }
        )
    ),
    "a normalizer": _hf_json(lambda c: c.update(normalizer={"type": "Lowercase"})),
}


@pytest.mark.parametrize("kind", WRONG_FILES)
def test_a_file_of_another_kind_is_refused_by_name(kind, tmp_path):
    path = tmp_path / "strange.json"
    content = WRONG_FILES[kind]
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    with pytest.raises(ValueError, match="byte-level"):
        Tokenizer.load(path)


def test_merges_written_as_one_string_are_read_or_refused_with_the_file_s_name(tmp_path):
    path = tmp_path / "older.json"  # files of 2023 and before write "Ġ t" in place of ["Ġ", "t"]
    path.write_text(
        _hf_json(lambda c: c["model"].update(merges=[" ".join(pair) for pair in c["model"]["merges"]])), "utf-8"
    )
    try:
        tokenizer = Tokenizer.load(path)
    except ValueError as error:
        assert "older.json" in str(error)
    else:
        assert tokenizer.encode("old old") == hf_trained("old old", 258).encode("old old").ids
