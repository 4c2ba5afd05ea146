"""A name of the library in a code cell links to its reference, where it first stands in that cell.

A Sphinx extension. Names are followed as Python binds them, over all cells of a page: through imports, aliases and
modules (`masks.causal`), and no longer once the page gives a name another meaning.
"""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Iterator

import docutils.nodes as nodes

LIBRARY = "plainformer"
PAGE = "chapters/appendix/library"
LISTING = re.compile(
    r'(?<=<div class="cell_input docutils container">\n)'
    r'(<div class="highlight-\w+ notranslate"><div class="highlight"><pre>)(.*?)(?=</pre>)',
    flags=re.DOTALL,
)
PIECE = re.compile(r"<[^>]*>|[^<]+")


class Uses(ast.NodeVisitor):
    """Where the cells of a page, given to `read` one after the other, name objects of the library."""

    def __init__(self):
        self.bound: dict[str, str] = {}  # name in the page → name in the library, so far
        self.hidden: list[set[str]] = []  # names that the functions around give another meaning
        self.found: list[tuple[int, int, str, str]] = []  # line, byte, what stands there, name in the library

    def read(self, source: str) -> list[tuple[int, str, str]]:
        """The uses in one cell: (offset of the character, what stands there, name in the library)."""
        lines = source.split("\n")
        python = [" " * len(line.encode()) if line.startswith(("%", "!")) else line for line in lines]
        self.found = []
        self.visit(ast.parse("\n".join(python)))
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line) + 1)
        return [
            (starts[line - 1] + len(lines[line - 1].encode()[:byte].decode()), text, name)
            for line, byte, text, name in self.found
        ]

    def visit_Import(self, node):
        for alias in node.names:
            first = alias.name.partition(".")[0]
            if first == LIBRARY:
                self.bound[alias.asname or first] = alias.name if alias.asname else first
                self.found.append((alias.lineno, alias.col_offset, alias.name, alias.name))

    def visit_ImportFrom(self, node):
        if node.module and node.module.partition(".")[0] == LIBRARY:
            self.found.append((node.lineno, node.col_offset + len("from "), node.module, node.module))
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                self.bound[alias.asname or alias.name] = name
                self.found.append((alias.lineno, alias.col_offset, alias.name, name))

    def visit_Name(self, node):
        if any(node.id in names for names in self.hidden):
            return
        if not isinstance(node.ctx, ast.Load):
            self.bound.pop(node.id, None)
        elif node.id in self.bound:
            self.found.append((node.lineno, node.col_offset, node.id, self.bound[node.id]))

    def visit_Attribute(self, node):
        self.visit(node.value)
        if isinstance(node.value, ast.Name) and self.found[-1:] and self.found[-1][2] == node.value.id:
            line, byte, _, name = self.found[-1]
            if (line, byte) == (node.value.lineno, node.value.col_offset):
                byte = node.end_col_offset - len(node.attr.encode())
                self.found.append((node.end_lineno, byte, node.attr, f"{name}.{node.attr}"))

    def visit_Assign(self, node):
        for part in (node.value, *node.targets):  # the right side is read first
            self.visit(part)

    def visit_For(self, node):
        for part in (node.iter, node.target, *node.body, *node.orelse):
            self.visit(part)

    def _function(self, node):
        inner = [part for part in ast.walk(node) if isinstance(part, (ast.Name, ast.arg))]
        args = {part.arg for part in inner if isinstance(part, ast.arg)}
        names = {part.id for part in inner if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)}
        self.hidden.append(args | names)
        self.generic_visit(node)
        self.hidden.pop()
        self.bound.pop(getattr(node, "name", ""), None)

    visit_FunctionDef = visit_Lambda = visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _function


def with_links(listing: str, uses: list[tuple[int, str, str]], addresses: dict[str, str]) -> str:
    """A highlighted listing in which the first use of each name is a link to its address."""
    waiting: dict[int, tuple[str, str]] = {}
    for offset, text, name in sorted(uses):
        if name not in [known for _, known in waiting.values()]:
            waiting[offset] = (text, name)
    pieces, offset = [], 0
    for piece in PIECE.findall(listing):
        text = "" if piece.startswith("<") else html.unescape(piece)
        if waiting.get(offset, ("", ""))[0] == text != "":
            name = there = waiting.pop(offset)[1]
            while there not in addresses:  # a constant, say, that has no entry: the module's
                there = there.rpartition(".")[0]
            piece = f'<a class="pf-code-link" href="{addresses[there]}" title="{name}">{piece}</a>'
        pieces.append(piece)
        offset += len(text)
    return "".join(pieces)


def _cells(doctree: nodes.document) -> Iterator[str]:
    for container in doctree.findall(nodes.container):
        if "cell_input" in container["classes"]:
            yield next(iter(container.findall(nodes.literal_block))).astext()


def reference(app, pagename: str) -> dict[str, str]:
    """Name → address, seen from a page, of all that the library reference describes, and of what a package hands on."""
    found, short = {LIBRARY: app.builder.get_relative_uri(pagename, PAGE)}, {}
    for name, entry in app.env.get_domain("py").objects.items():
        if name.startswith(LIBRARY):
            found[name] = f"{app.builder.get_relative_uri(pagename, entry.docname)}#{entry.node_id}"
            if entry.objtype in ("class", "function", "exception"):
                short[f"{LIBRARY}.{name.rpartition('.')[2]}"] = found[name]
    return {**short, **found}


def link_code(app, pagename, templatename, context, doctree) -> None:
    """Put the links into the listings of a notebook's page."""
    if doctree is None or 'class="cell_input' not in context.get("body", ""):
        return
    addresses, uses, cells = reference(app, pagename), Uses(), _cells(doctree)
    context["body"] = LISTING.sub(
        lambda found: found[1] + with_links(found[2], uses.read(next(cells)), addresses), context["body"]
    )


def setup(app) -> dict:
    """Sphinx calls this."""
    app.connect("html-page-context", link_code)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
