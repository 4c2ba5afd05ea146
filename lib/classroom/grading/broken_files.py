"""Broken files: how a student's folder may look, and what must come of it."""

from __future__ import annotations

import io
import json
import os
import socket
import zipfile
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbgrader.utils import compute_checksum, is_solution

from classroom.grading import course, handed_in
from classroom.grading.course import ROOT
from classroom.matching import name_of

NAME = "06_norms"  # it has an essay, which a person marks
FILE = f"{NAME}.ipynb"
RELEASE = nbformat.read(ROOT / "exercises" / NAME / FILE, as_version=4)
ANSWERS = course.answers(nbformat.read(ROOT / "solutions" / NAME / FILE, as_version=4))
ALL, SOME, NONE = "all answers", "some answers", "no answer"


@dataclass(frozen=True)
class Broken:
    """`build` fills the student's folder; then so many answers are found, and the findings say this."""

    build: Callable[[Path], object]
    found: str
    says: str = ""
    flag: str = ""


def answered(answers: dict[str, str] = ANSWERS) -> nbformat.NotebookNode:
    """The released notebook with these answers."""
    notebook = deepcopy(RELEASE)
    for cell in notebook.cells:
        if is_solution(cell):
            cell.source = answers.get(name_of(cell), cell.source)
    return notebook


def cell_of(notebook: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    return next(cell for cell in notebook.cells if name_of(cell) == name)


def data(notebook: dict) -> bytes:
    return json.dumps(notebook, ensure_ascii=False).encode()


RIGHT, UNTOUCHED = data(answered()), data(RELEASE)


def code(source: str, **metadata) -> dict:
    return {"cell_type": "code", "id": "own", "source": source, "metadata": metadata} | {
        "outputs": [],
        "execution_count": None,
    }


# ---- builders ----


def file(content: bytes, name: str | bytes = FILE) -> Callable[[Path], object]:
    """One file of this content, in a folder of the folder if the name says so."""

    def build(folder: Path) -> None:
        path = folder / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return build


def files(contents: dict[str, bytes]) -> Callable[[Path], object]:
    return lambda folder: [file(content, name)(folder) for name, content in contents.items()]


def changed(change: Callable[[nbformat.NotebookNode], object]) -> Callable[[Path], object]:
    """The right answers in a notebook with which something was done."""

    def build(folder: Path) -> None:
        notebook = answered()
        change(notebook)
        file(data(notebook))(folder)

    return build


def zipped(members: dict[str, bytes], name: str = f"{NAME}.zip", **attributes) -> Callable[[Path], object]:
    return file(packed(members, **attributes), name)


def packed(members: dict[str, bytes], **attributes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            for key, value in attributes.items():
                setattr(entry, key, value)
            archive.writestr(entry, content)
    return stream.getvalue()


def linked(folder: Path) -> None:
    secret = folder.parent.parent / "outside.ipynb"
    secret.write_bytes(RIGHT)
    (folder / FILE).symlink_to(secret)


def folder_is_a_link(folder: Path) -> None:
    outside = folder.parent.parent / "outside"
    file(RIGHT)(outside)
    folder.rmdir()
    folder.symlink_to(outside)


def folder_is_a_file(folder: Path) -> None:
    folder.rmdir()
    folder.write_bytes(RIGHT)


def piped(folder: Path) -> None:
    os.mkfifo(folder / FILE)


def socketed(folder: Path) -> None:
    here = os.getcwd()
    os.chdir(folder)  # the name of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(FILE)
    finally:
        os.chdir(here)


def sparse(folder: Path) -> None:
    with (folder / FILE).open("wb") as huge:
        huge.truncate(10 * handed_in.LARGEST)


def locked_away(folder: Path) -> None:
    """Not for root, whom no permission stops: the test takes the right to read away in another way."""
    file(RIGHT)(folder)
    (folder / FILE).chmod(0)


def version_3(folder: Path) -> None:
    cells = []
    for cell in answered().cells:
        old = {"cell_type": cell.cell_type, "metadata": cell.metadata}
        old |= {"input": cell.source.splitlines(True)} if cell.cell_type == "code" else {"source": [cell.source]}
        cells.append(old)
    file(data({"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": cells}]}))(folder)


# ---- what is done to a notebook ----


def each(change: Callable[[nbformat.NotebookNode], object]) -> Callable[[Path], object]:
    return changed(lambda notebook: [change(cell) for cell in notebook.cells])


def retyped(kind: str) -> Callable[[Path], object]:
    def change(cell: nbformat.NotebookNode) -> None:
        cell["cell_type"] = kind
        cell.pop("outputs", None), cell.pop("execution_count", None)

    return each(change)


def without_tests(notebook: nbformat.NotebookNode) -> None:
    notebook.cells = [cell for cell in notebook.cells if is_solution(cell)]


def copied_answers(notebook: nbformat.NotebookNode) -> None:
    notebook.cells += [cell for cell in deepcopy(RELEASE.cells) if is_solution(cell)]


def skipped(cell: nbformat.NotebookNode) -> None:
    cell.metadata.tags = ["skip-execution", "raises-exception", "remove-cell"]


def richer(cell: nbformat.NotebookNode) -> None:
    cell.metadata.nbgrader |= {"points": 1000, "extra_credit": 99, "grade": True, "solution": True, "locked": False}


def passing(notebook: nbformat.NotebookNode) -> None:
    for cell in notebook.cells:
        if cell.metadata.nbgrader.grade:
            cell.source = "pass"


def in_new_cells(notebook: nbformat.NotebookNode) -> None:
    notebook.cells = [code(cell.source) if is_solution(cell) else cell for cell in notebook.cells]


def checksums_forged(notebook: nbformat.NotebookNode) -> None:
    for cell in notebook.cells:
        if cell.metadata.nbgrader.grade:
            cell.source = "pass"
            cell.metadata.nbgrader.checksum = compute_checksum(cell)


def renumbered(notebook: nbformat.NotebookNode) -> None:
    for cell in notebook.cells:
        cell.metadata.nbgrader.grade_id = f"mine-{cell.metadata.nbgrader.grade_id}"


def deep(levels: int) -> bytes:
    return RIGHT.replace(
        b'"metadata": {"deletable"', b'"metadata": {"x": %b, "deletable"' % (b"[" * levels + b"]" * levels)
    )


def many(cell: dict, number: int) -> Callable[[Path], object]:
    return changed(lambda notebook: notebook.cells.extend([cell] * number))


def outputs_of(megabytes: int) -> Callable[[nbformat.NotebookNode], object]:
    def change(notebook: nbformat.NotebookNode) -> None:
        text = ["x" * 999 + "\n"] * (megabytes * 1000)
        notebook.cells[1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": text}]

    return change


def too_long(notebook: nbformat.NotebookNode) -> None:
    cell_of(notebook, "p3-answer").source += "\n# x" * 1_000_000


def lone_surrogate(notebook: nbformat.NotebookNode) -> None:
    cell_of(notebook, "p8-answer").source += "\n# SURROGATE"


def surrogate_in_an_id(notebook: nbformat.NotebookNode) -> None:
    notebook.cells.append(code("x = 1", nbgrader={"grade_id": "SURROGATE", "solution": True}))


def with_half_characters(change: Callable[[nbformat.NotebookNode], object]) -> Callable[[Path], object]:
    notebook = answered()
    change(notebook)
    return file(data(notebook).replace(b"SURROGATE", rb"\ud83d"))


CONFLICT = b"<<<<<<< HEAD\n" + RIGHT + b"\n=======\n" + UNTOUCHED + b"\n>>>>>>> theirs\n"
ZIP = packed({FILE: RIGHT})
ENCRYPTED = ZIP.replace(b"PK\1\2\x14\3\x14\0\0", b"PK\1\2\x14\3\x14\0\1")  # the flag in its directory
LATIN = json.dumps({**answered(), "cells": [*answered().cells, code("'CAFE'")]}).encode().replace(b"CAFE", b"caf\xe9")
CHECKPOINT = f".ipynb_checkpoints/{NAME}-checkpoint.ipynb"
RENAMED = "was taken for 06_norms.ipynb. Hand it in under that name"
NO_NOTEBOOK = "no notebook was found for 06_norms"
OTHER = (ROOT / "exercises" / "04_masks" / "04_masks.ipynb").read_bytes()

BROKEN: dict[str, Broken] = {
    # names and folders
    "nothing wrong": Broken(file(RIGHT), ALL),
    "an empty folder": Broken(lambda folder: None, NONE, "There is: nothing"),
    "no folder": Broken(lambda folder: folder.rmdir(), NONE, "cannot be opened"),
    "another kind of file": Broken(file(b"%PDF-1.7", "solution.pdf"), NONE, "There is: solution.pdf. Hand in 06_"),
    "spaces in its name": Broken(file(RIGHT, f" {NAME} final .ipynb"), ALL, RENAMED),
    "quotes in its name": Broken(file(RIGHT, 'it\'s "mine"; rm -rf *.ipynb'), ALL, RENAMED),
    "dots in its name": Broken(file(RIGHT, "..06.norms..ipynb"), ALL, RENAMED),
    "a dash before its name": Broken(file(RIGHT, "-rf.ipynb"), ALL, RENAMED),
    "a name in other scripts": Broken(file(RIGHT, "упражнение-练习-تمرين-🧠.ipynb"), ALL, RENAMED),
    "a name that is no UTF-8": Broken(file(RIGHT, b"06_n\xf6rms.ipynb"), ALL, RENAMED),
    "line ends in its name": Broken(file(RIGHT, "06\nnorms\r.ipynb"), ALL, RENAMED),
    "a browser's number": Broken(file(RIGHT, f"{NAME} (1).ipynb"), ALL, RENAMED),
    "text's ending": Broken(file(RIGHT, f"{FILE}.txt"), ALL, RENAMED),
    "capital letters": Broken(file(RIGHT, "06_NORMS.IPYNB"), ALL, RENAMED),
    "JSON's ending": Broken(file(RIGHT, "homework.json"), ALL, RENAMED),
    "no ending": Broken(file(RIGHT, NAME), ALL, RENAMED),
    "a checkpoint's name": Broken(file(RIGHT, f"{NAME}-checkpoint.ipynb"), ALL, RENAMED),
    "a checkpoint alone": Broken(file(RIGHT, CHECKPOINT), ALL, "JupyterLab's own copy"),
    "an empty notebook and a checkpoint": Broken(files({FILE: b"", CHECKPOINT: RIGHT}), ALL, "JupyterLab's own copy"),
    "an older checkpoint": Broken(files({FILE: RIGHT, CHECKPOINT: UNTOUCHED}), ALL),
    "a doctor's backup": Broken(files({FILE: RIGHT, f"{NAME}.before-doctor.ipynb": UNTOUCHED}), ALL),
    "a folder in the folder": Broken(file(RIGHT, f"{NAME}/{NAME}/{FILE}"), ALL, RENAMED),
    "a folder too deep": Broken(file(RIGHT, f"1/2/3/4/5/6/7/{FILE}"), NONE, "lies too deep in folders"),
    "a folder of its name": Broken(lambda folder: (folder / FILE).mkdir(), NONE, "is a folder under a notebook's name"),
    "in a folder of its name": Broken(file(RIGHT, f"{FILE}/{FILE}"), ALL, "is a folder under a notebook's name"),
    "several notebooks": Broken(
        files({FILE: RIGHT, "old.ipynb": UNTOUCHED}), ALL, "old.ipynb: was left out", "several notebooks"
    ),
    "several, none of its name": Broken(
        files({"a.ipynb": data({**RELEASE, "cells": RELEASE.cells[:30]}), "b.ipynb": RIGHT, "c.ipynb": OTHER}),
        ALL,
        "b.ipynb: was taken",
        "several notebooks",
    ),
    "several copies, one answered": Broken(
        files({f"{NAME} (2).ipynb": UNTOUCHED, f"{NAME} (1).ipynb": RIGHT}), ALL, "(2).ipynb: was left out", "several"
    ),
    "another exercise under its name": Broken(
        files({FILE: OTHER, f"{NAME} (1).ipynb": RIGHT}), ALL, "06_norms.ipynb: was left out"
    ),
    "its name on an unreadable file": Broken(files({FILE: b"{", "mine.ipynb": RIGHT}), ALL, "mine.ipynb: was taken"),
    "another exercise": Broken(file(OTHER), NONE, "holds hardly any cell of this exercise"),
    "very many files": Broken(
        lambda folder: [(folder / f"00{k:04}.png").touch() for k in range(handed_in.MOST + 10)] + [file(RIGHT)(folder)],
        ALL,
        "holds more than 5000 entries",
    ),
    "very many notebooks": Broken(
        files({**{f"{k}.ipynb": UNTOUCHED for k in range(30)}, FILE: RIGHT}),
        ALL,
        "more files were not looked at",
        "sev",
    ),
    # what is no plain file
    "a link to elsewhere": Broken(linked, NONE, "06_norms.ipynb: is a link, and was not opened"),
    "a link for a folder": Broken(folder_is_a_link, NONE, "is a link, and was not followed"),
    "a link that leads to itself": Broken(lambda f: (f / FILE).symlink_to(FILE), NONE, "is a link"),
    "a link to a device": Broken(lambda f: (f / FILE).symlink_to(os.devnull), NONE, "is a link"),
    "a pipe": Broken(piped, NONE, "is a pipe, a socket or a device"),
    "a socket": Broken(socketed, NONE, "is a pipe, a socket or a device"),
    "a file for a folder": Broken(folder_is_a_file, NONE, "is a file where a folder should be"),
    "no right to read": Broken(locked_away, NONE, "cannot be read (Permission denied)"),
    "a huge file": Broken(sparse, NONE, "MB, and was not read"),
    # archives
    "a zip": Broken(zipped({FILE: RIGHT}), ALL, "06_norms.zip, in it 06_norms.ipynb: was taken"),
    "a zip with a folder and a Mac's files": Broken(
        zipped({f"{NAME}/{FILE}": RIGHT, f"__MACOSX/{NAME}/._{FILE}": b"\0\5"}), ALL, "not an archive"
    ),
    "a zip under a notebook's name": Broken(file(ZIP, FILE), ALL, "not an archive"),
    "a zip beside the notebook": Broken(files({FILE: RIGHT, "a.zip": packed({FILE: UNTOUCHED})}), ALL, "was left out"),
    "a zip that climbs out": Broken(zipped({f"../../{FILE}": RIGHT}), NONE, "leads out of the archive"),
    "a zip with absolute paths": Broken(zipped({f"/etc/{FILE}": RIGHT}), NONE, "leads out of the archive"),
    "a zip with a drive": Broken(zipped({rf"C:\{FILE}": RIGHT}), NONE, "leads out of the archive"),
    "a zip with a link": Broken(zipped({FILE: b"/etc/passwd"}, external_attr=0o120777 << 16), NONE, "is a link"),
    "a zip in a zip": Broken(zipped({"inner.zip": ZIP}), NONE, "an archive in an archive"),
    "an encrypted zip": Broken(file(ENCRYPTED, "a.zip"), NONE, "is encrypted"),
    "a zip that unpacks to too much": Broken(
        zipped({FILE: bytes(handed_in.LARGEST + 1)}), NONE, "is damaged or too large"
    ),
    "a damaged zip": Broken(file(ZIP[:-30], "a.zip"), NONE, "is no zip archive that can be opened"),
    "a zip with damaged content": Broken(
        file(ZIP[:100] + bytes(500) + ZIP[600:], "a.zip"), NONE, "is damaged or too large"
    ),
    "a zip without a notebook": Broken(zipped({"a.py": b"x = 1"}), NONE, "no notebook was found in it"),
    "a zip of very many files": Broken(zipped({f"{k}": b"" for k in range(5001)}), NONE, "more than 5000 files"),
    # bytes and text
    "an empty file": Broken(file(b""), NONE, "is empty (0 bytes)"),
    "zero bytes": Broken(file(bytes(4096)), NONE, "zero bytes"),
    "broken off in the middle": Broken(file(RIGHT[: len(RIGHT) * 6 // 10]), SOME, "breaks off before its end"),
    "broken off at the end": Broken(file(RIGHT[:-1]), ALL, "breaks off before its end"),
    "goes on after its end": Broken(file(RIGHT + b'}]}, "x": 1'), ALL, "goes on after the end"),
    "twice in one file": Broken(file(RIGHT + RIGHT), ALL, "goes on after the end"),
    "UTF-8 with a mark": Broken(file(b"\xef\xbb\xbf" + RIGHT), ALL, "a byte order mark"),
    "UTF-16": Broken(file(RIGHT.decode().encode("utf-16")), ALL, "is in UTF-16"),
    "UTF-32": Broken(file(RIGHT.decode().encode("utf-32-be")), ALL, "is in UTF-32"),
    "Latin-1": Broken(file(LATIN), ALL, "than UTF-8"),
    "one byte of Latin-1": Broken(file(RIGHT.replace(b'"cells"', b'"caf\xe9": 1, "cells"', 1)), ALL, "than UTF-8"),
    "half a character": Broken(with_half_characters(lone_surrogate), ALL, "holds half a character"),
    "half a character in an id": Broken(with_half_characters(surrogate_in_an_id), ALL, "which the exercise does not"),
    "Windows line ends": Broken(file(json.dumps(answered(), indent=1).replace("\n", "\r\n").encode()), ALL),
    "a git conflict": Broken(file(CONFLICT), ALL, "holds git's conflict markers"),
    "a web page": Broken(file(b"<!DOCTYPE html><p>Please log in"), NONE, "is a web page"),
    "Python": Broken(file(b"import math\n"), NONE, "is Python code"),
    # JSON
    "a list": Broken(file(b"[]"), NONE, "no list of cells"),
    "a number": Broken(file(b"1e999"), NONE, "no list of cells"),
    "nested too deeply": Broken(file(b"[" * 100_000), NONE, "nested deeper"),
    "metadata nested deeply": Broken(file(deep(400)), ALL),
    "metadata nested too deeply": Broken(file(deep(5000)), NONE, "nested deeper"),
    "NaN": Broken(changed(lambda nb: nb.metadata.update(x=float("nan"), y=float("inf"))), ALL),
    "huge numbers": Broken(file(RIGHT.replace(b'{"kernelspec"', b'{"x": ' + b"9" * 9999 + b', "kernelspec"')), ALL),
    "a huge format number": Broken(
        file(RIGHT.replace(b'"nbformat": 4', b'"nbformat": ' + b"9" * 300)), ALL, "format ?"
    ),
    "keys twice": Broken(file(b'{"cells": [], ' + RIGHT[1:]), ALL),
    "lists without end": Broken(file(b'{"cells": [' + b"[]," * 2_100_000), NONE, "more lists, values or lines"),
    # the notebook's format
    "format 3": Broken(version_3, ALL, "is in notebook format 3.0"),
    "format 4.0": Broken(file(data({**answered(), "nbformat_minor": 0})), ALL, "is in notebook format 4.0"),
    "format 5": Broken(file(data({**answered(), "nbformat": 5})), ALL, "is in notebook format 5."),
    "a format that is text": Broken(file(data({**answered(), "nbformat": "four"})), ALL, "is in notebook format ?"),
    "no cells": Broken(file(data({**RELEASE, "cells": []})), NONE, "holds hardly any cell of this"),
    "cells that are text": Broken(file(data({**RELEASE, "cells": "all"})), NONE, "no list of cells"),
    "cells that are numbers": Broken(file(data({**RELEASE, "cells": [1, None, "x"]})), NONE, "is no cell, but a bare"),
    "cells without a type": Broken(each(lambda cell: cell.pop("cell_type")), ALL, "which kind of cell"),
    "cells without an id": Broken(each(lambda cell: cell.pop("id")), ALL, "has no valid cell id"),
    "cells with one id": Broken(each(lambda cell: cell.update(id="same")), ALL, "shares its cell id"),
    "cells without a source": Broken(each(lambda cell: cell.pop("source")), NONE, "was changed"),
    "sources as lists": Broken(each(lambda cell: cell.update(source=cell["source"].splitlines(True))), ALL),
    "sources as numbers": Broken(each(lambda cell: cell.update(source=1)), SOME, "has a source that is no text"),
    "metadata that is text": Broken(each(lambda cell: cell.update(metadata="none")), ALL, "has lost nbgrader's id"),
    "outputs that are text": Broken(each(lambda cell: cell.update(outputs="none")), ALL, "is no valid notebook"),
    "attachments that are a number": Broken(each(lambda cell: cell.update(attachments=1)), ALL, "is no valid notebook"),
    "100 MB of outputs": Broken(changed(outputs_of(100)), ALL, "nearly all of it outputs"),
    "50,000 cells": Broken(many(code("x = 1"), 50_000), ALL, "50000 cells of your own", "left out"),
    "200,000 cells": Broken(many({"cell_type": "raw", "source": ""}, 200_000), NONE, "more than any notebook"),
    "a very long answer": Broken(changed(too_long), SOME, "its text was not taken"),
    # nbgrader's settings and cells
    "settings that are text": Broken(
        each(lambda cell: cell.metadata.update(nbgrader="solution")), ALL, "has lost nbgrader's id"
    ),
    "no settings": Broken(each(lambda cell: cell.update(metadata={})), ALL, "has lost nbgrader's id"),
    "an old schema": Broken(each(lambda cell: cell.metadata.nbgrader.update(schema_version=1)), ALL, "other settings"),
    "points as text": Broken(each(lambda cell: cell.metadata.nbgrader.update(points="1")), ALL, "other settings"),
    "more points": Broken(each(richer), ALL, "points 1000, not 1"),
    "tags that skip cells": Broken(each(skipped), ALL),
    "other ids": Broken(changed(renumbered), ALL, "has the unknown id 'mine-"),
    "ids that are numbers": Broken(each(lambda cell: cell.metadata.nbgrader.update(grade_id=7)), ALL, "has lost nbgr"),
    "tests edited": Broken(changed(passing), ALL, "was changed; it is a given cell"),
    "tests edited, with forged checksums": Broken(changed(checksums_forged), ALL, "from an older release"),
    "answers in new cells": Broken(changed(in_new_cells), ALL, "has lost nbgrader's id"),
    "tests deleted": Broken(changed(without_tests), ALL, "is missing"),
    "tests copied": Broken(changed(lambda nb: nb.cells.extend(deepcopy(nb.cells))), ALL, "is there 2 times"),
    "untouched answers copied below": Broken(changed(copied_answers), ALL, "is there 2 times"),
    "all cells markdown": Broken(retyped("markdown"), ALL, "is a markdown cell; it was given as a code cell"),
    "all cells raw": Broken(retyped("raw"), ALL, "is a raw cell"),
    "cells reversed": Broken(changed(lambda nb: nb.cells.reverse()), ALL, "was moved"),
    "untouched": Broken(file(UNTOUCHED), NONE),
}
