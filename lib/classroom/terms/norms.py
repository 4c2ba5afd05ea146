"""Numbers of exercise 06: the vector of problem 2, its weight and its shift.

Problems 6 to 8 measure: what they ask for cannot change without new measurements.
"""

from __future__ import annotations

from classroom.terms import tex

# mean, deviation and root mean square are whole numbers: 8, 6, 10 as printed, later 6, 8, 10 or 12, 16, 20, both signs
NUMBERS = {
    "X": (
        (17, -1, 11, 5, 8), (2, 18, -6, 10, 6), (20, 12, 36, -12, 4), (-5, -8, 1, -17, -11), (-10, -2, -6, -18, 6),
        (-20, -12, 12, -4, -36),
    ),
    "WEIGHT": (2, 3, 5),
    "SHIFT": (1, 2, 5, 6),
}  # fmt: skip
KEEPS = ()


def lines(X: tuple[int, ...], WEIGHT: int, SHIFT: int) -> dict[str, list[str]]:
    return {
        "p2": [
            f"A token's vector is $x = ({', '.join(map(tex, X))})$. Leave $\\varepsilon$ out. No calculator is needed.",
            f"2. `layer`: LayerNorm of $x$, when every weight is {WEIGHT} and every shift is {SHIFT}.",
            f"3. `root`: RMSNorm of $x$, when every weight is {WEIGHT}.",
        ],
        "p2-answer": [
            f"x = {list(X)}",
            f"layer = [{WEIGHT} * (e - mean) / deviation + {SHIFT} for e in x]",
            f"root = [{WEIGHT} * e / root_mean_square for e in x]",
        ],
    }
