"""`mark`: one submission, run in a box and judged outside it.

The calling process keeps two warm ones: of one, students' processes are forks, of the other, judges. A cell that ends
its process loses its own points; the cells before it are run again without it, and those after it go on.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import select
import shutil
import signal
import socket
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.utils import determine_grade, is_grade

from classroom.grading import sandbox, steps
from classroom.grading.answers import as_released, placed
from classroom.grading.forks import Forks
from classroom.grading.meddling import signs
from classroom.grading.sandbox import Box
from classroom.grading.task import MB, Limits, Result, Task

ALWAYS = ["torch", "numpy", "classroom", "plainformer.model", "IPython.core.interactiveshell"]
GRACE = 2.0  # seconds from an interrupt to the end of the box
WATCHED = 0.1  # seconds between two looks at a box's memory
_warm: dict[tuple, Forks] = {}
_baselines: dict[str, set[str]] = {}


@dataclass
class _Run:
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


def isolation() -> str | None:
    """The name of what isolates submissions on this machine; None if nothing does."""
    return None if sandbox.why_not() else "bubblewrap"


def mark(task: Task) -> Result:
    """The marks of one submission. Whatever the file holds, this returns; it raises `NoSandbox` without bubblewrap."""
    begun = time.monotonic()
    authority = _authority(task.authority).notebook
    found = placed(task.notebook, authority)
    about = {"student": task.student, "key": task.key, "isolation": "bubblewrap" if task.isolated else "none"}
    if found.notebook is None:
        return Result(notebook=None, findings=found.findings, flags=found.flags, **about)
    run = _run(found.notebook, task)
    flags = [*found.flags, *run.flags, *signs(found.notebook)]
    if passing := sorted(set(run.passing) - _baseline(task)):
        flags.append(f"points were refused: a check lets an answer pass that is none ({', '.join(passing)})")
    for number, step in enumerate(run.plan):
        cell = found.notebook.cells[step.place]
        outputs = run.outputs.get(number, [failed("NotRun", "the time of the submission was used up")])
        if step.name in passing:
            outputs = [failed("Doubtful", "a person looks at this check")]
        cell.outputs = [nbformat.from_dict(output) for output in outputs]
        cell.execution_count = number + 1
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number + 1
    points = {c.metadata.nbgrader.grade_id: _points(c, flags) for c in found.notebook.cells if is_grade(c)}
    return Result(
        notebook=nbformat.writes(found.notebook),
        points=points,
        slips={run.plan[number].name: slip for number, slip in run.slips.items()},
        findings=found.findings,
        flags=flags,
        wall_seconds=time.monotonic() - begun,
        cpu_seconds=run.cpu,
        **about,
    )


def _points(cell: NotebookNode, flags: list[str]) -> float | None:
    """What nbgrader reads from a test cell; partial credit that is no share of its points is none."""
    results = [output.data.get("text/plain", "") for output in cell.get("outputs", []) if "data" in output]
    try:
        share = float(results[-1]) if results else 0.0
    except ValueError:
        share = 0.0
    if not 0 <= share <= cell.metadata.nbgrader.points:
        flags.append(f"{cell.metadata.nbgrader.grade_id} gives {share} points of {cell.metadata.nbgrader.points}")
        cell.outputs = [nbformat.from_dict(failed("Doubtful", f"{share} points cannot be given"))]
    return determine_grade(cell)[0]


def close() -> None:
    """End the warm processes."""
    while _warm:
        _warm.popitem()[1].close()


def failed(name: str, why: str) -> dict:
    """The output of a cell that did not come to its end."""
    return {"output_type": "error", "ename": name, "evalue": why, "traceback": [f"✗ {why}"]}


@dataclass(frozen=True)
class _Authority:
    """The instructor's notebook, the modules that it imports, and the names of the judge's that it may be shown."""

    notebook: NotebookNode
    modules: list[str]
    shown: list[tuple[str, str]]


@functools.lru_cache(maxsize=8)
def _authority(text: str) -> _Authority:
    """What a whole class has in common, worked out once a process. Nobody changes it."""
    notebook = nbformat.reads(text, as_version=4)
    return _Authority(notebook, steps.imports(notebook), steps.shown(as_released(notebook)))


def _baseline(task: Task) -> set[str]:
    """The checks that pass whatever they are given: measured on the notebook as it was released."""
    digest = hashlib.sha256(task.authority.encode()).hexdigest()
    if digest not in _baselines:
        _baselines[digest] = set(_run(_authority(task.authority).notebook, task).passing)
    return _baselines[digest]


def _run(notebook: NotebookNode, task: Task) -> _Run:
    authority = _authority(task.authority)
    plan = steps.plan(notebook, authority.notebook)
    run = _Run(plan, task.limits, time.monotonic() + task.limits.total_seconds)
    modules = authority.modules
    students = _forks("student", [*ALWAYS, *(name for name in modules if not steps.is_judged(name))], [])
    judges = _forks("judge", [*ALWAYS, *modules], sandbox.command(task.limits, is_open=True) if task.isolated else [])
    request = {
        "steps": [asdict(step) for step in plan],
        "shown": authority.shown,
        "limits": asdict(task.limits),
        "is_robot": task.is_robot,
    }
    while not run.is_over and time.monotonic() < run.until:
        _attempt(run, request, students, judges, task.isolated)
    if time.monotonic() > run.until:
        run.flags.append(f"the submission took more than {task.limits.total_seconds:.0f} seconds")
    return run


def _forks(entry: str, modules: list[str], before: list[str]) -> Forks:
    """The warm process for these modules, started when it is first needed."""
    key = entry, tuple(modules), tuple(before)
    if key not in _warm or not _warm[key].is_alive:
        for old in [old for old in _warm if old[0] == entry and (old == key or len(_warm) > 6)]:
            _warm.pop(old).close()
        _warm[key] = Forks(f"classroom.grading.{entry}", modules, before)
    return _warm[key]


def _attempt(run: _Run, request: dict, students: Forks, judges: Forks, isolated: bool) -> None:
    """One pair of processes, until the notebook is through or one of them has ended."""
    box = Box(run.limits, os.getpid() % 4_000, is_open=request["is_robot"]) if isolated else None
    folder = None if isolated else tempfile.mkdtemp(prefix="submission-")
    control, theirs = socket.socketpair()
    judge_end, student_end = socket.socketpair()
    student = judge = handle = None
    try:
        inside = {"first": box.first, "user": box.user} if box else {"first": None, "folder": folder}
        inside |= {name: request[name] for name in ("limits", "is_robot")}
        student = students.fork(inside, [student_end.fileno()])
        handle = os.pidfd_open(student)  # by the time of a signal its number may be another process's
        judge = judges.fork({}, [theirs.fileno(), judge_end.fileno()])
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


def _follow(run: _Run, control: socket.socket, student: int, box: Box | None) -> None:
    """Take the judge's messages, and end what takes too long or too much. `student` is a file that names a process."""
    current, deadline, interrupted, why = 0, run.until, False, ""
    while True:
        told, now = select.select([control], [], [], WATCHED)[0], time.monotonic()
        if now > run.until + GRACE:
            run.lose(current, "the time of the submission was used up")
            return
        if not told:
            if box and box.memory() > run.limits.memory_bytes:
                why = why or f"more than {run.limits.memory_bytes // MB} MB of memory"
                box.close()
            elif now > deadline and not interrupted:
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
        elif kind == "cell":
            number, outputs, slip = rest
            run.outputs.setdefault(number, outputs)
            if slip:
                run.slips[number] = slip
        elif kind == "memory":
            steps.send(control, _memory(student))
        elif kind == "end":
            run.passing, run.is_over = rest[0], True
            run.cpu += rest[1]
            return
        else:
            if kind == "failed":
                run.flags.append(f"the judge could not go on: {rest[0]}")
            run.lose(current, why or "the process ended here: a crash, or a limit of memory or processes")
            return


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
