"""Everything that teaches or grades and is no part of a Transformer."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

_TORCH = (2, 9)
_CURE = "Start with `make lab` (or the README's plain commands), or choose the kernel of the course's .venv."


def ready(seed: int = 0, *, made_for: str | None = None) -> None:
    """Checks the versions that a chapter or an exercise needs, then makes the run repeatable.

    ``made_for`` is the series of plainformer, such as "0.1", that an exercise was written for.
    One thread: at these sizes a second one costs more than it brings, and sums come out in one order.
    Raises ``RuntimeError`` with what to do when something is missing or of another version.
    """
    for package in ("torch", "plainformer"):
        try:
            version(package)
        except PackageNotFoundError:
            raise RuntimeError(f"The package {package} is not installed for this kernel. {_CURE}") from None
    if tuple(int(part) for part in version("torch").split(".")[:2]) < _TORCH:
        raise RuntimeError(
            f"This course needs torch {_TORCH[0]}.{_TORCH[1]} or newer; this is {version('torch')}. {_CURE}"
        )
    found = version("plainformer")
    if made_for is not None and found.split(".")[:2] != made_for.split("."):
        raise RuntimeError(
            f"plainformer {found} is installed; this exercise was made for {made_for}. "
            "Bring the course up to date (`git pull`, then `make lab`), and take a fresh copy of the exercise."
        )
    if "torch" in sys.modules:  # an exercise in plain Python does not wait for it
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(seed)
