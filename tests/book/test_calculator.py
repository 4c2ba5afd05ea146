"""The model calculator, driven in a browser by mouse, keyboard and link: what it shows equals the library's numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from classroom import elements
from classroom.chromium import visit
from classroom.elements import calculator as make_calculator
from plainformer import cache, flops, parameters, roofline
from plainformer.config import preset, presets

BENCH = json.loads((Path(__file__).parents[2] / "chapters/data/bench.json").read_text(encoding="utf-8"))
H100 = {"bandwidth": 3.35e12, "peak": 989.4e12}
browser_test = pytest.mark.browser


@pytest.fixture(scope="module")
def page_file(tmp_path_factory) -> Path:
    """A page with nothing but the calculator: the script and the style sheet are those of the book."""
    element = make_calculator(BENCH)
    page = tmp_path_factory.mktemp("calculator") / "page.html"
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Calculator</title>'
    head += f"<style>{elements.style()}</style>"
    markup = element._repr_html_()
    page.write_text(
        f'<!doctype html><html lang="en"><head>{head}</head><body><main><h1>Calculator</h1>{markup}</main>'
        f"<script>{elements.bundle()}</script></body></html>",
        encoding="utf-8",
    )
    return page


@pytest.fixture
def opened(browser, page_file):
    with visit(browser, page_file) as open_page:
        open_page.page.wait_for_selector("pf-calculator[data-ready]")
        yield open_page
        assert not open_page.errors and not open_page.requests


def shown(page) -> dict[str, list[str]]:
    """The table of the parts: name → [parameters, FLOPs], without their shares."""
    rows = page.locator(".pf-scroll > table:has(small) tbody tr").all()
    texts = [[cell.evaluate("c => c.firstChild.textContent") for cell in row.locator("th, td").all()] for row in rows]
    return {name: numbers for name, *numbers in texts}


def cards(page) -> dict[str, list[str]]:
    """Name → [the figure, what stands below it]."""
    found = page.locator("pf-calculator dl > div").all()
    return {card.locator("dt").inner_text(): card.locator("dd").all_inner_texts() for card in found}


def wanted(config, n_positions, attention="last") -> dict[str, list[int]]:
    """The same table from the library."""
    part = parameters.breakdown(config)
    if config.n_encoder_layers:
        whole = flops.sequence(config, n_positions, n_source=n_positions)
        work = {name: n / n_positions for name, n in whole.items()}
    else:
        work = flops.forward(config, n_positions, attention=attention)

    def add(*names):
        return round(sum(work.get(word + name, 0) for name in names for word in ("", "cross_")))

    return {
        "embedding": [part["embed"] + part["token_types"], 0],
        "positions": [part["positions"], 0],
        "attention, projections": [part["attention"] + part["cross_attention"], add("query", "key", "value", "out")],
        "attention, scores and mixing": [0, add("scores", "mix")],
        "MLP": [part["mlp"] + part["router"], add("router", "gate", "up", "down")],
        "norms": [part["norms"] + part["embed_norm"] + part["final_norm"], 0],
        "pooler" if part["pool"] else "unembedding": [part["unembed"] + part["pool"], add("unembed")],
        "together": [parameters.total(config), round(sum(work.values()))],
    }


def as_text(table):
    return {name: [f"{n:,}" if n else "–" for n in numbers] for name, numbers in table.items()}


def test_every_named_system_is_a_preset_and_in_the_table_without_scripts():
    element = make_calculator(BENCH)
    markup = element._repr_html_()
    for name in presets():
        assert name in element.data["presets"]
        assert f'<th scope="row">{name}</th><td>{parameters.total(preset(name)):,}</td>' in markup
    assert markup == make_calculator(BENCH)._repr_html_()


def test_the_bench_machine_is_the_one_that_was_measured():
    measured = {(r["work"], r["what"]): r["value"] for r in BENCH["rows"] if r["work"] == "machine"}
    names = {name: (bandwidth, peak) for name, bandwidth, peak in make_calculator(BENCH).data["machines"]}
    for words, dtype in (("32-bit", "float32"), ("16-bit", "bfloat16")):
        (peak,) = (peak for name, (_, peak) in names.items() if "bench machine" in name and words in name)
        assert peak == round(1e9 * measured["machine", f"product peak, {dtype}"])


@browser_test
def test_presets_show_the_librarys_numbers(opened):
    page = opened.page
    assert shown(page) == as_text(wanted(preset("gpt2-small"), 1024))
    for name in ("gpt2-xl", "mixtral-8x7b", "bert-base", "vaswani-base", "llama-3-70b"):
        page.get_by_label("Preset").select_option(name)
        assert shown(page) == as_text(wanted(preset(name), 1024)), name
        total = f"{parameters.total(preset(name)):,}"
        assert cards(page)["Parameters"][0] == total
    page.get_by_label("Preset").select_option("mixtral-8x7b")
    assert f"active {parameters.active(preset('mixtral-8x7b')) / 1e9:.3g} G" in cards(page)["Parameters"][1]


@browser_test
def test_sliders_by_keyboard_and_mouse(opened):
    page = opened.page
    layers = page.get_by_label("Layers L")
    layers.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert layers.get_attribute("aria-valuetext") == "14"
    page.get_by_label("KV heads").focus()
    page.keyboard.press("Home")
    page.get_by_label("Gate in the MLP").click()
    page.get_by_label("One table at both ends").click()
    page.get_by_label("Biases").focus()
    page.keyboard.press("Space")
    config = replace(preset("gpt2-small"), n_layers=14, n_kv_heads=1, mlp="swiglu", tied=False, bias=False)
    assert shown(page) == as_text(wanted(config, 1024))
    # the mouse: the far end of the text's length
    box = page.get_by_label("Text length T").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 3, box["y"] + box["height"] / 2)
    longest = 2**20
    assert shown(page) == as_text(wanted(config, longest))
    assert "beyond its 1,024 positions" in page.locator("table:has(small) caption").inner_text()
    page.get_by_label("causal mean").check()
    assert shown(page) == as_text(wanted(config, longest, "mean"))
    page.get_by_role("button", name="Reset to preset").click()
    assert shown(page) == as_text(wanted(preset("gpt2-small"), longest, "mean"))


@browser_test
def test_a_new_width_keeps_the_heads_whole(opened):
    page = opened.page
    page.get_by_label("Preset").select_option("llama-3-8b")
    width = page.get_by_label("Width d")
    width.focus()
    for key in ("ArrowRight", "ArrowRight", "End", "Home", "ArrowRight"):
        page.keyboard.press(key)
        d, heads, groups = (
            int(page.get_by_label(label).get_attribute("aria-valuetext").replace(",", ""))
            for label in ("Width d", "Heads h", "KV heads")
        )
        config = replace(preset("llama-3-8b"), d_model=d, n_heads=heads, n_kv_heads=groups)  # refuses what cannot be
        assert shown(page) == as_text(wanted(config, 1024))


@browser_test
def test_cache_and_speed(opened):
    page = opened.page
    page.get_by_label("Preset").select_option("mistral-7b")
    page.get_by_label("Machine").select_option(label="H100 SXM, data sheet")
    page.get_by_label("Text length T").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")  # 1,024 → 16,384, beyond the window
    page.get_by_label("Batch B").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.get_by_role("group", name="Bytes a weight").get_by_label("½").check()
    config = preset("mistral-7b")
    sizes = {"n_bytes_weights": 0.5, "n_bytes_cache": 2}
    kept = cache.bytes_per_sequence(config, 16_384)
    assert kept == cache.bytes_per_sequence(config, config.window)
    speed = roofline.decode_tokens_per_second(config, 8, 16_384, **H100, **sizes)
    assert cards(page)["KV cache"][0] == f"{kept / 1e6:.3g} MB"
    figure, below = cards(page)["Tokens/s, at most"]
    assert figure == f"{round(speed):,}" and below.endswith("on H100 SXM, data sheet")
    page.locator("pf-calculator summary").click()
    numbers = page.locator(".pf-numbers tbody tr")
    exact = dict(numbers.evaluate_all("rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"))
    assert exact["cache, bytes: sequence"] == f"{kept:,}" and exact["cache, bytes: batch"] == f"{8 * kept:,}"
    read = roofline.bytes_per_step(config, 8, 16_384, **sizes)
    assert exact["step: weights"] == f"{read['weights']:,.0f}" and exact["step: tokens"] == figure
    assert exact["FLOPs, token: query"] == f"{flops.forward(config, 16_384)['query']:,}"
    page.get_by_label("Bandwidth").focus()
    page.keyboard.press("ArrowRight")
    assert cards(page)["Tokens/s, at most"][1].endswith("on 5 TB/s, 989 TFLOP/s")
    page.wait_for_function("() => document.querySelector('pf-calculator .pf-live').textContent.includes('5 TB/s')")


@browser_test
def test_a_link_restores_the_state(browser, page_file):
    with visit(browser, page_file) as first:
        page = first.page
        page.get_by_label("Preset").select_option("smollm2-135m")
        page.get_by_label("MLP width").focus()
        page.keyboard.press("End")
        page.get_by_label("Batch B").focus()
        page.keyboard.press("ArrowRight")
        before = (shown(page), cards(page))
        page.get_by_role("button", name="Copy link").click()
        page.wait_for_function("() => location.hash.startsWith('#calculator?')")
        link = page.evaluate("location.href")
        assert link.startswith("file://") and not first.errors
        with browser.new_context() as context:
            other = context.new_page()
            other.goto(link)
            assert (shown(other), cards(other)) == before
            # the same in a page that is open already
            other.evaluate("location.hash = '#calculator?preset=gpt2-small&L=3'")
            other.wait_for_function("() => document.querySelector('pf-calculator output').textContent === '3'")
            assert shown(other) == as_text(wanted(replace(preset("gpt2-small"), n_layers=3), 1024))


WRONG = """
preset=gpt5  preset=constructor  L=3  preset=gpt2-small&L=0  preset=gpt2-small&L=1.5  preset=gpt2-small&L=1e99
preset=gpt2-small&h=7  preset=gpt2-small&h_kv=5  preset=gpt2-small&bytes=3  preset=gpt2-small&norm=9
preset=llama-2-7b&d=64&h=64  preset=gpt2-small&L=x  preset=gpt2-small&tied=2  %
"""


@browser_test
def test_an_invalid_link_is_ignored(opened, page_file):
    page = opened.page
    usual = as_text(wanted(preset("gpt2-small"), 1024))
    for wrong in WRONG.split():
        page.goto("about:blank")
        page.goto(f"{page_file.as_uri()}#calculator?{wrong}")
        assert shown(page) == usual, wrong


@browser_test
def test_a_check_vector_that_differs_is_an_error(browser, page_file, tmp_path):
    """The page's own comparison with the library is not blind."""
    text = page_file.read_text(encoding="utf-8")
    wrong = tmp_path / "wrong.html"
    total = str(parameters.breakdown(preset("gpt2-small"))["mlp"])
    assert f'"mlp":{total}' in text
    wrong.write_text(text.replace(f'"mlp":{total}', f'"mlp":{int(total) + 1}', 1), encoding="utf-8")
    with visit(browser, wrong) as open_page:
        assert any("pf-calculator" in error for error in open_page.errors)


@browser_test
@pytest.mark.parametrize("view", ["light", "phone"])
def test_no_horizontal_scroll_and_targets_are_large(browser, page_file, view):
    with visit(browser, page_file, view) as open_page:
        page = open_page.page
        page.get_by_label("Preset").select_option("gpt3-175b")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator(".pf-scroll:has(small)").evaluate("e => e.scrollWidth <= e.clientWidth")
        controls = page.locator("pf-calculator :is(select, button, input[type=range], .pf-toggle, .pf-choice label)")
        assert all(box["height"] >= 24 for box in (one.bounding_box() for one in controls.all()))
