"""What is run of a submission, cell by cell, and where; and how the judge is told, and tells, of it.

A `student` cell holds what a student wrote; it runs in the student's process. A `shared` cell is locked and gives no
points: it runs there too, and with the judge if test cells need what it defines. A `graded` cell runs with the judge
alone.
"""

from __future__ import annotations

import re
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

import msgpack

JUDGED = "classroom.checks"  # this package is the judge's; in a student's process its modules are windows to it
_HEAD = struct.Struct("<I")
MOST_OUTPUTS = 500  # of one cell
_PICTURE = re.compile(r"[A-Za-z0-9+/=\n]*")


@dataclass
class Step:
    """One code cell. `loads` are the names it uses; `answers` those of them that a student's cell gives, `locked` those
    that a locked cell gives, and nobody else may."""

    kind: str
    name: str
    source: str
    place: int  # of the cell in the notebook
    loads: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    locked: list[str] = field(default_factory=list)
    in_judge: bool = False


def is_judged(module: str) -> bool:
    """Whether a module is the judge's alone."""
    return module == JUDGED or module.startswith(JUDGED + ".")


def checked(outputs: Any, largest: int) -> list[dict]:
    """Outputs that a student's process claims, if they have nbformat's form and a bounded size; nothing otherwise."""
    forms = {
        "stream": {"name": str, "text": str},
        "execute_result": {"data": dict, "metadata": dict, "execution_count": int},
        "display_data": {"data": dict, "metadata": dict},
        "error": {"ename": str, "evalue": str, "traceback": list},
    }
    kept, size = [], 0
    for output in outputs[:MOST_OUTPUTS] if type(outputs) is list else []:
        claimed = output.get("output_type") if type(output) is dict else None
        form = forms.get(claimed) if type(claimed) is str else None
        if form is None or {key: type(value) for key, value in output.items() if key != "output_type"} != form:
            continue
        data = output.get("data", {})
        lines = output.get("traceback", [])
        if (
            len(lines) > 100
            or not all(type(line) is str for line in lines)
            or output.get("name") not in (None, "stdout", "stderr")
        ):
            continue
        if not all(kind in ("text/plain", "image/png") and type(value) is str for kind, value in data.items()):
            continue
        if not _PICTURE.fullmatch(data.get("image/png", "")) or output.get("metadata"):
            continue
        size += sum(len(value) for value in [*output.values(), *data.values(), *lines] if type(value) is str)
        if size > 2 * largest + 200_000:
            break
        kept.append(output)
    return kept


def send(connection: socket.socket, message: Any) -> None:
    """A message to or from the judge."""
    data = msgpack.packb(message, unicode_errors="surrogatepass")
    connection.sendall(_HEAD.pack(len(data)) + data)


def receive(connection: socket.socket) -> Any:
    """The next message. Raises `EOFError` if the other end is closed."""
    (length,) = _HEAD.unpack(_exactly(connection, _HEAD.size))
    return msgpack.unpackb(_exactly(connection, length), unicode_errors="surrogatepass", strict_map_key=False)


def _exactly(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        if not (part := connection.recv(min(length - len(data), 2**20))):
            raise EOFError
        data += part
    return bytes(data)
