"""A student's feedback page: without hidden tests, and complete without a network.

nbgrader_config.py names `StripHiddenTests` among the preprocessors of `nbgrader generate_feedback`.
"""

from __future__ import annotations

import importlib.resources
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

# MathJax 3 from the file beside the page, set up as in the book. nbconvert's own macro loads MathJax 2 from a CDN.
_MATHJAX_MACRO = """
{%- macro mathjax(url="") -%}
<script>
window.MathJax = {
  tex: {
    inlineMath: [["$", "$"], ["\\\\(", "\\\\)"]],
    displayMath: [["$$", "$$"], ["\\\\[", "\\\\]"]],
    processEscapes: true,
    tags: "ams",
    macros: {softmax: "\\\\operatorname{softmax}", T: "\\\\mathsf{T}"},
  },
  options: {enableMenu: false, enableAssistiveMml: true},
};
</script>
<script defer src="SCRIPT"></script>
{%- endmacro %}
""".replace("SCRIPT", SCRIPT)


class LocalPage(Preprocessor):
    """For a preprocessor: gives its feedback page a MathJax of its own, and links that say where they lead."""

    def __init__(self, **options):
        super().__init__(**options)
        if isinstance(self.parent, TemplateExporter):
            templates = {"index.html.j2": named_links(_nbgraders_template()), "mathjax.html.j2": _MATHJAX_MACRO}
            self.parent.extra_loaders = [jinja2.DictLoader(templates), *self.parent.extra_loaders]

    def preprocess(self, nb, resources):
        """Have nbconvert write the script into the folder of the page."""
        nb, resources = super().preprocess(nb, resources)
        script = importlib.resources.files("sphinx-mathjax-offline") / "static" / MATHJAX
        resources.setdefault("outputs", {})[SCRIPT] = script.read_bytes()
        return nb, resources


def named_links(template: str) -> str:
    """nbgrader's feedback template with the id of a cell in the text of each link to it."""
    link = r'(<a href="#(?:comment-)?(\{\{ cell\.metadata\.nbgrader\.grade_id \}\})">)([^<{]+)</a>'
    template = re.sub(link, lambda m: f"{m[1]}{m[2]}{'' if m[3] == 'Test cell' else f': {m[3].lower()}'}</a>", template)
    return template.replace("<html>", '<html lang="en">')


def _nbgraders_template() -> str:
    folder = Path(nbgrader.__file__).parent / "server_extensions" / "formgrader" / "templates"
    return (folder / "feedback" / "index.html.j2").read_text(encoding="utf-8")


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
