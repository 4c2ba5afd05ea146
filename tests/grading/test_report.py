"""The class report: right numbers, nothing of a student's text alive in it, and a page for everybody."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import random
import re
from html import unescape
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from classroom.chromium import RULES, UNFOLD, VIEWS, visit
from classroom.grading import course, report
from classroom.grading.results import Damaged, read_one
from classroom.grading.tally import Marks, Student, Tally, sheet
from classroom.grading.task import Result

NAME = "06_norms"
HOSTILE = (
    "<script>document.title='ran'</script><img src=x onerror=\"document.title='ran'\">'\"&{{ 7*7 }}"
    "\u202egnp.\u2066\0\ud800"  # controls that turn text around, and half a character
)


def notebook(*cells: tuple[str, str, dict]) -> str:
    """An instructor's notebook: (cell type, source, nbgrader's metadata) a cell."""
    made = [{"cell_type": kind, "source": text, "metadata": {"nbgrader": given}} for kind, text, given in cells]
    return json.dumps({"cells": made})


def result(student: str, points: dict[str, float | None], **others) -> Result:
    return Result(student=student, key="k", notebook="{}", points=points, **others)


@pytest.fixture
def two_problems():
    """2 points by checks in p1, 3 in p2, and 5 by hand."""
    return sheet(
        "01_sum",
        {
            "01_sum": notebook(
                ("markdown", "# Sums", {"grade_id": "intro"}),
                ("markdown", "## Problem 1. Add", {"grade_id": "p1"}),
                ("code", "", {"grade_id": "p1-a", "grade": True, "points": 1}),
                ("code", "", {"grade_id": "p1-b", "grade": True, "points": 1}),
                ("markdown", "## Problem 2. Explain", {"grade_id": "p2"}),
                ("code", "", {"grade_id": "p2-a", "grade": True, "points": 3}),
                ("markdown", "", {"grade_id": "p2-essay", "grade": True, "solution": True, "points": 5}),
            )
        },
    )


def tally_of(two_problems, *students: Student) -> Tally:
    return Tally("01_sum", two_problems, list(students), {}, True)


def one(name: str, points: dict, marks: Marks | None = None, **others) -> Student:
    return Student(name, {"01_sum": result(name, points, **others)}, marks or Marks())


def test_the_sheet_has_titles_points_and_what_a_person_marks(two_problems):
    assert two_problems.title == "Sums"
    assert two_problems.titles["p2"] == "Problem 2. Explain"
    assert two_problems.problems == {"p1": 2, "p2": 8}
    assert two_problems.by_hand == {"p2-essay"}


def test_a_persons_mark_extra_credit_and_lateness_count(two_problems):
    points = {"p1-a": 1, "p1-b": 0, "p2-a": 3, "p2-essay": None}
    waiting = one("a", points)
    assert waiting.total == 4 and waiting.problem("p1") == 1
    assert waiting.problem("p2") is None and waiting.so_far("p2") == 3 and waiting.waiting == ["p2-essay"]
    marked = one("b", points, Marks(by_hand={"p2-essay": 4.5}, late_penalty=1.5))
    assert marked.total == 7 and marked.problem("p2") == 7.5
    assert one("c", {"p1-a": 1}, Marks(late_penalty=9)).total == 0
    assert tally_of(two_problems, waiting, marked).waiting == 1


def test_every_marked_submission_is_once_in_the_distribution_and_in_each_problem(two_problems):
    rng = random.Random(1)
    students = [
        one(f"s{n}", {"p1-a": rng.choice([0, 1]), "p1-b": rng.choice([0, 0.5, 1]), "p2-a": rng.choice([0, 3])})
        for n in range(100)
    ]
    students.append(Student("none", {"": Result(student="none", key="k", notebook=None, findings=["empty"])}, Marks()))
    tally = tally_of(two_problems, *students)
    assert sum(n for *_, n in tally.classes) == len(tally.totals) == 100
    assert tally.classes[0][0] == 0 and tally.classes[-1][1] == tally.most == 10
    assert [high for _, high, _ in tally.classes[:-1]] == [low for low, *_ in tally.classes[1:]]
    for low, high, n in tally.classes:
        assert n == sum(low <= total < high or total == high == tally.most for total in tally.totals)
    for row in tally.problems:
        assert row.full + row.partly + row.none + row.waiting == 100
        points = [student.problem(row.name) for student in students[:100]]
        assert row.full == sum(p == row.most for p in points) and row.none == sum(p == 0 for p in points)


def test_slips_are_counted_once_a_student_and_sorted(two_problems):
    common, rare = {"p1-a": "sums n - 1 numbers"}, {"p1-a": "sums n - 1 numbers", "p2-a": "says 5"}
    students = [one("a", {"p1-a": 0}, slips=common), one("b", {"p1-a": 0}, slips=rare)]
    found = tally_of(two_problems, *students).slips
    assert [(slip.check, slip.students) for slip in found] == [("p1-a", ("a", "b")), ("p2-a", ("b",))]


def test_what_could_not_be_read_waits_and_its_time_does_not_count(two_problems):
    unread = Student("u", {"": Result(student="u", key="k", notebook=None, wall_seconds=90.0)}, Marks())
    read = [one(f"s{n}", {"p1-a": 1}, wall_seconds=seconds) for n, seconds in enumerate([1.0, 8.0, 2.0, 4.0])]
    tally = tally_of(two_problems, *read, unread)
    assert tally.waiting == 1
    assert tally.median_seconds == 3 and tally.quantile(1) == 8 and tally.slowest[0].name == "s1"
    assert "<code>submitted/u/01_sum/</code>" in report.html(tally)
    assert tally_of(two_problems, unread).median_seconds == tally_of(two_problems).median_seconds == 0


def test_cells_that_wait_are_in_the_order_of_the_notebook(two_problems):
    cells = list(two_problems.points)
    student = Student("u", {"": Result(student="u", key="k", notebook=None)}, Marks(waiting=frozenset(cells)))
    (row,) = csv.DictReader(io.StringIO(report.as_csv(tally_of(two_problems, student))))
    assert row["waiting"].split() == cells


def test_other_work_marked_by_hand_before_waits_again(two_problems):
    again = one("a", {"p2-essay": None}, Marks(by_hand={"p2-essay": 4.0}, waiting=frozenset(["p2-essay"])))
    assert again.waiting == ["p2-essay"] and again.total == 4 and again.problem("p2") is None


def test_the_page_says_how_many_are_late_if_any_lost_points(two_problems):
    students = [one("a", {"p1-a": 1}, Marks(late_penalty=0.5)), one("b", {"p1-a": 1})]
    assert "<dt>with a late penalty</dt><dd>1</dd>" in report.html(tally_of(two_problems, *students))
    assert "late penalty</dt>" not in report.html(tally_of(two_problems, students[1]))


def test_a_flag_accuses_nobody_and_one_is_no_plural(two_problems):
    students = [one("a", {"p1-a": 1}, flags=["two uploads"]), one("b", {"p1-a": 1}, findings=["a byte order mark"])]
    page = report.html(tally_of(two_problems, *students))
    assert "a person should look" in page and "attempt" not in page
    assert "1 file had faults and was read all the same" in page and "Marks of 2 submissions." in page


def test_an_empty_class_and_a_class_of_one_have_a_page(two_problems):
    for students in ([], [one("a", {"p1-a": 1})], [one("a", {"p1-a": 0})]):
        page = report.html(tally_of(two_problems, *students))
        assert "Sums" in page and len(list(csv.reader(io.StringIO(report.as_csv(tally_of(two_problems, *students))))))


def test_no_text_of_a_student_is_alive(two_problems):
    student = Student(
        HOSTILE,
        {
            HOSTILE: result(HOSTILE, {"p1-a": 1}, slips={"p1-a": HOSTILE}, flags=[HOSTILE] * 2, findings=[HOSTILE]),
            "other": Result(student=HOSTILE, key="k", notebook=None, findings=[HOSTILE * 10_000], isolation="none"),
        },
        Marks(),
    )
    tally = dataclasses.replace(tally_of(two_problems, student), damaged={HOSTILE: HOSTILE})
    page = report.html(tally)
    page.encode()  # no half characters
    assert "<script" not in page and "<img" not in page and "{{ 7*7 }}" in unescape(page)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\0]", page)
    assert "⟨U+202E⟩" in page and "<script>" in unescape(page)
    assert len(page) < 60_000


@pytest.mark.parametrize("start", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\n=1", "＝1"])
def test_no_cell_of_the_table_is_a_formula(two_problems, start):
    text = f'{start}|" ,\n;second line'
    student = Student(text, {"": result(text, {"p1-a": 1}, flags=[text], findings=[text])}, Marks())
    heading, row = csv.reader(io.StringIO(report.as_csv(tally_of(two_problems, student))))
    assert len(heading) == len(row)
    cells = dict(zip(heading, row))
    for name in ("student", "flags", "findings"):
        assert re.match(r"['⟨]", cells[name]) and "second line" in cells[name]
    assert (cells["p1"], cells["total"], cells["max"], cells["isolation"]) == ("1", "1", "10", "bubblewrap")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"a": 1}', '{"student": "a", "points": {"p1": "9"}}', "[" * 100_000, "\0", '{"points": NaN}'],
)
def test_a_damaged_file_of_results_is_named_and_stops_nothing(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(Damaged, match="grade again"):
        read_one(path)


# ---- from a folder to the page ----


def synthetic_class(n: int) -> list[dict[str, Result]]:
    """Submissions to 06_norms of every kind that there is, as one result a notebook."""
    rng = random.Random(6)
    source = json.loads((course.ROOT / "solutions" / NAME / f"{NAME}.ipynb").read_text(encoding="utf-8"))
    given = [cell["metadata"].get("nbgrader", {}) for cell in source["cells"]]
    cells = {cell["grade_id"]: cell for cell in given if cell.get("grade") or cell.get("task")}
    made = []
    for number in range(n):
        name, skill = f"student-{number:03}", rng.betavariate(4, 2)
        if number % 40 == 7:
            findings = [
                "the file is empty (0 bytes); a notebook is JSON text. Take an earlier copy: JupyterLab keeps one."
            ]
            made.append({NAME: Result(student=name, key="k", notebook=None, findings=findings, wall_seconds=0.01)})
            continue
        points, slips = {}, {}
        for position, (grade_id, cell) in enumerate(cells.items()):
            if cell.get("solution") or cell.get("task"):
                points[grade_id] = None
            else:
                points[grade_id] = float(rng.random() < skill - position / 60)
                if not points[grade_id] and rng.random() < 0.7:
                    slips[grade_id] = f"{grade_id}: divides by n − 1 where n is asked for, way {rng.randrange(3)}"
        others = {"wall_seconds": rng.lognormvariate(0, 0.4), "cpu_seconds": 0.5, "slips": slips}
        if number % 50 == 3:
            others["flags"] = ["a canary check passed: something answers every comparison with yes", HOSTILE]
        if number % 30 == 4:
            others["findings"] = [
                "the file: is in UTF-8 with a byte order mark; a notebook is plain UTF-8. Save it anew."
            ]
        if number % 100 == 9:
            others["isolation"] = "none"
        made.append({NAME: result(name, points, **others)})
    return made


def write_report(folder: Path, n: int) -> tuple[Path, Path]:
    """The report of a course folder that gets the results of so many students."""
    place = folder / "results" / NAME
    place.mkdir(parents=True)
    for results in synthetic_class(n):
        (found,) = results.values()
        text = json.dumps(dataclasses.asdict(found) | {"files": {f"{NAME}.ipynb": "0" * 64}})
        (place / f"{found.student}.json").write_text(text, encoding="utf-8")
    (place / "broken.json").write_text("{", encoding="utf-8")
    return report.write(NAME, folder)


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> tuple[Path, Path, Path]:
    """A course folder with the results of 500 students, the page and the table of its report."""
    folder = tmp_path_factory.mktemp("course")
    return folder, *write_report(folder, 500)


def test_five_hundred_students_make_a_light_page_and_a_row_each(graded):
    folder, page, table = graded
    assert page == folder / "reports" / f"{NAME}.html" and page.stat().st_size < 1_000_000
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 500
    for row in rows:
        points = [float(value) for name, value in row.items() if re.fullmatch(r"p\d+", name) and value]
        assert row["total"] == "" or float(row["total"]) == sum(points)
        assert row["waiting"] == ("" if row["total"] == "" else "p8-essay")
        assert float(row["max"]) == 20
    assert sorted(path.name for path in page.parent.iterdir()) == [f"{NAME}.csv", f"{NAME}.html"]
    assert "broken.json" in page.read_text(encoding="utf-8")


def test_the_same_results_make_the_same_report(graded):
    folder, page, table = graded
    before = page.read_bytes(), table.read_bytes()
    report.write(NAME, folder)
    assert (page.read_bytes(), table.read_bytes()) == before


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")  # nbgrader's own use of its database
def test_the_gradebook_adds_what_a_person_gave(tmp_path):
    config = course.settings(tmp_path)
    assert report.from_gradebook(config, NAME) is None
    assert not (tmp_path / "gradebook.db").exists()
    with Gradebook(config.CourseDirectory.db_url, config.CourseDirectory.course_id) as book:
        book.add_assignment(NAME)
        book.add_notebook(NAME, NAME)
        book.add_grade_cell("p1-predict", NAME, NAME, max_score=1, cell_type="code")
        book.add_task_cell("p8-essay", NAME, NAME, max_score=4, cell_type="markdown")
        for student in ("a", "b"):
            book.add_student(student)
            submission = book.add_submission(NAME, student)
            grades = {grade.name: grade for grade in submission.notebooks[0].grades}
            grades["p1-predict"].auto_score, grades["p1-predict"].needs_manual_grade = 1, False
            if student == "b":
                grades["p8-essay"].manual_score, grades["p8-essay"].needs_manual_grade = 2.5, False
                grades["p1-predict"].extra_credit = 0.5
                submission.notebooks[0].late_submission_penalty = 1
            else:
                grades["p8-essay"].needs_manual_grade = True
        book.db.commit()
    found = report.from_gradebook(config, NAME)
    assert found["a"].by_hand == {} and found["a"].waiting == {"p8-essay"}
    assert found["b"].by_hand == {"p8-essay": 2.5, "p1-predict": 1.5}
    assert found["b"].waiting == frozenset() and found["b"].late_penalty == 1
    assert set(found["b"].places) == {NAME}
    assert one("b", {"p1-predict": 1}, found["b"]).total == 3
    assert report.from_gradebook(config, "01_tokens") is None


def test_what_is_missing_is_said(tmp_path, capsys):
    import argparse

    parser = argparse.ArgumentParser()
    report.add_arguments(parser)
    assert report.run(parser.parse_args([NAME, "--course", str(tmp_path)])) == 1
    assert "Grade first" in capsys.readouterr().err
    assert report.run(parser.parse_args(["nope", "--course", str(tmp_path)])) == 1
    assert NAME in capsys.readouterr().err


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """Of a class in which there is everything, and few of it: axe looks at each name."""
    return write_report(tmp_path_factory.mktemp("course"), 60)[0]


@pytest.mark.browser
@pytest.mark.parametrize("view", VIEWS)
def test_the_page_is_complete_accessible_and_fits(page, in_browser, view):
    seen = in_browser(look, page, view)
    assert seen["title"] == f"Class report: {NAME}"
    assert seen["asked for"] == [] and seen["violations"] == []
    assert seen["width"] <= seen["window"]


def look(browser, page, view: str) -> dict:
    from axe_playwright_python.sync_playwright import Axe

    with visit(browser, page, view) as open_page:
        open_page.page.evaluate(UNFOLD)
        violations = Axe().run(open_page.page, options=RULES).response["violations"]
        return {
            "title": open_page.page.title(),
            "width": open_page.page.evaluate("document.documentElement.scrollWidth"),
            "window": open_page.page.evaluate("innerWidth"),
            "violations": [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in violations],
            "asked for": open_page.requests + open_page.errors,
        }
