"""A marker for tests of the batch: what it does stands in the submission, and all that it does in a log.

`python fake_marking.py FOLDER [SCHEDULER]` grades with it, so that a test can kill the process. GRADING_LOG names
the log.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from classroom.grading.task import Result, Task

MARK = "fake_marking:mark"
ASSIGNMENT = "exercise"
AUTHORITY = {ASSIGNMENT: "{}"}


def log(*words: object) -> None:
    """Append a line at one stroke, whoever else writes."""
    number = os.open(os.environ["GRADING_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(number, (json.dumps(words) + "\n").encode())
    os.close(number)


def logged(word: str) -> list[list]:
    """What the log says behind a word, in order: of "begin" and "end" student and process, of "merge" the student."""
    path = Path(os.environ["GRADING_LOG"])
    lines = path.read_text().splitlines() if path.exists() else []
    return [line[1:] for line in map(json.loads, lines) if line[0] == word]


def version() -> str:
    return os.environ.get("GRADING_VERSION", "one")


def why_not() -> str | None:
    return os.environ.get("GRADING_ISOLATION_FAILS")


def points(notebook: bytes) -> float:
    """Any number that depends on every byte."""
    return hashlib.sha256(notebook).digest()[0] / 4


def mark(task: Task) -> Result:
    log("begin", task.student, os.getpid())
    order, _, _ = task.notebook.decode().partition("#")
    word, _, value = order.strip().partition(" ")
    flags, notebook = [], "marked"
    if word == "sleep":
        time.sleep(float(value))
    elif word == "wait":  # until so many submissions have begun
        while len(logged("begin")) < int(value):
            time.sleep(0.01)
    elif word == "die" or (word == "die-once" and len([who for who, _ in logged("begin") if who == task.student]) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    elif word == "raise":
        raise ZeroDivisionError("the marker has a fault")
    elif word == "exit":
        sys.exit(3)
    elif word == "nonsense":
        return "no result"
    elif word == "flag":
        flags = ["a check lets everything pass"]
    elif word == "unreadable":
        notebook = None
    result = Result(
        student=task.student,
        key=task.key,
        notebook=notebook,
        points={} if notebook is None else {"p1-test": points(task.notebook)},
        findings=["the file holds no notebook"] if notebook is None else [],
        flags=flags,
        isolation="bubblewrap" if task.isolated else "none",
    )
    log("end", task.student, os.getpid())
    return result


@contextlib.contextmanager
def gradebook(config, assignment, authority):
    """Stands in for nbgrader's: the log takes what is merged."""
    Path(config.CourseDirectory.root, "gradebook.db").touch()

    def merge(student, results, submitted_at):
        log("merge", student, {name: result.points for name, result in results.items()}, str(submitted_at))
        if os.environ.get("GRADING_STOP") == student:
            os.kill(os.getpid(), signal.SIGKILL)

    yield merge


def hand_in(folder: Path, submissions: dict[str, str]) -> None:
    """Put a notebook in each student's folder."""
    for student, order in submissions.items():
        place = folder / "submitted" / student / ASSIGNMENT
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{ASSIGNMENT}.ipynb").write_text(order)


def grade_with_it(folder: Path, **options):
    """`grade.grade` with this marker."""
    from classroom.grading.grade import grade

    return grade(
        ASSIGNMENT, folder, **{"n_workers": 2, "mark": MARK, "authority": AUTHORITY, "gradebook": gradebook} | options
    )


if __name__ == "__main__":
    from classroom.grading.cluster import Scheduler
    from classroom.grading.course import GradingFailed

    try:
        grade_with_it(Path(sys.argv[1]), scheduler=Scheduler(sys.argv[2]) if len(sys.argv) == 3 else None)
    except (GradingFailed, KeyboardInterrupt) as error:
        sys.exit(f"{type(error).__name__}: {error}")
