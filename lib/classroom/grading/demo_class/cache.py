"""The demonstration class of exercise 11: eight submissions."""

from __future__ import annotations

from classroom.checks.cache_slips import (
    D_HEAD,
    GROUP,
    KEPT,
    N_HEADS,
    N_KV_HEADS,
    N_LAYERS,
    N_SERVED,
    PER_TOKEN,
)
from classroom.grading.demo_class.submission import Submission

GIB = N_SERVED * KEPT * PER_TOKEN / 2**30

# one row, one head, one key at a time; the cache is a list of positions, keys and values
LOOPS = Submission(
    "demo-loops",
    {
        "p1-answer": "guess = 1000",
        "p2-answer": f"""
per_token = 0
for layer in range({N_LAYERS}):
    for part in ("key", "value"):
        per_token += {N_KV_HEADS} * {D_HEAD} * 2
ungrouped = per_token // {N_KV_HEADS} * {N_HEADS}
served_gib = {N_SERVED} * {KEPT} * per_token / 2**30
""",
        "p3-answer": """
def cache_bytes(lengths, n_layers, n_kv_heads, d_head, n_bytes, window):
    total = 0
    for n in lengths:
        if window is not None and n > window:
            n = window
        for part in ("key", "value"):
            total += n * n_layers * n_kv_heads * d_head * n_bytes
    return total

def latent_bytes(lengths, n_layers, d_latent, d_rotary, n_bytes):
    total = 0
    for n in lengths:
        total += n * n_layers * n_bytes * d_latent
        total += n * n_layers * n_bytes * d_rotary
    return total
""",
        "p4-answer": """
def largest_batch(memory, weight_bytes, bytes_per_token, n_positions, window):
    if window is not None and window < n_positions:
        n_positions = window
    room = memory - weight_bytes
    if room <= 0:
        return 0
    return (room - room % (bytes_per_token * n_positions)) // (bytes_per_token * n_positions)
""",
        "p5-answer": """
def attend(x, positions, cache, W_Q, W_K, W_V, window=None):
    n_heads, _, d_head = W_Q.shape
    n_kv_heads, _, d_value = W_V.shape
    cache = list(cache or [])
    out = torch.zeros(n_heads, len(x), d_value, dtype=torch.float64)
    for i in range(len(x)):
        place = positions[i : i + 1]
        keys = [turn(x[i : i + 1] @ W_K[g], place)[0] for g in range(n_kv_heads)]
        values = [x[i] @ W_V[g] for g in range(n_kv_heads)]
        cache.append((int(positions[i]), keys, values))
        seen = [entry for entry in cache if window is None or entry[0] > int(positions[i]) - window]
        for head in range(n_heads):
            g = head * n_kv_heads // n_heads
            q = turn(x[i : i + 1] @ W_Q[head], place)[0]
            scores = [float(q @ keys[g]) / math.sqrt(d_head) for _, keys, _ in seen]
            weights = [math.exp(score - max(scores)) for score in scores]
            for weight, (_, _, values) in zip(weights, seen):
                out[head, i] += weight / sum(weights) * values[g]
    return out, cache
""",
        "p6-answer": """
safe_at = {"window": 1, "first": 4, "second": 1}
leaks_at = {"window": 2, "first": 7, "second": 1}

def repaired(window):
    class Line:
        def __init__(self):
            self.rows = []

        def add(self, row):
            self.rows.append(row)
            if len(self.rows) > window:
                self.rows.pop(0)

        def visible(self):
            return self.rows

        def start_over(self):
            self.rows.clear()

    return Line()
""",
        "p7-answer": """
def step_seconds(n_sequences, n_weights, kept_bytes, n_bytes, bandwidth, peak):
    to_read = n_weights * n_bytes
    n_flops = 0
    for sequence in range(n_sequences):
        to_read += kept_bytes
        n_flops += 2 * n_weights
    return {"computing": n_flops / peak, "reading": to_read / bandwidth}

def balance_batch(n_bytes, bandwidth, peak):
    batch = 1
    while 2 * batch * bandwidth < n_bytes * peak:
        batch += 1
    return batch

limits = {"A": "weights", "B": "arithmetic", "C": "cache"}
reason = "B"
""",
    },
)

# einsum; the cache is the rows themselves, from which keys and values are made again
TERSE = Submission(
    "demo-terse",
    {
        "p1-answer": "guess = 100.0",
        "p2-answer": f"per_token, ungrouped, served_gib = {PER_TOKEN}, {GROUP * PER_TOKEN}, {GIB:.3f}",
        "p3-answer": """
cache_bytes = lambda lengths, window, **s: 2 * math.prod(s.values()) * sum(min(n, window or n) for n in lengths)
latent_bytes = lambda lengths, n_layers, d_latent, d_rotary, n_bytes: (
    sum(lengths) * (d_latent + d_rotary) * n_layers * n_bytes
)
""",
        "p4-answer": """
def largest_batch(memory, weight_bytes, bytes_per_token, n_positions, window):
    return max(memory - weight_bytes, 0) // (min(n_positions, window or n_positions) * bytes_per_token)
""",
        "p5-answer": """
def attend(x, positions, cache, W_Q, W_K, W_V, window=None):
    rows, at = (x, positions) if cache is None else map(torch.cat, zip(cache, (x, positions)))
    q = turn(torch.einsum("td,hdk->htk", x, W_Q), positions).unflatten(0, (len(W_K), -1))
    k, v = turn(torch.einsum("td,gdk->gtk", rows, W_K), at), torch.einsum("td,gdv->gtv", rows, W_V)
    distance = positions[:, None] - at
    seen = (distance >= 0) & (distance < (window or 10**9))
    scores = torch.einsum("gnik,gjk->gnij", q, k) * W_Q.shape[-1] ** -0.5
    scores = scores + torch.zeros_like(scores).masked_fill(~seen, float("-inf"))
    return torch.einsum("gnij,gjv->gniv", scores.softmax(-1), v).flatten(0, 1), (rows, at)
""",
        "p6-answer": """
from collections import deque

safe_at, leaks_at = dict(window=5, first=4, second=4), dict(window=2, first=2, second=1)

class Last(deque):
    add, start_over, visible = deque.append, deque.clear, lambda self: tuple(self)

repaired = lambda window: Last(maxlen=window)
""",
        "p7-answer": """
step_seconds = lambda n_sequences, n_weights, kept_bytes, n_bytes, bandwidth, peak: dict(
    reading=n_weights * n_bytes / bandwidth + n_sequences * kept_bytes / bandwidth,
    computing=n_sequences * (2 * n_weights / peak),
)
balance_batch = lambda n_bytes, bandwidth, peak: -int(-n_bytes * peak // (2 * bandwidth))
limits, reason = dict(zip("ABC", ("weights", "arithmetic", "cache"))), "B"
""",
    },
)

# right for one chunk, wrong for two: positions begin again, and a chunk's mask is cut from the corner
ONE_CHUNK = Submission(
    "demo-one-chunk",
    {
        "p3-answer": """
def cache_bytes(lengths, n_layers, n_kv_heads, d_head, n_bytes, window):
    return 2 * n_layers * n_kv_heads * d_head * n_bytes * sum(lengths)

def latent_bytes(lengths, n_layers, d_latent, d_rotary, n_bytes):
    return 2 * n_layers * (d_latent + d_rotary) * n_bytes * sum(lengths)
""",
        "p5-answer": """
def attend(x, positions, cache, W_Q, W_K, W_V, window=None):
    here = torch.arange(len(x))
    q, k, v = turn(x @ W_Q, here), turn(x @ W_K, here), x @ W_V
    if cache is not None:
        k, v = torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1)
    scores = q @ k.repeat(len(W_Q) // len(W_K), 1, 1).mT / math.sqrt(W_Q.shape[-1])
    mask = torch.ones(len(x), k.shape[1]).tril().bool()
    weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
    return weights @ v.repeat(len(W_Q) // len(W_K), 1, 1), (k, v)
""",
        "p6-answer": """
safe_at = {"window": 4, "first": 4, "second": 4}
leaks_at = {"window": 4, "first": 4, "second": 3}

def repaired(window):
    ring = Ring(window)
    def start_over():
        ring.n_rows = 0
        ring.places = [None] * window
    ring.start_over = start_over
    return ring
""",
    },
    {"p3": 1, "p5": 1, "p6": 0},
)

# a cache that grows in place, and reads that are forgotten
IN_PLACE = Submission(
    "demo-in-place",
    {
        "p2-answer": f"per_token = {PER_TOKEN // 2}\nungrouped = {GROUP * PER_TOKEN // 2}\nserved_gib = {GIB / 2}",
        "p4-answer": """
def largest_batch(memory, weight_bytes, bytes_per_token, n_positions, window):
    kept = min(n_positions, window or n_positions)
    return (memory - weight_bytes) // (bytes_per_token * kept)
""",
        "p5-answer": """
def attend(x, positions, cache, W_Q, W_K, W_V, window=None):
    if cache is None:
        cache = {"at": positions[:0], "k": x[:0] @ W_K, "v": x[:0] @ W_V}
    cache["at"] = torch.cat([cache["at"], positions])
    cache["k"] = torch.cat([cache["k"], turn(x @ W_K, positions)], 1)
    cache["v"] = torch.cat([cache["v"], x @ W_V], 1)
    group = len(W_Q) // len(W_K)
    scores = turn(x @ W_Q, positions) @ cache["k"].repeat_interleave(group, 0).mT / math.sqrt(W_Q.shape[-1])
    hidden = cache["at"] > positions[:, None]
    if window:
        hidden |= cache["at"] < positions[:, None] - window
    return scores.masked_fill(hidden, -math.inf).softmax(-1) @ cache["v"].repeat_interleave(group, 0), cache
""",
        "p7-answer": """
def step_seconds(n_sequences, n_weights, kept_bytes, n_bytes, bandwidth, peak):
    return {"reading": n_weights * n_bytes / bandwidth, "computing": 2 * n_weights * n_sequences / peak}

def balance_batch(n_bytes, bandwidth, peak):
    return round(peak / bandwidth * n_bytes / 2)

limits = {"A": "weights", "B": "arithmetic", "C": "arithmetic"}
reason = "A"
""",
    },
    {"p2": 0, "p4": 1, "p5": 3, "p7": 0},
)


SUBMISSIONS = [
    Submission("demo-perfect"),
    LOOPS,
    TERSE,
    Submission("demo-untouched", marks=None, from_reference=False),
    ONE_CHUNK,
    IN_PLACE,
    # writes the visible numbers into the functions
    Submission(
        "demo-visible-numbers",
        {
            "p4-answer": """
def largest_batch(memory, weight_bytes, bytes_per_token, n_positions, window):
    return {1300: 0, 950: 0, 370: 10}.get(weight_bytes, 9 if n_positions == 90 else 11)
""",
        },
        {"p4": 0},
    ),
    # a merge that nobody resolved: not one answer cell is Python
    Submission("demo-does-not-run", marks=None, wrap="<<<<<<< HEAD\n{}\n=======\n>>>>>>> mine"),
]
