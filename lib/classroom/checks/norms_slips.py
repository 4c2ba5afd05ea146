"""What is right in exercise 06, and the wrong answers that its checks know by name.

Truth comes from `plainformer.norms` and, for blocks, from a spelling that shares nothing with the library's. The
checks use `CATALOGUE` for diagnosis, and the tests hand each of its answers to the grader. What belongs to the claim
about 1,000 layers, problems 6 to 8, stands in `norms_claim_slips`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from classroom import terms
from classroom.checks import norms_claim_slips as claim

# ---- problem 2: five numbers whose mean, standard deviation and root mean square are whole numbers ----

X, WEIGHT, SHIFT = terms.numbers("norms")
MEAN = sum(X) / 5
DEVIATION = math.sqrt(sum((x - MEAN) ** 2 for x in X) / 5)
ROOT = math.sqrt(sum(x * x for x in X) / 5)
UNBIASED = DEVIATION * math.sqrt(5 / 4)


def layered(deviation: float = DEVIATION, mean: float = MEAN) -> list[float]:
    return [WEIGHT * (x - mean) / deviation + SHIFT for x in X]


def rooted(weight: float = WEIGHT, mean: float = 0.0, shift: float = 0.0) -> list[float]:
    return [weight * (x - mean) / ROOT + shift for x in X]


# ---- problem 3: norms as functions ----


def _layer(value: Callable[..., Tensor]) -> dict[str, Callable]:
    """`value` of (x, centred, variance, weight, bias, eps)."""

    def wrong(x, weight, bias, eps):
        centred = x - x.mean(-1, keepdim=True)
        return value(x, centred, centred.square().mean(-1, keepdim=True), weight, bias, eps)

    return {"layer_norm": wrong}


def _root(value: Callable[..., Tensor], name: str = "rms_norm") -> dict[str, Callable]:
    """`value` of (x, mean of squares, weight, eps)."""
    return {name: lambda x, weight, eps: value(x, x.square().mean(-1, keepdim=True), weight, eps)}


def _layer_over(*axes: int) -> dict[str, Callable]:
    def wrong(x, weight, bias, eps):
        centred = x - x.mean(axes, keepdim=True)
        return centred / (centred.square().mean(axes, keepdim=True) + eps).sqrt() * weight + bias

    return {"layer_norm": wrong}


def _layer_in_place(x, weight, bias, eps):
    x -= x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight + bias


def _root_in_place(x, weight, eps):
    x /= (x.square().mean(-1, keepdim=True) + eps).sqrt()
    return x * weight


# ---- problem 4: wiring ----


def pre_norm_truth(x, attn, mlp, norm_1, norm_2) -> Tensor:
    middle = attn(norm_1(x)) + x
    return mlp(norm_2(middle)) + middle


def post_norm_truth(x, attn, mlp, norm_1, norm_2) -> Tensor:
    middle = norm_1(attn(x) + x)
    return norm_2(mlp(middle) + middle)


def _block(name: str, value: Callable[..., Tensor]) -> dict[str, Callable]:
    return {name: lambda x, attn, mlp, norm_1, norm_2: value(x, attn, mlp, norm_1, norm_2)}


def _pre_in_place(x, attn, mlp, norm_1, norm_2):
    x += attn(norm_1(x))
    return x + mlp(norm_2(x))


def _post_in_place(x, attn, mlp, norm_1, norm_2):
    x += attn(x)
    x = norm_1(x)
    return norm_2(x + mlp(x))


def _normed_stream(x, attn, mlp, norm_1, norm_2):
    x = norm_1(x)
    x = norm_2(x + attn(x))
    return x + mlp(x)


_EPS_OUTSIDE = "epsilon stands outside the root; it is added to what is under it"
_NO_EPS = "epsilon is missing"
_BEFORE_ADD = "the norm stands behind the sublayer, on what it adds; that is neither of the two"
IN_PLACE = "your function changes x itself, which its caller still needs: write x = x + …, not x += …"
_NO_RESIDUAL = "the addition is missing: each sublayer adds to the stream"
_SAME_NORM = "norm_1 is used twice; the MLP has norm_2"
_ORDER = "attention comes first, then the MLP"

# check → what the slip is → the answers it gives
CATALOGUE: dict[str, dict[str, dict]] = {
    "statistics": {
        "the deviation divides by 4; here it divides by all five": {"deviation": UNBIASED},
        "this is the variance; the deviation is its root": {"deviation": DEVIATION**2},
        "this is the sum; the mean divides it by five": {"mean": 5 * MEAN},
        "this is the mean of the squares; take its root": {"root_mean_square": ROOT**2},
        "this is the length; divide by five under the root": {"root_mean_square": ROOT * math.sqrt(5)},
    },
    "normed": {
        "layer: divided by the root mean square; LayerNorm divides by the deviation": {"layer": layered(ROOT)},
        "layer: the mean is not subtracted": {"layer": layered(mean=0.0)},
        "layer: divided by the variance": {"layer": layered(DEVIATION**2)},
        "layer: the shift is missing": {"layer": [x - SHIFT for x in layered()]},
        "layer: the shift comes last, after the weight": {"layer": [x + SHIFT for x in layered()]},
        "root: the mean is subtracted; RMSNorm leaves it in": {"root": rooted(mean=MEAN)},
        "root: RMSNorm has no shift": {"root": rooted(shift=SHIFT)},
        "root: the weight is missing": {"root": rooted(weight=1.0)},
    },
    "layer": {
        _EPS_OUTSIDE: _layer(lambda x, c, v, w, b, e: c / (v.sqrt() + e) * w + b),
        _NO_EPS: _layer(lambda x, c, v, w, b, e: c / v.sqrt() * w + b),
        "the variance divides by d − 1, as torch's var and std do unless told otherwise: correction=0": _layer(
            lambda x, c, v, w, b, e: c / (v * x.shape[-1] / (x.shape[-1] - 1) + e).sqrt() * w + b
        ),
        "mean and variance are taken over the positions; each position stands alone": _layer_over(-2),
        "mean and variance are taken over the whole tensor; each position stands alone": _layer_over(0, 1, 2),
        "the mean is not subtracted": _layer(
            lambda x, c, v, w, b, e: x / (x.square().mean(-1, keepdim=True) + e).sqrt() * w + b
        ),
        "the mean is subtracted above the line, but the variance is taken around zero": _layer(
            lambda x, c, v, w, b, e: c / (x.square().mean(-1, keepdim=True) + e).sqrt() * w + b
        ),
        "the weight multiplies the bias too; the bias comes last": _layer(
            lambda x, c, v, w, b, e: (c / (v + e).sqrt() + b) * w
        ),
        "the bias is missing": _layer(lambda x, c, v, w, b, e: c / (v + e).sqrt() * w),
        "the root is missing: divide by the deviation, not by the variance": _layer(
            lambda x, c, v, w, b, e: c / (v + e) * w + b
        ),
        IN_PLACE: {"layer_norm": _layer_in_place},
    },
    "root": {
        _EPS_OUTSIDE: _root(lambda x, s, w, e: x / (s.sqrt() + e) * w),
        _NO_EPS: _root(lambda x, s, w, e: x / s.sqrt() * w),
        "the mean is subtracted; RMSNorm leaves it in": _root(
            lambda x, s, w, e: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + e).sqrt() * w
        ),
        "the squares are summed; take their mean": _root(lambda x, s, w, e: x / (x.shape[-1] * s + e).sqrt() * w),
        "the root is missing": _root(lambda x, s, w, e: x / (s + e) * w),
        "the mean of squares is taken over the positions; each position stands alone": _root(
            lambda x, s, w, e: x / (x.square().mean(-2, keepdim=True) + e).sqrt() * w
        ),
        "the weight is added to 1 first; some models store it so, here it is the factor itself": _root(
            lambda x, s, w, e: x / (s + e).sqrt() * (1 + w)
        ),
        IN_PLACE: {"rms_norm": _root_in_place},
    },
    "pre": {
        "that is post-norm": _block("pre_norm", post_norm_truth),
        _BEFORE_ADD: _block("pre_norm", lambda x, a, m, n, o: (y := x + n(a(x))) + o(m(y))),
        "the stream itself is normed: only what the sublayer reads is": _block("pre_norm", _normed_stream),
        _NO_RESIDUAL: _block("pre_norm", lambda x, a, m, n, o: m(o(a(n(x))))),
        "attention and MLP read the same stream; the MLP reads what attention has added to": _block(
            "pre_norm", lambda x, a, m, n, o: x + a(n(x)) + m(o(x))
        ),
        "the MLP's output is added to the x that came in: what attention wrote is lost": _block(
            "pre_norm", lambda x, a, m, n, o: x + m(o(x + a(n(x))))
        ),
        _SAME_NORM: _block("pre_norm", lambda x, a, m, n, o: pre_norm_truth(x, a, m, n, n)),
        _ORDER: _block("pre_norm", lambda x, a, m, n, o: pre_norm_truth(x, m, a, o, n)),
        IN_PLACE: {"pre_norm": _pre_in_place},
    },
    "post": {
        "that is pre-norm": _block("post_norm", pre_norm_truth),
        _BEFORE_ADD: _block("post_norm", lambda x, a, m, n, o: (y := x + n(a(x))) + o(m(y))),
        "the sublayer's output is normed alone, and nothing is added": _block(
            "post_norm", lambda x, a, m, n, o: o(m(n(a(x))))
        ),
        "norm_1 is missing: each addition is followed by a norm": _block(
            "post_norm", lambda x, a, m, n, o: o((y := x + a(x)) + m(y))
        ),
        _SAME_NORM: _block("post_norm", lambda x, a, m, n, o: post_norm_truth(x, a, m, n, n)),
        _ORDER: _block("post_norm", lambda x, a, m, n, o: post_norm_truth(x, m, a, o, n)),
        IN_PLACE: {"post_norm": _post_in_place},
    },
    "hunt": {
        "there the suspect is right: epsilon is seen only where the mean of the squares is about as small": {
            "exposing": [1.0, -2.0, 3.0],
        },
        "of zeros both make zeros, whatever epsilon is": {"exposing": [0.0, 0.0, 0.0]},
        "there the suspect is wrong": {"harmless": [1e-3, -1e-3, 2e-3]},
        "zeros are harmless in any norm; find a vector that is not all zero": {"harmless": [0.0, 0.0, 0.0]},
    },
    "repair": {
        "that is still the suspect's answer": _root(lambda x, s, w, e: x / (s.sqrt() + e) * w, "mended"),
        "epsilon is squared under the root": _root(lambda x, s, w, e: x / (s + e * e).sqrt() * w, "mended"),
        "the root of epsilon is added to the root; both belong under one": _root(
            lambda x, s, w, e: x / (s.sqrt() + e**0.5) * w, "mended"
        ),
        _NO_EPS: _root(lambda x, s, w, e: x / s.sqrt() * w, "mended"),
    },
} | claim.CATALOGUE  # fmt: skip
