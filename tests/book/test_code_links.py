"""A name of the library in a code cell leads to its reference: as Python binds it, and no longer than that."""

from __future__ import annotations

import importlib
import json
import re
from html import unescape
from pathlib import Path

import pytest

from classroom.chromium import VIEWS, visit
from classroom.code_links import Uses, with_links
from classroom.ledger import STEMS

CHAPTERS = Path(__file__).resolve().parents[2] / "chapters"
LINK = re.compile(r'<a class="pf-code-link" href="([^"]+)" title="([^"]+)">([^<]+)</a>')


def names(*cells: str) -> list[list[str]]:
    """What each cell names, checked to stand where it is said to stand."""
    uses, found = Uses(), []
    for cell in cells:
        here = uses.read(cell)
        assert all(cell[offset:].startswith(text) for offset, text, _ in here)
        found.append([name.removeprefix("plainformer.") for _, _, name in here])
    return found


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        pytest.param(["from plainformer.mlp import swiglu as s", "s(1)"], ["mlp.swiglu"], id="alias, a later cell"),
        pytest.param(["from plainformer import masks", "masks.causal(3)"], ["masks", "masks.causal"], id="module"),
        pytest.param(["import plainformer", "plainformer.Config"], ["plainformer", "Config"], id="package"),
        pytest.param(["from plainformer.mlp import f", "é = 'é'; f('é')"], ["mlp.f"], id="beyond ASCII"),
        pytest.param(["from plainformer.mlp import f", "%matplotlib inline\nf(1)"], ["mlp.f"], id="after magic"),
        pytest.param(["from plainformer.mlp import f", "f = f(1)\nf"], ["mlp.f"], id="until it is rebound"),
        pytest.param(["from plainformer.mlp import f", "def f(): pass", "f()"], [], id="redefined"),
        pytest.param(["from plainformer.mlp import f", "def g(f): return f\ng(f)"], ["mlp.f"], id="a parameter is not"),
        pytest.param(["from plainformer.mlp import f", "[f for f in 'ab']"], [], id="nor a comprehension's name"),
        pytest.param(["from plainformer.mlp import f", "x.f + y['f']"], [], id="nor an attribute of something else"),
        pytest.param(["from torch import f", "f(1)"], [], id="nor another library's"),
    ],
)  # fmt: skip
def test_names_are_followed_as_python_binds_them(cells, expected):
    assert names(*cells)[-1] == expected


def test_the_first_use_in_a_cell_is_the_link():
    listing = '<span></span><span class="n">f</span><span class="p">(</span><span class="n">f</span> <span>&lt;</span>'
    uses = [(0, "f", "plainformer.mlp.f"), (2, "f", "plainformer.mlp.f")]
    linked = with_links(listing, uses, {"plainformer.mlp": "x.html#m"})
    assert linked == listing.replace(
        ">f<", '><a class="pf-code-link" href="x.html#m" title="plainformer.mlp.f">f</a><', 1
    )


@pytest.mark.parametrize("stem", STEMS)
def test_every_name_in_a_chapter_s_cells_is_a_link_to_its_reference(book, stem):
    assert book.code == 0, book.messages
    page = (book.html / "chapters" / f"{stem}.html").read_text(encoding="utf-8")
    links = {unescape(title): href for href, title, _ in LINK.findall(page)}
    uses, used = Uses(), set()
    for cell in json.loads((CHAPTERS / f"{stem}.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            found = uses.read("".join(cell["source"]))
            if not {"remove-cell", "remove-input"} & set(cell["metadata"].get("tags", ())):
                used |= {name for _, _, name in found}
    assert set(links) == used and used
    for name, href in links.items():
        assert href.startswith("appendix/library.html"), name
        module, _, attribute = name.rpartition(".")
        anchor = href.partition("#")[2].removeprefix("module-")
        if anchor != name and anchor and module in ("plainformer",):  # what the package hands on
            anchor_module, _, last = anchor.rpartition(".")
            whole = importlib.import_module(anchor_module)
            assert getattr(whole, last) is getattr(importlib.import_module(module), attribute)
        else:
            assert name.startswith(anchor)


@pytest.mark.browser
@pytest.mark.parametrize("view", VIEWS)
def test_a_link_looks_like_the_code_around_it_and_leads_there(browser, book, view):
    with visit(browser, book.html / "chapters" / "04_masks.html", view) as open_page:
        page = open_page.page
        page.evaluate("() => document.querySelectorAll('details').forEach(box => { box.open = true; })")
        link = page.locator("a.pf-code-link").first
        same = "a => getComputedStyle(a).color === getComputedStyle(a.parentElement).color"
        assert link.evaluate(same) and link.evaluate("a => getComputedStyle(a).textDecorationStyle") == "dotted"
        address = link.get_attribute("href")
        link.click()
        page.wait_for_url(f"**/{address}")
        assert not open_page.errors and not open_page.requests
