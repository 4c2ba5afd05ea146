"""Generate exercises/ from solutions/: nbgrader's release in the course's canonical form."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import nbformat
from nbgrader.utils import compute_checksum

from classroom.grading.course import ROOT, GradingFailed, generate, known, settings
from classroom.notebooks import canonical, text, write_if_changed


def build(assignment: str, folder: Path, gradebook: str | None = None) -> Path:
    """Release one assignment inside the course folder `folder`; returns the folder of the release.

    The same source gives the same bytes. `gradebook` gets the assignment's cells and points.
    """
    source = folder / "solutions" / known(assignment)
    if source.resolve() != (ROOT / "solutions" / assignment).resolve():
        shutil.copytree(ROOT / "solutions" / assignment, source, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    released = generate(settings(folder, gradebook), assignment)
    for path in released.glob("*.ipynb"):
        write_if_changed(path, text(canonical(nbformat.read(path, as_version=4), path.stem)))
    return released


def release(assignment: str, force: bool = False, gradebook: str | None = None) -> list[str]:
    """Bring exercises/`assignment` up to date; returns the files that changed.

    Raises `GradingFailed` if that would overwrite somebody's work, unless `force`.
    """
    changed = []
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        released = build(assignment, Path(folder), gradebook)
        for path in sorted(p for p in released.rglob("*") if p.is_file()):
            target = ROOT / "exercises" / assignment / path.relative_to(released)
            shown = target.relative_to(ROOT).as_posix()
            if target.is_file() and target.read_bytes() == path.read_bytes():
                continue
            if target.is_file() and not force and not is_replaceable(target):
                raise GradingFailed(
                    f"{shown} is neither the committed file nor an untouched release: it may hold somebody's answers.\n"
                    "Copy it to another folder if it is worth keeping, then overwrite it with: "
                    f"python -m classroom.grading release {assignment} --force"
                )
            if path.suffix == ".ipynb":
                write_if_changed(target, path.read_text(encoding="utf-8"))
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
            changed.append(shown)
    return changed


def is_replaceable(path: Path) -> bool:
    """Whether a file of exercises/ is what git holds, or a release that nobody wrote into."""
    name = path.resolve().relative_to(ROOT).as_posix()
    git = shutil.which("git")
    if git:
        committed = subprocess.run([git, "-C", str(ROOT), "show", f"HEAD:{name}"], capture_output=True)
        if committed.returncode == 0 and committed.stdout == path.read_bytes().replace(b"\r\n", b"\n"):
            return True
    return path.suffix == ".ipynb" and is_untouched(path)


def is_untouched(path: Path) -> bool:
    """Whether every cell of a notebook is as nbgrader released it: in form, by checksum, without outputs."""
    try:
        notebook = nbformat.read(path, as_version=4)
        if text(canonical(notebook, path.stem)).encode("utf-8") != path.read_bytes():
            return False
        return all(
            cell.metadata.nbgrader.checksum == compute_checksum(cell) and not cell.get("outputs")
            for cell in notebook.cells
        )
    except (ValueError, AttributeError, KeyError, nbformat.ValidationError):
        return False  # no notebook, or a cell that no release has
