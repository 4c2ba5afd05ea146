"""The decode tape: a prompt fills the cache in one call, each further token adds one slot, and bytes grow."""

from __future__ import annotations

from dataclasses import replace

from classroom.elements.frame import Element, table
from plainformer.cache import bytes_per_sequence, bytes_per_token
from plainformer.config import preset
from plainformer.roofline import bytes_per_step

N_BYTES = 2  # a number in 16 bits


def tape(name: str = "llama-2-70b", *, window_of: str = "mistral-7b") -> Element:
    """Caches of four kinds side by side while one sequence grows, for the sizes of the preset `name`.

    The kinds are a key head for each query head (MHA), the preset's groups (GQA), its groups behind a sliding window,
    and one key head for all (MQA). Two scales: one square is a token, and one square is many, where the window is
    that of the preset `window_of`. Seen for each: the slots that are filled, a ring for the window, with a height of
    its key heads, so that areas are bytes; the bytes kept and added by a token, in 16 bits; and what a step of
    decoding reads, weights and cache, in bytes.
    """
    config, wide = preset(name), preset(window_of).window
    grouped = config.n_kv_heads
    heads = f"{grouped} key heads"
    kinds = [
        ("MHA", f"{config.n_heads} key heads", config.n_heads, False),
        ("GQA", heads, grouped, False),
        ("GQA and a window", f"{heads}, a ring", grouped, True),
        ("MQA", "1 key head", 1, False),
    ]
    scales = [
        {"words": "1 token, window of 8", "square": 1, "length": 32, "window": 8, "prompt": 6},
        {
            "words": f"{wide // 16} tokens, window of {wide:,}",
            "square": wide // 16,
            "length": 2 * wide,
            "window": wide,
            "prompt": 6 * wide // 16,
        },
    ]

    def model(kind: tuple, scale: dict):
        *_, n_kv_heads, windowed = kind
        return replace(config, n_kv_heads=n_kv_heads, window=scale["window"] if windowed else None)

    rows, checks = [], []
    for number, kind in enumerate(kinds):
        label, words, n_kv_heads, windowed = kind
        weights = bytes_per_step(model(kind, scales[0]), 1, 1, n_bytes_weights=N_BYTES)["weights"]
        rows.append(
            {"name": label, "words": words, "heads": n_kv_heads, "windowed": windowed, "weights": round(weights)}
        )
        for place, read in ((0, 1), (0, 32), (1, wide), (1, wide + 1)):
            cached = model(kind, scales[place])
            now, token = bytes_per_sequence(cached, read, n_bytes=N_BYTES), bytes_per_token(cached, n_bytes=N_BYTES)
            step = round(sum(bytes_per_step(cached, 1, read, n_bytes_weights=N_BYTES, n_bytes_cache=N_BYTES).values()))
            expected = {"kept": now // token, "token": token, "now": now, "step": step}
            checks.append({"input": [number, place, read], "expected": expected})
    lengths = [scales[1]["prompt"], wide, 2 * wide]
    cells = [
        [
            f"{kind[0]}, {kind[1]}",
            _binary(bytes_per_token(model(kind, scales[1]), n_bytes=N_BYTES)),
            *(_binary(bytes_per_sequence(model(kind, scales[1]), n, n_bytes=N_BYTES)) for n in lengths),
        ]
        for kind in kinds
    ]
    caption = f"Cache of one sequence in 16 bits, sizes of {name}, window of {wide:,}"
    header = ["kind", "a token", *(f"{n:,} tokens" for n in lengths)]
    return Element(
        "tape",
        {
            "layers": config.n_layers,
            "width": config.d_head,
            "bytes": N_BYTES,
            "rows": rows,
            "scales": scales,
            "start": 10,
        },
        label="Decode tape: four kinds of cache fill while a text grows",
        fallback=table(caption, header, cells),
        text="\n".join([caption, *("  " + "  ".join(row) for row in [header, *cells])]),
        checks=checks,
    )


def _binary(n_bytes: float) -> str:
    """Four digits and a unit in powers of 1,024."""
    for unit in ("B", "KiB", "MiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.4g} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.4g} GiB"
