"""What is right about the 1,000-layer claim, problems 6 to 8 of exercise 06, and the wrong answers known by name.

Truth is spelled otherwise than in the notebook's reference: all gradients in one vector, sizes by vectors' lengths,
FLOPs counted by `plainformer.flops`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from plainformer.config import Config, preset
from plainformer.flops import sequence
from plainformer.model import Transformer
from plainformer.training import next_token_loss

# ---- problem 6: what depth does ----

_SMALL = Config(
    n_vocab=11, d_model=12, n_heads=3, n_kv_heads=3, n_context=16, d_ff=20, n_layers=4,
    norm="layer", mlp="relu", positions="none",
)  # fmt: skip
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [10, 7, 1, 8, 2, 8, 6]])


def small_model(**changes) -> Transformer:
    """A few random blocks whose norms have weights other than 1 and whose embeddings differ in size."""
    chance = torch.Generator().manual_seed(6)
    model = Transformer(replace(_SMALL, **changes)).double()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.randn(weight.shape, generator=chance, dtype=torch.float64) / math.sqrt(weight.shape[-1]))
            if weight.dim() == 1 and name.endswith("weight"):
                weight.add_(1.0)
        model.embed.weight.mul_(1.0 + torch.arange(len(model.embed.weight), dtype=torch.float64)[:, None])
    return model


def block_gradients(model: Transformer, ids: Tensor, n: int = 0) -> list[Tensor]:
    """Gradient of the loss for each tensor of block n, 0 being the first; the model's own .grad stay as they are."""
    loss = next_token_loss(model(ids[:, :-1]), ids)
    return list(torch.autograd.grad(loss, list(model.blocks[n].parameters())))


def length(tensors: list[Tensor]) -> float:
    return torch.cat([tensor.flatten() for tensor in tensors]).norm().item()


def stream(model: Transformer, ids: Tensor) -> list[Tensor]:
    """What enters the first block, and what each block hands on."""
    with torch.no_grad():
        found = [model.embed(ids)]
        for block in model.blocks:
            found.append(block(found[-1], causal=True))
    return found


def root_mean_square(x: Tensor) -> float:
    return x.norm().item() / math.sqrt(x.numel())


def _gradient(value: Callable[[Transformer, Tensor], float]) -> dict[str, Callable]:
    return {"first_gradient": lambda model, ids: value(model, ids)}


def _accumulated(model, ids) -> float:
    next_token_loss(model(ids[:, :-1]), ids).backward()
    return length([weight.grad for weight in model.blocks[0].parameters()])


def _sizes(value: Callable[[list[Tensor], Transformer], list[float]]) -> dict[str, Callable]:
    return {"stream_sizes": lambda model, ids: value(stream(model, ids), model)}


def _deviation(x: Tensor) -> float:
    return (x - x.mean(-1, keepdim=True)).square().mean().sqrt().item()


# ---- problem 7: the same budget ----

LENGTH, STEPS = 8, 60  # positions of a sentence, steps of the wide model
WIDE = Config(
    n_vocab=16, d_model=48, n_heads=2, n_kv_heads=2, n_context=16, d_ff=96, n_layers=2,
    norm="layer", mlp="relu", positions="none",
)  # fmt: skip
N_DEEP, D_DEEP = 18, 16
DEEP = replace(WIDE, d_model=D_DEEP, d_ff=2 * D_DEEP, n_layers=N_DEEP)
COST = {name: sum(sequence(config, LENGTH).values()) for name, config in (("wide", WIDE), ("deep", DEEP))}
STEPS_DEEP = round(STEPS * COST["wide"] / COST["deep"])
_LLAMA = preset("llama-2-7b")
WIDTH_1000 = _LLAMA.d_model * math.sqrt(_LLAMA.n_layers / 1_000)
_PROPORTIONAL = _LLAMA.d_model * _LLAMA.n_layers / 1_000

# ---- what is measured in problems 6 and 7 ----

# known beforehand, so that a check of right answers need not build 1,000 blocks; a test measures them again
MEASURED = {
    "gradient": {"pre": 3.4286, "post": 3.4289e-10}, "rms": {250: 19.230, 1000: 37.613},
    "losses": {"wide": 1.6414, "deep": 2.0473},
}  # fmt: skip
AGAIN = "{}: measured again, it comes out otherwise; give what your code finds, with three digits or more"

# ---- problem 8: the essay ----

FIRST = "the essay cites {}, which is not what problem {} measures: put that right first, then cite it"
_FILLER = "and this is a word of a sentence that says nothing "


def _essay(n_fillers: int = 13, **numbers: str) -> dict:
    cited = {"pre": "3.4", "post": "3.4e-10", "top": "38", "wide": "1.64", "deep": "2.05", "width": "733"} | numbers
    own = {"width_1000": WIDTH_1000, **MEASURED}  # a wrong essay does not hang on the problems before it
    return own | {"essay": " ".join(f"{name} {n}" for name, n in cited.items()) + ". " + n_fillers * _FILLER}


NO_NUMBER = "the essay has no number that agrees with your {}; give two digits or more"
CITED = {
    "pre": "first block's gradient at depth 1,000 with pre-norm",
    "post": "first block's gradient at depth 1,000 with post-norm",
    "top": "RMS of the stream after 1,000 blocks",
    "wide": "loss of the wide model",
    "deep": "loss of the deep model",
    "width": "width_1000, what 1,000 blocks may be wide",
}

# check → what the slip is → the answers it gives
CATALOGUE: dict[str, dict[str, dict]] = {
    "predict": {
        "a length is positive": {"guess": {"pre": -1.0, "post": 1e-3}},
        "no float64 holds that": {"guess": {"pre": 1.0, "post": 10**400}},
    },
    "first_block": {
        "this is the last block's gradient": _gradient(lambda model, ids: length(block_gradients(model, ids, -1))),
        "this is the gradient for one tensor; a block has many": _gradient(
            lambda model, ids: max(map(length, ([g] for g in block_gradients(model, ids))))
        ),
        "the root is missing: the length is the root of the sum of squares": _gradient(
            lambda model, ids: length(block_gradients(model, ids)) ** 2
        ),
        "the lengths of the tensors are added; add their squares, then take the root": _gradient(
            lambda model, ids: sum(length([g]) for g in block_gradients(model, ids))
        ),
        "this is the gradient's RMS; its length is the root of the sum, not of the mean": _gradient(
            lambda model, ids: root_mean_square(torch.cat([g.flatten() for g in block_gradients(model, ids)]))
        ),
        "a second call gives more: backward() adds to the gradients of the call before": _gradient(_accumulated),
    },
    "sizes": {
        "these are lengths; the RMS divides by the number of entries under the root": _sizes(
            lambda found, model: [x.norm().item() for x in found]
        ),
        "the stream before the first block is missing": _sizes(
            lambda found, model: [root_mean_square(x) for x in found[1:]]
        ),
        "the last entry is measured behind the final norm": _sizes(
            lambda found, model: [root_mean_square(x) for x in [*found[:-1], model.final_norm(found[-1])]]
        ),
        "the mean is subtracted: that is the standard deviation": _sizes(
            lambda found, model: [_deviation(x) for x in found]
        ),
        "this is the mean of the positions' RMS; take the mean of all squares, then the root": _sizes(
            lambda found, model: [x.square().mean(-1).sqrt().mean().item() for x in found]
        ),
        "the root is missing": _sizes(lambda found, model: [root_mean_square(x) ** 2 for x in found]),
    },
    "depth": {
        "pre and post are exchanged": {"gradient": {"pre": 3.4e-10, "post": 3.4}},
        "both gradients are those of pre-norm": {"gradient": {"pre": 3.43, "post": 3.43}},
        "that is the gradient at another depth: give the one of 1,000 blocks": {
            "gradient": {"pre": 2.86, "post": 2.2e-3},
        },
        "rms: that is measured behind the final norm, or in the post-norm stack": {"rms": {250: 1.0, 1000: 1.0}},
        "exponent: this is the ratio of the sizes; the exponent is its logarithm over that of 4": {"exponent": 1.956},
        "exponent: this is the exponent of the square": {"exponent": 0.968},
        "exponent: that is the root one would expect; compute it from your two sizes": {"exponent": 0.5},
        AGAIN.format("gradient"): {"gradient": {"pre": 1.0, "post": 1e-9}},
        AGAIN.format("rms"): {"rms": {250: 19.23, 1000: 38.46}},
    },
    "shapes": {
        "n_deep: the weights of a block grow with d², not with d": {"n_deep": 6},
        "n_deep: the fraction is squared once too often": {"n_deep": 162},
        "width_1000: the weights of a block grow with d², so the width shrinks by a root": {
            "width_1000": _PROPORTIONAL, "ratio_1000": _PROPORTIONAL / 1_000,
        },
        "width_1000: deeper at the same budget means narrower": {
            "width_1000": _LLAMA.d_model**2 / WIDTH_1000, "ratio_1000": _LLAMA.d_model**2 / WIDTH_1000 / 1_000,
        },
        "ratio_1000: the fraction is upside down: width over blocks": {"ratio_1000": 1_000 / WIDTH_1000},
        "ratio_1000: that is Llama 2 7B's own width over 1,000 blocks": {"ratio_1000": _LLAMA.d_model / 1_000},
    },
    "budget": {
        "steps_deep: as many steps cost more FLOPs in the deep model": {"steps_deep": STEPS},
        "steps_deep: the fraction is upside down": {"steps_deep": round(STEPS * COST["deep"] / COST["wide"])},
        "losses: wide and deep are exchanged": {"losses": {"wide": 2.05, "deep": 1.64}},
        "losses: that is the mean of the whole run; take the last five steps": {"losses": {"wide": 1.867, "deep": 2.5}},
        "losses: that is the first step's loss": {"losses": {"wide": 3.22, "deep": 3.4}},
        AGAIN.format("losses"): {"losses": {"wide": 1.64, "deep": 2.2}},
    },
    "cites_depth": {
        "the essay has fewer than 100 words": _essay(n_fillers=3),
        "the essay has more than 400 words": _essay(n_fillers=40),
    } | {
        NO_NUMBER.format(CITED[name]): _essay(**{name: wrong})
        for name, wrong in (("pre", "1.6"), ("post", "2.5e-6"), ("top", "32"))
    } | {
        FIRST.format("gradient", 6): _essay(pre="1") | {"gradient": {"pre": 1, "post": 1}},
        FIRST.format("rms", 6): _essay(top="75") | {"rms": {250: 19.2, 1000: 75.0}},
    },
    "cites_budget": {
        NO_NUMBER.format(CITED[name]): _essay(**{name: wrong})
        for name, wrong in (("wide", "1.4"), ("deep", "2.7"), ("width", "131"))
    } | {
        FIRST.format("losses", 7): _essay(deep="1.64") | {"losses": {"wide": 1.64, "deep": 1.64}},
    },
}  # fmt: skip
