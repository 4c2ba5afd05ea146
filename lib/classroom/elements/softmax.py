"""Softmax and scale: what the width of queries and keys does to the weights, with and without the division."""

from __future__ import annotations

import math

import torch

from classroom.elements.frame import Element, table
from plainformer.attention import attention_weights


def softmax(*, n_keys: int = 12, widest: int = 1024, seed: int = 193) -> Element:
    """Weights of one random query over `n_keys` random keys, at every width 1, 2, 4 … `widest`.

    Query and keys have independent entries of mean 0 and variance 1. They are drawn once, at the largest width; a
    smaller width uses the first entries of the same vectors. (Of this seed the scores' spread stays within a third of
    √d_k at every width; of a single draw that need not be so.) Seen: the weights from the scores as they are and
    divided by √d_k, the largest of them, and the trace of the softmax's Jacobian, Σ a (1 − a), over the width.
    """
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(1, widest, generator=generator, dtype=torch.float64)
    k = torch.randn(n_keys, widest, generator=generator, dtype=torch.float64)
    widths = [2**n for n in range(int(math.log2(widest)) + 1)]
    scores, rows, checks = [], [], []
    for width in widths:
        first_q, first_k = q[:, :width], k[:, :width]
        scores.append([round(s, 10) for s in (first_q @ first_k.T)[0].tolist()])
        raw = attention_weights(first_q * math.sqrt(width), first_k)[0]  # undoes the library's division
        divided = attention_weights(first_q, first_k)[0]
        found = {
            name: {"largest": round(a.max().item(), 10), "trace": round((a * (1 - a)).sum().item(), 10)}
            for name, a in (("raw", raw), ("divided", divided))
        }
        checks.append({"input": width, "expected": found})
        rows.append([width, *(f"{found[name][what]:.3f}" for what in ("largest", "trace") for name in found)])
    caption = f"One query and {n_keys} keys of random entries: softmax of the scores, raw and divided by √d_k"
    header = ["d_k", "largest weight, raw", "divided", "trace, raw", "divided"]
    return Element(
        "softmax",
        {"widths": widths, "scores": scores, "start": 64},
        label="Softmax and scale: weights over the width of queries and keys",
        fallback=table(caption, header, rows),
        text="\n".join([caption, *("  " + "  ".join(map(str, row)) for row in [header, *rows])]),
        checks=checks,
    )
