"""The site as one archive: unpacked anywhere, it opens from its file with the network off, and is the site whole."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from classroom import archive
from classroom.chromium import visit


@pytest.fixture(scope="module")
def packed(book, tmp_path_factory) -> Path:
    """The archive that `make site` writes."""
    assert book.code == 0, book.messages
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "classroom.archive", "--site", str(book.html), "--output", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    path = folder / "_build" / "site" / "plainformer.zip"
    assert str(path) in done.stdout and "open-me.html" in done.stdout
    return path


def test_holds_every_page_and_the_licences(packed, book):
    with zipfile.ZipFile(packed) as opened:
        names = opened.namelist()
        assert opened.testzip() is None
    assert {name.split("/")[0] for name in names} == {archive.FOLDER}
    assert {f"plainformer/{page.relative_to(book.html).as_posix()}" for page in book.pages} <= set(names)
    assert {"plainformer/open-me.html", "plainformer/LICENSE", "plainformer/LICENSE-text"} <= set(names)
    assert not [name for name in names if "/." in name]


def test_the_same_pages_give_the_same_bytes(packed, book, tmp_path):
    archive.pack(book.html, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == packed.read_bytes()


@pytest.mark.browser
def test_opens_by_double_click_wherever_it_is_unpacked(packed, browser, tmp_path):
    """From the file at the top to a chapter and to the search, in a folder whose name has a blank and an accent."""
    folder = tmp_path / "mes téléchargements"
    with zipfile.ZipFile(packed) as opened:
        opened.extractall(folder)
    with visit(browser, folder / "plainformer" / "index.html") as opened:
        page = opened.page
        page.goto((folder / "plainformer" / "open-me.html").as_uri())
        page.wait_for_url("**/plainformer/index.html")
        page.get_by_role("link", name="Attention", exact=True).first.click()
        page.wait_for_url("**/chapters/02_attention.html")
        page.wait_for_function("() => document.querySelector('.math mjx-container svg')")
        page.goto((folder / "plainformer" / "search.html").as_uri() + "?q=attention")
        page.locator("#search-results a[href*='02_attention']").first.click()
        page.wait_for_url("**/chapters/02_attention.html*")
        assert not opened.errors and not opened.requests


def test_a_folder_without_pages_is_refused(tmp_path):
    command = [sys.executable, "-m", "classroom.archive", "--site", str(tmp_path), "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "index.html" in done.stderr
    assert not (tmp_path / "_build").exists()
