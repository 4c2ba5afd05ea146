"""Exercise 1: what its checks hold for right, found by other implementations, and answers in odd forms."""

import re
from collections import Counter

import pytest
from tokenizers import Tokenizer as HuggingFace
from tokenizers import models, pre_tokenizers, trainers

from classroom.checks import tokens as checks
from classroom.checks import tokens_answers as answers
from classroom.checks import tokens_slips as known
from classroom.checks.expect import CheckFailed
from plainformer.pieces import split_into_pieces
from plainformer.tokens import BYTE_ORDER, Tokenizer

ASCII = bytes(range(33, 127)).decode()
LETTERS = "abcdefgh"


def by_text(pieces: list[bytes], n_merges: int) -> list[tuple[int, int]]:
    """Byte-pair encoding by search and replace in one string: a symbol is a character, a newline parts two pieces."""
    sign = [chr(0x4E00 + n) for n in range(256 + n_merges)]
    text, merges = "\n".join("".join(sign[byte] for byte in piece) for piece in pieces), []
    while len(merges) < n_merges:
        found = Counter(re.findall(r"(?=([^\n]{2}))", text))
        if not found:
            break
        most = max(found.values())
        best = min(pair for pair, times in found.items() if times == most)
        text = text.replace(best, sign[256 + len(merges)])
        merges.append((ord(best[0]) - 0x4E00, ord(best[1]) - 0x4E00))
    return merges


CASES = [
    *checks.WITHOUT_TIES,
    *checks.TIED,
    ([], 3),
    ([b"", b"q"], 3),
    ([b"aaaaaaa", b"aaa"], 9),
    ([bytes(range(256)), bytes(range(255, -1, -1))], 50),
    *((answers.words(key, 15, "ab🙂é", 8), 40) for key in range(5)),
]


@pytest.mark.parametrize(("pieces", "n_merges"), CASES)
def test_training_is_search_and_replace_in_a_text(pieces, n_merges):
    assert answers.trained(pieces, n_merges) == by_text(pieces, n_merges)


def as_bytes(pair: tuple[int, int], vocabulary: list[bytes]) -> tuple[bytes, bytes]:
    return vocabulary[pair[0]], vocabulary[pair[1]]


@pytest.mark.parametrize("key", range(5))
def test_training_is_the_librarys_and_hugging_faces_where_bytes_are_in_one_order(key):
    """Letters are in the same order in both; a line end alone is a piece without a pair."""
    pieces = answers.words(key, 20, LETTERS, 7)
    text, n_merges = "\n".join(piece.decode() for piece in pieces), 30
    merges = answers.trained(pieces, n_merges)
    spelled = [as_bytes(pair, answers.entries(merges)) for pair in merges]
    library = Tokenizer.train(text, 256 + n_merges)
    assert spelled == [as_bytes(pair, library.vocabulary) for pair in library.merges]
    other = HuggingFace(models.BPE())
    other.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    other.train_from_iterator(
        [text], trainers.BpeTrainer(vocab_size=256 + n_merges, initial_alphabet=alphabet, show_progress=False)
    )
    for piece in {*pieces, *answers.words(key + 100, 20, LETTERS, 9)}:
        ids = answers.encoded(piece, merges)
        assert [answers.entries(merges)[i] for i in ids] == [library.vocabulary[i] for i in library.encode(piece)]
        assert [answers.entries(merges)[i].decode() for i in ids] == other.encode(piece.decode()).tokens


def test_letters_and_signs_have_one_order_in_the_library_and_here():
    order = [byte for byte in BYTE_ORDER if chr(byte) in ASCII]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("data", "merges"), [*checks.IN_ANY_ORDER, *checks.RANKED, *checks.ROUND, (b"thin", known.FEW)]
)
def test_encoding_is_the_librarys_for_a_vocabulary_in_the_order_of_bytes(data, merges):
    library = Tokenizer(answers.entries(merges), merges)
    ids = [i for piece in split_into_pieces(data) for i in answers.encoded(piece, merges)]
    assert ids == library.encode(data)
    assert answers.encoded_by(lambda known: known.index(min(known)), data, merges) == answers.encoded(data, merges)
    assert b"".join(answers.entries(merges)[i] for i in ids) == data == answers.decoded(ids, merges)


def test_no_tie_and_no_order_decides_where_the_checks_say_so():
    cases = [*checks.WITHOUT_TIES]
    cases += [(checks.words(241, 12, LETTERS, 8), 6), (checks.words(38, 6, "xyz€", 5), 4)]
    cases += [(checks.words(23, 9, "abcdeé", 6), 5)]  # in the hidden tests
    for pieces, n_merges in cases:
        assert len({tuple(answers.trained(pieces, n_merges, ties=ties)) for ties in answers.TIES}) == 1
    for data, merges in checks.IN_ANY_ORDER:
        right = answers.encoded(data, merges)
        assert answers.encoded_longest(data, merges) == right
        for choose in (answers.leftmost, answers.latest, answers.commonest):
            assert answers.encoded_by(choose, data, merges) == right


# ---- by hand ----


def test_by_hand_problems_and_their_slips_all_differ():
    widths = [1 if ord(c) < 0x80 else 2 if ord(c) < 0x800 else 3 if ord(c) < 0x10000 else 4 for c in known.WRITTEN]
    words = [word.encode() for word, times in known.WORDS.items() for _ in range(times)]
    spelled = [bytes([byte]) for byte in range(256)]
    for left, right in by_text(words, 3):
        spelled.append(spelled[left] + spelled[right])
    rights = {
        "utf8": {"n_bytes": sum(widths)},
        "learned": {"learned": [entry.decode() for entry in spelled[256:]]},
        "ids": {"last_id": 256 + known.N_MADE - 1, "n_merges": known.N_VOCAB - known.N_SPECIAL - 256},
        "table": {"table": known.N_VOCAB * known.D_MODEL, "read": 2 * known.N_READ * known.D_MODEL},
    }
    for check, names in rights.items():
        getattr(checks, check)(**names)
        for name, right in names.items():
            values = [right] + [slip[name] for slip in known.CATALOGUE[check].values() if name in slip]
            assert len(values) == len({str(value) for value in values}), (check, name)


def test_an_english_tokenizer_takes_a_byte_of_greek_for_a_token():
    assert known.N_GREEK == len(known.GREEK.encode()) < 2 * len(known.GREEK)


# ---- the hunt ----


def test_three_bytes_are_the_shortest_on_which_the_suspect_errs():
    letters = range(97, 123)
    pairs = [bytes([a, b]) for a in letters for b in letters]
    assert all(answers.encoded_longest(pair, known.FEW) == answers.encoded(pair, known.FEW) for pair in pairs)
    assert answers.encoded_longest(b"the", known.FEW) != answers.encoded(b"the", known.FEW)


@pytest.mark.parametrize("answer", [..., "the", b"", b"h" * 101, [116, 104, 101]])
def test_the_hunt_asks_for_bytes(answer):
    suspect = lambda data, entries: answers.encoded_longest(data, known.FEW)  # noqa: E731
    with pytest.raises(CheckFailed, match="fails_on"):
        checks.hunt(suspect, b"thin", answer)


# ---- what a vocabulary costs ----


def test_the_librarys_lengths_are_right_too_and_choose_the_same_vocabularies():
    library = known.lengths_by("library")
    assert library != known.lengths_by("bytes")
    checks.lengths(library)
    assert {name: known.cheapest(library, model) for name, model in known.MODELS.items()} == known.BEST


def test_the_best_vocabularies_are_the_best_by_more_than_one_per_cent():
    for whose in ("bytes", "library"):
        lengths = known.lengths_by(whose)
        for model in known.MODELS.values():
            first, second, *_ = sorted(known.flops(n, v, **model) for v, n in lengths.items())
            assert first < 0.99 * second


# ---- answers in odd forms ----


@pytest.mark.parametrize("guess", ["many", 0, -3, True, float("nan"), 1e12, ...])
def test_an_impossible_guess_is_answered_in_words(guess):
    with pytest.raises(CheckFailed, match="guess"):
        checks.predict(guess)
    with pytest.raises(CheckFailed, match="guess"):
        checks.how_far(guess)


def test_arrays_counters_and_bytearrays_are_right_too():
    numpy = pytest.importorskip("numpy")
    checks.count_pairs(lambda sequences: Counter(answers.count(sequences)))
    checks.encodes(lambda data, merges: numpy.array(answers.encoded(data, merges)))
    checks.spelled(lambda ids, merges: bytearray(answers.decoded(ids, merges)))


@pytest.mark.parametrize("best", [..., {"small": 356}, {"small": 356, "large": 556, "huge": 1}, 356])
def test_best_asks_for_two_models(best):
    with pytest.raises(CheckFailed, match="best"):
        checks.best(best)


def test_an_encoder_that_returns_bytes_is_answered_in_words():
    with pytest.raises(CheckFailed, match="a list of ids"):
        checks.round_trip(lambda data, merges: data, answers.decoded)


def test_a_decoder_that_remembers_what_was_encoded_makes_no_round_trip():
    said = []

    def encode(data, merges):
        said.append(data)
        return [10**6 + len(said)]

    with pytest.raises(CheckFailed, match="do not stand for these bytes"):
        checks.round_trip(
            encode,
            lambda ids, merges: (
                said[ids[0] - 10**6 - 1] if max(ids, default=0) > 10**6 else answers.decoded(ids, merges)
            ),
        )
    with pytest.raises(CheckFailed, match="decode_bytes"):
        checks.round_trip(lambda data, merges: said.append(data) or [], lambda ids, merges: said[-1] if said else b"")


def test_ids_by_other_merges_and_numbers_of_numpy_make_a_round_trip():
    numpy = pytest.importorskip("numpy")
    checks.round_trip(lambda data, merges: [*numpy.array(answers.encoded_longest(data, merges))], answers.decoded)
