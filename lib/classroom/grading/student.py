"""A student's process: runs the cells of one submission in a box, and answers the judge.

Whatever happens here happens to this process alone: the judge takes plain data from it and nothing else.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import itertools
import linecache
import os
import signal
import socket
import sys
import traceback
from types import ModuleType
from typing import Any

from classroom.grading import sandbox
from classroom.grading.bridge import Gone, Peer
from classroom.grading.forks import at_home, step_in
from classroom.grading.shell import Shell
from classroom.grading.steps import JUDGED, is_judged
from classroom.grading.task import Limits


def become(request: dict, files: list[int], told: int) -> None:
    """Step into the box that `request` names, and serve the judge at the other end of the socket; never returns."""
    limits = Limits(**request["limits"])
    if request["first"] is None:  # without isolation
        sandbox.die_with(os.getppid())  # nothing else ends it when the grader is stopped
        os.chdir(request["folder"])
        os.environ.update(at_home(request["folder"]))
        os.setsid()
    else:
        step_in(request, told)
    sandbox.bound(limits)
    os.close(told)
    connection = socket.socket(fileno=files[0])
    keep_only(connection.fileno())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    shell = Shell.start(limits.output_bytes)
    peer = Peer(
        connection,
        {"run": shell.cell, "names": lambda names: {n: shell.user_ns[n] for n in names if n in shell.user_ns}},
        largest=limits.message_bytes,
        takes_models=True,
        locate=line_of_answer,
    )
    if not request["is_robot"]:
        sys.meta_path.insert(0, Windows(peer))
    while True:
        try:
            peer.answer_one()
        except Gone:
            os._exit(0)
        except KeyboardInterrupt:
            continue


def keep_only(*numbers: int) -> None:
    """Close every file but these; the standard ones lead nowhere."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    edges = [2, *sorted(numbers), 2**20]  # not up to the limit, which may have been lowered below what is open
    for below, above in itertools.pairwise(edges):
        os.closerange(below + 1, above)


def line_of_answer(error: BaseException, function: Any) -> str:
    """The last line of the function's own file that the error went through; empty if it never got there."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == file]
    if not own:
        return ""
    return f"\nat line {own[-1].lineno}: {linecache.getline(own[-1].filename, own[-1].lineno).strip()}"


class Window(ModuleType):
    """A module of the judge, seen from here: its names are asked for one by one, and the judge may refuse."""

    def __init__(self, name: str, peer: Peer):
        super().__init__(name)
        self.__dict__["_peer"] = peer

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.__dict__["_peer"].ask("window", self.__name__, name)


class Windows(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the judge's modules."""

    def __init__(self, peer: Peer):
        self.peer = peer

    def find_spec(self, fullname: str, path=None, target=None) -> importlib.machinery.ModuleSpec | None:
        if is_judged(fullname):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=fullname == JUDGED)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return ModuleType(spec.name) if spec.name == JUDGED else Window(spec.name, self.peer)

    def exec_module(self, module: ModuleType) -> None: ...
