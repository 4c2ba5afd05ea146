"""A Sphinx extension that `classroom.site` brings: the elements' one script and one style sheet, in every page."""

from __future__ import annotations

from pathlib import Path

from classroom.elements.frame import bundle, style


def add_files(app):
    """Join the parts in a folder beside the build, which Sphinx copies into _static with the others."""
    if app.builder.format != "html":
        return
    folder = Path(app.doctreedir, "elements")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "elements.js").write_text(bundle(), encoding="utf-8")
    (folder / "elements.css").write_text(style(), encoding="utf-8")
    app.config.html_static_path.append(str(folder))


def setup(app):
    """Sphinx calls this."""
    app.connect("builder-inited", add_files)
    app.add_js_file("elements.js", defer="defer")
    app.add_css_file("elements.css")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
