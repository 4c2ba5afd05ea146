"""Numbers of exercise 16: the hidden score, the row and the ε of problem 2."""

from __future__ import annotations

import math

NUMBERS = {
    # exponential of the hidden key's score; 1 as printed, so that the score is 0
    "TIMES": (1, 2, 3, 4),
    # spread and ε: the squares of the first and of the root of both are round
    ("SPREAD", "EPS"): ((0.03, 0.0016), (0.04, 0.0009), (0.12, 0.0025), (0.08, 0.0225), (0.07, 0.0576)),
}
KEEPS = ()


def lines(TIMES: int, SPREAD: float, EPS: float) -> dict[str, list[str]]:
    score = math.log(TIMES)
    its_score = "0" if TIMES == 1 else f"{score:.3f}, and $e^{{{score:.3f}}} = {TIMES}$"
    return {
        "p2": [
            "A query sees one key, its own, and that score is $-10{,}000$. "
            f"One later key must be hidden; its score is {its_score}.",
            f"Take the row $({SPREAD}, -{SPREAD})$ with $\\varepsilon = {EPS}$, a scale of 1 and a shift of 0.",
        ],
        "p2-answer": [f"leaked_weight = {TIMES} / {TIMES + 1}", f"sigma, eps = {SPREAD}, {EPS}"],
    }
