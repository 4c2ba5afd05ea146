"""The book on paper: one tagged PDF with an outline, printed by Chromium from the pages of the site.

`python -m classroom.paper` (`make pdf`) builds the site, joins its pages in the order of `_toc.yml`, and prints
them. The pages are joined as they stand, not built a second time as Sphinx's single page: there, chapters lose the
anchors that have the same name in each of them, and their headings one level.

No script of the pages runs here but MathJax. Quizzes and interactive figures are what they are without scripts:
questions with their answers, tables. Folded boxes are open. The front page's section on the reader's progress, which
a browser keeps and counts, is left out.
"""

from __future__ import annotations

import argparse
import html
import importlib.metadata
import re
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

from classroom.chromium import MISSING, find_chromium, launch
from classroom.site import add_places, built_pages

STYLE = Path(__file__).with_name("paper.css")
VOID = {"area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
# attributes that name an element of the same page
NAMES = {"id", "for", "name", "headers", "aria-labelledby", "aria-describedby", "aria-controls"}
# a section of the front page that is nothing without its script
LEFT_OUT = "your-progress"

# Once everything is set, each formula becomes a picture whose text is its TeX: of a drawing in the page itself,
# Chromium writes neither the place in the structure nor a text.
READY = """async () => {
  await MathJax.startup.promise;
  for (const item of MathJax.startup.document.math) {
    const svg = item.typesetRoot.querySelector("svg"), image = new Image();
    if (!svg || item.typesetRoot.querySelector("[data-mjx-error]")) continue;
    svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    svg.setAttribute("color", getComputedStyle(item.typesetRoot).color);
    for (const drawn of svg.querySelectorAll("[stroke-width='0']")) drawn.setAttribute("stroke", "none");
    image.src = "data:image/svg+xml," + encodeURIComponent(new XMLSerializer().serializeToString(svg));
    image.alt = item.math.replace(/\\s+/g, " ").trim();
    image.style.cssText = svg.style.cssText;
    image.style.width = svg.getAttribute("width");
    image.style.height = svg.getAttribute("height");
    item.typesetRoot.replaceChildren(image);
  }
  await Promise.all([...document.images].map(image => image.decode()));
  for (const box of document.querySelectorAll(".cell_input, .cell_output, .highlight, details, .admonition, pf-quiz")) {
    if (box.offsetHeight < 340) box.style.setProperty("break-inside", "avoid", "important"); // a third of a page
  }
  return document.querySelectorAll("mjx-container:has([data-mjx-error])").length;
}"""


class Part(HTMLParser):
    """The article of one page, as a part of the whole: its ids carry the page's name, and its links stay inside."""

    def __init__(self, page: Path, names: dict[Path, str], sink: int):
        super().__init__(convert_charrefs=False)
        self.page, self.names, self.sink = page, names, sink  # sink: by how many levels its headings go down
        self.pieces: list[str] = []
        self.title = ""
        self._depth = 0  # of <article>
        self._dropped: list[str] = []  # the element that is being left out, and those of its kind in it
        self._heading: str | None = None  # the heading that is being read
        self.feed(page.read_text(encoding="utf-8"))

    @property
    def markup(self) -> str:
        return "".join(self.pieces)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag == "article":
            self._depth += 1
        elif tag in self._dropped:
            self._dropped.append(tag)
        elif self._depth and not self._dropped:
            is_link = "headerlink" in (values.get("class") or "")
            if tag == "script" or is_link or (tag == "section" and values.get("id") == LEFT_OUT):
                self._dropped = [tag]
                return
            if re.fullmatch("h[1-6]", tag):
                self._heading = tag
            shown = "".join(f' {name}="{html.escape(value or "")}"' for name, value in self._inside(tag, values))
            self.pieces.append(f"<{self._sunk(tag)}{shown}>")

    def handle_endtag(self, tag):
        if tag == "article":
            self._depth -= 1
        elif tag in self._dropped:
            self._dropped.pop()
        elif self._depth and not self._dropped and tag not in VOID:
            self._heading = None if tag == self._heading else self._heading
            self.pieces.append(f"</{self._sunk(tag)}>")

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_data(self, data):
        if self._depth and not self._dropped:
            if self._heading:  # an outline has letters, and no pictures of formulas
                data = re.sub(r"\\\((\w)\\\)", r"\1", data)
            self.pieces.append(data)
            if self._heading == "h1":
                self.title += data

    def handle_entityref(self, name):
        self.handle_data(f"&{name};")

    def handle_charref(self, name):
        self.handle_data(f"&#{name};")

    def _sunk(self, tag: str) -> str:
        return f"h{min(int(tag[1]) + self.sink, 6)}" if re.fullmatch("h[1-6]", tag) else tag

    def _inside(self, tag: str, values: dict[str, str | None]) -> Iterator[tuple[str, str | None]]:
        """The attributes of a tag, as they must be on the one page."""
        own = self.names[self.page]
        if tag == "details":
            values = {**values, "open": None}
        if tag.startswith("pf-"):  # formulas in texts that the page's script would have set
            values = {**values, "class": f"{values.get('class') or ''} mathjax_process".strip()}
        for name, value in values.items():
            if name in NAMES and value:
                yield name, " ".join(f"{own}/{part}" for part in value.split())
            elif name == "src" and value:
                yield name, (self.page.parent / unquote(value)).resolve().as_uri()
            elif name == "href" and value:
                address = self._address(value)
                if address is not None:
                    yield name, address
            else:
                yield name, value

    def _address(self, written: str) -> str | None:
        """A link inside the book leads to its part of it; one to another file of the site leads nowhere."""
        address = urlsplit(written)
        if address.scheme or address.netloc:
            return written
        target = (self.page.parent / unquote(address.path)).resolve() if address.path else self.page
        if target not in self.names:
            return None
        return f"#{self.names[target]}" + (f"/{unquote(address.fragment)}" if address.fragment else "")


def contents(source: Path) -> list[tuple[str, list[str]]]:
    """The parts of the book in `source`: caption, and the names of its pages. The first, the root, has no caption."""
    read = yaml.safe_load((source / "_toc.yml").read_text(encoding="utf-8"))
    parts = [(part["caption"], [page["file"] for page in part["chapters"]]) for part in read["parts"]]
    return [("", [read["root"]]), *parts]


def assemble(source: Path, site: Path) -> str:
    """The whole book as one page: the pages of `site`, in the order of the book in `source`."""
    settings = yaml.safe_load((source / "_config.yml").read_text(encoding="utf-8"))
    title, _, subtitle = settings["title"].partition(": ")
    site = site.resolve()
    parts = contents(source)
    names = {site / f"{name}.html": name for _, pages in parts for name in pages}
    body, listed, running = [], [], []
    for caption, pages in parts:
        if caption:
            listed.append(f'<li class="pf-caption">{html.escape(caption)}</li>')
        for name in pages:
            part = Part(site / f"{name}.html", names, sink=bool(caption))
            head = f"<h1>{html.escape(caption)}</h1>" if caption and name == pages[0] else ""
            body.append(f'<section class="pf-page" id="{name}">{head}{part.markup}</section>')
            listed.append(f'<li><a href="#{name}">{part.title}</a></li>')
            label = f"page-{len(running)}"
            said = html.unescape(part.title).replace("\\", "\\\\").replace('"', '\\"')
            running.append(
                f'[id="{name}"] {{ page: {label}; }}\n@page {label} {{ @top-right {{ content: "{said}"; }} }}'
            )
    version = importlib.metadata.version("plainformer")
    return f"""<!doctype html>
<html lang="{settings["sphinx"]["config"]["language"]}" data-theme="light" data-mode="light">
<head><meta charset="utf-8"><title>{html.escape(settings["title"])}</title>
{_head(site)}
<style>{STYLE.read_text(encoding="utf-8")}
{chr(10).join(running)}</style>
</head>
<body><main class="bd-main"><div class="bd-content"><div class="bd-article-container"><div class="bd-article">
<section class="pf-cover">
<p class="pf-name">{html.escape(title)}</p><p class="pf-subtitle">{html.escape(subtitle)}</p>
<p>{html.escape(settings["author"])}</p>
<p>Version {version}<br>© {settings["copyright"]}. {html.escape(settings["html"]["extra_footer"])}</p>
</section>
<nav class="pf-contents" aria-label="Contents"><h1>Contents</h1><ul>{"".join(listed)}</ul></nav>
{"".join(body)}
</div></div></div></main></body></html>
"""


def _head(site: Path) -> str:
    """Style sheets and MathJax, as the pages of the site name them."""
    path = next(path for path in sorted(site.glob("chapters/*.html")) if "window.MathJax" in path.read_text("utf-8"))
    page = path.read_text(encoding="utf-8")

    def found(pattern: str) -> Iterator[str]:
        for address in re.findall(pattern, page):
            yield (path.parent / urlsplit(address).path).resolve().as_uri()

    sheets = [f'<link rel="stylesheet" href="{address}">' for address in found(r'href="([^"]+\.css[^"]*)"')]
    settings = re.search(r"<script>window\.MathJax = .*?</script>", page)[0]
    scripts = [f'<script defer src="{address}"></script>' for address in found(r'src="([^"]+/mathjax/[^"]+)"')]
    alone = "<script>MathJax.svg = { fontCache: 'none' }</script>"  # each formula holds its own letters
    return "\n".join([*sheets, settings, alone, *scripts])


def print_pdf(browser, page: Path, target: Path) -> None:
    """Print the assembled `page`. Raises ValueError if a formula of it is not right."""
    context = browser.new_context(viewport={"width": 794, "height": 1123}, color_scheme="light", offline=True)
    context.set_default_timeout(300_000)
    try:
        opened = context.new_page()
        opened.goto(page.resolve().as_uri(), wait_until="load")
        if n_wrong := opened.evaluate(READY):
            raise ValueError(f"{n_wrong} formulas have errors: open the pages of the site in a browser to see them.")
        target.parent.mkdir(parents=True, exist_ok=True)
        opened.pdf(path=target, tagged=True, outline=True, prefer_css_page_size=True, print_background=True)
    finally:
        context.close()


def make(source: Path, site: Path, target: Path) -> None:
    """Print the book in `source`, whose pages are built in `site`, into the PDF `target`."""
    from playwright.sync_api import sync_playwright  # only here: nothing else of the book needs a browser

    with sync_playwright() as playwright, tempfile.TemporaryDirectory(prefix="book-on-paper-") as folder:
        path = find_chromium(playwright)
        if path is None:
            raise FileNotFoundError(MISSING)
        page = Path(folder, "book.html")
        page.write_text(assemble(source, site), encoding="utf-8")
        browser = launch(playwright, path)
        try:
            print_pdf(browser, page, target)
        finally:
            browser.close()


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, build the site unless it is given, print it, and say where the PDF is."""
    parser = argparse.ArgumentParser(prog="python -m classroom.paper", description="Print the book into one PDF.")
    add_places(parser, "pdf")
    options = parser.parse_args(arguments)
    options.source = options.source.resolve()
    target = (options.output or options.source).resolve() / "_build" / "pdf" / "plainformer.pdf"
    with built_pages(parser, options) as site:
        print("Printing them", flush=True)
        try:
            make(options.source, site, target)
        except (FileNotFoundError, ValueError) as error:
            print(f"The book cannot be printed: {error}", file=sys.stderr)
            return 1
    print(f"Open {target} ({target.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
