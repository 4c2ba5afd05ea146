"""What the search page finds first: terms of the glossary, symbols by their names, objects of the library.

A Sphinx extension. Sphinx's own search lists the objects of every domain by name, above the pages that hold a word.
The library's objects are there already; this module adds a domain whose objects are the glossary's terms and the
rows of the page of symbols: `d_k`, and its name in code, `d_head`, lead to the same row.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import ClassVar

import docutils.nodes as nodes
from sphinx import addnodes
from sphinx.domains import Domain, ObjType

SYMBOLS = "chapters/appendix/symbols"


def spoken(tex: str) -> list[str]:
    r"""How a reader would type a symbol: `n_\text{vocab}` → n_vocab, `x^{(l)}` → x, `\eta` → eta and η."""
    if tex.startswith(r"\mathcal"):
        return []  # the loss: nobody types its letter, which is that of the blocks
    name = re.sub(r"\\text\b|[{}]|\^.*|\(.*", "", tex).replace("\\", "").strip()
    word, underscore, rest = name.partition("_")
    case = "CAPITAL" if word[:1].isupper() else "SMALL"
    try:  # Unicode spells it LAMDA
        letter = unicodedata.lookup(f"GREEK {case} LETTER {word.upper().replace('LAMBDA', 'LAMDA')}")
    except KeyError:
        return [name] if name else []
    return [name, letter + underscore + rest]


class Found(Domain):
    """Terms and symbols as objects of the search."""

    name = "found"
    label = "Found by search"
    object_types: ClassVar = {
        "term": ObjType("a word of this course"),
        "symbol": ObjType("a symbol"),
        "unit": ObjType("a unit"),
    }
    initial_data: ClassVar = {"rows": {}}  # docname → [(name, kind, anchor), …]
    data_version = 1

    def get_type_name(self, type: ObjType, primary: bool = False) -> str:
        return type.lname  # without the label before it

    def clear_doc(self, docname: str) -> None:
        self.data["rows"].pop(docname, None)

    def merge_domaindata(self, docnames: list[str], otherdata: dict) -> None:
        self.data["rows"].update({doc: rows for doc, rows in otherdata["rows"].items() if doc in docnames})

    def get_objects(self) -> Iterator[tuple[str, str, str, str, str, int]]:
        important = 0
        for docname, rows in self.data["rows"].items():
            for name, kind, anchor in rows:
                yield name, name, kind, docname, anchor, important
        for name, shown, kind, docname, anchor, _ in self.env.get_domain("std").get_objects():
            if kind == "term":  # Sphinx keeps these out of its search
                yield name, shown, kind, docname, anchor, important


def _names(row: nodes.row, kind: str) -> Iterator[str]:
    first, second = row[0], row[1]
    if kind == "unit":
        yield from (name for name in first.astext().split(", ") if " " not in name)
        return
    for formula in first.findall(nodes.math):
        yield from spoken(formula.astext())
    for code in second.findall(nodes.literal):
        yield re.sub(r"\(.*", "", code.astext())


def name_rows(app, doctree) -> None:
    """Give each row of the page of symbols an anchor, and note the names that lead to it."""
    if app.env.docname != SYMBOLS:
        return
    found, anchors = app.env.get_domain("found").data["rows"].setdefault(SYMBOLS, []), set()
    for table in doctree.findall(nodes.table):
        kind = next(iter(table.findall(nodes.entry))).astext()
        if kind not in Found.object_types:
            continue
        for row in next(iter(table.findall(nodes.tbody))).findall(nodes.row):
            names = dict.fromkeys(_names(row, kind))
            if not names:
                continue
            anchor = f"{kind}-{next(iter(names))}"
            if anchor in anchors:
                raise ValueError(f"two rows of {SYMBOLS} are found as {anchor.partition('-')[2]!r}.")
            anchors.add(anchor)
            row["ids"].append(anchor)
            found += [(name, kind, anchor) for name in names]


def forget_the_index(app, doctree, docname) -> None:
    """No page shows Sphinx's index; in the search its entries would repeat each object under its page's title."""
    for index in doctree.findall(addnodes.index):
        index["entries"] = []


def setup(app) -> dict:
    """Sphinx calls this."""
    app.add_domain(Found)
    app.connect("doctree-read", name_rows)
    app.connect("doctree-resolved", forget_the_index)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
