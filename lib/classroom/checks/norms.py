"""Checks of exercise 06: norms by hand and as functions, where they stand, and the claim about 1,000 layers.

One mechanism a check. The notebook calls each on the student's names; a hidden test hands other tensors to it.
The checks of problems 6 to 8 come from `norms_claim`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from classroom.checks.expect import CheckFailed, call, given, number, passed, same
from classroom.checks.expect import hidden_test as hidden_test  # for the hidden tests of the notebook
from classroom.checks.norms_claim import budget as budget
from classroom.checks.norms_claim import call_briefly
from classroom.checks.norms_claim import cites_budget as cites_budget
from classroom.checks.norms_claim import cites_depth as cites_depth
from classroom.checks.norms_claim import depth as depth
from classroom.checks.norms_claim import first_block as first_block
from classroom.checks.norms_claim import how_far as how_far
from classroom.checks.norms_claim import predict as predict
from classroom.checks.norms_claim import shapes as shapes
from classroom.checks.norms_claim import sizes as sizes
from classroom.checks.norms_claim_slips import IDS as IDS  # for the hidden tests too
from classroom.checks.norms_claim_slips import small_model as small_model
from classroom.checks.norms_slips import (
    CATALOGUE,
    DEVIATION,
    IN_PLACE,
    MEAN,
    ROOT,
    layered,
    post_norm_truth,
    pre_norm_truth,
    rooted,
)
from classroom.checks.progress import graded
from plainformer import norms

ROUNDED = 6e-4  # an answer may be rounded to three decimals
EXACT = 1e-9  # float64: some ten roundings of 1e-16 each, in numbers of up to a few thousand
EPS = 1e-5  # of problem 5


def _wrong(check: str, name: str) -> dict:
    return {says: answers[name] for says, answers in CATALOGUE[check].items() if name in answers}


# ---- problem 2: by hand ----


@graded
def statistics(mean, deviation, root_mean_square) -> None:
    answers = {"mean": mean, "deviation": deviation, "root_mean_square": root_mean_square}
    for name, right in (("mean", MEAN), ("deviation", DEVIATION), ("root_mean_square", ROOT)):
        wrong = _wrong("statistics", name)
        same(answers[name], right, name, wrong=wrong, tolerance=ROUNDED, reveal=False)
    passed(f"mean, deviation and root mean square: {abs(MEAN):g}² + {DEVIATION:g}² = {ROOT:g}²")


@graded
def normed(layer, root) -> None:
    for name, answer, right in (("layer", layer, layered()), ("root", root, rooted())):
        same(answer, right, name, wrong=_wrong("normed", name), tolerance=ROUNDED, reveal=False)
    passed("both norms by hand")


# ---- problem 3: norms as functions ----

_CHANCE = torch.Generator().manual_seed(5)


def tensor(*shape: int) -> Tensor:
    """Normal numbers, in float64."""
    return torch.randn(*shape, generator=_CHANCE, dtype=torch.float64)


# two texts of three positions, five features; no weight is 1, no bias 0, and an epsilon that is seen
_X, _WEIGHT, _BIAS, _EPS = tensor(2, 3, 5) * 2 + 1, tensor(5), tensor(5), 0.3


@graded
def layer(layer_norm, *cases: tuple) -> None:
    """Cases are (x, weight, bias, eps)."""
    for x, weight, bias, eps in cases or ((_X, _WEIGHT, _BIAS, _EPS),):
        arguments = {"x": x, "weight": weight, "bias": bias, "eps": eps}
        _norm("layer", layer_norm, "layer_norm", arguments, norms.layer_norm(**arguments))
    passed("LayerNorm")


@graded
def root(rms_norm, *cases: tuple) -> None:
    """Cases are (x, weight, eps)."""
    for x, weight, eps in cases or ((_X, _WEIGHT, _EPS),):
        arguments = {"x": x, "weight": weight, "eps": eps}
        _norm("root", rms_norm, "rms_norm", arguments, norms.rms_norm(**arguments))
    passed("RMSNorm")


def extremes(d_model: int = 7) -> list[tuple[Tensor, Tensor, Tensor, float]]:
    """Other cases: large, shifted, tiny, one position, no batch, all entries equal, zeros."""
    x, weight, bias = tensor(4, 2, 3, d_model), tensor(d_model), tensor(d_model)
    return [
        (x, weight, bias, 0.01),
        (1000 * x[0], weight, bias, 1e-6),
        (x[0, 0] + 100, weight, bias, 0.5),
        (1e-3 * x[:, :1, 0], weight, bias, 1e-5),
        (x[0, 0, 0], weight, bias, 2.0),
        (torch.full((2, d_model), 3.0, dtype=torch.float64), weight, bias, 1e-5),
        (torch.zeros(1, d_model, dtype=torch.float64), weight, bias, 1e-5),
    ]


def _norm(check: str, function: Callable, what: str, arguments: dict, right: Tensor) -> None:
    wrong = {}
    for says, slip in _wrong(check, what).items():
        several_axes = "positions" in says or "whole tensor" in says
        if says != IN_PLACE and (arguments["x"].ndim == 3 or not several_axes):
            wrong[says] = slip(**_copies(arguments))
    _compared(function, what, arguments, right, wrong)


def _copies(arguments: dict) -> dict:
    return {name: value.clone() if isinstance(value, Tensor) else value for name, value in arguments.items()}


def _compared(function: Callable, what: str, arguments: dict, right: Tensor, wrong: dict) -> None:
    """Call the student's function on copies; its result must be right, and its tensors as they were."""
    own = _copies(arguments)
    same(call_briefly(function, what, **own), right, what, wrong=wrong, tolerance=EXACT)
    for name, value in arguments.items():
        if isinstance(value, Tensor) and not torch.equal(value, own[name]):
            why = f"(the result is right; the argument {name} is not what it was)"
            raise CheckFailed(f"{what}: {IN_PLACE}\n{why}", slip=IN_PLACE)


# ---- problem 4: wiring ----


def parts(d_model: int, scale: float = 1.0) -> dict[str, Callable[[Tensor], Tensor]]:
    """Two sublayers and two norms that are all different: averages of the past, a nonlinear map, both norms."""
    mix, up = tensor(2, d_model, d_model) / 2
    weight_1, weight_2, bias = tensor(3, d_model)

    def attn(x: Tensor) -> Tensor:
        past = x.cumsum(-2) / torch.arange(1, x.shape[-2] + 1, dtype=x.dtype)[:, None]
        return scale * past @ mix

    return {
        "attn": attn,
        "mlp": lambda x: scale * (x @ up).relu() + 0.5,
        "norm_1": lambda x: norms.layer_norm(x, weight_1, bias, 0.1),
        "norm_2": lambda x: norms.rms_norm(x, weight_2, 0.2),
    }


_PARTS = parts(5)


@graded
def pre(pre_norm, *cases: tuple) -> None:
    """Cases are (x, the parts as a dict)."""
    _wired("pre", pre_norm, "pre_norm", pre_norm_truth, cases)
    passed("pre-norm block")


@graded
def post(post_norm, *cases: tuple) -> None:
    """Cases are (x, the parts as a dict)."""
    _wired("post", post_norm, "post_norm", post_norm_truth, cases)
    passed("post-norm block")


def _wired(check: str, function: Callable, what: str, truth: Callable, cases: tuple) -> None:
    for x, of in cases or ((_X, _PARTS),):
        arguments = {"x": x, **of}
        wrong = {says: slip(**_copies(arguments)) for says, slip in _wrong(check, what).items() if says != IN_PLACE}
        _compared(function, what, arguments, truth(**arguments), wrong)


# ---- problem 5: hunt a bug ----


@graded
def hunt(suspect, exposing, harmless) -> None:
    agrees, zeros, wrong, nothing = CATALOGUE["hunt"]
    for what, answer in (("exposing", exposing), ("harmless", harmless)):
        if type(given(answer, what)) not in (list, tuple) or not answer:
            raise CheckFailed(f"{what} must be a list of numbers such as [1.0, -2.0, 3.0].")
        x = torch.tensor([number(e, f"{what}[{k}]", "1.0") for k, e in enumerate(answer)], dtype=torch.float64)
        ones = torch.ones_like(x)
        right, got = norms.rms_norm(x, ones, EPS), call(suspect, "suspect", x=x.clone(), weight=ones.clone(), eps=EPS)
        gap = (got - right).abs().max().item()
        if not x.any():
            says = zeros if what == "exposing" else nothing
        elif what == "exposing" and gap < 0.1:
            says = agrees
        elif what == "harmless" and gap > 1e-4 * right.abs().max().item():
            says = wrong
        else:
            continue
        raise CheckFailed(f"{what}: {says}.\nThe suspect is off by {gap:.2g}.", slip=says)
    passed("suspect exposed")


@graded
def repair(mended, *cases: tuple) -> None:
    """Cases are (x, weight, eps)."""
    for x, weight, eps in cases or ((_X, _WEIGHT, _EPS),):
        arguments = {"x": x, "weight": weight, "eps": eps}
        wrong = {says: slip(**arguments) for says, slip in _wrong("repair", "mended").items()}
        _compared(mended, "mended", arguments, norms.rms_norm(**arguments), wrong)
    passed("suspect repaired")
