"""Compare an answer with what was expected, and say what a teacher would say.

A failing answer is first held against known wrong answers: if it equals one, the message names that slip.
Otherwise the message shows the first place that differs, with expected beside actual.
"""

from __future__ import annotations

import io
import linecache
import math
import random
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

SLACK = 0.01  # a slip is recognised in an answer that is rounded to two digits, such as 6.7 per cent for 6.75
UNANSWERED = "not answered yet"  # nbgrader_config.py puts these words into the stub of an answer cell


class CheckFailed(AssertionError):
    """A check that failed. `slip` is the description of the known wrong answer that was given, if any."""

    def __init__(self, message: str, slip: str | None = None):
        super().__init__(message)
        self.slip = slip

    def _render_traceback_(self) -> list[str]:
        """IPython shows these lines instead of the traceback through our own code."""
        return ["✗ " + line if k == 0 else "  " + line for k, line in enumerate(str(self).splitlines())]


def passed(what: str) -> None:
    """Say that a check passed, in one line."""
    print(f"✓ {what}")


def given(answer: Any, what: str) -> Any:
    """`answer`, unless its cell was left as it came."""
    if answer is None or answer is ...:
        raise CheckFailed(f"{what}: {UNANSWERED}.")
    return answer


def number(answer: Any, what: str, such_as: str) -> int | float:
    """`answer` as a plain, finite number; `CheckFailed` asks for one like `such_as` if it is anything else."""
    value = _plain(given(answer, what))
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return value
    raise CheckFailed(f"{what} is {_value(value)}; give a number such as {such_as}, without quotes.")


def refuse(what: str, *faults: tuple[bool, str]) -> None:
    """Raise `CheckFailed` with the words of the first fault that is there: (whether it is, what the slip is)."""
    for failed, says in faults:
        if failed:
            raise CheckFailed(f"{what}: {says}", slip=says)


def same(
    actual: Any,
    expected: Any,
    what: str,
    *,
    wrong: Mapping[str, Any] | None = None,
    choices: Sequence[str] = (),
    tolerance: float = 0.0,
    reveal: bool = True,
) -> None:
    """Raise `CheckFailed` unless `actual` is `expected`: of its type, and equal up to `tolerance` (absolute).

    Knows int, float, bool, str, dict, list, tuple and torch tensors, nested as you like.
    `wrong` maps the description of a slip to the answer it gives. With ``reveal=False`` the message does not
    show what was expected, for answers that a student types. `choices` are the words that an answer may be:
    another one, in other letters too, is told how they are written, and nothing about being right.
    """
    actual = given(actual, what)
    if choices and not (type(actual) is str and actual in choices):
        words = ", ".join(f'"{choice}"' for choice in choices)
        raise CheckFailed(f"{what} is {_value(actual)}: write one of {words}, exactly so.")
    difference = _difference(actual, expected, what, tolerance)
    if difference is None:
        return
    for says, value in (wrong or {}).items():
        if _difference(value, expected, what, tolerance) is None:
            continue  # here the slip makes no difference; a wrong answer that lies near it is another one's
        if _difference(actual, value, what, tolerance, slack=SLACK if tolerance else 0.0) is None:
            raise CheckFailed(f"{what}: {says}" + (f"\n{difference.shown}" if reveal else ""), slip=says)
    raise CheckFailed(f"{difference.hint}\n{difference.shown}" if reveal else difference.hint)


def call(function: Callable, what: str, /, **arguments: Any) -> Any:
    """``function(**arguments)``; if it raises, returns nothing or is no function, `CheckFailed` says so.

    `what` is the name that the student gave it.
    """
    if function is None or function is ...:
        raise CheckFailed(f"{what}: {UNANSWERED}.")
    if not callable(function):
        raise CheckFailed(
            f"{what} is {_type(function)}, not a function. Usual cause: a later line gives the name to something else."
        )
    try:
        result = function(**arguments)
    except NotImplementedError as error:
        raise CheckFailed(f"{what}: {str(error) or UNANSWERED}.") from None
    except (Exception, SystemExit) as error:
        where = _last_line(error, function)
        hint = "" if where else "\nUsual cause: the parameters of the function were renamed; keep its first line."
        raise CheckFailed(f"{_spelled(what, arguments)} raises {_type(error)}: {error}{where}{hint}") from None
    if result is None:
        raise CheckFailed(f"{_spelled(what, arguments)} returns None. Did you forget `return`?")
    return result


def in_any_order(ask: Callable[[Any], Any], questions: Sequence[Any]) -> list[Any]:
    """What `ask` says of each question, in the order given; asked in an order that no answer can know.

    A function that counts its calls earns nothing. The first question in the order given that fails is the one told.
    """
    answers: dict[int, Any] = {}
    for k in random.SystemRandom().sample(range(len(questions)), len(questions)):
        try:
            answers[k] = ask(questions[k])
        except CheckFailed as error:
            answers[k] = error
    for k in sorted(answers):
        if isinstance(answers[k], CheckFailed):
            raise answers[k]
    return [answers[k] for k in range(len(questions))]


@contextmanager
def hidden_test():
    """Hidden tests run in here, silently: their failure names the slip, not the values they used."""
    try:
        with redirect_stdout(io.StringIO()):
            yield
    except Exception as error:
        slip = getattr(error, "slip", None)
        raise CheckFailed(
            "a test with other sizes fails: "
            + (slip or "is something that holds for the visible sizes alone written into your code?"),
            slip=slip,
        ) from None


# ---- the comparison ----


class _Difference:
    def __init__(self, hint: str, shown: str):
        self.hint, self.shown = hint, shown


def _difference(actual: Any, expected: Any, what: str, tolerance: float, slack: float = 0.0) -> _Difference | None:
    """None if equal; otherwise a hint without the expected value, and a line that shows both.

    `slack` is a relative tolerance of floats: a slip is recognised in a rounded answer too, in per cent for example.
    """
    if _is_tensor(expected):
        return _tensor_difference(actual, expected, what, tolerance, slack)
    actual = _plain(actual)
    shown = f"expected {_value(expected)}, got {_value(actual)}"
    if type(expected) is dict:
        return _dict_difference(actual, expected, what, tolerance, slack)
    if type(expected) in (list, tuple):
        return _sequence_difference(actual, expected, what, tolerance, slack)
    if type(expected) is float:
        if type(actual) not in (int, float):
            return _Difference(f"{what} is {_type(actual)}; a number such as 0.25 was expected.", shown)
        if actual == expected or (_is_nan(actual) and _is_nan(expected)):
            return None
        if _is_nan(actual) or _is_nan(expected):
            return _Difference(f"{what} is {_NAN if _is_nan(actual) else _value(actual)}.", shown)
        if abs(actual - expected) <= max(tolerance, slack * abs(expected)):
            return None
        if decimals := _rounded_below(actual, expected, tolerance):
            return _Difference(f"{what} is rounded too far: give {decimals} decimals or more, not {actual:.6g}.", shown)
        return _Difference(f"{what} is too {'large' if actual > expected else 'small'}: you have {actual:.6g}.", shown)
    if type(actual) is not type(expected):
        hint = f"{what} is {_type(actual)}; it must be {_type(expected)}."
        if type(expected) is int and type(actual) is float:
            hint += " A count is a whole number: divide with //, and write 3_000, not 3e3."
        return _Difference(hint, shown)
    if actual == expected:
        return None
    if type(expected) is int:
        return _Difference(f"{what} is too {'large' if actual > expected else 'small'}: you have {actual:,}.", shown)
    return _Difference(f"{what} is not {_value(actual)}.", shown)


def _rounded_below(actual: float, expected: float, tolerance: float) -> str:
    """How many decimals `tolerance` asks for, if `actual` is `expected` rounded or cut to fewer; else nothing."""
    decimals = round(-math.log10(2 * tolerance)) if 0 < tolerance < 0.5 and math.isfinite(expected) else 0
    for k in range(1, decimals):
        if actual and actual in (round(expected, k), math.trunc(expected * 10**k) / 10**k):
            return {2: "two", 3: "three", 4: "four"}.get(decimals, str(decimals))
    return ""


def _dict_difference(actual, expected, what, tolerance, slack):
    if type(actual) is not dict:
        return _Difference(f"{what} is {_type(actual)}; a dict was expected.", f"with the keys {_keys(expected)}")
    keys = f"{_keys(expected)}, got {_keys(actual)}"
    for key in expected:
        if key not in actual:
            return _Difference(f"{what} has no key {key!r}.", f"expected the keys {keys}")
    for key in actual:
        if key not in expected:
            return _Difference(f"{what} has an unknown key {key!r}.", f"expected the keys {keys}")
    for key, value in expected.items():
        place = f"{what}[{key!r}]"
        if difference := _difference(given(actual[key], place), value, place, tolerance, slack):
            return difference
    return None


def _sequence_difference(actual, expected, what, tolerance, slack):
    if type(actual) not in (list, tuple):
        return _Difference(f"{what} is {_type(actual)}; {_type(expected)} was expected.", f"of length {len(expected)}")
    if len(actual) != len(expected):
        return _Difference(
            f"{what} has length {len(actual)}.", f"expected length {len(expected)}, got length {len(actual)}"
        )
    for k, (part, value) in enumerate(zip(actual, expected)):
        place = f"{what}[{k}]"
        if difference := _difference(given(part, place) if part is ... else part, value, place, tolerance, slack):
            return difference
    return None


def _tensor_difference(actual, expected, what, tolerance, slack):
    import torch  # only a check of tensors needs it; the caller has imported it already

    if type(actual) not in (torch.Tensor, torch.nn.Parameter):
        return _Difference(f"{what} is {_type(actual)}; a tensor was expected.", f"of shape {tuple(expected.shape)}")
    if actual.shape != expected.shape:
        return _Difference(
            f"{what} has the shape {tuple(actual.shape)}.",
            f"expected shape {tuple(expected.shape)}, got shape {tuple(actual.shape)}",
        )
    if expected.is_floating_point() != actual.is_floating_point() or expected.is_complex() != actual.is_complex():
        return _Difference(
            f"{what} holds {actual.dtype}.", f"expected numbers of type {expected.dtype}, got {actual.dtype}"
        )
    if not expected.ndim:
        return _difference(actual.item(), expected.item(), what, tolerance, slack)
    # in float64, so that the comparison adds no rounding of its own; nan differs from everything but nan
    got, want = actual.detach().to(torch.float64), expected.detach().to(torch.float64)
    equal = ((got - want).abs() <= tolerance) | (got == want) | (got.isnan() & want.isnan())
    if bool(equal.all()):
        return None
    index = tuple((~equal).nonzero()[0].tolist())
    place = f"{what}[{', '.join(map(str, index))}]"
    nan = f" It is {_NAN}." if _is_nan(got[index].item()) else ""
    return _Difference(
        f"{place} is the first of {int((~equal).sum())} wrong entries.{nan}",
        f"expected {want[index].item():.6g}, got {got[index].item():.6g}",
    )


# ---- words ----

_NAN = "nan, which is no number. Usual causes: 0/0, ∞ − ∞, the root of a negative number, or scores that are all −∞"


def _is_nan(value: Any) -> bool:
    return value != value


def _plain(value: Any) -> Any:
    """numpy's and torch's single numbers as Python's; everything else as it is."""
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    if _is_tensor(value) and value.ndim == 0:
        return value.item()
    return value


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _value(value: Any) -> str:
    if type(value) is int:
        return f"{value:,}"
    if type(value) is float and value.is_integer() and abs(value) < 1e15:
        return f"{value:.1f}"  # so that 3.0 is seen to be no int
    text = f"{value:.6g}" if type(value) is float and math.isfinite(value) else repr(value)
    return text if len(text) <= 200 else text[:197] + "..."


def _keys(value: dict) -> str:
    return ", ".join(map(repr, value)) or "none"


def _type(value: Any) -> str:
    name = type(value).__name__
    if isinstance(value, BaseException):
        return name
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _spelled(what: str, arguments: Mapping[str, Any]) -> str:
    return f"{what}({', '.join(f'{name}={_argument(value)}' for name, value in arguments.items())})"


def _argument(value: Any) -> str:
    """As one would type it, but a tensor by its shape, and nothing that fills a screen."""
    if _is_tensor(value) and value.ndim:
        return f"<tensor of shape {tuple(value.shape)}>"
    text = repr(value)
    return text if len(text) <= 60 else f"<{type(value).__name__}>"


def _last_line(error: BaseException, function: Callable) -> str:
    """The last line of the student's own code that the error went through; empty if it never got there."""
    if (line := getattr(error, "line_of_answer", None)) is not None:
        return line  # the code ran in a process of its own, which says where
    code = getattr(function, "__code__", None)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)[1:]]
    own = [frame for frame in frames if code and frame.filename == code.co_filename] or frames
    if not own:
        return ""
    last = own[-1]
    return f"\nat line {last.lineno}: {linecache.getline(last.filename, last.lineno).strip()}"
