"""The model calculator: choose a model, change its sizes, and see its parameters, FLOPs, cache and speed."""

from __future__ import annotations

from collections.abc import Mapping

from classroom.elements.frame import Element, table
from plainformer import cache, flops, parameters, roofline
from plainformer.config import Config, preset, presets

# bytes read a second, FLOP/s in dense 16-bit products: the makers' data sheets
DATA_SHEETS = {"A100 80 GB SXM, data sheet": (2.039e12, 312e12), "H100 SXM, data sheet": (3.35e12, 989.4e12)}
# The book's letters for the sizes that have sliders; `_sizes` adds the rest, all of them numbers.
LETTERS = {"L": "n_layers", "d": "d_model", "h": "n_heads", "h_kv": "n_kv_heads", "d_ff": "d_ff", "n_vocab": "n_vocab"}
YES_NO = [[0], [1]]
# parts that a breakdown of FLOPs may have; the script says 0 for those a model lacks
WORK = ("query", "key", "value", "scores", "mix", "out")
WORK = (*WORK, *(f"cross_{part}" for part in WORK), "router", "gate", "up", "down", "unembed")


def calculator(bench: Mapping, *, start: str = "gpt2-small", n_positions: int = 1024) -> Element:
    """Parameters by part, FLOPs by part, cache and roofline of any model, from a preset and sliders.

    bench        chapters/data/bench.json: what `make bench` measured, its machine among it
    start        the preset that one sees first, with texts of ``n_positions`` tokens

    Seen: four figures (parameters; FLOPs of a token, of the last or of the mean over the text; bytes of the cache;
    tokens a second, at most) and a table of the parts. Bytes count 10³, 10⁶ …; FLOPs are those of
    `plainformer.flops`, speeds those of `plainformer.roofline` for the machine named. What no slider says, such as
    norms and experts, comes from the preset. An encoder-decoder reads a source as long as its text.
    A link of the form ``#calculator?preset=gpt2-small&L=24`` restores a state.
    """
    machines = _machines(bench)
    (_, bandwidth, peak), *_ = machines
    use = {"T": n_positions, "B": 1, "bytes": 2, "cache_bytes": 2, "mean": 0, "bandwidth": bandwidth, "peak": peak}
    sizes = {name: _sizes(preset(name)) for name in presets()}
    rows = [[name, *_row(preset(name), use)] for name in presets()]
    header = ["model", "parameters", f"FLOPs of token {n_positions:,}", "cache, bytes", "tokens a second"]
    caption = f"Texts of {n_positions:,} tokens, numbers of 2 bytes, one sequence; speed at most, on {machines[0][0]}"
    return Element(
        "calculator",
        {
            "fields": list(sizes[start]),
            "presets": {name: list(one.values()) for name, one in sizes.items()},
            "about": {name: _words(preset(name)) for name in presets()},
            "start": {"preset": start, **use},
            "groups": _groups([name for name, *_ in machines]),
            "machines": machines,
        },
        label="Model calculator: parameters, FLOPs, cache and speed",
        fallback=table(caption, header, rows),
        text="\n".join([caption, *("  " + "  ".join(row) for row in [header, *rows])]),
        checks=[_check(name, changes, use | given) for name, changes, given in _CASES],
    )


def expected(config: Config, use: Mapping) -> dict:
    """What the script must find for a model and its use; None where the library has no answer."""
    n_positions, n_sequences = use["T"], use["B"]
    parts = parameters.breakdown(config)
    two, decodes = bool(config.n_encoder_layers), config.causal and not config.n_encoder_layers
    text = flops.sequence(config, n_positions, n_source=n_positions if two else None)
    last, mean = None, {part: n / n_positions for part, n in text.items()}
    if not two:
        last, mean = flops.forward(config, n_positions), flops.forward(config, n_positions, attention="mean")
    found = {
        "parameters": parts,
        "active": parameters.active(config),
        "last": last and _all_parts(last),
        "mean": _all_parts(mean),
        "text": {**_all_parts(text), "pool": text.get("pool", 0)},
        "cache": None,
        "step": None,
    }
    if decodes:
        sizes = {"n_bytes_weights": use["bytes"], "n_bytes_cache": use["cache_bytes"]}
        machine = {"bandwidth": use["bandwidth"], "peak": use["peak"]}
        read = roofline.bytes_per_step(config, n_sequences, n_positions, **sizes)
        found["cache"] = {
            "token": cache.bytes_per_token(config, n_bytes=use["cache_bytes"]),
            "sequence": cache.bytes_per_sequence(config, n_positions, n_bytes=use["cache_bytes"]),
            "batch": read["cache"],
        }
        found["step"] = {
            "weights": read["weights"],
            "reading": sum(read.values()) / use["bandwidth"],
            "multiplying": n_sequences * sum(last.values()) / use["peak"],
            "tokens": roofline.decode_tokens_per_second(config, n_sequences, n_positions, **machine, **sizes),
        }
    return found


# presets and odd sizes: (preset, changes of Config, use)
_CASES = [
    ("gpt2-small", {}, {}),
    ("gpt2-small", {"tied": False, "bias": False, "mlp": "swiglu", "n_layers": 7}, {"T": 37, "B": 5, "bytes": 0.5}),
    ("gpt3-175b", {}, {"T": 131_072, "B": 64}),
    ("llama-3-8b", {"d_model": 3_200, "n_heads": 25, "n_kv_heads": 5, "d_ff": 9_001, "tied": True}, {"T": 999}),
    ("mistral-7b", {"bias": True}, {"T": 10_000, "B": 3, "bytes": 1, "cache_bytes": 1}),
    ("mixtral-8x7b", {"n_vocab": 50_001}, {"T": 2_048, "B": 7, "bytes": 4, "cache_bytes": 4}),
    ("bge-small-en-v1.5", {}, {"T": 512}),
    ("vaswani-base", {"n_layers": 5, "tied": False}, {"T": 77}),
]


def _check(name: str, changes: Mapping, use: Mapping) -> dict:
    config = Config(**{**vars(preset(name)), **changes})
    before, after = _sizes(preset(name)), _sizes(config)
    changed = {field: value for field, value in after.items() if value != before[field]}
    return {"input": {"preset": name, **changed, **use}, "expected": _rounded(expected(config, use))}


def _sizes(config: Config) -> dict[str, int]:
    """A Config as numbers, as far as counting needs it."""
    return {letter: getattr(config, field) for letter, field in LETTERS.items()} | {
        "E": config.n_encoder_layers,
        "n_context": config.n_context,
        "n_places": config.n_context if config.positions == "learned" else 0,  # rows of a learned table
        "n_token_types": config.n_token_types,
        "n_experts": config.n_experts,
        "n_active": config.n_active_experts,
        "window": config.window or 0,
        "causal": int(config.causal),
        "tied": int(config.tied),
        "bias": int(config.bias),
        "attn_bias": int(config.attn_bias is not False),  # 0: none in attention, whatever `bias` says
        "gate": int(config.mlp == "swiglu"),
        "norm": 2 if config.norm == "layer" else 1,  # numbers that a norm learns for a feature
        "final_norms": (1 + bool(config.n_encoder_layers)) * (config.norm_placement == "pre"),
        "embed_norm": int(config.embed_norm),
        "pool": int(config.output == "pooled"),
        "logits": int(config.output == "logits"),
    }


def _words(config: Config) -> str:
    """What no slider says."""
    two = f"decoder, beside an encoder of {config.n_encoder_layers} blocks that reads as many tokens"
    places = f"{config.n_context:,} learned" if config.positions == "learned" else config.positions
    said = [
        two if config.n_encoder_layers else "decoder" if config.causal else "encoder, no mask",
        f"{places} positions",
        f"{'RMSNorm' if config.norm == 'rms' else 'LayerNorm'}, {config.norm_placement}-norm",
        f"{config.n_experts} experts, {config.n_active_experts} for a token" if config.n_experts > 1 else "",
        f"window of {config.window:,}" if config.window else "",
        "no biases in attention" if config.attn_bias is False else "",
        "pooler, no unembedding" if config.output == "pooled" else "",
    ]
    return "; ".join(word for word in said if word)


def _groups(machines: list[str]) -> list:
    """The controls: [field, label, kind, stops of a slider or options, unit]."""
    eighths = [n / 8 for n in range(8, 16)]
    widths = _stops(64, 16_384, 2, eighths)
    every = list(range(1, 129))
    return [
        ["The model", [
            ["preset", "Preset", "select", [[name, name] for name in presets()]],
            ["L", "Layers L", "slider", every],
            ["d", "Width d", "slider", [d for d in widths if d % 64 == 0]],
            ["h", "Heads h", "slider", every],
            ["h_kv", "KV heads", "slider", every],
            ["d_ff", "MLP width", "slider", _stops(64, 65_536, 2, eighths)],
            ["n_vocab", "Vocabulary", "slider", _stops(256, 262_144, 2, eighths)],
            ["tied", "One table at both ends (tied)", "toggle", YES_NO],
            ["bias", "Biases", "toggle", YES_NO],
            ["gate", "Gate in the MLP", "toggle", YES_NO],
        ]],
        ["Its use", [
            ["T", "Text length T", "slider", _stops(1, 2**20, 2, [1])],
            ["B", "Batch B", "slider", _stops(1, 4_096, 2, [1])],
            ["mean", "FLOPs of", "choice", [[0, "last token"], [1, "causal mean"]]],
            ["bytes", "Bytes a weight", "choice", [[4, "4"], [2, "2"], [1, "1"], [0.5, "½"]]],
            ["cache_bytes", "Bytes in cache", "choice", [[4, "4"], [2, "2"], [1, "1"]]],
            ["machine", "Machine", "select", [*([n, name] for n, name in enumerate(machines)), ["", "as set below"]]],
            ["bandwidth", "Bandwidth", "slider", _stops(10**10, 10**13, 10, [1, 1.5, 2, 3, 5, 7]), "B/s"],
            ["peak", "Peak", "slider", _stops(10**11, 10**16, 10, [1, 1.5, 2, 3, 5, 7]), "FLOP/s"],
        ]],
    ]  # fmt: skip


def _stops(first: int, last: int, base: int, steps: list[float]) -> list[int]:
    """first · base^n · each step, up to last."""
    stops, unit = [], first
    while unit < last:
        stops += [int(unit * step) for step in steps]
        unit *= base
    return [*stops, last]


def _machines(bench: Mapping) -> list[list]:
    """[name, bytes a second, FLOP/s]: the bench machine, by number format, and two data sheets."""

    def found(work: str, what: str) -> float:
        row, *_ = (row for row in bench["rows"] if (row["work"], row["what"]) == (work, what))
        return row["value"] * 1e9

    # the bench measures the bandwidth once a format, in the order of the formats
    bandwidths = [row["value"] for row in bench["rows"] if (row["work"], row["what"]) == ("machine", "bandwidth")]
    mine = f"this course's bench machine ({bench['machine']['cores']} cores)"
    formats = [("32-bit", "float32"), ("16-bit", "bfloat16")]
    measured = {
        f"{mine}, {words}": (bandwidth * 1e9, found("machine", f"product peak, {dtype}"))
        for (words, dtype), bandwidth in zip(formats, bandwidths)
    }
    names = [*reversed(measured), *DATA_SHEETS]  # numbers of two bytes are what one sees first
    return [[name, *(round(n) for n in (measured | DATA_SHEETS)[name])] for name in names]


def _row(config: Config, use: Mapping) -> list[str]:
    found = expected(config, use)
    token = found["last"] or found["mean"]
    step = found["step"]
    return [
        f"{sum(found['parameters'].values()):,}",
        f"{sum(token.values()):,.0f}",
        f"{found['cache']['sequence']:,}" if step else "–",
        f"{step['tokens']:,.3g}" if step and step["tokens"] < 100 else f"{step['tokens']:,.0f}" if step else "–",
    ]


def _all_parts(work: Mapping[str, float]) -> dict[str, float]:
    return {part: work.get(part, 0) for part in WORK}


def _rounded(value):
    """Floats to twelve digits: what the script's own arithmetic is sure of, and the same on every machine."""
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return float(f"{value:.12g}") if isinstance(value, float) else value
