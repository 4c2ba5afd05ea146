"""How much memory an answer takes for the tensors it makes."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import ClassVar

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Memory(TorchDispatchMode):
    """Bytes of the largest tensor made, and of all tensors made that are alive at the worst moment.

    `in_use` are those that count now: where an answer runs in a process of its own, that one counts for them (`add`).
    """

    in_use: ClassVar[list[Memory]] = []

    def __init__(self):
        super().__init__()
        self.alive, self.now, self.peak, self.largest = {}, 0, 0, 0

    def __enter__(self) -> Memory:
        self.in_use.append(self)
        return super().__enter__()

    def __exit__(self, *raised) -> None:
        self.in_use.remove(self)
        super().__exit__(*raised)

    def add(self, peak: int, largest: int) -> None:
        """What was counted elsewhere while this one was in use."""
        self.peak, self.largest = max(self.peak, self.now + peak), max(self.largest, largest)

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        old = {id(t.untyped_storage()) for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        result = operation(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._add(tensor.untyped_storage(), old)
        return result

    def _add(self, storage, old: set[int]) -> None:
        key, size = id(storage), storage.nbytes()
        if key in old or key in self.alive:  # a view, or written in place
            return
        self.alive[key] = size
        self.now += size
        self.peak, self.largest = max(self.peak, self.now), max(self.largest, size)
        weakref.finalize(storage, self._remove, key)

    def _remove(self, key: int) -> None:
        self.now -= self.alive.pop(key)


# Where answers run in a process of their own: runs a call there, and tells by how many bytes that process grew.
growth: Callable[[Callable[[], object]], int] | None = None


def fits(call: Callable[[], object], n_bytes: int) -> bool:
    """Whether a call of an answer takes so much memory at most, as the system counts.

    A `Memory` counts exactly, but beside the answer, which could change its count. True without asking where the
    answer runs in this process.
    """
    return growth is None or growth(call) <= n_bytes
