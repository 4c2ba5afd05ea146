"""The fast model against the one it was made from: same results, same state of torch, fewer bytes.

Every size differs, float64 where a path allows it. In float32 the two may differ by the order of additions
alone: ``CLOSE`` is 1,000 roundings of 2⁻²⁴, relative to the largest logit.
"""

import shutil
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from plainformer import fast
from plainformer.cache import Cache
from plainformer.config import Config
from plainformer.model import EncoderDecoder, Transformer
from plainformer.sampling import generate

LLAMA = Config(n_vocab=46, d_model=24, n_heads=6, n_kv_heads=2, n_context=40, d_ff=34, n_layers=7, tied=True)
MODELS = {
    "llama, tied": LLAMA,
    "gpt-2": Config(
        n_vocab=38, d_model=20, n_heads=5, n_kv_heads=5, n_context=40, d_ff=44, n_layers=3,
        norm="layer", mlp="gelu_tanh", positions="learned", bias=True, tied=True,
    ),
    "a window": Config(n_vocab=46, d_model=24, n_heads=6, n_kv_heads=3, n_context=40, d_ff=34, n_layers=2, window=5),
    "experts": Config(
        n_vocab=46, d_model=24, n_heads=6, n_kv_heads=2, n_context=40, d_ff=10, n_layers=2,
        n_experts=4, n_active_experts=2,
    ),
    "post-norm, one group": Config(
        n_vocab=46, d_model=24, n_heads=6, n_kv_heads=1, n_context=40, d_ff=34, n_layers=2,
        norm_placement="post", norm="layer", mlp="relu", positions="sinusoidal", bias=True,
    ),
}  # fmt: skip
CLOSE = 1_000 * 2**-24


def build(config: Config, dtype=torch.float32) -> Transformer:
    """A random model whose logits are far apart and whose biases and norms do something."""
    torch.manual_seed(1)
    model = Transformer(config).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn_like(parameter) * 0.2
    return model.eval()


def draw(config: Config, n_sequences: int, n_positions: int) -> torch.Tensor:
    return torch.randint(config.n_vocab, (n_sequences, n_positions), generator=torch.Generator().manual_seed(2))


def in_steps(model, ids: torch.Tensor, dtype, n_first: int = 11) -> torch.Tensor:
    """Logits of every position: a first part at once, the rest token by token."""
    cache = Cache(model.config, len(ids), ids.shape[1], dtype=dtype)
    parts = [model(ids[:, :n_first], cache=cache)]
    parts += [model(ids[:, n : n + 1], cache=cache, last_only=True) for n in range(n_first, ids.shape[1])]
    assert cache.lengths == [ids.shape[1]] * len(ids)
    return torch.cat(parts, 1)


def assert_close(ours, theirs, error):
    assert ours.shape == theirs.shape
    assert (ours.double() - theirs.double()).abs().max() <= error * theirs.double().abs().max()


@pytest.mark.parametrize("n_sequences", [1, 3])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype, error", [(torch.float64, 1e-12), (torch.float32, CLOSE)])
def test_logits_are_the_model_s_own(name, n_sequences, dtype, error):
    model = build(MODELS[name], dtype)
    ids = draw(model.config, n_sequences, 23)
    with torch.no_grad():
        expected = model(ids)
    ours = fast.prepare(model)
    assert_close(ours(ids), expected, error)
    assert_close(in_steps(ours, ids, dtype), expected, error)


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("shape", [(1, 1, 6), (6,), (2, 3, 6), (17, 6), (0, 6)], ids=str)
@pytest.mark.parametrize("n_out", [8, 9], ids="{} outputs".format)
def test_the_product_dealt_out_is_the_product(n_out, shape, bias):
    torch.set_num_threads(2)  # 8 rows go to them in halves, 9 do not
    x, weight, b = torch.randn(shape), torch.randn(n_out, 6), torch.randn(n_out) if bias else None
    expected = F.linear(x, weight, b)
    torch.testing.assert_close(fast.linear(x, weight, b), expected, rtol=0, atol=1e-5)


def test_bfloat16_is_as_near_as_the_plain_model_in_bfloat16():
    exact = build(LLAMA, torch.float64)
    ids = draw(LLAMA, 1, 23)
    with torch.no_grad():
        expected, plain = exact(ids), build(LLAMA).to(torch.bfloat16)(ids)
    ours = fast.prepare(build(LLAMA), dtype=torch.bfloat16)
    for logits in (ours(ids), in_steps(ours, ids, torch.bfloat16)):
        assert logits.dtype == torch.bfloat16
        assert (logits - expected).norm() <= 1.5 * (plain - expected).norm()


@pytest.mark.parametrize("lengths", [[13, 13, 13], [13, 4, 9]], ids=["alike", "of unequal length"])
def test_it_generates_the_same_tokens(lengths):
    model = build(LLAMA)
    prompts = [row[:n].tolist() for row, n in zip(draw(LLAMA, 3, 13), lengths)]
    assert generate(fast.prepare(model), prompts, 20) == generate(model, prompts, 20)


COMPILED = """
import torch
from plainformer import fast
from plainformer.cache import Cache
from plainformer.config import Config
from plainformer.model import Transformer

torch.manual_seed(1)
torch.set_num_threads(1)
fast._BLOCKS_AT_ONCE = 2  # of three: the last is compiled by itself
model = Transformer(Config({config}))
for parameter in model.parameters():
    parameter.data += torch.randn_like(parameter) * 0.2
ids = torch.randint(46, ({n_sequences}, 16))

def in_steps(model):
    cache = Cache(model.config, *ids.shape)
    return torch.cat([model(ids[:, :9], cache=cache)] + [model(ids[:, n:n + 1], cache=cache) for n in range(9, 16)], 1)

expected = fast.prepare(model, int8=True)(ids) if {int8} else model(ids)
ours = in_steps(fast.prepare(model, compiled=True, int8={int8}))
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 2, torch._dynamo.utils.counters
assert not torch._dynamo.utils.counters["graph_break"], torch._dynamo.utils.counters
print(float((ours - expected).abs().max() / expected.abs().max()))
"""
SIZES = "n_vocab=46, d_model=24, n_heads=6, n_kv_heads=2, n_context=40, d_ff=34, n_layers=3"


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++", "cl"))), reason="needs a C++ compiler")
@pytest.mark.parametrize(
    "choices, n_sequences, int8",
    [
        (", tied=True, window=5", 1, False),
        (', norm="layer", mlp="gelu", positions="learned", bias=True', 1, True),
        (", tied=True", 2, False),
    ],
    ids=["window", "gpt-2 in int8", "two sequences"],
)
def test_the_compiled_step_gives_the_same_logits(choices, n_sequences, int8):
    """In a process of its own: the compiler would stumble over the checks that tests put around each function."""
    script = COMPILED.format(config=SIZES + choices, n_sequences=n_sequences, int8=int8)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert float(ran.stdout) <= CLOSE


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_int8_is_the_weight_to_half_a_scale(dtype):
    weight = (torch.randn(70, 12) * torch.logspace(-6, 3, 70)[:, None]).to(dtype)
    weight[3] = 0
    integers, scale = fast.quantise(weight)
    assert integers.dtype == torch.int8 and integers.max() == 127 and integers.min() == -127
    assert ((integers * scale[:, None] - weight).abs() <= 0.5001 * scale[:, None]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n_rows", [1, 5, 40])
def test_an_int8_projection_is_the_product_with_the_rounded_weight(n_rows, dtype):
    weight, bias, x = torch.randn(14, 24), torch.randn(14), torch.randn(n_rows, 24)
    integers, scale = fast.quantise(weight)
    expected = F.linear(x.double(), (integers * scale[:, None]).double(), bias.double())
    ours = fast.Linear(weight, bias, dtype, int8=True)(x.to(dtype))
    assert_close(ours, expected, 2e-2 if dtype == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_int8_logits_are_near(dtype):
    model = build(LLAMA)
    ids = draw(LLAMA, 1, 30)
    with torch.no_grad():
        expected = model(ids).log_softmax(-1)
    ours = fast.prepare(model, dtype=dtype, int8=True)
    for logits in (ours(ids), in_steps(ours, ids, dtype)):
        got = logits.double().log_softmax(-1)
        chosen = (x.gather(-1, ids.roll(-1, 1)[..., None]).mean() for x in (got, expected))
        assert next(chosen) == pytest.approx(next(chosen).item(), rel=0.01)


def test_weights_are_shared_unless_the_type_changes():
    model = build(LLAMA)
    ours = fast.prepare(model)
    assert ours.blocks[1].attn.query.weight.data_ptr() == model.blocks[1].attn.query.weight.data_ptr()
    assert ours.unembed.weight.data_ptr() == ours.embed.weight.data_ptr() == model.embed.weight.data_ptr()
    assert not any(parameter.requires_grad for parameter in ours.parameters())
    assert all(parameter.requires_grad for parameter in model.parameters())
    int8 = fast.prepare(model, int8=True)
    assert int8.unembed.weight.dtype == int8.blocks[0].mlp.down.weight.dtype == torch.int8


def state_of_torch() -> tuple:
    return torch.backends.mkldnn.enabled, torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype()


@pytest.mark.parametrize("enabled", [True, False])
def test_torch_is_left_as_it_was(enabled):
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = enabled
    try:
        state = state_of_torch()
        ours = fast.prepare(build(LLAMA), dtype=torch.bfloat16)
        cache = Cache(LLAMA, 1, 2, dtype=torch.bfloat16)
        seen = []
        ours.final_norm.register_forward_hook(lambda *_: seen.append(torch.backends.mkldnn.enabled))
        ours(draw(LLAMA, 1, 1), cache=cache)
        ours(draw(LLAMA, 1, 3))
        assert seen == [False, enabled]  # off for one row alone
        assert state_of_torch() == state
        with pytest.raises(ValueError):
            ours(torch.tensor([[LLAMA.n_vocab]]), cache=cache)
        assert state_of_torch() == state
    finally:
        torch.backends.mkldnn.enabled = before


def test_bad_steps_get_the_library_s_own_errors_and_change_nothing():
    ours = fast.prepare(build(LLAMA))
    cache = Cache(LLAMA, 1, 3)
    ours(draw(LLAMA, 1, 3), cache=cache)
    kept = cache.keys.clone()
    with pytest.raises(ValueError, match="do not fit"):
        ours(draw(LLAMA, 1, 1), cache=cache)
    with pytest.raises(ValueError, match="the cache holds 1 sequences"):
        ours(draw(LLAMA, 2, 1), cache=cache)
    with pytest.raises(ValueError, match="another model"):
        ours(draw(LLAMA, 1, 1), cache=Cache(LLAMA, 1, 3, dtype=torch.bfloat16))
    assert cache.lengths == [3] and torch.equal(cache.keys, kept)


def test_what_is_no_transformer_is_refused():
    config = Config(
        n_vocab=46, d_model=24, n_heads=6, n_kv_heads=6, n_context=40, d_ff=34, n_layers=1, n_encoder_layers=1,
        positions="sinusoidal",
    )  # fmt: skip
    with pytest.raises(TypeError, match="expected a Transformer"):
        fast.prepare(EncoderDecoder(config))
    with pytest.raises(TypeError, match="expected a Transformer"):
        fast.prepare(fast.prepare(build(LLAMA)))
