"""Positions against their formulas in plain Python, and the property that rotary ones are made for."""

import cmath
import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from plainformer.positions import convert_pairing, rotary_angles, rotate, sinusoids

PAIRINGS = ["halves", "even-odd"]
BATCH, HEADS, LENGTH, D_HEAD = 2, 3, 5, 8


def pairs(pairing: str, d_head: int) -> list[tuple[int, int]]:
    half = d_head // 2
    return [(n, n + half) if pairing == "halves" else (2 * n, 2 * n + 1) for n in range(half)]


def turned(row: list[float], position: int, pairing: str, base: float) -> list[float]:
    """Each pair as one complex number, times e^(i p θ)."""
    result = list(row)
    for n, (first, second) in enumerate(pairs(pairing, len(row))):
        angle = position * base ** (-2 * n / len(row))
        z = complex(row[first], row[second]) * cmath.exp(1j * angle)
        result[first], result[second] = z.real, z.imag
    return result


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


# --- sinusoids -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [10_000.0, 7.0])
@pytest.mark.parametrize(("n_positions", "d_model"), [(1, 2), (9, 6), (4, 10)])
def test_sinusoids_equal_the_formula(n_positions, d_model, base):
    rows = sinusoids(n_positions, d_model, base=base, dtype=torch.float64)
    assert rows.shape == (n_positions, d_model)
    for p in range(n_positions):
        for feature in range(d_model):
            wave = math.sin if feature % 2 == 0 else math.cos
            right = wave(p / base ** (2 * (feature // 2) / d_model))
            assert rows[p, feature].item() == pytest.approx(right, rel=0, abs=1e-14)


def test_moving_along_sinusoids_is_one_linear_map():
    """The row of p + k is a rotation of the row of p that does not depend on p. Vaswani et al. 2017, section 3.5."""
    rows, k = sinusoids(30, 6, dtype=torch.float64), 4
    move = torch.linalg.lstsq(rows[:-k], rows[k:]).solution
    torch.testing.assert_close(rows[:-k] @ move, rows[k:], rtol=0, atol=1e-9)
    torch.testing.assert_close(move @ move.T, torch.eye(6, dtype=torch.float64), rtol=0, atol=1e-9)


def test_numbers_come_in_the_type_asked_for_and_with_its_precision():
    p = torch.tensor([0, 3, 99_999])
    exact = (p.double()[:, None] * 10_000.0 ** (-torch.arange(0, 8, 2).double() / 8)).cos()
    for dtype in (torch.float32, torch.float64):
        cos, sin = rotary_angles(p, 8, dtype=dtype)
        assert cos.dtype == sin.dtype == sinusoids(3, 4, dtype=dtype).dtype == dtype
        # far positions too: an angle of 99,999 in float32 would be off by more than a thousandth
        assert (cos.double() - exact).abs().max() < torch.finfo(dtype).eps + 1e-10
    assert rotary_angles(p, 8)[0].dtype == sinusoids(3, 4).dtype == torch.float32


def test_the_default_type_is_torch_s(double):
    assert rotary_angles(torch.arange(3), 8)[1].dtype == sinusoids(3, 4).dtype == torch.float64


# --- rotary ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [10_000.0, 11.0])
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_rotate_equals_a_product_of_complex_numbers(pairing, base):
    x = torch.randn(BATCH, HEADS, LENGTH, D_HEAD, dtype=torch.float64)
    cos, sin = rotary_angles(torch.arange(LENGTH), D_HEAD, base=base, dtype=torch.float64)
    assert cos.shape == sin.shape == (LENGTH, D_HEAD // 2)
    wanted = [[[turned(row, p, pairing, base) for p, row in enumerate(head)] for head in b] for b in x.tolist()]
    wanted = torch.tensor(wanted, dtype=torch.float64)
    torch.testing.assert_close(rotate(x, cos, sin, pairing=pairing), wanted, rtol=0, atol=1e-13)


def test_halves_are_the_default():
    x, (cos, sin) = torch.randn(LENGTH, D_HEAD), rotary_angles(torch.arange(LENGTH), D_HEAD)
    assert torch.equal(rotate(x, cos, sin), rotate(x, cos, sin, pairing="halves"))
    assert not torch.allclose(rotate(x, cos, sin), rotate(x, cos, sin, pairing="even-odd"))


@given(st.integers(0, 500), st.integers(-200, 200), st.integers(0, 500), st.sampled_from(PAIRINGS))
def test_a_score_depends_on_the_distance_alone(p, distance, moved, pairing):
    """⟨rotate(q, p), rotate(k, p + d)⟩ is the same wherever both stand. Su et al. 2021, section 3.2."""
    random = torch.Generator().manual_seed(p)
    q, k = (torch.randn(D_HEAD, dtype=torch.float64, generator=random) for _ in "qk")

    def score(at):
        positions = torch.tensor([at, at + distance])
        cos, sin = rotary_angles(positions, D_HEAD, dtype=torch.float64)
        return (rotate(q, cos[0], sin[0], pairing=pairing) * rotate(k, cos[1], sin[1], pairing=pairing)).sum()

    torch.testing.assert_close(score(p), score(moved), rtol=0, atol=1e-11)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_the_sign_of_the_distance_matters(pairing):
    q, k = (torch.randn(D_HEAD, dtype=torch.float64) for _ in "qk")
    cos, sin = rotary_angles(torch.tensor([3, 5]), D_HEAD, dtype=torch.float64)
    first, second = ((cos[n], sin[n]) for n in (0, 1))
    ahead = (rotate(q, *first, pairing=pairing) * rotate(k, *second, pairing=pairing)).sum()
    behind = (rotate(q, *second, pairing=pairing) * rotate(k, *first, pairing=pairing)).sum()
    assert (ahead - behind).abs() > 1e-3


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_rotation_keeps_lengths_and_leaves_position_0_alone(pairing):
    x = torch.randn(HEADS, LENGTH, D_HEAD, dtype=torch.float64)
    y = rotate(x, *rotary_angles(torch.arange(LENGTH), D_HEAD, dtype=torch.float64), pairing=pairing)
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(y[:, 0], x[:, 0])
    for first, second in pairs(pairing, D_HEAD):
        torch.testing.assert_close(y[..., [first, second]].norm(dim=-1), x[..., [first, second]].norm(dim=-1))


def test_the_last_pair_turns_slowest():
    angles = torch.atan2(*reversed(rotary_angles(torch.tensor([1]), D_HEAD, base=10_000.0, dtype=torch.float64)))[0]
    torch.testing.assert_close(angles, torch.tensor([1.0, 0.1, 0.01, 0.001], dtype=torch.float64))


@pytest.mark.parametrize("kind", ["weight", "bias"])
@pytest.mark.parametrize(("before", "after"), [PAIRINGS, PAIRINGS[::-1]], ids=str)
def test_converted_projections_keep_all_scores(before, after, kind):
    d_model = 7
    x = torch.randn(LENGTH, d_model, dtype=torch.float64)
    cos, sin = rotary_angles(torch.arange(LENGTH), D_HEAD, dtype=torch.float64)
    shape = (HEADS * D_HEAD, d_model) if kind == "weight" else (HEADS * D_HEAD,)
    query, key = (torch.randn(shape, dtype=torch.float64) for _ in "qk")

    def scores(query, key, pairing):
        rows = [x @ w.T if kind == "weight" else w.expand(LENGTH, -1) for w in (query, key)]
        q, k = (rotate(r.unflatten(-1, (HEADS, D_HEAD)).transpose(0, 1), cos, sin, pairing=pairing) for r in rows)
        return q @ k.transpose(-2, -1)

    changed = [convert_pairing(w, HEADS, to=after) for w in (query, key)]
    assert [w.shape for w in changed] == [query.shape, key.shape]
    torch.testing.assert_close(scores(*changed, after), scores(query, key, before), rtol=0, atol=1e-12)
    assert not torch.allclose(scores(query, key, after), scores(query, key, before))
    assert torch.equal(convert_pairing(changed[0], HEADS, to=before), query)


def test_convert_pairing_moves_rows_within_their_head():
    rows = torch.arange(12.0)[:, None].expand(12, 5)
    assert convert_pairing(rows, 2, to="halves")[:, 0].tolist() == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]
    assert convert_pairing(rows, 2, to="even-odd")[:, 0].tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(0, 4), (-1, 4), (3, 5), (3, 0), (3, 1)], ids=str)
def test_impossible_sinusoids_are_refused(sizes):
    with pytest.raises(ValueError, match=f"even width, got {sizes[0]} × {sizes[1]}"):
        sinusoids(*sizes)


@pytest.mark.parametrize("d_head", [0, 1, 7, -2])
def test_impossible_rotations_are_refused(d_head):
    with pytest.raises(ValueError, match=f"d_head must be even, got {d_head}"):
        rotary_angles(torch.arange(3), d_head)


def test_unknown_pairings_are_refused():
    cos, sin = rotary_angles(torch.arange(3), 4)
    with pytest.raises(ValueError, match=r"pairing='neighbours'.*'halves' or 'even-odd'"):
        rotate(torch.randn(3, 4), cos, sin, pairing="neighbours")
    with pytest.raises(ValueError, match=r"to='neighbours'.*'halves' or 'even-odd'"):
        convert_pairing(torch.randn(8, 5), 2, to="neighbours")


@pytest.mark.parametrize(("rows", "n_heads"), [(10, 3), (6, 2)], ids=["heads", "odd width"])
def test_rows_that_are_no_heads_are_refused(rows, n_heads):
    with pytest.raises(ValueError, match=f"{rows} rows are not {n_heads} heads of an even width"):
        convert_pairing(torch.randn(rows, 5), n_heads, to="halves")
