"""What is right in exercise 1, and the wrong answers that its checks know by name.

Sizes come from `plainformer`; byte-pair encoding in several spellings stands in `tokens_answers`.
The checks use `CATALOGUE` for diagnosis, and the tests hand each of its answers to the grader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache

from classroom import terms
from classroom.checks import tokens_answers as bpe
from classroom.checks.tokens_answers import OTHER, TEXT
from plainformer.pieces import split_into_pieces
from plainformer.tokens import Embedding, Tokenizer, merge

GREEK = "Η φύλακας μετράει τα πλοία."  # problem 1
# problem 2: a text; words and how often each occurs; merges of the vocabulary whose last id is asked for; sizes of
# another one and of its table; tokens whose rows are read
WRITTEN, _WORDS, _, N_MADE, N_VOCAB, N_SPECIAL, D_MODEL, N_READ = terms.numbers("tokens")
WORDS = dict(_WORDS)
TOUCHED = "the result is right, but a list that was handed in has changed: work on a copy"

# problem 6: merges of h e, t h, i n and th in; ids 256 to 259
FEW = [(104, 101), (116, 104), (105, 110), (257, 258)]

# problem 7
N_MERGES = (0, 50, 100, 200, 300)
MODELS = {"small": {"d_model": 64, "n_weights": 5_000}, "large": {"d_model": 256, "n_weights": 6_291_456}}


# ---- problems 1 and 2 ----

N_GREEK = len(Tokenizer.train(TEXT, 256 + N_MERGES[-1]).encode(GREEK))
N_MADE_OF = N_VOCAB - 256 - N_SPECIAL  # merges in a vocabulary of this size
TABLE = Embedding(N_VOCAB, 1).weight.numel() * D_MODEL
_PIECES = [word.encode() for word, times in WORDS.items() for _ in range(times)]


def _spelled(merges: list) -> list[str]:
    return [entry.decode() for entry in bpe.entries(merges)[256:]]


LEARNED = _spelled(bpe.trained(_PIECES, 3))


# ---- problem 7 ----


def _lengths(merges: list, pieces: list[bytes]) -> dict[int, int]:
    """Tokens of these pieces by size of the vocabulary."""
    return {256 + n: sum(len(bpe.encoded(piece, merges[:n])) for piece in pieces) for n in N_MERGES}


@cache
def lengths_by(whose: str) -> dict[int, int]:
    """Tokens of `OTHER` with merges learned from `TEXT`: by bytes as ids, or by the library's order of bytes."""
    if whose == "library":
        return {256 + n: len(Tokenizer.train(TEXT, 256 + n).encode(OTHER)) for n in N_MERGES}
    return _lengths(bpe.trained(split_into_pieces(TEXT), N_MERGES[-1]), split_into_pieces(OTHER))


def flops(n_tokens: int, n_vocab: int, d_model: int, n_weights: int) -> int:
    return 2 * n_tokens * (n_weights + n_vocab * d_model)


def cheapest(lengths: dict[int, int], model: dict[str, int]) -> int:
    return min(lengths, key=lambda n_vocab: flops(lengths[n_vocab], n_vocab, **model))


BEST = {name: cheapest(lengths_by("bytes"), model) for name, model in MODELS.items()}


# ---- the slips ----


def _train(**slip) -> dict[str, Callable]:
    return {"train": lambda pieces, n_merges: bpe.trained(pieces, n_merges, **slip)}


def _encode(function: Callable[[bytes, list], list[int]]) -> dict[str, Callable]:
    return {"encode": lambda data, merges: function(data, merges)}


def _encoded_from(start: Callable[[bytes], list[int]]) -> dict[str, Callable]:
    def encode(data: bytes, merges: list) -> list[int]:
        ids = start(data)
        for rank, pair in enumerate(merges):
            ids = merge(ids, pair, 256 + rank)
        return ids

    return {"encode": encode}


def _spells(function: Callable[[list[int], list], bytes]) -> dict[str, Callable]:
    return {"decode_bytes": lambda ids, merges: function(ids, merges)}


def _says(function: Callable[[bytes], str]) -> dict[str, Callable]:
    return {"decode": lambda ids, merges: function(bpe.decoded(ids, merges))}


def _replace(function: Callable) -> dict[str, Callable]:
    return {"replace_pair": lambda ids, pair, new: function(ids, pair, new)}


def _count(function: Callable) -> dict[str, Callable]:
    return {"count_pairs": lambda sequences: function(sequences)}


def _flops_as(value: Callable[[int, int, int, int], int]) -> dict[str, Callable]:
    return {"text_flops": lambda n_tokens, n_vocab, d_model, n_weights: value(n_tokens, n_vocab, d_model, n_weights)}


_OF_TEXT, _OF_OTHER = split_into_pieces(TEXT), split_into_pieces(OTHER)
_MERGES = bpe.trained(_OF_TEXT, N_MERGES[-1])
_FIRST_COUNT = [
    bytes(pair).decode() for pair, _ in sorted(bpe.count(_PIECES).items(), key=lambda one: (-one[1], one[0]))
]

# check → what the slip is → the answers it gives
CATALOGUE: dict[str, dict[str, dict]] = {
    "predict": {
        "every text but the empty one has a token": {"guess": 0.2},
        "a character takes at most four bytes, and a token is at least one": {"guess": 5 * len(GREEK)},
    },
    "utf8": {
        "these are characters; some take more than one byte": {"n_bytes": len(WRITTEN)},
        "the spaces are missing: each is a byte too": {"n_bytes": len(WRITTEN.replace(" ", "").encode())},
        "some characters take three or four bytes, not two": {
            "n_bytes": sum(1 if character.isascii() else 2 for character in WRITTEN),
        },
    },
    "learned": {
        "a tie goes to the pair with the earlier first symbol, not to the one that stands first in the words": {
            "learned": _spelled(bpe.trained(_PIECES, 3, ties="first")),
        },
        "count a word as often as it occurs": {"learned": _spelled(bpe.trained([w.encode() for w in WORDS], 3))},
        "a pair never reaches from one word into the next": {"learned": _spelled(bpe.trained([b"".join(_PIECES)], 3))},
        "count anew after each merge": {"learned": _FIRST_COUNT[:3]},
        "letters are earlier than merged symbols, and a is earlier than z": {
            "learned": _spelled(bpe.trained(_PIECES, 3, ties="larger")),
        },
    },
    "ids": {
        "ids begin with 0, so the last one is one less than the number of entries": {"last_id": 256 + N_MADE},
        "the 256 single bytes come first": {"last_id": N_MADE - 1},
        "the single bytes are entries, and no merge made them": {"n_merges": N_VOCAB - N_SPECIAL},
        "the special entries are made by no merge": {"n_merges": N_VOCAB - 256},
    },
    "table": {
        "these are bytes; the numbers are asked for": {"table": 2 * TABLE},
        "every entry has a row, the single bytes too": {"table": N_MADE_OF * D_MODEL},
        "this is one row": {"table": D_MODEL},
        "these are numbers; each takes two bytes": {"read": N_READ * D_MODEL},
        "a look-up reads its row and no other": {"read": 2 * TABLE},
        f"this is one token; there are {N_READ}": {"read": 2 * D_MODEL},
    },
    "count_pairs": {
        "a pair from the end of one sequence into the next is counted": _count(
            lambda s: bpe.count([[i for ids in s for i in ids]])
        ),
        "in 7 7 7 the pair (7, 7) stands at two places": _count(bpe.count_apart),
        "a sequence that is there twice counts twice": _count(lambda s: bpe.count({tuple(ids) for ids in s})),
        "(1, 2) and (2, 1) are two different pairs": _count(
            lambda s: dict(sum((Counter({tuple(sorted(pair)): n}) for pair, n in bpe.count(s).items()), Counter()))
        ),
        "the last pair of a sequence is not counted": _count(lambda s: bpe.count([ids[:-1] for ids in s])),
    },
    "replace_pair": {
        "an id is used twice: in 7 7 7 only one pair can be replaced": _replace(bpe.replace_overlapping),
        "go from left to right: 7 7 7 becomes new 7": _replace(bpe.replace_from_right),
        "the first place alone is replaced": _replace(bpe.replace_first),
        "the last id is lost": _replace(bpe.replace_without_the_last),
        "the pair is replaced the other way round too": _replace(
            lambda ids, pair, new: merge(merge(ids, pair, new), pair[::-1], new)
        ),
        TOUCHED: _replace(bpe.replace_in_place),
    },
    "learns": {
        "the first merge creates id 256, so that later pairs hold 256 and not 257": _train(first=257),
        "the first merge creates id 256; 255 is a byte": _train(first=255),
        "count anew after each merge": _train(recount=False),
        "a pair reaches from one piece into the next": _train(start=lambda pieces: [list(b"".join(pieces))]),
        "a piece that occurs five times counts five times": _train(
            start=lambda pieces: [list(piece) for piece in dict.fromkeys(pieces)]
        ),
        "a piece is cut into its characters; bytes are what is merged": _train(
            start=lambda pieces: [bpe.characters(piece) for piece in pieces]
        ),
        TOUCHED: {"train": bpe.trained_and_emptied},
    },
    "ties": {
        "a tie goes to the smaller ids; yours goes to the pair that comes first in the text": _train(ties="first"),
        "a tie goes to the smaller ids; yours goes to the pair that comes last in the text": _train(ties="last"),
        "a tie goes to the smaller ids; yours goes to the larger ones": _train(ties="larger"),
        "of equally common pairs compare the first ids, then the second": _train(ties="second"),
    },
    "exhausted": {
        "a pair that occurs once is merged too": _train(least=2),
        "n_merges=0 asks for none": {"train": bpe.trained_at_least_once},
        "stop when no pair is left: nothing fills the list up": {"train": bpe.trained_and_filled},
    },
    "encodes": {
        "merge number 0 creates id 256, not 257": _encode(lambda d, m: bpe.encoded(d, m, first=257)),
        "the merges' numbers stand there; add 256": _encode(lambda d, m: bpe.encoded(d, m, first=0)),
        "the data is cut into characters; begin with its bytes": _encoded_from(bpe.characters),
        "a merge replaces every place where its pair stands": _encode(bpe.encoded_once),
        "a merge may join what other merges have made": _encode(
            lambda d, m: bpe.encoded(d, [pair if max(pair) < 256 else (-1, -1) for pair in m])
        ),
        TOUCHED: _encode(bpe.encoded_and_spent),
    },
    "by_rank": {
        "the earliest-learned merge comes first; yours takes what stands first in the text": _encode(
            lambda d, m: bpe.encoded_by(bpe.leftmost, d, m)
        ),
        "the earliest-learned merge comes first; yours takes the longest entry that fits": _encode(bpe.encoded_longest),
        "the earliest-learned merge comes first; yours begins with the latest": _encode(
            lambda d, m: bpe.encoded_by(bpe.latest, d, m)
        ),
        "the earliest-learned merge comes first; yours takes the most common pair of this text": _encode(
            lambda d, m: bpe.encoded_by(bpe.commonest, d, m)
        ),
    },
    "spelled": {
        "the left part of a merge comes first": _spells(bpe.decoded_backwards),
        "id 256 is merge number 0, not 1": _spells(
            lambda ids, m: bpe.decoded([i if i < 256 else min(i + 1, 255 + len(m)) for i in ids], m)
        ),
        "the ids come out from last to first": _spells(lambda ids, m: bpe.decoded(ids[::-1], m)),
        "ids of merges are left out": _spells(lambda ids, m: bytes(i for i in ids if i < 256)),
    },
    "as_text": {
        "join the bytes of all tokens first: a character may be spread over two": {
            "decode": lambda ids, merges: "".join(bpe.decoded([i], merges).decode("utf-8", "replace") for i in ids),
        },
        "bytes that are no text are left out; show them as �": _says(lambda data: data.decode("utf-8", "ignore")),
        "each byte is taken for a character; UTF-8 joins several": _says(lambda data: data.decode("latin-1")),
        "str(data) writes b'…' around the bytes; data.decode reads them": _says(str),
    },
    "round_trip": {
        "bytes that are no text are lost: go from ids to bytes, not by way of a text": _spells(
            lambda ids, m: bpe.decoded(ids, m).decode("utf-8", "replace").encode()
        ),
        "encode reads its data as text, and bytes that are no text are lost": _encoded_from(
            lambda data: list(data.decode("utf-8", "replace").encode())
        ),
        "id 0 is lost: 0 counts as False in Python": _spells(lambda ids, m: bpe.decoded([i for i in ids if i], m)),
        "white space at the ends is lost": _encoded_from(lambda data: list(data.strip())),
        "the bytes come back, yet no merge is used": _encode(lambda data, merges: list(data)),
    },
    "hunt": {
        "there the suspect errs": {"works_on": b"the thin"},
        "there no merge applies, and any encoder is right: take an input with fewer ids than bytes": {
            "works_on": b"net",
        },
        "hint is the example: take another input": {"works_on": b"hint"},
        "there the suspect is right": {"fails_on": b"thin"},
        "that exposes the suspect, and a shorter input does too": {"fails_on": b"the thin"},
    },
    "harm": {
        "the entries that it joins still spell the data: decode gives it back": {"harm": "A"},
        "count: where it errs on few bytes, both lists may be equally long": {"harm": "C"},
        "a model has learned from lists of one kind, and an id says nothing about its spelling": {"harm": "D"},
    },
    "lengths": {
        "that is the text that the merges were learned from; encode the other one": {
            "lengths": _lengths(_MERGES, _OF_TEXT),
        },
        "learn the merges from check.TEXT, not from the text that you encode": {
            "lengths": _lengths(bpe.trained(_OF_OTHER, N_MERGES[-1]), _OF_OTHER),
        },
        "a piece that occurs five times counts five times": {"lengths": _lengths(_MERGES, [*{*_OF_OTHER}])},
        "no merge is applied: these are bytes": {
            "lengths": {256 + n: len(OTHER.encode()) for n in N_MERGES},
        },
    },
    "text_flops": {
        "a weight costs two FLOPs a token, a multiplication and an addition": _flops_as(
            lambda t, v, d, w: flops(t, v, d, w) // 2
        ),
        "the product with the table is missing": _flops_as(lambda t, v, d, w: flops(t, 0, d, w)),
        "the product with the table is made for every token": _flops_as(
            lambda t, v, d, w: flops(t, 0, d, w) + flops(1, v, d, 0)
        ),
        "the look-up costs no FLOPs: the table is multiplied once a token, at the end": _flops_as(
            lambda t, v, d, w: flops(t, 2 * v, d, w)
        ),
        "the blocks' weights are missing": _flops_as(lambda t, v, d, w: flops(t, v, d, 0)),
    },
    "best": {
        "small: the shortest list is not the cheapest there; compare the FLOPs": {
            "best": BEST | {"small": 256 + N_MERGES[-1]},
        },
        "small: without merges each token is cheap, and there are many": {"best": BEST | {"small": 256}},
        "large: the blocks cost far more than the table; what counts is the number of tokens": {
            "best": BEST | {"large": 256},
        },
    },
}  # fmt: skip
