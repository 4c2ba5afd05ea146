"""Every figure of the book: numbers in, picture out. Colour-blind safe, the same bytes on every run."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart by readers with any common colour vision, and in print
BLUE, ORANGE, GREEN, VERMILION, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
_DPI = 100  # of the page; the file has twice as many
_SERIES = [(BLUE, "o", "-"), (VERMILION, "s", "--"), (GREEN, "^", "-."), (ORANGE, "D", ":")]


class Picture:
    """A finished figure. Its text says what it shows, for whoever cannot see it."""

    def __init__(self, figure: Figure, text: str):
        self.figure = figure
        self.text = text

    def _repr_png_(self) -> tuple[bytes, dict]:
        target = io.BytesIO()
        # no program name and no date in the file: an unchanged figure is an unchanged notebook
        self.figure.savefig(target, format="png", dpi=2 * _DPI, bbox_inches="tight", metadata={"Software": None})
        data = target.getvalue()
        # shown at half its pixels, so that letters are as large as the text's and sharp on fine screens
        (width,) = struct.unpack(">I", data[16:20])  # where a PNG file keeps it; the height follows
        return data, {"width": width // 2}

    def __repr__(self) -> str:
        return f"[figure: {self.text}]"


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
    figure, (ax,) = _new(5.4, 3.2)
    for (name, y), (colour, marker, style) in zip(series.items(), _SERIES):
        if len(y) != len(x):
            raise ValueError(f"series {name!r} has {len(y)} points, x has {len(x)}.")
        ax.plot(x, y, color=colour, marker=marker, linestyle=style, markersize=4.5, label=name)
        ax.annotate(
            name, (x[-1], y[-1]), xytext=(7, 0), textcoords="offset points", va="center", color=colour, fontsize=9
        )
    if x_log:
        _log_axis(ax, "x", x_ticks)
    if y_log:
        _log_axis(ax, "y", y_ticks)
    if y_zero:
        ax.set_ylim(bottom=0)
    ax.set_xlabel(x_label)
    ax.set_ylabel(y_label)
    ax.grid(alpha=0.25)
    return Picture(figure, f"{y_label} over {x_label}: {', '.join(series)}")


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
