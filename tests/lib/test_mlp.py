"""MLPs against their formulas in plain Python; experts against a loop over tokens."""

import dataclasses
import math

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given

from plainformer import mlp
from plainformer.config import Config
from plainformer.mlp import MLP, GatedMLP, MixtureOfExperts, route, swiglu_width

BATCH, LENGTH, WIDTH, D_FF, EXPERTS = 2, 5, 8, 11, 7
KINDS = ["relu", "gelu", "gelu_tanh", "swiglu"]


def config(**change) -> Config:
    sizes = {"n_vocab": 13, "d_model": WIDTH, "n_heads": 2, "n_kv_heads": 1, "n_context": 9, "d_ff": D_FF}
    return Config(**sizes | {"n_layers": 1, "bias": True} | change)


def draw(*shape):
    return torch.randn(*(shape or (BATCH, LENGTH, WIDTH)), dtype=torch.float64)


def normal_cdf(x: float) -> float:
    return (1 + math.erf(x / math.sqrt(2))) / 2


FORMULAS = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * normal_cdf(x),
    "gelu_tanh": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "swiglu": lambda x: x / (1 + math.exp(-x)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_activations_equal_their_formulas(kind):
    for x in torch.linspace(-6, 6, 49, dtype=torch.float64):
        assert mlp.ACTIVATIONS[kind](x).item() == pytest.approx(FORMULAS[kind](x.item()), rel=0, abs=1e-13)


def test_the_two_forms_of_gelu_differ_by_less_than_a_thousandth_and_not_by_nothing():
    x = torch.linspace(-6, 6, 1001, dtype=torch.float64)
    difference = (mlp.ACTIVATIONS["gelu"](x) - mlp.ACTIVATIONS["gelu_tanh"](x)).abs().max()
    assert 1e-4 < difference < 1e-3


def by_loop(layer, kind: str, row: list[float]) -> list[float]:
    """One position, one hidden feature at a time."""
    row, phi = torch.tensor(row, dtype=torch.float64), FORMULAS[kind]
    result = layer.down.bias.clone() if layer.down.bias is not None else torch.zeros(WIDTH, dtype=torch.float64)
    for n in range(D_FF):
        values = {}
        for name in ("gate", "up"):
            if (projection := getattr(layer, name, None)) is not None:
                bias = 0 if projection.bias is None else projection.bias[n]
                values[name] = (projection.weight[n] @ row + bias).item()
        hidden = phi(values["gate"]) * values["up"] if kind == "swiglu" else phi(values["up"])
        result += hidden * layer.down.weight[:, n]
    return result.tolist()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_mlps_equal_a_loop_over_hidden_features(kind, bias, fill):
    layer = fill(mlp.build(config(mlp=kind, bias=bias)).double())
    assert type(layer) is (GatedMLP if kind == "swiglu" else MLP)
    x = draw()
    with torch.no_grad():
        rows = [[by_loop(layer, kind, row) for row in text] for text in x.tolist()]
        torch.testing.assert_close(layer(x), torch.tensor(rows, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_have_their_widths(kind):
    shapes = {"up": (D_FF, WIDTH), "down": (WIDTH, D_FF)} | ({"gate": (D_FF, WIDTH)} if kind == "swiglu" else {})
    for bias in (True, False):
        wanted = {f"{name}.weight": shape for name, shape in shapes.items()}
        wanted |= {f"{name}.bias": shape[:1] for name, shape in shapes.items()} if bias else {}
        layer = mlp.build(config(mlp=kind, bias=bias))
        assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == wanted


@pytest.mark.parametrize("experts", [1, EXPERTS])
def test_each_position_is_computed_by_itself(experts, fill):
    layer, x = fill(mlp.build(config(n_experts=experts)).double()), draw()
    changed = x.clone()
    changed[:, 2] += 1
    same = [0, 1, 3, 4]
    torch.testing.assert_close(layer(changed)[:, same], layer(x)[:, same], rtol=0, atol=1e-13)


# --- the width of SwiGLU ---------------------------------------------------------------------------------------------


def test_llama_2_s_width_follows_from_the_rule():
    assert swiglu_width(4096) == 11008  # Touvron et al. 2023: what the 7B model has


@given(st.integers(1, 20_000), st.integers(1, 1024))
def test_the_width_is_the_smallest_multiple_of_at_least_eight_thirds(d_model, multiple_of):
    width = swiglu_width(d_model, multiple_of=multiple_of)
    assert width % multiple_of == 0
    assert 3 * width >= 8 * d_model > 3 * (width - multiple_of)


@pytest.mark.parametrize(("d_model", "multiple_of"), [(0, 256), (-8, 256), (8, 0)])
def test_impossible_widths_are_refused(d_model, multiple_of):
    with pytest.raises(ValueError, match=f"got d_model={d_model}, multiple_of={multiple_of}"):
        swiglu_width(d_model, multiple_of=multiple_of)


# --- experts ---------------------------------------------------------------------------------------------------------


def mixture(fill, *, n_active=3, kind="swiglu", n_experts=EXPERTS) -> MixtureOfExperts:
    layer = fill(mlp.build(config(mlp=kind, n_experts=n_experts, n_active_experts=n_active)).double())
    assert type(layer) is MixtureOfExperts
    return layer


def token_by_token(layer: MixtureOfExperts, x: torch.Tensor, n_active: int) -> torch.Tensor:
    """Sort the experts by score, keep the best, weigh them by a softmax of the kept scores."""
    result = torch.zeros_like(x)
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            scores = (layer.router.weight @ x[b, t]).tolist()
            best = sorted(range(len(scores)), key=lambda n: -scores[n])[:n_active]
            whole = math.fsum(math.exp(scores[n]) for n in best)
            for n in best:
                result[b, t] += math.exp(scores[n]) / whole * layer.experts[n](x[b, t])
    return result


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_active", [1, 2, 3, EXPERTS])
def test_experts_equal_a_loop_over_tokens(n_active, kind, fill):
    layer, x = mixture(fill, n_active=n_active, kind=kind), draw()
    torch.testing.assert_close(layer(x), token_by_token(layer, x, n_active), rtol=0, atol=1e-12)
    assert layer.router.bias is None


def test_all_experts_active_is_the_softmax_mixture(fill):
    layer, x = mixture(fill, n_active=EXPERTS), draw()
    weights = F.softmax(x @ layer.router.weight.T, -1)
    wanted = sum(weights[..., n, None] * expert(x) for n, expert in enumerate(layer.experts))
    torch.testing.assert_close(layer(x), wanted, rtol=0, atol=1e-12)


def test_the_best_of_all_weights_rescaled_is_the_softmax_of_the_best():
    scores = draw(9, EXPERTS)
    weights, chosen = route(scores, 3)
    assert weights.shape == chosen.shape == (9, 3)
    kept = scores.softmax(-1).gather(-1, chosen)
    torch.testing.assert_close(weights, kept / kept.sum(-1, keepdim=True))
    assert torch.equal(chosen.sort(-1).values, scores.argsort(-1, descending=True)[:, :3].sort(-1).values)
    torch.testing.assert_close(weights.sum(-1), torch.ones(9).double())
    assert torch.equal(route(scores, 1)[0], torch.ones(9, 1).double())


def test_an_expert_that_nobody_chose_changes_nothing(fill):
    layer, x = mixture(fill, n_active=2), draw()
    with torch.no_grad():
        x[..., 0] = x[..., 0].abs() + 1
        layer.router.weight[[1, 4]] = 0.0
        layer.router.weight[[1, 4], 0] = -1000.0
    _, chosen = route(layer.router(x.flatten(0, -2)), 2)
    assert not ({1, 4} & {*chosen.flatten().tolist()})
    before = layer(x)
    with torch.no_grad():
        for n in (1, 4):
            for parameter in layer.experts[n].parameters():
                parameter.fill_(float("nan"))
    assert torch.equal(layer(x), before) and before.isfinite().all()
    torch.testing.assert_close(layer(x), token_by_token(layer, x, 2), rtol=0, atol=1e-12)


def test_one_token_leaves_most_experts_idle(fill):
    layer, x = mixture(fill, n_active=1), draw(1, 1, WIDTH)
    torch.testing.assert_close(layer(x), token_by_token(layer, x, 1), rtol=0, atol=1e-12)


def test_order_of_experts_does_not_matter(fill):
    layer, other, x = mixture(fill), mixture(fill), draw()
    order = [4, 0, 6, 2, 1, 5, 3]
    for n, old in enumerate(order):
        other.experts[n].load_state_dict(layer.experts[old].state_dict())
    with torch.no_grad():
        other.router.weight.copy_(layer.router.weight[order])
    torch.testing.assert_close(other(x), layer(x), rtol=0, atol=1e-12)


def test_any_leading_axes(fill):
    layer, x = mixture(fill), draw(2, 3, 4, WIDTH)
    for part in (layer, layer.experts[0]):
        torch.testing.assert_close(part(x).flatten(0, 2), part(x.flatten(0, 2)), rtol=0, atol=1e-13)
        assert part(x[0, 0, 0]).shape == (WIDTH,)
    copy = x.clone()
    layer(x)
    assert torch.equal(x, copy)


def test_one_expert_is_a_plain_mlp():
    assert type(mlp.build(config(n_experts=1))) is GatedMLP
    assert type(mlp.dense(dataclasses.replace(config(mlp="relu"), n_experts=5))) is MLP
