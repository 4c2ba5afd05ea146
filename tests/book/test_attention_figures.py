"""The figures of chapters 2 and 3 in a real browser: by mouse and by keyboard, their numbers the library's."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
import torch

from classroom import copying, elements
from classroom.chromium import RULES, visit
from plainformer import masks
from plainformer.attention import attention, attention_weights

pytestmark = pytest.mark.browser


DATA = Path(__file__).resolve().parents[2] / "chapters" / "data"
X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
Q = X @ torch.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
V = X @ torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)


def maps(text: dict) -> torch.Tensor:
    """Weights of every head of a shipped text: (layer, head, looking, looked at)."""
    lower = torch.tensor(text["hundredths"], dtype=torch.float64) / 100
    n = len(text["tokens"])
    filled = torch.zeros(*lower.shape[:2], n, n, dtype=torch.float64)
    rows, columns = torch.tril_indices(n, n)
    filled[..., rows, columns] = lower
    return filled


def read(name: str) -> dict:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def real() -> dict:
    return read("smollm2_patterns.json")


@pytest.fixture
def on_a_page(tmp_path):
    """A function: a page that holds nothing but an element."""

    def page(element: elements.Element) -> Path:
        path = tmp_path / f"{element.name}.html"
        path.write_text(
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>One figure</title>'
            f"<style>{elements.style()}</style><script>{elements.bundle()}</script><main><h1>One figure</h1>"
            f"{element.markup}</main></html>",
            encoding="utf-8",
        )
        return path

    return page


def values(figure) -> list[str]:
    return [value.inner_text() for value in figure.locator("button .pf-value").all()]


def status(figure) -> str:
    return figure.locator(".pf-live").inner_text()


# ---- the explorer ----


def explorer(real) -> elements.Element:
    sentence, tiny = real["sentence"], read("copying_patterns.json")
    return elements.attention(
        {
            "real": (sentence["tokens"], maps(sentence), (13, 8, 7)),
            "tiny": (tiny["tokens"], maps(tiny), (1, 1, 8)),
        }
    )


def test_the_explorer_shows_the_weights_of_the_chosen_word(browser, on_a_page, real):
    """By mouse: text, layer, head and word; what is shown is what the library computes from queries and keys."""
    heads = read("smollm2_heads.json")
    words = [word.strip() for word in real["sentence"]["tokens"]]
    with visit(browser, on_a_page(explorer(real))) as open_page:
        figure = open_page.page.locator("pf-attention")
        for head in heads["heads"].values():
            q, k = (torch.tensor(head[letter], dtype=torch.float64) for letter in "qk")
            weights = attention_weights(q, k, masks.causal(len(words)))
            figure.get_by_label("Layer").select_option(label=str(head["layer"] + 1))
            figure.get_by_label(str(head["head"] + 1), exact=True).check()
            for n, word in enumerate(words):
                figure.locator("button").nth(n).click()
                shown = values(figure)
                assert shown[n + 1 :] == ["–"] * (len(words) - n - 1)
                # the queries have three decimals, the shown weights two
                assert [float(v) for v in shown[: n + 1]] == pytest.approx(weights[n, : n + 1].tolist(), abs=0.015)
                most = weights[n].argmax().item()
                name = "itself" if most == n else f"“{words[most]}”"
                assert f"“{word}” looks at {name} with {shown[most]}" in status(figure)
        figure.get_by_label("tiny").check()
        assert figure.get_by_label("Layer").locator("option").count() == 2
        assert "Layer 2, head 2: “thread” (word 9) looks at “cloth” (word 4) with 1.00" in status(figure)
        assert not open_page.errors and not open_page.requests


def test_the_explorer_by_keyboard(browser, on_a_page, real):
    sentence = maps(real["sentence"])
    with visit(browser, on_a_page(explorer(real))) as open_page:
        page, figure = open_page.page, open_page.page.locator("pf-attention")
        words = figure.get_by_role("radiogroup")
        chosen = words.get_by_role("radio", checked=True)
        page.keyboard.press("Tab")  # the texts
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.localName") == "select"
        page.keyboard.press("Home")
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowLeft")
        assert "Layer 1, head 8" in status(figure)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.getAttribute('role')") == "radio"
        for key, at in [("ArrowRight", 8), ("ArrowDown", 9), ("ArrowRight", 0), ("ArrowLeft", 9), ("ArrowUp", 8)]:
            page.keyboard.press(key)
            assert words.get_by_role("radio").nth(at).get_attribute("aria-checked") == "true"
            assert chosen.count() == 1 and words.locator("[tabindex='0']").count() == 1
            assert words.get_by_role("radio").nth(at).evaluate("button => button === document.activeElement")
            assert [v for v in values(figure) if v != "–"] == [
                f"{w:.2f}" for w in sentence[0, 7, at, : at + 1].tolist()
            ]
        for key, at in [("Home", 0), ("End", 9)]:
            page.keyboard.press(key)
            assert words.get_by_role("radio").nth(at).get_attribute("aria-checked") == "true"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.localName") == "summary"
        page.keyboard.press("Enter")
        cells = [row.locator("td").all_inner_texts() for row in figure.locator("tbody tr").all()]
        assert cells == [
            [f"{w:.2f}" if j <= i else "" for j, w in enumerate(row)] for i, row in enumerate(sentence[0, 7].tolist())
        ]
        assert not open_page.errors


def test_the_explorer_refuses_what_it_cannot_show(real):
    words, weights = real["sentence"]["tokens"], maps(real["sentence"])
    for wrong, message in [
        (weights[0], "shape"),
        (weights.transpose(-2, -1), "looks ahead"),
        (weights * 2, "sum to one"),
    ]:
        with pytest.raises(ValueError, match=message):
            elements.attention({"a text": (words, wrong, (0, 0, 0))})


def test_the_tiny_model_is_what_its_training_gives():
    """Its file is written by `python -m classroom.copying`; the same training gives the same heads."""
    shipped = read("copying_patterns.json")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        ids = torch.tensor([[copying.WORDS.index(word) for word in shipped["tokens"]]])
        model = copying.trained()
        found = copying.patterns(model, ids)
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(maps(shipped), found, atol=0.02, rtol=0)
    with torch.no_grad():  # and it has learned its task
        assert model(ids)[0, 6:-1].argmax(-1).tolist() == ids[0, 7:].tolist()


# ---- three tokens ----


def test_three_tokens_in_every_state(browser, on_a_page):
    """By mouse: the four steps of each choice of mask and scale, beside the library's."""
    k = torch.randn(3, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)  # not the chapter's
    with visit(browser, on_a_page(elements.three_tokens(["fund", "pays", "it"], Q, k, V))) as open_page:
        figure = open_page.page.locator("pf-three_tokens")
        texts = {2: "√2, the head's width", 1: "nothing", 16: "√16, a whole model's width"}
        for width, text in texts.items():
            figure.get_by_label(text, exact=True).check()
            for mask in (True, False):
                figure.get_by_role("checkbox").set_checked(mask)
                tables = [
                    [row.locator("td").all_inner_texts() for row in part.locator("tbody tr").all()]
                    for part in figure.locator("table").all()
                ]
                allowed = masks.causal(3) if mask else torch.ones(3, 3, dtype=torch.bool)
                q = Q * math.sqrt(2 / width)
                weights = attention_weights(q, k, allowed).tolist()
                scaled = (Q @ k.T / math.sqrt(width)).tolist()
                assert [[float(minus(x)) for x in row] for row in tables[1]] == [
                    [round(x, 3) for x in row] for row in (Q @ k.T).tolist()
                ]
                assert tables[2] == [
                    [number(x) if see else "−∞" for x, see in zip(*pair)] for pair in zip(scaled, allowed.tolist())
                ]
                assert tables[3] == [
                    [number(x) if see else "0" for x, see in zip(*pair)] for pair in zip(weights, allowed.tolist())
                ]
                output = attention(q, k, V, allowed).tolist()
                assert tables[4] == [[f"({', '.join(map(number, row))})"] for row in output]
                assert f"it becomes {tables[4][2][0]}." in status(figure)
                assert ("Nothing looks ahead" in status(figure)) is mask
        assert not open_page.errors and not open_page.requests


def number(x: float) -> str:
    return f"{x:.3f}".replace("-", "−")


def minus(text: str) -> str:
    return text.replace("−", "-")


def test_three_tokens_by_keyboard(browser, on_a_page):
    with visit(browser, on_a_page(elements.three_tokens(["fund", "pays", "it"], Q, X, V))) as open_page:
        page, figure = open_page.page, open_page.page.locator("pf-three_tokens")
        before = status(figure)
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowRight")
        assert figure.get_by_label("nothing", exact=True).is_checked()
        undivided = attention_weights(Q * math.sqrt(2), X)[2].max().item()
        assert status(figure) != before and f"The largest weight of “it” is {undivided:.3f}" in status(figure)
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        assert "sees itself alone" in status(figure) and figure.get_by_text("−∞").count() == 3
        assert not open_page.errors


# ---- softmax and scale ----


def test_softmax_and_scale(browser, on_a_page):
    """By keyboard and by mouse: weights, largest and trace at each width, from the same vectors by the library."""
    seed, n_keys = 5, 9  # not the chapter's
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(1, 1024, generator=generator, dtype=torch.float64)
    k = torch.randn(n_keys, 1024, generator=generator, dtype=torch.float64)
    with visit(browser, on_a_page(elements.softmax(n_keys=n_keys, seed=seed))) as open_page:
        page, figure = open_page.page, open_page.page.locator("pf-softmax")
        figure.locator("summary").click()
        dial = figure.get_by_role("slider")
        dial.focus()
        page.keyboard.press("Home")
        for power in range(11):
            width = 2**power
            assert dial.get_attribute("aria-valuetext") == str(width)
            divided = attention_weights(q[:, :width], k[:, :width])[0]
            raw = attention_weights(q[:, :width] * math.sqrt(width), k[:, :width])[0]
            told = re.findall(r"largest weight ([\d.]+), trace ([\d.]+\d)", status(figure))
            assert told == [(f"{a.max():.3f}", f"{1 - a.square().sum():.3f}") for a in (raw, divided)]
            rows = [row.locator("td").all_inner_texts() for row in figure.locator("tbody tr").all()]
            scores = (q[:, :width] @ k[:, :width].T)[0]
            expected = zip(scores, raw, scores / math.sqrt(width), divided)
            assert [[float(minus(x)) for x in row] for row in rows] == [
                [float(f"{s:.2f}"), float(f"{a:.3f}"), float(f"{z:.2f}"), float(f"{b:.3f}")] for s, a, z, b in expected
            ]
            heights = figure.locator("rect.raw").evaluate_all(
                "bars => bars.map(bar => Number(bar.getAttribute('height')))"
            )
            assert heights == pytest.approx((100 * raw).tolist(), abs=1e-6)
            page.keyboard.press("ArrowRight")
        box = dial.bounding_box()
        page.mouse.click(box["x"] + 4, box["y"] + box["height"] / 2)
        assert status(figure).startswith("Width 1.")
        assert not open_page.errors and not open_page.requests


# ---- all three ----


def all_three(real) -> list[elements.Element]:
    return [explorer(real), elements.three_tokens(["fund", "pays", "it"], Q, X, V), elements.softmax()]


def test_a_wrong_check_vector_is_an_error(browser, on_a_page, real):
    """The instrument: a number that the script does not compute is logged."""
    for element in all_three(real):
        changed = re.sub(
            r'("expected":\D*?)(-?\d+)(?=[.,\]}])',
            lambda found: f"{found[1]}{int(found[2]) + 1}",
            element.markup,
            count=1,
        )
        assert changed != element.markup
        element.markup = changed
        with visit(browser, on_a_page(element)) as open_page:
            assert len(open_page.errors) == 1 and f"pf-{element.name}" in open_page.errors[0]


@pytest.mark.parametrize("view", ["light", "phone"])  # the dark theme is the book's: test_browser looks at it
def test_no_rule_of_accessibility_is_broken(browser, on_a_page, real, view):
    from axe_playwright_python.sync_playwright import Axe

    for element in all_three(real):
        with visit(browser, on_a_page(element), view) as open_page:
            page = open_page.page
            page.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")
            assert Axe().run(page, options=RULES).response["violations"] == []
            assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
            targets = page.locator("button:visible, select:visible, summary:visible, .pf-choice label:visible")
            boxes = targets.evaluate_all("all => all.map(e => e.getBoundingClientRect())")
            assert min(min(box["width"], box["height"]) for box in boxes) >= 24


def test_without_scripts_a_table_says_it(browser, on_a_page, real):
    context = browser.new_context(java_script_enabled=False, offline=True)
    try:
        page = context.new_page()
        for element in all_three(real):
            page.goto(on_a_page(element).as_uri())
            assert page.locator("table caption").inner_text() and page.locator("tbody tr").count() >= 3
    finally:
        context.close()


def test_the_chapters_hold_them(browser, book):
    assert book.code == 0, book.messages
    for chapter, names in {"02_attention": ["three_tokens", "softmax"], "03_heads": ["attention"]}.items():
        with visit(browser, book.html / "chapters" / f"{chapter}.html") as open_page:
            for name in names:
                assert open_page.page.locator(f"pf-{name}[data-ready]").count() == 1
            assert not open_page.errors and not open_page.requests
