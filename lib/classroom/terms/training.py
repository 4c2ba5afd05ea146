"""Numbers of exercise 12: the vocabulary, the weight and the rates of problem 2."""

from __future__ import annotations

NUMBERS = {
    "VOCABULARY": (32_000, 50_000, 8000, 128_000),
    ("WEIGHT", "DERIVATIVE", "STEP_RATE", "STEP_DECAY"): (
        (2, -0.004, 0.01, 0.1), (3, 0.006, 0.02, 0.1), (4, 0.003, 0.05, 0.05),
        (6, -0.005, 0.01, 0.2),
    ),
    ("PEAK", "FLOOR", "WARMUP", "LAST"): (
        (0.004, 0.001, 100, 500), (0.006, 0.002, 200, 1000), (0.008, 0.001, 100, 900),
        (0.002, 0.0002, 200, 800),
    ),
}  # fmt: skip
KEEPS = ("predict",)


def lines(
    VOCABULARY: int, WEIGHT: int, DERIVATIVE: float, STEP_RATE: float, STEP_DECAY: float,
    PEAK: float, FLOOR: float, WARMUP: int, LAST: int,
) -> dict[str, list[str]]:  # fmt: skip
    sign = "-1" if DERIVATIVE < 0 else "1"
    return {
        "p2": [
            f"1. `first_loss`: a model with {VOCABULARY:,} entries in its vocabulary has just been made. "
            "Its first loss, in nats, to two decimals?",
            f"2. `one_step`: a weight is $w = {WEIGHT}$. "
            f"In the *first* step of AdamW its derivative is ${DERIVATIVE}$.",
            f"   The learning rate is {STEP_RATE}, the decay $\\lambda = {STEP_DECAY}$; take $\\epsilon = 0$. "
            "What is $w$ after the step, to three decimals?",
            f"3. `middle_rate`: the rate rises over {WARMUP} steps to its peak of {PEAK} and falls along half a cosine",
            f"   to its floor of {FLOOR} at step {LAST}. What is it at step {(WARMUP + LAST) // 2}?",
        ],
        "p2-answer": [
            f"first_loss = math.log({VOCABULARY:_})",
            f"one_step = {WEIGHT} - {STEP_RATE} * ({sign} + {STEP_DECAY} * {WEIGHT})",
            f"middle_rate = ({PEAK} + {FLOOR}) / 2",
        ],
    }
