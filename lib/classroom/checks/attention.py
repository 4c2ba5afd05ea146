"""Checks of exercise 02: attention by hand and in other shapes, saturation, what it cannot see.

The notebook calls each check on the student's names; a hidden test hands other cases to the same check.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from classroom.checks import attention_answers as known
from classroom.checks.attention_slips import CATALOGUE
from classroom.checks.expect import CheckFailed, call, given, in_any_order, number, passed, refuse, same
from classroom.checks.expect import hidden_test as hidden_test  # for the hidden tests of the notebook
from classroom.checks.progress import graded
from classroom.checks.tensors import agrees, numbers
from plainformer.attention import attention

THREE = 6e-4  # an answer may be rounded to three decimals


def _wrong(check: str, name: str) -> dict:
    return {says: answers[name] for says, answers in CATALOGUE[check].items() if name in answers}


# ---- problem 1: predict ----


@graded
def predict(guess) -> None:
    """Any share that could be."""
    value = number(guess, "guess", such_as="0.1")
    negative, large = CATALOGUE["predict"]
    refuse("guess", (value < 0, negative), (value > 1, large))
    passed("noted; problem 5 tells how far off it is")


def how_far(guess, lone) -> None:
    """Tell a guess beside the share that the student's own function gives."""
    predict(guess)
    share = call(lone, "lone", gap=known.GAP, n_keys=known.N_KEYS)
    print(f"You guessed {guess:.3g}; your function says {number(share, 'lone', such_as='0.1'):.3g}.")


# ---- problem 2: by hand ----


def _typed(check: str, name: str, answer, right) -> None:
    same(answer, right.tolist(), name, wrong=_wrong(check, name), tolerance=THREE, reveal=False)


@graded
def fund_row(fund_weights) -> None:
    _typed("fund_row", "fund_weights", fund_weights, known.FUND)
    passed("weights of fund")


@graded
def fund_moved(fund_vector) -> None:
    _typed("fund_moved", "fund_vector", fund_vector, known.FUND @ known.VALUES)
    passed("new vector of fund")


@graded
def repeated_row(repeated) -> None:
    _typed("repeated_row", "repeated", repeated, known.REPEATED)
    passed("a token twice")


# ---- problem 3: other shapes ----

_Sizes = tuple[int, int, int, int]


def _three(sizes: _Sizes, key: int, leading: tuple[int, ...] = (), scale: float = 1.0, plus: float = 0.0) -> dict:
    n_queries, n_keys, d_k, d_v = sizes
    shapes = {"q": (n_queries, d_k), "k": (n_keys, d_k), "v": (n_keys, d_v)}
    return {
        name: numbers(*leading, *shape, key=key + n, scale=scale) + plus
        for n, (name, shape) in enumerate(shapes.items())
    }


def rows() -> tuple[dict, ...]:
    """Queries, keys and values of every size, with extreme numbers."""
    return (
        _three((1, 1, 1, 1), 20),
        _three((5, 1, 3, 2), 23),
        _three((1, 7, 2, 4), 26),
        _three((4, 4, 4, 4), 29),
        _three((3, 5, 7, 2), 32, plus=100),
        _three((6, 4, 2, 3), 35, scale=1e3),
    )


@graded
def attend(attend, *cases: dict) -> None:
    for arguments in cases or (_three((4, 6, 3, 5), 1), _three((2, 4, 5, 3), 4, scale=100)):
        agrees(attend, "attend", arguments, attention(**arguments), _wrong("attend", "attend"))
    passed("one head")


def stacks() -> tuple[dict, ...]:
    """The same for many heads and texts."""
    return (
        _three((1, 1, 1, 1), 40, (1, 1)),
        _three((5, 2, 3, 4), 43, (4, 1)),
        _three((2, 6, 5, 3), 46, (1, 7)),
        _three((3, 4, 6, 2), 49, (5, 2), plus=100),
        _three((2, 3, 5, 6), 52, (2, 4), scale=1e3),
    )


@graded
def attend_many(attend_many, *cases: dict) -> None:
    default = _three((4, 5, 6, 7), 7, (2, 3)), _three((5, 4, 7, 6), 10, (3, 2), scale=100)
    for arguments in cases or default:
        agrees(attend_many, "attend_many", arguments, attention(**arguments), _wrong("attend_many", "attend_many"))
    passed("heads and texts at once")


# ---- problem 4: with weights ----


def texts() -> tuple[tuple[Tensor, int, int], ...]:
    """Texts (B, T, d) of every size, with extreme numbers; widths of keys and values."""
    return (
        (numbers(1, 1, 1, key=60), 1, 1),
        (numbers(3, 1, 5, key=61), 2, 4),
        (numbers(1, 6, 4, key=62), 4, 4),
        (numbers(4, 5, 3, key=63) + 100, 7, 2),
        (numbers(2, 3, 6, key=64, scale=1e3), 5, 4),
    )


@graded
def self_attention(self_attention, *cases: tuple[Tensor, int, int]) -> None:
    """Cases are (x, d_k, d_v); weights are made to fit."""
    wrong = _wrong("self_attention", "self_attention")
    for x, d_k, d_v in cases or ((numbers(2, 4, 6, key=13), 3, 5), (numbers(2, 4, 6, key=14, scale=100), 3, 5)):
        d_model = x.shape[-1]
        shapes = {"W_Q": (d_model, d_k), "W_K": (d_model, d_k), "W_V": (d_model, d_v), "W_O": (d_v, d_model)}
        weights = {name: numbers(*shape, key=15 + n) for n, (name, shape) in enumerate(shapes.items())}
        arguments = {"x": x, **weights}
        agrees(self_attention, "self_attention", arguments, known.self_attention(**arguments), wrong)
    passed("attention with weights")


@graded
def one_matrix(one_matrix, *cases: tuple[int, int]) -> None:
    """Cases are (d_model, d_k)."""
    for d_model, d_k in cases or ((5, 3),):
        arguments = {"W_Q": numbers(d_model, d_k, key=19), "W_K": numbers(d_model, d_k, key=20)}
        # entry (m, n) is the score of unit row m against unit row n: one key after the other
        unit = torch.eye(d_model, dtype=torch.float64)
        scores = [[(q @ k / math.sqrt(d_k)).item() for k in unit @ arguments["W_K"]] for q in unit @ arguments["W_Q"]]
        right = torch.tensor(scores, dtype=torch.float64)
        agrees(one_matrix, "one_matrix", arguments, right, _wrong("one_matrix", "one_matrix"))
    passed("two matrices in one")


# ---- problem 5: saturation ----


def weights(*shape: int, scale: float = 1.0, key: int = 21) -> Tensor:
    """Rows that are positive and add up to one; the larger `scale`, the more uneven."""
    return numbers(*shape, key=key, scale=scale).softmax(-1)


def uneven() -> tuple[Tensor, ...]:
    """Two or more axes: one key, equal weights, all on one key, long and deep rows."""
    one = torch.eye(4, dtype=torch.float64)[[2, 0]]
    return (
        weights(2, 1),
        torch.full((3, 5), 0.2, dtype=torch.float64),
        one,
        weights(2, 3, 7, scale=4),
        weights(1, 6, scale=9),
    )


@graded
def jacobian(jacobian, *cases: Tensor) -> None:
    for a in cases or (weights(4), weights(2, 3)):
        agrees(jacobian, "jacobian", {"a": a}, known.jacobian(a), _wrong("jacobian", "jacobian"))
    passed("Jacobian")


@graded
def trace(trace, *cases: Tensor) -> None:
    for a in cases or (weights(3, 5, scale=2),):
        right = known.jacobian(a).diagonal(dim1=-2, dim2=-1).sum(-1)
        agrees(trace, "trace", {"a": a}, right, _wrong("trace", "trace"))
    passed("trace")


@graded
def lone(lone, *cases: tuple[float, int]) -> None:
    """Cases are (gap, n_keys)."""
    _, _, no_number, _ = CATALOGUE["lone"]
    for gap, n_keys in cases or ((1.5, 7), (0.0, 4), (1000.0, 6)):
        arguments = {"gap": gap, "n_keys": n_keys}
        wrong = {says: slip(**arguments) for says, slip in _wrong("lone", "lone").items()}
        actual, what = call(lone, "lone", **arguments), f"lone({gap}, {n_keys})"
        if _is_nan(actual):
            raise CheckFailed(f"{what}: {no_number}", slip=no_number)
        same(actual, known.lone(gap, n_keys), what, wrong=wrong, tolerance=1e-6)
    passed("share of a lone key")


def _is_nan(value) -> bool:
    single = isinstance(value, float) or (isinstance(value, Tensor) and value.numel() == 1)
    return single and math.isnan(float(value))


@graded
def needed(needed) -> None:
    right = dict(zip(("raw", "divided"), known.needed(known.GAP, 1.0)))
    same(needed, right, "needed", wrong=_wrong("needed", "needed"), reveal=False)
    passed("rows in which it loses the majority")


# ---- problem 6: hunt three bugs ----


@graded
def fault(fault) -> None:
    if type(given(fault, "fault")) is not dict or sorted(fault) != sorted(known.SUSPECTS):
        raise CheckFailed("fault must be a dict with the keys first, second and third.")
    for name, right in known.RIGHT_FAULT.items():
        wrong = {says: answer[name] for says, answer in _wrong("fault", "fault").items()}
        same(fault[name], right, f"fault[{name!r}]", wrong=wrong, choices=tuple("ABCDEF"), reveal=False)
    passed("three faults")


@graded
def harmless(harmless) -> None:
    if type(given(harmless, "harmless")) is not dict or sorted(harmless) != sorted(known.SUSPECTS):
        raise CheckFailed("harmless must be a dict with the keys first, second and third.")
    for name, right in known.RIGHT_HARMLESS.items():
        wrong = {says: answer[name] for says, answer in _wrong("harmless", "harmless").items()}
        same(harmless[name], right, f"harmless[{name!r}]", wrong=wrong, reveal=False)
    passed("where they are right")


def _last_digits(*arguments: Tensor) -> Tensor:
    return known.projected(*arguments) * (1 + 1e-12)


def unseen() -> tuple[Callable, ...]:
    """Wrong versions that the notebook does not show."""
    return (
        lambda x, *weights: known.projected(x, *weights, divisor=1),
        lambda x, *weights: known.projected(x, *weights, divisor=weights[0].shape[1]),
        lambda x, *weights: known.projected(x, *weights, divisor=math.sqrt(len(x))),
        lambda x, *weights: known.projected(x, *weights, soften=known.over_everything),
    )


@graded
def exposes(exposes, *others: Callable) -> None:
    """The student's test must pass what is right and catch the suspects, and `others`."""
    axis, scale, overflow, digits, always, never = CATALOGUE["exposes"]
    right = [known.projected, _last_digits, _fused]
    said = in_any_order(lambda function: _verdict(exposes, function), [*known.SUSPECTS.values(), *right, *others])
    found, of_others = dict(zip(known.SUSPECTS, said)), said[len(known.SUSPECTS) :]
    of_right, of_others = of_others[: len(right)], of_others[len(right) :]
    if of_right[0]:
        _refuse(always)
    if not any(found.values()):
        _refuse(never)
    # a test on one position misses the wrong scale too
    for name, says in (("second", axis), ("first", scale), ("third", overflow)):
        if not found[name]:
            _refuse(says)
    if any(of_right):
        _refuse(digits)
    if not all(of_others):
        raise CheckFailed("exposes: a wrong version that the notebook does not show gets through.")
    passed("a test that catches all three")


def _verdict(exposes, function: Callable) -> bool:
    """What the test says, of a function that may not be right."""

    def attention(x, W_Q, W_K, W_V):
        return function(x, W_Q, W_K, W_V)

    answer = call(exposes, "exposes", attention=attention)
    if isinstance(answer, Tensor) and answer.numel() == 1:
        answer = answer.item()
    if type(answer) is not bool:
        raise CheckFailed(f"exposes returns {answer!r}; return True or False.")
    return answer


def _fused(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> Tensor:
    q, k, v = ((x @ W)[None] for W in (W_Q, W_K, W_V))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)[0]


def _refuse(says: str) -> None:
    raise CheckFailed(f"exposes: {says}", slip=says)


# ---- problem 7: investigate ----


def _sorted(answer):
    """A dict whose lists, tuples or sets of ints are sorted lists; anything else as it is."""
    if type(answer) is not dict:
        return answer
    lists = (list, tuple, set)
    return {
        name: sorted(places) if type(places) in lists and all(type(n) is int for n in places) else places
        for name, places in answer.items()
    }


@graded
def moved(moved) -> None:
    same(_sorted(moved), known.MOVED, "moved", wrong=_wrong("moved", "moved"), reveal=False)
    passed("who notices a swap")


@graded
def distinct(distinct) -> None:
    same(distinct, known.DISTINCT, "distinct", wrong=_wrong("distinct", "distinct"), reveal=False)
    passed("how many rows differ")


@graded
def verdict(verdict) -> None:
    wrong = _wrong("verdict", "verdict")
    same(verdict, "C", "verdict", wrong=wrong, choices=tuple("ABCDE"), reveal=False)
    passed("verdict. A mask lets order in, by way of tokens that differ")
