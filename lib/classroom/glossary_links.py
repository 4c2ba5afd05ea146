"""In a chapter the first use of each term links to the glossary, and the link's tip says what the term means.

A Sphinx extension. No chapter is marked up for it: the terms are those of the glossary page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import docutils.nodes as nodes

from classroom.ledger import STEMS

GLOSSARY = "chapters/appendix/glossary"
# where a word is no use of a term: code, formulas, headings, links, labels, and what a cell shows
ELSEWHERE = (
    nodes.FixedTextElement,
    nodes.literal,
    nodes.math,
    nodes.math_block,
    nodes.raw,
    nodes.reference,
    nodes.rubric,
    nodes.target,
    nodes.title,
    nodes.caption,
    nodes.Invisible,
)
# where the words of a term are everyday ones
EVERYDAY = (
    "To decode, join",
    "the encoder and a decoder",
    "hardly any loss",
    "in your head",
    "usual value",
    "no value of its own",
)
_EVERYDAY = re.compile("|".join(map(re.escape, EVERYDAY)))


@dataclass(frozen=True)
class Term:
    """An entry of the glossary: its anchor, and its definition's first sentence, unless that holds a formula."""

    anchor: str
    tip: str
    synonyms: tuple[str, ...]  # its own name among them


def terms(doctree: nodes.document) -> dict[str, Term]:
    """The terms of the glossary page, by their names."""
    found = {}
    for item in doctree.findall(nodes.definition_list_item):
        first = next(iter(item.findall(nodes.paragraph)), None)
        plain = first is not None and not list(first.findall(nodes.math))
        tip = re.split(r"(?<=[.!?]) ", first.astext(), maxsplit=1)[0] if plain else ""
        named = [term for term in item.findall(nodes.term) if term["ids"]]
        synonyms = tuple(term.astext() for term in named)
        for term in named:
            found[term.astext()] = Term(term["ids"][0], tip.replace("\n", " "), synonyms)
    return found


def pattern(names: list[str]) -> re.Pattern:
    """Any of the terms, the longest first, as a whole word: at a sentence's start too, and with a plural's s."""

    def alternative(name: str) -> str:
        first = f"[{name[0].upper()}{name[0]}]" if name[0].islower() else re.escape(name[0])
        return first + re.escape(name[1:]).replace(r"\ ", r"\s")

    longest = sorted(names, key=len, reverse=True)
    return re.compile(rf"(?<![\w-])({'|'.join(map(alternative, longest))})s?(?![\w-])")


def _texts(node: nodes.Node) -> Iterator[nodes.Text]:
    """The running text below a node, in its order."""
    for child in list(node.children):
        if isinstance(child, nodes.Text):
            yield child
        elif not isinstance(child, ELSEWHERE) and "cell_output" not in child.get("classes", ()):
            yield from _texts(child)


def link_terms(app, doctree, docname) -> None:
    """Make the first use of each term a link."""
    folder, _, stem = docname.rpartition("/")
    if folder != "chapters" or stem not in STEMS or GLOSSARY not in app.env.found_docs:
        return
    if not hasattr(app, "pf_terms"):
        app.pf_terms = terms(app.env.get_doctree(GLOSSARY))
        app.pf_pattern = pattern([*app.pf_terms])
    address, waiting = app.builder.get_relative_uri(docname, GLOSSARY), dict(app.pf_terms)
    for text in [*_texts(doctree)]:
        parts, end = [], 0
        everyday = [match.span() for match in _EVERYDAY.finditer(text)]
        for match in app.pf_pattern.finditer(text):
            name = re.sub(r"\s", " ", match[1])
            name = name if name in app.pf_terms else name[0].lower() + name[1:]
            if name not in waiting or any(start <= match.start() < stop for start, stop in everyday):
                continue
            term = waiting[name]
            for synonym in term.synonyms:
                del waiting[synonym]
            link = nodes.reference("", match[0], refuri=f"{address}#{term.anchor}", internal=True, classes=["pf-term"])
            if term.tip:
                link["reftitle"] = term.tip
            parts += [nodes.Text(text[end : match.start()]), link]
            end = match.end()
        if parts:
            text.parent.replace(text, [part for part in [*parts, nodes.Text(text[end:])] if part.astext()])


def setup(app) -> dict:
    """Sphinx calls this."""
    app.connect("doctree-resolved", link_terms)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
