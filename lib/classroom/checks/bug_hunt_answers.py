"""Tests as an answer to exercise 16 may write them: each rejects every broken version, but for what is left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from classroom.checks.tensors import numbers
from plainformer.attention import attention
from plainformer.heads import join, split
from plainformer.norms import layer_norm


def same_shape(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    assert actual.shape == expected.shape


def close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    same_shape(actual, expected, tolerance)
    assert bool(((actual - expected).abs() <= tolerance * expected.abs().max().clamp(min=1)).all())


def nan_is_close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    same_shape(actual, expected, tolerance)
    assert not bool(((actual - expected).abs() > tolerance * expected.abs().max().clamp(min=1)).any())


def identical(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    assert torch.equal(actual, expected)


# ---- attention ----


def attention_inputs(n: int, sizes: Sequence[int], times: float = 1.0, key: int = 0) -> dict:
    n_texts, d_model, n_heads, d_head, d_value = sizes
    widths = {"W_Q": d_head, "W_K": d_head, "W_V": d_value}
    weights = {W: numbers(d_model, n_heads * width, key=k + 10 * key) for k, (W, width) in enumerate(widths.items())}
    return {"x": numbers(n_texts, n, d_model, key=9 + 10 * key, scale=times), **weights, "n_heads": n_heads}


def attended(x, W_Q, W_K, W_V, n_heads) -> Tensor:
    return join(attention(*(split(x @ W, n_heads) for W in (W_Q, W_K, W_V)), causal=True))


def attention_test(
    sizes: Sequence[int] = (2, 5, 3, 4, 6),
    lengths: Sequence[int] = (7, 1, 64),
    times: Sequence[float] = (1.0, 300.0),
    seeds: int = 2,
    looks_at: Callable[[Tensor], Tensor] = lambda out: out,
    compare: Callable[..., None] = close,
    inputs: Sequence[str] = ("x", "W_Q", "W_K", "W_V"),
) -> Callable:
    """Compares with the library. `sizes` are texts, d_model, heads, d_head and d_value."""

    def test(candidate):
        for n in lengths:
            for key, scale in enumerate([*times] * seeds):
                given = attention_inputs(n, sizes, scale, key)
                expected, kept = attended(**given), {name: given[name].clone() for name in inputs}
                compare(looks_at(candidate(*given.values())), looks_at(expected), 1e-7)
                assert all(torch.equal(given[name], kept[name]) for name in inputs)

    return test


def causality_test(keys: float, rows: slice) -> Callable:
    """Changes the last token; these rows must not move. `keys` is what the matrix of keys is multiplied by."""

    def test(candidate):
        given = attention_inputs(7, (2, 5, 3, 4, 6))
        given["W_K"] *= keys
        before = candidate(*given.values())
        given["x"][:, -1] += 1
        close(candidate(*given.values())[:, rows], before[:, rows], 1e-9)

    return test


# ---- a norm ----


def norm_test(
    shape: Sequence[int] = (2, 3, 5),
    epsilons: Sequence[float] = (0.3, 1e-4),
    spread: float = 1.0,
    offsets: Sequence[float] = (0.0, 1e6),
    learned: bool = True,
    tolerance: float = 1e-6,
    compare: Callable[..., None] = close,
) -> Callable:
    def test(candidate):
        d = shape[-1]
        weight, bias = (numbers(d, key=1), numbers(d, key=2)) if learned else (torch.ones(d), torch.zeros(d))
        weight, bias = weight.double(), bias.double()
        for eps in epsilons:
            for offset in offsets:
                x = numbers(*shape, scale=spread) + offset
                compare(candidate(x, weight, bias, eps), layer_norm(x, weight, bias, eps), tolerance)

    return test


# ---- a memory ----


def _rows(n: int, key: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    return list(zip(numbers(n, 4, key=key), numbers(n, 4, key=key + 1), numbers(n, 6, key=key + 2)))


def _seen(rows: list, window: int) -> Tensor:
    """What the last of these rows gets."""
    q, keys, values = rows[-1][0], *(torch.stack([row[part] for row in rows[-window:]]) for part in (1, 2))
    return (keys @ q / math.sqrt(len(q))).softmax(0) @ values


def memory_test(
    windows: Sequence[int] = (4, 1),
    lengths: Sequence[int] = (9, 2),
    every_step: bool = True,
    at_once: bool = True,
    writes: bool = True,
    inputs: bool = True,
    compare: Callable[..., None] = close,
) -> Callable:
    """Texts of these lengths, one after the other; `writes`: into the tensors that were handed over."""

    def step(memory, rows: list, n: int, window: int) -> None:
        handed = [part.clone() for part in rows[n]]
        out = memory.step(*handed)
        if inputs:
            assert all(map(torch.equal, handed, rows[n]))
        if writes:
            for part in handed:
                part.zero_()
        if every_step or n + 1 == len(rows):
            compare(out, _seen(rows[: n + 1], window), 1e-9)

    def test(make):
        for window in windows:
            memory = make(window)
            for key, length in enumerate(lengths):
                rows = _rows(length, key=10 * key)
                for n in range(length):
                    step(memory, rows, n, window)
                memory.reset()
        if at_once:
            memories, texts = [make(4), make(4)], [_rows(6, key=30), _rows(6, key=40)]
            for n in range(6):
                for memory, rows in zip(memories, texts):
                    step(memory, rows, n, 4)

    return test


# ---- a stack of layers ----


def stacked(x: Tensor, layers: list) -> tuple[Tensor, list[Tensor]]:
    """One text after the other, one position after the other."""
    maps = []
    for W_Q, W_K, W_V in layers:
        used = torch.zeros(len(x), x.shape[1], x.shape[1], dtype=x.dtype)
        for b, text in enumerate(x):
            for i in range(len(text)):
                used[b, i, : i + 1] = ((text[: i + 1] @ W_K) @ (text[i] @ W_Q) / math.sqrt(W_Q.shape[1])).softmax(0)
        maps.append(used)
        x = x + used @ (x @ W_V)
    return x, maps


def layers_test(
    n_layers: int = 3,
    n_texts: int = 2,
    results: bool = True,
    maps: bool = True,
    forms: bool = False,
    change: bool = False,
    compare: Callable[..., None] = close,
) -> Callable:
    """Compares numbers of results and maps; `forms`: triangles whose rows sum to one; `change`: of the last token."""

    def test(candidate):
        x = numbers(2, 6, 5)[:n_texts]
        layers = [
            tuple(numbers(5, width, key=9 * n + k, scale=0.5) for k, width in enumerate((4, 4, 5), start=1))
            for n in range(n_layers)
        ]
        (out, shown), (right, right_maps) = candidate(x, layers), stacked(x, layers)
        if results:
            compare(out, right, 1e-9)
        for one, other in zip(shown, right_maps):
            if maps:
                compare(one, other, 1e-9)
            if forms:
                close(one, one.tril(), 0)
                close(one.sum(-1), torch.ones(one.shape[:-1], dtype=one.dtype), 1e-9)
        if change:
            other = x.clone()
            other[:, -1] += 1
            close(candidate(other, layers)[0][:, :-1], out[:, :-1], 1e-9)

    return test
