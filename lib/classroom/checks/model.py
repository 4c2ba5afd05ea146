"""Checks of exercise 08: assemble a model, trace it, mend it, and never hold all its logits. One mechanism a check.

The notebook calls each check on the student's names; a hidden test hands other cases to the same check.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Module

from classroom.checks import model_answers as known
from classroom.checks.expect import CheckFailed, call, given, number, passed, refuse, same
from classroom.checks.expect import hidden_test as hidden_test  # for the hidden tests of the notebook
from classroom.checks.model_slips import CATALOGUE
from classroom.checks.progress import graded
from classroom.checks.tensors import agrees, copied, numbers, worked_on
from classroom.memory import Memory, fits
from plainformer.config import preset
from plainformer.model import Transformer

TWO = 6e-3  # an answer may be rounded to two decimals


def _wrong(check: str, name: str) -> dict:
    return {says: answers[name] for says, answers in CATALOGUE[check].items() if name in answers}


# ---- problem 1: predict ----


@graded
def predict(guess) -> None:
    """Any ratio that could be."""
    value = number(guess, "guess", such_as="0.2")
    negative, large = CATALOGUE["predict"]
    refuse("guess", (value <= 0, negative), (value > 1e4, large))
    passed("noted; problem 7 tells how far off it is")


def how_far(guess, ratio) -> None:
    """Tell a guess beside the ratio."""
    predict(guess)
    factor = number(ratio, "ratio", such_as="0.2") / guess
    print(f"You guessed {guess:.3g}; it is {abs(factor):.3g} times that.")


# ---- problem 2: by hand ----


@graded
def before_joining(in_attention) -> None:
    wrong = _wrong("before_joining", "in_attention")
    same(in_attention, known.IN_ATTENTION, "in_attention", wrong=wrong, reveal=False)
    passed("shapes in attention")


@graded
def after_the_mlp(around) -> None:
    same(around, known.AROUND, "around", wrong=_wrong("after_the_mlp", "around"), reveal=False)
    passed("shapes around the MLP")


@graded
def out_of_the_model(at_the_end) -> None:
    same(at_the_end, known.AT_THE_END, "at_the_end", wrong=_wrong("out_of_the_model", "at_the_end"), reveal=False)
    passed("shapes at the end")


# ---- problem 3: a block ----


@graded
def block(block, *inputs: Tensor) -> None:
    """Inputs are (B, T, 12); the parts belong to a block of the library."""
    for n, x in enumerate(inputs or (numbers(2, 5, 12),)):
        right = known.transformer(1, tied=True, key=n).blocks[0]
        expected = right(x, causal=True)
        agrees(block, "block", {"x": x, **known.parts(right)}, expected, _wrong("block", "block"))
    passed("block")


def streams() -> tuple[Tensor, ...]:
    """Inputs of every size for a block."""
    return numbers(1, 1, 12, key=30), numbers(3, 8, 12, key=31) + 100, numbers(2, 16, 12, key=32, scale=1e3)


# ---- problem 4: a model ----


def texts() -> tuple[tuple[Tensor, int], ...]:
    """Ids and numbers of blocks: a single token, a whole context, many blocks."""
    whole = torch.arange(48).reshape(3, 16) * 7 % 11
    return (torch.tensor([[10]]), 1), (whole, 2), (whole[:1, :4], 7)


@graded
def untied(model, *cases: tuple[Tensor, int]) -> None:
    """Cases are (ids, number of blocks); there are 11 entries in the vocabulary."""
    _models("untied", model, cases)
    passed("model with a table for the output")


@graded
def tied(model, *cases: tuple[Tensor, int]) -> None:
    """Cases are (ids, number of blocks); there are 11 entries in the vocabulary."""
    _models("tied", model, cases)
    passed("model with one table at both ends")


def _models(check: str, function, cases: tuple) -> None:
    for n, (ids, n_layers) in enumerate(cases or ((torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]]), 3),)):
        right = known.transformer(n_layers, tied=check == "tied", key=n)
        agrees(function, "model", known.arguments(right, ids), right(ids), _wrong(check, "model"))


# ---- problem 5: a trace ----


@graded
def traced(trace, *cases: tuple[Module, Tensor, dict]) -> None:
    """Cases are a network, ids, and the shape of what each module gives."""
    for model, ids, right in cases or (_example(),):
        with torch.no_grad():
            slips = {} if cases else _wrong("traced", "trace")
            wrong = {says: slip(model, ids) for says, slip in slips.items()}
            actual = call(trace, "trace", model=model, ids=ids.clone())
        if type(actual) is dict:  # a shape as torch gives it is a tuple too
            actual = {key: tuple(v) if isinstance(v, (tuple, list)) else v for key, v in actual.items()}
        _same_shapes(actual, wrong, right)
    passed("shapes of all modules")


def _example() -> tuple[Transformer, Tensor, dict]:
    model, ids = known.transformer(2, tied=True), torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    return model, ids, known.shapes_in(model.config, *ids.shape)


def networks() -> tuple[tuple[Module, Tensor, dict], ...]:
    """A model of the library without memory for its weights, and networks that are no Transformers."""
    with torch.device("meta"):
        model, ids = Transformer(preset("smollm2-135m")), torch.zeros(3, 65, dtype=torch.int64)
    return (model, ids, known.shapes_in(model.config, *ids.shape)), known.network(), known.network()


def _as_dict(value) -> dict:
    return value if type(value) is dict else {}


def _same_shapes(actual, wrong: dict, expected: dict) -> None:
    if type(actual) is dict and set(expected) - set(actual) == {""}:
        raise CheckFailed("trace has no key ''. That is the model itself: named_modules() begins with it.")
    same(actual, expected, "trace", wrong=wrong)


@graded
def cleaned(trace) -> None:
    """No hook is left behind, and one that was there before stays."""
    left, gone = CATALOGUE["cleaned"]
    model, ids, shapes = known.network()
    heard, watched = [], []
    model[-1].register_forward_hook(lambda *_: heard.extend(watched))
    with torch.no_grad():
        actual = _as_dict(call(trace, "trace", model=model, ids=ids.clone()))
        watched.append(True)
        model(ids)
    if sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()) > 1:
        raise CheckFailed(f"trace: {left}", slip=left)
    seen = {tuple(shape) for shape in actual.values() if type(shape) in (tuple, list, torch.Size)}
    if not seen & set(shapes.values()):  # under whatever name
        raise CheckFailed("trace returns the shape of no module.\n(hooks count where they have noted something)")
    if not heard:
        raise CheckFailed(f"trace: {gone}", slip=gone)
    passed("no hook is left behind")


# ---- problem 6: hunt a bug ----

N_HEADS, N_POSITIONS = 3, 6


@graded
def hunt(suspect, blind, n_seen) -> None:
    later, itself, does_see, *_ = CATALOGUE["hunt"]
    pair = given(blind, "blind")
    if type(pair) not in (tuple, list) or len(pair) != 2 or not all(type(n) is int and 0 <= n < 6 for n in pair):
        raise CheckFailed(f"blind is {pair!r}: give two positions from 0 to 5, such as (5, 2).")
    reader, source = pair
    sees = _sees(suspect)
    refuse("blind", (source > reader, later), (source == reader, itself), (sees[reader][source], does_see))
    same(n_seen, sum(sees[-1]), "n_seen", wrong=_wrong("hunt", "n_seen"), reveal=False)
    passed("suspect exposed")


def _sees(suspect) -> list[list[bool]]:
    """Row i, column j: whether the suspect's output i moves when row j of its input is another one."""
    x, weights = numbers(1, N_POSITIONS, 12, key=3), [numbers(12, 12, key=4 + n) for n in range(4)]
    names = ("W_Q", "W_K", "W_V", "W_O")

    def outputs(x: Tensor) -> Tensor:
        return call(suspect, "suspect", **copied({"x": x, **dict(zip(names, weights))}), n_heads=N_HEADS)[0]

    moved = []
    for j in range(N_POSITIONS):
        other = x.clone()
        other[0, j] += 1
        moved.append(((outputs(x) - outputs(other)).abs().amax(-1) > 1e-9).tolist())
    return [list(row) for row in zip(*moved)]


@graded
def repair(repaired, *cases: tuple[Tensor, int]) -> None:
    """Cases are (x, n_heads); weights are made to fit."""
    for x, n_heads in cases or ((numbers(2, 5, 12, key=8), 3),):
        weights = [numbers(x.shape[-1], x.shape[-1], key=9 + n) for n in range(4)]
        arguments = {"x": x, **dict(zip(("W_Q", "W_K", "W_V", "W_O"), weights)), "n_heads": n_heads}
        agrees(repaired, "repaired", arguments, known.heads(**arguments), _wrong("repair", "repaired"))
    passed("suspect repaired")


def streams_in_heads() -> tuple[tuple[Tensor, int], ...]:
    """Inputs of every size for attention in many heads."""
    return (numbers(1, 1, 6, key=40), 2), (numbers(3, 4, 20, key=41), 5), (numbers(2, 9, 8, key=42) + 100, 8), (
        numbers(1, 7, 9, key=43, scale=1e3), 1,
    )  # fmt: skip


# ---- problem 7: investigate ----


@graded
def weighed(ratio) -> None:
    same(ratio, known.RATIO, "ratio", wrong=_wrong("weighed", "ratio"), tolerance=TWO, reveal=False)
    passed("logits against weights")


@graded
def room(most_tokens) -> None:
    right = known.ROOM // (3 * 4 * known.SMALL.n_vocab)
    same(most_tokens, right, "most_tokens", wrong=_wrong("room", "most_tokens"), reveal=False)
    passed("tokens that fit")


@graded
def chunked(loss_in_chunks, *cases: tuple[Tensor, int, int]) -> None:
    """Cases are (states, n_vocab, n_chunk); the other arguments are made to fit."""
    for states, n_vocab, n_chunk in cases or (
        (numbers(10, 6, key=20), 17, 4),
        (numbers(5, 3, key=21, scale=500), 8, 2),
    ):
        arguments = _to_lose(states, n_vocab, n_chunk)
        right = known.lost(**arguments)
        result = call(loss_in_chunks, "loss_in_chunks", **copied(arguments))
        if isinstance(result, (float, Tensor)) and not torch.as_tensor(result).isfinite().all():
            says = next(says for says in CATALOGUE["chunked"] if "infinite" in says)
            raise CheckFailed(f"loss_in_chunks is {result}: {says}", slip=says)
        agrees(loss_in_chunks, "loss_in_chunks", arguments, right, _wrong("chunked", "loss_in_chunks"))
    passed("loss in chunks")


def _to_lose(states: Tensor, n_vocab: int, n_chunk: int) -> dict:
    targets = (torch.arange(len(states)) * 5 + 2) % n_vocab
    return {
        "states": states,
        "targets": targets,
        "unembed": numbers(n_vocab, states.shape[1], key=22),
        "n_chunk": n_chunk,
    }


def states() -> tuple[tuple[Tensor, int, int], ...]:
    """States, n_vocab and n_chunk: one row, chunks of one, a chunk that holds all, large numbers."""
    return (numbers(1, 4, key=50), 9, 3), (numbers(7, 5, key=51), 13, 1), (numbers(6, 3, key=52), 11, 100), (
        numbers(9, 8, key=53, scale=1e3) + 100, 30, 4,
    )  # fmt: skip


@graded
def frugal(loss_in_chunks, *cases: tuple[int, int, int]) -> None:
    """Cases are (rows, n_vocab, n_chunk): of what is made, no more than eight chunks' logits are alive at once.

    The loss must be right, or wrong as `chunked` names it: whoever leaves rows out needs little memory.
    """
    at_once, kept = CATALOGUE["frugal"]
    slips = {says: slip for says, slip in _wrong("chunked", "loss_in_chunks").items() if "last chunk alone" not in says}
    made = {}
    for n_rows, n_vocab, n_chunk in cases or ((96, 500, 4),):
        arguments = _to_lose(numbers(n_rows, 5, key=23), n_vocab, n_chunk)
        right, handed = known.lost(**arguments), copied(arguments)
        with torch.no_grad(), Memory() as memory:
            result = call(loss_in_chunks, "loss_in_chunks", **handed)
        chunk = 8 * n_chunk * n_vocab
        if memory.peak > 8 * chunk:
            says = at_once if memory.largest > 8 * chunk else kept
            shown = f"most alive at once: {memory.peak / chunk:.0f} times the logits of {n_chunk} rows; 8 are allowed"
            raise CheckFailed(f"loss_in_chunks: {says}\n{shown}", slip=says)
        made |= worked_on(result, right, f"loss_in_chunks for {n_rows} rows", slips, arguments)
    if not cases:
        _counted_from_outside(loss_in_chunks, at_once, made)
    passed("never all logits at once")


def _counted_from_outside(loss_in_chunks, at_once: str, made: dict) -> None:
    """Numbers that are no tensors count too. `made`: the slips that the answer is known to have."""
    # a row of logits is too large for the heap to keep, so that chunks leave no gaps behind, which would count;
    # the bound lies far above what chunks take, and below a table of two bytes a number
    large, results = _to_lose(numbers(1_000, 5, key=23), 17_000, 4), []
    handed = copied(large)
    if not fits(lambda: results.append(call(loss_in_chunks, "loss_in_chunks", **handed)), 1_700 * 17_000):
        raise CheckFailed(f"loss_in_chunks: {at_once}", slip=at_once)
    for result in results:  # there is one where the answer runs in another process
        worked_on(result, known.lost(**large), "loss_in_chunks for 1,000 rows", made, large)
