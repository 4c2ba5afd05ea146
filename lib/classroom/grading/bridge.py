"""Calls between a student's process and the judge, over one socket: each asks the other, and answers while it waits.

Objects stay where they are; what crosses is plain data (`plain`) and numbers of objects. A change that a function
makes to the tensors, arrays, lists, dicts or sets it was given is made on the caller's side too, as if it were one
process. An exception crosses as its name, the built-in classes it derives from, and its text.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import socket
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from classroom.grading.plain import Handle, NotPlain, decode, encode

DEEPEST = 24  # calls within calls
LONGEST = 10_000  # characters of an exception's text, and of what a call prints
_HEAD = struct.Struct("<Q")


class Gone(Exception):
    """The other process has ended, or sent something that is no message."""


class Remote:
    """Stands for an object of the other side. Its class carries the name of that object's own."""

    def __init__(self, peer: Peer, handle: Handle):
        self.__dict__.update(_peer=peer, _handle=handle)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._peer.ask("attribute", self._handle.number, name)


class RemoteCallable(Remote):
    """One that can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._peer.call(self._handle.number, args, kwargs)


class Peer:
    """One end. `serve` maps a verb to what answers it; `trusted` is true on the side whose objects may be pickled."""

    def __init__(
        self,
        connection: socket.socket,
        serve: dict[str, Callable],
        *,
        largest: int,
        sends_models: bool = False,
        takes_models: bool = False,
        locate: Callable[[BaseException, Any], str] = lambda error, function: "",
    ):
        self.connection, self.largest = connection, largest
        self.serve = {"call": self._serve_call, "attribute": self._serve_attribute, **serve}
        self.sends_models, self.takes_models, self.locate = sends_models, takes_models, locate
        self.kept: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}
        self.depth = 0

    # ---- asking ----

    def ask(self, verb: str, *parts: Any) -> Any:
        """What the other side answers; its exceptions are raised here."""
        if self.depth >= DEEPEST:
            raise RecursionError("the answer and its check call each other too deep")
        self.depth += 1
        try:
            self._send(["ask", verb, list(parts)])
            while True:
                kind, *rest = self._receive()
                if kind == "ask":
                    self._answer(*rest)
                elif kind == "answer" and len(rest) == 1:
                    return rest[0]
                elif kind == "raised" and len(rest) == 4:
                    raise revived(*rest)
                else:
                    raise Gone("a message of no known kind")
        finally:
            self.depth -= 1

    def call(self, number: int, args: tuple, kwargs: dict) -> Any:
        """Call an object of the other side, and take over what it changed in its arguments."""
        result, printed, changed = self.ask("call", number, list(args), kwargs)
        if printed:
            print(printed, end="")
        for place, value in changed.items():
            _put(args[place] if type(place) is int else kwargs[place], value)
        return result

    # ---- answering ----

    def answer_one(self) -> None:
        """Wait for one request and answer it. Raises `Gone` when the other end is closed."""
        kind, *rest = self._receive()
        if kind != "ask":
            raise Gone("an answer that nobody asked for")
        self._answer(*rest)

    def _answer(self, verb: Any, parts: Any) -> None:
        answer = None
        try:
            if type(verb) is not str or type(parts) is not list or verb not in self.serve:
                raise Gone("a request of no known kind")
            value = self.serve[verb](*parts)
            answer = self._encoded(["answer", value])
        except (Gone, KeyboardInterrupt):
            raise
        except BaseException as error:  # a student's code may raise anything, SystemExit for one
            answer = self._encoded(["raised", *described(error, self.locate(error, None))])
        self._write(answer)

    def _serve_call(self, number: int, args: list, kwargs: dict) -> list:
        function = self.kept[number]
        before = {place: self._alone(value) for place, value in self._places(args, kwargs)}
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                result = function(*args, **kwargs)
        except (Gone, KeyboardInterrupt):
            raise
        except BaseException as error:
            error.__dict__.setdefault("_located", self.locate(error, function))
            raise
        changed = {}
        for place, value in self._places(args, kwargs):
            if before[place] is not None and (now := self._alone(value)) is not None and now != before[place]:
                changed[place] = value
        return [result, printed.getvalue()[:LONGEST], changed]

    def _serve_attribute(self, number: int, name: str) -> Any:
        if type(name) is not str or name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.kept[number], name)

    @staticmethod
    def _places(args: list, kwargs: dict) -> list[tuple[int | str, Any]]:
        changeable = (torch.Tensor, torch.nn.Parameter, np.ndarray, list, dict, set)
        return [(place, value) for place, value in [*enumerate(args), *kwargs.items()] if type(value) in changeable]

    def _alone(self, value: Any) -> bytes | None:
        try:
            return self._encoded(value)
        except NotPlain:
            return None

    # ---- objects ----

    def keep(self, value: Any) -> Handle | int:
        """The handle of an object of this side; the other side's own number, if it came from there."""
        if isinstance(value, Remote) and value.__dict__.get("_peer") is self:
            return value.__dict__["_handle"].number
        number = self.numbers.setdefault(id(value), len(self.kept))
        self.kept[number] = value
        return Handle(number, str(type(value).__name__)[:80], callable(value))

    def stand_in(self, handle: Handle) -> Remote:
        """What represents an object of the other side."""
        base = RemoteCallable if handle.is_callable else Remote
        return type(handle.type_name, (base,), {})(self, handle)

    # ---- messages ----

    def _encoded(self, message: Any) -> bytes:
        return encode(message, self.keep, trusted=self.sends_models)

    def _send(self, message: list) -> None:
        self._write(self._encoded(message))

    def _write(self, data: bytes) -> None:
        if len(data) > self.largest:
            text = f"{len(data) / 1e6:.0f} MB are too much for one answer; {self.largest / 1e6:.0f} MB may cross"
            data = self._encoded(["raised", "ValueError", ["ValueError"], text, ""])
        try:
            self.connection.sendall(_HEAD.pack(len(data)) + data)
        except OSError as error:
            raise Gone(str(error)) from None

    def _receive(self) -> list:
        (length,) = _HEAD.unpack(self._read(_HEAD.size))
        if length > self.largest:
            raise Gone(f"a message of {length} bytes")
        try:
            message = decode(self._read(length), self.stand_in, self.kept.__getitem__, trusted=self.takes_models)
        except NotPlain as error:
            raise Gone(f"a message that cannot be read: {error}") from None
        if type(message) is not list or not message or type(message[0]) is not str or len(message) > 5:
            raise Gone("a message of no known form")
        return message

    def _read(self, length: int) -> bytes:
        parts = []
        while length:
            try:
                part = self.connection.recv(min(length, 2**20))
            except OSError as error:
                raise Gone(str(error)) from None
            if not part:
                raise Gone("the other process has ended")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


def described(error: BaseException, where: str) -> list:
    """An exception as plain data: its name, the built-in classes it derives from, its text, and a line of code."""
    known = [base.__name__ for base in type(error).__mro__ if getattr(builtins, base.__name__, None) is base]
    try:
        only = error.args[0] if len(error.args) == 1 else None
        text = only if type(only) is str else str(error)
    except BaseException:  # a student's exception may refuse
        text = "(an exception without a text)"
    return [str(type(error).__name__)[:80], known, str(text)[:LONGEST], str(error.__dict__.get("_located", where))[:500]]


def revived(name: Any, bases: Any, text: Any, where: Any) -> Exception:
    """An exception of that name, with the text; its `line_of_answer` says where it was raised."""
    if not all(type(part) is str for part in (name, text, where)) or type(bases) is not list:
        raise Gone("an exception of no known form")
    classes = [getattr(builtins, base, None) for base in bases if type(base) is str]
    classes = [c for c in classes if isinstance(c, type) and issubclass(c, Exception)] or [Exception]
    own = classes[0] if classes[0].__name__ == name else type(name, (classes[0],), {})
    try:
        error = own(text)
    except TypeError:  # UnicodeDecodeError wants five arguments
        error = type(name, (Exception,), {})(text)
    if name == "CheckFailed":
        error._render_traceback_ = lambda: ["✗ " + text]
    error.line_of_answer = where
    return error


def _put(target: Any, value: Any) -> None:
    """Make `target` hold what `value` holds, in place, as far as both are of one kind and shape."""
    if type(target) is not type(value):
        return
    if isinstance(target, torch.Tensor) and target.shape == value.shape and target.dtype == value.dtype:
        with torch.no_grad():
            target.copy_(value)
    elif isinstance(target, np.ndarray) and target.shape == value.shape and target.dtype == value.dtype:
        target[...] = value
    elif isinstance(target, list):
        target[:] = value
    elif isinstance(target, (dict, set)):
        target.clear()
        target.update(value)
