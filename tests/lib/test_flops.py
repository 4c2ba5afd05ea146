"""FLOPs against torch's counter on written-out products; the sources' figures by arithmetic of their own."""

import dataclasses
import math
from fractions import Fraction
from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from plainformer import flops, masks, parameters
from plainformer.attention import attention
from plainformer.cache import Cache
from plainformer.config import Config, preset, presets
from plainformer.flops import forward, sequence
from plainformer.heads import grouped_attention
from plainformer.model import EncoderDecoder, Transformer

ATTENTION = ("scores", "mix")


@st.composite
def configs(draw, **fixed):
    d_head, n_kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    n_experts = draw(st.sampled_from([1, 1, 3, 4]))
    causal = fixed.get("causal", draw(st.booleans()))
    choices = {
        "n_vocab": draw(st.integers(2, 40)),
        "d_model": 2 * d_head * n_kv_heads * group,
        "n_heads": n_kv_heads * group,
        "n_kv_heads": n_kv_heads,
        "n_context": 12,
        "d_ff": draw(st.integers(1, 30)),
        "n_layers": draw(st.integers(1, 3)),
        "n_experts": n_experts,
        "n_active_experts": draw(st.integers(1, n_experts)),
        "causal": causal,
        "window": draw(st.sampled_from([None, 1, 3, 5, 20])) if causal else None,
        "positions": draw(st.sampled_from(["none", "sinusoidal", "learned", "rotary"])),
        "norm_placement": draw(st.sampled_from(["pre", "post"])),
        "mlp": draw(st.sampled_from(["relu", "gelu", "gelu_tanh", "swiglu"])),
        "bias": draw(st.booleans()),
        "tied": draw(st.booleans()),
        "output": draw(st.sampled_from(["logits", "logits", "states", "pooled"])),
    }
    return Config(**choices | fixed)


def device_of(config: Config) -> str:
    return "cpu" if config.n_experts > 1 else "meta"  # which rows an expert gets is not known without numbers


def counted(model: torch.nn.Module, *inputs, **how) -> FlopCounterMode:
    """The counter after one call. The explicit attention: the fused one counts 0 on the CPU."""
    with FlopCounterMode(display=False) as counter:
        model(*inputs, **how)
    return counter


def by_part(counter: FlopCounterMode, name: str) -> dict[str, int]:
    """The counter's figures by the modules in which the products ran; scores and mix stand in no module of theirs."""
    parts = {}
    for path, operations in counter.get_flop_counts().items():
        if path != name and path.startswith(f"{name}."):
            parts[path.removeprefix(f"{name}.")] = sum(operations.values())
    return parts


@settings(max_examples=30)
@given(configs(), st.integers(1, 12))
def test_a_whole_sequence_is_what_the_counter_counts(config, n_positions):
    device = device_of(config)
    with torch.device(device):
        model, ids = Transformer(config, attend=attention), torch.zeros(1, n_positions, dtype=torch.long)
    counter, ours = counted(model, ids), sequence(config, n_positions, attention="full")
    assert sum(ours.values()) == counter.get_total_flops()
    theirs = by_part(counter, "Transformer")
    in_modules = {part: 0 for part in ("query", "key", "value", "out", "router", "gate", "up", "down", "pool")}
    for path, n in theirs.items():
        if (part := path.rpartition(".")[2]) in in_modules:
            in_modules[part] += n
    meeting = sum(n for path, n in theirs.items() if path.endswith(".attn")) - sum(
        in_modules[part] for part in ("query", "key", "value", "out")
    )
    assert {part: n for part, n in in_modules.items() if n} == {
        part: n for part, n in ours.items() if part not in (*ATTENTION, "unembed")
    }
    assert ours["scores"] == ours["mix"] == meeting / 2
    if config.output == "logits":
        assert ours["unembed"] == counter.get_total_flops() - sum(
            n for path, n in theirs.items() if path.startswith("blocks.") and path.count(".") == 1
        )
    assert all(type(n) is int and n > 0 for n in ours.values())


@settings(max_examples=10)
@given(configs(n_experts=1, n_active_experts=1, output="logits", causal=True), st.integers(1, 9), st.integers(1, 9))
def test_an_encoder_decoder_is_what_the_counter_counts(config, n_source, n_target):
    config = dataclasses.replace(config, n_encoder_layers=config.n_layers % 3 + 1, positions="none", window=None)
    with torch.device("meta"):
        model = EncoderDecoder(config, attend=attention)
        source, target = (torch.zeros(1, n, dtype=torch.long) for n in (n_source, n_target))
    ours = sequence(config, n_target, attention="full", n_source=n_source)
    counter = counted(model, source, target)
    assert sum(ours.values()) == counter.get_total_flops()
    theirs = by_part(counter, "EncoderDecoder")
    for part in ("query", "key", "value", "out"):
        assert ours[f"cross_{part}"] == sum(n for path, n in theirs.items() if path.endswith(f".cross.{part}"))
        assert ours[part] == sum(n for path, n in theirs.items() if path.endswith(f".attn.{part}"))


@given(configs(causal=True), st.integers(1, 12))
def test_the_visible_pairs_are_those_of_the_mask_each_query_by_itself(config, n_positions):
    """Every query meets its allowed keys alone, one small product after the other, under the counter."""
    mask = masks.causal(n_positions)
    if config.window is not None:
        mask = masks.sliding_window(n_positions, window=config.window)
    q = torch.randn(1, config.n_heads, n_positions, config.d_head)
    k, v = torch.randn(2, 1, config.n_kv_heads, n_positions, config.d_head)
    each = []
    for t in range(n_positions):
        with FlopCounterMode(display=False) as counter:
            grouped_attention(q[:, :, [t]], k[:, :, mask[t]], v[:, :, mask[t]])
        each.append(config.n_layers * counter.get_total_flops())
    whole, mean, last = (
        sequence(config, n_positions),
        forward(config, n_positions, attention="mean"),
        forward(config, n_positions),
    )
    assert whole["scores"] + whole["mix"] == sum(each)
    assert mean["scores"] + mean["mix"] == pytest.approx(sum(each) / n_positions, rel=1e-15)
    assert last["scores"] + last["mix"] == each[-1]


@settings(max_examples=20)
@given(configs(causal=True, window=None, output="logits"), st.integers(2, 12))
def test_the_last_token_is_a_step_of_decoding_with_a_cache(config, n_positions):
    ids = torch.zeros(1, n_positions, dtype=torch.long)
    model, cache = Transformer(config, attend=attention), Cache(config, 1)
    with torch.no_grad():
        model(ids[:, :-1], cache=cache)
        counter = counted(model, ids[:, -1:], cache=cache)
    assert sum(forward(config, n_positions).values()) == counter.get_total_flops()


@given(configs(), st.integers(1, 40))
def test_the_conventions_differ_in_attention_alone_and_bound_each_other(config, n_positions):
    last, mean, full = (forward(config, n_positions, attention=name) for name in flops.CONVENTIONS)
    for part in last:
        assert mean[part] <= last[part] <= full[part]
        assert part in ATTENTION or last[part] == mean[part] == full[part]
    if not config.causal:
        assert last == mean == full
    elif config.window is None:
        assert last == full
        assert mean["scores"] == pytest.approx(full["scores"] * (n_positions + 1) / (2 * n_positions), rel=1e-15)
    for name, token in (("mean", mean), ("full", full)):
        whole = sequence(config, n_positions, attention=name)
        assert {part: n * n_positions for part, n in token.items()} == pytest.approx(
            {part: n for part, n in whole.items() if part != "pool"}, rel=1e-15
        )


@given(configs(output="logits"))
def test_without_the_output_the_rest_is_the_same(config):
    token, bare = forward(config, 5), forward(config, 5, output=False)
    assert token == bare | {"unembed": 2 * config.d_model * config.n_vocab}
    whole, bare = sequence(config, 5), sequence(config, 5, output=False)
    assert whole == bare | {"unembed": 5 * token["unembed"]}


@given(configs(output="logits"))
def test_the_weights_that_multiply_are_the_matrices(config):
    """By the parameters of the module: matrices but tables, and of the experts the active ones."""
    with torch.device("meta"):
        model = Transformer(config)
    expected = 0
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and not name.startswith(("embed.", "positions.")):
            share = Fraction(config.n_active_experts, config.n_experts) if ".experts." in name else 1
            expected += share * parameter.numel()
    assert flops.multiplying_weights(config) == expected + config.tied * config.n_vocab * config.d_model


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_counted(name):
    config = preset(name)
    if config.n_encoder_layers:
        parts = parameters.breakdown(config)
        whole = sequence(config, 1, n_source=1)
        matrices = sum(n for part, n in whole.items() if part.rpartition("_")[2] not in ATTENTION) / 2
        biases = (config.n_layers + config.n_encoder_layers) * (config.d_ff + config.d_model)
        assert matrices + biases == sum(parts[part] for part in ("attention", "cross_attention", "mlp", "embed"))
        return
    biases = config.n_layers * (config.n_active_experts * (2 if config.mlp == "swiglu" else 1) * config.d_ff)
    biases = config.bias * (biases + config.n_layers * (3 * config.d_model + 2 * config.n_kv_heads * config.d_head))
    parts = parameters.breakdown(config)
    idle = parts["mlp"] * (config.n_experts - config.n_active_experts) // config.n_experts
    output = parts["embed"] if config.tied else parts["unembed"]
    expected = parts["attention"] + parts["router"] + parts["mlp"] - idle + output - biases
    assert flops.multiplying_weights(config) == expected


# --- the sources' figures ---------------------------------------------------------------------------------------------


def test_llama_2_7b_equals_the_counter_over_its_whole_context():
    config = preset("llama-2-7b")
    with torch.device("meta"):
        model, ids = Transformer(config, attend=attention), torch.zeros(1, 4_096, dtype=torch.long)
    counter = counted(model, ids)
    assert sum(sequence(config, 4_096, attention="full").values()) == counter.get_total_flops()
    assert sum(forward(config, 4_096, attention="full").values()) * 4_096 == counter.get_total_flops()


def test_llama_2_7b_s_figures_by_hand():
    config = preset("llama-2-7b")
    by_hand = 32 * (4 * 4_096 * 4_096 + 3 * 4_096 * 11_008) + 4_096 * 32_000
    assert flops.multiplying_weights(config) == by_hand == 6_607_077_376
    token = forward(config, 4_096)
    weights = sum(n for part, n in token.items() if part not in ATTENTION)
    assert weights == 2 * by_hand
    assert f"{weights / 1e9:.1f}" == "13.2"
    assert token["scores"] + token["mix"] == 4 * 4_096 * 4_096 * 32 == 2_147_483_648
    assert round(100 * (token["scores"] + token["mix"]) / weights) == 16
    mean = forward(config, 4_096, attention="mean")
    assert f"{100 * (mean['scores'] + mean['mix']) / weights:.1f}" == "8.1"
    ratio = [sequence(config, n)["scores"] for n in (8_192, 4_096)]
    assert ratio[0] / ratio[1] == pytest.approx(2 * 8_193 / 4_097, rel=1e-15)


def test_backward_costs_twice_what_forward_costs():
    config = Config(n_vocab=13, d_model=12, n_heads=3, n_kv_heads=1, n_context=7, d_ff=10, n_layers=2)
    model = Transformer(config, attend=attention)
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, 7, dtype=torch.long)).sum().backward()
    assert counter.get_total_flops() == 3 * sum(sequence(config, 7, attention="full").values())


@pytest.mark.parametrize(
    ("n_positions", "stated", "mean"),
    [
        (2_048, "7.7%", "4.0%"),
        (8_192, "25.0%", "14.3%"),
        (16_384, "40.0%", "25.0%"),
        (32_768, "57.1%", "40.0%"),
        (131_072, "84.2%", "72.7%"),
    ],
)
def test_attention_s_share(n_positions, stated, mean):
    d = 4_096
    share = flops.attention_share(d, n_positions)
    assert share == pytest.approx(4 * n_positions * d / (24 * d * d + 4 * n_positions * d), rel=1e-15)
    assert f"{share:.1%}" == stated == f"{flops.attention_share(d, n_positions, attention='full'):.1%}"
    assert f"{flops.attention_share(d, n_positions, attention='mean'):.1%}" == mean


@given(st.integers(1, 300), st.integers(1, 400))
def test_the_shortcut_is_exact_where_its_assumptions_hold(n_heads, n_positions):
    d = 6 * n_heads
    sizes = {"d_model": d, "n_heads": n_heads, "n_kv_heads": n_heads, "n_vocab": 9, "n_context": 5, "n_layers": 1}
    for mlp, d_ff in (("swiglu", 8 * d // 3), ("gelu", 4 * d)):
        token = forward(Config(d_ff=d_ff, mlp=mlp, **sizes), n_positions, output=False)
        parts = flops.estimate(d, n_positions)
        assert parts["projections"] == sum(token[part] for part in ("query", "key", "value", "out"))
        assert parts["attention"] == token["scores"] + token["mix"]
        assert parts["mlp"] == sum(token.get(part, 0) for part in ("gate", "up", "down"))
        mean = forward(Config(d_ff=d_ff, mlp=mlp, **sizes), n_positions, attention="mean")
        exact = mean["scores"] + mean["mix"]
        assert exact - flops.estimate(d, n_positions, attention="mean")["attention"] == 2 * d  # 2 (T + 1) d − 2 T d


@given(st.integers(1, 20_000), st.sampled_from(flops.CONVENTIONS))
def test_at_the_crossover_attention_does_one_half(d_model, convention):
    n_positions = flops.crossover(d_model, convention)
    assert flops.attention_share(d_model, n_positions, attention=convention) == 0.5
    assert flops.attention_share(d_model, n_positions + 1, attention=convention) > 0.5
    assert n_positions == (12 if convention == "mean" else 6) * d_model


# --- cost -------------------------------------------------------------------------------------------------------------


def test_seven_billion_on_two_trillion_tokens():
    n = flops.training_flops(7e9, 2e12)
    assert n == 84 * 10**21 and type(n) is int
    seconds = 84e21 / (1_024 * 4e14)
    assert flops.training_days(n, 4e14, n_devices=1_024) == pytest.approx(seconds / 24 / 60 / 60, rel=1e-12)
    assert f"{flops.training_days(n, 4e14, n_devices=1_024):.1f}" == "2.4"
    cost = flops.training_cost(n, 4e14, price_per_hour=2)
    assert cost == pytest.approx(1_024 * seconds / 60 / 60 * 2, rel=1e-12)
    assert round(cost, -3) == 117_000
    assert flops.training_energy(n, 4e14, watts=700) == pytest.approx(1_024 * seconds * 700 / 3.6e6, rel=1e-12)


@given(st.integers(1, 10**13), st.integers(1, 10**14))
def test_6nd_is_exact(n_parameters, n_tokens):
    assert flops.training_flops(n_parameters, n_tokens) == 6 * n_parameters * n_tokens


@given(st.floats(1e-3, 1), st.integers(1, 2_000), st.floats(1e9, 1e15), st.floats(1, 1e6))
def test_mfu_gives_back_the_utilisation_at_which_a_run_went(share, n_devices, peak, seconds):
    n_parameters = 10**6
    n_tokens = math.ceil(share * peak * n_devices * seconds / (6 * n_parameters))
    reached = 6 * n_parameters * n_tokens / seconds / peak / n_devices
    if reached <= 1:
        assert flops.mfu(n_parameters, n_tokens, seconds, peak, n_devices) == pytest.approx(reached, rel=1e-12)


def test_an_mfu_above_one_is_refused_with_its_usual_causes():
    assert flops.mfu(100, 100, 1, 60_000) == 1
    with pytest.raises(ValueError, match=r"1\.50 of the peak.*number format.*looked up"):
        flops.mfu(100, 100, 1, 40_000)


# --- the measured peak ------------------------------------------------------------------------------------------------


class Clock:
    """Stands still but for the readings given; each product takes the next of the durations."""

    def __init__(self, *durations: float):
        self.readings = iter([reading for seconds in durations for reading in (100.0, 100.0 + seconds)])

    def __call__(self) -> float:
        return next(self.readings)


def test_the_peak_is_a_product_s_flops_over_the_best_time_but_the_first(monkeypatch):
    monkeypatch.setattr(flops, "time", SimpleNamespace(perf_counter=Clock(0.125, 4, 0.5, 2)))
    assert flops.measure_peak(n=8, n_repeats=3) == 2 * 8**3 / 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_peak_is_measured_on_products_of_the_stated_type_and_size(dtype):
    seen = []

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if function is torch.ops.aten.mm.default:
                seen.append((result.dtype, [tuple(x.shape) for x in args]))
            return result

    with Products():
        assert 0 < flops.measure_peak(dtype, 16, n_repeats=2) < math.inf
    assert seen == [(dtype, [(16, 16), (16, 16)])] * 3


# --- what is refused --------------------------------------------------------------------------------------------------

TINY = Config(n_vocab=7, d_model=4, n_heads=2, n_kv_heads=1, n_context=9, d_ff=6, n_layers=1)
TWO_STACKS = dataclasses.replace(TINY, n_encoder_layers=2, positions="none")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: forward("gpt2-small", 5), TypeError, "takes a Config, not str"),
        (lambda: sequence(None, 5), TypeError, "takes a Config, not NoneType"),
        (lambda: flops.multiplying_weights({}), TypeError, "takes a Config, not dict"),
        (lambda: forward(TINY, 0), ValueError, "n_positions=0"),
        (lambda: sequence(TINY, -1), ValueError, "n_positions=-1"),
        (lambda: sequence(TINY, 2.5), ValueError, r"n_positions=2\.5 must be a whole number"),
        (lambda: forward(TINY, 5, attention="causal"), ValueError, "'causal' is no convention.*'mean'"),
        (lambda: flops.crossover(8, "median"), ValueError, "'median' is no convention"),
        (lambda: flops.attention_share(8, 4, attention="half"), ValueError, "'half' is no convention"),
        (lambda: sequence(TINY, 5, attention="last"), ValueError, "must be 'mean' or 'full'"),
        (lambda: forward(TWO_STACKS, 5), ValueError, r"use sequence\(\)"),
        (lambda: sequence(TWO_STACKS, 5), ValueError, "n_source=None"),
        (lambda: sequence(TINY, 5, n_source=4), ValueError, "n_source=4"),
        (lambda: sequence(TWO_STACKS, 5, n_source=0), ValueError, "n_source=0"),
        (lambda: flops.estimate(0, 5), ValueError, "d_model=0"),
        (lambda: flops.crossover(-4), ValueError, "d_model=-4"),
        (lambda: flops.training_flops(0, 5), ValueError, "n_parameters=0"),
        (lambda: flops.training_flops(5, math.nan), ValueError, "n_tokens=nan"),
        (lambda: flops.training_flops(5, 1.5), ValueError, r"n_tokens=1\.5"),
        (lambda: flops.training_days(5, 0), ValueError, "flops_per_second=0"),
        (lambda: flops.training_days(5, 5, n_devices=0), ValueError, "n_devices=0"),
        (lambda: flops.training_cost(5, math.inf, price_per_hour=2), ValueError, "flops_per_second=inf"),
        (lambda: flops.training_cost(5, 5, price_per_hour=-2), ValueError, "price_per_hour=-2"),
        (lambda: flops.training_energy(5, 5, watts=0), ValueError, "watts=0"),
        (lambda: flops.mfu(5, 5, 0, 5), ValueError, "seconds=0"),
        (lambda: flops.mfu(5, 5, 5, -1), ValueError, "peak_flops=-1"),
        (lambda: flops.mfu(5, 5, 5, 5, 0), ValueError, "n_devices=0"),
        (lambda: flops.measure_peak(torch.int64), TypeError, "int64"),
        (lambda: flops.measure_peak(n=0), ValueError, "n=0"),
        (lambda: flops.measure_peak(n=2, n_repeats=0), ValueError, "n_repeats=0"),
    ],
)
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()
