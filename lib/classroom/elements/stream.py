"""The residual stream of a real model as a running sum, with what it would say at each height."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from classroom.elements.frame import Element, table


def stream(texts: Sequence[Mapping], *, start: int = 0) -> Element:
    """The last position's stream after every block, for measurements as `classroom.running_sum.shipped` gives them.

    texts  the same number of blocks for each; sizes are root mean squares over the features, without unit
    start  the block after which one looks first; 0 is the embedding alone

    Seen: the size of the sum over the blocks, what attention and the MLP of each block add and whether that points
    along the stream or against it, and the likeliest next tokens (probabilities) if the model stopped there. The page
    adds up the stream from its parts; the sizes that were measured on the stream itself are its check vectors.
    """
    checks = [
        {"input": [number, block], "expected": [round(size, 3) for size in text["sizes"][block]]}
        for number, text in enumerate(texts)
        for block in sorted({0, 1, start, len(text["sizes"]) // 2, len(text["sizes"]) - 1})
    ]
    first = texts[0]
    rows = [
        [block, *(f"{size:.2f}" for size in sizes), *(f"{token!r} {chance:.0%}" for token, chance in best[:1])]
        for block, (sizes, best) in enumerate(zip(first["sizes"], first["best"]))
        if block % 3 == 0 or block == len(first["sizes"]) - 1
    ]
    caption = f"{first['text']} …: the last position's stream, what its block adds, and what it would say"
    header = ["after block", "stream", "attention", "MLP", "would say"]
    return Element(
        "stream",
        {"texts": [{part: text[part] for part in ("text", "added", "best")} for text in texts], "start": start},
        label="Residual stream: the running sum after every block, read out",
        fallback=table(caption, header, rows),
        text="\n".join([caption, *("  " + "  ".join(map(str, row)) for row in [header, *rows])]),
        checks=checks,
    )
