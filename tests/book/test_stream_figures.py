"""The decode tape, the RoPE dial and the residual stream in the built book: driven by mouse and keyboard, and every
number that they show is the library's."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch

from classroom.chromium import visit
from plainformer.cache import bytes_per_sequence, bytes_per_token
from plainformer.config import preset
from plainformer.positions import rotary_angles, rotate
from plainformer.roofline import bytes_per_step

pytestmark = pytest.mark.browser

FIGURES = {"tape": "11_cache", "dial": "05_positions", "stream": "08_model"}


@pytest.fixture(scope="module")
def opened(browser, book):
    """A function: the visit and the element of a figure, found to be without errors when it is left."""
    assert book.code == 0, book.messages

    @contextmanager
    def open_figure(name: str, view: str = "light"):
        with visit(browser, book.html / "chapters" / f"{FIGURES[name]}.html", view) as open_page:
            element = open_page.page.locator(f"pf-{name}[data-ready]")
            element.scroll_into_view_if_needed()
            yield open_page, element
            assert open_page.errors == [] and open_page.requests == []

    return open_figure


def numbers_of(element) -> list[list[str]]:
    """The folded table of a figure, header first, with plain spaces and signs."""
    details = element.locator("details")
    if details.get_attribute("open") is None:
        details.locator("summary").click()
    rows = [row.locator("th, td").all_inner_texts() for row in element.locator("tr").all()]
    return [[cell.strip().replace("\xa0", " ").replace("−", "-") for cell in row] for row in rows]


def said(element) -> str:
    return element.locator(".pf-live[role=status]").inner_text().replace("−", "-")


def slide(element, label: str, value: int) -> None:
    """By keyboard, from the nearer end, as a reader without a mouse would."""
    slider = element.get_by_role("slider", name=label, exact=True)
    slider.focus()
    low, high = int(slider.get_attribute("min")), int(slider.get_attribute("max"))
    near_end = high - value < value - low
    slider.press("End" if near_end else "Home")
    for _ in range(high - value if near_end else value - low):
        slider.press("ArrowLeft" if near_end else "ArrowRight")


def in_units(text: str) -> float:
    number, unit = text.split()
    return float(number) * 1024 ** ["B", "KiB", "MiB", "GiB"].index(unit)


def close(shown: str, n_bytes: float) -> bool:
    return abs(in_units(shown) - n_bytes) <= 0.0006 * n_bytes  # four digits are shown


# ---- the decode tape ----


def check_tape(element, n_tokens: int, window: int) -> None:
    """Every number of the table is what the library says of Llama 2 70B's sizes."""
    large = preset("llama-2-70b")
    kinds = {
        "MHA": replace(large, n_kv_heads=large.n_heads),
        "GQA": large,
        "GQA and a window": replace(large, window=window),
        "MQA": replace(large, n_kv_heads=1),
    }
    header, *rows = numbers_of(element)
    assert header[1:] == ["slots filled", "bytes kept", "a token adds", "a step reads", "of it cache"]
    assert [row[0] for row in rows] == list(kinds)
    for (_, slots, kept, added, read, share), config in zip(rows, kinds.values()):
        n_bytes, a_token = bytes_per_sequence(config, n_tokens), bytes_per_token(config)
        step = bytes_per_step(config, 1, n_tokens)
        assert int(slots.replace(",", "")) == n_bytes // a_token
        assert close(kept, n_bytes) and close(added, a_token) and close(read, sum(step.values()))
        assert share == f"{100 * step['cache'] / sum(step.values()):.1f}%"


def test_tape_by_mouse(opened):
    with opened("tape") as (_, element):
        element.get_by_role("button", name="Start again").click()
        assert said(element) == "The caches are empty."
        element.get_by_role("button", name="Prefill").click()
        assert "6 tokens read: 6 of the prompt in one call." in said(element)
        check_tape(element, 6, 8)
        for _ in range(5):
            element.get_by_role("button", name="Next token").click()
        assert "11 tokens read" in said(element) and "5 more in a call each" in said(element)
        assert "dropped the oldest 3" in said(element)
        check_tape(element, 11, 8)
        element.get_by_role("radio", name="256 tokens, window of 4,096").click()
        assert said(element) == "The caches are empty."
        element.get_by_role("button", name="Prefill").click()
        for _ in range(11):
            element.get_by_role("button", name="Next 256 tokens").click()
        assert "4,352 tokens read" in said(element) and "dropped the oldest 256" in said(element)
        check_tape(element, 1_536 + 11 * 256, preset("mistral-7b").window)


def test_tape_by_keyboard(opened):
    with opened("tape") as (open_page, element):
        again = element.get_by_role("button", name="Start again")
        again.focus()
        again.press("Enter")
        element.get_by_role("button", name="Prefill").press("Space")
        element.get_by_role("button", name="Next token").press("Enter")
        assert "7 tokens read: 6 of the prompt in one call, 1 more in one call." in said(element)
        slide(element, "Tokens read", 29)
        check_tape(element, 29, 8)
        slide(element, "Tokens read", 32)
        assert "tape ends here" in said(element)
        element.get_by_role("button", name="Next token").press("Enter")
        check_tape(element, 32, 8)  # and goes no further
        element.get_by_role("radio").first.focus()
        open_page.page.keyboard.press("ArrowRight")
        slide(element, "Tokens read", 8_185)
        check_tape(element, 8_185, preset("mistral-7b").window)


def test_the_area_of_a_tape_is_its_bytes(opened):
    """Height is key heads and width slots, so all filled areas stand in the ratio of the bytes."""
    with opened("tape") as (_, element):
        for n_tokens in (5, 8, 23):
            slide(element, "Tokens read", n_tokens)
            areas = element.evaluate(
                """element => [...element.querySelectorAll('.pf-tapes svg')].map(tape =>
                  [...tape.querySelectorAll('rect:not(.frame)')].reduce((sum, r) => sum + r.width.baseVal.value *
                  r.height.baseVal.value, 0))"""
            )
            kept = [in_units(row[2]) for row in numbers_of(element)[1:]]
            assert [area / areas[0] for area in areas] == pytest.approx([n / kept[0] for n in kept], rel=1e-3)


# ---- the RoPE dial ----


def turned(pair: int, m: int, n: int) -> tuple[list[float], list[float], float]:
    """Chapter 5's query and key in one pair of a head of Llama 2 7B, after the library has turned them."""
    config = preset("llama-2-7b")
    arrows = torch.zeros(2, config.d_head, dtype=torch.float64)
    arrows[:, 2 * pair : 2 * pair + 2] = torch.tensor([[2.0, 1.0], [1.0, 0.0]])
    at = rotary_angles(torch.tensor([m, n]), config.d_head, base=config.rope_base, dtype=torch.float64)
    q, k = rotate(arrows, *at, pairing="even-odd")
    return *(x[2 * pair : 2 * pair + 2].tolist() for x in (q, k)), (q @ k).item()


def check_dial(element, pair: int, m: int, n: int) -> None:
    query, key, product = turned(pair, m, n)
    text = said(element)
    assert f"Query at {m}, key at {n}: distance {m - n}." in text
    assert float(re.search(r"dot product is (-?[\d.]+)\.", text)[1]) == pytest.approx(product, abs=6e-4)
    angle = float(re.search(r"it is (-?[\d.]+) radians", text)[1])
    assert 5**0.5 * torch.tensor(angle).cos().item() == pytest.approx(product, abs=0.02)
    _, *rows = numbers_of(element)
    for row, position, vector in zip(rows, (m, n), (query, key)):
        assert int(row[1]) == position
        shown = [float(x) for x in re.findall(r"-?\d+\.\d+", row[-1])]
        assert shown == pytest.approx(vector, abs=6e-4)
        assert float(row[2]) == pytest.approx(position * 10_000 ** (-2 * pair / 128), abs=6e-4)


def test_dial_by_keyboard(opened):
    with opened("dial") as (_, element):
        slide(element, "Query's position, m", 17)
        slide(element, "Key's position, n", 21)
        check_dial(element, 0, 17, 21)
        before = element.locator(".now").evaluate("dot => [dot.cx.baseVal.value, dot.cy.baseVal.value]")
        slide(element, "Move both to the right by", 33)
        check_dial(element, 0, 50, 54)
        after = element.locator(".now").evaluate("dot => [dot.cx.baseVal.value, dot.cy.baseVal.value]")
        assert after == pytest.approx(before, abs=1e-3)  # the point of the curve does not stir
        product = turned(0, 17, 21)[2]
        assert f"Unmoved, at 17 and 21, the product is {product:.3f} as well." in said(element)
        element.get_by_label("Pair of features").focus()
        element.get_by_label("Pair of features").press("ArrowDown")
        check_dial(element, 4, 50, 54)


def test_dial_by_mouse(opened):
    with opened("dial") as (_, element):
        element.get_by_label("Pair of features").select_option("63")
        track = element.get_by_role("slider", name="Query's position, m").bounding_box()
        middle = track["y"] + track["height"] / 2
        element.page.mouse.click(track["x"] + track["width"] / 2, middle)
        m = int(element.get_by_role("slider", name="Query's position, m").input_value())
        assert 13 <= m <= 17
        check_dial(element, 63, m, 0)
        element.page.mouse.move(track["x"] + track["width"] / 2, middle)
        element.page.mouse.down()
        element.page.mouse.move(track["x"] + track["width"] + 5, middle, steps=4)
        element.page.mouse.up()
        check_dial(element, 63, 30, 0)


# ---- the residual stream ----


def measurements() -> list[dict]:
    from classroom.running_sum import shipped

    return shipped()


def check_stream(element, text: dict, block: int) -> None:
    size, attention, mlp = text["sizes"][block]
    token, chance = text["best"][block][0]
    spoken = said(element)
    if block:
        before = text["sizes"][block - 1][0]
        assert f"Block {block} takes the stream from {before:.2f} to {size:.2f}" in spoken
        assert f"attention adds {attention:.2f}, the MLP {mlp:.2f}." in spoken
    else:
        assert f"The embedding alone has size {size:.2f}." in spoken
    found = re.search(r'Read out here, (".*") leads with ([\d.]+)%', spoken)
    assert json.loads(found[1]) == token and float(found[2]) == pytest.approx(100 * chance, abs=0.051)
    shown = element.locator(".pf-streams code").all_inner_texts()
    assert [json.loads(word) for word in shown] == [word for word, _ in text["best"][block]]


def test_stream_by_keyboard_and_mouse(opened):
    with opened("stream") as (open_page, element):
        first, second = measurements()
        for block in (0, 1, 25, 30):
            slide(element, "After block", block)
            check_stream(element, first, block)
        element.get_by_role("radio", name=second["text"]).click()
        check_stream(element, second, 30)
        track = element.get_by_role("slider", name="After block").bounding_box()
        open_page.page.mouse.click(track["x"] + track["width"] / 2, track["y"] + track["height"] / 2)
        block = int(element.get_by_role("slider", name="After block").input_value())
        assert 13 <= block <= 17
        check_stream(element, second, block)
        header, *rows = numbers_of(element)
        assert header == ["block", "attention adds", "cosine", "MLP adds", "cosine", "stream", "would say"]
        for n, (row, sizes) in enumerate(zip(rows, second["sizes"], strict=True)):
            block, attention, _, mlp, _, size, token = row
            assert int(block) == n and size == f"{sizes[0]:.2f}"
            assert n == 0 or (attention, mlp) == (f"{sizes[1]:.2f}", f"{sizes[2]:.2f}")
            assert json.loads(token.replace("\xa0", " "), strict=False) == second["best"][n][0][0].replace("\xa0", " ")


@pytest.mark.weights
def test_the_shipped_stream_is_what_the_weights_give():
    """Measured again, and in another way: the stream's size from the blocks' outputs, not from what is added."""
    from classroom import running_sum
    from plainformer.pretrained import load, tokenizer_of

    try:
        path = running_sum.weights_file()
    except importlib.metadata.PackageNotFoundError:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip("needs SmolLM2's weights: run `make weights`")
    model, tokenizer = load(path), tokenizer_of(path)
    streams = []
    for block in model.blocks:
        block.register_forward_hook(lambda _, inputs, output: streams.append(output[0, -1]))
    for text in measurements():
        ids = tokenizer.encode(text["text"])
        streams.clear()
        with torch.no_grad():
            logits = model(torch.tensor([ids]))[0, -1]
        sizes = torch.stack([model.embed.weight[ids[-1]], *streams]).square().mean(-1).sqrt()
        torch.testing.assert_close(sizes, torch.tensor([row[0] for row in text["sizes"]]), atol=1e-3, rtol=1e-4)
        found = running_sum.measure(model, ids)
        for part in ("sizes", "added"):
            torch.testing.assert_close(torch.tensor(found[part]), torch.tensor(text[part]), atol=2e-3, rtol=1e-3)
        for ours, theirs in zip(found["best"], text["best"], strict=True):
            assert [p for _, p in ours] == pytest.approx([p for _, p in theirs], abs=2e-3)
            assert tokenizer.decode([ours[0][0]]) == theirs[0][0]
        assert logits.argmax().item() == found["best"][-1][0][0]


def test_a_post_norm_stream_is_refused():
    from classroom.running_sum import measure
    from plainformer.config import Config
    from plainformer.model import Transformer

    sizes = dict(n_vocab=5, d_model=8, n_heads=2, n_kv_heads=2, d_ff=8, n_context=4, n_layers=1)
    with pytest.raises(ValueError, match="post-norm"):
        measure(Transformer(Config(**sizes, norm_placement="post")), [1, 2])


# ---- all three ----


@pytest.mark.parametrize("name", FIGURES)
def test_every_control_has_a_name_and_a_size(opened, name):
    """On a phone each target is 24 px or more, and nothing is wider than the screen."""
    with opened(name, "phone") as (_, element):
        for control in element.locator("button, input, select").all():
            box = control.bounding_box()
            assert box["height"] >= 24 and box["width"] >= 24
        right = element.evaluate(
            "e => Math.max(...[...e.querySelectorAll('.pf-figure > *')].map(p => p.getBoundingClientRect().right))"
        )
        assert right <= 390
        assert element.get_attribute("role") == "group" and element.get_attribute("aria-label")


class Tables(HTMLParser):
    """The cells of the tables inside of one kind of element, as they stand in the file."""

    def __init__(self, name: str):
        super().__init__()
        self.name, self.inside, self.cells = name, False, []

    def handle_starttag(self, tag, attrs):
        self.inside = self.inside or tag == self.name
        if self.inside and tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != self.name

    def handle_data(self, data):
        if self.inside and self.cells:
            self.cells[-1] += data


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("tape", ["MHA, 64 key heads", "2.5 MiB", "20 GiB", "320 KiB"]),
        ("dial", ["m − n", "502", f"{turned(0, 502, 500)[2]:.3f}".replace("-", "−")]),
        ("stream", ["after block", "26.04", "' Paris' 96%"]),
    ],
)
def test_a_table_says_it_without_scripts(book, name, cells):
    found = Tables(f"pf-{name}")
    found.feed((book.html / "chapters" / f"{FIGURES[name]}.html").read_text(encoding="utf-8"))
    assert set(cells) <= set(found.cells)


def test_paper_shows_the_state(opened):
    """Printed, a figure keeps its picture and its sentence, and loses its controls."""
    with opened("tape") as (open_page, element):
        open_page.page.emulate_media(media="print")
        assert element.locator("svg").first.is_visible() and said(element)
        assert not any(control.is_visible() for control in element.locator("button, .pf-slider, .pf-choice").all())
