"""The pages that show the ledger: what the sources state, what was computed, and where. A Sphinx extension.

The directive `claims` takes one word: `summary` (how many, text by text), `wrong` (what the texts have wrong and
why), `checked` (every checked claim, chapter by chapter), `unchecked` (the rest, with the reasons) or
`corrections` (each wrong claim with the test that guards the right one). Everything comes from claims.csv.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby
from pathlib import Path

import docutils.nodes as nodes
from docutils.parsers.rst import Directive

from classroom.badges import Badge
from classroom.ledger import STEMS, Row, load
from classroom.reading import title

# the name of a claim in a badge and in a row of a table of badges
_BADGE = re.compile(r"(?<=</span> )<code>(?P<one>\d{3}-\w+-\d+)</code>|<code>(?P<many>\d{3}-\w+-\d+)</code>(?=</th>)")
WRONG = ("wrong", "inconsistent-with-another-claim")
NOT_COMPUTED = {
    "opinion": "a judgement",
    "wrong": "wrong, by publications or the text's own wording",
    "inconsistent-with-another-claim": "contradicts another claim",
}


class Claims(Directive):
    """One view of the ledger."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        env = self.state.document.settings.env
        folder = Path(env.srcdir, "chapters")
        env.note_dependency(str(folder / "claims.csv"))
        views = {"summary": _summary, "wrong": _wrong, "checked": _checked, "unchecked": _unchecked}
        views["corrections"] = _corrections
        if self.arguments[0] not in views:
            raise self.error(f"claims takes one of {', '.join(views)}, not {self.arguments[0]!r}.")

        def address(stem: str) -> str:
            return env.app.builder.get_relative_uri(env.docname, f"chapters/{stem}")

        pages = {stem: Page(folder / f"{stem}.ipynb", address(stem)) for stem in STEMS}
        markup = views[self.arguments[0]](load(folder / "claims.csv"), pages)
        return [nodes.raw("", markup, format="html")]


class Page:
    """A chapter, as a page of claims links to it."""

    def __init__(self, path: Path, address: str):
        self.number = int(path.stem[:2])
        self.address = address
        self.title = title(path) if path.is_file() else path.stem[3:]
        self.shown = shown(path) if path.is_file() else set()

    def place(self, name: str) -> str:
        """The address of a claim's badge in the chapter, or of the chapter where it is checked without one."""
        return self.address + (f"#claim-{name}" if name in self.shown else "")


def shown(notebook: Path) -> set[str]:
    """The claims whose badges a page shows: those of cells that the book does not leave out."""
    found = set()
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if not {"remove-cell", "remove-output"} & set(cell["metadata"].get("tags", ())):
            for output in cell.get("outputs", ()):
                badges = "".join(output.get("data", {}).get("text/html", ()))
                found |= {one or many for one, many in _BADGE.findall(badges)}
    return found


def is_wrong(row: Row) -> bool:
    """Whether the source is wrong, or contradicts itself or another source."""
    return row.corrected or row.verdict in WRONG


def verdict(row: Row) -> str:
    """The verdict in words that a reader knows from the badges of the chapters."""
    if row.rule == "unchecked":
        return f"not computed: {NOT_COMPUTED.get(row.verdict, 'true by definition or publication')}"
    if row.verdict in WRONG and not row.corrected:
        return f"{Badge(row, '').verdict}, but contradicts another claim"
    return Badge(row, "").verdict


def _summary(rows: tuple[Row, ...], pages: dict[str, Page]) -> str:
    columns = {
        "right": lambda row: row.rule != "unchecked" and not row.corrected,
        "corrected": lambda row: row.corrected,
        "not computed": lambda row: row.rule == "unchecked",
        "all": lambda row: True,
    }
    sources = sorted({row.source for row in rows})
    lines = []
    for name in [*sources, "together"]:
        wanted = [row for row in rows if name in (row.source, "together")]
        cells = [sum(map(counts, wanted)) for counts in columns.values()]
        head = "together" if name == "together" else f"text {name}"
        numbers = "".join(f'<td class="pf-number">{n}</td>' for n in cells)
        lines.append(f'<tr><th scope="row">{head}</th>{numbers}</tr>')
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("claims of", *columns))
    return (
        '<table class="pf-counts"><caption>How many claims are right, corrected, and not computed</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    )


def _wrong(rows: tuple[Row, ...], pages: dict[str, Page]) -> str:
    wrong = sorted(filter(is_wrong, rows), key=lambda row: row.source)
    return "".join(
        _fold(f"Text {source}: {_count(group, 'claim')}", _by_section(group, pages), source, is_open=not n)
        for n, (source, group) in enumerate(_groups(wrong, lambda row: row.source))
    )


def _checked(rows: tuple[Row, ...], pages: dict[str, Page]) -> str:
    folds = []
    for stem, page in pages.items():
        group = [row for row in rows if row.chapter == stem]
        corrected = sum(row.corrected for row in group)
        head = f"Chapter {page.number}, {page.title}: {_count(group, 'claim')}"
        head += f", {corrected} corrected" if corrected else ""
        lead = f'<p>All are computed in <a href="{page.address}">chapter {page.number}, {escape(page.title)}</a>.</p>'
        folds.append(_fold(head, lead + _by_section(group, pages), stem))
    return "".join(folds)


def _unchecked(rows: tuple[Row, ...], pages: dict[str, Page]) -> str:
    group = [row for row in rows if row.rule == "unchecked"]
    return _fold(f"{_count(group, 'claim')} that no code can check", _by_section(group, pages), "unchecked")


def _corrections(rows: tuple[Row, ...], pages: dict[str, Page]) -> str:
    lines = []
    for row in filter(lambda row: row.corrected, rows):
        guard = f'the claim in <a href="{pages[row.chapter].place(row.id)}">chapter {pages[row.chapter].number}</a>'
        right = escape(row.computed or "–")
        lines.append(_line(row, pages, (("right is", right), ("guarded by", guard)), note=False))
    table = _table(("claim", "right is", "guarded by"), lines, "Corrected claims of the texts, and what guards each")
    return _fold(_count(lines, "corrected claim"), table, "corrected")


def _groups(rows: Iterable[Row], key) -> Iterator[tuple[str, list[Row]]]:
    for name, group in groupby(rows, key):
        yield name, list(group)


def _count(group: list, noun: str) -> str:
    return f"{len(group)} {noun}{'s' * (len(group) != 1)}"


def _fold(head: str, body: str, name: str, is_open: bool = False) -> str:
    opened = " open" if is_open else ""
    return (
        f'<details class="pf-ledger mathjax_ignore" id="claims-{name}"{opened}>'
        f"<summary>{escape(head)}</summary>{body}</details>"
    )


def _by_section(rows: list[Row], pages: dict[str, Page]) -> str:
    """A table whose rows stand under the sections of the texts."""
    parts = []
    for (source, section), group in _groups(rows, lambda row: (row.source, row.section)):
        parts.append(
            '<tr role="row" class="pf-section"><th role="rowheader" scope="colgroup" colspan="4">'
            f"Text {source}, {escape(section)}</th></tr>"
        )
        for row in group:
            cells = (
                ("the text says", escape(row.stated or "so")),
                ("computed", escape(row.computed or "–")),
                ("verdict", escape(verdict(row))),
            )
            parts.append(_line(row, pages, cells))
    return _table(("claim", "the text says", "computed", "verdict"), parts, "What the texts state, what was computed")


def _table(heads: tuple[str, ...], lines: list[str], caption: str) -> str:
    """Roles are written out, because the style sheet turns rows into blocks on a phone, which would lose them."""
    head = "".join(f'<th role="columnheader" scope="col">{name}</th>' for name in heads)
    return (
        f'<table role="table"><caption>{caption}</caption><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{"".join(lines)}</tbody></table>'
    )


def _line(row: Row, pages: dict[str, Page], cells: Iterable[tuple[str, str]], note: bool = True) -> str:
    place = f'<a href="{pages[row.chapter].place(row.id)}">{row.id}</a>' if row.chapter else row.id
    more = f'<span class="pf-ledger-note">{escape(_as_sentence(row.note))}</span>' if row.note and note else ""
    marked = ' class="pf-claim-corrected"' if row.corrected else ""
    shown = "".join(f'<td role="cell" data-label="{label}"><span>{text}</span></td>' for label, text in cells)
    claim = escape(row.claim[:1].upper() + row.claim[1:])
    return (
        f'<tr role="row"{marked}><th role="rowheader" scope="row">{claim} <code>{place}</code>{more}</th>{shown}</tr>'
    )


def _as_sentence(note: str) -> str:
    note = re.sub(r"\b(MISLEADING|EARLIER)\b", lambda word: word[0].capitalize(), note).strip()
    return note if note.endswith((".", "?", "!")) else note + "."


def name_badges(app, pagename, templatename, context, doctree) -> None:
    """Give each badge of a chapter the anchor that the pages of claims link to."""
    if pagename.rpartition("/")[2] not in STEMS:
        return
    seen = set()

    def named(found: re.Match) -> str:
        name = found["one"] or found["many"]
        if name in seen:
            return found[0]
        seen.add(name)
        return f'<code id="claim-{name}">{name}</code>'

    context["body"] = _BADGE.sub(named, context.get("body", ""))


def setup(app) -> dict:
    """Registers the directive `claims` and the anchors of the badges."""
    app.add_directive("claims", Claims)
    app.connect("html-page-context", name_badges)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
