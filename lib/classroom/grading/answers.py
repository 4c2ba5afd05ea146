"""Put the answers of a submission into the instructor's notebook, which is the authority on everything else.

Only the text of answers and the student's own cells are taken, without what may stand beside it: no settings, tags,
attachments or outputs. Tests, points and order are the instructor's, so nothing in a file can change them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import nbformat
from nbformat import NotebookNode
from nbgrader.preprocessors import ClearHiddenTests, ClearMarkScheme
from nbgrader.utils import compute_checksum, is_grade, is_solution, is_task

from classroom.grading.handed_in import shown
from classroom.matching import bare, name_of
from classroom.placement import place, rebuilt
from classroom.submission import Cell, Finding, Submission, Unreadable, read

LONGEST, LONGEST_ALL = 2**20, 2**24  # characters of a cell, and of all cells together
OWN_CELLS, OWN_TEXT = 2_000, 8 * 2**20  # a student's own cells, and their characters together
KEPT = 2**16  # characters of a text without a place
FINDINGS = 40  # that are listed
_UNPLACED = "**Not placed: {label}.** It was not run. A person may look at it."


@dataclass
class Placed:
    """The notebook to run: the authority's cells with the student's answers, and the student's own cells between them.

    `notebook` is None if the file holds no notebook; the last finding says why. `unanswered` are the answer cells
    that are as they were released, or blank.
    """

    notebook: NotebookNode | None
    unanswered: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)


def placed(data: bytes, authority: NotebookNode) -> Placed:
    """The answers in `data`, in the notebook `authority`, which stays as it is."""
    release = as_released(authority)
    try:
        return _placed(data, release, authority)
    except Unreadable as error:
        return Placed(None, findings=[shown(str(error), 400)])
    except Exception as error:  # a submission may hold anything; one of them never stops a class
        why = f"the file cannot be read ({type(error).__name__}). Copy your answers into a fresh exercise."
        return Placed(None, findings=[why], flags=[f"reading the file failed: {shown(repr(error), 200)}"])


def _placed(data: bytes, release: NotebookNode, authority: NotebookNode) -> Placed:
    submission = _bounded(read(data), release)
    found = place(submission, release)
    findings, flags = submission.findings + found.findings, []
    own = [(where, Cell(cell.cell_type, cell.source)) for where, cell in found.own]
    within, spent = [], 0
    for where, cell in own[:OWN_CELLS]:
        spent += len(cell.source)
        within += [(where, cell)] * (spent <= OWN_TEXT)
    if len(within) < len(own):
        what = f"has {len(own)} cells of your own, of which {len(own) - len(within)} were left out"
        findings.append(Finding("the notebook", what, f"Hand in at most {OWN_CELLS}.", mended=False))
        flags.append(f"{len(own) - len(within)} of the student's own cells were left out: they are too many.")
    kept = [(shown(label), Cell(cell.cell_type, cell.source[:KEPT])) for label, cell in found.kept]
    given = given_texts(release)
    if 3 * len(given & {bare(cell.source) for cell in submission.cells}) < len(given):
        what = "holds hardly any cell of this exercise"
        findings.insert(0, Finding("the notebook", what, "Did you hand in another one?", mended=False))
        flags.append("hardly any cell of the exercise is in the notebook: is it the right one?")
    if kept and found.unanswered:
        flags.append("text that has no place any more stands at the end of the notebook: is it an answer?")
    answers = replace(found, release=authority, own=within, kept=kept[:FINDINGS])
    return Placed(rebuilt(answers, note=_UNPLACED), found.unanswered, _said(findings), flags)


def _bounded(submission: Submission, release: NotebookNode) -> Submission:
    """The submission without texts that are longer than a person writes; what has an id of the release goes first."""
    ids = {name_of(cell) for cell in release.cells} - {None}
    cells, left = [*submission.cells], LONGEST_ALL
    for position in sorted(range(len(cells)), key=lambda k: cells[k].grade_id not in ids):
        length = len(cells[position].source)
        if length <= min(LONGEST, left):
            left -= length
            continue
        what = f"has {length / 1e6:.1f} million characters" if length > LONGEST else "makes the notebook too long"
        cure = "Read large data from a file, and hand in the code alone."
        finding = Finding(f"cell {position + 1}", f"{what}: its text was not taken", cure, mended=False)
        submission.findings.append(finding)
        cells[position] = replace(cells[position], source="")
    return replace(submission, cells=cells)


def as_released(authority: NotebookNode) -> NotebookNode:
    """The authority as students got it, without what is hidden from them: else all tests would seem to be changed."""
    notebook = nbformat.from_dict(authority)
    clear_tests, clear_scheme = ClearHiddenTests(), ClearMarkScheme(check_attachment_leakage=False)
    for cell in notebook.cells:
        if is_grade(cell):
            clear_tests.preprocess_cell(cell, {}, 0)
        if is_task(cell):
            clear_scheme.preprocess_cell(cell, {}, 0)
        if name_of(cell):
            cell.metadata.nbgrader.checksum = compute_checksum(cell)
    return notebook


def _said(findings: list[Finding]) -> list[str]:
    """A line for everything that is wrong; cells with the same fault share one."""
    same: dict[tuple[str, str], dict[str, None]] = {}
    for finding in findings:
        what = shown(finding.what, 200)
        cure = "It was mended for marking." if finding.mended else finding.cure
        same.setdefault((what, cure), {})[shown(finding.where)] = None
    lines = []
    for (what, cure), where in same.items():
        places = [*where]
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        lines.append(f"{'; '.join(places[:3])}{more}: {what}. {cure}")
    if any(finding.mended for finding in findings):
        return [*cut(lines, FINDINGS - 1), "Before you hand in: python -m classroom doctor --fix NOTEBOOK"]
    return cut(lines)


def cut(lines: list[str], most: int = FINDINGS) -> list[str]:
    """The lines, or the first of them and how many more there are."""
    return lines if len(lines) <= most else [*lines[: most - 1], f"and {len(lines) - most + 1} more"]


def given_texts(release: NotebookNode) -> set[str]:
    """The texts and checks of a release that no student writes into."""
    return {bare(cell.source) for cell in release.cells if not is_solution(cell)}
