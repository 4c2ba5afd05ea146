"""Checks of functions of tensors: numbers to try them on, and a comparison that minds what they do to their inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from classroom.checks.expect import CheckFailed, call, same

# Answers in float32 are right too: 24 bits lose 6e-8 of a number, and some dozen of them are added up.
ROUNDING = 1e-5
TOUCHED = "the result is right, but a tensor that was handed in has changed: mind `+=` and names that end in `_`"


def numbers(*shape: int, key: int = 0, scale: float = 1.0) -> Tensor:
    """Numbers of spread `scale` in float64, another set for each `key`; torch's own generator stays as it is."""
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(key), dtype=torch.float64)


def agrees(function: Any, what: str, arguments: dict, expected: Any, wrong: Mapping[str, Callable]) -> None:
    """Raise `CheckFailed` unless ``function(**arguments)`` is `expected` up to rounding, and its inputs stay.

    `wrong` maps the description of a slip to a function that makes it. One that equals `expected` in all but what
    it does to its inputs stands there under the name of `TOUCHED`.
    """
    with torch.no_grad():
        slips = {says: slip(**copied(arguments)) for says, slip in wrong.items()}
        handed = copied(arguments)
        actual = call(function, what, **handed)
    same(actual, expected, what, wrong=slips, tolerance=ROUNDING * _size(expected))
    if not all(_equal(handed[name], arguments[name]) for name in arguments):
        raise CheckFailed(f"{what}: {TOUCHED}", slip=TOUCHED)


def worked_on(actual: Any, right: Any, what: str, slips: Mapping[str, Callable], arguments: dict) -> dict:
    """The slip that made `actual`, or none if it is `right`, in four digits; `CheckFailed` if it is neither.

    For a check of what an answer costs: who does not do the work has saved nothing.
    """
    try:
        _alike(actual, right, what)
    except CheckFailed as error:
        for says, slip in slips.items():
            with suppress(CheckFailed, RuntimeError):  # some slips are none for rows without a target
                _alike(actual, slip(**copied(arguments)), what)
                return {says: slip}
        raise CheckFailed(f"{error}\n(memory counts where the result is right)") from None
    return {}


def _alike(actual: Any, expected: Any, what: str) -> None:
    """Each part of a tuple by its own size. What is no number in a slip may be one in an answer."""
    if type(expected) is tuple and type(actual) in (tuple, list) and len(actual) == len(expected):
        for k, (one, other) in enumerate(zip(actual, expected)):
            _alike(one, other, f"{what}[{k}]")
        return
    size = 0.0 if type(expected) is tuple else torch.as_tensor(expected).nan_to_num().abs().max().item()
    if isinstance(expected, Tensor) and type(actual) is Tensor and actual.shape == expected.shape:
        actual = torch.where(expected.isnan(), expected, actual.detach()) if expected.isnan().any() else actual
    same(actual, expected, what, tolerance=1e-4 * size)


def copied(value: Any) -> Any:
    """Arguments to hand to an answer, which may write into them: what is expected follows from the originals."""
    if isinstance(value, dict):
        return {name: copied(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(copied, value))
    return value.clone() if isinstance(value, Tensor) else value


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_equal, one, other))
    return torch.equal(one, other) if isinstance(one, Tensor) else one is other or one == other


def _size(expected: Any) -> float:
    """The largest number of the answer, at least 1: what its rounding is relative to."""
    parts = expected if isinstance(expected, (list, tuple)) else [expected]
    largest = [part.abs().max().item() for part in parts if isinstance(part, Tensor) and part.is_floating_point()]
    return max([1.0, *largest])
