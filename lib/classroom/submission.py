"""Read whatever a student may hand in as a notebook: bytes in, cells and findings out.

Nothing here trusts the file: no format is taken for granted, and no content raises anything but `Unreadable`.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from dataclasses import dataclass, field
from string import ascii_letters, digits

from nbformat.validator import iter_validate

LARGEST = 512 * 2**20  # bytes; a larger file is not opened
LARGE_OUTPUTS = 10 * 2**20
_EARLIER = "Take an earlier copy: JupyterLab keeps one in the folder .ipynb_checkpoints beside the notebook."


class Unreadable(Exception):
    """There is no notebook in the file; the message says what there is, and what to do."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: where, what, and what to do. `mended`: `doctor --fix` takes it away."""

    where: str
    what: str
    cure: str
    mended: bool = True

    def __str__(self) -> str:
        return f"{self.where}: {self.what}. {self.cure}"


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
    _refuse_other_kinds(data)
    findings: list[Finding] = []
    text = _text(data, findings)
    loose: list[tuple[str, Cell]] = []
    if re.search(r"^<{7}(?: |$)", text, re.MULTILINE):
        try:
            (document, _), (other, _) = (_document(side, findings) for side in _sides(text))
        except Unreadable:
            raise Unreadable(
                "the file holds git's conflict markers, and is no notebook without them. "
                "Choose one side: git checkout --ours FILE, or --theirs."
            ) from None
        ours, theirs = _cells(document, []), _cells(other, [])
        same = {(cell.grade_id, cell.source) for cell in ours}
        loose = [
            (f"the other side of a git conflict, cell {position} ({cell.grade_id or 'without an id'})", cell)
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
        document, rest = _document(text, findings)
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


# ---- bytes ----


def _refuse_other_kinds(data: bytes) -> None:
    """What is certainly no text of a notebook."""
    if len(data) > LARGEST:
        raise Unreadable(f"the file has {len(data) / 1e6:.0f} MB: clear its outputs in JupyterLab, and save.")
    if not data.strip(b"\0 \t\r\n"):
        what = "holds nothing but blanks or zero bytes" if data else "is empty (0 bytes)"
        raise Unreadable(f"the file {what}; a notebook is JSON text. {_EARLIER}")
    kinds = {b"PK\3\4": "a zip archive", b"\x1f\x8b": "a gzip archive", b"%PDF": "a PDF", b"\x89PNG": "a picture"}
    for beginning, kind in kinds.items():
        if data.startswith(beginning):
            cure = "Unpack it, and give the .ipynb inside." if "archive" in kind else "Give the .ipynb it was made of."
            raise Unreadable(f"the file is {kind} under a notebook's name. {cure}")


def _text(data: bytes, findings: list[Finding]) -> str:
    """The characters of the file, whatever encoding it is in."""
    encoding = json.detect_encoding(data)
    if encoding == "utf-8":
        try:
            return data.decode()
        except UnicodeDecodeError:
            found = "some other encoding than UTF-8 (read as Windows-1252; look at its accents and symbols)"
            text = re.sub(
                r"[\udc80-\udcff]",
                lambda odd: bytes([ord(odd[0]) - 0xDC00]).decode("cp1252", "replace"),
                data.decode("utf-8", "surrogateescape"),
            )
    else:
        found = "UTF-8 with a byte order mark" if encoding == "utf-8-sig" else encoding.upper()
        text = data.decode(encoding, "replace").removeprefix("\ufeff")
    findings.append(Finding("the file", f"is in {found}; a notebook is plain UTF-8", "--fix writes UTF-8."))
    return text


def _sides(text: str) -> tuple[str, str]:
    """The two files between which git's conflict markers ask to choose."""
    sides: tuple[list[str], list[str]] = ([], [])
    taking = {0, 1}
    for line in text.split("\n"):
        mark = line[:7] if len(line) == 7 or line[7:8] in (" ", "\r") else ""
        if mark in ("<<<<<<<", "|||||||", "=======", ">>>>>>>"):
            taking = {"<<<<<<<": {0}, "|||||||": set(), "=======": {1}, ">>>>>>>": {0, 1}}[mark]
            continue
        for side in taking:
            sides[side].append(line)
    return "\n".join(sides[0]), "\n".join(sides[1])


# ---- JSON ----


def _document(text: str, findings: list[Finding]) -> tuple[dict, str]:
    """The notebook as a dictionary, and the text after its end."""
    rest = ""
    text = text.strip("\0 \t\r\n")
    if re.match(r"<(?:!doctype|html|\?xml)", text, re.IGNORECASE):
        raise Unreadable("the file is a web page under a notebook's name. Download the notebook itself.")
    decoder = json.JSONDecoder(strict=False, parse_int=_number)  # strict=False: line ends inside strings
    try:
        document, end = decoder.raw_decode(text)
        if rest := text[end:].strip():
            findings.append(
                Finding("the file", "goes on after the end of the notebook", "--fix keeps that at the end.")
            )
    except RecursionError:
        raise Unreadable(f"the file is nested deeper than any notebook. {_EARLIER}") from None
    except json.JSONDecodeError as error:
        document = _completed(text, decoder) if text.startswith("{") else None
        if document is None:
            raise Unreadable(_why_not_json(text, error)) from None
        document = {"nbformat": 4, "nbformat_minor": 5} | document  # these stand at the end
        findings.append(Finding("the file", "breaks off before its end", f"--fix saves what is there. {_EARLIER}"))
    if not isinstance(document, dict) or not isinstance(document.get("cells", document.get("worksheets")), list):
        broken_off = any("breaks off" in finding.what for finding in findings)
        what = "breaks off before its first cell" if broken_off else "is JSON, but no notebook: it has no list of cells"
        raise Unreadable(f"the file {what}. {_EARLIER}")
    return document, rest


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) < 400 else float(digits)  # Python refuses to read very long integers


def _completed(text: str, decoder: json.JSONDecoder) -> dict | None:
    """A text that breaks off, with everything closed that stands open; None if that gives no JSON."""
    open_brackets: list[str] = []
    for token in re.finditer(r'"(?:[^"\\]++|\\.)*+("?)|[{}\[\]]', text, re.DOTALL):
        if token[0] in "{[":
            open_brackets.append("}" if token[0] == "{" else "]")
        elif token[0] in "}]":
            if not open_brackets or open_brackets.pop() != token[0]:
                return None
        elif not token[1]:  # a string without its end
            text = re.sub(r"(?<!\\)((?:\\\\)*)\\(?:u[0-9a-fA-F]{0,3})?$", r"\1", text) + '"'
    if not open_brackets:
        return None
    end = "".join(reversed(open_brackets))
    shorter = text.rstrip(ascii_letters + digits + ".+-")  # a number or a word may be cut
    for start in (text, shorter):
        start = start.rstrip()
        for joint in ("", ":null", "null"):
            try:
                return decoder.decode(start.removesuffix(",") + joint + end)
            except (json.JSONDecodeError, RecursionError):
                continue
    return None


def _why_not_json(text: str, error: json.JSONDecodeError) -> str:
    if not text.startswith(("{", "[")) and len(text) < 2**20:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse(text)
            return "the file is Python code under a notebook's name. Copy it into the answer cells of the exercise."
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return f"the file is some other text under a notebook's name. {_EARLIER}"
    return f"line {error.lineno}, column {error.colno} is no JSON ({error.msg}). {_EARLIER}"


# ---- the notebook ----


def _cells(document: dict, findings: list[Finding]) -> list[Cell]:
    raw = document.get("cells")
    if not isinstance(raw, list):  # nbformat 3
        sheets = [sheet for sheet in document["worksheets"] if isinstance(sheet, dict)]
        raw = [cell for sheet in sheets if isinstance(sheet.get("cells"), list) for cell in sheet["cells"]]
    return [_cell(cell, position, findings) for position, cell in enumerate(raw, 1)]


def _cell(raw: object, position: int, findings: list[Finding]) -> Cell:
    if not isinstance(raw, dict):
        findings.append(Finding(f"cell {position}", "is no cell, but a bare value", "--fix keeps it as text."))
        return Cell("raw", _whole(raw if isinstance(raw, str) else json.dumps(raw)))
    given = raw.get("source", raw.get("input"))
    if isinstance(given, list) and all(isinstance(line, str) for line in given):
        given = "".join(given)
    if given is not None and not isinstance(given, str):
        findings.append(Finding(f"cell {position}", "has a source that is no text", "--fix keeps it as it is written."))
        given = json.dumps(given)
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
