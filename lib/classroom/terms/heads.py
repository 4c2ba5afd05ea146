"""Numbers of exercise 03: the text of problem 1, rows and dot products of problem 2, the tensor of problem 3."""

from __future__ import annotations

import math

from classroom.terms import word

NUMBERS = {
    # positions of problem 1; the rows are 11, 12, … and 21, 22, …
    ("LONG", "TEN_1", "TEN_2"): ((16_384, 10, 20), (8192, 30, 50), (32_768, 40, 70), (65_536, 60, 90)),
    # what the two heads' large exponentials are
    ("TIMES_0", "TIMES_1"): ((2, 3), (3, 5), (4, 2), (5, 4), (6, 2)),
    # positions, width and heads of the tensor whose strides are asked for
    ("T_CUT", "D_CUT", "H_CUT"): ((5, 12, 3), (7, 20, 4), (6, 15, 5), (4, 21, 3), (9, 10, 2)),
}
KEEPS = ("predict", "split_heads", "merge_heads")


def lines(
    LONG: int, TEN_1: int, TEN_2: int, TIMES_0: int, TIMES_1: int, T_CUT: int, D_CUT: int, H_CUT: int
) -> dict[str, list[str]]:
    rows = [" & ".join(str(ten + n) for n in range(1, 7)) for ten in (TEN_1, TEN_2)]
    log_0, log_1 = math.log(TIMES_0), math.log(TIMES_1)
    stride, width = (T_CUT * D_CUT, D_CUT, 1), D_CUT // H_CUT
    n_0, n_1 = TIMES_0 + 2, TIMES_1 + 2
    return {
        "p1": [f"A block of width 4,096 has 32 heads and reads one text of {LONG:,} positions."],
        "p2": [
            f"$$\\begin{{pmatrix}} {rows[0]} \\\\ {rows[1]} \\end{{pmatrix}}$$",
            f"- 0, {2 * log_0:.3f}, 0 in head 0;",
            f"- {2 * log_1:.3f}, 0, 0 in head 1.",
            f"Hint: $e^{{{log_0:.3f}}} = {TIMES_0}$ and $e^{{{log_1:.3f}}} = {TIMES_1}$.",
        ],
        "p2-answer": [
            f"head_1 = [[{TEN_1 + 3}, {TEN_1 + 4}], [{TEN_2 + 3}, {TEN_2 + 4}]]",
            f"weights = [[1 / {n_0}, {TIMES_0} / {n_0}, 1 / {n_0}], [{TIMES_1} / {n_1}, 1 / {n_1}, 1 / {n_1}]]",
        ],
        "p3": [
            f"   A fresh tensor of shape (2, {T_CUT}, {D_CUT}) has the stride {stride}.",
            f"   It is cut into {word(H_CUT)} heads, with no number moved. "
            f"What is the stride of the result, of shape (2, {H_CUT}, {T_CUT}, {width})?",
        ],
        "p3-answer": [
            f"strides = ...  # four integers, as in {stride}",
            f"strides = ({T_CUT * D_CUT}, {width}, {D_CUT}, 1)",
        ],
    }
