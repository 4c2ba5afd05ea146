"""The key-value cache: what a causal model need not compute again.

Under a causal mask a position's keys and values depend on earlier tokens only, so they never change.
A `Cache` keeps them; it is an argument of the model's ``forward`` and the only thing that call changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from plainformer.config import Config
from plainformer.shapes import Float


class Cache:
    """Keys and values of every layer, preallocated for ``n_positions`` of each sequence.

    ``lengths[b]`` tokens of sequence b are in it. ``keys`` and ``values`` have the shape
    (layer, batch, kv_head, position, d_head). Decode under ``torch.no_grad()``: with gradients on, they hold the
    graph of every step.
    """

    def __init__(
        self,
        config: Config,
        n_sequences: int,
        n_positions: int | None = None,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ):
        n_positions = config.n_context if n_positions is None else n_positions
        if not config.causal:
            raise ValueError("without a causal mask later tokens change earlier keys: there is nothing to keep.")
        if n_sequences < 1 or not 1 <= n_positions <= config.n_context:
            raise ValueError(
                f"a cache needs at least one sequence and 1 … n_context={config.n_context} positions, "
                f"got {n_sequences} and {n_positions}."
            )
        shape = (config.n_layers, n_sequences, config.n_kv_heads, n_positions, config.d_head)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.lengths = [0] * n_sequences

    @property
    def n_sequences(self) -> int:
        """Sequences in the batch."""
        return self.keys.shape[1]

    @property
    def n_positions(self) -> int:
        """Positions that were set aside for each sequence."""
        return self.keys.shape[3]

    def check_fits(self, config: Config, dtype: torch.dtype) -> None:
        """Raises ``ValueError`` for a model of other layers, heads or widths, or of another number type."""
        wanted = (config.n_layers, config.n_kv_heads, config.d_head)
        mine = (self.keys.shape[0], self.keys.shape[2], self.keys.shape[4])
        if not config.causal or mine != wanted or self.keys.dtype != dtype:
            raise ValueError(
                f"the cache was made for another model: its (layers, key heads, d_head) are {mine} in "
                f"{self.keys.dtype}, this model's {wanted} in {dtype}, causal={config.causal}. "
                "Make it with this model's config, and with its dtype."
            )

    def check_room(self, n_new: Sequence[int]) -> None:
        """Raises ``ValueError`` when a sequence would outgrow the cache or the batch is another one."""
        if len(n_new) != self.n_sequences:
            raise ValueError(f"the cache holds {self.n_sequences} sequences, the input has {len(n_new)}.")
        for b, (old, new) in enumerate(zip(self.lengths, n_new)):
            if old + new > self.n_positions:
                raise ValueError(
                    f"sequence {b} has {old} tokens in the cache; {new} more do not fit into its "
                    f"{self.n_positions} positions. Make a larger cache, up to the model's n_context."
                )

    def store(
        self,
        layer: int,
        k: Float["batch kv_head new d_head"],
        v: Float["batch kv_head new d_head"],
        n_new: Sequence[int],
    ) -> tuple[Float["batch kv_head key d_head"], Float["batch kv_head key d_head"]]:
        """Writes ``n_new[b]`` keys and values behind sequence b's; returns those of all positions so far.

        What stands behind a shorter sequence's end is not meant to be seen: the model's mask hides it.
        """
        keys, values = self.keys[layer], self.values[layer]
        if len({*zip(self.lengths, n_new)}) == 1:  # all alike: one write
            old, new = self.lengths[0], n_new[0]
            keys[:, :, old : old + new] = k[:, :, :new]
            values[:, :, old : old + new] = v[:, :, :new]
        else:
            for b, (old, new) in enumerate(zip(self.lengths, n_new)):
                keys[b, :, old : old + new] = k[b, :, :new]
                values[b, :, old : old + new] = v[b, :, :new]
        n_keys = max(old + new for old, new in zip(self.lengths, n_new))
        return keys[:, :, :n_keys], values[:, :, :n_keys]

    def advance(self, n_new: Sequence[int]) -> None:
        """Counts the new tokens in, once every layer has stored its part."""
        self.lengths = [old + new for old, new in zip(self.lengths, n_new)]


def numbers_per_token(config: Config) -> int:
    """Numbers that one token leaves in the cache: a key and a value in every layer."""
    return 2 * config.n_layers * config.n_kv_heads * config.d_head


def bytes_per_token(config: Config, *, n_bytes: int = 2) -> int:
    """`numbers_per_token` at ``n_bytes`` each (2 for 16-bit)."""
    return numbers_per_token(config) * _positive(n_bytes, "n_bytes")


def bytes_per_sequence(config: Config, n_positions: int, *, n_bytes: int = 2) -> int:
    """Bytes that a sequence of ``n_positions`` needs. Behind a window no more than the window is needed."""
    kept = min(_positive(n_positions, "n_positions"), config.window or n_positions)
    return kept * bytes_per_token(config, n_bytes=n_bytes)


def latent_bytes_per_token(n_layers: int, d_latent: int, d_rotary: int, *, n_bytes: int = 2) -> int:
    """Multi-head latent attention keeps one compressed vector a layer and one rotary key for all heads.

    DeepSeek-AI 2024 (DeepSeek-V2), section 2.1: 512 and 64 numbers there.
    """
    numbers = _positive(d_latent, "d_latent") + _positive(d_rotary, "d_rotary", least=0)
    return _positive(n_layers, "n_layers") * numbers * _positive(n_bytes, "n_bytes")


def _positive(value: int, name: str, *, least: int = 1) -> int:
    if value < least:
        raise ValueError(f"{name}={value} must be at least {least}.")
    return value
