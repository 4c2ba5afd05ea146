"""From text to rows: byte-level byte-pair encoding, and the table that gives each id its row.

Byte-pair encoding: Sennrich et al. 2016; on bytes, with GPT-2's split into pieces: Radford et al. 2019.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import nn

from plainformer.shapes import Float, Int

# Merges never cross a piece: a contraction's tail, or one run of letters, of digits or of other signs, each with
# the one space before it, or a run of white space. Written on stand-ins (see _StandIns), hence plain ASCII.
_COMMON = r"'(?:[sdmt]|ll|ve|re)| ?[A-Za-z]+|{number}| ?[^\sA-Za-z0-9]+|\s+(?!{next})|\s+"
SPLITS = {
    "gpt2": re.compile(_COMMON.format(number=" ?[0-9]+", next=r"\S"), re.ASCII),
    "single-digits": re.compile(_COMMON.format(number="[0-9]", next=r"[^\s0-9]"), re.ASCII),
}


class _StandIns(dict):
    """ASCII stands for itself, any other character for its class: a letter A, a number 0, a space, or another sign."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kind = unicodedata.category(character)[0]
        stand_in = {"L": "A", "N": "0"}.get(kind, "\n" if character.isspace() else "!")
        self[code] = character if code < 128 else stand_in
        return self[code]


_STAND_INS = _StandIns()

# Every byte has a visible character in files of this kind: printable bytes stand for themselves, the other 68 for
# the characters from number 256 on. The same order numbers the first 256 entries of a vocabulary.
_PRINTABLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
_HIDDEN = [byte for byte in range(256) if byte not in _PRINTABLE]
_VISIBLE = {byte: chr(byte) for byte in _PRINTABLE} | {byte: chr(256 + n) for n, byte in enumerate(_HIDDEN)}
_BYTE = {character: byte for byte, character in _VISIBLE.items()}
BYTE_ORDER = [*_PRINTABLE, *_HIDDEN]


class Tokenizer:
    """A vocabulary of byte strings and the merges that build them from single bytes.

    ``vocabulary[i]`` are the bytes of id i. ``merges`` are pairs of ids, in the order in which they were learned.
    ``decode_bytes(encode(data)) == data`` for any bytes, text or not, that the vocabulary has (a trained one has all).
    """

    def __init__(self, vocabulary: Sequence[bytes], merges: Sequence[tuple[int, int]], *, split: str = "gpt2"):
        if split not in SPLITS:
            raise ValueError(f"split={split!r} is not known; expected one of {tuple(SPLITS)}.")
        self.vocabulary = list(vocabulary)
        self.merges = [tuple(pair) for pair in merges]
        self.split = split
        id_of = {piece: i for i, piece in enumerate(self.vocabulary)}
        self._byte_id = {byte: id_of[bytes([byte])] for byte in range(256) if bytes([byte]) in id_of}
        if len(self._byte_id) < 128:  # a real vocabulary may lack a few bytes that its text never held
            raise ValueError(
                f"a byte-level vocabulary holds the single bytes, this one only {len(self._byte_id)} of 256. "
                "Usual cause: the vocabulary of a tokenizer of another kind."
            )
        self._rank: dict[tuple[int, int], tuple[int, int]] = {}
        for rank, (left, right) in enumerate(self.merges):
            merged = self.vocabulary[left] + self.vocabulary[right]
            if merged not in id_of:
                raise ValueError(f"merge {rank} builds {merged!r}, which is not in the vocabulary.")
            self._rank[left, right] = (rank, id_of[merged])
        self._seen: dict[bytes, list[int]] = {}

    @property
    def n_vocab(self) -> int:
        """Entries of the vocabulary; ids run from 0 to n_vocab - 1."""
        return len(self.vocabulary)

    @classmethod
    def train(cls, text: str | bytes, n_vocab: int, *, split: str = "gpt2") -> Tokenizer:
        """Learns ``n_vocab - 256`` merges: again and again the commonest pair of
        neighbours becomes one entry; of equally common pairs, the one with smaller ids.

        Stops early, with a smaller vocabulary, when no pair is left.
        Raises ``ValueError`` for an empty text or fewer than 256 entries.
        """
        if n_vocab < 256:
            raise ValueError(f"{n_vocab=} is too small: the 256 single bytes come first.")
        if not text:
            raise ValueError("there is nothing to learn from an empty text.")
        vocabulary = [bytes([byte]) for byte in BYTE_ORDER]
        id_of_byte = {byte: i for i, byte in enumerate(BYTE_ORDER)}
        counts = Counter(split_into_pieces(text, split))
        pieces = [[id_of_byte[byte] for byte in piece] for piece in counts]
        times = list(counts.values())

        pairs: Counter[tuple[int, int]] = Counter()
        where: defaultdict[tuple[int, int], set[int]] = defaultdict(set)  # its pieces
        for n, ids in enumerate(pieces):
            for pair in itertools.pairwise(ids):
                pairs[pair] += times[n]
                where[pair].add(n)

        merges = []
        while len(vocabulary) < n_vocab and pairs:
            best = min(pairs, key=lambda pair: (-pairs[pair], pair))
            new = len(vocabulary)
            merges.append(best)
            vocabulary.append(vocabulary[best[0]] + vocabulary[best[1]])
            for n in where.pop(best):  # nothing changes but the pieces that hold the pair
                for pair in itertools.pairwise(pieces[n]):
                    pairs[pair] -= times[n]
                    if not pairs[pair]:
                        del pairs[pair]
                pieces[n] = merge(pieces[n], best, new)
                for pair in itertools.pairwise(pieces[n]):
                    pairs[pair] += times[n]
                    where[pair].add(n)
        return cls(vocabulary, merges, split=split)

    def encode(self, data: str | bytes) -> list[int]:
        """Ids of a text (as UTF-8) or of any bytes, of one sequence; an empty input gives an empty list."""
        ids = []
        for piece in split_into_pieces(data, self.split):
            if piece not in self._seen:
                self._seen[piece] = self._encode_piece(piece)
            ids.extend(self._seen[piece])
        return ids

    def _encode_piece(self, piece: bytes) -> list[int]:
        """Single bytes, then the earliest-learned merge that applies, until none does."""
        try:
            ids = [self._byte_id[byte] for byte in piece]
        except KeyError as error:
            raise ValueError(f"byte {error.args[0]:#04x} has no entry in this vocabulary.") from None
        while len(ids) > 1:
            pair = min(itertools.pairwise(ids), key=lambda pair: self._rank.get(pair, (len(self._rank), 0)))
            if pair not in self._rank:
                break
            ids = merge(ids, pair, self._rank[pair][1])
        return ids

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of the ids, one after the other. Raises ``ValueError`` for an id outside the vocabulary."""
        return b"".join(self.vocabulary[self._checked(i)] for i in ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids. Raises ``ValueError`` where their bytes are not UTF-8 text."""
        data = self.decode_bytes(ids)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"the ids stand for {len(data)} bytes that are not UTF-8 text (byte {error.start}: {error.reason}). "
                "Usual cause: a list of ids cut in the middle of a character. decode_bytes gives the bytes themselves."
            ) from None

    def _checked(self, i: int) -> int:
        if isinstance(i, torch.Tensor):
            i = i.item()
        if isinstance(i, bool) or not isinstance(i, int):
            raise TypeError(f"an id is an int, got {i!r} of type {type(i).__name__}.")
        if not 0 <= i < self.n_vocab:
            raise ValueError(
                f"id {i} is outside the vocabulary, whose ids run from 0 to {self.n_vocab - 1}. "
                "Usual cause: ids made by another tokenizer."
            )
        return i

    def save(self, path: str | Path) -> None:
        """Writes a ``tokenizer.json`` that Hugging Face's ``tokenizers`` reads too; whole or not at all."""
        piece = [visible(entry) for entry in self.vocabulary]
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        splitter = byte_level
        if self.split == "single-digits":
            digits = {"type": "Digits", "individual_digits": True}
            splitter = {"type": "Sequence", "pretokenizers": [digits, byte_level]}
        model = {
            "type": "BPE",
            "vocab": {name: i for i, name in enumerate(piece)},
            "merges": [[piece[left], piece[right]] for left, right in self.merges],
        }
        content = {"version": "1.0", "pre_tokenizer": splitter, "decoder": byte_level, "model": model}
        path = Path(path)
        unfinished = path.with_name(path.name + ".unfinished")
        unfinished.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        os.replace(unfinished, path)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Reads what `save` wrote. Raises ``ValueError`` for a file of another kind."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            model, splitter = content["model"], content["pre_tokenizer"]
            if model["type"] != "BPE":
                raise KeyError(f"a model of type {model['type']}")
            kinds = [part["type"] for part in splitter.get("pretokenizers", [splitter])]
            split = {("ByteLevel",): "gpt2", ("Digits", "ByteLevel"): "single-digits"}[tuple(kinds)]
            names = sorted(model["vocab"], key=model["vocab"].get)
            if [model["vocab"][name] for name in names] != list(range(len(names))):
                raise KeyError("ids that do not run from 0 without a gap")
            merges = [(model["vocab"][left], model["vocab"][right]) for left, right in model["merges"]]
            vocabulary = [from_visible(name) for name in names]
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{path} is no byte-level BPE tokenizer.json ({type(error).__name__}: {error}). "
                "Expected a file that Tokenizer.save wrote."
            ) from error
        return cls(vocabulary, merges, split=split)


def merge(ids: Sequence[int], pair: tuple[int, int], new: int) -> list[int]:
    """The ids with each occurrence of the pair, from the left, replaced by the new id."""
    merged, n = [], 0
    while n < len(ids):
        if tuple(ids[n : n + 2]) == tuple(pair):
            merged.append(new)
            n += 2
        else:
            merged.append(ids[n])
            n += 1
    return merged


def split_into_pieces(data: str | bytes, split: str = "gpt2") -> list[bytes]:
    """The pieces that merges never cross; joined, they are the input."""
    if isinstance(data, str):
        try:
            data.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"character {error.start} of the text is half of a surrogate pair, which UTF-8 cannot hold. "
                "Usual cause: bytes decoded with errors='surrogateescape'. Pass the bytes themselves."
            ) from None
        text = data
    elif isinstance(data, bytes | bytearray):
        text = bytes(data).decode("utf-8", "surrogateescape")  # a stray byte becomes one sign, and a byte again below
    else:
        raise TypeError(f"a tokenizer reads str or bytes, got {type(data).__name__}.")
    stand_ins = text.translate(_STAND_INS)
    return [text[m.start() : m.end()].encode("utf-8", "surrogateescape") for m in SPLITS[split].finditer(stand_ins)]


def visible(entry: bytes) -> str:
    """An entry as vocabulary files print it: a space is Ġ, a newline Ċ."""
    return "".join(_VISIBLE[byte] for byte in entry)


def from_visible(name: str) -> bytes:
    """The bytes of an entry as vocabulary files print it. Raises ``KeyError`` for a character of no byte."""
    return bytes(_BYTE[character] for character in name)


class Embedding(nn.Module):
    """A table with one row an entry: id i selects row i, and nothing is computed.

    Raises ``ValueError`` or ``TypeError`` for ids without a row, of another type, or none.
    """

    def __init__(self, n_vocab: int, d_model: int):
        super().__init__()
        if n_vocab < 1 or d_model < 1:
            raise ValueError(f"a table needs rows and columns, got {n_vocab} × {d_model}.")
        self.weight = nn.Parameter(torch.empty(n_vocab, d_model))
        nn.init.normal_(self.weight, std=0.02)  # as GPT-2 starts; then it is learned

    def forward(self, ids: Int["... position"]) -> Float["... position d_model"]:
        _check_ids(ids, n_vocab=self.weight.shape[0])
        return self.weight[ids]


def _check_ids(ids: torch.Tensor, n_vocab: int) -> None:
    if ids.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"ids select rows, so they are int32 or int64, got {ids.dtype}.")
    if ids.numel() == 0:
        raise ValueError(f"an empty sequence has no rows to look up; ids have shape {tuple(ids.shape)}.")
    if not ids.is_meta and not 0 <= int(ids.min()) <= int(ids.max()) < n_vocab:
        raise ValueError(
            f"ids must lie in 0 … {n_vocab - 1}, got {int(ids.min())} … {int(ids.max())}. "
            "Usual cause: a tokenizer with a larger vocabulary than the table."
        )
