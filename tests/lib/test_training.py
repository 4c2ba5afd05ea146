"""Losses and schedules against torch's and Hugging Face's own; runs that are broken off go on bit for bit."""

import copy
import math
import os
import re

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
import tqdm
import transformers
from hypothesis import given
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from plainformer import training
from plainformer.config import Config
from plainformer.model import Transformer
from plainformer.training import (
    Bar,
    CheckpointError,
    adamw_groups,
    chunked_loss,
    next_token_loss,
    train,
    warmup_cosine,
    warmup_inverse_sqrt,
)

SIZES = {"n_vocab": 13, "d_model": 12, "n_heads": 6, "n_kv_heads": 2, "n_context": 9, "d_ff": 10, "n_layers": 2}


def tiny(seed: int = 0, **choices) -> Transformer:
    torch.manual_seed(seed)
    model = Transformer(Config(**SIZES | choices))
    for parameter in model.parameters():  # norms and biases too, so that no weight is special
        nn.init.normal_(parameter, std=0.3)
    return model


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.state_dict().items()}


def same(a: dict, b: dict) -> bool:
    """Bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# --- the loss ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 7), min_size=2, max_size=4).filter(lambda lengths: max(lengths) > 1))
def test_the_loss_is_the_mean_surprise_at_each_next_real_token(lengths):
    ids = torch.randint(11, (len(lengths), 7))
    logits = torch.randn(len(lengths), 6, 11, dtype=torch.float64)
    surprises = [
        math.log(sum(math.exp(score) for score in logits[b, t].tolist())) - logits[b, t, ids[b, t + 1]].item()
        for b, length in enumerate(lengths)
        for t in range(length - 1)
    ]
    assert next_token_loss(logits, ids, lengths=lengths).item() == pytest.approx(
        sum(surprises) / len(surprises), rel=1e-12
    )


def test_without_lengths_every_token_is_real_and_a_uniform_guess_costs_ln_v():
    ids = torch.randint(11, (3, 7))
    logits = torch.randn(3, 6, 11)
    assert torch.equal(next_token_loss(logits, ids), next_token_loss(logits, ids, lengths=[7, 7, 7]))
    assert next_token_loss(torch.zeros(3, 6, 11), ids).item() == pytest.approx(math.log(11), rel=1e-6)


def test_one_pass_gives_the_losses_of_all_its_prefixes():
    model, ids = tiny().double(), torch.randint(13, (1, 8))
    one_by_one = [F.cross_entropy(model(ids[:, :t], last_only=True)[:, 0], ids[:, t]).item() for t in range(1, 8)]
    assert next_token_loss(model(ids[:, :-1]), ids).item() == pytest.approx(sum(one_by_one) / 7, rel=1e-12)


def test_filler_changes_neither_loss_nor_gradient():
    def whole(model, ids, lengths):
        return next_token_loss(model(ids[:, :-1]), ids, lengths=lengths)

    def chunked(model, ids, lengths):
        return chunked_loss(model, ids, lengths=lengths)

    for loss in (whole, chunked):
        model = tiny().double()
        ids, results = torch.randint(13, (3, 8)), []
        for filler in (0, 12):
            ids[0, 5:] = ids[1, 1:] = filler
            model.zero_grad()
            value = loss(model, ids, [5, 1, 8])
            value.backward()
            results.append((value, [p.grad.clone() for p in model.parameters()]))
        assert torch.equal(results[0][0], results[1][0])
        torch.testing.assert_close(results[0][1], results[1][1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("choices", [{}, {"tied": True}, {"causal": False}, {"window": 3}], ids=str)
@pytest.mark.parametrize("n_chunk", [1, 5, 1_000])
def test_the_chunked_loss_and_its_gradient_are_the_whole_one_s(choices, n_chunk):
    """In float64, where a sum of n terms errs by at most n · 2⁻⁵³ of their size: n is below 64 everywhere here."""
    model, ids, lengths = tiny(**choices).double(), torch.randint(13, (3, 8)), [8, 3, 6]
    kept = [min(n, 7) for n in lengths]
    whole = next_token_loss(model(ids[:, :-1], lengths=kept), ids, lengths=lengths)
    gradients = torch.autograd.grad(whole, [*model.parameters()])
    chunked = chunked_loss(model, ids, lengths=lengths, n_chunk=n_chunk)
    assert chunked.item() == pytest.approx(whole.item(), rel=64 * 2**-52)
    for theirs, ours in zip(gradients, torch.autograd.grad(chunked, [*model.parameters()])):
        torch.testing.assert_close(ours, theirs, rtol=64 * 2**-52, atol=64 * 2**-52 * float(theirs.abs().max()))


@pytest.mark.parametrize(
    "loss", [lambda m, i: next_token_loss(m(i[:, :-1]), i), chunked_loss], ids=["whole", "chunked"]
)
def test_the_loss_of_a_bfloat16_model_is_taken_in_float32(loss):
    model, ids = tiny().bfloat16(), torch.randint(13, (3, 8))
    value = loss(model, ids)
    assert value.dtype == torch.float32
    exact = F.cross_entropy(model(ids[:, :-1]).double().flatten(0, 1), ids[:, 1:].flatten())
    assert value.item() == pytest.approx(exact.item(), rel=1e-6)


class Largest(TorchDispatchMode):
    """Shapes of everything that operations make, forward and backward."""

    def __init__(self):
        super().__init__()
        self.shapes = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for x in result if isinstance(result, tuple | list) else [result]:
            if isinstance(x, torch.Tensor):
                self.shapes.add((x.numel(), tuple(x.shape)))
        return result


def test_the_chunked_loss_never_holds_all_logits():
    """The largest tensor, forward or backward, is a chunk's logits, not those of all positions."""
    config = Config(**SIZES | {"n_vocab": 2_000, "d_model": 6, "n_heads": 3, "n_kv_heads": 1, "n_context": 10})
    model, ids = Transformer(config), torch.randint(2_000, (20, 11))
    seen = {}
    for name, loss in {
        "whole": lambda: next_token_loss(model(ids[:, :-1]), ids),
        "chunked": lambda: chunked_loss(model, ids, n_chunk=8),
    }.items():
        with Largest() as largest:
            loss().backward()
        seen[name] = max(largest.shapes)[0]
    assert seen["whole"] == 20 * 10 * 2_000
    assert seen["chunked"] == 8 * 2_000  # more than the table's 6 × 2,000, so nothing larger hides behind it


def test_the_chunked_loss_keeps_states_for_backward_and_no_logits():
    model, ids, kept = tiny(), torch.randint(13, (3, 9)), []
    states = model.states(ids[:, :-1])
    model.states = lambda *_, **__: states  # what the stack itself keeps is not in question
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(tuple(x.shape)) or x, lambda x: x):
        chunked_loss(model, ids, n_chunk=4)
    assert not [shape for shape in kept if shape and shape[-1] == 13 and len(shape) > 1]


# --- schedules --------------------------------------------------------------------------------------------------------


def rates_of(optimiser, scheduler, n_steps: int) -> list[float]:
    rates = []
    for _ in range(n_steps):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize(("n_warmup", "n_steps"), [(4, 17), (2, 9), (5, 6)])
def test_the_cosine_is_torch_s_linear_and_cosine_schedulers(n_warmup, n_steps):
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3)
    stages = [torch.optim.lr_scheduler.LinearLR(optimiser, 1 / n_warmup, total_iters=n_warmup - 1)]
    stages.append(torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, n_steps - n_warmup, eta_min=0.02))
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimiser, stages, [n_warmup - 1])
    theirs = rates_of(optimiser, scheduler, n_steps)
    how = {"peak": 0.3, "n_warmup": n_warmup, "n_steps": n_steps, "floor": 0.02}
    assert [warmup_cosine(step, **how) for step in range(1, n_steps + 1)] == pytest.approx(theirs, rel=1e-9)


def test_without_warm_up_the_cosine_is_torch_s_from_its_second_rate_on():
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3)
    theirs = rates_of(optimiser, torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 9, eta_min=0.02), 10)
    ours = [warmup_cosine(step, peak=0.3, n_warmup=0, n_steps=9, floor=0.02) for step in range(1, 10)]
    assert ours == pytest.approx(theirs[1:], rel=1e-9)


def test_the_cosine_at_the_points_that_can_be_said():
    rate = {s: warmup_cosine(s, peak=6.0, n_warmup=10, n_steps=30, floor=2.0) for s in (1, 5, 10, 20, 30, 99)}
    assert rate == pytest.approx({1: 0.6, 5: 3.0, 10: 6.0, 20: 4.0, 30: 2.0, 99: 2.0}, rel=1e-12)


@given(st.integers(1, 40), st.integers(1, 60))
def test_the_cosine_rises_then_falls_and_peaks_at_the_end_of_the_warm_up(n_warmup, n_more):
    rates = [
        warmup_cosine(s, peak=1.0, n_warmup=n_warmup, n_steps=n_warmup + n_more)
        for s in range(1, n_warmup + n_more + 1)
    ]
    assert rates[:n_warmup] == sorted(rates[:n_warmup])
    assert rates[n_warmup - 1 :] == sorted(rates[n_warmup - 1 :], reverse=True)
    assert max(rates) == rates[n_warmup - 1] == 1.0
    assert rates[-1] == pytest.approx(0.0, abs=1e-15)


def test_the_schedule_of_2017_is_hugging_face_s_inverse_root_and_peaks_at_step_4000():
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=512**-0.5 * 50**-0.5)
    theirs = rates_of(optimiser, transformers.get_inverse_sqrt_schedule(optimiser, num_warmup_steps=50), 300)
    ours = [warmup_inverse_sqrt(step, d_model=512, n_warmup=50) for step in range(300) if step]
    assert ours == pytest.approx(theirs[1:], rel=1e-9)
    rates = {step: warmup_inverse_sqrt(step, d_model=512) for step in range(1, 20_001)}
    assert max(rates, key=rates.get) == 4_000
    assert rates[4_000] == pytest.approx(1 / math.sqrt(512 * 4_000), rel=1e-12)
    assert rates[16_000] == pytest.approx(rates[4_000] / 2, rel=1e-12)
    assert rates[1_000] == pytest.approx(rates[4_000] / 4, rel=1e-12)


# --- groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"tied": True},
        {"bias": True, "norm": "layer", "positions": "learned"},
        {"n_experts": 3, "n_active_experts": 2},
    ],
    ids=str,
)
def test_every_parameter_is_in_one_group_once_and_matrices_alone_decay(choices):
    model = tiny(**choices)
    decaying, still = adamw_groups(model, 0.3)
    assert (decaying["weight_decay"], still["weight_decay"]) == (0.3, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    listed = [names[id(parameter)] for group in (decaying, still) for parameter in group["params"]]
    assert sorted(listed) == sorted(names.values())
    of_vectors = re.compile(r"(norm\.weight|bias)$")
    assert {names[id(p)] for p in still["params"]} == {name for name in names.values() if of_vectors.search(name)}
    assert not any(of_vectors.search(names[id(p)]) for p in decaying["params"])


def test_a_tied_table_decays_once_and_a_frozen_one_not_at_all():
    model = nn.ModuleDict({"embed": nn.Embedding(5, 3), "unembed": nn.Linear(3, 5, bias=False), "norm": nn.RMSNorm(3)})
    model["unembed"].weight = model["embed"].weight
    decaying = adamw_groups(model, 0.1)[0]
    assert [id(p) for p in decaying["params"]] == [id(model["embed"].weight)]
    model["norm"].weight.requires_grad_(False)
    assert adamw_groups(model, 0.1)[1]["params"] == []


# --- the loop ---------------------------------------------------------------------------------------------------------


def batch_of(step: int) -> torch.Tensor:
    """Some ids from the step's own seed."""
    return torch.randint(13, (2, 7), generator=torch.Generator().manual_seed(step))


def test_the_loop_is_the_usual_lines_of_torch():
    model = tiny()
    theirs = copy.deepcopy(model)
    optimiser = torch.optim.AdamW(
        [
            {"params": [p for p in theirs.parameters() if p.dim() == 2]},
            {"params": [p for p in theirs.parameters() if p.dim() == 1], "weight_decay": 0},
        ],
        lr=1,
        betas=(0.9, 0.95),
        weight_decay=0.2,
    )
    losses = []
    for step in range(1, 6):
        for group in optimiser.param_groups:
            group["lr"] = 0.01 / step
        ids = batch_of(step)
        loss = F.cross_entropy(theirs(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in theirs.parameters()]).norm()
        assert norm > 0.1, "the cut must be felt"
        for p in theirs.parameters():
            p.grad *= 0.1 / norm
        optimiser.step()
        losses.append(loss.item())
    ours = train(model, batch_of, 5, learning_rate=lambda step: 0.01 / step, weight_decay=0.2, clip=0.1, progress=False)
    assert ours == pytest.approx(losses, rel=1e-5)
    for name, weight in weights(theirs).items():
        torch.testing.assert_close(model.state_dict()[name], weight, rtol=1e-4, atol=1e-6)


def random_batch(generator: torch.Generator):
    """Ids from two generators: torch's own, and one that the loop is told of."""
    return lambda step: torch.randint(7, (2, 7)) + torch.randint(7, (2, 7), generator=generator)


class Break:
    """Raises KeyboardInterrupt at one step, in one place."""

    def __init__(self, step: int, place: str, monkeypatch):
        self.step, self.place, self.seen = step, place, 0
        if place == "update":
            whole = torch.optim.AdamW.step

            def half(optimiser):
                whole(optimiser)  # the weights have moved, the step is not counted
                self.at(place)

            monkeypatch.setattr(torch.optim.AdamW, "step", half)
        if place == "write":
            replace = os.replace
            monkeypatch.setattr(training.os, "replace", lambda *names: (self.at(place), replace(*names)))

    def at(self, place: str) -> None:
        if place == self.place:
            self.seen += 1
            if self.seen == self.step:
                raise KeyboardInterrupt


BREAKS = [(place, step) for place in ("data", "loss", "update", "on_step") for step in (1, 2, 3, 6, 7)]
BREAKS += [("write", 1), ("write", 2), ("write", 3)]  # the first, second, third time


@pytest.mark.parametrize(("place", "step"), BREAKS)
def test_a_run_that_is_broken_off_anywhere_goes_on_bit_for_bit(place, step, tmp_path, monkeypatch):
    def run(model, breaker=None, file=None):
        generator = torch.Generator().manual_seed(5)
        at = breaker.at if breaker else lambda place: None
        data = random_batch(generator)

        def batch(step):
            ids = data(step)
            at("data")
            return ids

        def loss(model, ids):
            at("loss")
            return next_token_loss(model(ids[:, :-1]), ids)

        return train(
            model,
            batch,
            7,
            learning_rate=lambda step: 0.02 / step,
            loss=loss,
            checkpoint=file,
            every=3,
            generators=[generator],
            progress=False,
            on_step=lambda step, loss: at("on_step"),
        )

    whole = tiny()
    torch.manual_seed(1)
    losses = run(whole)
    model, file = tiny(), tmp_path / "run.pt"
    torch.manual_seed(1)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        run(model, Break(step, place, patch), file)
    if file.exists():
        kept = {"data": step - 1, "loss": step - 1, "on_step": step, "write": 3 * (step - 1)}
        kept["update"] = 3 * ((step - 1) // 3)  # the weights were between two steps: the last file stays
        assert len(torch.load(file, weights_only=True)["losses"]) == kept[place]
        resumed = tiny(seed=3)  # another model's weights and another state of torch's generator
    else:  # not even the first was written: the run starts anew
        assert (place, step) == ("write", 1)
        resumed = tiny()
        torch.manual_seed(1)
    assert run(resumed, file=file) == losses
    assert same(weights(resumed), weights(whole))
    assert not list(tmp_path.glob("*.part"))


def test_a_finished_run_is_left_alone_and_a_longer_one_goes_on(tmp_path):
    file, model, whole = tmp_path / "run.pt", tiny(), tiny()
    losses = train(whole, batch_of, 5, progress=False)
    assert train(model, batch_of, 3, checkpoint=file, progress=False) == losses[:3]
    before = weights(model)
    assert train(model, lambda step: pytest.fail("no step is left"), 3, checkpoint=file, progress=False) == losses[:3]
    assert same(weights(model), before)
    assert train(model, batch_of, 5, checkpoint=file, progress=False) == losses
    assert same(weights(model), weights(whole))
    with pytest.raises(ValueError, match="n_steps=4 not below the 5"):
        train(model, batch_of, 4, checkpoint=file, progress=False)


def test_a_checkpoint_is_written_at_the_start_every_few_steps_and_at_the_end(tmp_path, monkeypatch):
    file, written = tmp_path / "run.pt", []
    replace = os.replace

    def seen(part, whole):
        written.append(len(torch.load(part, weights_only=True)["losses"]))  # whole before it gets its name
        replace(part, whole)

    monkeypatch.setattr(training.os, "replace", seen)
    train(tiny(), batch_of, 7, checkpoint=str(file), every=3, progress=False)
    assert written == [0, 3, 6, 7]
    with pytest.raises(FileNotFoundError):
        train(tiny(), lambda step: pytest.fail("too late"), 7, checkpoint=tmp_path / "no" / "run.pt", progress=False)


def untouched(model, generator, call, error, words):
    """The call fails, and neither weights nor generators have moved."""
    before, states = weights(model), [torch.get_rng_state(), generator.get_state()]
    with pytest.raises(error, match=words):
        call()
    assert same(weights(model), before)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert torch.equal(generator.get_state(), states[1])


@pytest.fixture
def kept(tmp_path):
    """A checkpoint of `tiny()` after four steps."""
    file = tmp_path / "run.pt"
    train(tiny(), batch_of, 4, checkpoint=file, generators=[torch.Generator().manual_seed(8)], progress=False)
    return file


def resume(model, file, generator):
    return lambda: train(model, batch_of, 6, checkpoint=file, generators=[generator], progress=False)


def test_a_disk_that_fills_up_leaves_the_last_checkpoint(kept, monkeypatch):
    before = kept.read_bytes()

    def half(state, out):
        out.write(before[: len(before) // 2])
        raise OSError("no space left")

    monkeypatch.setattr(training.torch, "save", half)
    with pytest.raises(OSError, match="no space left"):
        resume(tiny(), kept, torch.Generator())()
    assert kept.read_bytes() == before


@pytest.mark.parametrize("share", [0, 0.001, 0.3, 0.7, 0.99])
def test_a_torn_checkpoint_is_refused_whole(kept, share):
    content = kept.read_bytes()
    kept.write_bytes(content[: int(share * len(content))])
    model, generator = tiny(seed=4), torch.Generator()
    untouched(model, generator, resume(model, kept, generator), CheckpointError, r"run\.pt is no whole checkpoint")


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"d_ff": 11}, r"another model's; differing: config\.d_ff, model\.blocks\.0"),
        ({"n_layers": 3}, r"differing: config\.n_layers, model\.blocks\.2"),
        ({"tied": True}, r"differing: config\.tied, model\.unembed"),
        ({"rope_base": 500.0}, r"differing: config\.rope_base\."),  # same shapes, another model
    ],
    ids=str,
)
def test_another_model_s_checkpoint_is_refused_with_what_differs(kept, choices, words):
    model, generator = tiny(seed=4, **choices), torch.Generator()
    untouched(model, generator, resume(model, kept, generator), CheckpointError, words)


def test_another_type_or_number_of_generators_is_refused(kept):
    model, generator = tiny(seed=4).double(), torch.Generator()
    untouched(model, generator, resume(model, kept, generator), CheckpointError, r"differing: model\.blocks\.0")
    model = tiny(seed=4)
    call = lambda: train(model, batch_of, 6, checkpoint=kept, progress=False)  # noqa: E731
    untouched(model, generator, call, CheckpointError, r"differing: random\.1")


class Evil:
    def __reduce__(self):
        return (os.mkdir, ("pwned",))


@pytest.mark.parametrize(
    "content",
    [{"model": {}}, [1, 2], 5, {"losses": [1.0], "model": 3, "config": {}, "random": {}, "optimiser": {}}, Evil()],
    ids=["parts missing", "list", "number", "wrong parts", "code"],
)
def test_a_foreign_file_is_refused_and_runs_no_code(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(content, "run.pt")
    model, generator = tiny(), torch.Generator()
    untouched(model, generator, resume(model, "run.pt", generator), CheckpointError, "run.pt is no whole checkpoint")
    assert not os.path.exists("pwned")


def test_a_loss_or_gradient_that_is_no_number_never_reaches_the_weights():
    model = tiny()
    before = weights(model)
    for factor in (math.nan, math.inf):
        with pytest.raises(FloatingPointError, match="loss of step 1 is"):
            train(model, batch_of, 3, loss=lambda m, ids, f=factor: f * m(ids).sum(), progress=False)
    with pytest.raises(RuntimeError, match="non-finite"):  # √0 has a finite value and an infinite slope
        train(model, batch_of, 3, loss=lambda m, ids: (0 * m(ids).sum()).sqrt(), progress=False)
    assert same(weights(model), before)


# --- progress ---------------------------------------------------------------------------------------------------------


def test_the_built_in_bar_shows_step_loss_and_speed(capsys):
    losses = train(tiny(), batch_of, 4)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    last = err.rstrip("\n").rpartition("\r")[2]
    assert re.fullmatch(rf"\[#{{20}}\] step 4/4  loss {losses[-1]:.4f}  tokens per second [\d,]+  ", last)


def test_without_progress_nothing_is_written(capsys):
    train(tiny(), batch_of, 2, progress=False)
    assert capsys.readouterr() == ("", "")


def test_the_bar_fills_with_the_steps(capsys):
    bar = Bar(range(6, 11))
    for _ in bar:
        bar.drawn = -math.inf  # however fast the steps are
        bar.set_postfix(loss="1")
    lines = capsys.readouterr().err.rstrip("\n").split("\r")[1:]
    assert [(line.count("#"), line.split()[-3]) for line in lines] == [(2 * s, f"{s}/10") for s in range(6, 11)]


def test_any_wrapper_of_an_iterable_serves_tqdm_too(capsys):
    seen = []
    train(tiny(), batch_of, 3, progress=lambda steps: (seen.append(step) or step for step in steps))
    assert seen == [1, 2, 3]
    assert capsys.readouterr() == ("", "")
    train(tiny(), batch_of, 3, progress=tqdm.tqdm)
    assert re.search(r"3/3.*loss=\d+\.\d{4}", capsys.readouterr().err)


# --- what training shows ----------------------------------------------------------------------------------------------


LEARNER = SIZES | {"n_vocab": 5, "d_model": 24, "d_ff": 32, "positions": "learned", "n_layers": 1}


def random_ids(step: int, n_vocab: int = 5, n: int = 9, batch: int = 32) -> torch.Tensor:
    return torch.randint(n_vocab, (batch, n), generator=torch.Generator().manual_seed(step))


def test_the_loss_falls_on_a_task_of_copying():
    """Each row says five random tokens twice: the second time can be known, the first cannot."""
    torch.manual_seed(0)
    model = Transformer(Config(**LEARNER))

    def copying(step):
        half = random_ids(step, n=5)
        return torch.cat([half, half], 1)

    def loss(model, ids):  # of the second half alone
        return F.cross_entropy(model(ids[:, :-1])[:, 4:].flatten(0, 1), ids[:, 5:].flatten())

    schedule = lambda step: warmup_cosine(step, peak=1e-2, n_warmup=20, n_steps=250)  # noqa: E731
    losses = train(model, copying, 250, learning_rate=schedule, loss=loss, progress=False)
    assert losses[0] > 0.9 * math.log(5)
    assert max(losses[-5:]) < 0.05 * math.log(5)


def test_random_tokens_cost_ln_v_unless_the_mask_is_missing():
    """Fresh random tokens cannot be foretold. A loss below ln V means that the model reads the answer."""
    final = {}
    for causal in (True, False):
        torch.manual_seed(0)
        model = Transformer(Config(**LEARNER, causal=causal))
        losses = train(model, random_ids, 150, learning_rate=1e-2, progress=False)
        final[causal] = sum(losses[-30:]) / 30
    # 30 batches of 256 targets: an estimate of ln V errs by far less than 2 % unless something is known
    assert final[True] > 0.98 * math.log(5)
    assert final[False] < 0.6 * math.log(5)


# --- what is refused --------------------------------------------------------------------------------------------------


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.long)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: next_token_loss(torch.zeros(2, 7, 5), zeros(2, 7)), r"T \+ 1 ids.*ids\[:, :-1\]"),
        (lambda: next_token_loss(torch.zeros(1, 6, 5), zeros(2, 7)), r"T \+ 1 ids"),
        (lambda: next_token_loss(torch.zeros(2, 1, 5), zeros(2, 2), lengths=[1, 1]), "no next token"),
        (lambda: next_token_loss(torch.zeros(2, 1, 5), zeros(2, 2), lengths=[1]), "lengths must be 2"),
        (lambda: next_token_loss(torch.zeros(2, 0, 5), zeros(2, 1)), "no next token"),
        (lambda: chunked_loss(tiny(), zeros(2, 1)), "no next token"),
        (lambda: chunked_loss(tiny(), zeros(2, 4), n_chunk=0), "n_chunk=0"),
        (lambda: warmup_cosine(0, peak=1, n_warmup=2, n_steps=5), "step=0"),
        (lambda: warmup_cosine(1, peak=1, n_warmup=5, n_steps=5), "n_warmup=5"),
        (lambda: warmup_cosine(1, peak=1, n_warmup=-1, n_steps=5), "n_warmup=-1"),
        (lambda: warmup_cosine(1, peak=1, n_warmup=1, n_steps=5, floor=2), "floor=2"),
        (lambda: warmup_inverse_sqrt(0, d_model=4), "counted from 1.*step=0"),
        (lambda: warmup_inverse_sqrt(1, d_model=0), "d_model=0"),
        (lambda: warmup_inverse_sqrt(1, d_model=4, n_warmup=0), "n_warmup=0"),
        (lambda: train(tiny(), batch_of, 4, every=0, progress=False), "every=0"),
        (lambda: train(tiny(), batch_of, -1, progress=False), "n_steps=-1"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
