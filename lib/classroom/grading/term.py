"""`python -m classroom.grading term SEED`: new numbers in the exercises, all of them or none.

The rewriting is a function of the notebooks' text; what runs and what writes stands around it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat

from classroom import terms
from classroom.grading import course
from classroom.grading.course import ROOT, GradingFailed
from classroom.grading.release import is_replaceable, release
from classroom.notebooks import NotebookFailed, canonical, execute, text, write_if_changed


def rewritten(source: str, stem: str, old: tuple, new: tuple, name: str = "") -> str:
    """The text of a source notebook with the lines that hold the numbers `old` replaced by those for `new`.

    Raises `GradingFailed` if one of them does not stand in its cell exactly once, and names cell and line.
    """
    notebook = nbformat.reads(source, as_version=4)
    cells = {cell.metadata.nbgrader.grade_id: cell for cell in notebook.cells}
    after = terms.lines(stem, new)
    for cell_id, before in terms.lines(stem, old).items():
        if cell_id not in cells:
            raise GradingFailed(f"{name or stem} has no cell {cell_id!r}, which holds numbers of the term. " + _CURE)
        held = cells[cell_id].source.split("\n")
        places = {}
        for line, replacement in zip(before, after[cell_id], strict=True):
            if held.count(line) != 1:
                raise GradingFailed(
                    f"{name or stem}, cell {cell_id!r}: this line stands there {held.count(line)} times, not once:\n"
                    f"    {line}\n{_CURE}"
                )
            places[held.index(line)] = replacement
        cells[cell_id].source = "\n".join(places.get(k, line) for k, line in enumerate(held))
    return text(canonical(notebook, name or stem))


_CURE = "Nothing was written. Lines and numbers are described in lib/classroom/terms/: bring both together."


def change(new_seed: int, say: Callable[[str], None] = print) -> None:
    """Give every exercise the numbers of a seed: write, run and release, or leave everything as it was."""
    if new_seed < 0:
        raise GradingFailed("a seed is a whole number from 0 on; 0 stands for the printed numbers.")
    old_seed, new_texts = _seed(), {}
    for name, stem in varied().items():
        old, new = (terms.numbers(stem, of) for of in (old_seed, new_seed))
        changed = rewritten(_solution(name).read_text(encoding="utf-8"), stem, old, new, name)
        if new != old:
            new_texts[name] = changed
    exercises = [ROOT / "exercises" / name / f"{name}.ipynb" for name in new_texts]
    for path in exercises:
        if path.is_file() and not is_replaceable(path):
            raise GradingFailed(
                f"{path.relative_to(ROOT).as_posix()} may hold somebody's answers: it is neither the committed file "
                "nor an untouched release.\nMove it to another folder, then try again. Nothing was written."
            )

    touched = [terms.SEED_FILE, *map(_solution, new_texts), *exercises]
    before = {path: path.read_bytes() if path.is_file() else None for path in touched}
    try:
        terms.SEED_FILE.write_text(f"{new_seed}\n", encoding="utf-8")
        for name, source in new_texts.items():
            write_if_changed(_solution(name), source)
            write_if_changed(_solution(name), execute(_solution(name)))
            say(f"solutions/{name}: new numbers, and every check passes")
        for name in new_texts:
            release(name, gradebook=course.teachers_gradebook())
            say(f"exercises/{name}: released")
    except BaseException as error:
        for path, data in before.items():
            if data is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(data)
        if isinstance(error, NotebookFailed):
            raise GradingFailed(f"{error}\nEvery file is as it was before.") from error
        raise


def varied() -> dict[str, str]:
    """The assignments that have numbers in `terms`: name → stem."""
    return {name: stem for name in course.assignments() if (stem := name.partition("_")[2]) in terms.stems()}


def listing() -> str:
    """The seed and the numbers of each assignment, as text."""
    seed = _seed()
    shown = [f"seed {seed}" + (": the printed numbers" if seed == 0 else "")]
    stems = varied()
    for name in course.assignments():
        drawn = terms.named(stems[name], terms.numbers(stems[name])) if name in stems else {}
        shown.append(f"{name:14} " + ("  ".join(f"{key} = {one}" for key, one in drawn.items()) or "nothing varies"))
    return "\n".join(shown)


def _seed() -> int:
    try:
        return terms.seed()
    except (ValueError, OSError) as error:
        raise GradingFailed(str(error)) from error


def _solution(name: str) -> Path:
    return ROOT / "solutions" / name / f"{name}.ipynb"
