"""The search page, from its file: terms, symbols and objects of the library come first and lead to their place."""

from __future__ import annotations

import re

import pytest

from classroom.chromium import visit
from classroom.finding import spoken

pytestmark = pytest.mark.browser


APPENDIX = "chapters/appendix"
# what is typed → kind of the first result, and where it leads
WANTED = {
    "attention_weights": ("Python function", "library.html#plainformer.attention.attention_weights"),
    "RMSNorm": ("a word of this course", "glossary.html#term-RMSNorm"),
    "perplexity": ("a word of this course", "glossary.html#term-perplexity"),
    "KV cache": ("a word of this course", "glossary.html#term-KV-cache"),
    "key-value cache": ("a word of this course", "glossary.html#term-key-value-cache"),
    "softmax": ("a word of this course", "glossary.html#term-softmax"),
    "d_model": ("a symbol", "symbols.html#symbol-d"),
    "n_kv_heads": ("a symbol", "symbols.html#symbol-h_kv"),
    "d_k": ("a symbol", "symbols.html#symbol-d_k"),
    "n_vocab": ("a symbol", "symbols.html#symbol-n_vocab"),
    "T": ("a symbol", "symbols.html#symbol-T"),
    "lambda": ("a symbol", "symbols.html#symbol-lambda"),
    "β_1": ("a symbol", "symbols.html#symbol-beta_1"),
    "GiB": ("a unit", "symbols.html#unit-KiB"),
}
# the best result comes last; each is [page, title, anchor, description, score, file]
BEST = """queries => queries.map(query => Search._performSearch(...Search._parseQuery(query)).slice(-3)
  .map(([page, , anchor]) => page + '.html' + anchor))"""

# Sphinx writes an anchor that is the object's kind and name as "-"
TERMS = """() => Search._index.objects[''].filter(([, kind]) => Search._index.objnames[kind][0] === 'found')
  .map(([, kind, , anchor, name]) => [name, anchor === '-' ? `${Search._index.objnames[kind][1]}-${name}` : anchor])"""


@pytest.mark.parametrize(
    ("tex", "names"),
    [
        (r"n_\text{vocab}", ["n_vocab"]),
        ("h_{kv}", ["h_kv"]),
        ("x^{(l)}", ["x"]),
        (r"\eta", ["eta", "η"]),
        (r"\lambda", ["lambda", "λ"]),
        (r"\beta_2", ["beta_2", "β_2"]),
        (r"\Phi(x)", ["Phi", "Φ"]),
        (r"\odot", ["odot"]),
    ],
)
def test_a_symbol_is_called_as_a_reader_would_type_it(tex, names):
    assert spoken(tex) == names


def test_what_is_typed_finds_its_place_first(browser, book):
    assert book.code == 0, book.messages
    with visit(browser, book.html / "search.html") as open_page:
        page = open_page.page
        for query, (kind, place) in WANTED.items():
            page.goto(f"{(book.html / 'search.html').resolve().as_uri()}?q={query}")
            first = page.locator("#search-results li").first
            assert first.locator("a").get_attribute("href") == f"{APPENDIX}/{place}", query
            assert kind in first.inner_text(), query
        page.locator("#search-results li a").first.click()
        page.wait_for_selector("tr:target")
        assert not open_page.errors and not open_page.requests


def test_every_term_and_every_symbol_is_among_the_first_results_of_its_own_name(browser, book):
    anchors = {
        name: set(re.findall(pattern, (book.html / APPENDIX / f"{name}.html").read_text("utf-8")))
        for name, pattern in {"glossary": r'<dt id="(term-[^"]+)"', "symbols": r'id="((?:symbol|unit)-[^"]+)"'}.items()
    }
    assert len(anchors["glossary"]) > 100 and len(anchors["symbols"]) > 40
    with visit(browser, book.html / "search.html") as open_page:
        open_page.page.goto((book.html / "search.html").resolve().as_uri() + "?q=attention")
        open_page.page.wait_for_selector("#search-results li")
        terms = open_page.page.evaluate(TERMS)
        found = open_page.page.evaluate(BEST, [name for name, _ in terms])
    places: dict[str, set[str]] = {}
    for name, anchor in terms:
        page = "glossary" if anchor.startswith("term-") else "symbols"
        places.setdefault(name.lower(), set()).add(f"{APPENDIX}/{page}.html#{anchor}")
    for page, there in anchors.items():  # none is left out
        assert {f"{APPENDIX}/{page}.html#{anchor}" for anchor in there} <= set().union(*places.values())
    # roofline is a module too, and the search reads FLOP/s as two words: each is among the first three
    wrong = {name: best for (name, _), best in zip(terms, found) if not places[name.lower()] & set(best)}
    assert wrong == {}
