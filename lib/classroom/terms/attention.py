"""Numbers of exercise 02: keys of problem 1, and two matrices of the three-token example in problem 2.

Words, X and W_Q stay those of the chapter.
"""

from __future__ import annotations

import math

NUMBERS = {
    # diagonal of W_K
    ("K_1", "K_2"): ((1, 1), (2, 1), (2, 3), (3, 1), (3, 2)),
    # keys of problem 1, diagonal of W_V
    ("N_KEYS", "V_1", "V_2"): ((1000, 1, 2), (500, 1, 3), (2000, 1, 4), (5000, 3, 4), (200, 4, 1)),
}
KEEPS = ("predict",)


def lines(K_1: int, K_2: int, N_KEYS: int, V_1: int, V_2: int) -> dict[str, list[str]]:
    numbers = "the numbers again" if (K_1, K_2) == (1, 1) else "the numbers, with another $W_K$ and $W_V$"
    powers = [
        f"$e^{{{score}/\\sqrt{{2}}}} \\approx {math.exp(score / math.sqrt(2)):.4f}$"
        for score in sorted({2 * K_1, K_2, 2 * K_1 + K_2} - {K_1})
    ]
    first = f"$e^{{{K_1}/\\sqrt{{2}}}} \\approx {math.exp(K_1 / math.sqrt(2)):.4f}$"
    return {
        "p1": [f"A query meets {N_KEYS:,} keys. The width is 64, so raw scores have a standard deviation of 8."],
        "p2": [
            f"The chapter takes `fund pays it` and follows `it`. Now follow `fund`. Here are {numbers}:",
            f"W_K = \\begin{{pmatrix}} {K_1} & 0 \\\\ 0 & {K_2} \\end{{pmatrix}}, \\quad",
            f"W_V = \\begin{{pmatrix}} {V_1} & 0 \\\\ 0 & {V_2} \\end{{pmatrix}}.$$",
            f"1. `fund_weights`: its weights for `fund`, `pays` and `it`. Hint: {first}.",
            f"   Its query is (2, 1), as in the chapter, and {', '.join(powers)}.",
        ],
        "p2-answer": [f"k_1, k_2, v_1, v_2 = {K_1}, {K_2}, {V_1}, {V_2}"],
    }
