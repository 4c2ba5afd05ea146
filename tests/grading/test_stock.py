"""A teacher's path: nbgrader's own commands in a copy of the course, and the feedback page that a student opens."""

import csv
import os
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import nbformat
import pytest
from nbgrader.utils import is_grade
from nbgrader.validator import Validator

from classroom import kernels
from classroom.grading import course
from classroom.grading.course import ROOT
from classroom.grading.feedback import SCRIPT, named_links

NAME, STUDENT = "09_parameters", "student-1"


@pytest.fixture(scope="module")
def transport():
    """Kernels are spoken to through files: a test beside this one could take their ports."""
    with kernels.by_files() as settings:
        yield settings


@pytest.fixture(scope="module")
def graded(tmp_path_factory, transport) -> Path:
    """A copy of the course in which one submission, with one wrong answer, went through the stock commands."""
    folder = tmp_path_factory.mktemp("course")
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    with (folder / "nbgrader_config.py").open("a", encoding="utf-8") as file:
        file.writelines(f"c.KernelManager.{name} = {value!r}\n" for name, value in transport.KernelManager.items())
    shutil.copytree(ROOT / "solutions" / NAME, folder / "solutions" / NAME)
    nbgrader(folder, "generate_assignment", NAME)

    solution = nbformat.read(folder / "solutions" / NAME / f"{NAME}.ipynb", as_version=4)
    answers = course.answers(solution)
    answers["p3-answer"] += "\ntier = 'Below'"
    config = course.settings(folder)
    config.CourseDirectory.submitted_directory = "grading/submitted"
    course.submit(config, NAME, STUDENT, folder / "exercises" / NAME / f"{NAME}.ipynb", answers)

    nbgrader(folder, "autograde", NAME)
    nbgrader(folder, "generate_feedback", NAME)
    nbgrader(folder, "export")
    return folder


def nbgrader(folder: Path, *arguments: str) -> None:
    """Run the program as a teacher does, in the folder of the course and with .venv/bin on the PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-m", "nbgrader", *arguments]
    done = subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def page(graded) -> Path:
    return graded / "grading" / "feedback" / STUDENT / NAME / f"{NAME}.html"


def test_the_exported_marks_are_those_of_the_submission(graded):
    with (graded / "grades.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["student_id"], row["assignment"]) for row in rows] == [(STUDENT, NAME)]
    assert (float(rows[0]["score"]), float(rows[0]["max_score"])) == (19, 20)


def test_validate_says_what_grading_will_say_of_the_visible_cells(graded, transport):
    """The button in JupyterLab runs this validator on the notebook as it is handed in."""
    notebook = graded / "grading" / "submitted" / STUDENT / NAME / f"{NAME}.ipynb"
    config = course.settings(graded)
    config.merge(transport)
    failed = Validator(config=config).validate(str(notebook))["failed"]
    config.CourseDirectory.db_url = f"sqlite:///{(graded / 'grading' / 'gradebook.db').as_posix()}"
    marks = course.marks(config, NAME)[STUDENT]
    cells = {c.metadata.nbgrader.grade_id: c.source for c in nbformat.read(notebook, as_version=4).cells if is_grade(c)}
    assert [cell["source"].strip() for cell in failed] == [cells[name].strip() for name in cells if not marks[name]]
    assert len(failed) == 1 and "exactly so" in failed[0]["error"]


def test_the_page_names_the_slip_and_hides_hidden_tests(page):
    text = unescape(re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8")))
    assert 'write one of "below", "inside", "above", exactly so' in text
    assert "hidden_test" not in text and "HIDDEN TESTS" not in text


def test_a_folder_of_pages_holds_one_script(page):
    assert sorted(path.name for path in page.parent.iterdir()) == sorted([page.name, SCRIPT])


def test_every_link_of_the_list_names_its_cell(page):
    top = page.read_text(encoding="utf-8").partition('id="notebook"')[0]
    links = re.findall(r'<a href="#([^"]+)">([^<]*)</a>', top)
    assert len(links) == 20
    assert all(text == target for target, text in links)


def test_links_to_comments_and_essays_say_what_they_are():
    grade_id = "{{ cell.metadata.nbgrader.grade_id }}"
    link = f'<a href="#comment-{grade_id}">Comment</a> <a href="#{grade_id}">Test cell</a>'
    assert re.findall(r">([^<]+)</a>", named_links(link)) == [f"{grade_id}: comment", grade_id]


# ---- in a browser, from its file, with the network off ----

# text that a reader sees and that still is TeX; code and output are no formulas
RAW_TEX = r"""() => {
  const found = [], skip = "pre, code, script, style, mjx-container";
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (/[$\\]/.test(node.data) && !node.parentElement.closest(skip)) found.push(node.data);
  }
  return found;
}"""
FORMULAS = """() => ({
  set: [...document.querySelectorAll('mjx-container')].filter(m => m.querySelector('svg')).length,
  errors_of_tex: [...document.querySelectorAll('[data-mjx-error]')].map(e => e.dataset.mjxError),
})"""


def opened(browser, page: Path) -> dict:
    """What a page asks for, complains about and shows."""
    context = browser.new_context()
    context.set_offline(True)
    tab = context.new_page()
    requests, errors = [], []
    tab.on("request", lambda request: requests.append(request.url))
    tab.on("requestfailed", lambda request: errors.append(f"failed: {request.url}"))
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda message: message.type in ("error", "warning") and errors.append(message.text))
    tab.goto(page.resolve().as_uri(), wait_until="load")
    tab.evaluate("() => window.MathJax?.startup?.promise?.then(() => true)")
    seen = {"requests": requests, "errors": errors, "raw": tab.evaluate(RAW_TEX), **tab.evaluate(FORMULAS)}
    context.close()
    return seen


@pytest.mark.browser
def test_the_page_is_complete_without_a_network(page, in_browser):
    seen = in_browser(opened, page)
    assert [url for url in seen["requests"] if not url.startswith(("file:", "data:"))] == []
    assert seen["errors"] == [] and seen["errors_of_tex"] == []
    assert seen["raw"] == []
    assert seen["set"] > 20


# ---- nbgrader's converters, called from Python ----


@pytest.mark.skipif(os.name != "posix", reason="kernels take ports there")
def test_a_kernel_takes_no_port_that_another_program_may_have_taken_first(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(course, "_run", lambda _, config, *__: given.append((config, os.listdir(place_of(config)))))
    config = course.settings(tmp_path)
    config.KernelManager.shutdown_wait_time = 3.0
    assert course.autograde(config, NAME)
    [(used, there)] = given
    assert used.KernelManager.transport == "ipc" and used.KernelManager.shutdown_wait_time == 3.0
    assert there == [] and not place_of(used).exists()
    assert "transport" not in config.KernelManager


def place_of(config) -> Path:
    return Path(config.KernelManager.ip).parent


def test_why_nbgrader_failed_is_told_however_much_it_said_since(tmp_path):
    assert course.end_of_log(tmp_path) == "(no log)"
    failure = ["ERROR Traceback (most recent call last):", '  File "client.py"', "RuntimeError: Kernel died"]
    later = [f"INFO Converting notebook {k}" for k in range(100)]
    (tmp_path / "nbgrader.log").write_text("\n".join(["INFO first", *failure, *later]) + "\n")
    assert course.end_of_log(tmp_path).splitlines() == [*failure, *later[-20:]]
