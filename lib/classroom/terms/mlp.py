"""Numbers of exercise 07: the width, the two units and the five scores of problem 2."""

from __future__ import annotations

import math

from classroom.terms import listed, tex

NUMBERS = {
    # 8/3 of these lies a third of a step above a multiple of 256, so that rounding to 128 shows
    "D_BY_HAND": (2048, 1280, 2816, 3584, 5120),
    ("GATE", "UP"): (
        ((2, -1), (3, -4)), ((3, -2), (2, -5)), ((1, -3), (5, -2)), ((-1, 2), (4, -3)),
    ),
    "FUELS": ((2, 6, 1, 3, 8), (7, 2, 5, 1, 3), (1, 4, 2, 9, 3), (5, 3, 2, 1, 9)),
}  # fmt: skip
KEEPS = ()


def silu(x: float) -> float:
    return x / (1 + math.exp(-x))


def lines(D_BY_HAND: int, GATE: tuple[int, int], UP: tuple[int, int], FUELS: tuple[int, ...]) -> dict[str, list[str]]:
    inputs = sorted(GATE + UP)
    table = [" | ".join(row).replace("-", "−") for row in (map(str, inputs), [f"{silu(x):.3f}" for x in inputs])]
    best, second = sorted(range(5), key=lambda n: -FUELS[n])[:2]
    both = FUELS[best] + FUELS[second]
    return {
        "p2": [
            f"What is it for $d = {tex(D_BY_HAND)}$?",
            f"The row times $W_\\text{{gate}}$ is ${GATE}$, the row times $W_\\text{{up}}$ is ${UP}$, and",
            f"| $x$ | {table[0]} |",
            f"| $\\operatorname{{SiLU}}(x)$ | {table[1]} |",
            "**A choice.** Five experts get scores from the router. "
            f"The exponentials $e^\\text{{score}}$ are {listed(FUELS)}.",
        ],
        "p2-answer": [
            f"d_ff = {math.ceil(8 * D_BY_HAND / 768)} * 256",
            f"gates, ups = {GATE}, {UP}",
            f"chosen = [{best}, {second}]",
            f"weights = [{FUELS[best]} / {both}, {FUELS[second]} / {both}]",
        ],
    }
