"""How much a reader's browser loads, counted in a real one: the first chapter, every page after it, our own script."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from classroom.chromium import UNFOLD, visit

pytestmark = pytest.mark.browser

FIRST, LATER, SCRIPT = 3_500_000, 400_000, 40_000  # bytes as they lie there, not compressed

# scripts of the theme and of the extensions; every other one is ours
THEIRS = {
    "bootstrap.js",
    "clipboard.min.js",
    "copybutton.js",
    "design-tabs.js",
    "doctools.js",
    "documentation_options.js",
    "pydata-sphinx-theme.js",
    "sphinx-book-theme.js",
    "sphinx_highlight.js",
    "togglebutton.js",
    # of the page of search results
    "language_data.js",
    "searchindex.js",
    "searchtools.js",
}


@pytest.fixture(scope="module")
def loaded(browser, book) -> dict[Path, set[Path]]:
    """Page → every file that a browser reads for it, pictures below the fold included."""
    assert book.code == 0, book.messages
    found = {}
    for path in book.pages:
        if "_modules" in path.parts:
            continue
        with visit(browser, path) as opened:
            files = set()
            opened.page.on("request", lambda request, files=files: files.add(urlsplit(request.url)))
            opened.page.reload(wait_until="load")
            opened.page.evaluate(UNFOLD)
            found[path] = {Path(unquote(address.path)) for address in files if address.scheme == "file"}
    return found


def size(files: set[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def heaviest(files: set[Path]) -> str:
    """The five largest, for whoever has to mend it."""
    ordered = sorted(files, key=lambda file: -file.stat().st_size)[:5]
    return ", ".join(f"{file.name} {file.stat().st_size / 1e3:.0f} KB" for file in ordered)


def chapters(loaded) -> list[Path]:
    return [path for path in loaded if path.parent.name == "chapters"]


def test_sees_what_a_page_loads(loaded):
    """The instrument itself: the page, its styles, MathJax, a font and a picture are among the files."""
    files = loaded[chapters(loaded)[1]]
    assert {"tex-svg.js", "plainformer.css", "elements.js", "02_attention.html"} <= {file.name for file in files}
    assert {".png", ".woff2"} <= {file.suffix for file in files}


def test_a_first_visit_is_light(loaded):
    heavy = [f"{p.name}: {size(loaded[p]):,} bytes: {heaviest(loaded[p])}" for p in loaded if size(loaded[p]) > FIRST]
    assert not heavy, "\n".join(heavy)


def test_a_later_page_adds_little(loaded):
    """Whatever page came first, what it shares with the next is there already."""
    first = loaded[chapters(loaded)[0]]
    more = {path: files - first for path, files in loaded.items()}
    heavy = [f"{p.name}: {size(files):,} bytes: {heaviest(files)}" for p, files in more.items() if size(files) > LATER]
    assert not heavy, "\n".join(heavy)


def test_our_own_script_is_small(loaded):
    for path, files in loaded.items():
        scripts = {file for file in files if file.suffix == ".js" and "mathjax" not in file.parts}
        own = {file for file in scripts if file.name not in THEIRS}
        assert size(own) <= SCRIPT, f"{path.name}: {heaviest(own)}"
