"""Attention for three tokens, recomputed while the reader turns the mask and the scale on and off."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from classroom.elements.frame import Element, table
from plainformer import masks
from plainformer.attention import attention as attend
from plainformer.attention import attention_weights


def three_tokens(tokens: Sequence[str], q: Tensor, k: Tensor, v: Tensor, *, n_heads: int = 8) -> Element:
    """Scores, scaled scores, weights and outputs of one small head, with two choices.

    q, k, v   (token, width): what the head compares and mixes; the figure gives them and computes the rest
    n_heads   of the model that the wrong scale belongs to: it divides by the root of all heads' width, n_heads · d_k

    The choices are the causal mask and what scores are divided by: √d_k, nothing, or the model's √d.
    """
    d_head = q.shape[-1]
    scales = [
        [d_head, f"√{d_head}, the head's width"],
        [1, "nothing"],
        [n_heads * d_head, f"√{n_heads * d_head}, a whole model's width"],
    ]
    checks = []
    for width, _ in scales:
        for mask in (False, True):
            wider = q * math.sqrt(d_head / width)  # the library divides by √d_head
            allowed = masks.causal(len(tokens)) if mask else None
            weights = attention_weights(wider, k, allowed)
            output = attend(wider, k, v, allowed)
            scores = q @ k.T
            seen = [[not mask or j <= i for j in range(len(tokens))] for i in range(len(tokens))]
            scaled = [
                [round(s / math.sqrt(width), 10) if see else None for s, see in zip(*pair)]
                for pair in zip(scores.tolist(), seen)
            ]
            expected = {
                "scores": _rounded(scores),
                "scaled": scaled,
                "weights": _rounded(weights),
                "output": _rounded(output),
            }
            checks.append({"input": {"mask": mask, "width": width}, "expected": expected})
    plain = checks[0]["expected"]
    rows = [
        [t, *(f"{w:.3f}" for w in w_row), "(" + ", ".join(f"{x:.3f}" for x in y_row) + ")"]
        for t, w_row, y_row in zip(tokens, plain["weights"], plain["output"])
    ]
    caption = f"Weights and outputs without a mask, scores divided by √{d_head}"
    return Element(
        "three_tokens",
        {"tokens": list(tokens), "q": _rounded(q), "k": _rounded(k), "v": _rounded(v), "scales": scales},
        label="Three tokens: attention with and without mask and scale",
        fallback=table(caption, ["token", *(f"on {t}" for t in tokens), "output"], rows),
        text="\n".join([caption, *("  " + "  ".join(row) for row in rows)]),
        checks=checks,
    )


def _rounded(matrix: Tensor) -> list[list[float]]:
    """Ten decimals: one more than the page compares, and the same on every processor."""
    return [[round(x, 10) for x in row] for row in matrix.tolist()]
