"""Marked notebooks in nbgrader's gradebook: what its own Autograde would have stored, whatever interrupts it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook
from nbgrader.plugins import LateSubmissionPlugin
from nbgrader.utils import is_grade, is_solution
from sqlalchemy import create_engine
from sqlalchemy import text as text_of_sql
from sqlalchemy.exc import OperationalError

from classroom.debian import install
from classroom.grading import course, gradebook, transaction, warm
from classroom.grading.authority import authority
from classroom.grading.course import ROOT, GradingFailed
from classroom.grading.grade import grade
from classroom.grading.gradebook import Writer, merge, register
from classroom.grading.release import build
from classroom.grading.task import Result

NORMS, PARAMETERS = "06_norms", "09_parameters"
DUE = datetime(2026, 11, 1, 12)
ON_TIME, LATE = DUE - timedelta(hours=1), DUE + timedelta(hours=30)


class AQuarterOff(LateSubmissionPlugin):
    def late_submission_penalty(self, student_id, score, total_seconds_late):
        return score / 4


def settings(folder: Path, url: str | None = None):
    config = course.settings(folder, url)
    config.AssignLatePenalties.plugin_class = AQuarterOff
    return config


def opened(config) -> Gradebook:
    return Gradebook(config.CourseDirectory.db_url, config.CourseDirectory.course_id)


def set_due(config, assignment: str) -> None:
    with opened(config) as book:
        book.update_or_create_assignment(assignment, duedate=DUE)


def cells(config, assignment: str) -> dict[str, list]:
    """What the gradebook knows of the cells of each notebook."""
    fields = ("name", "max_score", "cell_type", "locked", "source", "checksum", "type")
    with opened(config) as book:
        found = {}
        for notebook in book.find_assignment(assignment).notebooks:
            parts = (notebook.grade_cells, notebook.solution_cells, notebook.task_cells, notebook.source_cells)
            rows = [[getattr(cell, field, None) for field in fields] for part in parts for cell in part]
            found[notebook.name] = [notebook.kernelspec, sorted(rows, key=repr)]
        return found


def rows(config, assignment: str) -> dict[str, dict]:
    """Everything that the gradebook says of each submission, but for the keys of its tables."""
    grade_fields = ("auto_score", "manual_score", "extra_credit", "score", "max_score", "needs_manual_grade")
    with opened(config) as book:
        found = {}
        for submission in book.assignment_submissions(assignment):
            about = {
                "timestamp": submission.timestamp,
                "score": submission.score,
                "max_score": submission.max_score,
                "penalty": submission.late_submission_penalty,
                "needs_manual_grade": submission.needs_manual_grade,
            }
            for notebook in submission.notebooks:
                about[notebook.name] = [notebook.flagged, notebook.late_submission_penalty, notebook.failed_tests]
                for grade in notebook.grades:
                    about["grade", grade.name] = [getattr(grade, field) for field in grade_fields]
                for comment in notebook.comments:
                    about["comment", comment.name] = [comment.auto_comment, comment.manual_comment]
            found[submission.student.id] = about
        return found


def act_as_a_person(config, assignment: str, student: str) -> None:
    """What formgrader stores: a mark over the autograder's, extra credit and a comment."""
    with opened(config) as book:
        notebook = book.find_submission(assignment, student).notebooks[0]
        grades = sorted(notebook.grades, key=lambda grade: grade.name)
        for grade, points in ((grades[0], 1.5), *((g, 2.0) for g in grades if g.auto_score is None)):
            grade.manual_score, grade.needs_manual_grade = points, False
        grades[1].extra_credit = 0.5
        notebook.comments[0].manual_comment = "Well put."
        book.db.commit()


def graded_file(config, student: str, assignment: str) -> Path:
    place = config.CourseDirectory
    return Path(place.root, place.autograded_directory, student, assignment, f"{assignment}.ipynb")


# ---- beside nbgrader's own ----


@pytest.fixture(scope="module", params=[NORMS, PARAMETERS])
def beside(request, tmp_path_factory):
    """A course graded by nbgrader's own Autograde, twice; and another into which the same notebooks were merged."""
    name = request.param
    folder = tmp_path_factory.mktemp("stock")
    released = build(name, folder) / f"{name}.ipynb"
    config = settings(folder)
    set_due(config, name)
    reference = course.answers(nbformat.read(ROOT / "solutions" / name / f"{name}.ipynb", as_version=4))
    course.submit(config, name, "right-late", released, reference)
    course.submit(config, name, "untouched", released, {})
    wrong = {cell: "pass" for cell in list(reference)[1:3]}
    course.submit(config, name, "partly", released, {**reference, **wrong})

    mine = settings(tmp_path_factory.mktemp("merged"))
    register(mine, name, authority(name))
    set_due(mine, name)
    register(mine, name, authority(name))

    stages = []
    for stage in range(2):
        times = {"partly": ON_TIME, "untouched": None, "right-late": LATE + stage * timedelta(minutes=1)}
        for student, when in times.items():
            if when:
                (folder / "submitted" / student / name / "timestamp.txt").write_text(f"{when} UTC")
        with warm.kernels(), course.throwaway():
            assert course.autograde(config, name), course.end_of_log(folder)  # what is no later, it skips
        with Writer(mine, name, every=2) as writer:
            for student, when in times.items():
                text = graded_file(config, student, name).read_text(encoding="utf-8")
                writer.merge(student, {name: Result(student=student, key=f"{when}", notebook=text)}, when)
        stages.append((rows(mine, name), rows(config, name)))
        for one in (mine, config):
            act_as_a_person(one, name, "right-late")
    return name, stages, mine, config


def test_the_same_rows_as_nbgraders_own_autograde(beside):
    name, stages, _, _ = beside
    for merged, stock in stages:
        assert merged == stock
    first, second = (stock for _, stock in stages)
    assert first["right-late"]["penalty"] == first["right-late"]["score"] / 4 > 0
    assert not first["partly"]["penalty"] and 0 < first["partly"]["score"] < first["right-late"]["score"]
    assert first["untouched"]["score"] == 0
    assert first["right-late"]["needs_manual_grade"] is (name == NORMS)  # its essay
    assert [value[2] for key, value in second["right-late"].items() if key[0] == "grade" and value[2]] == [0.5]


def test_the_same_cells_as_nbgraders_own_release(beside):
    name, _, mine, config = beside
    assert cells(mine, name) == cells(config, name)


def test_the_same_files_as_nbgraders_own_autograde(beside):
    name, _, mine, config = beside
    for student in ("right-late", "partly", "untouched"):
        ours, stock = (graded_file(one, student, name) for one in (mine, config))
        assert sorted(path.name for path in ours.parent.iterdir()) == sorted(p.name for p in stock.parent.iterdir())
        assert ours.stat().st_mode == stock.stat().st_mode
        a, b = (nbformat.read(path, as_version=4) for path in (ours, stock))
        del a.metadata["classroom"]
        assert a == b
        place = gradebook.CourseDirectory(config=mine)
        assert place.get_existing_timestamp(ours.parent) == place.get_existing_timestamp(stock.parent)


def test_nbgraders_feedback_and_formgrader_can_go_on_from_there(beside):
    name, stages, mine, _ = beside
    folder = Path(mine.CourseDirectory.root)
    assert course.feedback(mine, name), course.end_of_log(folder)
    assert len(list((folder / "feedback").glob(f"*/{name}/{name}.html"))) == len(stages[0][0])


# ---- with notebooks that nobody has run ----


def marked(text: str, wrong: dict[str, float] | None = None, answered: bool = True) -> str:
    """The instructor's notebook with an answer in each cell, and a test's points where they are not all of them."""
    notebook = nbformat.reads(text, as_version=4)
    for cell in notebook.cells:
        if is_solution(cell) and answered:
            cell.source += "\nanswered = True"
        points = (wrong or {}).get(cell.metadata.get("nbgrader", {}).get("grade_id"))
        if points == 0:
            cell.outputs = [nbformat.v4.new_output("error", ename="CheckFailed", evalue="no", traceback=["no"])]
        elif points is not None:
            data = {"text/plain": str(points)}
            cell.outputs = [nbformat.v4.new_output("execute_result", data=data, execution_count=1)]
    return nbformat.writes(notebook)


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return authority(NORMS)


@pytest.fixture(scope="module")
def tests(texts) -> list[str]:
    """The test cells of the assignment."""
    notebook = nbformat.reads(texts[NORMS], as_version=4)
    return [cell.metadata.nbgrader.grade_id for cell in notebook.cells if is_grade(cell) and not is_solution(cell)]


@pytest.fixture(scope="module")
def registered(tmp_path_factory, texts) -> Path:
    folder = tmp_path_factory.mktemp("registered")
    register(settings(folder), NORMS, texts)
    set_due(settings(folder), NORMS)
    return folder


@pytest.fixture
def config(registered, tmp_path):
    shutil.copytree(registered, tmp_path / "course")
    return settings(tmp_path / "course")


def is_there(config, assignment: str, student: str, results: dict[str, Result]) -> bool:
    held = gradebook.points(config, assignment).get(student)
    return gradebook.is_merged(config, assignment, student, results, held)


def one(student: str, text: str | None, **options) -> dict[str, Result]:
    return {NORMS: Result(**{"student": student, "key": "1", "notebook": text, **options})}


def state(config) -> tuple:
    """Everything that was stored: rows, and files with their bytes."""
    folder = Path(config.CourseDirectory.root, "autograded")
    return rows(config, NORMS), {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_an_error_is_no_points_and_a_number_is_partial_credit(config, texts, tests):
    merge(config, NORMS, "s", one("s", marked(texts[NORMS], {tests[0]: 0, tests[1]: 0.25})))
    found = rows(config, NORMS)["s"]
    assert [found["grade", cell][0] for cell in tests[:2]] == [0, 0.25]
    assert all(found["grade", cell][0] == found["grade", cell][4] for cell in tests[2:])


def test_merging_the_same_again_changes_nothing_that_a_person_has_done(config, texts):
    results = one("s", marked(texts[NORMS]), flags=["look"])
    merge(config, NORMS, "s", results, LATE)
    once = state(config)
    assert once[0]["s"][NORMS][0], "a flag is shown"
    merge(config, NORMS, "s", results, LATE)
    assert state(config) == once

    act_as_a_person(config, NORMS, "s")
    with opened(config) as book:
        book.find_submission(NORMS, "s").notebooks[0].flagged = False
        book.db.commit()
    assert not rows(config, NORMS)["s"]["needs_manual_grade"]
    merge(config, NORMS, "s", results, LATE)
    again = rows(config, NORMS)["s"]
    assert not again["needs_manual_grade"] and not again[NORMS][0]
    assert again["penalty"] == again["score"] / 4, "of the marks that a person gave too"

    merge(config, NORMS, "s", {NORMS: replace(results[NORMS], key="2")}, LATE)
    other = rows(config, NORMS)["s"]
    assert other["needs_manual_grade"] and other[NORMS][0], "other work is to be looked at"
    marks = {key: value[1:3] for key, value in other.items() if key[0] == "grade"}
    assert marks == {key: value[1:3] for key, value in again.items() if key[0] == "grade"}
    assert [value[1] for key, value in other.items() if key[0] == "comment"].count("Well put.") == 1


def test_a_flag_costs_and_gives_no_points(config, texts, tests):
    text = marked(texts[NORMS], {tests[0]: 0})
    merge(config, NORMS, "honest", one("honest", text))
    merge(config, NORMS, "flagged", one("flagged", text, flags=["a canary passed"]))
    found = rows(config, NORMS)
    assert found["flagged"][NORMS][0] and not found["honest"][NORMS][0]
    assert found["flagged"]["score"] == found["honest"]["score"]


def test_a_file_that_cannot_be_read_gets_no_points_and_needs_a_person(config, texts, tests):
    why = "the file is empty <b>(0 bytes)</b>. Take an earlier copy."
    merge(config, NORMS, "s", one("s", marked(texts[NORMS])), LATE)
    merge(config, NORMS, "s", one("s", None, key="2", findings=[why]), LATE)
    found = rows(config, NORMS)["s"]
    assert (found["score"], found["penalty"], found["needs_manual_grade"], found[NORMS][0]) == (0, 0, True, True)
    notebook = nbformat.read(graded_file(config, "s", NORMS), as_version=4)
    nbformat.validate(notebook)
    assert "&lt;b&gt;(0 bytes)" in notebook.cells[0].source
    graded = {cell.metadata.nbgrader.grade_id for cell in notebook.cells[1:]}
    assert graded == {name for kind, name in filter(lambda key: key[0] == "grade", found)}, "a person can mark each"
    assert course.feedback(config, NORMS), course.end_of_log(Path(config.CourseDirectory.root))
    page = next(Path(config.CourseDirectory.root, "feedback").glob("*/*/*.html")).read_text(encoding="utf-8")
    assert "Take an earlier copy" in page


def test_a_notebook_that_was_not_handed_in_gets_no_points_and_needs_nobody(config, texts):
    merge(config, NORMS, "s", one("s", marked(texts[NORMS])), LATE)
    merge(config, NORMS, "s", {}, LATE)
    found = rows(config, NORMS)["s"]
    assert (found["score"], found["penalty"], found["needs_manual_grade"]) == (0, 0, False)
    assert not graded_file(config, "s", NORMS).exists()


@pytest.mark.parametrize("last", ["answered", "wrong", "unreadable", "absent"])
def test_only_the_last_work_counts(config, texts, tests, last):
    kinds = {
        "answered": one("s", marked(texts[NORMS]), key="answered"),
        "wrong": one("s", marked(texts[NORMS], {tests[0]: 0}, answered=False), key="wrong"),
        "unreadable": one("s", None, key="unreadable"),
        "absent": {},
    }
    merge(config, NORMS, "s", kinds[last], LATE)
    alone = rows(config, NORMS)["s"]
    for earlier in kinds.values():
        for results in (earlier, kinds[last]):
            merge(config, NORMS, "s", results, LATE)
        found = rows(config, NORMS)["s"]
        assert {**found, NORMS: found[NORMS][1:]} == {**alone, NORMS: alone[NORMS][1:]}, "but for the flag"


@pytest.mark.parametrize("student", ["A B", "o'brien", 'say "x"', "-rf", "a.b.c", "{x}", "%s", "Ünï 学生", "*", "a\\b"])
def test_a_student_may_be_called_anything(config, texts, student):
    merge(config, NORMS, student, one(student, marked(texts[NORMS])), ON_TIME)
    assert list(rows(config, NORMS)) == [student]
    assert graded_file(config, student, NORMS).is_file()
    assert is_there(config, NORMS, student, one(student, None))


@pytest.mark.parametrize("student", ["x" * 129, "cut \udcff short"])
def test_a_name_that_no_gradebook_holds_is_refused(config, texts, student):
    with pytest.raises(GradingFailed, match="Rename the folder"):
        merge(config, NORMS, student, one(student, marked(texts[NORMS])))
    assert state(config) == ({}, {})


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"cells": [{}]}', '{"cells": 3}'])
def test_a_result_without_a_notebook_in_it_is_refused_and_stops_nobody(config, texts, text):
    with Writer(config, NORMS, every=3) as writer:
        writer.merge("before", one("before", marked(texts[NORMS])))
        with pytest.raises(GradingFailed, match="of s"):
            writer.merge("s", one("s", text))
        writer.merge("after", one("after", marked(texts[NORMS])))
    assert set(rows(config, NORMS)) == {"before", "after"}


def test_a_result_for_another_version_of_the_assignment_is_refused(config, texts):
    notebook = nbformat.reads(marked(texts[NORMS]), as_version=4)
    notebook.cells = [cell for cell in notebook.cells if not is_grade(cell)]
    with pytest.raises(GradingFailed, match="another version"):
        merge(config, NORMS, "s", one("s", nbformat.writes(notebook)))
    with pytest.raises(GradingFailed, match="no notebook"):
        merge(config, NORMS, "s", {"other": one("s", None)[NORMS]})
    with pytest.raises(GradingFailed, match="register"):
        merge(config, PARAMETERS, "s", one("s", None))


def test_points_come_from_the_gradebook(config, texts, tests):
    notebook = nbformat.reads(marked(texts[NORMS]), as_version=4)
    for cell in filter(is_grade, notebook.cells):
        cell.metadata.nbgrader.points = 1000
    merge(config, NORMS, "s", one("s", nbformat.writes(notebook)))
    found = rows(config, NORMS)["s"]
    assert found["score"] == sum(found["grade", cell][4] for cell in tests) <= found["max_score"]


def test_cells_may_change_before_marks_are_there_and_points_also_after(config, texts):
    notebook = nbformat.reads(texts[NORMS], as_version=4)
    graded = next(cell for cell in notebook.cells if is_grade(cell))
    graded.metadata.nbgrader.grade_id = "another"
    register(config, NORMS, {NORMS: nbformat.writes(notebook)})
    assert any("another" in row for row in cells(config, NORMS)[NORMS][1])
    register(config, NORMS, texts)
    assert not any("another" in row for row in cells(config, NORMS)[NORMS][1])
    merge(config, NORMS, "s", one("s", marked(texts[NORMS])))

    before = cells(config, NORMS), state(config)
    for changed in ({NORMS: nbformat.writes(notebook)}, {"second": texts[NORMS], **texts}):
        with pytest.raises(GradingFailed, match="have changed since"):
            register(config, NORMS, changed)
        assert (cells(config, NORMS), state(config)) == before
    notebook = nbformat.reads(texts[NORMS], as_version=4)
    graded = next(cell for cell in notebook.cells if is_grade(cell))
    graded.metadata.nbgrader.points += 5
    register(config, NORMS, {NORMS: nbformat.writes(notebook)})
    assert rows(config, NORMS)["s"]["max_score"] == before[1][0]["s"]["max_score"] + 5


def test_a_gradebook_that_cannot_be_opened_is_named_without_its_password(tmp_path, monkeypatch):
    monkeypatch.setattr("classroom.grading.transaction.ATTEMPTS", 1)
    for url in (
        f"sqlite:///{tmp_path}/no/such/folder/x.db",
        "postgresql+psycopg://me:secret@127.0.0.1:1/x",
        "nonsense",
    ):
        with pytest.raises(GradingFailed, match="db_url") as refused:
            register(settings(tmp_path, url), NORMS, {})
        assert "secret" not in str(refused.value)


# ---- interrupted ----


@pytest.mark.parametrize("moment", range(8))
def test_a_merge_that_is_broken_off_leaves_the_student_as_before_or_can_be_finished(
    config, texts, tests, moment, monkeypatch
):
    old, new = (one("s", marked(texts[NORMS], {tests[0]: points}), key=str(points)) for points in (0, 0.5))
    merge(config, NORMS, "s", old, ON_TIME)
    before = state(config)
    merge(config, NORMS, "s", new, LATE)
    after = state(config)
    merge(config, NORMS, "s", old, ON_TIME)
    assert before == state(config)

    left = [moment]

    def breaking(function):
        def call(*arguments, **options):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return function(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        for owner, name in ((gradebook.os, "replace"), (gradebook.Writer, "_put"), (gradebook.Merging, "keep")):
            patch.setattr(owner, name, breaking(getattr(owner, name)))
        merge(config, NORMS, "s", new, LATE)
    there, files = state(config)
    assert there in (before[0], after[0])
    shown = {path: data for path, data in files.items() if not path.name.startswith(".")}
    assert all(data in (before[1][path], after[1][path]) for path, data in shown.items())
    assert is_there(config, NORMS, "s", new) <= (there == after[0])
    merge(config, NORMS, "s", new, LATE)
    assert state(config) == after


WRITING = """
import json, sys
from pathlib import Path
from tests_of_gradebook import settings
from classroom.grading.grade import grade
from classroom.grading.gradebook import Writer
from classroom.grading.task import Result

folder, url, text, name, first, last = sys.argv[1:]
notebook = Path(text).read_text(encoding="utf-8")
with Writer(settings(Path(folder), url), name) as writer:
    for number in range(int(first), int(last)):
        student = f"student {number}"
        writer.merge(student, {name: Result(student=student, key="1", notebook=notebook)})
        print(number, flush=True)
"""


def writing(config, text: str, tmp_path: Path, first: int, last: int) -> subprocess.Popen:
    """A process that merges the same notebook for students number `first` up to `last`, and prints each number."""
    path, place = tmp_path / "marked.ipynb", config.CourseDirectory
    path.write_text(text, encoding="utf-8")
    shutil.copy(__file__, tmp_path / "tests_of_gradebook.py")
    command = [sys.executable, "-c", WRITING, place.root, place.db_url, str(path), NORMS, str(first), str(last)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_a_process_that_is_killed_leaves_each_student_out_or_complete(config, texts, tmp_path):
    text = marked(texts[NORMS])
    merge(config, NORMS, "undisturbed", one("undisturbed", text))
    expected = rows(config, NORMS)["undisturbed"]
    for first in (0, 10):
        process = writing(config, text, tmp_path, first, first + 1000)
        for _ in range(3):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        found = rows(config, NORMS)
        assert all(about == expected for about in found.values())
        assert {f"student {first + k}" for k in range(3)} <= set(found)
    for student in set(found) - {"undisturbed"}:
        merge(config, NORMS, student, one(student, text))
        assert is_there(config, NORMS, student, one(student, text))
    assert rows(config, NORMS) == dict.fromkeys(found, expected)


# ---- a gradebook that has changed behind the marks ----


def forgotten(config) -> None:
    Path(config.CourseDirectory.root, "gradebook.db").unlink()


def removed(config) -> None:
    with opened(config) as book:
        book.remove_assignment(NORMS)


def without_a_file(config) -> None:
    graded_file(config, "s", NORMS).unlink()


@pytest.mark.parametrize("change", [forgotten, removed, without_a_file])
def test_results_that_have_gone_from_the_gradebook_are_known_to_be_gone(config, texts, tests, change):
    results = one("s", marked(texts[NORMS], {tests[0]: 0}))
    merge(config, NORMS, "s", results)
    results[NORMS].points.update(gradebook.points(config, NORMS)["s"])
    assert is_there(config, NORMS, "s", results) and not is_there(config, NORMS, "other", results)
    change(config)
    register(config, NORMS, texts)
    assert not is_there(config, NORMS, "s", results)
    merge(config, NORMS, "s", results)
    assert is_there(config, NORMS, "s", results)


def test_a_gradebook_put_back_from_a_backup_lacks_what_came_later(config, texts, tests):
    file = Path(config.CourseDirectory.root, "gradebook.db")
    for key, wrong in (("1", {tests[0]: 0}), ("2", {})):
        shutil.copy(file, file.with_suffix(f".{key}"))
        results = one("s", marked(texts[NORMS], wrong), key=key)
        merge(config, NORMS, "s", results)
        results[NORMS].points.update(gradebook.points(config, NORMS)["s"])
        assert is_there(config, NORMS, "s", results)
    shutil.copy(file.with_suffix(".2"), file)
    assert not is_there(config, NORMS, "s", results)


@pytest.mark.usefixtures("boxes")
def test_a_run_puts_marks_into_a_gradebook_that_was_made_anew(tmp_path):
    released = build(NORMS, tmp_path) / f"{NORMS}.ipynb"
    reference = course.answers(nbformat.read(ROOT / "solutions" / NORMS / f"{NORMS}.ipynb", as_version=4))
    course.submit(settings(tmp_path), NORMS, "s", released, dict([*reference.items()][:3]))
    assert grade(NORMS, tmp_path).graded == ["s"]
    before = course.marks(settings(tmp_path), NORMS)
    (tmp_path / "gradebook.db").unlink()
    assert grade(NORMS, tmp_path).unchanged == ["s"]
    assert course.marks(settings(tmp_path), NORMS) == before and sum(before["s"].values()) > 0


# ---- two writers, and PostgreSQL ----


@pytest.fixture(scope="session")
def postgresql(wait_until):
    """A function: the URL of a new database on a PostgreSQL server of the tests' own.

    It listens to a socket in a folder of its own: a port that is free now may be another program's when it starts.
    """
    if find_postgresql() is None:
        install("postgresql")
    if (binaries := find_postgresql()) is None:
        missing = "no PostgreSQL: install Debian's package postgresql, or put initdb and postgres on PATH"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    # as root, which the server refuses to be: somebody else, who cannot look into pytest's own folders
    user = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="postgresql-") as folder:
        if user:
            shutil.chown(folder, user["user"], user["group"])
        options = ["-D", f"{folder}/data", "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        made = subprocess.run([binaries / "initdb", *options], cwd=folder, capture_output=True, text=True, **user)
        assert made.returncode == 0, made.stdout + made.stderr
        settings = ["listen_addresses=", f"unix_socket_directories={folder}", "fsync=off"]
        options = ["-D", f"{folder}/data", *(part for setting in settings for part in ("-c", setting))]
        log = Path(folder, "log")
        with log.open("w") as out:
            server = subprocess.Popen([binaries / "postgres", *options], cwd=folder, stdout=out, stderr=out, **user)
        try:
            url = f"postgresql+psycopg://tester@/%s?host={folder}"
            engine = create_engine(url % "postgres", isolation_level="AUTOCOMMIT")
            wait_until(lambda: answers(engine, server, log))
            yield lambda name: (execute(engine, f'CREATE DATABASE "{name}"'), url % name)[1]
            engine.dispose()
        finally:
            server.send_signal(signal.SIGINT)  # its fast shutdown
            try:
                server.wait(120)
            finally:
                server.kill()
                server.wait()


def find_postgresql() -> Path | None:
    """The folder of the server's programs: Debian keeps them off the PATH."""
    if (there := shutil.which("initdb")) and shutil.which("postgres"):
        return Path(there).parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    return found[-1].parent if found else None


def execute(engine, command: str) -> None:
    with engine.connect() as connection:
        connection.execute(text_of_sql(command))


def answers(engine, server: subprocess.Popen, log: Path) -> bool:
    """Whether the server answers."""
    assert server.poll() is None, log.read_text()
    with contextlib.suppress(OperationalError):
        execute(engine, "SELECT 1")
        return True
    return False


def test_postgresql_holds_the_same_rows_as_sqlite(postgresql, texts, tests, tmp_path):
    found = []
    for url in (None, postgresql("same")):
        folder = tmp_path / str(len(found))
        folder.mkdir()
        config = settings(folder, url)
        register(config, NORMS, texts)
        set_due(config, NORMS)
        register(config, NORMS, texts)
        results = one("s", marked(texts[NORMS], {tests[0]: 0, tests[1]: 0.25}), flags=["look"])
        merge(config, NORMS, "s", results, LATE)
        act_as_a_person(config, NORMS, "s")
        merge(config, NORMS, "s", results, LATE)
        merge(config, NORMS, "Ünï 学生 'x'", one("Ünï 学生 'x'", None, findings=["no notebook"]))
        merge(config, NORMS, "absent", {})
        assert course.feedback(config, NORMS), course.end_of_log(folder)
        found.append((cells(config, NORMS), rows(config, NORMS)))
    assert found[0] == found[1]
    assert found[0][1]["s"]["penalty"] > 0


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_two_processes_merge_at_the_same_time(kind, request, texts, tmp_path):
    folder = tmp_path / "course"
    folder.mkdir()
    config = settings(folder, request.getfixturevalue("postgresql")("both") if kind == "postgresql" else None)
    register(config, NORMS, texts)
    text = marked(texts[NORMS])
    processes = [writing(config, text, tmp_path, first, first + 10) for first in (0, 100)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    found = rows(config, NORMS)
    assert set(found) == {f"student {k}" for first in (0, 100) for k in range(first, first + 10)}
    merge(config, NORMS, "undisturbed", one("undisturbed", text))
    expected = rows(config, NORMS)["undisturbed"]
    assert all(about == expected for about in found.values())


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_two_processes_may_make_the_gradebook_at_the_same_time(kind, request, texts, tmp_path, monkeypatch):
    monkeypatch.setattr(transaction, "ATTEMPTS", 11)  # a busy machine takes its time to make it
    config = settings(tmp_path, request.getfixturevalue("postgresql")("made") if kind == "postgresql" else None)
    with ThreadPoolExecutor(4) as pool:  # of threads: they differ from processes in nothing that the database sees
        done = [pool.submit(open_once, config) for _ in range(4)]
        assert all(one.result() for one in done)
    register(config, NORMS, texts)
    merge(config, NORMS, "s", one("s", marked(texts[NORMS])))
    assert list(rows(config, NORMS)) == ["s"]


def open_once(config) -> bool:
    with transaction.opened(transaction.Held, config) as book:
        return book.find_assignment is not None
