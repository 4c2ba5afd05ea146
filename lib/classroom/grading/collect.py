"""`python -m classroom.grading collect`: the archive that Moodle or Canvas gives, sorted for nbgrader.

No name inside an archive decides where a file is written: the path is made here, of the student's name and the
assignment's. What cannot be placed is listed with the reason, and nothing is dropped in silence.
"""

from __future__ import annotations

import contextlib
import re
import stat
import unicodedata
import zipfile
import zlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from classroom.grading.course import GradingFailed

LARGEST = 50_000_000  # bytes of one notebook; an archive may say less than it unpacks to
# damaged, encrypted, of an unknown method, cut short, or larger than it says
UNREADABLE = (ValueError, RuntimeError, NotImplementedError, EOFError, zipfile.BadZipFile, zlib.error)
PLATFORMS = {
    # "Surname Name_1234567_assignsubmission_file_/09_parameters.ipynb", or all in one word without the folder
    "moodle": re.compile(r"(?P<name>[^/]+?)_(?P<number>\d+)_assignsubmission_file(?:_/|_|/)(?P<file>.+)"),
    # "surnamename_LATE_12345_67890_09_parameters-1.ipynb": the user's number and the upload's; "anon_x" for a user
    "canvas": re.compile(
        r"(?:(?P<name>[^/]+?)_)??(?P<late>LATE_)?(?P<number>\d+|anon_[^_/]+)_(?P<upload>\d+)_(?P<file>[^/]+)", re.I
    ),
}


@dataclass(frozen=True)
class Upload:
    """A notebook of an archive, and what its name says."""

    member: zipfile.ZipInfo
    path: str
    name: str
    number: str
    late: bool
    order: tuple[int, int]  # of two files of one student the larger is the later


@dataclass(frozen=True)
class Collected:
    """What became of an archive: notebooks by student with a word on each, and files left out with the reason."""

    placed: dict[str, str]
    left_out: dict[str, str]


def collect(assignment: str, archive: Path, platform: str, submitted: Path, force: bool = False) -> Collected:
    """Write each student's notebook of `archive` to `submitted`/STUDENT/`assignment`/`assignment`.ipynb.

    A notebook that is there already and differs is replaced only by `force`.
    Raises `GradingFailed` if the archive cannot be opened.
    """
    placed: dict[str, str] = {}
    left_out: dict[str, str] = {}
    try:
        with zipfile.ZipFile(archive) as opened:
            uploads = _uploads(opened, assignment, platform, left_out)
            for student, upload in _by_student(uploads, left_out).items():
                try:
                    content = _content(opened, upload.member)
                except UNREADABLE as error:
                    left_out[upload.path] = f"cannot be unpacked: {error}"
                    continue
                word = _place(content, submitted / student / assignment / f"{assignment}.ipynb", force)
                if word:
                    placed[student] = word + ", late" * upload.late
                else:
                    left_out[upload.path] = f"{student} has handed in another file before; --force replaces it"
    except (OSError, zipfile.BadZipFile) as error:
        raise GradingFailed(f"{archive} cannot be read as a zip archive: {error}") from error
    return Collected(placed, left_out)


def _uploads(archive: zipfile.ZipFile, assignment: str, platform: str, left_out: dict[str, str]) -> list[Upload]:
    """The notebooks of the assignment; every other file goes to `left_out`."""
    notebook = re.compile(rf"{re.escape(assignment)}(?:(?:-Copy|[-_ (]*)(\d+)\)?)?\.ipynb", re.I)
    found = []
    for member in archive.infolist():
        path = _path(member)
        if member.is_dir() or path.startswith("__MACOSX/"):
            continue
        match = PLATFORMS[platform].fullmatch(path)
        if why := _unsafe(member, path):
            left_out[path] = why
        elif match is None:
            left_out[path] = f"not named as {platform.capitalize()} names a submitted file"
        else:
            parts = match.groupdict()
            file = PurePosixPath(parts["file"]).name
            again = notebook.fullmatch(file)
            if again is None:
                left_out[path] = f"is not called {assignment}.ipynb"
                continue
            order = int(parts.get("upload") or 0), int(again[1] or 0)
            found.append(Upload(member, path, parts["name"] or "", parts["number"], bool(parts.get("late")), order))
    return found


def _path(member: zipfile.ZipInfo) -> str:
    """A member's path with plain slashes; some servers write UTF-8 and do not say so."""
    path = member.filename
    if not member.flag_bits & 0x800:
        with contextlib.suppress(UnicodeError):
            path = path.encode("cp437").decode("utf-8")
    return unicodedata.normalize("NFC", path.replace("\\", "/"))


def _unsafe(member: zipfile.ZipInfo, path: str) -> str | None:
    if path.startswith("/") or ".." in path.split("/") or re.match(r"[A-Za-z]:", path):
        return "its path leads out of the archive"
    if stat.S_ISLNK(member.external_attr >> 16):
        return "is a link, not a file"
    if member.file_size > LARGEST:
        return f"is larger than {LARGEST // 10**6} MB"
    return None


def _by_student(uploads: list[Upload], left_out: dict[str, str]) -> dict[str, Upload]:
    """The latest file of each student, by a name that can be a folder's."""
    of_a_student: dict[tuple[str, str], list[Upload]] = defaultdict(list)
    for upload in uploads:
        of_a_student[_folder(upload.name), upload.number].append(upload)
    numbers = defaultdict(set)
    for name, number in of_a_student:
        numbers[name.casefold()].add(number)

    latest = {}
    for (name, number), files in of_a_student.items():
        *earlier, last = sorted(files, key=lambda upload: upload.order)
        for upload in earlier:
            left_out[upload.path] = f"the same student's {last.path} is later"
        # Canvas numbers a person once and for all. Moodle counts anew in each assignment, so there the name
        # alone is the student, unless two have the same.
        is_enough = last.order[0] == 0 and name and len(numbers[name.casefold()]) == 1
        latest[name if is_enough else "_".join(filter(None, [name, number]))] = last
    return latest


def _folder(name: str) -> str:
    """`name` in letters, digits, '.', '-' and '_', not hidden and not too long."""
    return re.sub(r"[^\w.-]+", "_", name).strip("._-")[:80]


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    with archive.open(member) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"it is larger than {LARGEST // 10**6} MB")
    return content


def _place(content: bytes, target: Path, force: bool) -> str | None:
    """Write a submission; "new", "replaced" or "unchanged", or None if another one is there."""
    there = target.read_bytes() if target.is_file() else None
    if there == content:
        return "unchanged"
    if there is not None and not force:
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return "new" if there is None else "replaced"
