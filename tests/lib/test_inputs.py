"""What a stack reads: rows and positions against their sums by hand, masks against their definition."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from plainformer.config import Config
from plainformer.inputs import causal_mask, embed, padding_mask, real_lengths
from plainformer.model import Transformer
from plainformer.positions import rotary_angles

SIZES = {"n_vocab": 17, "d_model": 12, "n_heads": 3, "n_kv_heads": 1, "n_context": 11, "d_ff": 5, "n_layers": 1}
IDS = torch.tensor([[3, 16, 0, 7, 7], [2, 5, 9, 1, 4]])


def model(fill, **change) -> Transformer:
    return fill(Transformer(Config(**SIZES | change)).double())


def rows_of(model, positions: list[list[int]]) -> torch.Tensor:
    """The sum that the model's choices ask for, one row at a time."""
    config, result = model.config, torch.zeros(*IDS.shape, 12, dtype=torch.float64)
    for b, row in enumerate(IDS.tolist()):
        for t, i in enumerate(row):
            x = model.embed.weight[i] * (math.sqrt(12) if config.embed_scale else 1)
            p = positions[b][t]
            if config.positions == "learned":
                x = x + model.positions.weight[p]
            if config.positions == "sinusoidal":
                angles = [p / 10_000 ** (2 * (n // 2) / 12) for n in range(12)]
                waves = [math.sin(a) if n % 2 == 0 else math.cos(a) for n, a in enumerate(angles)]
                x = x + torch.tensor(waves, dtype=torch.float64)
            result[b, t] = x.detach()
    return result


@pytest.mark.parametrize("start", [[0, 0], [4, 4], [6, 2]], ids=str)
@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "none"])
def test_rows_and_positions(positions, scale, start, fill):
    ours = model(fill, positions=positions, embed_scale=scale, rope_base=50.0)
    x, rotary = embed(ours, IDS, start, [5, 5])
    places = [[old + t for t in range(5)] for old in start]
    torch.testing.assert_close(x, rows_of(ours, places), rtol=0, atol=1e-13)
    if positions == "rotary":
        for found, wanted in zip(rotary, rotary_angles(torch.tensor(places), 4, base=50.0, dtype=torch.float64)):
            assert found.dim() == 4 and found.dtype == torch.float64
            torch.testing.assert_close(found.expand(2, 1, 5, 2)[:, 0], wanted, rtol=0, atol=0)
    else:
        assert rotary is None


def test_types_of_tokens_are_added_before_the_first_norm(fill):
    ours = model(fill, n_token_types=4, positions="learned", embed_norm=True)
    types = torch.tensor([[0, 1, 2, 3, 3], [1, 0, 0, 2, 1]])
    x, _ = embed(ours, IDS, [0, 0], [5, 5], types)
    wanted = ours.embed_norm(ours.embed.weight[IDS] + ours.token_types.weight[types] + ours.positions.weight[:5])
    torch.testing.assert_close(x, wanted, rtol=0, atol=1e-13)


def test_the_context_is_full_at_its_last_position_and_not_before(fill):
    ours = model(fill)
    embed(ours, IDS, [6, 6], [5, 5])
    with pytest.raises(ValueError, match=r"12 tokens long.*n_context=11"):
        embed(ours, IDS, [6, 7], [5, 5])
    embed(ours, IDS, [6, 7], [5, 4])  # a column of filler past the context is no token


# --- lengths ---------------------------------------------------------------------------------------------------------


def test_lengths_default_to_all_and_are_plain_ints():
    assert real_lengths(IDS, None) == [5, 5]
    lengths = [3, 1]
    assert real_lengths(IDS, lengths) == [3, 1] and lengths == [3, 1]
    assert [type(n) for n in real_lengths(IDS, [torch.tensor(3), 1])] == [int, int]
    assert padding_mask(IDS, None) is None
    wanted = [[[[True, True, True, False, False]]], [[[True, False, False, False, False]]]]
    assert padding_mask(IDS, lengths).tolist() == wanted


@pytest.mark.parametrize("ask", [real_lengths, padding_mask])
@pytest.mark.parametrize(
    ("ids", "lengths", "error", "names"),
    [
        (IDS[0], None, ValueError, ["(5,)", "(batch, position)"]),
        (IDS[None], [1], ValueError, ["(1, 2, 5)"]),
        (IDS.float(), None, TypeError, ["torch.float32"]),
        (IDS.bool(), None, TypeError, ["torch.bool"]),
        (IDS, [3], ValueError, ["2 numbers", "[3]"]),
        (IDS, [3, 6], ValueError, ["1 … 5", "[3, 6]"]),
        (IDS, [0, 3], ValueError, ["1 … 5", "[0, 3]"]),
        (IDS, [2.0, 3], TypeError, ["float"]),
        (IDS, ["2", 3], TypeError, ["str"]),
    ],
    ids=str,
)
def test_other_ids_and_lengths_are_refused(ask, ids, lengths, error, names):
    with pytest.raises(error) as caught:
        ask(ids, lengths)
    assert all(name in str(caught.value) for name in names)


# --- who may look at whom --------------------------------------------------------------------------------------------


@given(st.data())
def test_real_queries_see_their_past_and_their_window(data):
    """Row b's new token j stands at start + j and sees the keys up to itself, ``window`` of them at most."""
    batch = data.draw(st.integers(1, 3))
    start = data.draw(st.lists(st.integers(0, 6), min_size=batch, max_size=batch))
    if data.draw(st.booleans()):
        start = [start[0]] * batch
    n_columns = data.draw(st.integers(1, 5))
    n_new = data.draw(st.lists(st.integers(1, n_columns), min_size=batch, max_size=batch))
    window = data.draw(st.none() | st.integers(1, 12))
    config = Config(**SIZES | {"window": window})
    mask, causal = causal_mask(config, start, n_new, n_columns, torch.device("cpu"))
    n_keys = max(old + new for old, new in zip(start, n_new))
    if causal:  # the plain triangle: the last query stands at the last key, the same for all
        assert mask is None and len({*start}) == 1 and start[0] + n_columns == n_keys
        mask = torch.ones(n_columns, n_keys).tril(n_keys - n_columns).bool()
    mask = mask.expand(batch, 1, n_columns, n_keys)
    for b in range(batch):
        for j in range(n_new[b]):
            p = start[b] + j
            seen = [k for k in range(n_keys) if k <= p and (window is None or k > p - window)]
            assert mask[b, 0, j].nonzero().flatten().tolist() == seen


def test_the_triangle_needs_no_mask_in_memory():
    for window, triangle in ((None, True), (8, True), (7, False)):
        mask, causal = causal_mask(Config(**SIZES | {"window": window}), [3, 3], [5, 5], 5, torch.device("cpu"))
        assert (mask is None, causal) == (triangle, triangle)
