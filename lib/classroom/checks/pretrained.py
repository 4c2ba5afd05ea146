"""Checks of exercise 13: the bytes of a file of weights, its names and layouts, and a matrix that was transposed.

One mechanism a check. The notebook calls each on the student's names; a hidden test hands other cases to it.
The checks of problems 7 and 8 come from `pretrained_search`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import torch

from classroom.checks import pretrained_answers as known
from classroom.checks import pretrained_files as files
from classroom.checks.expect import CheckFailed, call, number, passed, refuse, same
from classroom.checks.expect import hidden_test as hidden_test  # for the hidden tests of the notebook
from classroom.checks.pretrained_answers import fault as fault  # these are too
from classroom.checks.pretrained_answers import fused, rows
from classroom.checks.pretrained_answers import quiet as quiet
from classroom.checks.pretrained_answers import small_config as small_config
from classroom.checks.pretrained_files import all_tables as all_tables
from classroom.checks.pretrained_files import other_files as other_files
from classroom.checks.pretrained_files import small_file
from classroom.checks.pretrained_search import find_one as find_one
from classroom.checks.pretrained_search import find_several as find_several
from classroom.checks.pretrained_search import loader as loader
from classroom.checks.pretrained_search import moved as moved
from classroom.checks.pretrained_search import name_it as name_it
from classroom.checks.pretrained_search import suspect
from classroom.checks.pretrained_slips import (
    CATALOGUE,
    CULPRIT,
    D_MODEL,
    GPT2_WIDTH,
    KV_WIDTH,
    Q8_BYTES,
    UNTIED_BYTES,
)
from classroom.checks.progress import graded
from classroom.checks.tensors import TOUCHED, agrees


def _wrong(check: str, name: str) -> dict:
    return {says: answers[name] for says, answers in CATALOGUE[check].items()}


def _slips(check: str, name: str, *arguments) -> dict:
    """What each known slip gives for these arguments."""
    return {says: function(*arguments) for says, function in _wrong(check, name).items()}


# ---- problem 1: predict ----


@graded
def predict(guess) -> None:
    """Any percentage."""
    value = number(guess, "guess", such_as="40")
    few, many = CATALOGUE["predict"]
    refuse("guess", (value < 0, few), (value > 100, many))
    passed("noted; the next cell tells")


def how_far(guess) -> None:
    """Run the model with the file's weights and with the right ones, and tell how often they agree."""
    value = number(guess, "guess", such_as="40")
    config, wrong, ids, _ = suspect()
    best = [known.run(config, weights, ids)[1].argmax(-1) for weights in (wrong, known.transposed(wrong, CULPRIT))]
    share = (best[0] == best[1]).double().mean().item()
    print(f"At {share:.0%} of the {ids.numel()} positions the favourite stays. Your guess was {value:g}%.")


# ---- problem 2: by hand ----


@graded
def k_shape(k_shape) -> None:
    _by_hand("k_shape", "k_shape", k_shape, (KV_WIDTH, D_MODEL))
    passed("the key's matrix")


@graded
def c_attn_shape(c_attn_shape) -> None:
    _by_hand("c_attn_shape", "c_attn_shape", c_attn_shape, (GPT2_WIDTH, 3 * GPT2_WIDTH))
    passed("three matrices in one")


@graded
def q8(q8_bytes) -> None:
    _by_hand("q8", "q8_bytes", q8_bytes, Q8_BYTES)
    passed("bytes of a quantised matrix")


@graded
def untied(untied_bytes) -> None:
    _by_hand("untied", "untied_bytes", untied_bytes, UNTIED_BYTES)
    passed("what an untied file has more")


def _by_hand(check: str, name: str, answer, right) -> None:
    """A whole number or a shape."""
    answer = tuple(answer) if isinstance(answer, (list, torch.Size)) else answer
    same(answer, right, name, wrong=_wrong(check, name), reveal=False)


# ---- problem 3: the bytes of a file ----


@graded
def contents(table_of_contents, *data: bytes) -> None:
    """Names, types and shapes."""
    _table("contents", "type and shape", table_of_contents, data, slice(0, 2))
    passed("names, types and shapes")


@graded
def places(table_of_contents, *data: bytes) -> None:
    """Where each tensor begins and ends."""
    _table("places", "start and stop", table_of_contents, data, slice(2, 4))
    passed("the places of all tensors")


def _table(check: str, what: str, table_of_contents, data: tuple[bytes, ...], part: slice) -> None:
    """Two of the four things that the table says of each tensor."""
    for one in data or (small_file(),):
        actual, right = _contents_of(table_of_contents, one), files.reader()[0](one)
        wrong = {}
        for says, slip in _wrong(check, "table_of_contents").items():
            with suppress(ValueError):  # a slip that finds no header at all
                wrong[says] = _part(slip(one), part)
        same(_part(actual, part), _part(right, part), f"{what} in table_of_contents(data)", wrong=wrong)


def _contents_of(table_of_contents, data: bytes) -> dict:
    try:
        actual = call(table_of_contents, "table_of_contents", data=data)
    except CheckFailed as error:
        says = next(iter(CATALOGUE["contents"]))
        if "DecodeError" in str(error):  # JSON's and UTF-8's: the bytes are not the header's
            raise CheckFailed(f"table_of_contents: {says}\n{error}", slip=says) from None
        raise
    if type(actual) is not dict or any(type(e) not in (tuple, list) or len(e) != 4 for e in actual.values()):
        raise CheckFailed("table_of_contents must return a dict: name → (type, shape, start, stop).")
    return actual


def _part(table: dict, part: slice) -> dict:
    return {name: _lists(entry[part]) for name, entry in table.items()}


def _lists(value):
    return [_lists(part) for part in value] if isinstance(value, (tuple, list)) else value


@graded
def tensors(read_tensor, *data: bytes) -> None:
    """The numbers."""
    for one in data or (small_file(),):
        table, right = files.reader()
        for name in table(one):
            actual, expected = call(read_tensor, "read_tensor", data=one, name=name), right(one, name)
            wrong = _slips("tensors", "read_tensor", one, name)
            same(actual, expected, f"read_tensor(data, {name!r})", wrong=wrong)
    passed("the numbers of all tensors")


# ---- problem 4: names ----


@graded
def layer_numbers(rename, *cases: tuple[str, dict]) -> None:
    """Cases are (name, table)."""
    back, q = files.turned(files.LLAMA), "model.layers.{}.self_attn.q_proj.weight"
    visible = (
        ("model.norm.weight", files.LLAMA),
        (q.format(1), files.LLAMA),
        (q.format(10), files.LLAMA),
        ("blocks.31.attn.key.weight", back),
        ("model.layers.4.mlp.experts.17.w1.weight", files.LLAMA),
    )
    _names("layer_numbers", rename, cases or visible)
    passed("numbers of layers, both ways")


@graded
def endings(rename, *cases: tuple[str, dict]) -> None:
    visible = (
        ("wte.weight", files.GPT2),
        ("h.7.attn.c_proj.bias", files.GPT2),
        ("h.3.ln_1.weight", files.GPT2),
        ("blocks.3.attn_norm.bias", files.turned(files.GPT2)),
    )
    _names("endings", rename, cases or visible)
    passed("weights and biases")


@graded
def whole_names(rename, *cases: tuple[str, dict]) -> None:
    visible = (
        ("blk.2.attn_output.weight", {"attn_output": "out"}),
        ("output_norm.weight", files.GGUF),
        ("blk.2.attn_output.weight", files.GGUF),
        ("output_scale.weight", files.GGUF),
        ("blk_2_attn_q.weight", files.GGUF),
        ("lm_head.weight", files.GGUF),
    )
    _names("whole_names", rename, cases or visible)
    passed("whole names only")


def _names(check: str, rename, cases) -> None:
    for name, table in cases:
        right, before = files.renamed(name, table), dict(table)
        what = f"rename({name!r}, …)"
        try:
            actual = call(rename, "rename", name=name, table=before)
        except CheckFailed as error:
            if "returns None" not in str(error):
                raise
            actual = None
        wrong = _slips(check, "rename", name, table)
        if actual != right:
            says = next((says for says, value in wrong.items() if value == actual and value != right), None)
            shown = f"expected {right!r}, got {actual!r}"
            raise CheckFailed(f"{what}: {says}\n{shown}" if says else f"{what} is wrong.\n{shown}", slip=says)


# ---- problem 5: three matrices in one ----


@graded
def unfused(unfuse, *cases: dict) -> None:
    visible = fused(10, 12, 4, 8), fused(6, 6, 6, 6)
    _layout("unfused", "unfuse", unfuse, cases or visible, known.unfuser())
    passed("three matrices from one")


@graded
def biases(unfuse, *cases: dict) -> None:
    visible = fused(None, 6, 6, 6), fused(None, 12, 4, 8)
    _layout("biases", "unfuse", unfuse, cases or visible, known.unfuser())
    passed("three biases from one")


def _layout(check: str, name: str, function, cases, right: Callable) -> None:
    for case in cases:
        agrees(function, name, case, right(**case), {k: f for k, f in _wrong(check, name).items() if k != TOUCHED})


# ---- problem 6: rotary pairs ----


@graded
def one_head(to_halves, *cases: dict) -> None:
    _layout("one_head", "to_halves", to_halves, cases or (rows(1, 10, 7),), known.to_halves)
    passed("one head")


@graded
def heads(to_halves, *cases: dict) -> None:
    _layout("heads", "to_halves", to_halves, cases or (rows(3, 8, 5), rows(4, 6)), known.to_halves)
    passed("several heads, weights and biases")
