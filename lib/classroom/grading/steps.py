"""What is run of a submission, cell by cell, and where: made from the instructor's notebook and the student's text.

A `student` cell holds what a student wrote; it runs in the student's process. A `shared` cell is locked and gives no
points: it runs there too, and with the judge if test cells need what it defines. A `graded` cell runs with the judge
alone.
"""

from __future__ import annotations

import ast
import re
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

import msgpack
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode
from nbgrader.utils import is_grade, is_locked, is_solution

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


def plan(notebook: NotebookNode, authority: NotebookNode) -> list[Step]:
    """The steps of `notebook`, which is `authority` with a student's text in its answer cells and between them."""
    given = {cell.metadata.nbgrader.grade_id: cell for cell in authority.cells if "nbgrader" in cell.metadata}
    made, giver = [], {}
    for place, cell in enumerate(notebook.cells):
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        kind = "student"
        if is_grade(cell) and not is_solution(cell):
            kind = "graded"
        elif name and is_locked(cell) and not is_solution(cell):
            kind = "shared"
        # of an answer the released text counts: what it defines there is what the tests ask for
        loads, stores = names(given[name].source if name in given else cell.source)
        answers = sorted(one for one in loads if giver.get(one) == "student") if kind != "student" else []
        locked = sorted(one for one in loads if giver.get(one) == "locked")
        made.append(Step(kind, name, cell.source, place, sorted(loads), answers, locked))
        if name:
            giver |= dict.fromkeys(stores, "student" if kind == "student" else "locked")
    needed: set[str] = set()
    for step in reversed(made):
        _, stores = names(step.source) if step.kind == "shared" else (set(), set())
        step.in_judge = step.kind == "graded" or bool(stores & needed)
        if step.in_judge:
            needed |= set(step.loads)
    return made


def names(source: str) -> tuple[set[str], set[str]]:
    """The names that a cell uses, and those that its lines define for later cells."""
    try:
        tree = ast.parse(TransformerManager().transform_cell(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set(), set()
    loads = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    stores: set[str] = set()
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            stores.add(node.name)
            continue
        if isinstance(node, ast.alias):
            stores.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stores.add(node.id)
        elif isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            continue
        todo += ast.iter_child_nodes(node)
    return loads, stores


def is_judged(module: str) -> bool:
    """Whether a module is the judge's alone."""
    return module == JUDGED or module.startswith(JUDGED + ".")


def shown(authority: NotebookNode) -> list[tuple[str, str]]:
    """The names of the judge's modules that the text of a notebook uses: (module, name)."""
    text = "\n".join(cell.source for cell in authority.cells)
    found: list[tuple[str, str]] = []
    for cell in authority.cells:
        if cell.cell_type != "code" or is_solution(cell):
            continue
        for node in _walk(cell.source):
            if isinstance(node, ast.ImportFrom) and is_judged(node.module or ""):
                for alias in node.names:
                    module = f"{node.module}.{alias.name}"
                    used = re.findall(rf"\b{re.escape(alias.asname or alias.name)}\.([A-Za-z]\w*)", text)
                    found += [(module, name) for name in used] + [(node.module, alias.name)]
    return sorted(set(found))


def imports(authority: NotebookNode) -> list[str]:
    """The modules that the locked cells of a notebook import."""
    found = set()
    for cell in authority.cells:
        if cell.cell_type == "code" and not is_solution(cell):
            for node in _walk(cell.source):
                if isinstance(node, ast.Import):
                    found |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return sorted(found)


def _walk(source: str):
    try:
        return list(ast.walk(ast.parse(TransformerManager().transform_cell(source))))
    except (SyntaxError, ValueError, RecursionError):
        return []


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
