"""One submission marked in a box: what runs where, what is lost and what is not, and an instructor's own assignment."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.utils import compute_checksum

from classroom.grading import course, marking, running, steps
from classroom.grading.authority import authority
from classroom.grading.task import Limits, Task

pytestmark = pytest.mark.usefixtures("boxes")
ROOM = Limits()
QUICK = Limits(cell_seconds=10, total_seconds=300)  # for what never ends; what is beside it takes a moment


def cell(name: str, source: str, points: float | None = None, solution: bool = False):
    about = {"grade_id": name, "grade": points is not None, "solution": solution, "locked": not solution, "task": False}
    about |= {"schema_version": 3, "cell_type": "code"} | ({} if points is None else {"points": points})
    made = new_code_cell(source, metadata={"nbgrader": about})
    made.metadata.nbgrader.checksum = compute_checksum(made)
    return made


def assignment(*cells) -> str:
    notebook = new_notebook(cells=list(cells))
    for number, one in enumerate(notebook.cells):
        one.id = f"cell-{number}"
    return nbformat.writes(notebook)


SQUARES = assignment(
    cell("start", "import math\n\nLIMIT = 10"),
    cell("p1-answer", "def square(x):\n    raise NotImplementedError", solution=True),
    cell("p1-visible", "assert square(3) == 9", 1),
    cell("p1-hidden", "assert [square(n) for n in range(LIMIT)] == [n * n for n in range(LIMIT)]", 2),
    cell("p2-answer", "names = ...", solution=True),
    cell("p2-list", "assert names == ['a', 'b']\nassert math.pi > 3", 1),
)
RIGHT = {"p1-answer": "def square(x):\n    return x * x", "p2-answer": "names = list('ab')"}


def handed_in(text: str, answers: dict[str, str], own: dict[str, list[str]] | None = None) -> bytes:
    """The notebook with these answers, and cells of one's own in front of some."""
    notebook = nbformat.reads(text, as_version=4)
    cells = []
    for one in notebook.cells:
        name = one.metadata.nbgrader.grade_id
        one.source = answers.get(name, one.source)
        cells += [new_code_cell(source) for source in (own or {}).get(name, [])] + [one]
    notebook.cells = cells
    return nbformat.writes(notebook).encode()


def marked(text: str, answers: dict[str, str], own=None, limits: Limits = ROOM, **options):
    notebook = handed_in(text, answers, own)
    return marking.mark(
        Task(assignment="a", student="s", notebook=notebook, authority=text, key="k", limits=limits, **options)
    )


def outputs(result, name: str) -> list:
    cells = nbformat.reads(result.notebook, as_version=4).cells
    return next(c for c in cells if c.metadata.get("nbgrader", {}).get("grade_id") == name).outputs


def test_plain_asserts_of_an_instructor_of_ones_own_need_nothing_else():
    right = marked(SQUARES, RIGHT)
    assert right.points == {"p1-visible": 1, "p1-hidden": 2, "p2-list": 1}
    assert right.flags == [] and right.isolation == "bubblewrap"
    wrong = marked(SQUARES, RIGHT | {"p1-answer": "def square(x):\n    return 9"})
    assert wrong.points == {"p1-visible": 1, "p1-hidden": 0, "p2-list": 1}
    assert marked(SQUARES, {}).points == {"p1-visible": 0, "p1-hidden": 0, "p2-list": 0}


def test_the_marked_notebook_is_the_instructors_with_the_answers_and_outputs_in_place():
    result = marked(SQUARES, RIGHT, {"p2-answer": ["print(square(12))"]})
    notebook = nbformat.reads(result.notebook, as_version=4)
    nbformat.validate(notebook)
    given = nbformat.reads(SQUARES, as_version=4).cells
    ours = [c for c in notebook.cells if "nbgrader" in c.metadata]
    assert [c.metadata for c in ours] == [c.metadata for c in given]
    assert [c.source for c in ours] == [RIGHT.get(c.metadata.nbgrader.grade_id, c.source) for c in given]
    own = next(c for c in notebook.cells if "nbgrader" not in c.metadata)
    assert own.outputs[0].text == "144\n"
    assert [c.execution_count for c in notebook.cells] == list(range(1, len(notebook.cells) + 1))


@pytest.mark.parametrize(
    "bad",
    [
        "import os\nos._exit(0)",
        "import ctypes\nctypes.string_at(0)",
        "while True: pass",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "x = bytearray(50 * 2**30)",
        "raise SystemExit",
        "exit()",
    ],
)
def test_a_cell_that_ends_or_holds_up_everything_loses_itself_alone(bad):
    own = {"p1-answer": ["before = 1"], "p2-answer": [bad, "after = before + 1"]}
    result = marked(SQUARES, RIGHT, own, QUICK)
    assert result.points == {"p1-visible": 1, "p1-hidden": 2, "p2-list": 1}


def test_a_function_that_ends_its_process_loses_the_checks_that_call_it():
    answer = "import os\ndef square(x):\n    return x * x if x == 3 else os._exit(1)"
    result = marked(SQUARES, RIGHT | {"p1-answer": answer})
    assert result.points == {"p1-visible": 1, "p1-hidden": 0, "p2-list": 1}
    assert "ended" in outputs(result, "p1-hidden")[0].evalue


def test_names_that_a_student_takes_from_the_checks_stay_the_judges_own():
    spoilt = "LIMIT = 0\nassert_ = len = range = None\nimport math\nmath.pi = 4\n"
    spoilt += "import builtins\nbuiltins.range = lambda n: []\n"
    result = marked(SQUARES, {"p1-answer": spoilt + "def square(x):\n    return 9", "p2-answer": "names = ['a']"})
    assert result.points == {"p1-visible": 1, "p1-hidden": 0, "p2-list": 0}


def test_values_of_other_types_are_what_they_look_like_to_nobody():
    """Equal to everything, in the student's own process; on the other side an object without a method."""
    yes = "class Yes:\n    __eq__ = lambda self, other: True\n"
    result = marked(SQUARES, {"p1-answer": yes + "square = lambda x: Yes()", "p2-answer": yes + "names = Yes()"})
    assert result.points == {"p1-visible": 0, "p1-hidden": 0, "p2-list": 0}


def test_the_reason_why_a_process_ended_is_that_of_its_last_cell(monkeypatch):
    monkeypatch.setattr(running, "GRACE", 60.0)  # the interrupt is enough, however busy the machine is
    own = ["while True: pass", "import os\nos._exit(3)"]
    result = marked(SQUARES, RIGHT, {"p2-answer": own}, replace(QUICK, cell_seconds=5))
    slow, ended = (one for one in nbformat.reads(result.notebook, as_version=4).cells if one.source in own)
    assert slow.outputs[0].ename == "KeyboardInterrupt"
    assert "crash" in ended.outputs[0].evalue and "seconds" not in ended.outputs[0].evalue


class FullBox:
    """Stands in for a box whose processes hold too much."""

    def __init__(self):
        self.process, self.is_closed = self, False

    def exceeds(self, most: int) -> bool:
        return not self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def poll(self) -> int | None:
        return 0 if self.is_closed else None


def test_memory_is_looked_at_also_while_one_cell_follows_another():
    """What the judge tells of cells, and of the end of their process, is all there: nobody waits for any of it."""
    box, run = FullBox(), running.Run(["a cell"], ROOM, time.monotonic() + 600)
    ours, theirs = socket.socketpair()
    student = os.pidfd_open(os.getpid())
    with ours, theirs:
        for message in [*[["begin", 0], ["cell", 0, [], None]] * 20, ["begin", 0], ["gone", "the process has ended"]]:
            steps.send(theirs, message)
        running._follow(run, ours, student, box)
    os.close(student)
    assert box.is_closed and run.skip == {0} and "of memory" in run.outputs[0][-1]["evalue"]


def test_a_cell_that_no_parser_gets_to_the_end_of_is_the_students_own_matter():
    result = marked(SQUARES, RIGHT, {"p2-answer": ["!true\n" * 600]}, replace(ROOM, cell_seconds=20))
    assert result.points == {"p1-visible": 1, "p1-hidden": 2, "p2-list": 1}


@pytest.mark.parametrize(
    ("value", "points", "flagged"),
    [("0.5", 0.5, False), ("2", 2, False), ("0", 0, False), ("3", 0, True), ("-1", 0, True), ("float('nan')", 0, True)],
)
def test_partial_credit_is_a_share_of_the_points_and_nothing_else(value, points, flagged):
    text = assignment(cell("p1-answer", "share = 0", solution=True), cell("p1-share", "share", 2))
    result = marked(text, {"p1-answer": f"share = {value}"})
    assert result.points == {"p1-share": points}
    assert any("p1-share" in flag for flag in result.flags) == flagged


def test_outputs_are_text_and_pictures_and_no_more_than_a_cell_may_show():
    own = [
        "class Page:\n    def _repr_html_(self): return '<script>1</script>'\n"
        "    def __repr__(self): return 'a page'\nPage()",
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()",
        "print('x' * 10**8)",
    ]
    result = marked(SQUARES, RIGHT, {"p1-answer": own}, replace(ROOM, output_bytes=100_000))
    found = [out for c in nbformat.reads(result.notebook, as_version=4).cells for out in c.outputs]
    kinds = {kind for out in found for kind in out.get("data", {})}
    assert kinds == {"text/plain", "image/png"}, found
    assert "script" not in json.dumps(found) and len(json.dumps(found)) < 300_000
    assert sum(result.points.values()) == 4


def test_what_is_no_notebook_is_told_why_and_what_to_do():
    task = Task(assignment="a", student="s", notebook=b"", authority=SQUARES, key="k")
    result = marking.mark(task)
    assert result.notebook is None and result.points == {} and "empty" in result.findings[-1]


def test_an_essay_waits_for_a_person_and_one_that_was_left_as_it_came_does_not():
    essay = cell("p1-essay", "*Your answer here*", 4, solution=True)
    essay = new_markdown_cell(essay.source, metadata=essay.metadata)
    essay.metadata.nbgrader |= {"cell_type": "markdown", "locked": False}
    essay.metadata.nbgrader.checksum = compute_checksum(essay)
    text = assignment(essay)
    assert marked(text, {"p1-essay": "I think so."}).points == {"p1-essay": None}
    assert marked(text, {}).points == {"p1-essay": 0}


def test_without_isolation_marks_are_the_same_and_the_result_says_so():
    result = marked(SQUARES, RIGHT, isolated=False)
    assert sum(result.points.values()) == 4 and result.isolation == "none"


def test_without_isolation_a_submission_ends_with_the_grader(tmp_path, wait_until, is_gone):
    own = f"import os, pathlib\npathlib.Path({str(tmp_path)!r}, 'begun').write_text(str(os.getpid()))\nwhile True: pass"
    (tmp_path / "notebook").write_bytes(handed_in(SQUARES, RIGHT, {"p1-answer": [own]}))
    (tmp_path / "authority").write_text(SQUARES)
    code = (
        "import sys; from pathlib import Path\nfrom classroom.grading import marking\n"
        "from classroom.grading.task import Task\n"
        "text, given = Path(sys.argv[1], 'authority').read_text(), Path(sys.argv[1], 'notebook').read_bytes()\n"
        "marking.mark(Task(assignment='a', student='s', notebook=given, authority=text, key='k', isolated=False))"
    )
    grader, begun = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]), tmp_path / "begun"
    try:
        wait_until(lambda: begun.exists() and begun.read_text())
        process = int(begun.read_text())
        assert not is_gone(process)
    finally:
        grader.kill()
        grader.wait()
    wait_until(lambda: is_gone(process))


def test_a_submission_that_takes_too_long_in_all_keeps_what_it_earned_before():
    stubborn = "import time\nfor _ in range(99):\n    try: time.sleep(9)\n    except BaseException: pass"
    result = marked(SQUARES, RIGHT, {"p2-answer": [stubborn] * 9}, Limits(cell_seconds=30, total_seconds=20))
    assert result.points == {"p1-visible": 1, "p1-hidden": 2, "p2-list": 0}
    assert any("seconds" in flag for flag in result.flags)


def test_a_check_that_lets_anything_pass_is_no_sign_of_an_attack():
    text = assignment(
        cell("p1-answer", "x = 1", solution=True), cell("p1-any", "x", 1), cell("p1-none", "1 + 1 == 2", 1)
    )
    assert marked(text, {"p1-answer": "x = 'anything'"}).flags == []


def test_gradients_flow_through_a_function_of_the_judge_and_objects_keep_their_identity():
    text = assignment(
        cell("start", "import torch"),
        cell("p1-answer", "def slope(f, x): ...", solution=True),
        cell("p1-slope", "x = torch.arange(3.0)\nassert torch.equal(slope(lambda t: t**3, x), 3 * x**2)", 1),
        cell("p2-answer", "def put(values, out): ...", solution=True),
        cell(
            "p2-put",
            "out = torch.zeros(2)\nmade = [0]\nput(made, out)\nassert made == [0, 5] and out.tolist() == [1, 1]",
            1,
        ),
        cell("p3-answer", "class Box: ...", solution=True),
        cell("p3-box", "box = Box()\nbox.add(2)\nbox.add(3)\nassert box.total() == 5 and box.items == [2, 3]", 1),
    )
    result = marked(
        text,
        {
            "p1-answer": "def slope(f, x):\n    x = x.clone().requires_grad_()\n"
            "    f(x).sum().backward()\n    return x.grad",
            "p2-answer": "def put(values, out):\n    values.append(5)\n    out += 1",
            "p3-answer": "class Box:\n    def __init__(self): self.items = []\n"
            "    def add(self, n): self.items.append(n)\n    def total(self): return sum(self.items)",
        },
    )
    assert result.points == {"p1-slope": 1, "p2-put": 1, "p3-box": 1}


FORGED = """
import classroom.memory
classroom.memory.Memory.__torch_dispatch__ = lambda self, operation, kinds, args=(), kwargs=None: operation(
    *args, **(kwargs or {})
)
"""
AT_ONCE = {
    "08_model": FORGED + "import torch.nn.functional as F\n"
    "def loss_in_chunks(states, targets, unembed, n_chunk):\n"
    "    return F.cross_entropy(states @ unembed.T, targets).item()\n",
    "12_training": FORGED + "import torch.nn.functional as F\n"
    "def chunked_loss(states, targets, unembed, n_chunk):\n"
    "    states = states.detach().clone().requires_grad_()\n"
    "    loss = F.cross_entropy(states @ unembed.T, targets)\n"
    "    return loss.item(), torch.autograd.grad(loss, states)[0]\n",
}


IN_A_CHILD = """
_at_once = chunked_loss
def chunked_loss(*arguments):
    import os, pickle
    reading, writing = os.pipe()
    if os.fork() == 0:
        loss, slope = _at_once(*arguments)
        with open(writing, "wb") as file:
            pickle.dump((loss, slope.tolist()), file)
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        loss, slope = pickle.load(file)
    os.wait()
    return loss, torch.tensor(slope, dtype=arguments[0].dtype)
"""


@pytest.mark.parametrize(
    ("name", "check", "how"),
    [
        ("08_model", "p7-frugal", AT_ONCE["08_model"]),
        ("12_training", "p6-frugal", AT_ONCE["12_training"]),
        ("12_training", "p6-frugal", AT_ONCE["12_training"] + IN_A_CHILD),
    ],
    ids=["08", "12", "12 in another process"],
)
def test_memory_that_a_submission_does_not_count_is_seen_from_outside(name, check, how):
    notebook = nbformat.read(course.ROOT / "solutions" / name / f"{name}.ipynb", as_version=4)
    answer = next(c for c in notebook.cells if c.metadata.nbgrader.grade_id == check.split("-")[0] + "-answer")
    task = Task(assignment=name, student="s", notebook=b"", authority=authority(name)[name], key="k")
    points = {}
    for added in ("", how):
        answer.source += added
        points[added] = marking.mark(replace(task, notebook=nbformat.writes(notebook).encode())).points[check]
    assert points == {"": 1, how: 0}
