"""Files of weights as they lie on the disk: names, shapes, tensors on demand, and what the file says of its model.

Two kinds: GGUF (one file with everything in it, often quantised) and safetensors (weights alone, with a
``config.json`` beside them). Nothing here knows a model; `plainformer.pretrained` gives the names their meaning.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, from_numpy


class CheckpointError(ValueError):
    """A file of weights that cannot be used. The message names the file, the key, what was expected, what to do."""


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: its shape, and the call that reads it (a view of the mapped file where it can be)."""

    shape: tuple[int, ...]
    read: Callable[[], Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """An open file of weights. ``metadata`` holds what it says of its model, nested names joined by dots."""

    path: Path
    kind: str  # "gguf" or "safetensors"
    metadata: dict[str, object]
    tensors: dict[str, Stored]


def open_checkpoint(path: str | Path | Checkpoint) -> Checkpoint:
    """Opens a ``.gguf`` or ``.safetensors`` file, or a folder with such files, and reads its table of contents.

    Nothing is downloaded and no tensor is read yet. An open `Checkpoint` is handed back as it is.
    Raises `CheckpointError` for a file that is missing, cut short, damaged or of another kind, and
    ``ImportError`` without the package that reads it (``gguf`` or ``safetensors``).
    """
    if isinstance(path, Checkpoint):
        return path
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob("model*.safetensors")) or sorted(path.glob("*.gguf"))
        if not files or (files[0].suffix == ".gguf" and len(files) > 1):
            names = ", ".join(file.name for file in files) or "neither"
            raise CheckpointError(f"{path}: expected model.safetensors or one .gguf file in the folder, found {names}.")
    else:
        files = [path]
    if not files[0].is_file():
        raise CheckpointError(f"{path}: no such file. A local path is needed; nothing is downloaded.")
    if files[0].suffix == ".gguf":
        return _open_gguf(files[0])
    if files[0].suffix == ".safetensors":
        return _open_safetensors(path, files)
    raise CheckpointError(
        f"{path}: expected a .gguf or .safetensors file. Usual cause: a pickled file (.bin, .pt), which can run "
        "code when it is read; convert it to safetensors with the tools of whoever published it."
    )


def _open_gguf(path: Path) -> Checkpoint:
    try:
        import gguf
    except ImportError as error:
        raise ImportError("reading a GGUF file needs the package gguf: pip install gguf") from error
    with path.open("rb") as file:
        magic, version = file.read(4), int.from_bytes(file.read(4), "little")
    if magic != b"GGUF":
        raise CheckpointError(
            f"{path}: expected the magic b'GGUF' at its start, found {magic!r}: a file of another kind."
        )
    if version and version & 0xFFFF == 0:  # a small number, written the other way round
        raise CheckpointError(f"{path}: big-endian. Expected little-endian; convert it with gguf-convert-endian.")
    try:
        reader = gguf.GGUFReader(path, "c")  # mapped; what is written to a tensor never reaches the file
        metadata = {name: field.contents() for name, field in reader.fields.items()}
        tensors = {
            tensor.name: Stored(
                tuple(int(n) for n in reversed(tensor.shape)),
                functools.partial(_dequantised, path, tensor.name, tensor.data, tensor.tensor_type),
            )
            for tensor in reader.tensors
        }
    except Exception as error:  # the reader checks little: a damaged file makes it raise whatever comes first
        raise _damaged(path, error) from error
    return Checkpoint(path, "gguf", metadata, tensors)


def _dequantised(path: Path, name: str, data, kind) -> Tensor:
    import gguf

    try:
        return from_numpy(gguf.dequantize(data, kind))
    except NotImplementedError as error:
        raise CheckpointError(
            f"{path}: {name} is stored as {kind.name}, which the package gguf cannot dequantise. "
            "Take a file of another quantisation, such as Q8_0 or F16."
        ) from error


def _open_safetensors(path: Path, files: list[Path]) -> Checkpoint:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ImportError(
            "reading a safetensors file needs the package safetensors: pip install safetensors"
        ) from error
    tensors = {}
    for file in files:
        try:
            handle = safe_open(file, framework="pt")  # mapped; it also checks that the tensors fill the file
            found = {
                name: Stored(tuple(handle.get_slice(name).get_shape()), functools.partial(handle.get_tensor, name))
                for name in handle.keys()  # noqa: SIM118 (no mapping)
            }
        except (SafetensorError, OSError, ValueError) as error:
            raise _damaged(file, error) from error
        if twice := found.keys() & tensors.keys():
            raise CheckpointError(f"{file}: {min(twice)} stands in another file of the folder too.")
        tensors |= found
    config = files[0].parent / "config.json"
    return Checkpoint(path, "safetensors", _read_json(config) if config.is_file() else {}, tensors)


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{path}: cut short or damaged ({type(error).__name__}: {error}). "
        "Usual cause: an interrupted download; compare its size with the published one and fetch it again."
    )


def _read_json(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # JSON's and UTF-8's errors among them
        raise _damaged(path, error) from error
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{path}: expected a JSON object with the model's sizes, found a {type(content).__name__}."
        )
    return _flat(content)


def _flat(content: dict) -> dict[str, object]:
    """Nested names joined by dots; null says nothing and is left out."""
    flat = {}
    for name, value in content.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": deep for inner, deep in _flat(value).items()}
        elif value is not None:
            flat[name] = value
    return flat
