"""Attention against a loop, two of torch's own forms and its invariants.

Every size differs from every other, so that a swapped axis cannot go unseen. Tolerances come from an error
budget (see ``budget``), not from trial.
"""

import itertools
import math

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given

from plainformer import masks
from plainformer.attention import SelfAttention, attention, attention_weights, fast_attention

BATCH, HEADS, QUERIES, KEYS, D_HEAD, D_VALUE = 2, 3, 5, 7, 4, 6
BOTH = [attention, fast_attention]


def draw(dtype=torch.float64, *, size=1.0, queries=QUERIES, keys=KEYS):
    q = torch.randn(BATCH, HEADS, queries, D_HEAD, dtype=dtype) * size
    k = torch.randn(BATCH, HEADS, keys, D_HEAD, dtype=dtype)
    v = torch.randn(BATCH, HEADS, keys, D_VALUE, dtype=dtype)
    return q, k, v


def every_mask() -> dict[str, torch.Tensor | None]:
    lengths = torch.tensor([KEYS, 3])
    some = torch.rand(BATCH, HEADS, QUERIES, KEYS, generator=torch.Generator().manual_seed(7)) < 0.5
    some[0, 1, 2] = False  # one query that may look at nothing
    one_key = torch.zeros(QUERIES, KEYS, dtype=torch.bool)
    one_key[:, 4] = True
    return {
        "none": None,
        "everything": torch.ones(1, 1, dtype=torch.bool),
        "causal": masks.causal(QUERIES, KEYS),
        "window": masks.sliding_window(QUERIES, KEYS, window=2),
        "padding": masks.padding(lengths, KEYS),
        "causal and padding": masks.causal(QUERIES, KEYS) & masks.padding(lengths, KEYS),
        "any, with a query that sees nothing": some,
        "a mask a head": some[:1],
        "one key": one_key,
        "nothing": torch.zeros(QUERIES, KEYS, dtype=torch.bool),
    }


MASKS = list(every_mask())


def by_loop(q, k, v, mask):
    """The definition, one query at a time, in Python's floats: weights and outputs."""
    lead = q.shape[:-2]
    weights = torch.zeros(*lead, q.shape[-2], k.shape[-2], dtype=torch.float64)
    outputs = torch.zeros(*lead, q.shape[-2], v.shape[-1], dtype=torch.float64)
    allowed = torch.ones_like(weights, dtype=torch.bool) if mask is None else mask.expand(weights.shape)
    for at in itertools.product(*map(range, lead)):
        for i, query in enumerate(q[at].tolist()):
            seen = [j for j in range(k.shape[-2]) if allowed[at][i, j]]
            scores = [
                math.sumprod(query, k[at][j].tolist())
                if hasattr(math, "sumprod")
                else math.fsum(a * b for a, b in zip(query, k[at][j].tolist()))
                for j in seen
            ]
            scores = [score / math.sqrt(len(query)) for score in scores]
            powers = [math.exp(score - max(scores)) for score in scores]
            for j, power in zip(seen, powers):
                weights[at][i, j] = power / math.fsum(powers)
            for column in range(v.shape[-1]):
                outputs[at][i, column] = math.fsum(float(weights[at][i, j] * v[at][j, column]) for j in seen)
    return weights, outputs


def budget(q, k, v) -> tuple[float, float]:
    """How far rounding alone can carry a weight and an output away from the exact ones, to first order.

    A sum of n products errs by n eps Σ|aᵢbᵢ| at most; softmax turns an absolute error of the scores into twice that
    as a relative error of the weights, and adds the rounding of exp and of its own sum; then one more sum over keys.
    """
    eps, d_head, n_keys = torch.finfo(q.dtype).eps, q.shape[-1], k.shape[-2]
    largest = (q.abs().double() @ k.abs().double().transpose(-2, -1)).max().item() / math.sqrt(d_head)
    weight = math.expm1(2 * (d_head + 3) * eps * largest) + (n_keys + 2 * largest + 4) * eps
    return weight, (weight + (n_keys + 1) * eps) * v.abs().sum(-2).max().item()


# --- the same numbers as independent implementations -----------------------------------------------------------------


@pytest.mark.parametrize("size", [1.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_both_forms_equal_the_loop(name, dtype, size):
    (q, k, v), mask = draw(dtype, size=size), every_mask()[name]
    weights, outputs = by_loop(q, k, v, mask)
    of_weights, of_outputs = budget(q, k, v)
    assert of_outputs < (1e-2 if dtype == torch.float32 else 1e-10)  # a budget that allows anything shows nothing
    assert (attention_weights(q, k, mask).double() - weights).abs().max() <= of_weights
    for attend in BOTH:
        assert (attend(q, k, v, mask).double() - outputs).abs().max() <= of_outputs
        assert attend(q, k, v, mask).dtype == dtype


@pytest.mark.parametrize("name", MASKS)
def test_both_forms_equal_torch(name):
    (q, k, v), mask = draw(), every_mask()[name]
    if mask is not None:
        mask = mask.expand(BATCH, HEADS, QUERIES, KEYS)
        seen = mask.any(-1)
        added = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, -math.inf)  # torch's other kind of mask
    else:
        seen, added = torch.ones(BATCH, HEADS, QUERIES, dtype=torch.bool), None
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=added)
    for attend in BOTH:
        assert (attend(q, k, v, mask) - theirs)[seen].abs().sum() <= seen.sum() * D_VALUE * 2 * budget(q, k, v)[1]


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 3, 5)], ids=str)
def test_any_number_of_leading_axes(lead):
    q, k, v = (torch.randn(*lead, n, d).double() for n, d in [(7, 4), (8, 4), (8, 6)])
    mask = masks.causal(7, 8)
    _, outputs = by_loop(q, k, v, mask)
    for attend in BOTH:
        assert (attend(q, k, v, mask) - outputs).abs().max() <= budget(q, k, v)[1]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("attend", BOTH)
def test_self_attention_equals_torch_multihead_attention_of_one_head(attend, causal):
    d_model, n = 6, 5
    ours = SelfAttention(d_model, d_model, bias=True, causal=causal, attend=attend).double()
    theirs = torch.nn.MultiheadAttention(d_model, 1, batch_first=True, dtype=torch.float64)
    for projection in (ours.query, ours.key, ours.value, ours.out):
        torch.nn.init.normal_(projection.bias)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
        theirs.out_proj.weight.copy_(ours.out.weight)
        theirs.out_proj.bias.copy_(ours.out.bias)
    x = torch.randn(BATCH, n, d_model, dtype=torch.float64)
    hidden = ~masks.causal(n) if causal else None  # torch's boolean mask is True where a query may NOT look
    torch.testing.assert_close(ours(x), theirs(x, x, x, attn_mask=hidden, need_weights=False)[0])


def test_heads_equal_torch_multihead_attention():
    d_model = HEADS * D_HEAD
    theirs = torch.nn.MultiheadAttention(d_model, HEADS, batch_first=True, dtype=torch.float64, kdim=5, vdim=8)
    x, keys, values = (torch.randn(BATCH, n, d).double() for n, d in [(QUERIES, d_model), (KEYS, 5), (KEYS, 8)])
    torch.nn.init.normal_(theirs.in_proj_bias)
    q_bias, k_bias, v_bias = theirs.in_proj_bias.chunk(3)

    def heads(rows, weight, bias):
        return F.linear(rows, weight, bias).unflatten(-1, (HEADS, D_HEAD)).transpose(1, 2)

    q, k = heads(x, theirs.q_proj_weight, q_bias), heads(keys, theirs.k_proj_weight, k_bias)
    v = heads(values, theirs.v_proj_weight, v_bias)
    mask = masks.causal(QUERIES, KEYS)
    output, weights = theirs(x, keys, values, attn_mask=~mask, average_attn_weights=False)
    torch.testing.assert_close(attention_weights(q, k, mask), weights)
    for attend in BOTH:
        joined = attend(q, k, v, mask).transpose(1, 2).flatten(2)
        torch.testing.assert_close(theirs.out_proj(joined), output)


# --- causal, without and with another mask ---------------------------------------------------------------------------


@pytest.mark.parametrize("queries", [1, QUERIES, KEYS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["none", "window", "padding", "a mask a head", "any, with a query that sees nothing"])
def test_causal_is_the_mask_and_the_past(name, dtype, queries):
    """The last query stands at the last key, so that fewer queries are a text's last ones."""
    (q, k, v), mask = draw(dtype, size=2.0, queries=queries), every_mask()[name]
    if mask is not None and mask.shape[-2] != 1:
        rows = torch.arange(queries) % QUERIES
        mask = mask[..., rows, :]
    past = masks.causal(queries, KEYS)
    weights, outputs = by_loop(q, k, v, past if mask is None else mask & past)
    of_weights, of_outputs = budget(q, k, v)
    assert (attention_weights(q, k, mask, causal=True).double() - weights).abs().max() <= of_weights
    for attend in BOTH:
        assert (attend(q, k, v, mask, causal=True).double() - outputs).abs().max() <= of_outputs


@pytest.mark.parametrize("mask", [None, torch.ones(KEYS, QUERIES, dtype=torch.bool)], ids=["no mask", "mask"])
@pytest.mark.parametrize("attend", BOTH)
def test_causal_with_more_queries_than_keys_is_refused(attend, mask):
    q, k, v = draw(queries=KEYS, keys=QUERIES)
    with pytest.raises(ValueError, match=r"1 ≤ n_query ≤ n_key, got n_query=7, n_key=5"):
        attend(q, k, v, mask, causal=True)


# --- what holds for any weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MASKS)
def test_rows_are_distributions_over_what_may_be_seen(name):
    (q, k, _), mask = draw(), every_mask()[name]
    weights = attention_weights(q, k, mask)
    seen = torch.ones_like(weights, dtype=torch.bool) if mask is None else mask.expand(weights.shape)
    assert (weights >= 0).all()
    assert (weights[~seen] == 0).all() and (weights[seen] > 0).all()
    torch.testing.assert_close(weights.sum(-1), seen.any(-1).to(weights.dtype), rtol=0, atol=1e-14)


@pytest.mark.parametrize("attend", BOTH)
def test_outputs_lie_between_the_smallest_and_the_largest_value(attend):
    q, k, v = draw(size=3.0)
    out, slack = attend(q, k, v), budget(q, k, v)[1]
    assert (out <= v.amax(-2, keepdim=True) + slack).all() and (out >= v.amin(-2, keepdim=True) - slack).all()
    same = v[..., :1, :].expand_as(v)  # an average of equal values is that value, whatever the weights
    torch.testing.assert_close(attend(q, k, same), same[..., :QUERIES, :])


@pytest.mark.parametrize("attend", BOTH)
def test_without_a_mask_the_order_of_keys_does_not_matter(attend):
    q, k, v = draw()
    order = torch.randperm(KEYS)
    torch.testing.assert_close(attend(q, k[..., order, :], v[..., order, :]), attend(q, k, v))
    shuffled = torch.randperm(QUERIES)
    torch.testing.assert_close(attend(q[..., shuffled, :], k, v), attend(q, k, v)[..., shuffled, :])


@pytest.mark.parametrize("attend", BOTH)
def test_self_attention_is_blind_to_order_without_the_mask_and_not_with_it(attend):
    x, order = torch.randn(BATCH, 7, 6), torch.tensor([3, 0, 6, 1, 5, 2, 4])
    blind = SelfAttention(6, 4, causal=False, attend=attend)
    torch.testing.assert_close(blind(x[:, order]), blind(x)[:, order])
    sees = SelfAttention(6, 4, attend=attend)
    assert (sees(x[:, order]) - sees(x)[:, order]).abs().max() > 0.01


@given(st.integers(0, 10**6), st.floats(-1e4, 1e4))
def test_a_constant_added_to_a_row_of_scores_changes_nothing(seed, constant):
    # one more feature, 1 in every key and c √d in the query, adds the constant c to all of that query's scores
    random = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(n, d, dtype=torch.float64, generator=random) for n, d in [(5, 4), (7, 4), (7, 6)])
    q = q * math.sqrt(5 / 4)  # the width becomes 5, and so does the scale
    raised = torch.cat([q, torch.full((5, 1), constant * math.sqrt(5), dtype=q.dtype)], -1)
    plain = torch.cat([q, torch.zeros(5, 1, dtype=q.dtype)], -1)
    wide = torch.cat([k, torch.ones(7, 1, dtype=k.dtype)], -1)
    slack = budget(raised, wide, v)[1]
    assert slack < 1e-6
    for attend in BOTH:
        assert (attend(raised, wide, v) - attend(plain, wide, v)).abs().max() <= slack


def test_scores_are_divided_by_the_root_of_the_width_of_a_head():
    for d_head in (1, 4, 9, 64):
        q, k = torch.zeros(1, d_head, dtype=torch.float64), torch.zeros(2, d_head, dtype=torch.float64)
        q[0, 0], k[0, 0] = 3.0, 1.0  # scores 3 and 0
        right = 1 / (1 + math.exp(-3 / math.sqrt(d_head)))
        assert attention_weights(q, k)[0, 0].item() == pytest.approx(right, rel=1e-14)
        v = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
        for attend in BOTH:
            assert attend(q, k, v).item() == pytest.approx(right, rel=1e-14)


@pytest.mark.parametrize("attend", BOTH)
def test_it_is_the_width_of_the_head_and_not_of_the_model(attend):
    d_model, d_head = 16, 4
    layer = SelfAttention(d_model, d_head, causal=False, attend=attend).double()
    x = torch.randn(5, d_model, dtype=torch.float64)
    scores = (x @ layer.query.weight.T) @ (x @ layer.key.weight.T).T
    right, wrong = (
        (scores / math.sqrt(d)).softmax(-1) @ (x @ layer.value.weight.T) @ layer.out.weight.T for d in (d_head, d_model)
    )
    torch.testing.assert_close(layer(x), right)
    assert (layer(x) - wrong).abs().max() > 1e-4


# --- nothing leaks through a mask ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("attend", BOTH)
def test_huge_hidden_scores_do_not_leak(attend, dtype):
    q, k, v = draw(dtype)
    mask = masks.causal(QUERIES, KEYS)
    before = attend(q, k, v, mask)
    for height in (1e4, 1e6, 1e18):
        high = k.clone()
        high[..., -1, :] = q[..., 0, :] * height  # hidden from all queries but the last, and liked most by the first
        assert torch.equal(attend(q, high, v, mask)[..., :-1, :], before[..., :-1, :])


@pytest.mark.parametrize("depth", [1e5, 1e12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("attend", BOTH)
def test_seen_scores_far_below_zero_do_not_leak_either(attend, dtype, depth):
    # the first query dislikes the three keys it sees so much that a hidden score of −10,000 or −1e9 would win
    (q, k, v), seen = draw(dtype), (torch.arange(KEYS) < 3)[None]
    q = q[..., :1, :]
    k[..., :3, :] = -q * depth
    weights = attention_weights(q, k, seen)
    assert (weights[..., 3:] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    torch.testing.assert_close(attend(q, k, v, seen), attend(q, k[..., :3, :], v[..., :3, :]))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("attend", BOTH)
def test_no_output_depends_on_a_later_token(attend, bias):
    n, d_model = 8, 6
    layer = SelfAttention(d_model, 4, bias=bias, attend=attend)
    x = torch.randn(BATCH, n, d_model)
    before = layer(x)
    for t in range(n):
        for size in (1.0, 1e4):
            changed = x.clone()
            changed[:, t] += torch.randn(BATCH, d_model) * size
            after = layer(changed)
            assert torch.equal(after[:, :t], before[:, :t])
            assert not torch.isclose(after[:, t], before[:, t]).all()
            if t < n - 1 and size == 1.0:
                assert not torch.equal(after[:, t + 1 :], before[:, t + 1 :])


@pytest.mark.parametrize("attend", BOTH)
def test_a_decoder_s_mask_cannot_be_widened(attend):
    layer, x = SelfAttention(6, 4, attend=attend), torch.randn(BATCH, 7, 6)
    assert torch.equal(layer(x, torch.ones(7, 7, dtype=torch.bool)), layer(x))
    narrow = masks.sliding_window(7, window=2)
    free = SelfAttention(6, 4, causal=False, attend=attend)
    free.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x, narrow), free(x, narrow))
    torch.testing.assert_close(layer(x, torch.ones(7, 7, dtype=torch.bool).triu()), layer.out(layer.value(x)))


@pytest.mark.parametrize("attend", BOTH)
def test_filler_is_never_read(attend):
    x, padding = torch.randn(2, 7, 6), masks.padding(torch.tensor([4, 7]), 7)[:, 0]
    layer = SelfAttention(6, 4, causal=False, attend=attend)
    junk = x.clone()
    junk[0, 4:] = 1e4
    assert torch.equal(layer(junk, padding)[0, :4], layer(x, padding)[0, :4])
    torch.testing.assert_close(layer(x, padding)[0, :4], layer(x[0, :4]))


@pytest.mark.parametrize("attend", BOTH)
def test_a_query_that_sees_nothing_gives_zeros_and_finite_gradients(attend):
    for name in ("any, with a query that sees nothing", "nothing"):
        mask = every_mask()[name]
        blind = ~mask.expand(BATCH, HEADS, QUERIES, KEYS).any(-1)
        assert blind.any()
        q, k, v = (t.requires_grad_() for t in draw())
        out = attend(q, k, v, mask)
        assert (out[blind] == 0).all()
        out.square().sum().backward()
        assert all(t.grad.isfinite().all() for t in (q, k, v))
        assert (q.grad[blind] == 0).all()
    q, k, _ = draw()
    assert (attention_weights(q, k, torch.zeros(QUERIES, KEYS, dtype=torch.bool)) == 0).all()


# --- gradients, memory, meta -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["none", "causal", "any, with a query that sees nothing"])
@pytest.mark.parametrize("attend", BOTH)
def test_gradients_are_those_of_the_numbers(attend, name):
    mask = every_mask()[name]
    inputs = [t[0].requires_grad_() for t in draw()]
    mask = mask[0] if mask is not None and mask.dim() == 4 else mask
    assert torch.autograd.gradcheck(lambda q, k, v: attend(q, k, v, mask), inputs)


@pytest.mark.parametrize("name", MASKS)
def test_inputs_are_left_untouched(name):
    inputs = [*draw(), every_mask()[name]]
    copies = [None if t is None else t.clone() for t in inputs]
    for attend in BOTH:
        attend(*inputs)
    attention_weights(inputs[0], inputs[1], inputs[3])
    assert all(t is None or torch.equal(t, copy) for t, copy in zip(inputs, copies))
    layer, x = SelfAttention(6, 4), torch.randn(2, 7, 6)
    mask = torch.ones(2, 7, 7, dtype=torch.bool)
    copy = x.clone()
    layer(x, mask)
    assert torch.equal(x, copy) and mask.all()


@pytest.mark.parametrize("attend", BOTH)
def test_meta_tensors_give_shapes(attend):
    with torch.device("meta"):
        q, k, v = draw(torch.float32)
        layer = SelfAttention(8192, 128, attend=attend)
        x = torch.empty(2, 4096, 8192)
    assert attend(q, k, v, masks.causal(QUERIES, KEYS, device=q.device)).shape == (BATCH, HEADS, QUERIES, D_VALUE)
    assert layer(x).shape == x.shape


@pytest.mark.parametrize("bias", [True, False])
def test_self_attention_has_four_projections(bias):
    names = {"query": (4, 6), "key": (4, 6), "value": (4, 6), "out": (6, 4)}
    wanted = {f"{name}.weight": shape for name, shape in names.items()}
    wanted |= {f"{name}.bias": shape[:1] for name, shape in names.items()} if bias else {}
    assert {name: tuple(p.shape) for name, p in SelfAttention(6, 4, bias=bias).named_parameters()} == wanted


# --- bad input -------------------------------------------------------------------------------------------------------

ROWS, BOOL = torch.randn, lambda *shape: torch.ones(*shape, dtype=torch.bool)
REFUSED = {  # q, k, v, mask; error; what the message names
    "widths differ": (ROWS(5, 4), ROWS(7, 3), ROWS(7, 6), None, ValueError, ["(5, 4)", "(7, 3)", "d_head"]),
    "keys without values": (ROWS(5, 4), ROWS(7, 4), ROWS(8, 6), None, ValueError, ["(7, 4)", "(8, 6)", "one value"]),
    "one axis": (ROWS(4), ROWS(7, 4), ROWS(7, 6), None, ValueError, ["(4,)", "(…, position, width)"]),
    "no query": (ROWS(0, 4), ROWS(7, 4), ROWS(7, 6), None, ValueError, ["(0, 4)", "empty"]),
    "no key": (ROWS(5, 4), ROWS(0, 4), ROWS(0, 6), None, ValueError, ["(0, 4)", "empty"]),
    "no width": (ROWS(5, 0), ROWS(7, 0), ROWS(7, 6), None, ValueError, ["(5, 0)"]),
    "token ids": (torch.ones(5, 4).long(), ROWS(7, 4), ROWS(7, 6), None, TypeError, ["torch.int64", "floating point"]),
    "two types": (ROWS(5, 4).double(), ROWS(7, 4), ROWS(7, 6), None, TypeError, ["torch.float64", "torch.float32"]),
    "batches differ": (
        ROWS(2, 5, 4), ROWS(3, 7, 4), ROWS(3, 7, 6), None, ValueError, ["(2, 5, 4)", "(3, 7, 4)"]),
    "mask of numbers": (
        ROWS(5, 4), ROWS(7, 4), ROWS(7, 6), torch.zeros(5, 7), TypeError, ["torch.float32", "boolean"]),
    "mask of 0 and 1": (
        ROWS(5, 4), ROWS(7, 4), ROWS(7, 6), torch.ones(5, 7).long(), TypeError, ["torch.int64", "boolean"]),
    "mask transposed": (ROWS(5, 4), ROWS(7, 4), ROWS(7, 6), BOOL(7, 5), ValueError, ["(5, 7)", "(7, 5)"]),
    "mask of one axis": (ROWS(5, 4), ROWS(7, 4), ROWS(7, 6), BOOL(7), ValueError, ["(5, 7)", "(7,)"]),
    "mask with more axes": (ROWS(5, 4), ROWS(7, 4), ROWS(7, 6), BOOL(2, 5, 7), ValueError, ["(5, 7)", "(2, 5, 7)"]),
    "padding without its axes": (
        ROWS(3, 2, 5, 4), ROWS(3, 2, 7, 4), ROWS(3, 2, 7, 6), BOOL(3, 7), ValueError, ["(3, 2, 5, 7)", "(3, 7)"]),
    "mask as a list": (ROWS(1, 4), ROWS(2, 4), ROWS(2, 6), [[True, False]], TypeError, ["boolean", "list"]),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_by_all_forms(case):
    q, k, v, mask, error, names = REFUSED[case]
    calls = [lambda attend=attend: attend(q, k, v, mask) for attend in BOTH]
    if case != "keys without values":
        calls.append(lambda: attention_weights(q, k, mask))
    for call in calls:
        with pytest.raises(error) as caught:
            call()
        assert all(name in str(caught.value) for name in names), str(caught.value)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("x", "mask", "error", "names"),
    [
        (ROWS(2, 7, 5), None, ValueError, ["(2, 7, 5)", "d_model=6"]),
        (ROWS(6), None, ValueError, ["(6,)", "d_model=6"]),
        (ROWS(2, 0, 6), None, ValueError, ["0"]),
        (torch.ones(2, 7, 6).long(), None, TypeError, ["torch.int64", "floating point"]),
        (ROWS(2, 7, 6), torch.zeros(7, 7), TypeError, ["torch.float32", "boolean"]),
        (ROWS(2, 7, 6), torch.ones(7, 7).long(), TypeError, ["torch.int64", "boolean"]),
        (ROWS(2, 7, 6), BOOL(7, 5), ValueError, ["(2, 7, 7)", "(7, 5)"]),
        (ROWS(2, 7, 6), BOOL(2, 5), ValueError, ["(2, 7, 7)", "(2, 5)"]),
        (ROWS(2, 7, 6), BOOL(3, 1, 7), ValueError, ["(2, 7, 7)", "(3, 1, 7)"]),
    ],
    ids=["width", "one axis", "empty", "token ids", "mask of numbers", "mask of 0 and 1", "mask", "padding", "batch"],
)
def test_self_attention_refuses_bad_input(x, mask, error, names, causal):
    with pytest.raises(error) as caught:
        SelfAttention(6, 4, causal=causal)(x, mask)
    assert all(name in str(caught.value) for name in names), str(caught.value)
