"""Numbers of exercise 05: width and base of the head in problem 2."""

from __future__ import annotations

from classroom.terms import word

# the base is ROOT to the power of half the width, so that each pair is ROOT times as slow as the one before it
NUMBERS = {("WIDTH", "ROOT"): ((8, 10), (6, 20), (6, 50), (10, 5), (10, 4), (6, 40), (12, 3))}
KEEPS = ()


def lines(WIDTH: int, ROOT: int) -> dict[str, list[str]]:
    n_pairs = WIDTH // 2
    base = ROOT**n_pairs
    return {
        "p2": [
            f"A head is {WIDTH} wide, and the base is {base:,}.",
            f"1. `speeds`: the angles $\\omega_0, \\dots, \\omega_{n_pairs - 1}$ of one step.",
        ],
        "p2-answer": [
            f"speeds = ...  # a list of {word(n_pairs)} numbers",
            f"halves = ...  # a list of {word(n_pairs)} pairs such as (3, 5)",
            f"even_odd = ...  # a list of {word(n_pairs)} pairs",
            f"width, base = {WIDTH}, {ROOT}**{n_pairs}",
        ],
    }
