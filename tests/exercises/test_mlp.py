"""Exercise 07: what its checks take for right, held against PyTorch, numpy-free loops and a simulation."""

import math

import pytest
import torch

from classroom.checks import mlp as checks
from classroom.checks import mlp_slips as known
from classroom.checks.expect import CheckFailed
from classroom.checks.tensors import numbers
from plainformer.config import preset
from plainformer.parameters import active, total


def test_the_gated_mlp_is_the_formula_unit_by_unit():
    x, gate, up, down = numbers(4), numbers(4, 7, key=1), numbers(4, 7, key=2), numbers(7, 4, key=3)
    right = sum(known.silu((x @ gate[:, n]).item()) * (x @ up[:, n]) * down[n] for n in range(7))
    torch.testing.assert_close(known.gated(x, gate, up, down), right, atol=1e-12, rtol=0)


def test_the_experts_are_the_formula_token_by_token():
    weights = numbers(3, 5), numbers(5, 3, 4, key=1), numbers(5, 3, 4, key=2), numbers(5, 4, 3, key=3)
    x, layer = numbers(6, 3, key=4), known.experts_layer(3, 4, 5, 2, *weights)
    for row, result in zip(x, layer(x).detach()):
        scores = (row @ weights[0]).tolist()
        best = sorted(range(5), key=scores.__getitem__)[-2:]
        powers = {n: math.exp(scores[n]) for n in best}
        right = sum(powers[n] / sum(powers.values()) * known.gated(row, *(w[n] for w in weights[1:])) for n in best)
        torch.testing.assert_close(result, right, atol=1e-12, rtol=0)


def test_the_counts_are_those_of_the_module():
    sizes = dict(zip(("d_model", "d_ff", "n_experts", "k"), (10, 28, 7, 2)))
    layer = known.experts_layer(10, 28, 7, 2, numbers(10, 7), *[numbers(7, 10, 28)] * 2, numbers(7, 28, 10))
    parts = {name: sum(p.numel() for p in module.parameters()) for name, module in layer.named_children()}
    expert = parts["experts"] // 7
    assert known.count(**sizes) == {"total": sum(parts.values()), "active": parts["router"] + 2 * expert}


def test_the_share_of_experts_that_are_met_is_what_a_draw_shows():
    draw = torch.Generator().manual_seed(0)
    chosen = torch.rand(20_000, 5, 12, generator=draw).topk(3, -1).indices.flatten(1)
    share = torch.zeros(20_000, 12).scatter_(1, chosen, 1.0).mean().item()
    assert share == pytest.approx(known.met(5, 12, 3), abs=0.003)  # a draw's spread is below 0.1, over √20,000


def test_one_token_reads_the_active_weights_and_a_crowd_reads_all():
    assert known.READ[1] * 1e9 == pytest.approx(active(preset("mixtral-8x7b")))
    assert known.READ[64] * 1e9 == pytest.approx(total(preset("mixtral-8x7b")), rel=1e-6)


def test_the_table_of_silu_is_silu():
    for x, printed in ((-4, -0.072), (-1, -0.269), (2, 1.762), (3, 2.858)):
        assert round(known.silu(x), 3) == printed


@pytest.mark.parametrize("value", [torch.float32, torch.float64])
def test_an_answer_in_either_precision_is_right(value, capsys):
    def gated_mlp(x, W_gate, W_up, W_down):
        x, W_gate, W_up, W_down = (t.to(value) for t in (x, W_gate, W_up, W_down))
        return (torch.nn.functional.silu(x @ W_gate) * (x @ W_up)) @ W_down

    checks.gated_mlp(gated_mlp)
    checks.gated_mlp(gated_mlp, *checks.rows())
    assert "gated MLP" in capsys.readouterr().out


def test_a_guess_that_cannot_be_is_answered_in_words():
    for guess in ("two", ..., float("nan"), True):
        with pytest.raises(CheckFailed, match="guess"):
            checks.predict(guess)
