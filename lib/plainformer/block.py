"""One block: attention and an MLP, each wrapped in a norm and a residual add."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from torch import Tensor, nn

from plainformer import mlp
from plainformer.attention import attention
from plainformer.config import Config
from plainformer.heads import MultiHeadAttention
from plainformer.norms import NORMS
from plainformer.shapes import Bool, Float


class Block(nn.Module):
    """Attention, then an MLP; each reads the stream and adds to it.

    Pre-norm reads a normed copy, x + f(norm(x)); post-norm norms the sum, norm(x + f(x)).
    With ``cross=True`` a second attention between the two looks at an encoder's states.
    """

    def __init__(self, config: Config, *, cross: bool = False):
        super().__init__()
        norm = functools.partial(NORMS[config.norm], config.d_model, config.norm_eps)
        self.attn_norm, self.attn = norm(), MultiHeadAttention(config)
        if cross:
            self.cross_norm, self.cross = norm(), MultiHeadAttention(config)
        self.mlp_norm, self.mlp = norm(), mlp.build(config)
        self.pre = config.norm_placement == "pre"

    def forward(
        self,
        x: Float["batch position d_model"],
        *,
        memory: Float["batch source d_model"] | None = None,
        memory_mask: Bool["..."] | None = None,
        attend: Callable[..., Tensor] = attention,
        **how,
    ) -> Float["batch position d_model"]:
        x = self._add(x, self.attn_norm, functools.partial(self.attn, attend=attend, **how))
        if memory is not None:
            look = functools.partial(self.cross, memory=memory, mask=memory_mask, attend=attend)
            x = self._add(x, self.cross_norm, look)
        return self._add(x, self.mlp_norm, self.mlp)

    def _add(self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return x + sublayer(norm(x)) if self.pre else norm(x + sublayer(x))


def initialise(model: nn.Module, n_layers: int) -> None:
    """Normal weights of spread 0.02, zero biases; what writes to the stream shrinks by 1/√(2L). GPT-2, section 2.3."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.dim() > 1:
            writes = name.endswith(("out.weight", "down.weight"))
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * n_layers) if writes else 0.02)
