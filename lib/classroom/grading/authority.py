"""The instructor's notebook as submissions are graded by it: as released, but with its hidden tests."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbgrader.preprocessors import ClearOutput, ClearSolutions, ComputeChecksums, LockCells
from traitlets.config import Config

from classroom.grading import course
from classroom.notebooks import canonical, text


def authority(assignment: str, config: Config | None = None) -> dict[str, str]:
    """The notebooks of an assignment: stem → JSON text, in the order of their names.

    Raises `GradingFailed` if there is no such assignment. `config` is nbgrader's (default: nbgrader_config.py).
    """
    config = config or course.settings(course.ROOT)
    found = {}
    for path in sorted((course.ROOT / "solutions" / course.known(assignment)).glob("*.ipynb")):
        found[path.stem] = text(for_grading(path, config))
    return found


def for_grading(path: Path, config: Config) -> nbformat.NotebookNode:
    """A notebook of solutions/ without answers and outputs: what nbgrader's release does, up to the hidden tests."""
    notebook, resources = nbformat.read(path, as_version=4), {}
    for step in (ClearSolutions, LockCells, ClearOutput):
        notebook, resources = step(config=config).preprocess(notebook, resources)
    notebook = canonical(notebook, path.stem)
    return ComputeChecksums(config=config).preprocess(notebook, resources)[0]
