"""Exercise 03: what its checks hold for right, computed in a second way."""

import pytest
import torch
import torch.nn.functional as F

from classroom.checks import heads as checks
from classroom.checks import heads_answers as truth
from classroom.checks.expect import CheckFailed
from classroom.checks.tensors import numbers
from plainformer.attention import attention_weights


def weights(d_model: int, d_kv: int) -> dict:
    shapes = {"W_Q": d_model, "W_K": d_kv, "W_V": d_kv, "W_O": d_model}
    return {name: numbers(d_model, width, key=n) for n, (name, width) in enumerate(shapes.items())}


@pytest.mark.parametrize(("x", "n_heads"), checks.texts())
def test_many_heads_are_torchs(x, n_heads):
    d_model, given = x.shape[-1], weights(x.shape[-1], x.shape[-1])
    torchs = torch.nn.MultiheadAttention(d_model, n_heads, bias=False, batch_first=True, dtype=torch.float64)
    torchs.in_proj_weight.data = torch.cat([given[name].T for name in ("W_Q", "W_K", "W_V")])
    torchs.out_proj.weight.data = given["W_O"].T
    right = torchs(x, x, x, need_weights=False)[0].detach()
    torch.testing.assert_close(truth.layer(x, **given, n_heads=n_heads), right, rtol=1e-9, atol=1e-9)
    parts = truth.parts(x, **given, n_heads=n_heads)
    assert parts.shape == (n_heads, *x.shape)
    torch.testing.assert_close(parts.sum(0), right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("x", "n_heads", "n_kv_heads"), checks.groups())
def test_shared_keys_are_torchs(x, n_heads, n_kv_heads):
    d_head = x.shape[-1] // n_heads
    given = weights(x.shape[-1], d_head * n_kv_heads)
    q, k, v = (
        torch.stack((x @ given[name]).split(d_head, -1), 1) for name in ("W_Q", "W_K", "W_V")
    )  # (B, head, T, d_head)
    heads = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    right = torch.cat(heads.unbind(1), -1) @ given["W_O"]
    actual = truth.layer(x, **given, n_heads=n_heads, n_kv_heads=n_kv_heads)
    torch.testing.assert_close(actual, right, rtol=1e-9, atol=1e-9)


def test_averaged_heads_are_what_a_loop_over_columns_gives():
    W, n_heads, n_kv_heads = numbers(24, 24), 6, 2
    d_head, group = 4, 3
    columns = [
        sum(W[:, (n * group + g) * d_head + c] for g in range(group)) / group
        for n in range(n_kv_heads)
        for c in range(d_head)
    ]
    torch.testing.assert_close(truth.averaged(W, n_heads, n_kv_heads), torch.stack(columns, 1))


def test_costs_are_those_of_tensors_that_exist():
    n_positions, d_model, n_heads, n_kv_heads, n_bytes = 10, 90, 15, 5, 4
    d_head = d_model // n_heads
    q, k = torch.zeros(n_heads, n_positions, d_head), torch.zeros(n_kv_heads, n_positions, d_head)
    scores = attention_weights(q, k.repeat_interleave(n_heads // n_kv_heads, 0))
    matrices = weights(d_model, n_kv_heads * d_head).values()
    assert truth.costs(n_positions, d_model, n_heads, n_kv_heads, n_bytes) == {
        "weights": sum(W.numel() for W in matrices),
        "scores": scores.nbytes,
        "kept": 2 * k.nbytes,
    }
    assert len({n_positions, d_model, n_heads, n_kv_heads, n_bytes, d_head}) == 6


def test_the_longest_text_fits_and_the_next_does_not():
    for n_heads, n_bytes, budget in ((12, 4, 1_000_000), (3, 2, 600), (3, 2, 149), (1, 1, 1), (7, 4, 10**30)):
        n = truth.longest(n_heads, n_bytes, budget)
        assert n_heads * n_bytes * n**2 <= budget < n_heads * n_bytes * (n + 1) ** 2


def test_the_forgetful_layer_is_wrong_for_every_text_but_the_shortest():
    for n in range(2, 40):
        x = numbers(1, n, 12)
        assert not torch.equal(truth.viewed(x, 3), torch.stack(x.split(4, -1), 1))
        torch.testing.assert_close(truth.viewed_back(truth.viewed(x, 3)), x)


def test_an_order_of_a_list_of_heads_costs_nothing():
    checks.evidence([12, 1], (7, 5, 2, 0))
    checks.blind_spot({5, 4}, 1)
    with pytest.raises(CheckFailed):
        checks.evidence([1, 12, 12], [0, 2, 5, 7])


@pytest.mark.parametrize("guess", ["16 GiB", 0, -3, True, float("nan"), 1e9, ...])
def test_an_impossible_guess_is_answered_in_words(guess):
    with pytest.raises(CheckFailed, match="guess"):
        checks.predict(guess)


@pytest.mark.parametrize("costs", [lambda **sizes: 3, lambda **sizes: {}, lambda **sizes: {"weights": 3}])
def test_costs_that_lack_a_part_are_asked_for_it(costs):
    with pytest.raises(CheckFailed, match="scores"):
        checks.scores(costs)
    with pytest.raises(CheckFailed, match="scores"):
        checks.how_far(4, costs)
