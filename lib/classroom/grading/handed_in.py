"""The files of a student's folder, read without following a link, waiting for a pipe or unpacking more than is safe.

Nothing is written, and nothing that lies there raises: what is not read is named, with what the student should do.
"""

from __future__ import annotations

import io
import os
import re
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from classroom.salvage import is_word

LARGEST = 150 * 2**20  # bytes of one file; a larger one is not opened
TOTAL = 2 * LARGEST  # bytes that are read of one folder, archives unpacked
MOST = 5_000  # entries of a folder or an archive that are looked at
DEEPEST = 5  # folders in folders
OPENED = 20  # files that are read
UNPACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others may take any amount of memory
_NOTEBOOK = "Hand in the notebook itself."
_RIGHTS = "the grader may not read it. Check its owner and rights"  # not the student's doing


class Refused(Exception):
    """A file that is not read; the message says why, and what to do."""


@dataclass(frozen=True)
class File:
    """A file that was read. `path`: below the student's folder; `archive`: the archive it was unpacked from, or ""."""

    path: PurePosixPath
    data: bytes
    archive: str = ""

    def __str__(self) -> str:
        inside = f"{shown(self.archive)}, in it " if self.archive else ""
        return inside + shown(str(self.path))


def shown(name: object, longest: int = 100) -> str:
    """A name or text as one printable line, whatever a student called it."""
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in str(name)[: longest + 1])
    return text if len(text) <= longest else text[: longest - 3] + "..."


def is_notebook(path: PurePosixPath) -> bool:
    """Whether a file is called like a notebook, or like one that a browser or a mail program has renamed."""
    return ".ipynb" in path.name.casefold()


def is_archive(path: PurePosixPath) -> bool:
    """Whether a file is called like a zip archive."""
    return path.name.casefold().endswith(".zip")


def listed(folder: Path, findings: list[str]) -> list[PurePosixPath]:
    """The regular files below `folder`, as paths below it, in one order; what else lies there is a finding."""
    found: list[PurePosixPath] = []
    seen, waiting = 0, [PurePosixPath()]
    for part in (folder.parent, folder):
        if os.path.islink(part):
            findings.append(f"{shown(part.name)}: is a link, and was not followed. Hand in a folder.")
            return []
    if os.path.isfile(folder):
        findings.append(f"{shown(folder.name)}: is a file where a folder should be. {_NOTEBOOK}")
        return []
    while waiting:
        below = waiting.pop(0)
        try:
            with os.scandir(folder / below) as entries:
                here = sorted(islice(entries, 10 * MOST), key=_notebooks_first)
                kinds = {entry.name: _kind(entry) for entry in here}
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            rights = f": {_RIGHTS}" if isinstance(error, PermissionError) else ""
            findings.append(f"{shown(str(below) if below.name else folder.name)}: cannot be opened ({why}){rights}.")
            continue
        for name, kind in kinds.items():
            seen, path = seen + 1, below / name
            if seen > MOST:
                findings.append(f"the folder holds more than {MOST} entries: the rest was not looked at. {_NOTEBOOK}")
                return found
            if kind == "file":
                found.append(path)
            elif kind == "folder" and len(path.parts) <= DEEPEST:
                waiting.append(path)
            elif kind == "folder":
                findings.append(f"{shown(str(path))}: lies too deep in folders. {_NOTEBOOK}")
            else:
                findings.append(f"{shown(str(path))}: is {kind}, and was not opened. {_NOTEBOOK}")
            if kind == "folder" and is_notebook(path) and name != ".ipynb_checkpoints":
                findings.append(f"{shown(str(path))}: is a folder under a notebook's name. {_NOTEBOOK}")
    return found


def _notebooks_first(entry: os.DirEntry) -> tuple[bool, str]:
    return not is_notebook(PurePosixPath(entry.name)), entry.name


def _kind(entry: os.DirEntry) -> str:
    if entry.is_symlink():
        return "a link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "a pipe, a socket or a device"


def content(path: Path) -> bytes:
    """The bytes of a regular file. Raises `Refused` for anything else, for a larger one, and if it cannot be read."""
    flags = os.O_RDONLY | sum(getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY", "O_NOCTTY"))
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise Refused(f"is no regular file, and was not read. {_NOTEBOOK}")
            data = file.read(LARGEST + 1) if status.st_size <= LARGEST else b""
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        cure = f": {_RIGHTS}." if isinstance(error, PermissionError) else ". Hand it in again."
        raise Refused(f"cannot be read ({why}){cure}") from None
    if status.st_size > LARGEST or len(data) > LARGEST:
        size = max(status.st_size, len(data)) / 1e6
        raise Refused(f"has {size:.0f} MB, and was not read. Clear its outputs in JupyterLab, save, and hand it in.")
    return data


def read(folder: Path, paths: list[PurePosixPath], findings: list[str]) -> Iterator[File]:
    """The files `paths` of `folder`, as long as they are not too many or too large; archives give what is in them."""
    left = TOTAL
    for number, path in enumerate(paths):
        if number >= OPENED or left <= 0:
            findings.append(f"{len(paths) - number} more files were not looked at. {_NOTEBOOK}")
            return
        try:
            data = content(folder / path)
        except Refused as error:
            findings.append(f"{shown(str(path))}: {error}")
            continue
        left -= len(data)
        if not data.startswith(b"PK\3\4"):
            yield File(path, data)
            continue
        for file in unpacked(path, data, max(0, left), findings):
            left -= len(file.data)
            yield file


def unpacked(path: PurePosixPath, data: bytes, most: int, findings: list[str]) -> list[File]:
    """The notebooks of a zip archive, `most` bytes of them, none from an archive inside it."""
    archive = shown(str(path))
    found: list[File] = []
    if data.count(b"PK\1\2") > MOST:
        findings.append(f"{archive}: holds more than {MOST} files, and was not unpacked. {_NOTEBOOK}")
        return []
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as opened:
            for member in opened.infolist():
                name = member.filename.replace("\\", "/")
                inside = PurePosixPath(name)
                if member.is_dir() or inside.parts[:1] == ("__MACOSX",):
                    continue
                if why := _unsafe(member, name):
                    findings.append(f"{archive}, in it {shown(name)}: {why}, and was not unpacked. {_NOTEBOOK}")
                elif not is_notebook(inside):
                    continue
                elif len(found) >= OPENED:
                    findings.append(f"{archive}: holds more than {OPENED} notebooks. Hand in one.")
                    break
                elif (unzipped := _member(opened, member, min(most, LARGEST))) is None:
                    findings.append(f"{archive}, in it {shown(name)}: is damaged or too large. {_NOTEBOOK}")
                else:
                    most -= len(unzipped)
                    found.append(File(inside, unzipped, str(path)))
    except Exception as error:  # whatever zipfile makes of hostile bytes
        findings.append(f"{archive}: is no zip archive that can be opened ({type(error).__name__}). {_NOTEBOOK}")
    if not found and is_word(data):
        findings.append(f"{archive}: is a Word document, no notebook. Hand in the notebook (.ipynb).")
    elif not found:
        findings.append(f"{archive}: is a zip archive, and no notebook was found in it. {_NOTEBOOK}")
    return found


def leads_out(name: str) -> bool:
    """Whether the path of an archive's member, with plain slashes, leads to a place outside."""
    return name.startswith("/") or ".." in name.split("/") or bool(re.match(r"[A-Za-z]:", name))


def _unsafe(member: zipfile.ZipInfo, name: str) -> str | None:
    if leads_out(name):
        return "has a path that leads out of the archive"
    if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
        return "is a link or a device"
    if is_archive(PurePosixPath(name)):
        return "is an archive in an archive"
    if member.flag_bits & 1:
        return "is encrypted"
    return None if member.compress_type in UNPACKED else "is packed in an unusual way"


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> bytes | None:
    """The bytes of a member, or None if it is damaged or has more than `most`, whatever its header says."""
    try:
        with archive.open(member) as file:
            data = file.read(most + 1)
    except Exception:  # whatever zipfile makes of hostile bytes
        return None
    return data if len(data) <= most else None
