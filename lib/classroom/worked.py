"""The sources of the instructors' edition: the book, and a page for each solution of `solutions/`.

`python -m classroom.site --solutions` builds it. Everything is written into a folder of its own: the book's
sources stay as they are, so the readers' site cannot get a solution from here.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import nbformat
import yaml
from nbformat import NotebookNode

PAGES = "worked"  # the folder of these pages, in the sources and in the site
WARNING = "Instructors' edition: it holds solutions and hidden tests. Do not publish it."
NOTE = """:::{{admonition}} For instructors only
:class: warning
This is `solutions/{stem}` with its answers, its hidden tests and any marking scheme.
Students get `exercises/{stem}`, which has none of them.
:::"""

_HIDDEN = re.compile(r"^[ \t]*### BEGIN HIDDEN TESTS\n(.*?)^[ \t]*### END HIDDEN TESTS[ \t]*(?:\n|\Z)", re.M | re.S)
_SCHEME = re.compile(r"^=== BEGIN MARK SCHEME ===\n(.*?)^=== END MARK SCHEME ===[ \t]*(?:\n|\Z)", re.M | re.S)
_FOLDED = "::::{admonition} Marking scheme, which students never get\n:class: dropdown\n\\1::::\n"
_ANSWER = {"### BEGIN SOLUTION": "# ---- the answer ----", "### END SOLUTION": "# ---- end of the answer ----"}


def stage(source: Path, folder: Path) -> Path:
    """Write the sources of the instructors' edition of the book in `source` into `folder`, a new one."""
    folder.mkdir(parents=True)
    shutil.copy(source / "index.md", folder)
    shutil.copytree(source / "chapters", folder / "chapters", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))

    settings = yaml.safe_load((source / "_config.yml").read_text(encoding="utf-8"))
    settings["title"] = "plainformer, instructors' edition"
    settings["sphinx"]["config"]["html_theme_options"]["announcement"] = WARNING
    _write(folder / "_config.yml", settings)

    contents = yaml.safe_load((source / "_toc.yml").read_text(encoding="utf-8"))
    paths = sorted((source / "solutions").glob("*/*.ipynb"))
    pages = [{"file": f"{PAGES}/{path.stem}"} for path in paths]
    contents["parts"].append({"caption": "Worked solutions, for instructors only", "chapters": pages})
    _write(folder / "_toc.yml", contents)

    (folder / PAGES).mkdir()
    for path in paths:
        nbformat.write(page(nbformat.read(path, as_version=4), path.stem), folder / PAGES / path.name)
    return folder


def page(solution: NotebookNode, stem: str) -> NotebookNode:
    """A solution for reading: nbgrader's marks replaced by words, hidden tests folded, and a note below the title."""
    cells = [part for cell in solution.cells for part in _readable(cell)]
    title, _, rest = cells[0].source.partition("\n")
    cells[0].source = "\n\n".join([title, NOTE.format(stem=stem), rest.strip()])
    for position, cell in enumerate(cells):
        cell.id = f"{stem}-{position:03d}"
    return nbformat.v4.new_notebook(cells=cells, metadata=solution.metadata)


def _readable(cell: NotebookNode) -> list[NotebookNode]:
    """The cell, and the hidden tests of it in a folded cell of their own."""
    grading = cell.metadata.get("nbgrader", {})
    if cell.cell_type != "code":
        shown = nbformat.v4.new_markdown_cell(_SCHEME.sub(_FOLDED, cell.source))
        if cell.get("attachments"):
            shown.attachments = cell.attachments
        return [shown]

    source = _HIDDEN.sub("", cell.source)
    for mark, words in _ANSWER.items():
        source = source.replace(mark, words)
    if grading.get("grade"):
        source = f"# {grading['grade_id']}: {grading['points']:g} point{'s' * (grading['points'] != 1)}\n{source}"
    metadata = {key: cell.metadata[key] for key in ("tags", "mystnb") if key in cell.metadata}
    shown = [nbformat.v4.new_code_cell(source.rstrip("\n"), metadata=metadata, outputs=cell.outputs)]
    hidden = "\n".join(part.strip("\n") for part in _HIDDEN.findall(cell.source))
    if hidden:
        prompts = {"code_prompt_show": "Show hidden tests", "code_prompt_hide": "Hidden tests"}
        shown.append(nbformat.v4.new_code_cell(hidden, metadata={"tags": ["hide-input"], "mystnb": prompts}))
    return shown


def _write(path: Path, content: dict) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), encoding="utf-8")
