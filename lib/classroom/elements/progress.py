"""A reader's progress: the end of each chapter, where it is marked as read, and the front page, where all is counted.

A Sphinx extension. What is kept stays in the reader's browser; progress.js says in what form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import docutils.nodes as nodes
from docutils.parsers.rst import Directive

from classroom.elements.frame import Element
from classroom.ledger import STEMS


def quiz_name(question: str) -> str:
    """The name under which a quiz's result is kept: a hash of its question (FNV-1a over code points), as hex.

    A question that is put in other words is another question: its old result counts no more.
    """
    value = 2166136261
    for letter in question:
        value = (value ^ ord(letter)) * 16777619 % 2**32
    return f"{value:x}"


def quizzes(chapter: Path) -> list[str]:
    """The names of a chapter's quizzes in their order, from the outputs stored in its notebook."""
    found = []
    for cell in json.loads(chapter.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            markup = "".join(output.get("data", {}).get("text/html", ""))
            for data in re.findall(r"<pf-quiz[^>]*><script[^>]*>(.*?)</script>", markup, flags=re.DOTALL):
                found.append(quiz_name(json.loads(data)["question"]))
    return found


def progress(chapters: Mapping[str, Sequence[str]]) -> Element:
    """Stem → names of its quizzes. With one chapter the box to tick at its end, with more the front page's count."""
    return Element("progress", {"chapters": dict(chapters)}, label="Your progress", fallback="", text="[your progress]")


class ProgressDirective(Directive):
    """The front page's count of chapters and questions, with buttons to save, to load and to erase."""

    def run(self) -> list[nodes.Node]:
        env = self.state.document.settings.env
        there = {stem: Path(env.srcdir, "chapters", f"{stem}.ipynb") for stem in STEMS}
        there = {stem: path for stem, path in there.items() if path.is_file()}
        for path in there.values():
            env.note_dependency(str(path))
        return [_raw(progress({stem: quizzes(path) for stem, path in there.items()}).markup)]


def end_chapter(app, doctree) -> None:
    """Put the box at the end of each chapter."""
    folder, _, stem = app.env.docname.rpartition("/")
    if folder == "chapters" and stem in STEMS:
        element = progress({stem: quizzes(Path(app.env.doc2path(app.env.docname)))})
        next(iter(doctree.findall(nodes.section))).append(_raw(element.markup))


def _raw(markup: str) -> nodes.raw:
    return nodes.raw("", markup, format="html")


def setup(app) -> dict:
    """Registers the directive `progress` and the end of each chapter."""
    app.add_directive("progress", ProgressDirective)
    app.connect("doctree-read", end_chapter)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
