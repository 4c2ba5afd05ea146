"""What crosses between a student's process and the judge: plain data of exact types, in msgpack's form.

Reading never runs anything: numbers, texts, containers, tensors and arrays come out as themselves, and everything
else as a `Handle`, the number of an object that stays where it is. A subclass of a plain type is no plain type.
The judge may send more than that to a student's process: a model, which is pickled.
"""

from __future__ import annotations

import io
import math
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
import torch

from classroom.grading import drawing

DEEPEST = 64  # containers inside containers; each level costs a few Python frames on the reading side
_TUPLE, _INT, _TENSOR, _ARRAY, _SET, _FROZENSET, _COMPLEX, _DTYPE = range(1, 9)
_SIZE, _RANGE, _SCALAR, _HANDLE, _OWN, _PICKLE, _AGAIN, _DRAWING, _COLLECTION, _ELLIPSIS = range(9, 19)
_COLLECTIONS = {kind.__name__: kind for kind in (Counter, OrderedDict, defaultdict, deque)}
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_SIZES = {name: dtype.itemsize for name, dtype in _DTYPES.items() if not name.startswith(("q", "bits"))}
_ARRAYS = {np.dtype(kind).str for kind in "?bBhHiIlLqQefdFD"}


class NotPlain(ValueError):
    """A message that is none, or a value that cannot be sent."""


@dataclass(frozen=True)
class Handle:
    """An object that stays on the other side: its number there, its type's name, and whether it can be called."""

    number: int
    type_name: str
    is_callable: bool


def encode(value: Any, keep: Callable[[Any], Handle | int], *, models: dict | None = None) -> bytes:
    """`value` as bytes. `keep` gives the `Handle` of an object that is not plain, or the other side's own number of it.

    A tensor that stands in `value` twice is one tensor on the other side too. `models` are those that were sent before,
    by their id: with it a model may be sent, and one that comes again unchanged is the same object as then.
    Raises `NotPlain` for containers that are nested too deep or hold themselves.
    """

    tensors: dict[int, int] = {}

    def pack(inner: Any) -> bytes:
        return msgpack.packb(inner, default=other, strict_types=True, unicode_errors="surrogatepass")

    def other(inner: Any) -> msgpack.ExtType:
        kind = type(inner)
        if kind is tuple:
            return msgpack.ExtType(_TUPLE, pack(list(inner)))
        if inner is ...:  # not answered yet
            return msgpack.ExtType(_ELLIPSIS, b"")
        if kind is int:
            return msgpack.ExtType(_INT, inner.to_bytes(inner.bit_length() // 8 + 1, "little", signed=True))
        if kind in (set, frozenset):
            return msgpack.ExtType(_SET if kind is set else _FROZENSET, pack(list(inner)))
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            if id(inner) in tensors:
                return msgpack.ExtType(_AGAIN, pack(tensors[id(inner)]))
            if (parts := _tensor(inner)) is not None:
                tensors[id(inner)] = len(tensors)
                return msgpack.ExtType(_TENSOR, pack(parts))
        elif kind is np.ndarray:
            if inner.dtype.str in _ARRAYS:
                return msgpack.ExtType(_ARRAY, pack([inner.dtype.str, list(inner.shape), inner.tobytes()]))
        elif isinstance(inner, np.generic) and kind.__module__ == "numpy" and inner.dtype.str in _ARRAYS:
            return msgpack.ExtType(_SCALAR, pack([inner.dtype.str, inner.tobytes()]))
        elif kind in _COLLECTIONS.values():
            content = list(inner) if kind is deque else dict(inner)
            return msgpack.ExtType(_COLLECTION, pack([kind.__name__, content]))
        elif kind is complex:
            return msgpack.ExtType(_COMPLEX, pack([inner.real, inner.imag]))
        elif kind is torch.dtype:
            return msgpack.ExtType(_DTYPE, str(inner).removeprefix("torch.").encode())
        elif kind is torch.Size:
            return msgpack.ExtType(_SIZE, pack(list(inner)))
        elif kind is range:
            return msgpack.ExtType(_RANGE, pack([inner.start, inner.stop, inner.step]))
        elif drawing.is_drawing(inner):
            return msgpack.ExtType(_DRAWING, pack(drawing.described(inner)))
        if models is not None and (data := _pickled(inner)) is not None:
            number, _ = models.setdefault(id(inner), (len(models), inner))  # kept, so that no other gets its id
            return msgpack.ExtType(_PICKLE, pack([number, data]))
        kept = keep(inner)
        if isinstance(kept, int):
            return msgpack.ExtType(_OWN, pack(kept))
        return msgpack.ExtType(_HANDLE, pack([kept.number, kept.type_name, kept.is_callable]))

    try:
        return pack(value)
    except (ValueError, RecursionError, OverflowError) as error:
        raise NotPlain(f"the value cannot be sent: {error}") from None


def decode(
    data: bytes, stand_in: Callable[[Handle], Any], own: Callable[[int], Any], *, models: dict | None = None
) -> Any:
    """The value in `data`. `stand_in` makes what represents an object of the other side, `own` finds one of this side.

    Raises `NotPlain` for anything that `encode` does not write. Pickles are read only with `models`, those read before.
    """
    depth = 0
    tensors: list[torch.Tensor] = []

    def unpack(inner: bytes) -> Any:
        nonlocal depth
        depth += 1
        if depth > DEEPEST:
            raise NotPlain("nested too deep")
        value = msgpack.unpackb(inner, ext_hook=ext, strict_map_key=False, unicode_errors="surrogatepass")
        depth -= 1
        return value

    def ext(code: int, inner: bytes) -> Any:
        if code == _TUPLE:
            return tuple(_list(unpack(inner)))
        if code == _ELLIPSIS:
            return ...
        if code == _INT:
            return int.from_bytes(inner, "little", signed=True)
        if code in (_SET, _FROZENSET):
            return (set if code == _SET else frozenset)(_list(unpack(inner)))
        if code == _TENSOR:
            tensors.append(_as_tensor(*_list(unpack(inner), 4)))
            return tensors[-1]
        if code == _AGAIN:
            return tensors[_is(unpack(inner), int)]
        if code == _DRAWING:
            return drawing.redrawn(unpack(inner))
        if code in (_ARRAY, _SCALAR):
            parts = _list(unpack(inner), 3 if code == _ARRAY else 2)
            return _as_array(*parts) if code == _ARRAY else _as_array(parts[0], [], parts[1])[()]
        if code == _COLLECTION:
            return _as_collection(*_list(unpack(inner), 2))
        if code == _COMPLEX:
            real, imaginary = _list(unpack(inner), 2)
            return complex(_is(real, float), _is(imaginary, float))
        if code == _DTYPE:
            return _DTYPES[inner.decode("ascii")]
        if code == _SIZE:
            return torch.Size([_is(size, int) for size in _list(unpack(inner))])
        if code == _RANGE:
            return range(*(_is(part, int) for part in _list(unpack(inner), 3)))
        if code == _OWN:
            return own(_is(unpack(inner), int))
        if code == _HANDLE:
            number, name, is_callable = _list(unpack(inner), 3)
            return stand_in(Handle(_is(number, int), _is(name, str)[:80], _is(is_callable, bool)))
        if code == _PICKLE and models is not None:
            number, data = _list(unpack(inner), 2)
            if models.get(number, (None,))[0] != data:
                models[number] = data, pickle.loads(data)
            return models[number][1]
        raise NotPlain(f"unknown kind {code}")

    try:
        return unpack(data)
    except NotPlain:
        raise
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        OverflowError,
        RecursionError,
        RuntimeError,
        MemoryError,
    ) as error:
        raise NotPlain(f"no plain data: {type(error).__name__}: {error}") from None
    except msgpack.UnpackException as error:
        raise NotPlain(f"no plain data: {type(error).__name__}") from None


def _tensor(tensor: torch.Tensor) -> list | None:
    """Type, shape, bytes and whether it asks for a gradient; None for a tensor without plain numbers."""
    name = str(tensor.dtype).removeprefix("torch.")
    if (
        tensor.device.type not in ("cpu", "meta")
        or tensor.layout is not torch.strided
        or tensor.is_quantized
        or name not in _SIZES
    ):
        return None
    if tensor.is_meta:
        return [name, list(tensor.shape), None, False]
    # a copy: a view of one number may have any stride, which `view` refuses
    flat = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).reshape(-1)
    leaf = bool(tensor.requires_grad and tensor.is_leaf)
    return [name, list(tensor.shape), flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"", leaf]


def _as_tensor(name: Any, shape: Any, data: Any, leaf: Any) -> torch.Tensor:
    shape = [_is(size, int) for size in _list(shape)]
    if any(size < 0 for size in shape) or len(shape) > 64:
        raise NotPlain("no shape")
    if data is None:
        return torch.empty(shape, dtype=_DTYPES[_is(name, str)], device="meta")
    if math.prod(shape) * _SIZES[_is(name, str)] != len(_is(data, bytes)):
        raise NotPlain("a tensor whose bytes do not fit its shape")
    if name == "bool" and data.strip(b"\0\1"):
        raise NotPlain("a truth that is neither true nor false")
    flat = torch.frombuffer(bytearray(data), dtype=_DTYPES[name]) if data else torch.empty(0, dtype=_DTYPES[name])
    return flat.reshape(shape).requires_grad_(_is(leaf, bool))


def _as_array(kind: Any, shape: Any, data: Any) -> np.ndarray:
    if _is(kind, str) not in _ARRAYS:
        raise NotPlain("no array of numbers")
    shape = [_is(size, int) for size in _list(shape)]
    if any(size < 0 for size in shape):
        raise NotPlain("no shape")
    if np.dtype(kind) == bool and _is(data, bytes).strip(b"\0\1"):
        raise NotPlain("a truth that is neither true nor false")
    return np.frombuffer(bytearray(_is(data, bytes)), dtype=kind).reshape(shape)


def _as_collection(name: Any, content: Any) -> Any:
    kind = _COLLECTIONS[_is(name, str)]
    content = _is(content, list if kind is deque else dict)
    return defaultdict(None, content) if kind is defaultdict else kind(content)


def _pickled(value: Any) -> bytes | None:
    """A model or a Config, pickled; None for anything else, and for what cannot be."""
    if not (isinstance(value, torch.nn.Module) or type(value).__module__.startswith("plainformer.")):
        return None
    if not type(value).__module__.startswith(("torch.", "plainformer.")):
        return None
    buffer = io.BytesIO()
    try:
        pickle.Pickler(buffer, protocol=5).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError):
        return None
    return buffer.getvalue()


def _list(value: Any, length: int | None = None) -> list:
    if type(value) is not list or length not in (None, len(value)):
        raise NotPlain("a part is missing")
    return value


def _is(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise NotPlain(f"{kind.__name__} was expected")
    return value
