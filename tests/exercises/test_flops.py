"""Exercise 10: what its checks hold for right, counted in a second way; and which drawings they take."""

import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from classroom import terms
from classroom.checks import flops as checks
from classroom.checks import flops_slips as truth
from classroom.checks.expect import CheckFailed
from plainformer.attention import attention
from plainformer.config import Config, preset
from plainformer.model import Transformer

SIZES = {"d_model": 48, "n_heads": 8, "n_kv_heads": 2, "d_ff": 112}


def counted(config: Config, n_positions: int) -> int:
    """What torch's own counter sees of a model that runs."""
    with torch.device("meta"):
        model = Transformer(config, attend=attention)
        ids = torch.zeros(1, n_positions, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(ids)
    return counter.get_total_flops()


@pytest.mark.parametrize("gated", [False, True])
def test_a_block_costs_what_torch_counts(gated):
    config = Config(
        n_layers=1, n_vocab=7, n_context=64, positions="none", output="states", mlp="swiglu" if gated else "gelu",
        **SIZES,
    )  # fmt: skip
    assert sum(truth.block(**truth.case(gated=gated)).values()) == counted(config, truth.case()["n_positions"])


def test_a_causal_mask_leaves_the_pairs_that_a_loop_counts():
    case = truth.case(causal=True)
    pairs = sum(key <= query for query in range(case["n_positions"]) for key in range(case["n_positions"]))
    assert truth.block(**case)["scores"] == truth.block(**case)["mix"] == 2 * pairs * case["d_model"]


def test_the_colleagues_count_is_what_torch_counts_once_it_is_mended():
    sizes = {"n_layers": 3, "d_model": 48, "d_ff": 112, "n_vocab": 1_000}
    config = Config(n_heads=6, n_kv_heads=6, n_context=64, positions="none", mlp="gelu", **sizes)
    assert truth.forward_pass(**sizes, n_positions=20) == counted(config, 20)


def test_sizes_differ_so_that_none_can_stand_for_another():
    numbers = [value for value in truth.case().values() if type(value) is int]
    numbers.append(truth.case()["d_model"] // truth.case()["n_heads"])
    assert len(set(numbers)) == len(numbers)
    assert truth.case()["d_ff"] not in (4 * truth.case()["d_model"], truth.case()["d_model"] * 8 // 3)


def test_the_weights_that_multiply_are_those_of_the_layers_of_a_model():
    llama = preset(truth.REAL)
    with torch.device("meta"):
        model = Transformer(llama)
    weights = sum(m.weight.numel() for m in model.modules() if isinstance(m, torch.nn.Linear))
    n = sum(p.numel() for p in model.parameters())
    mean = sum(range(1, llama.n_context + 1)) / llama.n_context
    own = 4 * mean * llama.d_model * llama.n_layers
    assert math.isclose(n / weights - 1, truth.TABLE_ADDS)
    assert math.isclose(own / (2 * weights), truth.ATTENTION_ADDS)
    assert math.isclose(2 * n / (2 * weights + own) - 1, truth.RULE_ERROR)
    assert truth.RULE_ERROR < 0 < truth.TABLE_ADDS < truth.ATTENTION_ADDS  # as the right reason says


def test_the_lines_err_as_the_exercise_says():
    right = truth.share(truth.D, truth.T, False)
    linear, on_log = (truth.on_line(truth.T, *truth.ROWS, scale) for scale in (float, math.log))
    beyond = truth.on_line(4 * truth.T, 2 * truth.T, 8 * truth.T, math.log)
    if terms.seed() == 0:
        assert [round(100 * x, 1) for x in (right, linear, on_log)] == [40.0, 35.7, 41.1]
    assert linear < right < on_log and beyond < truth.share(truth.D, 4 * truth.T, False)


# ---- drawings ----


def drawn(change=lambda ax: ax):
    def draw(d_model):
        return change(truth.drawing()["draw"](d_model))

    return draw


def with_marks(ax):
    ax.axhline(0.5)
    ax.axvline(24_576, label="half")
    ax.grid(True)
    return ax


@pytest.mark.parametrize("change", [lambda ax: ax, lambda ax: ax.figure, with_marks])
@pytest.mark.parametrize("check", ["curves", "crossing", "axes"])
def test_a_drawing_is_taken_as_axes_or_figure_with_whatever_else_it_shows(check, change):
    getattr(checks, check)(drawn(change))
    getattr(checks, check)(drawn(change), 64, 12_288)


@pytest.mark.parametrize("change", [lambda ax: ax.get_lines(), lambda ax: 3, lambda ax: [ax]])
@pytest.mark.parametrize("check", ["curves", "crossing", "axes"])
def test_what_is_no_drawing_is_asked_for_its_axes(check, change):
    with pytest.raises(CheckFailed, match="return the Axes"):
        getattr(checks, check)(drawn(change))


def test_the_checks_leave_no_figure_open():
    plt = pytest.importorskip("matplotlib.pyplot")
    before = plt.get_fignums()

    def draw(d_model):
        _, ax = plt.subplots()
        for line in truth.drawing()["draw"](d_model).get_lines():
            ax.plot(line.get_xdata(), line.get_ydata(), label=line.get_label())
        return ax

    checks.curves(draw)
    checks.crossing(draw)
    assert plt.get_fignums() == before


def lines_of(lengths, share):
    """An answer that draws `share(length, half)` at `lengths(d_model, half)`; at `half` the share is one half."""

    def draw(d_model):
        from matplotlib.figure import Figure

        ax = Figure().add_subplot()
        for label, times in ((truth.LAST, 6), (truth.MEAN, 12)):
            x = list(lengths(d_model, times * d_model))
            ax.plot(x, [share(n, times * d_model) for n in x], label=label)
        return ax

    return draw


def curve(n, half):
    return n / (n + half)


@pytest.mark.parametrize(
    ("lengths", "share"),
    [
        (lambda d, half: [half], curve),  # the one point that was asked for, and no line
        (lambda d, half: [half] * 20, curve),
        (lambda d, half: [half * (1 + k * 1e-7) for k in range(-10, 11)], lambda n, half: 0.5),  # a crowd there
        (lambda d, half: [half / 9, half, 9 * half], curve),  # right and sparse
        (lambda d, half: [d / 4, *range(1, 40), half, 40 * d], lambda n, half: 0.5),
        (lambda d, half: [d * k / 2 for k in range(1, 90)], lambda n, half: 0.1 + 0.4 * (n >= half) + 0.4 * (n > half)),
        (lambda d, half: [d * k / 2 for k in range(1, 90)], lambda n, half: 1 - curve(n, half)),  # from above to below
        (lambda d, half: [-half, *(d * k for k in range(1, 90))], lambda n, half: curve(n, half) if n > 0 else 0.0),
    ],
)
def test_a_half_way_point_without_its_curve_earns_nothing(lengths, share):
    """It is known from problem 2: whoever puts it into a drawing of anything has drawn no share."""
    with pytest.raises(CheckFailed, match="draw: "):
        checks.crossing(lines_of(lengths, share))


@pytest.mark.parametrize(
    ("lengths", "share"),
    [
        (lambda d, half: [*(d * 2 ** (k / 3) for k in range(-6, 16)), half], curve),  # in any order
        (lambda d, half: [1, *range(5 * d, 105 * d, 5 * d), half], curve),  # a single point before it
        (lambda d, half: sorted([*range(0, 40 * d, d), half]), curve),  # from zero on
        (lambda d, half: range(d, 33 * d, d), lambda n, half: round(curve(n, half), 2)),
        (lambda d, half: range(half // 3, 2 * half, d // 8), curve),  # too short a line passes one half all the same
    ],
)
def test_a_half_way_point_on_a_curve_counts_however_its_points_are_spread(lengths, share):
    checks.crossing(lines_of(lengths, share))
    checks.crossing(lines_of(lengths, share), 64, 12_288)


@pytest.mark.parametrize("guess", ["half", 40, 1, 0, -0.1, True, float("nan"), ...])
def test_an_impossible_share_is_answered_in_words(guess):
    with pytest.raises(CheckFailed, match="guess"):
        checks.predict(guess)
    with pytest.raises(CheckFailed, match="guess"):
        checks.how_far(guess, 0.4)
