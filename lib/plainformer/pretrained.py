"""Reading what others trained, from files that are already on this machine."""

from __future__ import annotations

from pathlib import Path

from plainformer.tokenizer_file import from_visible
from plainformer.tokens import Tokenizer

_SPLIT_OF = {"gpt-2": "gpt2", "smollm": "single-digits"}  # tokenizer.ggml.pre -> our name of the rule
_ORDINARY = 1  # tokenizer.ggml.token_type of an entry that text can be made of; 3 marks a control token


def tokenizer_from_gguf(path: str | Path) -> Tokenizer:
    """The byte-level BPE tokenizer that a GGUF model file carries in its metadata.

    Control tokens such as ``<|im_start|>`` keep their ids; encoding text never produces them.
    Raises ``ValueError`` for a tokenizer of another kind, ``ImportError`` without the package ``gguf``.
    """
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ImportError("reading a GGUF file needs the package gguf: pip install gguf") from error
    fields = GGUFReader(Path(path)).fields

    def content(name: str):
        return fields[f"tokenizer.ggml.{name}"].contents() if f"tokenizer.ggml.{name}" in fields else None

    if content("model") != "gpt2" or content("pre") not in _SPLIT_OF:
        raise ValueError(
            f"{Path(path).name} carries a tokenizer of kind {content('model')!r} / {content('pre')!r}; "
            f"expected byte-level BPE ('gpt2') with one of {tuple(_SPLIT_OF)}."
        )
    names = content("tokens")
    vocabulary = [
        from_visible(name) if kind == _ORDINARY else name.encode("utf-8")
        for name, kind in zip(names, content("token_type"))
    ]
    id_of = {name: i for i, name in enumerate(names)}
    merges = [tuple(id_of[half] for half in pair.split(" ")) for pair in content("merges")]
    return Tokenizer(vocabulary, merges, split=_SPLIT_OF[content("pre")])
