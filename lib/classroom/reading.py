"""How long a page takes to read, from its own words; the front page's table of chapters, and the line atop each.

A Sphinx extension and plain functions. `python -m classroom.reading` prints the minutes of every chapter.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import ClassVar

import docutils.nodes as nodes
from docutils.parsers.rst import Directive, directives

from classroom.ledger import STEMS, ledger_path

WORDS_PER_MINUTE = 200

# Which chapters a chapter builds on, by their numbers; what these build on goes without saying.
NEEDS: dict[int, tuple[int, ...]] = {
    1: (),
    2: (1,),
    3: (2,),
    4: (2,),
    5: (2, 4),
    6: (2,),
    7: (3, 6),
    8: (3, 4, 5, 6, 7),
    9: (8,),
    10: (9,),
    11: (3, 4, 10),
    12: (8, 10),
    13: (11, 12),
    14: (8, 11),
    15: (5, 11, 14),
}


def markdown(path: Path) -> list[str]:
    """The Markdown cells of a notebook; a Markdown file is one cell."""
    text = Path(path).read_text(encoding="utf-8")
    if Path(path).suffix != ".ipynb":
        return [text]
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]


def words(text: str) -> int:
    """Pieces between spaces that hold a letter or a digit: a formula counts as its terms, a mark as nothing."""
    return sum(any(map(str.isalnum, piece)) for piece in text.split())


def minutes(path: Path) -> int:
    """Minutes to read the Markdown cells of a page at 200 words a minute, rounded up."""
    return math.ceil(sum(map(words, markdown(path))) / WORDS_PER_MINUTE)


def title(path: Path) -> str:
    """The text of the page's first heading."""
    found = re.search(r"^# +(.+)$", "\n".join(markdown(path)), flags=re.MULTILINE)
    if found is None:
        raise ValueError(f"{path} has no heading of the first level.")
    return found[1].strip()


class ChapterTable(Directive):
    """The front page's table: a line `stem: question` for each chapter; its minutes are counted here.

    With the option `total`, a sentence about all chapters follows.
    """

    has_content = True
    option_spec: ClassVar = {"total": directives.flag}

    def run(self) -> list[nodes.Node]:
        env = self.state.document.settings.env
        folder = Path(env.srcdir, "chapters")
        rows = []
        for line in filter(str.strip, self.content):
            stem, colon, question = (part.strip() for part in line.partition(":"))
            page = folder / f"{stem}.ipynb"
            if not colon or not question or not page.is_file():
                raise self.error(f"{line!r}: expected `stem: question`, with a chapter of this stem.")
            env.note_dependency(str(page))
            rows.append([_link(env.docname, stem), nodes.Text(question), nodes.Text(f"{minutes(page)} min")])
        shown = [_table(("Chapter", "The question it answers", "To read"), (30, 56, 14), rows)]
        if "total" in self.options:
            there = [folder / f"{stem}.ipynb" for stem in STEMS if (folder / f"{stem}.ipynb").is_file()]
            n_minutes = sum(map(minutes, there))
            text = f"Together: about {n_minutes / 60:.0f} hours of reading, exercises and running the code apart."
            shown.append(nodes.paragraph("", text))
        return shown


def _reference(docname: str, stem: str, words: str = "") -> nodes.Node:
    """A link to a chapter, which the builder checks: with these words, or with the chapter's title."""
    from sphinx.addnodes import pending_xref  # the builder's command and the tests import this module without Sphinx

    link = pending_xref("", refdomain="std", reftype="doc", reftarget=f"/chapters/{stem}", refdoc=docname)
    link["refexplicit"], link["refwarn"] = bool(words), True
    link += nodes.inline("", words or stem)
    return link


def _link(docname: str, stem: str) -> nodes.Node:
    """Number and title of a chapter, as a link."""
    number = f"{int(stem[:2])}\N{NO-BREAK SPACE}\N{NO-BREAK SPACE}"
    return nodes.inline("", number, _reference(docname, stem))


def _table(header: tuple[str, ...], widths: tuple[int, ...], rows: list[list[nodes.Node]]) -> nodes.table:
    group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in widths), cols=len(widths))

    def row(cells: list[nodes.Node]) -> nodes.row:
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells))

    group += nodes.thead("", row([nodes.Text(name) for name in header]))
    group += nodes.tbody("", *map(row, rows))
    return nodes.table("", group, classes=["pf-chapters"])


def needs(stem: str) -> list[str]:
    """The stems of the chapters that this one builds on."""
    return [STEMS[number - 1] for number in NEEDS[int(stem[:2])]]


def _needs(docname: str, stem: str) -> list[nodes.Node]:
    """The words that name them: `Needs: chapters 2 and 4.`"""
    needed = needs(stem)
    if not needed:
        return [nodes.Text("Needs no other chapter.")]
    if len(needed) == 1:
        return [nodes.Text("Needs: "), _reference(docname, needed[0], f"chapter {int(needed[0][:2])}"), nodes.Text(".")]
    shown: list[nodes.Node] = [nodes.Text("Needs: chapters ")]
    for k, other in enumerate(needed):
        mark = "." if k == len(needed) - 1 else " and " if k == len(needed) - 2 else ", "
        shown += [_reference(docname, other, str(int(other[:2]))), nodes.Text(mark)]
    return shown


def say_how_long(app, doctree) -> None:
    """Put the reading time, and the chapters that are needed, under the title of each chapter."""
    folder, _, stem = app.env.docname.rpartition("/")
    if folder == "chapters" and stem in STEMS:
        n_minutes = minutes(Path(app.env.doc2path(app.env.docname)))
        heading = next(iter(doctree.findall(nodes.title)))
        line = nodes.paragraph("", f"About {n_minutes} minutes to read. ", classes=["pf-reading"])
        line += _needs(app.env.docname, stem)
        heading.parent.insert(1, line)


def setup(app) -> dict:
    """Registers the directive `chapters` and the line atop each chapter."""
    app.add_directive("chapters", ChapterTable)
    app.connect("doctree-read", say_how_long)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    for stem in STEMS:
        if (chapter := ledger_path().parent / f"{stem}.ipynb").is_file():
            print(f"{stem:<16}{minutes(chapter):>4} min  {sum(map(words, markdown(chapter))):>6,} words")
