"""What is seen of a run: a bar while it goes on, and its end in words."""

from __future__ import annotations

import io
import os
import shlex
import sys
import threading
import time
from pathlib import Path

from sqlalchemy import make_url
from tqdm import tqdm

from classroom.grading.batch import Summary

LINE = "{n_fmt} of {total_fmt} marked after {elapsed}"
LEFT = "; about {remaining} left at {rate_noinv_fmt}"
BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}]"


class Progress:
    """A bar with the time that is left; without a terminal, a line now and then.

    Inside `with`, the clock goes on also while no submission comes to its end.
    """

    EVERY = 30.0  # seconds between two lines

    def __init__(self):
        self.is_terminal = sys.stderr.isatty()
        self.bar: tqdm | None = None
        self.said = 0.0
        self.ended = threading.Event()
        self.clock = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Progress:
        self.clock.start()
        return self

    def __exit__(self, *_) -> None:
        self.ended.set()
        self.clock.join()

    def __call__(self, n_done: int, n_all: int) -> None:
        if n_all == 0 or (self.bar and self.bar.n == n_done):
            return
        if self.bar is None:
            file = sys.stderr if self.is_terminal else io.StringIO()
            self.bar = tqdm(total=n_all, unit=" submissions", file=file, dynamic_ncols=True, bar_format=BAR)
        self.bar.update(n_done - self.bar.n)
        if n_done == n_all:
            self.bar.close()
        if not self.is_terminal and (n_done == n_all or time.monotonic() - self.said >= self.EVERY):
            self._say()

    def _say(self) -> None:
        self.said = time.monotonic()
        form = LINE + LEFT * (0 < self.bar.n < self.bar.total)
        line = tqdm.format_meter(**{**self.bar.format_dict, "ncols": None, "bar_format": form})
        print(" ".join(line.split()), file=sys.stderr, flush=True)

    def _tick(self) -> None:
        while not self.ended.wait(min(1.0, self.EVERY)):
            if self.bar is None or self.bar.n == self.bar.total:
                continue
            if self.is_terminal:
                self.bar.refresh()
            elif time.monotonic() - self.said >= self.EVERY:
                self._say()


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
    n_all = len({*summary.graded, *summary.unchanged, *summary.listed})
    marked, unchanged, without = len(summary.graded), len(summary.unchanged), len(summary.listed)
    failed = f", {n_failed} failed" if (n_failed := n_all - marked - unchanged) else ""
    lines.append(
        f"{summary.assignment}, {n_all} submission{'s' * (n_all != 1)}: {n_all - without} with marks, "
        f"{without} without, {len(summary.flagged)} to look at "
        f"({marked} marked now, {unchanged} unchanged{failed}); {summary.seconds:.0f} s."
    )
    url = make_url(summary.gradebook)
    is_file = url.get_backend_name() == "sqlite" and url.database
    gradebook = place(Path(url.database)) if is_file else summary.gradebook
    return "\n".join([*lines, f"Results:   {place(summary.results)}", f"Gradebook: {gradebook}"])


def place(path: Path) -> str:
    """A path as it is said: from the current folder if it lies below that."""
    path = Path(os.path.abspath(path))
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _shown(student: str) -> str:
    """A folder's name, quoted if it holds anything that could be taken for something else."""
    return student if student.isprintable() and shlex.quote(student) == student else repr(student)


def _plain(text: str) -> str:
    """A line without what a terminal would take for a command: it may quote a student's file."""
    return "".join(letter if letter.isprintable() else " " for letter in text)[:1_000]
