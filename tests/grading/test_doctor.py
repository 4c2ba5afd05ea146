"""`python -m classroom doctor`: it names what is wrong, loses no text, and its repair is graded like the release."""

import io
import json
import random
import shutil
import subprocess
import sys
import zipfile
from copy import deepcopy
from pathlib import Path

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nbgrader.nbgraderformat import MetadataValidator
from nbgrader.utils import compute_checksum, is_grade, is_solution
from nbgrader.validator import Validator

from classroom import doctor
from classroom.__main__ import main
from classroom.grading import course
from classroom.grading.course import ROOT
from classroom.grading.release import build
from classroom.matching import name_of
from classroom.notebooks import text
from classroom.placement import place, rebuilt
from classroom.submission import Unreadable, read

NAME = "09_parameters"
RELEASE = ROOT / "exercises" / NAME / f"{NAME}.ipynb"
ANSWERS = course.answers(nbformat.read(ROOT / "solutions" / NAME / f"{NAME}.ipynb", as_version=4))
EXERCISES = doctor.released(ROOT / "exercises")
quick = settings(max_examples=40, deadline=None)


def answered(answers: dict[str, str] = ANSWERS):
    """The released notebook with these answers."""
    notebook = nbformat.read(RELEASE, as_version=4)
    for cell in notebook.cells:
        if is_solution(cell):
            cell.source = answers.get(name_of(cell), cell.source)
    return notebook


def cell_of(notebook, name: str):
    return next(cell for cell in notebook.cells if name_of(cell) == name)


def code(source: str, **metadata):
    return nbformat.v4.new_code_cell(source, metadata=metadata)


def repaired(notebook, release: Path = RELEASE) -> tuple:
    """What the doctor makes of a notebook, and its findings."""
    found = place(read(text_of(notebook)), nbformat.read(release, as_version=4))
    return rebuilt(found), found.findings


def text_of(notebook) -> bytes:
    return json.dumps(notebook, ensure_ascii=False).encode()


def verdict(notebook) -> tuple:
    """What nbgrader says before it runs a notebook, and all that its autograder takes from it."""
    MetadataValidator().validate_nb(notebook)
    validator = Validator()
    taken = [
        (name_of(cell), cell.cell_type, cell.source, dict(cell.metadata)) for cell in notebook.cells if name_of(cell)
    ]
    return validator._get_type_changed_cells(notebook), validator._get_changed_cells(notebook), taken


@pytest.fixture
def folder(tmp_path) -> Path:
    """A student's folder of the exercise."""
    (tmp_path / NAME).mkdir()
    return tmp_path / NAME


@pytest.fixture
def handed_in(folder):
    """Write a file; the doctor's exit code and words."""

    def write(content, name: str = f"{NAME}.ipynb") -> Path:
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else text_of(content))
        return path

    return write


def consult(capsys, *arguments) -> tuple[int, str]:
    done = main(["doctor", *map(str, arguments)])
    printed = capsys.readouterr()
    return done, printed.out + printed.err


# ---- what is healthy ----


@pytest.mark.parametrize("name", EXERCISES)
def test_a_released_notebook_is_healthy_and_all_of_it_unanswered(name, tmp_path, capsys):
    path = tmp_path / f"{name}.ipynb"
    shutil.copyfile(ROOT / "exercises" / name / path.name, path)
    before = path.read_bytes()
    done, said = consult(capsys, "--fix", path)
    number = sum(is_solution(cell) for cell in nbformat.read(path, as_version=4).cells)
    assert done == 0 and "healthy" in said and f"{number} of {number} answer cells are still unanswered" in said
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


def test_a_healthy_notebook_with_answers_outputs_and_own_cells_stays_byte_for_byte(handed_in, folder, capsys):
    notebook = answered(ANSWERS | {"p2-answer": cell_of(answered({}), "p2-answer").source})
    notebook.cells.insert(4, code("check.tier(tier)", tags=["mine"]))
    notebook.cells[4].outputs = [nbformat.v4.new_output("stream", text="hello\n")]
    notebook.cells.append(nbformat.v4.new_markdown_cell("my notes"))
    notebook.metadata.language_info.version = "3.12.1"
    path = handed_in(notebook)
    before = path.read_bytes()
    done, said = consult(capsys, "--fix", path)
    assert done == 0 and "1 of 7 answer cells are still unanswered: problem 2" in said
    assert path.read_bytes() == before and [*folder.iterdir()] == [path]


def test_a_stub_line_left_below_an_answer_is_named(handed_in, capsys):
    notebook = answered()
    cell_of(notebook, "p3-answer").source += '\nraise NotImplementedError("not answered yet")'
    done, said = consult(capsys, handed_in(notebook))
    assert done == 0 and "problem 3, answer: still raises NotImplementedError" in said


# ---- what is wrong with cells ----


def as_markdown(notebook):
    cell = cell_of(notebook, "p3-answer")
    cell.cell_type = "markdown"
    del cell["outputs"], cell["execution_count"]


def as_raw(notebook):
    as_markdown(notebook)
    cell_of(notebook, "p3-answer").cell_type = "raw"


def without_ids(notebook):
    for cell in notebook.cells:
        del cell.metadata["nbgrader"]


def without_one_id(notebook):
    del cell_of(notebook, "p3-answer").metadata["nbgrader"]


def renamed_id(notebook):
    cell_of(notebook, "p3-answer").metadata.nbgrader.grade_id = "p3-answer-copy"


def copied_check(notebook):
    notebook.cells.insert(12, deepcopy(cell_of(notebook, "p3-tier")))


def copied_answer(notebook):
    cell = deepcopy(cell_of(notebook, "p3-answer"))
    cell.id, cell.source = "copy", "tier = 'my first thought'"
    notebook.cells.insert(notebook.cells.index(cell_of(notebook, "p3-answer")), cell)


def copied_stub(notebook):
    cell = deepcopy(cell_of(answered({}), "p3-answer"))
    cell.id = "copy"
    notebook.cells.append(cell)


def edited_check(notebook):
    cell_of(notebook, "p3-tier").source = "pass  # my own check is better"


def deleted_check(notebook):
    notebook.cells.remove(cell_of(notebook, "p3-tier"))


def deleted_text(notebook):
    notebook.cells.remove(cell_of(notebook, "p3"))


def moved_answer(notebook):
    cell = cell_of(notebook, "p3-answer")
    notebook.cells.remove(cell)
    notebook.cells.append(cell)


def other_points(notebook):
    cell_of(notebook, "p3-tier").metadata.nbgrader.points = 100


def points_as_text(notebook):
    cell_of(notebook, "p3-tier").metadata.nbgrader.points = "1"


def old_schema(notebook):
    for cell in notebook.cells:
        cell.metadata.nbgrader.schema_version = 1


def metadata_as_text(notebook):
    cell_of(notebook, "p3-answer").metadata.nbgrader = "solution"


def unlocked(notebook):
    for cell in notebook.cells:
        cell.metadata.pop("editable", None)
        cell.metadata.pop("deletable", None)


def same_cell_ids(notebook):
    cell_of(notebook, "p3-tier").id = cell_of(notebook, "p3-answer").id


def no_cell_ids(notebook):
    for cell in notebook.cells:
        del cell["id"]


def no_type(notebook):
    del cell_of(notebook, "p3-answer")["cell_type"]


def empty_settings(notebook):
    notebook.cells.insert(5, code("1 + 1", nbgrader={}))


def foreign_answer(notebook):
    notebook.cells.append(
        code("mine = 1", nbgrader={"grade_id": "p99-answer", "solution": True, "grade": False, "locked": False})
    )


def half_a_character(notebook):
    cell_of(notebook, "p3-answer").source += "\n# \\ud83d"


def invalid_outputs(notebook):
    cell_of(notebook, "p3-answer").outputs = [{"output_type": "nothing"}]


ILLS = {
    as_markdown: "problem 3, answer: is a markdown cell; it was given as a code cell",
    as_raw: "problem 3, answer: is a raw cell",
    without_ids: "each has lost nbgrader's id",
    without_one_id: "problem 3, answer: has lost nbgrader's id",
    renamed_id: "problem 3, answer: has the unknown id 'p3-answer-copy'",
    copied_check: "problem 3, check tier: is there 2 times",
    copied_answer: "problem 3, answer: is there 2 times",
    copied_stub: "problem 3, answer: is there 2 times",
    edited_check: "problem 3, check tier: was changed",
    deleted_check: "problem 3, check tier: is missing",
    deleted_text: "problem 3, text: is missing",
    moved_answer: "problem 3, answer: was moved; it belongs after problem 3, text",
    other_points: "problem 3, check tier: has other settings (points 100, not 1)",
    points_as_text: "problem 3, check tier: has other settings (points '1', not 1)",
    old_schema: "has other settings (schema_version 1, not 3)",
    metadata_as_text: "problem 3, answer: has lost nbgrader's id",
    unlocked: "has lost its lock",
    same_cell_ids: "problem 3, answer: shares its cell id",
    no_cell_ids: "has no valid cell id",
    no_type: "problem 3, answer: does not say which kind of cell it is",
    empty_settings: "cell 6: has nbgrader settings that mean nothing",
    foreign_answer: "has the id 'p99-answer', which the exercise does not have",
    half_a_character: "holds half a character",
    invalid_outputs: "is no valid notebook",
}


@pytest.mark.parametrize("fall_ill", ILLS, ids=lambda change: change.__name__)
def test_an_ill_cell_is_named_and_mended(fall_ill, handed_in, folder, capsys):
    notebook = answered()
    fall_ill(notebook)
    content = text_of(notebook).replace(rb"\\ud83d", rb"\ud83d")
    path = handed_in(content)
    done, said = consult(capsys, path)
    assert done == 1 and ILLS[fall_ill] in said and "--fix" in said
    assert path.read_bytes() == content and [*folder.iterdir()] == [path]  # it only looks

    done, said = consult(capsys, "--fix", path)
    assert done == 0 and "is healthy" in said, said
    assert (folder / f"{NAME}.before-doctor.ipynb").read_bytes() == content
    mended = nbformat.read(path, as_version=4)
    expected = ANSWERS
    if fall_ill is half_a_character:
        expected = ANSWERS | {"p3-answer": ANSWERS["p3-answer"] + "\n# \ufffd"}
    assert verdict(mended) == verdict(answered(expected))
    own = "".join(cell.source for cell in mended.cells if not name_of(cell))
    for change, words in {
        copied_answer: "tier = 'my first thought'",
        edited_check: "pass  # my own check is better",
        foreign_answer: "mine = 1",
    }.items():
        assert (words in own) == (change is fall_ill)

    before = path.read_bytes()
    assert consult(capsys, "--fix", path)[0] == 0
    assert path.read_bytes() == before and len([*folder.iterdir()]) == 2


def test_own_cells_stay_with_their_neighbour_and_keep_what_belongs_to_them():
    notebook = answered()
    mine = nbformat.v4.new_markdown_cell("![](attachment:a.png)", metadata={"tags": ["mine"]})
    mine.attachments = {"a.png": {"image/png": "aGVsbG8="}}
    place_of_it = 1 + notebook.cells.index(cell_of(notebook, "p3-answer"))
    notebook.cells[place_of_it:place_of_it] = [mine, code("x = 1"), code("x = 2")]
    notebook.cells.insert(0, code("%load_ext autoreload"))
    deleted_check(notebook)
    mended, _ = repaired(notebook)
    order = [name_of(cell) or cell.source for cell in mended.cells]
    assert order[0] == "%load_ext autoreload"
    k = order.index("p3-answer")
    assert order[k + 1 : k + 5] == [mine.source, "x = 1", "x = 2", "p3-tier"]
    assert mended.cells[k + 1 + 0].attachments == mine.attachments and mended.cells[k + 1].metadata.tags == ["mine"]


def test_a_split_answer_still_runs_in_the_order_it_was_written():
    notebook = answered()
    first, second = ANSWERS["p4-answer"][:40], ANSWERS["p4-answer"][40:]
    cell = cell_of(notebook, "p4-answer")
    cell.source = second
    half = deepcopy(cell)
    half.id, half.source = "half", first
    notebook.cells.insert(notebook.cells.index(cell), half)
    mended, _ = repaired(notebook)
    sources = [cell.source for cell in mended.cells]
    assert sources.index(second) == sources.index(first) + 1
    assert sum(name_of(cell) == "p4-answer" for cell in mended.cells) == 1


COPIES = {
    "untouched, below": (1, cell_of(answered({}), "p3-answer").source, False),
    "of something else, below": (1, "x = 1", True),
    "another answer, above": (0, ANSWERS["p3-answer"] + "\n# first", True),
    "another answer, far below": (9, ANSWERS["p3-answer"] + "\n# last", True),
}


@pytest.mark.parametrize("copy", COPIES)
def test_of_copies_the_right_one_counts(copy):
    down, source, is_kept = COPIES[copy]
    notebook = answered()
    twin = deepcopy(cell_of(notebook, "p3-answer"))
    twin.id, twin.source = "twin", source
    notebook.cells.insert(notebook.cells.index(cell_of(notebook, "p3-answer")) + down, twin)
    mended, _ = repaired(notebook)
    assert verdict(mended) == verdict(answered())
    own = [cell for cell in mended.cells if not name_of(cell)]
    assert [cell.source for cell in own] == [source] * is_kept
    assert not any({"nbgrader", "deletable"} & set(cell.metadata) for cell in own)
    if is_kept:  # runs where it ran
        assert mended.cells.index(own[0]) == notebook.cells.index(twin)


def test_without_an_id_the_cell_in_its_place_counts():
    notebook = answered()
    without_one_id(notebook)
    notebook.cells.insert(1, code(ANSWERS["p3-answer"] + "\n# an early try"))
    notebook.cells.append(code(ANSWERS["p3-answer"] + "\n# a late try"))
    mended, _ = repaired(notebook)
    assert verdict(mended) == verdict(answered())


def test_own_cells_with_one_id_and_text_with_fences_come_out_right():
    notebook = answered()
    for source in ("a", "b"):
        notebook.cells.append(nbformat.from_dict({**code(source), "id": "same"}))
    cell_of(notebook, "p3").source = "my notes\n````\nof mine\n````"
    mended, _ = repaired(notebook)
    assert repaired(mended) == (mended, [])
    assert "`````python\nmy notes" in mended.cells[-1].source and mended.cells[-1].source.endswith("\n`````")


def test_an_answer_in_a_new_cell_is_found_by_what_it_defines_or_by_its_place():
    notebook = answered()
    where = notebook.cells.index(cell_of(notebook, "p4-answer"))
    notebook.cells[where] = code(ANSWERS["p4-answer"])
    where = notebook.cells.index(cell_of(notebook, "p3-answer"))
    notebook.cells[where] = code("from somewhere import tier")
    notebook.cells.insert(where + 3, code("1 + 1"))
    mended, findings = repaired(notebook)
    assert cell_of(mended, "p4-answer").source == ANSWERS["p4-answer"]
    assert cell_of(mended, "p3-answer").source == "from somewhere import tier"
    assert len([f for f in findings if "has lost nbgrader's id" in f.what]) == 2


@pytest.mark.parametrize("name", EXERCISES)
@pytest.mark.parametrize("is_shuffled", [False, True], ids=["in order", "shuffled"])
def test_answers_of_every_exercise_are_found_without_ids(name, is_shuffled):
    release = ROOT / "exercises" / name / f"{name}.ipynb"
    answers = course.answers(nbformat.read(ROOT / "solutions" / name / f"{name}.ipynb", as_version=4))
    notebook = nbformat.read(release, as_version=4)
    for cell in notebook.cells:
        cell.source = answers.get(name_of(cell), cell.source)
        cell.metadata = {}
    if is_shuffled:
        random.Random(1).shuffle(notebook.cells)
    mended, _ = repaired(notebook, release)
    assert {name_of(cell): cell.source for cell in mended.cells if is_solution(cell)} == answers
    assert len(mended.cells) == len(notebook.cells)


def test_answers_to_an_older_release_are_moved_into_this_one(handed_in, capsys):
    notebook = answered({k: v for k, v in ANSWERS.items() if k != "p2-answer"})
    for name in ("intro", "p3", "p3-tier"):
        cell = cell_of(notebook, name)
        cell.source += "\n# as it was last year"
        cell.metadata.nbgrader.checksum = compute_checksum(cell)
    stub = cell_of(notebook, "p2-answer")
    stub.source = 'raise NotImplementedError("write here")'
    stub.metadata.nbgrader.checksum = compute_checksum(stub)
    gone = deepcopy(cell_of(notebook, "p3"))
    gone.id, gone.source, gone.metadata.nbgrader.grade_id = "gone", "A problem of last year", "p99"
    gone.metadata.nbgrader.checksum = compute_checksum(gone)
    notebook.cells.append(gone)
    next(cell for cell in notebook.cells if is_grade(cell)).metadata.nbgrader.points = 100
    four, five = cell_of(notebook, "p4-answer"), cell_of(notebook, "p5-answer")  # numbered otherwise
    four.source, five.source = five.source, four.source
    path = handed_in(notebook)
    done, said = consult(capsys, "--fix", path)
    assert done == 0 and "was made from an older release (4 given cells differ)" in said and "points 100" in said
    assert "1 of 7 answer cells are still unanswered: problem 2" in said
    mended = nbformat.read(path, as_version=4)
    assert verdict(mended) == verdict(answered({k: v for k, v in ANSWERS.items() if k != "p2-answer"}))
    assert "last year" not in path.read_text("utf-8")


LOCKED = [cell for cell in answered().cells if not is_solution(cell)]


@quick
@given(
    order=st.randoms(use_true_random=False),
    lost=st.sets(st.integers(0, len(LOCKED) - 1)),
    twice=st.sets(st.integers(0, len(LOCKED) - 1), max_size=5),
    without=st.sets(st.integers(0, len(LOCKED) - 1), max_size=5),
    far=st.integers(0, 3),
)
def test_locked_cells_may_be_shuffled_deleted_copied_and_stripped(order, lost, twice, without, far):
    notebook = answered()
    locked = [cell for cell in notebook.cells if not is_solution(cell)]
    for k in without - lost:
        locked[k].metadata = {}
    for k in twice - without:
        notebook.cells.append(deepcopy(locked[k]))
    for k in lost:
        notebook.cells.remove(locked[k])
    for _ in range(far * len(notebook.cells)):
        a, b = order.sample(range(len(notebook.cells)), 2)
        notebook.cells[a], notebook.cells[b] = notebook.cells[b], notebook.cells[a]
    mended, _ = repaired(notebook)
    assert verdict(mended) == verdict(answered())
    assert repaired(mended) == (mended, [])


@quick
@given(
    sources=st.lists(
        st.tuples(
            st.sampled_from([*ANSWERS, "p3", "p3-tier", "nothing", None]),
            st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=60),
            st.sampled_from(["code", "markdown", "raw"]),
        ),
        max_size=12,
    ),
    order=st.randoms(use_true_random=False),
)
def test_no_text_is_lost(sources, order):
    notebook = answered()
    for k, (name, source, kind) in enumerate(sources):
        cell = nbformat.from_dict({"cell_type": kind, "id": f"x{k}", "metadata": {}, "source": source})
        if kind == "code":
            cell |= {"outputs": [], "execution_count": None}
        if name:
            settings = next((c.metadata.nbgrader for c in notebook.cells if name_of(c) == name), {"solution": True})
            cell.metadata.nbgrader = {**settings, "grade_id": name}
        notebook.cells.insert(order.randrange(len(notebook.cells) + 1), cell)
    mended, _ = repaired(notebook)
    there = "\n".join(cell.source for cell in mended.cells)
    for source in [*ANSWERS.values(), *(source for _, source, _ in sources)]:
        assert source.strip() in there
    assert repaired(mended) == (mended, [])


# ---- what is wrong with files ----


def conflict(notebook) -> bytes:
    """Two versions of problem 3, as git leaves them."""
    lines = json.dumps(notebook, indent=1, sort_keys=True).split("\n")
    start = next(k for k, line in enumerate(lines) if json.dumps(ANSWERS["p3-answer"])[1:-1] in line)
    theirs = lines[start].replace(json.dumps(ANSWERS["p3-answer"]), json.dumps("tier = 'theirs'"))
    return "\n".join(
        [*lines[:start], "<<<<<<< HEAD", lines[start], "=======", theirs, ">>>>>>> branch", *lines[start + 1 :]]
    ).encode()


def version_3(notebook) -> bytes:
    cells = []
    for cell in notebook.cells:
        old = {"cell_type": cell.cell_type, "metadata": cell.metadata}
        if cell.cell_type == "code":
            old |= {"input": cell.source.splitlines(True), "language": "python", "outputs": [], "collapsed": False}
        else:
            old["source"] = [cell.source]
        cells.append(old)
    return text_of({"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": cells}]})


def version_44(notebook) -> bytes:
    for cell in notebook.cells:
        del cell["id"]
    return text_of({**notebook, "nbformat_minor": 4})


def much_output(notebook) -> bytes:
    notebook.cells[1].outputs = [nbformat.v4.new_output("stream", text="x" * (11 * 2**20))]
    return text_of(notebook)


FILES = {
    "format 3": (version_3, "is in notebook format 3.0"),
    "format 4.4": (version_44, "is in notebook format 4.4"),
    "a future format": (lambda nb: text_of({**nb, "nbformat_minor": 9}), "is in notebook format 4.9"),
    "UTF-8 with BOM": (lambda nb: b"\xef\xbb\xbf" + text_of(nb), "is in UTF-8 with a byte order mark"),
    "UTF-16": (lambda nb: text_of(nb).decode().encode("utf-16"), "is in UTF-16"),
    "UTF-16 without BOM": (lambda nb: text_of(nb).decode().encode("utf-16-le"), "is in UTF-16-LE"),
    "one Latin-1 byte": (lambda nb: text_of(nb).replace(b'"cells"', b'"caf\xe9": 1, "cells"', 1), "than UTF-8"),
    "a git conflict": (conflict, "holds git's conflict markers"),
    "text after the end": (lambda nb: text_of(nb) + b'\n}]}, "left": "over"', "goes on after the end"),
    "broken off": (lambda nb: text_of(nb).removesuffix(b"}"), "breaks off before its end"),
    "huge outputs": (much_output, "nearly all of it outputs"),
    "git markers of another tool": (lambda nb: text_of(nb).replace(b"]}", b"]\r\n}"), ""),
}


@pytest.mark.parametrize("kind", FILES)
def test_an_ill_file_is_named_and_mended(kind, handed_in, folder, capsys):
    spoil, words = FILES[kind]
    content = spoil(answered())
    path = handed_in(content)
    done, said = consult(capsys, path)
    assert done == (1 if words else 0) and words in said
    done, said = consult(capsys, "--fix", path)
    assert done == 0, said
    mended = nbformat.read(path, as_version=4)
    assert verdict(mended) == verdict(answered())
    if words:
        assert (folder / f"{NAME}.before-doctor.ipynb").read_bytes() == content
        assert path.read_text("utf-8") == text(mended)
    own = "".join(cell.source for cell in mended.cells if not name_of(cell))
    assert len(mended.cells) == len(answered().cells) + (kind in ("a git conflict", "text after the end"))
    assert ("tier = 'theirs'" in own) == (kind == "a git conflict")
    assert ('"left": "over"' in own) == (kind == "text after the end")


def test_letters_of_two_encodings_in_one_file_are_read():
    cells = b'[{"cell_type": "code", "source": "caf\xe9 caf\xc3\xa9 \x80"}]'
    assert read(b'{"nbformat": 4, "cells": ' + cells + b"}").cells[0].source == "café café €"


def test_what_is_left_of_a_file_that_breaks_off_is_saved(handed_in, capsys):
    whole = text(answered())
    path = handed_in(whole[: int(len(whole) * 0.6)].encode())
    done, said = consult(capsys, "--fix", path)
    assert done == 0 and "breaks off before its end" in said, said
    mended = nbformat.read(path, as_version=4)
    there = [name for name in ANSWERS if f'"{name}"' in whole[: int(len(whole) * 0.6)]]
    assert len(there) > 2
    for name in there[:-1]:
        assert cell_of(mended, name).source == ANSWERS[name]


def test_a_file_may_break_off_at_any_character():
    sources = ['print("a\\\\")', "# \\", "é = '\N{BRAIN}'\n", "last"]
    cells = [code(source, tags=["\\\\"], n=-1.5e-3, yes=True, no=None) for source in sources]
    whole = json.dumps({"cells": cells, "nbformat": 4}, sort_keys=True, indent=1)
    for end in range(1 + whole.index("["), len(whole) - 1):
        found = [cell.source for cell in read(whole[:end].encode()).cells]
        for k, source in enumerate(found):
            assert source == sources[k] or (k == len(found) - 1 and sources[k].startswith(source.rstrip("\ufffd")))


def test_git_markers_inside_an_answer_are_left_to_the_student(handed_in, capsys):
    notebook = answered(ANSWERS | {"p3-answer": "<<<<<<< local\ntier = 1\n=======\ntier = 2\n>>>>>>> remote"})
    path = handed_in(notebook)
    before = path.read_bytes()
    done, said = consult(capsys, "--fix", path)
    assert done == 1 and "problem 3, answer: holds git's conflict markers. Choose one side by hand" in said
    assert path.read_bytes() == before
    other_points(notebook)  # with something to mend beside it
    done, said = consult(capsys, "--fix", handed_in(notebook))
    assert done == 1 and "still to do: problem 3, answer" in said


def zipped(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


NO_NOTEBOOKS = {
    "nothing": (b"", "is empty (0 bytes)"),
    "zero bytes": (bytes(4096), "zero bytes"),
    "a zip": (zipped(**{RELEASE.name: RELEASE.read_bytes()}), "is a zip archive"),
    "a Word document": (
        zipped(**{"[Content_Types].xml": b"<Types/>", "word/document.xml": b"<w/>"}),
        "is a Word document",
    ),
    "a PDF": (b"%PDF-1.7\n", "is a PDF"),
    "a web page": (b"\n<!DOCTYPE html><html>Please log in</html>", "is a web page"),
    "Python": (b"import math\nprint(math.pi)\n", "is Python code"),
    "prose": ("Sehr geehrte Damen und Herren, meine Lösung".encode("latin-1"), "is some other text"),
    "a list": (b"[]", "no list of cells"),
    "JSON": (b'{"name": "x"}', "no list of cells"),
    "cells that are none": (b'{"cells": "p1", "nbformat": 4}', "no list of cells"),
    "broken in the middle": (text_of(answered()).replace(b'"cells": [', b'"cells": [,', 1), "is no JSON"),
    "a beginning": (b'{"cells"', "breaks off before its first cell"),
    "a conflict about nothing": (b"<<<<<<< HEAD\n{\n=======\n>>>>>>> branch\n", "git's conflict markers, and is no"),
    "very deep": (b"[" * 100_000, "nested deeper"),
    "deep inside": (b'{"cells": ' + b"[" * 100_000, "nested deeper"),
    "another notebook": (text_of(nbformat.v4.new_notebook()), "holds no cell of any exercise"),
}


@pytest.mark.parametrize("kind", NO_NOTEBOOKS)
def test_what_is_no_notebook_is_named_and_left_alone(kind, tmp_path, capsys):
    content, words = NO_NOTEBOOKS[kind]
    path = tmp_path / "homework.ipynb"
    path.write_bytes(content)
    done, said = consult(capsys, "--fix", path)
    assert done == 2 and words in said
    assert path.read_bytes() == content and [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("name", ["nowhere.ipynb", ""])
def test_a_file_that_is_not_there_is_named(name, tmp_path, capsys):
    done, said = consult(capsys, tmp_path / name)
    assert done == 2 and ("no such file" in said or "a folder without a notebook" in said)


def nests(values):
    return st.lists(values, max_size=4) | st.dictionaries(
        st.sampled_from(["cells", "cell_type", "source", "metadata", "nbgrader", "grade_id", "id", "nbformat", "x"]),
        values,
        max_size=6,
    )


ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=9)
    | st.sampled_from(["code", "markdown", "p3-answer", "p3-tier", "p3"]),
    nests,
    max_leaves=12,
)


def survives(data: bytes) -> None:
    release = nbformat.read(RELEASE, as_version=4)
    try:
        found = place(read(data), release)
    except Unreadable as error:
        assert str(error)
        return
    for finding in found.findings:
        assert str(finding)
    mended = rebuilt(found)
    text(mended).encode()
    assert place(read(text_of(mended)), release).findings == [f for f in found.findings if not f.mended]


@quick
@given(st.binary(max_size=300))
def test_any_bytes_are_survived(data):
    survives(data)


@settings(max_examples=60, deadline=None)
@given(st.lists(ODD, max_size=4), ODD, ODD)
def test_any_json_is_survived(cells, number, metadata):
    survives(json.dumps({"cells": cells, "nbformat": number, "metadata": metadata}).encode())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 30), st.sampled_from(["cell_type", "source", "metadata", "id", "outputs", "attachments"]), ODD)
def test_any_value_anywhere_in_a_cell_is_survived(k, key, value):
    notebook = answered()
    notebook.cells[k % len(notebook.cells)][key] = value
    if key != "source":
        notebook.cells[(k + 1) % len(notebook.cells)].metadata["nbgrader"] = value
    notebook.cells.append({"cell_type": "code", "source": "1", key: value})
    survives(json.dumps(notebook).encode())


@quick
@given(st.integers(0, 10**6), st.integers(0, 300), st.binary(max_size=9))
def test_a_damaged_file_is_survived(start, length, put):
    data = text_of(answered())
    start %= len(data)
    survives(data[:start] + put + data[start + length :])


# ---- names and folders ----


@pytest.mark.parametrize(
    "name",
    [f"{NAME} (1).ipynb", f"{NAME}_final.ipynb", "Untitled.ipynb", f"{NAME}.ipynb.txt", "10_flops.ipynb", "-é.ipynb"],
)
def test_a_wrong_name_is_mended_without_touching_the_content(name, handed_in, folder, capsys, monkeypatch):
    path = handed_in(answered(), name)
    content = path.read_bytes()
    done, said = consult(capsys, path)
    assert done == 1 and f"is called {name}; the grader looks for {NAME}.ipynb" in said
    assert consult(capsys, "--fix", path)[0] == 0
    assert [*folder.iterdir()] == [folder / f"{NAME}.ipynb"]
    assert (folder / f"{NAME}.ipynb").read_bytes() == content


def test_a_wrong_name_and_a_wrong_cell_are_mended_together(handed_in, folder, capsys):
    notebook = answered()
    other_points(notebook)
    path = handed_in(notebook, f"{NAME} (1).ipynb")
    content = path.read_bytes()
    assert consult(capsys, "--fix", path)[0] == 0
    assert (folder / f"{NAME} (1).before-doctor.ipynb").read_bytes() == content
    assert sorted(p.name for p in folder.iterdir()) == [f"{NAME} (1).before-doctor.ipynb", f"{NAME}.ipynb"]


def test_no_other_file_is_overwritten(handed_in, folder, capsys):
    notebook = answered()
    other_points(notebook)
    right, copy = handed_in(answered({})), handed_in(notebook, f"{NAME} (1).ipynb")
    old = folder / f"{NAME} (1).before-doctor.ipynb"
    old.write_text("an older backup")
    before = right.read_bytes()
    done, said = consult(capsys, "--fix", copy)
    assert done == 1 and "Another file here has that name" in said and "still to do" in said
    assert right.read_bytes() == before and old.read_text() == "an older backup"
    assert (folder / f"{NAME} (1).before-doctor-2.ipynb").read_bytes() == text_of(notebook)
    assert verdict(nbformat.read(copy, as_version=4)) == verdict(answered())


def test_several_notebooks_of_one_exercise_are_not_merged(handed_in, folder, capsys):
    handed_in(answered()), handed_in(answered({}), f"{NAME}_final.ipynb")
    handed_in(answered({}), f"{NAME}.before-doctor.ipynb")  # a backup is none of them
    (folder / ".ipynb_checkpoints").mkdir()
    shutil.copy(RELEASE, folder / ".ipynb_checkpoints")
    done, said = consult(capsys, folder)
    assert done == 1 and f"2 notebooks answer {NAME}: hand in one" in said


def test_notebooks_of_several_students_are_not_taken_for_one_person_s(tmp_path, capsys):
    for student in ("a", "b"):
        (tmp_path / student / NAME).mkdir(parents=True)
        shutil.copy(RELEASE, tmp_path / student / NAME)
    done, said = consult(capsys, tmp_path)
    assert done == 0 and "hand in one" not in said
    shutil.copy(RELEASE, tmp_path / "a" / NAME / "second.ipynb")
    done, said = consult(capsys, tmp_path)
    assert done == 1 and f"2 notebooks answer {NAME}: hand in one" in said


def test_a_wrong_folder_is_named(tmp_path, capsys):
    (tmp_path / "10_flops").mkdir()
    path = tmp_path / "10_flops" / RELEASE.name
    shutil.copy(RELEASE, path)
    done, said = consult(capsys, "--fix", path)
    assert done == 1 and "lies in 10_flops/" in said and path.is_file()


def test_files_of_the_course_are_not_written(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "ROOT", tmp_path)
    path = tmp_path / "exercises" / NAME / RELEASE.name
    path.parent.mkdir(parents=True)
    shutil.copy(RELEASE, path)
    done, said = consult(capsys, "--fix", path)
    assert done == 1 and "belongs to the course" in said
    (tmp_path / "exercises" / "10_flops").mkdir()
    other = tmp_path / "exercises" / "10_flops" / "10_flops.ipynb"
    other.write_text(
        (ROOT / "exercises" / "10_flops" / other.name).read_text("utf-8").replace("flops", "flips"), "utf-8"
    )
    assert consult(capsys, path)[0] == 1  # another exercise that somebody changed is of no matter
    notebook = answered()
    other_points(notebook)
    path.write_bytes(text_of(notebook))
    done, said = consult(capsys, "--fix", path)
    assert done == 2 and "(problem 1, answer was changed)" in said and "git checkout exercises" in said
    done, said = consult(capsys, "--fix", "--release", RELEASE, path)
    assert done == 2 and "nothing is repaired" in said and path.read_bytes() == text_of(notebook)


def test_another_release_can_be_named(handed_in, tmp_path, capsys):
    notebook = answered()
    other_points(notebook)
    path = handed_in(notebook)
    assert consult(capsys, "--release", RELEASE, path)[0] == 1
    assert consult(capsys, "--release", tmp_path / "none.ipynb", path)[0] == 2
    (tmp_path / "own.ipynb").write_text(text(nbformat.v4.new_notebook(cells=[code("1")])), encoding="utf-8")
    done, said = consult(capsys, "--release", tmp_path / "own.ipynb", path)
    assert done == 2 and "no release of nbgrader" in said
    notebook = nbformat.read(RELEASE, as_version=4)
    notebook.cells[0].source += "!"
    (tmp_path / f"{NAME}.ipynb").write_text(text(notebook), encoding="utf-8")
    done, said = consult(capsys, "--release", tmp_path / f"{NAME}.ipynb", path)
    assert done == 2 and "the cell 'intro' was changed" in said


def test_a_folder_that_cannot_be_written_is_no_traceback(handed_in, capsys, monkeypatch):
    notebook = answered()
    other_points(notebook)
    path = handed_in(notebook)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(doctor, "write_if_changed", full)
    done, said = consult(capsys, "--fix", path)
    assert done == 2 and "No space left on device" in said
    assert path.read_bytes() == text_of(notebook)


# ---- the command, and the mark ----


def test_the_command_line_without_a_command_prints_what_there_is(capsys):
    assert main([]) == 0
    assert "doctor" in capsys.readouterr().out


def test_the_command_runs_where_a_console_knows_no_symbols(handed_in):
    path = handed_in(answered(), f"{NAME} (1).ipynb")
    done = subprocess.run(
        [sys.executable, "-m", "classroom", "doctor", "--fix", path],
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PATH": "/nowhere"},
        cwd=path.parent,
    )
    assert done.returncode == 0 and b"is healthy" in done.stdout and done.stderr == b""


def test_repaired_notebooks_get_full_marks_from_nbgrader(tmp_path):
    """One student an illness; every one of them with right answers."""
    released = build(NAME, tmp_path)
    config = course.settings(tmp_path)
    ills = [as_markdown, without_ids, moved_answer, copied_answer, edited_check, deleted_check, other_points]
    spoiled = {change.__name__.replace("_", "-"): change for change in ills}
    for student, change in spoiled.items():
        folder = tmp_path / "submitted" / student / NAME
        folder.mkdir(parents=True)
        notebook = answered()
        change(notebook)
        shuffled = random.Random(0).sample(notebook.cells, len(notebook.cells)) if student == "moved-answer" else None
        notebook.cells = shuffled or notebook.cells
        (folder / f"{NAME} (1).ipynb").write_bytes(text_of(notebook))
        assert main(["doctor", "--fix", str(folder)]) == 0
    assert course.autograde(config, NAME)
    full = {name_of(cell): cell.metadata.nbgrader.points for cell in answered().cells if is_grade(cell)}
    assert full and released.is_dir()
    assert course.marks(config, NAME) == dict.fromkeys(spoiled, full)
