"""The table of what a submission may use, in the instructor guide. A Sphinx extension: the directive `bounds`."""

from __future__ import annotations

import docutils.nodes as nodes
from docutils.parsers.rst import Directive

from classroom.elements.frame import table
from classroom.grading.task import MB, Limits


class Bounds(Directive):
    """The table."""

    def run(self) -> list[nodes.Node]:
        return [nodes.raw("", page(Limits()), format="html")]


def rows(limits: Limits) -> dict[str, str]:
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


def page(limits: Limits) -> str:
    """The markup."""
    return table("What a submission may use", ("bound", "at most"), rows(limits).items(), kind="table")


def setup(app) -> dict:
    """Registers the directive `bounds`."""
    app.add_directive("bounds", Bounds)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
