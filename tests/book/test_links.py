"""Every link inside the book leads to a page and a place that are there, and no page loads from outside."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

LOADS = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
}


class Links(HTMLParser):
    """The places of a page, where its links lead, and what it loads."""

    def __init__(self, page: Path):
        super().__init__()
        self.places, self.targets, self.loaded = {""}, [], []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        given = {name: value or "" for name, value in attributes}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.targets.append(given["href"])
        if tag in LOADS and LOADS[tag] in given and given.get("rel") != "canonical":
            self.loaded.append(given[LOADS[tag]])


def broken(html: Path) -> list[str]:
    """One line for each link or file of the pages below `html` that leads nowhere."""
    pages = {path: Links(path) for path in html.rglob("*.html") if "_static" not in path.relative_to(html).parts}
    found = []
    for page, links in pages.items():
        for address in links.targets + links.loaded:
            parts = urlsplit(address)
            name = f"{page.relative_to(html)}: {address}"
            if parts.scheme or parts.netloc:
                if address in links.loaded and parts.scheme != "data":
                    found.append(f"{name} is loaded from outside")
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if not target.is_file():
                found.append(f"{name} is no file")
            elif target in pages and unquote(parts.fragment) not in pages[target].places:
                found.append(f"{name} has no such place")
    return found


def test_every_link_inside_the_book_leads_somewhere(book):
    assert book.code == 0, book.messages
    assert broken(book.html.resolve()) == []


@pytest.mark.parametrize(
    ("markup", "said"),
    [
        ('<a href="other.html#end">x</a>', "no such place"),
        ('<a href="nowhere.html">x</a>', "no file"),
        ('<a href="#nowhere">x</a>', "no such place"),
        ('<img src="https://example.org/x.png">', "from outside"),
        ('<link rel="stylesheet" href="//example.org/x.css">', "from outside"),
        ('<script src="x.js"></script>', "no file"),
        ('<a href="other.html#begin">x</a> <a href="https://example.org">x</a>', None),
    ],
)
def test_a_broken_link_would_be_seen(tmp_path, markup, said):
    (tmp_path / "other.html").write_text('<p id="begin">')
    (tmp_path / "page.html").write_text(markup)
    assert [line.endswith(said) for line in broken(tmp_path.resolve())] == ([True] if said else [])
