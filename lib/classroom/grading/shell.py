"""A notebook's cells run in this process, one after the other: IPython without a kernel.

What a cell shows is text, pictures in PNG and errors, in nbformat's form and up to a number of bytes: no HTML and no
script of a submission ever reaches a teacher's browser.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import sys
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Any as AnyTrait
from traitlets import Type
from traitlets.config import Config

SHOWN = ["text/plain", "image/png"]


class Outputs:
    """What one cell has shown so far, as outputs of nbformat 4."""

    def __init__(self, largest: int):
        self.found: list[dict] = []
        self.left = largest
        self.is_cut = False

    def stream(self, name: str, text: str) -> None:
        """Printed text; neighbours of one stream are one output."""
        fits = text[: self.left]
        self.left -= len(fits)
        if fits and self.found and self.found[-1].get("name") == name:
            self.found[-1]["text"] += fits
        elif fits:
            self.found.append({"output_type": "stream", "name": name, "text": fits})
        if len(fits) < len(text):
            self._cut()

    def data(self, kind: str, data: dict[str, Any], count: int | None = None) -> None:
        """A result or a picture: what it says in `SHOWN`."""
        kept = {}
        for name in SHOWN:
            if isinstance(value := data.get(name), bytes):
                value = base64.b64encode(value).decode("ascii")
            if isinstance(value, str):
                kept[name] = value
        if sum(map(len, kept.values())) > self.left:
            self._cut()
        elif kept:
            self.left -= sum(map(len, kept.values()))
            extra = {"execution_count": count} if kind == "execute_result" else {}
            self.found.append({"output_type": kind, "data": kept, "metadata": {}, **extra})

    def error(self, name: str, text: str, lines: list[str]) -> None:
        """An exception: never left out, but shortened."""
        lines = [line[:2_000] for line in lines[-60:]]
        self.found.append({"output_type": "error", "ename": name[:80], "evalue": text[:2_000], "traceback": lines})

    def _cut(self) -> None:
        if not self.is_cut:
            self.is_cut, self.left = True, 0
            self.found.append(
                {"output_type": "stream", "name": "stdout", "text": "\n[the rest is left out: too long]\n"}
            )


class Stream(io.TextIOBase):
    """sys.stdout or sys.stderr of a cell."""

    encoding = "utf-8"

    def __init__(self, shell: Shell, name: str):
        self.shell, self.stream_name = shell, name

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        self.shell.outputs.stream(self.stream_name, str(text))
        return len(text)


class Results(DisplayHook):
    """Keeps the value of a cell's last line."""

    def write_output_prompt(self) -> None: ...

    def write_format_data(self, format_dict, md_dict=None) -> None:
        self.shell.outputs.data("execute_result", format_dict, self.shell.execution_count)

    def finish_displayhook(self) -> None: ...


class Displays(DisplayPublisher):
    """Keeps what a cell displays."""

    def publish(self, data, metadata=None, **_) -> None:
        self.shell.outputs.data("display_data", data)

    def clear_output(self, wait=False) -> None:
        self.shell.outputs.found.clear()


class Shell(InteractiveShell):
    """IPython whose outputs are kept."""

    displayhook_class = Type(Results)
    display_pub_class = Type(Displays)
    outputs = AnyTrait()
    largest = AnyTrait(2**20)
    slip = AnyTrait(None)  # the known wrong answer that the last cell's failed check named

    @classmethod
    def start(cls, largest: int) -> Shell:
        """The shell of this process, without history, colours or anything of a user's own."""
        os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        config = Config()
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "nocolor"
        config.InteractiveShell.autoindent = False
        shell = cls.instance(config=config)
        shell.largest = largest
        shell.display_formatter.active_types = SHOWN
        shell.outputs = Outputs(largest)
        return shell

    def cell(self, source: str) -> list[dict]:
        """Run a cell; what it shows. An error is the last output."""
        self.outputs, self.slip = Outputs(self.largest), None
        before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = Stream(self, "stdout"), Stream(self, "stderr")
        try:
            self.run_cell(source, store_history=True)
        finally:
            sys.stdout, sys.stderr = before
        return self.outputs.found

    def _showtraceback(self, etype, evalue, stb) -> None:
        slip = getattr(evalue, "slip", None)
        self.slip = slip if type(slip) is str else None
        self.outputs.error(getattr(etype, "__name__", str(etype)), str(evalue), [str(line) for line in stb])

    def _tee(self, channel: str) -> contextlib.AbstractContextManager:
        """IPython's own copy of what a cell prints has no limit; it is not kept."""
        return contextlib.nullcontext()

    def enable_gui(self, gui=None) -> None: ...

    def ask_exit(self) -> None:
        """`exit` in a cell ends nothing: the cells after it count too."""
