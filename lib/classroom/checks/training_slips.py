"""The wrong answers of exercise 12 that its checks know by name.

The checks use `CATALOGUE` for diagnosis, and the tests hand each of its answers to the grader.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from classroom.checks import training_answers as known
from classroom.checks.tensors import TOUCHED
from classroom.checks.training_chunk_slips import IN_CHUNKS
from classroom.checks.training_worth import WORTH
from plainformer.training import warmup_cosine

# ---- the slips ----


def _real(ids: Tensor, lengths: list[int]) -> Tensor:
    return torch.arange(1, ids.shape[1]) < torch.tensor(lengths)[:, None]


def _picked(logits: Tensor, targets: Tensor) -> Tensor:
    """−ln p of each target, (B, T)."""
    return -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]


def _loss_as(value: Callable[[Tensor, Tensor], Tensor], targets: Callable = lambda ids: ids[:, 1:]) -> dict:
    """`value` gets the surprises and which of them are real."""
    return {"loss": lambda logits, ids, lengths: value(_picked(logits, targets(ids)), _real(ids, lengths))}


def _mean(surprises: Tensor, real: Tensor) -> Tensor:
    return surprises[real].mean()


def _shifted_twice(logits, ids, lengths):
    return _picked(logits[:, :-1], ids[:, 2:])[_real(ids, lengths)[:, 1:]].mean()


def _one_target_more(logits, ids, lengths):
    return _mean(_picked(logits, ids[:, 1:]), torch.arange(ids.shape[1] - 1) < torch.tensor(lengths)[:, None])


def _powers(logits, ids, lengths):
    p = logits.exp().gather(-1, ids[:, 1:, None])[..., 0] / logits.exp().sum(-1)
    return _mean(-p.log(), _real(ids, lengths))


def _log_of_softmax(logits, ids, lengths):
    return _mean(-logits.softmax(-1).log().gather(-1, ids[:, 1:, None])[..., 0], _real(ids, lengths))


def _rising(rise: Callable[[int, int], float]) -> dict:
    """Another warm-up: of step and n_warmup, as a part of the peak."""

    def rate(step, peak, n_warmup, **rest):
        return peak * rise(step, n_warmup) if step <= n_warmup else _right(step, peak, n_warmup, **rest)

    return {"rate": rate}


def _falling(fall: Callable[[float], float], from_step: bool = False, to_zero: bool = False) -> dict:
    """Another fall: of the part that is done, from 1 down to 0."""

    def rate(step, peak, n_warmup, n_steps, floor):
        if step <= n_warmup:
            return _right(step, peak, n_warmup, n_steps, floor)
        done = step / n_steps if from_step else (step - n_warmup) / (n_steps - n_warmup)
        floor = 0.0 if to_zero else floor
        return floor + (peak - floor) * fall(done)

    return {"rate": rate}


def _right(step, peak, n_warmup, n_steps, floor) -> float:
    return warmup_cosine(step, peak=peak, n_warmup=n_warmup, n_steps=n_steps, floor=floor)


def _half_cosine(done: float) -> float:
    return (1 + math.cos(math.pi * min(1.0, done))) / 2


def _clip_as(factor: Callable[[float, float], float]) -> dict:
    """`factor` gets the length of all gradients and the limit."""

    def clip(gradients, limit):
        length = math.sqrt(sum(g.square().sum().item() for g in gradients))
        return [g * factor(length, limit) if length else g for g in gradients]

    return {"clip": clip}


def _clips_in_place(gradients, limit):
    for g, right in zip(gradients, known.clipped(gradients, limit)):
        g.copy_(right)
    return list(gradients)


def _adamw_as(value: Callable) -> dict:
    """`value` gets what `adamw_step` gets, as keywords, and the right w, m and v."""
    return {"adamw_step": lambda **given: tuple(value(*known.adamw(**given), **given))}


def _step(w, m_hat, v_hat, lr, decay, eps, **_):
    return w - lr * (m_hat / (v_hat.sqrt() + eps) + decay * w)


def _hats(m, v, step, beta_1, beta_2):
    return {"m_hat": m / (1 - beta_1**step), "v_hat": v / (1 - beta_2**step)}


def _decays_in_gradient(w1, m1, v1, *, w, g, decay, **given):
    return known.adamw(w=w, g=g + decay * w, decay=0.0, **given)


def _eps_inside(w1, m1, v1, *, w, lr, decay, eps, step, beta_1, beta_2, **_):
    hats = _hats(m1, v1, step, beta_1, beta_2)
    return w - lr * (hats["m_hat"] / (hats["v_hat"] + eps).sqrt() + decay * w), m1, v1


def _adds_in_place(w, g, m, v, **given):
    w1, m1, v1 = known.adamw(w=w, g=g, m=m, v=v, **given)
    return w1, m.copy_(m1), v.copy_(v1)


_NAMED_MATRIX = (".weight", "embed")  # in the example of problem 5


def _groups_as(decays: Callable[[str, Tensor], bool], once: bool = True, frozen: bool = False) -> dict:
    def groups(named):
        names, seen = {"decay": [], "still": []}, set()
        for name, tensor in named.items():
            if (tensor.requires_grad or frozen) and not (once and id(tensor) in seen):
                seen.add(id(tensor))
                names["decay" if decays(name, tensor) else "still"].append(name)
        return names

    return {"groups": groups}


def _leaks_as(**slip) -> dict:
    return {"leaks": lambda lesson, ids, n_vocab: known.leaking(lesson, ids, n_vocab, **slip)}


def _leaves_changed(lesson, ids, n_vocab):
    found = known.leaking(lesson, ids, n_vocab)
    ids[-1] = (ids[-1] + 1) % n_vocab
    return found


def _repaired(**slip) -> dict:
    return {"repaired": lambda ids, **weights: known.suspect(ids, **weights, **slip)}


_PULL = known.STEP_RATE * known.STEP_DECAY * known.WEIGHT

# check → what the slip is → the answers it gives
CATALOGUE: dict[str, dict[str, dict]] = {
    **WORTH,
    "first_loss": {
        "that is the logarithm to base 2, in bits: a nat belongs to the natural logarithm": {
            "first_loss": math.log2(known.VOCABULARY)
        },
        "that is the logarithm to base 10: a nat belongs to the natural logarithm": {
            "first_loss": math.log10(known.VOCABULARY)
        },
        "that is a chance: the loss is minus its logarithm": {"first_loss": 1 / known.VOCABULARY},
        "−ln of a small chance is positive": {"first_loss": -known.FIRST_LOSS},
    },
    "one_step": {
        "the weight moves against its derivative": {"one_step": 2 * (known.WEIGHT - _PULL) - known.ONE_STEP},
        "the decay is missing": {"one_step": known.ONE_STEP + _PULL},
        "the decay pulls by ηλw, not by λw": {"one_step": known.ONE_STEP + _PULL - known.STEP_DECAY * known.WEIGHT},
        "that is plain gradient descent: Adam divides the derivative by its own size": {
            "one_step": known.WEIGHT - known.STEP_RATE * known.DERIVATIVE - _PULL
        },
    },
    "middle_rate": {
        "that is half of the peak: the fall ends at the floor": {"middle_rate": known.PEAK / 2},
        "at that step the warm-up is long over": {"middle_rate": known.PEAK},
        "the cosine begins where the warm-up ends, not at step 0": {
            "middle_rate": known.FLOOR + (known.PEAK - known.FLOOR) * _half_cosine(known.MIDDLE / known.LAST)
        },
    },
    "shifted": {
        "row t is compared with the token that it reads; its target is the next one": _loss_as(
            _mean, lambda ids: ids[:, :-1]
        ),
        "that is shifted twice: there are logits for ids[:, :-1] already": {"loss": _shifted_twice},
        "that is the sum: divide by the number of targets": _loss_as(lambda s, real: s[real].sum()),
        "the sign is missing: a loss is −ln p": _loss_as(lambda s, real: -_mean(s, real)),
        "this is in bits: take the natural logarithm": _loss_as(lambda s, real: _mean(s, real) / math.log(2)),
        "that is minus the mean chance: take the logarithm of each": _loss_as(lambda s, real: -_mean((-s).exp(), real)),
        "the mean comes after the logarithm, not before it": _loss_as(lambda s, real: -_mean((-s).exp(), real).log()),
    },
    "filled": {
        "filler counts as targets": _loss_as(lambda s, real: s.mean()),
        "the sum is divided by all positions: divide by the number of real targets": _loss_as(
            lambda s, real: (s * real).sum() / s.numel()
        ),
        "a row of n real tokens has n − 1 targets: the first filler is none": {"loss": _one_target_more},
        "every target counts the same: that is the mean of the rows' means": _loss_as(
            lambda s, real: ((s * real).sum(1) / real.sum(1)).mean()
        ),
    },
    "huge": {
        "e to a large logit is infinite: take the row's largest away first, or use logsumexp": {"loss": _powers},
        "a chance that is rounded to 0 has no logarithm: use logsumexp, or log_softmax": {"loss": _log_of_softmax},
    },
    "schedule": {
        "there is no warm-up": _rising(lambda step, n_warmup: 1),
        "steps are counted from 1, and the first has a rate above 0": _rising(lambda step, n: (step - 1) / n),
        "step n_warmup has the peak already": _rising(lambda step, n: step / (n + 1)),
        "the cosine begins where the warm-up ends, not at step 0": _falling(_half_cosine, from_step=True),
        "the fall ends at the floor, not at 0": _falling(_half_cosine, to_zero=True),
        "that is a straight line down: half a cosine was asked for": _falling(lambda done: max(0.0, 1 - done)),
        "that is a quarter of a cosine wave: its half goes from 1 to −1": _falling(
            lambda done: math.cos(math.pi / 2 * min(1.0, done))
        ),
        "after n_steps the rate stays at the floor": _falling(lambda done: (1 + math.cos(math.pi * done)) / 2),
    },
    "clipped": {
        "shorter gradients stay as they are": _clip_as(lambda length, limit: limit / length),
        "the length is a root: √ of the sum of squares": _clip_as(
            lambda length, limit: limit / length**2 if length**2 > limit else 1
        ),
        "each tensor is clipped by itself: all gradients together are one long vector": {
            "clip": lambda gradients, limit: [known.clipped([g], limit)[0] for g in gradients]
        },
        "each number is clipped: scale all by one factor, so that the direction stays": {
            "clip": lambda gradients, limit: [g.clamp(-limit, limit) for g in gradients]
        },
        "they are divided by their length, and not scaled to the limit": _clip_as(
            lambda length, limit: 1 / length if length > limit else 1
        ),
        TOUCHED: {"clip": _clips_in_place},
    },
    "first_step": {
        "both means start at zero: divide by 1 − β^step": _adamw_as(
            lambda w1, m1, v1, *, w, **s: (_step(w, m1, v1, **s), m1, v1)
        ),
        "the decay is missing": _adamw_as(lambda w1, m1, v1, *, w, lr, decay, **_: (w1 + lr * decay * w, m1, v1)),
        "the decay pulls by ηλw, not by λw": _adamw_as(
            lambda w1, m1, v1, *, w, lr, decay, **_: (w1 + (lr - 1) * decay * w, m1, v1)
        ),
        "the decay has the learning rate twice: it pulls by ηλw, not by η²λw": _adamw_as(
            lambda w1, m1, v1, *, w, lr, decay, **_: (w1 + (lr - lr**2) * decay * w, m1, v1)
        ),
        "the decay must not enter the gradient: AdamW keeps it apart": _adamw_as(_decays_in_gradient),
        "the weight moves against its derivative": _adamw_as(
            lambda w1, m1, v1, *, w, lr, decay, **_: (2 * (w - lr * decay * w) - w1, m1, v1)
        ),
        "ε is added after the root": _adamw_as(_eps_inside),
    },
    "later_step": {
        "the hats divide by 1 − β^step, not by 1 − β": _adamw_as(
            lambda w1, m1, v1, *, w, step, beta_1, beta_2, **s: (
                _step(w, **_hats(m1, v1, 1, beta_1, beta_2), **s), m1, v1,
            )
        ),
        "the betas are exchanged: beta_1 is for g, beta_2 for g²": _adamw_as(
            lambda w1, m1, v1, *, beta_1, beta_2, **s: known.adamw(**s, beta_1=beta_2, beta_2=beta_1)
        ),
        "return the running means without hats": _adamw_as(
            lambda w1, m1, v1, *, step, beta_1, beta_2, **_: (w1, *_hats(m1, v1, step, beta_1, beta_2).values())
        ),
        "the old means are not used": _adamw_as(
            lambda w1, m1, v1, *, m, v, **s: known.adamw(**s, m=torch.zeros_like(m), v=torch.zeros_like(v))
        ),
        "v is the mean of g², not of g": _adamw_as(
            lambda w1, m1, v1, *, v, g, beta_2, **_: (w1, m1, beta_2 * v + (1 - beta_2) * g.abs())
        ),
        TOUCHED: {"adamw_step": _adds_in_place},
    },
    "sorted_groups": {
        "vectors and single numbers do not decay": _groups_as(lambda name, tensor: True),
        "biases are vectors too": _groups_as(lambda name, tensor: "norm" not in name and tensor.dim() > 0),
        "tables decay as matrices do": _groups_as(lambda name, tensor: tensor.dim() > 1 and "embed" not in name),
        "a tied table stands there twice, and would be moved twice": _groups_as(lambda _, x: x.dim() > 1, once=False),
        "a frozen tensor belongs to no group": _groups_as(lambda name, tensor: tensor.dim() > 1, frozen=True),
        "a name decides nothing; count a tensor's dimensions": _groups_as(lambda name, _: name.endswith(_NAMED_MATRIX)),
    },
    **IN_CHUNKS,
    "finder": {
        "a row may see the token that it reads; ask about its target": _leaks_as(
            places=lambda t, n: [t], of_target=False
        ),
        "the target need not be the next token: find out which one it is": _leaks_as(
            places=lambda t, n: [t + 1], of_target=False
        ),
        "another token behind the row is not its target": _leaks_as(
            places=lambda t, n: range(t + 1, n), of_target=False
        ),
        "the new token may be the one that stood there": _leaks_as(changed=lambda token, n: torch.zeros_like(token)),
        "all logits are compared: look at those of one row": _leaks_as(row=lambda logits, t: logits),
        TOUCHED: {"leaks": _leaves_changed},
    },
    "repair": {
        "that is still the suspect's answer": _repaired(),
        "there a row does not see itself": _repaired(first_hidden=0),
        "there every row sees all": _repaired(first_hidden=99),
        "the targets were right: tokens 1 to T": _repaired(first_hidden=1, ahead=0),
    },
}  # fmt: skip
