"""What a chapter says at its head, which chapters it needs, and its links to the glossary."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest

from classroom.chromium import VIEWS, visit
from classroom.glossary_links import EVERYDAY, pattern
from classroom.ledger import STEMS
from classroom.reading import NEEDS, markdown, minutes, needs

CHAPTERS = Path(__file__).resolve().parents[2] / "chapters"
TERM = re.compile(r'<a class="pf-term reference internal" href="([^"]+)"(?: title="([^"]*)")?>([^<]*)</a>')


@pytest.fixture
def article(book):
    """A function: the HTML of a page's article."""

    def read(name: str) -> str:
        assert book.code == 0, book.messages
        page = (book.html / f"{name}.html").read_text(encoding="utf-8")
        return page.split("<article", 1)[1].split("</article>")[0]

    return read


def words(markup: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", "", markup)).split())


def behind(number: int) -> set[int]:
    """The chapters that a chapter needs, and those that these need."""
    return set(NEEDS[number]).union(*(behind(other) for other in NEEDS[number]))


# ---- prerequisites ----


def test_a_chapter_needs_earlier_ones():
    assert list(NEEDS) == list(range(1, len(STEMS) + 1))
    assert all(list(needed) == sorted(set(needed)) and max(needed, default=0) < n for n, needed in NEEDS.items())


@pytest.mark.parametrize("stem", STEMS)
def test_a_chapter_needs_those_that_its_text_looks_back_to(stem):
    text, number = "\n".join(markdown(CHAPTERS / f"{stem}.ipynb")), int(stem[:2])
    named = {int(n) for n in re.findall(r"\((\d\d)_\w+\)", text) + re.findall(r"[Cc]hapter (\d+)", text)}
    assert {n for n in named if n < number} <= behind(number)


@pytest.mark.parametrize("stem", STEMS)
def test_the_line_under_the_title_names_them_as_links(article, stem):
    line = re.search(r'<p class="pf-reading">(.*?)</p>', article(f"chapters/{stem}"), flags=re.DOTALL)[1]
    numbers = [str(int(other[:2])) for other in needs(stem)]
    listed = " and ".join(filter(None, [", ".join(numbers[:-1]), *numbers[-1:]]))
    needed = f"Needs: chapter{'s' * (len(numbers) > 1)} {listed}." if numbers else "Needs no other chapter."
    assert words(line) == f"About {minutes(CHAPTERS / f'{stem}.ipynb')} minutes to read. {needed}"
    assert re.findall(r'href="([^"]+)"', line) == [f"{other}.html" for other in needs(stem)]


# ---- links to the glossary ----


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Attention, then the KV cache.", ["Attention", "KV cache"]),
        ("Two keys, a residual\nstream.", ["keys", "residual\nstream"]),
        ("monkey business, key-like, keyed, KEY", []),
        ("A causal mask is a mask.", ["causal mask", "mask"]),
    ],
)
def test_a_term_is_a_whole_word_and_the_longest_wins(text, found):
    terms = pattern(["attention", "key", "KV cache", "residual stream", "mask", "causal mask"])
    assert [match[0] for match in terms.finditer(text)] == found


@pytest.mark.parametrize("stem", STEMS)
def test_each_term_is_linked_once_where_it_is_used_first(article, stem):
    page, glossary = article(f"chapters/{stem}"), article("chapters/appendix/glossary")
    names = {
        anchor: words(name) for anchor, name in re.findall(r'<dt id="(term-[^"]+)">(.*?)<a class="headerlink', glossary)
    }
    links = [(href.partition("#")[2], words(shown)) for href, _, shown in TERM.findall(page)]
    assert 8 <= len(links) <= 50
    assert len({anchor for anchor, _ in links}) == len(links)
    for anchor, shown in links:
        assert shown.lower() in (names[anchor].lower(), names[anchor].lower() + "s")

    # running text before the first link of a term does not use it: no heading, code, formula, list of claims
    prose = re.sub(r"<(h\d|pre|code|script|details|table|dt|figcaption)\b.*?</\1>", " ", page, flags=re.DOTALL)
    prose = re.sub(r'<(span|div) class="math.*?</\1>|<div class="cell_output.*?</div>', " ", prose, flags=re.DOTALL)
    every = pattern([*names.values()])
    for anchor, shown in links:
        before = prose.partition(f'#{anchor}"')[0].rpartition("<a ")[0]
        before = re.sub(r"<a\b.*?</a>|<[^>]*>", " ", before, flags=re.DOTALL)
        before = re.sub("|".join(map(re.escape, EVERYDAY)), " ", unescape(before))
        assert shown not in [match[0] for match in every.finditer(before)]


def test_no_link_stands_in_a_heading_in_code_or_in_a_link(article):
    for stem in STEMS:
        for kind in ("h1", "h2", "h3", "pre", "code", "a"):
            for part in re.findall(rf"<{kind}\b(.*?)</{kind}>", article(f"chapters/{stem}"), flags=re.DOTALL):
                assert "pf-term" not in (part if kind != "a" else part.partition(">")[2]), (stem, part)


def test_what_a_term_means_is_the_link_s_tip(article):
    (tip,) = [tip for _, tip, shown in TERM.findall(article("chapters/08_model")) if shown == "block"]
    assert tip == "One layer of a Transformer: attention, then an MLP, each with a norm and a residual add."
    tips = [tip for stem in STEMS for _, tip, _ in TERM.findall(article(f"chapters/{stem}"))]
    assert not [tip for tip in tips if re.search(r"[\\$_{}]", tip)]  # a formula is no tip


def test_what_is_said_to_be_everyday_stands_in_a_chapter():
    texts = []
    for stem in STEMS:
        cells = json.loads((CHAPTERS / f"{stem}.ipynb").read_text(encoding="utf-8"))["cells"]
        texts += [" ".join("".join(cell["source"]).split()) for cell in cells if cell["cell_type"] == "markdown"]
    assert not [phrase for phrase in EVERYDAY if not any(phrase in text.replace("*", "") for text in texts)]


@pytest.mark.browser
@pytest.mark.parametrize("view", VIEWS)
def test_links_are_quiet_and_lead_to_the_term(browser, book, view):
    with visit(browser, book.html / "chapters" / "08_model.html", view) as open_page:
        page = open_page.page
        link = page.locator("a.pf-term").first
        assert link.evaluate("a => getComputedStyle(a).color === getComputedStyle(a.parentElement).color")
        assert link.evaluate("a => getComputedStyle(a).textDecorationStyle") == "dotted"
        link.focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("dt:target")
        assert not open_page.errors and not open_page.requests
