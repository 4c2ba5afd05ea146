"""The instructors' guide: every command of the page is run, in the page's order, in a copy of the course."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

import nbformat
import pytest

from classroom import instructor_tables
from classroom.grading import course
from classroom.grading.course import ROOT
from classroom.grading.task import Limits

if sys.platform == "win32":
    pytest.skip("nbgrader's exchange is not available on Windows", allow_module_level=True)

NAME = "09_parameters"
PAGE = ROOT / "chapters" / "appendix" / "instructors.md"
CONTAINER = "lib/classroom/grading/Containerfile"
FULL = 20
GRADE = f"python -m classroom grade {NAME}"
ANNA, LATE = "Müller_Anna", "hoppergrace_12346"
# commands that other tests run, by their beginning; the word is what that test says of it
ELSEWHERE = {
    "source .venv/bin/activate": ("Makefile", ".venv"),  # here: the environment's programs first on the PATH
    "make grade": ("tests/grading/test_demo.py", '["demo", NAME]'),
    "make book SOLUTIONS=1": ("tests/book/test_solutions.py", "--solutions"),
    "make bench": ("tests/bench/conftest.py", "make bench"),  # it takes many minutes, and is tests itself
    "make lab": ("tests/book/test_lab.py", "classroom.lab"),
    "python -m pytest tests/exercises": ("tests/exercises/test_graders.py", "def test_"),
    "python -m classroom.grading trial": ("tests/exercises/test_graders.py", "trial"),
    "python -m classroom.grading term": ("tests/exercises/test_terms.py", "term"),
    "python -m classroom doctor": ("tests/grading/test_doctor.py", "doctor"),
    f'{GRADE} --student "STUDENT" --again': ("tests/grading/test_batch.py", "test_again_marks_what_has_not_changed"),
    f"{GRADE} --course": ("tests/grading/test_batch.py", "--course"),
    f"{GRADE} --scheduler": ("tests/grading/test_cluster.py", "scheduler="),
    "dask scheduler": ("tests/grading/test_cluster.py", 'started("scheduler"'),
    "dask worker": ("tests/grading/test_cluster.py", '"--nthreads"'),
    "docker": (CONTAINER, "docker run"),  # nothing runs it; below: the page says what the recipe says
}
PROGRAMS = ("make", "python", "nbgrader", "jupyter", "source", "dask", "docker")


def commands() -> list[str]:
    """Every command of the page in its order: lines of `sh` blocks, and what stands in code within the text."""
    text = PAGE.read_text(encoding="utf-8")
    found, named = [], []
    for block, inline in re.findall(r"^```sh\n(.*?)^```|`([^`\n]+)`", text, re.DOTALL | re.MULTILINE):
        for line in (block or inline).replace("\\\n", " ").splitlines():
            line = " ".join(re.sub(r"\s#.*", "", line).split())
            if " " in line and line.split()[0] in PROGRAMS and line not in found:
                found.append(line)
                named += [line] * bool(inline)
    return [line for line in found if line not in named or not any(other.startswith(f"{line} ") for other in found)]


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
        library = place / "lib"
        words = shlex.split(command.replace("STUDENT", ANNA).replace("2027-", "2099-"))
        if words[0] == "make":
            words = recipe(words[1])
        if command.startswith(GRADE):  # by the course that is installed: that one is in a box
            library, words = ROOT / "lib", [*words, "--course", str(self.teacher / "grading")]
        assert words[0] in ("python", "nbgrader"), f"no test knows how to run: {command}"
        program = [sys.executable] if words[0] == "python" else [sys.executable, "-m", "nbgrader"]
        done = subprocess.run(
            [*program, *words[1:]],
            cwd=place,
            env={**self.environment, "PYTHONPATH": str(library)},
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
            for name in ("by-mail", "broken"):  # from plain folders: an untouched notebook, and none
                (self.submitted / name / NAME).mkdir(parents=True)
            shutil.copy(self.released, self.submitted / "by-mail" / NAME)
            (self.submitted / "broken" / NAME / f"{NAME}.ipynb").write_text("I have lost it.")
        elif "--from canvas" in command:
            pack(self, {"hoppergrace_LATE_12346_67891_09_parameters-1.ipynb": {}})
        elif command.startswith("nbgrader submit"):
            work = self.student / "work" / NAME / f"{NAME}.ipynb"
            write(work, work, answers())
        elif command.startswith(GRADE) and "--workers" in command:  # a second attempt
            pack(self, {"Müller Anna_1234567_assignsubmission_file_/09_parameters.ipynb": {}})
            self.run(f"python -m classroom.grading collect {NAME} --from moodle --zip submissions.zip --force")
        elif command.startswith("nbgrader db assignment add"):
            with (self.teacher / "nbgrader_config.py").open("a", encoding="utf-8") as config:
                config.write(penalty())
            self.hand_in_again("2100-01-01")
        elif command.startswith("nbgrader autograde"):  # which leaves alone what is no newer
            self.hand_in_again("2101-01-01")
        elif "--roster" in command:
            roster(self, "moodle" in command)

    def hand_in_again(self, day: str) -> None:
        """The same work at another time."""
        (self.submitted / LATE / NAME / "timestamp.txt").write_text(f"{day} 00:00:00 UTC")

    @property
    def submitted(self) -> Path:
        return self.teacher / "grading" / "submitted"

    @property
    def released(self) -> Path:
        return self.teacher / "exercises" / NAME / f"{NAME}.ipynb"


def recipe(target: str) -> list[str]:
    """The one line of work behind `make target`."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return re.search(rf"^{target}:.*\n\t@(.*)", makefile, re.MULTILINE)[1].split()


def penalty() -> str:
    """The setting that the page gives for late work."""
    return re.search(r"^```python\n(c\..*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[1]


def roster(course: Course, is_moodle: bool) -> None:
    """The list of the class as the platform gives it."""
    students = sorted(path.name for path in course.submitted.iterdir())
    if is_moodle:
        rows = [["Identifier", "Full name", "Username", "Grade", "Maximum grade", "Last modified (grade)"]]
        rows += [[f"Participant {k}", "A Name", who, "", f"{FULL}", "-"] for k, who in enumerate(students)]
    else:
        rows = [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", f"{NAME} (77)"]]
        rows += [["    Points Possible", "", "", "", "", f"{FULL}"]]
        rows += [["A Name", f"{k + 1}", "", who, "all", ""] for k, who in enumerate(students)]
    name = "worksheet.csv" if is_moodle else "gradebook.csv"
    with (course.teacher / name).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)


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
def done(tmp_path_factory, boxes) -> Course:
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
    here = set(run_here())
    assert {"make exercises", GRADE, f"nbgrader autograde {NAME}", "nbgrader export", "jupyter lab"} <= here
    assert len(here) >= 20


def test_the_page_gives_every_limit_of_the_code():
    """The table changes with each of them."""
    plain = instructor_tables.bounded(Limits())
    for name, value in asdict(Limits()).items():
        assert instructor_tables.bounded(Limits(**{name: 2 * value})) != plain, name
    assert len(plain) == len(asdict(Limits())) and "```{bounds}" in PAGE.read_text(encoding="utf-8")
    assert all(most in instructor_tables.bounds(Limits()) for most in plain.values())


def test_the_page_says_how_quick_grading_was():
    measured = json.loads((ROOT / "chapters" / instructor_tables.BENCH).read_text(encoding="utf-8"))
    rows = [row for row in measured["rows"] if row["work"] == instructor_tables.GRADING]
    page = instructor_tables.speed(measured["machine"], rows)
    assert rows and "```{speed-of-grading}" in PAGE.read_text(encoding="utf-8")
    assert all(f"{row['value']:.3g}" in page and row["what"] in page for row in rows)


def test_the_page_and_the_recipe_of_the_container_say_the_same():
    lines = re.findall(r"^#( .*|$)", (ROOT / CONTAINER).read_text(encoding="utf-8"), re.MULTILINE)
    recipe = " ".join("\n".join(lines).replace("\\\n", " ").split())
    ours = [line for line in commands() if line.startswith("docker")]
    assert len(ours) == 2 and [line for line in ours if line not in recipe] == []


@pytest.mark.parametrize("command", [line for line in commands() if line.startswith(tuple(ELSEWHERE))])
def test_a_command_that_is_not_run_here_has_a_test_elsewhere(command):
    file, word = next(place for start, place in ELSEWHERE.items() if command.startswith(start))
    assert word in (ROOT / file).read_text(encoding="utf-8")


def test_every_way_to_collect_brings_its_submissions(done):
    moodle, canvas = (
        next(said for line, said in done.said.items() if f"--from {name}" in line) for name in ("moodle", "canvas")
    )
    assert f"new        grading/submitted/{ANNA}" in moodle and "notes.txt: not named as Moodle" in moodle
    assert f"new, late  grading/submitted/{LATE}" in canvas
    submitted = {path.name for path in done.submitted.iterdir()}
    account = submitted - {ANNA, LATE, "by-mail", "broken"}
    assert len(submitted) == 5 and len(account) == 1


def test_a_file_without_a_notebook_is_listed_and_the_others_are_graded(done):
    end = r"No marks:\n  broken: .*(?s:.*)\n.* 4 with marks, 1 without, .*5 marked now, 0 unchanged"
    assert re.search(end, done.said[GRADE])
    assert "WITHOUT ISOLATION" not in done.said[GRADE]


def test_a_second_run_marks_what_changed_and_a_student_can_be_named(done):
    again = {line.removeprefix(GRADE).strip(): said for line, said in done.said.items() if line.startswith(GRADE)}
    assert "1 marked now, 4 unchanged" in again["--workers 8"]
    assert sum(map(int, re.search(r"(\d+) marked now, (\d+) unchanged", again['--student "STUDENT"']).groups())) == 1


def marks_of(path: Path, student: str, mark: str) -> dict[str, str]:
    """A column of a file that was exported, by student."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {row[student]: row[mark] for row in csv.DictReader(file)}


def test_the_exported_marks_are_right(done):
    with (done.teacher / "grades.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    scores = {student: float(row["score"]) for student, row in rows.items()}
    # The late one was graded last by the course that is installed, whose nbgrader_config.py asks for no penalty;
    # test_gradebook.py has what a penalty does.
    zero = {"by-mail", "broken"}
    assert {student for student, score in scores.items() if score == 0} == zero
    assert len(rows) == 5 and {scores[student] for student in rows.keys() - zero} == {FULL}  # a second attempt too
    assert float(rows[LATE]["raw_score"]) == FULL and float(rows[LATE]["late_submission_penalty"]) == 0
    exports = done.teacher / "grading" / "exports"
    ours = marks_of(exports / f"{NAME}-nbgrader.csv", "student_id", "score")
    assert {student: float(mark) for student, mark in ours.items()} == scores
    canvas = marks_of(exports / f"{NAME}-canvas.csv", "SIS Login ID", f"{NAME} (77)")
    assert canvas["broken"] == ""  # nothing was read, so a platform gets no mark
    assert {student: float(mark or 0) for student, mark in canvas.items() if student} == scores
    moodle = marks_of(exports / f"{NAME}-moodle.csv", "Identifier", "Grade")
    assert [float(mark or 0) for mark in moodle.values()] == [scores[student] for student in sorted(scores)]


def test_a_page_of_feedback_for_each(done):
    pages = list((done.teacher / "grading" / "feedback").glob(f"*/{NAME}/{NAME}.html"))
    assert len(pages) == 5


def test_the_page_names_all_that_remains_of_a_person_who_is_removed(done):
    text = PAGE.read_text(encoding="utf-8")
    said = re.search(r"^Delete by hand what remains of the person:.*", text, re.MULTILINE)[0]
    places = re.findall(r"`(grading/[^`]*STUDENT[^`]*)`", said)
    named = {path for place in places for path in done.teacher.glob(place.replace("STUDENT", ANNA))}
    there = {path for path in (done.teacher / "grading").rglob(f"{ANNA}*") if done.submitted not in path.parents}
    assert len(places) == 3 and named == there


def test_the_report_names_who_was_listed(done):
    page = done.teacher / "grading" / "reports" / f"{NAME}.html"
    assert "broken" in page.read_text(encoding="utf-8")
    with page.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == 5


def test_a_release_that_somebody_wrote_into_is_overwritten_by_force_alone(done):
    released = done.teacher / "exercises" / NAME / f"{NAME}.ipynb"
    assert released.read_bytes() == (ROOT / "exercises" / NAME / f"{NAME}.ipynb").read_bytes()


def answered(url: str, server: subprocess.Popen) -> list[dict]:
    """What the server answers; it tells its address a moment before it listens."""
    while True:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError) or server.poll() is not None:
                raise
            time.sleep(0.2)


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
        listed = answered(url, server)
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:  # it waits for ever for the thread of a request that was under way
            server.kill()
            server.wait()
    scores = {row["student"]: row["score"] for row in listed if row["autograded"]}
    assert scores.pop("by-mail") == scores.pop("broken") == 0
    assert len(scores) == 3 and set(scores.values()) == {FULL}  # before the penalty
