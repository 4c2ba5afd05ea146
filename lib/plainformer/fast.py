"""The same model, made to run fast on a processor: `prepare` gives a drop-in with the same ``forward``.

A step of decoding reads every weight for one token, so memory sets its limit (`plainformer.roofline`). What keeps
torch from that limit, and is mended here: a product with one row that runs on one thread, weights wider than they
need be, and the time that Python and the kernels' starts take between two products.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plainformer.attention import fast_attention
from plainformer.cache import Cache
from plainformer.inputs import embed
from plainformer.model import Transformer
from plainformer.norms import RMSNorm
from plainformer.shapes import Float, Int

_FEW = 16  # up to so many rows reading the weights takes longer than multiplying
_BLOCKS_AT_ONCE = 6  # are one compiled function that serves the others too: a whole model would compile for minutes


def prepare(
    model: Transformer, *, dtype: torch.dtype | None = None, compiled: bool = False, int8: bool = False
) -> FastTransformer:
    """The model for running only, with the same results: no gradients, fused attention, products fit for few rows.

    ``dtype``: of weights and stream; None keeps the model's own, and the weights are shared with it, not copied.
    ``compiled``: steps with one new token run through `torch.compile`; the first ones take a minute or so, and a C++
    compiler must be there. ``int8``: matrices in 8 bits (`quantise`), which changes results a little, saves memory,
    and time only when compiled, most with a float32 stream.
    Raises ``TypeError`` for what is no `Transformer`.
    """
    if not isinstance(model, Transformer) or isinstance(model, FastTransformer):
        raise TypeError(f"expected a Transformer as it was built or loaded, got {type(model).__name__}.")
    return FastTransformer(model, dtype or model.embed.weight.dtype, compiled=compiled, int8=int8)


def linear(x: Float["... d_in"], weight: Float["d_out d_in"], bias: Float["d_out"] | None = None) -> Float["... d_out"]:
    """``F.linear``, the rows of the weight dealt out to the threads where ``x`` has few rows.

    torch runs a float32 product of one row on one thread, but a batch of smaller products on all.
    """
    n_rows, n_parts = x.numel() // x.shape[-1], _n_threads()
    if x.dtype != torch.float32 or n_rows > _FEW or weight.shape[0] % n_parts:
        return F.linear(x, weight, bias)
    rows = x.reshape(1, n_rows, x.shape[-1]).expand(n_parts, -1, -1)
    parts = weight.view(n_parts, -1, weight.shape[1])
    y = torch.bmm(rows, parts.transpose(1, 2)).transpose(0, 1).reshape(*x.shape[:-1], len(weight))
    return y if bias is None else y + bias


@torch.compiler.assume_constant_result
def _n_threads() -> int:
    return torch.get_num_threads()


def quantise(weight: Float["d_out d_in"]) -> tuple[Int["d_out d_in"], Float["d_out"]]:
    """Integers −127 … 127 and one scale a row: ``integers * scale[:, None]`` is the weight to half a scale.

    LLM.int8() scales rows of weights so (Dettmers et al. 2022, section 2.1); the stream stays as it is here.
    """
    weight = weight.float()  # in bfloat16 the quotient may round to 128, which 8 bits hold as −128
    scale = (weight.abs().amax(1) / 127).clamp_min(torch.finfo(weight.dtype).tiny)
    return (weight / scale[:, None]).round().to(torch.int8), scale


@contextmanager
def onednn(enabled: bool) -> Iterator[None]:
    """Lets torch use oneDNN or not, inside a ``with``. A setting of the whole process, so it is put back."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = enabled and before
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


class Linear(nn.Module):
    """A projection for running only: `linear`, or its counterpart for weights in 8 bits."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, *, int8: bool):
        super().__init__()
        weight, scale = quantise(weight.detach()) if int8 else (weight.detach().to(dtype), None)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", None if scale is None else scale.to(dtype))
        self.register_buffer("bias", None if bias is None else bias.detach().to(dtype))

    def forward(self, x: Float["... d_in"]) -> Float["... d_out"]:
        n_rows, plain = x.numel() // x.shape[-1], self.scale is None
        if torch.compiler.is_compiling() and n_rows == 1:  # a sum along rows, which the compiler deals out to threads
            wide = torch.promote_types(x.dtype, torch.float32)
            y = (self.weight.to(wide) * x.reshape(-1).to(wide)).sum(-1)
            y = (y if plain else y * self.scale).to(x.dtype).view(*x.shape[:-1], len(self.weight))
        elif plain:
            return linear(x, self.weight, self.bias)
        else:
            y = F.linear(x, self.weight.to(x.dtype)) * self.scale
        return y if self.bias is None else y + self.bias


class FastRMSNorm(nn.Module):
    """`RMSNorm` in five short operations, where torch's own takes twice as many for a single row."""

    def __init__(self, weight: Tensor, eps: float, dtype: torch.dtype):
        super().__init__()
        self.wide = torch.promote_types(dtype, torch.float32)
        self.register_buffer("weight", weight.detach().to(dtype))
        self.register_buffer("eps", torch.tensor(eps, dtype=self.wide), persistent=False)

    def forward(self, x: Float["... d_model"]) -> Float["... d_model"]:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=self.wide)
        scale = torch.addcmul(self.eps, length, length, value=1 / x.shape[-1]).rsqrt()
        return (x * scale).to(x.dtype) * self.weight


class FastTransformer(Transformer):
    """A `Transformer` for running only, which `prepare` makes of another."""

    def __init__(self, model: Transformer, dtype: torch.dtype, *, compiled: bool, int8: bool):
        with torch.device("meta"):
            super().__init__(model.config, attend=fast_attention)
        for name, module in list(model.named_modules()):
            if type(module) is nn.Linear:
                self.set_submodule(name, Linear(module.weight, module.bias, dtype, int8=int8))
            elif type(module) is RMSNorm:
                self.set_submodule(name, FastRMSNorm(module.weight, module.eps, dtype))
            else:
                own = self.get_submodule(name)
                for part, parameter in module.named_parameters(recurse=False):
                    setattr(own, part, nn.Parameter(parameter.detach().to(dtype), requires_grad=False))
        if model.config.output == "logits" and model.config.tied:
            self.unembed = Linear(self.embed.weight, None, dtype, int8=int8)
        self.eval()
        compile_ = torch.compile if compiled else lambda function: function
        self._several_blocks, self._output = compile_(_several_blocks), compile_(Linear.forward)

    @torch.no_grad()
    def forward(
        self,
        ids: Int["batch position"],
        *,
        lengths: Sequence[int] | None = None,
        token_types: Int["batch position"] | None = None,
        cache: Cache | None = None,
        last_only: bool = False,
    ) -> Float["batch ... width"]:
        """As `Transformer.forward`."""
        # in bfloat16, torch's own product is twice as fast as oneDNN's for one row, and slower for several
        with onednn(ids.numel() != 1):
            return super().forward(ids, lengths=lengths, token_types=token_types, cache=cache, last_only=last_only)

    def states(
        self,
        ids: Int["batch position"],
        *,
        lengths: Sequence[int] | None = None,
        token_types: Int["batch position"] | None = None,
        cache: Cache | None = None,
    ) -> Float["batch position d_model"]:
        """As `Transformer.states`. A step of decoding, one token for each of equally long sequences, is short."""
        if cache is None or ids.dim() != 2 or ids.shape[1] != 1 or len({*cache.lengths}) != 1:
            return super().states(ids, lengths=lengths, token_types=token_types, cache=cache)
        cache.check_fits(self.config, self.embed.weight.dtype)
        n_new = [1] * len(ids)
        cache.check_room(n_new)
        x, rotary = embed(self, ids, cache.lengths, n_new, token_types)
        end = cache.lengths[0] + 1
        start = max(0, end - (self.config.window or end))  # what a window hides is not even read
        keys, values = cache.keys[..., start:end, :], cache.values[..., start:end, :]
        for n in range(0, len(self.blocks), _BLOCKS_AT_ONCE):
            some = slice(n, n + _BLOCKS_AT_ONCE)
            x = self._several_blocks(tuple(self.blocks[some]), x, rotary, _growing(keys[some]), _growing(values[some]))
        cache.advance(n_new)
        return self.final_norm(x) if self.config.norm_placement == "pre" else x

    def logits(self, x: Float["... d_model"]) -> Float["... n_vocab"]:
        """As `Transformer.logits`."""
        return self._output(self.unembed, x) if x.numel() == x.shape[-1] else self.unembed(x)


def _several_blocks(
    blocks: Sequence[nn.Module], x: Tensor, rotary: tuple[Tensor, Tensor] | None, keys: Tensor, values: Tensor
) -> Tensor:
    """One new position, whose keys and values become the last of those given. Compiled, or not."""
    for n, block in enumerate(blocks):
        store: Callable = functools.partial(_store_last, keys[n], values[n])
        x = block(x, rotary=rotary, store=store, attend=fast_attention)
    return x


def _growing(kept: Tensor) -> Tensor:
    """Tells the compiler that only this length changes: products of sizes that it knows are a third quicker."""
    if kept.shape[3] > 1:  # a length of one is a case of its own to it
        torch._dynamo.mark_dynamic(kept, 3)
    return kept


def _store_last(keys: Tensor, values: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    keys[:, :, -1:], values[:, :, -1:] = k, v
    return keys, values
