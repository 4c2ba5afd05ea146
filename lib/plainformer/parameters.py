"""Counting parameters: from a `Config` alone, part by part, to the last unit.

Convention: a parameter is one learned number. Rotary tables, masks and caches hold none.
A tied unembedding is the embedding table itself and is not counted again.
"""

from __future__ import annotations

from plainformer.config import Config


def estimate(config: Config) -> dict[str, int]:
    """The shortcut N ≈ 12 L d² + V d: 4 d² of attention and 8 d² of MLP a block, and one table.

    It leaves out norms, biases, positions and a second table, and takes n_kv_heads = n_heads and
    an MLP of 8 d² for granted. Kaplan et al. 2020, section 2.1, for the 12 L d² part.
    """
    return {
        "blocks": 12 * _config(config).n_layers * config.d_model**2,
        "embed": config.n_vocab * config.d_model,
    }


def block_breakdown(config: Config) -> dict[str, int]:
    """One block, matrix by matrix; a bias is counted with its matrix."""
    d_model, d_ff = _config(config).d_model, config.d_ff
    d_kv = config.n_kv_heads * config.d_head  # keys and values are this wide in total, all heads together
    gate = {"gate": _linear(d_model, d_ff, config)} if config.mlp == "swiglu" else {}
    return {
        "attn_norm": _norm(config),
        "query": _linear(d_model, d_model, config),
        "key": _linear(d_model, d_kv, config),
        "value": _linear(d_model, d_kv, config),
        "out": _linear(d_model, d_model, config),
        "mlp_norm": _norm(config),
        **gate,
        "up": _linear(d_model, d_ff, config),
        "down": _linear(d_ff, d_model, config),
    }


def breakdown(config: Config) -> dict[str, int]:
    """The whole model, part by part; the values add up to its parameter count."""
    block = block_breakdown(config)
    table = config.n_vocab * config.d_model

    def in_all_blocks(*parts: str) -> int:
        return config.n_layers * sum(block.get(part, 0) for part in parts)

    return {
        "embed": table,
        "positions": config.n_context * config.d_model if config.positions == "learned" else 0,
        "attention": in_all_blocks("query", "key", "value", "out"),
        "mlp": in_all_blocks("gate", "up", "down"),
        "norms": in_all_blocks("attn_norm", "mlp_norm"),
        # Only a pre-norm stack ends in a norm: a post-norm block has already normalised its output.
        "final_norm": _norm(config) if config.norm_placement == "pre" else 0,
        "unembed": 0 if config.tied else table,
    }


def total(config: Config) -> int:
    """Parameters of the whole model."""
    return sum(breakdown(config).values())


def _linear(d_in: int, d_out: int, config: Config) -> int:
    return d_in * d_out + (d_out if config.bias else 0)


def _norm(config: Config) -> int:
    """LayerNorm learns a scale and a shift for each feature, RMSNorm a scale alone."""
    return 2 * config.d_model if config.norm == "layer" else config.d_model


def _config(config: Config) -> Config:
    if not isinstance(config, Config):
        raise TypeError(
            f"counting takes a Config, not {type(config).__name__}. "
            'For a real model by name, write preset("gpt2-small").'
        )
    return config
