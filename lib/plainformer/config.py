"""The sizes and choices that make one Transformer differ from another."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import MISSING, Field, dataclass, fields
from importlib import resources
from typing import Literal, get_args

Norm = Literal["layer", "rms"]
NormPlacement = Literal["pre", "post"]
MLP = Literal["relu", "gelu", "gelu_tanh", "swiglu"]
Positions = Literal["none", "sinusoidal", "learned", "rotary"]
Pairing = Literal["halves", "even-odd"]
Output = Literal["logits", "states", "pooled"]


@dataclass(frozen=True, kw_only=True)
class Config:
    """A Transformer in words: counts are ``n_*``, widths ``d_*``.

    Sizes have no default, since no default would be honest; choices default to today's common block.
    Raises ``ValueError`` or ``TypeError`` for anything that cannot be built.
    """

    n_vocab: int  # chapter 1: entries of the vocabulary, rows of the embedding table
    d_model: int  # chapter 1: width of the residual stream, columns of the embedding table
    n_heads: int  # chapter 3: attentions side by side, each of width d_head = d_model / n_heads
    n_kv_heads: int  # chapter 3: heads of keys and values; fewer than n_heads means grouped queries
    n_context: int  # chapter 5: the longest sequence the positions cover
    d_ff: int  # chapter 7: width of the MLP's hidden layer, of each expert's if there are several
    n_layers: int  # chapter 8: blocks in the stack (of the decoder, where there is an encoder too)
    n_encoder_layers: int = 0  # chapter 8: blocks of an encoder beside it; 0 for a single stack
    n_experts: int = 1  # chapter 7: MLPs to choose from in a block
    n_active_experts: int = 1  # chapter 7: how many of them a token passes through
    n_token_types: int = 0  # chapter 13: kinds of segment with a learned row each (BERT has 2)
    window: int | None = None  # chapter 4: how far back a position looks, itself among them
    causal: bool = True  # chapter 4: no position looks ahead; False is an encoder's
    positions: Positions = "rotary"  # chapter 5
    pairing: Pairing = "halves"  # chapter 5: which features rotary positions turn together
    rope_base: float = 10_000.0  # chapter 5: the slowest of the rotary wavelengths is about 2 pi times this
    norm: Norm = "rms"  # chapter 6
    norm_placement: NormPlacement = "pre"  # chapter 6
    norm_eps: float = 1e-5  # chapter 6: added under the root
    mlp: MLP = "swiglu"  # chapter 7
    bias: bool = False  # chapter 14: a bias on every projection of attention and MLP
    attn_bias: bool | None = None  # chapter 14: attention's own choice, where it differs (2017: none)
    tied: bool = False  # chapter 8: the unembedding is the embedding table, transposed
    embed_scale: bool = False  # chapter 1: rows of the table times the root of d_model (2017)
    embed_norm: bool = False  # chapter 13: a norm right after the embedding (BERT)
    output: Output = "logits"  # chapter 8: scores of the vocabulary, the stream, or its pooled first position

    def __new__(cls, **given):
        known = [f.name for f in fields(cls)]
        for name in given:
            if name not in known:
                raise TypeError(f"Config has no field {name!r}{_nearest(name, known)}; it has: {', '.join(known)}.")
        missing = [f.name for f in fields(cls) if f.default is MISSING and f.name not in given]
        if given and missing:  # nothing given: a copy or an unpickled Config, which fills its fields afterwards
            raise TypeError(f"Config needs every size; missing: {', '.join(missing)}. Sizes have no default.")
        return super().__new__(cls)

    def __post_init__(self):
        for field in fields(self):
            _check_field(field, getattr(self, field.name))
        if self.d_model % self.n_heads:
            raise ValueError(
                f"d_model={self.d_model} does not divide into n_heads={self.n_heads} heads of equal width. "
                "Usual cause: one of the two was changed without the other."
            )
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads={self.n_heads} does not divide into n_kv_heads={self.n_kv_heads} groups. "
                "Every key and value head serves the same number of query heads; without grouping, "
                "n_kv_heads equals n_heads."
            )
        if self.n_active_experts > self.n_experts:
            raise ValueError(f"n_active_experts={self.n_active_experts} is more than n_experts={self.n_experts}.")
        if self.positions == "rotary" and self.d_head % 2:
            raise ValueError(
                f"rotary positions turn pairs of features, but d_head = d_model / n_heads = {self.d_head} is odd."
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"sinusoidal positions come in pairs, but d_model={self.d_model} is odd.")
        if self.window is not None and not self.causal:
            raise ValueError(f"window={self.window} looks back only, so it needs causal=True.")
        if self.n_encoder_layers:
            _check_two_stacks(self)

    @property
    def d_head(self) -> int:
        """Width of one head's queries, keys and values."""
        return self.d_model // self.n_heads

    @property
    def has_attn_bias(self) -> bool:
        """Whether attention's projections have biases."""
        return self.bias if self.attn_bias is None else self.attn_bias


_CHOICES = {"Norm": Norm, "NormPlacement": NormPlacement, "MLP": MLP}
_CHOICES |= {"Positions": Positions, "Pairing": Pairing, "Output": Output}
_MAY_BE_ZERO = ("n_encoder_layers", "n_token_types")


def _check_field(field: Field, value) -> None:
    """One field alone: a known choice, a flag, a positive number. The annotation says which."""
    kind = field.type
    if value is None and kind.endswith("| None"):
        return
    kind = kind.removesuffix(" | None")
    if kind in _CHOICES:
        allowed = get_args(_CHOICES[kind])
        if value not in allowed:
            hint = _nearest(value, allowed)
            raise ValueError(f"{field.name}={value!r} is not known{hint}; expected one of {allowed}.")
    elif kind == "bool":
        if not isinstance(value, bool):
            raise TypeError(f"{field.name}={value!r} must be True or False.")
    elif isinstance(value, bool) or not isinstance(value, int if kind == "int" else (int, float)):
        wanted = "an int" if kind == "int" else "a number"
        raise TypeError(f"{field.name}={value!r} must be {wanted}, not {type(value).__name__}.")
    elif kind == "float":
        if not 0 < value < float("inf"):
            raise ValueError(f"{field.name}={value} must be positive and finite.")
    elif value < (least := 0 if field.name in _MAY_BE_ZERO else 1):
        raise ValueError(f"{field.name}={value} must be at least {least}.")


def _check_two_stacks(config: Config) -> None:
    """Beside an encoder the decoder is the one of 2017: what only a single stack has is refused, not ignored."""
    single = {"n_token_types": 0, "window": None, "causal": True, "embed_norm": False, "output": "logits"}
    wrong = [f"{name}={getattr(config, name)!r}" for name, only in single.items() if getattr(config, name) != only]
    if config.positions not in ("sinusoidal", "none"):
        wrong.append(f"positions={config.positions!r}")
    if wrong:
        raise ValueError(
            f"n_encoder_layers={config.n_encoder_layers} does not go with {', '.join(wrong)}; with two stacks "
            f"positions are 'sinusoidal' or 'none', and the rest is {single}."
        )


def preset(name: str) -> Config:
    """The configuration of a real model, such as ``"gpt2-small"``, from ``families/*.toml``."""
    return Config(**_entry(name)["config"])


def published(name: str) -> int:
    """The parameter count of the model's released checkpoint (its source stands in the same file).

    Raises ``ValueError`` for a model of which only a rounded figure was ever printed.
    """
    record = _entry(name)["published"]
    if "n_parameters" not in record:
        raise ValueError(f"of {name} only a rounded figure was published: {record['printed']} ({record['source']}).")
    return record["n_parameters"]


def presets() -> list[str]:
    """Names that `preset` knows, in order."""
    return sorted(_entries())


def _entry(name: str) -> dict:
    entries = _entries()
    if name not in entries:
        raise ValueError(f"no preset is called {name!r}{_nearest(name, entries)}; there are: {', '.join(presets())}.")
    return entries[name]


def _entries() -> dict[str, dict]:
    entries = {}
    for file in sorted(resources.files("plainformer.families").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            family = tomllib.loads(file.read_text(encoding="utf-8"))
            for name, model in family["models"].items():
                entries[name] = {
                    "config": family["shared"] | model["config"],
                    "published": model["published"],
                }
    return entries


def _nearest(name, known) -> str:
    close = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.4)
    return f" (did you mean {close[0]!r}?)" if close else ""
