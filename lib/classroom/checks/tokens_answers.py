"""Exercise 1's longer answers: byte-pair encoding, spelled with loops, right and with known slips.

Here the id of a byte is the byte. `plainformer.tokens` orders the bytes otherwise, and so ends ties otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

from plainformer.tokens import Tokenizer, merge

Pair = tuple[int, int]


def words(key: int, n: int, alphabet: str, longest: int) -> list[bytes]:
    """Nonsense pieces, another list for each key; some occur several times."""
    dice = random.Random(key)
    kinds = ["".join(dice.choices(alphabet, k=dice.randint(1, longest))).encode() for _ in range(n)]
    return dice.choices(kinds, weights=[n / (k + 1) for k in range(n)], k=4 * n)


# ---- counting and replacing ----


def count(sequences: Sequence[Sequence[int]]) -> dict[Pair, int]:
    """How often each pair of neighbours stands inside the sequences."""
    counts: dict[Pair, int] = {}
    for ids in sequences:
        for pair in pairwise(ids):
            counts[pair] = counts.get(pair, 0) + 1
    return counts


def count_apart(sequences: Sequence[Sequence[int]]) -> dict[Pair, int]:
    """The same with the slip that a run such as 7 7 7 counts once: its two places share the middle."""
    counts: dict[Pair, int] = {}
    for ids in sequences:
        end_of: dict[Pair, int] = {}
        for k, pair in enumerate(pairwise(ids)):
            if k >= end_of.get(pair, 0):
                counts[pair] = counts.get(pair, 0) + 1
                end_of[pair] = k + 2
    return counts


def replace_from_right(ids: Sequence[int], pair: Pair, new: int) -> list[int]:
    return merge(ids[::-1], pair[::-1], new)[::-1]


def replace_overlapping(ids: Sequence[int], pair: Pair, new: int) -> list[int]:
    """In a a a both pairs become new: what belongs to two places is used twice."""
    at = [k for k, found in enumerate(pairwise(ids)) if found == tuple(pair)]
    return [new if k in at else i for k, i in enumerate(ids) if k in at or k - 1 not in at]


def replace_first(ids: Sequence[int], pair: Pair, new: int) -> list[int]:
    at = next((k for k, found in enumerate(pairwise(ids)) if found == tuple(pair)), None)
    return list(ids) if at is None else [*ids[:at], new, *ids[at + 2 :]]


def replace_without_the_last(ids: Sequence[int], pair: Pair, new: int) -> list[int]:
    """The loop ends one place early, so that an id at the end that joins no pair is lost."""
    return merge([*ids, -1], pair, new)[:-1] if tuple(ids[-2:]) == tuple(pair) else merge(ids, pair, new)[:-1]


def replace_in_place(ids: list[int], pair: Pair, new: int) -> list[int]:
    ids[:] = merge(ids, pair, new)
    return ids


# ---- training ----

TIES: dict[str, Callable[[dict[Pair, int]], Pair]] = {
    "smaller": lambda counts: min(counts, key=lambda pair: (-counts[pair], pair)),
    "first": lambda counts: max(counts, key=lambda pair: counts[pair]),
    "last": lambda counts: max(reversed(counts), key=lambda pair: counts[pair]),
    "larger": lambda counts: max(counts, key=lambda pair: (counts[pair], pair)),
    "second": lambda counts: min(counts, key=lambda pair: (-counts[pair], pair[::-1])),
}


def trained(
    pieces: list[bytes],
    n_merges: int,
    *,
    ties: str = "smaller",
    first: int = 256,
    least: int = 1,
    start: Callable[[list[bytes]], list[list[int]]] = lambda pieces: [list(piece) for piece in pieces],
    recount: bool = True,
) -> list[Pair]:
    """The merges that byte-pair encoding learns, right but for what is given here."""
    sequences, merges = start(pieces), []
    counts = count(sequences)
    while len(merges) < n_merges:
        if recount:
            counts = count(sequences)
        if not counts or max(counts.values()) < least:
            break
        pair = TIES[ties](counts)
        sequences = [merge(ids, pair, first + len(merges)) for ids in sequences]
        merges.append(pair)
        if not recount:
            del counts[pair]
    return merges


def trained_and_emptied(pieces: list[bytes], n_merges: int) -> list:
    merges = trained(pieces, n_merges)
    pieces.clear()
    return merges


def trained_at_least_once(pieces: list[bytes], n_merges: int) -> list:
    return trained(pieces, max(1, n_merges))


def trained_and_filled(pieces: list[bytes], n_merges: int) -> list:
    merges = trained(pieces, n_merges)
    return merges + merges[-1:] * (n_merges - len(merges))


def characters(piece: bytes) -> list[int]:
    return [ord(character) for character in piece.decode("utf-8", "replace")]


# ---- encoding and decoding ----


def entries(merges: Sequence[Pair]) -> list[bytes]:
    """The bytes of every id."""
    spelled = [bytes([byte]) for byte in range(256)]
    for left, right in merges:
        spelled.append(spelled[left] + spelled[right])
    return spelled


def encoded(data: bytes, merges: Sequence[Pair], *, first: int = 256) -> list[int]:
    """Ids of one piece: the merge that was learned earliest comes first, everywhere."""
    ids = list(data)
    for rank, pair in enumerate(merges):
        ids = merge(ids, pair, first + rank)
    return ids


def encoded_by(choose: Callable[[list[tuple[int, Pair]]], int], data: bytes, merges: Sequence[Pair]) -> list[int]:
    """One merge at one place at a time; `choose` gets the (rank, pair) that apply, from left to right."""
    ids, rank_of = list(data), {tuple(pair): rank for rank, pair in enumerate(merges)}
    while places := [k for k, pair in enumerate(pairwise(ids)) if pair in rank_of]:
        known = [(rank_of[ids[k], ids[k + 1]], (ids[k], ids[k + 1])) for k in places]
        k = places[choose(known)]
        ids[k : k + 2] = [256 + rank_of[ids[k], ids[k + 1]]]
    return ids


def leftmost(known: list[tuple[int, Pair]]) -> int:
    return 0


def latest(known: list[tuple[int, Pair]]) -> int:
    return known.index(max(known))


def commonest(known: list[tuple[int, Pair]]) -> int:
    """The pair that is the most common in this very text."""
    pairs = [pair for _, pair in known]
    return max(range(len(known)), key=lambda k: (pairs.count(pairs[k]), -known[k][0], -k))


def encoded_longest(data: bytes, merges: Sequence[Pair]) -> list[int]:
    """From the left, always the longest entry that fits."""
    spelled, ids = entries(merges), []
    while data:
        ids.append(max((i for i, entry in enumerate(spelled) if data.startswith(entry)), key=lambda i: len(spelled[i])))
        data = data[len(spelled[ids[-1]]) :]
    return ids


def encoded_once(data: bytes, merges: Sequence[Pair]) -> list[int]:
    """A merge replaces one place alone."""
    ids = list(data)
    for rank, pair in enumerate(merges):
        ids = replace_first(ids, pair, 256 + rank)
    return ids


def encoded_and_spent(data: bytes, merges: list[Pair]) -> list[int]:
    """Right, and the list of merges is empty afterwards."""
    ids = encoded(data, merges)
    merges.clear()
    return ids


def decoded(ids: Sequence[int], merges: Sequence[Pair]) -> bytes:
    """By the library, for a vocabulary in which the id of a byte is the byte."""
    return Tokenizer(entries(merges), merges).decode_bytes(ids)


def decoded_backwards(ids: list[int], merges: list) -> bytes:
    spelled = [bytes([byte]) for byte in range(256)]
    for left, right in merges:
        spelled.append(spelled[right] + spelled[left])
    return b"".join(spelled[i] for i in ids)


# ---- two texts for problem 7 ----

TEXT = """\
The keeper of the lighthouse counted ships. There were fishing boats, which came home before the night, and there were \
ferries, which went to the island and back again. There were the great ships, which never came near, and of which \
she saw nothing but three lights in a row.

Every evening she wrote into her book what she had seen. A fishing boat, going home. A ferry, going to the island. \
A fishing boat, going home. Another fishing boat, going home. After a year the book was full, and she had written \
the same words a thousand times.

The next book was different. On its first page she made a list of signs. A circle was a fishing boat, a square was \
a ferry, and a line was a great ship. An arrow to the left was going home, and an arrow to the right was going to the \
island. Then she saw that a circle was nearly always followed by an arrow to the left, so she made one sign for both \
of them. It looked like a fish. Now an evening was a row of fishes, with a square between them here and there.

"But who can read it?" asked the captain of the ferry, when he came to bring her oil and bread. "Whoever has the first \
page," said the keeper. "Whoever has the first page can read all the other pages, and write new ones."

"And if there is a ship that you have never seen before?" asked the captain. "Then I write it letter by letter, as \
I did before," she said. "It takes longer, and it is never wrong. If it comes back often enough, I shall make a sign \
for it." The captain looked at the list. It was longer than he had thought, and it went on over the page. \
"Every sign has to be learned," he said. "Your list is nearly a book of its own." The keeper counted the signs, and \
after that she counted the ships again.
"""
OTHER = """\
In the winter a storm came over the island, and the ferry did not go for three days. The keeper saw no boats and \
no lights. She wrote letters instead, to her brother in the mountains, who kept sheep and had never seen the sea. \
"Nothing is going home," she wrote, "and nothing is going anywhere." On the fourth morning a ship without a name \
was lying on the sand. She looked into her book for a sign, found none, and wrote the word slowly: wreck.
"""
