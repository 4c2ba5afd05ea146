"""The book as one PDF, printed once and then opened page by page: nothing is cut, unset, untagged or missing."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from classroom import paper

pypdfium2 = pytest.importorskip("pypdfium2")
pdfium = pypdfium2.raw

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
POINTS = 72 / 25.4  # in a millimetre
SIDE, TOP, BOTTOM = (mm * POINTS for mm in (20, 22, 20))  # the margins that paper.css sets
HIDDEN = {"remove-input", "remove-cell"}


def run_paper(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "classroom.paper", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


@pytest.fixture(scope="module")
def printed(book, browser, tmp_path_factory) -> Path:
    """The PDF that `make pdf` writes; the browser is asked for so that without one the tests are skipped."""
    assert book.code == 0, book.messages
    folder = tmp_path_factory.mktemp("paper")
    done = run_paper("--site", str(book.html), "--output", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    path = folder / "_build" / "pdf" / "plainformer.pdf"
    assert str(path) in done.stdout.strip().splitlines()[-1]
    return path


@pytest.fixture(scope="module")
def pdf(printed):
    document = pypdfium2.PdfDocument(printed)
    yield document
    document.close()


@pytest.fixture(scope="module")
def assembled(book) -> str:
    return paper.assemble(ROOT, book.html)


@dataclass(frozen=True)
class Sheet:
    """What stands on one page: its text between the margins, above and below them, and whatever reaches into them."""

    body: str
    head: str
    foot: str
    beyond: list[str]


@pytest.fixture(scope="module")
def sheets(pdf) -> list[Sheet]:
    width, height = pdf[0].get_size()
    found = []
    for page in pdf:
        assert page.get_size() == (width, height)
        text = page.get_textpage()
        rectangles = [text.get_rect(index) for index in range(text.count_rects())]
        beyond = [text.get_text_bounded(*box) for box in rectangles if reaches_out(box, width)]
        for item in page.get_objects(filter=[pdfium.FPDF_PAGEOBJ_IMAGE, pdfium.FPDF_PAGEOBJ_FORM], max_depth=1):
            if reaches_out(item.get_bounds(), width):
                beyond.append(f"a picture or formula: {item.get_bounds()}")
        sheet = Sheet(
            text.get_text_bounded(bottom=BOTTOM - 2, top=height - TOP + 2),
            text.get_text_bounded(bottom=height - TOP + 4).strip(),
            text.get_text_bounded(top=BOTTOM - 4).strip(),
            beyond,
        )
        found.append(sheet)
    return found


def reaches_out(box: tuple[float, float, float, float], width: float) -> bool:
    left, _, right, _ = box
    return left < SIDE - 3 or right > width - SIDE + 3


@pytest.fixture(scope="module")
def texts(sheets) -> list[str]:
    return [sheet.body for sheet in sheets]


def squash(text: str) -> str:
    """Without spaces and line ends, and without hyphens, which the reader of the PDF takes for broken words."""
    return re.sub(r"[\s\N{SOFT HYPHEN}\x02\ufffe\N{NO-BREAK SPACE}-]+", "", text)


def elements(page):
    """(type, alternative text) of each element in the structure of a page."""

    def text(read, element) -> str:
        length = read(element, None, 0)
        buffer = ctypes.create_string_buffer(length)
        read(element, buffer, length)
        return buffer.raw.decode("utf-16-le").rstrip("\0")

    tree = pdfium.FPDF_StructTree_GetForPage(page)
    waiting = [
        pdfium.FPDF_StructTree_GetChildAtIndex(tree, i) for i in range(pdfium.FPDF_StructTree_CountChildren(tree))
    ]
    while waiting:
        element = waiting.pop()
        if not element:
            continue
        kind = text(pdfium.FPDF_StructElement_GetType, element)
        yield kind, text(pdfium.FPDF_StructElement_GetAltText, element) if kind == "Figure" else ""
        n_children = pdfium.FPDF_StructElement_CountChildren(element)
        waiting += [pdfium.FPDF_StructElement_GetChildAtIndex(element, i) for i in range(n_children)]
    pdfium.FPDF_StructTree_Close(tree)


@pytest.fixture(scope="module")
def structure(pdf) -> tuple[Counter, set[str]]:
    """How often each type of element occurs, and what the pictures and formulas are called."""
    kinds, names = Counter(), set()
    for page in pdf:
        for kind, name in elements(page):
            kinds[kind] += 1
            names.add(name)
    return kinds, names


def test_outline_has_every_part_page_and_section(pdf, assembled):
    outline = [(entry.level + 1, " ".join(entry.get_title().split())) for entry in pdf.get_toc()]
    headings = re.findall(r"<h([1-6])[^>]*>(.*?)</h\1>", assembled, flags=re.DOTALL)
    expected = [
        (int(level), " ".join(paper.html.unescape(re.sub(r"<[^>]+>", "", text)).split())) for level, text in headings
    ]
    assert outline == expected
    assert [text for level, text in outline if level == 1][2:] == [caption for caption, _ in paper.contents(ROOT)[1:]]
    assert sum(level == 2 and text[0].isdigit() for level, text in outline) == 15


def test_outline_leads_to_the_page_of_the_heading(pdf, texts):
    for entry in pdf.get_toc():
        assert squash(entry.get_title()) in squash(texts[entry.get_dest().get_index()]), entry.get_title()


def test_is_tagged_and_says_what_it_is(pdf, structure):
    kinds, _ = structure
    assert pdfium.FPDFCatalog_IsTagged(pdf)
    assert pdf.get_metadata_value("Title").startswith("plainformer")
    assert {"H1", "H2", "H3", "P", "L", "LI", "Table", "TH", "TD", "Figure", "Link"} <= set(kinds)


def test_every_formula_and_picture_is_there_and_has_a_text(structure, assembled):
    _, names = structure
    pictures = {paper.html.unescape(alt) for alt in re.findall(r'<img alt="([^"]+)"', assembled)}
    # pdf readers may join the words of a text anew
    said = {squash(name) for name in names}
    assert len(pictures) > 30 and not [alt for alt in pictures if squash(alt) not in said]
    formulas = re.findall(r'class="math[^>]*>\\[(](.*?)\\[)]<', assembled)
    assert len(formulas) > 500
    unset = {formula for formula in map(paper.html.unescape, formulas) if squash(formula) not in said}
    assert not unset


@pytest.fixture(scope="module")
def code() -> list[tuple[str, str]]:
    """(page, line) for every line of every cell that readers see."""
    lines = []
    for _, pages in paper.contents(ROOT):
        for path in (ROOT / f"{name}.ipynb" for name in pages):
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.is_file() else []
            for cell in cells:
                if cell["cell_type"] == "code" and not HIDDEN & set(cell["metadata"].get("tags", ())):
                    lines += [(path.name, line) for line in "".join(cell["source"]).splitlines() if line.strip()]
    return lines


def test_no_tex_and_no_markup_is_left_in_the_text(texts, code):
    source = squash("".join(line for _, line in code))
    wrong = [
        f"page {number}: {line}"
        for number, text in enumerate(texts, start=1)
        for line in text.splitlines()
        if re.search(r"\\\(|\\\[|\\begin\{|\{[a-z:]+\}`", line) and squash(line) not in source
    ]
    assert not wrong, "\n".join(wrong)


def test_no_line_of_code_is_cut(texts, code):
    """Every line of every visible cell stands in the text; a line that is wrapped counts as one."""
    whole = squash("".join(texts))
    # but for signs that a machine may have no letters for
    lines = [(page, line) for page, line in code if all(ord(letter) < 0x2E80 for letter in line)]
    missing = [f"{page}: {line}" for page, line in lines if squash(line) not in whole]
    assert len(lines) > 1000
    assert not missing, "\n".join(missing)


def test_nothing_stands_beyond_the_margins(sheets):
    beyond = [f"page {number}: {text}" for number, sheet in enumerate(sheets, start=1) for text in sheet.beyond]
    assert not beyond, "\n".join(beyond)


def test_pages_are_numbered_but_the_first(sheets):
    assert [sheet.foot for sheet in sheets] == ["", *map(str, range(2, len(sheets) + 1))]
    assert sheets[0].head == "" and len({sheet.head for sheet in sheets}) > 25


def test_letters_come_with_the_file(pdf):
    for page in list(pdf)[:: len(pdf) // 20]:
        for item in page.get_objects(filter=[pdfium.FPDF_PAGEOBJ_TEXT]):
            assert pdfium.FPDFFont_GetIsEmbedded(pdfium.FPDFTextObj_GetFont(item))


def test_no_address_of_this_machine_is_in_it(printed):
    content = printed.read_bytes()
    assert b"file:" not in content and os.fsencode(ROOT) not in content


def test_boxes_are_open_and_quizzes_show_their_answers(texts, assembled):
    assert "<details" in assembled and not re.findall(r"<details(?![^>]* open)[^>]*>", assembled)
    whole = squash("".join(texts))
    assert squash("Hide code cell source") not in whole and squash("Show code cell source") not in whole
    answers = re.findall(r"<pf-quiz.*?<summary>(.*?)</summary><ol[^>]*><li[^>]*>(.*?)<", assembled, flags=re.DOTALL)
    assert len(answers) > 40
    some = [paper.html.unescape(text.split("\\(")[0]) for _, text in answers]
    assert not [text for text in some if squash(text) not in whole]


def test_the_progress_that_a_browser_keeps_is_left_out(book, assembled):
    """No heading over nothing: the section goes, its neighbours stay, and every section that is opened is closed."""
    name = f'id="{paper.LEFT_OUT}"'
    assert name in (book.html / "index.html").read_text(encoding="utf-8")
    front = re.search(r'<section class="pf-page" id="index">(.*?)<section class="pf-page"', assembled, re.DOTALL)[1]
    headings = re.findall(r"<h2>(.*?)</h2>", front)
    assert "Your progress" not in front and "<pf-progress" not in front and paper.LEFT_OUT not in assembled
    assert headings == ["The way through", "How to read a page"]
    assert assembled.count("<section") == assembled.count("</section>")


def test_links_stay_inside_or_lead_to_the_web(assembled):
    ids = set(re.findall(r'\bid="([^"]+)"', assembled))
    links = re.findall(r'<a\b[^>]*\bhref="([^"]+)"', assembled)
    assert not [link for link in links if not link.startswith(("#", "http"))]
    assert not [link for link in links if link[0] == "#" and link[1:] not in ids]


def test_a_wrong_formula_is_not_printed(browser, book, tmp_path):
    """An unknown command is an error, not red text on paper."""
    page = tmp_path / "bad.html"
    page.write_text(
        f"<html lang='en'><title>bad</title>{paper._head(book.html)}<p class='math'>\\(\\nosuchcommand\\)</p>"
    )
    with pytest.raises(ValueError, match="1 formulas"):
        paper.print_pdf(browser, page, tmp_path / "bad.pdf")
    assert not (tmp_path / "bad.pdf").exists()


def test_without_a_browser_it_says_how_to_get_one(book, tmp_path):
    nowhere = {"PATH": str(tmp_path), "PLAINFORMER_CHROMIUM": "", "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path)}
    done = run_paper("--site", str(book.html), "--output", str(tmp_path), **nowhere)
    assert done.returncode == 1
    assert "playwright install chromium" in done.stderr and "Traceback" not in done.stderr
