"""Every page of the built book in a real browser, opened from its file with the network off."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from classroom.chromium import RULES, UNFOLD, VIEWS, visit

pytestmark = pytest.mark.browser

# Raw TeX in what a reader sees: code, and what is rendered already, does not count.
RAW_TEX = r"""() => {
  const found = [], skip = "pre, code, script, style, noscript, mjx-container, textarea";
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const raw = /\$\$|\\\(|\\\[|\\begin\{|\{[a-z:]+\}`/.test(node.data);
    if (raw && !node.parentElement.closest(skip)) found.push(node.data);
  }
  return found;
}"""
FORMULAS = """() => ({
  unset: [...document.querySelectorAll('.math')]
    .filter(m => !m.querySelector('mjx-container')).map(m => m.textContent),
  nodes: document.querySelectorAll('.math').length,
  set: [...document.querySelectorAll('mjx-container')].filter(m => m.querySelector('svg, mjx-math')).length,
  errors: [...document.querySelectorAll('[data-mjx-error]')].map(e => e.dataset.mjxError),
})"""
IMAGES = """() => [...document.images].map(i => ({src: i.getAttribute('src'), alt: i.getAttribute('alt'),
  loaded: i.complete && i.naturalWidth > 0}))"""
TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  return {page: document.documentElement.scrollWidth, width,
    widest: [...document.querySelectorAll('.bd-article *')]
      .filter(e => e.getBoundingClientRect().right > width + 1).slice(0, 5)
      .map(e => e.tagName + '.' + e.className)};
}"""


@pytest.fixture(scope="module")
def pages(book) -> list[Path]:
    assert book.code == 0, book.messages
    assert len(book.pages) >= 3
    return book.pages


@dataclass
class Survey:
    """What one look at every page, in one view, found wrong: kind → one line each."""

    n_formulas: int = 0
    wrong: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in LOOKS})


@pytest.fixture(scope="module", params=VIEWS)
def survey(request, browser, pages) -> Survey:
    """Every page is opened once a view, and looked at for everything: most of the time goes into opening and axe."""
    found = Survey()
    for path in pages:
        with visit(browser, path, request.param) as open_page:
            open_page.page.evaluate(UNFOLD)
            for kind, look in LOOKS.items():
                found.wrong[kind] += [f"{path.name} ({request.param}): {text}" for text in look(open_page)]
            found.n_formulas += open_page.page.evaluate(FORMULAS)["nodes"]
    return found


def look_for_requests(open_page):
    yield from open_page.requests
    yield from open_page.errors


def look_at_formulas(open_page):
    yield from (f"raw TeX: {text[:80]}" for text in open_page.page.evaluate(RAW_TEX))
    formulas = open_page.page.evaluate(FORMULAS)
    yield from (f"not rendered: {text[:80]}" for text in formulas["unset"])
    yield from (f"TeX error: {text}" for text in formulas["errors"])
    # an align block is one node; a node never gives fewer containers than one
    if formulas["set"] < formulas["nodes"]:
        yield f"{formulas['set']} formulas of {formulas['nodes']}"


def look_at_pictures(open_page):
    for image in open_page.page.evaluate(IMAGES):
        alt = (image["alt"] or "").strip()
        if not image["loaded"]:
            yield f"{image['src']} did not load"
        if len(alt.split()) < 3 or re.search(r"\.(png|svg|jpe?g|gif)\b|/", alt):
            yield f"{image['src']} has the alt text {alt!r}"


def look_at_the_width(open_page):
    size = open_page.page.evaluate(TOO_WIDE)
    if size["page"] > size["width"]:
        yield f"{size['page']} px wide on {size['width']}: {size['widest']}"


def look_at_accessibility(open_page):
    from axe_playwright_python.sync_playwright import Axe

    for violation in Axe().run(open_page.page, options=RULES).response["violations"]:
        for node in violation["nodes"]:
            where = " ".join(map(str, node["target"]))
            if violation["id"] == "empty-table-header" and open_page.page.locator(f"{where} mjx-assistive-mml").count():
                continue  # a formula heads the column: axe reads no MathML, screen readers do
            yield f"{violation['id']}: {where}: {node['html'][:120]} {node['failureSummary'][:200]}"


LOOKS = {
    "formulas": look_at_formulas,
    "pictures": look_at_pictures,
    "width": look_at_the_width,
    "accessibility": look_at_accessibility,
    "requests": look_for_requests,
}


def test_no_request_leaves_and_no_error_is_logged(survey):
    assert survey.wrong["requests"] == []


def test_every_formula_is_rendered(survey):
    assert survey.wrong["formulas"] == []
    assert survey.n_formulas > 0


def test_every_picture_loads_and_says_what_is_to_be_seen(survey):
    assert survey.wrong["pictures"] == []


def test_no_page_scrolls_sideways(survey):
    assert survey.wrong["width"] == []


def test_accessibility_rules_hold(survey):
    assert survey.wrong["accessibility"] == []


def quiz_pages(pages: list[Path]) -> list[Path]:
    return [path for path in pages if "<pf-quiz" in path.read_text(encoding="utf-8")]


def quiz_data(path: Path, index: int) -> dict:
    """What the page says about its quiz number `index`, read from the file: the script has replaced it."""
    found = re.findall(
        r"<pf-quiz[^>]*>\s*<script[^>]*>(.*?)</script>", path.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    return json.loads(found[index])


def plain(text: str) -> str:
    """Without marks, and only up to the first formula: enough to find the text in a page."""
    return text.split("\\(")[0].replace("`", "").strip()


def test_quiz_by_mouse(browser, pages):
    """No answer under the question; a wrong one gets its reason, the right one is confirmed."""
    for path in quiz_pages(pages):
        with visit(browser, path) as open_page:
            for number, quiz in enumerate(open_page.page.locator("pf-quiz").all()):
                data = quiz_data(path, number)
                status = quiz.get_by_role("status")
                assert status.inner_text() == ""
                reasons = [plain(r.get("why") or "") for r in [*data["options"], data]]
                assert not any(reason and reason in quiz.inner_text() for reason in reasons)
                for index, option in enumerate(data["options"]):
                    quiz.get_by_role("radio").nth(index).check()
                    assert status.inner_text() == ""
                    quiz.get_by_role("button").click()
                    right = bool(option.get("right"))
                    assert status.inner_text().startswith("Right." if right else "Not this one.")
            open_page.page.wait_for_function(f"() => !({RAW_TEX})().length")
            assert not open_page.errors


def test_quiz_by_keyboard(browser, pages):
    for path in quiz_pages(pages):
        with visit(browser, path) as open_page:
            for quiz in open_page.page.locator("pf-quiz").all():
                quiz.get_by_role("button").focus()
                open_page.page.keyboard.press("Enter")
                assert "first" in quiz.get_by_role("status").inner_text()
                quiz.get_by_role("radio").first.focus()
                open_page.page.keyboard.press("Space")
                open_page.page.keyboard.press("ArrowDown")
                assert quiz.get_by_role("radio").nth(1).is_checked()
                open_page.page.keyboard.press("Enter")
                assert re.match("Right|Not this one", quiz.get_by_role("status").inner_text())
                assert quiz.get_by_role("group").count() == 1  # a fieldset, named by the question


def test_quiz_is_readable_without_scripts(browser, pages):
    for path in quiz_pages(pages):
        context = browser.new_context(java_script_enabled=False, offline=True)
        page = context.new_page()
        page.goto(path.resolve().as_uri())
        for quiz in page.locator("pf-quiz").all():
            assert quiz.inner_text().strip() and quiz.locator("details").count() == 1
        context.close()


def test_paper_is_light_and_shows_what_is_folded(browser, pages):
    some = next(path for path in pages if "pf-reveal" in path.read_text(encoding="utf-8"))
    with visit(browser, some, "dark") as open_page:
        page = open_page.page
        theme, folded = "() => document.documentElement.dataset.theme", "details:not([open])"
        before = page.locator(folded).count()
        assert page.evaluate(theme) == "dark" and before > 0
        page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate(theme) == "light" and page.locator(folded).count() == 0
        page.evaluate("() => dispatchEvent(new Event('afterprint'))")
        assert page.evaluate(theme) == "dark" and page.locator(folded).count() == before


def test_search_finds_a_word_without_a_server(browser, pages, book):
    with visit(browser, book.html / "search.html") as open_page:
        page = open_page.page
        page.goto((book.html / "search.html").resolve().as_uri() + "?q=attention")
        page.wait_for_selector("#search-results a[href*='02_attention']")  # results come in one after the other
        assert not open_page.errors and not open_page.requests


def test_a_remote_picture_would_be_seen(browser, tmp_path):
    """The instrument itself: a page that asks for something remote, logs an error and holds raw TeX."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<!doctype html><title>bad</title><img src='https://example.org/x.png'>"
        "<p class='math'>\\(x\\)</p><script>console.error('bad')</script>"
    )
    with visit(browser, page) as open_page:
        open_page.page.wait_for_load_state("networkidle")
        assert any("example.org" in url for url in open_page.requests)
        assert "bad" in open_page.errors
        assert open_page.page.evaluate(RAW_TEX) and open_page.page.evaluate(FORMULAS)["unset"]
