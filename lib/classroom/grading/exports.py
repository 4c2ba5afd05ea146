"""`python -m classroom export ASSIGNMENT`: write the marks as CSV for Moodle, Canvas or nbgrader's users"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from nbgrader.api import Grade, Gradebook, MissingEntry, Student, SubmittedAssignment, SubmittedNotebook
from sqlalchemy import or_
from traitlets.config import Config

from classroom.grading import course, roster
from classroom.grading.course import ROOT, GradingFailed
from classroom.grading.handed_in import shown
from classroom.grading.roster import Person, Table, harmless
from classroom.grading.transaction import Held, opened
from classroom.notebooks import write_if_changed

# A mark is what nbgrader calls the score: with extra credit, less the late penalty, and never below 0.
NBGRADER = ["assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email"]
NBGRADER += ["raw_score", "late_submission_penalty", "score", "max_score"]
MOODLE = ("Identifier", "Full name", "Email address", "Grade", "Maximum grade", "Last modified (grade)")
CANVAS = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]


@dataclass(frozen=True)
class Mark:
    """What the gradebook says of a student. `is_waiting`: a person must still mark something; not `is_read`: all."""

    student: str
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    timestamp: datetime | None = None
    raw: float = 0.0
    penalty: float = 0.0
    is_waiting: bool = False
    is_submitted: bool = True
    is_read: bool = True

    @property
    def points(self) -> float:
        return max(0.0, self.raw - self.penalty)

    @property
    def cell(self) -> str:
        """The points for a platform; empty if nothing could be read."""
        return number(self.points) if self.is_read else ""


@dataclass(frozen=True)
class Marks:
    """The marks of an assignment, by last name, first name and student."""

    assignment: str
    largest: float
    due: datetime | None
    of: list[Mark]

    @property
    def submitted(self) -> list[Mark]:
        return [mark for mark in self.of if mark.is_submitted]


@dataclass
class Sheet:
    """What is written, and the students whose marks are not in it, with the reason."""

    table: Table
    missed: dict[str, str] = field(default_factory=dict)


def read(config: Config, assignment: str) -> Marks:
    """The marks of an assignment; raises `GradingFailed` if the gradebook knows none of that name."""
    file = course.gradebook_file(config)
    if file and not file.is_file():  # opening it would make one
        raise GradingFailed(f"{file}: no gradebook. Grade first: python -m classroom grade {assignment}")
    with opened(Held, config) as book:
        try:
            known = book.find_assignment(assignment)
        except MissingEntry:
            raise GradingFailed(f"the gradebook has no {assignment!r}: nothing of it has been graded.") from None
        person = (Student.id, Student.first_name, Student.last_name, Student.email)
        of = SubmittedAssignment
        work = (of.timestamp, of.score, of.late_submission_penalty, of.needs_manual_grade, of.id)
        is_of = (of.student_id == Student.id) & (of.assignment_id == known.id)
        order = (Student.last_name, Student.first_name, Student.id)
        found = book.db.query(*person, *work).select_from(Student).outerjoin(of, is_of).order_by(*order).all()
        readable = _readable(book, known.id)
        marks = [
            Mark(student, first or "", last or "", email or "", when, raw, penalty, bool(waits), True, row in readable)
            if row is not None
            else Mark(student, first or "", last or "", email or "", is_submitted=False)
            for student, first, last, email, when, raw, penalty, waits, row in found
        ]
        return Marks(assignment, known.max_score, known.duedate, marks)


def _readable(book: Gradebook, assignment: str) -> set[str]:
    """The submissions in which something was read, or that a person gave points to.

    Where nothing could be read, `gradebook` gives every cell 0 points and leaves it to a person.
    """
    by_checks = or_(Grade.needs_manual_grade.isnot(True), Grade.auto_score.is_(None), Grade.auto_score != 0)
    by_hand = or_(Grade.manual_score.isnot(None), Grade.extra_credit != 0)
    found = book.db.query(SubmittedAssignment.id).join(SubmittedNotebook).outerjoin(Grade)
    found = found.filter(SubmittedAssignment.assignment_id == assignment, or_(by_checks, by_hand))
    return {row for (row,) in found.distinct()}


# ---- formats ----


def for_nbgrader(marks: Marks) -> Sheet:
    """The columns of ``nbgrader export``, quoted where that is needed. Who has handed in nothing has 0."""
    rows = []
    for one in marks.of:
        names = (one.student, one.last_name, one.first_name, one.email)
        numbers = (one.raw, one.penalty, one.points, marks.largest)
        when = ("" if time is None else str(time) for time in (marks.due, one.timestamp))
        rows.append([marks.assignment, *when, *map(harmless, names), *map(str, numbers)])
    return Sheet(Table(NBGRADER, rows))


def for_moodle(marks: Marks, given: Table | None = None, scale: bool = False) -> Sheet:
    """For Moodle: its grading worksheet filled in, or without one what its gradebook imports.

    The worksheet is that of the assignment, downloaded in English. Of its columns, Identifier, Full name, Email
    address, Grade, Maximum grade and Last modified (grade) are kept, so that an upload changes nothing else.
    Without one: Username, Email address and the assignment, for Grades > Import > CSV file.
    What could not be read gets no mark.
    """
    if given is None:
        rows = [[harmless(one.student), harmless(one.email), one.cell] for one in marks.submitted]
        return Sheet(Table(["Username", "Email address", marks.assignment], rows))
    needed = ("Identifier", "Full name", "Grade", "Last modified (grade)")
    places = _places(given, needed, "a grading worksheet of Moodle in English")
    people = []
    for row in given.rows:
        others = [row[k] for k in (given.column(name) for name in ("Username", "ID number", "Email address")) if k]
        digits = re.search(r"\d+$", row[places["Identifier"]].strip())
        people.append(Person(row[places["Full name"]], digits[0] if digits else "", tuple(others)))
    found, missed = roster.match([one.student for one in marks.submitted], people)
    largest = given.column("Maximum grade")
    for one in marks.submitted:
        if one.student in found:
            row = given.rows[found[one.student]]
            of = row[largest] if largest is not None else ""
            row[places["Grade"]] = _scaled(one, marks.largest, of, scale, "Moodle")
    kept = [k for k in map(given.column, MOODLE) if k is not None]
    return Sheet(_only(given, kept, kept[1 : kept.index(places["Grade"])]), missed)


def for_canvas(marks: Marks, given: Table | None = None, scale: bool = False, column: str | None = None) -> Sheet:
    """For Canvas's gradebook: its export filled in, or a new one.

    Of an export are kept the columns up to Section, and the assignment's own, "Name (12345)", so that an import
    changes nothing else. A new one has Student, ID, SIS User ID, SIS Login ID, Section and the assignment. Its ID
    stays empty: "lee_42" may be the account of that name as well as Canvas's person 42, and nothing says which.
    In both the row "Points Possible" comes first. What could not be read gets no mark.
    """
    if given is None:
        rows = [["    Points Possible", "", "", "", "", number(marks.largest)]]
        for one in marks.submitted:
            full = ", ".join(filter(None, (one.last_name, one.first_name))) or one.student
            rows.append([harmless(full), "", "", harmless(one.student), "", one.cell])
        return Sheet(Table([*CANVAS, marks.assignment], rows))
    places = _places(given, ("Student", "ID", "Section"), "a gradebook exported from Canvas")
    target = _canvas_column(given, column or marks.assignment, places["Section"])
    possible = next((row for row in given.rows if "Points Possible" in row[places["Student"]]), None)
    rows = [row for row in given.rows if row is not possible and row[places["ID"]].strip()]
    logins = [k for k in map(given.column, ("SIS User ID", "SIS Login ID", "Integration ID")) if k is not None]
    name, user = places["Student"], places["ID"]
    people = [
        Person(row[name], row[user].strip(), tuple(row[k] for k in logins), is_numbered_once=True) for row in rows
    ]
    found, missed = roster.match([one.student for one in marks.submitted], people)
    for one in marks.submitted:
        if one.student in found:
            of = possible[target] if possible else ""
            rows[found[one.student]][target] = _scaled(one, marks.largest, of, scale, "Canvas")
    table = Table(given.header, ([possible] if possible else []) + rows, given.delimiter)
    kept = list(range(places["Section"] + 1))
    return Sheet(_only(table, [*kept, target], [k for k in kept if k != user]), missed)


def number(points: float) -> str:
    """Points as every platform reads them: a point, at most five digits after it."""
    return f"{round(points, 5):.5f}".rstrip("0").rstrip(".")


def _scaled(mark: Mark, largest: float, of: str, scale: bool, platform: str) -> str:
    try:
        there = float(of.strip().replace(",", "."))
    except ValueError:
        there = largest
    if there != largest and not scale:
        raise GradingFailed(
            f"the assignment has {number(largest)} points, and {number(there)} in {platform}: change that there and "
            "download the list again, or say --scale to have the marks converted."
        )
    return number(mark.points * there / largest) if mark.is_read and there != largest > 0 else mark.cell


def _places(given: Table, names: tuple[str, ...], what: str) -> dict[str, int]:
    places = {name: given.column(name) for name in names}
    if missing := [name for name, place in places.items() if place is None]:
        raise GradingFailed(
            f"the roster is not {what}: it has no column {', '.join(missing)}; "
            f"it has: {', '.join(map(shown, given.header))}."
        )
    return places


def _canvas_column(given: Table, name: str, section: int) -> int:
    """The one column of an assignment: "Name (12345)", or its whole heading."""
    columns = {place: given.header[place].strip() for place in range(section + 1, len(given.header))}
    found = [k for k, text in columns.items() if name in (text, re.sub(r" \(\d+\)$", "", text))]
    if len(found) != 1:
        there = ", ".join(text for text in columns.values() if re.search(r" \(\d+\)$", text))
        what = f"{len(found)} columns" if found else "no column"
        raise GradingFailed(f"the roster has {what} of {name!r}; name one with --column: {there or 'it has none'}.")
    return found[0]


def _only(table: Table, places: list[int], written: list[int]) -> Table:
    """Some columns; the cells of those in `written` come from people."""
    rows = [[harmless(row[k]) if k in written else row[k] for k in places] for row in table.rows]
    return Table([table.header[k] for k in places], rows, table.delimiter)


# ---- the command ----


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("assignment", metavar="ASSIGNMENT", help="such as 09_parameters")
    parser.add_argument("--to", choices=("nbgrader", "moodle", "canvas"), default="nbgrader", help="whose format")
    parser.add_argument("--roster", type=Path, metavar="FILE", help="Moodle's worksheet or Canvas's export, to fill in")
    parser.add_argument("--column", metavar="NAME", help="the assignment in Canvas (default: called as here)")
    parser.add_argument("--scale", action="store_true", help="convert the marks to the maximum in the roster")
    parser.add_argument("--course", type=Path, metavar="FOLDER", help="the course folder (default: grading/)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="(default: exports/ASSIGNMENT-FORMAT.csv in there)")


def run(options: argparse.Namespace) -> int:
    """Write the file. 0: every mark is in it; 1: nothing was written, or some could not be matched."""
    folder = options.course or ROOT / "grading"
    config = course.of_class(folder)
    kind = options.to if options.roster or options.to == "nbgrader" else f"{options.to}-gradebook"
    target = options.output or folder / "exports" / f"{options.assignment}-{kind}.csv"
    try:
        if options.to == "nbgrader" and options.roster:
            raise GradingFailed("--roster is for --to moodle or --to canvas; nbgrader's format needs none.")
        marks = read(config, options.assignment)
        given = roster.read(options.roster) if options.roster else None
        if options.to == "nbgrader":
            sheet = for_nbgrader(marks)
        elif options.to == "moodle":
            sheet = for_moodle(marks, given, options.scale)
        else:
            sheet = for_canvas(marks, given, options.scale, options.column)
        write_if_changed(target, sheet.table.text())
    except (GradingFailed, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    _tell(marks, sheet, options.to == "nbgrader", target)
    return 1 if sheet.missed else 0


def _tell(marks: Marks, sheet: Sheet, is_nbgraders: bool, target: Path) -> None:
    """Say whose marks are in the file, and whose are not, or not yet whole."""
    written = [mark for mark in marks.submitted if mark.student not in sheet.missed]
    unread = [shown(mark.student) for mark in written if not mark.is_read]
    n_marks = len(written) if is_nbgraders else len(written) - len(unread)
    n_absent = len(marks.of) - len(marks.submitted) if is_nbgraders else 0  # the others list who handed in something
    absent = f", and {n_absent} who handed in nothing" if n_absent else ""
    print(f"Marks of {n_marks} submission{'s' * (n_marks != 1)}{absent}: {target}")
    if waiting := sum(mark.is_waiting for mark in marks.submitted):
        print(f"{waiting} still wait{'s' * (waiting == 1)} for a person, so these marks may rise.")
    if unread:
        how = "with 0 points" if is_nbgraders else "left empty"
        print(f"{len(unread)} could not be read, {how}: {', '.join(unread)}")
    if sheet.missed:
        print(f"\n{len(sheet.missed)} could not be matched with the roster, and are not in the file:")
    for student, why in sheet.missed.items():
        print(f"  {shown(student)}: {why}")
