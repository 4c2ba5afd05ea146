"""Every figure of the book: numbers in, picture out. Colour-blind safe, the same bytes on every run."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from PIL import Image  # Matplotlib brings it

# Okabe and Ito's palette: told apart by readers with any common colour vision, and in print
BLUE, ORANGE, GREEN, VERMILION, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
PURPLE, BLACK = "#CC79A7", "#222222"
_DPI = 100  # of the page; the file has twice as many
_SERIES = [
    (BLUE, "o", "-"),
    (VERMILION, "s", "--"),
    (GREEN, "^", "-."),
    (ORANGE, "D", ":"),
    (PURPLE, "v", "-"),
    (BLACK, "x", "--"),
]


class Picture:
    """A finished figure. Its text says what it shows, for whoever cannot see it."""

    def __init__(self, figure: Figure, text: str):
        self.figure = figure
        self.text = text

    def _repr_png_(self) -> tuple[bytes, dict]:
        target = io.BytesIO()
        # no program name and no date in the file: an unchanged figure is an unchanged notebook
        self.figure.savefig(target, format="png", dpi=2 * _DPI, bbox_inches="tight", metadata={"Software": None})
        data = opaque(target.getvalue())
        # shown at half its pixels, so that letters are as large as the text's and sharp on fine screens
        (width,) = struct.unpack(">I", data[16:20])  # where a PNG file keeps it; the height follows
        return data, {"width": width // 2}

    def __repr__(self) -> str:
        return f"[figure: {self.text}]"


def opaque(png: bytes) -> bytes:
    """The same picture without its channel of transparency, which hides nothing in ours: a quarter fewer bytes."""
    target = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").save(target, format="png", compress_level=9)
    return target.getvalue()


def _new(width: float, height: float, n_axes: int = 1):
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, n_axes, squeeze=False)[0]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=9)
    return figure, axes


def _log_axis(ax, axis: str, ticks: Sequence[float] | None = None) -> None:
    getattr(ax, f"set_{axis}scale")("log")
    if ticks is not None:
        getattr(ax, f"set_{axis}ticks")(ticks, [f"{tick:g}" for tick in ticks])
        getattr(ax, f"{axis}axis").minorticks_off()


def curves(
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    *,
    x_label: str,
    y_label: str,
    x_log: bool = False,
    y_log: bool = False,
    x_ticks: Sequence[float] | None = None,
    y_ticks: Sequence[float] | None = None,
    y_zero: bool = False,
) -> Picture:
    """One line a series over the same x; the label stands at the line's end, so no colour has to be looked up."""
    if len(series) > len(_SERIES):
        raise ValueError(f"{len(series)} series: more than {len(_SERIES)} lines cannot be told apart.")
    figure, (ax,) = _new(5.4, 3.2)
    for (name, y), (colour, marker, style) in zip(series.items(), _SERIES):
        if len(y) != len(x):
            raise ValueError(f"series {name!r} has {len(y)} points, x has {len(x)}.")
        ax.plot(x, y, color=colour, marker=marker, linestyle=style, markersize=4.5, label=name)
    if x_log:
        _log_axis(ax, "x", x_ticks)
    if y_log:
        _log_axis(ax, "y", y_ticks)
    if y_zero:
        ax.set_ylim(bottom=0)
    ax.set_xlabel(x_label)
    ax.set_ylabel(y_label)
    ax.grid(alpha=0.25)
    _name_ends(figure, ax, (x[-1], {name: y[-1] for name, y in series.items()}))
    return Picture(figure, f"{y_label} over {x_label}: {', '.join(series)}")


def _name_ends(figure: Figure, ax, ends: tuple[float, Mapping[str, float]]) -> None:
    """Each line's name beside its end; names that would cover each other are moved apart."""
    x, heights = ends
    figure.draw_without_rendering()  # fixes the limits, from which places in points follow
    points = {name: ax.transData.transform((x, y))[1] * 72 / figure.dpi for name, y in heights.items()}
    line, lowest = 11.0, -math.inf
    colours = {name: colour for name, (colour, *_) in zip(heights, _SERIES)}
    for name in sorted(points, key=points.get):
        place = max(points[name], lowest + line)
        ax.annotate(
            name, (x, heights[name]), xytext=(7, place - points[name]), textcoords="offset points",
            va="center", color=colours[name], fontsize=9,
        )  # fmt: skip
        lowest = place


def bars(
    labels: Sequence[str],
    series: Mapping[str, Sequence[float]],
    *,
    x_label: str,
    stacked: bool = False,
    x_log: bool = False,
    number: str = "",
) -> Picture:
    """Lying bars, a row a label and a colour a series: side by side, or stacked into a whole.

    ``number`` is the format in which each bar's length is written at its end, such as ".0%"; empty for none.
    """
    if stacked and (x_log or number):
        raise ValueError("parts of a whole stand on a linear axis, without numbers at their ends.")
    height = 0.34 if stacked else 0.17 + 0.17 * len(series)
    figure, (ax,) = _new(5.4, 1.0 + height * len(labels))
    left, size = [0.0] * len(labels), 0.7 if stacked else 0.7 / len(series)
    for n, ((name, values), (colour, *_), hatch) in enumerate(zip(series.items(), _SERIES, ("", "//", "..", "xx"))):
        if len(values) != len(labels):
            raise ValueError(f"series {name!r} has {len(values)} values for {len(labels)} labels.")
        at = [row + (0 if stacked else (n - (len(series) - 1) / 2) * size) for row in range(len(labels))]
        # hatched too: neighbours differ in print and for every eye
        drawn = ax.barh(at, values, size, left=left, color=colour, hatch=hatch, edgecolor="white", label=name)
        if number:
            ax.bar_label(drawn, [f"{value:{number}}" for value in values], padding=3, fontsize=8)
        if stacked:
            left = [a + b for a, b in zip(left, values)]
    if x_log:
        _log_axis(ax, "x")
    ax.set_yticks(range(len(labels)), labels)
    ax.invert_yaxis()
    ax.set_xlabel(x_label)
    if number:
        ax.margins(x=0.15)
    if len(series) > 1:
        figure.legend(loc="outside upper center", ncols=len(series), fontsize=9, frameon=False)
    return Picture(figure, f"{x_label} of {', '.join(labels)}" + (f": {', '.join(series)}" if len(series) > 1 else ""))


def attention_maps(
    maps: Mapping[str, Sequence[Sequence[float]]], tokens: Sequence[str], *, numbers: bool = False
) -> Picture:
    """Who looks at whom: one square a map, a row for each looking token, a column for each token looked at."""
    size = max(2.6, 0.29 * len(tokens) + 0.9)
    figure, axes = _new(0.9 + (size - 0.5) * len(maps), size, len(maps))
    names = [token.replace(" ", "·") if token.strip() else repr(token) for token in tokens]
    for ax, (title, weights) in zip(axes, maps.items()):
        weights = [[float(w) for w in row] for row in weights]
        if len(weights) != len(tokens) or any(len(row) != len(tokens) for row in weights):
            raise ValueError(f"map {title!r} must be {len(tokens)} × {len(tokens)}, one row and column a token.")
        ax.imshow(weights, cmap="Blues", vmin=0, vmax=1)
        if numbers:
            for i, row in enumerate(weights):
                for j, w in enumerate(row):
                    if w:
                        colour = "white" if w > 0.7 else "black"
                        ax.text(j, i, f"{w:.2f}", ha="center", va="center", color=colour, fontsize=9)
        ax.set_xticks(range(len(names)), names, rotation=45 if max(map(len, names)) > 3 else 0, ha="right")
        ax.set_yticks(range(len(names)), names if ax is axes[0] else [])
        ax.spines[:].set_visible(False)
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("looked at", fontsize=9)
    axes[0].set_ylabel("looking", fontsize=9)
    return Picture(figure, f"attention weights of {len(tokens)} tokens: {', '.join(maps)}")


def pattern_grid(rows: Mapping[str, Sequence[Sequence[Sequence[float]]]], column: str) -> Picture:
    """Many small attention maps for comparing: a labelled row of maps a key, columns numbered as ``column`` n."""
    (n_columns,) = {len(maps) for maps in rows.values()}
    figure = Figure(figsize=(0.9 + 0.7 * n_columns, 0.35 + 0.7 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), n_columns, squeeze=False)
    for (name, maps), axes in zip(rows.items(), grid):
        for ax, weights in zip(axes, maps):
            ax.imshow(weights, cmap="Blues", vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set(color=GREY, linewidth=0.5)
        axes[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
    for n, ax in enumerate(grid[0]):
        ax.set_title(f"{column} {n + 1}", fontsize=8)
    return Picture(figure, f"attention patterns, {n_columns} a row: {', '.join(rows)}")


def points(rows: Mapping[str, Sequence[float]], *, x_label: str, reference: float = 0.0) -> Picture:
    """A row a label and a dot a value, such as one a seed, with a stroke at their mean; a line at ``reference``.

    The dots show the spread that a mean and an error bar would sum up.
    """
    figure, (ax,) = _new(5.4, 0.9 + 0.3 * len(rows))
    ax.axvline(reference, color=GREY, linewidth=1)
    for at, values in enumerate(rows.values()):
        ax.plot(values, [at] * len(values), "o", color=BLUE, markersize=5, alpha=0.55, markeredgewidth=0)
        ax.plot([sum(values) / len(values)], [at], "|", color=VERMILION, markersize=15, markeredgewidth=2)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.5, -0.5)  # the first row on top
    ax.set_xlabel(x_label)
    ax.grid(alpha=0.25, axis="x")
    return Picture(figure, f"{x_label} of {', '.join(rows)}: each value, and the mean")
