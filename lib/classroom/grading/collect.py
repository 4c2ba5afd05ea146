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
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from classroom.grading.course import GradingFailed
from classroom.grading.handed_in import leads_out
from classroom.notebooks import write_bytes_if_changed

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
    """A file of an archive, and what its name says. `suffix`: of the place that it gets, "" if it gets none."""

    member: zipfile.ZipInfo
    path: str
    suffix: str
    is_named: bool  # as the assignment's notebook
    name: str
    number: str
    late: bool
    order: tuple[int, int]  # of two files of one student the larger is the later


@dataclass(frozen=True)
class Collected:
    """What became of an archive: a word on the file of each student, and files left out with the reason.

    `written`: where each student's file lies; `without`: students in the archive of whom there is nothing to grade.
    """

    placed: dict[str, str]
    left_out: dict[str, str]
    written: dict[str, Path] = field(default_factory=dict)
    without: list[str] = field(default_factory=list)


def collect(assignment: str, archive: Path, platform: str, submitted: Path, force: bool = False) -> Collected:
    """Write each student's notebook of `archive` to `submitted`/STUDENT/`assignment`/`assignment`.ipynb.

    Who has none of that name, and one other notebook or zip archive, gets that one there (as .ipynb or .zip): what it
    holds, grading finds out. A file that is there already and differs is replaced only by `force`, whole or not at
    all, and a timestamp.txt beside it goes with it: that is the time of the file before, and no archive brings one.
    Raises `GradingFailed` if the archive cannot be opened, or a file not be written.
    """
    if not archive.is_file():
        raise GradingFailed(f"there is no file {archive}")
    done = Collected({}, {})
    try:
        with zipfile.ZipFile(archive) as opened:
            uploads = _uploads(opened, assignment, platform, done.left_out)
            for student, upload in _by_student(uploads, assignment, done.left_out).items():
                if upload is None:
                    done.without.append(student)
                    continue
                try:
                    content = _content(opened, upload.member)
                except UNREADABLE as error:
                    done.left_out[upload.path] = f"cannot be unpacked: {error}"
                    done.without.append(student)
                    continue
                target = submitted / student / assignment / f"{assignment}{upload.suffix}"
                if word := _place(content, target, force):
                    called = "" if upload.is_named else f", from {PurePosixPath(upload.path).name}"
                    done.placed[student] = word + ", late" * upload.late + called
                    done.written[student] = target
                else:
                    done.left_out[upload.path] = f"{student} has handed in another file before; --force replaces it"
    except (OSError, zipfile.BadZipFile) as error:
        raise GradingFailed(f"{archive} cannot be read as a zip archive: {error}") from error
    done.without.sort()
    return done


def _uploads(archive: zipfile.ZipFile, assignment: str, platform: str, left_out: dict[str, str]) -> list[Upload]:
    """The files of the students; what cannot be one goes to `left_out`."""
    notebook = re.compile(rf"{re.escape(assignment)}(?:(?:-Copy|[-_ (]*)(\d+)\)?)?\.ipynb", re.I)
    found = []
    for member in archive.infolist():
        path = _path(member)
        if member.is_dir() or path.startswith("__MACOSX/"):
            continue
        match, why = PLATFORMS[platform].fullmatch(path), _unsafe(member, path)
        if why or match is None:
            left_out[path] = why or f"not named as {platform.capitalize()} names a submitted file"
        if match is None:
            continue
        parts = match.groupdict()
        file = PurePosixPath(parts["file"]).name
        again = notebook.fullmatch(file)
        suffix = PurePosixPath(file).suffix.lower()
        found.append(
            Upload(
                member,
                path,
                "" if why or suffix not in (".ipynb", ".zip") else suffix,
                again is not None,
                parts["name"] or "",
                parts["number"],
                bool(parts.get("late")),
                (int(parts.get("upload") or 0), int(again[1] or 0) if again else 0),
            )
        )
    return found


def _path(member: zipfile.ZipInfo) -> str:
    """A member's path with plain slashes; some servers write UTF-8 and do not say so."""
    path = member.filename
    if not member.flag_bits & 0x800:
        with contextlib.suppress(UnicodeError):
            path = path.encode("cp437").decode("utf-8")
    return unicodedata.normalize("NFC", path.replace("\\", "/"))


def _unsafe(member: zipfile.ZipInfo, path: str) -> str | None:
    if leads_out(path):
        return "its path leads out of the archive"
    if stat.S_ISLNK(member.external_attr >> 16):
        return "is a link, not a file"
    if member.file_size > LARGEST:
        return f"is larger than {LARGEST // 10**6} MB"
    return None


def _by_student(uploads: list[Upload], assignment: str, left_out: dict[str, str]) -> dict[str, Upload | None]:
    """The file of each student that counts, None if there is none, by a name that can be a folder's."""
    of_a_student: dict[tuple[str, str], list[Upload]] = defaultdict(list)
    for upload in uploads:
        of_a_student[_folder(upload.name), upload.number].append(upload)
    numbers = defaultdict(set)
    for name, number in of_a_student:
        numbers[name.casefold()].add(number)

    found = {}
    for (name, number), files in of_a_student.items():
        # Canvas numbers a person once and for all. Moodle counts anew in each assignment, so there the name
        # alone is the student, unless two have the same.
        is_enough = files[0].order[0] == 0 and name and len(numbers[name.casefold()]) == 1
        student = name if is_enough else "_".join(filter(None, [name, number]))
        found[student] = _chosen(files, assignment, left_out)
    return found


def _chosen(files: list[Upload], assignment: str, left_out: dict[str, str]) -> Upload | None:
    """The latest notebook of the right name; else the one file that may hold the notebook."""
    readable = sorted((upload for upload in files if upload.suffix), key=lambda upload: upload.order)
    named = [upload for upload in readable if upload.is_named]
    chosen = named[-1] if named else readable[0] if len(readable) == 1 else None
    for upload in files:
        if upload in named[:-1]:
            left_out[upload.path] = f"the same student's {chosen.path} is later"
        elif upload is not chosen:
            left_out.setdefault(upload.path, f"is not called {assignment}.ipynb")
    return chosen


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
    """Write a submission; a word on what was there, such as "new" or "unchanged". None if another one is there."""
    there = [path for path in (target.with_suffix(".ipynb"), target.with_suffix(".zip")) if path.is_file()]
    try:
        if there == [target] and target.read_bytes() == content:
            return "unchanged"
        if there and not force:
            return None
        stamp = target.with_name("timestamp.txt")
        outdated = [stamp] if there and (stamp.is_file() or stamp.is_symlink()) else []
        write_bytes_if_changed(target, content, outdated)
        for path in there:
            if path != target:
                path.unlink()
    except OSError as error:
        raise GradingFailed(f"{target} cannot be written: {error.strerror or error}") from error
    return "replaced" + ", the old time removed" * len(outdated) if there else "new"
