"""Exercise 06: its truth, what was measured and what was made up, its essay and the part that a person marks."""

import math
from types import SimpleNamespace

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


@pytest.fixture(scope="module")
def given():
    """What the locked cells define: the stack, its texts, the little language and how it is learned."""
    names, before = {}, torch.get_default_dtype()
    for cell in read("exercises").cells:
        if cell.metadata.nbgrader.grade_id in ("start", "p6-stack", "p7-learn"):
            exec(cell.source, names)
    yield SimpleNamespace(**{name: names[name] for name in ("stack", "ids", "learn", "wide")})
    torch.set_default_dtype(before)


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


GRADIENT, RMS, LOSSES = ({**norms_claim_slips.MEASURED[name]} for name in ("gradient", "rms", "losses"))
ESSAY = TYPED.partition('"""')[2].rpartition('"""')[0].replace("\\\\", "\\")


def test_what_is_known_beforehand_is_what_the_stack_and_the_runs_give(given):
    for place, known in GRADIENT.items():
        model, sizes = given.stack(1_000, place), []
        for block in model.blocks:
            block.register_forward_hook(lambda block, x, out, sizes=sizes: sizes.append(out.pow(2).mean().item()))
        next_token_loss(model(given.ids[:, :-1]), given.ids).backward()
        squares = sum(weight.grad.pow(2).sum().item() for weight in model.blocks[0].parameters())
        assert squares**0.5 == pytest.approx(known, rel=1e-3)
        sizes.clear()
        model(given.ids)
        if place == "pre":
            assert {n: sizes[n - 1] ** 0.5 for n in RMS} == pytest.approx(RMS, rel=1e-3)
    configs = {"wide": (given.wide, 60), "deep": (norms_claim_slips.DEEP, norms_claim_slips.STEPS_DEEP)}
    assert configs["wide"][0] == norms_claim_slips.WIDE
    for name, (config, n) in configs.items():
        losses = given.learn(config, n)
        assert len(losses) == n and math.fsum(losses[n - 5 :]) / 5 == pytest.approx(LOSSES[name], rel=1e-3)


# each lay within the bounds of the check, or the check told the number and let its double pass: a point for nothing
MADE_UP = [
    (GRADIENT | {"pre": 1.0}, RMS, 0.484, "gradient"),
    (GRADIENT | {"post": 1e-9}, RMS, 0.484, "gradient"),
    (GRADIENT | {"pre": 3.6}, RMS, 0.484, "gradient"),
    (GRADIENT, {250: 19.23, 1000: 38.46}, 0.5, "rms"),
    (GRADIENT, {250: 20.0, 1000: 39.1}, 0.484, "rms"),
    (GRADIENT, {250: 5.0, 1000: 10.0}, 0.5, "rms"),
    (GRADIENT, RMS, 0.5, "exponent"),
    (GRADIENT, RMS, 0.47, "exponent"),
]


@pytest.mark.parametrize(("gradient", "rms", "exponent", "says"), MADE_UP)
def test_made_up_measurements_earn_nothing_and_are_not_told_the_right_ones(given, gradient, rms, exponent, says):
    with pytest.raises(CheckFailed, match=f"^{says}") as caught:
        checks.depth(gradient, rms, exponent, given.stack, given.ids)
    own = [*gradient.values(), *rms.values(), exponent]
    right = [*GRADIENT.values(), *RMS.values(), math.log(RMS[1000] / RMS[250], 4)]
    told = norms_claim.numbers(str(caught.value))
    assert [n for n in told if n not in own and any(n == pytest.approx(one, rel=0.01) for one in right)] == []


@pytest.mark.parametrize(
    ("gradient", "rms", "exponent"),
    [
        (GRADIENT, RMS, 0.484),
        ({"pre": 3.4, "post": 3.4e-10}, {250: 19.2, 1000: 37.6}, 0.485),
        ({"pre": torch.tensor(3.43), "post": 3.43e-10}, {250: 19, 1000: 38}, math.log(38 / 19) / math.log(4)),
        ({"pre": 3.43, "post": 3.429e-10}, {250: 19, 1000: 38}, 0.48395),
        ({"pre": 3.43, "post": 3.43e-10}, {250: 19.23, 1000: 37.61}, 0.48),
    ],
)
def test_measurements_may_be_rounded_before_or_after_the_exponent_is_taken(given, gradient, rms, exponent):
    checks.depth(gradient, rms, exponent, given.stack, given.ids)


@pytest.mark.parametrize(
    "loss", [{"wide": 1.64, "deep": 2.2}, {"wide": 1.64, "deep": 1.9}, {"wide": 1.9, "deep": 2.05}]
)
def test_made_up_losses_earn_nothing_and_are_not_told_the_right_ones(given, loss):
    """One number between 1.85 and 2.4 was the deep model's loss, and the wide one's was told."""
    with pytest.raises(CheckFailed, match=r"^losses: measured again") as caught:
        checks.budget(norms_claim_slips.STEPS_DEEP, loss, given.learn, given.wide)
    told = norms_claim.numbers(str(caught.value))
    assert [n for n in told if n not in loss.values() and any(abs(n - one) < 0.02 for one in LOSSES.values())] == []


@pytest.mark.parametrize("loss", [LOSSES, {"wide": 1.64, "deep": 2.05}, {"wide": 1.641, "deep": 2.047}])
def test_losses_may_be_rounded(given, loss):
    checks.budget(norms_claim_slips.STEPS_DEEP, loss, given.learn, given.wide)


def test_where_other_numbers_are_known_beforehand_those_that_are_measured_here_count(given, monkeypatch):
    """So an instructor may change the stack, and another machine may differ in a digit."""
    for what, known in norms_claim_slips.MEASURED.items():
        monkeypatch.setitem(norms_claim_slips.MEASURED, what, {key: 1.5 * value for key, value in known.items()})
    checks.depth(GRADIENT, RMS, 0.484, given.stack, given.ids)
    checks.budget(norms_claim_slips.STEPS_DEEP, LOSSES, given.learn, given.wide)
    cites(given)
    norms_claim.cites_budget(ESSAY, LOSSES, norms_claim_slips.WIDTH_1000, given.learn, given.wide)


def cites(given, essay=ESSAY, gradient=GRADIENT, rms=RMS):
    norms_claim.cites_depth(essay, gradient, rms, given.stack, given.ids)


@pytest.mark.parametrize(
    ("gradient", "rms"),
    [
        ({"pre": 1, "post": 1}, {250: 1, 1000: 1}),
        ({"pre": 1.0, "post": 1e-9}, RMS),
        (GRADIENT, {250: 19.2, 1000: 40.0}),
    ],
)
def test_an_essay_that_cites_made_up_numbers_earns_nothing(given, gradient, rms):
    """Every number agreed with "one's own", whatever that was: a 1 and a hundred words had both points."""
    essay = f"{gradient['pre']} {gradient['post']} {rms[1000]}" + 100 * " word"
    with pytest.raises(CheckFailed, match="is not what problem 6 measures"):
        cites(given, essay, gradient, rms)
    with pytest.raises(CheckFailed, match="is not what problem 7 measures"):
        norms_claim.cites_budget("1" + 100 * " word", {"wide": 1, "deep": 1}, 1, given.learn, given.wide)


@pytest.mark.parametrize("own", [3.4286, 3.43, 3.4, torch.tensor(3.4286)])
@pytest.mark.parametrize(
    ("cited", "agrees"),
    [("3.43", True), ("3.4", True), ("3,4", True), ("3.42859590131", True), ("3.6", False), ("3", False)],
)
def test_a_number_is_cited_to_the_digits_that_it_is_written_with(given, own, cited, agrees):
    """3.6 agreed with 3.43: six per cent were allowed, however many digits there were."""
    essay = ESSAY.replace("length 3.4,", f"length {cited},")
    assert essay != ESSAY or cited == "3.4"
    if agrees:
        cites(given, essay, GRADIENT | {"pre": own})
    else:
        with pytest.raises(CheckFailed, match=r"agrees with your first block's gradient .* pre-norm"):
            cites(given, essay, GRADIENT | {"pre": own})


@pytest.mark.parametrize("width", ["733", "732.7", "730", "732.71483"])
@pytest.mark.parametrize(("wide", "deep"), [("1.64", "2.05"), ("1.6", "2.0"), ("1.641", f"{2.0473:.2g}")])
def test_rounded_and_cut_numbers_agree(given, wide, deep, width):
    essay = f"{wide} against {deep}, and a width of {width}"
    norms_claim.cites_budget(essay, LOSSES, norms_claim_slips.WIDTH_1000, given.learn, given.wide)


@pytest.mark.parametrize("width", [0, -733.0])
def test_a_width_that_is_none_is_answered_in_words(given, width):
    with pytest.raises(CheckFailed, match="agrees with your width_1000"):
        norms_claim.cites_budget(ESSAY, LOSSES, width, given.learn, given.wide)


def test_an_essay_is_told_the_nearest_of_its_numbers(given):
    with pytest.raises(CheckFailed, match=r"You measured 3\.43; the nearest number in the essay is 3\.9"):
        cites(given, ESSAY.replace("length 3.4,", "length 3.9,"))


@pytest.mark.parametrize("essay", [..., None, 3, ["text"], "", "\n...\n", 100 * "1e999 "])
def test_an_essay_that_is_no_text_is_answered_in_words(given, essay):
    with pytest.raises(CheckFailed, match="essay"):
        cites(given, essay)


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
