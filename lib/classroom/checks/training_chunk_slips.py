"""The wrong answers of exercise 12 to its problem 6, a loss in chunks. `training_slips` has all."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.checks import training_answers as known


def _chunks_as(loss: Callable | None = None, gradient: Callable | None = None) -> dict:
    """`loss` gets each chunk's surprises and which rows have a target; `gradient` the right one and its parts."""

    def chunked_loss(states, targets, unembed, n_chunk):
        value, right = known.lost(states, targets, unembed)
        real, logits = targets >= 0, states @ unembed.T
        if loss:
            surprises = F.cross_entropy(logits, targets.clamp(min=0), reduction="none")
            value = float(loss(surprises.split(n_chunk), real.split(n_chunk)))
        if gradient:
            minus_one = logits.softmax(-1) - F.one_hot(targets.clamp(min=0), len(unembed))
            right = gradient(right, real[:, None], minus_one, unembed, n_chunk)
        return value, right

    return {"chunked_loss": chunked_loss}


def _sum(surprises, real) -> Tensor:
    return (torch.cat(surprises) * torch.cat(real)).sum()


def _mean_of_means(surprises, real) -> Tensor:
    return torch.stack([chunk[there].mean() for chunk, there in zip(surprises, real)]).mean()


def _gradient_of_means(right, real, minus_one, unembed, n) -> Tensor:
    chunks = [(part, there.sum()) for part, there in zip(right.split(n), real.split(n))]
    return torch.cat([part * (real.sum() / n_targets / len(chunks)) for part, n_targets in chunks])


def _times_mean(surprises, real) -> Tensor:
    """Each chunk's mean times its number of targets: not a number, if there are none."""
    return sum(chunk[there].mean() * there.sum() for chunk, there in zip(surprises, real)) / torch.cat(real).sum()


def _overflows(states, targets, unembed, n_chunk):
    powers = (states @ unembed.T).exp()
    p = powers / powers.sum(-1, keepdim=True)
    here = torch.arange(len(p))
    return -p[here, targets].log().mean().item(), (p - F.one_hot(targets, len(unembed))) @ unembed / len(p)


# check → what the slip is → the answers it gives
IN_CHUNKS: dict[str, dict[str, dict]] = {
    "chunked": {
        "the mean of a shorter last chunk counts as much as the others': add up, and divide at the end": _chunks_as(
            loss=_mean_of_means, gradient=_gradient_of_means
        ),
        "that is a sum, and so is its gradient: divide both by the number of rows": _chunks_as(
            loss=_sum, gradient=lambda right, real, minus_one, unembed, n: right * len(right)
        ),
        "the loss is a mean: divide it by the number of rows": _chunks_as(loss=_sum),
        "the gradient is that of the sum: divide it by the number of rows": _chunks_as(
            gradient=lambda right, real, minus_one, unembed, n: right * len(right)
        ),
        "the gradient is divided by a chunk's rows, not by all": _chunks_as(
            gradient=lambda right, real, minus_one, unembed, n: torch.cat(
                [part * (len(right) / len(part)) for part in right.split(n)]
            )
        ),
        "the sign of the gradient is wrong: chances minus ones": _chunks_as(
            gradient=lambda right, real, minus_one, unembed, n: -right
        ),
        "the target's one is not taken from its chance": _chunks_as(
            gradient=lambda right, real, minus_one, unembed, n: (
                right + (minus_one < 0).to(right.dtype) @ unembed / len(right)
            )
        ),
        "that is the gradient by the logits: multiply by unembed": _chunks_as(
            gradient=lambda right, real, minus_one, unembed, n: minus_one / len(right)
        ),
        "e to a large logit is infinite: take the row's largest away first, or use logsumexp": {
            "chunked_loss": _overflows
        },
    },
    "skipped": {
        "rows without a target are counted: divide by the number of targets": _chunks_as(
            loss=lambda surprises, real: _sum(surprises, real) / len(torch.cat(real)),
            gradient=lambda right, real, minus_one, unembed, n: right * real.sum() / len(right),
        ),
        "a row without a target is scored as if token 0 were right": _chunks_as(
            loss=lambda surprises, real: torch.cat(surprises).mean(),
            gradient=lambda right, real, minus_one, unembed, n: minus_one @ unembed / len(right),
        ),
        "a row without a target has no gradient: it is zero there": _chunks_as(
            gradient=lambda right, real, minus_one, unembed, n: minus_one @ unembed / real.sum()
        ),
        "the loss is divided by the targets, and the gradient by all rows": _chunks_as(
            gradient=lambda right, real, minus_one, unembed, n: right * real.sum() / len(right)
        ),
        "that is the mean of the chunks' means; a chunk with fewer targets must count less": _chunks_as(
            loss=_mean_of_means, gradient=_gradient_of_means
        ),
        "a chunk without a single target has no mean: add up sums": _chunks_as(loss=_times_mean),
    },
    "frugal": {
        "the logits of all rows are there at once": {"chunked_loss": known.lost},
        "logits of chunks that are done wait for the backward pass": {"chunked_loss": known.waits_for_backward},
    },
}
