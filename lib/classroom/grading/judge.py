"""The judge: runs the locked cells of the instructor's notebook in a process that no student's code can reach.

A test cell finds in the student's process the names that answers give; each value comes over as plain data, and a
function as something that calls it there. At the end every check is tried on an answer that it may not let pass.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import inspect
import os
import resource
import socket
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from classroom import memory
from classroom.grading.bridge import Gone, Peer
from classroom.grading.sandbox import bound
from classroom.grading.shell import Shell
from classroom.grading.steps import JUDGED, Step, checked, receive, send
from classroom.grading.student import keep_only
from classroom.grading.task import Limits

# of a model that stays here, since it holds a function of a check: what its parts are, and how to watch them
LOOKED_AT = ("named_modules", "modules", "named_children", "children")
WATCHED = {
    torch.nn.Module: ("register_forward_hook", "register_forward_pre_hook", "eval"),
    RemovableHandle: ("remove",),
}


SHOWN_IN_ALL = 16  # times what one cell may show: all cells of a submission together


class Canary:
    """An answer that no check may let pass."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("a canary equals nothing")

    __hash__ = None

    def __bool__(self) -> bool:
        raise AssertionError("a canary is neither true nor false")


class Judge:
    """One submission under judgement. `request`: steps, names that may be shown, limits, and what ran before."""

    def __init__(self, request: dict, control: socket.socket, connection: socket.socket):
        self.steps = [Step(**step) for step in request["steps"]]
        self.shown = {tuple(pair) for pair in request["shown"]}
        self.skip, self.done = set(request["skip"]), set(request["done"])
        limits = Limits(**request["limits"])
        self.largest, self.left = limits.output_bytes, SHOWN_IN_ALL * limits.output_bytes
        self.control = control
        self.shell = Shell.start(limits.output_bytes)
        serve = {"window": self.window, "attribute": self.attribute}
        self.peer = Peer(connection, serve, largest=limits.message_bytes, sends_models=True)

    def run(self) -> None:
        """Go through the cells, and tell of each when it begins and what it showed.

        Those in `skip` are left out: they ended a process before. Test cells in `done` have their result.
        """
        for number, step in enumerate(self.steps):
            if number in self.skip or (step.kind == "graded" and number in self.done):
                continue
            self.tell("begin", number)
            outputs = self.outputs(step)
            self.tell("cell", number, outputs, self.shell.slip if step.kind == "graded" else None)
        self.tell("begin", len(self.steps))
        passing = [step.name for step in self.steps if step.kind == "graded" and self.passes_a_canary(step)]
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self.tell("end", passing, usage.ru_utime + usage.ru_stime)

    def outputs(self, step: Step) -> list[dict]:
        """What a cell shows. Of a cell that runs on both sides, the student's side shows it."""
        if step.kind == "graded":
            return self.locked_cell(step)
        try:
            outputs = checked(self.peer.ask("run", step.source), min(self.largest, self.left))
        except Gone:
            raise
        except Exception as error:  # what it showed was too large, or it has changed its own side of the bridge
            outputs = refused(error)
        if outputs and outputs[-1].get("ename") == "MemoryError":
            raise Gone("the memory was used up")  # there may be none left for the cells behind it
        self.left -= sum(len(str(output)) for output in outputs)
        if step.in_judge:
            self.locked_cell(step)
        return outputs

    def locked_cell(self, step: Step) -> list[dict]:
        """Run a cell of the instructor's here, with the student's names where it uses them."""
        wanted = self.wanted(step)
        try:
            found = self.peer.ask("names", wanted) if wanted else {}
        except Gone:
            raise
        except Exception as error:  # a value that cannot be sent
            return refused(error)
        if type(found) is not dict or not set(found) <= set(wanted):
            raise Gone("names that nobody asked for")
        # what the checks print to the error stream is no fault of an answer; nbgrader would take it for one
        return [output for output in self.with_names(step, found) if output.get("name") != "stderr"]

    def wanted(self, step: Step) -> list[str]:
        """The names that the student's process gives: those of answers, and those that are nowhere here."""
        here = self.shell.user_ns.keys() | vars(builtins).keys() | set(step.locked)
        return [name for name in step.loads if name in step.answers or name not in here]

    def with_names(self, step: Step, values: dict[str, Any]) -> list[dict]:
        """Run a cell with these names; afterwards they are as they were."""
        here = self.shell.user_ns
        before = {name: here[name] for name in values if name in here}
        here.update(values)
        try:
            outputs = self.shell.cell(step.source)
            if self.peer.gone:  # whatever the check made of it
                raise Gone(self.peer.gone)
            return outputs
        finally:
            for name, value in values.items():
                if here.get(name) is value:
                    del here[name]
                    here.update({name: before[name]} if name in before else {})

    def passes_a_canary(self, step: Step) -> bool:
        """Whether a check gives points for an answer that is none."""
        wanted = self.wanted(step)
        outputs = self.with_names(step, {name: Canary() for name in wanted}) if wanted else [{"output_type": "error"}]
        return not any(output["output_type"] == "error" for output in outputs)

    def window(self, module: str, name: str) -> Any:
        """For the student's process: a name of a module of checks that the notebook itself uses."""
        if (module, name) not in self.shown:
            raise AttributeError(f"{module} shows no {name!r} here, since this exercise does not use it")
        value = getattr(importlib.import_module(module), name)
        if isinstance(value, ModuleType):
            raise AttributeError(name)
        return with_its_own_cases(value) if getattr(value, "is_graded", False) else value

    def attribute(self, number: int, name: str) -> Any:
        """For the student's process: a public attribute of an object of the checks, as its own class defines it."""
        owner = self.peer.kept[number]
        if isinstance(owner, torch.nn.Module) and name in LOOKED_AT:
            return lambda: list(getattr(owner, name)())
        if name in WATCHED.get(type(owner), WATCHED[torch.nn.Module] if isinstance(owner, torch.nn.Module) else ()):
            return getattr(owner, name)
        mine = [kind for kind in type(owner).__mro__ if kind.__module__.startswith((JUDGED, "__main__"))]
        own = vars(owner) if mine and hasattr(owner, "__dict__") else {}
        if type(name) is not str or name.startswith("_") or not (name in own or any(name in vars(k) for k in mine)):
            raise AttributeError(name)
        return getattr(owner, name)

    def growth(self, call: Callable[[], object]) -> int:
        """By how many bytes the student's process grew at the worst moment of a call: whoever follows it looks."""
        self.tell("memory")
        now, _ = receive(self.control)
        call()
        self.tell("memory")
        return receive(self.control)[1] - now

    def tell(self, *message: Any) -> None:
        send(self.control, list(message))


@functools.cache
def with_its_own_cases(check: Callable) -> Callable:
    """A check as a student may call it: tried on cases of the caller's, it would tell what is expected of them."""
    parameters = inspect.signature(check).parameters.values()
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]

    @functools.wraps(check)
    def shown(*answers: Any, **named: Any) -> None:
        if len(answers) > len(names) or not named.keys() <= set(names):
            raise TypeError("a check takes your answers and nothing else")
        check(*answers, **named)

    return shown


def refused(error: Exception) -> list[dict]:
    """The outputs of a cell from which nothing came over."""
    name, text = type(error).__name__, str(error)[:2_000]
    return [{"output_type": "error", "ename": name, "evalue": text, "traceback": [f"✗ {text}"]}]


def become(request: dict, files: list[int], told: int) -> None:
    """Judge one submission: the request comes over the first file, the student's process is behind the second."""
    os.close(told)
    control, connection = (socket.socket(fileno=file) for file in files)
    keep_only(control.fileno(), connection.fileno())
    request = receive(control)
    bound(Limits(**request["limits"]))  # a few bytes of a message may stand for many objects
    judge = Judge(request, control, connection)
    memory.growth = judge.growth
    try:
        judge.run()
    except Gone as error:
        judge.tell("gone", str(error))
    except Exception as error:  # a fault of the judge: the cell is left to a person
        judge.tell("failed", f"{type(error).__name__}: {error}"[:500])
    os._exit(0)
