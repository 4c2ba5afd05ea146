"""Calls between a student's process and the judge, over one socket: each asks the other, and answers while it waits.

Objects stay where they are; what crosses is plain data (`plain`) and numbers of objects. A change that a function
makes to the tensors, arrays, lists, dicts or sets it was given is made on the caller's side too, as if it were one
process. An exception crosses as its name, the built-in classes it derives from, and its text.
"""

from __future__ import annotations

import contextlib
import io
import socket
import struct
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from classroom.grading.crossing import LONGEST, Gone, Through, described, is_tensor, put, revived
from classroom.grading.plain import Handle, NotPlain, decode, encode
from classroom.memory import Memory

DEEPEST = 24  # calls within calls
REMEMBERED = 64  # tensors of the other side
_HEAD = struct.Struct("<Q")


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
    """One end. `serve` maps a verb to what answers it; a model crosses from the side that `sends_models`."""

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
        self.serve = {"call": self._serve_call, "attribute": self._serve_attribute, "changed": self._serve_changed}
        self.serve |= {"through": self._serve_through, "backward": self._serve_backward}
        self.serve |= {"metered": self._serve_metered, **serve}
        self.sent: dict | None = {} if sends_models else None
        self.taken: dict | None = {} if takes_models else None
        self.locate = locate
        self.kept: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}
        self.standing: dict[int, Remote] = {}
        self.kinds: dict[tuple[str, type], type] = {}
        self.lent: dict[int, tuple[weakref.ref, int]] = {}  # tensors given to objects of the other side, which may
        self.borrowed: dict[int, torch.Tensor] = {}  # keep them: later changes by their owner show there too
        self.graphs: dict[int, tuple[list, list]] = {}  # results that the other side may differentiate, and by what
        self.depth = self.n_lent = self.n_graphs = 0
        self.gone = ""  # why nothing more can come: a check may take `Gone` for a failure of the answer, and go on

    # ---- asking ----

    def ask(self, verb: str, *parts: Any) -> Any:
        """What the other side answers; its exceptions are raised here."""
        if self.gone:
            raise Gone(self.gone)
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
        except Gone as error:
            self.gone = self.gone or str(error) or "the line is broken"
            raise
        finally:
            self.depth -= 1

    def call(self, number: int, args: tuple, kwargs: dict) -> Any:
        """Call an object of the other side, and take over what it changed in its arguments."""
        self._show_changes()
        tensors = {place: value for place, value in [*enumerate(args), *kwargs.items()] if is_tensor(value)}
        if torch.is_grad_enabled() and not Memory.in_use and any(value.requires_grad for value in tensors.values()):
            return self._call_through(number, args, kwargs, tensors)
        loans = {place: self._lend(value) for place, value in tensors.items()}
        verb = "metered" if Memory.in_use else "call"
        result, printed, changed, *counted = self.ask(verb, number, list(args), kwargs, loans)
        for meter in Memory.in_use * bool(counted):
            meter.add(*counted)
        if printed:
            print(printed, end="")
        for place, value in changed.items():
            put(args[place] if type(place) is int else kwargs[place], value)
        return result

    def _call_through(self, number: int, args: tuple, kwargs: dict, tensors: dict) -> Any:
        """A call whose result can be differentiated by those of its arguments that ask for it."""
        asking = {place: value for place, value in tensors.items() if value.requires_grad}
        result, printed, token = self.ask("through", number, list(args), kwargs, list(asking))
        if printed:
            print(printed, end="")
        if token is None:
            return result
        results = [result] if is_tensor(result) else list(result)
        apart = Through.apply(results, lambda slopes: self.ask("backward", token, slopes), *asking.values())
        return apart[0] if is_tensor(result) else type(result)(apart)

    def _lend(self, tensor: torch.Tensor) -> int:
        """The number under which the other side knows this tensor."""
        known = [number for number, (reference, _) in self.lent.items() if reference() is tensor]
        number = known[0] if known else self.n_lent + 1
        self.n_lent = max(self.n_lent, number)
        self.lent[number] = weakref.ref(tensor), tensor._version
        return number

    def _show_changes(self) -> None:
        """Tell of tensors that their owner has written into since the other side got them."""
        for number, (reference, version) in list(self.lent.items()):
            tensor = reference()
            if tensor is None:
                del self.lent[number]
            elif tensor._version != version:
                self.lent[number] = reference, tensor._version
                self.ask("changed", number, tensor)

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

    def _serve_call(self, number: int, args: list, kwargs: dict, loans: dict) -> list:
        function = self.kept[number]
        for place, loan in loans.items():
            self._borrow(args if type(place) is int else kwargs, place, loan)
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

    def _serve_through(self, number: int, args: list, kwargs: dict, asking: list) -> list:
        """A call that remembers how its result came about, if that is one tensor or several."""
        values = {**dict(enumerate(args)), **kwargs}
        inputs = [values[place].detach().requires_grad_() for place in asking]
        values |= dict(zip(asking, inputs))
        names = [place for place in values if type(place) is not int]
        args, kwargs = [values[k] for k in range(len(args))], {name: values[name] for name in names}
        with torch.enable_grad():
            result, printed, _ = self._serve_call(number, args, kwargs, {})
        results = [result] if is_tensor(result) else result if type(result) in (tuple, list) else []
        if not results or not all(is_tensor(one) for one in results) or not any(one.requires_grad for one in results):
            return [result, printed, None]
        self.n_graphs += 1
        self.graphs[self.n_graphs] = inputs, list(results)
        while len(self.graphs) > REMEMBERED:
            del self.graphs[next(iter(self.graphs))]
        return [result, printed, self.n_graphs]

    def _serve_backward(self, token: int, slopes: list) -> list:
        inputs, results = self.graphs[token]
        pairs = [(one, slope) for one, slope in zip(results, slopes) if one.requires_grad and slope is not None]
        outputs, slopes = zip(*pairs) if pairs else ((), ())
        return list(torch.autograd.grad(outputs, inputs, slopes, retain_graph=True, allow_unused=True))

    def _serve_metered(self, *call: Any) -> list:
        """A call, and what tensors it made."""
        with Memory() as meter:
            answer = self._serve_call(*call)
        return [*answer, meter.peak, meter.largest]

    def _borrow(self, values: list | dict, place: int | str, number: int) -> None:
        """An argument that came before is the same object as then."""
        given, before = values[place], self.borrowed.get(number)
        if before is not None and before.shape == given.shape and before.dtype == given.dtype:
            put(before, given)
            values[place] = before
        else:
            self.borrowed[number] = given
        while len(self.borrowed) > REMEMBERED:
            del self.borrowed[next(iter(self.borrowed))]

    def _serve_changed(self, number: int, value: torch.Tensor) -> None:
        if number in self.borrowed:
            put(self.borrowed[number], value)

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
        """What represents an object of the other side: the same for the same object."""
        if handle.number not in self.standing:
            base = RemoteCallable if handle.is_callable else Remote
            if (handle.type_name, base) not in self.kinds:
                self.kinds[handle.type_name, base] = type(handle.type_name, (base,), {})
            self.standing[handle.number] = self.kinds[handle.type_name, base](self, handle)
        return self.standing[handle.number]

    # ---- messages ----

    def _encoded(self, message: Any) -> bytes:
        return encode(message, self.keep, models=self.sent)

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
            message = decode(self._read(length), self.stand_in, self.kept.__getitem__, models=self.taken)
        except NotPlain as error:
            raise Gone(f"a message that cannot be read: {error}") from None
        if type(message) is not list or not message or type(message[0]) is not str or len(message) > 5:
            raise Gone("a message of no known form")
        if message[0] == "ask" and len(message) != 3:
            raise Gone("a request of no known form")
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
