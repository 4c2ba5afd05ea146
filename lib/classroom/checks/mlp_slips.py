"""What is right in exercise 07, and the wrong answers that its checks know by name.

Truth comes from the library. The checks use `CATALOGUE` for diagnosis, the tests hand its answers to the grader.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from classroom import terms
from classroom.checks.tensors import TOUCHED
from plainformer.config import Config, preset
from plainformer.mlp import ACTIVATIONS, GatedMLP, MixtureOfExperts, route
from plainformer.mlp import swiglu_width as right_width
from plainformer.parameters import active, block_breakdown, breakdown, total

N_IDLE, N_TOKENS, N_CHOSEN = 16, 32, 2  # problem 1: experts, tokens of a step, experts of a token
# problem 2: a width; what two units get; exponentials of five scores
D_BY_HAND, GATE, UP, FUELS = terms.numbers("mlp")
BEST = sorted(range(len(FUELS)), key=lambda expert: -FUELS[expert])  # the experts of problem 2, the best one first


def config(d_model: int, d_ff: int, **experts) -> Config:
    return Config(
        n_vocab=2, d_model=d_model, n_heads=1, n_kv_heads=1, d_ff=d_ff, n_context=1, n_layers=1,
        positions="none", mlp="swiglu", **experts,
    )  # fmt: skip


# ---- what is right ----


def silu(x: float) -> float:
    return x / (1 + math.exp(-x))


def gated(x: Tensor, W_gate: Tensor, W_up: Tensor, W_down: Tensor) -> Tensor:
    """The library's gated MLP with these weights."""
    layer = GatedMLP(config(*W_gate.shape)).double()
    for part, W in ((layer.gate, W_gate), (layer.up, W_up), (layer.down, W_down)):
        part.weight.data = W.T
    return layer(x).detach()


def experts_layer(d_model: int, d_ff: int, n_experts: int, k: int, *weights: Tensor) -> MixtureOfExperts:
    """The library's experts; `weights`: the router's (d, experts), then gate, up and down with an axis of experts."""
    layer = MixtureOfExperts(config(d_model, d_ff, n_experts=n_experts, n_active_experts=k)).double()
    router, gates, ups, downs = weights
    layer.router.weight.data = router.T
    for expert, *three in zip(layer.experts, gates, ups, downs):
        for part, W in zip((expert.gate, expert.up, expert.down), three):
            part.weight.data = W.T
    return layer


def count(d_model: int, d_ff: int, n_experts: int, k: int) -> dict[str, int]:
    sizes = config(d_model, d_ff, n_experts=n_experts, n_active_experts=k)
    everything = sum(block_breakdown(sizes)[part] for part in ("router", "gate", "up", "down"))
    return {"total": everything, "active": everything - (total(sizes) - active(sizes))}


def met(n_tokens: int, n_experts: int, k: int) -> float:
    """Share of experts that some token visits: one token after the other, each meets what others left."""
    left = 1.0
    for _ in range(n_tokens):
        left -= left * k / n_experts
    return 1 - left


MIXTRAL = preset("mixtral-8x7b")
_EXPERTS = breakdown(MIXTRAL)["mlp"]
_REST = total(MIXTRAL) - _EXPERTS
BATCHES = (1, 8, 64)


def _read(value: Callable[[int], float]) -> dict:
    return {"read": {n: value(n) / 1e9 for n in BATCHES}}


READ = _read(lambda n: _REST + _EXPERTS * met(n, MIXTRAL.n_experts, MIXTRAL.n_active_experts))["read"]


# ---- the slips ----


def _unit(value: Callable[[float, float], float]) -> dict:
    hidden = [value(g, u) for g, u in zip(GATE, UP)]
    return {"hidden": hidden, "out": [hidden[0] + 2 * hidden[1], hidden[1]]}


_FIRST, _SECOND = FUELS[BEST[0]], FUELS[BEST[1]]


def _two(*fuels: float) -> list[float]:
    return [fuel / sum(fuels) for fuel in fuels]


def _gated_as(value: Callable[[Tensor, Tensor], Tensor]) -> dict:
    return {"gated_mlp": lambda x, W_gate, W_up, W_down: value(x @ W_gate, x @ W_up) @ W_down}


def _in_place(x: Tensor, W_gate: Tensor, W_up: Tensor, W_down: Tensor) -> Tensor:
    right = gated(x, W_gate, W_up, W_down)
    x *= 2
    return right


def _relu_in_place(x: Tensor) -> Tensor:
    x[x < 0] = 0
    return x


def _width_as(value: Callable[[int, int], int]) -> dict:
    return {"hidden_width": lambda d_model, multiple_of: value(d_model, multiple_of)}


def _choice_as(value: Callable[[Tensor, int], tuple[Tensor, Tensor]]) -> dict:
    return {"choose": value}


def _shares(powers: Tensor) -> Tensor:
    return powers / powers.sum(-1, keepdim=True)


def _mixed_as(weigh: Callable[[Tensor, int], Tensor], residual: bool = False) -> dict:
    """An answer that weighs all experts; `weigh` gives (token, expert) from the scores."""

    def mixture(x: Tensor, W_router: Tensor, experts: list, k: int) -> Tensor:
        weights = weigh(x @ W_router, k)
        return sum(weights[:, [n]] * expert(x) for n, expert in enumerate(experts)) + (x if residual else 0)

    return {"mixture": mixture}


def _chosen(scores: Tensor, k: int) -> Tensor:
    """Weights of the chosen experts, and zeros for the others."""
    weights, chosen = route(scores, k)
    return torch.zeros_like(scores).scatter(-1, chosen, weights)


def _counted_as(value: Callable[[int, int, int, int], dict[str, int]]) -> dict:
    return {"count_weights": lambda d_model, d_ff, n_experts, k: value(d_model, d_ff, n_experts, k)}


def _repaired_as(value: Callable[[Tensor], Tensor]) -> dict:
    return {"repaired": lambda x, W_gate_up, W_down: value(x @ W_gate_up) @ W_down}


def _halves(h: Tensor) -> tuple[Tensor, Tensor]:
    return h[..., : h.shape[-1] // 2], h[..., h.shape[-1] // 2 :]


def _met_as(value: Callable[[int, int, int], float]) -> dict:
    return {"experts_met": lambda n_tokens, n_experts, k: value(n_tokens, n_experts, k)}


# check → what the slip is → the answers it gives
CATALOGUE: dict[str, dict[str, dict]] = {
    "predict": {
        "a number of experts is not negative": {"guess": -1},
        "a single token visits two of the sixteen, so no more than fourteen can be idle": {"guess": 15},
    },
    "rounded": {
        "this is four times the width, for an MLP of two matrices": {"d_ff": 4 * D_BY_HAND},
        "this is 8/3 of the width, and no multiple of 256": {"d_ff": 8 * D_BY_HAND // 3},
        "you rounded down, or to the nearest multiple: the rule rounds up": {"d_ff": 8 * D_BY_HAND // 768 * 256},
        "this is the next multiple of 128": {"d_ff": right_width(D_BY_HAND, multiple_of=128)},
    },
    "unit": {
        "SiLU is on the wrong copy: the gate goes through it, and multiplies `up` as it is": _unit(
            lambda g, u: g * silu(u)
        ),
        "that is ReLU of the gate: SiLU lets a little of a negative number through": _unit(lambda g, u: max(0, g) * u),
        "nothing was bent: the gate goes through SiLU first": _unit(lambda g, u: g * u),
        "the gate and the other copy are multiplied, not added": _unit(lambda g, u: silu(g) + u),
        "this is the gate alone: it multiplies the other copy": _unit(lambda g, u: silu(g)),
        "W_down is read by columns: row n is what unit n writes": {
            "hidden": _unit(lambda g, u: silu(g) * u)["hidden"],
            "out": [silu(GATE[0]) * UP[0], 2 * silu(GATE[0]) * UP[0] + silu(GATE[1]) * UP[1]],
        },
    },
    "mixed": {
        "experts are counted from 0 here": {
            "chosen": [BEST[0] + 1, BEST[1] + 1], "weights": _two(_FIRST, _SECOND),
        },
        "the best expert comes first": {"chosen": BEST[1::-1], "weights": _two(_SECOND, _FIRST)},
        "these are the two lowest scores": {
            "chosen": BEST[:-3:-1], "weights": _two(FUELS[BEST[-1]], FUELS[BEST[-2]]),
        },
        "your weights are shares of all five: the softmax is over the chosen two alone": {
            "chosen": BEST[:2], "weights": [_FIRST / sum(FUELS), _SECOND / sum(FUELS)],
        },
        "weights go by the exponentials of the scores, not by the scores": {
            "chosen": BEST[:2], "weights": _two(math.log(_FIRST), math.log(_SECOND)),
        },
    },
    "relu": {
        "negative numbers become positive: that is the absolute value": {"relu": lambda x: x.abs()},
        "that is the slope, 0 or 1, not the number": {"relu": lambda x: (x > 0).to(x.dtype)},
        TOUCHED: {"relu": _relu_in_place},
    },
    "gelu": {
        "this is the approximation by tanh that GPT-2 was trained with: the exact one has erf": {
            "gelu": lambda x: ACTIVATIONS["gelu_tanh"](x),
        },
        "x goes into erf as it is: divide it by √2 first": {"gelu": lambda x: x * (1 + torch.erf(x)) / 2},
        "the half is missing: Φ runs from 0 to 1": {"gelu": lambda x: 2 * F.gelu(x)},
        "this is Φ alone: multiply it by x": {"gelu": lambda x: (1 + torch.erf(x / math.sqrt(2))) / 2},
        "this is the rough form x σ(1.702 x)": {"gelu": lambda x: x * torch.sigmoid(1.702 * x)},
    },
    "silu": {
        "this is σ alone: multiply it by x": {"silu": lambda x: torch.sigmoid(x)},
        "the sign in the exponent is turned round: σ(x) is 1 / (1 + e^(−x))": {"silu": lambda x: x * torch.sigmoid(-x)},
        "a large x gives no number, since e^x is infinite there: divide by 1 + e^(−x)": {
            "silu": lambda x: x * x.exp() / (1 + x.exp()),
        },
    },
    "gated_mlp": {
        "SiLU is on the wrong copy: the gate goes through it, and multiplies `up` as it is": _gated_as(
            lambda g, u: g * F.silu(u)
        ),
        "both copies go through SiLU: `up` is multiplied as it is": _gated_as(lambda g, u: F.silu(g) * F.silu(u)),
        "SiLU comes after the product: the gate alone goes through it": _gated_as(lambda g, u: F.silu(g * u)),
        "the gate is σ(x W_gate): SiLU is x σ(x)": _gated_as(lambda g, u: torch.sigmoid(g) * u),
        "that is ReLU of the gate": _gated_as(lambda g, u: F.relu(g) * u),
        "a large gate gives no number: divide by 1 + e^(−x)": _gated_as(lambda g, u: g * g.exp() / (1 + g.exp()) * u),
        "the gate is not bent at all: two products in a row": _gated_as(lambda g, u: g * u),
        "the gate and the other copy are multiplied, not added": _gated_as(lambda g, u: F.silu(g) + u),
        "W_up is not used: the gate multiplies x W_up": _gated_as(lambda g, u: F.silu(g)),
        TOUCHED: {"gated_mlp": _in_place},
    },
    "hidden_width": {
        "8 d / 3 is cut to a whole number before it is rounded up": _width_as(lambda d, m: -(-(8 * d // 3) // m) * m),
        "you round to the nearest multiple: the rule rounds up": _width_as(lambda d, m: round(8 * d / (3 * m)) * m),
        "you round down: the rule rounds up": _width_as(lambda d, m: 8 * d // (3 * m) * m),
        "where 8 d / 3 is such a multiple already, it stays": _width_as(lambda d, m: (8 * d // (3 * m) + 1) * m),
        "this is 4 d, rounded up: three matrices get 8 d / 3": _width_as(lambda d, m: -(-4 * d // m) * m),
        "the multiple is always 256: it is an argument": _width_as(lambda d, m: right_width(d)),
        "nothing is rounded to a multiple": _width_as(lambda d, m: 8 * d // 3),
    },
    "choose": {
        "your weights are shares of all experts: the softmax is over the chosen scores alone": _choice_as(
            lambda scores, k: tuple(scores.softmax(-1).topk(k, -1))
        ),
        "these are the lowest scores": _choice_as(lambda scores, k: route(-scores, k)),
        "softmax runs along the tokens: it belongs along a token's experts": _choice_as(
            lambda scores, k: (scores.topk(k, -1).values.softmax(0), route(scores, k)[1])
        ),
        "every chosen expert gets the same weight": _choice_as(
            lambda scores, k: (torch.full_like(scores[:, :k], 1 / k), route(scores, k)[1])
        ),
        "these are scores, not weights: softmax is missing": _choice_as(lambda scores, k: tuple(scores.topk(k, -1))),
        "the best expert must come first": _choice_as(lambda scores, k: [part.flip(-1) for part in route(scores, k)]),
        "e to a large score is infinite: take the largest score away first, or use softmax": _choice_as(
            lambda scores, k: (_shares(scores.topk(k, -1).values.exp()), route(scores, k)[1])
        ),
    },
    "mixture": {
        "weights are shares of all experts: the softmax is over the chosen scores alone": _mixed_as(
            lambda scores, k: scores.softmax(-1) * (_chosen(scores, k) > 0)
        ),
        "every expert takes part: only the best k do": _mixed_as(lambda scores, k: scores.softmax(-1)),
        "the chosen experts are added up without their weights": _mixed_as(
            lambda scores, k: (_chosen(scores, k) > 0).to(scores.dtype)
        ),
        "the best expert alone does all the work": _mixed_as(lambda scores, k: _chosen(scores, 1)),
        "all tokens go where the first token goes: each has a choice of its own": _mixed_as(
            lambda scores, k: _chosen(scores, k)[:1].expand_as(scores)
        ),
        "x is added to the result: that is the block's work, not the MLP's": _mixed_as(_chosen, residual=True),
    },
    "counted": {
        "the router is missing: a score for each expert takes d_model weights": _counted_as(
            lambda d, f, n, k: {"total": n * 3 * d * f, "active": k * 3 * d * f}
        ),
        "an expert has three matrices, a gate among them": _counted_as(
            lambda d, f, n, k: {"total": n * (2 * d * f + d), "active": k * 2 * d * f + n * d}
        ),
        "a token needs the scores of all experts before it chooses: the router is active as a whole": _counted_as(
            lambda d, f, n, k: count(d, f, n, k) | {"active": k * (3 * d * f + d)}
        ),
    },
    "hunt": {
        "a zero makes both products zero: choose numbers that are not 0": {"right_at": {"gate": 0, "up": 3}},
        "there the suspect is wrong": {"right_at": {"gate": 1, "up": -1}},
        "there the suspect is right": {"wrong_at": {"gate": 5, "up": 5}},
        "there it is wrong by less than 99: what does SiLU do to a large negative number, and to a large positive one?":
            {"wrong_at": {"gate": 10, "up": 5}},
        "the two numbers must lie between −10 and 10": {"wrong_at": {"gate": 100, "up": -100}},
    },
    "repair": {
        "that is still the suspect's answer": _repaired_as(lambda h: F.silu(_halves(h)[1]) * _halves(h)[0]),
        "columns are taken in turn: the gate is the first half of them": _repaired_as(
            lambda h: F.silu(h[..., ::2]) * h[..., 1::2]
        ),
    },
    "met": {
        "tokens may choose the same expert: shares do not add up": _met_as(lambda t, n, k: t * k / n),
        "this is the share that nobody visits": _met_as(lambda t, n, k: 1 - met(t, n, k)),
        "each token visits k experts, you count one": _met_as(lambda t, n, k: met(t, n, 1)),
        "this is a number of experts: divide by n_experts": _met_as(lambda t, n, k: n * met(t, n, k)),
    },
    "reading": {
        "all weights are scaled: attention, norms, tables and the router are read in any case": _read(
            lambda n: total(MIXTRAL) * met(n, 8, 2)
        ),
        "each token reads two experts of its own here: one that two tokens chose is read once": _read(
            lambda n: _REST + n * _EXPERTS / 4
        ),
        "give billions": _read(lambda n: READ[n] * 1e18),
    },
    "batch": {
        "a little more than one expert in a hundred is still idle there: one token more": {"n_needed": 16},
        "that is where half of the experts are met": {"n_needed": 3},
        "that many are enough if each token visits one expert: here it visits two": {"n_needed": 35},
    },
    "verdict": {
        "a token is multiplied with its two experts alone": {"verdict": "A"},
        "which experts the next token needs is not known before: all must be at hand": {"verdict": "B"},
        "look at your own numbers: a step of 64 tokens reads nearly everything": {"verdict": "D"},
        "how many numbers a token is multiplied with does not depend on the other tokens": {"verdict": "E"},
    },
}  # fmt: skip
