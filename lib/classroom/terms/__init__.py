"""The numbers of the exercises, drawn anew each term from one seed.

A module of this package for each assignment says which of its numbers vary:

- `NUMBERS`: a name, or several names that must fit each other → what they may be. The first value is the printed one.
- `lines(...)`: with values for these names, in their order: every line of the source notebook that holds one of them
  or something computed from them, by the id of its cell.
- `KEEPS`: checks of the problems so changed whose right answer stays the same, such as one of two words.

The seed stands in seed.txt. 0 means the printed numbers; any other seed draws among all values but the printed ones.
`python -m classroom.grading term SEED` writes it and brings solutions/ and exercises/ up to date.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import pkgutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import ModuleType

SEED_FILE = Path(__file__).with_name("seed.txt")


def seed() -> int:
    """The seed of this term; 0: the printed numbers."""
    text = SEED_FILE.read_text(encoding="utf-8").strip()
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{SEED_FILE} must hold one whole number from 0 on, not {text!r}.")
    return int(text)


def stems() -> list[str]:
    """The assignments, by their names without a number, that have numbers here."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def numbers(stem: str, of: int | None = None) -> tuple:
    """The numbers of an assignment in this term, or in the term with the seed `of`."""
    of = seed() if of is None else of
    return _flat(stem, [_drawn(f"{of}/{stem}/{name}", values) if of else values[0] for name, values in _of(stem)])


def draws(stem: str) -> Iterator[tuple]:
    """Whatever a term can draw, and before it the printed numbers."""
    values = [values for _, values in _of(stem)]
    yield _flat(stem, [first for first, *_ in values])
    for drawn in itertools.product(*[later for _, *later in values]):
        yield _flat(stem, drawn)


def lines(stem: str, drawn: tuple) -> dict[str, list[str]]:
    """The lines of the source notebook that hold these numbers: id of the cell → lines."""
    return module(stem).lines(*drawn)


def named(stem: str, drawn: tuple) -> dict[str, object]:
    """These numbers by their names."""
    return dict(zip([name for key, _ in _of(stem) for name in _names(key)], drawn))


def module(stem: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{stem}")


def _of(stem: str) -> list[tuple]:
    return list(module(stem).NUMBERS.items())


def _names(key: str | tuple[str, ...]) -> tuple[str, ...]:
    return key if isinstance(key, tuple) else (key,)


def _flat(stem: str, drawn) -> tuple:
    """Values that were drawn together stand in a tuple; take it apart."""
    return tuple(
        value for (key, _), one in zip(_of(stem), drawn) for value in (one if isinstance(key, tuple) else (one,))
    )


def _drawn(key: str, values: tuple):
    """One of the later values: always the same for a key, in every version of Python."""
    later = values[1:]
    return later[int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") % len(later)]


# ---- how numbers are written in a notebook ----


def tex(number: int) -> str:
    """1536 → 1{,}536."""
    return f"{number:,}".replace(",", "{,}")


def ratio(number: Fraction) -> str:
    """1/4 as text or Python without spaces: 1/4."""
    return f"{number.numerator}/{number.denominator}"


def split_off_twos(number: int) -> tuple[int, int]:
    """1536 → (3, 9), since it is 3 · 2⁹."""
    power = (number & -number).bit_length() - 1
    return number >> power, power


def as_power(number: int) -> str:
    r"""4096 → 2^{12}; 3072 → 3 \cdot 2^{10}."""
    odd, power = split_off_twos(number)
    return (f"{odd} \\cdot " if odd > 1 else "") + f"2^{{{power}}}"


def word(number: int) -> str:
    """2 → two."""
    words = "no one two three four five six seven eight nine ten eleven twelve"
    return words.split()[number]


def listed(numbers: tuple) -> str:
    """(1, 3, 4) → 1, 3 and 4."""
    *first, last = (f"{n:,}" for n in numbers)
    return f"{', '.join(first)} and {last}"
