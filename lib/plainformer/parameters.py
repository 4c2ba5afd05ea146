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


def block_breakdown(config: Config, *, cross: bool = False) -> dict[str, int]:
    """One block, matrix by matrix; a bias is counted with its matrix, experts all together.

    ``cross``: a block of a decoder that also looks at an encoder.
    """
    d_model, d_ff = _config(config).d_model, config.d_ff
    d_kv = config.n_kv_heads * config.d_head  # keys and values are this wide in total, all heads together
    attn, mlp = config.has_attn_bias, config.bias
    attention = {
        "query": _linear(d_model, d_model, attn),
        "key": _linear(d_model, d_kv, attn),
        "value": _linear(d_model, d_kv, attn),
        "out": _linear(d_model, d_model, attn),
    }
    crossing = {"cross_norm": _norm(config)} | {f"cross_{part}": n for part, n in attention.items()}
    gate = {"gate": config.n_experts * _linear(d_model, d_ff, mlp)} if config.mlp == "swiglu" else {}
    return {
        "attn_norm": _norm(config),
        **attention,
        **(crossing if cross else {}),
        "mlp_norm": _norm(config),
        **({"router": d_model * config.n_experts} if config.n_experts > 1 else {}),
        **gate,
        "up": config.n_experts * _linear(d_model, d_ff, mlp),
        "down": config.n_experts * _linear(d_ff, d_model, mlp),
    }


def breakdown(config: Config) -> dict[str, int]:
    """The whole model, part by part; the values add up to its parameter count. A part it lacks is 0."""
    d_model = _config(config).d_model
    table = config.n_vocab * d_model
    stacks = [(config.n_layers, block_breakdown(config, cross=config.n_encoder_layers > 0))]
    if config.n_encoder_layers:
        stacks.append((config.n_encoder_layers, block_breakdown(config)))

    def in_all_blocks(*parts: str) -> int:
        return sum(n_blocks * block.get(part, 0) for n_blocks, block in stacks for part in parts)

    projections = ("query", "key", "value", "out")
    # Only a pre-norm stack ends in a norm: a post-norm block has already normed what it hands on.
    n_final_norms = len(stacks) if config.norm_placement == "pre" else 0
    return {
        "embed": table,
        "positions": config.n_context * d_model if config.positions == "learned" else 0,
        "token_types": config.n_token_types * d_model,
        "embed_norm": _norm(config) if config.embed_norm else 0,
        "attention": in_all_blocks(*projections),
        "cross_attention": in_all_blocks(*(f"cross_{part}" for part in projections)),
        "router": in_all_blocks("router"),
        "mlp": in_all_blocks("gate", "up", "down"),
        "norms": in_all_blocks("attn_norm", "cross_norm", "mlp_norm"),
        "final_norm": n_final_norms * _norm(config),
        "pool": _linear(d_model, d_model, True) if config.output == "pooled" else 0,
        "unembed": table if config.output == "logits" and not config.tied else 0,
    }


def total(config: Config) -> int:
    """Parameters of the whole model."""
    return sum(breakdown(config).values())


def active(config: Config) -> int:
    """Parameters that one token meets: all but the experts that it does not pass through, tables counted whole."""
    idle = breakdown(config)["mlp"] * (config.n_experts - config.n_active_experts) // config.n_experts
    return total(config) - idle


def _linear(d_in: int, d_out: int, bias: bool) -> int:
    return d_in * d_out + (d_out if bias else 0)


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
