"""The browser that prints the book and tests its pages: whichever Chromium there is, without a network of its own."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from classroom.debian import install

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


def install_chromium() -> None:
    """On Debian and its relatives root may install the browser: try it once."""
    install("chromium")


# ---- a page, as a reader opens it ----

LOCAL = re.compile(r"^(file|data|blob|about|chrome-error):")
# WCAG 2.2 A and AA, what axe calls best practice, and WCAG 2.5.3, which axe counts among its experiments.
# What passes is not reported: that halves the time.
RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]},
    "rules": {"label-content-name-mismatch": {"enabled": True}},
    "resultTypes": ["violations"],
    "preload": False,  # or axe itself asks for the style sheets, which a browser refuses it on file://
}
VIEWS = {"light": (1280, "light"), "dark": (1280, "dark"), "phone": (390, "light")}
# What a reader sees after some minutes: folded boxes open, pictures loaded, no transition half-way.
UNFOLD = """async () => {
  document.querySelectorAll('details').forEach(d => { d.open = true; });
  document.querySelectorAll('img').forEach(i => { i.loading = 'eager'; });
  await Promise.all([...document.images].map(i => i.decode().catch(() => null)));
  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  document.getAnimations().forEach(a => { try { a.finish(); } catch { a.cancel(); } });
}"""


@dataclass
class Visit:
    """One open page and everything it complained about or asked for."""

    page: object
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@contextmanager
def visit(browser, path: Path, view: str = "light"):
    """Open `path` from file:// with the network off; yield once every formula is set."""
    width, scheme = VIEWS[view]
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_offline(True)
    result = Visit(context.new_page())

    def refuse(route):
        result.requests.append(route.request.url)
        route.abort()

    def failed(request):
        if request.failure != "net::ERR_ABORTED":  # what a page asked for that was left meanwhile
            result.errors.append(f"failed: {request.url}")

    context.route(re.compile(r"^(?!(file|data|blob):)"), refuse)
    context.on("request", lambda request: LOCAL.match(request.url) or result.requests.append(request.url))
    result.page.on("requestfailed", failed)
    result.page.on("pageerror", lambda error: result.errors.append(str(error)))
    result.page.on("console", lambda m: m.type in ("error", "warning") and result.errors.append(m.text))
    try:
        result.page.goto(path.resolve().as_uri(), wait_until="load")
        result.page.evaluate("() => window.MathJax?.startup?.promise?.then(() => true)")
        result.page.wait_for_function("() => !document.querySelector('pf-quiz:defined:not(:has(form))')")
        yield result
    finally:
        context.close()
