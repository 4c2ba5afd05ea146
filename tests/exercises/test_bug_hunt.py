"""Exercise 16: right versions are right, broken ones broken, and tests in odd forms get the answer they deserve."""

import math

import pytest
import torch
import torch.nn.functional as F

from classroom.checks import bug_hunt as checks
from classroom.checks import bug_hunt_slips as truth
from classroom.checks.bug_hunt_answers import attention_inputs, attention_test, layers_test, memory_test, norm_test
from classroom.checks.bug_hunt_broken import BROKEN, PROBLEM, RIGHT
from classroom.checks.expect import CheckFailed
from classroom.checks.tensors import numbers

STRONG = {
    "test_attention": attention_test(),
    "test_norm": norm_test(),
    "test_memory": memory_test(),
    "test_layers": layers_test(),
}
FAULTS = [
    (name, check, says, which)
    for name, of in PROBLEM.items()
    for check in of
    for says in BROKEN[check]
    for which in (0, 1)
]


def close(actual, expected, atol=1e-9):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


# ---- what is right, found in a second way ----


@pytest.mark.parametrize("make", RIGHT["test_attention"])
@pytest.mark.parametrize(("n", "times"), [(1, 1.0), (7, 1.0), (64, 1.0), (7, 300.0)])
def test_right_attention_is_torch_s(make, n, times):
    given = attention_inputs(n, (2, 5, 3, 4, 6), times)
    q, k, v = ((given["x"] @ given[W]).view(2, n, 3, -1).transpose(1, 2) for W in ("W_Q", "W_K", "W_V"))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, n, -1)
    close(make()(*given.values()), expected, 1e-7 * times)


@pytest.mark.parametrize("make", RIGHT["test_norm"])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_a_right_norm_is_torch_s(make, offset):
    x, weight, bias = numbers(2, 3, 5) + offset, numbers(5, key=1), numbers(5, key=2)
    close(make()(x, weight, bias, 0.3), F.layer_norm(x, [5], weight, bias, 0.3), 1e-8 * max(1, offset / 1e3))


@pytest.mark.parametrize("make", RIGHT["test_memory"])
@pytest.mark.parametrize("window", [1, 2, 5])
def test_a_right_memory_sees_its_last_rows(make, window):
    memory = make()(window)
    for length in (7, 1, 4):
        q, k, v = numbers(length, 4, key=length), numbers(length, 4, key=1), numbers(length, 6, key=2)
        seen = torch.ones(length, length).tril().triu(1 - window).bool()
        expected = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=seen)[0]
        close(torch.stack([memory.step(*row) for row in zip(q, k, v)]), expected)
        memory.reset()


@pytest.mark.parametrize("make", RIGHT["test_layers"])
def test_a_right_stack_is_torch_s_attention_layer_by_layer(make):
    x = numbers(2, 6, 5)
    layers = [tuple(numbers(5, w, key=3 * n + k, scale=0.5) for k, w in enumerate((4, 4, 5), 1)) for n in range(3)]
    out, maps = make()(x, layers)
    for (W_Q, W_K, W_V), one in zip(layers, maps):
        close(
            one, F.scaled_dot_product_attention(x @ W_Q, x @ W_K, torch.eye(6).double().expand(2, 6, 6), is_causal=True)
        )
        x = x + F.scaled_dot_product_attention(x @ W_Q, x @ W_K, x @ W_V, is_causal=True)
    close(out, x)


def test_the_numbers_of_problem_2():
    scores = torch.tensor([-10_000.0, truth.SCORES[1] - 10_000.0], dtype=torch.float64)
    assert math.isclose(truth.leaked(*truth.SCORES, truth.ADDED), scores.softmax(0)[1].item(), rel_tol=1e-9)
    row = torch.tensor(truth.ROW, dtype=torch.float64)
    assert math.isclose(truth.INSIDE, F.layer_norm(row, [2], eps=truth.EPS)[0].item(), rel_tol=1e-12)
    assert math.isclose(truth.OUTSIDE, (row[0] / (row.std(unbiased=False) + truth.EPS)).item(), rel_tol=1e-12)


# ---- what is broken ----


@pytest.mark.parametrize(("name", "check", "says", "which"), FAULTS)
def test_a_test_that_lets_every_right_version_pass_rejects_every_broken_one(name, check, says, which):
    for make in RIGHT[name]:
        STRONG[name](make())
    assert truth.rejects(STRONG[name], BROKEN[check][says][which]())


def test_no_broken_attention_is_seen_by_its_shape(capsys):
    def shapes(candidate):
        n_texts, n, d_model, n_heads, width = 4, 16, 32, 4, 8
        weights = [torch.randn(d_model, n_heads * width) for _ in range(3)]
        assert candidate(torch.randn(n_texts, n, d_model), *weights, n_heads).shape == (4, 16, 32)

    checks.how_far(10, shapes)
    assert "0 of 15" in capsys.readouterr().out
    survivors = [make for check in PROBLEM["test_attention"] for pair in BROKEN[check].values() for make in pair]
    assert not [make for make in survivors if truth.rejects(shapes, make())]


def test_sizes_differ_so_that_none_can_stand_for_another():
    given = attention_inputs(7, (2, 5, 3, 4, 6))
    sizes = [*given["x"].shape, 3, given["W_K"].shape[1] // 3, given["W_V"].shape[1] // 3]
    assert len(set(sizes)) == len(sizes)


def test_more_seeds_find_nothing_more_and_huge_scores_hide_the_missing_division():
    rates = truth.rates()
    assert rates["20 seeds"] == rates["as it is"] < rates["huge scores"] < rates["sizes differ"]
    undivided = BROKEN["scale"][next(iter(BROKEN["scale"]))][0]
    assert truth.rejects(truth.colleague(), undivided())
    assert not truth.rejects(truth.colleague(times=300.0), undivided())


# ---- tests in odd forms ----


class Called:
    def __call__(self, candidate):
        STRONG["test_attention"](candidate)
        return True


def exits(candidate):
    if truth.rejects(STRONG["test_attention"], candidate):
        raise SystemExit("broken")


@pytest.mark.parametrize("test", [Called(), exits, STRONG["test_attention"]], ids=["an object", "exit", "a function"])
@pytest.mark.parametrize("check", PROBLEM["test_attention"])
def test_a_test_may_have_any_form(check, test):
    getattr(checks, check)(test)
    getattr(checks, check)(test, other=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_test_may_hand_over_float32_where_numbers_are_small(dtype):
    def test(candidate):
        given = {k: v.to(dtype) if k != "n_heads" else v for k, v in attention_inputs(7, (2, 5, 3, 4, 6)).items()}
        q, k, v = ((given["x"] @ given[W]).view(2, 7, 3, -1).transpose(1, 2) for W in ("W_Q", "W_K", "W_V"))
        right = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 7, -1)
        torch.testing.assert_close(candidate(*given.values()), right, rtol=1e-4, atol=1e-4)

    for check in ("scale", "heads", "future"):
        getattr(checks, check)(test)
        getattr(checks, check)(test, other=True)


@pytest.mark.parametrize("verdict", [False, torch.tensor(False)])
def test_a_verdict_that_is_returned_is_not_one(verdict):
    with pytest.raises(CheckFailed, match="must raise"):
        checks.scale(lambda candidate: verdict)


@pytest.mark.parametrize(("answer", "says"), [(..., "not answered"), (None, "not answered"), (3, "no function")])
def test_something_else_than_a_test_is_told_so(answer, says):
    with pytest.raises(CheckFailed, match=says):
        checks.edge(answer)


def test_an_unanswered_test_is_no_rejection():
    def test_norm(candidate):
        raise NotImplementedError("not answered yet")

    with pytest.raises(CheckFailed, match="not answered yet") as failure:
        checks.epsilon(test_norm)
    assert failure.value.slip is None


def test_a_fault_of_the_hidden_test_alone_is_named():
    weak = attention_test(inputs=("x", "W_Q"))
    checks.untouched(weak)
    with pytest.raises(CheckFailed, match="writes into the weights") as failure, checks.hidden_test():
        checks.untouched(weak, other=True)
    assert failure.value.slip in BROKEN["untouched"]


def test_every_run_draws_the_same_numbers_and_leaves_the_generator_alone():
    drawn = []
    before = torch.get_rng_state()

    def test_norm(candidate):
        drawn.append(torch.rand(()).item())
        STRONG["test_norm"](candidate)

    checks.spread(test_norm)
    assert len(set(drawn)) == 1 and torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("guess", ["half", -1, 101, True, float("nan"), ...])
def test_an_impossible_guess_is_answered_in_words(guess):
    with pytest.raises(CheckFailed, match="guess"):
        checks.predict(guess)


def test_an_error_of_the_student_s_own_in_score_is_shown():
    with pytest.raises(CheckFailed, match="ZeroDivisionError") as failure:
        checks.score(lambda test, right, wrong: 1 / 0)
    assert failure.value.slip is None
