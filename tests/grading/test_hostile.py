"""Hostile submissions: each gets the points it deserves, none reaches what is outside, and the next is unaffected."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import select
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from classroom.grading import course, marking, running, sandbox
from classroom.grading.authority import authority
from classroom.grading.demo_class.hostile import DESERVED, HONEST, Attack, attacks
from classroom.grading.task import MB, Limits, Task

pytestmark = pytest.mark.skipif(marking.why_not() is not None, reason="nothing isolates submissions on this machine")
LIMITS = Limits(cell_seconds=3, total_seconds=120, memory_bytes=1536 * MB, disk_bytes=64 * MB)
ATTACKS = attacks()
SECRET = "what another student wrote"


@dataclasses.dataclass
class Outside:
    """What no submission may reach: files, a port, a name, and a process of the user that boxes run as."""

    folder: Path
    sockets: list[socket.socket]
    process: subprocess.Popen
    words: dict[str, str]
    boxes: dict[str, int]  # process namespaces of boxes: each kept open, so that no later one gets its name
    judges: set[str]  # those of the boxes in which a warm process waits to be forked

    def files(self) -> dict[str, tuple]:
        return {
            str(path): (path.stat().st_mode, path.stat().st_nlink, path.read_bytes() if path.is_file() else b"")
            for path in [self.folder, *sorted(self.folder.rglob("*"))]
        }

    def left_over(self) -> list[str]:
        """Processes of a box that do not end."""
        until = time.monotonic() + 60
        while (found := self.in_boxes()) and time.monotonic() < until:  # the kernel ends them one after the other
            time.sleep(0.05)
        while self.boxes:
            os.close(self.boxes.popitem()[1])
        return found

    def in_boxes(self) -> list[str]:
        found = []
        for entry in os.scandir("/proc"):
            with contextlib.suppress(OSError):  # it ended meanwhile
                if entry.name.isdigit() and self.is_of_a_submission(os.readlink(f"/proc/{entry.name}/ns/pid"), entry):
                    found.append(entry.name)
        return found

    def is_of_a_submission(self, space: str, process: os.DirEntry) -> bool:
        """Whether a process is a student's or their judge's. A judge's parent, the warm process, is in the same box."""
        if space not in self.judges:
            return space in self.boxes
        status = dict(line.split(":\t") for line in Path(process, "status").read_text().splitlines())
        return status["Name"] != "cat" and os.readlink(f"/proc/{status['PPid']}/ns/pid") == space


@pytest.fixture(scope="module")
def outside():
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        boxes: dict[str, int] = {}
        judges: set[str] = set()

        class Noted(sandbox.Box):
            def __init__(self, limits, number, **options):
                super().__init__(limits, number, **options)
                if number >= running.N_BOXES:
                    judges.add(self.pid_namespace)
                else:
                    boxes[self.pid_namespace] = os.open(f"/proc/{self.first}/ns/pid", os.O_RDONLY)

        patch.setattr(running, "Box", Noted)
        patch.setattr(running, "GRACE", 0.3)
        folder = Path(tempfile.mkdtemp())  # not below pytest's own, which no other user may enter
        stack.callback(shutil.rmtree, folder)
        (folder / "submitted").mkdir()
        for name in ("gradebook.db", "submitted/other.ipynb"):
            (folder / name).write_text(SECRET)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o777)
        name = secrets.token_hex(8)
        listening = [socket.socket(), socket.socket(socket.AF_UNIX)]
        for one, address in zip(listening, (("127.0.0.1", 0), f"\0{name}")):
            stack.callback(one.close)
            one.bind(address)
            one.listen()
        port = listening[0].getsockname()[1]
        user = sandbox.THROWAWAY + os.getpid() % running.N_BOXES if os.geteuid() == 0 else None
        process = subprocess.Popen(["sleep", "3600"], user=user)
        stack.callback(process.wait)
        stack.callback(process.kill)
        stack.callback(marking.close)
        words = {"CANARY": str(folder), "PORT": str(port), "NAME": name, "PROCESS": str(process.pid)}
        yield Outside(folder, listening, process, words, boxes, judges)


@pytest.fixture(scope="module")
def given():
    """Of each assignment: the notebook to grade by, and the bytes of the release."""
    names = {attack.assignment for attack in ATTACKS}
    released = {name: (course.ROOT / "exercises" / name / f"{name}.ipynb").read_bytes() for name in names}
    return {name: (authority(name)[name], released[name]) for name in names}


def marked(attack: Attack, given, outside: Outside, limits: Limits = LIMITS):
    notebook, released = given[attack.assignment]
    data = attack.notebook(released, outside.words)
    return marking.mark(
        Task(assignment=attack.assignment, student="x", notebook=data, authority=notebook, key="", limits=limits)
    )


def shown(notebook: str) -> list[str]:
    """What the marked notebook shows, without errors: those quote the source."""
    outputs = [output for cell in json.loads(notebook)["cells"] for output in cell.get("outputs", [])]
    return [json.dumps(output) for output in outputs if output["output_type"] != "error"]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_gets_what_it_deserves_and_reaches_nothing(attack, given, outside):
    before = outside.files()
    result = marked(attack, given, outside)
    assert {name: points for name, points in result.points.items() if points} == dict(attack.points)
    assert not [text for text in shown(result.notebook) if "ESCAPED" in text or SECRET in text]
    assert len(result.notebook.encode()) < 8 * MB
    assert outside.files() == before
    assert not select.select(outside.sockets, [], [], 0)[0], "something connected"
    assert outside.process.poll() is None, "a process outside was ended"
    assert not outside.left_over()


@pytest.mark.parametrize(
    "name", ["fork bomb", "orphan that holds the line", "keys of the kernel", "patched later", "pickle"]
)
def test_the_next_student_is_unaffected(name, given, outside):
    solved = json.loads((course.ROOT / "solutions" / "04_masks" / "04_masks.ipynb").read_text(encoding="utf-8"))
    sources = {
        cell["metadata"].get("nbgrader", {}).get("grade_id"): "".join(cell["source"]) for cell in solved["cells"]
    }
    right = {cell: sources[cell] for cell in ("p2-answer", "p3-answer", "p4-answer", "p6-answer")}
    full = {cell: points for cell, points in _full(given).items() if not cell.startswith("p5")}
    honest = Attack("honest", "nothing", answers=right, points=full)
    marked(next(attack for attack in ATTACKS if attack.name == name), given, outside)
    result = marked(honest, given, outside)
    assert {cell: points for cell, points in result.points.items() if points} == full
    assert result.flags == []


def _full(given) -> dict[str, float]:
    cells = [cell["metadata"].get("nbgrader", {}) for cell in json.loads(given["04_masks"][0])["cells"]]
    return {cell["grade_id"]: cell["points"] for cell in cells if cell.get("grade")}


def test_there_are_enough_kinds():
    names = [attack.name for attack in ATTACKS]
    assert len(names) == len(set(names)) >= 50
    assert all(attack.tries for attack in ATTACKS)


def test_the_honest_part_is_worth_what_every_attack_deserves(given, outside):
    result = marked(Attack("honest part", "nothing"), given, outside)
    assert {name: points for name, points in result.points.items() if points} == DESERVED
    assert set(HONEST) == {"p1-answer", "p7-answer"}


USES = """
import ctypes, multiprocessing, subprocess, tempfile, threading, time
import numpy as np
assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda x: x + 1)(2) == 3
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
assert subprocess.run(["/bin/echo", "word"], capture_output=True, text=True).stdout == "word\\n"
with tempfile.TemporaryFile() as file:
    held = np.memmap(file, mode="w+", shape=(1000,))
    held[:] = 3
shared = torch.ones(1000).share_memory_()
later = threading.Timer(0.01, lambda: None)
later.start()
later.join()
loader = torch.utils.data.DataLoader(torch.arange(8), batch_size=2, num_workers=2)
assert torch.cat(list(loader)).tolist() == list(range(8))
print("FINE")
"""


def test_what_honest_code_does_with_its_machine_works_in_a_box(given, outside):
    room = dataclasses.replace(LIMITS, cell_seconds=120, total_seconds=600)
    result = marked(Attack("uses", "nothing", own=USES), given, outside, room)
    outputs = [output for cell in json.loads(result.notebook)["cells"] for output in cell.get("outputs", [])]
    assert any("FINE" in text for text in shown(result.notebook)), [o for o in outputs if o["output_type"] == "error"][
        :1
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root runs boxes as themselves")
@pytest.mark.parametrize("closed", ["plainformer", "plainformer/__init__.py", "classroom"])
def test_root_is_told_when_a_box_could_not_read_the_course(tmp_path, monkeypatch, closed):
    """A submission would lose its points for an import that fails."""
    for package in ("plainformer", "classroom"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / closed).chmod(0o700)
    monkeypatch.setattr(sandbox, "LIB", tmp_path)
    assert f"chmod -R o+rX {tmp_path / closed.partition('/')[0]}" in sandbox.why_not.__wrapped__()


def test_what_bubblewrap_says_is_told(tmp_path, monkeypatch):
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho No permissions to create a new namespace >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert "No permissions to create a new namespace" in sandbox.why_not.__wrapped__()
