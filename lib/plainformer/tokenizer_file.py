"""A tokenizer as a file: the ``tokenizer.json`` of Hugging Face's ``tokenizers``, byte-level BPE only."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

# Every byte has a visible character in files of this kind: printable bytes stand for themselves, the other 68 for
# the characters from number 256 on. The same order numbers the first 256 entries of a vocabulary.
_PRINTABLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
_HIDDEN = [byte for byte in range(256) if byte not in _PRINTABLE]
_VISIBLE = {byte: chr(byte) for byte in _PRINTABLE} | {byte: chr(256 + n) for n, byte in enumerate(_HIDDEN)}
_BYTE = {character: byte for byte, character in _VISIBLE.items()}
BYTE_ORDER = [*_PRINTABLE, *_HIDDEN]


def visible(entry: bytes) -> str:
    """An entry as vocabulary files print it: a space is Ġ, a newline Ċ."""
    return "".join(_VISIBLE[byte] for byte in entry)


def from_visible(name: str) -> bytes:
    """The bytes of an entry as vocabulary files print it. Raises ``KeyError`` for a character of no byte."""
    return bytes(_BYTE[character] for character in name)


def write(path: Path, vocabulary: Sequence[bytes], merges: Sequence[tuple[int, int]], split: str) -> None:
    """Writes the file whole or not at all."""
    names = [visible(entry) for entry in vocabulary]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    splitter = byte_level
    if split == "single-digits":
        digits = {"type": "Digits", "individual_digits": True}
        splitter = {"type": "Sequence", "pretokenizers": [digits, byte_level]}
    model = {
        "type": "BPE",
        "vocab": {name: i for i, name in enumerate(names)},
        "merges": [[names[left], names[right]] for left, right in merges],
    }
    content = {"version": "1.0", "pre_tokenizer": splitter, "decoder": byte_level, "model": model}
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        unfinished.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def read(path: Path) -> tuple[list[bytes], list[tuple[int, int]], str]:
    """Vocabulary, merges and rule of the cut. Raises ``ValueError`` for a file of another kind."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        model = content["model"]
        if model["type"] != "BPE" or content.get("normalizer"):
            raise KeyError(f"a {model['type']} model with the normalizer {content.get('normalizer')}")
        split = _split_of(content["pre_tokenizer"])
        id_of = model["vocab"]
        names = sorted(id_of, key=id_of.get)
        if [id_of[name] for name in names] != list(range(len(names))):
            raise KeyError("ids that do not run from 0 without a gap")
        # older files write a merge as one string
        pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
        merges = [(id_of[left], id_of[right]) for left, right in pairs]
        return [from_visible(name) for name in names], merges, split
    except (KeyError, TypeError, AttributeError, ValueError) as error:  # JSON's and UTF-8's errors among them
        raise ValueError(
            f"{path} is no byte-level BPE tokenizer.json ({type(error).__name__}: {error}). "
            "Expected a file that Tokenizer.save wrote."
        ) from error


def _split_of(splitter: dict) -> str:
    """The rule that a file's ``pre_tokenizer`` names. Raises ``KeyError`` for one that would cut differently."""
    *before, byte_level = splitter.get("pretokenizers", [splitter])
    plain = byte_level["type"] == "ByteLevel" and byte_level.get("use_regex", True)
    digits = [(part["type"], part.get("individual_digits", False)) for part in before]
    if not plain or byte_level.get("add_prefix_space", True) or digits not in ([], [("Digits", True)]):
        raise KeyError(f"the pre-tokenizer {splitter}")
    return "single-digits" if digits else "gpt2"
