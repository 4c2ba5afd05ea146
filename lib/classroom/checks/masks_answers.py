"""What is right in exercise 04; modules that leak and modules that do not, and tests of causality that err.

Truth comes from `plainformer.masks` and `plainformer.attention`. A module is a function of a text (1, T, d).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from classroom import terms
from classroom.checks.tensors import numbers
from plainformer import masks
from plainformer.attention import attention_weights

Module = Callable[[Tensor], Tensor]
# problems 1 and 2: positions and window; problem 2: positions, window, real tokens; exponentials of a query's scores
LONG, WIDE, T_SMALL, W_SMALL, REAL, FUELS = terms.numbers("masks")
AT, NARROW = 2, 2  # problem 2: the query's place and its window
DEPTH_LONG, DEPTH_WIDE = 32_768, 4_096  # problem 7: positions and window
N_FILLER, N_KEY = (0, 2, 5), 8  # problem 6
ROUNDING = 1e-9  # the exercise's line between rounding and a leak, relative to the largest input


# ---- what is right ----


def pairs(T: int = T_SMALL, W: int = W_SMALL, n_real: int = REAL) -> dict[str, int]:
    causal, window = masks.causal(T), masks.sliding_window(T, window=W)
    real = masks.padding(torch.tensor([n_real]), T)[0, 0]
    kinds = {"causal": causal, "window": window, "filled": causal & real, "both": window & real}
    return {name: int(mask.sum()) for name, mask in kinds.items()}


def row(mask: Tensor) -> list[float]:
    """The weights of problem 2 under a mask (1, 4)."""
    q, k = torch.ones(1, 1, dtype=torch.float64), torch.tensor(FUELS, dtype=torch.float64).log()[:, None]
    return attention_weights(q, k, mask)[0].tolist()


def seen(*places: int) -> list[float]:
    """The weights of problem 2 if the query looks at these places."""
    total = sum(FUELS[place] for place in places)
    return [fuel / total if place in places else 0.0 for place, fuel in enumerate(FUELS)]


SHARE = (WIDE * (WIDE + 1) // 2 + (LONG - WIDE) * WIDE) / LONG**2


def both(lengths: Tensor, n_positions: int, window: int) -> Tensor:
    return masks.sliding_window(n_positions, window=window) & masks.padding(lengths, n_positions)


def front(n_filler: Tensor, n_key: int) -> Tensor:
    """Causal, filler in front hidden; a position always sees itself."""
    real = torch.arange(n_key) >= n_filler[:, None]
    return masks.causal(n_key) & real[:, None, None, :] | torch.eye(n_key, dtype=torch.bool)


def unrepaired(n_filler: Tensor, n_key: int) -> Tensor:
    return masks.causal(n_key) & (torch.arange(n_key) >= n_filler[:, None])[:, None, None, :]


def reach(windows: list[int]) -> int:
    """Found with masks: who sees the first position, layer after layer?"""
    n = sum(windows) + 1
    sees = torch.zeros(n, dtype=torch.bool)
    sees[0] = True
    for window in windows:
        sees = (masks.sliding_window(n, window=window) & sees).any(-1)
    return int(sees.nonzero().max())


# ---- modules ----


def _hidden(n: int) -> Tensor:
    return ~masks.causal(n)


def _look(x: Tensor, key: int, hidden: Tensor, constant: float = -math.inf, add: bool = False) -> Tensor:
    """One head. Keys are the queries' opposites, so that a position's score with itself is always negative."""
    d_model = x.shape[-1]
    q, v = (x @ numbers(d_model, d_model, key=key + n, scale=d_model**-0.5) for n in range(2))
    scores = q @ -q.transpose(-2, -1) / math.sqrt(d_model)
    scores = scores + constant * hidden if add else scores.masked_fill(hidden, constant)
    return scores.softmax(-1) @ v


def masked(key: int, **how) -> Module:
    """Attention under a causal mask and a residual add: clean, unless `how` hides otherwise."""
    return lambda x: x.double() + _look(x.double(), key, _hidden(x.shape[1]), **how)


def unmasked(key: int) -> Module:
    return lambda x: x.double() + _look(x.double(), key, torch.zeros(x.shape[1], x.shape[1], dtype=torch.bool))


def one_ahead(key: int) -> Module:
    """Every position sees the next one too."""
    return lambda x: x.double() + _look(x.double(), key, _hidden(x.shape[1]).triu(2))


def one_hole(key: int) -> Module:
    """A single position sees the next one."""

    def module(x: Tensor) -> Tensor:
        hidden = _hidden(x.shape[1])
        query = x.shape[1] // 3
        hidden[query, query + 1 : query + 2] = False
        return x.double() + _look(x.double(), key, hidden)

    return module


def stacked(*modules: Module) -> Module:
    def module(x: Tensor) -> Tensor:
        for part in modules:
            x = part(x)
        return x

    return module


def one_head_open(key: int) -> Module:
    """Two heads on halves of the width; the second has no mask."""

    def module(x: Tensor) -> Tensor:
        first, second = x.double().chunk(2, -1)
        return torch.cat([masked(key)(first), unmasked(key + 2)(second)], -1)

    return module


def faint(key: int) -> Module:
    """Clean attention, and a thousandth of the mean over the whole text."""
    return lambda x: masked(key)(x) + x.double().mean(1, keepdim=True) / 1000


def alone(key: int) -> Module:
    """Every position by itself."""
    return lambda x: x.double() + (x.double() @ numbers(x.shape[-1], x.shape[-1], key=key)).tanh()


def previous(key: int) -> Module:
    """Every position gets what the one before it holds."""
    return lambda x: torch.nn.functional.pad(alone(key)(x), (0, 0, 1, 0))[:, :-1]


def rounded(key: int) -> Module:
    """The mean over a position and all before it, taken in a roundabout way: only its rounding knows the future."""

    def module(x: Tensor) -> Tensor:
        middle = 100 * x.double().mean(1, keepdim=True)
        counted = torch.arange(1, x.shape[1] + 1)[:, None]
        return (x.double() - middle).cumsum(1) / counted + middle

    return module


# ---- tests of causality, right and with a slip ----


def leaks(module: Module, n_positions: int, d_model: int, **how) -> bool:
    """Right by default: every beginning of a text is followed by two endings, in small numbers and in large."""
    tries = ((scale, t) for scale in how.get("scales", (1.0, 1000.0)) for t in range(1, n_positions) for _ in range(3))
    return any(
        probe(module, n_positions, d_model, (t, n_positions), (0, t), key=k, scale=scale, **how)
        for k, (scale, t) in enumerate(tries)
    )


def probe(
    module: Module, n_positions: int, d_model: int, changed: tuple[int, int], watched: tuple[int, int],
    *, key: int = 0, scale: float = 1.0, tolerance: float = ROUNDING, features: int | None = None, **_,
) -> bool:  # fmt: skip
    """Does a change of the positions `changed` move the outputs `watched`?"""
    x = numbers(1, n_positions, d_model, key=100 + key, scale=scale)
    other = x.clone()
    other[:, slice(*changed)] = numbers(1, n_positions, d_model, key=200 + key, scale=scale)[:, slice(*changed)]
    moved = (module(x) - module(other))[:, slice(*watched), :features].abs().max()
    return bool(moved > tolerance * max(x.abs().max(), other.abs().max()))


def last_and_first(module: Module, n_positions: int, d_model: int) -> bool:
    return probe(module, n_positions, d_model, (n_positions - 1, n_positions), (0, 1))


def last_and_all(module: Module, n_positions: int, d_model: int) -> bool:
    return probe(module, n_positions, d_model, (n_positions - 1, n_positions), (0, n_positions - 1))


def own_too(module: Module, n_positions: int, d_model: int) -> bool:
    return probe(module, n_positions, d_model, (2, n_positions), (0, 3))


def wrong_side(module: Module, n_positions: int, d_model: int) -> bool:
    return probe(module, n_positions, d_model, (0, 2), (2, n_positions))


def alike(module: Module, n_positions: int, d_model: int) -> bool:
    """Large numbers, but the same at all positions."""
    x = torch.full((1, n_positions, d_model), 1000.0, dtype=torch.float64)
    other = x.clone()
    other[:, 1:] += 0.01
    return bool((module(x) - module(other))[:, 0].abs().max() > 1e-6)


def infinite(module: Module, n_positions: int, d_model: int) -> bool:
    x = numbers(1, n_positions, d_model, key=100)
    other = x.clone()
    other[:, 2:] = math.inf
    return not torch.allclose(module(x)[:, :2], module(other)[:, :2])
