"""The attention explorer: choose a word, a layer and a head, and see what the word looks at."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from classroom.elements.frame import Element, table


def attention(texts: Mapping[str, tuple[Sequence[str], Tensor, tuple[int, int, int]]]) -> Element:
    """Real attention weights to look through, for one or more texts.

    texts  name → (words, weights, start). Weights have the shape (layer, head, looking, looked at), rows sum to one,
           and nothing looks ahead; they are shown in hundredths. Start is the layer, head and looking word that one
           sees first, counted from 0.

    The words are a row of buttons, each under a bar as high as the weight that the chosen word puts on it. Beside
    them stands the whole pattern of the head.
    """
    shown, checks = [], []
    for number, (name, (words, weights, start)) in enumerate(texts.items()):
        words = [word.strip() for word in words]
        hundredths = _hundredths(name, words, weights)
        n_layers, n_heads, n_words, _ = hundredths.shape
        rows, columns = torch.tril_indices(n_words, n_words)
        packed = bytes(hundredths[..., rows, columns].flatten().tolist())
        shown.append(
            {
                "name": name,
                "words": words,
                "sizes": [n_layers, n_heads],
                "start": list(start),
                "weights": base64.b64encode(packed).decode(),
            }
        )
        for layer, head, word in (start, (n_layers - 1, n_heads - 1, n_words - 1), (0, n_heads - 1, n_words // 2)):
            row = hundredths[layer, head, word, : word + 1].tolist()
            checks.append({"input": [number, layer, head, word], "expected": row})
    (name, (words, weights, (layer, head, word))), *_ = texts.items()
    words = [word.strip() for word in words]
    rows = [[looking, *_most(words, row)] for looking, row in zip(words, weights[layer, head])]
    caption = f"{name}: what each word looks at in layer {layer + 1}, head {head + 1}"
    return Element(
        "attention",
        {"texts": shown},
        label="Attention explorer: what a word looks at",
        fallback=table(caption, ["word", "most", "then", "then"], rows),
        text="\n".join([caption, *("  " + ", ".join(row) for row in rows)]),
        checks=checks,
    )


def _hundredths(name: str, words: Sequence[str], weights: Tensor) -> Tensor:
    if weights.dim() != 4 or weights.shape[2:] != (len(words), len(words)):
        raise ValueError(
            f"{name}: weights need the shape (layer, head, word, word) with {len(words)} words, "
            f"got {tuple(weights.shape)}."
        )
    if weights.triu(1).any():
        raise ValueError(f"{name}: a word looks ahead; the explorer shows models that do not. Was the mask left out?")
    if weights.min() < 0 or not torch.allclose(weights.double().sum(-1), torch.ones((), dtype=torch.double), atol=0.06):
        raise ValueError(f"{name}: every row of weights must sum to one. Usual cause: scores in place of weights.")
    return (100 * weights.double()).round().int()


def _most(words: Sequence[str], row: Tensor) -> list[str]:
    """The three words that a row of weights looks at most."""
    best = row.double().topk(min(3, len(words)))
    found = [f"{words[n]} {w:.2f}" for w, n in zip(best.values.tolist(), best.indices.tolist()) if w >= 0.005]
    return (found + ["–"] * 3)[:3]
