"""A run over a class: nothing is lost, nothing is marked twice, and what happens to one submission stays with it.

The marker is a pretended one (`fake_marking`): it does what stands in the submission, and writes down that it did.
"""

import argparse
import contextlib
import importlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classroom.grading import course, grade, records, versions, workers
from classroom.grading.course import GradingFailed
from classroom.grading.progress import Progress, text
from classroom.grading.task import Limits

HERE = Path(__file__).resolve().parent
PATIENCE = 120  # seconds for anything here; all of it takes much less
CLASS = {f"student {n:02}": f"sleep 0.05 # {n}" for n in range(12)}


@pytest.fixture
def fake(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("GRADING_LOG", str(tmp_path / "log"))
    return importlib.import_module("fake_marking")


@pytest.fixture
def folder(fake, tmp_path):
    place = tmp_path / "course"
    place.mkdir()
    return place


def marks(folder: Path) -> dict[str, dict]:
    """What the files of results say: student → points by test, by notebook."""
    found = {}
    for path in (folder / "results" / "exercise").glob("*.json"):
        record = json.loads(path.read_text())
        found[record["student"]] = {name: result["points"] for name, result in record["notebooks"].items()}
    return found


def expected(fake, submissions: dict[str, str]) -> dict[str, dict]:
    return {who: {"exercise": {"p1-test": fake.points(order.encode())}} for who, order in submissions.items()}


def n_marked(fake) -> Counter:
    return Counter(who for who, _ in fake.logged("end"))


def merged(fake) -> dict[str, dict]:
    return {who: points for who, points, _ in fake.logged("merge")}


class Coordinator:
    """A run in a process of its own, to be killed."""

    def __init__(self, folder: Path, **environment: str):
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "fake_marking.py"), str(folder)],
            env={**os.environ, **environment},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # what a shell starts in the background does not hear Ctrl-C, nor does what that starts: here it must
            preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) if sys.platform != "win32" else None,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def end(self) -> tuple[int, str]:
        _, said = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, said


# ---- an undisturbed run ----


def test_a_class_is_graded_in_order_and_only_once(fake, folder):
    two = sorted(CLASS)[:2]
    submissions = CLASS | dict.fromkeys(two, "wait 2")  # until two have begun: the second worker may come late
    fake.hand_in(folder, submissions)
    heard = []
    first = fake.grade_with_it(folder, watch=lambda n_done, n_all: heard.append((n_done, n_all)))
    assert first.graded == sorted(CLASS)
    assert (first.unchanged, first.listed, first.flagged, first.without_isolation) == ([], {}, {}, [])
    assert marks(folder) == merged(fake) == expected(fake, submissions)
    assert heard[0] == (0, len(CLASS)) and heard[-1] == (len(CLASS), len(CLASS)) and heard == sorted(heard)
    began = [who for who, _ in fake.logged("begin")]
    assert set(began[:2]) == set(two)  # two workers take the first two names

    second = fake.grade_with_it(folder)
    assert (second.graded, second.unchanged) == ([], sorted(CLASS))
    assert set(n_marked(fake).values()) == {1}
    assert len(fake.logged("merge")) == len(CLASS)


def test_what_changed_is_graded_again_alone(fake, folder, monkeypatch):
    fake.hand_in(folder, CLASS)
    fake.grade_with_it(folder)
    changed = {"student 03": "sleep 0 # better", "somebody new": "sleep 0"}
    fake.hand_in(folder, changed)
    assert set(fake.grade_with_it(folder).graded) == set(changed)
    assert marks(folder) == merged(fake) == expected(fake, CLASS | changed)
    # another version of the code that marks, other limits, another authority: each may change any mark
    monkeypatch.setenv("GRADING_VERSION", "two")
    assert len(fake.grade_with_it(folder).graded) == len(CLASS) + 1
    assert len(fake.grade_with_it(folder, limits=Limits(cell_seconds=5)).graded) == len(CLASS) + 1
    only = ["student 01", "student 02"]
    assert fake.grade_with_it(folder, authority={"exercise": '{"cells": []}'}, only=only).graded == only


def test_again_marks_what_has_not_changed(fake, folder):
    fake.hand_in(folder, {"a": "", "b": ""})
    fake.grade_with_it(folder)
    assert fake.grade_with_it(folder, again=True, only=["a"]).graded == ["a"]
    assert n_marked(fake) == {"a": 2, "b": 1}


def test_a_later_time_of_handing_in_is_merged_without_marking(fake, folder):
    fake.hand_in(folder, {"a": ""})
    fake.grade_with_it(folder)
    (folder / "submitted" / "a" / "exercise" / "timestamp.txt").write_text("2030-01-02 03:04:05 UTC")
    assert fake.grade_with_it(folder).unchanged == ["a"]
    assert [when for _, _, when in fake.logged("merge")] == ["None", "2030-01-02 03:04:05"]
    assert n_marked(fake) == {"a": 1}


# ---- what goes wrong with one submission ----


def test_each_fault_stays_with_its_submission(fake, folder):
    faults = {
        "death": "die",
        "fault": "raise",
        "exit": "exit",
        "nonsense": "nonsense",
        "unreadable": "unreadable",
    }
    fine = {"luck": "die-once", "flag": "flag"} | dict(list(CLASS.items())[:3])
    fake.hand_in(folder, faults | fine)
    summary = fake.grade_with_it(folder)
    assert set(summary.graded) == {*fine, "unreadable"}  # it is marked: it has no points
    assert set(summary.listed) == set(faults)
    assert set(summary.flagged) == {"flag"}
    assert "ZeroDivisionError" in summary.listed["fault"]
    assert "no notebook" in summary.listed["unreadable"]
    assert merged(fake) == expected(fake, fine) | {"unreadable": {"exercise": {}}}
    tries = Counter(who for who, _ in fake.logged("begin"))
    assert tries["death"] == tries["luck"] == 2
    said = text(summary)
    assert all(f"  {who}: " in said for who in [*faults, "flag"])

    # whatever was the marker's own fault is tried again by the next run; the file without a notebook is not
    fake.hand_in(folder, {"death": "sleep 0"})
    second = fake.grade_with_it(folder)
    assert second.graded == ["death"]
    assert set(second.listed) == set(faults) - {"death"}
    assert n_marked(fake)["unreadable"] == 1


def test_a_worker_that_hangs_is_ended(fake, folder, monkeypatch, is_gone):
    monkeypatch.setattr(workers, "GRACE", 5.0)  # for the other one too, who is marked in a moment
    fake.hand_in(folder, {"a": "sleep 600", "b": "sleep 0"})
    summary = fake.grade_with_it(folder, limits=Limits(total_seconds=0.5))
    assert (set(summary.listed), summary.graded) == ({"a"}, ["b"])
    assert all(is_gone(process) for _, process in fake.logged("begin"))


def test_a_submission_that_the_gradebook_refuses_is_listed(fake, folder):
    fake.hand_in(folder, {"a": "", "b": ""})

    def refusing(*arguments):
        class Book(fake.contextlib.AbstractContextManager):
            def __enter__(self):
                return self.merge

            def __exit__(self, *_):
                return None

            def merge(self, student, results, submitted_at):
                if student == "a":
                    raise GradingFailed("the name is too long")

        return Book()

    summary = fake.grade_with_it(folder, gradebook=refusing)
    assert "too long" in summary.listed["a"] and "b" not in summary.listed
    assert fake.grade_with_it(folder).listed == {}  # a gradebook that takes it
    assert n_marked(fake) == {"a": 1, "b": 1}


def test_nothing_but_the_lack_of_a_marker_stops_a_run(fake, folder):
    fake.hand_in(folder, CLASS)
    with pytest.raises(GradingFailed, match="can be started"):
        fake.grade_with_it(folder, mark="fake_marking:there_is_none")
    assert not fake.logged("merge")


def test_nobody_handed_in(fake, folder):
    with pytest.raises(GradingFailed, match="Nobody has handed in exercise"):
        fake.grade_with_it(folder)
    fake.hand_in(folder, {"a": ""})
    with pytest.raises(GradingFailed, match="'b'"):
        fake.grade_with_it(folder, only=["a", "b"])


def test_without_isolation_nothing_runs_unless_it_is_asked_for(fake, folder, monkeypatch):
    monkeypatch.setenv("GRADING_ISOLATION_FAILS", "There is no bubblewrap.")
    fake.hand_in(folder, {"a": ""})
    with pytest.raises(GradingFailed, match="There is no bubblewrap") as refused:
        fake.grade_with_it(folder)
    assert "--without-isolation" in str(refused.value)
    assert not fake.logged("begin")
    summary = fake.grade_with_it(folder, isolated=False)
    assert summary.without_isolation == ["a"] and "WITHOUT ISOLATION" in text(summary)
    # a mark that was made so is not taken for one that was made in isolation
    monkeypatch.delenv("GRADING_ISOLATION_FAILS")
    assert fake.grade_with_it(folder).graded == ["a"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["99_nothing"], "no assignment is called '99_nothing'"),
        (["09_parameters", "--workers", "0"], "at least one process"),
        (["09_parameters", "--course", "{folder}"], "Nobody has handed in 09_parameters"),
        (["09_parameters", "--course", "{folder}"], "python -m classroom.grading collect --help"),
        (["09_parameters", "--course", "{folder}/none"], "there is no folder {folder}/none"),
    ],
)
def test_the_command_says_why_it_does_nothing(arguments, said, folder, capsys):
    parser = argparse.ArgumentParser()
    grade.add_arguments(parser)
    assert grade.run(parser.parse_args([word.format(folder=folder) for word in arguments])) == 1
    assert said.format(folder=folder) in capsys.readouterr().err


@pytest.mark.parametrize("locked", ["results/exercise", "gradebook.db", "."])
def test_a_folder_that_may_not_be_written_is_told_before_anything_is_marked(fake, folder, monkeypatch, locked):
    fake.hand_in(folder, {"a": ""})
    (folder / "results" / "exercise").mkdir(parents=True)
    (folder / "gradebook.db").touch()
    access = os.access  # pretended: the superuser may write everywhere
    monkeypatch.setattr(grade.os, "access", lambda path, mode: Path(path) != folder / locked and access(path, mode))
    with pytest.raises(GradingFailed, match="You may not write in") as refused:
        fake.grade_with_it(folder)
    assert str(folder / locked) in str(refused.value)
    assert not fake.logged("begin")


@pytest.mark.parametrize(("options", "how"), [([], "the same command goes on"), (["--again"], "without --again")])
def test_who_stops_a_run_is_told_how_it_goes_on(options, how, folder, capsys, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(grade, "grade", stopped)
    parser = argparse.ArgumentParser()
    grade.add_arguments(parser)
    assert grade.run(parser.parse_args(["09_parameters", *options])) == 130
    assert how in capsys.readouterr().err


# ---- a run that is killed ----


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_run_killed_at_any_moment_goes_on(fake, folder, wait_until, is_gone):
    submissions = {f"{n:02}": f"sleep {0.02 * (n % 5)} # {n}" for n in range(40)}
    fake.hand_in(folder, submissions)
    chance = random.Random(1)
    for killed in range(1, 4):
        done = set()
        with Coordinator(folder) as run:
            wait_until(lambda enough=8 * killed: len(fake.logged("end")) >= enough or run.process.poll() is not None)
            time.sleep(chance.uniform(0, 0.2))
            os.kill(run.process.pid, signal.SIGKILL)
            run.process.wait()
            wait_until(lambda: all(is_gone(process) for _, process in fake.logged("begin")))
            done = set(marks(folder))
            before = len(fake.logged("begin"))
        assert done, "the run was killed too early to mean anything"
    summary = fake.grade_with_it(folder)
    assert not {who for who, _ in fake.logged("begin")[before:]} & done  # no mark on disk is made again
    assert sorted(summary.graded + summary.unchanged) == sorted(submissions)
    assert marks(folder) == merged(fake) == expected(fake, submissions)
    assert max(n_marked(fake).values()) <= 2  # one that was under way when the run was killed
    assert not list((folder / "results" / "exercise").glob("*.part"))


def test_what_was_marked_and_not_merged_is_merged_without_marking(fake, folder):
    fake.hand_in(folder, {"a": "", "b": "", "c": ""})
    with Coordinator(folder, GRADING_STOP="b") as run:
        assert run.end()[0] == -signal.SIGKILL
    assert "b" in marks(folder)
    fake.grade_with_it(folder)
    assert n_marked(fake)["b"] == 1
    assert merged(fake) == expected(fake, {"a": "", "b": "", "c": ""})


def test_another_gradebook_gets_the_marks_without_marking(fake, folder):
    fake.hand_in(folder, {"a": ""})
    fake.grade_with_it(folder)
    (folder / "gradebook.db").unlink()
    assert fake.grade_with_it(folder).unchanged == ["a"]
    assert len(fake.logged("merge")) == 2 and n_marked(fake) == {"a": 1}


def test_the_class_s_own_gradebook_is_the_one_of_nbgrader_s_settings(tmp_path):
    assert course.of_class(grade.COURSE).CourseDirectory.db_url == course.teachers_gradebook()
    assert course.of_class(tmp_path).CourseDirectory.db_url == f"sqlite:///{(tmp_path / 'gradebook.db').as_posix()}"


def test_a_damaged_file_of_results_is_made_again(fake, folder):
    fake.hand_in(folder, {"a": "", "b": "", "c": ""})
    fake.grade_with_it(folder)
    place = folder / "results" / "exercise"
    (place / "a.json").write_text("")
    (place / "b.json").write_text((place / "c.json").read_text())
    (place / "left.part").write_text("{")
    assert set(fake.grade_with_it(folder).graded) == {"a", "b"}
    assert marks(folder) == expected(fake, {"a": "", "b": "", "c": ""})
    assert sorted(os.listdir(place)) == ["a.json", "b.json", "c.json"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_c_ends_the_workers_and_keeps_the_marks(fake, folder, wait_until, is_gone):
    fake.hand_in(folder, {f"{n:02}": "sleep 0.1" for n in range(4)} | {"90": "sleep 600", "91": "sleep 600"})
    with Coordinator(folder) as run:
        wait_until(lambda: len(fake.logged("begin")) == 6 and len(marks(folder)) == 4)
        os.killpg(run.process.pid, signal.SIGINT)  # as a terminal does
        code, said = run.end()
    assert code == 1 and said.strip().endswith("KeyboardInterrupt:") and "Traceback" not in said
    wait_until(lambda: all(is_gone(process) for _, process in fake.logged("begin")))
    assert set(marks(folder)) == {"00", "01", "02", "03"}
    fake.hand_in(folder, {"90": "sleep 0", "91": "sleep 0"})
    assert set(fake.grade_with_it(folder).graded) == {"90", "91"}


def test_of_two_runs_one_is_refused(fake, folder, wait_until):
    fake.hand_in(folder, {"a": "sleep 600"})
    with Coordinator(folder) as run:
        wait_until(lambda: fake.logged("begin"))
        with pytest.raises(GradingFailed, match="Another run"):
            fake.grade_with_it(folder)
        assert run.process.poll() is None
    fake.hand_in(folder, {"a": "sleep 0"})
    assert fake.grade_with_it(folder).graded == ["a"]  # the lock has gone with the process


# ---- names ----

HOSTILE = [
    *("with space", "o'brien", 'say "hi"', "dot.", ".hidden", "..x", "-x", "--all", "%41", "A", "a", "$(touch x)", "*"),
    *("学生", "γράμμα", "café", "cafe\u0301", "👩‍🎓", "new\nline", "tab\t", "back\\slash", "semi;colon", "a" * 200),
    *("a" * 199 + "b", "学" * 66, "~", "con", "nul.txt", "bad\udcff"),
]


def test_every_name_of_a_folder_gets_its_own_result(fake, folder):
    names = [*HOSTILE]
    fake.hand_in(folder, {name: f"sleep 0 # {number}" for number, name in enumerate(names)})
    summary = fake.grade_with_it(folder)
    assert sorted(summary.graded) == sorted(names)
    assert marks(folder) == expected(fake, {name: f"sleep 0 # {number}" for number, name in enumerate(names)})
    assert fake.grade_with_it(folder).unchanged == sorted(names)
    text(summary).encode("utf-8", "replace")
    assert {path.name for path in folder.iterdir()} <= {"submitted", "results", "grade.lock", "gradebook.db"}


student_ids = st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=80)


@given(student_ids, student_ids)
def test_file_names_are_safe_and_different(one, other):
    name = records.file_name(one)
    assert Path(name).name == name and len(name.encode()) < 200
    assert name[0] not in ".-" and name.removesuffix(".json").isprintable()
    assert not set(name) & set("<>:\"/\\|?* '$`;&")
    assert (records.file_name(other) == name) == (one == other)


# ---- what is seen of it ----


def test_without_a_terminal_a_line_is_printed_now_and_then(capsys):
    progress = Progress()
    for n_done in range(101):
        progress(n_done, 100)
    progress(100, 100)
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("0 of 100") and last.startswith("100 of 100")


def test_a_line_is_printed_also_while_one_submission_takes_its_time(monkeypatch, wait_until):
    monkeypatch.setattr(Progress, "EVERY", 0.01)
    said = io.StringIO()  # not pytest's, which loses what the clock prints while it is read
    monkeypatch.setattr(sys, "stderr", said)
    with contextlib.suppress(ZeroDivisionError), Progress() as progress:
        progress(1, 2)
        wait_until(lambda: said.getvalue().count("\n") > 2)
        raise ZeroDivisionError  # whatever ends a run ends the clock
    assert all(line.startswith("1 of 2 marked after ") for line in said.getvalue().splitlines())
    assert not progress.clock.is_alive()


def test_a_summary_counts_each_submission_once(fake, folder, monkeypatch):
    fake.hand_in(folder, {"a": "", "b": "unreadable", "c": "flag"})
    fake.grade_with_it(folder)
    fake.hand_in(folder, {"d": "", "e": "raise"})
    monkeypatch.chdir(folder)
    said = text(fake.grade_with_it(folder))
    assert (
        "exercise, 5 submissions: 3 with marks, 2 without, 1 to look at (1 marked now, 3 unchanged, 1 failed)" in said
    )
    assert said.endswith(f"Results:   {Path('results', 'exercise')}\nGradebook: gradebook.db")
    monkeypatch.chdir(HERE)
    assert f"Gradebook: {folder / 'gradebook.db'}" in text(fake.grade_with_it(folder))


def test_a_summary_gives_no_commands_to_a_terminal(fake, folder):
    fake.hand_in(folder, {"a\x1b[2J": "raise"})
    assert "\x1b" not in text(fake.grade_with_it(folder))


def test_the_digest_of_the_code_that_marks_counts_every_module_of_it():
    look = (
        "import sys\nfrom classroom.grading import judge, marking, student\n"
        "print(*(m.__file__ for n, m in sys.modules.items() if n.startswith('classroom.grading.')))"
    )
    loaded = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout.split()
    counted = versions.sources()
    assert {Path(file) for file in loaded} <= set(counted)
    assert not {file for file in counted if file.stem in ("batch", "grade", "gradebook", "exports", "report")}
