"""Interactive figures: small custom elements, fed by Python objects, at home in the book and in JupyterLab.

A figure is an `Element`: its data as JSON, a table or text for whoever has no scripts, and *check vectors* that the
library computed. The browser computes them again when the figure appears and logs an error where it differs, and the
tests of the pages fail on any logged error. So a formula that is written twice, here in Python and there in
JavaScript, cannot drift apart.

The scripts stand beside their Python modules; `bundle` joins them to the one classic script of the site, since a
browser refuses modules and fetches on file://. In JupyterLab, `in_lab` shows the same script from a cell.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from classroom.show import Html

FOLDER = Path(__file__).parent
# the first one holds what all others use; the others are independent of each other
PARTS = ["base", *sorted(path.stem for path in FOLDER.glob("*.js") if path.stem != "base")]


class Element(Html):
    """An interactive figure: ``<pf-name>`` with its data, and what is read where no script runs.

    data      plain values for the script, as JSON: numbers, strings, lists, dicts
    label     the figure's name, for screen readers
    fallback  HTML that says the same without a script: a table or a few sentences
    text      the same as plain text
    checks    ``[{"input": …, "expected": …}, …]``: the script's own function must give each expected value
    """

    def __init__(
        self,
        name: str,
        data: Mapping,
        *,
        label: str,
        fallback: str,
        text: str,
        checks: Sequence[Mapping] = (),
    ):
        if not (FOLDER / f"{name}.js").is_file():
            raise ValueError(f"no script {name}.js for the element <pf-{name}>; there are: {', '.join(PARTS[1:])}.")
        # no nan: JSON has none; "</" would end the script element early
        payload = json.dumps(
            {**data, "checks": list(checks)}, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        payload = payload.replace("</", "<\\/")
        super().__init__(
            f'<pf-{name} class="pf-element" role="group" aria-label="{html.escape(label)}">'
            f'<script type="application/json">{payload}</script>{fallback}</pf-{name}>',
            text,
        )
        self.name, self.data, self.checks = name, dict(data), list(checks)


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]], kind: str = "") -> str:
    """A table as HTML, such as what a figure says to a reader without scripts. The first cell of a row heads it.

    `kind` is its class.
    """
    head = "".join(f'<th scope="col">{html.escape(str(name))}</th>' for name in header)
    body = "".join(
        f'<tr><th scope="row">{html.escape(str(first))}</th>'
        + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    opening = f'<table class="{html.escape(kind)}">' if kind else "<table>"
    title = f"<caption>{html.escape(caption)}</caption>"
    return f"{opening}{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def bundle() -> str:
    """Every element in one classic script: it runs from file:// and defines each element once.

    Half as long as its parts, without their comments, where the minifier is there: it has no wheel for some machines.
    """
    parts = "\n".join((FOLDER / f"{part}.js").read_text(encoding="utf-8") for part in PARTS)
    whole = f'(function () {{\n"use strict";\nif (customElements.get("pf-quiz")) return;\n{parts}\n}})();\n'
    try:
        import minify
    except ImportError:
        return whole
    return minify.string("application/javascript", whole)


def style() -> str:
    """The style sheet of all elements."""
    return (FOLDER / "elements.css").read_text(encoding="utf-8")


def in_lab() -> Html | None:
    """Makes the figures of a notebook live in JupyterLab; stored notebooks and the book do without it."""
    if os.environ.get("PLAINFORMER_STORING"):
        return None
    return Html(f"<style>{style()}</style><script>{bundle()}</script>", "The figures of this page are interactive.")
