"""Read whatever a student may hand in as a notebook: bytes in, cells and findings out.

Nothing here trusts the file: no format is taken for granted, and no content raises anything but `Unreadable`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from nbformat.validator import iter_validate

from classroom.salvage import (
    EARLIER,
    Finding,
    Unreadable,
    document_in,
    refuse_other_kinds,
    refuse_overfull,
    sides,
    text_of,
)

LARGE_OUTPUTS = 10 * 2**20  # bytes
MOST_CELLS = 100_000


@dataclass(frozen=True)
class Cell:
    """A cell as it was handed in. `cell_type` is "code", "markdown", "raw", or "" where the file says none."""

    cell_type: str
    source: str
    metadata: dict = field(default_factory=dict)
    cell_id: object = None
    attachments: object = None

    @property
    def nbgrader(self) -> dict:
        given = self.metadata.get("nbgrader")
        return given if isinstance(given, dict) else {}

    @property
    def grade_id(self) -> str | None:
        given = self.nbgrader.get("grade_id")
        return given if isinstance(given, str) else None


@dataclass
class Submission:
    """What a file holds: its cells, text that stood outside them (label → cell), and what is wrong with the file."""

    cells: list[Cell]
    loose: list[tuple[str, Cell]]
    findings: list[Finding]
    has_cell_ids: bool


def read(data: bytes) -> Submission:
    """The notebook in `data`, mended as far as that is safe. Raises `Unreadable` if there is none."""
    refuse_other_kinds(data)
    findings: list[Finding] = []
    text = text_of(data, findings)
    refuse_overfull(text)
    loose: list[tuple[str, Cell]] = []
    if re.search(r"^<{7}(?: |$)", text, re.MULTILINE):
        try:
            (document, _), (other, _) = (document_in(side, findings) for side in sides(text))
        except Unreadable:
            raise Unreadable(
                "the file holds git's conflict markers, and is no notebook without them. "
                "Choose one side: git checkout --ours FILE, or --theirs."
            ) from None
        ours, theirs = _cells(document, []), _cells(other, [])
        same = {(cell.grade_id, cell.source) for cell in ours}
        loose = [
            (f"the other side of a git conflict, cell {position} ({_whole(cell.grade_id or 'no id')[:40]})", cell)
            for position, cell in enumerate(theirs, 1)
            if (cell.grade_id, cell.source) not in same
        ]
        findings.append(
            Finding(
                "the file",
                "holds git's conflict markers",
                "--fix takes the first side, and keeps cells of the other at the end.",
            )
        )
    else:
        document, rest = document_in(text, findings)
        if rest:
            loose = [("text after the end of the notebook", Cell("raw", _whole(rest)))]
    cells = _cells(document, findings)
    written = sum(len(cell.source) for cell in cells)
    if len(data) - written > LARGE_OUTPUTS:
        findings.append(
            Finding(
                "the file",
                f"is {len(data) / 1e6:.0f} MB, nearly all of it outputs",
                "--fix leaves outputs out. So does JupyterLab: menu Edit, Clear Outputs of All Cells.",
            )
        )
    has_cell_ids = _format(document, findings)
    if not findings and (fault := _invalid(document)):
        findings.append(
            Finding("the file", f"is no valid notebook ({fault})", "--fix builds it anew from the texts of its cells.")
        )
    return Submission(cells, loose, findings, has_cell_ids)


def _cells(document: dict, findings: list[Finding]) -> list[Cell]:
    raw = document.get("cells")
    if not isinstance(raw, list):  # nbformat 3
        sheets = [sheet for sheet in document["worksheets"] if isinstance(sheet, dict)]
        raw = [cell for sheet in sheets if isinstance(sheet.get("cells"), list) for cell in sheet["cells"]]
    if len(raw) > MOST_CELLS:
        raise Unreadable(f"the file has {len(raw)} cells, more than any notebook. {EARLIER}")
    return [_cell(cell, position, findings) for position, cell in enumerate(raw, 1)]


def _cell(raw: object, position: int, findings: list[Finding]) -> Cell:
    if not isinstance(raw, dict):
        findings.append(Finding(f"cell {position}", "is no cell, but a bare value", "--fix keeps it as text."))
        return Cell("raw", _whole(raw if isinstance(raw, str) else _as_json(raw)))
    given = raw.get("source", raw.get("input"))
    if isinstance(given, list) and all(isinstance(line, str) for line in given):
        given = "".join(given)
    if given is not None and not isinstance(given, str):
        findings.append(Finding(f"cell {position}", "has a source that is no text", "--fix keeps it as it is written."))
        given = _as_json(given)
    source = _whole(given or "")
    if source != (given or ""):
        findings.append(
            Finding(f"cell {position}", "holds half a character (a lone surrogate)", "--fix puts \ufffd in its place.")
        )
    kind = raw.get("cell_type")
    if kind == "heading":  # nbformat 3
        level = raw.get("level")
        kind, source = "markdown", "#" * (level if type(level) is int and 1 <= level <= 6 else 1) + " " + source
    metadata = raw.get("metadata")
    return Cell(
        cell_type=kind if kind in ("code", "markdown", "raw") else "",
        source=source,
        metadata=metadata if isinstance(metadata, dict) else {},
        cell_id=raw.get("id"),
        attachments=raw.get("attachments"),
    )


def _as_json(value: object) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return "(nested deeply)"


def _whole(text: str) -> str:
    """`text` without halves of characters, which no file can hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _format(document: dict, findings: list[Finding]) -> bool:
    """Whether the notebook's format has cell ids; an old format is a finding."""
    major, minor = document.get("nbformat"), document.get("nbformat_minor", 0)
    if (major, minor) == (4, 5):
        return True
    known = [number if type(number) is int and abs(number) < 1000 else "?" for number in (major, minor)]
    findings.append(
        Finding("the file", f"is in notebook format {known[0]}.{known[1]}; the exercise is in 4.5", "--fix writes 4.5.")
    )
    return False


def _invalid(document: dict) -> str | None:
    """What the format's own rules say against the notebook, cell ids aside: those are reported by cell."""
    try:
        for error in iter_validate(document, version=4, version_minor=5):
            if "id" not in error.path and "'id' is a required property" not in error.message:
                return error.message.splitlines()[0][:100]
    except (RecursionError, TypeError, ValueError, AttributeError, KeyError) as error:
        return f"{type(error).__name__} while it was checked"
    return None
