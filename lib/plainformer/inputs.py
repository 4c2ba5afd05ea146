"""What a stack reads: rows of the table with their positions, and who may look at whom."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import torch
from torch import nn

from plainformer import masks
from plainformer.config import Config
from plainformer.positions import rotary_angles, sinusoids
from plainformer.shapes import Bool, Float, Int


def embed(
    model: nn.Module,
    ids: Int["batch position"],
    start: Sequence[int],
    n_new: Sequence[int],
    token_types: Int["batch position"] | None = None,
) -> tuple[Float["batch position d_model"], tuple[Float["..."], Float["..."]] | None]:
    """Rows of the table with their positions; and the rotary angles, where positions are turned, not added."""
    config = model.config
    if (end := max(old + new for old, new in zip(start, n_new))) > config.n_context:
        raise ValueError(
            f"the sequence would be {end} tokens long, the model's context is n_context={config.n_context}."
        )
    _check_token_types(config, ids, token_types)
    alike = len({*start}) == 1
    first = torch.tensor(start[:1] if alike else start, device=ids.device)
    # filler behind a row's end may stand past the context: it gets the last position, and nobody looks at it
    positions = (first[:, None] + torch.arange(ids.shape[1], device=ids.device)).clamp_max(config.n_context - 1)
    x = model.embed(ids)
    if config.embed_scale:
        x = x * math.sqrt(config.d_model)
    if config.n_token_types:
        x = x + model.token_types(torch.zeros_like(ids) if token_types is None else token_types)
    if config.positions == "learned":
        x = x + model.positions(positions)
    elif config.positions == "sinusoidal":
        x = x + sinusoids(config.n_context, config.d_model, dtype=x.dtype).to(x.device)[positions]
    if config.embed_norm:
        x = model.embed_norm(x)
    if config.positions != "rotary":
        return x, None
    cos, sin = rotary_angles(positions, config.d_head, base=config.rope_base, dtype=x.dtype)
    return x, (cos[:, None], sin[:, None])


def real_lengths(ids: Int["batch position"], lengths: Sequence[int] | None) -> list[int]:
    """Real tokens of each row: all of them, unless the caller says that rows are filled up at their end."""
    if ids.dim() != 2:
        raise ValueError(
            f"ids must have the shape (batch, position), got {tuple(ids.shape)}. One text is a batch of 1."
        )
    if ids.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"ids select rows, so they are int32 or int64, got {ids.dtype}.")
    if lengths is None:
        return [ids.shape[1]] * ids.shape[0]
    lengths = [operator.index(n) for n in lengths]
    if len(lengths) != ids.shape[0] or not all(1 <= n <= ids.shape[1] for n in lengths):
        raise ValueError(f"lengths must be {ids.shape[0]} numbers in 1 … {ids.shape[1]}, got {lengths}.")
    return lengths


def padding_mask(ids: Int["batch key"], lengths: Sequence[int] | None) -> Bool["batch 1 1 key"] | None:
    """Hides filler as keys, (batch, 1, 1, key); None where there is none."""
    real = real_lengths(ids, lengths)
    return None if lengths is None else masks.padding(torch.tensor(real), ids.shape[1]).to(ids.device)


def causal_mask(
    config: Config, start: Sequence[int], n_new: Sequence[int], n_columns: int, device: torch.device
) -> tuple[Bool["... key"] | None, bool]:
    """Who may look at whom when ``n_new[b]`` of ``n_columns`` ids follow ``start[b]`` kept ones: (mask, causal).

    ``causal`` stands for the plain triangle, which needs no mask in memory. Filler needs none either: it stands
    behind a row's end, where no earlier position looks.
    """
    ends = [old + new for old, new in zip(start, n_new)]
    if len({*start}) == 1 and max(n_new) == n_columns:
        n_key = start[0] + n_columns
        if config.window is None or config.window >= n_key:
            return None, True
        return masks.sliding_window(n_columns, n_key, window=config.window, device=device), False
    queries = (torch.tensor(start)[:, None] + torch.arange(n_columns))[:, None, :, None]
    keys = torch.arange(max(ends))
    mask = keys <= queries
    if config.window is not None:
        mask = mask & (keys > queries - config.window)
    return mask.to(device), False


def _check_token_types(config: Config, ids: Int["batch position"], token_types: Int["batch position"] | None) -> None:
    if token_types is None:
        return
    if not config.n_token_types:
        raise ValueError("token_types were given, but the model has none (n_token_types=0).")
    if token_types.shape != ids.shape:
        raise ValueError(f"every id has one token type: ids {tuple(ids.shape)}, got {tuple(token_types.shape)}.")
