"""Exercise 13's answers on tensors, right and with slips: layouts, a search for transposed matrices, quiet mistakes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from classroom.checks.tensors import numbers
from plainformer.config import Config
from plainformer.model import Transformer
from plainformer.positions import convert_pairing

# ---- layouts ----


def unfuser(
    *,
    parts: Callable[[Tensor, list[int]], list[Tensor]] = lambda stored, widths: list(stored.split(widths, -1)),
    turn: Callable[[Tensor], Tensor] = lambda part: part.T if part.dim() == 2 else part,
) -> Callable:
    """`unfuse` as problem 5 asks for it, right but for what is given here."""
    return lambda stored, widths: [turn(part) for part in parts(stored, widths)]


def fused(d_in: int | None, *widths: int, times: float = 1.0) -> dict:
    """A matrix as GPT-2 keeps it, or a bias if there is no `d_in`."""
    shape = (sum(widths),) if d_in is None else (d_in, sum(widths))
    return {"stored": numbers(*shape, key=len(shape), scale=times), "widths": [*widths]}


def rows(n_heads: int, d_head: int, *d_in: int, times: float = 1.0) -> dict:
    """A query's or a key's matrix, or a bias if there is no `d_in`."""
    return {"weight": numbers(n_heads * d_head, *d_in, key=n_heads, scale=times), "n_heads": n_heads}


def to_halves(weight: Tensor, n_heads: int) -> Tensor:
    """By the library."""
    return convert_pairing(weight, n_heads, to="halves")


def head_by_head(change: Callable[[Tensor, int], Tensor]) -> Callable:
    """A function of `weight` and `n_heads` that changes the rows of each head; `change` gets the head's number too."""

    def answer(weight, n_heads):
        rows = weight.reshape(n_heads, -1, *weight.shape[1:])
        return torch.cat([change(head, k) for k, head in enumerate(rows)])

    return answer


def even_rows_first(head: Tensor, k: int = 0) -> Tensor:
    return torch.cat([head[0::2], head[1::2]])


def halved_in_place(weight: Tensor, n_heads: int) -> Tensor:
    return weight.copy_(to_halves(weight, n_heads))


# ---- a small model and what it computes ----


def small_config(**changes) -> Config:
    """The Llama shape, all sizes different; only the query's and the output's matrices are square."""
    sizes = {"n_vocab": 61, "d_model": 24, "n_heads": 4, "n_kv_heads": 2, "d_ff": 40, "n_layers": 5, "n_context": 32}
    return Config(**sizes | changes)


def weights_of(config: Config, key: int = 0) -> dict[str, Tensor]:
    """Random weights in float64, of a size that lets every part of a block matter."""
    weights = {}
    for k, (name, weight) in enumerate(_wired(config).state_dict().items()):
        shape = tuple(weight.shape)
        spread = 1.0 if name in ("embed.weight", "positions.weight") else shape[-1] ** -0.5
        weights[name] = numbers(*shape, key=1_000 * key + k, scale=spread if len(shape) > 1 else 0.2)
        if "norm.weight" in name:
            weights[name] += 1
    return weights


def some_ids(config: Config, n_texts: int = 3, n_tokens: int = 9, key: int = 0) -> Tensor:
    return torch.randint(config.n_vocab, (n_texts, n_tokens), generator=torch.Generator().manual_seed(key))


def run(config: Config, weights: dict[str, Tensor], ids: Tensor) -> tuple[Tensor, Tensor]:
    """The stream after each block, (n_layers, batch, position, d_model), and the logits."""
    model, kept = _wired(config), []
    model.load_state_dict(weights, assign=True)
    hooks = [block.register_forward_hook(lambda block, inputs, x: kept.append(x)) for block in model.blocks]
    with torch.no_grad():
        logits = model(ids)
    for hook in hooks:
        hook.remove()
    return torch.stack(kept), logits


@functools.cache
def _wired(config: Config) -> Transformer:
    """A model without numbers: building one takes longer than running it."""
    with torch.device("meta"):
        return Transformer(config)


def transposed(weights: dict[str, Tensor], *names: str) -> dict[str, Tensor]:
    """With these matrices transposed."""
    return weights | {name: weights[name].T.contiguous() for name in names}


def squares(weights: dict[str, Tensor], n: int) -> list[str]:
    """The square matrices of block n."""
    return [
        name
        for name, weight in weights.items()
        if name.startswith(f"blocks.{n}.") and weight.dim() == 2 and weight.shape[0] == weight.shape[1]
    ]


def fault(config: Config, *names: str, key: int = 0) -> tuple[Config, dict[str, Tensor], Tensor, Tensor]:
    """A model with transposed matrices, and the streams of the right one, rounded to float32."""
    weights, ids = weights_of(config, key), some_ids(config, key=key)
    return config, transposed(weights, *names), ids, run(config, weights, ids)[0].float()


def quiet(config: Config, key: int = 5) -> tuple[Config, dict[str, Tensor], Tensor]:
    """A right model, whose logits are far from a spread of 1: settings, weights, and some texts."""
    weights = weights_of(config, key)
    return config, weights | {"final_norm.weight": 4 * weights["final_norm.weight"]}, some_ids(config, key=key)


# ---- the search ----


def near(actual: Tensor, published: Tensor) -> bool:
    return bool((actual - published).abs().max() <= 1e-4 * published.abs().max())


def finder(
    *,
    equal: Callable[[Tensor, Tensor], bool] = near,
    shift: int = 0,
    tries: bool = True,
    mends: bool = True,
    stops: bool = False,
    always: bool = False,
    in_place: bool = False,
) -> Callable:
    """`find_transposed` as problem 7 asks for it, right but for what is given here."""

    def find_transposed(config, weights, ids, streams):
        weights, found = weights if in_place else dict(weights), []
        for n in range(config.n_layers):
            if equal(run(config, weights, ids)[0][n], streams[n]):
                continue
            for name in squares(weights, n):
                tried = transposed(weights, name)
                if not tries or equal(run(config, tried, ids)[0][n], streams[n]):
                    found.append(name.replace(f"blocks.{n}.", f"blocks.{n + shift}."))
                    if mends:
                        weights.update(tried)
                    break
            if found and stops:
                break
        return found or ([squares(weights, config.n_layers - 1)[0]] if always else [])

    return find_transposed


# ---- quiet mistakes ----


def relative(actual: Tensor, right: Tensor) -> float:
    """The root mean square of the difference, as a part of that of what is right."""
    return ((actual - right).square().mean().sqrt() / right.square().mean().sqrt()).item()


def exchanged(config: Config, weights: dict[str, Tensor], one: str, other: str, only: int | None = None) -> dict:
    """With two parts of every block exchanged, or of one block."""
    changed = dict(weights)
    for n in range(config.n_layers) if only is None else [only]:
        a, b = f"blocks.{n}.{one}.weight", f"blocks.{n}.{other}.weight"
        changed[a], changed[b] = weights[b], weights[a]
    return changed


def mover(
    *, measure: Callable[[Tensor, Tensor], float] = relative, only: int | None = None, pairing: str = "even-odd"
) -> Callable:
    """`moved_by` as problem 8 asks for it, right but for what is given here."""

    def moved_by(config, weights, ids):
        right = run(config, weights, ids)[1]
        keys_values = exchanged(config, weights, "attn.key", "attn.value", only)
        gate_up = exchanged(config, weights, "mlp.gate", "mlp.up", only)
        return {
            "pairing": measure(run(replace(config, pairing=pairing), weights, ids)[1], right),
            "key and value": measure(run(config, keys_values, ids)[1], right),
            "gate and up": measure(run(config, gate_up, ids)[1], right),
        }

    return moved_by
