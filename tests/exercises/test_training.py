"""Exercise 12: what its checks take for right, held against torch, loops and closed forms; answers in odd forms."""

import math
import tracemalloc
from pathlib import Path

import nbformat
import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint as recomputed

from classroom.checks import training as checks
from classroom.checks import training_answers as known
from classroom.checks.expect import CheckFailed
from classroom.checks.tensors import TOUCHED
from classroom.checks.training_worth import STEPS
from classroom.grading import course, marking, sandbox
from classroom.grading.authority import authority
from classroom.grading.task import Task
from plainformer.training import next_token_loss, warmup_cosine


def adamw_of_torch(w, gradients, *, lr, decay, beta_1=0.9, beta_2=0.95, eps):
    w = torch.nn.Parameter(w.clone())
    optimiser = torch.optim.AdamW([w], lr=lr, betas=(beta_1, beta_2), eps=eps, weight_decay=decay)
    for g in gradients:
        w.grad = g.clone()
        optimiser.step()
    return w.detach(), optimiser.state[w]["exp_avg"], optimiser.state[w]["exp_avg_sq"]


def cosine_of_torch(n_steps, *, peak, n_warmup, floor):
    """The rates from step `n_warmup` on."""
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=peak)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=n_steps - n_warmup, eta_min=floor)
    rates = [peak]
    for _ in range(n_steps - n_warmup):
        optimiser.step()
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
    return rates


# ---- truths ----


def test_the_numbers_by_hand_are_torch_s():
    logits = torch.zeros(3, known.VOCABULARY, dtype=torch.float64)
    assert F.cross_entropy(logits, torch.tensor([0, 7, known.VOCABULARY - 1])).item() == pytest.approx(
        known.FIRST_LOSS, abs=1e-12
    )
    w, g = (torch.tensor([x], dtype=torch.float64) for x in (known.WEIGHT, known.DERIVATIVE))
    one_step, *_ = adamw_of_torch(w, [g], lr=known.STEP_RATE, decay=known.STEP_DECAY, eps=0.0)
    assert one_step.item() == pytest.approx(known.ONE_STEP, abs=1e-12)
    rates = cosine_of_torch(known.LAST, peak=known.PEAK, n_warmup=known.WARMUP, floor=known.FLOOR)
    assert rates[known.MIDDLE - known.WARMUP] == pytest.approx(known.MIDDLE_RATE, abs=1e-12)


@pytest.mark.parametrize("lengths", [[7, 7, 7], [7, 3, 5, 2], [2]])
def test_the_loss_is_what_a_loop_over_targets_gives(lengths):
    case = known.case(lengths)
    surprises = [
        -math.log(case["logits"][row, t].softmax(0)[case["ids"][row, t + 1]].item())
        for row, length in enumerate(lengths)
        for t in range(length - 1)
    ]
    right = next_token_loss(case["logits"], case["ids"], lengths=lengths).item()
    assert right == pytest.approx(sum(surprises) / len(surprises), abs=1e-12)


def test_the_schedule_falls_as_torch_s_and_rises_in_a_straight_line():
    given = {"peak": 0.4, "n_warmup": 4, "floor": 0.1}
    ours = [warmup_cosine(step, n_steps=24, **given) for step in range(1, 32)]
    assert ours[3:24] == pytest.approx(cosine_of_torch(24, **given), abs=1e-12)
    assert ours[:4] == pytest.approx([0.1, 0.2, 0.3, 0.4]) and ours[24:] == [0.1] * 7


@pytest.mark.parametrize("scale", [2.0, 0.02, 1e3])
def test_clipping_is_torch_s(scale):
    theirs = [torch.nn.Parameter(torch.zeros_like(g)) for g in known.gradients(scale)]
    for parameter, g in zip(theirs, known.gradients(scale)):
        parameter.grad = g.clone()
    torch.nn.utils.clip_grad_norm_(theirs, 1.5)  # adds 1e-6 to the length
    for ours, parameter in zip(known.clipped(known.gradients(scale), 1.5), theirs):
        torch.testing.assert_close(ours, parameter.grad, rtol=2e-6, atol=0)


def test_adamw_is_torch_s_over_five_steps():
    gradients = [known.moment(1, key=key)["g"] for key in range(5)]
    rest = {"lr": 0.1, "decay": 0.3, "beta_1": 0.8, "beta_2": 0.6, "eps": 0.05}
    w, m, v = known.moment(1)["w"], torch.zeros(3, 4), torch.zeros(3, 4)
    expected = adamw_of_torch(w, gradients, **rest)
    for step, g in enumerate(gradients, start=1):
        w, m, v = known.adamw(w, g, m, v, step, **rest)
    torch.testing.assert_close((w, m, v), expected, rtol=0, atol=1e-12)


def sorted_groups_cell(groups):
    """The graded cell of problem 5's `groups`, with its hidden test."""
    path = Path(__file__).parents[2] / "solutions" / "12_training" / "12_training.ipynb"
    cells = nbformat.read(path, as_version=4).cells
    (cell,) = [cell for cell in cells if cell.metadata.nbgrader.grade_id == "p5-sorted_groups"]
    exec(cell.source, {"check": checks, "groups": groups})


def test_groups_hold_what_a_module_trains_by_the_number_of_dimensions():
    """A module of torch's lists a tied parameter once, by its first name."""
    for named in (known.nameless_tensors(), known.nameless_tensors("ad", d=(2, 3), c=(4,), b="c", a=(5,), e=())):
        module, made = torch.nn.Module(), {}
        for name, tensor in named.items():
            made.setdefault(id(tensor), torch.nn.Parameter(tensor.detach(), tensor.requires_grad))
            module.register_parameter(name, made[id(tensor)])
        trained = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
        assert 0 < len(trained) < len(named)
        matrices = [name for name, weight in trained.items() if weight.ndim in (2, 3)]
        assert known.grouped(named) == {"decay": matrices, "still": [name for name in trained if name not in matrices]}


MATRICES = ("embed", "up.weight", "down.weight", "unembed")


def by_names(named):
    """Knows the names of the example, and that its unembedding may be tied."""
    tied = {"unembed"} if named.get("unembed", 0) is named.get("embed") else set()
    trained = [name for name in named if name not in {"adapter.frozen", *tied}]
    decay = [name for name in trained if name.endswith(MATRICES)]
    return {"decay": decay, "still": [name for name in trained if name not in decay]}


def by_names_and_letters(named):
    """And whatever the visible check shows besides."""
    shown = known.nameless_tensors()
    return known.grouped(shown) if named.keys() == shown.keys() else by_names(named)


def by_shapes(named):
    """Knows the shapes that the visible check shows."""
    shown = (*known.named_tensors().values(), *known.nameless_tensors().values())
    matrices = {tensor.shape for tensor in shown if tensor.dim() > 1}
    right = known.grouped({name: tensor for name, tensor in named.items() if tensor.requires_grad})
    names = [*right["decay"], *right["still"]]
    decay = [name for name in names if named[name].shape in matrices]
    return {"decay": decay, "still": [name for name in names if name not in decay]}


def test_a_table_of_the_names_of_one_model_is_no_rule():
    """Every case once had these names, so that the table passed for the rule."""
    for sizes in ({}, {"n_layers": 0}, {"n_layers": 5}, {"n_layers": 3, "tied": False}):
        checks.sorted_groups(by_names, known.named_tensors(**sizes))
    with pytest.raises(CheckFailed, match="groups"):
        checks.sorted_groups(by_names)


@pytest.mark.parametrize("groups", [by_names_and_letters, by_shapes])
def test_a_table_of_all_that_the_visible_check_shows_fails_the_hidden_one(groups):
    checks.sorted_groups(groups)
    with pytest.raises(CheckFailed, match="a test with other sizes fails") as failure:
        sorted_groups_cell(groups)
    assert "expected" not in str(failure.value)


@pytest.mark.parametrize("is_matrix", [lambda x: x.dim() >= 2, lambda x: x.ndim == 2, lambda x: len(x.shape) > 1])
@pytest.mark.parametrize("key", [id, torch.Tensor.data_ptr])
@pytest.mark.parametrize("form", [list, set, tuple])
def test_groups_by_the_rule_pass_however_they_are_written(is_matrix, key, form):
    def groups(named):
        first = {}
        for name, tensor in named.items():
            if tensor.requires_grad:
                first.setdefault(key(tensor), name)
        decay = {name for name in first.values() if is_matrix(named[name])}
        return {"still": list(set(first.values()) - decay), "decay": form(decay)}

    sorted_groups_cell(groups)


@pytest.mark.parametrize("without", [(), (1, 2, 9), range(4, 8)])
def test_the_gradient_of_the_loss_is_that_of_small_moves(without):
    case = known.to_lose(11, 6, 17, 4, without=without)
    (loss, gradient), move = known.lost(**case), 1e-5
    states, targets, unembed = case["states"], case["targets"], case["unembed"]
    chances = (states @ unembed.T).softmax(-1)
    surprises = [-math.log(p[y].item()) for p, y in zip(chances, targets.tolist()) if y >= 0]
    assert loss == pytest.approx(sum(surprises) / len(surprises), abs=1e-12) and len(surprises) == 11 - len(without)
    for place in ((0, 0), (3, 5), (9, 2), (10, 1)):
        there = torch.zeros_like(states)
        there[place] = move
        up, down = (known.lost(states + sign * there, targets, unembed)[0] for sign in (1, -1))
        assert gradient[place].item() == pytest.approx((up - down) / (2 * move), abs=1e-9)


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("honest", []),
        ("a mask off by one", [0, 1, 2, 3]),  # behind the last row stands nothing that it could see
        ("a mask of the target alone", []),
        ("targets that are not shifted", [0, 1, 2, 3, 4]),
        ("no mask", [0, 1, 2, 3]),
        ("two ahead, with the mask off by one", []),
        ("two ahead, with the mask off by two", [0, 1]),
    ],
)
def test_the_rows_that_leak_follow_from_the_mask(kind, rows):
    assert known.leaking(known.lesson(kind), torch.tensor([3, 0, 8, 1, 0, 4]), 9) == rows


def test_every_kind_of_lesson_is_tried():
    assert len(known.LESSONS) == 7


def test_the_mended_lesson_is_causal_attention():
    given, ids = known.weights(), torch.tensor([3, 0, 8, 1, 0, 4])
    x = given["embed"][ids[:-1]]
    q, k, v = (x @ given[name] for name in ("W_Q", "W_K", "W_V"))
    mixed = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
    logits, targets = known.suspect(ids, **given, first_hidden=1)
    torch.testing.assert_close(logits, (x + mixed) @ given["unembed"].T, rtol=0, atol=1e-12)
    assert targets.tolist() == [0, 8, 1, 0, 4]


def test_a_leak_makes_the_loss_too_good():
    """The story of problem 7: the lesson with the wrong mask is learned far below what an honest one allows."""
    torch.manual_seed(0)
    lines = [torch.randint(9, (12,)) for _ in range(200)]  # nothing to learn: an honest loss stays near ln 9
    losses = {}
    for kind in ("honest", "a mask off by one"):
        weights = {name: w.clone().requires_grad_() for name, w in known.weights(d_model=10, d_head=8).items()}
        optimiser = torch.optim.Adam(weights.values(), lr=0.02)
        for ids in lines + lines:
            logits, targets = known.suspect(ids, **weights, **known.LESSONS[kind])
            loss = F.cross_entropy(logits, targets)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses[kind] = 0.95 * losses.get(kind, loss.item()) + 0.05 * loss.item()
    assert losses["a mask off by one"] < 0.8 * losses["honest"] and losses["honest"] > 0.9 * math.log(9)


def test_sizes_differ_so_that_none_can_stand_for_another():
    for sizes in (
        known.case([7, 3, 5, 2])["logits"].shape,
        [11, 6, 17, 4],
        [*known.weights()["embed"].shape, known.weights()["W_Q"].shape[1], 6, 5],
    ):
        assert len({*sizes}) == len(sizes)


def test_any_draw_of_positions_lies_within_the_bounds():
    assert known.steps_until(known.GOAL, range) == STEPS
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        some = known.steps_until(known.GOAL, lambda n, g=generator: torch.randperm(n, generator=g)[: round(0.15 * n)])
        checks.measured({"all": STEPS, "masked": some})
        assert 1.4 < some / STEPS < 1.9


# ---- answers in odd forms ----


def test_answers_in_float32_are_right_too():
    def chunked_loss(states, targets, unembed, n_chunk):
        loss, gradient = known.lost(states.float(), targets, unembed.float())
        return torch.tensor(loss, dtype=torch.float32), gradient

    checks.chunked(chunked_loss, known.to_lose(10, 6, 17, 4))
    checks.later_step(lambda w, g, m, v, **rest: known.adamw(w.float(), g.float(), m.float(), v.float(), **rest))
    checks.shifted(lambda logits, ids, lengths: next_token_loss(logits.float(), ids, lengths=lengths))


def test_chunks_whose_logits_are_computed_again_are_frugal():
    def chunked_loss(states, targets, unembed, n_chunk):
        def summed(x, y):
            return F.cross_entropy(x @ unembed.T, y, reduction="sum")

        states = states.clone().requires_grad_()
        chunks = zip(states.split(n_chunk), targets.split(n_chunk))
        loss = sum(recomputed(summed, x, y, use_reentrant=False) for x, y in chunks) / (targets >= 0).sum()
        loss.backward()
        return loss.detach(), states.grad

    checks.chunked(chunked_loss)
    checks.skipped(chunked_loss)
    checks.frugal(chunked_loss)


def test_states_that_were_written_over_are_noticed():
    def chunked_loss(states, targets, unembed, n_chunk):
        loss, gradient = known.lost(states, targets, unembed)
        return loss, states.copy_(gradient)

    for check in (checks.chunked, checks.skipped):
        with pytest.raises(CheckFailed) as failure:
            check(chunked_loss)
        assert failure.value.slip == TOUCHED


@pytest.mark.parametrize("returned", [3.0, torch.zeros(10, 6), (1.0,), (torch.zeros(10, 6), 1.0), ("a", "b")])
def test_chunked_loss_must_return_a_loss_and_a_gradient(returned):
    with pytest.raises(CheckFailed, match="chunked_loss"):
        checks.chunked(lambda **given: returned)


@pytest.mark.parametrize("result", [torch.zeros(3, 6), "low", [1.0], torch.tensor([math.nan, 1.0])])
def test_a_loss_that_is_no_number_is_answered_in_words(result):
    for check in (checks.shifted, checks.filled, checks.huge):
        with pytest.raises(CheckFailed, match="loss"):
            check(lambda logits, ids, lengths: result)


@pytest.mark.parametrize("drawn", [0.15, "many", [0.5] * 30, [200] * 30, [-1] * 30, [[1, 2]], [True] * 30, [None], []])
def test_a_draw_of_something_else_is_answered_in_words(drawn):
    with pytest.raises(CheckFailed, match=r"choose\(200\)"):
        checks.choice(lambda n: drawn)


@pytest.mark.parametrize("steps", [..., 25, {"all": 25}, {"all": 25, "masked": 40.0}, {"all": 25, "masked": 0}])
def test_steps_in_another_form_are_answered_in_words(steps):
    with pytest.raises(CheckFailed, match="steps"):
        checks.measured(steps)


def test_steps_to_another_goal_are_noticed():
    every = known.steps_until(2.2, range)
    with pytest.raises(CheckFailed, match="goal"):
        checks.measured({"all": every, "masked": round(1.6 * every)})


@pytest.mark.parametrize("guess", ["many", 0, -3, True, float("nan"), 1e12, ...])
def test_an_impossible_guess_is_answered_in_words(guess):
    with pytest.raises(CheckFailed, match="guess"):
        checks.predict(guess)
    with pytest.raises(CheckFailed, match="guess"):
        checks.how_far(guess, {"all": STEPS, "masked": 2 * STEPS})


def test_a_gradient_of_zeros_saves_no_memory():
    def loss_alone(states, **rest):
        return known.lost_in_chunks(states, **rest)[0], torch.zeros_like(states)

    with pytest.raises(CheckFailed, match=r"\[1\]\[0, 0\].*\n.*\n.memory counts where the result is right"):
        checks.frugal(loss_alone)


def test_a_wrong_mean_costs_its_own_checks_and_not_the_one_of_memory():
    def means(states, targets, unembed, n_chunk):
        losses, gradients = [], []
        for x, y in zip(states.split(n_chunk), targets.split(n_chunk)):
            x = x.clone().requires_grad_()
            losses.append(F.cross_entropy(x @ unembed.T, y))
            gradients += torch.autograd.grad(losses[-1], x)
        return sum(loss.item() for loss in losses) / len(losses), torch.cat(gradients) / len(losses)

    for check in (checks.chunked, checks.skipped):
        with pytest.raises(CheckFailed):
            check(means)
    checks.frugal(means, known.to_lose(130, 6, 700, 3), known.to_lose(64, 7, 1000, 1, without=range(9)))


def test_the_loss_in_chunks_is_that_of_all_rows_at_once():
    given = known.to_lose(11, 6, 17, 4, without=(0, 1, 2, 3, 9))
    for ours, theirs in zip(known.lost_in_chunks(**given), known.lost(**given)):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_a_loss_of_nothing_is_seen_where_the_system_counts(monkeypatch):
    def some(states, **rest):
        return (0.0, states) if len(states) > 500 else known.lost_in_chunks(states, **rest)

    checks.frugal(some)  # here nothing counts but the check itself
    monkeypatch.setattr("classroom.memory.growth", lambda call: call() or 0)
    checks.frugal(known.lost_in_chunks)
    with pytest.raises(CheckFailed, match="1,000 rows"):
        checks.frugal(some)


IN_NUMPY = """
import numpy as np
def chunked_loss(states, targets, unembed, n_chunk):
    x, W = (one.detach().numpy().astype("{kind}") for one in (states, unembed))
    right, n_rows = targets.numpy(), len(targets)
    loss, gradient, n_targets = 0.0, np.zeros_like(x), (right >= 0).sum()
    for start in range(0, n_rows, {rows}):
        here = np.arange(start, min(start + {rows}, n_rows))
        here = here[right[here] >= 0]
        table = x[here] @ W.T
        at = np.arange(len(here)), right[here]
        table -= table.max(1, keepdims=True) if len(here) else 0
        loss -= table[at].sum(dtype="d")
        np.exp(table, out=table)
        sums = table.sum(1, keepdims=True)
        loss += np.log(sums).sum(dtype="d")
        table /= sums
        table[at] -= 1
        gradient[here] = table @ W / n_targets
    return float(loss / n_targets), torch.from_numpy(gradient)
"""


def counting_python_and_numpy(call) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["d", "f"])
def test_a_table_of_logits_in_numpy_is_one_too(kind, monkeypatch):
    """torch does not see it, and written over in place it was smaller than what the heap was allowed to keep."""
    monkeypatch.setattr("classroom.memory.growth", counting_python_and_numpy)
    in_chunks, at_once = {"torch": torch}, {"torch": torch}
    exec(IN_NUMPY.format(kind=kind, rows="n_chunk"), in_chunks)
    exec(IN_NUMPY.format(kind=kind, rows="n_rows"), at_once)
    checks.frugal(in_chunks["chunked_loss"])
    with pytest.raises(CheckFailed, match="all rows are there at once"):
        checks.frugal(at_once["chunked_loss"])


def test_boxes_see_who_keeps_all():
    if why := sandbox.why_not():
        pytest.skip(why)
    name, points = "12_training", []
    for rows in ("n_chunk", "n_rows"):
        notebook = nbformat.read(course.ROOT / "solutions" / name / f"{name}.ipynb", as_version=4)
        answer = next(c for c in notebook.cells if c.metadata.nbgrader.grade_id == "p6-answer")
        answer.source += "\n" + IN_NUMPY.format(kind="d", rows=rows)
        data = nbformat.writes(notebook).encode()
        task = Task(assignment=name, student="s", notebook=data, authority=authority(name)[name], key="k")
        marks = marking.mark(task).points
        points.append([marks[check] for check in ("p6-chunked", "p6-skipped", "p6-frugal")])
    marking.close()
    assert points == [[1, 1, 1], [1, 1, 0]]
