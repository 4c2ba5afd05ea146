"""What crosses a bridge besides values: exceptions, slopes, and changes made in place."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

LONGEST = 10_000  # characters of an exception's text, and of what a call prints


class Gone(Exception):
    """The other process has ended, or sent something that is no message."""


class Through(torch.autograd.Function):
    """Tensors that the other side computed, as a function of those they were computed from."""

    @staticmethod
    def forward(ctx, results: list, back: Callable, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.back = back
        results = [one.detach() for one in results]
        ctx.mark_non_differentiable(*(one for one in results if not one.is_floating_point()))
        return tuple(results)

    @staticmethod
    def backward(ctx, *slopes: torch.Tensor) -> tuple:
        return None, None, *ctx.back([slope.detach() for slope in slopes])


def described(error: BaseException, where: str) -> list:
    """An exception as plain data: its name, the built-in classes it derives from, its text, and a line of code."""
    known = [base.__name__ for base in type(error).__mro__ if getattr(builtins, base.__name__, None) is base]
    try:
        only = error.args[0] if len(error.args) == 1 else None
        text = only if type(only) is str else str(error)
    except BaseException:  # a student's exception may refuse
        text = "(an exception without a text)"
    return [
        str(type(error).__name__)[:80],
        known,
        str(text)[:LONGEST],
        str(error.__dict__.get("_located", where))[:500],
    ]


def revived(name: Any, bases: Any, text: Any, where: Any) -> Exception:
    """An exception of that name, with the text; its `line_of_answer` says where it was raised."""
    if not all(type(part) is str for part in (name, text, where)) or type(bases) is not list:
        raise Gone("an exception of no known form")
    classes = [getattr(builtins, base, None) for base in bases if type(base) is str]
    classes = [c for c in classes if isinstance(c, type) and issubclass(c, Exception)] or [Exception]
    if issubclass(classes[0], StopIteration | StopAsyncIteration):  # it would end a loop of a check, which then passes
        classes[0] = RuntimeError
    own = classes[0] if classes[0].__name__ == name else type(name, (classes[0],), {})
    try:
        error = own(text)
    except TypeError:  # UnicodeDecodeError wants five arguments
        error = type(name, (Exception,), {})(text)
    if name == "CheckFailed":
        error._render_traceback_ = lambda: ["✗ " + text]
    error.line_of_answer = where
    return error


def is_tensor(value: Any) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter)


def put(target: Any, value: Any) -> None:
    """Make `target` hold what `value` holds, in place, as far as both are of one kind and shape."""
    if type(target) is not type(value):
        return
    if isinstance(target, torch.Tensor) and target.shape == value.shape and target.dtype == value.dtype:
        if not target.is_meta:
            with torch.no_grad():
                target.copy_(value)
    elif isinstance(target, np.ndarray) and target.shape == value.shape and target.dtype == value.dtype:
        target[...] = value
    elif isinstance(target, list):
        target[:] = value
    elif isinstance(target, (dict, set)):
        target.clear()
        target.update(value)
