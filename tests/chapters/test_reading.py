"""Reading time is counted from a page's own words, and no chapter asks for more than half an hour."""

import json

import pytest

from classroom import reading
from classroom.ledger import STEMS, ledger_path

CHAPTERS = ledger_path().parent


def notebook(path, *cells):
    kinds = [{"cell_type": kind, "source": text.splitlines(keepends=True)} for kind, text in cells]
    path.write_text(json.dumps({"cells": kinds}), encoding="utf-8")
    return path


@pytest.mark.parametrize("stem", STEMS)
def test_a_chapter_is_read_in_half_an_hour(stem):
    assert 1 < reading.minutes(CHAPTERS / f"{stem}.ipynb") <= 30


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("", 0),
        ("One two, three.", 3),
        ("# Title\n\n- a – b\n* * *\n", 3),
        ("the {glue:text}`name` of it", 4),
        ("$a + b$ is two terms", 5),
    ],
)
def test_words(text, n):
    assert reading.words(text) == n


def test_minutes_are_rounded_up_and_code_is_not_counted(tmp_path):
    path = tmp_path / "03_heads.ipynb"
    assert reading.minutes(notebook(path, ("markdown", "# T\n" + "word " * 399), ("code", "x = 1\n" * 900))) == 2
    assert reading.minutes(notebook(path, ("markdown", "# T\n" + "word " * 400))) == 3
    page = tmp_path / "page.md"
    page.write_text("# T\n" + "word " * 199)
    assert reading.minutes(page) == 1 and reading.title(page) == "T"


def test_a_page_without_a_title_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"03_heads\.ipynb has no heading"):
        reading.title(notebook(tmp_path / "03_heads.ipynb", ("markdown", "text")))
