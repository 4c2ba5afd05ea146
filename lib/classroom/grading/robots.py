"""The simulated class of `make grade`: right answers in several styles, every known wrong one,
broken files and hostile code.

Each robot hands in one notebook and says which marks it must get. They are graded as a real class is, by the command
`python -m classroom grade`, and the marks are read from nbgrader's gradebook.
"""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

import nbformat
from nbgrader.utils import is_grade, rmtree
from traitlets.config import Config

from classroom.grading import broken_files, course, demo, marking, trial
from classroom.grading import grade as command
from classroom.grading.broken import ALL, NONE, Broken
from classroom.grading.course import ROOT, GradingFailed
from classroom.grading.demo_class import hostile
from classroom.grading.release import build
from classroom.grading.task import MB, Limits, Result, Task

# what an attack aims at outside its box: a folder, a port, a socket's name and a process
NOWHERE = {"CANARY": "/canary", "PORT": "9", "NAME": "nobody", "PROCESS": str(2**22)}
# for hostile ones, so that endless loops do not take the afternoon
SHORT = Limits(cell_seconds=3, total_seconds=60, memory_bytes=1536 * MB, disk_bytes=64 * MB)
HOSTILE = "hostile-"
WRONG = "wrong-"  # these fetch known wrong answers from the checks' own catalogue, which no student's box holds


@dataclass(frozen=True)
class Robot:
    """One submission: `build` writes what is handed in to a folder.

    `points` maps problems ("p3"), test cells ("p3-causal_mask") or "total" to the points that it must get.
    """

    student: str
    kind: str
    build: Callable[[Path], object]
    points: dict[str, float]

    def faults(self, got: dict[str, float] | None) -> dict[str, tuple[float, float]]:
        """Where the points of its test cells differ from what they must be: (got, expected)."""
        got = got or {}
        known = got | demo.by_problem(got) | {"total": sum(got.values())}
        return {part: (known.get(part, 0), due) for part, due in self.points.items() if known.get(part, 0) != due}


@dataclass(frozen=True)
class Row:
    """A robot and what it got: points by test cell, None if it has no marks."""

    robot: Robot
    got: dict[str, float] | None

    @property
    def faults(self) -> dict[str, tuple[float, float]]:
        return self.robot.faults(self.got)


def grade(
    assignment: str,
    folder: Path,
    *,
    kinds: Collection[str] = (),
    n_workers: int | None = None,
    feedback: bool = True,
    watch: Callable[[int, int], None] = lambda n_done, n_all: None,
) -> list[Row]:
    """Grade the robots of `assignment` in `folder`: all, or those of some kinds.

    Writes marks.csv, and pages of feedback for the demonstration class. Removes what an earlier run left there, and
    nothing else. Raises `GradingFailed`.
    """
    if folder.resolve() == ROOT:
        raise GradingFailed("the simulated class must not be graded in the repository's own folder.")
    demo.submissions(course.known(assignment))  # refuses, before anything is removed
    _clear(folder)
    folder.mkdir(parents=True, exist_ok=True)
    released = build(assignment, folder) / f"{assignment}.ipynb"
    config = course.settings(folder)
    class_ = [robot for robot in robots(assignment, released) if not kinds or robot.kind in kinds]
    hand_in(config, assignment, class_)
    command.grade(assignment, folder, n_workers=n_workers, mark=f"{__name__}:mark", watch=watch)
    marks = course.marks(config, assignment)
    rows = [Row(robot, marks.get(robot.student)) for robot in class_]
    if feedback:
        course.feedback(config, assignment, students="demo-*")
    _write_marks(folder / "marks.csv", assignment, rows)
    return rows


def table(rows: list[Row]) -> str:
    """How many of each kind got the marks they must get, and which did not."""
    counts, fine = Counter(row.robot.kind for row in rows), Counter(row.robot.kind for row in rows if not row.faults)
    lines = [f"{kind:20} {fine[kind]:4} of {counts[kind]:4} as expected" for kind in counts]
    for row in rows:
        for part, (got, due) in row.faults.items():
            lines.append(f"NOT OK: {row.robot.student}, {part}: {got:g} points; {due:g} were expected")
    return "\n".join(lines)


def robots(assignment: str, released: Path) -> list[Robot]:
    """The class of an assignment that has been released to the notebook `released`."""
    notebook = nbformat.read(released, as_version=4)
    full = {c.metadata.nbgrader.grade_id: c.metadata.nbgrader.points for c in notebook.cells if is_grade(c)}
    about = trial.Assignment(assignment)
    made = []
    for one in demo.submissions(assignment):
        kind = "nothing right" if one.marks is None else "partly right" if one.marks else "right"
        answers = one.answers(course.answers(about.source))
        made.append(Robot(one.student, kind, _writer(released, answers), one.expected(demo.by_problem(full))))
    for k, slips in enumerate(trial.pack(about.catalogue)):
        answers = trial.answers_with(slips, about)
        lost = {about.tests[check]: 0.0 for check in slips}
        made.append(Robot(f"{WRONG}{k + 1:02}", "known wrong answers", _writer(released, answers), lost))
    table = broken_files.table(assignment, notebook, trial.answers_with({}, about))
    return made + with_broken_files(table, demo.by_problem(full)) + hostile_ones(assignment, released, full)


def with_broken_files(table: dict[str, Broken], full: dict[str, float]) -> list[Robot]:
    """One robot for each kind of broken file but the large ones; `full` are the points of right answers by problem."""
    left_out = {broken_files.UNREADABLE} if os.geteuid() == 0 else set()  # no permission stops root
    return [
        Robot(f"broken-{_slug(kind)}", "broken files", broken.build, _points(broken, full))
        for kind, broken in table.items()
        if not broken.is_large and kind not in left_out
    ]


def hostile_ones(assignment: str, released: Path, full: dict[str, float]) -> list[Robot]:
    """One robot for each attack on this assignment. What they aim at outside is not there: the tests have it."""
    data = released.read_bytes()
    return [
        Robot(
            f"{HOSTILE}{_slug(attack.name)}",
            "hostile",
            lambda folder, attack=attack: (folder / released.name).write_bytes(attack.notebook(data, NOWHERE)),
            {**dict.fromkeys(full, 0), **attack.points},
        )
        for attack in hostile.attacks()
        if attack.assignment == assignment
    ]


def _slug(kind: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", kind.lower().replace("'", "").replace(",", "")).strip("-")


def _points(broken: Broken, full: dict[str, float]) -> dict[str, float]:
    """What a broken file must get: full points where its answers are found, none where they are lost.

    Nothing is said of a problem whose answer is found in part.
    """
    if broken.found in (ALL, NONE):
        points = full if broken.found == ALL else dict.fromkeys(full, 0.0)
        return points | {"total": sum(points.values())}
    right, lost = ({cell.split("-")[0] for cell in cells} for cells in (broken.right, broken.lost))
    return {problem: due for problem, due in full.items() if problem in right} | dict.fromkeys(sorted(lost), 0.0)


def mark(task: Task) -> Result:
    """`marking.mark` for a class of robots."""
    if task.student.startswith(HOSTILE):
        task = replace(task, limits=SHORT)
    return marking.mark(replace(task, is_robot=task.student.startswith(WRONG)))


why_not = marking.why_not


def hand_in(config: Config, assignment: str, class_: list[Robot]) -> None:
    """Put what the robots hand in where a class's submissions lie."""
    for robot in class_:
        folder = course.submitted(config) / robot.student / assignment
        folder.mkdir(parents=True)
        robot.build(folder)


def _writer(released: Path, answers: dict[str, str]) -> Callable[[Path], object]:
    return lambda folder: nbformat.write(course.answered(released, answers), folder / released.name)


def _clear(folder: Path) -> None:
    for name in ("solutions", "exercises", "submitted", "autograded", "feedback", "results"):
        if (folder / name).is_dir():
            rmtree(str(folder / name))  # nbgrader's own, since it write-protects what it graded
    for name in ("gradebook.db", "marks.csv", "nbgrader.log", "grade.lock"):
        (folder / name).unlink(missing_ok=True)


def _write_marks(path: Path, assignment: str, rows: list[Row]) -> None:
    problems = sorted({problem for row in rows for problem in demo.by_problem(row.got or {})})
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["assignment", "student", "kind", *problems, "total", "as expected"])
        for row in rows:
            points = demo.by_problem(row.got or {})
            total = sum(points.values())
            shown = [f"{points[problem]:g}" if problem in points else "" for problem in problems]
            about = [assignment, row.robot.student, row.robot.kind]
            writer.writerow([*about, *shown, f"{total:g}" if row.got else "", "no" if row.faults else "yes"])
