"""The sizes and choices that make one Transformer differ from another."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, fields
from importlib import resources
from typing import Literal, get_args

Norm = Literal["layer", "rms"]
NormPlacement = Literal["pre", "post"]
MLP = Literal["relu", "gelu", "gelu_tanh", "swiglu"]
Positions = Literal["none", "sinusoidal", "learned", "rotary"]

_CHOICES = {"norm": Norm, "norm_placement": NormPlacement, "mlp": MLP, "positions": Positions}


@dataclass(frozen=True, kw_only=True)
class Config:
    """A decoder-only Transformer in a dozen words: counts are ``n_*``, widths ``d_*``.

    Sizes have no default, since no default would be honest; choices default to today's common block.
    Raises ``ValueError`` or ``TypeError`` for anything that cannot be built.
    """

    n_vocab: int  # chapter 1: entries of the vocabulary, rows of the embedding table
    d_model: int  # chapter 1: width of the residual stream, columns of the embedding table
    n_heads: int  # chapter 3: attentions side by side, each of width d_head = d_model / n_heads
    n_kv_heads: int  # chapter 3: heads of keys and values; fewer than n_heads means grouped queries
    n_context: int  # chapter 5: the longest sequence the positions cover
    d_ff: int  # chapter 7: width of the MLP's hidden layer
    n_layers: int  # chapter 8: blocks in the stack
    positions: Positions = "rotary"  # chapter 5
    norm: Norm = "rms"  # chapter 6
    norm_placement: NormPlacement = "pre"  # chapter 6
    mlp: MLP = "swiglu"  # chapter 7
    bias: bool = False  # chapter 14: a bias on every projection of attention and MLP
    tied: bool = False  # chapter 8: the unembedding is the embedding table, transposed

    def __new__(cls, **given):
        known = [f.name for f in fields(cls)]
        for name in given:
            if name not in known:
                raise TypeError(f"Config has no field {name!r}{_nearest(name, known)}; it has: {', '.join(known)}.")
        sizes = [f.name for f in fields(cls) if f.name not in _CHOICES and f.type == "int"]
        missing = [name for name in sizes if name not in given]
        if given and missing:  # nothing given: a copy or an unpickled Config, which fills its fields afterwards
            raise TypeError(f"Config needs every size; missing: {', '.join(missing)}. Sizes have no default.")
        return super().__new__(cls)

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _CHOICES:
                allowed = get_args(_CHOICES[field.name])
                if value not in allowed:
                    hint = _nearest(value, allowed)
                    raise ValueError(f"{field.name}={value!r} is not known{hint}; expected one of {allowed}.")
            elif field.type == "bool":
                if not isinstance(value, bool):
                    raise TypeError(f"{field.name}={value!r} must be True or False.")
            elif isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{field.name}={value!r} must be an int, not {type(value).__name__}.")
            elif value < 1:
                raise ValueError(f"{field.name}={value} must be at least 1.")
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
        if self.positions == "rotary" and self.d_head % 2:
            raise ValueError(
                f"rotary positions turn pairs of features, but d_head = d_model / n_heads = {self.d_head} is odd."
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"sinusoidal positions come in pairs, but d_model={self.d_model} is odd.")

    @property
    def d_head(self) -> int:
        """Width of one head's queries, keys and values."""
        return self.d_model // self.n_heads


def preset(name: str) -> Config:
    """The configuration of a real model, such as ``"gpt2-small"``, from ``families/*.toml``."""
    return Config(**_entry(name)["config"])


def published(name: str) -> int:
    """The parameter count that the model's authors' checkpoint holds (its source stands in the same file)."""
    return _entry(name)["published"]["n_parameters"]


def presets() -> list[str]:
    """Names that `preset` knows, smallest model first."""
    return sorted(_entries(), key=published)


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
