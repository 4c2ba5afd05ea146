"""Exercise 05: its truth by complex numbers, and what its probes promise."""

import math

import nbformat
import pytest
import torch

from classroom.checks import positions as checks
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
