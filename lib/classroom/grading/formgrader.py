"""The formgrader's page of a submission: no script but nbgrader's own runs in it, and its formulas need no network.

nbgrader_config.py names `FormgraderPage` among the preprocessors of every HTML exporter; it acts on the formgrader's.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
import secrets
import sys
from pathlib import Path

import jinja2
import nbgrader
from nbconvert.exporters import TemplateExporter
from nbconvert.preprocessors import Preprocessor

from classroom.grading.feedback import mathjax, script

TEMPLATES = Path(nbgrader.__file__).parent / "server_extensions" / "formgrader" / "templates" / "formgrade"

# The formgrader's other pages hold names of folders as they are. Where it is the formgrader that loads this module,
# through nbgrader_config.py, it makes its environment after that.
if _formgrader := sys.modules.get("nbgrader.server_extensions.formgrader.formgrader"):
    _formgrader.Environment = functools.partial(jinja2.Environment, autoescape=True)

# What nbgrader's script asks of MathJax 2, for MathJax 3.
_AS_MATHJAX_2 = """
MathJax.Hub = {Startup: {signal: {Interest(tell) {
  MathJax.startup.promise.then(() => tell("End"));
}}}};
"""


class FormgraderPage(Preprocessor):
    """Gives the formgrader's exporter templates that name each script of theirs, and forbid every other one."""

    def __init__(self, **options):
        super().__init__(**options)
        if isinstance(self.parent, TemplateExporter) and self.parent.template_name == "formgrade":
            self.parent.extra_loaders = [jinja2.DictLoader(templates()), *self.parent.extra_loaders]

    def preprocess(self, nb, resources):
        """Draw the word that the page's own scripts carry."""
        resources["nonce"] = secrets.token_urlsafe(18)
        return nb, resources


def templates() -> dict[str, str]:
    """nbgrader's templates of the page, each script with the nonce, behind a Content-Security-Policy."""
    page = (TEMPLATES / "index.html.j2").read_text(encoding="utf-8")
    macros = (TEMPLATES / "formgrade_macros.html.j2").read_text(encoding="utf-8")
    handlers = set(re.findall(r'\bon\w+="([^"]*)"', macros))
    policy = f"""<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
script-src 'nonce-{{{{ resources.nonce }}}}' 'unsafe-hashes' {" ".join(sorted(map(_hashed, handlers)))}; \
style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; \
form-action 'none'; base-uri 'none'">
<meta name="referrer" content="no-referrer">
"""
    macros = macros.replace("<script", '<script nonce="{{ resources.nonce }}"')
    page = page.replace("<head>", f"<head>\n{policy}", 1).replace("{{ mathjax() }}", "{{ mathjax(resources.nonce) }}")
    inline = f"{script().decode()}\n{_AS_MATHJAX_2}"
    return {"index.html.j2": page, "formgrade_macros.html.j2": macros, "mathjax.html.j2": mathjax(inline=inline)}


def _hashed(source: str) -> str:
    """A handler in an attribute, as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
