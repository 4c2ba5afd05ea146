"""The versions that the tests of exercise 16 must tell apart.

`RIGHT` and `BROKEN` hold functions that make a fresh version, since some of them remember what they have seen.
`BROKEN` maps a check to {what a test that lets the version pass is told: (the version of the visible check,
another with the same fault for the hidden test)}.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch.nn.functional as F

from classroom.checks.bug_hunt_versions import (
    Listed,
    attention,
    by_einsum,
    by_loops,
    cut_by_view,
    for_some,
    hide_later,
    in_double,
    joined_by_view,
    masked_up_to,
    memory,
    norm,
    norm_by_loops,
    past,
    plus,
    remembers,
    seen,
    shared,
    squares,
    stack,
    stack_by_einsum,
    without_maximum,
)
from plainformer import norms

RIGHT: dict[str, list[Callable[[], Callable]]] = {
    "test_attention": [attention, by_einsum, by_loops, in_double],
    "test_norm": [
        lambda: norms.layer_norm,
        norm,
        norm_by_loops,
        lambda: lambda x, weight, bias, eps: F.layer_norm(x, x.shape[-1:], weight, bias, eps),
    ],
    "test_memory": [memory, partial(memory, Listed)],
    "test_layers": [stack, stack_by_einsum],
}
PROBLEM = {
    "test_attention": ("scale", "heads", "huge", "future", "length", "untouched"),
    "test_norm": ("epsilon", "spread"),
    "test_memory": ("edge", "reset", "apart"),
    "test_layers": ("layers", "maps", "batch"),
}

BROKEN: dict[str, dict[str, tuple[Callable[[], Callable], Callable[[], Callable]]]] = {
    "scale": {
        "a version whose scores are not divided by the root survives: compare numbers, not shapes alone": (
            partial(attention, width=lambda x, q, v, n_heads: 1),
            partial(attention, width=lambda x, q, v, n_heads: q.shape[-1] ** 2),
        ),
        "a version that divides by √d_model survives: two equal sizes hide it": (
            partial(attention, width=lambda x, q, v, n_heads: x.shape[-1]),
            partial(attention, width=lambda x, q, v, n_heads: n_heads * q.shape[-1]),
        ),
        "a version that takes another size for a head's width survives: let all sizes differ": (
            partial(attention, width=lambda x, q, v, n_heads: v.shape[-1]),
            partial(attention, width=lambda x, q, v, n_heads: n_heads),
        ),
    },
    "heads": {
        "a view without its transpose survives: several heads and several positions show it": (
            partial(attention, cut=cut_by_view),
            partial(attention, joined=joined_by_view),
        ),
        "a version in which heads take another's part survives: compare every head": (
            partial(attention, keys=lambda k: k[:, :1].expand_as(k)),
            partial(attention, values=lambda v: v[:, :1].expand_as(v)),
        ),
        "a version that mixes the texts of a batch survives: more than one text shows it": (
            partial(attention, keys=lambda k: k.roll(1, 0)),
            partial(attention, values=lambda v: v.mean(0, keepdim=True).expand_as(v)),
        ),
    },
    "huge": {
        "a version that adds −10,000 in place of −∞ survives: huge scores show it": (
            partial(attention, weights=plus(-1e4)),
            partial(attention, weights=plus(-3e4)),
        ),
        "a version that gives nan survives: huge scores make it, and nan must not pass a comparison": (
            partial(attention, weights=without_maximum),
            partial(attention, weights=partial(without_maximum, subtract=lambda s: s.mean(-1, keepdim=True))),
        ),
    },
    "future": {
        "a version that hides nothing survives: compare the early rows too, or change a later token": (
            partial(attention, weights=seen(10_000)),
            partial(attention, weights=lambda scores: scores.masked_fill(~past(scores).T, -math.inf).softmax(-1)),
        ),
        "a version that shows one token too many survives: compare every row": (
            partial(attention, weights=seen(1)),
            partial(attention, weights=seen(2)),
        ),
        "a version whose weights do not add up to one survives: compare numbers, not only what a change does": (
            partial(attention, weights=lambda scores: scores.softmax(-1) * past(scores)),
            partial(attention, weights=lambda scores: scores.masked_fill(~past(scores), 0).softmax(-1).tril()),
        ),
    },
    "length": {
        "a version that loses an axis survives: the shortest text shows it": (
            partial(attention, after=lambda out, x: out.squeeze(1)),
            partial(attention, after=lambda out, x: out.squeeze()),
        ),
        "a version whose mask ends too early survives: the longest text shows it": (
            partial(attention, weights=masked_up_to(32)),
            partial(attention, weights=masked_up_to(48)),
        ),
    },
    "untouched": {
        "a version that writes into x survives: look at the inputs after the call": (
            partial(attention, spoil=lambda x, **rest: x.mul_(2)),
            partial(attention, spoil=lambda x, **rest: x[:, -1].zero_()),
        ),
        "a version that writes into the weights survives: look at all inputs after the call": (
            partial(attention, spoil=lambda W_Q, d_head, **rest: W_Q.div_(math.sqrt(d_head))),
            partial(attention, spoil=lambda W_K, d_head, **rest: W_K.div_(math.sqrt(d_head))),
        ),
        "a version that keeps something of its first call survives: call it twice, with other numbers": (
            partial(remembers, "keys"),
            partial(remembers, "values"),
        ),
    },
    "epsilon": {
        "a version with ε outside the root survives: an ε that is large beside the numbers shows it": (
            partial(norm, root=lambda variance, eps: variance.sqrt() + eps),
            partial(norm, root=lambda variance, eps: (variance + eps**2).sqrt()),
        ),
        "a version that has its own ε survives: more than one ε shows it": (
            partial(norm, root=lambda variance, eps: (variance + 1e-5).sqrt()),
            partial(norm, root=lambda variance, eps: (variance + min(eps, 1e-3)).sqrt()),
        ),
        "a version that takes the larger of variance and ε survives: two numbers of like size show it": (
            partial(norm, root=lambda variance, eps: variance.clamp(min=eps).sqrt()),
            partial(norm, root=lambda variance, eps: (variance + eps * (variance < eps)).sqrt()),
        ),
    },
    "spread": {
        "a version that divides by d − 1 survives: few features show it": (
            partial(norm, variance=lambda x: x.var(-1, keepdim=True)),
            partial(norm, variance=lambda x: x.var(-1, keepdim=True, correction=-1)),
        ),
        "a version that norms several rows as one survives: rows that differ show it": (
            partial(norm, variance=lambda x: x.var(unbiased=False)),
            partial(norm, mean=lambda x: x.mean()),
        ),
        "a version that leaves out what is learned survives: weights other than 1 and biases other than 0 show it": (
            partial(norm, learned=lambda x, weight, bias: x),
            partial(norm, learned=lambda x, weight, bias: (x + bias) * weight),
        ),
        "a version that loses its digits survives: numbers that lie close together, far from zero, show it": (
            partial(norm, variance=squares),
            lambda: lambda x, weight, bias, eps: norm()(x.float(), weight, bias, eps).to(x.dtype),
        ),
    },
    "edge": {
        "a version whose window is one row off survives: a text longer than the window shows it": (
            partial(memory, slip="long"),
            partial(memory, slip="short"),
        ),
        "a version in which empty places take part survives: compare the first steps too": (
            partial(memory, slip="empty places"),
            partial(memory, slip="an empty place"),
        ),
        "a version that is wrong at its smallest window survives: try the edges of what is allowed": (
            partial(memory, Listed, keep=lambda rows, window: rows[-window:] if window > 1 else rows),
            partial(memory, slip="two"),
        ),
    },
    "reset": {
        "a version whose reset does too little survives: a second text shows it": (
            partial(memory, slip="no reset"),
            partial(memory, slip="first row stays"),
        ),
        "a version that leaks from a full ring survives: mind how long the first text is, and how short the second": (
            partial(memory, slip="stays full"),
            partial(memory, slip="old keys"),
        ),
    },
    "apart": {
        "a version whose memories share their places survives: two conversations at once show it": (
            partial(shared, "clears"),
            shared,
        ),
        "a version that keeps the caller's tensor survives: a caller who writes into it again shows it": (
            partial(memory, slip="holds k"),
            partial(memory, slip="holds v"),
        ),
        "a version that writes into what it is given survives: look at the inputs after a step": (
            partial(memory, slip="changes q"),
            partial(memory, slip="changes k"),
        ),
    },
    "layers": {
        "a version that hides later tokens in its first layer alone survives: look behind the first layer": (
            partial(stack, hides=lambda layer, n_layers: layer < 1),
            partial(stack, hides=lambda layer, n_layers: layer < max(1, n_layers - 1)),
        ),
        "a version whose layers all read the same rows survives: compare the numbers of a second layer": (
            partial(stack, sees=lambda x, first: first),
            partial(stack, sees=lambda x, first: (x + first) / 2),
        ),
    },
    "maps": {
        "a version that shows other maps than it uses survives: look at the result too, or change a later token": (
            partial(stack, hides=lambda *layer: False, shown=lambda used, scores, maps: hide_later(scores).softmax(-1)),
            partial(stack, weigh=seen(1), shown=lambda used, scores, maps: hide_later(scores).softmax(-1)),
        ),
        "a version that shows scores in place of weights survives: look at the maps too": (
            partial(stack, shown=lambda used, scores, maps: scores.tril()),
            partial(stack, shown=lambda used, scores, maps: scores.exp().tril()),
        ),
        "a version that shows one map for all layers survives: compare the numbers of each map": (
            partial(stack, shown=lambda used, scores, maps: maps[0] if maps else used),
            partial(stack, shown=lambda used, scores, maps: maps[-1] if len(maps) == 1 else used),
        ),
    },
    "batch": {
        "a version that hides later tokens in the first text alone survives: look at every text": (
            partial(stack, weigh=for_some(slice(1))),
            partial(stack, weigh=for_some(slice(-1, None))),
        ),
        "a version that mixes the texts of a batch survives: compare numbers, or change one text": (
            partial(stack, keys=lambda k: k[:1].expand_as(k)),
            partial(stack, keys=lambda k: k.roll(1, 0)),
        ),
    },
}  # fmt: skip
