"""From what a file of weights says of its model to a `Config`: the tables of fields in ``families/*.toml``.

A line ``n_embd = "d_model"`` gives a field of the file its name here (a list: several names). One that needs more
is a table: ``to``, ``values`` (theirs to ours), ``optional = true``, or ``absent``, what holds where it is missing:
a value, or ``{ of = "n_embd", times = 4 }``. ``fixed`` fields must have the value given, if they are there;
``harmless`` ones change nothing that this library computes. Any other field is an error: it might.
"""

from __future__ import annotations

import tomllib
from dataclasses import fields
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path

from plainformer.checkpoints import Checkpoint, CheckpointError, open_checkpoint
from plainformer.config import Config


def read_config(path: str | Path | Checkpoint, *, family: str | None = None) -> Config:
    """The `Config` that a GGUF file's metadata or the ``config.json`` beside a safetensors file describes.

    ``family`` names a file of ``families/``; by default the one that recognises this file.
    Raises `CheckpointError` for a field that is missing, unknown or of a value that cannot be built.
    """
    checkpoint = open_checkpoint(path)
    family = family or family_of_file(checkpoint)
    given = _given(checkpoint, table_of(family, checkpoint.kind))
    known = {field.name for field in fields(Config)}
    try:
        config = Config(**_families()[family]["shared"] | {name: given[name] for name in given if name in known})
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{checkpoint.path}: its fields make no model. {error}") from error
    for name, value in given.items():  # what a Config derives, such as d_head, some files say again
        if getattr(config, name) != value:
            raise CheckpointError(
                f"{checkpoint.path}: says {name}={value!r}, expected {getattr(config, name)!r} by its other fields; "
                "a model where the two differ cannot be built here."
            )
    return config


def _given(checkpoint: Checkpoint, table: dict) -> dict[str, object]:
    """What the file gives, by our names."""
    metadata, given, source = checkpoint.metadata, {}, {}
    _refuse_unknown(checkpoint, table)
    for theirs, spec in table["fields"].items():
        spec = spec if isinstance(spec, dict) else {"to": spec}
        if theirs in metadata:
            value = metadata[theirs]
            if "values" in spec:
                if not isinstance(value, str) or value not in spec["values"]:
                    raise CheckpointError(
                        f"{checkpoint.path}: {theirs}={value!r}; expected one of {[*spec['values']]}."
                    )
                value = spec["values"][value]
        elif spec.get("optional"):
            continue
        elif "absent" in spec:
            value = spec["absent"]
            if isinstance(value, dict):  # a multiple of another field; if that is missing too, its own turn reports it
                value = metadata.get(value["of"], 0) * value.get("times", 1)
        else:
            raise CheckpointError(
                f"{checkpoint.path}: the field {theirs} is missing from what the file says of its model. "
                "Usual cause: no config.json, or that of another model, beside the weights."
            )
        for ours in [spec["to"]] if isinstance(spec["to"], str) else spec["to"]:
            if given.setdefault(ours, value) != value:
                raise CheckpointError(
                    f"{checkpoint.path}: {theirs}={value!r} contradicts {source[ours]}={given[ours]!r}."
                )
            source[ours] = theirs
    if "tied_without" in table:
        given["tied"] = table["tied_without"] not in checkpoint.tensors
    return given


def _refuse_unknown(checkpoint: Checkpoint, table: dict) -> None:
    for name, value in checkpoint.metadata.items():
        if name in table["fields"] or any(fnmatchcase(name, pattern) for pattern in table["harmless"]):
            continue
        if name not in table["fixed"]:
            raise CheckpointError(
                f"{checkpoint.path}: {name}={value!r} is a field that this library does not know, so it may change "
                "what the model computes. If it does not, add it to the family's harmless fields."
            )
        if value != table["fixed"][name]:
            raise CheckpointError(
                f"{checkpoint.path}: {name}={value!r} is not supported; expected {table['fixed'][name]!r}."
            )


def table_of(family: str, kind: str) -> dict:
    """A family's table for files of a kind. Raises ``ValueError`` if there is none."""
    with_table = {name: content for name, content in _families().items() if kind in content.get("weights", {})}
    if family not in with_table:
        raise ValueError(f"family={family!r} has no table for {kind} files; expected one of {sorted(with_table)}.")
    return with_table[family]["weights"][kind]


def family_of_preset(name: str) -> str:
    """The family that a preset belongs to: the name of its file."""
    return next(family for family, content in _families().items() if name in content["models"])


def family_of_file(checkpoint: Checkpoint) -> str:
    """The family whose table recognises a file by what it says of itself. Raises `CheckpointError` if none does."""
    for family, content in _families().items():
        recognised = content.get("weights", {}).get(checkpoint.kind, {}).get("recognise", {})
        if any(checkpoint.metadata.get(field) in values for field, values in recognised.items()):
            return family
    field = {"gguf": "general.architecture", "safetensors": "model_type"}[checkpoint.kind]
    raise CheckpointError(
        f"{checkpoint.path}: {field}={checkpoint.metadata.get(field)!r} is of no family here. If the weights are, "
        f"say family= one of {sorted(name for name, content in _families().items() if 'weights' in content)}."
    )


def _families() -> dict[str, dict]:
    files = [file for file in resources.files("plainformer.families").iterdir() if file.name.endswith(".toml")]
    return {file.name.removesuffix(".toml"): tomllib.loads(file.read_text(encoding="utf-8")) for file in files}
