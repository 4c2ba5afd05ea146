"""What broken submissions are made of: a right notebook of an assignment, and builders that do something to it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nbformat import NotebookNode
from nbgrader.utils import is_solution

from classroom.grading import course
from classroom.grading.course import ROOT
from classroom.matching import name_of

ALL, SOME, NONE = "all answers", "some answers", "no answer"

Build = Callable[[Path], object]  # fills a student's folder of the assignment, which is there and empty


@dataclass(frozen=True)
class Broken:
    """`build` fills the student's folder; then so many answers are found, and the findings and flags say this.

    With SOME, `right` names the answer cells that are found as they were written, `lost` those that are not; a cell
    in neither is found in part. `is_large`: takes so long to make or to read that a simulated class goes without it.
    """

    build: Build
    found: str
    says: str = ""
    flag: str = ""
    right: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    is_large: bool = False


class Whole:
    """The notebook of an assignment with right answers (answer cell → source), before it is broken."""

    def __init__(self, assignment: str, release: NotebookNode, answers: dict[str, str]):
        self.name, self.release, self.answers = assignment, release, answers
        self.file_name = f"{assignment}.ipynb"

    def answered(self) -> NotebookNode:
        """A new copy of the released notebook with the answers."""
        notebook = deepcopy(self.release)
        for cell in notebook.cells:
            if is_solution(cell):
                cell.source = self.answers.get(name_of(cell), cell.source)
        return notebook

    @cached_property
    def right(self) -> bytes:
        return data(self.answered())

    @cached_property
    def untouched(self) -> bytes:
        return data(self.release)

    @cached_property
    def other(self) -> bytes:
        """The released notebook of another assignment."""
        other = next(name for name in course.assignments() if name != self.name)
        return (ROOT / "exercises" / other / f"{other}.ipynb").read_bytes()

    @property
    def answer_cells(self) -> list[str]:
        """Names of the answer cells, as they follow each other."""
        return [name_of(cell) for cell in self.release.cells if is_solution(cell)]

    # ---- builders ----

    def file(self, content: bytes, name: str | bytes | None = None) -> Build:
        """One file of this content, under the notebook's name or another, in folders of the folder if it says so."""

        def build(folder: Path) -> None:
            path = folder / os.fsdecode(name or self.file_name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

        return build

    def files(self, contents: dict[str, bytes]) -> Build:
        return lambda folder: [self.file(content, name)(folder) for name, content in contents.items()]

    def changed(self, change: Callable[[NotebookNode], object]) -> Build:
        """The right answers in a notebook with which something was done."""

        def build(folder: Path) -> None:
            notebook = self.answered()
            change(notebook)
            self.file(data(notebook))(folder)

        return build

    def each(self, change: Callable[[NotebookNode], object]) -> Build:
        """The right answers in a notebook with each cell of which something was done."""
        return self.changed(lambda notebook: [change(cell) for cell in notebook.cells])


def cell_of(notebook: NotebookNode, name: str) -> NotebookNode:
    return next(cell for cell in notebook.cells if name_of(cell) == name)


def data(notebook: dict) -> bytes:
    return json.dumps(notebook, ensure_ascii=False).encode()


def code(source: str, **metadata) -> dict:
    """A cell of a student's own."""
    about = {"cell_type": "code", "id": "own", "source": source, "metadata": metadata}
    return about | {"outputs": [], "execution_count": None}
