"""Counting operations: from a `Config` alone, part by part, to the last unit.

Convention: a FLOP is one multiplication or one addition, so a multiply-add is two; FLOP/s is a rate. Only matrix
products count. Norms, softmax, activations, rotary turns and residual adds are left out: they cost a few FLOPs a
feature, where a product costs hundreds. A lookup in a table costs nothing. Kaplan et al. 2020, section 2.1.

How many keys does a token meet? Every count says so by its ``attention``:

- ``"last"``: the last of T tokens. It meets T keys, or as many as its window.
- ``"mean"``: the mean over a sequence of T tokens of what the mask lets through: (T + 1) / 2 if causal, T if unmasked.
- ``"full"``: T keys for every token, hidden ones too: what a kernel spends that skips nothing.
"""

from __future__ import annotations

import time

import torch

from plainformer.config import Config

CONVENTIONS = ("last", "mean", "full")


def product(m: int, k: int, n: int) -> int:
    """FLOPs of a product (m × k)(k × n): a multiplication and an addition for each of m · k · n pairs.

    >>> product(3, 5, 7)
    210
    """
    return 2 * m * k * n


def forward(config: Config, n_positions: int, *, attention: str = "last", output: bool = True) -> dict[str, float]:
    """FLOPs of one token's forward pass, part by part, all layers together; the values add up to the whole.

    ``n_positions`` is T; ``attention`` the convention, see the module: ``"last"`` is a step of decoding with a
    cache, ``"mean"`` and ``"full"`` are `sequence` divided by T. ``output``: with the product that gives logits.
    Of several experts the active ones count. A pooler runs once a sequence and stands in `sequence` alone.
    T may exceed the context: nothing runs. Raises ``ValueError`` for an encoder-decoder, whose source tokens cost
    too: use `sequence`.

    >>> from plainformer.config import preset
    >>> token = forward(preset("llama-2-7b"), 4_096)
    >>> token["scores"] + token["mix"]
    2147483648
    """
    if _config(config).n_encoder_layers:
        raise ValueError("a target token's share of an encoder's work depends on both lengths: use sequence().")
    _convention(attention)
    if attention == "last":
        n_keys = min(_whole(n_positions, "n_positions"), config.window or n_positions)
        return _stack(config, config.n_layers, 1, n_keys) | _output(config, int(output))
    parts = sequence(config, n_positions, attention=attention, output=output).items()
    return {part: n / n_positions if n % n_positions else n // n_positions for part, n in parts if part != "pool"}


def sequence(
    config: Config, n_positions: int, *, attention: str = "mean", output: bool = True, n_source: int | None = None
) -> dict[str, int]:
    """FLOPs of one forward pass over a whole sequence, part by part, all layers together.

    ``attention``: ``"mean"`` counts the pairs that the mask lets through, ``"full"`` all T². ``n_source``: tokens
    that an encoder-decoder reads; its encoder's products stand with the decoder's of the same name, the second
    attention's apart as ``cross_…``. The rest is as in `forward`.
    """
    n_tokens = _whole(n_positions, "n_positions")
    if _convention(attention) == "last":
        raise ValueError("a sequence has a last token, but it is not one: attention must be 'mean' or 'full'.")
    if (n_source is None) == bool(_config(config).n_encoder_layers):
        raise ValueError(f"n_source={n_source}: an encoder-decoder needs it, a single stack has none.")
    pairs = _visible_pairs(config, n_tokens) if attention == "mean" else n_tokens**2
    parts = _stack(config, config.n_layers, n_tokens, pairs)
    if n_source is not None:
        encoder = _stack(config, config.n_encoder_layers, _whole(n_source, "n_source"), n_source**2)
        parts = {part: n + encoder[part] for part, n in parts.items()}
        crossing = _attention(config, config.n_layers, n_tokens, n_source, n_tokens * n_source)
        parts |= {f"cross_{part}": n for part, n in crossing.items()}
    if config.output == "pooled":
        parts["pool"] = product(1, config.d_model, config.d_model)
    return parts | _output(config, n_tokens * int(output))


def multiplying_weights(config: Config) -> int:
    """Weights that one token multiplies, each with one multiply-add: no tables, norms, biases or idle experts.

    >>> from plainformer.config import preset
    >>> multiplying_weights(preset("llama-2-7b"))
    6607077376
    """
    return sum(n for part, n in forward(config, 1).items() if part not in ("scores", "mix")) // 2


def estimate(d_model: int, n_positions: int, *, attention: str = "last") -> dict[str, int]:
    """The shortcut for one token and one layer: 8 d² + 4 T d + 16 d².

    It takes n_kv_heads = n_heads, an MLP of 8 d² weights and no window for granted, and leaves the output out.
    ``"mean"`` halves the middle term to 2 T d; the exact mean, 2 (T + 1) d, is `forward`'s.
    """
    d, n_positions = _whole(d_model, "d_model"), _whole(n_positions, "n_positions")
    per_key = 2 if _convention(attention) == "mean" else 4
    return {"projections": 8 * d**2, "attention": per_key * n_positions * d, "mlp": 16 * d**2}


def attention_share(d_model: int, n_positions: int, *, attention: str = "last") -> float:
    """Scores and mixing as a share of `estimate`: T / (T + 6 d), or T / (T + 12 d) for the causal mean.

    >>> attention_share(4_096, 8_192)
    0.25
    """
    parts = estimate(d_model, n_positions, attention=attention)
    return parts["attention"] / sum(parts.values())


def crossover(d_model: int, attention: str = "last") -> int:
    """The length T at which scores and mixing are one half of `estimate`: 6 d, or 12 d for the causal mean.

    >>> crossover(4_096), crossover(4_096, "mean")
    (24576, 49152)
    """
    return (12 if _convention(attention) == "mean" else 6) * _whole(d_model, "d_model")


def training_flops(n_parameters: float, n_tokens: float) -> int:
    """6 N D, exactly: forward 2 N a token, backward twice that (one gradient for inputs, one for weights).

    ``n_parameters`` are those that multiply (`multiplying_weights`): a table that is only looked up does no work.
    Attention's own arithmetic is left out. Kaplan et al. 2020, section 2.1.

    >>> training_flops(7e9, 2e12)
    84000000000000000000000
    """
    return 6 * _whole(n_parameters, "n_parameters") * _whole(n_tokens, "n_tokens")


def training_days(n_flops: float, flops_per_second: float, *, n_devices: int = 1) -> float:
    """Days that ``n_devices`` need, each at the rate that it reaches (not its peak), in FLOP/s."""
    return _device_hours(n_flops, flops_per_second) / _positive(n_devices, "n_devices") / 24


def training_cost(n_flops: float, flops_per_second: float, *, price_per_hour: float) -> float:
    """Money, in the unit of ``price_per_hour``, which is a device's. Twice the devices need half the time."""
    return _device_hours(n_flops, flops_per_second) * _positive(price_per_hour, "price_per_hour")


def training_energy(n_flops: float, flops_per_second: float, *, watts: float) -> float:
    """Energy in kWh where a device draws ``watts``, its share of the building's cooling included or not, as stated."""
    return _device_hours(n_flops, flops_per_second) * _positive(watts, "watts") / 1_000


def mfu(n_parameters: float, n_tokens: float, seconds: float, peak_flops: float, n_devices: int = 1) -> float:
    """Model FLOPs utilisation: 6 N D / t over ``peak_flops`` (FLOP/s of one device) × ``n_devices``. A pure number.

    ``n_tokens``: trained on in ``seconds``, by all devices together. Chowdhery et al. 2022 (PaLM), appendix B, who
    add attention's FLOPs. Raises ``ValueError`` above 1, which no machine reaches.
    """
    reached = training_flops(n_parameters, n_tokens) / _positive(seconds, "seconds")
    share = reached / (_positive(peak_flops, "peak_flops") * _positive(n_devices, "n_devices"))
    if share > 1:
        raise ValueError(
            f"{reached:.3g} FLOP/s are {share:.2f} of the peak of {n_devices} × {peak_flops:.3g}. Usual cause: the "
            "peak of another number format, tokens of another time span, or tables that are looked up among "
            "n_parameters. measure_peak() measures a peak."
        )
    return share


def measure_peak(
    dtype: torch.dtype = torch.float32, n: int = 1_024, *, n_repeats: int = 5, device: torch.device | str = "cpu"
) -> float:
    """FLOP/s of this machine in a product of two n × n matrices: the best of ``n_repeats`` after one to warm up."""
    if not dtype.is_floating_point:
        raise TypeError(f"dtype={dtype}: a peak is measured in floating point.")
    a, b = torch.randn(2, _positive(n, "n"), n, device=device).to(dtype)
    seconds = []
    for _ in range(1 + _positive(n_repeats, "n_repeats")):
        start = time.perf_counter()
        c = a @ b
        if c.is_cuda:
            torch.cuda.synchronize(c.device)
        seconds.append(time.perf_counter() - start)
    return product(n, n, n) / min(seconds[1:])


def _stack(config: Config, n_layers: int, n_tokens: int, n_pairs: int) -> dict[str, int]:
    """Blocks with one attention: ``n_tokens`` pass through, of whose queries and keys ``n_pairs`` meet."""
    d, d_ff, n_experts = config.d_model, config.d_ff, config.n_experts
    into = n_layers * config.n_active_experts * product(n_tokens, d, d_ff)
    return {
        **_attention(config, n_layers, n_tokens, n_tokens, n_pairs),
        **({"router": n_layers * product(n_tokens, d, n_experts)} if n_experts > 1 else {}),
        **({"gate": into} if config.mlp == "swiglu" else {}),
        "up": into,
        "down": n_layers * config.n_active_experts * product(n_tokens, d_ff, d),
    }


def _attention(config: Config, n_layers: int, n_queries: int, n_keys: int, n_pairs: int) -> dict[str, int]:
    """One attention in each layer; a key is projected once, however many queries it meets."""
    d, d_kv = config.d_model, config.n_kv_heads * config.d_head
    meeting = n_layers * config.n_heads * product(1, config.d_head, n_pairs)  # one number a pair, or d_head of them
    return {
        "query": n_layers * product(n_queries, d, d),
        "key": n_layers * product(n_keys, d, d_kv),
        "value": n_layers * product(n_keys, d, d_kv),
        "scores": meeting,
        "mix": meeting,
        "out": n_layers * product(n_queries, d, d),
    }


def _output(config: Config, n_tokens: int) -> dict[str, int]:
    scored = config.output == "logits" and n_tokens
    return {"unembed": product(n_tokens, config.d_model, config.n_vocab)} if scored else {}


def _visible_pairs(config: Config, n_tokens: int) -> int:
    """(query, key) pairs that the mask lets through: a triangle, a band of it, or the square."""
    if not config.causal:
        return n_tokens**2
    window = min(n_tokens, config.window or n_tokens)
    return window * (window + 1) // 2 + (n_tokens - window) * window


def _device_hours(n_flops: float, flops_per_second: float) -> float:
    return _positive(n_flops, "n_flops") / _positive(flops_per_second, "flops_per_second") / 3_600


def _convention(attention: str) -> str:
    if attention not in CONVENTIONS:
        raise ValueError(f"attention={attention!r} is no convention; expected one of {CONVENTIONS}.")
    return attention


def _positive(value, name: str):
    if not 0 < value < float("inf"):  # NaN fails too
        raise ValueError(f"{name}={value} must be positive and finite.")
    return value


def _whole(value: float, name: str) -> int:
    if int(_positive(value, name)) != value:
        raise ValueError(f"{name}={value} must be a whole number.")
    return int(value)


def _config(config: Config) -> Config:
    if not isinstance(config, Config):
        raise TypeError(f"counting takes a Config, not {type(config).__name__}: write preset('gpt2-small').")
    return config
