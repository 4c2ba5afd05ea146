"""Byte-pair encoding: how its time grows, and how far it is from a tokenizer in a compiled language.

Times are compared within one run only; the machine's speed does not matter.
"""

import random
import time

from tokenizers import Tokenizer as HuggingFace
from tokenizers import models, pre_tokenizers, trainers

from plainformer.tokens import Tokenizer


def best(work, n_rounds: int = 5) -> float:
    """Seconds of the quickest of several rounds."""
    seconds = []
    for _ in range(n_rounds):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def prose(n_words: int) -> str:
    """Words of one made-up language, some common and many rare, as in real text."""
    dice = random.Random(0)
    words = ["".join(dice.choices("etaoinshrdlu", k=dice.randint(2, 9))) for _ in range(5_000)]
    return " ".join(dice.choices(words, weights=[1 / rank for rank in range(1, 5_001)], k=n_words))


def test_encoding_grows_with_the_text_and_not_faster():
    text = prose(40_000)
    tokenizer = Tokenizer.train(text, 1_000)

    def fresh(part):  # a new tokenizer remembers no piece
        Tokenizer(tokenizer.vocabulary, tokenizer.merges).encode(part)

    half, whole = best(lambda: fresh(text[: len(text) // 2])), best(lambda: fresh(text))
    print(f"\nencoding twice the text takes {whole / half:.2f} times as long")
    assert whole / half < 3


def test_training_against_hugging_face():
    text = prose(40_000)

    def theirs():
        tokenizer = HuggingFace(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=1_000, initial_alphabet=alphabet, show_progress=False)
        tokenizer.train_from_iterator([text], trainer)

    ratio = best(lambda: Tokenizer.train(text, 1_000), 3) / best(theirs, 3)
    print(f"\ntraining takes {ratio:.1f} times as long as Hugging Face's compiled trainer")
    assert ratio < 100
