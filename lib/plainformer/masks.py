"""Which key may a query look at? Boolean masks: True means "may look".

A mask has the shape of the scores, (query, key), or one that broadcasts to (batch, head, query, key).
Masks combine with ``&``. Where a mask says False, attention puts −∞ before the softmax, never a large
negative number: −10,000 loses against a score of −20,000, −∞ against none.
"""

from __future__ import annotations

import torch
from torch import Tensor

from plainformer.shapes import Bool, Int


def causal(n_query: int, n_key: int | None = None, *, device: torch.device | None = None) -> Bool["query key"]:
    """Each query looks at its own position and at earlier ones: T (T + 1) / 2 of the T² pairs.

    With more keys than queries (keys kept from earlier steps) the last query stands at the last key.
    """
    queries, keys = _positions(n_query, n_key, device)
    return keys <= queries


def sliding_window(
    n_query: int, n_key: int | None = None, *, window: int, device: torch.device | None = None
) -> Bool["query key"]:
    """Causal, and no further back than ``window`` positions, a query's own among them."""
    if not isinstance(window, int) or isinstance(window, bool) or window < 1:
        raise ValueError(f"window={window!r} must be an int of at least 1: a query always sees its own position.")
    queries, keys = _positions(n_query, n_key, device)
    return (keys <= queries) & (keys > queries - window)


def padding(lengths: Int["batch"], n_key: int) -> Bool["batch 1 1 key"]:
    """Hides the filler behind each sequence of a batch: sequence b has ``lengths[b]`` real tokens.

    Only keys are hidden. A query that is filler still looks at the real tokens; nobody reads its output.
    """
    if not isinstance(lengths, Tensor):
        raise TypeError(f"lengths must be a tensor, one entry a sequence; got {type(lengths).__name__}.")
    if lengths.dim() != 1 or lengths.dtype not in (torch.int32, torch.int64):
        raise ValueError(
            f"lengths must be a vector of int32 or int64, one entry a sequence; "
            f"got shape {tuple(lengths.shape)} of {lengths.dtype}."
        )
    if not lengths.is_meta and not bool(((lengths >= 1) & (lengths <= n_key)).all()):
        raise ValueError(
            f"lengths must lie in 1 … n_key={n_key}; got {lengths.tolist()}. An empty sequence has no keys."
        )
    keys = torch.arange(n_key, device=lengths.device)
    return (keys < lengths[:, None])[:, None, None, :]


def _positions(n_query: int, n_key: int | None, device: torch.device | None) -> tuple[Tensor, Tensor]:
    n_key = n_query if n_key is None else n_key
    if not 1 <= n_query <= n_key:
        raise ValueError(
            f"a causal mask needs 1 ≤ n_query ≤ n_key, got n_query={n_query}, n_key={n_key}. "
            "Keys cover the whole sequence so far, queries its last part."
        )
    keys = torch.arange(n_key, device=device)
    return keys[n_key - n_query :, None], keys
