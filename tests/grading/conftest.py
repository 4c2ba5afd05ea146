"""A browser, boxes for students' code, and ways to wait, for the tests of this folder."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from classroom.chromium import MISSING, find_chromium, install_chromium, launch
from classroom.debian import install
from classroom.grading import marking, sandbox

PATIENCE = 120  # seconds for what takes a moment: the machine may be busy with something else


@pytest.fixture(scope="session")
def wait_until():
    """A function: return once `condition()` holds."""

    def wait(condition: Callable[[], object]) -> None:
        until = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < until, "it does not happen"
            time.sleep(0.01)

    return wait


@pytest.fixture(scope="session")
def is_gone():
    """A function: whether a process has ended. One that nobody has waited for has."""

    def ended(process: int) -> bool:
        try:
            return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    return ended


@pytest.fixture(scope="session")
def in_browser(patiently):
    """A function: call `function(browser, …)` with headless Chromium, and return what it returns.

    All calls run in one thread of their own: Playwright allows one event loop a thread, and the book's tests
    may still hold this one's. Without a browser the tests are skipped, except where CI=true: there they fail.
    """
    from playwright.sync_api import sync_playwright

    with ThreadPoolExecutor(1) as thread:

        def do(function: Callable, *arguments):
            return thread.submit(function, *arguments).result()

        playwright = do(lambda: sync_playwright().start())
        try:
            path = do(find_chromium, playwright)
            if path is None:
                install_chromium()
                path = do(find_chromium, playwright)
            if path is None:
                (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(MISSING)
            browser = patiently(do(launch, playwright, path))
            yield lambda function, *arguments: do(function, browser, *arguments)
            do(browser.close)
        finally:
            do(playwright.stop)


@pytest.fixture(scope="session")
def boxes():
    """bubblewrap, installed if root may do so. Without it tests are skipped, except where CI=true: there they fail.

    Where it is installed and the kernel allows no namespaces, nobody can run them: they are skipped, and say why.
    """
    if not shutil.which("bwrap"):
        install("bubblewrap")
        sandbox.why_not.cache_clear()
    if why := sandbox.why_not():
        is_missing = not shutil.which("bwrap")
        (pytest.fail if is_missing and os.environ.get("CI") == "true" else pytest.skip)(why)
    yield
    marking.close()
