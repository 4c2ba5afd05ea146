"""Numbers of exercise 04: problem 2, and the long text of problem 1 that it comes back to."""

from __future__ import annotations

from classroom.terms import listed, word

NUMBERS = {
    # positions and window; their ratio is 1/8 as printed alone
    ("LONG", "WIDE"): (
        (32_768, 4096), (16_384, 4096), (32_768, 2048), (65_536, 4096), (16_384, 1024),
    ),
    # positions, window and real tokens of the square
    ("T_SMALL", "W_SMALL", "REAL"): ((7, 3, 5), (8, 3, 6), (9, 3, 6), (9, 4, 7), (11, 4, 8)),
    # exponentials of a query's scores
    "FUELS": ((1, 3, 4, 8), (2, 3, 5, 6), (1, 4, 5, 6), (2, 5, 3, 7)),
}  # fmt: skip
KEEPS = ("predict",)


def lines(LONG: int, WIDE: int, T_SMALL: int, W_SMALL: int, REAL: int, FUELS: tuple[int, ...]) -> dict[str, list[str]]:
    return {
        "p1": [
            f"A text has {LONG:,} positions. Each looks at itself and at the {WIDE - 1:,} positions before it, "
            "as far as there are any."
        ],
        "p2": [
            f"**Pairs.** A text of {T_SMALL} positions has {REAL} real tokens, with filler at its end. "
            "Draw the square, and count the pairs that are left",
            f'- `"window"`: under a sliding window of {word(W_SMALL)}, which is causal too;',
            "**Rows.** A query stands at position 2 of four. The exponentials of its four scores, "
            f"$e^\\text{{score}}$, are {listed(FUELS)}.",
            f"Count the first {WIDE:,} rows and the others separately.",
        ],
        "p2-answer": [
            f"T, window, real = {T_SMALL}, {W_SMALL}, {REAL}",
            f"fuels = {list(FUELS)}",
            f"n, wide = {LONG:_}, {WIDE:_}",
        ],
    }
