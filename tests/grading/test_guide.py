"""The instructors' guide: every command of the page is run, in the page's order, in a copy of the course."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import pytest

from classroom.grading import course
from classroom.grading.course import ROOT

if sys.platform == "win32":
    pytest.skip("nbgrader's exchange is not available on Windows", allow_module_level=True)

NAME = "09_parameters"
PAGE = ROOT / "chapters" / "appendix" / "instructors.md"
FULL = 20
# commands that other tests run, by their beginning; the word is what that test says of it
ELSEWHERE = {
    "source .venv/bin/activate": ("Makefile", ".venv"),  # here: the environment's programs first on the PATH
    "make grade": ("tests/grading/test_demo.py", '["demo"]'),
    "make book SOLUTIONS=1": ("tests/book/test_solutions.py", "--solutions"),
    "make lab": ("tests/book/test_lab.py", "classroom.lab"),
    "python -m pytest tests/exercises": ("tests/exercises/test_graders.py", "def test_"),
    "python -m classroom.grading trial": ("tests/exercises/test_graders.py", "trial"),
    "python -m classroom.grading term": ("tests/exercises/test_terms.py", "term"),
    "python -m classroom doctor": ("tests/grading/test_doctor.py", "doctor"),
}
PROGRAMS = ("make", "python", "nbgrader", "jupyter", "source")


def commands() -> list[str]:
    """Every command of the page in its order: lines of `sh` blocks, and what stands in code within the text."""
    text = PAGE.read_text(encoding="utf-8")
    found = []
    for block, inline in re.findall(r"^```sh\n(.*?)^```|`([^`\n]+)`", text, re.DOTALL | re.MULTILINE):
        for line in (block or inline).splitlines():
            if line.split()[:1] and line.split()[0] in PROGRAMS and len(line.split()) > 1 and line not in found:
                found.append(line)
    return found


def run_here() -> list[str]:
    return [line for line in commands() if not line.startswith(tuple(ELSEWHERE))]


@dataclass
class Course:
    """A teacher's copy of the course, a student's, and what the commands of the page said."""

    teacher: Path
    student: Path
    environment: dict[str, str]
    said: dict[str, str] = field(default_factory=dict)

    def run(self, command: str) -> None:
        """Run a command of the page where the page says, and keep what it printed."""
        place = self.student if re.match(r"nbgrader (fetch_assignment|submit)\b", command) else self.teacher
        words = command.replace("STUDENT", "Müller_Anna").split()
        if words[0] == "make":
            words = recipe(words[1])
        assert words[0] in ("python", "nbgrader"), f"no test knows how to run: {command}"
        program = [sys.executable] if words[0] == "python" else [sys.executable, "-m", "nbgrader"]
        done = subprocess.run(
            [*program, *words[1:]],
            cwd=place,
            env={**self.environment, "PYTHONPATH": str(place / "lib")},
            capture_output=True,
            text=True,
            encoding="utf-8",
        )
        self.said[command] = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}\n{self.said[command][-3000:]}"

    def prepare(self, command: str) -> None:
        """What a person does between the commands."""
        if command.startswith("python -m classroom.grading release"):
            path = self.teacher / "exercises" / NAME / f"{NAME}.ipynb"
            write(path, path, {"p1-answer": "guess = 1"})  # somebody has written into it
        elif "--from moodle" in command:
            pack(
                self,
                {"Müller Anna_1234567_assignsubmission_file_/09_parameters.ipynb": {"p3-answer": "tier = 'Below'"}},
            )
            folder = self.teacher / "grading" / "submitted" / "by-mail" / NAME
            folder.mkdir(parents=True)
            shutil.copy(self.released, folder)  # from a plain folder: an untouched notebook
        elif "--from canvas" in command:
            pack(self, {"hoppergrace_LATE_12346_67891_09_parameters-1.ipynb": {}})
        elif command.startswith("nbgrader submit"):
            work = self.student / "work" / NAME / f"{NAME}.ipynb"
            write(work, work, answers())
        elif command.endswith("--force") and "autograde" in command:
            pack(self, {"Müller Anna_1234567_assignsubmission_file_/09_parameters.ipynb": {}})
            self.run(f"python -m classroom.grading collect {NAME} --from moodle --zip submissions.zip --force")

    @property
    def released(self) -> Path:
        return self.teacher / "exercises" / NAME / f"{NAME}.ipynb"


def recipe(target: str) -> list[str]:
    """The one line of work behind `make target`."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return re.search(rf"^{target}:.*\n\t@(.*)", makefile, re.MULTILINE)[1].split()


def answers() -> dict[str, str]:
    return course.answers(nbformat.read(ROOT / "solutions" / NAME / f"{NAME}.ipynb", as_version=4))


def write(released: Path, path: Path, given: dict[str, str]) -> None:
    """The released notebook with these answers."""
    notebook = nbformat.read(released, as_version=4)
    for cell in notebook.cells:
        if (name := cell.metadata.nbgrader.grade_id) in given:
            cell.source = given[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)


def pack(course: Course, submissions: dict[str, dict[str, str]]) -> None:
    """submissions.zip: right notebooks but for lines added to some answers, and a stray file."""
    with zipfile.ZipFile(course.teacher / "submissions.zip", "w") as archive:
        archive.writestr("notes.txt", "stray")
        for member, slips in submissions.items():
            right = answers()
            write(
                course.released, course.teacher / "one.ipynb", right | {k: f"{right[k]}\n{v}" for k, v in slips.items()}
            )
            archive.write(course.teacher / "one.ipynb", member)


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Course:
    """The page, followed from its first command to its last."""
    folder = tmp_path_factory.mktemp("guide")
    exchange = folder / "exchange"
    config = (ROOT / "nbgrader_config.py").read_text(encoding="utf-8")
    line = '# c.Exchange.root = "/srv/nbgrader/exchange"'
    assert line in config
    config = config.replace(line, f"c.Exchange.root = {str(exchange)!r}")
    for name in ("teacher", "student"):
        (folder / name).mkdir()
        (folder / name / "nbgrader_config.py").write_text(config, encoding="utf-8")
        shutil.copytree(ROOT / "lib", folder / name / "lib", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("solutions", "exercises"):
        shutil.copytree(ROOT / name / NAME, folder / "teacher" / name / NAME)
    own = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR", "IPYTHONDIR")
    environment = {**os.environ, **dict.fromkeys(own, str(folder / "jupyter")), "OMP_NUM_THREADS": "1"}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    followed = Course(folder / "teacher", folder / "student", environment)
    for command in run_here():
        if command.split()[0] != "jupyter":  # below: it does not end by itself
            followed.prepare(command)
            followed.run(command)
    return followed


def test_the_page_is_read():
    assert {"make exercises", f"nbgrader autograde {NAME}", "nbgrader export", "jupyter lab"} <= set(run_here())
    assert len(run_here()) >= 14


@pytest.mark.parametrize("command", [line for line in commands() if line.startswith(tuple(ELSEWHERE))])
def test_a_command_that_is_not_run_here_has_a_test_elsewhere(command):
    file, word = next(place for start, place in ELSEWHERE.items() if command.startswith(start))
    assert word in (ROOT / file).read_text(encoding="utf-8")


def test_every_way_to_collect_brings_its_submissions(done):
    moodle, canvas = (next(said for line, said in done.said.items() if name in line) for name in ("moodle", "canvas"))
    assert "new        grading/submitted/Müller_Anna" in moodle and "notes.txt: not named as Moodle" in moodle
    assert "new, late  grading/submitted/hoppergrace_12346" in canvas
    submitted = {path.name for path in (done.teacher / "grading" / "submitted").iterdir()}
    account = submitted - {"Müller_Anna", "hoppergrace_12346", "by-mail"}
    assert len(submitted) == 4 and len(account) == 1


def test_the_exported_marks_are_right(done):
    with (done.teacher / "grades.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in csv.DictReader(file)}
    assert rows.pop("by-mail") == (0, FULL)
    assert len(rows) == 3 and set(rows.values()) == {(FULL, FULL)}  # Anna's second attempt among them


def test_a_page_of_feedback_for_each(done):
    pages = list((done.teacher / "grading" / "feedback").glob(f"*/{NAME}/{NAME}.html"))
    assert len(pages) == 4


def test_a_release_that_somebody_wrote_into_is_overwritten_by_force_alone(done):
    released = done.teacher / "exercises" / NAME / f"{NAME}.ipynb"
    assert released.read_bytes() == (ROOT / "exercises" / NAME / f"{NAME}.ipynb").read_bytes()


def test_the_formgrader_of_jupyter_lab_lists_the_submissions(done):
    command = [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    runtime = Path(done.environment["JUPYTER_RUNTIME_DIR"])
    runtime.mkdir(exist_ok=True)
    with (runtime / "log").open("w") as log:
        environment = {**done.environment, "PYTHONPATH": str(done.teacher / "lib")}
        server = subprocess.Popen(command, cwd=done.teacher, env=environment, stdout=log, stderr=log)
    try:
        address = None
        while address is None:
            assert server.poll() is None, (runtime / "log").read_text()
            time.sleep(0.2)
            for described in runtime.glob("jpserver-*.json"):
                if (text := described.read_text()).rstrip().endswith("}"):  # the file is there before its content
                    address = json.loads(text)
        url = f"{address['url']}formgrader/api/submissions/{NAME}?token={address['token']}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            listed = json.load(answer)
    finally:
        server.terminate()
        server.wait()
    scores = {row["student"]: row["score"] for row in listed if row["autograded"]}
    assert len(scores) == 4 and scores.pop("by-mail") == 0 and set(scores.values()) == {FULL}
