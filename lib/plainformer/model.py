"""The model: blocks, stacked, between an embedding and an unembedding."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plainformer.attention import attention
from plainformer.block import Block, initialise
from plainformer.cache import Cache
from plainformer.config import Config
from plainformer.inputs import causal_mask, embed, padding_mask, real_lengths
from plainformer.norms import NORMS
from plainformer.shapes import Float, Int
from plainformer.tokens import Embedding


class Transformer(nn.Module):
    """One stack: a decoder if ``config.causal``, else an encoder. The third family is `EncoderDecoder`.

    ``attend`` is `attention` to look inside or to count, `fast_attention` to run.
    """

    def __init__(self, config: Config, *, attend: Callable[..., Tensor] = attention):
        super().__init__()
        if config.n_encoder_layers:
            raise ValueError(f"n_encoder_layers={config.n_encoder_layers}: two stacks are an EncoderDecoder.")
        self.config, self.attend = config, attend
        self.embed = Embedding(config.n_vocab, config.d_model)
        if config.n_token_types:
            self.token_types = Embedding(config.n_token_types, config.d_model)
        if config.positions == "learned":
            self.positions = Embedding(config.n_context, config.d_model)
        if config.embed_norm:
            self.embed_norm = NORMS[config.norm](config.d_model, config.norm_eps)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        if config.norm_placement == "pre":  # a post-norm block has already normed what it hands on
            self.final_norm = NORMS[config.norm](config.d_model, config.norm_eps)
        if config.output == "pooled":
            self.pool = nn.Linear(config.d_model, config.d_model)
        elif config.output == "logits" and not config.tied:
            self.unembed = nn.Linear(config.d_model, config.n_vocab, bias=False)
        initialise(self, config.n_layers)

    def forward(
        self,
        ids: Int["batch position"],
        *,
        lengths: Sequence[int] | None = None,
        token_types: Int["batch position"] | None = None,
        cache: Cache | None = None,
        last_only: bool = False,
    ) -> Float["batch ... width"]:
        """Scores of the next token at every position, (batch, position, n_vocab), or what ``config.output`` says.

        ``lengths``: real tokens of each row, where rows are filled up at their end. ``cache``: ids continue what
        is in it. ``last_only``: of each row's last real token only, (batch, 1, n_vocab): all that decoding needs.
        """
        x = self.states(ids, lengths=lengths, token_types=token_types, cache=cache)
        if self.config.output == "pooled":
            return self.pool(x[:, 0]).tanh()
        if last_only:
            last = torch.tensor(real_lengths(ids, lengths), device=ids.device) - 1
            x = x[torch.arange(len(last), device=ids.device), last][:, None]
        return x if self.config.output == "states" else self.logits(x)

    def states(
        self,
        ids: Int["batch position"],
        *,
        lengths: Sequence[int] | None = None,
        token_types: Int["batch position"] | None = None,
        cache: Cache | None = None,
    ) -> Float["batch position d_model"]:
        """The stream after the last norm: what the unembedding reads."""
        config, n_new = self.config, real_lengths(ids, lengths)
        if cache is not None:
            cache.check_fits(config, self.embed.weight.dtype)
            cache.check_room(n_new)
        start = cache.lengths if cache is not None else [0] * len(n_new)
        x, rotary = embed(self, ids, start, n_new, token_types)
        if config.causal:
            # without a cache keys are the columns themselves, filler and all
            new = n_new if cache is not None else [ids.shape[1]] * len(n_new)
            mask, causal = causal_mask(config, start, new, ids.shape[1], ids.device)
        else:
            mask, causal = padding_mask(ids, lengths), False
        for n, block in enumerate(self.blocks):
            store = functools.partial(cache.store, n, n_new=n_new) if cache is not None else None
            x = block(x, mask=mask, causal=causal, rotary=rotary, store=store, attend=self.attend)
        if cache is not None:
            cache.advance(n_new)
        return self.final_norm(x) if config.norm_placement == "pre" else x

    def logits(self, x: Float["... d_model"]) -> Float["... n_vocab"]:
        """Scores of the vocabulary for states of the stream."""
        return F.linear(x, self.embed.weight if self.config.tied else self.unembed.weight)


class EncoderDecoder(nn.Module):
    """The 2017 model: an encoder reads the source, a decoder writes and looks at the encoder's states.

    One table serves the source, the target and, if ``config.tied``, the output. Vaswani et al. 2017.
    """

    def __init__(self, config: Config, *, attend: Callable[..., Tensor] = attention):
        super().__init__()
        if not config.n_encoder_layers:
            raise ValueError("n_encoder_layers=0: an EncoderDecoder needs an encoder; one stack is a Transformer.")
        self.config, self.attend = config, attend
        self.embed = Embedding(config.n_vocab, config.d_model)
        self.encoder = nn.ModuleList(Block(config) for _ in range(config.n_encoder_layers))
        self.decoder = nn.ModuleList(Block(config, cross=True) for _ in range(config.n_layers))
        if config.norm_placement == "pre":
            self.encoder_norm, self.final_norm = (NORMS[config.norm](config.d_model, config.norm_eps) for _ in "12")
        if not config.tied:
            self.unembed = nn.Linear(config.d_model, config.n_vocab, bias=False)
        initialise(self, config.n_layers + config.n_encoder_layers)

    def encode(
        self, source: Int["batch source"], *, lengths: Sequence[int] | None = None
    ) -> Float["batch source d_model"]:
        """The encoder's states. Every position sees the whole source."""
        mask = padding_mask(source, lengths)
        x, _ = embed(self, source, [0] * len(source), real_lengths(source, lengths))
        for block in self.encoder:
            x = block(x, mask=mask, attend=self.attend)
        return self.encoder_norm(x) if self.config.norm_placement == "pre" else x

    def forward(
        self,
        source: Int["batch source"],
        target: Int["batch position"],
        *,
        lengths: Sequence[int] | None = None,
    ) -> Float["batch position n_vocab"]:
        """Scores of the next target token at every position; ``lengths`` are those of the sources."""
        memory, memory_mask = self.encode(source, lengths=lengths), padding_mask(source, lengths)
        x, _ = embed(self, target, [0] * len(target), real_lengths(target, None))
        for block in self.decoder:
            x = block(x, causal=True, memory=memory, memory_mask=memory_mask, attend=self.attend)
        x = self.final_norm(x) if self.config.norm_placement == "pre" else x
        return F.linear(x, self.embed.weight if self.config.tied else self.unembed.weight)
