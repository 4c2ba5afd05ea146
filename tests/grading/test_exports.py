"""Marks as CSV: every mark in the row of the person it belongs to, and nothing else changed."""

import csv
import io
import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, writes
from nbgrader.api import Gradebook
from nbgrader.plugins import CsvExportPlugin

from classroom import __main__ as classroom
from classroom.grading import course, exports, gradebook, report, roster
from classroom.grading.collect import _folder
from classroom.grading.course import GradingFailed
from classroom.grading.roster import FORMULA, Person, harmless, match
from classroom.grading.task import Result

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")  # nbgrader's own use of its database

NAME, LARGEST = "09_parameters", 12.0


def make_gradebook(folder: Path, points: dict[str, float | None], penalty: dict[str, float] | None = None):
    """A gradebook of one assignment with a test of 10 points and a text of 2; None: nothing was handed in."""
    config = course.settings(folder)
    with Gradebook(config.CourseDirectory.db_url, config.CourseDirectory.course_id) as book:
        book.add_assignment(NAME, duedate="2026-11-01 12:00:00 UTC")
        book.add_notebook(NAME, NAME)
        book.add_grade_cell("test", NAME, NAME, max_score=10.0, cell_type="code")
        book.add_grade_cell("essay", NAME, NAME, max_score=2.0, cell_type="markdown")
        for student, got in points.items():
            book.add_student(student, email=f"{len(student)}@example.org")
            if got is not None:
                book.add_submission(NAME, student, timestamp="2026-11-02 12:00:00 UTC")
                test = book.find_grade("test", NAME, NAME, student)
                test.auto_score, test.needs_manual_grade = got, False
                notebook = book.find_submission_notebook(NAME, NAME, student)
                notebook.late_submission_penalty = (penalty or {}).get(student)
        book.db.commit()
    return config


@pytest.fixture
def marks(tmp_path):
    """A function: the marks of a class, student → points."""
    return lambda points, **options: exports.read(make_gradebook(tmp_path, points, **options), NAME)


def parsed(sheet) -> list[list[str]]:
    text = sheet.table.text()
    assert text.startswith("\ufeff"), "or Excel takes it for Windows-1252"
    return list(csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), delimiter=sheet.table.delimiter))


def table(text: str, folder: Path) -> roster.Table:
    path = folder / "roster.csv"
    path.write_text(text, encoding="utf-8")
    return roster.read(path)


def test_nbgraders_columns_and_numbers_are_nbgraders_own(tmp_path):
    config = make_gradebook(
        tmp_path, {"a": 7.5, "b": None, "late": 10, "far-late": 1.0}, {"late": 2.5, "far-late": 3.0}
    )
    mine = parsed(exports.for_nbgrader(exports.read(config, NAME)))
    with Gradebook(config.CourseDirectory.db_url, config.CourseDirectory.course_id) as book:
        CsvExportPlugin(to=str(tmp_path / "stock.csv")).export(book)
    stock = list(csv.reader((tmp_path / "stock.csv").open(newline="")))
    assert mine[0] == stock[0]
    assert sorted(mine[1:]) == sorted(stock[1:])
    points = {row[3]: float(row[9]) for row in mine[1:]}
    assert points == {"a": 7.5, "b": 0, "late": 7.5, "far-late": 0}


NASTY = ["=HYPERLINK(1)", "+1", "-1", "@x", "\tx", "\rx", 'a,b;"c"', "line\nline", "Ünï 学生", "x\u202ey"]


def test_a_name_is_neither_a_formula_nor_another_cell(marks):
    found = marks(dict.fromkeys(NASTY, 1.0))
    for sheet in (exports.for_nbgrader(found), exports.for_moodle(found), exports.for_canvas(found)):
        rows = parsed(sheet)
        assert {len(row) for row in rows} == {len(rows[0])}
        assert not [cell for row in rows for cell in row if FORMULA.match(cell)]
        assert all(any(cell in (name, "'" + name) for row in rows for cell in row) for name in NASTY)


@given(st.text())
def test_what_is_no_formula_stays_as_it_is(name):
    assert not FORMULA.match(harmless(name))
    assert harmless(name).removeprefix("'") == name.removeprefix("'")
    assert harmless(harmless(name)) == harmless(name)


# ---- Moodle ----

MOODLE = """\
Identifier,"Full name","Email address",Status,Grade,"Maximum grade","Grade can be changed",\
"Last modified (submission)","Last modified (grade)","Feedback comments"
"Participant 101","Person One",one@example.org,"Submitted for grading",,12.00,Yes,"Sunday, 1 November",-,
"Participant 102","Person Two",two@example.org,"Submitted",3.00,12.00,Yes,"Sunday, 1 November",-,"=old, ok"
"Participant 103","Person O'Tsé",three@example.org,"No submission",,12.00,Yes,-,-,
"Participant 104","=Same Name",four@example.org,"No submission",,12.00,Yes,-,-,
"Participant 105","=Same Name",five@example.org,"No submission",5.00,12.00,Yes,-,-,
"""


def grades(sheet) -> dict[str, str]:
    rows = parsed(sheet)
    return {row[0]: row[rows[0].index("Grade")] for row in rows[1:]}


def test_moodles_worksheet_is_filled_in_by_name_or_number(marks, tmp_path):
    found = marks({"Person_One": 8.125, "Person_Two_102": 0.0, "Person_O_Tsé": 10.0, "Same_Name_104": 1.0, "X": None})
    sheet = exports.for_moodle(found, table(MOODLE, tmp_path))
    numbers = {"101": "8.125", "102": "0", "103": "10", "104": "1", "105": "5.00"}
    assert grades(sheet) == {f"Participant {number}": points for number, points in numbers.items()}
    assert not sheet.missed


def test_moodles_worksheet_keeps_only_what_an_upload_needs(marks, tmp_path):
    rows = parsed(exports.for_moodle(marks({"Person_One": 8.0}), table(MOODLE, tmp_path)))
    assert rows[0] == list(exports.MOODLE)
    assert [row[1] for row in rows[4:]] == ["'=Same Name"] * 2
    assert {row[-1] for row in rows[1:]} == {"-"}, "Moodle compares it with what it knows"


def test_nobody_gets_the_marks_of_another(marks, tmp_path):
    found = marks({"Same_Name": 1.0, "Person_One_102": 2.0, "Nobody": 3.0, "Person_Two": 4.0, "Person_Two_999": 5.0})
    sheet = exports.for_moodle(found, table(MOODLE, tmp_path))
    assert grades(sheet) == {f"Participant {n}": p for n, p in zip(range(101, 106), ["", "3.00", "", "", "5.00"])}
    reasons = {"Same_Name": "2 people", "Person_One_102": "another name", "Nobody": "nobody"}
    reasons |= {"Person_Two": "the same person as Person_Two_999", "Person_Two_999": "the same person as Person_Two"}
    assert set(sheet.missed) == set(reasons)
    assert all(reasons[student] in why for student, why in sheet.missed.items())


def test_without_moodles_worksheet_there_is_what_its_gradebook_imports(marks):
    rows = parsed(exports.for_moodle(marks({"login": 8.0, "absent": None})))
    assert rows == [["Username", "Email address", NAME], ["login", "5@example.org", "8"]]


def test_a_worksheet_may_hold_logins(marks, tmp_path):
    text = "Identifier,Full name,Username,Grade,Last modified (grade)\nParticipant 1,A B,Login1,,-\n"
    assert grades(exports.for_moodle(marks({"login1": 8.0}), table(text, tmp_path))) == {"Participant 1": "8"}


# ---- Canvas ----

CANVAS = """\
Student,ID,SIS User ID,SIS Login ID,Section,Welcome (11),09_parameters (12),Final Score
,,,,,Manual Posting,,
    Points Possible,,,,,5.00,12.00,(read only)
"One, Person",1001,u1,login1,Group A,5.00,,80
"=Two, Person",1002,u2,login2,Group B,4.00,3.00,70
"Three, Person",1003,,,"A, B",,,
"Student, Test",1009,,,A,,,
"""


def test_canvas_export_is_filled_in_by_number_login_or_name(marks, tmp_path):
    found = marks({"oneperson_1001": 8.125, "LOGIN2": 0.0, "Person_Three": 10.0, "renamed_1009": 1.0, "nobody_1": 2.0})
    sheet = exports.for_canvas(found, table(CANVAS, tmp_path))
    rows = parsed(sheet)
    assert rows[0] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "09_parameters (12)"]
    assert [row[-1] for row in rows[1:]] == ["12.00", "8.125", "0", "10", "1"]
    assert rows[1][0] == "    Points Possible" and rows[3][0] == "'=Two, Person"
    assert list(sheet.missed) == ["nobody_1"]


def test_the_column_of_canvas_can_be_named(marks, tmp_path):
    text = CANVAS.replace("09_parameters (12)", "Chapter 9 (part 1) (12)")
    found = marks({"oneperson_1001": 8.0})
    with pytest.raises(GradingFailed, match=r"--column: Welcome \(11\), Chapter 9 \(part 1\) \(12\)"):
        exports.for_canvas(found, table(text, tmp_path))
    for name in ("Chapter 9 (part 1)", "Chapter 9 (part 1) (12)"):
        rows = parsed(exports.for_canvas(found, table(text, tmp_path), column=name))
        assert rows[2][-1] == "8"
    with pytest.raises(GradingFailed, match="2 columns"):
        exports.for_canvas(found, table(CANVAS.replace("Welcome (11)", "09_parameters (11)"), tmp_path))


def test_without_canvas_export_there_is_a_new_column(marks):
    rows = parsed(exports.for_canvas(marks({"oneperson_1001": 8.0, "login2": 7.0, "absent": None})))
    assert rows[0] == [*exports.CANVAS, NAME]
    assert rows[1] == ["    Points Possible", "", "", "", "", "12"]
    assert sorted(rows[2:]) == [
        ["login2", "", "", "login2", "", "7"],
        ["oneperson_1001", "", "", "oneperson_1001", "", "8"],
    ]


@pytest.mark.parametrize("student", ["lee_42", "42", "lee42", "_42", "a_b_42"])
def test_no_number_of_canvas_is_made_up_from_an_accounts_name(marks, student):
    heading, _, row = parsed(exports.for_canvas(marks({student: 8.0})))
    cells = dict(zip(heading, row, strict=True))
    assert cells["ID"] == cells["SIS User ID"] == "" and cells["SIS Login ID"] == student


@pytest.mark.parametrize("platform, text", [("moodle", MOODLE), ("canvas", CANVAS)])
def test_another_maximum_is_refused_or_converted(marks, tmp_path, platform, text):
    fill, given = getattr(exports, f"for_{platform}"), text.replace("12.00", "100.00")
    found = marks({"Person_One": 6.0})
    with pytest.raises(GradingFailed, match="12 points, and 100 in"):
        fill(found, table(given, tmp_path))
    rows = parsed(fill(found, table(given, tmp_path), scale=True))
    assert "50" in {cell for row in rows for cell in row}


# ---- rosters ----


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_roster_may_have_any_delimiter_and_keeps_it(marks, tmp_path, delimiter):
    with (tmp_path / "given.csv").open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(csv.reader(io.StringIO(MOODLE)))
    sheet = exports.for_moodle(marks({"Person_One": 8.0}), roster.read(tmp_path / "given.csv"))
    assert sheet.table.delimiter == delimiter
    assert grades(sheet)["Participant 101"] == "8"


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "no CSV file"),
        (b"Identifier,Grade\n", "no CSV file"),
        ("Identifier,Größe\n1,2\n".encode("cp1252"), "not in UTF-8"),
        (b"Identifier,Full name\n1,2\n", "no column Grade, Last modified"),
        (b"Teilnehmer,Name,Bewertung\n1,2,3\n", "in English"),
        (b"\x00\x01\x02", "no CSV file"),
        (b"PK\x03\x04\xff", "not in UTF-8"),
    ],
)
def test_a_roster_that_is_none_is_refused_with_the_reason(marks, tmp_path, data, message):
    (tmp_path / "given.csv").write_bytes(data)
    found = marks({"s": 1.0})
    with pytest.raises(GradingFailed, match=message):
        exports.for_moodle(found, roster.read(tmp_path / "given.csv"))
    with pytest.raises(GradingFailed, match="cannot be read"):
        roster.read(tmp_path / "absent.csv")


def test_a_cell_may_hold_all_that_a_student_wrote_online(marks, tmp_path):
    before = csv.field_size_limit()
    text = MOODLE.replace('"=old, ok"', '"' + "so long, " * 30_000 + '"')
    assert grades(exports.for_moodle(marks({"Person_Two": 8.0}), table(text, tmp_path)))["Participant 102"] == "8"
    assert csv.field_size_limit() == before, "it holds for the whole process"


def test_a_cell_without_end_is_refused_and_the_limit_is_as_before(tmp_path, monkeypatch):
    monkeypatch.setattr(roster, "LONGEST", 1000)
    before = csv.field_size_limit()
    with pytest.raises(
        GradingFailed, match=r"no CSV file: field larger than field limit \(1000\).*as the platform gave"
    ):
        table(MOODLE.replace('"=old, ok"', '"' + "x" * 1001), tmp_path)
    assert csv.field_size_limit() == before


def test_a_long_heading_does_not_fill_the_screen(marks, tmp_path):
    with pytest.raises(GradingFailed, match="no column Full name") as refused:
        exports.for_moodle(marks({"s": 1.0}), table(f"Identifier,{'x' * 200_000}\n1,2\n", tmp_path))
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("apostrophe", ["'", "’", "`"])
@pytest.mark.parametrize("folder", ["Siobhán_ONeil_Jr", "Siobhán_O_Neil_Jr", "Siobhán_ONeil_Jr_7", "Siobhán_O'Neil_Jr"])
def test_an_apostrophe_may_have_been_left_out_of_a_name(apostrophe, folder):
    people = [Person(f"Siobhán O{apostrophe}Neil Jr", "7"), Person("Siobhán Neil Jr", "8"), Person("Siobhán O", "9")]
    assert match([folder], people) == ({folder: 0}, {})


def test_two_people_whose_names_an_apostrophe_tells_apart_are_nobody():
    people = [Person("A O'Neil", "1"), Person("A ONeil", "2")]
    assert match(["A_ONeil"], people) == ({}, {"A_ONeil": "2 people of the list have this name"})
    assert match(["A_ONeil_2"], people) == ({"A_ONeil_2": 1}, {})


words = st.lists(st.text("abcdéßøж字", min_size=1, max_size=5), min_size=1, max_size=3)


@given(st.lists(st.tuples(words, st.booleans()), max_size=8))
def test_whoever_is_matched_is_who_handed_in(people):
    numbered = [Person(" ".join(name), str(1000 + k)) for k, (name, _) in enumerate(people)]
    owner = {}
    for k, (name, has_number) in enumerate(people):
        owner.setdefault(_folder(" ".join(name)) + f"_{1000 + k}" * has_number, []).append(k)
    found, missed = match(list(owner), numbered)
    assert set(found) | set(missed) == set(owner) and not set(found) & set(missed)
    assert len(set(found.values())) == len(found), "nobody gets two marks"
    for student, place in found.items():
        assert place in owner[student] or numbered[place].name == numbered[owner[student][0]].name
    alone = {student for student, places in owner.items() if student.endswith(f"_{1000 + places[0]}")}
    assert all(found[student] in owner[student] for student in alone & set(found))


# ---- the command ----


def run(*arguments) -> int:
    parser = classroom.argparse.ArgumentParser()
    exports.add_arguments(parser)
    return exports.run(parser.parse_args([str(argument) for argument in arguments]))


def test_the_command_writes_below_exports_and_says_what_is_missing(tmp_path, capsys):
    make_gradebook(tmp_path, {"Person_One": 8.0, "Nobody\x1b[2J": 1.0})
    assert run(NAME, "--course", tmp_path) == 0
    assert (tmp_path / "exports" / f"{NAME}-nbgrader.csv").is_file()
    printed = capsys.readouterr().out
    assert "Marks of 2 submissions:" in printed and "2 still wait for a person" in printed

    (tmp_path / "given.csv").write_text(MOODLE, encoding="utf-8")
    target = tmp_path / "out.csv"
    assert (
        run(NAME, "--course", tmp_path, "--to", "moodle", "--roster", tmp_path / "given.csv", "--output", target) == 1
    )
    printed = capsys.readouterr().out
    assert "1 could not be matched" in printed and "Nobody" in printed and "\x1b" not in printed
    assert "Marks of 1 submission:" in printed
    assert "Participant 101,Person One,one@example.org,8,12.00,-" in target.read_text(encoding="utf-8-sig")


def test_who_handed_in_nothing_is_counted_where_there_is_a_row(tmp_path, capsys):
    make_gradebook(tmp_path, {"a": 8.0, "b": None, "c": None})
    assert run(NAME, "--course", tmp_path) == 0
    assert "Marks of 1 submission, and 2 who handed in nothing: " in capsys.readouterr().out
    assert run(NAME, "--course", tmp_path, "--to", "canvas") == 0
    printed = capsys.readouterr().out
    assert "Marks of 1 submission: " in printed and "1 still waits for a person" in printed


@pytest.mark.parametrize("platform", ["moodle", "canvas"])
def test_with_and_without_a_roster_are_two_files(tmp_path, platform):
    make_gradebook(tmp_path, {"Person_One": 8.0})
    (tmp_path / "given.csv").write_text(globals()[platform.upper()], encoding="utf-8")
    assert run(NAME, "--course", tmp_path, "--to", platform) == 0
    assert run(NAME, "--course", tmp_path, "--to", platform, "--roster", tmp_path / "given.csv") in (0, 1)
    names = {path.name for path in (tmp_path / "exports").iterdir()}
    assert names == {f"{NAME}-{platform}-gradebook.csv", f"{NAME}-{platform}.csv"}


# ---- what could not be read ----


def cell(name: str, kind: str, points: float, is_solution: bool, text: str = "1"):
    """A graded cell."""
    given = {"grade_id": name, "grade": True, "solution": is_solution, "locked": not is_solution, "points": points}
    made = new_code_cell(text) if kind == "code" else new_markdown_cell(text)
    made.metadata.nbgrader = given | {"schema_version": 3, "task": False, "cell_type": kind}
    return made


@pytest.fixture
def partly_read(tmp_path):
    """A class: one essay waits, one is marked, one is as it was released; two files could not be read.

    One of these was marked by hand.
    """
    config = course.settings(tmp_path)
    test = cell("test", "code", 10, False)
    released, marked = (
        writes(new_notebook(cells=[test, cell("essay", "markdown", 2, True, text)])) for text in ("Your text.", "Mine.")
    )
    gradebook.register(config, NAME, {NAME: released})
    for student in ("Person_One", "untouched", "read", "broken", "by-hand"):
        about = {"findings": ["empty"], "notebook": None}
        if student not in ("broken", "by-hand"):
            about = {
                "notebook": released if student == "untouched" else marked,
                "points": {"test": 10.0, "essay": None},
            }
        one = Result(student=student, key=student, **about)
        gradebook.merge(config, NAME, student, {NAME: one})
        place = tmp_path / "results" / NAME / f"{student}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(asdict(one)), encoding="utf-8")
    with Gradebook(config.CourseDirectory.db_url, config.CourseDirectory.course_id) as book:
        for student, name in (("read", "essay"), ("by-hand", "essay"), ("by-hand", "test")):
            grade = book.find_grade(name, NAME, NAME, student)
            grade.manual_score, grade.needs_manual_grade = 1.0, False
        book.db.commit()
    return tmp_path


def test_what_could_not_be_read_has_no_mark_on_a_platform(partly_read, capsys):
    found = exports.read(course.settings(partly_read), NAME)
    assert [one.student for one in found.of if not one.is_read] == ["broken"]
    points = {row[0]: row[2] for row in parsed(exports.for_moodle(found))[1:]}
    assert points == {"Person_One": "10", "untouched": "10", "read": "11", "broken": "", "by-hand": "2"}
    assert ["broken", "", "", "broken", "", ""] in parsed(exports.for_canvas(found))
    assert [row[9] for row in parsed(exports.for_nbgrader(found)) if row[3] == "broken"] == ["0.0"]

    assert run(NAME, "--course", partly_read, "--to", "moodle") == 0
    printed = capsys.readouterr().out
    assert "Marks of 4 submissions:" in printed and "2 still wait" in printed
    assert "1 could not be read, left empty: broken\n" in printed
    assert run(NAME, "--course", partly_read) == 0
    printed = capsys.readouterr().out
    assert "Marks of 5 submissions:" in printed and "1 could not be read, with 0 points: broken\n" in printed


@pytest.mark.parametrize("scale", [False, True])
def test_a_mark_in_the_worksheet_of_what_cannot_be_read_is_taken_out(partly_read, tmp_path, scale):
    text = MOODLE.replace("Person Two", "broken").replace("12.00", "100.00" if scale else "12.00")
    found = exports.read(course.settings(partly_read), NAME)
    sheet = exports.for_moodle(found, table(text, tmp_path), scale)
    assert grades(sheet)["Participant 102"] == "" and float(grades(sheet)["Participant 101"]) > 0


def test_the_report_and_an_export_count_the_same_that_wait(partly_read):
    found = exports.read(course.settings(partly_read), NAME)
    tally = report.collect(NAME, partly_read)
    waiting = {student.name for student in tally.students if student.waiting}
    assert waiting == {one.student for one in found.of if one.is_waiting} == {"Person_One", "broken"}
    assert tally.waiting == 2
    totals = {student.name: student.total for student in tally.students}
    assert totals == {one.student: one.points if one.is_read else None for one in found.of}


def test_the_command_refuses_with_a_reason_and_writes_nothing(tmp_path, capsys):
    assert run(NAME, "--course", tmp_path) == 1
    assert "Grade first" in capsys.readouterr().err
    make_gradebook(tmp_path, {"s": 1.0})
    before = sorted(tmp_path.iterdir())
    assert run("08_mlp", "--course", tmp_path) == 1
    assert "nothing of it has been graded" in capsys.readouterr().err
    assert run(NAME, "--course", tmp_path, "--roster", tmp_path / "x.csv") == 1
    assert "needs none" in capsys.readouterr().err
    assert run(NAME, "--course", tmp_path, "--to", "canvas", "--roster", tmp_path / "x.csv") == 1
    assert "cannot be read" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def test_the_times_are_those_of_the_gradebook(marks):
    found = marks({"a": 1.0, "b": None})
    assert found.due == datetime(2026, 11, 1, 12)
    assert {mark.student: mark.timestamp for mark in found.of} == {"a": datetime(2026, 11, 2, 12), "b": None}
    assert found.largest == LARGEST
