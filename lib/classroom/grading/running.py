"""The cells of one submission are run: those of the student in a box, those of the instructor with the judge.

The calling process keeps two warm ones: of one, students' processes are forks, of the other, judges. The second is a
fork of the first that has the checks too. A cell that ends its process loses its own points; the cells before it are
run again without it, and those after it go on.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import shutil
import signal
import socket
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from classroom.grading import steps
from classroom.grading.forks import Forks
from classroom.grading.sandbox import Box
from classroom.grading.task import MB, Limits, Task

STUDENT, JUDGE = "classroom.grading.student", "classroom.grading.judge"
ALWAYS = ["torch", "numpy", "classroom", "plainformer.model", "IPython.core.interactiveshell", STUDENT]
N_BOXES = 2_000  # that may stand at a time, each with a user's number of its own
N_WARM = 4  # pairs of warm processes that are kept, as a worker of a cluster marks several assignments
GRACE = 2.0  # seconds from an interrupt to the end of the box
WATCHED, METERED = 0.1, 0.005  # seconds between two looks at a box's memory; while a check asks what a call takes
_warm: dict[tuple, tuple[Forks, Forks]] = {}  # of students and of judges


@dataclass
class Run:
    """What has come of a submission so far, over all processes that it took."""

    plan: list[steps.Step]
    limits: Limits
    until: float
    outputs: dict[int, list[dict]] = field(default_factory=dict)
    slips: dict[int, str] = field(default_factory=dict)
    skip: set[int] = field(default_factory=set)
    flags: list[str] = field(default_factory=list)
    passing: list[str] = field(default_factory=list)
    cpu: float = 0.0
    is_over: bool = False

    def lose(self, number: int, why: str) -> None:
        """The cell in progress ended its process."""
        if number >= len(self.plan):  # the checks had all been made
            self.flags.append(f"the judge ended before its last look: {why}")
            self.is_over = True
            return
        self.outputs[number] = [*self.outputs.get(number, [])[:1], failed("Ended", why)]
        self.skip.add(number)


def run(plan: list[steps.Step], shown: list[tuple[str, str]], modules: list[str], task: Task) -> Run:
    """Run these steps within the limits of the task.

    `shown`: the names of the judge's modules that the student's process may ask for; `modules`: what the warm processes
    import before.
    """
    students, judges = _forks(modules, task)
    run = Run(plan, task.limits, time.monotonic() + task.limits.total_seconds)
    request = {
        "steps": [asdict(step) for step in plan],
        "shown": shown,
        "limits": asdict(task.limits),
        "is_robot": task.is_robot,
    }
    while not run.is_over and time.monotonic() < run.until:
        _attempt(run, request, students, judges, task.isolated)
    if time.monotonic() > run.until:
        run.flags.append(f"the submission took more than {task.limits.total_seconds:.0f} seconds")
    return run


def failed(name: str, why: str) -> dict:
    """The output of a cell that did not come to its end."""
    return {"output_type": "error", "ename": name, "evalue": why, "traceback": [f"✗ {why}"]}


def close() -> None:
    """End the warm processes."""
    while _warm:
        for forks in reversed(_warm.popitem()[1]):
            forks.close()


def _forks(modules: list[str], task: Task) -> tuple[Forks, Forks]:
    """The warm processes of students and of judges for these modules, started when they are first needed."""
    key = tuple(modules), task.isolated, task.limits
    if key in _warm and all(forks.is_alive for forks in _warm[key]):
        return _warm[key]
    for old in [old for number, old in enumerate(reversed(_warm)) if old == key or number >= N_WARM - 1]:
        for forks in reversed(_warm.pop(old)):
            forks.close()
    students, box = Forks.start([*ALWAYS, *(name for name in modules if not steps.is_judged(name))]), None
    try:
        box = Box(task.limits, N_BOXES + _number(), is_open=True) if task.isolated else None
        judges = students.branch([JUDGE, *modules], box)
    except BaseException:
        if box:
            box.close()
        students.close()
        raise
    _warm[key] = students, judges
    return _warm[key]


def _number() -> int:
    """What tells the boxes of this process from those of others."""
    return os.getpid() % N_BOXES


def _attempt(run: Run, request: dict, students: Forks, judges: Forks, isolated: bool) -> None:
    """One pair of processes, until the notebook is through or one of them has ended."""
    box = Box(run.limits, _number(), is_open=request["is_robot"]) if isolated else None
    folder = None if isolated else tempfile.mkdtemp(prefix="submission-")
    control, theirs = socket.socketpair()
    judge_end, student_end = socket.socketpair()
    student = judge = handle = None
    try:
        inside = {"first": box.first, "user": box.user} if box else {"first": None, "folder": folder}
        inside |= {name: request[name] for name in ("limits", "is_robot")}
        student = students.fork(STUDENT, inside, [student_end.fileno()])
        handle = os.pidfd_open(student)  # by the time of a signal its number may be another process's
        judge = judges.fork(JUDGE, {}, [theirs.fileno(), judge_end.fileno()])
        for end in (theirs, judge_end, student_end):
            end.close()
        steps.send(control, request | {"skip": sorted(run.skip), "done": sorted(run.outputs)})
        _follow(run, control, handle, box)
    finally:
        run.cpu += _cpu(student)
        if handle is not None:
            os.close(handle)
        for end in (control, theirs, judge_end, student_end):
            end.close()
        if box:
            box.close()
        elif student:
            _end_group(student)
            shutil.rmtree(folder, ignore_errors=True)
        if judge:
            judges.kill(judge)


def _follow(run: Run, control: socket.socket, student: int, box: Box | None) -> None:
    """Take the judge's messages, and end what takes too long or too much. `student` is a file that names a process."""
    current, deadline, interrupted, why, looked = 0, run.until, False, "", 0.0
    meter = _Meter(student, box)
    while True:
        told, now = select.select([control], [], [], METERED if meter.is_on else WATCHED)[0], time.monotonic()
        meter.look()
        if now > run.until + GRACE:
            run.lose(current, "the time of the submission was used up")
            return
        if box and now - looked > WATCHED:  # also while messages come without a pause
            looked = now
            if box.exceeds(run.limits.memory_bytes):
                why = why or f"more than {run.limits.memory_bytes // MB} MB of memory"
                box.close()
        if not told:
            if now > deadline and not interrupted:
                why, interrupted, deadline = f"more than {run.limits.cell_seconds:g} seconds", True, now + GRACE
                _signal(student, signal.SIGINT)
            elif now > deadline and box and box.process.poll() is None:
                deadline = now + GRACE
                box.close()
            elif now > deadline:
                run.lose(current, why)
                _signal(student, signal.SIGKILL)
                return
            continue
        try:
            kind, *rest = steps.receive(control)
        except (EOFError, OSError):
            kind, rest = "gone", ["the judge ended"]
        if kind == "begin":
            current = rest[0]
            interrupted, deadline = False, min(now + run.limits.cell_seconds, run.until)
            if not box or box.process.poll() is None:  # else why it was ended is yet to be told
                why = ""
        elif kind == "cell":
            number, outputs, slip = rest
            run.outputs.setdefault(number, outputs)
            if slip:
                run.slips[number] = slip
        elif kind == "memory":
            steps.send(control, meter.answer())
        elif kind == "end":
            run.passing, run.is_over = rest[0], True
            run.cpu += rest[1]
            return
        else:
            if kind == "failed":
                run.flags.append(f"the judge could not go on: {rest[0]}")
            run.lose(current, why or "the process ended here: a crash, or a limit of memory or processes")
            return


class _Meter:
    """How much memory a call takes: the judge asks before it and after it. `student` is a file that names a process.

    What its own process held at most, the kernel knows; of others that it starts, the sum is looked at meanwhile.
    """

    def __init__(self, student: int, box: Box | None):
        self.student, self.box, self.is_on = student, box, False

    def look(self) -> None:
        if self.is_on and self.box:
            self.most = max(self.most, self.box.memory())

    def answer(self) -> tuple[int, int]:
        """Bytes that are held now, and that were held at most since the last answer."""
        held, most = _memory(self.student)
        self.look()
        self.is_on = not self.is_on
        if self.is_on:
            self.before, self.in_box = held, self.box.memory() if self.box else 0
            self.most = self.in_box
            return held, most
        return held, max(most, self.before + self.most - self.in_box)


def _memory(process: int) -> tuple[int, int]:
    """Bytes that a student's process holds, and held at most since the last look; zeros if nobody says."""
    try:
        about = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{process}").read_text().splitlines())
        place = Path("/proc", about["Pid"].strip())
        held = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines() if ":" in line)
        now, most = (int(held[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
        (place / "clear_refs").write_text("5")  # the most begins anew: proc_pid_clear_refs(5)
        return now, most
    except (OSError, KeyError, ValueError):
        return 0, 0


def _signal(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, number)


def _end_group(process: int) -> None:
    """Without a box: end what is still in the group of a student's process."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


def _cpu(process: int | None) -> float:
    """Seconds of processor time of a student's process and of those it waited for."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


atexit.register(close)
