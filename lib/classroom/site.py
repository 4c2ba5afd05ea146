"""The offline site: a Sphinx extension, and the command that builds the book.

`_config.yml` lists this module as an extension (`setup` below). `python -m classroom.site` (`make book`)
builds the book through Jupyter Book with every warning an error, and says where to open it. With `--solutions`
it builds the instructors' edition, into another folder.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import importlib.resources
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import docutils.nodes

ROOT = Path(__file__).resolve().parents[2]  # the packages are installed from this tree, in place
MATHJAX = "mathjax/tex-svg.js"  # below _static; `mathjax_path` in _config.yml says the same


# ---- the Sphinx extension ----


def copy_mathjax(app, error):
    """Put MathJax 3.2.2 beside the other scripts: one file with its SVG glyphs, and TeX's rarer commands.

    It loads these itself, each in a small file, on pages that use one; that also works from file://.
    """
    if error is None and app.builder.format == "html":
        source = importlib.resources.files("sphinx-mathjax-offline") / "static"
        rarer = source / "mathjax" / "input" / "tex" / "extensions"
        for file in [source / MATHJAX, *rarer.iterdir()]:
            target = Path(app.outdir, "_static", file.relative_to(source))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())


def name_pictures(app, doctree):
    """Give a cell's picture the text of its own object as alt text: `[figure: …]` beside it in the notebook.

    A cell may still say it itself, with `mystnb.image.alt` in its metadata.
    """

    def is_bundle(node):
        return isinstance(node, docutils.nodes.container) and node.get("nb_element") == "mime_bundle"

    for bundle in doctree.findall(is_bundle):
        texts = [part.astext() for part in bundle if part.get("mime_type") == "text/plain"]
        found = [re.fullmatch(r"\[figure: (.*)\]", text.strip(), flags=re.DOTALL) for text in texts]
        for image in bundle.findall(docutils.nodes.image):
            if found and found[0]:
                image.setdefault("alt", " ".join(found[0][1].split()))


# What docutils and the theme write that screen readers stumble over, and what we write instead.
ACCESSIBLE = {
    'role="doc-biblioentry"': 'role="listitem"',  # a deprecated role, and no child that a list may have
    ' aria-label="Toggle hidden content"': "",  # another name than the words to be read there
    '<th class="head text-left"><p></p></th>': "<td></td>",  # the corner of a table heads nothing
    '<th class="head text-right"><p></p></th>': "<td></td>",
}


def finish_page(app, pagename, templatename, context, doctree):
    """Give the page its description, unless it has one of its own (`html_meta`), and mend its body."""
    for written, better in ACCESSIBLE.items():
        if written in context.get("body", ""):
            context["body"] = context["body"].replace(written, better)
    if 'name="description"' not in context.get("metatags", ""):
        text = html.escape(context["description"])  # html_context in _config.yml
        context["metatags"] = context.get("metatags", "") + f'<meta name="description" content="{text}" />'


_SHAPE = re.compile(r"[~\w.]*Annotated\[~?torch\.Tensor, (~?plainformer\.shapes\.\w+), ('[^']*')\]")


def _shapes_as_words(app, what, name, obj, options, signature, returns):
    """The library reference writes a shape as the source does: Float['batch query d_head']."""
    return tuple(part and _SHAPE.sub(r"\1[\2]", part) for part in (signature, returns))


def setup(app):
    """Sphinx calls this because `_config.yml` names `classroom.site`, which brings the course's other extensions."""
    for part in (
        "classroom.reading",
        "classroom.ledger_page",
        "classroom.graders_page",
        "classroom.instructor_tables",
        "classroom.elements.sphinx",
        "classroom.elements.progress",
        "classroom.finding",
        "classroom.code_links",
        "classroom.glossary_links",
        "classroom.frame",
    ):
        app.setup_extension(part)
    app.add_css_file("appendix.css")  # for what these two add to the pages
    app.connect("doctree-read", name_pictures)
    app.connect("html-page-context", finish_page)
    app.connect("autodoc-process-signature", _shapes_as_words)
    app.connect("build-finished", copy_mathjax)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


# ---- the command ----


def check_source(parser: argparse.ArgumentParser, source: Path) -> None:
    """End the program with a clear error unless `source` is the folder of a book."""
    if not (source / "_config.yml").is_file():
        parser.error(f"{source} has no _config.yml: give --source the folder of the book, the repository's root")


def add_places(parser: argparse.ArgumentParser, made: str) -> None:
    """The options of a command that makes `made`, below _build, from the pages; `built_pages` reads them."""
    parser.add_argument("--source", type=Path, default=ROOT, help="folder of _config.yml (%(default)s)")
    parser.add_argument("--output", type=Path, help=f"folder that gets _build/{made} (the source folder)")
    parser.add_argument("--site", type=Path, help="the built pages, if they are there already: _build/html")


@contextlib.contextmanager
def built_pages(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Iterator[Path]:
    """The folder of the built pages: the one that was named, or one made for now. Ends the program if that fails."""
    if not (options.source / "_config.yml").is_file():
        parser.error(
            f"{options.source} has no _config.yml: give --source the folder of the book, the repository's root"
        )
    if options.site:
        if not (options.site / "index.html").is_file():
            parser.error(f"{options.site} has no index.html: give --site a folder of built pages")
        yield options.site
        return
    with tempfile.TemporaryDirectory(prefix="pages-") as folder:
        print("Building the pages", flush=True)
        code, messages = build(options.source, Path(folder))
        if code:
            print(messages.strip(), file=sys.stderr)
            sys.exit(code)
        yield Path(folder, "_build", "html")


def build(source: Path, output: Path, strict: bool = True) -> tuple[int, str]:
    """Build the book that lies in `source` into `output`/_build/html, from nothing.

    A second, incremental build would not repeat the warnings of pages it does not read again, so
    a broken book would pass. Returns the exit code and what Sphinx wrote to stderr: its warnings.
    """
    for stale in ("html", ".doctrees"):
        shutil.rmtree(output / "_build" / stale, ignore_errors=True)
    program = shutil.which("jupyter-book", path=str(Path(sys.executable).parent)) or "jupyter-book"
    command = [program, "build", str(source), "--path-output", str(output), "-q"]
    if strict:
        command += ["-W", "-n", "--keep-going"]
    # without colours and without the user's own settings of Python, so that the warnings can be read
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONWARNINGS": "ignore", "PYTHONUTF8": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8")
    return done.returncode, done.stderr if done.returncode == 0 else done.stdout + done.stderr


def build_with_solutions(source: Path, output: Path, strict: bool = True) -> tuple[int, str]:
    """Build the instructors' edition, with the pages of `classroom.worked`, into `output`/_build/instructor.

    It is made in a temporary folder: the sources, and a site for readers in _build/html, stay as they are.
    """
    from classroom import worked  # only here: the site for readers is built without reading a solution

    site = output / "_build" / "instructor"
    shutil.rmtree(site, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="instructors-edition-") as folder:
        made = Path(folder).resolve()
        code, messages = build(worked.stage(source, made / "book"), made, strict)
        if code == 0:
            site.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(made / "_build" / "html", site)
    return code, messages.replace(f"{made / 'book'}{os.sep}", "")


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, build, and say where the book is."""
    parser = argparse.ArgumentParser(prog="python -m classroom.site", description="Build the HTML book.")
    parser.add_argument("--source", type=Path, default=ROOT, help="folder of _config.yml (%(default)s)")
    parser.add_argument("--output", type=Path, help="folder that gets _build/html (the source folder)")
    parser.add_argument(
        "--strict", action=argparse.BooleanOptionalAction, default=True, help="a warning fails the build"
    )
    parser.add_argument(
        "--solutions",
        action="store_true",
        help="the instructors' edition: the book with the worked solutions, into _build/instructor",
    )
    options = parser.parse_args(arguments)
    source = options.source.resolve()
    output = (options.output or source).resolve()
    check_source(parser, source)
    if options.solutions and not list(source.glob("solutions/*/*.ipynb")):
        parser.error(f"{source} has no solutions/: the instructors' edition needs them")

    page = output / "_build" / ("instructor" if options.solutions else "html") / "index.html"
    shown = os.path.relpath(page) if page.is_relative_to(Path.cwd()) else page
    print(f"Building the book into {Path(shown).parent}", flush=True)
    code, messages = (build_with_solutions if options.solutions else build)(source, output, options.strict)
    if messages.strip():
        print(messages.strip(), file=sys.stderr)
    if code:
        print("The book has errors: each line above names the page and the line to mend.", file=sys.stderr)
        return code
    if options.solutions:
        print("For instructors only: it holds solutions and hidden tests. Do not publish this folder.")
    print(f"Open {shown} ({page.as_uri()})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
