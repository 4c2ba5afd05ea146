"""What is on disk of a run: one file a student, below results/ASSIGNMENT/, each whole or not there at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import unicodedata
from dataclasses import asdict, dataclass, field
from pathlib import Path

from classroom.grading import results
from classroom.grading.task import Result

_LONGEST = 120  # bytes of a student's part in a file's name; file systems allow 255 with what is added
_PART = ".part"
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\.|$)")  # not a file's name on Windows


@dataclass(kw_only=True)
class Record:
    """A submission and what became of it.

    `key` is that of the tasks, empty if the submission must be marked again. `merged` is the key whose marks are in
    the gradebook `gradebook`. `failure` says why marking itself failed; then `notebooks` hold no marks.
    """

    assignment: str
    student: str
    key: str
    files: dict[str, str] = field(default_factory=dict)  # file → sha256 of its bytes
    submitted_at: str | None = None  # ISO 8601
    notebooks: dict[str, Result] = field(default_factory=dict)
    failure: str | None = None
    merged: str | None = None
    gradebook: str | None = None

    def is_merged(self, gradebook: str) -> bool:
        return self.merged == self.key and self.gradebook == gradebook


def file_name(student: str) -> str:
    """A file's name for any student id: safe on every system, different for different ids, readable if possible.

    Letters and digits of any script, "-", "_" and "." stay; everything else, and a dot or dash in front, is %XX.
    """
    keeps = unicodedata.normalize("NFC", student) == student  # some systems take other spellings for the same name
    name = "".join(
        letter if (letter.isalnum() and (keeps or letter.isascii())) or letter in "-_." else _percent(letter)
        for letter in student
    )
    if name[:1] in (".", "-") or _RESERVED.match(name):
        name = _percent(name[0]) + name[1:]
    if len(name.encode()) > _LONGEST:
        while len(name.encode()) > _LONGEST - 40:
            name = name[:-1]
        name += "~" + hashlib.sha256(os.fsencode(student)).hexdigest()[:32]  # no other name holds a "~"
    return name + ".json"


def _percent(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "surrogateescape"))


def read(folder: Path, student: str) -> Record | None:
    """What is known of a student's submission; None if there is nothing, or nothing that can be read."""
    path = folder / file_name(student)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        record = Record(**{**document, "notebooks": results.read_one(path)})
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return record if record.student == student else None


def write(folder: Path, record: Record) -> None:
    """Store a record: at every moment the file holds the earlier one or this one."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=_PART, delete=False, encoding="ascii") as file:
        try:
            json.dump(asdict(record), file, indent=1)  # in ASCII: a name may hold what UTF-8 cannot
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            os.unlink(file.name)
            raise
    os.replace(file.name, folder / file_name(record.student))


def clear_remains(folder: Path) -> None:
    """Remove what a run that was killed while it wrote has left. Only for whoever holds the lock of the folder."""
    for path in folder.glob(f"*{_PART}"):
        path.unlink(missing_ok=True)
