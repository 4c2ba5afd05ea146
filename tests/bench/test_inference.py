"""SmolLM2-135M writing and reading: ours, plain and fast, against Hugging Face and against the machine's own limits.

128 prompt tokens and 128 greedy ones for decoding, 1,024 for prefill, one sequence, the same weights for all.
"""

import functools
import importlib.metadata
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from classroom import running_sum
from plainformer import fast, flops, roofline
from plainformer.attention import fast_attention
from plainformer.cache import Cache
from plainformer.config import preset
from plainformer.pretrained import export, load, tokenizer_of
from plainformer.training import next_token_loss

N_PROMPT, N_NEW, N_PREFILL = 128, 128, 1_024
SLACK = 0.75  # a noisy machine misses a target now and then by less than this
# the table says which targets of decoding are missed: how far Hugging Face is from the memory's limit differs by a
# factor of two between machines, and leaves less room on some than the targets ask for; what fails is a broken path
DECODE_SLACK = 0.5
CONFIG = preset("smollm2-135m")
BOTH = {"float32": torch.float32, "bfloat16": torch.bfloat16}
TEXT = Path(__file__).parents[2] / "chapters" / "data" / "loom.txt"


@pytest.fixture(scope="session")
def gguf() -> Path:
    try:
        return running_sum.weights_file()
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs SmolLM2's weights: run `make weights`")


@pytest.fixture(scope="session", params=BOTH)
def dtype(request) -> torch.dtype:
    return BOTH[request.param]


@pytest.fixture(scope="session")
def folder(gguf, tmp_path_factory):
    """The weights of one type as Hugging Face keeps them: what either library loads, mapped and not copied."""
    from safetensors.torch import save_file
    from transformers import LlamaConfig

    @functools.cache
    def write(dtype: torch.dtype) -> Path:
        path = tmp_path_factory.mktemp("smollm2")
        tensors = export(load(gguf, "smollm2-135m", dtype=dtype), "llama")
        save_file({name: w.contiguous() for name, w in tensors.items()}, path / "model.safetensors", {"format": "pt"})
        LlamaConfig(
            vocab_size=CONFIG.n_vocab,
            hidden_size=CONFIG.d_model,
            intermediate_size=CONFIG.d_ff,
            num_hidden_layers=CONFIG.n_layers,
            num_attention_heads=CONFIG.n_heads,
            num_key_value_heads=CONFIG.n_kv_heads,
            max_position_embeddings=CONFIG.n_context,
            rms_norm_eps=CONFIG.norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": CONFIG.rope_base},
            tie_word_embeddings=True,
            dtype=str(dtype).removeprefix("torch."),
            architectures=["LlamaForCausalLM"],
        ).save_pretrained(path)
        return path

    return write


@pytest.fixture(scope="session")
def text(gguf) -> torch.Tensor:
    ids = tokenizer_of(gguf).encode(TEXT.read_text("utf-8"))
    return torch.tensor([(ids * (1 + 4_096 // len(ids)))[:4_096]])


class Ours:
    """A model of ours behind the two calls that are timed."""

    def __init__(self, model):
        self.model = model

    @torch.no_grad()
    def read(self, ids: torch.Tensor, n_more: int = 1) -> torch.Tensor:
        self.cache = Cache(CONFIG, len(ids), ids.shape[1] + n_more, dtype=self.model.embed.weight.dtype)
        return self.model(ids, cache=self.cache, last_only=True)[:, -1].argmax(-1, keepdim=True)

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        return self.scores(ids).argmax(-1, keepdim=True)

    @torch.no_grad()
    def scores(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids, cache=self.cache, last_only=True)[:, -1]


class HuggingFace:
    """Theirs, with the cache that it uses by default."""

    def __init__(self, path: Path):
        from transformers import LlamaForCausalLM

        self.model = LlamaForCausalLM.from_pretrained(path, attn_implementation="sdpa", dtype="auto").eval()

    def read(self, ids: torch.Tensor, n_more: int = 1) -> torch.Tensor:
        self.cache = None
        return self.step(ids)

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        return self.scores(ids).argmax(-1, keepdim=True)

    @torch.no_grad()
    def scores(self, ids: torch.Tensor) -> torch.Tensor:
        out = self.model(ids, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        self.cache = out.past_key_values
        return out.logits[:, -1]


def decode(contender, prompt: torch.Tensor, tokens: list | None = None) -> float:
    """Seconds of N_NEW steps after the prompt, which is not timed."""
    ids = contender.read(prompt, N_NEW)
    written, start = [ids], time.perf_counter()
    for _ in range(N_NEW):
        written.append(ids := contender.step(ids))
    seconds = time.perf_counter() - start
    if tokens is not None:
        tokens[:] = torch.cat(written, 1)[0].tolist()
    return seconds


def ratios(rounds: list[dict], slower: str, faster: str) -> list[float]:
    return [seconds[slower] / seconds[faster] for seconds in rounds]


@pytest.fixture(scope="session")
def contenders(folder, dtype) -> dict:
    model = load(folder(dtype), "smollm2-135m", dtype=dtype, attend=fast_attention)
    return {
        "Hugging Face": HuggingFace(folder(dtype)),
        "plain": Ours(model),
        "fast": Ours(fast.prepare(model)),
        "fast, compiled": Ours(fast.prepare(model, compiled=True)),
        "fast, compiled, int8": Ours(fast.prepare(model, dtype=torch.float32, compiled=True, int8=True)),
    }


def test_decode(contenders, dtype, text, in_turn, record):
    name, prompt = str(dtype).removeprefix("torch."), text[:, :N_PROMPT]
    tokens = {what: [] for what in contenders}
    works = {what: functools.partial(decode, one, prompt, tokens[what]) for what, one in contenders.items()}
    works["bandwidth"] = lambda: float(roofline.measure_bandwidth())
    rounds = in_turn(works)
    agree = {what: sum(a == b for a, b in zip(mine, tokens["Hugging Face"])) for what, mine in tokens.items()}
    aims = {"float32": (None, 1.7, 2.5, None), "bfloat16": (None, 2.6, 4.0, 5.0)}[name]
    missed = []
    for what, aim in zip(list(contenders)[1:], aims):
        value = record(f"decode, {name}", what, "Hugging Face", ratios(rounds, "Hugging Face", what), target=aim)
        missed += [what] if aim and value < DECODE_SLACK * aim else []
        record(f"decode, {name}", what, "tokens equal to Hugging Face's", [agree[what]], f"of {N_NEW + 1}")
    for what in contenders:
        size = 1 if "int8" in what else dtype.itemsize
        n_bytes = sum(
            sum(roofline.bytes_per_step(CONFIG, 1, n, n_bytes_weights=size, n_bytes_cache=dtype.itemsize).values())
            for n in range(N_PROMPT + 1, N_PROMPT + N_NEW + 1)
        )
        shares = [100 * n_bytes / seconds[what] / seconds["bandwidth"] for seconds in rounds]
        record(f"decode, {name}", what, "bandwidth", shares, "%", 70 if what == "fast, compiled" else None)
    record("machine", "bandwidth", "", [seconds["bandwidth"] / 1e9 for seconds in rounds], "GB/s")
    if dtype == torch.float32:
        assert agree["fast"] == agree["fast, compiled"] == agree["plain"] == N_NEW + 1
    assert not missed


def test_steps_are_as_exact_as_theirs(contenders, folder, dtype, text, record):
    """Greedy tokens of two bfloat16 models part at the first near-tie: the distance from exact logits tells more."""
    name, n_steps = str(dtype).removeprefix("torch."), 128
    ids = text[:, : N_PROMPT + n_steps]
    with torch.no_grad():
        exact = load(folder(dtype), "smollm2-135m", dtype=torch.float64)(ids)[0, N_PROMPT:]
    off = {}
    for what, one in contenders.items():
        one.read(ids[:, :N_PROMPT], n_steps)
        logits = torch.cat([one.scores(ids[:, n : n + 1]) for n in range(N_PROMPT, N_PROMPT + n_steps)]).double()
        off[what] = (logits - exact).square().mean().sqrt().item()
    for what in ("plain", "fast", "fast, compiled"):
        ratio = record(
            f"distance of logits from float64, {name}", what, "Hugging Face", [off[what] / off["Hugging Face"]]
        )
        assert ratio < 1.5


def test_prefill(contenders, dtype, text, in_turn, record):
    name, ids = str(dtype).removeprefix("torch."), text[:, :N_PREFILL]
    some = ("Hugging Face", "plain", "fast")
    works = {what: functools.partial(contenders[what].read, ids) for what in some}
    works["peak"] = lambda: float(flops.measure_peak(dtype))
    rounds = in_turn(works)
    logits = flops.forward(CONFIG, 1)["unembed"]
    n_flops = sum(flops.sequence(CONFIG, N_PREFILL, output=False).values()) + logits
    missed = record(f"prefill, {name}", "fast", "Hugging Face", ratios(rounds, "Hugging Face", "fast"), target=1.0)
    for what in some:
        shares = [100 * n_flops / seconds[what] / seconds["peak"] for seconds in rounds]
        aim = 68 if (what, dtype) == ("fast", torch.float32) else None
        record(f"prefill, {name}", what, "product peak", shares, "%", aim)
    record("machine", f"product peak, {name}", "", [seconds["peak"] / 1e9 for seconds in rounds], "GFLOP/s")
    assert missed > SLACK


def test_int8_weights_cost_less_than_a_hundredth_of_the_loss(folder, text, record):
    model = load(folder(torch.float32), "smollm2-135m", attend=fast_attention)
    ids = text[:, :513]  # the text is repeated behind its 600 tokens, and a repeated text is easy
    models = {"float32": fast.prepare(model), "int8": fast.prepare(model, int8=True)}
    models["int8, bfloat16"] = fast.prepare(model, dtype=torch.bfloat16, int8=True)
    loss = {what: next_token_loss(one(ids[:, :-1]), ids).item() for what, one in models.items()}
    for what in ("int8", "int8, bfloat16"):
        more = 100 * (loss[what] / loss["float32"] - 1)
        record("loss of a text", what, "float32", [more], "% more", 1.0)
        assert abs(more) < 1


PEAK_MEMORY = """
import sys, torch
sys.path.insert(0, sys.argv[1])
torch.set_num_threads(2)
from test_inference import CONFIG, HuggingFace, Ours, decode
from plainformer import fast
from plainformer.attention import fast_attention
from plainformer.pretrained import load
folder, what = sys.argv[2:4]
if what == "Hugging Face":
    one = HuggingFace(folder)
elif what == "fast":
    one = Ours(fast.prepare(load(folder, "smollm2-135m", dtype=getattr(torch, sys.argv[4]), attend=fast_attention)))
if what != "torch alone":
    decode(one, torch.arange(128)[None])
# not ru_maxrss: a new process starts with the peak of the one that started it
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(status["VmHWM"].split()[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_peak_memory(folder, dtype, record):
    name = str(dtype).removeprefix("torch.")

    def megabytes(what: str) -> float:
        command = [sys.executable, "-c", PEAK_MEMORY, str(Path(__file__).parent), str(folder(dtype)), what, name]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) * 1024 / 1e6

    peak = {what: megabytes(what) for what in ("torch alone", "Hugging Face", "fast")}
    for what, value in peak.items():
        record(f"peak memory, {name}", what, "", [value], "MB")
    ratio = record(f"peak memory, {name}", "fast", "Hugging Face", [peak["fast"] / peak["Hugging Face"]], target=1.0)
    assert ratio < 1 / SLACK


def test_growth_of_a_step(folder, in_turn, record):
    """Linear in what is kept, and nearly free in the batch until products cost more than reading."""
    model = fast.prepare(load(folder(torch.bfloat16), "smollm2-135m", dtype=torch.bfloat16, attend=fast_attention))

    def steps(n_sequences: int, n_kept: int) -> float:
        cache = Cache(CONFIG, n_sequences, n_kept + 20, dtype=torch.bfloat16)
        cache.advance([n_kept] * n_sequences)
        ids, start = torch.zeros(n_sequences, 1, dtype=torch.long), time.perf_counter()
        for _ in range(20):
            model(ids, cache=cache, last_only=True)
        return time.perf_counter() - start

    sizes = [(1, n) for n in (128, 256, 512, 1_024, 2_048, 4_096)] + [(n, 128) for n in (2, 4, 8, 16)]
    rounds = in_turn({str(size): functools.partial(steps, *size) for size in sizes})
    for n_sequences, n_kept in sizes[1:]:
        what = f"{n_kept} tokens kept" if n_sequences == 1 else f"{n_sequences} sequences"
        value = record("growth of a step", what, "128 tokens, 1 sequence",
                       ratios(rounds, str((n_sequences, n_kept)), "(1, 128)"))  # fmt: skip
        assert value < 2 * max(n_kept / 128, n_sequences)


def test_growth_of_prefill(folder, text, in_turn, record):
    one = Ours(fast.prepare(load(folder(torch.bfloat16), "smollm2-135m", dtype=torch.bfloat16, attend=fast_attention)))
    lengths = [128, 256, 512, 1_024, 2_048, 4_096]
    rounds = in_turn({str(n): functools.partial(one.read, text[:, :n]) for n in lengths})
    for n in lengths[1:]:
        counted = [sum(flops.sequence(CONFIG, m, output=False).values()) for m in (n, 128)]
        value = record("growth of prefill", f"{n} tokens", "128 tokens", ratios(rounds, str(n), "128"))
        record("growth of prefill", f"{n} tokens, FLOPs", "128 tokens", [counted[0] / counted[1]])
        assert value < 2 * counted[0] / counted[1]
