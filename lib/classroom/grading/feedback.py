"""A student's feedback page: without hidden tests, complete without a network, and with no script of a student's.

nbgrader_config.py names `StripHiddenTests` among the preprocessors of `nbgrader generate_feedback`.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import json
import re
from pathlib import Path

import jinja2
import nbgrader
from nbconvert.exporters import TemplateExporter
from nbconvert.preprocessors import Preprocessor
from nbgrader.preprocessors import ClearHiddenTests, ClearMarkScheme
from nbgrader.utils import is_grade, is_task

MATHJAX = "mathjax/tex-svg-full.js"  # with every TeX extension, since a page has no folder of them beside it
SCRIPT = Path(MATHJAX).name  # 2.3 MB, once in each folder of pages

_FORMGRADER = Path(nbgrader.__file__).parent / "server_extensions" / "formgrader"
_BOOTSTRAP = "static/node_modules/bootstrap/dist/css/bootstrap.min.css"

# MathJax 3, set up as in the book. nbconvert's own macro loads MathJax 2 from a CDN. Without `html`, `require` and
# `bbox` a formula makes no link, asks for no file, and lays nothing over the page.
_MATHJAX_MACRO = """
{%- macro mathjax(nonce="") -%}
<script nonce="{{ nonce }}">
window.MathJax = {
  tex: {
    inlineMath: [["$", "$"], ["\\\\(", "\\\\)"]],
    displayMath: [["$$", "$$"], ["\\\\[", "\\\\]"]],
    processEscapes: true,
    tags: "ams",
    packages: {"[-]": ["html", "require", "autoload", "bbox"]},
    macros: {softmax: "\\\\operatorname{softmax}", T: "\\\\mathsf{T}", mmlToken: "\\\\text{mmlToken}"},
  },
  options: {enableMenu: false, enableAssistiveMml: true},
};
</script>
SCRIPT
<style>
.text_cell_render, .output_subarea, .input_area { contain: paint; }
.text_cell_render { overflow-x: auto; }
</style>
{%- endmacro %}
"""

# Only scripts that carry the page's own word run, and nothing is asked for but the file of MathJax.
_POLICY = """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
script-src 'nonce-{{ resources.nonce }}'; style-src 'unsafe-inline'; img-src data:; font-src data:; \
form-action 'none'; base-uri 'none'">
<meta name="referrer" content="no-referrer">
"""


def mathjax(*, inline: str = "") -> str:
    """The macro that sets the formulas of a page: by the file beside it, or by this script within it."""
    own = f'<script nonce="{{{{ nonce }}}}">{{% raw %}}{inline}{{% endraw %}}</script>'
    beside = f'<script nonce="{{{{ nonce }}}}" defer src="{SCRIPT}"></script>'
    return _MATHJAX_MACRO.replace("SCRIPT", own if inline else beside)


def script() -> bytes:
    """MathJax."""
    return (importlib.resources.files("sphinx-mathjax-offline") / "static" / MATHJAX).read_bytes()


class LocalPage(Preprocessor):
    """For a preprocessor: gives its feedback page a MathJax of its own, and links that say where they lead."""

    def __init__(self, **options):
        super().__init__(**options)
        if isinstance(self.parent, TemplateExporter):
            templates = {
                "index.html.j2": named_links((_FORMGRADER / "templates/feedback/index.html.j2").read_text("utf-8")),
                "mathjax.html.j2": mathjax(),
                "bootstrap.min.css": _without_fonts((_FORMGRADER / _BOOTSTRAP).read_text("utf-8")),
            }
            self.parent.extra_loaders = [jinja2.DictLoader(templates), *self.parent.extra_loaders]

    def preprocess(self, nb, resources):
        """Have nbconvert write the script into the folder of the page, and name the page's own scripts.

        Their name is drawn from all that the page shows: nobody can write it into it, and the page stays the same.
        """
        nb, resources = super().preprocess(nb, resources)
        resources["nonce"] = hashlib.sha256(json.dumps(nb, sort_keys=True).encode()).hexdigest()[:32]
        resources.setdefault("outputs", {})[SCRIPT] = script()
        return nb, resources


def named_links(template: str) -> str:
    """nbgrader's feedback template with the id of a cell in the text of each link to it, and the page's policy."""
    link = r'(<a href="#(?:comment-)?(\{\{ cell\.metadata\.nbgrader\.grade_id \}\})">)([^<{]+)</a>'
    template = re.sub(link, lambda m: f"{m[1]}{m[2]}{'' if m[3] == 'Test cell' else f': {m[3].lower()}'}</a>", template)
    template = template.replace("{{ mathjax() }}", "{{ mathjax(resources.nonce) }}")
    return template.replace("<html>", '<html lang="en">').replace("<head>", f"<head>\n{_POLICY}", 1)


def _without_fonts(css: str) -> str:
    """Bootstrap's fonts lie beside nbgrader's style sheet, not beside a page."""
    return re.sub(r"@font-face\s*\{[^}]*\}", "", css)


class StripHiddenTests(LocalPage, ClearHiddenTests):
    """Takes hidden tests, tracebacks that quote them and marking schemes out of a feedback page.

    It makes the page a `LocalPage` too, so that one name in nbgrader_config.py is enough.
    """

    def preprocess_cell(self, cell, resources, cell_index):
        """Only test cells and tasks: a student's own cell may say whatever it likes."""
        if is_task(cell):
            return ClearMarkScheme(parent=self.parent).preprocess_cell(cell, resources, cell_index)
        if not is_grade(cell):
            return cell, resources
        whole = cell.source
        cell, resources = super().preprocess_cell(cell, resources, cell_index)
        if cell.source != whole:
            for output in cell.outputs:
                # a failed check renders as its own message; any other traceback quotes lines of the cell
                if output.output_type == "error" and output.ename != "CheckFailed":
                    output.traceback = [f"{output.ename}: {output.evalue}"]
        return cell, resources
