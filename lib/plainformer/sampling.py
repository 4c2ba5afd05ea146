"""From scores to text: choose a token, add it, ask the model again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from plainformer.cache import Cache
from plainformer.model import Transformer
from plainformer.shapes import Float, Int


def greedy(logits: Float["... n_vocab"]) -> Int["..."]:
    """The id with the highest score; of equal ones, one of them. Raises ``ValueError`` for NaN or +∞.

    >>> greedy(torch.tensor([[0.0, 3.0, 1.0]]))
    tensor([1])
    """
    return _checked(logits).argmax(-1)


def sample(
    logits: Float["... n_vocab"],
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator,
) -> Int["..."]:
    """An id drawn from `probabilities`, with the caller's generator: the same seed gives the same ids."""
    chances = probabilities(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    return chances.view(-1, chances.shape[-1]).multinomial(1, generator=generator).view(logits.shape[:-1])


def probabilities(
    logits: Float["... n_vocab"], *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Float["... n_vocab"]:
    """The distribution that `sample` draws from, in float64; each row adds up to 1.

    ``temperature`` divides the scores: below 1 the likely becomes likelier, above 1 chances even out.
    ``top_k`` keeps the k highest scores, and whatever equals the k-th (Fan et al. 2018). ``top_p`` then keeps the
    smallest set of the likeliest tokens whose probabilities reach p; of equal ones the lower id enters first
    (Holtzman et al. 2020). Raises ``ValueError`` for temperature ≤ 0, top_k < 1, top_p outside (0, 1], and for
    scores that are NaN or +∞; ``TypeError`` for what is no number.

    >>> probabilities(torch.tensor([2.0, 1.0, 2.0]), top_k=2)
    tensor([0.5000, 0.0000, 0.5000], dtype=torch.float64)
    """
    scores = _checked(logits).double()
    _check_choice(temperature, top_k, top_p)
    if top_k is not None:
        kth = scores.topk(min(top_k, scores.shape[-1]), -1).values[..., -1:]
        scores = scores.masked_fill(scores < kth, -torch.inf)
    # the highest becomes 0 first, so that no temperature, however small, overflows
    chances = ((scores - scores.amax(-1, keepdim=True)) / temperature).softmax(-1)
    if top_p is not None and top_p < 1:
        ordered, ids = chances.sort(dim=-1, descending=True, stable=True)
        reached = ordered.cumsum(-1).roll(1, -1)  # by the likelier tokens together
        reached[..., 0] = 0
        kept = torch.zeros_like(chances).scatter(-1, ids, ordered.masked_fill(reached >= top_p, 0))
        chances = kept / kept.sum(-1, keepdim=True)
    return chances


def generate(
    model: Transformer,
    ids: Sequence[Sequence[int]] | Int["batch position"],
    n_new: int,
    *,
    choose: Callable[[Tensor], Tensor] = greedy,
    stop: Iterable[int] = (),
    cache: Cache | None = None,
    on_token: Callable[[int, int], None] | None = None,
) -> list[list[int]]:
    """Up to ``n_new`` tokens for each prompt; the prompts, of any lengths, are not repeated.

    ``choose`` gets the last position's scores, (batch, n_vocab), and returns ids, (batch,): `greedy`, or `sample`
    with its arguments filled in. A sequence ends before an id of ``stop``. ``on_token(sequence, id)`` is called for
    each token as it comes. ``cache``: the prompts continue what is in it; by default a new one, of the size needed.
    A given one is filled further: it ends up holding all that the model read.
    Raises ``ValueError`` for an empty prompt and for more tokens than the context or the cache has room for.
    """
    prompts, stop = _prompts(ids), frozenset(stop)
    if isinstance(n_new, bool) or not isinstance(n_new, int) or n_new < 1:
        raise ValueError(f"n_new={n_new!r} must be an int of at least 1.")
    cache = _cache_with_room(model, prompts, n_new, cache)
    lengths, device = [len(prompt) for prompt in prompts], model.embed.weight.device
    batch = [prompt + [0] * (max(lengths) - len(prompt)) for prompt in prompts]  # any id serves as filler
    new, running = [[] for _ in prompts], set(range(len(prompts)))
    with torch.no_grad():
        uneven = lengths if len({*lengths}) > 1 else None
        logits = model(torch.tensor(batch, device=device), lengths=uneven, cache=cache, last_only=True)
        for step in range(n_new):
            if step:  # a sequence that has ended is computed on, and nobody looks
                logits = model(chosen[:, None], cache=cache, last_only=True)
            chosen = choose(logits[:, 0])
            for b, token in enumerate(chosen.tolist()):
                if b in running and token in stop:
                    running.remove(b)
                elif b in running:
                    new[b].append(token)
                    if on_token is not None:
                        on_token(b, token)
            if not running:
                break
    return new


def _prompts(ids: Sequence[Sequence[int]] | Tensor) -> list[list[int]]:
    rows = ids.tolist() if isinstance(ids, Tensor) else list(ids)
    if not rows or any(not isinstance(row, Sequence) or isinstance(row, str) for row in rows):
        raise ValueError("expected one list of ids for each prompt. One prompt is a batch of 1: [ids].")
    for b, row in enumerate(rows):
        if len(row) == 0:
            raise ValueError(f"prompt {b} is empty, and the first new token needs one before it. Give at least one id.")
    return [list(row) for row in rows]


def _cache_with_room(model: Transformer, prompts: list[list[int]], n_new: int, cache: Cache | None) -> Cache:
    """The cache to write to. Checked before anything is computed, since a cache half filled is of no use."""
    config = model.config
    if not config.causal or config.output != "logits":
        raise ValueError(
            f"generating needs a causal model that scores its vocabulary; this one has causal={config.causal} "
            f"and output={config.output!r}. Usual cause: an encoder such as BERT."
        )
    kept = cache.lengths if cache is not None else [0] * len(prompts)
    room = config.n_context if cache is None else cache.n_positions
    for b, (old, prompt) in enumerate(zip(kept, prompts)):
        if old + len(prompt) + n_new - 1 > room:  # the last token is written, not read
            raise ValueError(
                f"prompt {b} has {len(prompt)} tokens{f' after {old} in the cache' if old else ''}; with {n_new} new "
                f"ones it outgrows the {'context' if cache is None else 'cache'} of {room} positions. "
                "Shorten the prompt or ask for fewer tokens."
            )
    if cache is not None:
        return cache
    weight = model.embed.weight
    n_positions = max(map(len, prompts)) + n_new - 1
    return Cache(config, len(prompts), n_positions, dtype=weight.dtype, device=weight.device)


def _checked(logits: Tensor) -> Tensor:
    if not logits.is_floating_point() or logits.dim() == 0:
        raise TypeError(f"expected floating-point scores (…, n_vocab), got {logits.dtype} of {tuple(logits.shape)}.")
    highest = logits.amax(-1)  # NaN wins over everything, −∞ over nothing
    if not bool(highest.isfinite().all()):
        raise ValueError("scores hold NaN or +∞, or a row of −∞ alone. Usual cause: weights or a mask gone wrong.")
    return logits


def _check_choice(temperature: float, top_k: int | None, top_p: float | None) -> None:
    for name, value, kinds in (
        ("temperature", temperature, (int, float)),
        ("top_k", 1 if top_k is None else top_k, int),
        ("top_p", 1 if top_p is None else top_p, (int, float)),
    ):
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise TypeError(f"{name}={value!r} must be a number{' without a fraction' * (kinds is int)}.")
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature={temperature} must be positive and finite. For the likeliest token, use greedy.")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k={top_k} must be at least 1: it is how many tokens stay. None keeps all.")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p={top_p} must lie in (0, 1]: it is the probability that stays. None keeps all.")
