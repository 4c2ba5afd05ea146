"""Marking on a Dask cluster: a scheduler and workers in processes of their own give the marks of a run without them."""

import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from classroom.grading import cluster
from classroom.grading.cluster import Scheduler
from classroom.grading.course import GradingFailed
from classroom.grading.task import Task

pytest.importorskip("distributed")

HERE = Path(__file__).resolve().parent
PATIENCE = 120  # seconds for anything here; all of it takes much less
CLASS = {f"{n:02}": f"sleep 0.1 # {n}" for n in range(16)} | {"fault": "raise", "flag": "flag"}


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        patch.setenv("GRADING_LOG", str(tmp_path_factory.mktemp("log") / "log"))
        yield importlib.import_module("fake_marking")


@pytest.fixture
def folder(fake, tmp_path):
    Path(os.environ["GRADING_LOG"]).unlink(missing_ok=True)
    (tmp_path / "course").mkdir()
    return tmp_path / "course"


@contextlib.contextmanager
def started(*arguments: str, folder: Path, **environment: str):
    """One of Dask's commands as a process, without a dashboard, until the block ends."""
    paths = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    own = {"PYTHONPATH": paths, "DASK_TEMPORARY_DIRECTORY": str(folder)}
    own |= {f"DASK_DISTRIBUTED__COMM__TIMEOUTS__{what}": f"{PATIENCE}s" for what in ("CONNECT", "TCP")}
    with (folder / "dask.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *arguments, "--host", "127.0.0.1", "--no-dashboard"],
            env={**os.environ, **own, **environment},
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()  # a nanny takes its workers along
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def scheduler(wait_until):
    """A function: Dask's scheduler on a free port, until the block ends; gives its address."""

    @contextlib.contextmanager
    def start(folder: Path, *options: str):
        told = folder / "scheduler.json"
        few = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}  # of workers, which take seconds to come again
        with started("scheduler", "--port", "0", "--scheduler-file", str(told), *options, folder=folder, **few):
            wait_until(lambda: told.exists() and told.read_text().strip().endswith("}"))
            yield json.loads(told.read_text())["address"]

    return start


def workers(address: str, n_workers: int, folder: Path, n_threads: int = 1, **environment: str):
    options = ["--nworkers", str(n_workers), "--nthreads", str(n_threads), "--memory-limit", "0"]
    return started("worker", address, *options, "--death-timeout", str(PATIENCE), folder=folder, **environment)


@pytest.fixture(scope="module")
def two_workers(fake, scheduler, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dask")
    with scheduler(folder) as address, workers(address, 2, folder):
        yield Scheduler(address, answer=PATIENCE, patience=PATIENCE)


def marks(folder: Path) -> dict[str, dict]:
    """Student → points by test, by notebook; nothing of the times."""
    records = [json.loads(path.read_text()) for path in (folder / "results" / "exercise").glob("*.json")]
    return {one["student"]: {name: part["points"] for name, part in one["notebooks"].items()} for one in records}


def test_a_worker_that_is_killed_costs_no_mark(fake, folder, two_workers, tmp_path):
    fake.hand_in(folder, CLASS)
    killed = []

    def kill_one(n_done, _):
        if n_done >= 3 and not killed:
            ended = {who for who, _ in fake.logged("end")}
            busy = [process for who, process in fake.logged("begin") if who not in ended and who != "fault"]
            for process in busy[-1:]:
                os.kill(process, signal.SIGKILL)
                killed.append(process)

    on_cluster = fake.grade_with_it(folder, scheduler=two_workers, watch=kill_one)
    assert killed
    other = tmp_path / "other"
    other.mkdir()
    fake.hand_in(other, CLASS)
    local = fake.grade_with_it(other)
    assert marks(folder) == marks(other)
    for attribute in ("graded", "listed", "flagged", "without_isolation"):
        assert getattr(on_cluster, attribute) == getattr(local, attribute)
    assert set(on_cluster.graded) == set(CLASS) - {"fault"}


def test_a_submission_that_ends_every_worker_is_listed(fake, folder, two_workers):
    fake.hand_in(folder, {"a": "die", "b": "sleep 0.1", "c": "sleep 0.1"})
    summary = fake.grade_with_it(folder, scheduler=two_workers)
    assert set(summary.listed) == {"a"} and "KilledWorker" in summary.listed["a"]
    assert set(summary.graded) == {"b", "c"}


def test_a_run_that_is_killed_goes_on(fake, folder, two_workers, wait_until):
    submissions = {f"{n:02}": f"sleep 0.1 # {n}" for n in range(12)}
    fake.hand_in(folder, submissions)
    command = [sys.executable, str(HERE / "fake_marking.py"), str(folder), two_workers.address]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as run:
        wait_until(lambda: len(fake.logged("merge")) >= 4 or run.poll() is not None)
        run.kill()
    done, before = marks(folder), len(fake.logged("begin"))
    assert done
    fake.grade_with_it(folder, scheduler=two_workers)
    assert marks(folder) == {who: {"exercise": {"p1-test": fake.points(o.encode())}} for who, o in submissions.items()}
    late = [who for who, _ in fake.logged("begin")[before:]]
    assert len(set(late) & set(done)) <= 1  # the cluster may have begun with one before it knew


def test_only_some_tasks_are_sent_at_a_time(fake, two_workers, monkeypatch):
    def ahead(n_bytes: int) -> int:
        n_sent = n_back = most = 0

        def tasks():
            nonlocal n_sent, most
            for number in range(12):
                n_sent += 1
                most = max(most, n_sent - n_back)
                order = b"sleep 0".ljust(n_bytes)
                yield Task(assignment="exercise", student=f"{number}", notebook=order, authority="{}", key=f"{number}")

        for _ in cluster.marked(tasks(), fake.MARK, True, two_workers):
            n_back += 1
        assert n_sent == n_back == 12
        return most

    assert ahead(10) <= cluster.A_WORKER * 2
    monkeypatch.setattr(cluster, "UNDER_WAY", 1000)
    assert ahead(1001) == 1


def test_workers_that_are_not_like_this_machine_are_refused(fake, folder, two_workers, monkeypatch):
    fake.hand_in(folder, {"a": ""})
    with workers(two_workers.address, 1, folder, n_threads=2, GRADING_ISOLATION_FAILS="no bubblewrap"):
        client = importlib.import_module("distributed").Client(two_workers.address, set_as_default=False)
        with contextlib.closing(client):
            client.wait_for_workers(3, timeout=PATIENCE)
        with pytest.raises(GradingFailed, match="--nthreads 1") as refused:
            fake.grade_with_it(folder, scheduler=two_workers)
        assert "no bubblewrap Then restart the worker" in str(refused.value)
    monkeypatch.setenv("GRADING_VERSION", "another")
    with pytest.raises(GradingFailed, match=r"the course is one there and another here.*restart the worker"):
        fake.grade_with_it(folder, scheduler=two_workers)
    assert not fake.logged("begin")


def test_a_worker_that_was_mended_is_refused_until_it_is_started_again(fake, folder, scheduler):
    """So the refusal says it, in each of its two places."""
    fake.hand_in(folder, {"a": ""})
    with scheduler(folder) as address:
        there = Scheduler(address, answer=PATIENCE, patience=PATIENCE)
        client = importlib.import_module("distributed").Client(address, set_as_default=False)
        with contextlib.closing(client), workers(address, 1, folder, GRADING_ISOLATION_FAILS="no bubblewrap"):
            client.wait_for_workers(1, timeout=PATIENCE)
            for mended in (False, True):
                if mended:
                    client.run(lambda: os.environ.pop("GRADING_ISOLATION_FAILS"))
                with pytest.raises(GradingFailed, match="restart the worker, which looks only once"):
                    fake.grade_with_it(folder, scheduler=there)
            task = Task(assignment="exercise", student="a", notebook=b"", authority="{}", key="a")
            late = client.submit(cluster._mark, task, fake.MARK, cluster.versions(fake.MARK), True)
            with pytest.raises(GradingFailed, match=r"A worker came that is not fit.*restart the worker"):
                late.result()
        with workers(address, 1, folder):
            assert fake.grade_with_it(folder, scheduler=there).graded == ["a"]


def test_a_scheduler_must_be_there_and_have_workers(fake, folder, scheduler):
    fake.hand_in(folder, {"a": ""})
    with scheduler(folder) as address, pytest.raises(GradingFailed, match="no workers"):
        fake.grade_with_it(folder, scheduler=Scheduler(address, answer=PATIENCE, patience=0.1))
    with pytest.raises(GradingFailed, match="no Dask scheduler at"):
        fake.grade_with_it(folder, scheduler=Scheduler(address, answer=0.5))


@pytest.mark.skipif(not shutil.which("openssl"), reason="makes its certificate with openssl")
def test_tls(fake, folder, scheduler):
    fake.hand_in(folder, {"a": "", "b": ""})
    cert, key = folder / "cert.pem", folder / "key.pem"
    making = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*making, "-keyout", key, "-out", cert], check=True, capture_output=True)
    with pytest.raises(GradingFailed, match="not there"):
        fake.grade_with_it(folder, scheduler=Scheduler("tls://127.0.0.1:1", (cert, key, folder / "none")))
    options = ["--tls-ca-file", str(cert), "--tls-cert", str(cert), "--tls-key", str(key)]
    with scheduler(folder, "--protocol", "tls", *options) as address:
        assert address.startswith("tls://")
        with pytest.raises(GradingFailed, match="no Dask scheduler at"):
            fake.grade_with_it(folder, scheduler=Scheduler(address, answer=2))
        with started("worker", address, "--nthreads", "1", "--memory-limit", "0", *options, folder=folder):
            there = Scheduler(address, (cert, cert, key), answer=PATIENCE, patience=PATIENCE)
            summary = fake.grade_with_it(folder, scheduler=there)
    assert summary.graded == ["a", "b"]
