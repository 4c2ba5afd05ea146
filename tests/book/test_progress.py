"""A reader's progress: kept in the browser alone, shown on the front page, saved, loaded, erased."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from classroom.chromium import RULES, visit
from classroom.elements.progress import quiz_name, quizzes
from classroom.ledger import STEMS

pytestmark = pytest.mark.browser


CHAPTERS = Path(__file__).resolve().parents[2] / "chapters"
NAMES = {stem: quizzes(CHAPTERS / f"{stem}.ipynb") for stem in STEMS}
N_QUESTIONS = sum(map(len, NAMES.values()))
STORED = "() => JSON.parse(localStorage['plainformer-progress'] || 'null')"
REFUSED = "refused"
KEPT = f"() => {{ try {{ return localStorage['plainformer-progress'] || '' }} catch {{ return '{REFUSED}' }} }}"
REFUSE = """Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('no', 'SecurityError'); }})"""


@pytest.fixture
def reader(browser, book):
    """One reader's browser: `reader(name)` goes to a page of the book, and gives the page."""
    assert book.code == 0, book.messages
    with visit(browser, book.html / "index.html") as open_page:

        def go(name: str):
            page = open_page.page
            if not page.url.endswith(f"/{name}.html"):
                go_to(page, (book.html / f"{name}.html").resolve().as_uri(), page.evaluate(KEPT))
            return page

        go.errors = open_page.errors
        yield go
        assert open_page.errors == [] and open_page.requests == []


def go_to(page, address: str, kept: str) -> None:
    """Go there, and again until it has heard what was kept: the next process of a busy browser is late."""
    until = time.monotonic() + 60
    page.goto(address)
    while page.evaluate(KEPT) not in (kept, REFUSED) and time.monotonic() < until:
        page.goto(address)


def line(page) -> str:
    return page.locator("pf-progress").get_by_role("status").inner_text()


def marked(page, stem: str):
    return page.locator(f".pf-chapters td:has(a[href*='{stem}']) .pf-mark").first


def mark(page, stem: str) -> str:
    return marked(page, stem).text_content()


def answer(page, number: int, right: bool) -> str:
    """Answer quiz `number` of the page, and give the name that the library has for it."""
    quiz = page.locator("pf-quiz").nth(number)
    data = quiz.evaluate("quiz => quiz.data")
    index = [bool(option.get("right")) for option in data["options"]].index(right)
    quiz.get_by_role("radio").nth(index).check()
    quiz.get_by_role("button", name="Check").click()
    return quiz_name(data["question"])


def box(page):
    return page.get_by_role("checkbox", name="I have read this chapter")


def test_every_quiz_has_a_name_of_its_own():
    names = [name for chapter in NAMES.values() for name in chapter]
    assert len(set(names)) == len(names) and all(3 <= len(chapter) <= 5 for chapter in NAMES.values())
    assert all(re.fullmatch("[0-9a-f]{1,8}", name) for name in names)


def test_a_new_reader_has_done_nothing_and_nothing_is_kept(reader):
    page = reader("index")
    counts = f"0 of {len(STEMS)} chapters read. 0 of {N_QUESTIONS} questions right, 0 at the first try."
    assert line(page) == counts
    assert page.locator(".pf-mark:visible").count() == 0
    assert page.evaluate(STORED) is None


def test_a_chapter_is_read_when_its_reader_says_so_and_not_when_he_takes_it_back(reader):
    page = reader("chapters/04_masks")
    page.evaluate("() => scrollTo(0, document.body.scrollHeight)")
    assert not box(page).is_checked() and page.evaluate(STORED) is None  # the end was seen: that is not reading
    box(page).focus()
    page.keyboard.press("Space")
    assert page.evaluate(STORED) == {"plainformer": {"04_masks": 1}}
    page = reader("index")
    assert mark(page, "04_masks") == "read" and line(page).startswith(f"1 of {len(STEMS)} chapters read.")
    page = reader("chapters/04_masks")
    assert box(page).is_checked()
    box(page).uncheck()
    assert line(reader("index")).startswith("0 of ")


def test_a_question_counts_as_right_at_the_first_try_later_or_not_yet(reader):
    stem = "02_attention"
    page = reader(f"chapters/{stem}")
    assert answer(page, 0, right=True) == NAMES[stem][0]
    answer(page, 0, right=False)  # trying what the other answers say takes nothing away
    answer(page, 1, right=False)
    answer(page, 1, right=True)
    answer(page, 1, right=True)
    answer(page, 2, right=False)
    assert page.evaluate(STORED) == {"plainformer": dict(zip(NAMES[stem], [3, 2, 1]))}
    assert line(page) == f"2 of {len(NAMES[stem])} questions right, 1 at the first try."
    page = reader("index")
    assert mark(page, stem) == f"2 of {len(NAMES[stem])} right"
    assert f"2 of {N_QUESTIONS} questions right, 1 at the first try." in line(page)

    page = reader(f"chapters/{stem}")  # the answer is not kept: the question is as new, its result is not
    assert page.locator("pf-quiz").first.get_by_role("radio", checked=True).count() == 0
    answer(page, 2, right=True)
    assert page.evaluate(STORED)["plainformer"][NAMES[stem][2]] == 2


def test_the_way_back_and_another_tab_show_the_present(reader):
    page = reader("index")
    page.locator(".pf-chapters a[href*='01_tokens']").click()
    box(page).check()
    page.go_back()
    expect(marked(page, "01_tokens")).to_have_text("read")
    other = page.context.new_page()
    go_to(other, page.url.replace("index.html", "chapters/03_heads.html"), page.evaluate(KEPT))
    box(other).check()
    page.wait_for_function("() => document.querySelector('pf-progress').innerText.startsWith('2 of ')")
    expect(marked(page, "03_heads")).to_have_text("read")


def test_saved_erased_after_a_question_and_loaded(reader, tmp_path):
    box(reader("chapters/01_tokens")).check()
    answer(reader("chapters/01_tokens"), 0, right=False)
    page = reader("index")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as a file").click()
    assert download.value.suggested_filename == "plainformer-progress.json"
    saved = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert saved == {"plainformer": {"01_tokens": 1, NAMES["01_tokens"][0]: 1}}

    questions = []
    page.once("dialog", lambda dialog: (questions.append(dialog.message), dialog.dismiss()))
    page.get_by_role("button", name="Erase").click()
    assert "Erase" in questions[0] and page.evaluate(STORED) == saved
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Erase").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(STORED) is None and line(page).startswith("0 of ") and mark(page, "01_tokens") == ""

    box(reader("chapters/02_attention")).check()
    answer(reader("chapters/02_attention"), 0, right=True)
    first = NAMES["02_attention"][0]
    junk = {"02_attention": 1, first: 2, "x": 7, "__proto__": {"y": 1}, "z": "<img>"}
    (tmp_path / "mine.json").write_text(json.dumps({"plainformer": {**saved["plainformer"], **junk}}))
    page = reader("index")
    load(page, tmp_path / "mine.json")
    assert line(page).startswith(f"2 of {len(STEMS)} chapters read. 1 of {N_QUESTIONS}") and "Loaded." in line(page)
    # the file adds, and the better of two results stays
    assert page.evaluate(STORED) == {"plainformer": {**saved["plainformer"], "02_attention": 1, first: 3}}


def load(page, path: Path) -> None:
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Load a file").click()
    chooser.value.set_files(path)
    page.wait_for_function("() => /Loaded|That file/.test(document.querySelector('pf-progress').innerText)")


@pytest.mark.parametrize("text", ["no JSON", "{}", "[1]", '{"plainformer": null}', "null"])
def test_a_file_of_something_else_changes_nothing(reader, tmp_path, text):
    box(reader("chapters/01_tokens")).check()
    (tmp_path / "other.json").write_text(text)
    page = reader("index")
    load(page, tmp_path / "other.json")
    assert "holds no progress of this course" in line(page)
    assert page.evaluate(STORED) == {"plainformer": {"01_tokens": 1}}


def test_a_browser_that_keeps_nothing_says_so_and_all_else_works(reader):
    reader("index").context.add_init_script(REFUSE)
    page = reader("chapters/01_tokens")
    answer(page, 0, right=True)
    box(page).check()
    assert box(page).is_checked() and line(page).startswith("1 of ") and "refuses to keep" in line(page)
    assert page.locator("pf-quiz").first.get_by_role("status").inner_text().startswith("Right.")
    page = reader("index")
    assert line(page).startswith("0 of ")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Erase").click()
    # the theme's own scripts, which would keep the choice of colours, complain of that
    assert set(reader.errors) <= {"no", "Got invalid theme mode: undefined. Resetting to auto."}, reader.errors
    reader.errors.clear()


def test_what_stands_there_broken_is_no_obstacle(reader):
    page = reader("index")
    page.evaluate("() => { localStorage['plainformer-progress'] = '{broken'; }")
    page = reader("chapters/01_tokens")
    assert not box(page).is_checked()
    box(page).check()
    assert page.evaluate(STORED) == {"plainformer": {"01_tokens": 1}}


@pytest.mark.parametrize("view", ["light", "dark", "phone"])
def test_marks_and_buttons_are_accessible_and_fit(browser, book, view):
    from axe_playwright_python.sync_playwright import Axe

    with visit(browser, book.html / "index.html", view) as open_page:
        record = {"01_tokens": 1, **{name: 3 for name in NAMES["01_tokens"]}, NAMES["02_attention"][0]: 1}
        open_page.page.evaluate(
            "record => { localStorage['plainformer-progress'] = JSON.stringify({plainformer: record}); }", record
        )
        open_page.page.reload()
        open_page.page.locator("pf-progress[data-ready]").wait_for()
        n = len(NAMES["01_tokens"])
        assert mark(open_page.page, "01_tokens") == f"read, {n} of {n} right"
        for button in open_page.page.locator("pf-progress button").all():
            assert button.bounding_box()["height"] >= 24
        assert open_page.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        assert Axe().run(open_page.page, options=RULES).response["violations"] == []


def test_nothing_is_shown_where_no_script_runs(browser, book):
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    for name in ("index", "chapters/01_tokens"):
        page.goto((book.html / f"{name}.html").resolve().as_uri())
        assert page.locator("pf-progress").count() == 1 and not page.locator("pf-progress").is_visible()
    context.close()
