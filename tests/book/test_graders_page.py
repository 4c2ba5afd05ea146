"""The table of the graders' trial, as the instructor guide shows it."""

import json
import re
from html import unescape

from classroom import graders_page
from classroom.site import ROOT

RECORD = {
    "points": 4,
    "by_hand": 0,
    "checks": 2,
    "reference": 4,
    "styles": {"loops": 4, "terse": 3.5},
    "untouched": 0,
    "broken": 0,
    "tried": 3,
    "rejected": 3,
    "named": 2,
    "false_accepts": 0,
    "false_rejects": 1,
    "slips": {"first": ["a < b: use `min`"], "second": ["one", "two"]},
}


def rows(markup: str) -> list[list[str]]:
    """The text of the cells, row by row."""
    lines = re.findall(r"<tr.*?</tr>", markup)
    return [[unescape(re.sub(r"<[^>]*>", "", cell)) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in lines]


def test_each_assignment_has_a_row_and_they_add_up():
    _, one, other, together = rows(graders_page.page({"01_one": RECORD, "02_two": RECORD}))
    assert one == ["01_one", "2", "4", "4 4 3.5", "0", "0", "3", "3", "2", "0", "1"]
    assert other == ["02_two", *one[1:]]
    assert together == ["together", "4", "8", "4 full", "0", "0", "6", "6", "4", "0", "2"]


def test_every_wrong_answer_stands_under_its_check():
    markup = graders_page.page({"01_one": RECORD})
    assert markup.count("<details") == 1 and "01_one: 3 wrong answers by check" in markup
    assert "<dt><code>first</code></dt><dd><ul><li>a &lt; b: use <code>min</code></li></ul></dd>" in markup


def test_the_committed_table_can_be_shown():
    records = json.loads((ROOT / "chapters" / "data" / "graders.json").read_text(encoding="utf-8"))
    assert len(rows(graders_page.page(records))) == len(records) + 2
