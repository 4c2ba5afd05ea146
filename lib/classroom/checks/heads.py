"""Checks of exercise 03: cut into heads, attend, share keys, count. One mechanism a check.

The notebook calls each check on the student's names; a hidden test hands other cases to the same check.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from classroom.checks import heads_answers as known
from classroom.checks.expect import CheckFailed, call, number, passed, refuse, same
from classroom.checks.expect import hidden_test as hidden_test  # for the hidden tests of the notebook
from classroom.checks.heads_slips import CATALOGUE
from classroom.checks.progress import graded
from classroom.checks.tensors import agrees, numbers
from plainformer.heads import grouped_attention, join, split

THREE = 6e-4  # an answer may be rounded to three decimals


def _wrong(check: str, name: str) -> dict:
    return {says: answers[name] for says, answers in CATALOGUE[check].items() if name in answers}


# ---- problem 1: predict ----


@graded
def predict(guess) -> None:
    """Any amount of memory that could be."""
    value = number(guess, "guess", such_as="0.5")
    negative, large = CATALOGUE["predict"]
    refuse("guess", (value <= 0, negative), (value > 1e6, large))
    passed("noted; problem 6 tells how far off it is")


def how_far(guess, costs) -> None:
    """Tell a guess beside what the student's own function gives."""
    predict(guess)
    result = call(costs, "costs", **known.GUESSED)
    if type(result) is not dict or "scores" not in result:
        raise CheckFailed("costs returns no dict with the key 'scores'.")
    print(f"You guessed {guess:.3g} GiB; your function says {result['scores'] / 2**30:.3g} GiB.")


# ---- problem 2: by hand ----


@graded
def cut_by_hand(head_1) -> None:
    right = split(known.ROWS[None], 3)[0, 1].tolist()
    same(head_1, right, "head_1", wrong=_wrong("cut_by_hand", "head_1"), reveal=False)
    passed("a head cut out")


@graded
def patterns(weights) -> None:
    right = [known.pattern(dots, 4) for dots in known.DOTS]
    same(weights, right, "weights", wrong=_wrong("patterns", "weights"), tolerance=THREE, reveal=False)
    passed("two patterns")


# ---- problem 3: cut and merge ----


def tensors() -> tuple[tuple[Tensor, int], ...]:
    """Tensors (B, T, d) of every size, one of them a view, with the heads to cut them into."""
    return (
        (numbers(1, 1, 6, key=20), 2),
        (numbers(3, 7, 8, key=21), 8),
        (numbers(4, 2, 15, key=22), 1),
        (numbers(9, 2, 10, key=23).transpose(0, 1), 5),
        (numbers(2, 6, 12, key=24, scale=1e6), 3),
    )


@graded
def split_heads(split_heads, *cases: tuple[Tensor, int]) -> None:
    for x, n_heads in cases or ((numbers(2, 5, 12), 3),):
        wrong = _wrong("split_heads", "split_heads")
        agrees(split_heads, "split_heads", {"x": x, "n_heads": n_heads}, split(x, n_heads), wrong)
    passed("cut into heads")


@graded
def merge_heads(merge_heads, *cases: tuple[Tensor, int]) -> None:
    for whole, n_heads in cases or ((numbers(2, 5, 12, key=1), 3),):
        x = split(whole, n_heads).contiguous()
        agrees(merge_heads, "merge_heads", {"x": x}, join(x), _wrong("merge_heads", "merge_heads"))
    passed("heads merged")


@graded
def layout(strides, copies) -> None:
    """What torch itself does with such a tensor."""
    shape, n_heads = known.CUT
    x = torch.zeros(shape)
    heads = split(x, n_heads)
    fresh = heads.contiguous()
    moved = {"split": heads.data_ptr() != x.data_ptr(), "merge": join(fresh).data_ptr() != fresh.data_ptr()}
    right = {0: "neither", 1: next((name for name in moved if moved[name]), ""), 2: "both"}[sum(moved.values())]
    same(strides, heads.stride(), "strides", wrong=_wrong("layout", "strides"), reveal=False)
    choices = ("split", "merge", "both", "neither")
    same(copies, right, "copies", wrong=_wrong("layout", "copies"), choices=choices, reveal=False)
    passed("steps in memory")


# ---- problem 4: many heads ----


def _weights(d_model: int, d_kv: int, key: int = 2) -> dict[str, Tensor]:
    shapes = {"W_Q": d_model, "W_K": d_kv, "W_V": d_kv, "W_O": d_model}
    return {name: numbers(d_model, width, key=key + n) for n, (name, width) in enumerate(shapes.items())}


def texts() -> tuple[tuple[Tensor, int], ...]:
    """Texts (B, T, d) of every size, with extreme numbers, and their heads."""
    return (
        (numbers(1, 1, 6, key=30), 2),
        (numbers(3, 7, 8, key=31), 8),
        (numbers(2, 3, 5, key=32), 1),
        (numbers(2, 4, 9, key=33) + 100, 3),
        (numbers(2, 5, 12, key=34, scale=1e3), 4),
    )


@graded
def multi_head(multi_head, *cases: tuple[Tensor, int]) -> None:
    """Cases are (x, n_heads); weights are made to fit."""
    for x, n_heads in cases or ((numbers(2, 5, 12, key=6), 3),):
        arguments = {"x": x, **_weights(x.shape[-1], x.shape[-1]), "n_heads": n_heads}
        agrees(multi_head, "multi_head", arguments, known.layer(**arguments), _wrong("multi_head", "multi_head"))
    passed("many heads")


@graded
def head_parts(head_parts, *cases: tuple[Tensor, int]) -> None:
    """Cases are (x, n_heads); weights are made to fit."""
    for x, n_heads in cases or ((numbers(2, 5, 12, key=7), 3),):
        arguments = {"x": x, **_weights(x.shape[-1], x.shape[-1]), "n_heads": n_heads}
        agrees(head_parts, "head_parts", arguments, known.parts(**arguments), _wrong("head_parts", "head_parts"))
    passed("what each head adds")


# ---- problem 5: shared keys and values ----


def groups() -> tuple[tuple[Tensor, int, int], ...]:
    """Texts (B, T, d) of every size, with extreme numbers, their heads, and those of keys and values."""
    return (
        (numbers(1, 1, 8, key=40), 4, 2),
        (numbers(2, 5, 6, key=41), 6, 1),
        (numbers(3, 4, 10, key=42), 5, 5),
        (numbers(2, 7, 16, key=43) + 100, 8, 4),
        (numbers(2, 3, 18, key=44, scale=1e3), 9, 3),
    )


@graded
def grouped(grouped, *cases: tuple[Tensor, int, int]) -> None:
    """Cases are (x, n_heads, n_kv_heads); weights are made to fit."""
    for x, n_heads, n_kv_heads in cases or ((numbers(2, 5, 24, key=8), 6, 3),):
        weights = _weights(x.shape[-1], x.shape[-1] // n_heads * n_kv_heads)
        arguments = {"x": x, **weights, "n_heads": n_heads, "n_kv_heads": n_kv_heads}
        agrees(grouped, "grouped", arguments, known.layer(**arguments), _wrong("grouped", "grouped"))
    passed("grouped queries")


@graded
def average_heads(average_heads, *cases: tuple[int, int, int]) -> None:
    """Cases are (d_model, n_heads, n_kv_heads)."""
    for d_model, n_heads, n_kv_heads in cases or ((24, 6, 3),):
        arguments = {"W": numbers(d_model, d_model, key=9), "n_heads": n_heads, "n_kv_heads": n_kv_heads}
        wrong = _wrong("average_heads", "average_heads")
        agrees(average_heads, "average_heads", arguments, known.averaged(**arguments), wrong)
    passed("heads averaged")


# ---- problem 6: what heads cost ----


def _cost(part: str, function, cases: tuple[tuple[int, int, int, int, int], ...]) -> None:
    names = ("n_positions", "d_model", "n_heads", "n_kv_heads", "n_bytes")
    for case in cases or ((10, 90, 15, 5, 4), (7, 96, 6, 3, 2)):
        arguments = dict(zip(names, case))
        actual = call(function, "costs", **arguments)
        if type(actual) is not dict or part not in actual:
            raise CheckFailed(f"costs must return a dict with the key {part!r}.")
        wrong = {says: slip(**arguments)[part] for says, slip in _wrong(part, "costs").items()}
        same(actual[part], known.costs(**arguments)[part], f"costs({', '.join(map(str, case))})[{part!r}]", wrong=wrong)
    passed(part)


@graded
def weights(costs, *cases: tuple[int, int, int, int, int]) -> None:
    _cost("weights", costs, cases)


@graded
def scores(costs, *cases: tuple[int, int, int, int, int]) -> None:
    _cost("scores", costs, cases)


@graded
def kept(costs, *cases: tuple[int, int, int, int, int]) -> None:
    _cost("kept", costs, cases)


@graded
def longest(longest, *cases: tuple[int, int, int]) -> None:
    """Cases are (n_heads, n_bytes, budget)."""
    for case in cases or ((12, 4, 1_000_000), (3, 2, 600)):
        arguments = dict(zip(("n_heads", "n_bytes", "budget"), case))
        actual = call(longest, "longest", **arguments)
        wrong = {says: slip(**arguments) for says, slip in _wrong("longest", "longest").items()}
        what = f"longest({', '.join(map(str, case))})"
        same(actual, known.longest(**arguments), what, wrong=wrong)
    passed("the longest text that fits")


# ---- problem 7: hunt a bug ----


@graded
def evidence(fine_for, right_heads) -> None:
    """Both lists are found with the suspect's order of heads beside the library's."""
    even = [n for n in range(1, 13) if 12 % n == 0]
    right = [n for n in even if [i % n for i in range(12)] == known.shared_out(12, n)]
    same(_in_order(fine_for), right, "fine_for", wrong=_wrong("evidence", "fine_for"), reveal=False)
    right = [i for i, key_head in enumerate(known.shared_out(8, 2)) if i % 2 == key_head]
    same(_in_order(right_heads), right, "right_heads", wrong=_wrong("evidence", "right_heads"), reveal=False)
    passed("suspect exposed")


def _in_order(answer):
    """A list, tuple or set of ints as a sorted list; anything else as it is."""
    whole = type(answer) in (list, tuple, set) and all(type(n) is int for n in answer)
    return sorted(answer) if whole else answer


@graded
def repair(repaired, *cases: tuple[int, int, int, int, int]) -> None:
    """Cases are (B, T, n_heads, n_kv_heads, d_k); values are wider than keys."""
    for n_batch, n_positions, n_heads, n_kv_heads, d_k in cases or ((2, 5, 6, 3, 4),):
        q = numbers(n_batch, n_heads, n_positions, d_k, key=10)
        k = numbers(n_batch, n_kv_heads, n_positions, d_k, key=11)
        v = numbers(n_batch, n_kv_heads, n_positions, d_k + 3, key=12)
        wrong = _wrong("repair", "repaired")
        agrees(repaired, "repaired", {"q": q, "k": k, "v": v}, grouped_attention(q, k, v), wrong)
    passed("suspect repaired")


# ---- problem 8: investigate ----


def _moved(function: Callable[[Tensor], Tensor], n_positions: int, d_model: int, position: int) -> list[int]:
    """The positions of x whose change moves the output at `position`."""
    x = numbers(1, n_positions, d_model, key=13)
    found = []
    for n in range(n_positions):
        other = x.clone()
        other[0, n] += 1
        if not math.isclose((function(x) - function(other))[0, position].abs().max().item(), 0, abs_tol=1e-12):
            found.append(n)
    return found


@graded
def blind_spot(sees, harmless) -> None:
    """What the forgetful layer of the notebook looks at, measured on it."""
    weights = _weights(12, 12)

    def forgetful(x: Tensor) -> Tensor:
        return known.spelled_out(x, **weights, n_heads=3, cut=known.viewed, put=known.viewed_back)

    right = _moved(forgetful, 6, 12, 4)
    same(_in_order(sees), right, "sees", wrong=_wrong("blind_spot", "sees"), reveal=False)
    right = [n for n in range(1, 9) if torch.equal(known.viewed(x := numbers(1, n, 12, key=14), 3), split(x, 3))]
    same(harmless, right[0], "harmless", wrong=_wrong("blind_spot", "harmless"), reveal=False)
    passed("what the layer cannot see")


@graded
def verdict(verdict) -> None:
    wrong = _wrong("verdict", "verdict")
    same(verdict, "C", "verdict", wrong=wrong, choices=tuple("ABCDE"), reveal=False)
    passed("verdict. A round trip says nothing about what happens in between")
