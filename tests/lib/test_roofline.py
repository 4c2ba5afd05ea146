"""The roofline against what a step really reads and multiplies, and against arithmetic written out."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from plainformer import roofline
from plainformer.attention import attention
from plainformer.cache import Cache
from plainformer.config import Config, preset
from plainformer.model import Transformer

SIZES = {"n_vocab": 29, "d_model": 12, "n_heads": 6, "n_kv_heads": 2, "n_context": 11, "d_ff": 10, "n_layers": 3}
KINDS = {
    "untied": Config(**SIZES),
    "tied": Config(**SIZES, tied=True),
    "gpt-2": Config(**SIZES, positions="learned", norm="layer", mlp="gelu", bias=True, tied=True),
    "learned": Config(**SIZES, positions="learned", norm_placement="post"),
    "types": Config(**SIZES, n_token_types=2, embed_norm=True),
    "window": Config(**SIZES, window=4),
    "experts": Config(**SIZES, n_experts=5, n_active_experts=2),
}
H100 = {"bandwidth": 3.35e12, "peak": 989.4e12}  # bytes per second of its memory, dense bfloat16 FLOP/s


class Reads(TorchDispatchMode):
    """Adds up the parameters that operations take: a lookup its rows, everything else the whole tensor, once."""

    def __init__(self, model):
        super().__init__()
        self.left = {p.data_ptr(): p.numel() for p in model.parameters()}
        self.n_read = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        made = result[0] if isinstance(result, tuple) else result
        if function is torch.ops.aten.index.Tensor and args[0].data_ptr() in self.left:
            self.n_read += result.numel()
        elif not function.is_view and isinstance(made, torch.Tensor) and made.numel():
            for x in args:
                if isinstance(x, torch.Tensor):
                    self.n_read += self.left.pop(x.data_ptr(), 0)
        return result


@pytest.mark.parametrize(  # which experts two tokens choose is chance: their mean is tested below
    ("kind", "n_sequences"), [(kind, n) for kind in KINDS for n in (1, 2) if kind != "experts" or n == 1]
)
def test_the_weights_of_a_step_are_those_that_its_operations_take(kind, n_sequences):
    config = KINDS[kind]
    model, cache = Transformer(config, attend=attention), Cache(config, n_sequences)
    lengths = range(1, n_sequences + 1)  # different ones, so that each sequence stands at a position of its own
    with torch.no_grad():
        model(torch.zeros(n_sequences, n_sequences, dtype=torch.long), lengths=lengths, cache=cache)
        with Reads(model) as reads:
            model(torch.arange(n_sequences)[:, None], cache=cache)
    n_read = reads.n_read
    if config.tied:  # the lookup's rows are rows of the table that the last product reads whole
        n_read -= n_sequences * config.d_model
    assert roofline.weights_read(config, n_sequences) == n_read


@pytest.mark.parametrize(("n_experts", "n_active", "n_tokens"), [(4, 2, 1), (4, 2, 3), (5, 1, 4), (3, 3, 2), (6, 4, 2)])
def test_of_the_experts_a_batch_reads_the_mean_number_of_different_ones(n_experts, n_active, n_tokens):
    config = Config(**SIZES, n_experts=n_experts, n_active_experts=n_active)
    choices = list(itertools.combinations(range(n_experts), n_active))
    batches = list(itertools.product(choices, repeat=n_tokens))
    mean = sum(len(set().union(*batch)) for batch in batches) / len(batches)
    d, d_kv = 12, 4
    dense = 3 * (2 * d * d + 2 * d * d_kv + 2 * d + d * n_experts) + d + 29 * d
    expected = dense + 3 * mean * 3 * d * 10 + min(n_tokens, 29) * d
    assert roofline.weights_read(config, n_tokens) == pytest.approx(expected, rel=1e-12)


def test_a_lookup_reads_no_more_than_its_table():
    assert roofline.weights_read(KINDS["untied"], 10**6) == sum(
        p.numel() for p in Transformer(KINDS["untied"]).parameters()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_cache_s_bytes_are_those_that_are_allocated(kind):
    config = KINDS[kind]
    for n_positions in (1, 4, 5, 11):
        kept = min(n_positions, config.window or n_positions)
        for dtype in (torch.float32, torch.bfloat16):
            cache = Cache(config, 3, kept, dtype=dtype)
            parts = roofline.bytes_per_step(config, 3, n_positions, n_bytes_weights=0.5, n_bytes_cache=dtype.itemsize)
            assert parts["cache"] == cache.keys.nbytes + cache.values.nbytes
            assert parts["weights"] == 0.5 * roofline.weights_read(config, 3)


def test_llama_2_7b_on_an_h100_by_hand():
    config = preset("llama-2-7b")
    row, matrices, norms = 4_096, 6_607_077_376, 65 * 4_096
    assert roofline.bytes_per_step(config, 6, 4_096) == {
        "weights": 2 * (matrices + norms + 6 * row),
        "cache": 6 * 2 * 2**30,
    }
    assert round(100 * roofline.weights_read(config, 1) / 6_738_415_616, 2) == 98.05
    intensity = 2 * matrices / roofline.bytes_per_step(config, 1, 1)["weights"]
    assert f"{intensity:.2f}" == "1.00"
    seconds = (2 * (matrices + norms + row) + 2 * 2**30) / 3.35e12
    assert roofline.decode_seconds(config, 1, 4_096, **H100) == pytest.approx(seconds, rel=1e-12)
    assert roofline.decode_tokens_per_second(config, 1, 4_096, **H100) == pytest.approx(1 / seconds, rel=1e-12)
    assert roofline.balance_batch(config, **H100) == math.ceil(989.4 / 3.35 * (matrices + norms) / matrices)
    attention_flops = 32 * 2 * 4_096 * 4_096 * 4_097
    products = 4_096 * 2 * (matrices - 4_096 * 32_000) + 2 * 4_096 * 32_000 + attention_flops
    assert roofline.prefill_seconds(config, 1, 4_096, **H100) == pytest.approx(products / 989.4e12, rel=1e-12)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "window"])  # a step counts hidden keys too
def test_a_step_takes_as_long_as_the_slower_of_its_bytes_and_its_flops(kind):
    config, n_positions = KINDS[kind], 7
    model, cache = Transformer(config, attend=attention), Cache(config, 2)
    with torch.no_grad():
        model(torch.zeros(2, n_positions - 1, dtype=torch.long), cache=cache)
        with FlopCounterMode(display=False) as counter:
            model(torch.zeros(2, 1, dtype=torch.long), cache=cache)
    n_flops, n_bytes = counter.get_total_flops(), sum(roofline.bytes_per_step(config, 2, n_positions).values())
    for bandwidth, peak in ((1e3, 1e12), (1e12, 1e3), (1e3, 1e3)):
        seconds = roofline.decode_seconds(config, 2, n_positions, bandwidth=bandwidth, peak=peak)
        assert seconds == pytest.approx(max(n_bytes / bandwidth, n_flops / peak), rel=1e-12)
        speed = roofline.decode_tokens_per_second(config, 2, n_positions, bandwidth=bandwidth, peak=peak)
        assert speed == pytest.approx(2 / seconds, rel=1e-12)
    half = {"n_bytes_weights": 1, "n_bytes_cache": 1}
    slow = {"bandwidth": 1e3, "peak": 1e12}
    assert roofline.decode_seconds(config, 2, 7, **slow, **half) == pytest.approx(n_bytes / 2 / 1e3, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_multiplies_what_the_model_multiplies_but_for_hidden_keys(kind):
    config = KINDS[kind]
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        Transformer(config, attend=attention)(torch.zeros(2, 9, dtype=torch.long), last_only=True)
    window = config.window or 9
    pairs = sum(min(t, window) for t in range(1, 10))
    hidden = 2 * 3 * 4 * 12 * (81 - pairs)  # sequences, layers, two products, width
    seconds = roofline.prefill_seconds(config, 2, 9, bandwidth=1e12, peak=1e3)
    assert seconds == pytest.approx((counter.get_total_flops() - hidden) / 1e3, rel=1e-12)
    n_bytes = 4 * roofline.weights_read(config, 18) + 2 * 9 * 3 * 2 * 4 * 1
    seconds = roofline.prefill_seconds(config, 2, 9, bandwidth=1e3, peak=1e12, n_bytes_weights=4, n_bytes_cache=1)
    assert seconds == pytest.approx(n_bytes / 1e3, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ratio", [0.1, 1, 3, 20, 400])
@pytest.mark.parametrize("n_bytes", [0.5, 2])
def test_the_balance_is_the_first_batch_whose_products_outlast_the_reads(kind, ratio, n_bytes):
    """Found by trying batch after batch."""
    config = KINDS[kind]
    experts = config.n_active_experts * 3 * 12 * 10 if config.mlp == "swiglu" else 2 * 12 * 10
    router = 12 * config.n_experts if config.n_experts > 1 else 0
    multiplied = 3 * (2 * 12 * 12 + 2 * 12 * 4 + router + experts) + 12 * 29

    def reads_are_the_limit(n_sequences):
        n_read = roofline.bytes_per_step(config, n_sequences, 1, n_bytes_weights=n_bytes)["weights"]
        return n_read > n_sequences * 2 * multiplied / ratio

    first = next(n for n in itertools.count(1) if not reads_are_the_limit(n))
    assert roofline.balance_batch(config, bandwidth=7.0, peak=7.0 * ratio, n_bytes_weights=n_bytes) == first


def test_many_experts_need_a_larger_batch():
    assert roofline.balance_batch(preset("mixtral-8x7b"), **H100) > 3 * roofline.balance_batch(
        preset("mistral-7b"), **H100
    )


class Clock:
    """Stands still but for the readings given; each sum takes the next of the durations."""

    def __init__(self, *durations: float):
        self.readings = iter([reading for seconds in durations for reading in (100.0, 100.0 + seconds)])

    def __call__(self) -> float:
        return next(self.readings)


def test_the_bandwidth_is_the_bytes_over_the_best_time_but_the_first(monkeypatch):
    monkeypatch.setattr(roofline, "time", SimpleNamespace(perf_counter=Clock(0.125, 4, 0.5, 2)))
    assert roofline.measure_bandwidth(4_003, n_repeats=3) == 4_000 / 0.5


def test_a_bandwidth_is_measured():
    assert 0 < roofline.measure_bandwidth(2**16) < math.inf


ENCODER = Config(**SIZES, causal=False)
POOLED = Config(**SIZES, output="pooled")
TWO_STACKS = Config(**SIZES, n_encoder_layers=1, positions="none")
MACHINE = {"bandwidth": 1.0, "peak": 1.0}
TINY = KINDS["untied"]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        *(
            (call, ValueError, "causal, one stack, with logits")
            for config in (ENCODER, POOLED, TWO_STACKS)
            for call in (
                lambda config=config: roofline.bytes_per_step(config, 1, 1),
                lambda config=config: roofline.prefill_seconds(config, 1, 1, **MACHINE),
                lambda config=config: roofline.balance_batch(config, **MACHINE),
            )
        ),
        (lambda: roofline.weights_read("gpt2-small", 1), TypeError, "takes a Config, not str"),
        (lambda: roofline.bytes_per_step(TINY, 0, 1), ValueError, "n_tokens=0|n_sequences=0"),
        (lambda: roofline.bytes_per_step(TINY, 1, 0), ValueError, "n_positions=0"),
        (lambda: roofline.bytes_per_step(TINY, 1, 1, n_bytes_weights=0), ValueError, "n_bytes_weights=0"),
        (lambda: roofline.bytes_per_step(TINY, 1, 1, n_bytes_cache=0), ValueError, "n_bytes=0"),
        (lambda: roofline.decode_seconds(TINY, 1, 1, bandwidth=0, peak=1), ValueError, "bandwidth=0"),
        (lambda: roofline.decode_seconds(TINY, 1, 1, bandwidth=1, peak=math.nan), ValueError, "peak=nan"),
        (lambda: roofline.balance_batch(TINY, bandwidth=math.inf, peak=1), ValueError, "bandwidth=inf"),
        (lambda: roofline.balance_batch(TINY, bandwidth=1, peak=-1), ValueError, "peak=-1"),
        (lambda: roofline.measure_bandwidth(3), ValueError, "n_bytes=3 holds no number"),
        (lambda: roofline.measure_bandwidth(0), ValueError, "n_bytes=0"),
        (lambda: roofline.measure_bandwidth(64, n_repeats=0), ValueError, "n_repeats=0"),
    ],
)
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()
