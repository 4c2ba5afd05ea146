"""Reading what others trained, from files that are already on this machine.

What differs between families is data: ``families/*.toml`` says what a file calls each weight and each size.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from plainformer.attention import attention
from plainformer.checkpoints import Checkpoint, CheckpointError, open_checkpoint
from plainformer.config import Config, preset
from plainformer.config_file import family_of_file, family_of_preset, read_config, table_of
from plainformer.model import Transformer
from plainformer.shapes import Float
from plainformer.tokenizer_file import from_visible
from plainformer.tokens import Tokenizer
from plainformer.weight_names import Names, Row

_SPLIT_OF = {"gpt-2": "gpt2", "smollm": "single-digits"}  # tokenizer.ggml.pre -> our name of the rule
_ORDINARY = 1  # tokenizer.ggml.token_type of an entry that text can be made of; 3 marks a control token


def load(
    path: str | Path | Checkpoint,
    config: Config | str | None = None,
    *,
    family: str | None = None,
    dtype: torch.dtype = torch.float32,
    attend: Callable[..., Tensor] = attention,
) -> Transformer:
    """The model whose weights lie in a ``.gguf`` or ``.safetensors`` file, or in a folder with one.

    ``config`` is a `Config`, the name of a preset, or None for what the file says itself. ``family`` names the
    TOML file whose table gives the file's names their meaning; a preset or the file's metadata name it too.
    Weights keep their place in the mapped file where neither type nor layout changes. Everything is checked
    before a model is built: raises `CheckpointError` for a damaged file, for a missing, unknown or misshapen
    tensor and for weights that are not finite.
    """
    checkpoint = open_checkpoint(path)
    if isinstance(config, str):
        config, family = preset(config), family or family_of_preset(config)
    family = family or family_of_file(checkpoint)
    config = read_config(checkpoint, family=family) if config is None else config
    with torch.device("meta"):  # shapes without numbers: what the file must hold
        model = Transformer(config, attend=attend)
    state = _assemble(checkpoint, Names(table_of(family, checkpoint.kind)), model, dtype)
    model.load_state_dict(state, strict=True, assign=True)
    return model


def export(model: Transformer, family: str, *, kind: str = "safetensors") -> dict[str, Float["..."]]:
    """The weights under the names, and in the layout, that files of this kind have: `load` undone.

    What needs no new layout shares its memory with the model. A tied unembedding is left out, as files do.
    Raises ``ValueError`` for a weight without a name in the family's table.
    """
    names, state, exported = Names(table_of(family, kind)), model.state_dict(), {}
    written = set()
    for name in state:
        if name in written:
            continue
        placed = names.theirs(name)
        if placed is None:
            raise ValueError(
                f"{name} has no name in files of the family {family!r}. Usual cause: another family's model."
            )
        row, theirs, ours = placed
        exported[theirs] = row.write([state[part] for part in ours], model.config)
        written |= {*ours}
    return exported


def tokenizer_of(path: str | Path | Checkpoint) -> Tokenizer:
    """The tokenizer in a GGUF file, or in the ``tokenizer.json`` beside a safetensors file.

    Raises ``ValueError`` for a tokenizer of another kind than byte-level BPE.
    """
    checkpoint = open_checkpoint(path)
    if checkpoint.kind == "gguf":
        return tokenizer_from_gguf(checkpoint)
    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    if not (folder / "tokenizer.json").is_file():
        raise CheckpointError(f"{folder}: has no tokenizer.json; put the one published with these weights there.")
    return Tokenizer.load(folder / "tokenizer.json")


def stop_ids(path: str | Path | Checkpoint) -> frozenset[int]:
    """Ids that end a text, as the file's metadata say; none if they do not."""
    metadata = open_checkpoint(path).metadata
    stop = metadata.get("tokenizer.ggml.eos_token_id", metadata.get("eos_token_id", []))
    return frozenset(stop if isinstance(stop, list) else [stop])


def tokenizer_from_gguf(path: str | Path | Checkpoint) -> Tokenizer:
    """The byte-level BPE tokenizer that a GGUF model file carries in its metadata.

    Control tokens such as ``<|im_start|>`` keep their ids; encoding text never produces them.
    Raises `CheckpointError` for a tokenizer of another kind, ``ImportError`` without the package ``gguf``.
    """
    checkpoint = open_checkpoint(path)

    def content(name: str):
        return checkpoint.metadata.get(f"tokenizer.ggml.{name}")

    if content("model") != "gpt2" or content("pre") not in _SPLIT_OF:
        raise CheckpointError(
            f"{checkpoint.path} carries a tokenizer of kind {content('model')!r} / {content('pre')!r}; "
            f"expected byte-level BPE ('gpt2') with one of {tuple(_SPLIT_OF)}."
        )
    if absent := [name for name in ("tokens", "token_type", "merges") if content(name) is None]:
        raise CheckpointError(f"{checkpoint.path}: tokenizer.ggml.{absent[0]} is missing from its metadata.")
    names = content("tokens")
    id_of = {name: i for i, name in enumerate(names)}
    try:
        vocabulary = [
            from_visible(name) if kind == _ORDINARY else name.encode("utf-8")
            for name, kind in zip(names, content("token_type"), strict=True)
        ]
        merges = [tuple(id_of[half] for half in pair.split(" ")) for pair in content("merges")]
        return Tokenizer(vocabulary, merges, split=_SPLIT_OF[content("pre")])
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{checkpoint.path}: entries of its tokenizer do not fit together ({error}).") from error


# --- from a file's tensors to the model's state ----------------------------------------------------------------------


def _assemble(checkpoint: Checkpoint, names: Names, model: Transformer, dtype: torch.dtype) -> dict[str, Tensor]:
    """Every weight of the model, read and checked. Names and shapes first: a wrong file is refused unread."""
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    placed, copies = _match(checkpoint, names, model.config, shapes)
    state = {}
    for theirs, (row, ours) in placed.items():
        stored = _read(checkpoint, theirs)
        parts = row.read(stored, [shapes[name][0] for name in ours], model.config)
        for name, part in zip(ours, parts):
            state[name] = part.to(dtype)
            if not all(bool(end.isfinite()) for end in state[name].aminmax()):  # NaN too; and no mask of all is made
                raise CheckpointError(
                    f"{checkpoint.path}: {theirs} holds numbers that are not finite as {dtype}. "
                    "Usual cause: a training run that diverged, or a dtype too narrow for these weights."
                )
    for theirs in copies:  # the file spells out a table that the model has once
        if not torch.equal(_read(checkpoint, theirs).to(dtype), state["embed.weight"]):
            raise CheckpointError(
                f"{checkpoint.path}: {theirs} differs from the embedding table, but the config says tied=True. "
                "Load it with tied=False."
            )
    return state


def _match(
    checkpoint: Checkpoint, names: Names, config: Config, shapes: dict[str, tuple[int, ...]]
) -> tuple[dict[str, tuple[Row, list[str]]], list[str]]:
    """Which row each tensor of the file belongs to, and which are copies of the tied table. Strict both ways."""
    path, placed, copies, owner = checkpoint.path, {}, [], {}
    for theirs, stored in checkpoint.tensors.items():
        row, ours = names.ours(theirs) or (None, [])
        if row is None and names.is_ignored(theirs):
            continue
        if config.tied and ours == ["unembed.weight"]:
            copies.append(theirs)
            continue
        if row is None or not shapes.keys() >= {*ours}:
            raise CheckpointError(
                f"{path}: {theirs} has no place in this model. "
                "Usual cause: another family's file, or a config with fewer layers or parts than the file."
            )
        wanted = row.stored_shape([shapes[name] for name in ours])
        if stored.shape != wanted:
            raise CheckpointError(
                f"{path}: {theirs} has the shape {stored.shape}, expected {wanted}. "
                "Usual cause: a config of other sizes."
            )
        if ours[0] in owner:
            raise CheckpointError(f"{path}: {theirs} and {owner[ours[0]]} are both {ours[0]}; expected one of them.")
        placed[theirs] = row, ours
        owner |= dict.fromkeys(ours, theirs)
    if missing := [name for name in shapes if name not in owner]:
        example = names.theirs(missing[0])
        raise CheckpointError(
            f"{path}: {len(missing)} of {len(shapes)} weights are missing, {missing[0]} first"
            f"{f' (there {example[1]})' if example else ''}. "
            "Usual cause: a part of a split file, or a config with more layers or parts than the file."
        )
    return placed, copies


def _read(checkpoint: Checkpoint, name: str) -> Tensor:
    stored = checkpoint.tensors[name].read()
    if not stored.is_floating_point():
        raise CheckpointError(
            f"{checkpoint.path}: {name} holds {stored.dtype}, expected floating-point numbers. "
            "Usual cause: a file quantised in a way that this library does not read."
        )
    return stored
