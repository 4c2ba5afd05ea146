"""Checks of exercise 07: nonlinearities, a gated MLP and a choice among experts. One mechanism a check.

The notebook calls each check on the student's names; a hidden test hands other cases to the same check.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.checks import mlp_slips as known
from classroom.checks.expect import CheckFailed, call, given, number, passed, refuse, same
from classroom.checks.expect import hidden_test as hidden_test  # for the hidden tests of the notebook
from classroom.checks.mlp_slips import CATALOGUE, GATE, N_CHOSEN, N_IDLE, N_TOKENS, UP
from classroom.checks.progress import graded
from classroom.checks.tensors import agrees, numbers
from plainformer.mlp import ACTIVATIONS, route
from plainformer.mlp import swiglu_width as right_width

TWO, THREE = 6e-3, 6e-4  # an answer may be rounded to two, or to three decimals


def _wrong(check: str, name: str) -> dict:
    return {says: answers[name] for says, answers in CATALOGUE[check].items() if name in answers}


# ---- problem 1: predict ----


@graded
def predict(guess) -> None:
    """Any number of idle experts that could be."""
    value = number(guess, "guess", such_as="3.5")
    negative, many = CATALOGUE["predict"]
    refuse("guess", (value < 0, negative), (value > N_IDLE - N_CHOSEN, many))
    passed("noted; problem 7 tells how far off it is")


def how_far(guess, experts_met) -> None:
    """Tell a guess beside the number that the student's own function gives."""
    predict(guess)
    idle = N_IDLE * (1 - call(experts_met, "experts_met", n_tokens=N_TOKENS, n_experts=N_IDLE, k=N_CHOSEN))
    print(f"You guessed {guess:.3g} idle experts; your function says {idle:.2f} of {N_IDLE}.")


# ---- problem 2: by hand ----


@graded
def rounded(d_ff) -> None:
    same(d_ff, right_width(known.D_BY_HAND), "d_ff", wrong=_wrong("rounded", "d_ff"), reveal=False)
    passed("hidden width")


@graded
def unit(hidden, out) -> None:
    right = [known.silu(g) * u for g, u in zip(GATE, UP)]
    same(hidden, right, "hidden", wrong=_wrong("unit", "hidden"), tolerance=TWO, reveal=False)
    right = [right[0] + 2 * right[1], right[1]]
    same(out, right, "out", wrong=_wrong("unit", "out"), tolerance=TWO, reveal=False)
    passed("two gated units")


@graded
def mixed(chosen, weights) -> None:
    right, best = route(torch.tensor([known.FUELS], dtype=torch.float64).log(), 2)
    same(chosen, best[0].tolist(), "chosen", wrong=_wrong("mixed", "chosen"), reveal=False)
    same(weights, right[0].tolist(), "weights", wrong=_wrong("mixed", "weights"), tolerance=THREE, reveal=False)
    passed("choice of experts")


# ---- problem 3: three nonlinearities ----

_SMALL = torch.tensor([[-3.0, -1.5, -0.25], [0.75, 1.25, 4.0]], dtype=torch.float64)
_LARGE = torch.tensor([-1000.0, 0.0, 1000.0], dtype=torch.float64)


def _bent(name: str, function, right, cases: tuple[Tensor, ...]) -> None:
    for x in cases or (_SMALL, _LARGE):
        agrees(function, name, {"x": x}, right(x), _wrong(name, name))
    passed(name)


@graded
def relu(relu, *cases: Tensor) -> None:
    _bent("relu", relu, ACTIVATIONS["relu"], cases)


@graded
def gelu(gelu, *cases: Tensor) -> None:
    _bent("gelu", gelu, ACTIVATIONS["gelu"], cases)


@graded
def silu(silu, *cases: Tensor) -> None:
    _bent("silu", silu, F.silu, cases)


def inputs() -> tuple[Tensor, ...]:
    """Inputs of every size and form for a nonlinearity."""
    return numbers(1), numbers(3, 1, 4, key=1, scale=3.0), numbers(5, key=2) + 100, numbers(2, 7, key=3, scale=1e4)


# ---- problem 4: the gated MLP ----


def rows() -> tuple[Tensor, ...]:
    """Inputs of every size and form for an MLP."""
    return (
        numbers(1, 3, key=30),
        numbers(2, 4, 5, key=31),
        numbers(6, 2, key=32) + 100,
        numbers(5, 7, key=33, scale=1e3),
    )


@graded
def gated_mlp(gated_mlp, *inputs: Tensor, d_ff: int = 9) -> None:
    """Inputs are (…, d); weights are made to fit."""
    for x in inputs or (numbers(5, 4, key=4), numbers(2, 4, key=5, scale=1e3)):
        shapes = ((x.shape[-1], d_ff), (x.shape[-1], d_ff), (d_ff, x.shape[-1]))
        weights = {
            name: numbers(*s, key=5 + n) for n, (name, s) in enumerate(zip(("W_gate", "W_up", "W_down"), shapes))
        }
        arguments = {"x": x, **weights}
        agrees(gated_mlp, "gated_mlp", arguments, known.gated(**arguments), _wrong("gated_mlp", "gated_mlp"))
    passed("gated MLP")


@graded
def hidden_width(hidden_width, *cases: tuple[int, int]) -> None:
    """Cases are (d_model, multiple_of)."""
    for d_model, multiple_of in cases or ((768, 256), (1000, 96), (500, 30), (4, 10)):
        arguments = {"d_model": d_model, "multiple_of": multiple_of}
        actual = call(hidden_width, "hidden_width", **arguments)
        wrong = {says: slip(**arguments) for says, slip in _wrong("hidden_width", "hidden_width").items()}
        what = f"hidden_width({d_model}, {multiple_of})"
        same(actual, right_width(d_model, multiple_of=multiple_of), what, wrong=wrong)
    passed("hidden width as a function")


# ---- problem 5: experts ----


@graded
def choose(choose, *cases: tuple[Tensor, int]) -> None:
    """Cases are (scores, k)."""
    for scores, k in cases or ((numbers(4, 6, key=8), 3), (numbers(2, 5, key=9) + 1000, 1)):
        agrees(choose, "choose", {"scores": scores, "k": k}, route(scores, k), _wrong("choose", "choose"))
    passed("choice of experts")


@graded
def mixture(mixture, *cases: tuple[Tensor, int, int]) -> None:
    """Cases are (x, n_experts, k); weights are made to fit."""
    for x, n_experts, k in cases or ((numbers(7, 5, key=9), 6, 3),):
        d_model, d_ff = x.shape[-1], 8
        shapes = [(d_model, n_experts), *[(n_experts, d_model, d_ff)] * 2, (n_experts, d_ff, d_model)]
        weights = [numbers(*shape, key=10 + n) for n, shape in enumerate(shapes)]
        layer = known.experts_layer(d_model, d_ff, n_experts, k, *weights)
        arguments = {"x": x, "W_router": weights[0], "experts": list(layer.experts), "k": k}
        agrees(mixture, "mixture", arguments, layer(x).detach(), _wrong("mixture", "mixture"))
    passed("mixture of experts")


@graded
def counted(count_weights, *cases: tuple[int, int, int, int]) -> None:
    """Cases are (d_model, d_ff, n_experts, k)."""
    for case in cases or ((10, 28, 7, 2),):
        arguments = dict(zip(("d_model", "d_ff", "n_experts", "k"), case))
        actual = call(count_weights, "count_weights", **arguments)
        wrong = {says: slip(**arguments) for says, slip in _wrong("counted", "count_weights").items()}
        same(actual, known.count(**arguments), "count_weights", wrong=wrong)
    passed("weights in all and at work")


# ---- problem 6: hunt a bug ----


@graded
def hunt(suspect, right_at, wrong_at) -> None:
    zero, is_wrong, is_right, small, outside = CATALOGUE["hunt"]
    for what, answer in (("right_at", right_at), ("wrong_at", wrong_at)):
        if type(given(answer, what)) is not dict or sorted(answer) != ["gate", "up"]:
            raise CheckFailed(f"{what} must be a dict with the keys gate and up.")
        gate, up = (number(answer[key], f"{what}[{key!r}]", such_as="2.5") for key in ("gate", "up"))
        error = abs(_through(suspect, gate, up) - known.silu(gate) * up) if abs(gate) < 700 else math.inf
        if max(abs(gate), abs(up)) > 10:
            says = outside
        elif what == "right_at":
            says = zero if not gate * up else is_wrong if error > 1e-9 * min(1, abs(gate * up)) else ""
        else:
            says = is_right if error <= 1e-9 else small if error < 99 else ""
        if says:
            raise CheckFailed(f"{what}: {says}", slip=says)
    passed("suspect exposed")


def _through(suspect, gate: float, up: float) -> float:
    """What the suspect makes of one unit whose two copies are these numbers."""
    one = torch.ones(1, 1, dtype=torch.float64)
    result = call(suspect, "suspect", x=one, W_gate_up=torch.tensor([[gate, up]], dtype=torch.float64), W_down=one)
    return result.item()


@graded
def repair(repaired, *inputs: Tensor, d_ff: int = 6) -> None:
    """Inputs are (…, d); weights are made to fit."""
    for x in inputs or (numbers(3, 5, key=14),):
        d_model = x.shape[-1]
        both, down = numbers(d_model, 2 * d_ff, key=15), numbers(d_ff, d_model, key=16)
        right = known.gated(x, both[:, :d_ff], both[:, d_ff:], down)
        agrees(repaired, "repaired", {"x": x, "W_gate_up": both, "W_down": down}, right, _wrong("repair", "repaired"))
    passed("suspect repaired")


# ---- problem 7: investigate ----


@graded
def met(experts_met, *cases: tuple[int, int, int]) -> None:
    """Cases are (n_tokens, n_experts, k)."""
    for case in cases or ((5, 12, 3), (1, 7, 2)):
        arguments = dict(zip(("n_tokens", "n_experts", "k"), case))
        actual = call(experts_met, "experts_met", **arguments)
        wrong = {says: slip(**arguments) for says, slip in _wrong("met", "experts_met").items()}
        same(actual, known.met(**arguments), "experts_met", wrong=wrong, tolerance=1e-9)
    passed("share of the experts that a step meets")


@graded
def reading(read) -> None:
    same(read, known.READ, "read", wrong=_wrong("reading", "read"), tolerance=TWO, reveal=False)
    passed("weights that a step reads")


@graded
def batch(n_needed) -> None:
    right = next(n for n in range(1, 99) if known.met(n, 8, 2) >= 0.99)
    same(n_needed, right, "n_needed", wrong=_wrong("batch", "n_needed"), reveal=False)
    passed("tokens that keep all experts busy")


@graded
def verdict(verdict) -> None:
    wrong = _wrong("verdict", "verdict")
    same(verdict, "C", "verdict", wrong=wrong, choices=tuple("ABCDE"), reveal=False)
    passed("verdict. Ask of a count of active weights: active for how many tokens at once?")
