"""Synthetic submissions for exercise 01."""

from __future__ import annotations

from classroom.checks.tokens_slips import D_MODEL, LEARNED, N_MADE, N_MADE_OF, N_READ, TABLE, WRITTEN
from classroom.grading.demo_class.submission import Submission

# loops and a class; counts are corrected, not taken anew; decoding by recursion
LOOPS = Submission(
    "demo-loops",
    {
        "p1-answer": "guess = 12",
        "p2-answer": f"""
n_bytes = len({WRITTEN!r}.encode())
learned = tuple({LEARNED!r})
last_id, n_merges, table, read = {255 + N_MADE}, {N_MADE_OF}, {TABLE}, {N_READ * D_MODEL} * 2
""",
        "p3-answer": """
def count_pairs(sequences):
    counts = {}
    for sequence in sequences:
        for place in range(1, len(sequence)):
            pair = sequence[place - 1], sequence[place]
            if pair not in counts:
                counts[pair] = 0
            counts[pair] += 1
    return counts

def replace_pair(ids, pair, new):
    waiting, out = None, []
    for i in ids:
        if waiting is not None and (waiting, i) == tuple(pair):
            out.append(new)
            waiting = None
        else:
            if waiting is not None:
                out.append(waiting)
            waiting = i
    if waiting is not None:
        out.append(waiting)
    return out
""",
        "p4-answer": """
class Learner:
    def __init__(self, pieces):
        self.times = {}
        for piece in pieces:
            self.times[piece] = self.times.get(piece, 0) + 1
        self.ids = {piece: [byte for byte in piece] for piece in self.times}
        self.counts = {}
        for piece in self.ids:
            self.add(piece, +1)

    def add(self, piece, sign):
        for pair in zip(self.ids[piece], self.ids[piece][1:]):
            self.counts[pair] = self.counts.get(pair, 0) + sign * self.times[piece]

    def best(self):
        best = None
        for pair, n in self.counts.items():
            if n > 0 and (best is None or n > self.counts[best] or (n == self.counts[best] and pair < best)):
                best = pair
        return best

    def merge(self, pair, new):
        for piece in self.ids:
            self.add(piece, -1)
            self.ids[piece] = replace_pair(self.ids[piece], pair, new)
            self.add(piece, +1)

def train(pieces, n_merges):
    learner, merges = Learner(pieces), []
    for n in range(n_merges):
        pair = learner.best()
        if pair is None:
            return merges
        learner.merge(pair, 256 + n)
        merges.append(pair)
    return merges
""",
        "p5-answer": """
def encode(data, merges):
    rank_of = {}
    for rank, pair in enumerate(merges):
        rank_of[pair] = rank
    ids = [byte for byte in data]
    while True:
        lowest = None
        for pair in zip(ids, ids[1:]):
            if pair in rank_of and (lowest is None or rank_of[pair] < rank_of[lowest]):
                lowest = pair
        if lowest is None:
            return ids
        ids = replace_pair(ids, lowest, 256 + rank_of[lowest])

def decode_bytes(ids, merges):
    def spelled(i):
        return bytes([i]) if i < 256 else spelled(merges[i - 256][0]) + spelled(merges[i - 256][1])
    out = bytearray()
    for i in ids:
        out += spelled(i)
    return out

def decode(ids, merges):
    return str(decode_bytes(ids, merges), "utf-8", "replace")
""",
        "p6-answer": 'works_on, fails_on = b"in the hint"[3:5] + b"in", b"the"\nharm = "B"',
        "p7-answer": """
def text_flops(n_tokens, n_vocab, d_model, n_weights):
    total = 0
    for weights in (n_weights, n_vocab * d_model):
        total += 2 * weights * n_tokens
    return total

merges, lengths = train(pieces, 300), {}
for n in (0, 50, 100, 200, 300):
    lengths[256 + n] = 0
    for piece in other_pieces:
        lengths[256 + n] += len(encode(piece, merges[:n]))
best = {"small": 356, "large": 556}
""",
    },
)

# the standard library does it; problem 7 is measured with the course's own tokenizer
TERSE = Submission(
    "demo-terse",
    {
        "p1-answer": "guess = 108.0",
        "p2-answer": f"""
n_bytes, learned, last_id = {len(WRITTEN.encode())}, {LEARNED!r}, {255 + N_MADE}
n_merges, table, read = {N_MADE_OF}, {TABLE}, {2 * N_READ * D_MODEL}
""",
        "p3-answer": """
from collections import Counter
from itertools import pairwise

count_pairs = lambda sequences: Counter(pair for ids in sequences for pair in pairwise(ids))
replace_pair = lambda ids, pair, new: list(map(ord, "".join(map(chr, ids)).replace("".join(map(chr, pair)), chr(new))))
""",
        "p4-answer": """
def train(pieces, n_merges):
    ids, merges = [*map(list, pieces)], []
    while len(merges) < n_merges and (counts := count_pairs(ids)):
        merges += [min(pair for pair in counts if counts[pair] == max(counts.values()))]
        ids = [replace_pair(one, merges[-1], 255 + len(merges)) for one in ids]
    return merges
""",
        "p5-answer": """
from functools import reduce

def encode(data, merges):
    return reduce(lambda ids, one: replace_pair(ids, one[1], one[0]), enumerate(merges, 256), [*data])

def decode_bytes(ids, merges):
    for n in reversed(range(len(merges))):
        ids = [part for i in ids for part in (merges[n] if i == 256 + n else (i,))]
    return bytes(ids)

decode = lambda ids, merges: decode_bytes(ids, merges).decode(errors="replace")
""",
        "p6-answer": 'works_on, fails_on, harm = b"he", b"the", "B"',
        "p7-answer": """
from plainformer.tokens import Tokenizer

lengths = {n: len(Tokenizer.train(check.TEXT, n).encode(check.OTHER)) for n in (256, 306, 356, 456, 556)}
text_flops = lambda n_tokens, n_vocab, d_model, n_weights: n_tokens * (n_vocab * d_model + n_weights) * 2
best = {
    name: min(lengths, key=lambda n: text_flops(lengths[n], n, d, w))
    for name, d, w in (("small", 64, 5_000), ("large", 256, 6_291_456))
}
""",
    },
)

# takes characters for bytes, everywhere; English words hide it
CHARACTERS = Submission(
    "demo-characters",
    {
        "p2-answer": f"""
n_bytes = len({WRITTEN!r})
learned = {LEARNED!r}
last_id, n_merges = {256 + N_MADE}, {N_MADE_OF}
table, read = {TABLE}, {N_READ * D_MODEL}
""",
        "p4-answer": """
def train(pieces, n_merges):
    sequences, merges = [[ord(c) for c in piece.decode("utf-8", "replace")] for piece in pieces], []
    for n in range(n_merges):
        counts = count_pairs(sequences)
        if not counts:
            break
        merges.append(min(counts, key=lambda pair: (-counts[pair], pair)))
        sequences = [replace_pair(ids, merges[-1], 256 + n) for ids in sequences]
    return merges
""",
        "p5-answer": """
def encode(data, merges):
    ids = [ord(c) for c in data.decode("utf-8", "replace")]
    for n, pair in enumerate(merges):
        ids = replace_pair(ids, pair, 256 + n)
    return ids

def decode_bytes(ids, merges):
    entries = [bytes([n]) for n in range(256)]
    for left, right in merges:
        entries.append(entries[left] + entries[right])
    return b"".join(entries[i] if i < len(entries) else chr(i).encode() for i in ids)

def decode(ids, merges):
    return "".join(decode_bytes([i], merges).decode("utf-8", "replace") for i in ids)
""",
    },
    {"p2": 1, "p4": 1, "p5": 1},
)

# merges overlap, ties go to what comes first, and encoding takes the longest entry
LONGEST = Submission(
    "demo-longest",
    {
        "p3-answer": """
def count_pairs(sequences):
    counts = {}
    for ids in sequences:
        for pair in zip(ids, ids[1:]):
            counts[pair] = counts.get(pair, 0) + 1
    return counts

def replace_pair(ids, pair, new):
    for n in reversed(range(len(ids) - 1)):
        if tuple(ids[n : n + 2]) == tuple(pair):
            ids = ids[:n] + [new] + ids[n + 2 :]
    return ids
""",
        "p4-answer": """
def train(pieces, n_merges):
    sequences, merges = [list(piece) for piece in pieces], []
    for n in range(n_merges):
        counts = count_pairs(sequences)
        merges.append(max(counts, key=counts.get))
        sequences = [replace_pair(ids, merges[-1], 256 + n) for ids in sequences]
    return merges
""",
        "p5-answer": """
def entries_of(merges):
    entries = [bytes([n]) for n in range(256)]
    for left, right in merges:
        entries.append(entries[left] + entries[right])
    return entries

def encode(data, merges):
    entries, ids = entries_of(merges), []
    while data:
        ids.append(max((n for n in range(len(entries)) if data.startswith(entries[n])), key=lambda n: len(entries[n])))
        data = data[len(entries[ids[-1]]) :]
    return ids

def decode_bytes(ids, merges):
    return b"".join(entries_of(merges)[i] for i in ids)

def decode(ids, merges):
    return decode_bytes(ids, merges).decode("utf-8")
""",
        "p6-answer": 'works_on = b"thin"\nfails_on = b"the thin"\nharm = "A"',
        "p7-answer": """
def text_flops(n_tokens, n_vocab, d_model, n_weights):
    return 2 * n_tokens * n_weights

every = train(pieces, 300)
lengths = {256 + n: sum(len(encode(piece, every[:n])) for piece in pieces) for n in (0, 50, 100, 200, 300)}
best = {"small": 556, "large": 556}
""",
    },
    {"p3": 1, "p4": 1, "p5": 3, "p6": 0, "p7": 0},
)


SUBMISSIONS = [
    Submission("demo-perfect"),
    LOOPS,
    TERSE,
    Submission("demo-untouched", marks=None, from_reference=False),
    CHARACTERS,
    LONGEST,
    # writes the visible answers into the functions
    Submission(
        "demo-visible-answers",
        {
            "p4-answer": """
def train(pieces, n_merges):
    return [(195, 169), (110, 97), (257, 257)] if n_merges == 3 else [(97, 98), (256, 256)][:n_merges]
""",
        },
        {"p4": 0, "p7": 1},
    ),
    # a merge that nobody resolved: not one answer cell is Python
    Submission("demo-does-not-run", marks=None, wrap="<<<<<<< HEAD\n{}\n=======\n>>>>>>> mine"),
]
