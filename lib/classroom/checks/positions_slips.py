"""What is right in exercise 05, and the wrong answers that its checks know by name.

Truth comes from `plainformer.positions`. Slips are other exact computations: another sign, exponent, pairing or
position. The checks use `CATALOGUE` for diagnosis, and the tests hand each of its answers to the grader.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from classroom import terms
from classroom.checks.positions_probes import VERDICTS, Rotation, scores, turned
from plainformer import positions as library

F64 = torch.float64

# ---- problem 2: by hand; each pair is ROOT times as slow as the one before it ----

WIDTH, ROOT = terms.numbers("positions")
_PAIRS = range(WIDTH // 2)
SPEEDS = [1 / ROOT**n for n in _PAIRS]
WAVE = 2 * math.pi * ROOT ** _PAIRS[-1]  # of the slowest pair
HALVES = [(n, n + len(_PAIRS)) for n in _PAIRS]
EVEN_ODD = [(2 * n, 2 * n + 1) for n in _PAIRS]
MIRRORED = [(n, WIDTH - 1 - n) for n in _PAIRS]

# ---- problem 3: sinusoids ----


def shifted(k: int, d_model: int, base: float) -> Tensor:
    """The matrix M with row p times M = row p + k: the turn of each pair, which are (sine, cosine)."""
    blocks = [torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]], dtype=F64)
              for a in (k * base ** (-n / d_model) for n in range(0, d_model, 2))]  # fmt: skip
    return torch.block_diag(*blocks)


def _row(value: Callable[[Tensor, Tensor, int, float], Tensor]) -> dict[str, Callable]:
    """`value` of (positions as a column, n = 0, 1, …, d, base)."""

    def wrong(n_positions, d_model, base):
        return value(
            torch.arange(n_positions, dtype=F64)[:, None], torch.arange(d_model // 2, dtype=F64), d_model, base
        )

    return {"sinusoid_rows": wrong}


def _woven(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack([first, second], -1).flatten(-2)


def _waves(angles: Tensor) -> Tensor:
    return _woven(angles.sin(), angles.cos())


def _shift(value: Callable[[int, int, float], Tensor]) -> dict[str, Callable]:
    return {"shift_matrix": lambda k, d_model, base: value(k, d_model, base)}


# ---- problem 4: turns ----


def _split(x: Tensor, pairing: str) -> tuple[Tensor, Tensor]:
    return x.chunk(2, -1) if pairing == "halves" else (x[..., ::2], x[..., 1::2])


def _joined(pair: tuple[Tensor, Tensor], pairing: str) -> Tensor:
    return torch.cat(pair, -1) if pairing == "halves" else _woven(*pair)


def _angles(x: Tensor, positions: Tensor, base: float) -> Tensor:
    return positions[:, None] * base ** (-torch.arange(0, x.shape[-1], 2, dtype=F64) / x.shape[-1])


def _turn(value: Callable[..., Tensor]) -> dict[str, Callable]:
    return {"turn": lambda x, positions, base, pairing: value(x, positions, base, pairing)}


def _turn_by(angles: Callable[[Tensor, Tensor, float], Tensor]) -> dict[str, Callable]:
    """A turn by other angles."""

    def wrong(x, positions, base, pairing):
        a, (first, second) = angles(x, positions, base), _split(x, pairing)
        return _joined((first * a.cos() - second * a.sin(), second * a.cos() + first * a.sin()), pairing)

    return {"turn": wrong}


def _other_exponent(x: Tensor, positions: Tensor, base: float) -> Tensor:
    return positions[:, None] * base ** (-torch.arange(x.shape[-1] // 2, dtype=F64) / x.shape[-1])


def _overwritten(x, positions, base, pairing):
    a, (first, second) = _angles(x, positions, base), _split(x, pairing)
    first = first * a.cos() - second * a.sin()
    return _joined((first, second * a.cos() + first * a.sin()), pairing)


def _turn_in_place(x, positions, base, pairing):
    x.copy_(turned(x, positions, base, pairing))
    return x


IN_PLACE = "your function changes x itself, which its caller still needs"
_TURNS = {
    "the other way round: the first of a pair becomes first · cos − second · sin": _turn_by(
        lambda x, p, base: -_angles(x, p, base)
    ),
    "the exponent is n / d_head; pair n has 2n / d_head": _turn_by(_other_exponent),
    "the exponent has no minus: each pair is slower than the one before it": _turn_by(
        lambda x, p, base: _angles(x, p, 1 / base)
    ),
    "the angle is that of position − 1": _turn_by(lambda x, p, base: _angles(x, p - 1, base)),
    "the argument positions is not used: the first row need not stand at position 0": _turn_by(
        lambda x, p, base: _angles(x, torch.arange(len(p)), base)
    ),
    "all pairs turn at one speed": _turn_by(lambda x, p, base: p[:, None] + 0 * _angles(x, p, base)),
    "sine and cosine are exchanged": _turn_by(lambda x, p, base: math.pi / 2 - _angles(x, p, base)),
    "the second feature is turned with the first one's new value; it needs the old one": _turn(_overwritten),
    IN_PLACE: _turn(_turn_in_place),
}

# ---- problem 5: the converter ----


def _convert(value: Callable[[Tensor, int, str], Tensor]) -> dict[str, Callable]:
    return {"convert": lambda weight, n_heads, to: value(weight, n_heads, to)}


def _other(to: str) -> str:
    return "even-odd" if to == "halves" else "halves"


def _swapped_neighbours(weight: Tensor, n_heads: int, to: str) -> Tensor:
    return weight.reshape(-1, 2, weight.shape[1]).flip(1).reshape(weight.shape)


def _columns(weight: Tensor, n_heads: int, to: str) -> Tensor:
    if weight.shape[1] < 2:
        return weight.clone()
    even = weight[:, : weight.shape[1] // 2 * 2]
    return torch.cat([library.convert_pairing(even.T, 1, to=to).T, weight[:, even.shape[1] :]], 1)


_CONVERSIONS = {
    "that is the conversion in the other direction": _convert(
        lambda w, h, to: library.convert_pairing(w, h, to=_other(to))
    ),
    "all rows are reordered as one head; each head keeps its rows": _convert(
        lambda w, h, to: library.convert_pairing(w, 1, to=to)
    ),
    "nothing is reordered: a view alone moves no row": _convert(lambda w, h, to: w.clone()),
    "the columns are reordered; a feature of a query is a row of the weight": _convert(_columns),
    "the two rows of each pair are exchanged": _convert(_swapped_neighbours),
}

# ---- problem 6: the relative property, tested ----


def _test(verdict: Callable[[Rotation, Tensor, Tensor], bool]) -> dict[str, Callable]:
    def wrong(rotation, d_head):
        q, k = torch.randn(2, d_head, generator=torch.Generator().manual_seed(2), dtype=F64)
        return bool(verdict(rotation, q, k))

    return {"is_relative": wrong}


def _same_vectors(rotation, q, k) -> bool:
    first, second = (rotation(torch.stack([q, k]), torch.tensor(at)) for at in ([5, 2], [1006, 1003]))
    return (first - second).abs().max().item() < 1e-9


def _exact(rotation, q, k) -> bool:
    return all(scores(rotation, q, k, 7 + n, 3 + n) == scores(rotation, q, k, 7, 3) for n in (1, 50, 1001, 3000))


def _close(rotation, q, k, pairs) -> bool:
    first, *others = [scores(rotation, q, k, p, r) for p, r in pairs]
    return all(abs(other - first) < 1e-8 for other in others)


def _exchanged(a: str, b: str) -> dict[str, dict]:
    other = {a: b, b: a}
    return {"verdicts": {name: other.get(verdict, verdict) for name, verdict in VERDICTS.items()}}


# ---- problem 8: pairs that never turn round ----


def wavelengths(d_head: int, base: float) -> list[float]:
    return [2 * math.pi * base ** (n / d_head) for n in range(0, d_head, 2)]


def _count(value: Callable[[int, float, int], int]) -> dict[str, Callable]:
    return {"unfinished": lambda d_head, base, n_context: value(d_head, base, n_context)}


def _base(value: Callable[[int, int], float]) -> dict[str, Callable]:
    return {"base_for": lambda d_head, n_context: value(d_head, n_context)}


def n_unfinished(d_head: int, base: float, n_context: int) -> int:
    return sum(wave > n_context for wave in wavelengths(d_head, base))


# check → what the slip is → the answers it gives
CATALOGUE: dict[str, dict[str, dict]] = {
    "predict": {
        "a number of positions is positive": {"guess": -5.0},
        "the fastest pair needs six positions already, and this is the slowest": {"guess": 3},
    },
    "speeds": {
        f"speeds: the exponent is n / {WIDTH}; pair n has 2n / {WIDTH}": {
            "speeds": [ROOT ** (-n / 2) for n in _PAIRS],
        },
        "speeds: each pair is slower than the one before it": {
            "speeds": [float(ROOT**n) for n in _PAIRS],
        },
        "wavelength: a full turn is 2π radians, not one": {"wavelength": float(ROOT ** _PAIRS[-1])},
        "wavelength: that is the fastest pair's; take the slowest": {"wavelength": 2 * math.pi},
        f"wavelength: that is the next pair's, which a head of width {WIDTH} does not have": {
            "wavelength": ROOT * WAVE,
        },
    },
    "pairs": {
        "the two are exchanged": {"halves": EVEN_ODD, "even_odd": HALVES},
        f"halves: feature n goes with feature n + {len(_PAIRS)}; you mirror the second half": {
            "halves": MIRRORED,
        },
        "features are counted from 0": {"even_odd": [(a + 1, b + 1) for a, b in EVEN_ODD]},
    },
    "rows": {
        "the exponent is n / d; hand n has 2n / d": _row(lambda p, n, d, base: _waves(p * base ** (-n / d))),
        "the exponent has no minus: each hand is slower than the one before it": _row(
            lambda p, n, d, base: _waves(p * base ** (2 * n / d))
        ),
        "positions are counted from 1; the first is 0": _row(lambda p, n, d, b: _waves((p + 1) * b ** (-2 * n / d))),
        "sine and cosine are exchanged: feature 2n is the sine": _row(
            lambda p, n, d, base: _woven((p * base ** (-2 * n / d)).cos(), (p * base ** (-2 * n / d)).sin())
        ),
        "all sines come first, then all cosines; here they alternate": _row(
            lambda p, n, d, base: torch.cat([(p * base ** (-2 * n / d)).sin(), (p * base ** (-2 * n / d)).cos()], -1)
        ),
    },
    "shift": {
        "that moves back by k: a row stands on the left of the matrix": _shift(lambda k, d, b: shifted(k, d, b).T),
        "the exponent is n / d; hand n has 2n / d": _shift(lambda k, d, base: shifted(k, d, base**0.5)),
        "that moves on by 1, whatever k is": _shift(lambda k, d, base: shifted(1, d, base)),
    },
    "even_odd": _TURNS | {
        "the pairs are halves; with even-odd they are neighbours": _turn(
            lambda x, p, b, how: turned(x, p, b, "halves")
        ),
        "the right pairs are turned and put back as halves": _turn(
            lambda x, p, b, how: _joined(_split(turned(x, p, b, how), how), "halves")
        ),
    },
    "halves": _TURNS | {
        "the pairs are neighbours; with halves they lie d_head / 2 apart": _turn(
            lambda x, p, b, how: turned(x, p, b, "even-odd")
        ),
    },
    "to_halves": _CONVERSIONS,
    "to_even_odd": _CONVERSIONS,
    "spares": {
        "it says False of everything": _test(lambda rotation, q, k: False),
        "it compares with ==; sums in another order differ in the last digit": _test(_exact),
        "it compares the turned vectors; only their dot products stay": _test(_same_vectors),
    },
    "kills": {
        "it says True of everything": _test(lambda rotation, q, k: True),
        "it tries distance 0 alone": _test(lambda f, q, k: _close(f, q, k, [(0, 0), (9, 9), (2001, 2001)])),
        "it tries small positions alone": _test(lambda f, q, k: _close(f, q, k, [(5, 2), (6, 3), (48, 45)])),
    },
    "right_one": {
        "shift all positions by 100: a right head's output stays, and this one's does not": {"right_one": "A"},
        "its weights are not those that your own `turn` gives": {"right_one": "E"},
    },
    "verdicts": {
        "sign and shifted are exchanged: the shifted head is wrong at distance 0 too": _exchanged("sign", "shifted"),
        "exponent and sign are exchanged: with d_head = 2 there is one pair, whose exponent is 0":
            _exchanged("exponent", "sign"),
        "exponent and shifted are exchanged: put query and key at one position": _exchanged("exponent", "shifted"),
        "values and right are exchanged: shift all positions by 100": _exchanged("values", "right"),
    },
    "unfinished": {
        "features are counted; two of them make a pair": _count(lambda d, b, t: 2 * n_unfinished(d, b, t)),
        "those that finish are counted": _count(lambda d, b, t: d // 2 - n_unfinished(d, b, t)),
        "a full turn is 2π radians, not one": _count(lambda d, b, t: n_unfinished(d, b, round(t * 2 * math.pi))),
        "the exponent is n / d_head; pair n has 2n / d_head": _count(lambda d, b, t: n_unfinished(d, b**0.5, t)),
    },
    "base_for": {
        "the slowest pair's exponent is (d_head − 2) / d_head, not 1": _base(lambda d, t: t / (2 * math.pi)),
        "a full turn is 2π radians, not one": _base(lambda d, t: t ** (d / (d - 2))),
        "the exponent is upside down": _base(lambda d, t: (t / (2 * math.pi)) ** ((d - 2) / d)),
    },
}  # fmt: skip
