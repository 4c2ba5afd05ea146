"""What cells show: listings are the library's own text, figures the same bytes each time, quizzes safe to embed."""

import html
import inspect
import json
import re
import struct

import pytest

import classroom
from classroom import plots, show
from plainformer.attention import SelfAttention, attention


def test_a_listing_is_the_object_s_own_source():
    text = show.source(attention, SelfAttention)._repr_markdown_()
    for thing in (attention, SelfAttention):
        assert inspect.getsource(thing).strip() in text
    assert text.count("```python") == 2 and "plainformer/attention.py" in text


def test_a_table_has_a_cell_for_every_column_and_groups_thousands():
    lines = show.table(["name", "n"], [("a|b", 6738415616), ("c", -5)])._repr_markdown_().splitlines()
    assert lines[2] == "| a\\|b | 6,738,415,616 |" and lines[3] == "| c | −5 |"
    with pytest.raises(ValueError, match="2 cells"):
        show.table(["name", "n"], [("a",)])


@pytest.mark.parametrize("text", ["</script><b>", "a & b < c", "`x < y`", 'say "no"', r"\(\sqrt{d}\)"])
def test_texts_of_a_quiz_arrive_whole_and_cannot_end_the_element(text):
    markup = show.quiz(text, (text, "why " + text), ("other", "because"), right=0)._repr_html_()
    [payload] = re.findall(r'<script type="application/json">(.*?)</script>', markup, flags=re.DOTALL)
    data = json.loads(payload)
    assert data["question"] == text
    assert data["options"][0] == {"text": text, "why": "why " + text, "right": True}
    fallback = markup.split("</script>", 1)[1]
    assert "<b>" not in fallback
    assert text.replace("`", "") in html.unescape(re.sub("</?code>", "", fallback))


def test_a_quiz_has_its_right_answer_among_the_answers():
    with pytest.raises(ValueError, match="right=2"):
        show.quiz("?", ("a", "b"), ("c", "d"), right=2)


def test_a_prediction_hides_its_answer_in_a_fold():
    markup = show.reveal("How many <b>?", "12 & 3")._repr_html_()
    assert markup.startswith("<details") and "&lt;b&gt;" in markup and "12 &amp; 3" in markup


FIGURES = {
    "curves": lambda: plots.curves([1, 2, 4], {"a": [1, 2, 3], "b": [3, 2, 1]}, x_label="x", y_label="y", x_log=True),
    "maps": lambda: plots.attention_maps({"m": [[1, 0], [0.5, 0.5]]}, ["a", " b"], numbers=True),
    "grid": lambda: plots.pattern_grid({"a": [[[1, 0], [0.5, 0.5]]], "b": [[[1, 0], [0, 1]]]}, "head"),
    "points": lambda: plots.points({"a": [0.1, 0.3], "b": [-0.2, 0.0]}, x_label="x"),
    "bars": lambda: plots.bars(["a", "b"], {"x": [1, 2], "y": [2, 3]}, x_label="x", number=".1f"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_the_same_bytes_each_time_and_shown_at_half_its_pixels(name):
    data, size = FIGURES[name]()._repr_png_()
    assert data == FIGURES[name]()._repr_png_()[0]
    (width,) = struct.unpack(">I", data[16:20])
    assert size == {"width": width // 2}  # a height beside it would distort what a narrow screen makes smaller
    assert repr(FIGURES[name]()).startswith("[figure: ") and "0x" not in repr(FIGURES[name]())


def test_figures_refuse_numbers_that_do_not_fit_together():
    with pytest.raises(ValueError, match="'a' has 2 points, x has 3"):
        plots.curves([1, 2, 3], {"a": [1, 2]}, x_label="x", y_label="y")
    with pytest.raises(ValueError, match="2 × 2"):
        plots.attention_maps({"m": [[1.0]]}, ["a", "b"])


def test_an_environment_that_does_not_fit_is_refused_with_what_to_do(monkeypatch):
    versions = {"torch": "2.13.0", "plainformer": "0.1.0"}

    def version(package):
        if versions[package] is None:
            raise classroom.PackageNotFoundError
        return versions[package]

    monkeypatch.setattr(classroom, "version", version)
    classroom.ready(made_for="0.1")
    for change, made_for, says in [
        ({"torch": "2.8.1"}, None, r"torch 2\.9 or newer; this is 2\.8\.1.*make lab"),
        ({"torch": None}, None, r"torch is not installed.*make lab"),
        ({"plainformer": "0.2.0"}, "0.1", r"0\.2\.0 is installed.*0\.1.*git pull"),
    ]:
        before = dict(versions)
        versions.update(change)
        with pytest.raises(RuntimeError, match=says):
            classroom.ready(made_for=made_for)
        versions.update(before)
