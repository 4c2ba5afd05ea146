"""Printed figures, read and compared: "8.9 million", "+38.6 M", "2.684e8", "16%", "512 KiB", "512 / 8 / 6".

A figure has a value in base units (a plain count, bytes, FLOPs, seconds; a percentage is a fraction of one)
and a step: what one unit of its last printed digit is worth. "8.9 million" has the value 8,900,000 and the
step 100,000. All arithmetic is on fractions, so no comparison depends on rounding in floating point.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

Number = int | float | Fraction

WORDS = {
    "half": Fraction(1, 2),
    "a third": Fraction(1, 3),
    "one third": Fraction(1, 3),
    "two thirds": Fraction(2, 3),
}
UNITS = {"": 1, "x": 1, "×": 1, "%": Fraction(1, 100), "thousand": 10**3, "million": 10**6}
UNITS |= {"billion": 10**9, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
UNITS |= {prefix + "B": 10 ** (3 * power) for power, prefix in enumerate(("k", "M", "G", "T"), 1)}
UNITS |= {prefix + "iB": 2 ** (10 * power) for power, prefix in enumerate(("K", "M", "G", "T"), 1)}
UNITS |= {
    prefix + flop: 10 ** (3 * power) for power, prefix in enumerate(("M", "G", "T"), 2) for flop in ("FLOP", "FLOPs")
}

_ABOUT = re.compile(r"^(?:about|roughly|nearly|near|~|≈)\s*")
_NUMBER = re.compile(
    r"(?P<sign>[+\-−]?)(?P<whole>\d{1,3}(?:,\d{3})+|\d+)(?:\.(?P<decimals>\d+))?(?:e(?P<exponent>[+\-]?\d+))?"
    r"\s*(?P<unit>[A-Za-z%×]*)"
)
_RATIO = re.compile(r"([+\-−]?\d+)/(\d+)")
_RANGE = re.compile(r"(?P<low>[\d.,]*\d)\s*[-–]\s*(?P<high>\d[\d.,]*\s*(?P<unit>[A-Za-z%×]*))")
_SEPARATOR = re.compile(r",\s+|\s+[/x×]\s+")  # "32,000" is one number, "32, 000" are two


@dataclass(frozen=True)
class Figure:
    """One printed figure: `value` and `step` in base units; `step` is 0 for ratios and words; `unit` as printed."""

    value: Fraction
    step: Fraction
    unit: str = ""


def parse(text: str) -> tuple[Figure, ...]:
    """Reads one figure, or several ("512, 8, 6", "(2, 1024)", "32,000 x 4,096", "10-25%"), as a flat tuple.

    Raises ValueError when the text is anything else, a formula or a word for instance.
    """
    bare = _ABOUT.sub("", text.strip()).replace("(", "").replace(")", "")
    return tuple(figure for part in _SEPARATOR.split(bare) for figure in _parse_part(part.strip(), text))


def is_printed(text: str) -> bool:
    """Whether `parse` can read the text."""
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _parse_part(part: str, text: str) -> list[Figure]:
    if part in WORDS:
        return [Figure(WORDS[part], Fraction(0))]
    if ratio := _RATIO.fullmatch(part):
        return [Figure(Fraction(int(ratio[1].replace("−", "-")), int(ratio[2])), Fraction(0))]
    if ends := _RANGE.fullmatch(part):  # the unit printed once belongs to both ends
        return _parse_part(ends["low"] + ends["unit"], text) + _parse_part(ends["high"], text)
    number = _NUMBER.fullmatch(_ABOUT.sub("", part))
    if number is None or number["unit"] not in UNITS:
        raise ValueError(
            f"{text!r} is not a printed figure: expected a number such as '6,738,415,616', '8.9 million', "
            f"'2.684e8', '-6%' or '512 KiB', or several separated by ', '. Units: {', '.join(UNITS)[2:]}."
        )
    decimals = number["decimals"] or ""
    step = Fraction(UNITS[number["unit"]]) * Fraction(10) ** (int(number["exponent"] or 0) - len(decimals))
    digits = int(number["whole"].replace(",", "") + decimals)
    return [Figure((-digits if number["sign"] in ("-", "−") else digits) * step, step, number["unit"])]


def equals(values: tuple[Number, ...], figures: tuple[Figure, ...]) -> bool:
    """Whether each value is the printed number: exactly, or for a float the float nearest to it."""

    def same(value: Number, figure: Figure) -> bool:
        return value == (float(figure.value) if isinstance(value, float) else figure.value)

    return len(values) == len(figures) and all(map(same, values, figures))


def prints_as(values: tuple[Number, ...], figures: tuple[Figure, ...]) -> bool:
    """Whether each value, rounded to the digits printed, is the figure (a tie may go either way).

    In a tuple the finest step counts for all: the 0 in "(0.860, 1.432, 0, 0.572)" is a 0.000.
    """
    step = finest_step(figures)
    return (step == 0 and equals(values, figures)) or near(values, figures, step / 2)


def near(values: tuple[Number, ...], figures: tuple[Figure, ...], tolerance: Fraction, relative=False) -> bool:
    """Whether each value lies within `tolerance` of its figure, or within that fraction of it."""

    def close(value: Number, figure: Figure) -> bool:
        return abs(Fraction(value) - figure.value) <= tolerance * (abs(figure.value) if relative else 1)

    return len(values) == len(figures) and all(map(close, values, figures))


def finest_step(figures: tuple[Figure, ...]) -> Fraction:
    """The smallest step among the figures; 0 when one of them is a ratio or a word."""
    return min(figure.step for figure in figures)


def show(value: Number, step: Fraction = Fraction(0), unit: str = "") -> str:
    """Prints a value with separated thousands; a float is cut to the power of ten at or below `step`.

    Without a step a float keeps 12 significant digits. With the unit "%" a fraction prints as a percentage.
    """
    percent = unit == "%"
    if isinstance(value, int) and not percent:
        return f"{value:,}"
    if isinstance(value, Fraction) and not percent:
        return str(value)
    exact = Fraction(value) * (100 if percent else 1)
    if not step:
        return f"{float(exact):,.12g}" + "%" * percent
    # the exponent of the power of ten that is at or below the step
    power = Decimal(str(float(step * (100 if percent else 1)))).adjusted()
    cut = round(exact / Fraction(10) ** power)  # an int: there is no negative zero
    return f"{Decimal(cut).scaleb(power):,f}" + "%" * percent
