"""Whatever a student hands in is marked as far as it can be, or named; and only answers are taken from it."""

import json
import os
import signal
from copy import deepcopy
from pathlib import Path

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nbgrader.utils import is_solution

from classroom.grading import answers as taking
from classroom.grading import course, handed_in, intake
from classroom.grading.authority import authority
from classroom.grading.broken import ALL, NONE, Broken, Whole, cell_of, code, data
from classroom.grading.broken_files import UNREADABLE, packed, table
from classroom.grading.course import ROOT
from classroom.matching import name_of

NAME, FILE = "06_norms", "06_norms.ipynb"  # it has an essay, which a person marks
RELEASE = nbformat.read(ROOT / "exercises" / NAME / FILE, as_version=4)
ANSWERS = course.answers(nbformat.read(ROOT / "solutions" / NAME / FILE, as_version=4))
WHOLE = Whole(NAME, RELEASE, ANSWERS)
BROKEN = table(NAME, RELEASE, ANSWERS)
RIGHT, file = WHOLE.right, WHOLE.file
OTHER = (ROOT / "exercises" / "04_masks" / "04_masks.ipynb").read_bytes()
TEXTS = authority(NAME)
AUTHORITY = nbformat.reads(TEXTS[NAME], as_version=4)
STUDENT = '-it\'s "a" student; ..é名'


@pytest.fixture
def folder(tmp_path) -> Path:
    """A student's folder of the assignment."""
    folder = tmp_path / "submitted" / STUDENT / NAME
    folder.mkdir(parents=True)
    return folder


def tree(folder: Path) -> list:
    """Everything below a folder, as it can be told without opening anything."""
    paths = sorted(folder.rglob("*"))
    return [(path, os.lstat(path).st_mode, os.lstat(path).st_size, os.lstat(path).st_mtime_ns) for path in paths]


def given_cells(notebook) -> list[dict]:
    """The cells of the authority in a notebook, with nothing in the answers."""
    cells = [dict(deepcopy(cell)) for cell in notebook.cells if "nbgrader" in cell.metadata]
    return [cell | ({"source": ""} if is_solution(nbformat.from_dict(cell)) else {}) for cell in cells]


def is_sound(placed: taking.Placed) -> None:
    """Every result is a valid notebook, has the authority's cells in their order, and nothing else with a meaning."""
    assert not any("reading the file failed" in flag for flag in placed.flags), placed.flags
    for line in placed.findings + placed.flags:
        assert line.isprintable() and len(line) < 1000 and line.encode()
    assert len(placed.findings) <= taking.FINDINGS
    if placed.notebook is None:
        assert placed.findings
        return
    nbformat.validate(placed.notebook, relax_add_props=False)
    assert nbformat.writes(placed.notebook, version=nbformat.NO_CONVERT).encode()
    assert given_cells(placed.notebook) == given_cells(AUTHORITY)
    assert placed.notebook.metadata == AUTHORITY.metadata
    assert len({cell.id for cell in placed.notebook.cells}) == len(placed.notebook.cells)
    own = [cell for cell in placed.notebook.cells if "nbgrader" not in cell.metadata]
    assert len(own) <= taking.OWN_CELLS + taking.FINDINGS
    for cell in own:
        assert not cell.metadata and not cell.get("attachments") and not cell.get("outputs")
        assert cell.get("execution_count") is None


def answers(notebook) -> dict[str, str]:
    return {name_of(cell): cell.source for cell in notebook.cells if is_solution(cell)}


def outcome(folder: Path) -> tuple[dict[str, str], list[str], list[str]]:
    """The answers that are found in a folder, the findings and the flags."""
    there = intake.take(folder, TEXTS)
    assert there.student == STUDENT and set(there.notebooks) <= {NAME}
    for line in there.findings + there.flags:
        assert line.isprintable() and line.encode()
    if NAME not in there.notebooks:
        return {}, there.findings, there.flags
    placed = taking.placed(there.notebooks[NAME], AUTHORITY)
    is_sound(placed)
    found = {} if placed.notebook is None else answers(placed.notebook)
    assert [name for name, stub in answers(RELEASE).items() if found.get(name, stub) == stub] == (
        placed.unanswered if placed.notebook else [*ANSWERS]
    )
    return found, there.findings + placed.findings, there.flags + placed.flags


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_folder_is_marked_as_far_as_it_can_be_or_named(kind, folder, tmp_path, monkeypatch):
    case: Broken = BROKEN[kind]
    case.build(folder)
    if kind == UNREADABLE:
        monkeypatch.setattr(handed_in.os, "open", no_right_to_read)
    before = tree(tmp_path)
    signal.alarm(600)  # a pipe that is opened would wait for ever
    try:
        found, findings, flags = outcome(folder)
    finally:
        signal.alarm(0)
    assert tree(tmp_path) == before
    stubs = answers(RELEASE)
    right = [
        name for name in ANSWERS if found.get(name, "").replace("\ufffd", "") in (ANSWERS[name], ANSWERS[name] + "\n# ")
    ]
    written = [name for name in ANSWERS if found.get(name, stubs[name]) != stubs[name]]
    assert {ALL: len(right) == len(ANSWERS), NONE: not written}.get(case.found, len(written) > 0), (findings, written)
    assert {*case.right} <= {*right} and not {*case.lost} & {*right}
    said = "\n".join(findings)
    assert case.says in said and bool(case.says) == bool(findings), said
    if case.found == NONE and findings:
        assert any(cure in said for cure in CURES), said  # what the student should do
    assert case.flag in "\n".join(flags) and (case.flag or not flags or case.says), flags


CURES = ("Hand", "Take", "Give", "Copy", "Unpack", "Save", "Download", "Did", "Check", "Clear")


def no_right_to_read(path, *_):
    raise PermissionError(13, "Permission denied", str(path))


def test_what_was_refused_is_told_once(folder):
    file(packed({"[Content_Types].xml": b"<Types/>", "word/document.xml": b"<w/>"}))(folder)
    found, findings, _ = outcome(folder)
    assert found == {} and findings == [f"{FILE}: is a Word document, no notebook. Hand in the notebook (.ipynb)."]


def test_a_folder_that_the_grader_may_not_look_into_is_listed(tmp_path, monkeypatch):
    (tmp_path / "ann" / "name").mkdir(parents=True)
    (tmp_path / "bob").mkdir()
    (tmp_path / "cem").touch()
    lstat = os.lstat
    closed = {str(tmp_path / "bob" / "name"): PermissionError}

    def look(path, *args, **options):
        if error := closed.get(str(path)):
            raise error(13, "Permission denied", str(path))
        return lstat(path, *args, **options)

    assert intake.students(tmp_path, "name") == ["ann"]
    monkeypatch.setattr(os, "lstat", look)
    assert intake.students(tmp_path, "name") == ["ann", "bob"]


def test_no_student_is_asked_to_mend_the_rights_of_the_grader(folder, monkeypatch):
    file(RIGHT)(folder)
    monkeypatch.setattr(handed_in.os, "open", no_right_to_read)
    said = "\n".join(outcome(folder)[1])
    assert "the grader may not read it" in said and "Hand it in again" not in said


def test_a_backup_of_the_doctor_that_takes_the_place_of_the_notebook_is_flagged(folder):
    file(RIGHT, f"{NAME}.before-doctor.ipynb")(folder)
    found, _, flags = outcome(folder)
    assert found == ANSWERS and any("is the doctor's backup" in flag for flag in flags)


def test_students_are_those_who_have_anything_for_the_assignment(tmp_path):
    ids = [STUDENT, "a b", "..x", "$(reboot)", "Ünal", "-n"]
    for name in ids:
        (tmp_path / name / NAME).mkdir(parents=True)
    (tmp_path / "other" / "04_masks").mkdir(parents=True)
    (tmp_path / "with a file").mkdir()
    (tmp_path / "with a file" / NAME).touch()
    (tmp_path / "with a link").mkdir()
    (tmp_path / "with a link" / NAME).symlink_to(tmp_path / "nowhere")
    (tmp_path / "a file").touch()
    assert intake.students(tmp_path, NAME) == sorted([*ids, "with a file", "with a link"])
    assert intake.students(tmp_path / "nowhere", NAME) == []


def test_an_assignment_may_have_several_notebooks(folder):
    texts = TEXTS | authority("04_masks")
    file(RIGHT)(folder), file(OTHER, "second.ipynb")(folder), file(b"{}", "third.ipynb")(folder)
    there = intake.take(folder, texts)
    assert there.notebooks == {NAME: RIGHT, "04_masks": OTHER}
    (folder / FILE).unlink()
    there = intake.take(folder, texts)
    assert there.notebooks == {"04_masks": OTHER} and any(
        "no notebook was found for 06_norms" in f for f in there.findings
    )


def test_a_folder_of_zips_and_notebooks_is_read_within_bounds(folder, monkeypatch):
    monkeypatch.setattr(handed_in, "LARGEST", 2 * len(RIGHT))
    monkeypatch.setattr(handed_in, "TOTAL", 4 * len(RIGHT))
    for k in range(9):
        file(packed({f"{k}-{n}.ipynb": RIGHT for n in range(9)}), f"{k}.zip")(folder)
    findings: list[str] = []
    paths = handed_in.listed(folder, findings)
    assert sum(len(read.data) for read in handed_in.read(folder, paths, findings)) <= handed_in.TOTAL
    assert findings


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink(os.devnull, path), lambda path: None])
def test_what_became_another_thing_after_it_was_listed_is_not_read(folder, make):
    make(folder / FILE)
    signal.alarm(600)
    try:
        with pytest.raises(handed_in.Refused, match=r"cannot be read|no regular file"):
            handed_in.content(folder / FILE)
    finally:
        signal.alarm(0)


# ---- what a notebook cannot do ----


def test_own_cells_stay_in_their_place_without_what_they_bring():
    notebook = WHOLE.answered()
    mine = code("x = 1", nbgrader={"grade_id": "p1-predict", "grade": True, "points": 9}, tags=["skip-execution"])
    where = notebook.cells.index(cell_of(notebook, "p3-answer"))
    odd = {"cell_type": "markdown", "id": "06_norms-00", "source": "![](attachment:a.png)", "metadata": {"x": 1}}
    notebook.cells[where:where] = [
        code("before = 1", tags=["mine"]),
        odd | {"attachments": {"a.png": {"image/png": ""}}},
    ]
    notebook.cells.append(mine)
    notebook.metadata.kernelspec.name = "evil"
    placed = taking.placed(data(notebook), AUTHORITY)
    is_sound(placed)
    order = [name_of(cell) or cell.source for cell in placed.notebook.cells]
    k = order.index("p3-answer")
    assert order[k - 2 : k] == ["before = 1", odd["source"]]
    assert answers(placed.notebook) == ANSWERS


@pytest.mark.parametrize("name", course.assignments())
def test_a_released_notebook_has_nothing_wrong_though_the_authority_has_more_in_it(name):
    graded_by = nbformat.reads(authority(name)[name], as_version=4)
    assert any("BEGIN HIDDEN TESTS" in cell.source for cell in graded_by.cells)
    released = (ROOT / "exercises" / name / f"{name}.ipynb").read_bytes()
    found = taking.placed(released, graded_by)
    assert (found.findings, found.flags, len(found.unanswered)) == ([], [], sum(map(is_solution, graded_by.cells)))
    assert found.notebook == graded_by


def test_a_hidden_test_is_not_in_what_a_student_is_told():
    notebook = WHOLE.answered()
    for cell in notebook.cells:
        if cell.metadata.nbgrader.grade:
            cell.source = "assert True"
    placed = taking.placed(data(notebook), AUTHORITY)
    assert "HIDDEN" not in "".join(placed.findings + placed.flags)


def test_text_without_a_place_is_kept_for_a_person_and_not_run():
    notebook = deepcopy(RELEASE)
    lost = code("essay = 'mine'", nbgrader={"grade_id": "p99", "solution": True})
    notebook.cells.append(lost)
    placed = taking.placed(data(notebook), AUTHORITY)
    is_sound(placed)
    last = placed.notebook.cells[-1]
    assert last.cell_type == "markdown" and "essay = 'mine'" in last.source and "Not placed" in last.source
    assert "doctor" not in last.source and any("is it an answer?" in flag for flag in placed.flags)


def test_the_authority_stays_as_it_is():
    before = deepcopy(AUTHORITY)
    placed = taking.placed(RIGHT, AUTHORITY)
    placed.notebook.cells[0].source = "changed"
    assert before == AUTHORITY


# ---- hostile sizes: these end, which without bounds they would not in any time that a test has ----

PLAIN = code("x = 1")
LINES = "x_1 = 1\n" * 10_000
HOSTILE = {
    "own cells": lambda nb: nb.cells.extend(code(f"x_{k} = {k}") for k in range(20_000)),
    "own cells before stripped ones": lambda nb: setattr(
        nb, "cells", [code(f"def f{k}(): ...") for k in range(20_000)] + [c | {"metadata": {}} for c in nb.cells]
    ),
    "long own cells and lost answers": lambda nb: setattr(nb, "cells", [code(LINES + f"# {k}") for k in range(400)]),
    "copies of one answer": lambda nb: nb.cells.extend(
        cell_of(nb, "p3-answer") | {"source": f"def layer_norm(): ...\n# {k}"} for k in range(20_000)
    ),
    "copies beside a long one": lambda nb: nb.cells.extend(
        cell_of(nb, "p3-answer") | {"source": text}
        for text in ["def layer_norm(): ...\n" * 40_000, *map(str, range(20_000))]
    ),
    "copies of a test": lambda nb: nb.cells.extend(
        cell_of(nb, "p3-layer") | {"source": f"# {k}"} for k in range(20_000)
    ),
    "unknown ids": lambda nb: nb.cells.extend(
        code("1", nbgrader={"grade_id": f"u{k}", "solution": True}) for k in range(20_000)
    ),
    "a source of 50 MB": lambda nb: cell_of(nb, "p3-answer").update(source="\n" * 50_000_000),
    "signs for regular expressions": lambda nb: nb.cells.extend(
        code(sign * 300_000) for sign in ("=", "a=", "a, ", "`", "<", "<<<<<<< ", "\\", " ", "\t\n", "def ", '"', "p1-")
    ),
    "points of a million": lambda nb: cell_of(nb, "p3-layer").metadata.nbgrader.update(points=[[0]] * 1_000_000),
    "a long id": lambda nb: nb.cells.append(code("1", nbgrader={"grade_id": "u" * 20_000_000, "solution": True})),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_sizes_come_to_an_end(kind):
    notebook = WHOLE.answered()
    HOSTILE[kind](notebook)
    is_sound(taking.placed(data(notebook), AUTHORITY))


TEXT_OF = {
    "quotes": b'{"cells": ["' + b'\\"' * 5_000_000,
    "backslashes": b'{"cells": ["' + b"\\" * 10_000_001,
    "strings": b'{"cells": [' + b'""' * 2_000_000,
    "numbers": b'{"cells": [' + b"1," * 2_000_000 + b"1]}",
    "one number": b'{"cells": [' + b"1" * 10_000_000 + b"]}",
    "one fraction": b'{"cells": [0.' + b"1" * 10_000_000 + b"]}",
    "half characters": b'{"cells": ["' + rb"\ud83d" * 1_000_000 + b'"]}',
    "another encoding": b'{"cells": ["' + b"\xe9a" * 5_000_000 + b'"]}',
    "brackets": b'{"cells":' + b"[" * 10_000_000,
    "dictionaries": b'{"cells":[' + b'{"":0},' * 1_000_000 + b"1]}",
    "a conflict of empty lines": b"<<<<<<< \n" + b"\n" * 10_000_000,
    "levels": b'{"cells":[' + b",".join(b"[" * n + b"]" * n for n in range(900, 999)) + b"]}",
}


@pytest.mark.parametrize("kind", TEXT_OF)
def test_hostile_texts_come_to_an_end(kind):
    is_sound(taking.placed(TEXT_OF[kind], AUTHORITY))


# ---- any bytes, any JSON, any damage ----

TEXT = st.text(st.characters(exclude_categories=()), max_size=9)
KEYS = ["cells", "cell_type", "source", "metadata", "nbgrader", "grade_id", "id", "nbformat", "worksheets", "points"]
WORDS = ["code", "markdown", "p3-answer", "p3-layer", "p3", "solution", "<<<<<<< HEAD", "raise NotImplementedError"]
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.sampled_from(WORDS)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | TEXT, inner, max_size=6),
    max_leaves=12,
)


def dumped(value: object) -> bytes:
    return json.dumps(value).encode()


@settings(max_examples=60)
@given(st.binary(max_size=300), st.sampled_from([b"", b"PK\3\4", b'{"cells": [', b"\xff\xfe", b"<<<<<<< a\n"]))
def test_any_bytes_are_survived(content, beginning):
    is_sound(taking.placed(beginning + content, AUTHORITY))


@settings(max_examples=60)
@given(st.lists(VALUES, max_size=4), VALUES, VALUES)
def test_any_json_is_survived(cells, number, metadata):
    is_sound(taking.placed(dumped({"cells": cells, "nbformat": number, "metadata": metadata}), AUTHORITY))


@settings(max_examples=60)
@given(st.data())
def test_a_notebook_with_random_values_anywhere_is_survived(data_):
    notebook = json.loads(RIGHT)
    for _ in range(data_.draw(st.integers(1, 6))):
        node = notebook
        while True:
            key = data_.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
            inner = node[key]
            if not isinstance(inner, dict | list) or not inner or data_.draw(st.integers(0, 3)) == 0:
                break
            node = inner
        kind = data_.draw(st.sampled_from(["replace", "delete", "copy"]))
        if kind == "replace":
            node[key] = data_.draw(VALUES)
        elif isinstance(node, list):
            node[key : key + 1] = [] if kind == "delete" else [inner, deepcopy(inner)]
        elif kind == "delete" and len(node) > 1:
            del node[key]
        if not isinstance(notebook.get("cells"), list) or not notebook["cells"]:
            break
    is_sound(taking.placed(dumped(notebook), AUTHORITY))


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, len(RIGHT)), st.integers(0, 300), st.binary(max_size=9)), min_size=1, max_size=4)
)
def test_a_damaged_file_is_survived(damages):
    content = RIGHT
    for start, length, put in damages:
        content = content[:start] + put + content[start + length :]
    is_sound(taking.placed(content, AUTHORITY))


@settings(max_examples=40)
@given(st.integers(0, len(RIGHT)), st.integers(0, len(OTHER)))
def test_two_notebooks_spliced_are_survived(first, second):
    is_sound(taking.placed(RIGHT[:first] + OTHER[second:], AUTHORITY))


@settings(max_examples=40)
@given(st.integers(0, len(packed({FILE: RIGHT}))), st.integers(0, 40), st.binary(max_size=9))
def test_a_damaged_zip_is_survived(tmp_path_factory, start, length, put):
    whole = packed({FILE: RIGHT})
    folder = tmp_path_factory.mktemp("zip") / STUDENT / NAME
    file(whole[:start] + put + whole[start + length :], "a.zip")(folder)
    outcome(folder)


@settings(max_examples=40)
@given(
    names=st.lists(
        st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40),
        min_size=1,
        max_size=4,
    )
)
def test_any_names_are_survived(tmp_path_factory, names):
    folder = tmp_path_factory.mktemp("names") / STUDENT / NAME
    for name in names:
        file(RIGHT, f"{name}.ipynb")(folder)
    found, findings, _ = outcome(folder)
    assert found == ANSWERS and findings
