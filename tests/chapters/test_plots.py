"""Figures: every line is drawn and named, no name covers another, the same numbers give the same bytes."""

import itertools

import pytest

from classroom import plots


def lines(n: int) -> plots.Picture:
    return plots.curves([1, 2], {f"line {k}": [k, 5.0 + k / 1000] for k in range(n)}, x_label="x", y_label="y")


@pytest.mark.parametrize("n", [1, 4, 6])
def test_every_line_is_drawn_and_its_name_covers_no_other(n):
    figure = lines(n).figure
    (ax,) = figure.axes
    figure.draw_without_rendering()
    assert len(ax.lines) == len(ax.texts) == n
    boxes = [text.get_window_extent() for text in ax.texts]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_more_lines_than_can_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="7 series"):
        lines(7)


def test_bars_end_where_their_values_do():
    values = {"a": [1.0, 2.0], "b": [3.0, 0.5]}
    (ax,) = plots.bars(["x", "y"], values, x_label="size", stacked=True).figure.axes
    ends = [[bar.get_x() + bar.get_width() for bar in part] for part in ax.containers]
    assert ends == [[1.0, 2.0], [4.0, 2.5]]
    with pytest.raises(ValueError, match="linear axis"):
        plots.bars(["x"], {"a": [1.0]}, x_label="size", stacked=True, x_log=True)


@pytest.mark.parametrize("draw", [plots.curves, plots.bars])
def test_a_series_of_another_length_is_named(draw):
    with pytest.raises(ValueError, match="short"):
        draw([1, 2], {"short": [1.0]}, x_label="x", **({"y_label": "y"} if draw is plots.curves else {}))


def test_the_same_numbers_give_the_same_bytes():
    assert lines(3)._repr_png_() == lines(3)._repr_png_()
