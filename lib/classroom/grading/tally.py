"""What a teacher wants to know of a graded class: marks, problems, slips, times, and whom to look at."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import mean, median

from classroom.grading.task import Result


@dataclass(frozen=True)
class Sheet:
    """The instructor's side of an assignment: its title, and of each graded cell what a report must know."""

    title: str
    titles: dict[str, str]  # problem → heading
    points: dict[str, float]  # graded cell → most points
    by_hand: frozenset[str]  # graded cells that a person marks

    @property
    def problems(self) -> dict[str, float]:
        """Problem → most points, in the order of the notebook."""
        most: dict[str, float] = {}
        for cell, points in self.points.items():
            most[problem_of(cell)] = most.get(problem_of(cell), 0) + points
        return most


def problem_of(cell: str) -> str:
    """The problem that a graded cell belongs to, such as p5 of ``p5-norms``."""
    return cell.partition("-")[0]


def sheet(assignment: str, notebooks: Mapping[str, str]) -> Sheet:
    """The sheet of an assignment from its notebooks for grading: name → JSON text."""
    heading, titles, points, by_hand = "", {}, {}, set()
    for text in notebooks.values():
        for cell in json.loads(text)["cells"]:
            source = "".join(cell["source"])
            given = cell["metadata"].get("nbgrader", {})
            name = given.get("grade_id", "")
            if cell["cell_type"] == "markdown" and (found := re.search(r"^(#{1,3}) +(.+)$", source, re.MULTILINE)):
                titles.setdefault(problem_of(name), found[2].strip())
                heading = heading or (found[2].strip() if len(found[1]) == 1 else "")
            if given.get("grade") or given.get("task"):
                points[name] = float(given.get("points") or 0)
                if given.get("solution") or given.get("task"):
                    by_hand.add(name)
    return Sheet(heading or assignment, titles, points, frozenset(by_hand))


@dataclass(frozen=True)
class Marks:
    """What the gradebook adds to a student's results."""

    by_hand: dict[str, float] = field(default_factory=dict)  # graded cell → points, extra credit included
    waiting: frozenset[str] = frozenset()  # graded cells that still need a person
    late_penalty: float = 0.0
    places: dict[str, str] = field(default_factory=dict)  # notebook → its id in the formgrader


@dataclass(frozen=True)
class Student:
    """One submission: all notebooks of it together."""

    name: str
    results: dict[str, Result]
    marks: Marks

    @cached_property
    def was_read(self) -> bool:
        return any(result.notebook is not None for result in self.results.values())

    @cached_property
    def was_read_whole(self) -> bool:
        return all(result.notebook is not None for result in self.results.values())

    @cached_property
    def points(self) -> dict[str, float | None]:
        """Graded cell → points; None while a person has not marked it."""
        found = {cell: points for result in self.results.values() for cell, points in result.points.items()}
        found.update(dict.fromkeys(self.marks.waiting))
        return found | self.marks.by_hand

    @cached_property
    def total(self) -> float | None:
        """Points after the late penalty, so far; None if there is nothing to mark."""
        if not self.was_read and not self.marks.by_hand:
            return None
        return max(0.0, sum(points or 0 for points in self.points.values()) - self.marks.late_penalty)

    @property
    def waiting(self) -> list[str]:
        """Graded cells that a person must still mark, or mark again; the gradebook knows, if the student is in it."""
        known = self.marks.waiting
        is_known = bool(self.marks.places)  # an essay that nobody touched has 0 points there
        return [cell for cell, points in self.points.items() if cell in known or (points is None and not is_known)]

    def so_far(self, problem: str) -> float | None:
        """Points of a problem without those that a person may add; None if nothing of it was read."""
        points = [value for cell, value in self.points.items() if problem_of(cell) == problem]
        return sum(value or 0 for value in points) if points else None

    def problem(self, problem: str) -> float | None:
        """Points of a problem; None while a cell of it waits for a person, or nothing was read."""
        return None if problem in map(problem_of, self.waiting) else self.so_far(problem)

    def texts(self, kind: str) -> list[str]:
        """Flags or findings of all notebooks, each behind its notebook's name if there are several."""
        several = len(self.results) > 1
        return [
            f"{notebook}: {text}" if several else text
            for notebook, result in self.results.items()
            for text in getattr(result, kind)
        ]

    @property
    def seconds(self) -> float:
        return sum(result.wall_seconds for result in self.results.values())

    @property
    def isolated(self) -> bool:
        return all(result.isolation != "none" for result in self.results.values())


@dataclass(frozen=True)
class Problem:
    """How a class did in one problem: counts of students, and the mean share of its points."""

    name: str
    title: str
    most: float
    full: int
    partly: int
    none: int
    waiting: int
    mean_share: float | None


@dataclass(frozen=True)
class Slip:
    """A known wrong answer, and who gave it."""

    check: str
    text: str
    students: tuple[str, ...]


@dataclass(frozen=True)
class Tally:
    """A graded class."""

    assignment: str
    sheet: Sheet
    students: list[Student]
    damaged: dict[str, str]  # files of results that could not be read → why
    from_gradebook: bool

    @property
    def most(self) -> float:
        return sum(self.sheet.points.values())

    @cached_property
    def marked(self) -> list[Student]:
        return [student for student in self.students if student.total is not None]

    @cached_property
    def totals(self) -> list[float]:
        return [student.total for student in self.marked]

    @property
    def mean(self) -> float | None:
        return mean(self.totals) if self.totals else None

    @property
    def median(self) -> float | None:
        return median(self.totals) if self.totals else None

    @property
    def waiting(self) -> int:
        """Submissions that a person has not marked completely; of those that could not be read, nothing is marked."""
        return sum(bool(student.waiting) or student.total is None for student in self.students)

    @property
    def late(self) -> int:
        """Submissions with a late penalty."""
        return sum(student.marks.late_penalty > 0 for student in self.students)

    @cached_property
    def classes(self) -> list[tuple[float, float, int]]:
        """The distribution of marks: from, to (in the last class included), and how many."""
        top = max([self.most, *self.totals], default=0) or 1.0
        step = next(s for s in _steps() if top / s <= 12)
        n_classes = max(1, math.ceil(top / step - 1e-9))
        counts = Counter(min(int(total / step + 1e-9), n_classes - 1) for total in self.totals)
        return [(n * step, min((n + 1) * step, top), counts[n]) for n in range(n_classes)]

    @cached_property
    def problems(self) -> list[Problem]:
        rows = []
        for name, most in self.sheet.problems.items():
            points = [student.problem(name) for student in self.marked]
            known = [value for value in points if value is not None]
            full = sum(value >= most - 1e-9 for value in known)
            none = sum(value <= 0 < most for value in known)
            share = mean(known) / most if known and most else None
            title = self.sheet.titles.get(name, name)
            rows.append(
                Problem(name, title, most, full, len(known) - full - none, none, len(points) - len(known), share)
            )
        return rows

    @cached_property
    def slips(self) -> list[Slip]:
        """Most frequent first."""
        found: dict[tuple[str, str], list[str]] = defaultdict(list)
        for student in self.students:
            given = {slip for result in student.results.values() for slip in result.slips.items()}
            for slip in given:
                found[slip].append(student.name)
        rows = [Slip(check, text, tuple(sorted(names))) for (check, text), names in found.items()]
        return sorted(rows, key=lambda slip: (-len(slip.students), slip.check, slip.text))

    @property
    def slowest(self) -> list[Student]:
        """Those that were read, slowest first."""
        read = [student for student in self.students if student.was_read]
        return sorted(read, key=lambda student: (-student.seconds, student.name))

    @property
    def median_seconds(self) -> float:
        """Of the submissions that were read (0 if there are none)."""
        return median([student.seconds for student in self.slowest] or [0.0])

    def quantile(self, share: float) -> float:
        """Seconds within which this share of the submissions that were read was marked (0 if there are none)."""
        times = [student.seconds for student in reversed(self.slowest)]
        return times[max(0, math.ceil(share * len(times)) - 1)] if times else 0.0


def _steps():
    """Widths of a class of marks that people like: 0.1, 0.2, 0.5, 1, 2, 5, 10, …"""
    size = 0.1
    while True:
        yield from (size, 2 * size, 5 * size)
        size *= 10
