"""Checks of exercise 10's drawing, by its data: two curves, where they pass one half, and what a reader needs."""

from __future__ import annotations

import math

from classroom.checks.expect import CheckFailed, call, passed, same
from classroom.checks.flops_slips import CATALOGUE, LAST, MEAN, N_POINTS, WIDTH
from classroom.checks.progress import graded

EXACT = 1e-9  # a few roundings of float64 in numbers of about 1
NEAR = 0.01  # a line that passes one half may be rounded
BELOW, ABOVE = 0.4, 0.6  # a line that reaches as far as the text asks goes further, both ways


@graded
def curves(draw, *widths: int) -> None:
    """The two labelled lines: enough points, far enough, on the formula."""
    _, few, short, exchanged, per_cent = CATALOGUE["curves"]
    for d_model in widths or (WIDTH,):
        lines = _lines(_axes(draw, d_model))
        for label, mean in ((LAST, False), (MEAN, True)):
            lengths, shares = lines[label]
            if len({n for n in lengths if math.isfinite(n)}) < N_POINTS or not all(map(math.isfinite, lengths)):
                raise CheckFailed(f"draw: {few}; {label!r} has {len(lengths)}.", slip=few)
            if min(lengths) > d_model / 4 * (1 + EXACT) or max(lengths) < 32 * d_model * (1 - EXACT):
                found = f"{min(lengths):,.0f} to {max(lengths):,.0f}"
                raise CheckFailed(f"draw: {short}; {label!r} reaches from {found}.", slip=short)
            wrong = {
                exchanged: [_share_at(d_model, n, not mean) for n in lengths],
                per_cent: [100 * _share_at(d_model, n, mean) for n in lengths],
            }
            right = [_share_at(d_model, n, mean) for n in lengths]
            same(shares, right, f"the y data of {label!r}", wrong=wrong, tolerance=EXACT)
    passed("two curves")


@graded
def crossing(draw, *widths: int) -> None:
    """Each line has a point where it passes one half: among enough others, lower and higher, that are shares too."""
    *missing, alone, invented = CATALOGUE["crossing"]
    for d_model in widths or (WIDTH,):
        lines = _lines(_axes(draw, d_model))
        for label, times, says in zip((LAST, MEAN), (6, 12), missing):
            at, points = times * d_model, list(zip(*lines[label]))
            if not any(abs(x - at) <= 1e-6 * at and abs(y - 0.5) <= 1e-6 for x, y in points):
                raise CheckFailed(f"draw: {says}", slip=says)
            shares = [y for _, y in points]
            if len({x for x, _ in points}) < N_POINTS or min(shares) > BELOW or max(shares) < ABOVE:
                found = f"has {len(points)}, from {min(shares):.2f} to {max(shares):.2f}"
                raise CheckFailed(f"draw: {alone}; {label!r} {found}.", slip=alone)
            if not all(abs(y - _share_at(d_model, x, label == MEAN)) <= NEAR for x, y in points):
                raise CheckFailed(f"draw: {invented}; look at {label!r}.", slip=invented)
    passed("both half-way points")


@graded
def axes(draw, *widths: int) -> None:
    """What a reader of the picture needs."""
    plain, unnamed, no_legend = CATALOGUE["axes"]
    for d_model in widths or (WIDTH,):
        ax = _axes(draw, d_model)
        named = ax.get_xlabel().strip() and ax.get_ylabel().strip()
        box = ax.get_legend() or next(iter(ax.figure.legends), None)
        legend = box is not None and len({text.get_text() for text in box.get_texts()} - {""}) > 1
        for fine, says in ((ax.get_xscale() == "log", plain), (named, unnamed), (legend, no_legend)):
            if not fine:
                raise CheckFailed(f"draw: {says}", slip=says)
    passed("scale, labels and legend")


def _axes(draw, d_model: int):
    """The Axes that `draw` returns; its figure is closed, so that checks show no pictures."""
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    drawn = call(draw, "draw", d_model=d_model)
    figure = drawn.figure if isinstance(drawn, Axes) else drawn
    if isinstance(figure, Figure):
        plt.close(figure)
    if isinstance(drawn, Figure) and len(drawn.axes) == 1:
        return drawn.axes[0]
    if not isinstance(drawn, Axes):
        raise CheckFailed(f"draw returns a {type(drawn).__name__}; return the Axes, as in `return ax`.")
    return drawn


def _lines(ax) -> dict[str, tuple[list[float], list[float]]]:
    """Label → x and y data of the two lines. Further lines, such as a mark or one without a label, may be there."""
    labels = next(iter(CATALOGUE["curves"]))
    lines = {str(line.get_label()): (line.get_xdata(), line.get_ydata()) for line in ax.get_lines()}
    if not {LAST, MEAN} <= set(lines):
        found = ", ".join(repr(label) for label in lines if not label.startswith("_")) or "none"
        raise CheckFailed(f"draw: {labels}; labelled lines found: {found}.", slip=labels)
    return {label: tuple([float(v) for v in data] for data in lines[label]) for label in (LAST, MEAN)}


def _share_at(d_model: int, n_positions: float, mean: bool) -> float:
    """The closed form, for lengths that are no whole numbers too."""
    whole = n_positions + (12 if mean else 6) * d_model
    return n_positions / whole if whole else math.nan  # a length below zero has no share
