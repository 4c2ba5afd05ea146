"""Problems 1 and 8 of exercise 12, what a position in the loss is worth: their checks and the slips these know."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from classroom.checks.expect import CheckFailed, call, given, number, passed, refuse, same
from classroom.checks.progress import graded
from classroom.checks.training_answers import GOAL, steps_until

STEPS = steps_until(GOAL, range)  # with all positions in the loss

# check → what the slip is → the answers it gives
WORTH: dict[str, dict[str, dict]] = {
    "predict": {
        "fewer losses a step cannot make it faster": {"guess": 0.2},
        "that is far more than the positions that are left out": {"guess": 500},
    },
    "choice": {
        "some positions are chosen twice": {"choose": lambda n: torch.randint(n, (round(0.15 * n),))},
        "that is not 15 % of the positions, rounded": {"choose": lambda n: torch.randperm(n)[: round(0.85 * n)]},
        "the same positions are chosen every time": {"choose": lambda n: torch.arange(round(0.15 * n))},
        "some positions are never chosen": {"choose": lambda n: torch.randperm(n // 2)[: round(0.15 * n)]},
    },
    "measured": {
        "that is the ratio of positions: let the run tell the steps": {
            "steps": {"all": STEPS, "masked": round(STEPS / 0.15)}
        },
        "both runs have the same positions in the loss": {"steps": {"all": STEPS, "masked": STEPS}},
        "the two are exchanged": {"steps": {"all": 2 * STEPS, "masked": STEPS}},
    },
    "reason": {
        "both runs use the same learning rate": {"reason": "A"},
        "the positions were chosen without looking at their losses": {"reason": "B"},
        "each run went on until its loss was below the same goal": {"reason": "D"},
    },
}

# ---- problem 1: predict ----


@graded
def predict(guess) -> None:
    """Any ratio that could be."""
    _plausible(guess)
    passed("noted; problem 8 tells how far off it is")


def _plausible(guess) -> int | float:
    value = number(guess, "guess", such_as="4")
    few, many = WORTH["predict"]
    refuse("guess", (value < 1, few), (value > 100, many))
    return value


def how_far(guess, steps) -> None:
    """Tell a guess beside the ratio that was measured."""
    value = _plausible(guess)
    _whole(steps)
    print(f"You guessed {value:.3g}; measured: {steps['masked'] / steps['all']:.3g}.")


# ---- problem 8: investigate ----


@graded
def choice(choose, *sizes: int) -> None:
    twice, share, always, never = WORTH["choice"]
    for n in sizes or (200,):
        draws = [_drawn(choose, n) for _ in range(200)]
        counts = torch.bincount(torch.cat(draws), minlength=n)
        refuse(
            f"choose({n})",
            (any(abs(len(draw) - 0.15 * n) > 0.5 + 1e-9 for draw in draws), share),
            (any(len(draw.unique()) < len(draw) for draw in draws), twice),
            (all(torch.equal(draw.sort().values, draws[0].sort().values) for draw in draws), always),
            (bool((counts == 0).any()), never),  # by chance in one of 10^12 runs
        )
        if _apart(draws, n) > 0.1:
            raise CheckFailed(f"choose({n}): the positions of a draw follow a pattern; each must be drawn by itself.")
    passed("15 % of the positions")


def _apart(draws: list[Tensor], n: int) -> float:
    """Share of the pairs of positions that no draw has, above the share that chance leaves out."""
    chosen = torch.zeros(len(draws), n)
    for row, draw in zip(chosen, draws):
        row[draw] = 1
    n_drawn, n_pairs = len(draws[0]), n * (n - 1)
    by_chance = (1 - n_drawn * (n_drawn - 1) / n_pairs) ** len(draws) if n_pairs else 1.0
    return (chosen.T @ chosen == 0).sum().item() / max(1, n_pairs) - by_chance


def _drawn(choose: Callable, n: int) -> Tensor:
    result = call(choose, "choose", n=n)
    try:
        drawn = torch.as_tensor(result)
    except (TypeError, ValueError, RuntimeError):
        drawn = torch.tensor(0.5)
    whole = not drawn.is_floating_point() and drawn.dtype != torch.bool
    if drawn.dim() != 1 or not whole or not bool(((drawn >= 0) & (drawn < n)).all()):
        raise CheckFailed(f"choose({n}) must return whole numbers from 0 to {n - 1}, in a list or a tensor.")
    return drawn.long()


def _whole(steps) -> None:
    if type(given(steps, "steps")) is not dict or sorted(steps) != ["all", "masked"]:
        raise CheckFailed('steps must be a dict with the keys "all" and "masked".')
    for name, value in steps.items():
        if type(given(value, f"steps[{name!r}]")) is not int or value < 1:
            raise CheckFailed(f"steps[{name!r}] is {value!r}: give the number that steps_until returns.")


@graded
def measured(steps) -> None:
    """The run on all positions has no chance in it; the other one has, and lies in wide bounds for any draw."""
    _whole(steps)
    counted, equal, exchanged = WORTH["measured"]
    every, some = steps["all"], steps["masked"]
    refuse("steps", (some == every, equal), (some < every, exchanged), (some > 6 * every, counted))
    if abs(every - STEPS) > 1 or not 1.15 < some / every < 3:
        raise CheckFailed("steps: no run with this goal gives these numbers. Is the goal the one of the text?")
    passed("steps of both runs")


@graded
def reason(reason) -> None:
    wrong = {says: answers["reason"] for says, answers in WORTH["reason"].items()}
    same(reason, "C", "reason", wrong=wrong, choices=tuple("ABCD"), reveal=False)
    passed("reason. A masked position is worth more than one of all, because fewer of them say the same")
