"""Numbers of exercise 10: the layer of problems 1 to 3. The first ones are those that the book prints."""

from __future__ import annotations

from fractions import Fraction

from classroom.terms import as_power, ratio, split_off_twos, tex

# T / D is 4 as printed, later 2, 3 or 5: below 6, so that the table's rows enclose the half-way point as the text says
NUMBERS = {
    ("D", "T"): (
        (4096, 16_384), (2048, 4096), (5120, 10_240), (8192, 16_384), (6144, 12_288), (1536, 4608), (5120, 15_360),
        (3072, 9216), (6144, 18_432), (2560, 12_800), (5120, 25_600), (2048, 10_240),
    )
}  # fmt: skip
KEEPS = ("predict", "errs", "why")


def share(D: int, T: int) -> Fraction:
    return Fraction(T, T + 6 * D)


def lines(D: int, T: int) -> dict[str, list[str]]:
    rows = (T // 8, T // 2, 2 * T, 8 * T)
    low, high = share(D, T // 2), share(D, 2 * T)
    _, power = split_off_twos(D)
    return {
        "p1": [f"A layer has width $d = {tex(D)}$. Its next token is the last of $T = {tex(T)}$."],
        "p2": [
            f"Hint: $d = {as_power(D)}$ and $T = {as_power(T)}$, "
            "so both terms are a small number times a power of two.",
            f"$2^{{{2 * power}}}$ is ${tex(4**power)}$.",
        ],
        "p2-answer": [f"d, T = {D:_}, {T:_}"],
        "p3": [
            f"A table gives the last token's share at width {D:,}:",
            "| $T$ | " + " | ".join(f"{row:,}" for row in rows) + " |",
            "| share | " + " | ".join(f"{float(share(D, row)):.1%}" for row in rows) + " |",
            f"Somebody has no formula and wants the share at {T:,}.",
            f"She draws a straight line between the rows {T // 2:,} and {2 * T:,} and reads it off, "
            "once on each of two papers.",
            f"   (Take {ratio(low)} and {ratio(high)} for the two rows.)",
            f"   `log_errs_beyond`: and the reading at {4 * T:,}, on logarithmic paper, "
            f"from the rows {2 * T:,} and {8 * T:,}?",
            f'   - `"E"` {T:,} is not in the middle of the two rows, and a line is right at the middle alone.',
        ],
        "p3-answer": [
            f"low, high = {low.numerator} / {low.denominator}, {high.numerator} / {high.denominator}",
        ],
    }
