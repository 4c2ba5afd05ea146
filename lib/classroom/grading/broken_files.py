"""Broken files: how a student's folder may look, and what must come of it."""

from __future__ import annotations

import io
import json
import os
import socket
import zipfile
from pathlib import Path

from nbformat import NotebookNode

from classroom.grading import broken_cells, handed_in
from classroom.grading.broken import ALL, NONE, SOME, Broken, Build, Whole, cell_of, code, data

UNREADABLE = "no right to read"  # the superuser may read it all the same


def table(assignment: str, release: NotebookNode, answers: dict[str, str]) -> dict[str, Broken]:
    """Every known way to hand in something broken, by what it is, for an assignment with one notebook.

    `release` is what students were given, `answers` maps its answer cells to right sources. Makes no file.
    """
    whole = Whole(assignment, release, answers)
    return names(whole) | copies(whole) | no_files(whole) | archives(whole) | texts(whole) | broken_cells.table(whole)


def names(whole: Whole) -> dict[str, Broken]:
    """One notebook under another name, in another place, or none."""
    name, file, right = whole.name, whole.file, whole.right
    renamed = f"was taken for {name}.ipynb. Hand it in under that name"
    too_deep = f"1/2/3/4/5/6/7/{name}.ipynb"
    return {
        "nothing wrong": Broken(file(right), ALL),
        "untouched": Broken(file(whole.untouched), NONE),
        "an empty folder": Broken(lambda folder: None, NONE, "There is: nothing"),
        "no folder": Broken(lambda folder: folder.rmdir(), NONE, "cannot be opened"),
        "another kind of file": Broken(
            file(b"%PDF-1.7", "solution.pdf"), NONE, f"There is: solution.pdf. Hand in {name}"
        ),
        "spaces in its name": Broken(file(right, f" {name} final .ipynb"), ALL, renamed),
        "quotes in its name": Broken(file(right, 'it\'s "mine"; rm -rf *.ipynb'), ALL, renamed),
        "dots in its name": Broken(file(right, f"..{name.replace('_', '.')}..ipynb"), ALL, renamed),
        "a dash before its name": Broken(file(right, "-rf.ipynb"), ALL, renamed),
        "a name in other scripts": Broken(file(right, "упражнение-练习-تمرين-🧠.ipynb"), ALL, renamed),
        "a name that is no UTF-8": Broken(file(right, b"%b\xf6.ipynb" % name[:-1].encode()), ALL, renamed),
        "line ends in its name": Broken(file(right, name.replace("_", "\n") + "\r.ipynb"), ALL, renamed),
        "a browser's number": Broken(file(right, f"{name} (1).ipynb"), ALL, renamed),
        "text's ending": Broken(file(right, f"{name}.ipynb.txt"), ALL, renamed),
        "capital letters": Broken(file(right, f"{name}.ipynb".upper()), ALL, renamed),
        "JSON's ending": Broken(file(right, "homework.json"), ALL, renamed),
        "no ending": Broken(file(right, name), ALL, renamed),
        "a checkpoint's name": Broken(file(right, f"{name}-checkpoint.ipynb"), ALL, renamed),
        "a folder in the folder": Broken(file(right, f"{name}/{name}/{name}.ipynb"), ALL, renamed),
        "a folder too deep": Broken(file(right, too_deep), NONE, "lies too deep in folders"),
        "in a folder of its name": Broken(
            file(right, f"{name}.ipynb/{name}.ipynb"), ALL, "is a folder under a notebook's name"
        ),
        "another exercise": Broken(file(whole.other), NONE, "holds hardly any cell of this exercise"),
    }


def copies(whole: Whole) -> dict[str, Broken]:
    """Several files, of which one should be taken."""
    name, own, files, right, old = whole.name, whole.file_name, whole.files, whole.right, whole.untouched
    checkpoint = f".ipynb_checkpoints/{name}-checkpoint.ipynb"
    beginning = whole.release.cells[: len(whole.release.cells) * 7 // 10]
    several = {"a.ipynb": data({**whole.release, "cells": beginning}), "b.ipynb": right, "c.ipynb": whole.other}
    numbered = {f"{name} (2).ipynb": old, f"{name} (1).ipynb": right}

    def very_many(folder: Path) -> None:
        for k in range(handed_in.MOST + 10):
            (folder / f"00{k:04}.png").touch()
        whole.file(right)(folder)

    return {
        "a checkpoint alone": Broken(files({checkpoint: right}), ALL, "JupyterLab's own copy"),
        "an empty notebook and a checkpoint": Broken(files({own: b"", checkpoint: right}), ALL, "JupyterLab's own"),
        "an older checkpoint": Broken(files({own: right, checkpoint: old}), ALL),
        "a doctor's backup": Broken(files({own: right, f"{name}.before-doctor.ipynb": old}), ALL),
        "several notebooks": Broken(
            files({own: right, "old.ipynb": old}), ALL, "old.ipynb: was left out", "several notebooks"
        ),
        "several, none of its name": Broken(files(several), ALL, "b.ipynb: was taken", "several notebooks"),
        "several copies, one answered": Broken(files(numbered), ALL, "(2).ipynb: was left out", "several"),
        "another exercise under its name": Broken(
            files({own: whole.other, f"{name} (1).ipynb": right}), ALL, f"{own}: was left out"
        ),
        "its name on an unreadable file": Broken(files({own: b"{", "mine.ipynb": right}), ALL, "mine.ipynb: was taken"),
        "very many files": Broken(very_many, ALL, f"holds more than {handed_in.MOST} entries"),
        "very many notebooks": Broken(
            files({**{f"{k}.ipynb": old for k in range(30)}, own: right}), ALL, "more files were not looked at", "sev"
        ),
    }


# ---- what is no plain file ----


def no_files(whole: Whole) -> dict[str, Broken]:
    own, right = whole.file_name, whole.file(whole.right)

    def linked(folder: Path) -> None:
        whole.file(whole.right, "outside.ipynb")(folder.parent)
        (folder / own).symlink_to(folder.parent / "outside.ipynb")

    def folder_is_a_link(folder: Path) -> None:
        right(folder.parent / "outside")
        folder.rmdir()
        folder.symlink_to(folder.parent / "outside")

    def folder_is_a_file(folder: Path) -> None:
        folder.rmdir()
        folder.write_bytes(whole.right)

    def socketed(folder: Path) -> None:
        here = os.getcwd()
        os.chdir(folder)  # the name of a socket must be short
        try:
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(own)
        finally:
            os.chdir(here)

    def sparse(folder: Path) -> None:
        with (folder / own).open("wb") as huge:
            huge.truncate(10 * handed_in.LARGEST)

    def locked_away(folder: Path) -> None:
        right(folder)
        (folder / own).chmod(0)

    return {
        "a folder of its name": Broken(lambda f: (f / own).mkdir(), NONE, "is a folder under a notebook's name"),
        "a link to elsewhere": Broken(linked, NONE, f"{own}: is a link, and was not opened"),
        "a link for a folder": Broken(folder_is_a_link, NONE, "is a link, and was not followed"),
        "a link that leads to itself": Broken(lambda f: (f / own).symlink_to(own), NONE, "is a link"),
        "a link to a device": Broken(lambda f: (f / own).symlink_to(os.devnull), NONE, "is a link"),
        "a pipe": Broken(lambda f: os.mkfifo(f / own), NONE, "is a pipe, a socket or a device"),
        "a socket": Broken(socketed, NONE, "is a pipe, a socket or a device"),
        "a file for a folder": Broken(folder_is_a_file, NONE, "is a file where a folder should be"),
        UNREADABLE: Broken(locked_away, NONE, "cannot be read (Permission denied)"),
        "a huge file": Broken(sparse, NONE, "MB, and was not read"),  # of holes: it takes no place on the disk
    }


# ---- archives ----


def archives(whole: Whole) -> dict[str, Broken]:
    name, own, file, right = whole.name, whole.file_name, whole.file, whole.right
    archive = packed({own: right})
    encrypted = archive.replace(b"PK\1\2\x14\3\x14\0\0", b"PK\1\2\x14\3\x14\0\1")  # the flag in its directory
    damaged = archive[:100] + bytes(500) + archive[600:]
    from_a_mac = {f"{name}/{own}": right, f"__MACOSX/{name}/._{own}": b"\0\5"}

    def zipped(members: dict[str, bytes], **attributes) -> Build:
        return lambda folder: file(packed(members, **attributes), f"{name}.zip")(folder)

    def a_bomb(folder: Path) -> None:
        zipped({own: bytes(handed_in.LARGEST + 1)})(folder)

    return {
        "a zip": Broken(zipped({own: right}), ALL, f"{name}.zip, in it {own}: was taken"),
        "a zip with a folder and a Mac's files": Broken(zipped(from_a_mac), ALL, "not an archive"),
        "a zip under a notebook's name": Broken(file(archive), ALL, "not an archive"),
        "a zip beside the notebook": Broken(
            whole.files({own: right, "a.zip": packed({own: whole.untouched})}), ALL, "was left out"
        ),
        "a zip that climbs out": Broken(zipped({f"../../{own}": right}), NONE, "leads out of the archive"),
        "a zip with absolute paths": Broken(zipped({f"/etc/{own}": right}), NONE, "leads out of the archive"),
        "a zip with a drive": Broken(zipped({rf"C:\{own}": right}), NONE, "leads out of the archive"),
        "a zip with a link": Broken(zipped({own: b"/etc/passwd"}, external_attr=0o120777 << 16), NONE, "is a link"),
        "a zip in a zip": Broken(zipped({"inner.zip": archive}), NONE, "an archive in an archive"),
        "an encrypted zip": Broken(file(encrypted, "a.zip"), NONE, "is encrypted"),
        "a zip that unpacks to too much": Broken(a_bomb, NONE, "is damaged or too large", is_large=True),
        "a damaged zip": Broken(file(archive[:-30], "a.zip"), NONE, "is no zip archive that can be opened"),
        "a zip with damaged content": Broken(file(damaged, "a.zip"), NONE, "is damaged or too large"),
        "a zip without a notebook": Broken(zipped({"a.py": b"x = 1"}), NONE, "no notebook was found in it"),
        "a zip of very many files": Broken(
            zipped({f"{k}": b"" for k in range(handed_in.MOST + 1)}), NONE, f"more than {handed_in.MOST} files"
        ),
    }


def packed(members: dict[str, bytes], **attributes) -> bytes:
    """A zip archive of these files; `attributes` are set in every entry."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            for key, value in attributes.items():
                setattr(entry, key, value)
            archive.writestr(entry, content)
    return stream.getvalue()


# ---- bytes and text ----


def texts(whole: Whole) -> dict[str, Broken]:
    file, right = whole.file, whole.right
    conflict = b"<<<<<<< HEAD\n" + right + b"\n=======\n" + whole.untouched + b"\n>>>>>>> theirs\n"
    notebook = whole.answered()
    windows = json.dumps(notebook, indent=1).replace("\n", "\r\n").encode()
    latin = json.dumps({**notebook, "cells": [*notebook.cells, code("'CAFE'")]}).encode().replace(b"CAFE", b"caf\xe9")
    return {
        "an empty file": Broken(file(b""), NONE, "is empty (0 bytes)"),
        "zero bytes": Broken(file(bytes(4096)), NONE, "zero bytes"),
        "broken off in the middle": broken_off(whole),
        "broken off at the end": Broken(file(right[:-1]), ALL, "breaks off before its end"),
        "goes on after its end": Broken(file(right + b'}]}, "x": 1'), ALL, "goes on after the end"),
        "twice in one file": Broken(file(right + right), ALL, "goes on after the end"),
        "UTF-8 with a mark": Broken(file(b"\xef\xbb\xbf" + right), ALL, "a byte order mark"),
        "UTF-16": Broken(file(right.decode().encode("utf-16")), ALL, "is in UTF-16"),
        "UTF-32": Broken(file(right.decode().encode("utf-32-be")), ALL, "is in UTF-32"),
        "Latin-1": Broken(file(latin), ALL, "than UTF-8"),
        "one byte of Latin-1": Broken(file(right.replace(b'"cells"', b'"caf\xe9": 1, "cells"', 1)), ALL, "than UTF-8"),
        "Windows line ends": Broken(file(windows), ALL),
        "a git conflict": Broken(file(conflict), ALL, "holds git's conflict markers"),
        "a web page": Broken(file(b"<!DOCTYPE html><p>Please log in"), NONE, "is a web page"),
        "Python": Broken(file(b"import math\n"), NONE, "is Python code"),
    }


def broken_off(whole: Whole) -> Broken:
    """A file that ends in the middle of an answer, so that those before it are right and those after it lost."""
    cells = whole.answer_cells
    k = len(cells) // 2
    source = json.dumps(cell_of(whole.answered(), cells[k]).source, ensure_ascii=False).encode()
    end = whole.right.index(source) + len(source) // 2
    file = whole.file(whole.right[:end])
    return Broken(file, SOME, "breaks off before its end", right=(*cells[:k],), lost=(*cells[k + 1 :],))
