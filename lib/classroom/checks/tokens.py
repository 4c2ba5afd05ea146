"""Checks of exercise 1: bytes, byte-pair encoding in both directions, and what a vocabulary costs.

One mechanism a check. The notebook calls each on the student's names; a hidden test hands other values to it.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Mapping
from typing import Any

from classroom.checks import tokens_slips as known
from classroom.checks.expect import CheckFailed, call, given, number, passed, refuse, same
from classroom.checks.expect import hidden_test as hidden_test
from classroom.checks.progress import graded
from classroom.checks.tokens_answers import OTHER as OTHER
from classroom.checks.tokens_answers import TEXT as TEXT
from classroom.checks.tokens_answers import count, decoded, encoded, entries, trained
from classroom.checks.tokens_answers import words as words  # for the hidden tests of the notebook
from classroom.checks.tokens_slips import CATALOGUE
from plainformer.tokens import Tokenizer, merge

# what the visible checks try; the id of a byte is the byte
WITHOUT_TIES = [([b"nana"] * 5 + [b"than"] * 3 + ["née".encode()] * 4 + ["été".encode()] * 4, 3)]
TIED = [([b"hen", b"than", b"anna"], 3), ([b"ba", b"ab"], 2)]
IN_ANY_ORDER = [("théthen".encode(), [(116, 104), (256, 101), (195, 169), (256, 258)])]
RANKED = [
    (b"hintnththen", [(104, 101), (256, 110), (110, 116), (101, 101), (104, 105), (116, 104), (116, 256)]),
]
HE_THE_THEN = [(104, 101), (116, 256), (257, 110)]
HALVES = [(97, 195), (169, 240), (159, 153)]  # tokens that begin or end inside a character
ANY = [(0, 0), (256, 0), (255, 254), (195, 169), (32, 116), (240, 159), (153, 130)]
ROUND = [
    (b"", ANY),
    (bytes(range(256)), ANY),
    ("Zoé, the 🙂\n".encode(), ANY),
    (b"\xff\xfe\xff\xfe\xfe\x00\x00\x00\x00\x80", ANY),
]


def _wrong(check: str, name: str) -> dict:
    return {says: answers[name] for says, answers in CATALOGUE[check].items() if name in answers}


def _agrees(check: str, name: str, function: Any, arguments: dict, right: Any) -> None:
    """The function returns what is right, and leaves what it was handed as it was."""
    wrong = {says: slip(**copy.deepcopy(arguments)) for says, slip in _wrong(check, name).items()}
    handed = copy.deepcopy(arguments)
    what = f"{name}({', '.join(f'{key}={_short(value)}' for key, value in arguments.items())})"
    same(_as_plain(call(function, name, **handed)), right, what, wrong=wrong)
    if handed != arguments:
        raise CheckFailed(f"{name}: {known.TOUCHED}", slip=known.TOUCHED)


def _as_plain(answer: Any) -> Any:
    """A Counter as a dict, an array as a list, a bytearray as bytes."""
    if isinstance(answer, Mapping):
        return dict(answer)
    if isinstance(answer, bytearray):
        return bytes(answer)
    return answer.tolist() if getattr(answer, "ndim", 0) else answer


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 90 else text[:87] + "..."


# ---- problem 1: predict ----


@graded
def predict(guess) -> None:
    """Any number of tokens that the sentence could have."""
    _plausible(guess)
    passed("noted; after problem 2 you see how far off it is")


def _plausible(guess) -> int | float:
    value = number(guess, "guess", such_as="20")
    few, many = CATALOGUE["predict"]
    refuse("guess", (value < 1, few), (value > 4 * len(known.GREEK), many))
    return value


def how_far(guess) -> None:
    """Tell the ratio of a guess to what the tokenizer does."""
    value, n_bytes = _plausible(guess), len(known.GREEK.encode())
    tokenizer = Tokenizer.train(TEXT, 256 + known.N_MERGES[-1])
    print(f"{known.GREEK}  {len(known.GREEK)} characters, {n_bytes} bytes, {known.N_GREEK} tokens")
    print(f"Your guess is {value / known.N_GREEK:.2g} times that.")
    english = "The keeper counts the ships."
    print(f"{english}  {len(english)} characters and bytes, {len(tokenizer.encode(english))} tokens")


# ---- problem 2: by hand ----


@graded
def utf8(n_bytes) -> None:
    right = len(known.WRITTEN.encode("utf-8"))
    same(n_bytes, right, "n_bytes", wrong=_wrong("utf8", "n_bytes"), reveal=False)
    passed("bytes of a text")


@graded
def learned(learned) -> None:
    same(learned, known.LEARNED, "learned", wrong=_wrong("learned", "learned"), reveal=False)
    passed("three merges by hand")


@graded
def ids(last_id, n_merges) -> None:
    same(last_id, 255 + known.N_MADE, "last_id", wrong=_wrong("ids", "last_id"), reveal=False)
    same(n_merges, known.N_MADE_OF, "n_merges", wrong=_wrong("ids", "n_merges"), reveal=False)
    passed("ids and merges")


@graded
def table(table, read) -> None:
    same(table, known.TABLE, "table", wrong=_wrong("table", "table"), reveal=False)
    right = known.N_READ * known.D_MODEL * 2
    same(read, right, "read", wrong=_wrong("table", "read"), reveal=False)
    passed("the table, and what is read of it")


# ---- problem 3: pairs ----


@graded
def count_pairs(count_pairs, *cases: list[list[int]]) -> None:
    """Cases are lists of sequences of ids."""
    visible = [[1, 2, 3, 1, 2], [3, 4], [2, 1]], [[7, 7, 7], [7, 5, 7, 7]], [[1, 2], [8], [], [1, 2]]
    for sequences in cases or visible:
        _agrees("count_pairs", "count_pairs", count_pairs, {"sequences": sequences}, count(sequences))
    passed("pairs counted")


@graded
def replace_pair(replace_pair, *cases: tuple[list[int], tuple[int, int], int]) -> None:
    """Cases are (ids, pair, new)."""
    visible = (
        ([1, 2, 3, 2, 1, 1, 2, 2, 1, 2, 5], (1, 2), 256),
        ([7, 7, 7], (7, 7), 256),
        ([5, 7, 7, 7, 7, 6, 7], (7, 7), 300),
        ([256, 4, 256], (256, 4), 257),
        ([3], (3, 3), 256),
    )
    for ids, pair, new in cases or visible:
        arguments = {"ids": ids, "pair": pair, "new": new}
        _agrees("replace_pair", "replace_pair", replace_pair, arguments, merge(ids, pair, new))
    passed("pairs replaced")


# ---- problem 4: learn the merges ----


def _trains(check: str, train, cases) -> None:
    for pieces, n_merges in cases:
        arguments = {"pieces": pieces, "n_merges": n_merges}
        _agrees(check, "train", train, arguments, trained(pieces, n_merges))


@graded
def learns(train, *cases: tuple[list[bytes], int]) -> None:
    """Cases are (pieces, n_merges), in which no round has a tie."""
    _trains("learns", train, cases or WITHOUT_TIES)
    passed("merges learned")


@graded
def ties(train, *cases: tuple[list[bytes], int]) -> None:
    """Cases are (pieces, n_merges)."""
    _trains("ties", train, cases or TIED)
    passed("ties")


@graded
def exhausted(train, *cases: tuple[list[bytes], int]) -> None:
    """Cases are (pieces, n_merges)."""
    _trains("exhausted", train, cases or (([b"abab", b"c"], 9), ([b"ab", b"b"], 0), ([b"a", b"", b"b"], 4)))
    passed("no merge, and no pair left")


# ---- problem 5: encode and decode ----


def _encodes(check: str, encode, cases) -> None:
    for data, merges in cases:
        _agrees(check, "encode", encode, {"data": data, "merges": merges}, encoded(data, merges))


@graded
def encodes(encode, *cases: tuple[bytes, list]) -> None:
    """Cases are (data, merges), in which the order of merges does not matter."""
    _encodes("encodes", encode, cases or IN_ANY_ORDER)
    passed("bytes to ids")


@graded
def by_rank(encode, *cases: tuple[bytes, list]) -> None:
    """Cases are (data, merges)."""
    _encodes("by_rank", encode, cases or RANKED)
    passed("the order of merges")


@graded
def spelled(decode_bytes, *cases: tuple[list[int], list]) -> None:
    """Cases are (ids, merges)."""
    visible = ([258, 32, 257, 33, 256], HE_THE_THEN), ([255, 97, 128], []), ([], HE_THE_THEN)
    for ids, merges in cases or visible:
        arguments = {"ids": ids, "merges": merges}
        _agrees("spelled", "decode_bytes", decode_bytes, arguments, decoded(ids, merges))
    passed("ids to bytes")


@graded
def as_text(decode, *cases: tuple[list[int], list]) -> None:
    """Cases are (ids, merges)."""
    visible = (list("é🙂".encode()), []), ([256, 257, 258, 130], HALVES), ([104, 255, 256, 169], HALVES), ([], [])
    for ids, merges in cases or visible:
        right = decoded(ids, merges).decode("utf-8", errors="replace")
        _agrees("as_text", "decode", decode, {"ids": ids, "merges": merges}, right)
    passed("ids to text")


@graded
def round_trip(encode, decode_bytes, *cases: tuple[bytes, list]) -> None:
    """Cases are (data, merges); every single byte is tried whatever they are.

    Each half is tried alone as well, decoding first: it could remember what `encode` was given.
    """
    every = [*((bytes([byte]), ANY) for byte in range(256)), *(cases or ROUND)]
    for data, merges in every:
        right = encoded(data, merges)
        back = _as_plain(call(decode_bytes, "decode_bytes", ids=list(right), merges=list(merges)))
        wrong = _lossy(data, merges, right) if back != data else {}
        same(back, data, f"decode_bytes({_short(right)})", wrong=wrong)
    for data, merges in every:
        ids = _as_plain(call(encode, "encode", data=data, merges=list(merges)))
        if type(ids) not in (list, tuple):
            raise CheckFailed(f"encode returns a {type(ids).__name__}; a list of ids was expected.")
        back = _as_plain(call(decode_bytes, "decode_bytes", ids=list(ids), merges=list(merges)))
        wrong = _lossy(data, merges, list(ids)) if back != data else {}
        same(back, data, f"decode_bytes(encode({_short(data)}))", wrong=wrong)
        if _spelled(ids, merges) != data:
            raise CheckFailed(f"encode({_short(data)}) returns ids that do not stand for these bytes: {_short(ids)}")
        if len(ids) == len(data) > len(encoded(data, merges)):
            says = list(CATALOGUE["round_trip"])[-1]
            raise CheckFailed(f"encode({_short(data)}): {says}", slip=says)
    passed("there and back again, for any bytes")


def _spelled(ids: list | tuple, merges: list) -> bytes | None:
    """The bytes that these ids stand for; None if they are none."""
    try:
        numbers = [operator.index(i) for i in ids]
    except TypeError:
        return None
    return decoded(numbers, merges) if all(0 <= i < 256 + len(merges) for i in numbers) else None


def _lossy(data: bytes, merges: list, ids: list) -> dict[str, bytes]:
    """What comes back by the known slips that give these ids: so a slip of `encode` is told from one of the other."""
    wrong = {}
    for says, answers in CATALOGUE["round_trip"].items():
        slip = answers.get("encode", encoded)(data=data, merges=list(merges))
        if slip == ids:
            wrong[says] = answers.get("decode_bytes", decoded)(ids=slip, merges=list(merges))
    return wrong


# ---- problem 6: hunt a bug ----


@graded
def hunt(suspect, works_on, fails_on) -> None:
    errs, untested, example, right, longer = CATALOGUE["hunt"]
    agree, n_ids = {}, {}
    for what, data in (("works_on", works_on), ("fails_on", fails_on)):
        if type(given(data, what)) is not bytes or not 0 < len(data) <= 100:
            raise CheckFailed(f'{what} must be 1 to 100 bytes, such as b"hint".')
        truth = encoded(data, known.FEW)
        n_ids[what] = len(truth)
        agree[what] = call(suspect, "suspect", data=data, entries=entries(known.FEW)) == truth
    for failed, what, says in (
        (not agree["works_on"], "works_on", errs),
        (n_ids["works_on"] == len(works_on), "works_on", untested),
        (works_on == b"hint", "works_on", example),
        (agree["fails_on"], "fails_on", right),
        (len(fails_on) > 3, "fails_on", longer),  # an input of two bytes has one pair, and no choice
    ):
        if failed:
            raise CheckFailed(f"{what}: {says}", slip=says)
    passed("suspect exposed")


@graded
def harm(harm) -> None:
    same(harm, "B", "harm", wrong=_wrong("harm", "harm"), choices=tuple("ABCD"), reveal=False)
    passed("harm. A round trip alone does not test an encoder")


# ---- problem 7: investigate ----


@graded
def lengths(lengths) -> None:
    """Tokens by size of the vocabulary, measured with bytes as ids or with the library's order of bytes."""
    answer = _as_plain(given(lengths, "lengths"))
    if answer != known.lengths_by("library"):
        same(answer, known.lengths_by("bytes"), "lengths", wrong=_wrong("lengths", "lengths"), reveal=False)
    passed("tokens by size of the vocabulary")


@graded
def text_flops(text_flops, *cases: tuple[int, int, int, int]) -> None:
    """Cases are (n_tokens, n_vocab, d_model, n_weights)."""
    for case in cases or ((7, 300, 11, 5_000), (1, 260, 3, 70)):
        arguments = dict(zip(("n_tokens", "n_vocab", "d_model", "n_weights"), case))
        _agrees("text_flops", "text_flops", text_flops, arguments, known.flops(*case))
    passed("FLOPs of a text")


@graded
def best(best) -> None:
    answer = _as_plain(given(best, "best"))
    if type(answer) is not dict or sorted(answer) != ["large", "small"]:
        raise CheckFailed('best must be a dict with the keys "small" and "large".')
    for name, right in known.BEST.items():
        wrong = {says: value[name] for says, value in _wrong("best", "best").items()}
        same(answer[name], right, f"best[{name!r}]", wrong=wrong, reveal=False)
    passed("the cheapest vocabulary. A large model earns back a large table")
