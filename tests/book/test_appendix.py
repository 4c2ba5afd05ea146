"""What is computed while the book is built: reading times, and the pages of the ledger."""

from __future__ import annotations

import json
import re
from collections import Counter
from html import unescape
from pathlib import Path

import pytest

from classroom import ledger_page
from classroom.ledger import STEMS, Row, called, load
from classroom.reading import minutes

CHAPTERS = Path(__file__).resolve().parents[2] / "chapters"
ROWS = load(CHAPTERS / "claims.csv")


@pytest.fixture(scope="module")
def page(book):
    """A function: the text of a page's article."""

    def read(name: str) -> str:
        assert book.code == 0, book.messages
        return (book.html / f"{name}.html").read_text(encoding="utf-8").split("<article", 1)[1].split("</article>")[0]

    return read


def words(markup: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def folds(markup: str) -> dict[str, str]:
    """Name → content of the folded parts of a page of claims."""
    return dict(
        re.findall(r'<details class="pf-ledger[^"]*" id="claims-([^"]+)"[^>]*>(.*?)</details>', markup, re.DOTALL)
    )


def ids(markup: str) -> list[str]:
    return re.findall(r"<code>(?:<a [^>]*>)?(\d{3}-\w+-\d+)", markup)


@pytest.mark.parametrize("stem", STEMS)
def test_a_chapter_says_how_long_it_takes_and_so_does_the_front_page(page, stem):
    n_minutes = minutes(CHAPTERS / f"{stem}.ipynb")
    assert f"About {n_minutes} minutes to read." in words(page(f"chapters/{stem}"))[:300]
    rows = [row.partition("</tr")[0] for row in page("index").split("<tr")]
    (row,) = [row for row in rows if f"chapters/{stem}.html" in row and " min<" in row]
    assert words(row).endswith(f"? {n_minutes} min")


def test_the_front_page_lists_the_chapters_in_order(page):
    rows = [words(row) for row in page("index").split("<tr") if " min<" in row]
    assert [int(re.search(r"\d+", row.partition(">")[2])[0]) for row in rows] == list(range(1, len(STEMS) + 1))


def test_every_claim_stands_once_among_the_checked_or_the_unchecked(page):
    parts = folds(page("chapters/appendix/numbers"))
    listed = Counter(name for part in (*STEMS, "unchecked") for name in ids(parts[part]))
    assert listed == Counter(row.id for row in ROWS)
    for stem in STEMS:
        assert ids(parts[stem]) == [row.id for row in ROWS if row.chapter == stem]


def test_every_error_of_the_texts_stands_among_the_errors_with_its_note(page):
    parts = folds(page("chapters/appendix/numbers"))
    for source in sorted({row.source for row in ROWS}):
        wrong = [row for row in ROWS if row.source == source and ledger_page.is_wrong(row)]
        assert ids(parts[source]) == [row.id for row in wrong]
        text = words(parts[source])
        assert all(row.note.split(". ")[0].casefold().rstrip(".") in text.casefold() for row in wrong)


def test_every_checked_claim_leads_to_its_badge(page):
    for name, part in folds(page("chapters/appendix/numbers")).items():
        links = re.findall(r'<code><a href="([^"]+)">', part)
        assert all(re.fullmatch(r"\.\./\d\d_\w+\.html(#claim-\d{3}-\w+-\d+)?", link) for link in links), name


@pytest.mark.parametrize("stem", STEMS)
def test_every_claim_shows_its_badge_unless_its_cell_is_left_out_on_purpose(page, stem, tmp_path):
    notebook = json.loads((CHAPTERS / f"{stem}.ipynb").read_text(encoding="utf-8"))
    left_out = [cell for cell in notebook["cells"] if "remove-cell" in cell["metadata"].get("tags", ())]
    (tmp_path / "left_out.ipynb").write_text(json.dumps({"cells": left_out}), encoding="utf-8")
    anchors = re.findall(r'<code id="claim-([^"]+)"', page(f"chapters/{stem}"))
    assert sorted(anchors + called(tmp_path / "left_out.ipynb")) == sorted(r.id for r in ROWS if r.chapter == stem)


def test_the_counts_add_up(page):
    table = re.search(r'<table class="pf-counts".*?</table>', page("chapters/appendix/numbers"), re.DOTALL)[0]
    lines = [list(map(int, re.findall(r'class="pf-number">(\d+)', line))) for line in table.split("<tr")]
    *sources, together = [line for line in lines if line]
    assert [sum(column) for column in zip(*sources)] == together
    assert together[-1] == sum(together[:-1]) == len(ROWS)


def test_corrections_list_every_corrected_claim(page):
    part = folds(page("chapters/appendix/corrections"))["corrected"]
    assert ids(part) == [row.id for row in ROWS if row.corrected]


def test_texts_of_the_ledger_are_escaped():
    texts = dict.fromkeys(("section", "stated", "computed", "verdict"), "<i>")
    row = Row(
        id="000-x-1", source="000", claim="<b>a & b", rule="unchecked", chapter="", note="<u>MISLEADING</u>", **texts
    )
    markup = ledger_page._unchecked((row,), {})
    assert not re.findall(r"<[biu]>", markup) and "&lt;b&gt;a &amp; b" in markup and "Misleading" in markup


def test_a_wrong_use_of_a_directive_fails_the_build(build_damaged):
    wrong = {"claims} everything": "claims takes one of", "chapters}\n16_none: Is it?": "16_none"}
    wrong["chapters}\n01_tokens"] = "stem: question"

    def damage(folder: Path) -> None:
        with (folder / "index.md").open("a", encoding="utf-8") as front:
            front.writelines(f"\n```{{{text}\n```\n" for text in wrong)

    book = build_damaged(damage)
    assert book.code != 0 and not [complaint for complaint in wrong.values() if complaint not in book.messages]
