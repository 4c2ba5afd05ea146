"""Numbers of exercise 11: the model and the conversations of problems 1 and 2."""

from __future__ import annotations

from classroom.terms import tex

NUMBERS = {
    # layers, query heads, key heads, width of a head, GB of weights in 16 bits; Llama 2 70B as printed
    ("N_LAYERS", "N_HEADS", "N_KV_HEADS", "D_HEAD", "GB"): (
        (80, 64, 8, 128, 138), (96, 96, 12, 128, 348), (56, 48, 8, 128, 51), (48, 40, 10, 128, 30),
        (112, 64, 8, 128, 180), (72, 72, 6, 128, 147),
    ),
    ("N_SERVED", "KEPT"): ((48, 4096), (40, 4096), (28, 4096), (36, 8192), (56, 2048), (80, 2048)),
}  # fmt: skip
KEEPS = ("predict",)


def lines(
    N_LAYERS: int, N_HEADS: int, N_KV_HEADS: int, D_HEAD: int, GB: int, N_SERVED: int, KEPT: int
) -> dict[str, list[str]]:
    printed = (N_LAYERS, GB) == (80, 138)
    return {
        "p1": [
            f"The weights of {'Llama 2 70B' if printed else 'a large model'} take {GB} GB in 16 bits.",
            f"It serves conversations of {KEPT:,} tokens each.",
        ],
        "p2": [
            f"{'Llama 2 70B' if printed else 'The model'} has $L = {tex(N_LAYERS)}$ layers, "
            f"$h = {N_HEADS}$ query heads, "
            f"$h_\\text{{kv}} = {N_KV_HEADS}$ key heads, each $d_k = {D_HEAD}$ wide.",
            f"3. `served_gib`: the caches of {N_SERVED} conversations of {KEPT:,} tokens, in GiB.",
        ],
        "p2-answer": [
            f"per_token = 2 * {N_LAYERS} * {N_KV_HEADS} * {D_HEAD} * 2",
            f"ungrouped = {N_HEADS // N_KV_HEADS} * per_token",
            f"served_gib = {N_SERVED} * {KEPT:_} * per_token / 2**30",
        ],
    }
