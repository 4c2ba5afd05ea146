"""Shapes as words in signatures: ``q: Float["... query d_head"]``.

An annotation here is a plain ``typing.Annotated[Tensor, kind, words]``: it costs nothing at run time.
The tests read the words and check them on every call (one word means one size within a call;
``...`` stands for any leading axes).
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor


class _Kind:
    def __class_getitem__(cls, axes: str):
        return Annotated[Tensor, cls, axes]


class Float(_Kind):
    """A tensor of floating-point numbers with the named axes."""


class Int(_Kind):
    """A tensor of integers with the named axes."""


class Bool(_Kind):
    """A tensor of booleans with the named axes; in a mask, True means "may look"."""
