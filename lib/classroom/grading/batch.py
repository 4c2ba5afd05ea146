"""A run over a class: only what changed is marked, and a run that was killed goes on where it was.

What is known of a submission stands in one file (`records`). It is written before the marks go into the gradebook, and
once more after that. So a run that starts knows of each submission whether to mark it, to merge it, or to leave it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path

from sqlalchemy import make_url
from traitlets.config import Config

from classroom.grading import records
from classroom.grading.course import GradingFailed
from classroom.grading.intake import Intake
from classroom.grading.records import Record
from classroom.grading.serving import Failed
from classroom.grading.task import Limits, Result, Task

Merge = Callable[[str, dict[str, Result], datetime | None], None]
IsThere = Callable[[str, dict[str, Result]], bool]  # whether a student's results are in the gradebook as they are
Marking = Callable[[Iterator[Task]], Iterator[tuple[Task, Result | Failed]]]


@dataclass
class Summary:
    """What a run did. `listed` and `flagged` name every submission that needs a person, unchanged ones too."""

    assignment: str
    results: Path
    gradebook: str
    graded: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    listed: dict[str, str] = field(default_factory=dict)  # student → why there are no marks
    flagged: dict[str, str] = field(default_factory=dict)  # student → what a person should look at
    without_isolation: list[str] = field(default_factory=list)
    seconds: float = 0.0


def key(files: Mapping[str, bytes], *others: object) -> str:
    """sha256 of all that the marks depend on; each part stands with its length, so none runs into the next."""
    digest = hashlib.sha256()
    for part in [*(part for file in sorted(files.items()) for part in file), *others]:
        data = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        digest.update(f"{len(data)}:".encode() + data)
    return digest.hexdigest()


class Batch:
    """One run on the submissions of one assignment.

    `take` gives what a student has handed in, and when; `merge` puts results into the gradebook.
    """

    def __init__(
        self,
        config: Config,
        assignment: str,
        authority: Mapping[str, str],
        *,
        version: str,
        limits: Limits,
        isolated: bool,
        take: Callable[[str], tuple[Intake, datetime | None]],
        merge: Merge,
    ):
        self.assignment, self.authority, self.version, self.limits = assignment, authority, version, limits
        self.isolated, self._take, self.merge = isolated, take, merge
        self.folder = Path(config.CourseDirectory.root) / "results" / assignment
        url = make_url(config.CourseDirectory.db_url)
        self.gradebook = hashlib.sha256(str(url).encode()).hexdigest()[:16]  # str(url) hides the password
        self.summary = Summary(assignment, self.folder, str(url))
        self.waiting: dict[int, tuple[Task, str, Record]] = {}  # tasks under way: notebook, and where its result goes
        self.n_done = 0
        records.clear_remains(self.folder)

    def look_through(self, students: list[str], again: bool, is_there: IsThere) -> list[str]:
        """The students whose work must be marked. What was marked and is not in the gradebook is merged."""
        to_mark = []
        for student in students:
            old = records.read(self.folder, student)
            if (taken := self.take(student)) is None:
                continue
            new, _ = taken
            if old is None or old.key != new.key or again:
                to_mark.append(student)
                if old and again:
                    records.write(self.folder, replace(old, key=""))  # so that a second start need not say it again
                continue
            merged = old.is_merged(self.gradebook) and is_there(student, old.notebooks)
            if not merged or old.submitted_at != new.submitted_at:
                old.submitted_at = new.submitted_at
                self.put_into_gradebook(old)
            self.summary.unchanged.append(student)
            self.note(old)
        return to_mark

    def take(self, student: str) -> tuple[Record, dict[str, bytes]] | None:
        """A student's submission as it is now: a record without results, and the notebooks; None if it is not there."""
        try:
            intake, when = self._take(student)
        except Exception as error:  # whatever a folder holds, the others are graded
            self.summary.listed[student] = f"The submission cannot be read: {type(error).__name__}: {error}"
            return None
        depends = asdict(self.limits), self.isolated, self.version, intake.findings, sorted(self.authority.items())
        record = Record(
            assignment=self.assignment,
            student=student,
            key=key(intake.notebooks, *depends),
            files={name: hashlib.sha256(data).hexdigest() for name, data in intake.notebooks.items()},
            submitted_at=when and when.isoformat(),
        )
        for name in self.authority:
            about = {"findings": [*intake.findings], "flags": [*intake.flags]}
            record.notebooks[name] = Result(student=student, key=record.key, notebook=None, **about)
        return record, intake.notebooks

    def tasks(self, students: list[str]) -> Iterator[Task]:
        """One for each notebook, read from disk when it is asked for: a class need not fit into memory."""
        for student in students:
            if (taken := self.take(student)) is None:
                continue
            record, notebooks = taken
            tasks = [
                (self.task(record, notebooks[name], text), name, record)
                for name, text in self.authority.items()
                if name in notebooks
            ]
            self.waiting.update({id(task[0]): task for task in tasks})
            if not tasks:
                self.finish(record)
            yield from (task for task, _, _ in tasks)

    def task(self, record: Record, notebook: bytes, authority: str) -> Task:
        return Task(
            assignment=self.assignment,
            student=record.student,
            notebook=notebook,
            authority=authority,
            key=record.key,
            limits=self.limits,
            isolated=self.isolated,
        )

    # ---- what becomes of it ----

    def run(self, students: list[str], marked: Marking) -> Iterator[int]:
        """Mark and merge the work of these students; after each notebook, how many of them are done."""
        with contextlib.closing(marked(self.tasks(students))) as outcomes:
            for task, outcome in outcomes:
                self.put(task, outcome)
                yield self.n_done
        yield self.n_done

    def put(self, task: Task, outcome: Result | Failed) -> None:
        """Keep the result of one notebook; the last one of a submission completes its record."""
        _, name, record = self.waiting.pop(id(task))
        before = record.notebooks[name]  # what was said when the folder was read
        if isinstance(outcome, Failed):
            record.failure, record.key = outcome.reason, ""  # the next run tries again
            record.notebooks[name] = replace(before, flags=[*before.flags, outcome.reason])
        else:
            findings, flags = [*before.findings, *outcome.findings], [*before.flags, *outcome.flags]
            record.notebooks[name] = replace(outcome, findings=findings, flags=flags)
        if not any(other is record for _, _, other in self.waiting.values()):
            self.finish(record)

    def finish(self, record: Record) -> None:
        records.write(self.folder, record)
        self.n_done += 1
        self.note(record)
        if record.failure is None:
            self.summary.graded.append(record.student)
            self.put_into_gradebook(record)

    def put_into_gradebook(self, record: Record) -> None:
        when = record.submitted_at and datetime.fromisoformat(record.submitted_at)
        try:
            self.merge(record.student, record.notebooks, when)
        except GradingFailed as error:
            self.summary.listed[record.student] = f"Marked, but not in the gradebook: {error}"
            return
        record.merged, record.gradebook = record.key, self.gradebook
        records.write(self.folder, record)

    def note(self, record: Record) -> None:
        """Whom a person should look at."""
        results = record.notebooks.values()
        if record.failure:
            self.summary.listed[record.student] = record.failure
        elif any(result.notebook is None for result in results):
            why = [text for result in results if result.notebook is None for text in result.findings]
            self.summary.listed[record.student] = " ".join(why) or "Nothing in the file could be read."
        elif flags := [flag for result in results for flag in result.flags]:
            self.summary.flagged[record.student] = "; ".join(flags)
        if any(result.isolation == "none" for result in results):
            self.summary.without_isolation.append(record.student)
