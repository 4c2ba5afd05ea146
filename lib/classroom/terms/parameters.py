"""Numbers of exercise 09: the model of problems 1 to 3. The first ones are those that the book prints."""

from __future__ import annotations

from classroom.terms import split_off_twos, tex

# widths are an odd number times a power of two, so that the square can be found by hand; all but the printed model
# have more than 1 B parameters, so that "below" and "gpt2-large" are wrong for them
NUMBERS = {
    "L": (24, 28, 32, 36),
    "D": (1536, 1792, 1920, 2560),
    "V": (32_000, 96_000, 100_000, 128_000),
}
KEEPS = ("predict",)


def lines(L: int, D: int, V: int) -> dict[str, list[str]]:
    odd, power = split_off_twos(D)
    trusted = "names a size of GPT-2 as comparable to our model. Do not trust it: compute."
    if D != 1536:  # what the source says is about the printed model
        trusted = "names a size of GPT-2 as comparable to a model of 0.73 B parameters. Do not guess for ours: compute."
    return {
        "p1": [f"A model has $L = {L}$ blocks of width $d = {tex(D)}$ and a vocabulary of $V = {tex(V)}$."],
        "p2": [
            f"Hint: ${tex(D)} = {odd} \\cdot {tex(2**power)}$, so $d^2 = {odd**2} \\cdot 2^{{{2 * power}}}$, "
            f"and $2^{{{2 * power}}} = {tex(4**power)}$."
        ],
        "p2-answer": [f"blocks = 12 * {L} * {D:_}**2", f"table = {V:_} * {D:_}"],
        "p3": [f"It also {trusted}"],
    }
