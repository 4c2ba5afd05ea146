"""Checks of exercise 04: masks, attention under them, and a proof of causality. One mechanism a check.

The notebook calls each check on the student's names; a hidden test hands other cases to the same check.
"""

from __future__ import annotations

import torch
from torch import Tensor

from classroom.checks import masks_answers as known
from classroom.checks.expect import CheckFailed, call, in_any_order, number, passed, refuse, same
from classroom.checks.expect import hidden_test as hidden_test  # for the hidden tests of the notebook
from classroom.checks.masks_answers import DEPTH_LONG, DEPTH_WIDE, LONG, N_FILLER, N_KEY, SHARE, WIDE, Module
from classroom.checks.masks_slips import CATALOGUE
from classroom.checks.progress import graded
from classroom.checks.tensors import agrees, numbers
from plainformer import masks
from plainformer.attention import attention

THREE = 6e-4  # an answer may be rounded to three decimals


def _wrong(check: str, name: str) -> dict:
    return {says: answers[name] for says, answers in CATALOGUE[check].items() if name in answers}


# ---- problem 1: predict ----


@graded
def predict(guess) -> None:
    """Any share that could be."""
    value = number(guess, "guess", such_as="0.4")
    negative, large = CATALOGUE["predict"]
    refuse("guess", (value <= 0, negative), (value >= 1, large))
    passed("noted; problem 2 tells how far off it is")


def how_far(guess, share) -> None:
    """Tell a guess beside the share computed by hand."""
    predict(guess)
    value = number(share, "share", such_as="0.4")
    print(f"You guessed that {guess:.0%} of the pairs are left; you computed {value:.1%}.")


# ---- problem 2: by hand ----


@graded
def pairs(pairs) -> None:
    right, wrong = known.pairs(), _wrong("pairs", "pairs")
    if type(pairs) is not dict or pairs.keys() != right.keys():
        same(pairs, right, "pairs", reveal=False)
    for name in right:
        slips = {says: answer[name] for says, answer in wrong.items()}
        same(pairs[name], right[name], f"pairs[{name!r}]", wrong=slips, reveal=False)
    passed("pairs that four masks leave")


@graded
def rows(causal_row, window_row) -> None:
    n, at = len(known.FUELS), known.AT
    right = {
        "causal_row": known.row(masks.causal(n)[at : at + 1]),
        "window_row": known.row(masks.sliding_window(n, window=known.NARROW)[at : at + 1]),
    }
    for name, answer in (("causal_row", causal_row), ("window_row", window_row)):
        same(answer, right[name], name, wrong=_wrong("rows", name), tolerance=THREE, reveal=False)
    passed("two rows of weights")


@graded
def share(share) -> None:
    same(share, SHARE, "share", wrong=_wrong("share", "share"), tolerance=THREE, reveal=False)
    passed(f"share of the pairs that a window of {WIDE:,} leaves of {LONG:,} positions")


# ---- problem 3: masks ----


def _mask(function, name: str, arguments: dict, right: Tensor, check: str) -> None:
    """A mask of the right shape, of True and False, and right."""

    def of_booleans(**given):
        mask = function(**given)
        if isinstance(mask, Tensor) and mask.dtype != torch.bool:
            raise CheckFailed(f"{name} holds {mask.dtype}; a mask is a tensor of True and False (torch.bool).")
        return mask

    agrees(of_booleans if callable(function) else function, name, arguments, right, _wrong(check, name))


@graded
def causal_mask(causal_mask, *cases: tuple[int, int]) -> None:
    """Cases are (n_query, n_key)."""
    for n_query, n_key in cases or ((5, 5), (3, 7)):
        right = masks.causal(n_query, n_key)
        _mask(causal_mask, "causal_mask", {"n_query": n_query, "n_key": n_key}, right, "causal_mask")
    passed("causal mask")


@graded
def window_mask(window_mask, *cases: tuple[int, int, int]) -> None:
    """Cases are (n_query, n_key, window)."""
    for n_query, n_key, window in cases or ((6, 6, 3), (4, 9, 5)):
        arguments = {"n_query": n_query, "n_key": n_key, "window": window}
        _mask(window_mask, "window_mask", arguments, masks.sliding_window(**arguments), "window_mask")
    passed("sliding window")


@graded
def padding_mask(padding_mask, *cases: tuple[list[int], int]) -> None:
    """Cases are (lengths, n_key)."""
    for lengths, n_key in cases or (([4, 1, 6], 7),):
        arguments = {"lengths": torch.tensor(lengths), "n_key": n_key}
        _mask(padding_mask, "padding_mask", arguments, masks.padding(**arguments), "padding_mask")
    passed("padding mask")


@graded
def combined(combined, *cases: tuple[list[int], int, int]) -> None:
    """Cases are (lengths, n_positions, window)."""
    for lengths, n_positions, window in cases or (([4, 1, 6], 7, 3),):
        arguments = {"lengths": torch.tensor(lengths), "n_positions": n_positions, "window": window}
        _mask(combined, "combined", arguments, known.both(**arguments), "combined")
    passed("masks combined")


# ---- problem 4: attention under a mask ----


def masked(n_batch: int, n_heads: int, n_query: int, n_key: int, mask: Tensor, **how) -> dict:
    """Arguments for `masked_attention`, values of width 3."""
    d_k, key, scale = how.get("d_k", 6), how.get("key", 0), how.get("scale", 1.0)
    k = numbers(n_batch, n_heads, n_key, d_k, key=key, scale=scale)
    q = -k[:, :, n_key - n_query :].clone()  # a query's score with its own key is negative
    return {"q": q, "k": k, "v": numbers(n_batch, n_heads, n_key, 3, key=key + 1), "mask": mask}


def hidden_keys() -> tuple[dict, ...]:
    """Attention under masks of every form, and with extreme numbers."""
    wide = masked(2, 5, 4, 4, masks.sliding_window(4, window=4), key=44)
    return (
        masked(1, 1, 1, 1, masks.causal(1), key=40),
        masked(3, 2, 1, 9, masks.causal(1, 9), key=42),
        wide | {"v": wide["v"] + 100},
        masked(2, 3, 7, 7, known.both(torch.tensor([2, 7]), 7, 9), key=46, d_k=4),
        *(masked(2, 3, 5, 8, masks.causal(5, 8), key=48, scale=scale) for scale in (1e2, 1e3, 1e5, 1e7)),
    )


@graded
def masked_attention(masked_attention, *cases: dict) -> None:
    """Cases are the arguments, without rows that see nothing; by default ordinary numbers, large and huge ones."""
    visible = [masked(2, 4, 5, 7, masks.causal(5, 7), scale=scale) for scale in (1.0, 1e3, 1e6)]
    for arguments in cases or visible:
        wrong = _wrong("masked_attention", "masked_attention")
        agrees(masked_attention, "masked_attention", arguments, attention(**arguments), wrong)
    passed("attention under a mask")


def nothing_to_see() -> tuple[dict, ...]:
    """Masks with rows that see nothing, of other forms."""
    mask = masks.causal(6) & ~masks.padding(torch.tensor([1, 3, 6]), 6)
    return (
        masked(3, 2, 6, 6, mask, key=50),
        masked(3, 2, 6, 6, mask, key=52, scale=1e3),
        masked(1, 1, 1, 1, torch.zeros(1, 1, dtype=torch.bool), key=54),
        masked(2, 3, 4, 5, torch.zeros(4, 5, dtype=torch.bool), key=56),
    )


@graded
def empty_rows(masked_attention, *cases: dict) -> None:
    """Cases are the arguments, with rows that see nothing."""
    visible = masked(2, 4, 5, 5, masks.causal(5) & (torch.arange(5) >= 2))
    for arguments in cases or (visible,):
        wrong = _wrong("empty_rows", "masked_attention")
        agrees(masked_attention, "masked_attention", arguments, attention(**arguments), wrong)
    passed("queries that may look at nothing")


# ---- problem 5: a proof of causality ----


def _judge(check: str, leaks, modules: list[tuple[Module, bool]], sizes: tuple[int, int]) -> None:
    """Each module of a check has its slip in `CATALOGUE`, in the same order."""

    def ask(module: Module) -> bool:
        answer = call(leaks, "leaks", module=module, n_positions=sizes[0], d_model=sizes[1])
        answer = answer.item() if getattr(answer, "ndim", None) == 0 else answer
        if type(answer) is not bool:
            raise CheckFailed(f"leaks returns a {type(answer).__name__}; True or False was expected.")
        return answer

    answers = in_any_order(ask, [module for module, _ in modules])
    for answer, (_, right), says in zip(answers, modules, CATALOGUE[check], strict=True):
        if answer != right:
            raise CheckFailed(f"leaks: {says}\nexpected {right}, got {answer}", slip=says)


@graded
def catches(leaks, *cases: tuple[int, int, int]) -> None:
    """Cases are (n_positions, d_model, key of the modules' weights)."""
    for *sizes, key in cases or ((7, 4, 60),):
        modules = [(known.unmasked(key), True), (known.one_ahead(key + 2), True), (known.one_hole(key + 4), True)]
        _judge("catches", leaks, [*modules, (known.masked(key + 6), False)], sizes)
    passed("missing masks and holes in them")


@graded
def extremes(leaks, *cases: tuple[int, int, int]) -> None:
    for *sizes, key in cases or ((7, 4, 70),):
        modules = [known.masked(key, constant=-1e4), known.masked(key + 2, constant=-1e4, add=True)]
        _judge("extremes", leaks, [(modules[0], True), (modules[1], True), (known.masked(key + 4), False)], sizes)
    passed("masks that hold for ordinary numbers alone")


@graded
def deep(leaks, *cases: tuple[int, int, int]) -> None:
    for *sizes, key in cases or ((7, 4, 80),):
        second_open = known.stacked(known.masked(key), known.unmasked(key + 2))
        clean = known.stacked(known.masked(key + 4), known.alone(key + 6), known.masked(key + 7))
        leaky = (second_open, known.one_head_open(key + 9), known.faint(key + 13))
        _judge("deep", leaks, [*((module, True) for module in leaky), (clean, False)], sizes)
    passed("leaks further inside")


@graded
def spares(leaks, *cases: tuple[int, int, int]) -> None:
    for *sizes, key in cases or ((7, 4, 90),):
        clean = (known.alone(key), known.previous(key + 1), known.masked(key + 2), known.rounded(key + 4))
        _judge("spares", leaks, [*((module, False) for module in clean), (known.unmasked(key + 5), True)], sizes)
    passed("clean modules are spared")


# ---- problem 6: hunt a bug ----


@graded
def evidence(empty, spread) -> None:
    """Counted on the suspect's masks and on two layers without protection."""
    mask = known.unrepaired(torch.tensor(N_FILLER), N_KEY)[:, 0]
    right = (~mask.any(-1)).sum(-1).tolist()
    same(empty, right, "empty", wrong=_wrong("evidence", "empty"), reveal=False)
    x, right = numbers(len(N_FILLER), N_KEY, 4, key=15), []
    for _ in range(2):
        x = (x @ x.mT / 2).masked_fill(~mask, -torch.inf).softmax(-1) @ x
        right.append(int(x[1].isnan().any(-1).sum()))
    same(spread, right, "spread", wrong=_wrong("evidence", "spread"), reveal=False)
    passed("how nan spreads")


@graded
def repair(repaired, *cases: tuple[list[int], int]) -> None:
    """Cases are (n_filler, n_key)."""
    for n_filler, n_key in cases or (([0, 3, 1], 7),):
        arguments = {"n_filler": torch.tensor(n_filler), "n_key": n_key}
        _mask(repaired, "repaired", arguments, known.front(**arguments), "repair")
    passed("suspect repaired")


# ---- problem 7: investigate ----


@graded
def reached(reach, *cases: list[int]) -> None:
    """Cases are lists of windows, the first layer's first."""
    for windows in cases or ([4, 2, 7], [1, 1]):
        actual = call(reach, "reach", windows=list(windows))
        wrong = {says: slip(windows=list(windows)) for says, slip in _wrong("reached", "reach").items()}
        same(actual, known.reach(windows), f"reach({windows})", wrong=wrong)
    passed("how far a stack of windows reaches")


@graded
def cover(needed, short_by) -> None:
    far = DEPTH_LONG - 1  # from the first position to the last
    right = next(n for n in range(1, 99) if n * (DEPTH_WIDE - 1) >= far)
    same(needed, right, "needed", wrong=_wrong("cover", "needed"), reveal=False)
    same(
        short_by,
        far - DEPTH_LONG // DEPTH_WIDE * (DEPTH_WIDE - 1),
        "short_by",
        wrong=_wrong("cover", "short_by"),
        reveal=False,
    )
    passed("layers that cover a text")


@graded
def verdict(verdict) -> None:
    wrong = _wrong("verdict", "verdict")
    same(verdict, "C", "verdict", wrong=wrong, choices=tuple("ABCDE"), reveal=False)
    passed("verdict. Within reach is not the same as within sight")
