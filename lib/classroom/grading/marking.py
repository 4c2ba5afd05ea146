"""`mark`: one submission, run in a box and judged outside it.

How its cells are run stands in `running`; this is what is made of the file before, and of the outputs afterwards.
"""

from __future__ import annotations

import functools
import hashlib
import time
from dataclasses import dataclass

import nbformat
from nbformat import NotebookNode
from nbgrader.utils import determine_grade, is_grade

from classroom.grading import planning, running, sandbox
from classroom.grading.answers import as_released, placed
from classroom.grading.meddling import signs
from classroom.grading.running import Run, failed
from classroom.grading.task import Result, Task

_baselines: dict[str, set[str]] = {}


def why_not() -> str | None:
    """None if submissions can be isolated on this machine; otherwise what is missing, and what to do."""
    return sandbox.why_not()


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
    return _Authority(notebook, planning.imports(notebook), planning.shown(as_released(notebook)))


def _baseline(task: Task) -> set[str]:
    """The checks that pass whatever they are given: measured on the notebook as it was released."""
    digest = hashlib.sha256(task.authority.encode()).hexdigest()
    if digest not in _baselines:
        _baselines[digest] = set(_run(_authority(task.authority).notebook, task).passing)
    return _baselines[digest]


def _run(notebook: NotebookNode, task: Task) -> Run:
    authority = _authority(task.authority)
    return running.run(planning.plan(notebook, authority.notebook), authority.shown, authority.modules, task)


def close() -> None:
    """End the processes that are kept for the next submission."""
    running.close()
