"""From text to rows: byte-level byte-pair encoding, and the table that gives each id its row.

Byte-pair encoding: Sennrich et al. 2016; on bytes, with GPT-2's split into pieces: Radford et al. 2019.
"""

from __future__ import annotations

import itertools
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import nn

from plainformer import tokenizer_file
from plainformer.pieces import check_split, split_into_pieces
from plainformer.shapes import Float, Int
from plainformer.tokenizer_file import BYTE_ORDER

_N_REMEMBERED = 100_000  # pieces whose ids a tokenizer keeps: words repeat


class Tokenizer:
    """A vocabulary of byte strings and the merges that build them from single bytes.

    ``vocabulary[i]`` are the bytes of id i. ``merges`` are pairs of ids, in the order in which they were learned.
    ``decode_bytes(encode(data)) == data`` for any bytes, text or not, that the vocabulary has (a trained one has all).
    """

    def __init__(self, vocabulary: Sequence[bytes], merges: Sequence[tuple[int, int]], *, split: str = "gpt2"):
        check_split(split)
        self.vocabulary = list(vocabulary)
        self.merges = [tuple(pair) for pair in merges]
        self.split = split
        id_of = {piece: i for i, piece in enumerate(self.vocabulary)}
        if len(id_of) != len(self.vocabulary):
            twice = next(piece for i, piece in enumerate(self.vocabulary) if id_of[piece] != i)
            raise ValueError(f"{twice!r} stands in the vocabulary twice; every id needs an entry of its own.")
        self._byte_id = {byte: id_of[bytes([byte])] for byte in range(256) if bytes([byte]) in id_of}
        if len(self._byte_id) < 128:  # a real vocabulary may lack a few bytes that its text never held
            raise ValueError(
                f"a byte-level vocabulary holds the single bytes, this one only {len(self._byte_id)} of 256. "
                "Usual cause: the vocabulary of a tokenizer of another kind."
            )
        self._rank: dict[tuple[int, int], tuple[int, int]] = {}
        for rank, (left, right) in enumerate(self.merges):
            if not (0 <= left < self.n_vocab and 0 <= right < self.n_vocab):
                raise ValueError(f"merge {rank} joins ids {left} and {right}; ids run from 0 to {self.n_vocab - 1}.")
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
        if isinstance(n_vocab, bool) or not isinstance(n_vocab, int):
            raise TypeError(f"{n_vocab=} must be an int.")
        if n_vocab < 256:
            raise ValueError(f"{n_vocab=} is too small: the 256 single bytes come first.")
        counts = Counter(split_into_pieces(text, split))
        if not counts:
            raise ValueError("there is nothing to learn from an empty text.")
        vocabulary = [bytes([byte]) for byte in BYTE_ORDER]
        id_of_byte = {byte: i for i, byte in enumerate(BYTE_ORDER)}
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
                if len(self._seen) == _N_REMEMBERED:
                    self._seen.clear()
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
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
            kind = type(ids).__name__
            raise TypeError(f"an id is an int, got a sequence of another kind: {kind}. To read text, call encode.")
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
        if isinstance(i, bool) or getattr(i, "shape", ()) != () or not hasattr(i, "__index__"):
            raise TypeError(f"an id is an int, got {i!r} of type {type(i).__name__}; decode takes one sequence.")
        i = operator.index(i)
        if not 0 <= i < self.n_vocab:
            raise ValueError(
                f"id {i} is outside the vocabulary, whose ids run from 0 to {self.n_vocab - 1}. "
                "Usual cause: ids made by another tokenizer."
            )
        return i

    def save(self, path: str | Path) -> None:
        """Writes a ``tokenizer.json`` that Hugging Face's ``tokenizers`` reads too; whole or not at all."""
        tokenizer_file.write(Path(path), self.vocabulary, self.merges, self.split)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Reads what `save` wrote. Raises ``ValueError`` for a file of another kind."""
        vocabulary, merges, split = tokenizer_file.read(Path(path))
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


class Embedding(nn.Module):
    """A table with one row an entry: id i selects row i, and nothing is computed.

    Raises ``ValueError`` or ``TypeError`` for ids without a row, of another type, or none.
    """

    def __init__(self, n_vocab: int, d_model: int):
        super().__init__()
        if not (isinstance(n_vocab, int) and isinstance(d_model, int) and n_vocab > 0 and d_model > 0):
            raise ValueError(f"a table needs rows and columns, got {n_vocab} × {d_model}.")
        self.weight = nn.Parameter(torch.empty(n_vocab, d_model))
        nn.init.normal_(self.weight, std=0.02)  # as GPT-2 starts; then it is learned

    def forward(self, ids: Int["... position"]) -> Float["... position d_model"]:
        _check_ids(ids, n_vocab=self.weight.shape[0])
        return self.weight[ids]


def _check_ids(ids: torch.Tensor, n_vocab: int) -> None:
    if not isinstance(ids, torch.Tensor):
        raise TypeError(f"ids must be a tensor, got {type(ids).__name__}: write torch.tensor(ids).")
    if ids.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"ids select rows, so they are int32 or int64, got {ids.dtype}.")
    if ids.numel() == 0:
        raise ValueError(f"an empty sequence has no rows to look up; ids have shape {tuple(ids.shape)}.")
    if not ids.is_meta and not 0 <= int(ids.min()) <= int(ids.max()) < n_vocab:
        raise ValueError(
            f"ids must lie in 0 … {n_vocab - 1}, got {int(ids.min())} … {int(ids.max())}. "
            "Usual causes: a tokenizer with a larger vocabulary than the table; filler such as -1 or -100."
        )
