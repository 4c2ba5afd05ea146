"""The RoPE dial: a query and a key as two hands that positions turn, and their dot product."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from classroom.elements.frame import Element, table
from plainformer.config import preset
from plainformer.positions import rotary_angles, rotate


def dial(
    query: Sequence[float] = (2, 1), key: Sequence[float] = (1, 0), *, name: str = "llama-2-7b", far: int = 30
) -> Element:
    """One pair of a head's features at two positions of the reader's choice, for the preset `name`.

    query, key   the pair's two features before they are turned, without unit
    far          largest of the two positions; a third slider adds up to 500 to both

    Seen: both arrows on a dial, turned by position × base^(−2n/d_head) radians for pair n, and the dot product over
    the distance m − n, where moving both leaves the point where it is.
    """
    config = preset(name)
    d_head, base = config.d_head, config.rope_base
    pairs = [0, 4, 8, 16, 24, 32, d_head // 2 - 1]
    start = [0, 2, 0, 0]

    def turned(pair: int, m: int, n: int) -> tuple[list[float], list[float], float]:
        arrows = torch.zeros(2, d_head, dtype=torch.float64)
        arrows[:, 2 * pair : 2 * pair + 2] = torch.tensor([query, key], dtype=torch.float64)
        at = rotary_angles(torch.tensor([m, n]), d_head, base=base, dtype=torch.float64)
        q, k = rotate(arrows, *at, pairing="even-odd")
        return *(x[2 * pair : 2 * pair + 2].tolist() for x in (q, k)), (q @ k).item()

    checks = []
    for case in ([0, 2, 0], [0, 12, 10], [4, 530, 500], [8, 0, 7], [pairs[-1], 30, 3]):
        q, k, product = turned(*case)
        expected = {"query": [round(x, 10) for x in q], "key": [round(x, 10) for x in k], "product": round(product, 10)}
        checks.append({"input": case, "expected": expected})
    rows = [
        [m, n, f"{m - n}".replace("-", "−"), *(f"{turned(pair, m, n)[2]:.3f}".replace("-", "−") for pair in pairs[:4])]
        for m, n in ((0, 0), (2, 0), (12, 10), (502, 500), (0, 2), (7, 0), (107, 100))
    ]
    arrows = [f"({a:g}, {b:g})" for a, b in (query, key)]
    caption = f"Dot product of {arrows[0]}, turned by m, and {arrows[1]}, turned by n, in four pairs of {name}"
    header = ["m", "n", "m − n", *(f"pair {pair}" for pair in pairs[:4])]
    return Element(
        "dial",
        {
            "d_head": d_head,
            "base": base,
            "pairs": pairs,
            "query": list(query),
            "key": list(key),
            "far": far,
            "start": start,
        },
        label="RoPE dial: a query and a key turned by their positions",
        fallback=table(caption, header, rows),
        text="\n".join([caption, *("  " + "  ".join(map(str, row)) for row in [header, *rows])]),
        checks=checks,
    )
