"""Exercise 06: its truth, its essay and the part that a person marks."""

import nbformat
import pytest
import torch
import torch.nn.functional as F
from nbgrader.utils import is_task

from classroom.checks import norms as checks
from classroom.checks import norms_claim, norms_claim_slips, norms_slips
from classroom.checks.expect import CheckFailed
from classroom.grading import course
from classroom.grading.demo_class.norms import TYPED
from plainformer import norms
from plainformer.parameters import block_breakdown
from plainformer.training import next_token_loss

NAME = "06_norms"


def read(folder: str):
    return nbformat.read(course.ROOT / folder / NAME / f"{NAME}.ipynb", as_version=4)


def test_the_norms_by_hand_are_torchs():
    x = torch.tensor(norms_slips.X, dtype=torch.float64)
    weight, shift = (torch.full((5,), float(n), dtype=torch.float64) for n in (norms_slips.WEIGHT, norms_slips.SHIFT))
    assert F.layer_norm(x, (5,), weight, shift, 0.0).tolist() == pytest.approx(norms_slips.layered())
    assert F.rms_norm(x, (5,), weight, 0.0).tolist() == pytest.approx(norms_slips.rooted())
    assert pytest.approx(norms_slips.ROOT**2) == norms_slips.MEAN**2 + norms_slips.DEVIATION**2


def test_the_truth_is_torchs_in_every_case():
    for x, weight, bias, eps in checks.extremes():
        width = (x.shape[-1],)
        torch.testing.assert_close(
            norms.layer_norm(x, weight, bias, eps), F.layer_norm(x, width, weight, bias, eps), atol=1e-10, rtol=0
        )
        torch.testing.assert_close(
            norms.rms_norm(x, weight, eps), F.rms_norm(x, width, weight, eps), atol=1e-10, rtol=0
        )


def test_the_gradient_is_a_slope():
    """A step along the gradient changes the loss by the gradient's length for each unit of the way."""
    model, ids, step = norms_claim_slips.small_model(), norms_claim_slips.IDS, 1e-5
    gradients = norms_claim_slips.block_gradients(model, ids)
    size, losses = norms_claim_slips.length(gradients), []
    with torch.no_grad():
        for way in (step, -2 * step):
            for weight, gradient in zip(model.blocks[0].parameters(), gradients):
                weight.add_(gradient, alpha=way / size)
            losses.append(next_token_loss(model(ids[:, :-1]), ids).item())
    assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(size, rel=1e-5)


def test_both_shapes_hold_the_same_weights_and_sizes_differ():
    wide, deep = norms_claim_slips.WIDE, norms_claim_slips.DEEP
    held = [
        config.n_layers * sum(n for part, n in block_breakdown(config).items() if "norm" not in part)
        for config in (wide, deep)
    ]
    assert held[0] == held[1]
    assert norms_claim_slips.COST["wide"] < norms_claim_slips.COST["deep"]
    sizes = norms_claim_slips.small_model().config
    numbers = [sizes.n_vocab, sizes.d_model, sizes.n_heads, sizes.d_ff, sizes.d_head, *norms_claim_slips.IDS.shape]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("it is 3.4 long", 3.4),
        ("1,000 blocks", 1000.0),
        ("of 1,64 at the end", 1.64),
        ("3.4e-10", 3.4e-10),
        ("3.4E-10.", 3.4e-10),
        ("3.4 · 10^-10", 3.4e-10),
        ("3.4·10⁻¹⁰", 3.4e-10),
        ("3.4 × 10^−10", 3.4e-10),
        ("3.4 * 10**-10", 3.4e-10),
        (r"$3.4 \times 10^{-10}$", 3.4e-10),
        (r"$3.4\cdot10^{-10}$", 3.4e-10),
        ("a width of 733.", 733.0),
        ("(2.05)", 2.05),
        ("RMS=37.6, and", 37.6),
        ("about 10^-9", 1e-9),
        ("0.00034", 0.00034),
    ],
)
def test_numbers_are_read_however_they_are_written(text, number):
    assert norms_claim.numbers(text) == pytest.approx([number])


def test_an_essay_is_told_the_nearest_of_its_numbers():
    essay = TYPED.partition('"""')[2].rpartition('"""')[0]
    with pytest.raises(CheckFailed, match=r"You measured 16; the nearest number in the essay is 19\.2"):
        norms_claim.cites_depth(essay, {"pre": 16.0, "post": 3.4e-10}, {250: 19.2, 1000: 37.6})


@pytest.mark.parametrize("essay", [..., None, 3, ["text"], "", "\n...\n"])
def test_an_essay_that_is_no_text_is_answered_in_words(essay):
    with pytest.raises(CheckFailed, match="essay"):
        norms_claim.cites_depth(essay, {"pre": 3.4, "post": 3.4e-10}, {250: 19.2, 1000: 37.6})


@pytest.mark.parametrize(("says", "answer"), [("numbers", "[1.0, '2']"), ("list", "3.0"), ("not answered", "...")])
def test_a_vector_that_is_none_is_answered_in_words(says, answer):
    with pytest.raises(CheckFailed, match=says if says != "numbers" else "number"):
        checks.hunt(norms.rms_norm, eval(answer), [1.0])


def test_a_person_gets_the_marking_scheme_and_a_student_the_criteria():
    (task,) = [cell for cell in read("solutions").cells if is_task(cell)]
    (shown,) = [cell for cell in read("exercises").cells if is_task(cell)]
    scheme = task.source.partition("BEGIN MARK SCHEME")[2]
    assert "full | half | none" in scheme
    assert "by hand" in shown.source and "| 1 |" in shown.source
    released = "\n".join(cell.source for cell in read("exercises").cells)
    assert [line for line in scheme.splitlines() if len(line) > 20 and line in released] == []
    assert "MARK SCHEME" not in released
    stated = sum(int(line.split("|")[1]) for line in shown.source.splitlines() if line.startswith("| 1"))
    assert stated == task.metadata.nbgrader.points == 4
    assert f"**{task.metadata.nbgrader.points} more points**" in read("solutions").cells[0].source
