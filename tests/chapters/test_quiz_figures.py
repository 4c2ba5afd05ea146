"""The figures in the questions are computed: no digit in the text of a `show.quiz` is typed.

Digits that are names stay (GPT-2, chapter 11, 2017, 16 bits, position 5: what test_typed_figures calls structure, and 0
and 1), and so do exponents, subscripts and whole coefficients of a symbol (4 d², 12d). All else is an f-string's value.
`python tests/chapters/test_quiz_figures.py` prints what is left, chapter by chapter.
"""

from __future__ import annotations

import ast
import json
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from classroom.ledger import STEMS, ledger_path

CHAPTERS = ledger_path().parent
_prose = runpy.run_path(str(Path(__file__).with_name("test_typed_figures.py")), run_name="prose")
figures, blank = _prose["figures"], _prose["blank"]

# What may stand typed in the questions of a chapter: figure → why no code can compute it.
ALLOWED: dict[str, dict[str, str]] = {}

COMPUTED = "…"  # stands for a value of an f-string
SYMBOLS = [
    re.compile(r"[_^](?:\d|\{[^{}]*\})"),
    re.compile(r"(?<![\w.,])\d{1,2}(?:\\,|\s)?(?=[dLNTh](?:[²^\W_]|_[a-z]|$))"),
]


def texts(node: ast.AST) -> Iterator[str]:
    """The texts in an expression, COMPUTED for each computed part; a bare number in braces is as good as typed."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            str(part.value.value)
            if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Constant)
            else COMPUTED
            if isinstance(part, ast.FormattedValue)
            else part.value
            for part in node.values
        )
    elif not isinstance(node, ast.Subscript):
        for child in ast.iter_child_nodes(node):
            yield from texts(child)


def typed(path: Path) -> list[tuple[str, str]]:
    """(figure, surroundings) of each typed figure in the questions of a chapter."""
    found = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or "show.quiz(" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "quiz":
                assert not any(isinstance(one, ast.Name) for one in node.args), "write the texts where they are shown"
                found += [(figure, around) for text in texts(node) for figure, around in in_text(text)]
    return found


def in_text(text: str) -> list[tuple[str, str]]:
    """(figure, surroundings) of each figure in one text of a question."""
    bare = text.replace("\\(", "  ").replace("\\)", "  ").replace("{,}", ",")
    for symbol in SYMBOLS:
        bare = symbol.sub(blank, bare)
    return [(figure, around) for _, figure, around in figures(bare)]


def unused(allowed: dict[str, dict[str, str]], folder: Path) -> list[tuple[str, str]]:
    """(chapter, figure) of what is allowed and no question says any more."""
    there = {stem: {figure for figure, _ in typed(folder / f"{stem}.ipynb")} for stem in allowed}
    return [(stem, one) for stem, entries in allowed.items() for one in entries if one not in there[stem]]


@pytest.mark.parametrize("stem", STEMS)
def test_no_figure_is_typed_in_a_question(stem):
    allowed = ALLOWED.get(stem, {})
    assert not [f"{one} in “{around}”" for one, around in typed(CHAPTERS / f"{stem}.ipynb") if one not in allowed]


def test_every_allowed_figure_is_still_there():
    assert not unused(ALLOWED, CHAPTERS), "take these out of ALLOWED"


def test_an_allowed_figure_that_is_gone_is_reported(tmp_path):
    planted(tmp_path, 'show.quiz("A loss of 0.02?", right=0)')
    assert unused({"chapter": {"0.02": "chosen", "0.03": "chosen"}}, tmp_path) == [("chapter", "0.03")]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('show.quiz("A width of 4,096?", right=0)', ["4,096"]),
        ('show.quiz("Why?", ("4 × 9", "So."), right=0)', ["4", "9"]),
        (
            'show.quiz("Why?", ("\\\\(\\\\sqrt{32}\\\\)", "It is \\\\(2.5\\\\,d^2\\\\) of 12."), right=0)',
            ["32", "2.5", "12"],
        ),
        ('show.quiz("Why?", (f"{width:,} and 30", "a" "b 33 %"), right=0)', ["30", "33%"]),
        ('show.quiz("Why?", (f"{64}, {64:.1f}", "About " + "0.6 million"), right=0)', ["64", "64", "0.6"]),
        ('show.quiz("50{,}000 = 10.8", right=0)', ["50,000", "10.8"]),
    ],
)
def test_a_planted_figure_is_found(tmp_path, source, found):
    assert [figure for figure, _ in typed(planted(tmp_path, source))] == found


@pytest.mark.parametrize(
    "text",
    [
        "GPT-2 of chapter 11, Llama 2 7B in 2017, bfloat16 and 32 bits, tokens at position 5, block 12.",
        "A mask of 1 and 0, \\\\(1/T\\\\), \\\\(4d^2\\\\) and 8 d², T / (T + 12d).",
        "\\\\(2N\\\\), x², \\\\(x_{{17}}\\\\), \\\\(x^5\\\\)",
        "{width:,} of {parts['a 7']:.2f}, {4 * width}",
    ],
)
def test_names_and_computed_values_are_no_typed_figures(tmp_path, text):
    assert not typed(planted(tmp_path, f'show.quiz(f"{text}", right=0)'))


def planted(folder: Path, source: str) -> Path:
    """A chapter of one question."""
    path = folder / "chapter.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": [source]}]}), encoding="utf-8")
    return path


if __name__ == "__main__":
    for stem in STEMS:
        if all(word in stem for word in sys.argv[1:]):
            for figure, around in typed(CHAPTERS / f"{stem}.ipynb"):
                if figure not in ALLOWED.get(stem, {}):
                    print(f"{stem}: {figure}   “{around}”")
