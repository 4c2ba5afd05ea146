"""A drawing as plain data: what a check may ask of matplotlib's axes, without matplotlib's objects."""

from __future__ import annotations

import sys
from typing import Any

SCALES = ("linear", "log", "symlog", "logit")
MOST = 100  # lines, and words of a legend


def is_drawing(value: Any) -> bool:
    """Whether `value` is matplotlib's Axes, or a Figure with one of them."""
    axes, figure = sys.modules.get("matplotlib.axes"), sys.modules.get("matplotlib.figure")
    if axes is None or figure is None:
        return False
    return type(value) is axes.Axes or (type(value) is figure.Figure and len(value.axes) == 1)


def described(value: Any) -> dict:
    """The lines with their labels and data, scales, names of the axes, title and legend of a drawing."""
    is_figure = not hasattr(value, "get_lines")
    axes = value.axes[0] if is_figure else value
    legend = axes.get_legend() or (axes.figure.legends or [None])[0]
    return {
        "is_figure": is_figure,
        "lines": [
            [str(line.get_label()), [float(x) for x in line.get_xdata()], [float(y) for y in line.get_ydata()]]
            for line in axes.get_lines()[:MOST]
        ],
        "scales": [str(axes.get_xscale()), str(axes.get_yscale())],
        "words": [str(axes.get_xlabel()), str(axes.get_ylabel()), str(axes.get_title())],
        "legend": None if legend is None else [str(text.get_text()) for text in legend.get_texts()[:MOST]],
    }


def redrawn(found: dict) -> Any:
    """A drawing of one's own with the same content. Raises `ValueError` or `TypeError` for any other content."""
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.add_subplot()
    for label, xs, ys in found["lines"][:MOST]:
        if type(label) is not str or not all(type(x) is float for x in [*xs, *ys]):
            raise TypeError("a line is a label and numbers")
        axes.plot(xs, ys, label=label)
    if not set(found["scales"]) <= set(SCALES):
        raise ValueError("no scale is called that")
    axes.set_xscale(found["scales"][0])
    axes.set_yscale(found["scales"][1])
    for put, word in zip((axes.set_xlabel, axes.set_ylabel, axes.set_title), found["words"]):
        put(str(word).replace("$", r"\$"))  # never typeset: a formula of a submission could be a long one
    if found["legend"] is not None:
        axes.legend(axes.get_lines()[: len(found["legend"])], [str(word) for word in found["legend"]])
    return figure if found["is_figure"] is True else axes
