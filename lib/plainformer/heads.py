"""Many heads: several attentions side by side, each on its own slice of the width.

With fewer heads of keys and values than of queries, each serves a group of query heads:
one for all is multi-query (Shazeer 2019), a few is grouped-query attention (Ainslie et al. 2023).
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from plainformer.attention import attention
from plainformer.config import Config
from plainformer.positions import rotate
from plainformer.shapes import Bool, Float


def split(x: Float["batch position width"], n_heads: int) -> Float["batch head position d_head"]:
    """Cuts the width into heads: head h gets columns h · d_head to (h + 1) · d_head."""
    if x.shape[-1] % n_heads:
        raise ValueError(f"a width of {x.shape[-1]} does not divide into {n_heads} heads.")
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def join(x: Float["batch head position d_head"]) -> Float["batch position width"]:
    """Puts the heads' results side by side again. A view without the transpose would mix positions."""
    return x.transpose(1, 2).flatten(-2)


def grouped_attention(
    q: Float["batch head query d_head"],
    k: Float["batch kv_head key d_head"],
    v: Float["batch kv_head key d_value"],
    mask: Bool["..."] | None = None,
    *,
    causal: bool = False,
    attend: Callable[..., Tensor] = attention,
) -> Float["batch head query d_value"]:
    """Attention where query head h looks at key head h // (n_heads / n_kv_heads)."""
    n_heads, n_query, n_kv_heads = q.shape[1], q.shape[2], k.shape[1]
    if n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} query heads do not divide into {n_kv_heads} groups, one for each key head.")
    if n_heads == n_kv_heads:
        return attend(q, k, v, mask, causal=causal)
    if n_query == 1 and (mask is None or mask.dim() < 3 or mask.shape[-3] == 1):
        # One step of decoding: the group stands in the query axis and no key is copied.
        folded = q.reshape(q.shape[0], n_kv_heads, n_heads // n_kv_heads, q.shape[-1])
        return attend(folded, k, v, mask).reshape(*q.shape[:-1], v.shape[-1])
    k, v = (x.repeat_interleave(n_heads // n_kv_heads, 1) for x in (k, v))
    return attend(q, k, v, mask, causal=causal)


class MultiHeadAttention(nn.Module):
    """Queries from ``x``; keys and values from ``x`` too, or from ``memory`` (cross-attention).

    ``rotary`` holds the cosines and sines of the positions of ``x``. ``store`` takes the new keys and
    values and returns all so far (`plainformer.cache`).
    """

    def __init__(self, config: Config):
        super().__init__()
        d_kv = config.n_kv_heads * config.d_head
        self.query = nn.Linear(config.d_model, config.d_model, bias=config.has_attn_bias)
        self.key = nn.Linear(config.d_model, d_kv, bias=config.has_attn_bias)
        self.value = nn.Linear(config.d_model, d_kv, bias=config.has_attn_bias)
        self.out = nn.Linear(config.d_model, config.d_model, bias=config.has_attn_bias)
        self.n_heads, self.n_kv_heads = config.n_heads, config.n_kv_heads
        self.pairing = config.pairing

    def forward(
        self,
        x: Float["batch position d_model"],
        mask: Bool["..."] | None = None,
        *,
        causal: bool = False,
        memory: Float["batch source d_model"] | None = None,
        rotary: tuple[Float["... pair"], Float["... pair"]] | None = None,
        store: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None,
        attend: Callable[..., Tensor] = attention,
    ) -> Float["batch position d_model"]:
        source = x if memory is None else memory
        q = split(self.query(x), self.n_heads)
        k, v = (split(project(source), self.n_kv_heads) for project in (self.key, self.value))
        if rotary is not None:
            q, k = (rotate(heads, *rotary, pairing=self.pairing) for heads in (q, k))
        if store is not None:
            k, v = store(k, v)
        return self.out(join(grouped_attention(q, k, v, mask, causal=causal, attend=attend)))
