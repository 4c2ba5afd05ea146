"""The readers' site gives no solution away, in any file; the instructors' edition has them all."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zlib
from html import unescape
from pathlib import Path

import nbformat
import pytest
from sphinx.search.en import SearchEnglish

from classroom import worked

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = sorted((ROOT / "solutions").glob("*/*.ipynb"))
STEMS = [path.stem for path in SOLUTIONS]
NOT_TEXT = {".png", ".svg", ".ico", ".woff", ".woff2", ".ttf", ".jpg", ".gif", ".pdf"}
TOKENS = ["### BEGIN SOLUTION", "### BEGIN HIDDEN", "=== BEGIN MARK", '"grade_id"', "hidden_test("]
# Lines of an answer that a chapter teaches, or that anybody writes. A line of the library needs no place here.
TAUGHT = {
    "for block in model.blocks:",
    "chance = torch.Generator().manual_seed(3)",
    "rows = []",
    "found = []",
    "keys, values = [], []",
    "return result",
    "other = ids.clone()",
    "model(ids)",
    "config = preset(name)",
    'mixtral = preset("mixtral-8x7b")',
    "loss = next_token_loss(model(ids[:, :-1]), ids)",
    "m = beta_1 * m + (1 - beta_1) * g",  # chapter 12, word for word: Adam's two means
    "v = beta_2 * v + (1 - beta_2) * g * g",
}


def plain(line: str) -> str:
    return " ".join(line.split())


def sources(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]


def lines_of(paths) -> set[str]:
    """Every line of the cells of notebooks, or of modules."""
    texts = [text for p in paths for text in (sources(p) if p.suffix == ".ipynb" else [p.read_text("utf-8")])]
    return {plain(line) for text in texts for line in text.splitlines()}


def secret_parts() -> list[str]:
    """Every answer, hidden test and marking scheme of solutions/."""
    regions = re.compile(
        r"### BEGIN (SOLUTION|HIDDEN TESTS)\n(.*?)### END \1|=== BEGIN (MARK SCHEME) ===\n(.*?)=== END \3 ===",
        re.DOTALL,
    )
    return [match[2] or match[4] for path in SOLUTIONS for text in sources(path) for match in regions.finditer(text)]


@pytest.fixture(scope="module")
def secret() -> set[str]:
    """Lines that no reader may see: none that students get, that the library has, or that a chapter teaches."""
    shown = lines_of([*(ROOT / "exercises").glob("*/*.ipynb"), *(ROOT / "lib" / "plainformer").glob("*.py")])
    lines = {plain(line) for part in secret_parts() for line in part.splitlines()}
    return {line for line in lines if len(line) > 6} - shown - TAUGHT


@pytest.fixture(scope="module")
def secret_words() -> set[str]:
    """Stems of names that stand in answers alone, as the search of the site would list them."""
    public = [ROOT / "index.md", *(ROOT / "chapters").rglob("*.md"), *(ROOT / "chapters").rglob("*.ipynb")]
    public += [*(ROOT / "exercises").glob("*/*.ipynb"), *(ROOT / "lib").rglob("*.py")]
    texts = " ".join(path.read_text(encoding="utf-8") for path in public).lower()
    names = {name.lower() for part in secret_parts() for name in re.findall(r"[A-Za-z_]{6,}", part)}
    stem = SearchEnglish({}).stem
    return {stem(name) for name in names if name not in texts and stem(name) not in texts}


def read(path: Path) -> str:
    """The text of a file of the site as a reader sees it: a page without its tags, an inventory unpacked."""
    data = path.read_bytes()
    if path.name == "objects.inv":
        head, _, body = data.partition(b"zlib.\n")
        return (head + zlib.decompress(body)).decode("utf-8")
    text = data.decode("utf-8", errors="replace")
    if path.suffix == ".html":
        return unescape(re.sub(r"<[^>]*>", "", text))
    if path.suffix == ".ipynb":
        return "\n".join(sources(path)) + "\n" + re.sub(r'"source": \[.*?\]', "", text, flags=re.DOTALL)
    return text


def leaks(site: Path, secret: set[str], words: set[str]) -> list[str]:
    """What of the solutions stands in the files of a site."""
    library = " ".join(plain(path.read_text("utf-8")) for path in (ROOT / "lib" / "plainformer").glob("*.py"))
    long = [line for line in secret if len(line) >= 24 and line not in library]  # looked for within a line too
    found = []
    for path in sorted(p for p in site.rglob("*") if p.is_file()):
        name = path.relative_to(site).as_posix()
        if {"solutions", "exercises", "grading", worked.PAGES} & set(path.relative_to(site).parts):
            found.append(f"{name}: a file of another place")
        if path.suffix in NOT_TEXT or name.startswith("_static/mathjax/"):
            continue
        raw, text = path.read_bytes().decode("utf-8", errors="replace"), read(path)
        found += [f"{name}: {token}" for token in TOKENS if token in raw or token in text]
        found += [f"{name}: {line}" for line in secret & {plain(line) for line in text.splitlines()}]
        if not name.startswith("_static/"):
            whole = plain(text)
            found += [f"{name}: {line}" for line in long if line in whole]
        if path.name == "searchindex.js":
            index = set(re.findall(r'"?([\w-]+)"?:', text))
            found += [f"{name}: the word {word}" for word in words & index]
            pages = re.findall(r'"([^"]*)"', re.search(r'"?docnames"?:\s*\[(.*?)\]', text)[1])
            found += [f"{name}: the page {page}" for page in pages if not re.match(r"(index|search)$|chapters/", page)]
    return found


def test_there_is_something_to_look_for(secret, secret_words):
    assert len(secret) > 500 and len(secret_words) > 10


def test_the_site_for_readers_holds_nothing_of_the_solutions(book, secret, secret_words):
    assert book.code == 0, book.messages
    names = {path.name for path in book.html.rglob("*")}
    assert {"searchindex.js", "objects.inv", "09_parameters.ipynb", "09_parameters.html"} <= names
    found = leaks(book.html, secret, secret_words)
    assert not found, "If a chapter teaches this line, name it in TAUGHT.\n" + "\n".join(found)


def a_page(site: Path, line: str) -> None:
    page = site / "chapters" / "09_parameters.html"
    tokens = "".join(f'<span class="n">{part.replace("<", "&lt;")}</span>' for part in re.split(r"(\W)", line))
    page.write_text(page.read_text("utf-8").replace("</article>", f"<pre>    {tokens}\n</pre></article>"), "utf-8")


def a_source(site: Path, line: str) -> None:
    path = site / "_sources" / "chapters" / "09_parameters.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[3].source += f"\n    {line}"
    nbformat.write(notebook, path)


def an_output(site: Path, line: str) -> None:
    path = site / "_sources" / "chapters" / "09_parameters.ipynb"
    notebook = nbformat.read(path, as_version=4)
    code = next(cell for cell in notebook.cells if cell.cell_type == "code")
    code.outputs = [nbformat.v4.new_output("stream", text=line)]
    nbformat.write(notebook, path)


def a_download(site: Path, line: str) -> None:
    (site / "_downloads").mkdir()
    shutil.copy(SOLUTIONS[0], site / "_downloads" / "data.bin")


def a_folder(site: Path, line: str) -> None:
    shutil.copytree(ROOT / "exercises" / "09_parameters", site / "exercises")


def an_inventory(site: Path, line: str) -> None:
    path = site / "objects.inv"
    head, _, body = path.read_bytes().partition(b"zlib.\n")
    entry = f"x std:label -1 index.html {line}\n".encode()
    path.write_bytes(head + b"zlib.\n" + zlib.compress(zlib.decompress(body) + entry))


@pytest.mark.parametrize("plant", [a_page, a_source, an_output, a_download, a_folder, an_inventory])
def test_a_planted_leak_is_found(book, tmp_path, plant, secret, secret_words):
    site = tmp_path / "site"
    for name in ("chapters/09_parameters.html", "_sources/chapters/09_parameters.ipynb", "objects.inv"):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(book.html / name, site / name)
    assert leaks(site, secret, secret_words) == []
    line = "mlp_block = (inward + 1) * d_model * d_ff + (inward * d_ff + d_model if bias else 0)"
    assert line in secret
    plant(site, line)
    assert leaks(site, secret, secret_words)


@pytest.mark.parametrize(
    "text",
    [
        'docnames:["index"],terms:{%s:3}',
        'docnames:["index"],terms:{"%s":[1]}',
        'docnames:["index","other/09_parameters"]',
    ],
)
def test_a_leak_in_the_search_is_found(tmp_path, secret_words, text):
    (tmp_path / "searchindex.js").write_text(text.replace("%s", min(secret_words)))
    assert leaks(tmp_path, set(), secret_words)


# ---- the instructors' edition ----


@pytest.fixture(scope="module")
def edition(tmp_path_factory):
    """The folder of the edition, what the command printed, and what else lies beside it."""
    output = tmp_path_factory.mktemp("edition")
    command = [sys.executable, "-m", "classroom.site", "--solutions", "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    return output / "_build" / "instructor", done.stdout + done.stderr


def test_it_is_built_without_a_warning_into_a_folder_of_its_own(edition):
    site, said = edition
    assert "WARNING" not in said and "ERROR" not in said
    assert [path.name for path in site.parent.iterdir()] == ["instructor"]  # and no site for readers
    assert "Do not publish" in said and said.strip().endswith(f"({(site / 'index.html').as_uri()})")


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_it_has_a_page_for_each_solution_with_everything(edition, path):
    page = edition[0] / worked.PAGES / f"{path.stem}.html"
    article = page.read_text("utf-8").split("<article", 1)[1].split("</article>")[0]
    text = read(page)
    there = {plain(line) for line in text.splitlines()}
    answers = [re.findall(r"### BEGIN SOLUTION\n(.*?)### END", source, re.DOTALL) for source in sources(path)]
    lines = {plain(line) for parts in answers for part in parts for line in part.splitlines()}
    assert len(lines) > 10 and lines <= there
    assert "For instructors only" in text and worked.WARNING in text
    n_hidden = sum("### BEGIN HIDDEN TESTS" in source for source in sources(path))
    assert article.count("Show hidden tests") == n_hidden
    assert "with check.hidden_test():" in there or not n_hidden
    assert article.count("✓") == sum("✓" in json.dumps(c, ensure_ascii=False) for c in outputs(path))
    for mark in ("BEGIN", "END"):
        assert f"### {mark}" not in text and f"=== {mark}" not in text


def outputs(path: Path) -> list:
    return [out for cell in json.loads(path.read_text("utf-8"))["cells"] for out in cell.get("outputs", [])]


def test_the_marking_scheme_is_folded(edition):
    page = (edition[0] / worked.PAGES / "06_norms.html").read_text("utf-8")
    assert re.search(r'class="[^"]*\bdropdown\b[^"]*">\s*<p class="admonition-title">Marking scheme', page)


def test_every_page_of_it_says_what_it_is(edition):
    for page in (edition[0] / "index.html", edition[0] / "chapters" / "09_parameters.html"):
        assert worked.WARNING in read(page) and "instructors' edition" in read(page)


def test_a_folder_without_solutions_is_refused(tmp_path):
    shutil.copy(ROOT / "_config.yml", tmp_path)
    command = [sys.executable, "-m", "classroom.site", "--solutions", "--source", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "no solutions/" in done.stderr


def test_a_chapter_links_its_exercise():
    unlinked = []
    for stem in STEMS:
        chapter = ROOT / "chapters" / f"{stem}.ipynb"
        where = sources(chapter) if chapter.is_file() else [(ROOT / "chapters/appendix/students.md").read_text("utf-8")]
        cells = [text for text in where if "## Exercises" in text] if chapter.is_file() else where
        if not any(stem in text for text in cells):
            unlinked.append(stem)
    assert not unlinked
