"""Masks against their definitions, written as loops over single pairs."""

import itertools

import pytest
import torch

from plainformer import masks

SIZES = [(1, 1), (1, 6), (2, 7), (5, 5), (4, 9), (8, 8)]


def by_definition(n_query: int, n_key: int, may_look) -> torch.Tensor:
    """``may_look(query, key)`` of positions in the whole sequence; the last query stands at the last key."""
    table = [[may_look(n_key - n_query + q, k) for k in range(n_key)] for q in range(n_query)]
    return torch.tensor(table, dtype=torch.bool)


@pytest.mark.parametrize(("n_query", "n_key"), SIZES)
def test_causal(n_query, n_key):
    assert torch.equal(masks.causal(n_query, n_key), by_definition(n_query, n_key, lambda q, k: k <= q))


@pytest.mark.parametrize("n", [1, 2, 3, 17, 100])
def test_causal_leaves_the_lower_triangle(n):
    mask = masks.causal(n)
    assert mask.dtype == torch.bool and mask.shape == (n, n)
    assert int(mask.sum()) == n * (n + 1) // 2
    assert torch.equal(mask, torch.ones(n, n).tril().bool())
    assert mask.diagonal().all()


@pytest.mark.parametrize("window", [1, 2, 3, 8, 9, 100])
@pytest.mark.parametrize(("n_query", "n_key"), SIZES)
def test_sliding_window(n_query, n_key, window):
    mask = masks.sliding_window(n_query, n_key, window=window)
    assert torch.equal(mask, by_definition(n_query, n_key, lambda q, k: q - window < k <= q))
    assert mask.sum(-1).max() == min(window, n_key)


def test_window_edges():
    assert torch.equal(masks.sliding_window(6, window=1), torch.eye(6, dtype=torch.bool))
    for window in (6, 7, 600):
        assert torch.equal(masks.sliding_window(6, window=window), masks.causal(6))
    assert not torch.equal(masks.sliding_window(6, window=5), masks.causal(6))


@pytest.mark.parametrize("n_query", [1, 2, 5, 9])
def test_fewer_queries_are_the_last_rows(n_query):
    for whole, part in [
        (masks.causal(9), masks.causal(n_query, 9)),
        (masks.sliding_window(9, window=4), masks.sliding_window(n_query, 9, window=4)),
    ]:
        assert torch.equal(part, whole[-n_query:])


def test_padding_hides_the_filler_of_each_sequence():
    lengths, n_key = [3, 1, 5, 4], 5
    mask = masks.padding(torch.tensor(lengths), n_key)
    assert mask.shape == (4, 1, 1, 5) and mask.dtype == torch.bool
    for (b, length), key in itertools.product(enumerate(lengths), range(n_key)):
        assert bool(mask[b, 0, 0, key]) == (key < length)
    assert torch.equal(mask, masks.padding(torch.tensor(lengths, dtype=torch.int32), n_key))


def test_masks_combine_with_and():
    lengths = [2, 5, 4]
    both = masks.causal(3, 5) & masks.padding(torch.tensor(lengths), 5)
    assert both.shape == (3, 1, 3, 5)
    for b, q, k in itertools.product(range(3), range(3), range(5)):
        assert bool(both[b, 0, q, k]) == (k <= q + 2 and k < lengths[b])


def test_masks_stand_on_the_device_asked_for():
    assert masks.causal(3, device=torch.device("meta")).is_meta
    assert masks.sliding_window(3, window=2, device=torch.device("meta")).is_meta
    assert masks.padding(torch.zeros(2, dtype=torch.int64, device="meta"), 5).shape == (2, 1, 1, 5)


@pytest.mark.parametrize(("n_query", "n_key"), [(0, None), (-1, None), (0, 3), (4, 3), (1, 0)])
def test_impossible_numbers_of_positions_are_refused(n_query, n_key):
    shown = n_query if n_key is None else n_key
    for call in (masks.causal, lambda *n: masks.sliding_window(*n, window=2)):
        with pytest.raises(ValueError, match=rf"1 ≤ n_query ≤ n_key, got n_query={n_query}, n_key={shown}"):
            call(n_query, n_key)


@pytest.mark.parametrize("window", [0, -3, 2.0, True, None, "4"], ids=repr)
def test_impossible_windows_are_refused(window):
    with pytest.raises((ValueError, TypeError), match=f"window={window!r} .*at least 1"):
        masks.sliding_window(4, window=window)


@pytest.mark.parametrize("lengths", [[0, 3], [3, 6], [-1, 2]], ids=repr)
def test_impossible_lengths_are_refused(lengths):
    with pytest.raises(ValueError, match=rf"1 … n_key=5; got \[{lengths[0]}, {lengths[1]}\]"):
        masks.padding(torch.tensor(lengths), 5)


@pytest.mark.parametrize("lengths", [torch.ones(2, 3, dtype=torch.int64), torch.tensor(3), torch.ones(3)], ids=repr)
def test_lengths_of_another_kind_are_refused(lengths):
    with pytest.raises((ValueError, TypeError), match=r"int64.*got") as caught:
        masks.padding(lengths, 5)
    assert str(tuple(lengths.shape)) in str(caught.value) and str(lengths.dtype) in str(caught.value)


def test_a_list_of_lengths_is_refused_with_a_message():
    with pytest.raises((ValueError, TypeError), match=r"lengths must be .*list"):
        masks.padding([3, 2], 5)
