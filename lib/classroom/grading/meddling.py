"""What in a submission's text deals with the grading instead of the exercise: a person should look at it.

Points do not depend on it. It is there for what no judge can see from outside, such as how much memory an answer
took: that is counted in the student's own process, and code that is bent on it can make the count a lie.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nbformat import NotebookNode
from nbgrader.utils import is_locked, is_solution

LONGEST, OVERLAP = 2_000, 200  # characters

SIGNS = {
    "the counting of memory": r"classroom\.memory|import memory\b|DispatchMode|clear_refs|prctl",
    "the connection to the judge": r"classroom\.grading|meta_path|\._peer\b|\._handle\b",
    "the answers of the checks": r"\w_answers\b(?=.*(import|getattr|ask))|import \w+_(answers|slips)\b",
    "the objects or the frames of the process": r"gc\.get_\w+|_getframe|currentframe|inspect\.stack",
    "the shell that runs the cells": r"(ast|input)_transformers|set_custom_exc|showtraceback|\.run_(cell|code)\b",
    "functions that others rely on": r"builtins\.\w+ *=[^=]|torch\.(equal|allclose|testing\.\w+) *=[^=]",
}


def signs(notebook: NotebookNode) -> list[str]:
    """A line for each kind of thing that the student's own text touches; `notebook` is the one that is run."""
    own = [
        cell.source
        for cell in notebook.cells
        if cell.cell_type == "code" and (is_solution(cell) or not is_locked(cell))
    ]
    found = {what for piece in _pieces("\n".join(own)) for what, sign in SIGNS.items() if re.search(sign, piece)}
    return [f"the submission deals with {what}" for what in SIGNS if what in found]


def _pieces(text: str) -> Iterator[str]:
    """Its lines, long ones in parts that overlap: some of the signs take the square of the length of a line."""
    for line in text.splitlines():
        yield from (line[start : start + LONGEST] for start in range(0, max(1, len(line)), LONGEST - OVERLAP))
