"""Functions that hidden tests of problem 6 hand over, drawn anew each time: relative ones, and ones that are not.

Who knows all that students can see knows none of these. All are one formula with other numbers in it, so that an
error that a call provokes, or the time it takes, does not tell them apart either: what they return does.
None is harder to judge than those of `positions_probes`. One that is not relative moves the score of a query and a key
that stand a few positions apart by far more than rounding, from a start below 100 to one above 512.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from classroom.checks.positions_probes import Rotation

Version = tuple[int, Rotation]  # d_head, and the function
WIDTHS = (2, 4, 6, 8, 10)
F64 = torch.float64


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """What stands in the formula. Without the last seven it turns pairs, and nothing is wrong with it."""

    speeds: Tensor  # of d_head / 2 pairs
    into: Tensor  # (d_head, d_head): where features go, so that the first half pairs with the second
    out: Tensor  # (d_head, d_head): and where they go afterwards
    offset: int = 0
    bends: Tensor | float = 0.0  # of the pairs: how much of the position's square is added to it
    until: float = math.inf  # from here on a position counts by its share alone
    share: float = 1.0
    growth: float = 0.0  # a stretch for each position
    added: float = 0.0  # times a wave for each feature
    rates: Tensor | float = 0.0
    phases: Tensor | float = 0.0


def turn(dice: random.Random) -> Version:
    """Rotary positions in one of the two pairings, slowed down, either way round."""
    return _version(_rotary(dice, offset=dice.randint(-4, 4)))


def added(dice: random.Random) -> Version:
    """A wave added to each feature: at every position, distance and base the scores are others."""
    standing = _mixed(dice, [0.0] * dice.randint(1, 5))
    return _version(replace(standing, added=1.0, **_waves(dice, len(standing.into))))


def relative(dice: random.Random) -> dict[str, Version]:
    """Two, since a test that tries many positions takes its time with each."""
    speeds = [dice.uniform(-1, 1) for _ in range(dice.randint(1, 4))]
    return {
        "pairs turned": turn(dice),
        "mixed features, pairs at speeds of their own and one that stands": _version(_mixed(dice, [*speeds, 0.0])),
    }


def not_relative(dice: random.Random) -> dict[str, Version]:
    several = _rotary(dice, widths=WIDTHS[1:])
    fastest = torch.zeros_like(several.speeds)
    fastest[0] = dice.uniform(0.5, 1)
    far = {"until": dice.randint(448, 512), "share": dice.uniform(0, 0.3)}
    return {
        "a wave added to each feature": added(dice),
        "the square of the position": _version(_rotary(dice, bends=dice.uniform(0.5, 1))),
        "the square of the position, in the fastest pair": _version(replace(several, bends=fastest)),
        "a turn that stretches as well": _version(_rotary(dice, growth=1 / dice.uniform(300, 1000))),
        "far positions that count less": _version(_rotary(dice, **far)),
    }


def _rotary(dice: random.Random, widths: tuple[int, ...] = WIDTHS, **others) -> Numbers:
    d_head, base = dice.choice(widths), 10 ** dice.uniform(2, 6)
    order = dice.choice((torch.arange(d_head), torch.cat([torch.arange(0, d_head, 2), torch.arange(1, d_head, 2)])))
    into = torch.eye(d_head, dtype=F64)[:, order]
    fastest = dice.choice((1, -1)) * dice.uniform(0.6, 1)  # with 1 always, every base would turn the first pair alike
    speeds = fastest * base ** (-torch.arange(0, d_head, 2, dtype=F64) / d_head)
    return Numbers(speeds=_short(speeds), into=into, out=into.T, **others)


def _mixed(dice: random.Random, speeds: list[float]) -> Numbers:
    into, out = (_orthogonal(dice, 2 * len(speeds)) for _ in range(2))
    return Numbers(speeds=_short(torch.tensor(speeds, dtype=F64)), into=into, out=out)


def _short(speeds: Tensor) -> Tensor:
    """Rounded to 30 binary digits: a product with a position is exact then, and a test may ask for as many digits."""
    return (speeds * 2**30).round() / 2**30


def _orthogonal(dice: random.Random, d_head: int) -> Tensor:
    drawn = [[dice.gauss(0, 1) for _ in range(d_head)] for _ in range(d_head)]
    return torch.linalg.qr(torch.tensor(drawn, dtype=F64)).Q


def _waves(dice: random.Random, d_head: int) -> dict[str, Tensor]:
    drawn = [(dice.uniform(0.3, 1), dice.uniform(0, 2 * math.pi)) for _ in range(d_head)]
    return dict(zip(("rates", "phases"), torch.tensor(drawn, dtype=F64).unbind(1)))


def _version(n: Numbers) -> Version:
    def rotation(x: Tensor, positions: Tensor) -> Tensor:
        p = positions[..., None].to(F64) + n.offset
        p = p.clamp(max=n.until) + n.share * (p - n.until).clamp(min=0)
        angles = (p + n.bends * p * p.abs()) * n.speeds
        first, second = (x.to(F64) @ n.into).chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1) @ n.out
        return (turned * (1 + n.growth * p) + n.added * (p * n.rates + n.phases).sin()).to(x.dtype)

    return len(n.into), rotation
