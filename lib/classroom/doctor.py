"""`python -m classroom doctor NOTEBOOK`: what is wrong with an exercise before it is handed in, and its repair."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from nbformat import NotebookNode, ValidationError
from nbgrader.utils import compute_checksum, is_solution

from classroom.matching import name_of
from classroom.notebooks import ROOT, NotebookFailed, text, write_if_changed
from classroom.notebooks import read as read_notebook
from classroom.placement import Placement, named, place, rebuilt
from classroom.submission import Finding, Submission, Unreadable, read

BACKUP = "before-doctor"
HEALTHY, ILL, UNREADABLE = 0, 1, 2  # exit codes
_NAMED = 3  # cells with the same finding that get a line each; more share one


@dataclass
class Examined:
    """A notebook and what was found; `is_sound` says that at most its name and place are wrong."""

    path: Path
    exercise: str
    placement: Placement
    findings: list[Finding]
    is_sound: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK", help="your notebook, or its folder")
    parser.add_argument(
        "--fix",
        action="store_true",
        help=f"write the repaired notebook; the original stays beside it as NAME.{BACKUP}.ipynb",
    )
    parser.add_argument(
        "--release",
        type=Path,
        metavar="FILE",
        help="the exercise as it was handed out (default: the one in exercises/ that the notebook answers)",
    )


def run(options: argparse.Namespace) -> int:
    """Examine, and mend if asked to. 0: healthy now; 1: something is wrong; 2: a file cannot be read."""
    worst = HEALTHY
    try:
        known = {options.release.stem: Release(options.release)} if options.release else released(ROOT / "exercises")
    except Unreadable as error:
        print(error, file=sys.stderr)
        return UNREADABLE
    answers: list[tuple[Path, str, Path]] = []  # folder, exercise, notebook
    for path in dict.fromkeys(path for given in options.notebooks for path in notebooks_in(given)):
        try:
            examined = examine(path, known)
            mended = mend(examined) if options.fix and any(f.mended for f in examined.findings) else None
            _report(examined, mended, asked=options.fix)
            if mended:
                examined = examine(mended[0], known)
                _report_rest(examined)
            worst = max(worst, ILL if examined.findings else HEALTHY)
            answers.append((examined.path.parent, examined.exercise, examined.path))
        except Unreadable as error:
            print(f"{path}\n  ✗ {error}")
            worst = UNREADABLE
        except BrokenPipeError:
            raise
        except OSError as error:
            print(f"{path}\n  ✗ {error.strerror or error}: nothing was repaired.")
            worst = UNREADABLE
        except (ValidationError, RecursionError, MemoryError) as error:
            print(f"{path}\n  ✗ is beyond repair ({type(error).__name__}). Copy your answers into a fresh exercise.")
            worst = UNREADABLE
    for (_, exercise), group in groupby(sorted(answers), key=lambda found: found[:2]):  # a folder is one person's
        if len(paths := [str(path) for *_, path in group]) > 1:
            print(f"✗ {len(paths)} notebooks answer {exercise}: hand in one. They are not merged: {', '.join(paths)}")
            worst = max(worst, ILL)
    return worst


def notebooks_in(given: Path) -> list[Path]:
    """The notebook itself, or those of a folder without backups and JupyterLab's own copies."""
    if not given.is_dir():
        return [given]
    found = [path for path in sorted(given.rglob("*.ipynb")) if ".ipynb_checkpoints" not in path.parts]
    return [path for path in found if f".{BACKUP}" not in path.name] or [given]


# ---- the release ----


class Release:
    """An exercise as it was handed out."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self.notebook = read_notebook(path)
        except NotebookFailed as error:
            raise Unreadable(str(error)) from None
        if not any(is_solution(cell) for cell in self.notebook.cells):
            raise Unreadable(f"{path} is no release of nbgrader: it has no cell to answer in.")

    def untouched(self) -> NotebookNode:
        """The notebook. Raises `Unreadable` if somebody wrote into it: then it is no authority."""
        for cell in self.notebook.cells:
            if cell.metadata.get("nbgrader", {}).get("checksum") != compute_checksum(cell):
                raise Unreadable(
                    f"{self.path} is not as it was handed out ({named(cell)} was changed). If your answers are in it, "
                    "copy it to work/ first. Then bring the exercise back: git checkout exercises"
                )
        return self.notebook


def released(folder: Path) -> dict[str, Release]:
    """Every exercise of the course, by name."""
    found = {path.stem: Release(path) for path in sorted(folder.glob("*/*.ipynb")) if path.stem == path.parent.name}
    if not found:
        raise Unreadable(f"no exercise lies in {folder}: name the one that was handed out with --release FILE.")
    return found


def recognise(submission: Submission, path: Path, known: dict[str, Release]) -> str:
    """Which exercise a notebook answers: by the cells that only one exercise has, else by its name or folder."""
    if len(known) == 1:
        return next(iter(known))
    features = {
        name: {feature for cell in release.notebook.cells for feature in (cell.source.strip(), name_of(cell))}
        for name, release in known.items()
    }
    owners = Counter(feature for found in features.values() for feature in found)
    own = {cell.source.strip() for cell in submission.cells} | {cell.grade_id for cell in submission.cells}
    shared = {name: sum(owners[feature] == 1 for feature in found & own) for name, found in features.items()}
    best = max(shared, key=shared.__getitem__)
    if shared[best]:
        return best
    for word in (path.name.lower(), path.resolve().parent.name.lower()):
        for name in known:
            if name in word:
                return name
    raise Unreadable(f"is a notebook, but holds no cell of any exercise ({', '.join(known)}). Give the right file.")


# ---- examining ----


def examine(path: Path, known: dict[str, Release]) -> Examined:
    """Read a file and compare it with its release; `known` maps the names of exercises to releases."""
    if path.is_dir():
        raise Unreadable("is a folder without a notebook.")
    try:
        submission = read(path.read_bytes())
    except FileNotFoundError:
        raise Unreadable("there is no such file. A name with blanks or brackets needs quotes around it.") from None
    exercise = recognise(submission, path, known)
    placement = place(submission, known[exercise].untouched())
    findings = submission.findings + placement.findings
    is_sound = not findings
    target = path.with_name(f"{exercise}.ipynb")
    if path.name != target.name:
        if is_taken(target, path):
            cure = f"Another file here has that name: hand in one of them. python -m classroom doctor {target}"
        else:
            cure = "--fix renames it."
        called = f"is called {path.name}; the grader looks for {target.name}"
        findings.append(Finding("the file", called, cure, mended=not is_taken(target, path)))
    folder = path.resolve().parent
    if folder.name != exercise and folder.name in {*known, ".ipynb_checkpoints"}:
        findings.append(Finding("the file", f"lies in {folder.name}/", f"Move it to {exercise}/.", mended=False))
    if folder.parent in (ROOT / "exercises", ROOT / "solutions"):
        where = f"lies in {folder.parent.name}/, which belongs to the course"
        findings.append(Finding("the file", where, "Work in a copy: make lab puts one into work/.", mended=False))
    return Examined(path, exercise, placement, findings, is_sound)


def is_taken(target: Path, path: Path) -> bool:
    """Whether another file than `path` has the name `target`."""
    return target.exists() and not (path.exists() and os.path.samefile(target, path))


# ---- mending ----


def mend(examined: Examined) -> tuple[Path, Path | None]:
    """Write the repaired notebook; returns it and the backup. No file is overwritten without a copy of it."""
    path, target = examined.path, examined.path.with_name(f"{examined.exercise}.ipynb")
    if path.resolve().parent.parent in (ROOT / "exercises", ROOT / "solutions"):
        raise Unreadable("lies in a folder of the course, where nothing is repaired. Copy it to work/ first.")
    if is_taken(target, path):
        target = path
    if examined.is_sound:
        path.rename(target)
        return target, None
    content = text(rebuilt(examined.placement))
    backup = _back_up(path)
    write_if_changed(target, content)
    if target != path and not os.path.samefile(target, path):
        path.unlink()
    return target, backup


def _back_up(path: Path) -> Path:
    """A copy of the file under the first free name."""
    stem, number = path.name.removesuffix(".ipynb"), 1
    while True:
        backup = path.with_name(f"{stem}.{BACKUP}{f'-{number}' if number > 1 else ''}.ipynb")
        try:
            with backup.open("xb") as file:  # x: fails if there is one
                file.write(path.read_bytes())
        except FileExistsError:
            number += 1
            continue
        shutil.copystat(path, backup)
        return backup


# ---- reporting ----


def _report(examined: Examined, mended: tuple[Path, Path | None] | None, asked: bool) -> None:
    print(f"{examined.path} (exercise {examined.exercise})")
    if not examined.findings:
        print("  ✓ healthy: nothing to repair")
    for line in _lines(examined.findings):
        print(f"  ✗ {line}")
    _report_progress(examined)
    if mended:
        now, backup = mended
        kept = f"; the original is {backup.name}" if backup else ""
        outputs = " Outputs are left out: run all cells once more." if backup else ""
        print(f"  → repaired: {now.name}{kept}.{outputs}")
    elif not asked and any(finding.mended for finding in examined.findings):
        print(f"  → to repair it: python -m classroom doctor --fix {shlex.quote(str(examined.path))}")


def _report_rest(examined: Examined) -> None:
    for line in _lines(examined.findings):
        print(f"  ✗ still to do: {line}")
    if not examined.findings:
        print(f"  ✓ {examined.path.name} is healthy")


def _report_progress(examined: Examined) -> None:
    cells = {name_of(cell): cell for cell in examined.placement.release.cells if is_solution(cell)}
    open_ones = examined.placement.unanswered
    where = f": {', '.join(named(cells[name]).removesuffix(', answer') for name in open_ones)}" if open_ones else ""
    number = f"{len(open_ones)} of {len(cells)} answer cells are still unanswered"
    print(f"  {number if open_ones else f'all {len(cells)} answer cells are answered'}{where}")
    for name in examined.placement.half_answered:
        print(f"  {named(cells[name])}: still raises NotImplementedError; delete that line when you have answered")


def _lines(findings: list[Finding]) -> list[str]:
    """A line a finding; cells that share a finding share a line when they are many."""
    same: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        same.setdefault((finding.what, finding.cure), []).append(finding)
    lines = []
    for group in same.values():
        if len(group) <= _NAMED:
            lines += [str(finding) for finding in group]
        else:
            first, last = group[0], group[-1]
            lines.append(f"{len(group)} cells, from {first.where} to {last.where}: each {first.what}. {first.cure}")
    return lines
