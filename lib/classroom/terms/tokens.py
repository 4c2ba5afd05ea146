"""Numbers of exercise 01: the text, the words, the ids and the table of problem 2.

Words cannot be drawn apart from what is learned of them: whole cases are drawn, in which every known slip learns
something else.
"""

from __future__ import annotations

from classroom.terms import tex, word

NUMBERS = {
    ("WRITTEN", "WORDS", "LEARNED", "N_MADE", "N_VOCAB", "N_SPECIAL", "D_MODEL", "N_READ"): (
        (
            "Zoë pays 5 € 🙂", (("inn", 1), ("then", 2), ("hint", 1), ("tint", 1)), ("in", "en", "hen"),
            1000, 32_000, 8, 2048, 12,
        ),
        (
            "Noël owes 20 € 🙂", (("tone", 2), ("ten", 1), ("tint", 1), ("hint", 2)), ("in", "int", "hint"),
            2000, 50_000, 6, 1024, 15,
        ),
        (
            "José has 中 and € 🙂", (("rest", 3), ("tea", 1), ("ear", 2), ("ate", 1)), ("ea", "es", "res"),
            5000, 40_000, 10, 1536, 20,
        ),
        (
            "Åsa, €, 🙂 and 🙂", (("tin", 1), ("nth", 3), ("hat", 1), ("tan", 1)), ("nt", "nth", "an"),
            3000, 64_000, 4, 768, 25,
        ),
        (
            "Ένα means one 🙂", (("then", 1), ("heat", 2), ("hand", 1), ("that", 2)), ("at", "he", "hat"),
            8000, 48_000, 5, 4096, 18,
        ),
        (
            "Émile: 100€, 中 🙂", (("noon", 3), ("tan", 1), ("inn", 1), ("tin", 1)), ("no", "on", "noon"),
            4000, 100_000, 9, 2560, 30,
        ),
    )
}  # fmt: skip
KEEPS = ("predict",)


def lines(
    WRITTEN: str, WORDS: tuple[tuple[str, int], ...], LEARNED: tuple[str, ...],
    N_MADE: int, N_VOCAB: int, N_SPECIAL: int, D_MODEL: int, N_READ: int,
) -> dict[str, list[str]]:  # fmt: skip
    widths = [len(character.encode()) for character in WRITTEN]
    n_bytes = " + ".join(f"{widths.count(n)} * {n}" for n in (1, 2, 3, 4))
    times = {1: "once", 2: "twice", 3: "three times"}
    return {
        "p2": [
            f"1. `n_bytes`: how many bytes has the text `{WRITTEN}` ?",
            f"| word | {' | '.join(word for word, _ in WORDS)} |",
            f"| occurs | {' | '.join(times[n] for _, n in WORDS)} |",
            f"3. `last_id`: the id of the last entry after {N_MADE:,} merges.",
            f"4. `n_merges`: a vocabulary has {N_VOCAB:,} entries. {word(N_SPECIAL).capitalize()} of them "
            "are special signs, such as the end of a text,",
            f"**Rows.** A model of width $d = {tex(D_MODEL)}$ uses this vocabulary of {N_VOCAB:,} entries.",
            "6. `read`: a number takes two bytes. "
            f"How many bytes does the model read from the table for a text of {N_READ} tokens?",
        ],
        "p2-answer": [
            f"n_bytes = {n_bytes}",
            f"learned = [{', '.join(repr(symbol) for symbol in LEARNED)}]".replace("'", '"'),
            f"last_id = 255 + {N_MADE:_}",
            f"n_merges = {N_VOCAB:_} - 256 - {N_SPECIAL}",
            f"table = {N_VOCAB:_} * {D_MODEL:_}",
            f"read = {N_READ} * {D_MODEL:_} * 2",
        ],
    }
