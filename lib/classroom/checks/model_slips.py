"""The wrong answers of exercise 08 that its checks know by name.

The checks use `CATALOGUE` for diagnosis, and the tests hand each of its answers to the grader.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classroom.checks.model_answers import (
    AROUND,
    AT_THE_END,
    D_FF,
    D_HEAD,
    D_MODEL,
    IN_ATTENTION,
    N_HEADS,
    N_KV_HEADS,
    N_LAYERS,
    N_TOKENS,
    N_VOCAB,
    QUERIES,
    RATIO,
    ROOM,
    SMALL,
    B,
    T,
)
from classroom.checks.tensors import TOUCHED
from plainformer.attention import attention
from plainformer.heads import join, split
from plainformer.parameters import total

# ---- the slips ----


def _block_as(value: Callable) -> dict:
    """`value` gets x, and norm, attention, norm, MLP as one letter each."""
    return {"block": lambda x, attn_norm, attn, mlp_norm, mlp: value(x, attn_norm, attn, mlp_norm, mlp)}


def _after(x: Tensor, *updates: Callable[[Tensor], Tensor]) -> Tensor:
    """The stream after each of these has added to it."""
    for update in updates:
        x = x + update(x)
    return x


def _adds_in_place(x, n, a, m, f):
    x += a(n(x))
    x += f(m(x))
    return x.clone()


def _scored(x: Tensor, table: Tensor) -> Tensor:
    return x @ table.T


def _model_as(states: Callable | None = None, scores: Callable = _scored, own_table: bool = True) -> dict:
    """`states` gets rows, blocks and norm; `scores` gets the states and the table of the output."""

    def model(ids, embed, blocks, final_norm, unembed):
        x = (states or _states)(embed[ids], blocks, final_norm)
        return scores(x, embed if unembed is None or not own_table else unembed)

    return {"model": model}


def _states(x: Tensor, blocks: list, norm: Callable) -> Tensor:
    for block in blocks:
        x = block(x)
    return norm(x)


def _normed_each_time(x: Tensor, blocks: list, norm: Callable) -> Tensor:
    for block in blocks:
        x = norm(block(x))
    return x


def _trace_as(shape: Callable, modules: Callable = lambda model: model.named_modules(), remove: str = "own") -> dict:
    """`shape` gets module, inputs and output; `remove` says which hooks are taken off at the end."""

    def trace(model: nn.Module, ids: Tensor) -> dict:
        found, hooks = {}, []
        for name, module in modules(model):

            def note(module, inputs, output, name=name):
                found[name] = tuple(shape(module, inputs, output))

            hooks.append(module.register_forward_hook(note))
        model(ids)
        for hook in hooks if remove == "own" else []:
            hook.remove()
        for module in model.modules() if remove == "all" else []:
            module._forward_hooks.clear()
        return found

    return {"trace": trace}


def _given(module, inputs, output):
    return output.shape


def _heads_as(cut: Callable = split, glue: Callable = join, causal: bool = True, out: bool = True) -> dict:
    def repaired(x, W_Q, W_K, W_V, W_O, n_heads):
        mixed = glue(attention(*(cut(x @ W, n_heads) for W in (W_Q, W_K, W_V)), causal=causal))
        return mixed @ W_O if out else mixed

    return {"repaired": repaired}


def _viewed(x: Tensor, n_heads: int) -> Tensor:
    return x.view(x.shape[0], n_heads, x.shape[1], -1)


def _viewed_back(x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], x.shape[2], -1)


def _loss_as(value: Callable[[list[Tensor], int], Tensor]) -> dict:
    """`value` gets the losses of each chunk's rows, and n_chunk."""

    def loss_in_chunks(states, targets, unembed, n_chunk):
        pieces = zip(states.split(n_chunk), targets.split(n_chunk))
        return float(value([F.cross_entropy(x @ unembed.T, y, reduction="none") for x, y in pieces], n_chunk))

    return {"loss_in_chunks": loss_in_chunks}


def _all_at_once(states, targets, unembed, n_chunk):
    return F.cross_entropy(states @ unembed.T, targets).item()


def _kept(states, targets, unembed, n_chunk):
    logits = [x @ unembed.T for x in states.split(n_chunk)]
    return sum(F.cross_entropy(x, y, reduction="sum") for x, y in zip(logits, targets.split(n_chunk))) / len(targets)


def _infinite(states, targets, unembed, n_chunk):
    powers = (states @ unembed.T).exp()
    return -(powers.gather(1, targets[:, None])[:, 0] / powers.sum(1)).log().mean().item()


def _in_attention(**wrong: tuple) -> dict:
    return {"in_attention": IN_ATTENTION | wrong}


# check → what the slip is → the answers it gives
CATALOGUE: dict[str, dict[str, dict]] = {
    "predict": {
        "a ratio of two sizes is positive": {"guess": -3},
        "that is more than any batch makes of it": {"guess": 1e6},
    },
    "before_joining": {
        "keys have heads of their own: n_kv_heads of them": _in_attention(keys=QUERIES),
        "the axis of heads comes before that of positions, so that each head multiplies whole sequences":
            _in_attention(queries=(B, T, N_HEADS, D_HEAD), keys=(B, T, N_KV_HEADS, D_HEAD)),
        "a head is d_model / n_heads wide":
            _in_attention(queries=(B, N_HEADS, T, D_MODEL), keys=(B, N_KV_HEADS, T, D_MODEL)),
        "every head of queries has a square of weights, however few heads of keys there are":
            _in_attention(weights=(B, N_KV_HEADS, T, T)),
        "weights are positions by positions": _in_attention(weights=(B, N_HEADS, T, D_HEAD)),
        "joined heads lie side by side again: one row for each position": _in_attention(joined=QUERIES),
    },
    "after_the_mlp": {
        "the hidden width is d_ff, whatever 4 d_model is": {"around": AROUND | {"hidden": (B, T, 4 * D_MODEL)}},
        "what leaves the block is narrow again: it is added to the stream": {
            "around": AROUND | {"leaves": (B, T, D_FF)},
        },
        "blocks stand one behind the other: the stream has no axis for them": {
            "around": AROUND | {"leaves": (N_LAYERS, B, T, D_MODEL)},
        },
    },
    "out_of_the_model": {
        "every position gets scores, not the last alone": {"at_the_end": AT_THE_END | {"logits": (B, N_VOCAB)}},
        "the axis of positions stays, with length 1": {"at_the_end": AT_THE_END | {"last_only": (B, N_VOCAB)}},
        "a score for each entry of the vocabulary": {
            "at_the_end": {"logits": (B, T, D_MODEL), "last_only": (B, 1, D_MODEL)},
        },
    },
    "block": {
        "that is post-norm: norm what a part reads, not the sum": _block_as(
            lambda x, n, a, m, f: m(_after(n(_after(x, a)), f))
        ),
        "attention's result replaces the stream: add it": _block_as(
            lambda x, n, a, m, f: _after(a(n(x)), lambda y: f(m(y)))
        ),
        "the MLP's result replaces the stream: add it": _block_as(
            lambda x, n, a, m, f: f(m(_after(x, lambda y: a(n(y)))))
        ),
        "what is added to is the normed copy: add to the stream itself": _block_as(
            lambda x, n, a, m, f: _after(m(_after(n(x), a)), f)
        ),
        "the MLP reads what entered the block: it comes after attention's update": _block_as(
            lambda x, n, a, m, f: x + a(n(x)) + f(m(x))
        ),
        "the first norm serves twice: the MLP has its own": _block_as(
            lambda x, n, a, m, f: _after(x, lambda y: a(n(y)), lambda y: f(n(y)))
        ),
        "attention reads the stream without its norm": _block_as(lambda x, n, a, m, f: _after(x, a, lambda y: f(m(y)))),
        "the MLP reads the stream without its norm": _block_as(lambda x, n, a, m, f: _after(x, lambda y: a(n(y)), f)),
        "the MLP comes first: attention does": _block_as(
            lambda x, n, a, m, f: _after(x, lambda y: f(m(y)), lambda y: a(n(y)))
        ),
        TOUCHED: _block_as(_adds_in_place),
    },
    "untied": {
        "the final norm is missing": _model_as(lambda x, blocks, norm: _states(x, blocks, lambda x: x)),
        "the final norm comes once, after the last block": _model_as(_normed_each_time),
        "the first block does the work of all: each has weights of its own": _model_as(
            lambda x, blocks, norm: _states(x, blocks[:1] * len(blocks), norm)
        ),
        "the last block is left out": _model_as(lambda x, blocks, norm: _states(x, blocks[:-1], norm)),
        "blocks run from the last to the first": _model_as(lambda x, blocks, norm: _states(x, blocks[::-1], norm)),
        "a block has added to the stream already: you add once more": _model_as(
            lambda x, blocks, norm: norm(_after(x, *blocks))
        ),
        "these are probabilities: the model gives logits": _model_as(scores=lambda x, table: (x @ table.T).softmax(-1)),
        "only the last position is scored": _model_as(scores=lambda x, table: x[:, -1:] @ table.T),
        "the embedding makes the logits, although there is a table for it": _model_as(own_table=False),
    },
    "tied": {
        "these are states: with unembed=None the embedding scores them": _model_as(scores=lambda x, table: x),
        "the final norm is missing": _model_as(lambda x, blocks, norm: _states(x, blocks, lambda x: x)),
        "the rows are multiplied by √d: here they enter as they are": _model_as(
            lambda x, blocks, norm: _states(x * math.sqrt(x.shape[-1]), blocks, norm)
        ),
    },
    "traced": {
        "that is what a module was given: note what it gives": _trace_as(lambda m, inputs, output: inputs[0].shape),
        "these are weights: note what a module gives": _trace_as(
            lambda m, inputs, output: next(m.parameters()).shape
        ),
        "only the model's own children are there: named_modules() goes all the way down": _trace_as(
            _given, lambda model: model.named_children()
        ),
        "only modules without children are there": _trace_as(
            _given, lambda model: ((name, m) for name, m in model.named_modules() if not [*m.children()])
        ),
    },
    "cleaned": {
        "your hooks are still on the model: keep what register_forward_hook returns, and call its remove()": _trace_as(
            _given, remove="none"
        ),
        "a hook that was there before is gone: take off your own alone": _trace_as(_given, remove="all"),
    },
    "hunt": {
        "that source comes after its reader, and must not be seen": {"blind": (1, 4)},
        "a position always sees itself": {"blind": (3, 3)},
        "the suspect's reader does see that source": {"blind": (5, 4)},
        "that is how many it should see": {"n_seen": 6},
        "it sees itself too, and one more": {"n_seen": 1},
    },
    "repair": {
        "that is still the suspect's answer": _heads_as(_viewed, _viewed_back),
        "heads are joined without bringing the positions forward again": _heads_as(glue=_viewed_back),
        "a head takes every n_heads-th column: it takes columns that stand together": _heads_as(
            lambda x, n: x.unflatten(-1, (-1, n)).movedim(-1, 1), lambda x: x.movedim(1, -1).flatten(-2)
        ),
        "there is one head": _heads_as(lambda x, n: x[:, None]),
        "positions see what comes after them": _heads_as(causal=False),
        "W_O is not used": _heads_as(out=False),
    },
    "weighed": {
        "that is one text: the batch has sixteen": {"ratio": RATIO / 16},
        "the fraction is upside down: divide the logits by the weights": {"ratio": 1 / RATIO},
        "a row of logits is as wide as the vocabulary, not as the stream": {"ratio": N_TOKENS * 576 / total(SMALL)},
        "that is bytes of logits to a number of weights: a weight takes four bytes too": {"ratio": 4 * RATIO},
    },
    "room": {
        "three numbers are kept for each logit, not one": {"most_tokens": ROOM // (4 * SMALL.n_vocab)},
        "a number takes four bytes": {"most_tokens": ROOM // (3 * SMALL.n_vocab)},
        "round down: one token more does not fit": {"most_tokens": -(-ROOM // (12 * SMALL.n_vocab))},
        "2 GiB are 2 · 2^30 bytes, not 2 · 10^9": {"most_tokens": 2 * 10**9 // (12 * SMALL.n_vocab)},
    },
    "chunked": {
        "the mean of a shorter last chunk counts as much as the others': add up, and divide at the end": _loss_as(
            lambda losses, n: sum(chunk.mean() for chunk in losses) / len(losses)
        ),
        "the last chunk, which is shorter, is left out": _loss_as(
            lambda losses, n: torch.cat([chunk for chunk in losses if len(chunk) == n] or losses).mean()
        ),
        "that is the sum: divide by the number of rows": _loss_as(lambda losses, n: torch.cat(losses).sum()),
        "that is the last chunk alone: add up": _loss_as(lambda losses, n: losses[-1].mean()),
        "this is in bits: take the natural logarithm": _loss_as(lambda losses, n: torch.cat(losses).mean() / 0.6931472),
        "the sign is missing: a loss is −ln p": _loss_as(lambda losses, n: -torch.cat(losses).mean()),
        "e to a large logit is infinite: take the row's largest away first, or use logsumexp": {
            "loss_in_chunks": _infinite,
        },
    },
    "frugal": {
        "the logits of all rows are there at once": {"loss_in_chunks": _all_at_once},
        "chunks that are done are still kept": {"loss_in_chunks": _kept},
    },
}  # fmt: skip
