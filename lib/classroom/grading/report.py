"""`python -m classroom report ASSIGNMENT`: how a class did, as a page that needs no network and as CSV"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import jinja2
from nbgrader.api import MissingEntry, SubmittedAssignment, SubmittedNotebook
from sqlalchemy.orm import selectinload
from traitlets.config import Config

from classroom.grading import course, intake, results
from classroom.grading.roster import harmless
from classroom.grading.tally import Marks, Student, Tally, sheet
from classroom.grading.transaction import Held, opened
from classroom.notebooks import write_if_changed

_TURNS_TEXT = set("\u061c\u200e\u200f\u2028\u2029\ufeff") | {
    chr(n) for n in [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
}
_LEFT, _RIGHT, _FLOOR, _TALL = 34.0, 464.0, 200.0, 180.0  # of the histogram, in its own units


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("assignment", metavar="ASSIGNMENT", help="such as 09_parameters")
    parser.add_argument("--course", type=Path, metavar="FOLDER", help="the course folder (default: grading/)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the page; the CSV gets its name with .csv")


def run(options: argparse.Namespace) -> int:
    """Write both files and say where they lie. 0: written; 1: there is nothing to report."""
    try:
        page, table = write(options.assignment, options.course or course.ROOT / "grading", options.output)
    except (course.GradingFailed, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Report: {page}\nTable:  {table}")
    return 0


def write(assignment: str, folder: Path, output: Path | None = None) -> tuple[Path, Path]:
    """Write the report of an assignment that was graded in the course folder; returns the page and the CSV."""
    tally = collect(assignment, folder)
    page = output or folder / "reports" / f"{assignment}.html"
    table = page.with_suffix(".csv")
    if table == page:
        raise course.GradingFailed(f"{page}: give the name of the page, such as {page.stem}.html.")
    write_if_changed(page, html(tally))
    write_if_changed(table, as_csv(tally))
    return page, table


def collect(assignment: str, folder: Path) -> Tally:
    """What the results and the gradebook of a course folder say of an assignment.

    Who has no row in the gradebook and nothing under submitted/ was removed, and is left out.
    """
    place = folder / "results" / course.known(assignment)
    if not place.is_dir():
        raise course.GradingFailed(f"{place}: no results. Grade first: python -m classroom grade {assignment}")
    found, damaged = results.read(place)
    config = course.of_class(folder)
    marks = from_gradebook(config, assignment)
    if marks is not None:
        there = {*marks, *intake.students(course.submitted(config), assignment)}
        found = {name: found[name] for name in found if name in there}
    students = [Student(name, found[name], (marks or {}).get(name, Marks())) for name in sorted(found)]
    source = course.ROOT / "solutions" / assignment
    notebooks = {path.stem: path.read_text(encoding="utf-8") for path in sorted(source.glob("*.ipynb"))}
    return Tally(assignment, sheet(assignment, notebooks), students, damaged, marks is not None)


def from_gradebook(config: Config, assignment: str) -> dict[str, Marks] | None:
    """What people added to the checks' marks: student → marks. None if there is no gradebook, or no such assignment."""
    file = course.gradebook_file(config)
    if file and not file.is_file():
        return None  # nbgrader would make one
    with opened(Held, config) as book:
        try:
            known = book.find_assignment(assignment)
        except MissingEntry:
            return None
        with_grades = selectinload(SubmittedAssignment.notebooks).selectinload(SubmittedNotebook.grades)
        found = book.db.query(SubmittedAssignment).filter_by(assignment_id=known.id)
        return {one.student_id: _marks(one) for one in found.options(with_grades).all()}


def _marks(submission: SubmittedAssignment) -> Marks:
    by_hand, waiting = {}, set()
    for notebook in submission.notebooks:
        for grade in notebook.grades:
            if grade.manual_score is not None or grade.extra_credit:
                by_hand[grade.name] = grade.score
            if grade.needs_manual_grade:  # also where other work was marked by hand before
                waiting.add(grade.name)
    places = {notebook.name: notebook.id for notebook in submission.notebooks}
    return Marks(by_hand, frozenset(waiting), submission.late_submission_penalty or 0.0, places)


# ---- the page ----


def html(tally: Tally) -> str:
    """The page as text: everything that a student wrote is escaped, and turned around by no control character."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    page = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    page.filters["shown"] = shown
    columns, edges = histogram(tally)
    return page.get_template("report.html.j2").render(
        tally=tally,
        columns=columns,
        edges=edges,
        flagged=[student for student in tally.students if student.texts("flags")],
        unread=[student for student in tally.students if not student.was_read_whole],
        mended=[student for student in tally.students if student.was_read_whole and student.texts("findings")],
        open_runs=[student.name for student in tally.students if not student.isolated],
        seconds=sum(student.seconds for student in tally.slowest),
        places=lambda student: list(places(tally.assignment, student)),
    )


def places(assignment: str, student: Student) -> Iterator[str]:
    """Where a person looks at a submission."""
    for name in student.results:
        notebook = name or assignment
        if found := student.marks.places.get(notebook):
            yield f"/formgrader/submissions/{found}/"
        else:
            yield f"/formgrader/gradebook/{assignment}/{notebook}"
    yield f"submitted/{student.name}/{assignment}/"


def histogram(tally: Tally) -> tuple[list[dict], list[dict]]:
    """Columns and numbered edges in the units of the drawing."""
    classes = tally.classes
    wide = (_RIGHT - _LEFT) / len(classes)
    most = max((n for *_, n in classes), default=0) or 1
    columns = [
        {
            "x": round(_LEFT + at * wide + 1, 1),
            "y": round(_FLOOR - _TALL * n / most, 1),
            "width": round(wide - 2, 1),
            "height": round(_TALL * n / most, 1),
            "middle": round(_LEFT + (at + 0.5) * wide, 1),
            "n": n,
        }
        for at, (_, _, n) in enumerate(classes)
    ]
    marks = [low for low, *_ in classes] + [classes[-1][1]]
    return columns, [{"x": round(_LEFT + at * wide, 1), "mark": f"{mark:g}"} for at, mark in enumerate(marks)]


def shown(text: object, longest: int = 400) -> str:
    """A stranger's text for a reader: controls, and what turns text around, are made visible; its length has an end."""
    text = str(text)
    cut = text[:longest]
    spelled = "".join(
        f"⟨U+{ord(c):04X}⟩" if c in _TURNS_TEXT or (unicodedata.category(c) in ("Cc", "Cs", "Cn") and c != "\n") else c
        for c in cut
    )
    return spelled if len(cut) == len(text) else f"{spelled} … ({len(text)} characters)"


# ---- the table ----


def as_csv(tally: Tally) -> str:
    """One row a student, with the points so far; an empty cell means that nothing of it was read."""
    problems = list(tally.sheet.problems)
    place = {cell: at for at, cell in enumerate(tally.sheet.points)}
    target = io.StringIO()
    table = csv.writer(target, lineterminator="\n")
    heading = ["assignment", "student", *problems, "late_penalty", "total", "max", "waiting"]
    table.writerow([*heading, "flags", "findings", "seconds", "isolation"])
    for student in tally.students:
        points = [*map(student.so_far, problems), student.marks.late_penalty, student.total, tally.most]
        waiting = sorted(student.waiting, key=lambda cell: (place.get(cell, len(place)), cell))
        texts = [" ".join(waiting), *("\n".join(student.texts(kind)) for kind in ("flags", "findings"))]
        isolation = "+".join(sorted({result.isolation for result in student.results.values()}))
        row = [tally.assignment, student.name, *map(_number, points), *texts, f"{student.seconds:.2f}", isolation]
        table.writerow(map(defused, row))
    return target.getvalue()


def defused(text: str) -> str:
    """The text so that no spreadsheet takes it for a formula; visible, and of the length that a cell may have."""
    return harmless(shown(text, 30_000))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"
