"""What is seen of a run: a bar while it goes on, and its end in words."""

from __future__ import annotations

import io
import os
import shlex
import sys
import time

from tqdm import tqdm

from classroom.grading.batch import Summary

LINE = "{n_fmt} of {total_fmt} marked after {elapsed}; about {remaining} left ({rate_fmt})"


class Progress:
    """A bar with the time that is left; without a terminal, a line now and then."""

    EVERY = 30.0  # seconds between two lines

    def __init__(self):
        self.is_terminal = sys.stderr.isatty()
        self.bar: tqdm | None = None
        self.said = 0.0

    def __call__(self, n_done: int, n_all: int) -> None:
        if n_all == 0 or (self.bar and self.bar.n == n_done):
            return
        if self.bar is None:
            file = sys.stderr if self.is_terminal else io.StringIO()
            self.bar = tqdm(total=n_all, unit="submission", file=file, dynamic_ncols=True)
        self.bar.update(n_done - self.bar.n)
        if n_done == n_all:
            self.bar.close()
        if not self.is_terminal and (n_done == n_all or time.monotonic() - self.said >= self.EVERY):
            self.said = time.monotonic()
            print(tqdm.format_meter(**{**self.bar.format_dict, "ncols": None, "bar_format": LINE}), file=sys.stderr)


def text(summary: Summary) -> str:
    """The end of a run in words."""
    lines = []
    for title, found in (("No marks", summary.listed), ("Look at", summary.flagged)):
        if found:
            lines += [
                f"{title}:",
                *(f"  {_shown(student)}: {_plain(why)}" for student, why in sorted(found.items())),
                "",
            ]
    if summary.without_isolation:
        lines.append(f"Marked WITHOUT ISOLATION: {len(summary.without_isolation)}. Their code ran with your rights.")
    graded, unchanged = len(summary.graded), len(summary.unchanged)
    lines.append(
        f"{summary.assignment}: {graded} graded, {unchanged} unchanged, {len(summary.listed)} without marks, "
        f"{len(summary.flagged)} to look at; {summary.seconds:.0f} s."
    )
    lines += [f"Results:   {os.path.relpath(summary.results)}", f"Gradebook: {summary.gradebook}"]
    return "\n".join(lines)


def _shown(student: str) -> str:
    """A folder's name, quoted if it holds anything that could be taken for something else."""
    return student if student.isprintable() and shlex.quote(student) == student else repr(student)


def _plain(text: str) -> str:
    """A line without what a terminal would take for a command: it may quote a student's file."""
    return "".join(letter if letter.isprintable() else " " for letter in text)[:1_000]
