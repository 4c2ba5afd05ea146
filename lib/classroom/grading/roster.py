"""A list of people that a learning platform gave as CSV, and which of them a student's folder belongs to."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from classroom.grading.course import GradingFailed

FORMULA = re.compile(r"\s*[=+\-@|%＝＋－＠]|[\t\r]")  # what a spreadsheet may take for the beginning of a formula
LONGEST = 2**27  # characters of a cell: Moodle's worksheet holds all that a student wrote online


@dataclass
class Table:
    """A CSV file: its first row, the others, each as long as the first, and what stood between their cells."""

    header: list[str]
    rows: list[list[str]]
    delimiter: str = ","

    def column(self, *names: str) -> int | None:
        """The place of the column that has one of these names, whatever their capitals."""
        known = [cell.strip().casefold() for cell in self.header]
        return next((known.index(name.casefold()) for name in names if name.casefold() in known), None)

    def text(self) -> str:
        """The file, with the mark in front by which Excel knows UTF-8."""
        lines = io.StringIO()
        csv.writer(lines, delimiter=self.delimiter).writerows([self.header, *self.rows])
        return "\ufeff" + lines.getvalue()


def read(path: Path) -> Table:
    """Read a CSV file with commas, semicolons or tabs; raises `GradingFailed` if it is none."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise GradingFailed(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise GradingFailed(
            f"{path} is not in UTF-8: take it as the platform gave it, or save it as CSV UTF-8."
        ) from error
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    try:
        with _long_cells():
            rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]
    except csv.Error as error:
        raise GradingFailed(f"{path} is no CSV file: {error}. Take it as the platform gave it.") from error
    if len(rows) < 2 or len(rows[0]) < 2:
        raise GradingFailed(f"{path} is no CSV file with a row of headings and a row for each student.")
    wide = len(rows[0])
    return Table(rows[0], [(row + [""] * wide)[:wide] for row in rows[1:]], delimiter)


@contextlib.contextmanager
def _long_cells() -> Iterator[None]:
    """In here, a cell may have `LONGEST` characters; Python's own limit holds for the whole process."""
    before = csv.field_size_limit(LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def harmless(text: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{text}" if FORMULA.match(text) else text


@dataclass(frozen=True)
class Person:
    """Who a row of a roster is for: the name, the platform's number, and everything else that is only theirs.

    `is_numbered_once`: the number stays with the person, so that it is enough even where the names differ.
    """

    name: str
    number: str
    logins: tuple[str, ...] = ()
    is_numbered_once: bool = False


def match(students: list[str], people: list[Person]) -> tuple[dict[str, int], dict[str, str]]:
    """Student → place in `people`; and the students that belong to none or to several, with the reason.

    `students` are folders as `collect` names them: a name, a name with "_" and the platform's number, or a login.
    A number alone decides only if the names agree, or the number is for good: else a list of another assignment
    would give the marks to others.
    """
    by_login, by_number, by_name = defaultdict(set), defaultdict(set), defaultdict(set)
    for place, person in enumerate(people):
        for login in filter(None, person.logins):
            by_login[_plain(login)].add(place)
        if person.number:
            by_number[person.number].add(place)
        for words in _readings(person.name):
            by_name[words].add(place)
    found: dict[str, int] = {}
    missed: dict[str, str] = {}
    for student in students:
        name, number = re.fullmatch(r"(.*?)(?:(?:^|_)(\d+))?", student, re.DOTALL).groups()
        places = by_login.get(_plain(student)) or {
            place
            for place in by_number.get(number, ())
            if people[place].is_numbered_once or not name or _readings(name) & _readings(people[place].name)
        }
        if not places and number not in by_number:
            places = _named(by_name, student) or _named(by_name, name)
        if len(places) == 1:
            found[student] = next(iter(places))
        elif places:
            missed[student] = f"{len(places)} people of the list have this name"
        elif number in by_number:
            missed[student] = f"number {number} has another name in the list: is it the list of this assignment?"
        else:
            missed[student] = "nobody of the list has this name or number"
    students_of = defaultdict(list)
    for student, place in found.items():
        students_of[place].append(student)
    for same in students_of.values():
        for student in same if len(same) > 1 else ():
            del found[student]
            missed[student] = f"the same person as {', '.join(other for other in same if other != student)}"
    return found, missed


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).strip().casefold()


def _named(by_name: dict[tuple[str, ...], set[int]], name: str) -> set[int]:
    return {place for words in _readings(name) for place in by_name.get(words, ())}


def _readings(name: str) -> set[tuple[str, ...]]:
    """The words of a name, with an apostrophe read as a blank, and as nothing: Moodle leaves it out of file names."""
    return {_words(name), _words(re.sub("['’`]", "", name))} - {()}


def _words(name: str) -> tuple[str, ...]:
    """The words of a name in one order: "Last, First" is "First Last" and First_Last."""
    return tuple(sorted(filter(None, re.split(r"[\W_]+", _plain(name)))))
