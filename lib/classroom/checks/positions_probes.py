"""What students of exercise 05 probe: functions that are relative or are not, and five heads of which one is right."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from plainformer import positions as library


def rows(n_positions: int, d_model: int, base: float) -> Tensor:
    return library.sinusoids(n_positions, d_model, base=base, dtype=torch.float64)


def turned(x: Tensor, positions: Tensor, base: float, pairing: str) -> Tensor:
    """What `turn` of the exercise returns."""
    return library.rotate(
        x, *library.rotary_angles(positions, x.shape[-1], base=base, dtype=torch.float64), pairing=pairing
    )


# ---- problem 6: the relative property ----


def _add_row(x: Tensor, positions: Tensor) -> Tensor:
    return x + rows(int(positions.max()) + 1, x.shape[-1], 10_000.0)[positions]


def _quarter(x: Tensor, positions: Tensor) -> Tensor:
    """Quarter turns of one pair, exactly."""
    first, second = x.unbind(-1)
    choices = torch.stack([torch.stack(pair, -1) for pair in ((first, second), (-second, first),
                                                             (-first, -second), (second, -first))])  # fmt: skip
    return choices[positions % 4, torch.arange(len(x))]


Rotation = Callable[[Tensor, Tensor], Tensor]
RELATIVE: dict[str, tuple[int, Rotation]] = {
    "no turn at all": (6, lambda x, p: x),
    "quarter turns of one pair": (2, _quarter),
    "halves": (8, lambda x, p: turned(x, p, 10_000.0, "halves")),
    "neighbours, base 500,000": (6, lambda x, p: turned(x, p, 500_000.0, "even-odd")),
    "turns the other way round": (10, lambda x, p: turned(x, -p, 100.0, "halves")),
    "angles of position − 1": (4, lambda x, p: turned(x, p - 1, 10_000.0, "even-odd")),
}
NOT_RELATIVE: dict[str, tuple[int, Rotation]] = {
    "a sinusoid added to x": (8, _add_row),
    "angles that grow with the square of the position": (6, lambda x, p: turned(x, p * p, 10_000.0, "halves")),
    "a turn that stretches as well": (10, lambda x, p: turned(x, p, 100.0, "halves") * (1 + p[:, None] / 1000)),
    "positions above 512 taken for 512": (4, lambda x, p: turned(x, p.clamp(max=512), 100.0, "even-odd")),
}


def scores(rotation: Rotation, q: Tensor, k: Tensor, p: int, r: int) -> float:
    at = torch.tensor([p, r])
    query, key = rotation(torch.stack([q, k]), at)
    return (query @ key).item()


# ---- problem 7: five heads, one of them right ----

VERDICTS = {"A": "values", "B": "exponent", "C": "right", "D": "shifted", "E": "sign"}


def head(kind: str) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Attention of one head without a mask, pairing halves, base 10,000, with the bug that `kind` names."""

    def attend(q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        def right(x, at=positions):
            return turned(x.double(), at, 10_000.0, "halves")

        q, k, v = q.double(), k.double(), v.double()
        if kind == "exponent":
            q, k = (turned(x, positions, 100.0, "halves") for x in (q, k))  # base^(−n/d) is (√base)^(−2n/d)
        elif kind == "sign":
            q, k = right(q, -positions), right(k, -positions)
        else:
            q, k = right(q, positions - int(kind == "shifted")), right(k)
        return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ (right(v) if kind == "values" else v)

    return attend
