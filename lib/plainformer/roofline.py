"""The roofline: a step takes as long as the slower of reading its bytes and doing its FLOPs.

Williams et al. 2009. ``bandwidth`` is in bytes per second, ``peak`` in FLOP/s of the number format that is used;
measure both on the machine (`measure_bandwidth`, `plainformer.flops.measure_peak`). Real steps are slower: the
model leaves activations, launches and everything but matrix products out.
"""

from __future__ import annotations

import time

import torch

from plainformer.cache import bytes_per_sequence, bytes_per_token
from plainformer.config import Config
from plainformer.flops import forward, multiplying_weights, product, sequence
from plainformer.parameters import breakdown


def weights_read(config: Config, n_tokens: int) -> float:
    """Weights that one pass over ``n_tokens`` tokens reads, as a number of parameters.

    Matrices, norms and biases are read once for all tokens. A table that is only looked up gives a row a token; a
    tied one is the unembedding too and is read whole. Of ``n_experts`` a pass reads those that some token chose:
    n_experts (1 − (1 − n_active / n_experts)^n_tokens) on average, if every choice is equally likely.

    >>> from plainformer.config import preset
    >>> weights_read(preset("llama-2-7b"), 1)
    6607347712.0
    """
    _positive(n_tokens, "n_tokens")
    parts = breakdown(_decoder(config))
    looked_up = ["positions", "token_types", *([] if config.tied else ["embed"])]
    rows = sum(min(parts[table], n_tokens * config.d_model) for table in looked_up)
    n_read = config.n_experts * (1 - (1 - config.n_active_experts / config.n_experts) ** n_tokens)
    experts = parts["mlp"] * n_read / config.n_experts
    return sum(n for part, n in parts.items() if part not in (*looked_up, "mlp")) + experts + rows


def bytes_per_step(
    config: Config, n_sequences: int, n_positions: int, *, n_bytes_weights: float = 2, n_bytes_cache: int = 2
) -> dict[str, float]:
    """Bytes that one step of decoding reads: ``{"weights": …, "cache": …}``.

    The step gives each of ``n_sequences`` one token, the ``n_positions``-th: its query meets that many cached keys
    and values, or a window's. Weights take ``n_bytes_weights`` each (2 for 16-bit, 0.5 for 4-bit), numbers in the
    cache ``n_bytes_cache``. Raises ``ValueError`` for a model that does not decode.
    """
    weights = weights_read(config, n_sequences) * _positive(n_bytes_weights, "n_bytes_weights")
    return {"weights": weights, "cache": n_sequences * bytes_per_sequence(config, n_positions, n_bytes=n_bytes_cache)}


def decode_seconds(
    config: Config,
    n_sequences: int,
    n_positions: int,
    *,
    bandwidth: float,
    peak: float,
    n_bytes_weights: float = 2,
    n_bytes_cache: int = 2,
) -> float:
    """Seconds of one step of decoding, at least: max(bytes / bandwidth, FLOPs / peak)."""
    sizes = {"n_bytes_weights": n_bytes_weights, "n_bytes_cache": n_bytes_cache}
    n_bytes = sum(bytes_per_step(config, n_sequences, n_positions, **sizes).values())
    n_flops = n_sequences * sum(forward(config, n_positions).values())
    return _slower(n_bytes, bandwidth, n_flops, peak)


def decode_tokens_per_second(config: Config, n_sequences: int, n_positions: int, **machine_and_sizes) -> float:
    """Tokens that all sequences together gain in a second, at most. Arguments as in `decode_seconds`."""
    return n_sequences / decode_seconds(config, n_sequences, n_positions, **machine_and_sizes)


def prefill_seconds(
    config: Config,
    n_sequences: int,
    n_positions: int,
    *,
    bandwidth: float,
    peak: float,
    n_bytes_weights: float = 2,
    n_bytes_cache: int = 2,
) -> float:
    """Seconds, at least, to fill the caches from prompts of ``n_positions`` tokens, with each one's last logits.

    FLOPs are the causal half of attention (`sequence`, ``"mean"``) and one token's logits a sequence; bytes are
    the weights and the caches that it writes.
    """
    n_bytes = weights_read(config, n_sequences * n_positions) * _positive(n_bytes_weights, "n_bytes_weights")
    n_bytes += n_sequences * n_positions * bytes_per_token(config, n_bytes=n_bytes_cache)
    logits = forward(config, 1)["unembed"]
    n_flops = n_sequences * (sum(sequence(config, n_positions, output=False).values()) + logits)
    return _slower(n_bytes, bandwidth, n_flops, peak)


def balance_batch(config: Config, *, bandwidth: float, peak: float, n_bytes_weights: float = 2) -> int:
    """The smallest batch at which reading the weights no longer takes longer than multiplying with them.

    About peak / bandwidth · n_bytes_weights / 2, more for a mixture of experts, which reads weights that few tokens
    use. The cache is left out: each sequence reads its own, so no batch makes its reads pay.
    """
    per_token = product(1, multiplying_weights(_decoder(config)), 1)
    ratio = _positive(peak, "peak") / _positive(bandwidth, "bandwidth") * _positive(n_bytes_weights, "n_bytes_weights")

    def read_is_the_limit(n_sequences: int) -> bool:
        return weights_read(config, n_sequences) * ratio > n_sequences * per_token

    enough = 1
    while read_is_the_limit(enough):
        enough *= 2
    too_few = enough // 2  # the answer lies above it: halve the interval until nothing is between
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        too_few, enough = (middle, enough) if read_is_the_limit(middle) else (too_few, middle)
    return enough


def measure_bandwidth(n_bytes: int = 2**28, *, n_repeats: int = 5, device: torch.device | str = "cpu") -> float:
    """Bytes per second that this machine reads: a sum over ``n_bytes`` of float32, the best of ``n_repeats``.

    Far more bytes than the processor's own caches hold, or theirs is the speed that is measured.
    """
    numbers = torch.ones(_positive(n_bytes, "n_bytes") // 4, device=device)
    if not len(numbers):
        raise ValueError(f"n_bytes={n_bytes} holds no number of 4 bytes.")
    seconds = []
    for _ in range(1 + _positive(n_repeats, "n_repeats")):
        start = time.perf_counter()
        numbers.sum().item()  # waits for the result, on any device
        seconds.append(time.perf_counter() - start)
    return 4 * len(numbers) / min(seconds[1:])


def _slower(n_bytes: float, bandwidth: float, n_flops: float, peak: float) -> float:
    return max(n_bytes / _positive(bandwidth, "bandwidth"), n_flops / _positive(peak, "peak"))


def _decoder(config: Config) -> Config:
    if isinstance(config, Config) and (not config.causal or config.n_encoder_layers or config.output != "logits"):
        raise ValueError("the roofline of decoding is a decoder's: causal, one stack, with logits as its output.")
    return config


def _positive(value, name: str):
    if not 0 < value < float("inf"):  # NaN fails too
        raise ValueError(f"{name}={value} must be positive and finite.")
    return value
