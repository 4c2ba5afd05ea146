"""The book builds without a warning, and its files hold together: links, pictures, nothing remote."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

# attributes that make a browser fetch something by itself; a plain <a href> is the reader's own click
FETCHED = {
    *((tag, "src") for tag in ("img", "script", "iframe", "source", "video", "audio", "embed", "input")),
    *((tag, "srcset") for tag in ("img", "source")),
    *((tag, "href") for tag in ("link", "image", "use")),
    ("video", "poster"),
    ("object", "data"),
}
FETCHING_RELATIONS = {
    "stylesheet",
    "icon",
    "preload",
    "prefetch",
    "preconnect",
    "dns-prefetch",
    "modulepreload",
}
SOLUTION_TOKENS = ["BEGIN SOLUTION", "END SOLUTION", "BEGIN HIDDEN TESTS", "END HIDDEN TESTS"]
REMOTE = re.compile(r"^\s*(https?:)?//", re.IGNORECASE)


class Page(HTMLParser):
    """What one page offers (ids) and asks for: what it links to, what it makes the browser fetch."""

    def __init__(self, path: Path):
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.styles: list[str] = []
        self.in_style = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.in_style = tag == "style"
        self.ids |= {values[name] for name in ("id", "name") if values.get(name)}
        if values.get("style"):
            self.styles.append(values["style"])
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        for name, value in attributes:
            if (tag, name) not in FETCHED or not value:
                continue
            if tag == "link" and not FETCHING_RELATIONS & set((values.get("rel") or "").lower().split()):
                self.links.append(value)  # rel="next" and the like: followed, not fetched
            elif name == "srcset":
                self.fetched += [part.split()[0] for part in value.split(",")]
            else:
                self.fetched.append(value)

    def handle_endtag(self, tag):
        self.in_style = False

    def handle_data(self, data):
        if self.in_style:
            self.styles.append(data)


def style_addresses(css: str) -> list[str]:
    """Everything a style sheet makes the browser fetch."""
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    urls = re.findall(r"""url\(\s*['"]?([^'")]+)""", css)
    return urls + re.findall(r"""@import\s+['"]([^'"]+)""", css)


@pytest.fixture(scope="module")
def parsed(book) -> dict[Path, Page]:
    return {path.resolve(): Page(path) for path in book.pages}


def test_builds_without_a_warning(book):
    assert book.code == 0, book.messages
    assert "WARNING" not in book.messages and "ERROR" not in book.messages, book.messages


def test_says_where_to_open_it_in_its_last_line(book):
    last = book.messages.strip().splitlines()[-1]
    assert last.startswith("Open ") and str(Path("_build", "html", "index.html")) in last
    assert (book.html / "index.html").resolve().as_uri() in last
    assert (book.html / "index.html").is_file()


def test_every_page_of_the_contents_was_built(book):
    contents = (Path(__file__).resolve().parents[2] / "_toc.yml").read_text(encoding="utf-8")
    stems = re.findall(r"^\s*-?\s*(?:file|root):\s*(\S+)", contents, flags=re.MULTILINE)
    assert len(stems) >= 3
    missing = [stem for stem in stems if not (book.html / f"{stem}.html").is_file()]
    assert not missing


def test_links_anchors_and_assets_exist(book, parsed):
    broken = []
    for path, page in parsed.items():
        for address in page.links + page.fetched:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                broken.append(f"{path.name}: no file {address}")
            elif parts.fragment and target in parsed and unquote(parts.fragment) not in parsed[target].ids:
                broken.append(f"{path.name}: no anchor {address}")
    assert sum(len(page.links) for page in parsed.values()) > 0
    assert not broken, "\n".join(broken)


def test_nothing_is_fetched_from_elsewhere(book, parsed):
    remote = []
    for path, page in parsed.items():
        found = page.fetched + [url for css in page.styles for url in style_addresses(css)]
        remote += [f"{path.name}: {url}" for url in found if REMOTE.match(url)]
    for sheet in book.html.rglob("*.css"):
        remote += [f"{sheet.name}: {url}" for url in style_addresses(sheet.read_text("utf-8")) if REMOTE.match(url)]
    assert not remote, "\n".join(remote)


def test_no_solution_reaches_the_site(book):
    texts = [p for p in book.html.rglob("*") if p.suffix in {".html", ".ipynb", ".md", ".txt", ".js", ".json"}]
    texts = [p for p in texts if "mathjax" not in p.parts]
    assert book.html / "searchindex.js" in texts
    leaks = [
        f"{path.relative_to(book.html)}: {token}"
        for path in texts
        for token in SOLUTION_TOKENS
        if token.lower() in path.read_text(encoding="utf-8", errors="replace").lower()
    ]
    assert not leaks, "\n".join(leaks)
    assert not [p for p in book.html.rglob("*") if {"solutions", "grading"} & set(p.relative_to(book.html).parts)]


def test_builder_needs_no_torch():
    code = "import sys, classroom.site; sys.exit('torch' in sys.modules or 'sphinx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def append(text: str):
    """Damage that adds `text` to the front page."""

    def damage(folder: Path) -> None:
        with (folder / "index.md").open("a", encoding="utf-8") as page:
            page.write(text)

    return damage


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("\nSee {ref}`no-such-label`.\n", "no-such-label", id="label"),
        pytest.param("\n![A picture](no_such_picture.png)\n", "no_such_picture", id="image"),
        pytest.param("\n{cite:p}`nobody1900nothing`\n", "nobody1900nothing", id="citation"),
    ],
)
def test_a_broken_reference_fails_the_build(build_damaged, text, complaint):
    book = build_damaged(append(text))
    assert book.code != 0
    assert complaint in book.messages and "index.md" in book.messages


def test_a_folder_that_is_no_book_is_refused(tmp_path):
    command = [sys.executable, "-m", "classroom.site", "--source", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "_config.yml" in done.stderr
