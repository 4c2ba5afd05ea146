"""Exercise 05: its truth by complex numbers, and what its probes promise."""

import math
import random
import re

import nbformat
import pytest
import torch

from classroom.checks import positions as checks
from classroom.checks import positions_drawn as drawn
from classroom.checks import positions_probes as probes
from classroom.checks import positions_slips as slips
from classroom.checks.expect import CheckFailed
from classroom.grading import course
from plainformer.positions import convert_pairing

NAME = "05_positions"


def read(folder: str):
    return nbformat.read(course.ROOT / folder / NAME / f"{NAME}.ipynb", as_version=4)


def turned_as_complex_numbers(x, positions, base, pairing):
    first, second = x.chunk(2, -1) if pairing == "halves" else (x[..., ::2], x[..., 1::2])
    speeds = torch.tensor([base ** (-n / x.shape[-1]) for n in range(0, x.shape[-1], 2)], dtype=torch.float64)
    angles = positions[:, None] * speeds
    z = torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([z.real, z.imag], -1) if pairing == "halves" else torch.view_as_real(z).flatten(-2)


@pytest.mark.parametrize("pairing", ["halves", "even-odd"])
def test_the_turn_is_a_product_of_complex_numbers(pairing):
    for x, positions, base in [(checks._X, checks._POSITIONS, checks._BASE), *checks.extremes()]:
        expected = turned_as_complex_numbers(x, positions, base, pairing)
        torch.testing.assert_close(probes.turned(x, positions, base, pairing), expected, atol=5e-9, rtol=0)


def test_the_matrix_moves_every_row_on():
    for k, d_model, base in ((3, 10, 100.0), (1, 2, 10_000.0), (40, 6, 2.5)):
        rows = probes.rows(k + 50, d_model, base)
        torch.testing.assert_close(rows[:50] @ slips.shifted(k, d_model, base), rows[k:], atol=1e-11, rtol=0)


def test_a_converted_model_has_the_scores_of_the_old_one():
    n_heads, d_head, d_model = 3, 8, 10
    query, key = checks.tensor(2, n_heads * d_head, d_model)
    x = checks.tensor(5, d_model)
    at = torch.tensor([0, 1, 7, 30, 31])

    def scores(w_q, w_k, pairing):
        heads = [(x @ w.T).view(5, n_heads, d_head).transpose(0, 1) for w in (w_q, w_k)]
        q, k = (turned_as_complex_numbers(h, at, 10_000.0, pairing) for h in heads)
        return q @ k.mT

    old = scores(query, key, "even-odd")
    converted = [convert_pairing(w, n_heads, to="halves") for w in (query, key)]
    torch.testing.assert_close(scores(*converted, "halves"), old, atol=1e-11, rtol=0)
    assert (scores(query, key, "halves") - old).abs().max() > 1


def test_the_probes_are_what_they_are_called():
    for versions, relative in ((probes.RELATIVE, True), (probes.NOT_RELATIVE, False)):
        for name, (d_head, rotation) in versions.items():
            q, k = checks.tensor(2, d_head)
            moves = [
                abs(probes.scores(rotation, q, k, s + gap, s) - probes.scores(rotation, q, k, gap, 0))
                for gap in (0, 1, 50, 700)
                for s in (1, 10, 600, 3000)
            ]
            assert (max(moves) < 1e-9) == relative, name
            assert relative or max(moves) > 1e-3, name


# ---- problem 6: what hidden tests hand over ----

DRAWS = range(12)


@pytest.fixture
def in_float64():
    """As the notebook sets it, until the end of the test."""
    torch.set_default_dtype(torch.float64)


def visible() -> list[tuple[int, probes.Rotation, bool]]:
    known = ((probes.RELATIVE, True), (probes.NOT_RELATIVE, False))
    return [(d_head, f, right) for versions, right in known for d_head, f in versions.values()]


def drawn_versions(draw: int) -> list[tuple[str, int, probes.Rotation, bool]]:
    dice = random.Random(draw)
    known = ((drawn.relative(dice), True), (drawn.not_relative(dice), False))
    known += (({"turn": drawn.turn(dice)}, True), ({"added": drawn.added(dice)}, False))
    return [(name, d_head, f, right) for versions, right in known for name, (d_head, f) in versions.items()]


def run_cell(check: str, is_relative) -> None:
    """The graded cell with its hidden test."""
    cell = next(cell for cell in read("solutions").cells if cell.metadata.nbgrader.grade_id == f"p6-{check}")
    exec(cell.source, {"check": checks, "is_relative": is_relative})


@pytest.mark.parametrize("draw", DRAWS)
def test_drawn_functions_are_what_they_are_called(draw):
    for name, d_head, rotation, relative in drawn_versions(draw):
        q, k = checks.tensor(2, d_head)
        moves = [
            abs(probes.scores(rotation, q, k, s + gap, s) - probes.scores(rotation, q, k, gap, 0))
            for gap in (0, 1, 50, 700)
            for s in (1, 10, 600, 3000)
        ]
        assert (max(moves) < 1e-9) == relative, name
        assert relative or max(moves) > 1e-2, name


def compares(vectors, *pairs):
    """An honest test, if a coarse one: a few pairs of positions that are equally far apart."""

    def is_relative(rotation, d_head):
        q, k = vectors(d_head)
        found = [probes.scores(rotation, q, k, p, r) for p, r in pairs]
        return max(found) - min(found) < 1e-6

    return is_relative


def by_matrices(rotation, d_head):
    def scores(p, r):
        query, key = (rotation(torch.eye(d_head), torch.full((d_head,), at)) for at in (p, r))
        return query @ key.T

    return all(torch.allclose(scores(n, 0), scores(n + s, s)) for n in (0, 3, 100) for s in (1, 900, 3900))


def all_positions_at_once(rotation, d_head):
    x, at = torch.randn(2, 1, d_head).expand(2, 500, d_head), torch.arange(500) * 8
    scores = (rotation(x[0], at + 5) * rotation(x[1], at)).sum(-1)
    return scores.std() < 1e-8


HONEST = {
    "random numbers": compares(lambda d: torch.randn(2, d), (5, 2), (1006, 1003)),
    "ones, the key ahead": compares(lambda d: torch.ones(2, d), (0, 1), (4000, 4001)),
    "one feature": compares(lambda d: torch.eye(d)[[0, 0]], (9, 2), (600, 593), (3009, 3002)),
    "rising numbers, far apart": compares(lambda d: torch.arange(2.0 * d).view(2, d), (512, 0), (4000, 3488)),
    "matrices": by_matrices,
    "all at once": all_positions_at_once,
}


@pytest.mark.parametrize("style", HONEST)
def test_who_judges_the_visible_functions_by_the_property_judges_the_drawn_ones(style, in_float64):
    torch.manual_seed(3)
    assert all(HONEST[style](f, d_head) == right for d_head, f, right in visible())
    for draw in DRAWS:
        assert not [name for name, d, f, right in drawn_versions(draw) if HONEST[style](f, d) != right]
    for check in ("spares", "kills"):
        run_cell(check, HONEST[style])


def remembers(otherwise: bool):
    """Tests nothing: it knows each visible function by what it makes of one input, and says the same of any other.

    A wrong try tells a student which functions were judged wrongly, so the table costs some tries and no thought.
    """

    def looks(rotation, d_head):
        y = rotation(torch.ones(2, d_head, dtype=torch.float64), torch.tensor([3, 700]))
        return tuple(round(number, 6) for number in y.flatten().tolist())

    table = {looks(rotation, d_head): right for d_head, rotation, right in visible()}
    return lambda rotation, d_head: table.get(looks(rotation, d_head), otherwise)


def looks_for_what_it_has_seen(rotation, d_head):
    """Knows each visible fault by a sign of it, and no other."""

    def at(position):
        return rotation(torch.eye(d_head)[:1], torch.tensor([position]))[0]

    is_longer = abs(at(1000) @ at(1000) - 1) > 1e-6
    is_clamped = torch.equal(at(600), at(701)) and not torch.equal(at(1), at(2))
    is_squared = abs(at(2)[0] - math.cos(4)) < 1e-6
    return not (is_longer or is_clamped or is_squared)


@pytest.mark.parametrize(
    "check, fraud",
    [
        ("spares", remembers(True)),
        ("spares", remembers(False)),
        ("kills", remembers(True)),
        ("kills", remembers(False)),
        ("kills", looks_for_what_it_has_seen),
    ],
)
def test_who_knows_the_visible_functions_alone_earns_nothing(check, fraud, in_float64):
    getattr(checks, check)(fraud)
    for _ in range(5):
        with pytest.raises(CheckFailed, match="a test with other sizes fails") as failure:
            run_cell(check, fraud)
        assert not [name for name, *_ in drawn_versions(0) if name in str(failure.value)]


def test_two_draws_have_no_function_in_common(in_float64):
    """Nor two that make the same of the first features of one input: a table of all that may be drawn has no end."""
    seen = [
        tuple(rotation(torch.ones(1, d_head), torch.tensor([700]))[0, :2].tolist())
        for draw in DRAWS
        for _, d_head, rotation, _ in drawn_versions(draw)
    ]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    "arguments",
    [(), (None, None), ("x", torch.tensor([1])), (torch.ones(1, 3), torch.tensor([1])), (torch.ones(1, 2), [1])],
    ids=["nothing", "None", "text", "an odd width", "a list"],
)
def test_an_error_that_is_provoked_does_not_tell_drawn_functions_apart(arguments):
    """An error crosses to the student's process with its text, which may hold the name of a function."""
    texts, names = set(), set()
    for _, _, rotation, _ in drawn_versions(0):
        names.add((type(rotation), rotation.__qualname__))
        with pytest.raises(Exception) as error:
            rotation(*arguments)
        texts.add((error.type, re.sub(r"\d+", "n", str(error.value))))
    assert len(texts) == len(names) == 1


# ---- problem 7 and the rest ----


def test_one_head_is_right_and_the_others_have_their_bug():
    q, k, v = checks.tensor(3, 6, 4)
    at = torch.tensor([3, 4, 5, 9, 11, 40])
    right = torch.softmax(
        turned_as_complex_numbers(q, at, 10_000.0, "halves")
        @ turned_as_complex_numbers(k, at, 10_000.0, "halves").T
        / 2,
        -1,
    )
    heads = checks.heads()
    gaps = {name: (head(q, k, v, at) - right @ v).abs().max().item() for name, head in heads.items()}
    assert [name for name, gap in gaps.items() if gap < 1e-9] == ["C"]
    assert min(gap for name, gap in gaps.items() if name != "C") > 1e-4
    moved = {name: (head(q, k, v, at) - head(q, k, v, at + 100)).abs().max().item() for name, head in heads.items()}
    assert [name for name, gap in moved.items() if gap > 1e-9] == ["A"]
    one_pair = {name: head(q[:, :2], k[:, :2], v, at) for name, head in heads.items() if name != "A"}
    torch.testing.assert_close(one_pair["B"], one_pair["C"])


def test_sizes_differ_so_that_none_can_stand_for_another():
    assert len(set(checks._X.shape)) == 4 and len(checks._POSITIONS) == checks._X.shape[2]
    assert checks._POSITIONS[0] != 0
    base = slips.ROOT ** (slips.WIDTH // 2)
    speeds = [base ** (-2 * n / slips.WIDTH) for n in range(slips.WIDTH // 2)]
    assert pytest.approx(speeds, rel=1e-12) == slips.SPEEDS and math.isclose(slips.WAVE, 2 * math.pi / speeds[-1])


@pytest.mark.parametrize("answer", [..., None, "C", {}, {"A": "Sign"}, dict.fromkeys("ABCDE", "right")])
def test_verdicts_that_are_none_are_answered_in_words(answer):
    with pytest.raises(CheckFailed, match="verdicts"):
        checks.verdicts(answer)


@pytest.mark.parametrize("answer", [..., None, 5, [1, 2], [("a", "b")] * 4, [(0, 4)]])
def test_pairs_that_are_none_are_answered_in_words(answer):
    with pytest.raises(CheckFailed, match="halves"):
        checks.pairs(answer, slips.EVEN_ODD)


def test_a_student_does_not_read_which_head_is_which():
    given = "\n".join(cell.source for cell in read("exercises").cells)
    assert "VERDICTS" not in given and "positions_probes" not in given
