"""What stands around the text of each page: its version, where to report a mistake, and links to run it elsewhere.

A Sphinx extension. The links need the address of a repository, `repository.url` in `_config.yml`, and are left out
without one. Nothing of it makes a page ask for anything: they are links that a reader may follow.
"""

from __future__ import annotations

import html
import importlib.metadata

CORRECTIONS = "chapters/appendix/corrections"


def offer_links(app, config) -> None:
    """With a repository's address: links to it, to its issues, to Binder (in JupyterLab) and to Colab."""
    options = config.html_theme_options
    address = options.get("repository_url")
    if not address:
        return
    # Colab reads GitHub alone; both sites are only named here, in links
    services = {"notebook_interface": "jupyterlab", "binderhub_url": "https://mybinder.org"}
    if "github" in address:
        services["colab_url"] = "https://colab.research.google.com"
    given = {name: value for name, value in options.get("launch_buttons", {}).items() if value}
    options["launch_buttons"] = {**given, **services}
    options["use_repository_button"] = True
    options["use_issues_button"] = "github" in address or "gitlab" in address


def sign_page(app, pagename, templatename, context, doctree) -> None:
    """Put the version and the way to report a mistake under the page, after the licences of `_config.yml`."""
    said = [app.config.html_theme_options.get("extra_footer", "").strip()]
    said.append(f"plainformer {html.escape(importlib.metadata.version('plainformer'))}.")
    if CORRECTIONS in app.env.all_docs:
        address = app.builder.get_relative_uri(pagename, CORRECTIONS)
        said.append(f'Found a mistake? <a href="{address}#how-to-report-one">How to report it</a>')
    context["theme_extra_footer"] = "<br>".join(filter(None, [said[0], " ".join(said[1:])]))


def setup(app) -> dict:
    """Sphinx calls this, through `classroom.site`."""
    app.connect("config-inited", offer_links)
    app.connect("html-page-context", sign_page)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
