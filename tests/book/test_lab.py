"""`make lab`: a student's work is never overwritten, and nbgrader's Validate button works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from traitlets.config import Config

from classroom import kernels
from classroom.lab import hand_out


@pytest.fixture
def course(tmp_path) -> tuple[Path, Path]:
    """A released exercise with a notebook and a data file, and a place for the student's copy."""
    exercise = tmp_path / "exercises" / "01_sum"
    (exercise / "data").mkdir(parents=True)
    (exercise / "01_sum.ipynb").write_text("released")
    (exercise / "data" / "numbers.csv").write_text("1,2\n")
    return tmp_path / "exercises", tmp_path / "work"


def files(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): path.read_text() for path in found}


def test_the_first_time_everything_is_copied(course):
    exercises, work = course
    lines = hand_out(exercises, work)
    assert files(work) == files(exercises)
    assert len(lines) == 1 and "new" in lines[0] and "01_sum" in lines[0]


def test_the_students_file_stays(course):
    exercises, work = course
    hand_out(exercises, work)
    (work / "01_sum" / "01_sum.ipynb").write_text("my answer")
    lines = hand_out(exercises, work)
    assert (work / "01_sum" / "01_sum.ipynb").read_text() == "my answer"
    assert len(lines) == 1 and "kept" in lines[0]


def test_a_changed_release_is_named_and_the_students_file_stays(course):
    exercises, work = course
    hand_out(exercises, work)
    (work / "01_sum" / "01_sum.ipynb").write_text("my answer")
    new = exercises / "01_sum" / "01_sum.ipynb"
    new.write_text("released again")
    for _ in range(2):  # it is said each time, until the student takes the new one
        lines = hand_out(exercises, work)
        assert (work / "01_sum" / "01_sum.ipynb").read_text() == "my answer"
        assert any(str(new) in line for line in lines)
    (work / "01_sum" / "01_sum.ipynb").rename(work / "01_sum" / "mine.ipynb")
    lines = hand_out(exercises, work)
    assert (work / "01_sum" / "01_sum.ipynb").read_text() == "released again"
    assert (work / "01_sum" / "mine.ipynb").read_text() == "my answer"
    assert not any(str(new) in line for line in lines)


def test_a_lost_file_comes_back(course):
    exercises, work = course
    hand_out(exercises, work)
    (work / "01_sum" / "data" / "numbers.csv").unlink()
    assert "1 missing" in "".join(hand_out(exercises, work))
    assert files(work) == files(exercises)


def test_a_copy_without_a_record_that_differs_is_kept_and_named(course):
    exercises, work = course
    (work / "01_sum").mkdir(parents=True)
    (work / "01_sum" / "01_sum.ipynb").write_text("from somewhere else")
    lines = hand_out(exercises, work)
    assert (work / "01_sum" / "01_sum.ipynb").read_text() == "from somewhere else"
    assert any(str(exercises / "01_sum" / "01_sum.ipynb") in line for line in lines)


def graded_notebook(answer: str):
    """nbgrader's smallest assignment: one cell to answer, one that tests it."""
    given = {"schema_version": 3, "cell_type": "code", "task": False}
    solution = {**given, "grade_id": "answer", "grade": False, "locked": False, "solution": True}
    test = {**given, "grade_id": "test", "grade": True, "locked": True, "solution": False}
    cells = [
        new_code_cell(answer, metadata={"nbgrader": solution}),
        new_code_cell("assert total == 3", metadata={"nbgrader": {**test, "points": 1}}),
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


@contextmanager
def laboratory(exercises: Path, work: Path, runtime: Path, transport: Config):
    """JupyterLab as `make lab` starts it, on a free port of this machine; yields its address."""
    command = [sys.executable, "-m", "classroom.lab", "--exercises", str(exercises), "--work", str(work)]
    command += ["--no-browser", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0"]
    command += [f"--KernelManager.{name}={value}" for name, value in transport.KernelManager.items()]
    # nothing of the user's own Jupyter is read or written
    own = ["JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"]
    own += ["JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR"]
    environment = {**os.environ, **dict.fromkeys(own, str(runtime))}
    with (runtime / "log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        while not (described := list(runtime.glob("jpserver-*.json"))):
            assert server.poll() is None, (runtime / "log").read_text()
            time.sleep(0.2)
        while True:  # the file is there a moment before its content
            try:
                server_file = json.loads(described[0].read_text())
                break
            except json.JSONDecodeError:
                time.sleep(0.1)
        yield f"{server_file['url']}lab/tree/%s?reset&token={server_file['token']}"
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:  # it waits for ever for the thread of a request that was under way
            server.kill()
            server.wait()


@pytest.mark.browser
def test_validate_button(browser, tmp_path):
    """A right answer passes; a wrong one is told which test failed."""
    exercises, work, runtime = (tmp_path / name for name in ("exercises", "work", "runtime"))
    runtime.mkdir()
    for name, answer in {"right": "total = 1 + 2", "wrong": "total = 1 - 2"}.items():
        (exercises / name).mkdir(parents=True)
        nbformat.write(graded_notebook(answer), exercises / name / f"{name}.ipynb")
    with kernels.by_files() as transport, laboratory(exercises, work, runtime, transport) as address:
        for name, verdict in {"right": r"Success", "wrong": r"assert total == 3"}.items():
            page = browser.new_page()
            page.set_default_timeout(120_000)
            page.goto(address % f"{name}/{name}.ipynb")
            page.get_by_role("button", name=re.compile("Validate")).click()
            dialog = page.locator(".jp-Dialog")
            dialog.get_by_text(re.compile(verdict)).first.wait_for()
            page.close()
