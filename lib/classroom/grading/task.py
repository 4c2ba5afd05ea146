"""What a worker gets to mark one submission, and what it gives back: plain data, so that it may be another machine."""

from __future__ import annotations

from dataclasses import dataclass, field

MB = 2**20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one submission may use: seconds, bytes and counts. Whoever goes beyond them loses that cell."""

    cell_seconds: float = 120.0  # wall time of a cell, or of a check
    total_seconds: float = 900.0  # wall time of the submission
    memory_bytes: int = 3 * 2**30  # all processes together
    disk_bytes: int = 256 * MB  # the scratch space
    output_bytes: int = 1 * MB  # text and pictures that one cell shows
    message_bytes: int = 64 * MB  # one answer that crosses to the judge
    n_processes: int = 64
    n_files: int = 256  # open at a time, in each process


@dataclass(frozen=True, kw_only=True)
class Task:
    """One notebook of one submission. The same `key` gives the same marks.

    `notebook`: the bytes that were handed in. `authority`: the instructor's notebook as JSON text, as released but
    with its hidden tests; cells, points and order come from it, and of the submission only what stands in answers.
    `is_robot`: a submission of our own that fetches known wrong answers from the checks, which students cannot read.
    """

    assignment: str
    student: str
    notebook: bytes
    authority: str
    key: str
    limits: Limits = field(default_factory=Limits)
    isolated: bool = True
    is_robot: bool = False


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a task. `notebook`: the marked notebook as JSON text, None if nothing in the file could be read.

    `points` maps the test cells to what the checks gave; a cell that a person marks is None.
    `slips` maps a test cell to the known wrong answer that was recognised in it.
    `findings` say what was wrong with the file and what the student should do; `flags`, what a person should look at.
    """

    student: str
    key: str
    notebook: str | None
    points: dict[str, float | None] = field(default_factory=dict)
    slips: dict[str, str] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    isolation: str = "bubblewrap"  # or "none"
