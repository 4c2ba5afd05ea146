"""Put what a student wrote into the fresh release: answers by their ids, or by place and likeness where ids are lost.

The release is the authority on everything but the text of answer cells. A student's own cells stay after their
neighbour. Text that has no place any more is kept at the end, and named. Nothing that a student wrote is dropped.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import nbformat
from nbformat import NotebookNode, ValidationError
from nbgrader.utils import is_grade, is_solution

from classroom.matching import Matching, bare, is_as_released, name_of
from classroom.submission import Cell, Finding, Submission

STUB = 'raise NotImplementedError("not answered yet")'
_BACK = "--fix puts the given cell back."
_NOTE = "**Kept by the doctor: {label}.** Move what you need into its cell, then delete this one."


@dataclass
class Placement:
    """Where everything of a submission goes.

    `answers` maps an answer cell to what stands in it. `own` are the student's cells, each after a cell of the
    release (-1: before the first). `kept` has no place any more: label → cell.
    """

    release: NotebookNode
    answers: dict[str, str]
    own: list[tuple[int, Cell]]
    kept: list[tuple[str, Cell]]
    findings: list[Finding]

    @property
    def unanswered(self) -> list[str]:
        """Answer cells that are as they were released, or blank."""
        given = {name_of(cell): cell.source for cell in self.release.cells if is_solution(cell)}
        return [name for name, stub in given.items() if bare(self.answers.get(name, "")) in ("", bare(stub))]

    @property
    def half_answered(self) -> list[str]:
        """Answer cells that hold an answer, and still the line that says there is none."""
        open_ones = [name for name, source in self.answers.items() if re.search(f"^ *{re.escape(STUB)}", source, re.M)]
        return [name for name in open_ones if name not in self.unanswered]


def named(cell: NotebookNode) -> str:
    """A cell of a release in a reader's words, such as "problem 5, answer"."""
    name = name_of(cell) or "a cell without an id"
    problem, _, rest = name.partition("-")
    if not re.fullmatch(r"p\d+", problem):
        return f"the cell {name!r}"
    return f"problem {problem[1:]}, {'check ' if is_grade(cell) else ''}{rest or 'text'}"


def place(submission: Submission, release: NotebookNode) -> Placement:
    """Find for every cell of `submission` its place in `release`."""
    return _Placing(submission, release).result()


def rebuilt(placement: Placement, note: str = _NOTE) -> NotebookNode:
    """The fresh release with the answers, the student's own cells, and at its end what had no place, below `note`."""
    notebook = nbformat.from_dict(placement.release)
    taken, numbers = {cell.id for cell in notebook.cells}, count(1)
    for cell in notebook.cells:
        if is_solution(cell):
            cell.source = placement.answers.get(name_of(cell), cell.source)
    after: dict[int, list[NotebookNode]] = {}
    for place, cell in placement.own:
        after.setdefault(place, []).append(_own_cell(cell, _free_id(cell.cell_id, taken, numbers)))
    last = len(notebook.cells) - 1
    for label, cell in placement.kept:
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", cell.source)), default=0))
        text = f"{note.format(label=label)}\n\n{fence}python\n{cell.source}\n{fence}"
        after.setdefault(last, []).append(_own_cell(Cell("markdown", text), _free_id(None, taken, numbers)))
    cells = after.get(-1, [])
    for place, cell in enumerate(notebook.cells):
        cells += [cell, *after.get(place, [])]
    notebook.cells = cells
    return notebook


def _free_id(wanted: object, taken: set[str], numbers: Iterator[int]) -> str:
    """A cell id that no other cell has: the student's own, if it can stay, else one of the next number."""
    if not (isinstance(wanted, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,64}", wanted) and wanted not in taken):
        while (wanted := f"own-{next(numbers):02d}") in taken:
            pass
    taken.add(wanted)
    return wanted


def _own_cell(cell: Cell, cell_id: str) -> NotebookNode:
    """A student's own cell in today's format, with as much of its metadata as is valid."""
    kept = {key: value for key, value in cell.metadata.items() if key != "nbgrader"}
    if "nbgrader" in cell.metadata:  # a copy of a given cell came with its locks
        kept = {key: value for key, value in kept.items() if key not in ("deletable", "editable")}
    node = {"cell_type": cell.cell_type or "raw", "id": cell_id, "source": cell.source}
    if node["cell_type"] == "code":
        node |= {"outputs": [], "execution_count": None}
    full = {**node, "metadata": kept} | ({"attachments": cell.attachments} if cell.attachments else {})
    try:
        full = nbformat.from_dict(full)
        notebook = nbformat.v4.new_notebook(cells=[full])
        nbformat.validate(notebook)
        nbformat.writes(notebook, version=nbformat.NO_CONVERT).encode()
        return full
    except (ValidationError, ValueError, TypeError, AttributeError, RecursionError):
        return nbformat.from_dict({**node, "metadata": {}})


def _longest_rising(numbers: list[int]) -> set[int]:
    """The members of a longest rising subsequence."""
    tails: list[int] = []  # the smallest end of a rising run of each length
    before: dict[int, int | None] = {}
    for number in numbers:
        k = bisect_left(tails, number)
        before[number] = tails[k - 1] if k else None
        tails[k : k + 1] = [number]
    chain, last = set(), tails[-1] if tails else None
    while last is not None:
        chain.add(last)
        last = before[last]
    return chain


class _Placing:
    """One placement under way. Positions count cells of the submission, places those of the release."""

    def __init__(self, submission: Submission, release: NotebookNode):
        self.cells = submission.cells
        self.given = release.cells
        self.release = release
        self.findings: list[Finding] = []
        self.kept = list(submission.loose)
        self.dropped: set[int] = set()
        self.has_cell_ids = submission.has_cell_ids
        self.matching = Matching(self.cells, release)
        self.claims, self.seats, self.older = self.matching.claims, self.matching.seats, self.matching.older

    def result(self) -> Placement:
        for place in range(len(self.given)):
            self.compare(place)
        self.find_moved()
        self.drop_unknown_cells()
        self.check_cell_ids()
        if self.older:
            self.report(
                "the notebook",
                f"was made from an older release ({self.older} given cells differ)",
                "--fix moves your answers into today's. Look at the problems whose text has changed.",
            )
        return Placement(self.release, self.answers(), self.own(), self.kept, self.findings)

    def report(self, where: str, what: str, cure: str, mended: bool = True) -> None:
        self.findings.append(Finding(where, what, cure, mended))

    def answers(self) -> dict[str, str]:
        answers = {}
        for place, position in self.seats.items():
            given, source = self.given[place], self.cells[position].source.replace("\r\n", "\n")
            if is_solution(given):
                is_empty = self.matching.is_empty(place, self.cells[position])
                answers[name_of(given)] = given.source if is_empty else source
                if re.search(r"^(?:<{7}|>{7})(?: |$)", source, re.MULTILINE):
                    self.report(named(given), "holds git's conflict markers", "Choose one side by hand.", mended=False)
        return answers

    def compare(self, place: int) -> None:
        """Report how the cells for one place differ from the release; keep text that would be lost."""
        given, where = self.given[place], named(self.given[place])
        seat, answer, without_id = self.seats.get(place), is_solution(given), place in self.matching.without_id
        if seat is None:
            self.report(where, "is missing", "--fix puts an empty one back." if answer else _BACK)
            return
        cell = self.cells[seat]
        if cell.cell_type != given.cell_type:
            kind = f"is a {cell.cell_type} cell" if cell.cell_type else "does not say which kind of cell it is"
            self.report(where, f"{kind}; it was given as a {given.cell_type} cell", "--fix turns it back.")
        if without_id:
            lost = f"has the unknown id {_short(cell.grade_id)}" if cell.grade_id else "has lost nbgrader's id"
            self.report(where, lost, "--fix gives it back: text or place tell which cell it is.")
        for position in self.claims[place]:
            twin = self.cells[position]
            if not answer:
                self.dropped.add(position)
                if twin.source != given.source:
                    self.report_edited(where, place, twin)
            elif position != seat and (
                self.matching.is_empty(place, twin) or self.matching.bare[position] == self.matching.bare[seat]
            ):
                self.dropped.add(position)
        if (copies := len(self.claims[place])) > 1:
            rest = "--fix takes the one in its place, and keeps other text as a cell of your own." if answer else ""
            self.report(where, f"is there {copies} times, with one id", rest or "--fix leaves one.")
        if not without_id:
            self.compare_metadata(where, place, cell)

    def report_edited(self, where: str, place: int, cell: Cell) -> None:
        if is_as_released(cell):
            return  # a text of the course, not of the student
        cure = _BACK
        if bare(cell.source) not in ("", bare(self.given[place].source)):
            self.kept.append((f"the changed text of {where}", cell))
            cure = "--fix puts the given cell back, and keeps the changed text at the end."
        self.report(where, "was changed; it is a given cell", cure)

    def compare_metadata(self, where: str, place: int, cell: Cell) -> None:
        given = self.given[place].metadata
        expected = dict(given.get("nbgrader", {}))
        if cell.source != self.given[place].source and not is_solution(self.given[place]):
            expected.pop("checksum", None)  # of the changed text, or of an older release
        changed = [key for key, value in expected.items() if cell.nbgrader.get(key) != value]
        if changed == ["checksum"] and self.older:
            return
        if changed:
            given_back = [f"{key} {_short(cell.nbgrader.get(key))}, not {_short(expected[key])}" for key in changed]
            shown = "; ".join(given_back)
            self.report(where, f"has other settings ({shown})", "--fix sets them back.")
        lost = [key for key in ("deletable", "editable") if key in given and cell.metadata.get(key) != given[key]]
        if lost:
            self.report(where, "has lost its lock against accidents", "--fix locks it again.")

    def find_moved(self) -> None:
        order = [place for place, _ in sorted(self.seats.items(), key=lambda seat: seat[1])]
        in_order = _longest_rising(order)
        for place in sorted(set(order) - in_order):
            before = named(self.given[place - 1]) if place else "the beginning"
            self.report(named(self.given[place]), f"was moved; it belongs after {before}", "--fix moves it back.")

    def drop_unknown_cells(self) -> None:
        """Cells with an nbgrader id that the release does not have, or with settings that mean nothing."""
        for position in self.matching.free():
            cell = self.cells[position]
            if "nbgrader" not in cell.metadata:
                continue
            flags = [flag for flag in ("grade", "solution", "locked") if cell.nbgrader.get(flag) is True]
            if cell.grade_id is None or not flags:
                self.report(f"cell {position + 1}", "has nbgrader settings that mean nothing", "--fix removes them.")
                continue
            self.dropped.add(position)
            what = f"has the id {_short(cell.grade_id)}, which the exercise does not have"
            if is_as_released(cell):
                self.older += 1
                self.report(f"cell {position + 1}", what, "It was given once; --fix leaves it out.")
            elif cell.source.strip():
                self.kept.append((f"cell {position + 1} with the unknown id {_short(cell.grade_id)}", cell))
                self.report(f"cell {position + 1}", what, "--fix keeps its text at the end.")
            else:
                self.report(f"cell {position + 1}", what, "It is blank; --fix leaves it out.")

    def check_cell_ids(self) -> None:
        """Ids of the notebook format, which JupyterLab and nbgrader's format check want: one for each cell."""
        places = {position: place for place, position in self.seats.items()}
        ids = Counter(cell.cell_id for cell in self.cells if isinstance(cell.cell_id, str))
        for position, cell in enumerate(self.cells):
            where = named(self.given[places[position]]) if position in places else f"cell {position + 1}"
            if not cell.cell_type and position not in places:
                self.report(where, "does not say which kind of cell it is", "--fix keeps it as raw text.")
            if not self.has_cell_ids:
                continue
            if not isinstance(cell.cell_id, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", cell.cell_id):
                self.report(where, "has no valid cell id", "--fix gives it one.")
            elif ids[cell.cell_id] > 1:
                self.report(where, "shares its cell id with another cell", "--fix gives it its own.")

    def own(self) -> list[tuple[int, Cell]]:
        """The student's own cells, each after the nearest cell of the release above it."""
        places = {position: place for place, found in self.claims.items() for position in found}
        found, above = [], -1
        for position, cell in enumerate(self.cells):
            is_seat = self.seats.get(places.get(position, -1)) == position
            if not is_seat and position not in self.dropped:
                found.append((above, cell))
            above = places[position] if is_seat else above
        return found


def _short(value: object) -> str:
    try:
        text = repr(value)
    except RecursionError:
        text = "something nested deeply"
    return text if len(text) <= 40 else text[:37] + "..."
