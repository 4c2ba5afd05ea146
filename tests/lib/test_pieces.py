"""The cut into pieces against Hugging Face's, on every kind of character."""

import unicodedata

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings
from tokenizers import pre_tokenizers

from plainformer.pieces import SPLITS, split_into_pieces
from plainformer.tokenizer_file import visible

BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
HF_SPLITS = {
    "gpt2": BYTE_LEVEL,
    "single-digits": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTE_LEVEL]),
}


# Characters of Unicode 3.2: later ones are letters to one library and unassigned to another that is a year older.
OLD = st.characters(exclude_categories=["Cs"]).filter(lambda c: unicodedata.ucd_3_2_0.category(c) != "Cn")
SIGNIFICANT = st.sampled_from(
    list("  '\n\t\r\x0b\x0c\x1c\x85\xa0\u2028\u3000sdmtllvereSLaZé0٣½².,!?-_\u0301\u200d🙂東ª")
)


@settings(max_examples=300)
@given(st.text(st.one_of(OLD, SIGNIFICANT, SIGNIFICANT), max_size=30), st.sampled_from(sorted(SPLITS)))
@example("we'll they've 'twas I'M  x", "gpt2")
@example("I'm you're he's it'd we'll they've can't o'clock 're're", "gpt2")
@example("  12 3\n\n 4a5 ", "single-digits")
def test_pieces_equal_hugging_face(text, split):
    theirs = [piece for piece, _ in HF_SPLITS[split].pre_tokenize_str(text)]
    assert [visible(piece) for piece in split_into_pieces(text, split)] == theirs


@pytest.mark.parametrize("split", SPLITS)
def test_every_kind_of_character_is_split_as_hugging_face_does(split):
    everything = map(chr, [*range(0xD800), *range(0xE000, 0x30000)])
    old = [c for c in everything if unicodedata.ucd_3_2_0.category(c) not in ("Cn", "Co")]
    dull = [c for c in old if unicodedata.category(c) == "Lo"]  # 90,000 ideographs and syllables: a sample is enough
    for start in range(0, len(old := sorted({*old} - {*dull} | {*dull[::50]})), 2000):
        text = "".join(f"\na{c}0{c}!{c} {c}{c} a" for c in old[start : start + 2000])
        theirs = [piece for piece, _ in HF_SPLITS[split].pre_tokenize_str(text)]
        assert [visible(piece) for piece in split_into_pieces(text, split)] == theirs


@given(st.binary(max_size=80), st.sampled_from(sorted(SPLITS)))
def test_pieces_joined_are_the_input(data, split):
    assert b"".join(split_into_pieces(data, split)) == data
