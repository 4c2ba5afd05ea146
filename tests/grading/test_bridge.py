"""Calls between a student's process and the judge: two peers in one process, each answered by a thread."""

from __future__ import annotations

import socket
import struct
import threading

import msgpack
import numpy as np
import pytest
import torch

from classroom.grading import bridge, plain
from classroom.grading.bridge import Gone, Peer, Remote, RemoteCallable

LARGEST = 2**22


class Line:
    """A judge's peer, and a student's that serves these names from a thread until the line is closed."""

    def __init__(self, **names):
        self.names = names
        here, there = socket.socketpair()
        window = {"window": lambda name: self.shown[name]}
        self.judge = Peer(here, window, largest=LARGEST, sends_models=True)
        self.student = Peer(
            there, {"names": lambda wanted: {n: names[n] for n in wanted}}, largest=LARGEST, takes_models=True
        )
        self.shown: dict = {}
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        try:
            while True:
                self.student.answer_one()
        except Gone:
            self.student.connection.close()

    def __getitem__(self, name):
        return self.judge.ask("names", [name])[name]

    def close(self):
        self.judge.connection.close()
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.fixture
def line():
    lines = []

    def made(**names):
        lines.append(Line(**names))
        return lines[-1]

    yield made
    for one in lines:
        one.close()


@pytest.fixture
def raw():
    """A judge's peer, and the bare socket at its other end."""
    here, there = socket.socketpair()
    with here, there:
        yield Peer(here, {"window": lambda name: print}, largest=LARGEST, sends_models=True), there


def put(there: socket.socket, *message, length: int | None = None) -> None:
    data = message[0] if type(message[0]) is bytes else msgpack.packb(list(message))
    there.sendall(struct.pack("<Q", len(data) if length is None else length) + data)


def test_values_and_functions_of_the_other_side(line):
    there = line(number=3, double=lambda x: 2 * x, thing=object())
    assert there["number"] == 3
    double = there["double"]
    assert isinstance(double, RemoteCallable) and callable(double) and type(double).__name__ == "function"
    assert double(21) == 42 and double(x="ab") == "abab"
    assert torch.equal(double(torch.ones(2)), 2 * torch.ones(2))
    thing = there["thing"]
    assert isinstance(thing, Remote) and not callable(thing) and type(thing).__name__ == "object"
    assert there["double"] is double


def test_an_object_that_goes_there_and_comes_back_is_itself(line):
    there = line(same=lambda x: x)
    mine = object()
    assert there["same"](mine) is mine
    assert there["same"](there["same"]) is there["same"]


def test_calls_within_calls(line):
    def factorial(n, again):
        return 1 if n == 0 else n * again(n - 1)

    there = line(factorial=factorial)
    assert (
        there["factorial"](
            6, lambda n: there["factorial"](n, lambda m: there["factorial"](m, None) if m == 0 else 0) if n < 0 else 24
        )
        == 144
    )
    back = lambda n: there["factorial"](n, back)  # noqa: E731
    assert there["factorial"](8, back) == 40320


def test_calls_too_deep_end_with_an_error_on_both_sides(line):
    there = line(deeper=lambda back: back())
    with pytest.raises(Exception, match="too deep"):
        back = lambda: there["deeper"](back)  # noqa: E731
        back()
    assert there["deeper"](lambda: 3) == 3


def test_changed_arguments_are_changed_here_too(line):
    def change(tensor, array, numbers, table, members):
        tensor.add_(1)
        array[0] = 7
        numbers.append(4)
        table["b"] = 2
        members.discard(1)

    given = torch.zeros(2), np.zeros(2), [1], {"a": 1}, {1, 2}
    line(change=change)["change"](*given)
    tensor, array, numbers, table, members = given
    assert tensor.tolist() == [1, 1] and array.tolist() == [7, 0]
    assert (numbers, table, members) == ([1, 4], {"a": 1, "b": 2}, {2})


def test_what_the_other_side_claims_to_have_changed_fits_or_is_left_out(line):
    there = line(nothing=lambda *_, **__: None)
    claims = {0: torch.ones(3), 1: [1], 2: "x", "name": torch.ones(2, dtype=torch.int64)}
    there.student.serve["call"] = lambda *_: [None, "", claims]
    given = torch.zeros(2), np.zeros(2), 5
    name = torch.zeros(2)
    there["nothing"](*given, name=name)
    assert not given[0].any() and not given[1].any() and not name.any()


@pytest.mark.parametrize("claims", [{9: 1}, {"other": 1}, {(): 1}, [], 5, {None: 1}], ids=repr)
def test_changes_of_no_form_are_errors_of_that_call(line, claims):
    there = line(nothing=lambda *_: None)
    there.student.serve["call"] = lambda *_: [None, "", claims]
    with pytest.raises(Exception):  # noqa: B017
        there["nothing"](1)
    assert there.judge.ask("names", []) == {}


class Own(ValueError):
    def __str__(self):
        return "no number"


class Mute(Exception):
    def __str__(self):
        raise SystemExit


def fails(error):
    def function(*_):
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "kind", "name", "text"),
    [
        (ValueError("so"), ValueError, "ValueError", "so"),
        (Own(), ValueError, "Own", "no number"),
        (KeyError("k"), KeyError, "KeyError", "k"),
        (SystemExit(3), Exception, "SystemExit", "3"),
        (Mute(), Exception, "Mute", "without a text"),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "odd"), Exception, "UnicodeDecodeError", "odd"),
        (NotImplementedError("not answered yet"), NotImplementedError, "NotImplementedError", "not answered yet"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exceptions_cross_as_name_kind_and_text(line, error, kind, name, text):
    with pytest.raises(kind, match=text) as caught:
        line(function=fails(error))["function"]()
    assert type(caught.value).__name__ == name and isinstance(caught.value, Exception)


@pytest.mark.parametrize("error", [StopIteration(), StopAsyncIteration()])
def test_no_loop_of_a_check_ends_by_an_exception_of_an_answer(line, error):
    function = line(function=fails(error))["function"]
    with pytest.raises(RuntimeError):
        list(map(function, [1, 2, 3]))


def test_exceptions_cross_the_other_way_too(line):
    def asks(back):
        try:
            back()
        except ZeroDivisionError as error:
            return f"{type(error).__name__}: {error}"

    assert line(asks=asks)["asks"](lambda: 1 / 0) == "ZeroDivisionError: division by zero"


def test_prints_of_a_function_are_shown_here(line, capsys):
    line(loud=lambda: print("said"))["loud"]()
    assert capsys.readouterr().out == "said\n"


def test_too_large_an_answer_is_an_error_and_the_line_stays(line):
    there = line(large=lambda: b"x" * (LARGEST + 1), small=lambda: 1)
    with pytest.raises(ValueError, match="MB"):
        there["large"]()
    assert there["small"]() == 1


def test_what_is_no_plain_data_is_an_error_and_the_line_stays(line):
    there = line(odd=lambda: circle, small=lambda: 1)
    circle: list = []
    circle.append(circle)
    with pytest.raises(Exception, match="cannot be sent"):
        there["odd"]()
    assert there["small"]() == 1


def test_private_attributes_are_refused(line):
    there = line(thing=type("Thing", (), {"open": 1, "_hidden": 2})())
    assert there["thing"].open == 1
    for name in ("_hidden", "__dict__", "__class__"):
        with pytest.raises(AttributeError):
            there.judge.ask("attribute", there["thing"]._handle.number, name)


def test_gradients_come_back_through_the_other_side(line):
    there = line(square=lambda x, y: (x * x * y, y))
    x, y = torch.tensor([2.0, 3.0], requires_grad=True), torch.tensor([5.0, 7.0])
    first, _ = there["square"](x, y)
    first.sum().backward()
    assert torch.equal(x.grad, 2 * x.detach() * y)


MESSAGES = {
    "no message": (b"\xc1",),
    "empty": ([],),
    "a number": (3,),
    "an unknown kind": ("tell", 1),
    "too many parts": ("answer", 1, 2, 3, 4, 5),
    "an answer of two parts": ("answer", 1, 2),
    "a failure of no form": ("raised", 1, 2, 3, 4),
    "a failure with too few parts": ("raised", "x"),
    "a request without parts": ("ask",),
    "a request of an unknown verb": ("ask", "eval", ["1"]),
    "a request whose verb is no text": ("ask", [], []),
    "a request whose parts are none": ("ask", "call", 3),
    "a pickle": ("answer", msgpack.ExtType(plain._PICKLE, b"x")),
    "a foreign number": ("answer", msgpack.ExtType(plain._OWN, msgpack.packb(99))),
}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_a_message_of_no_form_ends_the_line_for_good(raw, message):
    judge, there = raw
    put(there, *message)
    put(there, "answer", 1)  # nothing behind it is read any more
    for _ in range(2):
        with pytest.raises(Gone):
            judge.ask("names", ["x"])
    assert judge.gone


def test_lengths_that_are_too_large_are_not_waited_for(raw):
    judge, there = raw
    put(there, b"x", length=2**63)
    with pytest.raises(Gone, match="bytes"):
        judge.ask("names", ["x"])


@pytest.mark.parametrize(
    "sent", [b"", b"\x05\0\0", struct.pack("<Q", 100) + b"half"], ids=["nothing", "half a length", "half a message"]
)
def test_a_line_that_ends_is_gone(raw, sent):
    judge, there = raw
    there.sendall(sent)
    there.close()
    with pytest.raises(Gone):
        judge.ask("names", ["x"])


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [0],
        [99, [], {}, {}],
        [[], [], {}, {}],
        [0, 1, 2, 3],
        [0, [], {}, {0: 1}],
        [0, [1], {}, {0: 5}],
        [0, [], {"end": []}, {}],
    ],
    ids=repr,
)
def test_requests_with_odd_parts_are_answered_with_an_error(raw, parts):
    judge, there = raw
    judge.keep(print)
    put(there, "ask", "call", parts)
    put(there, "answer", "done")
    assert judge.ask("names", ["x"]) == "done"


@pytest.mark.parametrize("place", ["gone", "standing", "kept"])
def test_an_exception_with_an_odd_name_is_still_one(place):
    for name in ("a\0b", "", "\ud800", place):
        with pytest.raises(Exception):  # noqa: B017
            raise bridge.revived(name, ["ValueError"], "text", "")
