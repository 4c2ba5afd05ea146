"""Grading a class: the course's own command against nbgrader's autograder, on the same submissions in the same run.

Marks must be the same. Then how much quicker two workers are than one, what memory a worker takes, and a class of 500
whose grading is killed three times.
"""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest

from classroom.grading import course, demo, intake
from classroom.grading.release import build
from classroom.grading.sandbox import why_not
from classroom.instructor_tables import GRADING

NAME = "07_mlp"  # imports torch, as most do
N_STUDENTS, N_LARGE = 60, 500
TARGET, QUICKER = 6, "times as quick"
STOCK = "import sys; from pathlib import Path; from classroom.grading import course; " \
    "assert course.autograde(course.settings(Path(sys.argv[1])), sys.argv[2])"  # fmt: skip

QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

pytestmark = pytest.mark.skipif(why_not() is not None, reason="needs bubblewrap")


def class_of(folder: Path, n_students: int) -> None:
    """A course folder: the demonstration class again and again, each submission a bit different."""
    released = build(NAME, folder) / f"{NAME}.ipynb"
    reference = course.answers(nbformat.read(course.ROOT / "solutions" / NAME / f"{NAME}.ipynb", as_version=4))
    for number, one in zip(range(n_students), itertools.cycle(demo.submissions(NAME))):
        answers = {cell: f"{source}\n# {number}" for cell, source in one.answers(reference).items()}
        course.submit(course.settings(folder), NAME, f"student-{number:03}", released, answers)


def grading(folder: Path, n_workers: int = 2) -> list[str]:
    return [sys.executable, "-m", "classroom", "grade", NAME, "--course", str(folder), "--workers", str(n_workers)]


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def marks(folder: Path) -> dict[str, dict[str, float]]:
    return course.marks(course.settings(folder), NAME)


def memory_of_workers(process: subprocess.Popen, n_workers: int) -> float:
    """Bytes a worker holds at most, with its warm processes and boxes; a page shared by several is shared out."""
    most = 0
    while process.poll() is None:
        held = 0
        for one in psutil.Process(process.pid).children(recursive=True):
            try:
                held += one.memory_full_info().pss
            except psutil.Error:
                continue
        most = max(most, held)
        time.sleep(0.2)
    return most / n_workers


def test_a_class_against_stock(tmp_path, record):
    stock, one, two = (tmp_path / name for name in ("stock", "one", "two"))
    for folder in (stock, one, two):
        class_of(folder, N_STUDENTS)
    of_stock = seconds([sys.executable, "-c", STOCK, str(stock), NAME])
    of_one = seconds(grading(one, n_workers=1))
    of_two = seconds(grading(two))
    assert marks(one) == marks(two) == marks(stock)
    work, than = f"{N_STUDENTS} submissions with start-up", "nbgrader's autograder"
    record(GRADING, f"{work}, one worker", than, [of_stock / of_one], unit=QUICKER)
    assert record(GRADING, f"{work}, two workers", than, [of_stock / of_two], unit=QUICKER, target=TARGET) > TARGET


def test_start_up_is_paid_once_a_worker(tmp_path, record):
    class_of(tmp_path, N_STUDENTS)
    first = seconds(grading(tmp_path, n_workers=1))
    class_of(tmp_path / "more", 3 * N_STUDENTS)
    process = subprocess.Popen(grading(tmp_path / "more", n_workers=1), **QUIET)
    start = time.perf_counter()
    memory = memory_of_workers(process, 1)
    more = time.perf_counter() - start
    record(GRADING, f"{3 * N_STUDENTS} submissions, one worker", f"{N_STUDENTS}", [more / first], unit="times as long")
    record(GRADING, "memory of a worker with its box and its judge", "", [memory / 2**20], unit="MiB")
    assert more < 3 * first


def test_500_submissions_killed_three_times(tmp_path, record):
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    for folder in (undisturbed, killed):
        class_of(folder, N_LARGE)
    whole = seconds(grading(undisturbed))
    dice, results = random.Random(7), killed / "results" / NAME
    for n_before in (N_LARGE // 10, N_LARGE // 2, 4 * N_LARGE // 5):
        process = subprocess.Popen(grading(killed), **QUIET)
        while len(list(results.glob("*.json"))) < n_before:
            assert process.poll() is None
            time.sleep(dice.uniform(0.05, 0.3))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    when = {path: path.stat().st_mtime_ns for path in results.glob("*.json")}
    merged = {path for path in when if json.loads(path.read_text())["merged"]}
    subprocess.run(grading(killed), check=True, capture_output=True)
    again = [path for path in merged if path.stat().st_mtime_ns != when[path]]
    assert again == []  # nothing that was marked is marked again
    assert len(intake.students(killed / "submitted", NAME)) == len(marks(killed)) == N_LARGE
    assert marks(killed) == marks(undisturbed)
    record(GRADING, f"{N_LARGE} submissions, two workers", "", [N_LARGE / whole * 60], unit="a minute")
