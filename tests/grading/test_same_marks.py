"""Marks in boxes are those of nbgrader's own autograder: right answers in every style, and every known wrong one.

tests/exercises/test_graders.py grades the same submissions with the stock autograder and expects the same.
"""

import pytest

from classroom.grading import course, robots, trial
from classroom.grading.authority import authority
from classroom.grading.release import build
from classroom.grading.task import Task

SLIPS = "known wrong answers"
KINDS = {"right", "partly right", "nothing right", SLIPS}
# Every known wrong answer is tried where more than plain values crosses: functions, models, drawings, objects.
# Elsewhere `make grade ASSIGNMENT=...` does it.
WITH_SLIPS = {"04_masks", "06_norms", "08_model", "10_flops", "12_training", "16_bug_hunt"}
# Refused as they must be, but in other words: a hook or an exception of the judge's is not itself on the other side.
UNNAMED = {
    ("08_model", "p5-cleaned", "a hook that was there before is gone: take off your own alone"),
    ("16_bug_hunt", "p7-score", "an error of any kind is a rejection: catch `Exception`"),
    (
        "16_bug_hunt",
        "p5-apart",
        "a version that writes into what it is given survives: look at the inputs after a step",
    ),
}


@pytest.fixture(scope="module", params=course.assignments())
def graded(request, tmp_path_factory, boxes):
    """An assignment, its robots, and the result of each."""
    name = request.param
    released = build(name, tmp_path_factory.mktemp(name)) / f"{name}.ipynb"
    text = authority(name)[name]
    kinds = KINDS if name in WITH_SLIPS else KINDS - {SLIPS}
    class_, results = [robot for robot in robots.robots(name, released) if robot.kind in kinds], {}
    for robot in class_:
        folder = tmp_path_factory.mktemp("submitted")
        robot.build(folder)
        notebook = (folder / f"{name}.ipynb").read_bytes()
        results[robot.student] = robots.mark(
            Task(assignment=name, student=robot.student, notebook=notebook, authority=text, key="")
        )
    return name, class_, results


def test_every_robot_gets_the_marks_that_it_must_get(graded):
    name, class_, results = graded
    assert {robot.kind for robot in class_} == (KINDS if name in WITH_SLIPS else KINDS - {SLIPS})
    assert {robot.student: faults for robot in class_ if (faults := robot.faults(results[robot.student].points))} == {}


def test_every_slip_is_named_to_the_student_and_to_the_report(graded):
    name, class_, results = graded
    about = trial.Assignment(name)
    packed = trial.pack(about.catalogue)
    tried = [robot for robot in class_ if robot.kind == SLIPS]
    assert len(tried) == (len(packed) if name in WITH_SLIPS else 0)
    for k, slips in enumerate(packed[: len(tried)]):
        named = results[f"{robots.WRONG}{k + 1:02}"].slips
        for check, says in slips.items():
            cell = about.tests[check]
            assert named.get(cell) == says or (name, cell, says) in UNNAMED, (cell, says, named.get(cell))


def test_nobody_honest_is_flagged_or_left_without_a_mark(graded):
    _, _, results = graded
    assert {student: result.flags for student, result in results.items() if result.flags} == {}
    assert all(result.isolation == "bubblewrap" for result in results.values())
    assert not [cell for result in results.values() for cell, points in result.points.items() if points is None]
