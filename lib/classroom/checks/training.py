"""Checks of exercise 12: a loss, a step, a loss in chunks, a leak, and what a position is worth.

One mechanism a check. The notebook calls each on the student's names; a hidden test hands other cases to it.
"""

from __future__ import annotations

import copy
import functools
import math

import torch
from torch import Tensor

from classroom.checks import training_answers as known
from classroom.checks.expect import CheckFailed, call, in_any_order, number, passed, same
from classroom.checks.expect import hidden_test as hidden_test  # for the hidden tests of the notebook
from classroom.checks.progress import graded
from classroom.checks.tensors import TOUCHED, agrees, copied, worked_on
from classroom.checks.training_answers import case, gradients, moment, to_lose
from classroom.checks.training_answers import named_tensors as named_tensors  # for the notebook
from classroom.checks.training_answers import nameless_tensors as nameless_tensors
from classroom.checks.training_answers import steps_until as steps_until
from classroom.checks.training_slips import CATALOGUE
from classroom.checks.training_worth import choice as choice
from classroom.checks.training_worth import how_far as how_far
from classroom.checks.training_worth import measured as measured
from classroom.checks.training_worth import predict as predict
from classroom.checks.training_worth import reason as reason
from classroom.memory import Memory, fits
from plainformer.training import next_token_loss, warmup_cosine

TWO = 6e-3  # an answer may be rounded to two decimals
EXACT = 1e-9  # a few roundings of float64, as a part of the result


def _wrong(check: str, name: str) -> dict:
    return {says: answers[name] for says, answers in CATALOGUE[check].items() if name in answers}


# ---- problem 2: by hand ----


@graded
def first_loss(first_loss) -> None:
    wrong = _wrong("first_loss", "first_loss")
    same(first_loss, known.FIRST_LOSS, "first_loss", wrong=wrong, tolerance=TWO, reveal=False)
    passed("first loss")


@graded
def one_step(one_step) -> None:
    _by_digits("one_step", one_step, known.ONE_STEP, tolerance=1e-4)
    passed("one step of AdamW")


@graded
def middle_rate(middle_rate) -> None:
    _by_digits("middle_rate", middle_rate, known.MIDDLE_RATE, tolerance=1e-5)
    passed(f"rate of step {known.MIDDLE}")


def _by_digits(name: str, answer, right: float, tolerance: float) -> None:
    """Slips lie within one per cent of each other here, so they are recognised by their digits alone."""
    value = number(answer, name, such_as="1.5")
    for says, wrong in _wrong(name, name).items():
        if abs(value - wrong) <= tolerance:
            raise CheckFailed(f"{name}: {says}", slip=says)
    same(answer, right, name, tolerance=tolerance, reveal=False)


# ---- problem 3: the loss ----


@graded
def shifted(loss, *cases: dict) -> None:
    """Rows without filler."""
    _losses("shifted", loss, cases or (case([7, 7, 7]),))
    passed("loss of the next token")


@graded
def filled(loss, *cases: dict) -> None:
    _losses("filled", loss, cases or (case([7, 3, 5, 2], key=1),))
    passed("filler is no target")


@graded
def huge(loss, *cases: dict) -> None:
    for arguments in cases or (case([7, 7, 7], key=2, scale=1e3),):
        _is_finite(call(loss, "loss", **copy.deepcopy(arguments)), "loss", *CATALOGUE["huge"])
        _losses("shifted", loss, (arguments,))
    passed("large logits")


def _is_finite(value, what: str, if_nan: str, if_infinite: str = "") -> None:
    """Two numbers that no comparison recognises."""
    value = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    if type(value) is float and (math.isnan(value) or (if_infinite and math.isinf(value))):
        says = if_nan if math.isnan(value) else if_infinite
        raise CheckFailed(f"{what} is {value}: {says}", slip=says)


def _losses(check: str, loss, cases: tuple[dict, ...]) -> None:
    def as_number(slip):
        return lambda **given: float(slip(**given))

    wrong = {says: as_number(slip) for says, slip in _wrong(check, "loss").items()}
    for arguments in cases:
        right = next_token_loss(arguments["logits"], arguments["ids"], lengths=arguments["lengths"]).item()
        agrees(loss, "loss", arguments, right, wrong)


# ---- problem 4: the rate, and the length of a gradient ----


@graded
def schedule(rate, *cases: tuple) -> None:
    """Cases are (step, peak, n_warmup, n_steps, floor)."""
    for values in cases or [(step, 0.4, 4, 24, 0.1) for step in (1, 2, 4, 9, 14, 24, 31)]:
        arguments = dict(zip(("step", "peak", "n_warmup", "n_steps", "floor"), values))
        right = warmup_cosine(**arguments)
        wrong = {says: slip(**arguments) for says, slip in _wrong("schedule", "rate").items()}
        what = f"rate({', '.join(f'{name}={value}' for name, value in arguments.items())})"
        same(call(rate, "rate", **arguments), right, what, wrong=wrong, tolerance=EXACT * arguments["peak"])
    passed("warm-up and cosine")


@graded
def clipped(clip, *cases: tuple[list[Tensor], float]) -> None:
    """Cases are (gradients, limit)."""
    for parts, limit in cases or ((gradients(), 1.5), (gradients(scale=0.02), 1.5)):
        right = known.clipped(parts, limit)
        agrees(clip, "clip", {"gradients": parts, "limit": limit}, right, _wrong("clipped", "clip"))
    passed("clipping")


# ---- problem 5: AdamW ----


@graded
def first_step(adamw_step, *cases: dict) -> None:
    _steps_of_adamw("first_step", adamw_step, cases or (moment(1),))
    passed("first step of AdamW")


@graded
def later_step(adamw_step, *cases: dict) -> None:
    _steps_of_adamw("later_step", adamw_step, cases or (moment(4),))
    passed("a later step of AdamW")


def _steps_of_adamw(check: str, adamw_step, cases: tuple[dict, ...]) -> None:
    for arguments in cases:
        agrees(adamw_step, "adamw_step", arguments, known.adamw(**arguments), _wrong(check, "adamw_step"))


@graded
def sorted_groups(groups, *cases: dict[str, Tensor]) -> None:
    """Cases are tensors by name. Hidden ones have names that say nothing: whoever knows names alone has no answer."""
    visible = known.named_tensors(), known.named_tensors(n_layers=1, tied=False), known.nameless_tensors()
    for named in cases or visible:
        right = known.grouped(named)
        wrong = {says: slip(named) for says, slip in _wrong("sorted_groups", "groups").items()}
        actual = call(groups, "groups", named=copy.deepcopy(named))  # what is tied stays so
        if type(actual) is dict:  # in any order
            actual = {key: _in_order(value, named) for key, value in actual.items()}
        same(actual, right, "groups", wrong=wrong)
    passed("groups")


def _in_order(value, named: dict):
    names = list(named)
    if isinstance(value, (list, tuple, set)) and all(isinstance(name, str) and name in named for name in value):
        return sorted(value, key=names.index)
    return value


# ---- problem 6: a loss in chunks, with its gradient ----


@graded
def chunked(chunked_loss, *cases: dict) -> None:
    """Every row has a target."""
    *_, overflow = CATALOGUE["chunked"]
    _in_chunks("chunked", chunked_loss, cases or (to_lose(10, 6, 17, 4), to_lose(5, 3, 8, 2, scale=1e3)), overflow)
    passed("loss and gradient in chunks")


@graded
def skipped(chunked_loss, *cases: dict) -> None:
    """Some rows have none; in the second case a whole chunk."""
    *_, empty = CATALOGUE["skipped"]
    visible = to_lose(11, 6, 17, 4, without=(1, 2, 9)), to_lose(9, 5, 13, 2, without=(0, 4, 5))
    _in_chunks("skipped", chunked_loss, cases or visible, empty)
    passed("rows without a target")


def _in_chunks(check: str, chunked_loss, cases: tuple[dict, ...], if_nan: str) -> None:
    answer = _with_gradients(chunked_loss)
    for arguments in cases:
        result = call(answer, "chunked_loss", **copy.deepcopy(arguments))
        if isinstance(result, (tuple, list)) and result:
            _is_finite(result[0], "the loss", if_nan)
        agrees(answer, "chunked_loss", arguments, known.lost(**arguments), _wrong(check, "chunked_loss"))


@graded
def frugal(chunked_loss, *cases: dict) -> None:
    """No more than eight chunks' logits are alive at once.

    The result must be right, or wrong as `chunked` or `skipped` names it: whoever leaves rows out needs little memory.
    """
    at_once, kept = CATALOGUE["frugal"]
    slips, made = _wrong("chunked", "chunked_loss") | _wrong("skipped", "chunked_loss"), {}
    for arguments in cases or (to_lose(96, 5, 500, 4),):
        chunk = 8 * arguments["n_chunk"] * len(arguments["unembed"])
        right, handed = known.lost_in_chunks(**arguments), copied(arguments)
        with Memory() as memory:
            result = call(_with_gradients(chunked_loss), "chunked_loss", **handed)
        if memory.peak > 8 * chunk:
            says = at_once if memory.largest > 8 * chunk else kept
            shown = f"most alive at once: {memory.peak / chunk:.0f} times the logits of a chunk; 8 are allowed"
            raise CheckFailed(f"chunked_loss: {says}\n{shown}", slip=says)
        made |= worked_on(result, right, f"chunked_loss for {len(right[1])} rows", slips, arguments)
    if not cases:
        _counted_from_outside(_with_gradients(chunked_loss), at_once, made)
    passed("never all logits at once")


def _counted_from_outside(chunked_loss, at_once: str, made: dict) -> None:
    """Numbers that are no tensors count too. `made`: the slips that the answer is known to have."""
    # a row of logits is too large for the heap to keep, so that chunks leave no gaps behind, which would count;
    # the bound lies far above what chunks take, and below a table of two bytes a number
    large, results = to_lose(1_000, 5, 17_000, 4), []
    handed = copied(large)
    if not fits(lambda: results.append(call(chunked_loss, "chunked_loss", **handed)), 1_700 * 17_000):
        raise CheckFailed(f"chunked_loss: {at_once}", slip=at_once)
    for result in results:  # there is one where the answer runs in another process
        worked_on(result, known.lost_in_chunks(**large), "chunked_loss for 1,000 rows", made, large)


def _with_gradients(function):
    """The student's function, free to use autograd."""
    if not callable(function):
        return function

    @functools.wraps(function)
    def called(**arguments):
        with torch.enable_grad():
            return function(**arguments)

    return called


# ---- problem 7: hunt a leak ----


@graded
def finder(leaks, *cases: tuple[str, Tensor, int]) -> None:
    """Cases are the name of a lesson, ids, and a key of its weights."""
    ids = torch.tensor([3, 0, 8, 1, 0, 4])

    def ask(case: tuple[str, Tensor, int]) -> None:
        kind, tokens, key = case
        lesson = known.lesson(kind, key)
        handed = tokens.clone()
        with torch.no_grad():
            wrong = {says: slip(lesson, tokens.clone(), 9) for says, slip in _wrong("finder", "leaks").items()}
            right = known.leaking(lesson, tokens, 9)
            actual = call(leaks, "leaks", lesson=lesson, ids=handed, n_vocab=9)
        if isinstance(actual, Tensor):
            actual = actual.tolist()
        same(actual, right, f"leaks of a lesson ({kind})", wrong=wrong)
        if not torch.equal(handed, tokens):
            raise CheckFailed(f"leaks: {TOUCHED}", slip=TOUCHED)

    in_any_order(ask, cases or [(kind, ids, 60) for kind in known.LESSONS])
    passed("finder")


@graded
def repair(repaired, *cases: tuple[Tensor, dict]) -> None:
    """Cases are ids and arguments of `weights`."""
    for ids, sizes in cases or ((torch.tensor([3, 0, 8, 1, 0, 4]), {}),):
        arguments = {"ids": ids, **known.weights(**sizes)}
        right = known.suspect(**arguments, first_hidden=1)
        agrees(repaired, "repaired", arguments, right, _wrong("repair", "repaired"))
    passed("suspect repaired")
