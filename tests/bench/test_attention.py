"""The fused kernel against the written-out formula, and the written-out formula's growth with the length."""

import time

import pytest
import torch

from plainformer import masks
from plainformer.attention import attention, fast_attention


def best(work, n_rounds: int = 7) -> float:
    """Seconds of the quickest of several rounds."""
    seconds = []
    for _ in range(n_rounds):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def tensors(n_positions: int):
    return [torch.randn(1, 8, n_positions, 64) for _ in range(3)]


@pytest.mark.parametrize("n_positions", [256, 1024, 2048])
def test_the_fused_kernel_is_not_slower(n_positions):
    q, k, v = tensors(n_positions)
    mask = masks.causal(n_positions)
    ratio = best(lambda: attention(q, k, v, mask)) / best(lambda: fast_attention(q, k, v, mask))
    print(f"\n{n_positions} positions: the fused kernel is {ratio:.1f} times as fast")
    assert ratio > 0.8


def test_twice_the_length_is_at_most_about_four_times_the_work():
    short, long = tensors(1024), tensors(2048)
    ratio = best(lambda: attention(*long)) / best(lambda: attention(*short))
    print(f"\ntwice the length takes {ratio:.1f} times as long")
    assert ratio < 8
