"""Exercise 09: every slip that the checks know is named by them, and costs points in the real grader."""

import inspect
import io
from contextlib import redirect_stdout
from pathlib import Path

import nbformat
import pytest
from nbgrader.utils import is_grade

from classroom.checks import parameters as checks
from classroom.checks.expect import CheckFailed
from classroom.checks.parameters_slips import CATALOGUE, count, model, sizes
from classroom.grading import course
from classroom.grading.demo_class.parameters import LOOPS
from classroom.grading.release import build

NAME = "09_parameters"
SOURCE = nbformat.read(course.ROOT / "solutions" / NAME / f"{NAME}.ipynb", as_version=4)
REFERENCE = course.answers(SOURCE)
SLIPS = [(check, says) for check, slips in CATALOGUE.items() for says in slips]


@pytest.fixture(scope="module")
def right() -> dict:
    """Every name that the reference answers and the given cells define."""
    names = {}
    with redirect_stdout(io.StringIO()):
        for cell in SOURCE.cells:
            if cell.cell_type == "code":
                exec(cell.source, names)
    return names


def run_check(check: str, answers: dict) -> None:
    """The visible check on these answers, by the names of its parameters."""
    function = getattr(checks, check)
    names = [p.name for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_POSITIONAL]
    function(*[answers[name] for name in names])


@pytest.mark.parametrize(("check", "says"), SLIPS)
def test_the_visible_check_names_the_slip(right, check, says):
    with pytest.raises(CheckFailed) as failure:
        run_check(check, right | CATALOGUE[check][says])
    assert failure.value.slip == says
    assert says in str(failure.value)


def test_every_graded_cell_with_a_mechanism_of_its_own_has_slips():
    assert set(PROBLEM) - {"real_models"} == set(CATALOGUE)


def test_sizes_differ_so_that_none_can_stand_for_another():
    config = model(n_kv_heads=2, positions="learned")
    numbers = [value for value in sizes(config).values() if type(value) is int] + [config.d_head]
    assert len(set(numbers)) == len(numbers)
    assert config.d_ff not in (4 * config.d_model, config.d_model * 8 // 3)


def test_the_exercises_parts_add_up_to_the_published_count():
    from plainformer.config import preset, presets, published

    named = [name for name in presets() if any(f'"{name}"' in cell.source for cell in SOURCE.cells)]
    assert len(named) > 8
    for name in named:
        assert sum(count(preset(name)).values()) == published(name), name


def test_a_slip_in_the_library_fails_the_reference(right, monkeypatch):
    from plainformer import parameters

    whole = parameters.block_breakdown

    def ungrouped(config, **options):
        block = whole(config, **options)
        return block | {"key": block["query"], "value": block["query"]}

    monkeypatch.setattr(parameters, "block_breakdown", ungrouped)
    with pytest.raises(CheckFailed):
        run_check("attention", right)


# ---- answers that are no slip of the mind ----


@pytest.mark.parametrize(
    ("check", "answer"),
    [("tier", "Below"), ("near_match", "GPT2-large"), ("near_match", "gpt2_large"), ("reason", "e")],
)
def test_a_right_word_in_other_letters_is_told_how_it_is_written(right, check, answer):
    with pytest.raises(CheckFailed, match=r"write one of .*, exactly so"):
        run_check(check, right | {check: answer})


@pytest.mark.parametrize(
    "guess", ["700 million", 0, -5e8, True, float("nan"), pytest.param(10**400, id="huge"), 3, ...]
)
@pytest.mark.parametrize("check", ["predict", "how_far"])
def test_an_impossible_guess_is_answered_in_words(right, check, guess):
    with pytest.raises(CheckFailed, match="guess"):
        run_check(check, right | {"guess": guess})


@pytest.mark.parametrize("total", ["728 million", 0, -7e8, None, pytest.param(10**400, id="huge")])
def test_how_far_needs_a_total(right, total):
    with pytest.raises(CheckFailed, match="total"):
        run_check("how_far", right | {"total": total})


@pytest.mark.parametrize(
    ("times", "says"), [(1, "the right order"), (0.4, "the right order"), (10, "another order"), (0.1, "another order")]
)
def test_how_far_tells_the_order_of_magnitude(right, capsys, times, says):
    run_check("how_far", right | {"guess": times * right["total"]})
    printed = capsys.readouterr().out
    assert f"{times:.3g} times" in printed and f"{says} of magnitude" in printed


def test_ratios_with_two_decimals_are_asked_for_three(right):
    two = {name: round(ratio, 2) for name, ratio in right["ratios"].items()}
    with pytest.raises(CheckFailed, match="three decimals or more"):
        run_check("ratios", right | {"ratios": two})
    assert "three decimals or more" in next(c.source for c in SOURCE.cells if "## Problem 3" in c.source)


@pytest.mark.parametrize("share", [6.7, 6.75, 6.8])
def test_a_share_in_per_cent_is_known_however_it_is_rounded(right, share):
    with pytest.raises(CheckFailed, match="not in per cent"):
        run_check("share", right | {"table_share": share})


def test_real_models_names_the_part_that_is_no_int(right):
    def halves(**given):
        parts = right["count_parameters"](**given)
        return parts | {"mlp": parts["mlp"] / 1}

    with pytest.raises(CheckFailed, match=r"'mlp' is \d+\.0, of type float; every part must be an int"):
        run_check("real_models", right | {"count_parameters": halves})


# ---- through nbgrader's own autograder ----

# problems 3 and 7 may build on answers of 2 and 4; here each stands alone, so that one slip costs one cell
ALONE = REFERENCE | {
    "p3-answer": "total = 728_629_248\n" + REFERENCE["p3-answer"],
    "p7-answer": LOOPS.changed["p7-answer"],
}
PROBLEM = {
    c.metadata.nbgrader.grade_id.split("-")[1]: c.metadata.nbgrader.grade_id for c in SOURCE.cells if is_grade(c)
}
PARTS = {"attention": ["attention"], "mlp": ["mlp"], "norms": ["norms"], "tables": ["embed", "positions", "unembed"]}


def wrong_answers(slips: dict[str, str]) -> dict[str, str]:
    """Sources of the answer cells with one slip for each check that `slips` names."""
    answers = dict(ALONE)
    for check, says in slips.items():
        cell = PROBLEM[check].split("-")[0] + "-answer"
        answers[cell] += "\n\nfrom classroom.checks.parameters_slips import CATALOGUE\n"
        wrong = f"CATALOGUE[{check!r}][{says!r}]"
        if check in PARTS:
            answers[cell] += (
                f"def with_slip(right=count_parameters, wrong={wrong}['count_parameters'], parts={PARTS[check]}):\n"
                "    return lambda **sizes: right(**sizes) | {part: wrong(**sizes)[part] for part in parts}\n"
                "count_parameters = with_slip()\n"
            )
        elif check == "estimate_untied":  # the other check of the same function has a slip of its own
            answers[cell] += (
                f"def with_slip(right=estimate, wrong={wrong}['estimate']):\n"
                "    return lambda **sizes: (right if sizes['tied'] else wrong)(**sizes)\n"
                "estimate = with_slip()\n"
            )
        elif check == "estimate_tied":
            answers[cell] += (
                f"def with_slip(right=estimate, wrong={wrong}['estimate']):\n"
                "    return lambda **sizes: (wrong if sizes['tied'] else right)(**sizes)\n"
                "estimate = with_slip()\n"
            )
        else:
            for name in CATALOGUE[check][says]:
                answers[cell] += f"{name} = {wrong}[{name!r}]\n"
    return answers


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> list[tuple[dict[str, str], dict[str, float]]]:
    """Submissions that hold the k-th slip of every check, and their points by test cell."""
    folder = tmp_path_factory.mktemp("course")
    released = build(NAME, folder) / f"{NAME}.ipynb"
    config = course.settings(folder)
    rounds = []
    for k in range(max(map(len, CATALOGUE.values()))):
        slips = {check: list(known)[k] for check, known in CATALOGUE.items() if k < len(known)}
        rounds.append(slips)
        course.submit(config, NAME, f"slip-{k}", released, wrong_answers(slips))
    assert course.autograde(config, NAME), (folder / "nbgrader.log").read_text(encoding="utf-8")[-3000:]
    marks = course.marks(config, NAME)
    return [(slips, marks[f"slip-{k}"]) for k, slips in enumerate(rounds)]


def test_every_slip_loses_the_points_of_its_cell(graded):
    tried = [(check, says) for slips, _ in graded for check, says in slips.items()]
    assert sorted(tried) == sorted(SLIPS)
    kept = [(check, slips[check]) for slips, points in graded for check in slips if points[PROBLEM[check]] != 0]
    assert kept == []


def test_a_slip_costs_no_other_cell(graded):
    lost = [
        (check, slips)
        for slips, points in graded
        for check in PROBLEM
        if check not in slips and check != "real_models" and points[PROBLEM[check]] != 1
    ]
    assert lost == []


def test_no_slip_survives_the_real_models(graded):
    for slips, points in graded:
        if set(slips) & set(PARTS):
            assert points[PROBLEM["real_models"]] == 0, slips


def test_the_notebook_is_all_that_a_student_gets():
    assert [path.name for path in (Path(course.ROOT) / "solutions" / NAME).glob("[!.]*")] == [f"{NAME}.ipynb"]
