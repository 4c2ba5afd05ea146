"""What stands around each page: version, the way to report a mistake, links where a repository is named; comforts."""

from __future__ import annotations

import importlib.metadata
import re
import runpy
from pathlib import Path

import pytest
import yaml

from classroom import site
from classroom.chromium import visit

SERVICES = re.compile(r"mybinder|colab\.research|github\.com/someone")


@pytest.fixture(scope="module")
def with_repository(tmp_path_factory) -> Path:
    """A book of one chapter whose `_config.yml` names a repository: a copy with that one setting changed."""
    folder = tmp_path_factory.mktemp("named")
    copy_sources = runpy.run_path(str(Path(__file__).with_name("conftest.py")))["copy_sources"]
    source = copy_sources(folder / "source")
    settings = (source / "_config.yml").read_text(encoding="utf-8")
    named = settings.replace('  url: ""\n  branch: ""', "  url: https://github.com/someone/plainformer\n  branch: main")
    assert named != settings
    (source / "_config.yml").write_text(named, encoding="utf-8")
    pages = ["chapters/02_attention", "chapters/appendix/corrections"]
    contents = {"format": "jb-book", "root": "index", "chapters": [{"file": page} for page in pages]}
    (source / "_toc.yml").write_text(yaml.safe_dump(contents), encoding="utf-8")
    code, messages = site.build(source, folder, strict=False)  # most references lead to chapters that it leaves out
    assert code == 0, messages
    return folder / "_build" / "html"


def test_every_page_has_its_version_and_a_way_to_report_a_mistake(book):
    version = importlib.metadata.version("plainformer")
    for path in book.pages:
        text = path.read_text(encoding="utf-8")
        footer = re.search(r'<div class="extra_footer">(.*?)</div>', text, flags=re.DOTALL)[1]
        assert f"plainformer {version}." in footer and "CC BY 4.0" in footer
        link = re.search(r'href="([^"]*)#how-to-report-one"', footer)[1]
        target = (path.parent / link).resolve() if link else path.resolve()
        assert target == (book.html / "chapters" / "appendix" / "corrections.html").resolve()


def test_without_a_repository_no_page_links_to_a_service(book):
    assert not [path.name for path in book.pages if SERVICES.search(path.read_text(encoding="utf-8"))]


@pytest.mark.browser
def test_one_setting_gives_the_links_and_still_no_request(browser, with_repository):
    with visit(browser, with_repository / "chapters" / "02_attention.html") as opened:
        links = opened.page.eval_on_selector_all("a[href^=http]", "links => links.map(link => link.href)")
        assert "https://github.com/someone/plainformer" in links
        assert any(link.startswith("https://github.com/someone/plainformer/issues/new?") for link in links)
        binder = next(link for link in links if "mybinder.org/v2/gh/someone/plainformer/main" in link)
        assert binder.endswith("urlpath=lab/tree/chapters/02_attention.ipynb")
        colab = "https://colab.research.google.com/github/someone/plainformer/blob/main/chapters/02_attention.ipynb"
        assert colab in links
        assert not opened.requests and not opened.errors
    with visit(browser, with_repository / "chapters" / "appendix" / "corrections.html") as opened:
        links = opened.page.eval_on_selector_all("a[href^=http]", "links => links.map(link => link.href)")
        assert not [link for link in links if "mybinder" in link or "colab" in link]  # nothing to run there
        assert not opened.requests and not opened.errors


@pytest.mark.browser
def test_code_folds_and_its_copy_button_works_from_a_file(browser, book):
    with visit(browser, book.html / "chapters" / "02_attention.html") as opened:
        page = opened.page
        folded = page.locator("details.hide").first
        code = folded.locator("pre").first
        assert not code.is_visible()
        folded.locator("summary").click()
        assert code.is_visible()
        folded.locator("div.highlight").first.hover()
        folded.locator("button.copybtn").first.click()
        page.evaluate("document.querySelector('article').prepend(document.createElement('textarea'))")
        page.locator("article > textarea").focus()
        page.keyboard.press("ControlOrMeta+v")
        pasted = page.locator("article > textarea").input_value()
        assert pasted.strip() == code.inner_text().strip() and "import torch" in pasted
        assert not opened.errors
