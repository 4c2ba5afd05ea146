"""The book built once from a clean start for all tests of this folder, and a browser without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from classroom.chromium import MISSING, find_chromium, install_chromium, launch

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ["_config.yml", "_toc.yml", "index.md", "chapters"]


@dataclass(frozen=True)
class Book:
    """A finished build: the folder of its pages, the exit code, and what Sphinx wrote to stderr."""

    html: Path
    code: int
    messages: str

    @property
    def pages(self) -> list[Path]:
        """Every page a reader can open; files below _static are parts of the theme."""
        return sorted(p for p in self.html.rglob("*.html") if "_static" not in p.relative_to(self.html).parts)


def run_builder(source: Path, output: Path) -> Book:
    """Run `python -m classroom.site` as a user does, on the book in `source`."""
    command = [sys.executable, "-m", "classroom.site", "--source", str(source), "--output", str(output)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, encoding="utf-8")
    return Book(output / "_build" / "html", done.returncode, done.stdout + done.stderr)


def copy_sources(target: Path) -> Path:
    """Copy what the book is made of, for a test that damages it."""
    target.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
        else:
            shutil.copy(source, target / name)
    return target


@pytest.fixture(scope="session")
def book(tmp_path_factory) -> Book:
    """The book of this repository, built once and shared by all workers; the user's _build stays as it is."""
    base = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        base = base.parent
    folder = base / "book"
    with FileLock(base / "book.lock"):
        done = folder / "done"
        if not done.exists():
            built = run_builder(ROOT, folder)
            folder.mkdir(exist_ok=True)
            done.write_text(f"{built.code}\n{built.messages}", encoding="utf-8")
        code, _, messages = done.read_text(encoding="utf-8").partition("\n")
    return Book(folder / "_build" / "html", int(code), messages)


@pytest.fixture
def build_damaged(tmp_path):
    """A function: copy the book's sources, let `damage(folder)` change them, build the copy."""

    def build(damage) -> Book:
        source = copy_sources(tmp_path / "source")
        damage(source)
        return run_builder(source, tmp_path / "output")

    return build


@pytest.fixture(scope="session")
def browser(tmp_path_factory, patiently):
    """Headless Chromium. Without one the tests are skipped, except where CI=true: there they fail."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = find_chromium(playwright)
        if path is None:
            with FileLock(tmp_path_factory.getbasetemp().parent / "apt.lock"):
                path = find_chromium(playwright)
                if path is None:
                    install_chromium()
                    path = find_chromium(playwright)
        if path is None:
            if os.environ.get("CI") == "true":
                pytest.fail(MISSING)
            pytest.skip(MISSING)
        chromium = launch(playwright, path)
        yield patiently(chromium)
        chromium.close()
