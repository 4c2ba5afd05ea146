"""What is right in exercise 11, and the wrong answers that its checks know by name.

Sizes come from `plainformer.cache`, the rest from closed forms; attention and the ring stand in `cache_answers`.
The checks use `CATALOGUE` for diagnosis, and the tests hand each of its answers to the grader.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from classroom import terms
from classroom.checks.cache_answers import Ring, attend
from plainformer.cache import bytes_per_sequence, bytes_per_token, latent_bytes_per_token
from plainformer.config import Config

# problems 1 and 2: a model, GB of its weights, and the conversations that it serves
N_LAYERS, N_HEADS, N_KV_HEADS, D_HEAD, GB, N_SERVED, KEPT = terms.numbers("cache")
PER_TOKEN = bytes_per_token(
    Config(
        n_layers=N_LAYERS, n_heads=N_HEADS, n_kv_heads=N_KV_HEADS, d_model=N_HEADS * D_HEAD, d_ff=1, n_vocab=1,
        n_context=KEPT, positions="none",
    )
)  # fmt: skip
GROUP = N_HEADS // N_KV_HEADS
EVEN = GB * 10**9 / (KEPT * PER_TOKEN)  # conversations that weigh as much as the weights
LIMITS = ("weights", "cache", "arithmetic")
SITUATIONS = {"A": (8, 512), "B": (400, 64), "C": (400, 8_192)}  # problem 7: sequences, tokens kept of each
MACHINE = {"bandwidth": 2e12, "peak": 4e14}
N_WEIGHTS, TOKEN_BYTES = 7_500_000_000, 131_072


# ---- sizes ----


def stored(lengths, n_layers, n_kv_heads, d_head, n_bytes, window) -> int:
    """What `cache_bytes` of the exercise returns."""
    config = Config(
        n_layers=n_layers, n_heads=n_kv_heads, n_kv_heads=n_kv_heads, d_model=n_kv_heads * d_head, d_ff=1, n_vocab=1,
        n_context=max([1, *lengths, window or 1]), window=window, positions="none",
    )  # fmt: skip
    return sum(bytes_per_sequence(config, n, n_bytes=n_bytes) for n in lengths if n)


def latents(lengths, n_layers, d_latent, d_rotary, n_bytes) -> int:
    return sum(lengths) * latent_bytes_per_token(n_layers, d_latent, d_rotary, n_bytes=n_bytes)


def fits(memory, weight_bytes, bytes_per_token, n_positions, window) -> int:
    room = memory - weight_bytes
    return max(0, room // (bytes_per_token * min(n_positions, window or n_positions)))


# ---- the step of problem 7 ----


def step(n_sequences, n_weights, kept_bytes, n_bytes, bandwidth, peak) -> dict[str, float]:
    reading = (n_weights * n_bytes + n_sequences * kept_bytes) / bandwidth
    return {"reading": float(reading), "computing": float(2 * n_sequences * n_weights / peak)}


def balance(n_bytes, bandwidth, peak) -> int:
    return math.ceil(peak * n_bytes / (2 * bandwidth))


def limit(n_sequences: int, n_kept: int) -> str:
    seconds = step(n_sequences, N_WEIGHTS, n_kept * TOKEN_BYTES, 2, **MACHINE)
    if seconds["computing"] > seconds["reading"]:
        return "arithmetic"
    return "cache" if n_sequences * n_kept * TOKEN_BYTES > 2 * N_WEIGHTS else "weights"


def _step_as(part: str, value: Callable[..., float]) -> dict[str, Callable]:
    return {"step_seconds": lambda **given: step(**given) | {part: float(value(**given))}}


def _balance_as(value: Callable[[float, float, float], int]) -> dict[str, Callable]:
    return {"balance_batch": lambda n_bytes, bandwidth, peak: value(n_bytes, bandwidth, peak)}


def _stored_as(value: Callable[[dict], int]) -> dict[str, Callable]:
    return {"cache_bytes": lambda **given: value(given)}


def _latents_as(value: Callable[[dict], int]) -> dict[str, Callable]:
    return {"latent_bytes": lambda **given: value(given)}


def _fits_as(value: Callable[[int, int, int, int], int]) -> dict[str, Callable]:
    """`value` gets the room, the bytes of a sequence, memory, and the bytes of a sequence as if without a window."""

    def wrong(memory, weight_bytes, bytes_per_token, n_positions, window):
        each = bytes_per_token * min(n_positions, window or n_positions)
        return value(memory - weight_bytes, each, memory, bytes_per_token * n_positions)

    return {"largest_batch": wrong}


def _no_window(given: dict, lengths: list[int]) -> int:
    return stored(**(given | {"lengths": lengths, "window": None}))


def _attend(**slip) -> dict[str, Callable]:
    return {"attend": attend(**slip)}


def _ring(slip: str) -> dict[str, Callable]:
    return {"repaired": type("Ring", (Ring,), {"slip": slip})}


_ONE_OF_TWO = "a token keeps a key and a value: twice as much"
_GIB = N_SERVED * KEPT * PER_TOKEN / 2**30
_RIGHT = {name: limit(*situation) for name, situation in SITUATIONS.items()}

# check → what the slip is → the answers it gives
CATALOGUE: dict[str, dict[str, dict]] = {
    "predict": {
        "that is less than one conversation": {"guess": 0.2},
        "that many would leave each of them less than one token": {"guess": 1e7},
    },
    "per_token": {
        "this is half: a token keeps a key and a value, and each number takes two bytes": {"per_token": PER_TOKEN // 2},
        "keys and values have n_kv_heads heads, not n_heads": {"per_token": GROUP * PER_TOKEN},
        f"one layer is counted; there are {N_LAYERS}": {"per_token": PER_TOKEN // N_LAYERS},
    },
    "ungrouped": {
        "that is the cache with grouped keys again": {"ungrouped": PER_TOKEN},
        "it grows by n_heads / n_kv_heads, not by n_heads": {"ungrouped": N_HEADS * PER_TOKEN},
    },
    "served": {
        "these are GB of 10⁹ bytes; a GiB is 2³⁰": {"served_gib": _GIB * 2**30 / 1e9},
        f"that is one conversation; {N_SERVED} are served": {"served_gib": _GIB / N_SERVED},
        "these are MiB": {"served_gib": _GIB * 1_024},
        "these are caches without grouped keys": {"served_gib": GROUP * _GIB},
    },
    "batch": {
        _ONE_OF_TWO: _stored_as(lambda s: stored(**s) // 2),
        "one layer is counted; there are n_layers": _stored_as(lambda s: stored(**s) // s["n_layers"]),
        "every conversation is taken as long as the longest": _stored_as(
            lambda s: stored(**(s | {"lengths": [max(s["lengths"])] * len(s["lengths"])}))
        ),
        "the longest conversation alone is counted": _stored_as(
            lambda s: stored(**(s | {"lengths": [max(s["lengths"])]}))
        ),
        "n_bytes is not used": _stored_as(lambda s: stored(**(s | {"n_bytes": 1}))),
    },
    "windowed_bytes": {
        "the window is not used: behind it nothing need be kept": _stored_as(lambda s: _no_window(s, s["lengths"])),
        "a conversation shorter than the window keeps what it has": _stored_as(
            lambda s: _no_window(s, [s["window"] or n for n in s["lengths"]])
        ),
        "each conversation has a window of its own": _stored_as(
            lambda s: _no_window(s, [min(sum(s["lengths"]), s["window"] or sum(s["lengths"]))])
        ),
        "a window leaves its own length, not the rest": _stored_as(
            lambda s: _no_window(s, [n - min(n, s["window"] or 0) for n in s["lengths"]])
        ),
    },
    "latent": {
        "one latent serves keys and values: no factor of two": _latents_as(lambda s: 2 * latents(**s)),
        "the rotary key is missing": _latents_as(lambda s: latents(**(s | {"d_rotary": 0}))),
        "one layer is counted; there are n_layers": _latents_as(lambda s: latents(**(s | {"n_layers": 1}))),
        "the rotary key stands beside the latent, once; it is no second latent": _latents_as(
            lambda s: latents(**(s | {"d_rotary": 2 * s["d_rotary"]}))
        ),
    },
    "largest_batch": {
        "the weights need room too": _fits_as(lambda room, each, memory, whole: memory // each),
        "round down: a part of a conversation does not fit": _fits_as(
            lambda room, each, memory, whole: -(-room // each)
        ),
        "what fills the room exactly fits": _fits_as(lambda room, each, memory, whole: (room - 1) // each),
        "behind a window no more than the window is kept": _fits_as(lambda room, each, memory, whole: room // whole),
    },
    "none_fits": {
        "fewer than no conversation is impossible: 0": _fits_as(lambda room, each, memory, whole: room // each),
        "not even one fits there": _fits_as(lambda room, each, memory, whole: max(1, room // each)),
    },
    "whole": {
        "the scores look scaled by √d_model; the width of a head is what matters": _attend(
            scale=lambda x, d_head: math.sqrt(x.shape[-1])
        ),
        "the scores are not divided by √d_head": _attend(scale=lambda x, d_head: 1.0),
        "nothing hides later tokens: a query may look at its own position and at earlier ones": _attend(
            allowed=lambda query, key: key > -1 + 0 * query
        ),
        "queries and keys are not turned by their positions": _attend(turned=""),
        "keys are turned and queries are not": _attend(turned="k"),
        "values are not turned, only queries and keys": _attend(turned="qkv"),
    },
    "chunks": {
        "each chunk is turned as if it began at position 0: use positions": _attend(
            at=lambda positions: positions - positions[0]
        ),
        "the cache is not used: a chunk looks at itself alone": _attend(forget=True),
        "a chunk's first query may look at all that is cached, and at its own key": _attend(
            allowed=lambda query, key: key - key.min() <= query - query.min()
        ),
        "inside a chunk a query must not look at later tokens": _attend(
            allowed=lambda query, key: key <= query.max() + 0 * query
        ),
        "old keys come before new ones; the mask counts on it": _attend(
            order=-1,
            allowed=lambda query, key: torch.arange(key.shape[1]) <= query - query.min() + key.shape[1] - len(query),
        ),
    },
    "grouped": {
        "neighbouring query heads share a key head: 0, 0, 0, 1, 1, 1, not 0, 1, 0, 1, 0, 1": _attend(
            group=lambda part, n: part.repeat(n, 1, 1)
        ),
        "all query heads use the first key head": _attend(
            group=lambda part, n: part[:1].expand(n * len(part), -1, -1)
        ),
    },
    "windowed": {
        "the window is not used": _attend(near=lambda query, key, window: key > -1 + 0 * query),
        "one key too many: a query's own position is one of the window": _attend(
            near=lambda query, key, window: key >= query - window
        ),
        "one key too few: the window has room for the query's own position and window - 1 more": _attend(
            near=lambda query, key, window: (key > query - window + 1) | (key == query)
        ),
        "rows were dropped that the first queries of a chunk still need": _attend(trim=True),
        "the window is counted from the chunk's last token; each query has its own": _attend(
            near=lambda query, key, window: (key > query.max() - window) | (key == query)
        ),
    },
    "untouched": {
        "the cache that was handed in has changed: the same start cannot be continued in two ways": _attend(
            in_place="cache"
        ),
        "an argument has changed: x": _attend(in_place="x"),
    },
    "hunt": {
        "there the ring leaks": {
            "safe_at": {"window": 3, "first": 5, "second": 1}, "leaks_at": {"window": 2, "first": 2, "second": 1},
        },
        "there nothing leaks": {
            "safe_at": {"window": 3, "first": 1, "second": 1}, "leaks_at": {"window": 3, "first": 2, "second": 1},
        },
        "that exposes the ring, and a smaller window does too": {
            "safe_at": {"window": 3, "first": 1, "second": 1}, "leaks_at": {"window": 4, "first": 4, "second": 1},
        },
    },
    "repair": {
        "that ring still shows rows of an earlier conversation": _ring("suspect"),
        "start_over does nothing": _ring("kept"),
        "rows must come oldest first": _ring("unordered"),
        "the ring keeps one row too few": _ring("short"),
        "empty places are shown": _ring("empty"),
    },
    "step": {
        "every sequence reads its own cache": _step_as(
            "reading", lambda **s: step(**(s | {"n_sequences": 1}))["reading"]
        ),
        "the weights are read once for all sequences": _step_as(
            "reading", lambda **s: s["n_sequences"] * step(**(s | {"n_sequences": 1}))["reading"]
        ),
        "each weight takes n_bytes": _step_as("reading", lambda **s: step(**(s | {"n_bytes": 1}))["reading"]),
        "a weight costs two FLOPs a token, a multiplication and an addition": _step_as(
            "computing", lambda **s: step(**s)["computing"] / 2
        ),
        "every sequence multiplies with the weights": _step_as(
            "computing", lambda **s: step(**s)["computing"] / s["n_sequences"]
        ),
    },
    "balance": {
        "a weight does two FLOPs for each sequence: divide by 2": _balance_as(lambda b, w, p: math.ceil(p * b / w)),
        "the bytes of a weight count: wider weights take longer to read": _balance_as(lambda b, w, p: math.ceil(p / w)),
        "wider weights need a larger batch, not a smaller one": _balance_as(lambda b, w, p: math.ceil(2 * p / (w * b))),
        "round up: with one sequence fewer, reading takes longer": _balance_as(lambda b, w, p: int(p * b // (2 * w))),
        "that is upside down: peak / bandwidth": _balance_as(lambda b, w, p: math.ceil(w * b / (2 * p))),
    },
    "limits": {
        "A: 8 sequences are far below the batch that pays": {"limits": _RIGHT | {"A": "arithmetic"}},
        "A: compare the bytes: 8 sequences keep little": {"limits": _RIGHT | {"A": "cache"}},
        "B: 400 sequences are above the batch that pays; add the caches and compare": {
            "limits": _RIGHT | {"B": "weights"},
        },
        "C: compare the bytes of 400 caches with those of the weights": {"limits": _RIGHT | {"C": "weights"}},
        "C: computing takes milliseconds there; how long does reading take?": {"limits": _RIGHT | {"C": "arithmetic"}},
    },
    "reason": {
        "compute both times at 400 sequences: arithmetic is far from the limit": {"reason": "A"},
        "the weights are read once a step, whatever the batch": {"reason": "C"},
        "shared heads make each cache smaller; they do not let two conversations share one": {"reason": "D"},
    },
}  # fmt: skip
