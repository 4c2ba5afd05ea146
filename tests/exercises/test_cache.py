"""Exercise 11: what its checks hold for right, found in a second way, and answers in odd forms."""

import math

import pytest
import torch

from classroom.checks import cache as checks
from classroom.checks import cache_slips as truth
from classroom.checks.cache_answers import Ring, attend, last_rows, problem, turn, uncached
from classroom.checks.expect import CheckFailed


@pytest.mark.parametrize("window", [None, 1, 3, 9])
@pytest.mark.parametrize("n_kv_heads", [6, 3, 2, 1])
def test_uncached_is_what_a_loop_over_heads_queries_and_keys_gives(n_kv_heads, window):
    case = problem(n_kv_heads=n_kv_heads, start=5)
    x, at, W_Q, W_K, W_V = (case[name] for name in ("x", "positions", "W_Q", "W_K", "W_V"))
    expected = torch.zeros(len(W_Q), len(x), W_V.shape[2], dtype=torch.float64)
    for head in range(len(W_Q)):
        group = head // (len(W_Q) // n_kv_heads)
        q, k, v = turn(x @ W_Q[head], at), turn(x @ W_K[group], at), x @ W_V[group]
        for i in range(len(x)):
            first = max(0, i - window + 1) if window else 0
            scores = [float(q[i] @ k[j]) / 2 for j in range(first, i + 1)]  # d_head = 4
            whole = sum(math.exp(s) for s in scores)
            expected[head, i] = sum(math.exp(s) / whole * v[j] for s, j in zip(scores, range(first, i + 1)))
    torch.testing.assert_close(uncached(**case, window=window), expected, rtol=0, atol=1e-12)


def test_sizes_differ_so_that_none_can_stand_for_another():
    case = problem(n_kv_heads=2)
    sizes = [*case["x"].shape, *case["W_Q"].shape[::2], len(case["W_K"]), case["W_V"].shape[2]]
    assert len(set(sizes)) == len(sizes)


def test_the_answer_behind_the_slips_is_right_without_one():
    for check in (checks.whole, checks.chunks, checks.grouped, checks.windowed, checks.untouched):
        check(attend())


def test_the_largest_batch_is_the_one_that_a_search_finds():
    for memory in range(0, 60, 7):
        for window in (None, 2, 9):
            for n_positions in (1, 3, 4):
                each = 3 * min(n_positions, window or n_positions)
                fitting = [n for n in range(61) if n == 0 or 11 + n * each <= memory]
                assert truth.fits(memory, 11, 3, n_positions, window) == max(fitting)


def test_the_balance_is_the_first_batch_at_which_reading_takes_no_longer():
    for n_bytes, bandwidth, peak in ((2, 3, 1_000), (4, 3, 1_000), (0.5, 3, 1_000), (2, 4, 1_000), (2, 10, 1)):
        batch = truth.balance(n_bytes, bandwidth, peak)
        reading = [n_bytes / bandwidth <= 2 * n / peak for n in range(1, batch + 1)]
        assert reading == [False] * (batch - 1) + [True]


def test_doubling_the_batch_of_a_long_text_hardly_helps():
    sequences, kept = truth.SITUATIONS["C"]
    seconds = [
        max(truth.step(n, truth.N_WEIGHTS, kept * truth.TOKEN_BYTES, 2, **truth.MACHINE).values())
        for n in (sequences, 2 * sequences)
    ]
    assert 1 < 2 * seconds[0] / seconds[1] < 1.02
    assert [truth.limit(*situation) for situation in truth.SITUATIONS.values()] == ["weights", "arithmetic", "cache"]


def test_a_ring_shows_the_last_rows_whatever_it_served_before():
    for window in (1, 2, 5):
        ring = Ring(window)
        for length in (3, 1, 7, 5):
            rows = list(range(length))
            for k in rows:
                ring.add(k)
                assert ring.visible() == last_rows(rows[: k + 1], window)
            ring.start_over()


def test_the_smallest_window_that_leaks_is_two(capsys):
    suspect = truth.CATALOGUE["repair"]["that ring still shows rows of an earlier conversation"]["repaired"]
    safe = {"window": 2, "first": 1, "second": 1}
    for first in (1, 2, 3):
        with pytest.raises(CheckFailed, match="nothing leaks"):
            checks.hunt(suspect, safe, {"window": 1, "first": first, "second": 1})
    checks.hunt(suspect, safe, {"window": 2, "first": 2, "second": 1})


# ---- answers in odd forms ----


def test_an_answer_that_raises_is_shown_without_its_tensors():
    def attend(x, positions, cache, W_Q, W_K, W_V, window=None):
        return x @ W_Q @ W_K, cache

    with pytest.raises(CheckFailed) as failure:
        checks.whole(attend)
    assert "raises RuntimeError" in str(failure.value) and "tensor(" not in str(failure.value)


def test_results_collected_in_float32_are_right_too():
    def rounded(**given):
        out, cache = attend()(**given)
        return out.float(), cache

    checks.chunks(rounded)
    checks.chunks(rounded, problem(plus=100.0), problem(times=1000.0))


@pytest.mark.parametrize("returned", [3, torch.zeros(6, 9, 8), [1, 2, 3]])
def test_attend_must_return_two_things(returned):
    with pytest.raises(CheckFailed, match="return two things"):
        checks.whole(lambda **given: returned)


@pytest.mark.parametrize("answer", [..., {"window": 2}, {"window": 2, "first": 0, "second": 1}, 3])
def test_sizes_of_a_ring_are_asked_for(answer):
    with pytest.raises(CheckFailed, match="leaks_at"):
        checks.hunt(Ring, {"window": 2, "first": 1, "second": 1}, answer)


def test_a_ring_without_its_methods_is_answered_in_words():
    with pytest.raises(CheckFailed, match="AttributeError"):
        checks.repair(lambda window: [])


@pytest.mark.parametrize("guess", ["many", 0, -3, True, float("nan"), 1e12, ...])
def test_an_impossible_guess_is_answered_in_words(guess):
    with pytest.raises(CheckFailed, match="guess"):
        checks.predict(guess)
    with pytest.raises(CheckFailed, match="guess"):
        checks.how_far(guess, truth.PER_TOKEN)
