"""Checks of exercise 13's problems 7 and 8: a matrix that was transposed, and other mistakes that no shape shows."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from classroom.checks import pretrained_answers as known
from classroom.checks.expect import CheckFailed, call, given, number, passed, same
from classroom.checks.pretrained_answers import fault, quiet, small_config
from classroom.checks.pretrained_slips import CATALOGUE, CULPRIT, N_BLOCKS, NOTICED
from classroom.checks.progress import graded
from classroom.checks.tensors import ROUNDING, TOUCHED, copied
from plainformer.config import Config


def _wrong(check: str, name: str) -> dict:
    return {says: answers[name] for says, answers in CATALOGUE[check].items()}


# ---- problem 7: the transposed matrix ----


def suspect() -> tuple[Config, dict[str, Tensor], Tensor, Tensor]:
    """The model of problems 1 and 7: settings, the weights of the file, some texts, and the published streams."""
    return fault(small_config(n_layers=N_BLOCKS), CULPRIT)


@graded
def name_it(culprit) -> None:
    """The block first, then the matrix."""
    _, weights, _, _ = suspect()
    early, late, other, shaped = CATALOGUE["name_it"]
    place = re.fullmatch(r"blocks\.([0-9]+)\..*", culprit if type(given(culprit, "culprit")) is str else "")
    if not place or culprit not in weights:
        raise CheckFailed(f"culprit is {culprit!r}; give the name of a matrix in a block, a key of weights.")
    n, right = int(place[1]), int(CULPRIT.split(".")[1])
    says = early if n < right else late if n > right else shaped if culprit not in known.squares(weights, n) else other
    if culprit != CULPRIT:
        raise CheckFailed(f"culprit: {says}", slip=says)
    passed("found by looking")


@graded
def find_one(find_transposed, *cases: tuple) -> None:
    """Cases are what `fault` gives, for one transposed matrix."""
    small = small_config(n_layers=3)
    visible = fault(small, "blocks.1.attn.query.weight"), fault(small, "blocks.0.attn.out.weight")
    for case in cases or visible:
        _found("find_one", find_transposed, case)
    passed("one transposed matrix, in any block")


@graded
def find_several(find_transposed, *cases: tuple) -> None:
    """Several, none, and no harm to what is handed in."""
    small = small_config(n_layers=3)
    visible = fault(small, "blocks.0.attn.query.weight", "blocks.2.attn.out.weight"), fault(small)
    for case in cases or visible:
        _found("find_several", find_transposed, case)
    passed("several, and none")


def _found(check: str, find_transposed, case: tuple) -> None:
    handed = dict(zip(("config", "weights", "ids", "streams"), case))
    right, copies = known.finder()(*case), copied(handed)
    actual = call(find_transposed, "find_transposed", **copies)
    actual = [*actual] if type(actual) is tuple else actual
    try:
        same(actual, right, "find_transposed(…)")
    except CheckFailed:  # known slips take a while: only where the answer is wrong
        wrong = {says: f for says, f in _wrong(check, "find_transposed").items() if says != TOUCHED}
        wrong = {says: f(case[0], dict(case[1]), *case[2:]) for says, f in wrong.items()}
        same(actual, right, "find_transposed(…)", wrong=wrong)
    same_weights = copies["weights"].keys() == case[1].keys() and all(
        torch.equal(copies["weights"][name], weight) for name, weight in case[1].items()
    )
    if not same_weights:
        raise CheckFailed(f"find_transposed: {TOUCHED}", slip=TOUCHED)


# ---- problem 8: quiet mistakes ----


@graded
def moved(moved_by, *cases: tuple) -> None:
    """Cases are what `quiet` gives."""
    for case in cases or (quiet(small_config(n_layers=N_BLOCKS)),):
        handed = dict(zip(("config", "weights", "ids"), case))
        right = known.mover()(*case)
        actual = call(moved_by, "moved_by", **copied(handed))
        if type(actual) is dict:
            actual = {name: number(value, f"moved_by(…)[{name!r}]", such_as="0.25") for name, value in actual.items()}
        wrong = {says: f(*case) for says, f in _wrong("moved", "moved_by").items()}
        same(actual, right, "moved_by(…)", wrong=wrong, tolerance=ROUNDING)
    passed("how far quiet mistakes move the logits")


@graded
def loader(noticed) -> None:
    if type(noticed) is not dict or noticed.keys() != NOTICED.keys() or ... in noticed.values():
        same(noticed, NOTICED, "noticed", reveal=False)
    for says, answers in CATALOGUE["loader"].items():
        letter = says[0]
        if given(noticed[letter], f"noticed[{letter!r}]") is answers["noticed"][letter]:
            raise CheckFailed(f"noticed: {says}", slip=says)
    same(noticed, NOTICED, "noticed", reveal=False)
    passed("what names and shapes can show")
