"""Find the notebooks that a student handed in, whatever the folder holds and whatever they are called.

`take` neither raises nor writes: what is wrong is said in `findings`, for the student, and in `flags`, for the
person who grades. What becomes of a notebook's bytes, `answers.placed` says.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath

import nbformat

from classroom.doctor import BACKUP
from classroom.grading import handed_in
from classroom.grading.answers import LONGEST, as_released, cut, given_texts
from classroom.grading.handed_in import File, shown
from classroom.matching import bare, is_as_released, name_of
from classroom.submission import read

_OTHER, _OLD = 2, 3


@dataclass
class Intake:
    """What a student handed in: for each notebook of the assignment that was found, by its stem, the bytes to mark."""

    student: str
    notebooks: dict[str, bytes] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)


def students(submitted: Path, assignment: str) -> list[str]:
    """Everybody who has anything for the assignment, be it an empty folder."""
    if not submitted.is_dir():
        return []
    with os.scandir(submitted) as entries:
        names = [entry.name for entry in entries if entry.is_symlink() or entry.is_dir()]
    return sorted(name for name in names if _is_there(submitted / name / assignment))


def _is_there(folder: Path) -> bool:
    """True also where the grader may not look: `take` says so, where silence would lose a submission."""
    try:
        os.lstat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True


def take(folder: Path, names: Collection[str]) -> Intake:
    """What lies in `folder`, which is submitted/STUDENT/ASSIGNMENT.

    `names` are the stems of the assignment's notebooks; a mapping to the JSON text of each, as `authority` gives it,
    lets a notebook under another name be recognised by its cells.
    """
    intake = Intake(folder.parent.name)
    texts = names if isinstance(names, Mapping) else dict.fromkeys(names, "")
    there = handed_in.listed(folder, intake.findings)
    wanted = [path for path in there if handed_in.is_notebook(path) or handed_in.is_archive(path)]
    wanted.sort(key=lambda path: (min((_rank(path, name) for name in texts), default=0), path))
    files = [*handed_in.read(folder, wanted, intake.findings)]
    are_refused = bool(wanted) and not files  # each with its own finding
    if not files:
        others = [path for path in there if path not in wanted and path.suffix.casefold() in ("", ".json", ".txt")]
        files = [file for file in handed_in.read(folder, others, intake.findings) if _is_like_one(file.data)]
    exact = {file: name for name in texts for file in files if file.path.name == f"{name}.ipynb"}
    for name, text in texts.items():
        own = [file for file in files if exact.get(file, name) == name]
        if len(texts) > 1:  # with several notebooks a wrong name alone says too little
            own = [file for file in own if file in exact or _belongs_to(file.data, texts) == name]
        if not own and are_refused:
            continue
        if not own:
            lies = ", ".join(shown(str(path)) for path in there[:5]) or "nothing"
            intake.findings.append(f"no notebook was found for {name}. There is: {lies}. Hand in {name}.ipynb.")
            continue
        best = _choose(own, name, text, intake)
        intake.notebooks[name] = best.data
        files.remove(best)
    intake.findings = cut(intake.findings)
    return intake


def _choose(files: list[File], name: str, text: str, intake: Intake) -> File:
    """The file that counts: of the right name if it is of this exercise, else the one with most of its cells."""
    if len(files) == 1:
        best, rest = files[0], []
    else:
        found = {file: _known(file.data, text) for file in files}
        most = max(known for known, _ in found.values())

        def worth(file: File) -> tuple:
            known, written = found[file]
            is_ours = known > 0 and 2 * known >= most  # exercises share some cells and ids
            rank = _rank(file.path, name)
            is_named = file.path.name == f"{name}.ipynb"
            is_plain = not file.archive and len(file.path.parts) == 1
            numbers = [int(digits[:9]) for digits in re.findall(r"\d+", file.path.name)]
            return known >= 0, is_ours, rank < _OLD, is_named, is_plain, known, written, -rank, numbers

        best = max(files, key=worth)
        rest = [file for file in files if file is not best and _rank(file.path, name) < _OLD]
        if any(2 * found[file][0] > most for file in rest):
            intake.flags.append(f"several notebooks hold cells of {name}: {best} was taken. Look at the others.")
    if best.archive:
        intake.findings.append(f"{best}: was taken for {name}.ipynb. Hand in the notebook itself, not an archive.")
    elif ".ipynb_checkpoints" in best.path.parts:
        what = f"is JupyterLab's own copy, taken for {name}.ipynb. It may be older than your work"
        intake.findings.append(f"{best}: {what}. Save the notebook, and hand in {name}.ipynb.")
    elif str(best.path) != f"{name}.ipynb":
        intake.findings.append(f"{best}: was taken for {name}.ipynb. Hand it in under that name.")
    if f".{BACKUP}" in best.path.name:
        intake.flags.append(
            f"{best}: is the doctor's backup, taken in place of {name}.ipynb. It may be an older state."
        )
    intake.findings += [f"{file}: was left out, since {best} was taken. Hand in one notebook." for file in rest]
    return best


def _rank(path: PurePosixPath, name: str) -> int:
    """How likely a name is: 0 the right one, 1 one that begins like it, 2 another or an archive, 3 and 4 old copies."""
    if ".ipynb_checkpoints" in path.parts or "-checkpoint." in path.name:
        return _OLD
    if f".{BACKUP}" in path.name:
        return _OLD + 1
    if path.name == f"{name}.ipynb":
        return 0
    is_like = _plain(name) in _plain(path.name) and not handed_in.is_archive(path)
    return 1 if is_like else _OTHER


def _plain(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def _is_like_one(data: bytes) -> bool:
    """Whether a file that is not called a notebook holds one."""
    return data.lstrip(b"\xef\xbb\xbf\xff\xfe\0 \t\r\n")[:1] == b"{" and b'"cells"' in data.replace(b"\0", b"")


def _belongs_to(data: bytes, texts: Mapping[str, str]) -> str | None:
    """The notebook of the assignment that has most of the cells in `data`."""
    known = {name: _known(data, text)[0] for name, text in texts.items()}
    best = max(known, key=known.__getitem__)
    return best if known[best] > 0 else None


def _known(data: bytes, text: str) -> tuple[int, int]:
    """How many ids and texts of the notebook `text` are in `data` (-1: it is none), and how many answers."""
    ids, sources = _ids_and_sources(text)
    try:
        cells = read(data).cells
    except Exception:  # `placed` says what is wrong with it
        return -1, 0
    here = {cell.grade_id for cell in cells} & ids
    same = {bare(cell.source) for cell in cells if len(cell.source) < LONGEST} & sources
    return len(here) + len(same), sum(cell.grade_id in ids and not is_as_released(cell) for cell in cells)


@lru_cache(maxsize=8)
def _ids_and_sources(text: str) -> tuple[frozenset[str], frozenset[str]]:
    if not text:
        return frozenset(), frozenset()
    release = as_released(nbformat.reads(text, as_version=4))
    return frozenset(filter(None, map(name_of, release.cells))), frozenset(given_texts(release))
