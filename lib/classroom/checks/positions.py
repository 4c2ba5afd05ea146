"""Checks of exercise 05: sinusoids, rotary positions in both pairings, and what must hold of them.

One mechanism a check. The notebook calls each on the student's names; a hidden test hands other tensors to it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch
from torch import Tensor

from classroom.checks import positions_drawn as drawn
from classroom.checks.expect import CheckFailed, call, given, in_any_order, number, passed, refuse, same
from classroom.checks.expect import hidden_test as hidden_test  # for the hidden tests of the notebook
from classroom.checks.positions_probes import NOT_RELATIVE, RELATIVE, VERDICTS, turned
from classroom.checks.positions_probes import head as _head
from classroom.checks.positions_probes import rows as _rows
from classroom.checks.positions_slips import (
    CATALOGUE,
    EVEN_ODD,
    HALVES,
    IN_PLACE,
    MIRRORED,
    SPEEDS,
    WAVE,
    n_unfinished,
    shifted,
    wavelengths,
)
from classroom.checks.progress import graded
from plainformer.positions import convert_pairing

ROUNDED = 6e-4  # an answer may be rounded to three decimals
EXACT = 1e-9  # float64: cosines of angles up to 1e5 radians are good to 1e-11, and a few products follow


def _wrong(check: str, name: str) -> dict:
    return {says: answers[name] for says, answers in CATALOGUE[check].items() if name in answers}


def _short(function: Callable, what: str, arguments: dict):
    """`call`, without tensors and functions in its message."""
    try:
        return call(function, what, **arguments)
    except CheckFailed as failure:
        _, raises, reason = str(failure).partition(") raises ")
        if raises:
            raise CheckFailed(f"{what} raises {reason}") from None
        if ") returns None" in str(failure):
            raise CheckFailed(f"{what} returns None. Did you forget `return`?") from None
        raise


def _compare(check: str, function: Callable, what: str, arguments: dict, right, named: str, tolerance=EXACT) -> None:
    wrong = {}
    for says, slip in _wrong(check, what).items():
        if says != IN_PLACE:
            wrong[says] = slip(**arguments)
    own = {name: value.clone() if isinstance(value, Tensor) else value for name, value in arguments.items()}
    same(_short(function, what, own), right, named, wrong=wrong, tolerance=tolerance)
    for name, value in arguments.items():
        if isinstance(value, Tensor) and not torch.equal(value, own[name]):
            raise CheckFailed(
                f"{what}: {IN_PLACE}\n(the result is right; the argument {name} is not what it was)", IN_PLACE
            )


# ---- problem 1: predict ----


@graded
def predict(guess) -> None:
    _guessed(guess)
    passed("noted; problem 8 tells how far off it is")


def _guessed(guess) -> int | float:
    value = number(guess, "guess", "300")
    positive, fast = CATALOGUE["predict"]
    refuse("guess", (value <= 0, positive), (value < 2 * math.pi - 0.3, fast))
    return value


def how_far(guess) -> None:
    """Tell the ratio of the guess to the slowest pair's wavelength."""
    wave = wavelengths(64, 10_000.0)[-1]
    print(
        f"The slowest pair needs {wave:,.0f} positions for a turn; you guessed {_guessed(guess) / wave:.2g} times that."
    )


# ---- problem 2: by hand ----


@graded
def speeds(speeds, wavelength) -> None:
    same(speeds, SPEEDS, "speeds", wrong=_wrong("speeds", "speeds"), tolerance=1e-6, reveal=False)
    wrong = _wrong("speeds", "wavelength")
    by_hand = 40 / 6283 * WAVE  # 6,280 to 6,300 all serve for 6,283
    same(wavelength, WAVE, "wavelength", wrong=wrong, tolerance=by_hand, reveal=False)
    passed("speeds, and the slowest pair's wavelength")


@graded
def pairs(halves, even_odd) -> None:
    exchanged, mirrored, from_one = CATALOGUE["pairs"]
    found = {}
    for what, answer in (("halves", halves), ("even_odd", even_odd)):
        if type(given(answer, what)) not in (list, tuple) or any(type(p) not in (list, tuple) for p in answer):
            raise CheckFailed(f"{what} must be a list of pairs such as [(3, 5), (1, 7)].")
        found[what] = sorted(tuple(sorted(number(f, f"a feature of {what}", "3") for f in pair)) for pair in answer)
    right = {"halves": HALVES, "even_odd": EVEN_ODD}
    if found == {"halves": EVEN_ODD, "even_odd": HALVES}:
        raise CheckFailed(exchanged, slip=exchanged)
    for what, expected in right.items():
        if found[what] == [(a + 1, b + 1) for a, b in expected]:
            raise CheckFailed(f"{what}: {from_one}", slip=from_one)
        if what == "halves" and found[what] == MIRRORED:
            raise CheckFailed(mirrored, slip=mirrored)
        same(found[what], expected, what, reveal=False)
    passed("which features turn together")


# ---- problem 3: sinusoids ----


@graded
def rows(sinusoid_rows, *cases: tuple) -> None:
    """Cases are (n_positions, d_model, base)."""
    for n_positions, d_model, base in cases or ((7, 10, 100.0),):
        arguments = {"n_positions": n_positions, "d_model": d_model, "base": base}
        _compare("rows", sinusoid_rows, "sinusoid_rows", arguments, _rows(**arguments), "sinusoid_rows")
    passed("rows of sinusoids")


@graded
def shift(shift_matrix, *cases: tuple) -> None:
    """Cases are (k, d_model, base)."""
    for k, d_model, base in cases or ((3, 10, 100.0),):
        arguments = {"k": k, "d_model": d_model, "base": base}
        _compare("shift", shift_matrix, "shift_matrix", arguments, shifted(**arguments), "shift_matrix")
    passed("one matrix moves every row on by k")


# ---- problem 4: turns ----

_CHANCE = torch.Generator().manual_seed(5)


def tensor(*shape: int) -> Tensor:
    """Normal numbers, in float64."""
    return torch.randn(*shape, generator=_CHANCE, dtype=torch.float64)


# two texts, three heads, five positions of which the first is not 0, eight features
_X, _POSITIONS, _BASE = tensor(2, 3, 5, 8), torch.tensor([2, 3, 7, 20, 21]), 100.0


def extremes() -> list[tuple[Tensor, Tensor, float]]:
    """Other cases: far out, large, shifted, one position, unordered, one pair, one speed."""
    return [
        (tensor(1, 4, 3, 6), torch.tensor([0, 1, 100_000]), 500_000.0),
        (1000 * tensor(3, 1, 2, 10), torch.tensor([4095, 4096]), 10_000.0),
        (tensor(1, 2, 4, 12) + 100, torch.tensor([9, 3, 3, 0]), 10_000.0),
        (tensor(2, 5, 1, 4), torch.tensor([17]), 2.0),
        (tensor(1, 1, 3, 2), torch.tensor([1, 2, 3]), 10_000.0),
    ]


@graded
def even_odd(turn, *cases: tuple) -> None:
    """Cases are (x, positions, base)."""
    _turned("even_odd", turn, "even-odd", cases)
    passed("neighbours turned")


@graded
def halves(turn, *cases: tuple) -> None:
    """Cases are (x, positions, base)."""
    _turned("halves", turn, "halves", cases)
    passed("halves turned")


def _turned(check: str, turn: Callable, pairing: str, cases: tuple) -> None:
    for x, positions, base in cases or ((_X, _POSITIONS, _BASE),):
        arguments = {"x": x, "positions": positions, "base": base, "pairing": pairing}
        right = turned(**arguments)
        _compare(check, turn, "turn", arguments, right, f'turn with pairing="{pairing}"', 1e-8)


# ---- problem 5: the converter ----


@graded
def to_halves(convert, *cases: tuple) -> None:
    """Cases are (weight, n_heads)."""
    _converted("to_halves", convert, "halves", cases)
    passed("converted to halves")


@graded
def to_even_odd(convert, *cases: tuple) -> None:
    """Cases are (weight, n_heads)."""
    _converted("to_even_odd", convert, "even-odd", cases)
    passed("converted to even-odd")


def _converted(check: str, convert: Callable, to: str, cases: tuple) -> None:
    # whole numbers that say where they stood: row 23 begins with 2300
    visible = (100.0 * torch.arange(24, dtype=torch.float64)[:, None] + torch.arange(10), 3)
    for weight, n_heads in cases or (visible,):
        arguments = {"weight": weight, "n_heads": n_heads, "to": to}
        right = convert_pairing(**arguments)
        _compare(check, convert, "convert", arguments, right, f'convert with to="{to}"')


# ---- problem 6: the relative property ----


# Of known functions an answer may know which is which: those of a hidden test are drawn where no answer sees it.
_UNKNOWN = random.SystemRandom()


@graded
def spares(is_relative, *, other: bool = False) -> None:
    """The student's test must say True of every rotation that has the property; with `other`, of others, drawn anew."""
    versions = drawn.relative(_UNKNOWN) if other else RELATIVE
    lacks_it = drawn.added(_UNKNOWN) if other else NOT_RELATIVE["a sinusoid added to x"]
    _judged("spares", is_relative, versions, lacks_it, True)
    passed(f"it says True of all {len(versions)} functions that have the property")


@graded
def kills(is_relative, *, other: bool = False) -> None:
    """And False of every one that has not."""
    versions = drawn.not_relative(_UNKNOWN) if other else NOT_RELATIVE
    has_it = drawn.turn(_UNKNOWN) if other else RELATIVE["halves"]
    _judged("kills", is_relative, versions, has_it, False)
    passed(f"it says False of all {len(versions)} functions that have not")


def _judged(check: str, is_relative: Callable, versions: dict, other: drawn.Version, right: bool) -> None:
    def ask(version) -> bool:
        d_head, rotation = version
        answer = _short(is_relative, "is_relative", {"rotation": rotation, "d_head": d_head})
        if getattr(answer, "ndim", 1) == 0:  # a single truth value of torch or numpy
            answer = answer.item()
        if type(answer) is not bool:
            raise CheckFailed(f"is_relative must return True or False; it returns a {type(answer).__name__}.")
        return answer

    # a function that says the same of everything has tested nothing
    *answers, of_other = in_any_order(ask, [*versions.values(), other])
    found = dict(zip(versions, answers))
    missed = [name for name, answer in found.items() if answer is not right]
    if missed:
        shown = f"it says {not right} of: {'; '.join(missed)}"
        for says, slip in _wrong(check, "is_relative").items():
            if found == {name: slip(rotation, d_head) for name, (d_head, rotation) in versions.items()}:
                raise CheckFailed(f"is_relative: {says}.\n{shown}", slip=says)
        raise CheckFailed(f"is_relative: {shown}")
    if of_other == right:
        says = next(says for says in CATALOGUE["spares" if not right else "kills"] if "everything" in says)
        raise CheckFailed(f"is_relative: {says}.")


# ---- problem 7: five heads ----


def heads() -> dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]]:
    """Five heads by letter: functions of (q, k, v, positions)."""
    return {name: _head(kind) for name, kind in VERDICTS.items()}


@graded
def right_one(right_one) -> None:
    moves, weights = CATALOGUE["right_one"]
    wrong = {weights: next(x for x in "BDE" if x != right_one)} | {moves: "A"}
    if right_one in ("B", "D", "E"):
        wrong[weights] = right_one
    same(right_one, "C", "right_one", wrong=wrong, choices=tuple(VERDICTS), reveal=False)
    passed("the right one")


@graded
def verdicts(verdicts) -> None:
    if type(given(verdicts, "verdicts")) is dict:
        for name, word in verdicts.items():
            same(word, word, f"verdicts[{name!r}]", choices=tuple(sorted(VERDICTS.values())))
    same(verdicts, VERDICTS, "verdicts", wrong=_wrong("verdicts", "verdicts"), reveal=False)
    passed("all five heads")


# ---- problem 8: pairs that never turn round ----


@graded
def unfinished(unfinished, *cases: tuple) -> None:
    """Cases are (d_head, base, n_context)."""
    for d_head, base, n_context in cases or ((64, 10_000.0, 2048), (128, 500_000.0, 8192)):
        arguments = {"d_head": d_head, "base": base, "n_context": n_context}
        named = f"unfinished({d_head}, {base:,.0f}, {n_context:,})"
        _compare("unfinished", unfinished, "unfinished", arguments, n_unfinished(**arguments), named, 0.0)
    passed("pairs that do not come round")


@graded
def base_for(base_for, *cases: tuple) -> None:
    """Cases are (d_head, n_context)."""
    for d_head, n_context in cases or ((8, 1000), (64, 8192)):
        right = (n_context / (2 * math.pi)) ** (d_head / (d_head - 2))
        arguments = {"d_head": d_head, "n_context": n_context}
        named = f"base_for({d_head}, {n_context:,})"
        _compare("base_for", base_for, "base_for", arguments, right, named, 1e-9 * right)
    passed("the base for a context")
