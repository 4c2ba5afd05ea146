"""Broken notebooks: files that can be opened, with something wrong in their JSON, their format or their cells."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

from nbformat import NotebookNode
from nbgrader.utils import compute_checksum, is_solution

from classroom.grading.broken import ALL, NONE, SOME, Broken, Build, Whole, cell_of, code, data


def table(whole: Whole) -> dict[str, Broken]:
    """What may be wrong in a notebook, by what it is."""
    return values(whole) | formats(whole) | texts(whole) | settings(whole)


# ---- JSON ----


def values(whole: Whole) -> dict[str, Broken]:
    file, right = whole.file, whole.right
    too_many = b'{"cells": [' + b"[]," * 2_100_000
    digits = right.replace(b'{"kernelspec"', b'{"x": ' + b"9" * 9999 + b', "kernelspec"')
    huge_format = right.replace(b'"nbformat": 4', b'"nbformat": ' + b"9" * 300)

    def deep(levels: int) -> bytes:
        brackets = b"[" * levels + b"]" * levels
        return right.replace(b'"metadata": {"deletable"', b'"metadata": {"x": %b, "deletable"' % brackets)

    return {
        "a list": Broken(file(b"[]"), NONE, "no list of cells"),
        "a number": Broken(file(b"1e999"), NONE, "no list of cells"),
        "nested too deeply": Broken(file(b"[" * 100_000), NONE, "nested deeper"),
        "metadata nested deeply": Broken(file(deep(400)), ALL),
        "metadata nested too deeply": Broken(file(deep(5000)), NONE, "nested deeper"),
        "NaN": Broken(whole.changed(lambda nb: nb.metadata.update(x=float("nan"), y=float("inf"))), ALL),
        "huge numbers": Broken(file(digits), ALL),
        "a huge format number": Broken(file(huge_format), ALL, "format ?"),
        "keys twice": Broken(file(b'{"cells": [], ' + right[1:]), ALL),
        "lists without end": Broken(file(too_many), NONE, "more lists, values or lines"),
    }


# ---- the notebook's format ----


def formats(whole: Whole) -> dict[str, Broken]:
    each = whole.each

    def settings(**others) -> Build:
        return whole.file(data({**whole.answered(), **others}))

    def cells(value: object) -> Build:
        return whole.file(data({**whole.release, "cells": value}))

    return {
        "format 3": Broken(whole.file(version_3(whole.answered())), ALL, "is in notebook format 3.0"),
        "format 4.0": Broken(settings(nbformat_minor=0), ALL, "is in notebook format 4.0"),
        "format 5": Broken(settings(nbformat=5), ALL, "is in notebook format 5."),
        "a format that is text": Broken(settings(nbformat="four"), ALL, "is in notebook format ?"),
        "no cells": Broken(cells([]), NONE, "holds hardly any cell of this"),
        "cells that are text": Broken(cells("all"), NONE, "no list of cells"),
        "cells that are numbers": Broken(cells([1, None, "x"]), NONE, "is no cell, but a bare"),
        "cells without a type": Broken(each(lambda cell: cell.pop("cell_type")), ALL, "which kind of cell"),
        "cells without an id": Broken(each(lambda cell: cell.pop("id")), ALL, "has no valid cell id"),
        "cells with one id": Broken(each(lambda cell: cell.update(id="same")), ALL, "shares its cell id"),
        "cells without a source": Broken(each(lambda cell: cell.pop("source")), NONE, "was changed"),
        "sources as lists": Broken(each(lambda cell: cell.update(source=cell["source"].splitlines(True))), ALL),
        "sources as numbers": Broken(
            each(lambda cell: cell.update(source=1)),
            SOME,  # for "1" stands in the answers
            "has a source that is no text",
            lost=(*whole.answer_cells,),
        ),
        "metadata that is text": Broken(each(lambda cell: cell.update(metadata="none")), ALL, "has lost nbgrader's id"),
        "outputs that are text": Broken(each(lambda cell: cell.update(outputs="none")), ALL, "is no valid notebook"),
        "attachments that are a number": Broken(
            each(lambda cell: cell.update(attachments=1)), ALL, "is no valid notebook"
        ),
    }


def version_3(notebook: NotebookNode) -> bytes:
    """The notebook as it was written ten years ago."""
    cells = []
    for cell in notebook.cells:
        old = {"cell_type": cell.cell_type, "metadata": cell.metadata}
        old |= {"input": cell.source.splitlines(True)} if cell.cell_type == "code" else {"source": [cell.source]}
        cells.append(old)
    return data({"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": cells}]})


# ---- its text ----


def texts(whole: Whole) -> dict[str, Broken]:
    *others, last = whole.answer_cells  # no other problem needs the last one

    def many(cell: dict, number: int) -> Build:
        return whole.changed(lambda notebook: notebook.cells.extend([cell] * number))

    def outputs(notebook: NotebookNode) -> None:
        text = ["x" * 999 + "\n"] * 100_000
        notebook.cells[1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": text}]

    def too_long(notebook: NotebookNode) -> None:
        cell_of(notebook, last).source += "\n# x" * 1_000_000

    def lone_surrogate(notebook: NotebookNode) -> None:
        cell_of(notebook, last).source += "\n# SURROGATE"

    def surrogate_in_an_id(notebook: NotebookNode) -> None:
        notebook.cells.append(code("x = 1", nbgrader={"grade_id": "SURROGATE", "solution": True}))

    def with_half_characters(change: Callable[[NotebookNode], object]) -> Build:
        def build(folder: Path) -> None:
            notebook = whole.answered()
            change(notebook)
            whole.file(data(notebook).replace(b"SURROGATE", rb"\ud83d"))(folder)

        return build

    return {
        "half a character": Broken(with_half_characters(lone_surrogate), ALL, "holds half a character"),
        "half a character in an id": Broken(
            with_half_characters(surrogate_in_an_id), ALL, "which the exercise does not"
        ),
        "100 MB of outputs": Broken(whole.changed(outputs), ALL, "nearly all of it outputs", is_large=True),
        "50,000 cells": Broken(many(code("x = 1"), 50_000), ALL, "50000 cells of your own", "left out"),
        "200,000 cells": Broken(many({"cell_type": "raw", "source": ""}, 200_000), NONE, "more than any notebook"),
        "a very long answer": Broken(
            whole.changed(too_long), SOME, "its text was not taken", right=(*others,), lost=(last,)
        ),
    }


# ---- nbgrader's settings and cells ----


def settings(whole: Whole) -> dict[str, Broken]:
    changed, each = whole.changed, whole.each

    def copied_answers(notebook: NotebookNode) -> None:
        notebook.cells += [cell for cell in deepcopy(whole.release.cells) if is_solution(cell)]

    def of_nbgrader(**others) -> Build:
        return each(lambda cell: cell.metadata.nbgrader.update(others))

    richer = of_nbgrader(points=1000, extra_credit=99, grade=True, solution=True, locked=False)
    skipping = ["skip-execution", "raises-exception", "remove-cell"]
    lost_ids = "has lost nbgrader's id"
    return {
        "settings that are text": Broken(each(lambda cell: cell.metadata.update(nbgrader="solution")), ALL, lost_ids),
        "no settings": Broken(each(lambda cell: cell.update(metadata={})), ALL, lost_ids),
        "an old schema": Broken(of_nbgrader(schema_version=1), ALL, "other settings"),
        "points as text": Broken(of_nbgrader(points="1"), ALL, "other settings"),
        "more points": Broken(richer, ALL, "points 1000, not 1"),
        "tags that skip cells": Broken(each(lambda cell: cell.metadata.update(tags=skipping)), ALL),
        "other ids": Broken(changed(renumbered), ALL, "has the unknown id 'mine-"),
        "ids that are numbers": Broken(of_nbgrader(grade_id=7), ALL, lost_ids),
        "tests edited": Broken(changed(passing), ALL, "was changed; it is a given cell"),
        "tests edited, with forged checksums": Broken(changed(checksums_forged), ALL, "from an older release"),
        "answers in new cells": Broken(changed(in_new_cells), ALL, lost_ids),
        "tests deleted": Broken(changed(without_tests), ALL, "is missing"),
        "tests copied": Broken(changed(lambda nb: nb.cells.extend(deepcopy(nb.cells))), ALL, "is there 2 times"),
        "untouched answers copied below": Broken(changed(copied_answers), ALL, "is there 2 times"),
        "all cells markdown": Broken(each(retyped("markdown")), ALL, "is a markdown cell; it was given as a code cell"),
        "all cells raw": Broken(each(retyped("raw")), ALL, "is a raw cell"),
        "cells reversed": Broken(changed(lambda notebook: notebook.cells.reverse()), ALL, "was moved"),
    }


def retyped(kind: str) -> Callable[[NotebookNode], object]:
    def change(cell: NotebookNode) -> None:
        cell["cell_type"] = kind
        cell.pop("outputs", None), cell.pop("execution_count", None)

    return change


def without_tests(notebook: NotebookNode) -> None:
    notebook.cells = [cell for cell in notebook.cells if is_solution(cell)]


def passing(notebook: NotebookNode) -> None:
    for cell in notebook.cells:
        if cell.metadata.nbgrader.grade:
            cell.source = "pass"


def checksums_forged(notebook: NotebookNode) -> None:
    for cell in notebook.cells:
        if cell.metadata.nbgrader.grade:
            cell.source = "pass"
            cell.metadata.nbgrader.checksum = compute_checksum(cell)


def in_new_cells(notebook: NotebookNode) -> None:
    notebook.cells = [code(cell.source) if is_solution(cell) else cell for cell in notebook.cells]


def renumbered(notebook: NotebookNode) -> None:
    for cell in notebook.cells:
        cell.metadata.nbgrader.grade_id = f"mine-{cell.metadata.nbgrader.grade_id}"
