"""Tables of the instructor guide. A Sphinx extension: the directives `bounds` and `speed-of-grading`."""

from __future__ import annotations

import json
from pathlib import Path

import docutils.nodes as nodes
from docutils.parsers.rst import Directive

from classroom.elements.frame import table
from classroom.grading.task import MB, Limits

BENCH = Path("data/bench.json")  # in the folder of the chapters
GRADING = "grading"  # the work of its rows


class Bounds(Directive):
    """What a submission may use."""

    def run(self) -> list[nodes.Node]:
        return [nodes.raw("", bounds(Limits()), format="html")]


class SpeedOfGrading(Directive):
    """What `make bench` has measured of grading; nothing if it was not run."""

    def run(self) -> list[nodes.Node]:
        file = Path(self.state.document.settings.env.srcdir, "chapters", BENCH)
        measured = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"machine": {}, "rows": []}
        rows = [row for row in measured["rows"] if row["work"] == GRADING]
        return [nodes.raw("", speed(measured["machine"], rows), format="html")] if rows else []


def bounded(limits: Limits) -> dict[str, str]:
    """What is bounded, and how much of it there is."""
    return {
        "a cell, or a check": f"{limits.cell_seconds:g} seconds",
        "the submission": f"{limits.total_seconds:g} seconds",
        "memory of all its processes": f"{limits.memory_bytes // MB} MiB",
        "scratch space": f"{limits.disk_bytes // MB} MiB",
        "processes": f"{limits.n_processes}",
        "open files of a process": f"{limits.n_files}",
        "what a cell shows": f"{limits.output_bytes // MB} MiB",
        "one value that a check gets": f"{limits.message_bytes // MB} MiB",
    }


def bounds(limits: Limits) -> str:
    """The markup of the table of bounds."""
    return table("What a submission may use", ("bound", "at most"), bounded(limits).items(), kind="table")


def speed(machine: dict, rows: list[dict]) -> str:
    """The markup of the table of speed; `machine` and `rows` as the bench writes them."""
    caption = f"Grading on {machine['cores']} processor cores"
    against = [f", against {row['against']}" if row["against"] else "" for row in rows]
    lines = [(row["what"] + than, f"{row['value']:.3g} {row['unit']}") for row, than in zip(rows, against)]
    return table(caption, ("what", "measured"), lines, kind="table")


def setup(app) -> dict:
    """Registers the directives."""
    app.add_directive("bounds", Bounds)
    app.add_directive("speed-of-grading", SpeedOfGrading)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
