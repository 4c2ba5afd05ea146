"""`make chapters`: run every notebook of the course from a fresh kernel and store it in one canonical form.

A notebook that says the same thing has the same bytes: cell ids by position, execution counts 1..n, no times,
no widget state, no trace of the machine. So an unchanged chapter is an unchanged file, and the outputs that
nbval compares are those of one clean run.

    python -m classroom.notebooks                    every chapter, appendix and solution
    python -m classroom.notebooks chapters/01_*      these
    python -m classroom.notebooks --check            run nothing; report the files whose form would change
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from . import kernels

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("chapters/*.ipynb", "chapters/appendix/*.ipynb", "solutions/*/*.ipynb")
SECONDS_PER_CELL = 900
# what a reader, the book or nbgrader needs of a cell's metadata; editors and kernels leave the rest behind
FOLDED = {"hide-input", "remove-input", "remove-cell"}  # folded in the book, so folded in JupyterLab too
KEPT_METADATA = ("tags", "nbgrader", "deletable", "editable", "mystnb")


class NotebookFailed(Exception):
    """A notebook that cannot be stored; the message names it, the cell and the reason."""


def canonical(notebook: nbformat.NotebookNode, stem: str) -> nbformat.NotebookNode:
    """A copy of `notebook` in the one form in which this course stores notebooks.

    `stem` is the file's name without its suffix; cell k gets the id ``stem-k``.
    Raises ``ValueError`` if the stem cannot stand in a cell id.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,56}", stem):
        raise ValueError(
            f"the name {stem!r} cannot stand in a cell id: "
            "at most 56 letters, digits, '_' and '-', such as '02_attention'."
        )
    cells = []
    for position, cell in enumerate(notebook.cells):
        metadata = {key: cell.metadata[key] for key in KEPT_METADATA if key in cell.metadata}
        if cell.metadata.get("jupyter", {}).get("source_hidden") or FOLDED & set(metadata.get("tags", [])):
            metadata["jupyter"] = {"source_hidden": True}
        kept = {
            "id": f"{stem}-{position:02d}",
            "cell_type": cell.cell_type,
            "metadata": metadata,
            "source": cell.source,
        }
        if cell.get("attachments"):
            kept["attachments"] = cell.attachments
        if cell.cell_type == "code":
            # one run from the top numbers its cells 1..n; a cell that holds nothing to run keeps no number
            ran = cell.get("execution_count") is not None
            kept["execution_count"] = 1 + sum(bool(c.get("execution_count")) for c in cells) if ran else None
            kept["outputs"] = _outputs(cell.outputs, kept["execution_count"])
        cells.append(kept)
    return nbformat.from_dict(
        {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {
                "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
                "language_info": {"name": "python"},
            },
            "cells": cells,
        }
    )


def _outputs(outputs: list, execution_count: int | None) -> list[dict]:
    """The outputs without what differs between two runs: message ids, counts, how a stream was cut."""
    kept: list[dict] = []
    for output in outputs:
        output = {key: value for key, value in output.items() if key != "transient"}
        if "execution_count" in output:
            output["execution_count"] = execution_count
        same_stream = kept and output["output_type"] == "stream" == kept[-1]["output_type"]
        if same_stream and output["name"] == kept[-1]["name"]:
            kept[-1]["text"] += output["text"]
        else:
            kept.append(output)
    return kept


def text(notebook: nbformat.NotebookNode) -> str:
    """The text of the file: keys sorted, indented by one, letters as they are, one newline at the end.

    Raises ``nbformat.ValidationError`` if the result is no valid notebook.
    """
    nbformat.validate(notebook)
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"


def read(path: Path) -> nbformat.NotebookNode:
    """The notebook in `path`; raises `NotebookFailed` if it is none."""
    try:
        return nbformat.read(path, as_version=4)
    except (ValueError, OSError) as error:  # ValueError: no JSON, no text, no notebook
        raise NotebookFailed(f"{_shown(path)} cannot be read as a notebook: {error}") from error


def write_if_changed(path: Path, content: str) -> bool:
    """Write `content` whole or not at all, and only if the file does not hold it already; True if it did not."""
    return write_bytes_if_changed(path, content.encode("utf-8"))


def write_bytes_if_changed(path: Path, data: bytes, outdated: Iterable[Path] = ()) -> bool:
    """As `write_if_changed`, for bytes. Files that are `outdated` by them go too, once nothing else can fail."""
    if path.is_file() and path.read_bytes() == data:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")  # the same folder, so that the rename is atomic
    try:
        beside.write_bytes(data)
        for other in outdated:  # first, or a run that is killed in between would leave them beside the new content
            other.unlink()
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return True


def execute(path: Path) -> str:
    """Run the notebook from a fresh kernel in its own folder; return the canonical text, write nothing.

    Raises `NotebookFailed` for a cell that fails, takes too long or writes to stderr: a reader would see that too.
    """
    notebook = read(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    try:
        with kernels.by_files() as transport:
            NotebookClient(
                notebook,
                kernel_name="python3",
                timeout=SECONDS_PER_CELL,
                startup_timeout=SECONDS_PER_CELL,
                iopub_timeout=60,  # for an output that is on its way: lost without a word otherwise on a busy machine
                extra_arguments=["--log-level=40"],  # errors alone: the kernel's own warnings are about its sockets
                resources={"metadata": {"path": str(path.parent)}},
                config=transport,
            ).execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        where = max((k for k, cell in enumerate(notebook.cells) if cell.get("execution_count")), default=0)
        failed = (k for k, cell in enumerate(notebook.cells) if _types(cell) & {"error"})
        raise NotebookFailed(f"{_shown(path)}, {_named(notebook, next(failed, where))}:\n{error}") from error
    for position, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if output["output_type"] == "stream" and output["name"] == "stderr":
                raise NotebookFailed(
                    f"{_shown(path)}, {_named(notebook, position)}: wrote to stderr, which readers would see. "
                    f"Mend the cause of the warning:\n{output['text']}"
                )
    return text(canonical(notebook, path.stem))


def _types(cell) -> set[str]:
    return {output["output_type"] for output in cell.get("outputs", [])}


def _named(notebook, position: int) -> str:
    source = notebook.cells[position].source.strip()
    return f"cell {position} ({source.splitlines()[0] if source else 'empty'})"


def _shown(path: Path) -> str:
    path = path.resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def find(paths: list[str]) -> list[Path]:
    """The notebooks named by `paths`, or every notebook of the course if none is named."""
    if not paths:
        return sorted(path for place in PLACES for path in ROOT.glob(place))
    found = []
    for given in paths:
        path = Path(given)
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
        else:
            inside = [path] if path.suffix == ".ipynb" and path.is_file() else []
        if not inside:
            raise NotebookFailed(f"{given} is no notebook and holds none; give paths of .ipynb files or folders.")
        found += [p.resolve() for p in inside]
    return found


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, run or check the notebooks, and say what changed."""
    parser = argparse.ArgumentParser(prog="python -m classroom.notebooks", description=__doc__.split("\n\n")[0])
    parser.add_argument("paths", nargs="*", help="notebooks or folders (default: " + ", ".join(PLACES) + ")")
    parser.add_argument("--check", action="store_true", help="run nothing; report what is not in canonical form")
    options = parser.parse_args(arguments)
    # One thread: tiny loops take many times longer with two on a busy machine, and sums can differ in the last digit.
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    os.environ["PLAINFORMER_STORING"] = "1"  # a figure's script for JupyterLab stays out of what is stored

    bad = 0
    try:
        paths = find(options.paths)
    except NotebookFailed as error:
        print(error, file=sys.stderr)
        return 1
    for path in paths:
        try:
            if options.check:
                stale = text(canonical(read(path), path.stem)).encode("utf-8") != path.read_bytes()
                bad += stale
                print(f"{_shown(path)}: {'not in canonical form: run make chapters' if stale else 'canonical'}")
            else:
                changed = write_if_changed(path, execute(path))
                print(f"{_shown(path)}: {'written' if changed else 'unchanged'}", flush=True)
        except (NotebookFailed, nbformat.ValidationError, ValueError) as error:
            bad += 1
            print(error, file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
