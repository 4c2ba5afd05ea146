"""From the bytes of a file to the JSON of a notebook, mended as far as that is safe.

No encoding and no size is taken for granted: what would take hours or all memory to read is refused.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from dataclasses import dataclass
from string import ascii_letters, digits

LARGEST = 512 * 2**20  # bytes; a larger file is not opened
# in a file; more is no notebook, and would take far more memory than the file
MOST_LISTS, MOST_VALUES, MOST_LINES = 2_000_000, 6_000_000, 20_000_000  # as many quotation marks as lines
EARLIER = "Take an earlier copy: JupyterLab keeps one in the folder .ipynb_checkpoints beside the notebook."


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


# ---- bytes ----


def is_word(data: bytes) -> bool:
    """Whether a file is a Word document: a zip archive of certain names, which stand in it as they are."""
    return data.startswith(b"PK\3\4") and b"[Content_Types].xml" in data and b"word/" in data


def refuse_other_kinds(data: bytes) -> None:
    """What is certainly no text of a notebook."""
    if len(data) > LARGEST:
        raise Unreadable(f"the file has {len(data) / 1e6:.0f} MB: clear its outputs in JupyterLab, and save.")
    if not data.strip(b"\0 \t\r\n"):
        what = "holds nothing but blanks or zero bytes" if data else "is empty (0 bytes)"
        raise Unreadable(f"the file {what}; a notebook is JSON text. {EARLIER}")
    if is_word(data):
        raise Unreadable("the file is a Word document, no notebook. Hand in the notebook (.ipynb).")
    kinds = {b"PK\3\4": "a zip archive", b"\x1f\x8b": "a gzip archive", b"%PDF": "a PDF", b"\x89PNG": "a picture"}
    for beginning, kind in kinds.items():
        if data.startswith(beginning):
            cure = "Unpack it, and give the .ipynb inside." if "archive" in kind else "Give the .ipynb it was made of."
            raise Unreadable(f"the file is {kind} under a notebook's name. {cure}")


def text_of(data: bytes, findings: list[Finding]) -> str:
    """The characters of the file, whatever encoding it is in."""
    encoding = json.detect_encoding(data)
    if encoding == "utf-8":
        try:
            return data.decode()
        except UnicodeDecodeError:
            found = "some other encoding than UTF-8 (read as Windows-1252; look at its accents and symbols)"
            letters = {0xDC00 + byte: bytes([byte]).decode("cp1252", "replace") for byte in range(0x80, 0x100)}
            text = data.decode("utf-8", "surrogateescape").translate(letters)
    else:
        found = "UTF-8 with a byte order mark" if encoding == "utf-8-sig" else encoding.upper()
        text = data.decode(encoding, "replace").removeprefix("\ufeff")
    findings.append(Finding("the file", f"is in {found}; a notebook is plain UTF-8", "--fix writes UTF-8."))
    return text


def refuse_overfull(text: str) -> None:
    """What would be far larger once it is read: millions of empty lists, numbers, strings or lines."""
    if len(text) <= MOST_LISTS:
        return
    outside = re.sub(r'"(?:[^"\\]++|\\.)*+(?:"|$)', "", text, flags=re.DOTALL)
    lists, values = outside.count("[") + outside.count("{"), outside.count(",") + outside.count(":")
    lines = max(text.count('"'), text.count("\n"))
    if lists > MOST_LISTS or values > MOST_VALUES or lines > MOST_LINES:
        raise Unreadable(f"the file holds more lists, values or lines than any notebook. {EARLIER}")


def sides(text: str) -> tuple[str, str]:
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


def document_in(text: str, findings: list[Finding]) -> tuple[dict, str]:
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
        raise Unreadable(f"the file is nested deeper than any notebook. {EARLIER}") from None
    except json.JSONDecodeError as error:
        document = _completed(text, decoder) if text.startswith("{") else None
        if document is None:
            raise Unreadable(_why_not_json(text, error)) from None
        document = {"nbformat": 4, "nbformat_minor": 5} | document  # these stand at the end
        findings.append(Finding("the file", "breaks off before its end", f"--fix saves what is there. {EARLIER}"))
    if not isinstance(document, dict) or not isinstance(document.get("cells", document.get("worksheets")), list):
        broken_off = any("breaks off" in finding.what for finding in findings)
        what = "breaks off before its first cell" if broken_off else "is JSON, but no notebook: it has no list of cells"
        raise Unreadable(f"the file {what}. {EARLIER}")
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
            text = _without_half_an_escape(text) + '"'
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


def _without_half_an_escape(text: str) -> str:
    r"""`text` without a backslash at its end that escapes nothing, and without ``\u12``."""
    half = re.search(r"(?:u[0-9a-fA-F]{0,3})?$", text[-4:])[0]
    whole = text.removesuffix(half)
    is_open = (len(whole) - len(whole.rstrip("\\"))) % 2 == 1
    return whole[:-1] if is_open else text


def _why_not_json(text: str, error: json.JSONDecodeError) -> str:
    if not text.startswith(("{", "[")) and len(text) < 2**20:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse(text)
            return "the file is Python code under a notebook's name. Copy it into the answer cells of the exercise."
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return f"the file is some other text under a notebook's name. {EARLIER}"
    return f"line {error.lineno}, column {error.colno} is no JSON ({error.msg}). {EARLIER}"
