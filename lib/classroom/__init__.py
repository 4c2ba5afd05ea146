"""Everything that teaches or grades and is no part of a Transformer."""

from __future__ import annotations


def ready(seed: int = 0) -> None:
    """Checks the versions a chapter or an exercise needs, then makes the run repeatable.

    One thread: at these sizes a second one costs more than it brings, and sums come out in one order.
    Raises ``RuntimeError`` with what to do when torch is missing or too old.
    """
    try:
        import torch
    except ImportError as error:
        raise RuntimeError(f"torch is not installed here. {_AGAIN}") from error
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 9):
        raise RuntimeError(f"This course needs torch 2.9 or newer; this is {torch.__version__}. {_AGAIN}")
    torch.set_num_threads(1)
    torch.manual_seed(seed)


_AGAIN = "Run `make lab` (or the plain commands in the README) and choose the kernel of the course's .venv."
