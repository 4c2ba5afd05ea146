"""What is right in exercise 08: modules of `plainformer`, run with weights that are made here, and closed forms."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classroom import terms
from classroom.checks.tensors import numbers
from plainformer.config import Config, preset
from plainformer.heads import MultiHeadAttention
from plainformer.model import Transformer
from plainformer.parameters import total

# of problem 2: sizes that all differ
B, T, N_LAYERS, D_MODEL, N_HEADS, N_KV_HEADS, D_FF, N_VOCAB = terms.numbers("model")
D_HEAD = D_MODEL // N_HEADS
SMALL = preset("smollm2-135m")  # of problems 1 and 7, with a batch of 16 texts of 2,048 tokens
N_TOKENS = 16 * 2048
ROOM = 2**31

QUERIES, KEYS = (B, N_HEADS, T, D_HEAD), (B, N_KV_HEADS, T, D_HEAD)
IN_ATTENTION = {"queries": QUERIES, "keys": KEYS, "weights": (B, N_HEADS, T, T), "joined": (B, T, D_MODEL)}
AROUND = {"hidden": (B, T, D_FF), "leaves": (B, T, D_MODEL)}
AT_THE_END = {"logits": (B, T, N_VOCAB), "last_only": (B, 1, N_VOCAB)}
RATIO = N_TOKENS * SMALL.n_vocab / total(SMALL)


def filled(module: nn.Module, key: int = 0) -> nn.Module:
    """The module in float64, with weights large enough that each of them is seen."""
    for n, weight in enumerate(module.double().parameters()):
        weight.requires_grad_(False).copy_(0.3 + 0.4 * numbers(*weight.shape, key=1000 * key + n))
    return module


def transformer(n_layers: int, tied: bool, key: int = 0) -> Transformer:
    config = Config(
        n_vocab=11, d_model=12, n_heads=3, n_kv_heads=1, d_ff=20, n_context=16, n_layers=n_layers, tied=tied,
        positions="none",
    )  # fmt: skip
    return filled(Transformer(config), key)


def parts(block: nn.Module) -> dict[str, Callable]:
    """The arguments of the exercise's `block` that stand for this one."""
    attn = block.attn
    return {
        "attn_norm": block.attn_norm, "attn": lambda x: attn(x, causal=True), "mlp_norm": block.mlp_norm,
        "mlp": block.mlp,
    }  # fmt: skip


def arguments(model: Transformer, ids: Tensor) -> dict:
    """The arguments of the exercise's `model` that stand for this one."""
    return {
        "ids": ids,
        "embed": model.embed.weight,
        "blocks": [lambda x, block=block: block(x, causal=True) for block in model.blocks],
        "final_norm": model.final_norm,
        "unembed": None if model.config.tied else model.unembed.weight,
    }


def shapes_in(config: Config, n_batch: int, n_positions: int) -> dict[str, tuple[int, ...]]:
    """Shape of what every module of a model gives, from its sizes alone."""
    stream = (n_batch, n_positions, config.d_model)
    keys = (n_batch, n_positions, config.n_kv_heads * config.d_head)
    wide = (n_batch, n_positions, config.d_ff)
    of_block = dict.fromkeys(("", ".attn_norm", ".attn", ".mlp_norm", ".mlp"), stream)
    of_block |= {".attn.query": stream, ".attn.key": keys, ".attn.value": keys, ".attn.out": stream}
    of_block |= {".mlp.gate": wide, ".mlp.up": wide, ".mlp.down": stream}
    found = {f"blocks.{n}{name}": shape for n in range(config.n_layers) for name, shape in of_block.items()}
    return found | {"embed": stream, "final_norm": stream, "": (n_batch, n_positions, config.n_vocab)}


def network() -> tuple[nn.Module, Tensor, dict[str, tuple[int, ...]]]:
    """A network that is no Transformer, ids for it, and the shape of what each of its modules gives.

    Names and sizes are drawn anew each time; a name says nothing of its module. The module `unused` never runs.
    """
    draw = random.SystemRandom()
    B, T, d, n_channels, wide, n_out = draw.sample(range(3, 15), 6)
    names = draw.sample(["embed", "blocks", "attn", "query", "mlp", "up", "down", "final_norm", "unembed"], 7)
    outer, table, slid, to_gate, gate, flat, out = names
    layers = {
        slid: nn.Conv1d(T, n_channels, 2),  # along the width, for which it takes that of time
        to_gate: nn.Linear(d - 1, 2 * wide),
        gate: nn.GLU(),
    }
    layers[to_gate].unused = nn.Linear(d, d)
    network = nn.Sequential(OrderedDict({
        table: nn.Embedding(20, d), outer: nn.Sequential(OrderedDict(layers)), flat: nn.Flatten(),
        out: nn.Linear(n_channels * wide, n_out),
    }))  # fmt: skip
    inside = {slid: (B, n_channels, d - 1), to_gate: (B, n_channels, 2 * wide), gate: (B, n_channels, wide)}
    shapes = {"": (B, n_out), table: (B, T, d), outer: inside[gate], flat: (B, n_channels * wide), out: (B, n_out)}
    shapes |= {f"{outer}.{name}": shape for name, shape in inside.items()}
    return network, torch.arange(B * T).reshape(B, T) % 20, shapes


def heads(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor, n_heads: int) -> Tensor:
    """The library's attention in many heads with these weights, looking back only."""
    layer = MultiHeadAttention(
        Config(
            n_vocab=2, d_model=x.shape[-1], n_heads=n_heads, n_kv_heads=n_heads, d_ff=1, n_context=99, n_layers=1,
            positions="none",
        )
    ).double()  # fmt: skip
    for part, W in ((layer.query, W_Q), (layer.key, W_K), (layer.value, W_V), (layer.out, W_O)):
        part.weight.data = W.T
    return layer(x, causal=True).detach()


def losses_in_chunks(states: Tensor, targets: Tensor, unembed: Tensor, n_chunk: int) -> Iterator[Tensor]:
    """The loss of each chunk's rows, added up; a row whose target is -100 has none."""
    for x, y in zip(states.split(n_chunk), targets.split(n_chunk)):
        yield F.cross_entropy(x @ unembed.T, y, reduction="sum")


def lost(states: Tensor, targets: Tensor, unembed: Tensor, n_chunk: int) -> float:
    """The mean loss, in chunks."""
    return sum(chunk.item() for chunk in losses_in_chunks(states, targets, unembed, n_chunk)) / len(states)
