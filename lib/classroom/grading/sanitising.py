"""What a student wrote, made harmless for a page: it can be read, and does nothing.

A page of feedback or of the formgrader shows Markdown, code and outputs of people who are not trusted. The formgrader's
comes from the server that may run any code as the instructor. So the HTML made of Markdown is cleaned after it is made,
by a list of what may stand there (bleach, which nbconvert brings); of outputs only text, pictures and cleaned tables
stay. `Harmless` is named in nbgrader_config.py for every exporter of nbgrader.
"""

from __future__ import annotations

import base64
import binascii
import re
from html import escape

import bleach
import jinja2
from nbconvert.exporters import HTMLExporter
from nbconvert.filters import strip_ansi
from nbconvert.preprocessors import Preprocessor
from nbformat import NotebookNode

LONGEST = {"markdown": 20_000, "code": 100_000, "output": 20_000, "html": 50_000, "picture": 4 * 2**20}  # characters
MOST_OUTPUTS = 100  # of a cell
MOST_MARKDOWN = 100_000  # characters in a student's own cells; what stands after them is shown as plain text

# fmt: off
_TAGS = bleach.ALLOWED_TAGS | {
    "abbr", "br", "caption", "dd", "del", "details", "div", "dl", "dt", "h1", "h2", "h3", "h4", "h5", "h6",
    "hr", "img", "ins", "kbd", "mark", "p", "pre", "q", "s", "samp", "small", "span", "sub", "summary", "sup",
    "table", "tbody", "td", "tfoot", "th", "thead", "tr", "tt", "u", "var",
}
# fmt: on
_LINK = re.compile(r"(?i)(?:https?://|mailto:)[!-~]+")  # no relative one: other files of a student lie beside it
_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif);base64,[A-Za-z0-9+/=\s]*")
_HIGHLIGHT = re.compile(r"highlight|hll|[a-z]{1,2}\d?")  # Pygments' classes, and none of the page's own
_BEGINNINGS = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}


def _may_stay(tag: str, name: str, value: str) -> bool:
    """Whether an attribute may stay. No id: the formgrader finds the boxes for marks by theirs. No style either."""
    match (tag, name):
        case ("a", "href"):
            return bool(_LINK.fullmatch(value))
        case ("img", "src"):
            return bool(_PICTURE.fullmatch(value))
        case ("img", "alt") | (_, "title"):
            return True
        case ("span" | "div" | "pre" | "code", "class"):
            return bool(_HIGHLIGHT.fullmatch(value))
        case ("td" | "th", "colspan" | "rowspan"):
            return value.isascii() and value.isdecimal() and len(value) < 3
        case _:
            return False


_CLEANER = bleach.Cleaner(tags=_TAGS, attributes=_may_stay, protocols={"http", "https", "mailto", "data"})


def clean(html: str) -> str:
    """HTML in which only what is on the lists stays; other tags are shown as text."""
    return _CLEANER.clean(html)


def cut(text: object, longest: int) -> str:
    """At most so many characters, and a word about the rest."""
    text = text if isinstance(text, str) else str(text)
    if len(text) <= longest:
        return text
    return f"{text[:longest]}\n[… cut here: {len(text)} characters in all]"


class Harmless(Preprocessor):
    """For an HTML exporter: cells that can be shown to anybody.

    The exporter's own filter for Markdown is replaced by one that cleans what it makes.
    """

    def __init__(self, **options):
        super().__init__(**options)
        if isinstance(self.parent, HTMLExporter):
            self.parent.filters = {**self.parent.filters, "markdown2html": cleaned(self.parent)}

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        nb.metadata.pop("widgets", None)
        for name in ("student", "first_name", "last_name", "notebook_path"):  # the formgrader's page writes them as is
            if isinstance(resources.get(name), str):
                resources[name] = escape(resources[name])
        left = MOST_MARKDOWN
        for position, cell in enumerate(nb.cells, 1):
            _make_harmless(cell, f"cell-{position}")
            if cell.cell_type == "markdown" and not cell.metadata:
                left -= len(cell.source)
                cell.source = cell.source if left >= 0 else _as_it_is(cell.source)
        return nb, resources


def cleaned(exporter: HTMLExporter):
    """The exporter's filter from Markdown to HTML, with clean HTML and no failure."""

    @jinja2.pass_context
    def markdown2html(context: jinja2.runtime.Context, source: str) -> str:
        try:
            html = exporter.markdown2html(context, source)
        except Exception:  # such as an attachment that is not there: no reason for having no page
            html = _as_it_is(source)
        return clean(html)

    return markdown2html


def _as_it_is(source: object) -> str:
    return f"<pre>\n{escape(str(source))}\n</pre>"


def _make_harmless(cell: NotebookNode, name: str) -> None:
    """Leave nothing in the fields of a cell that a template would write as it is; `name` becomes its id."""
    given = cell.metadata.get("nbgrader")
    known = isinstance(given, dict) and re.fullmatch(r"[\w-]+", str(given.get("grade_id")))
    cell.metadata = NotebookNode({"nbgrader": given} if known else {})
    cell.id = name
    if cell.cell_type not in ("markdown", "code"):
        cell.cell_type, cell.source = "markdown", _as_it_is(cell.source)
    cell.source = cut(cell.source, LONGEST[cell.cell_type])
    if cell.cell_type == "code":
        count = cell.get("execution_count")
        cell.execution_count = count if type(count) is int else None
        outputs = cell.get("outputs", [])
        cell.outputs = [shown for output in outputs[:MOST_OUTPUTS] if (shown := _harmless_output(output))]
        if len(outputs) > MOST_OUTPUTS:
            text = f"[… cut here: {len(outputs)} outputs in all]"
            cell.outputs.append(NotebookNode(output_type="stream", name="stdout", text=text))


def _harmless_output(output: NotebookNode) -> NotebookNode | None:
    """Text, pictures and clean tables; None for an output of no known kind."""
    match output.output_type:
        case "stream":
            name = "stderr" if output.get("name") == "stderr" else "stdout"
            return NotebookNode(output_type="stream", name=name, text=cut(output.text, LONGEST["output"]))
        case "error":
            lines = cut("\n".join(map(str, output.get("traceback", []))), LONGEST["output"])
            named = {name: cut(output.get(name, ""), 1000) for name in ("ename", "evalue")}
            return NotebookNode(output_type="error", traceback=lines.split("\n"), **named)
        case "display_data" | "execute_result":
            data = _harmless_data(output.get("data", {}))
            sizes = {kind: _size(output.get("metadata", {}).get(kind)) for kind in _BEGINNINGS if kind in data}
            return NotebookNode(output_type="display_data", data=NotebookNode(data), metadata=NotebookNode(sizes))
    return None


def _harmless_data(given: dict) -> dict[str, str]:
    data = {kind: cut(given[kind], LONGEST["output"]) for kind in ("text/plain", "text/latex") if kind in given}
    for kind in ("text/markdown", "text/html"):
        if isinstance(given.get(kind), str) and len(given[kind]) <= LONGEST["html"]:
            data[kind] = clean(given[kind]) if kind == "text/html" else given[kind]
    for kind in _BEGINNINGS:
        if _is_picture(kind, given.get(kind)):
            data[kind] = given[kind]
    if not data:
        data["text/plain"] = f"[not shown here: {strip_ansi(cut(', '.join(map(str, given)), 200))}]"
    return data


def _is_picture(kind: str, text: object) -> bool:
    if not isinstance(text, str) or len(text) > LONGEST["picture"]:
        return False
    try:
        return base64.b64decode("".join(text.split()), validate=True).startswith(_BEGINNINGS[kind])
    except (binascii.Error, ValueError):
        return False


def _size(given: object) -> NotebookNode:
    """Width and height of a picture, if they are numbers."""
    given = given if isinstance(given, dict) else {}
    sizes = {name: given[name] for name in ("width", "height") if type(given.get(name)) is int}
    return NotebookNode({name: value for name, value in sizes.items() if 0 < value < 5000})
