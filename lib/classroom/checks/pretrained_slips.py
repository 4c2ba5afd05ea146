"""What is right in exercise 13's problems on paper, and the wrong answers that its checks know by name.

Bytes and names are in `pretrained_files`, layouts and the search in `pretrained_answers`.
The checks use `CATALOGUE` for diagnosis, and the tests hand each of its answers to the grader.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch

from classroom import terms
from classroom.checks.pretrained_answers import (
    even_rows_first,
    finder,
    halved_in_place,
    head_by_head,
    mover,
    unfuser,
)
from classroom.checks.pretrained_files import reader, renamer
from classroom.checks.tensors import TOUCHED

# problem 2: a model of the Llama shape, the width of a GPT-2, and the bytes of a number and of a quantised group
_, D_MODEL, N_HEADS, N_KV_HEADS, N_VOCAB, _, GPT2_WIDTH = terms.numbers("pretrained")
TWO_BYTES, GROUP, SCALE_BYTES = 2, 32, 2

KV_WIDTH = N_KV_HEADS * (D_MODEL // N_HEADS)
Q8_BYTES = KV_WIDTH * D_MODEL // GROUP * (GROUP + SCALE_BYTES)
UNTIED_BYTES = N_VOCAB * D_MODEL * TWO_BYTES

CULPRIT = "blocks.2.attn.query.weight"  # problem 7: what is transposed in the file
N_BLOCKS = 5  # of the model in problems 1, 7 and 8

# problem 8: which of these mistakes a strict loader notices by names and shapes
NOTICED = {"A": True, "B": False, "C": False, "D": True, "E": False, "F": True, "G": False}


def _file(name: str, **slip) -> dict[str, Callable]:
    """One of the two functions of problem 3 with a slip."""
    return {name: reader(**slip)[name == "read_tensor"]}


def _rename(**slip) -> dict[str, Callable]:
    return {"rename": renamer(**slip)}


def _unfuse(**slip) -> dict[str, Callable]:
    return {"unfuse": unfuser(**slip)}


def _find(**slip) -> dict[str, Callable]:
    return {"find_transposed": finder(**slip)}


def _move(**slip) -> dict[str, Callable]:
    return {"moved_by": mover(**slip)}


def _by_head(change: Callable) -> dict[str, Callable]:
    return {"to_halves": head_by_head(change)}


def _whole(change: Callable) -> dict[str, Callable]:
    return {"to_halves": lambda weight, n_heads: change(weight)}


def _other_way(head: torch.Tensor, k: int) -> torch.Tensor:
    return torch.stack(head.chunk(2), 1).flatten(0, 1)


def _thirds(stored, widths):
    return list(stored.tensor_split(len(widths), -1))


def _every_third(stored, widths):
    return [stored[..., k :: len(widths)] for k in range(len(widths))]


def _first_rows(stored, widths):
    return list(stored.tensor_split(len(widths), 0))


_NOTICED_TRUE = {
    "A": "a shape of (in, out) fits (out, in) only if the matrix is square",
    "D": "with grouped keys the query's matrix has more rows than the key's",
    "F": "a model that is not tied needs a matrix that this file does not have",
}
_NOTICED_FALSE = {
    "B": "this matrix is square, so its shape fits either way",
    "C": "the order of rows does not show in a shape",
    "E": "keys and values have matrices of one shape",
    "G": "all blocks have the same shapes, and each name is there",
}

# check → what the slip is → the answers it gives
CATALOGUE: dict[str, dict[str, dict]] = {
    "predict": {
        "that is fewer than none": {"guess": -5},
        "that is more than all: give per cent": {"guess": 130},
    },
    "k_shape": {
        "that is (in, out); a linear layer of the Llama family keeps (out, in)": {"k_shape": (D_MODEL, KV_WIDTH)},
        "that is the query's; keys have n_kv_heads heads": {"k_shape": (D_MODEL, D_MODEL)},
        "that is one head; the matrix makes the keys of all key heads": {"k_shape": (D_MODEL // N_HEADS, D_MODEL)},
    },
    "c_attn_shape": {
        "that is (out, in); GPT-2's files keep (in, out)": {"c_attn_shape": (3 * GPT2_WIDTH, GPT2_WIDTH)},
        "three matrices stand in one: query, key and value": {"c_attn_shape": (GPT2_WIDTH, GPT2_WIDTH)},
    },
    "q8": {
        "each group has a scale too": {"q8_bytes": KV_WIDTH * D_MODEL},
        "these are the bytes of numbers that are not quantised": {"q8_bytes": KV_WIDTH * D_MODEL * TWO_BYTES},
        "a group has one scale, not every number": {"q8_bytes": KV_WIDTH * D_MODEL * (1 + SCALE_BYTES)},
        "that is the query's matrix": {"q8_bytes": D_MODEL * D_MODEL // GROUP * (GROUP + SCALE_BYTES)},
    },
    "untied": {
        "a number takes two bytes": {"untied_bytes": N_VOCAB * D_MODEL},
        "the embedding table is there in both; one more matrix comes": {"untied_bytes": 2 * UNTIED_BYTES},
        "the matrix that makes the logits is missing from the tied file": {"untied_bytes": 0},
    },
    "contents": {
        "the header's length stands in the first 8 bytes, lowest byte first; the header begins after them": _file(
            "table_of_contents", order="big"
        ),
        "__metadata__ is no tensor": _file("table_of_contents", extra=True),
        "the shape stands in the header as it is: rows first": _file(
            "table_of_contents", shape=lambda sizes: sizes[::-1]
        ),
    },
    "places": {
        "offsets count from the end of the header, start and stop from the beginning of the file": _file(
            "table_of_contents", base=lambda length: 0
        ),
        "before the header stand 8 more bytes, its length": _file("table_of_contents", base=lambda length: length),
        "the header itself lies before the data too": _file("table_of_contents", base=lambda length: 8),
    },
    "tensors": {
        "every tensor has its own type: use TYPES": _file("read_tensor", type_of=lambda word: "F32"),
        "F16 and BF16 are two types of two bytes": _file(
            "read_tensor", type_of=lambda word: {"BF16": "F16", "F16": "BF16"}.get(word, word)
        ),
        "the numbers are right and not in their shape": _file("read_tensor", shape=lambda sizes: [-1]),
        "the numbers lie row by row: the shape is not to be reversed": _file(
            "read_tensor", shape=lambda sizes: sizes[::-1]
        ),
        "these bytes begin too early, inside the header": _file("read_tensor", base=lambda length: length),
    },
    "layer_numbers": {
        "10 has two digits: a number is one digit or more": _rename(digits="[0-9]"),
        "the number is cut: 10 became 1": _rename(fill=lambda groups: [group[0] for group in groups]),
        "the number is not put in: braces are left": _rename(fill=lambda groups: ["{}"] * len(groups)),
        "the second number is not the first": _rename(fill=lambda groups: groups[:1] * len(groups)),
    },
    "endings": {
        "the last part is missing": _rename(ending=lambda last: ""),
        "a bias stays a bias": _rename(ending=lambda last: ".weight"),
        "a digit in a row, as in ln_1, is no number of a layer: only {} is": _rename(any_number=True),
    },
    "whole_names": {
        "a row must fit the whole name, and this one fits its beginning": _rename(match=re.match),
        "a row must fit the whole name, and this one fits a part of it": _rename(match=re.search),
        "a dot in a regular expression is any character: re.escape": _rename(escape=str),
        "a name without a row gives None": _rename(unknown=lambda name: name),
    },
    "unfused": {
        "the file keeps (in, out): each part must be transposed": _unfuse(turn=lambda part: part),
        "columns are what is split: in the file, outputs are columns": _unfuse(parts=_first_rows),
        "a part is neighbouring columns, not every third one": _unfuse(parts=_every_third),
        "the parts are as wide as widths says, not of equal width": _unfuse(parts=_thirds),
        "reshape cuts the same row of numbers elsewhere; transposing exchanges rows and columns": _unfuse(
            turn=lambda part: part.reshape(part.shape[::-1])
        ),
        "the parts come in the order of widths": _unfuse(
            parts=lambda stored, widths: list(stored.split(widths, -1))[::-1]
        ),
    },
    "biases": {
        "a bias is split as well": _unfuse(parts=lambda stored, widths: [stored] * len(widths)),
        "a bias is split by widths too, not in equal parts": _unfuse(parts=_thirds),
        "a part is neighbouring numbers, not every third one": _unfuse(parts=_every_third),
    },
    "one_head": {
        "that is the other way round, from halves to neighbours": _by_head(_other_way),
        "the outputs are rows; these columns are moved": _whole(
            lambda weight: torch.cat([weight[:, 0::2], weight[:, 1::2]], 1) if weight.dim() > 1 else weight
        ),
        "nothing has moved": _whole(lambda weight: weight),
        "of each pair the first goes to the first half": _by_head(
            lambda head, k: torch.cat([head[1::2], head[0::2]])
        ),
    },
    "heads": {
        "each head has halves of its own: rows moved from one head to another": _whole(even_rows_first),
        "only the first head is in order": _by_head(lambda head, k: head if k else even_rows_first(head)),
        TOUCHED: {"to_halves": halved_in_place},
    },
    "name_it": {
        "the streams of that block and of those before it are right": {"culprit": "blocks.1.attn.query.weight"},
        "an earlier block is wrong already and hands its stream on": {"culprit": "blocks.4.attn.query.weight"},
        "the block is right, the matrix is not: transpose each square one and look": {
            "culprit": "blocks.2.attn.out.weight"
        },
        "that matrix is not square: its shape would have shown it": {"culprit": "blocks.2.attn.key.weight"},
    },
    "find_one": {
        "the published streams are rounded to float32: nothing is equal to the last digit": _find(
            equal=lambda actual, published: torch.equal(actual, published.double())
        ),
        "later blocks differ because they were handed a wrong stream: mend the first before you go on": _find(
            tries=False, mends=False
        ),
        "the block is right, and not every time the matrix: try each square one": _find(tries=False, stops=True),
        "blocks count from 0": _find(shift=1),
    },
    "find_several": {
        "the first is found: mend it, run again and go on with the next block": _find(stops=True),
        "where nothing is transposed the list is empty": _find(always=True),
        TOUCHED: _find(in_place=True),
    },
    "moved": {
        "that is the mean square: take the root": _move(
            measure=lambda actual, right: ((actual - right).square().mean() / right.square().mean()).item()
        ),
        "divide by the root mean square of the right logits": _move(
            measure=lambda actual, right: (actual - right).square().mean().sqrt().item()
        ),
        "that is the largest difference, not the root mean square": _move(
            measure=lambda actual, right: ((actual - right).abs().max() / right.square().mean().sqrt()).item()
        ),
        "exchange them in every block, not in the first alone": _move(only=0),
        "with the pairing as it was nothing moves: give run another config": _move(pairing="halves"),
    },
    "loader": {
        f"{letter}: {says}": {"noticed": NOTICED | {letter: not NOTICED[letter]}}
        for letter, says in sorted((_NOTICED_TRUE | _NOTICED_FALSE).items())
    },
}  # fmt: skip
