"""Numbers of exercise 08: the sizes of problem 2, which all differ."""

from __future__ import annotations

from classroom.terms import word

NUMBERS = {
    ("B", "T", "N_LAYERS", "D_MODEL", "N_HEADS", "N_KV_HEADS", "D_FF", "N_VOCAB"): (
        (2, 7, 5, 24, 6, 3, 20, 50), (2, 9, 3, 48, 8, 4, 28, 70), (3, 5, 4, 56, 8, 2, 30, 70),
        (4, 5, 3, 60, 10, 2, 32, 80), (3, 11, 5, 48, 12, 2, 36, 90), (5, 6, 4, 63, 9, 3, 40, 100),
    )
}  # fmt: skip
KEEPS = ()


def lines(
    B: int, T: int, N_LAYERS: int, D_MODEL: int, N_HEADS: int, N_KV_HEADS: int, D_FF: int, N_VOCAB: int
) -> dict[str, list[str]]:
    return {
        "p2": [
            f"{word(B).capitalize()} texts of {word(T)} tokens pass through a model with these sizes:",
            f"| {N_LAYERS} | {D_MODEL} | {N_HEADS} | {N_KV_HEADS} | {D_FF} | {N_VOCAB} |",
        ],
        "p2-answer": [
            f"B, T, d, h, h_kv, d_ff, n_vocab = {B}, {T}, {D_MODEL}, {N_HEADS}, {N_KV_HEADS}, {D_FF}, {N_VOCAB}",
        ],
    }
