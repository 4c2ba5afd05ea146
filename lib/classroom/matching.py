"""Which cell of a submission speaks for which cell of the release: by id, else by text, place and likeness."""

from __future__ import annotations

import difflib
import re

import nbformat
from nbformat import NotebookNode
from nbgrader.utils import compute_checksum, is_solution

from classroom.submission import Cell

LIKE, VERY_LIKE = 0.6, 0.75  # how alike a cell without an id must be to pass for an answer, for an edited given cell
WORDS, TRIED = 200, 10  # what is compared at most: the beginning of a cell, and cells for a lost one


def name_of(cell: NotebookNode) -> str | None:
    """The id that nbgrader gave to a cell of a release."""
    return cell.metadata.get("nbgrader", {}).get("grade_id")


def bare(source: str) -> str:
    """A source without what editors change on their own: line ends, blanks at line ends, blank lines around it."""
    return "\n".join(line.rstrip() for line in source.split("\n")).strip()


def defines(source: str) -> set[str]:
    """The names that the unindented lines of a cell define."""
    names: set[str] = set()
    for line in source.splitlines():
        if head := re.match(r"(?:async )?(?:def|class) +(\w+)", line):
            names.add(head[1])
        elif "=" in line and (left := re.match(r"[\w, ]+", line)) and line[left.end() : left.end() + 1] in ("=", ":"):
            names |= set(re.findall(r"\w+", left[0]))
    return names


def alike(one: str, other: str) -> float:
    """How many words and signs two sources share in the same order, from 0 to 1."""
    if bare(one) == bare(other):
        return 1.0
    words = [re.findall(r"\w+|[^\w\s]", source[: 20 * WORDS])[:WORDS] for source in (one, other)]
    return difflib.SequenceMatcher(None, *words, autojunk=False).ratio()


def is_as_released(cell: Cell) -> bool:
    """Whether nbgrader's checksum in the cell says that nobody changed it since some release."""
    node = {"cell_type": cell.cell_type, "source": cell.source, "metadata": {"nbgrader": cell.nbgrader}}
    try:
        return cell.nbgrader.get("checksum") == compute_checksum(nbformat.from_dict(node))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError):
        return False


class Matching:
    """Positions count cells of the submission, places those of the release.

    `claims` lists for each place the positions that speak for it, `seats` the one that counts; `without_id` are the
    places whose cell had to be recognised; `older` counts given cells that are untouched since an older release.
    """

    def __init__(self, cells: list[Cell], release: NotebookNode):
        self.cells = cells
        self.given = release.cells
        # once a cell: a hostile notebook has thousands of long ones
        self.bare = [bare(cell.source) for cell in cells]
        self.names = [defines(cell.source) for cell in cells]
        self.places = {name_of(cell): place for place, cell in enumerate(self.given) if name_of(cell)}
        self.older = sum(self.is_of_older_release(position) for position in range(len(cells)))
        self.claims: dict[int, list[int]] = {place: [] for place in range(len(self.given))}
        self.claim_by_id()
        self.without_id = self.claim_by_source() | self.claim_by_likeness()
        self.seats = {place: self.choose(place, found) for place, found in self.claims.items() if found}

    def is_of_older_release(self, position: int) -> bool:
        cell = self.cells[position]
        place = self.places.get(cell.grade_id)
        differs = place is not None and self.bare[position] != bare(self.given[place].source)
        return differs and not is_solution(self.given[place]) and is_as_released(cell)

    def claim_by_id(self) -> None:
        wanted = {place: defines(cell.source) for place, cell in enumerate(self.given) if is_solution(cell)}
        for position, cell in enumerate(self.cells):
            if (place := self.places.get(cell.grade_id)) is None:
                continue
            if self.older and place in wanted and not wanted[place] & self.names[position]:
                better = [other for other, needed in wanted.items() if needed and needed <= self.names[position]]
                place = better[0] if len(better) == 1 else place  # problems were numbered otherwise
            self.claims[place].append(position)

    def claimed(self) -> set[int]:
        return {position for found in self.claims.values() for position in found}

    def free(self) -> list[int]:
        claimed = self.claimed()
        return [position for position in range(len(self.cells)) if position not in claimed]

    def claim_by_source(self) -> set[int]:
        """Locked cells whose id is lost, by their text."""
        by_source: dict[str, list[int]] = {}
        for position in self.free():
            by_source.setdefault(self.bare[position], []).append(position)
        found = set()
        for place, cell in enumerate(self.given):
            positions = by_source.get(bare(cell.source), [])
            if not self.claims[place] and not is_solution(cell) and positions:
                self.claims[place] = [positions.pop(0)]
                found.add(place)
        return found

    def claim_by_likeness(self) -> set[int]:
        """Answers, then edited locked cells, whose id is lost: by what they define, where they stand, how they read."""
        found = set()
        for answers in (True, False):
            lost = [p for p, cell in enumerate(self.given) if not self.claims[p] and is_solution(cell) == answers]
            free, between = self.free(), self.brackets()
            scores = []
            for place in lost:
                stub = self.given[place].source
                released = bare(stub)
                wanted = defines(stub) if answers else set()
                here = [position for position in free if between[position][0] < place < between[position][1]]
                is_here = set(here)
                spans = {between[position] for position in here}
                rivals = [other for other in lost if other != place and any(a < other < b for a, b in spans)]
                for position in free:
                    share = len(wanted & self.names[position]) / max(1, len(wanted))
                    is_same = self.bare[position] == released
                    if share >= 0.5 or is_same:
                        scores.append((2 * share + is_same + (position in is_here), -position, place))
                for position in here[:TRIED]:
                    cell = self.cells[position]
                    likeness = alike(stub, cell.source)
                    only = answers and len(here) == 1 and not rivals and cell.cell_type == "code"
                    if cell.source.strip() and (likeness >= (LIKE if answers else VERY_LIKE) or only):
                        scores.append((1 + likeness, -position, place))
            taken: set[int] = set()
            for _, position, place in sorted(scores, reverse=True):
                if not self.claims[place] and position not in taken:
                    self.claims[place] = [-position]
                    taken.add(position)
                    found.add(place)
        return found

    def brackets(self) -> list[tuple[int, int]]:
        """For each position the places of the nearest locked cells of the release above and below it."""
        where = {p: place for place, found in self.claims.items() if not is_solution(self.given[place]) for p in found}
        above, below = [], []
        nearest = -1
        for position in range(len(self.cells)):
            above.append(nearest)
            nearest = where.get(position, nearest)
        nearest = len(self.given)
        for position in reversed(range(len(self.cells))):
            below.append(nearest)
            nearest = where.get(position, nearest)
        return list(zip(above, reversed(below)))

    def choose(self, place: int, positions: list[int]) -> int:
        """The one cell that counts, of several for the same place."""
        given = self.given[place]
        if not is_solution(given):
            released = bare(given.source)
            return next((k for k in positions if self.bare[k] == released), positions[0])
        if len(positions) == 1:
            return positions[0]
        wanted, between = defines(given.source), self.brackets()

        def rank(position: int) -> tuple:
            cell = self.cells[position]
            return (
                not self.is_empty(place, cell),
                len(wanted & self.names[position]),
                between[position][0] < place < between[position][1],
                position,
            )

        return max(positions, key=rank)

    def is_empty(self, place: int, cell: Cell) -> bool:
        """Whether an answer cell is blank, or untouched since this or another release."""
        return bare(cell.source) in ("", bare(self.given[place].source)) or is_as_released(cell)
