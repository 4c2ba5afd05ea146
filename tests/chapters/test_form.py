"""Every chapter has the parts that a reader relies on: a question, costs, quizzes, takeaways, sources, what is next."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter

import pytest

from classroom.ledger import STEMS, ledger_path

CHAPTERS = ledger_path().parent


def cells(stem: str) -> list[dict]:
    found = json.loads((CHAPTERS / f"{stem}.ipynb").read_text(encoding="utf-8"))["cells"]
    return [{**cell, "source": "".join(cell["source"])} for cell in found]


def prose(stem: str) -> str:
    return "\n\n".join(cell["source"] for cell in cells(stem) if cell["cell_type"] == "markdown")


def section(text: str, name: str) -> str:
    """What stands under a heading, up to the next one of its level."""
    found = re.search(rf"^## {re.escape(name)}[^\n]*\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def bullets(text: str) -> int:
    return len(re.findall(r"^[-*] \S", text, re.MULTILINE))


def quizzes(stem: str) -> list[tuple[int, int]]:
    """(right answer, number of answers) of each quiz."""
    found = []
    for cell in cells(stem):
        if cell["cell_type"] == "code" and "quiz(" in cell["source"]:
            for node in ast.walk(ast.parse(cell["source"])):
                if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "quiz":
                    (right,) = (word.value.value for word in node.keywords if word.arg == "right")
                    found.append((right, len(node.args) - 1))
    return found


def pictures(stem: str) -> list[dict]:
    """The metadata of the cells that show a picture."""
    shown = []
    for cell in cells(stem):
        outputs = cell.get("outputs", [])
        if any(kind.startswith("image/") for output in outputs for kind in output.get("data", ())):
            shown.append({"id": cell["id"], **cell["metadata"].get("mystnb", {})})
    return shown


@pytest.mark.parametrize("stem", STEMS)
def test_a_chapter_opens_with_a_question_and_a_promise(stem):
    first = cells(stem)[0]
    assert first["cell_type"] == "markdown" and first["source"].startswith("# ")
    assert re.search(r"\*\*[^*]+\?\*\*", first["source"]), "a question in bold"
    assert 3 <= bullets(first["source"]) <= 5, "what the reader can do afterwards"


@pytest.mark.parametrize("stem", STEMS)
def test_a_chapter_has_all_its_parts(stem):
    text = prose(stem)
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    at_the_end = ["What it costs", "Check yourself", "Takeaways", "Exercises"]
    assert [heading for heading in headings if heading in at_the_end] == at_the_end
    assert headings[-3:] == at_the_end[-3:]
    assert 4 <= bullets(section(text, "Takeaways")) <= 6
    assert re.search(r"^\*\*Sources\.\*\*.*\{cite:", text, re.DOTALL | re.MULTILINE)
    assert "**Next.**" in text or stem == STEMS[-1]
    assert "You may be wondering" in text


@pytest.mark.parametrize("stem", STEMS)
def test_paper_exercises_have_their_solutions(stem):
    text = prose(stem)
    exercises = re.findall(r"^`{3,}\{exercise\}[^\n]*\n:label: (\S+)", text, re.MULTILINE)
    solutions = re.findall(r"^`{3,}\{solution\} (\S+)\n:class: dropdown", text, re.MULTILINE)
    assert len(exercises) >= 2 and sorted(exercises) == sorted(solutions)


@pytest.mark.parametrize("stem", STEMS)
def test_quizzes_are_three_or_more_and_the_right_answers_move(stem):
    found = quizzes(stem)
    assert len(found) >= 3
    assert all(answers >= 3 for _, answers in found)
    assert len({right for right, _ in found}) > 1, "the right answer always stands at the same place"


def test_over_the_book_no_place_is_the_usual_one():
    places = Counter(right for stem in STEMS for right, _ in quizzes(stem))
    assert max(places.values()) < sum(places.values()) * 0.6, places


@pytest.mark.parametrize("stem", STEMS)
def test_every_picture_has_a_caption_a_name_and_a_text(stem):
    for picture in pictures(stem):
        figure, alt = picture.get("figure", {}), picture.get("image", {}).get("alt", "")
        assert figure.get("caption") and figure.get("name", "").startswith("fig-"), picture["id"]
        assert len(alt.split()) >= 5 and alt != figure["caption"], f"{picture['id']}: what is to be seen?"


def test_a_label_names_one_thing():
    labels = Counter(picture["figure"]["name"] for stem in STEMS for picture in pictures(stem) if "figure" in picture)
    for stem in STEMS:
        labels.update(re.findall(r"^:label: (\S+)", prose(stem), re.MULTILINE))
        labels.update(re.findall(r"\$\$\s*\((eq-[\w-]+)\)", prose(stem)))
    assert not [label for label, times in labels.items() if times > 1]


def test_hardly_a_chapter_is_without_a_picture():
    without = [stem for stem in STEMS if not pictures(stem)]
    assert len(without) <= 2, without


@pytest.mark.parametrize("stem", STEMS)
def test_a_claim_stands_last_in_its_cell_so_that_its_badge_shows(stem):
    """A cell shows its last expression alone. A cell that the page leaves out may claim anywhere."""
    for number, cell in enumerate(cells(stem)):
        if cell["cell_type"] != "code" or "remove-cell" in cell["metadata"].get("tags", []):
            continue
        statements = ast.parse(cell["source"]).body
        claiming = [n for n, statement in enumerate(statements) if makes_claim(statement)]
        assert claiming in ([], [len(statements) - 1]), f"cell {number}"


def makes_claim(statement: ast.stmt) -> bool:
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(getattr(call.func, "id", "") in ("claim", "claims") for call in calls)
