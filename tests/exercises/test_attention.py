"""Exercise 02: what its checks hold for right, computed in a second way."""

import inspect
import math

import pytest
import torch

from classroom.checks import attention as checks
from classroom.checks import attention_answers as truth
from classroom.checks.expect import CheckFailed
from classroom.checks.tensors import numbers
from plainformer.attention import SelfAttention


def test_the_row_of_fund_and_of_a_repeated_it_are_the_formula_number_by_number():
    k_1, k_2 = truth.K_1, truth.K_2
    fund_fits, two, one, three = (math.exp(score / math.sqrt(2)) for score in (k_1, 2 * k_1, k_2, 2 * k_1 + k_2))
    fund = [fund_fits / (1 + 2 * fund_fits), 1 / (1 + 2 * fund_fits), fund_fits / (1 + 2 * fund_fits)]
    assert truth.FUND.tolist() == pytest.approx(fund)
    moved = [truth.V_1 * (fund[0] + fund[2]), truth.V_2 * (fund[1] + fund[2])]
    assert (truth.FUND @ truth.VALUES).tolist() == pytest.approx(moved)
    total = two + one + three + three
    assert truth.REPEATED.tolist() == pytest.approx([two / total, one / total, three / total, three / total])


def test_attention_with_weights_is_the_layer_of_the_library():
    x = numbers(2, 4, 6)
    layer = SelfAttention(6, 3, causal=False).double()
    names = {"W_Q": layer.query, "W_K": layer.key, "W_V": layer.value, "W_O": layer.out}
    weights = {name: part.weight.T for name, part in names.items()}
    torch.testing.assert_close(truth.self_attention(x, **weights), layer(x), atol=1e-12, rtol=0)


@pytest.mark.parametrize("a", [checks.weights(5), *checks.uneven()])
def test_the_jacobian_and_its_trace_are_the_closed_form(a):
    formula = torch.diag_embed(a) - a[..., :, None] * a[..., None, :]
    torch.testing.assert_close(truth.jacobian(a), formula, atol=1e-12, rtol=0)
    torch.testing.assert_close(truth.trace(a), 1 - (a**2).sum(-1), atol=1e-12, rtol=0)


def test_a_lone_key_has_half_where_the_others_together_weigh_as_much():
    for gap, fewest in zip((8.0, 1.0), truth.needed(8.0, 1.0)):
        assert (fewest - 2) < math.exp(gap) < (fewest - 1)
        assert truth.lone(gap, fewest) == pytest.approx(math.exp(gap) / (math.exp(gap) + fewest - 1))


def test_the_suspects_are_right_where_the_answers_say_and_nowhere_near():
    def right(name, n_positions, d_k, scale=1.0):
        x, Q, K, V = numbers(n_positions, 12), numbers(12, d_k, key=1), numbers(12, d_k, key=2), numbers(12, 5, key=3)
        return torch.allclose(truth.SUSPECTS[name](scale * x, Q, K, V), truth.projected(scale * x, Q, K, V))

    assert [d_k for d_k in range(1, 30) if right("first", 4, d_k)] == [truth.RIGHT_HARMLESS["first"]]
    assert [n for n in range(1, 9) if right("second", n, 7)] == [truth.RIGHT_HARMLESS["second"]]
    assert right("third", 4, 7) and not right("third", 4, 7, scale=100)
    largest = truth.RIGHT_HARMLESS["third"]
    assert torch.tensor([largest, largest + 1]).double().exp().isfinite().tolist() == [True, False]


def test_the_suspects_of_the_notebook_are_those_of_the_checks():
    x, Q, K, V = numbers(5, 7), numbers(7, 3, key=1), numbers(7, 3, key=2), numbers(7, 4, key=3)
    shown = {}
    source = next(c for c in _cells() if c.metadata.nbgrader.grade_id == "p6-suspects").source
    exec(source, {"math": math}, shown)
    assert sorted(shown) == sorted(truth.SUSPECTS)
    for name, suspect in shown.items():
        torch.testing.assert_close(suspect(x, Q, K, V), truth.SUSPECTS[name](x, Q, K, V))


def _cells():
    import nbformat

    from classroom.grading.course import ROOT

    return nbformat.read(ROOT / "solutions/02_attention/02_attention.ipynb", as_version=4).cells


def test_what_layers_notice_follows_from_their_averages():
    """The answers are measured on one set of weights; other weights give the same."""
    x = numbers(6, 12, key=80)
    for key in range(3):
        weights = [[numbers(12, 12, key=90 + 9 * key + 3 * n + m, scale=0.3) for m in range(3)] for n in range(2)]

        def through(x, causal, n_layers, weights=weights):
            for Q, K, V in weights[:n_layers]:
                scores = x @ Q @ (x @ K).T / math.sqrt(12)
                hidden = torch.ones(len(x), len(x)).triu(1).bool() & causal
                x = x + scores.masked_fill(hidden, -math.inf).softmax(-1) @ x @ V
            return x

        for name, state in truth.STATES.items():
            gap = (through(x, *state) - through(x[[0, 3, 2, 1, 4, 5]], *state)).abs().amax(-1)
            assert [n for n in range(6) if gap[n] > 1e-9] == truth.MOVED[name]
        for text, (free, causal) in truth.DISTINCT.items():
            rows = x[["ab".index(token) for token in text]]
            assert truth._n_rows(through(rows, False, 1)) == free
            assert truth._n_rows(through(rows, True, 1)) == causal


def test_sizes_of_the_visible_cases_differ():
    for arguments in (checks._three((4, 6, 3, 5), 1), checks._three((4, 5, 6, 7), 7, (2, 3))):
        assert len({*arguments["q"].shape, *arguments["v"].shape}) == arguments["q"].ndim + 2
    assert "numbers(2, 4, 6, key=13), 3, 5" in inspect.getsource(checks.self_attention)


def test_an_unseen_wrong_version_that_gets_through_costs_the_point():
    def exposes(attention):  # knows the three alone
        x, Q, K, V = numbers(4, 9), numbers(9, 2, key=1), numbers(9, 2, key=2), numbers(9, 3, key=3)
        return any(
            torch.allclose(attention(s * x, Q, K, V), suspect(s * x, Q, K, V), equal_nan=True)
            for suspect, s in zip(truth.SUSPECTS.values(), (1, 1, 1000))
        )

    checks.exposes(exposes)
    with pytest.raises(CheckFailed, match="does not show"):
        checks.exposes(exposes, *checks.unseen())


@pytest.mark.parametrize("answer", [None, 1, "yes", torch.ones(2).bool()])
def test_a_test_that_says_neither_yes_nor_no_is_told_so(answer):
    with pytest.raises(CheckFailed, match=r"True or False|return"):
        checks.exposes(lambda attention: answer)


@pytest.mark.parametrize("guess", ["75 %", 75, -0.1, True, float("nan"), ...])
def test_an_impossible_guess_is_answered_in_words(guess):
    with pytest.raises(CheckFailed, match="guess"):
        checks.predict(guess)


@pytest.mark.parametrize("answer", ["ACE", {"first": "A"}, {"first": "a", "second": "C", "third": "E"}, ...])
def test_a_fault_of_another_form_is_asked_for_in_words(answer):
    with pytest.raises(CheckFailed, match="fault"):
        checks.fault(answer)
