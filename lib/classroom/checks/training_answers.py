"""What is right in exercise 12, and the lessons and runs that its checks try answers on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from classroom import terms
from classroom.checks.model_answers import losses_in_chunks
from classroom.checks.tensors import numbers
from plainformer.training import warmup_cosine

# ---- problem 2: by hand; these numbers stand in the text of the notebook ----

VOCABULARY, WEIGHT, DERIVATIVE, STEP_RATE, STEP_DECAY, PEAK, FLOOR, WARMUP, LAST = terms.numbers("training")
MIDDLE = (WARMUP + LAST) // 2  # half-way down
FIRST_LOSS = math.log(VOCABULARY)
ONE_STEP = WEIGHT - STEP_RATE * (math.copysign(1, DERIVATIVE) + STEP_DECAY * WEIGHT)
MIDDLE_RATE = warmup_cosine(MIDDLE, peak=PEAK, n_warmup=WARMUP, n_steps=LAST, floor=FLOOR)

# ---- problem 3: the loss ----


def case(lengths: list[int], n_vocab: int = 11, key: int = 0, scale: float = 1.0, n_tokens: int = 0) -> dict:
    """Arguments of `loss`: rows of max(lengths) or `n_tokens` ids, with so many real ones each."""
    n_tokens = n_tokens or max(lengths)
    ids = (torch.arange(len(lengths) * n_tokens).reshape(len(lengths), n_tokens) ** 2 + 3 * key) % n_vocab
    logits = numbers(len(lengths), n_tokens - 1, n_vocab, key=key, scale=scale)
    return {"logits": logits, "ids": ids, "lengths": lengths}


# ---- problems 4 and 5: a step ----


def gradients(scale: float = 2.0, key: int = 10) -> list[Tensor]:
    return [numbers(3, 4, key=key, scale=scale), numbers(5, key=key + 1, scale=scale), numbers(2, key=key + 2) * scale]


def clipped(gradients: Sequence[Tensor], limit: float) -> list[Tensor]:
    length = math.sqrt(sum(g.square().sum().item() for g in gradients))
    return [g * (limit / length) if length > limit else g.clone() for g in gradients]


def moment(step: int, key: int = 20, shape: tuple[int, ...] = (3, 4), **changes) -> dict:
    """Arguments of `adamw_step`; at step 1 both means are zero."""
    later = 0.0 if step == 1 else 1.0
    w, g, m = (numbers(*shape, key=key + k) for k in range(3))
    rest = {"step": step, "lr": 0.1, "decay": 0.3, "beta_1": 0.8, "beta_2": 0.6, "eps": 0.05}
    return {"w": w, "g": g, "m": later * m, "v": later * (0.3 + numbers(*shape, key=key + 3) ** 2)} | rest | changes


def adamw(w, g, m, v, step, lr, decay, beta_1, beta_2, eps) -> tuple[Tensor, Tensor, Tensor]:
    m, v = beta_1 * m + (1 - beta_1) * g, beta_2 * v + (1 - beta_2) * g**2
    m_hat, v_hat = m / (1 - beta_1**step), v / (1 - beta_2**step)
    return w - lr * (m_hat / (v_hat.sqrt() + eps) + decay * w), m, v


def grouped(named: dict[str, Tensor]) -> dict[str, list[str]]:
    names, seen = {"decay": [], "still": []}, set()
    for name, tensor in named.items():
        if tensor.requires_grad and id(tensor) not in seen:
            seen.add(id(tensor))
            names["decay" if tensor.dim() > 1 else "still"].append(name)
    return names


def named_tensors(n_layers: int = 2, tied: bool = True) -> dict[str, Tensor]:
    """Parameters by name: tables, matrices, biases, scales, a frozen matrix, and an unembedding that may be tied."""
    named = {"embed": torch.ones(11, 6)}
    for k in range(n_layers):
        named |= {f"blocks.{k}.norm.scale": torch.ones(6), f"blocks.{k}.up.weight": torch.ones(6, 15)}
        named |= {f"blocks.{k}.up.bias": torch.ones(15), f"blocks.{k}.down.weight": torch.ones(15, 6)}
    named |= {"final_norm.scale": torch.ones(6), "temperature": torch.ones(()), "adapter.frozen": torch.ones(6, 4)}
    for name, tensor in named.items():
        tensor.requires_grad_("frozen" not in name)
    return named | {"unembed": named["embed"] if tied else torch.ones(11, 6, requires_grad=True)}


def nameless_tensors(frozen: str = "s", **shapes: tuple[int, ...] | str) -> dict[str, Tensor]:
    """Parameters under names that say nothing, each of a shape or the very tensor of an earlier name.

    `frozen` are names of one letter.
    """
    named: dict[str, Tensor] = {}
    for name, shape in (shapes or {"r": (7, 3), "q": (3,), "p": (1,), "s": (3, 2), "o": "r", "t": (2, 5)}).items():
        named[name] = named[shape] if isinstance(shape, str) else torch.ones(shape, requires_grad=name not in frozen)
    return named


# ---- problem 6: loss and gradient ----

NO_TARGET = -100


def to_lose(
    n_rows: int,
    d_model: int,
    n_vocab: int,
    n_chunk: int,
    *,
    without: Sequence[int] = (),
    key: int = 30,
    scale: float = 1.0,
) -> dict:
    """Arguments of `chunked_loss`; the rows `without` have no target."""
    targets = (torch.arange(n_rows) * 5 + 2) % n_vocab
    targets[list(without)] = NO_TARGET
    states, unembed = numbers(n_rows, d_model, key=key, scale=scale), numbers(n_vocab, d_model, key=key + 1)
    return {"states": states, "targets": targets, "unembed": unembed, "n_chunk": n_chunk}


def lost(states: Tensor, targets: Tensor, unembed: Tensor, n_chunk: int = 0) -> tuple[float, Tensor]:
    """Loss and its gradient by the states, from torch and all at once."""
    with torch.enable_grad():
        states = states.detach().clone().requires_grad_()
        loss = F.cross_entropy(states @ unembed.T, targets, ignore_index=NO_TARGET)
        return loss.item(), torch.autograd.grad(loss, states)[0]


def lost_in_chunks(states: Tensor, targets: Tensor, unembed: Tensor, n_chunk: int) -> tuple[float, Tensor]:
    """The same, with the logits of few rows at a time."""
    loss, gradient, n_targets = 0.0, torch.zeros_like(states), (targets >= 0).sum().item()
    with torch.enable_grad():
        states = states.detach().clone().requires_grad_()
        for chunk in losses_in_chunks(states, targets, unembed, n_chunk):
            gradient += torch.autograd.grad(chunk, states)[0]
            loss += chunk.item()
    return loss / n_targets, gradient / n_targets


def waits_for_backward(states: Tensor, targets: Tensor, unembed: Tensor, n_chunk: int) -> tuple[float, Tensor]:
    """In chunks, but one backward pass for all of them."""
    with torch.enable_grad():
        states = states.detach().clone().requires_grad_()
        loss = sum(losses_in_chunks(states, targets, unembed, n_chunk)) / (targets >= 0).sum()
        return loss.item(), torch.autograd.grad(loss, states)[0]


# ---- problem 7: lessons ----


def suspect(
    ids, embed, W_Q, W_K, W_V, unembed, *, first_hidden: int = 2, last_hidden: int = 99, ahead: int = 1
) -> tuple[Tensor, Tensor]:
    """Logits and targets. From row t are hidden rows t + `first_hidden` to t + `last_hidden`.

    Its target is the token `ahead` of it.
    """
    x = embed[ids[: len(ids) - max(ahead, 1)]]
    scores = (x @ W_Q) @ (x @ W_K).T / math.sqrt(W_Q.shape[1])
    hidden = torch.ones(len(x), len(x), dtype=torch.bool).triu(first_hidden).tril(last_hidden)
    logits = (x + scores.masked_fill(hidden, -math.inf).softmax(-1) @ (x @ W_V)) @ unembed.T
    return logits, ids[ahead : ahead + len(x)]


def weights(n_vocab: int = 9, d_model: int = 7, d_head: int = 4, key: int = 60, scale: float = 0.5) -> dict:
    """The weights that a lesson is given, by name."""
    shapes = {"embed": (n_vocab, d_model), "W_Q": (d_model, d_head), "W_K": (d_model, d_head)}
    shapes |= {"W_V": (d_model, d_model), "unembed": (n_vocab, d_model)}
    return {name: numbers(*shape, key=key + k, scale=scale) for k, (name, shape) in enumerate(shapes.items())}


LESSONS = {  # what a lesson does → its mask, and how far ahead its targets are
    "honest": {"first_hidden": 1, "ahead": 1},
    "a mask off by one": {"first_hidden": 2, "ahead": 1},
    "a mask of the target alone": {"first_hidden": 1, "last_hidden": 1, "ahead": 1},
    "targets that are not shifted": {"first_hidden": 1, "ahead": 0},
    "no mask": {"first_hidden": 99, "ahead": 1},
    "two ahead, with the mask off by one": {"first_hidden": 2, "ahead": 2},
    "two ahead, with the mask off by two": {"first_hidden": 3, "ahead": 2},
}


def lesson(kind: str, key: int = 60) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    return lambda ids: suspect(ids, **weights(key=key), **LESSONS[kind])


def leaking(
    lesson: Callable,
    ids: Tensor,
    n_vocab: int,
    *,
    places: Callable = lambda t, n: range(n),
    changed: Callable = lambda token, n: (token + 1) % n,
    of_target: bool = True,
    row: Callable = lambda logits, t: logits[t],
) -> list[int]:
    """Rows whose logits change with the token that is their target; what is given by name makes a slip of it."""
    found, (before, targets) = [], lesson(ids)
    for t in range(len(targets)):
        for j in places(t, len(ids)):
            other = ids.clone()
            other[j] = changed(ids[j], n_vocab)
            after, new_targets = lesson(other)
            moved = not torch.equal(row(before, t), row(after, t))
            if moved and (not of_target or new_targets[t] != targets[t]):
                found.append(t)
                break
    return found


# ---- problem 8: a run, on all positions or on some ----

N_VOCAB, GOAL = 23, 1.8


def batch_of(step: int) -> Tensor:
    """Ten rows of 21 tokens that follow a rule."""
    k = 17 * step + 29 * torch.arange(10)[:, None] + torch.arange(21)
    return (k * k // 3 + k) % N_VOCAB


def steps_until(goal: float, choose: Callable[[int], Sequence[int]]) -> int:
    """Steps of Adam until a table of logits, one row for each token, is below this loss on a new batch."""
    table = torch.zeros(N_VOCAB, N_VOCAB, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([table], lr=0.05)
    for step in range(1_000):
        ids = batch_of(step)
        logits, targets = table[ids[:, :-1]].flatten(0, 1), ids[:, 1:].flatten()
        if F.cross_entropy(logits, targets) < goal:
            return step
        some = torch.as_tensor(choose(len(targets)))
        optimiser.zero_grad()
        F.cross_entropy(logits[some], targets[some]).backward()
        optimiser.step()
    raise ValueError("the goal was not reached in 1,000 steps")
