"""Heads against a loop over them, and against torch's own module of many heads."""

import itertools

import pytest
import torch
from torch import nn

from plainformer import masks
from plainformer.attention import attention, fast_attention
from plainformer.config import Config
from plainformer.heads import MultiHeadAttention, grouped_attention, join, split
from plainformer.positions import rotary_angles, rotate

BOTH = [attention, fast_attention]
BATCH, QUERIES, KEYS, D_HEAD, D_VALUE, HEADS = 2, 5, 7, 4, 9, 6
KV_HEADS = [1, 2, 3, 6]


def config(**change) -> Config:
    sizes = {"n_vocab": 11, "d_model": 24, "n_heads": 6, "n_kv_heads": 3, "n_context": 13, "d_ff": 10, "n_layers": 1}
    return Config(**sizes | {"bias": True} | change)


# --- cutting and joining ---------------------------------------------------------------------------------------------


def test_split_gives_each_head_its_columns():
    x = torch.randn(BATCH, QUERIES, HEADS * D_HEAD)
    heads = split(x, HEADS)
    assert heads.shape == (BATCH, HEADS, QUERIES, D_HEAD)
    for b, h, t, n in itertools.product(range(BATCH), range(HEADS), range(QUERIES), range(D_HEAD)):
        assert heads[b, h, t, n] == x[b, t, h * D_HEAD + n]


def test_join_undoes_split():
    x = torch.randn(BATCH, QUERIES, HEADS * D_HEAD)
    assert torch.equal(join(split(x, HEADS)), x)
    assert torch.equal(split(x, 1), x[:, None])


@pytest.mark.parametrize(("width", "n_heads"), [(25, 6), (5, 6)])
def test_a_width_that_does_not_divide_is_refused(width, n_heads):
    with pytest.raises(ValueError, match=f"width of {width} does not divide into {n_heads} heads"):
        split(torch.randn(BATCH, QUERIES, width), n_heads)


# --- groups ----------------------------------------------------------------------------------------------------------


def every_mask(n_query: int) -> dict[str, torch.Tensor | None]:
    random = torch.rand(BATCH, HEADS, n_query, KEYS, generator=torch.Generator().manual_seed(3)) < 0.7
    random[..., 0] = True
    return {
        "none": None,
        "window": masks.sliding_window(n_query, KEYS, window=3),
        "padding": masks.padding(torch.tensor([7, 2]), KEYS),
        "a mask a sequence": random[:, :1],
        "a mask a head": random,
        "a mask a head, the same for the batch": random[0],
        "one for all heads, without the batch": random[0, :1],
    }


def head_by_head(q, k, v, mask, causal):
    """Query head h beside key head h // group, one at a time, nothing repeated and nothing folded."""
    group, results = q.shape[1] // k.shape[1], []
    for h in range(q.shape[1]):
        own = mask
        if mask is not None and mask.dim() > 2:
            own = mask[..., h if mask.shape[-3] > 1 else 0, :, :]
        results.append(attention(q[:, h], k[:, h // group], v[:, h // group], own, causal=causal))
    return torch.stack(results, 1)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", every_mask(1))
@pytest.mark.parametrize("n_query", [1, QUERIES])
@pytest.mark.parametrize("n_kv_heads", KV_HEADS)
@pytest.mark.parametrize("attend", BOTH)
def test_groups_equal_heads_one_at_a_time(attend, n_kv_heads, n_query, name, causal):
    q = torch.randn(BATCH, HEADS, n_query, D_HEAD, dtype=torch.float64) * 2
    k = torch.randn(BATCH, n_kv_heads, KEYS, D_HEAD, dtype=torch.float64)
    v = torch.randn(BATCH, n_kv_heads, KEYS, D_VALUE, dtype=torch.float64)
    mask = every_mask(n_query)[name]
    result = grouped_attention(q, k, v, mask, causal=causal, attend=attend)
    assert result.shape == (BATCH, HEADS, n_query, D_VALUE)
    torch.testing.assert_close(result, head_by_head(q, k, v, mask, causal), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_query", [1, QUERIES])
@pytest.mark.parametrize("n_kv_heads", [4, 5])
def test_heads_that_do_not_divide_are_refused(n_kv_heads, n_query):
    q, k = torch.randn(BATCH, HEADS, n_query, D_HEAD), torch.randn(BATCH, n_kv_heads, KEYS, D_HEAD)
    with pytest.raises(ValueError, match=f"6 query heads do not divide into {n_kv_heads} groups"):
        grouped_attention(q, k, k)


def test_one_step_copies_no_keys():
    """The group stands in the query axis: what attention gets are the keys themselves."""
    k, seen = torch.randn(BATCH, 3, KEYS, D_HEAD), []

    def spy(q, k, v, mask=None, *, causal=False):
        seen.append((tuple(q.shape), k.data_ptr()))
        return attention(q, k, v, mask, causal=causal)

    grouped_attention(torch.randn(BATCH, HEADS, 1, D_HEAD), k, k, causal=True, attend=spy)
    assert seen == [((BATCH, 3, 2, D_HEAD), k.data_ptr())]


# --- the module ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("cross", [True, False])
@pytest.mark.parametrize("attend", BOTH)
def test_many_heads_equal_torch(attend, cross, causal, fill):
    ours = fill(MultiHeadAttention(config(n_kv_heads=6)).double())
    theirs = nn.MultiheadAttention(24, 6, batch_first=True, dtype=torch.float64)
    projections = (ours.query, ours.key, ours.value)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([projection.weight for projection in projections]))
        theirs.in_proj_bias.copy_(torch.cat([projection.bias for projection in projections]))
    theirs.out_proj.load_state_dict(ours.out.state_dict())
    x = torch.randn(BATCH, QUERIES, 24, dtype=torch.float64)
    memory = torch.randn(BATCH, KEYS, 24, dtype=torch.float64) if cross else None
    source = memory if cross else x
    hidden = ~masks.causal(QUERIES, source.shape[1]) if causal else None
    wanted = theirs(x, source, source, attn_mask=hidden, need_weights=False)[0]
    torch.testing.assert_close(ours(x, causal=causal, memory=memory, attend=attend), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("pairing", ["halves", "even-odd"])
@pytest.mark.parametrize("n_kv_heads", KV_HEADS)
@pytest.mark.parametrize("attend", BOTH)
def test_the_module_equals_its_formula(attend, n_kv_heads, pairing, fill):
    layer = fill(MultiHeadAttention(config(n_kv_heads=n_kv_heads, pairing=pairing)).double())
    x = torch.randn(BATCH, QUERIES, 24, dtype=torch.float64)
    rotary = rotary_angles(torch.arange(QUERIES) + 3, D_HEAD, dtype=torch.float64)
    result = layer(x, causal=True, rotary=rotary, attend=attend)
    heads = []
    for h in range(HEADS):
        kv = h // (HEADS // n_kv_heads)
        q, k, v = (
            (x @ p.weight[n * D_HEAD : (n + 1) * D_HEAD].T + p.bias[n * D_HEAD : (n + 1) * D_HEAD])
            for p, n in ((layer.query, h), (layer.key, kv), (layer.value, kv))
        )
        q, k = rotate(q, *rotary, pairing=pairing), rotate(k, *rotary, pairing=pairing)  # values are not turned
        heads.append(attention(q, k, v, causal=True))
    wanted = torch.cat(heads, -1) @ layer.out.weight.T + layer.out.bias
    torch.testing.assert_close(result, wanted, rtol=0, atol=1e-12)


def test_what_is_stored_is_what_is_looked_at(fill):
    """``store`` gets turned keys and plain values of every key head; its answer replaces them."""
    layer = fill(MultiHeadAttention(config()).double())
    x, old = torch.randn(BATCH, QUERIES, 24).double(), torch.randn(BATCH, 3, 2, D_HEAD).double()
    rotary, seen = rotary_angles(torch.arange(2, 2 + QUERIES), D_HEAD, dtype=torch.float64), []

    def store(k, v):
        seen.extend((k, v))
        return torch.cat([old, k], 2), torch.cat([old, v], 2)

    result = layer(x, causal=True, rotary=rotary, store=store)
    torch.testing.assert_close(seen[0], rotate(split(layer.key(x), 3), *rotary))
    torch.testing.assert_close(seen[1], split(layer.value(x), 3))
    q = rotate(split(layer.query(x), 6), *rotary)
    k, v = (torch.cat([old, new], 2).repeat_interleave(2, 1) for new in seen)
    wanted = layer.out(join(attention(q, k, v, causal=True)))
    torch.testing.assert_close(result, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
def test_projections_have_the_widths_of_their_heads(bias):
    layer = MultiHeadAttention(config(n_kv_heads=2, bias=not bias, attn_bias=bias))
    shapes = {"query": (24, 24), "key": (8, 24), "value": (8, 24), "out": (24, 24)}
    wanted = {f"{name}.weight": shape for name, shape in shapes.items()}
    wanted |= {f"{name}.bias": shape[:1] for name, shape in shapes.items()} if bias else {}
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == wanted


def test_order_of_heads_does_not_matter(fill):
    """Heads with their rows of the projections and columns of the output in another order give the same sum."""
    layer = fill(MultiHeadAttention(config(n_kv_heads=6)).double())
    other = fill(MultiHeadAttention(config(n_kv_heads=6)).double())
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    rows = (order[:, None] * D_HEAD + torch.arange(D_HEAD)).flatten()
    with torch.no_grad():
        for name in ("query", "key", "value"):
            getattr(other, name).weight.copy_(getattr(layer, name).weight[rows])
            getattr(other, name).bias.copy_(getattr(layer, name).bias[rows])
        other.out.weight.copy_(layer.out.weight[:, rows])
    x = torch.randn(BATCH, QUERIES, 24, dtype=torch.float64)
    torch.testing.assert_close(other(x, causal=True), layer(x, causal=True), rtol=0, atol=1e-12)
