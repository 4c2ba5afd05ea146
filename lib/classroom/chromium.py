"""The browser that prints the book and tests its pages: whichever Chromium there is, without a network of its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

# It must not look for updates, sync or try other transports while requests are counted.
FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MISSING = "no Chromium: install one with `python -m playwright install chromium`, or name yours in PLAINFORMER_CHROMIUM"


def find_chromium(playwright) -> str | None:
    """A browser that is there: the one named, one on PATH, or Playwright's own."""
    named = os.environ.get("PLAINFORMER_CHROMIUM")
    if named:
        return named
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if path := shutil.which(name):
            return path
    own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


def launch(playwright, path: str):
    """Start the browser without a window; root may run it only without its sandbox."""
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return playwright.chromium.launch(
        executable_path=path, headless=True, args=FLAGS + (["--no-sandbox"] if root else [])
    )
