"""Training: the loss of the next token, schedules of the learning rate, and a loop that survives interruption.

Steps are counted from 1: step s is the s-th update of the weights, for the data as for the learning rate.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as recomputed

from plainformer.checkpoints import CheckpointError
from plainformer.inputs import real_lengths
from plainformer.shapes import Bool, Float, Int


def next_token_loss(
    logits: Float["batch position n_vocab"], ids: Int["batch token"], *, lengths: Sequence[int] | None = None
) -> Float[""]:
    """Mean of −ln p(next token) in nats: T positions need T + 1 tokens, and position t predicts token t + 1.

    ``logits`` are the model's for ``ids[:, :-1]``. ``lengths``: real tokens of each row of ids, where rows are
    filled up at their end; filler is no target. A model that knows nothing scores ln n_vocab.
    """
    real = _targets(ids, lengths)
    if logits.shape[:2] != real.shape:
        raise ValueError(
            f"logits of T positions need T + 1 ids, got {tuple(logits.shape)} and {tuple(ids.shape)}. "
            "Usual cause: the model was given all ids; give it ids[:, :-1]."
        )
    return F.cross_entropy(_wide(logits).flatten(0, 1), ids[:, 1:].masked_fill(~real, -100).flatten())  # -100: none


def chunked_loss(
    model: nn.Module, ids: Int["batch token"], *, lengths: Sequence[int] | None = None, n_chunk: int = 1_024
) -> Float[""]:
    """`next_token_loss` of a `Transformer`, with the logits of ``n_chunk`` positions in memory at a time.

    Backward computes each chunk's logits again. At n_vocab = 128,000 all logits of 8 × 2,048 positions are 8.4 GB.
    """
    real = _targets(ids, lengths)
    if n_chunk < 1:
        raise ValueError(f"n_chunk={n_chunk} must be at least 1.")
    kept = None if lengths is None else [min(n, real.shape[1]) for n in lengths]
    states, targets = model.states(ids[:, :-1], lengths=kept)[real], ids[:, 1:][real]

    def chunk_loss(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(_wide(model.logits(x)), y, reduction="sum")

    chunks = zip(states.split(n_chunk), targets.split(n_chunk))
    total = sum(recomputed(chunk_loss, *chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks)
    return total / len(targets)


def _wide(logits: Tensor) -> Tensor:
    """In float32 at least: the eight bits of bfloat16 would round the loss to 1 %."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _targets(ids: Tensor, lengths: Sequence[int] | None) -> Bool["batch position"]:
    """Which of ``ids[:, 1:]`` are real tokens."""
    n_real = torch.tensor(real_lengths(ids, lengths), device=ids.device)
    real = torch.arange(1, ids.shape[1], device=ids.device) < n_real[:, None]
    if not bool(real.any()):
        raise ValueError(f"ids of shape {tuple(ids.shape)} have no next token: a row needs two real ones.")
    return real


def warmup_cosine(step: int, *, peak: float, n_warmup: int, n_steps: int, floor: float = 0.0) -> float:
    """Learning rate of a step: up in a straight line to ``peak`` at ``n_warmup``, then half a cosine to ``floor``.

    It reaches ``floor`` at ``n_steps`` and stays there. Loshchilov and Hutter 2016, without restarts.
    """
    if step < 1 or not 0 <= n_warmup < n_steps or not 0 <= floor <= peak:
        raise ValueError(f"no such schedule: {step=} from 1, {n_warmup=} < {n_steps=}, 0 ≤ {floor=} ≤ {peak=}.")
    if step <= n_warmup:
        return peak * step / n_warmup
    done = min(1.0, (step - n_warmup) / (n_steps - n_warmup))
    return floor + (peak - floor) * (1 + math.cos(math.pi * done)) / 2


def warmup_inverse_sqrt(step: int, *, d_model: int, n_warmup: int = 4_000) -> float:
    """d^−0.5 · min(s^−0.5, s · w^−1.5): up to step w, then down as 1/√s. Vaswani et al. 2017, section 5.3."""
    if step < 1 or d_model < 1 or n_warmup < 1:
        raise ValueError(f"steps are counted from 1, got {step=}, {d_model=}, {n_warmup=}.")
    return d_model**-0.5 * min(step**-0.5, step * n_warmup**-1.5)


def adamw_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Parameters for ``torch.optim.AdamW``: matrices and tables decay, vectors (norms, biases) do not.

    Each parameter stands in one group, once, a tied one too; frozen ones in none. Loshchilov and Hutter 2019.
    """
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in learned if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in learned if p.dim() <= 1], "weight_decay": 0.0},
    ]


def train(
    model: nn.Module,
    batch_of: Callable[[int], Tensor],
    n_steps: int,
    *,
    learning_rate: float | Callable[[int], float] = 1e-3,
    weight_decay: float = 0.1,
    clip: float = 1.0,
    loss: Callable[[nn.Module, Tensor], Tensor] = lambda model, ids: next_token_loss(model(ids[:, :-1]), ids),
    checkpoint: str | os.PathLike | None = None,
    every: int = 100,
    generators: Sequence[torch.Generator] = (),
    progress: bool | Callable[[Iterable[int]], Iterable[int]] = True,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> list[float]:
    """Trains up to step ``n_steps`` with AdamW; returns the loss of every step, in nats.

    ``batch_of(step)`` gives a step's ids, (batch, T + 1), so the order of the data is a function of the step;
    ``learning_rate`` may be one too. Gradients longer than ``clip`` are cut to it (infinity: none). ``loss`` is
    `next_token_loss` unless given. ``on_step(step, loss)`` comes last in a step. ``progress``: True for a line on
    stderr, False for none, or any wrapper of an iterable, such as tqdm.

    ``checkpoint``: a file, written whole or not at all: at the start, every ``every`` steps, at the end, on Ctrl-C.
    If it is there, training goes on from it, with the same arguments, to weights that equal those of a run without
    a break bit for bit; states of torch's generator and of ``generators`` are among it (a GPU's is
    ``torch.cuda.default_generators[0]``). Raises `CheckpointError`; ``FloatingPointError`` for a loss of NaN or ∞.
    """
    optimiser = torch.optim.AdamW(adamw_groups(model, weight_decay), betas=(0.9, 0.95))  # GPT-3, appendix B
    run = _Run(model, optimiser, generators, checkpoint)
    steps = range(len(run.losses) + 1, n_steps + 1)
    if every < 1 or n_steps < len(run.losses):
        raise ValueError(f"{every=} must be at least 1 and {n_steps=} not below the {len(run.losses)} steps done.")
    model.train()
    steps = (Bar if progress is True else progress)(steps) if progress else steps
    n_tokens, start = 0, time.monotonic()
    try:
        for step in steps:
            ids = batch_of(step)
            optimiser.zero_grad()
            value = loss(model, ids)
            if not bool(value.isfinite()):
                raise FloatingPointError(f"the loss of step {step} is {value.item()}. Usual cause: a learning rate.")
            value.backward()
            nn.utils.clip_grad_norm_(model.parameters(), clip, error_if_nonfinite=True)
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(step) if callable(learning_rate) else learning_rate
            run.whole = False  # from here until the step is counted, the weights are between two steps
            optimiser.step()
            run.mark(value.item())
            n_tokens += ids[:, 1:].numel()
            if hasattr(steps, "set_postfix"):
                speed = n_tokens / (time.monotonic() - start + 1e-9)
                steps.set_postfix(loss=f"{run.losses[-1]:.4f}", tokens_per_second=f"{speed:,.0f}")
            if step % every == 0 or step == n_steps:
                run.write()
            on_step(step, run.losses[-1])
    except KeyboardInterrupt:
        run.write()
        raise
    return run.losses


class Bar:
    """Steps, loss and speed in one line on stderr: an iterable around the steps, with tqdm's ``set_postfix``."""

    def __init__(self, steps: range):
        self.steps, self.step, self.drawn = steps, 0, -math.inf

    def __iter__(self):
        for step in self.steps:
            self.step = step
            yield step
        print(file=sys.stderr)

    def set_postfix(self, **values: str) -> None:
        last, now = self.steps[-1], time.monotonic()
        if self.step == last or now - self.drawn > 0.1:
            self.drawn, filled = now, "#" * (20 * self.step // last)
            words = "  ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())
            print(f"\r[{filled:<20}] step {self.step}/{last}  {words}  ", end="", file=sys.stderr, flush=True)


class _Run:
    """Where a run stands after its last whole step, and how that gets to the file and back."""

    def __init__(self, model: nn.Module, optimiser, generators: Sequence[torch.Generator], file):
        self.model, self.optimiser, self.file, self.losses = model, optimiser, file, []
        self.generators = [torch.default_generator, *generators]
        self.mark()
        if file is not None and os.path.exists(file):
            self._read()
        self.write()  # a file that cannot be written shows now, not after hours of training

    def mark(self, *losses: float) -> None:
        """A step is whole: its loss is counted and the generators' states are kept."""
        self.losses += losses
        self.random = {str(n): generator.get_state() for n, generator in enumerate(self.generators)}
        self.whole = True

    def _state(self) -> dict:
        return {
            "config": vars(self.model.config) if hasattr(self.model, "config") else {},
            "model": self.model.state_dict(),
            "random": self.random,
            "optimiser": self.optimiser.state_dict(),
            "losses": self.losses,
        }

    def write(self) -> None:
        """To a file beside it, then renamed: a reader finds the old one or the new one, never a part."""
        if self.file is None or not self.whole:
            return
        with open(part := f"{self.file}.part", "wb") as out:
            torch.save(self._state(), out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, self.file)

    def _read(self) -> None:
        """All is checked before anything is loaded."""
        try:
            saved = torch.load(self.file, map_location="cpu", weights_only=True)
            theirs, ours = _forms(saved), _forms(self._state())
            wrong = sorted(name for name in {*theirs, *ours} if theirs.get(name) != ours.get(name))
            moments, losses = saved["optimiser"]["state"], [float(loss) for loss in saved["losses"]]
        except Exception as error:  # torch has a dozen kinds for a torn file
            raise CheckpointError(f"{self.file} is no whole checkpoint of train(): {error!r:.200}") from error
        if wrong:
            raise CheckpointError(f"{self.file} is another model's; differing: {', '.join(wrong[:5])}.")
        self.optimiser.load_state_dict(self.optimiser.state_dict() | {"state": moments})
        self.model.load_state_dict(saved["model"])
        for generator, state in zip(self.generators, saved["random"].values()):
            generator.set_state(state)
        self.mark(*losses)


def _forms(state: dict) -> dict:
    """What must agree before anything is loaded: the values of a config, the shapes and types of tensors."""
    return {
        f"{part}.{name}": (value.shape, value.dtype) if isinstance(value, Tensor) else value
        for part in ("config", "model", "random")
        for name, value in state[part].items()
    }
