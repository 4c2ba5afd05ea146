"""Byte-pair encoding against Hugging Face's `tokenizers`, and as properties; the embedding against one-hot rows."""

import base64
import json
import random

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import example, given
from tokenizers import Tokenizer as HuggingFace
from tokenizers import decoders, models, pre_tokenizers, trainers

from plainformer.pieces import SPLITS, split_into_pieces
from plainformer.tokenizer_file import visible
from plainformer.tokens import BYTE_ORDER, Embedding, Tokenizer, merge

BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
HF_SPLITS = {
    "gpt2": BYTE_LEVEL,
    "single-digits": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTE_LEVEL]),
}


def hf_trained(text: str, n_vocab: int, split: str = "gpt2") -> HuggingFace:
    """The independent implementation with the same settings."""
    tokenizer = HuggingFace(models.BPE())
    tokenizer.pre_tokenizer = HF_SPLITS[split]
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=n_vocab, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def words(seed: int, n: int, alphabet: str, longest: int) -> str:
    """Nonsense in which many pairs are equally common."""
    dice = random.Random(seed)
    return " ".join("".join(dice.choices(alphabet, k=dice.randint(1, longest))) for _ in range(n))


ENGLISH = (
    "The fund pays it. The funds paid what they'd pay: 1,024 coins, then 20 more!\n\n\tWho's paying? We'll pay, "
    "they've paid; it isn't   paid yet.\r\n  (See page 307, table 12.)  The bank of the river isn't a bank.\n"
)
UNICODE = (
    "Zażółć gęślą jaźń — naïve café, 東京は夜の七時 №４２ ½ ², नमस्ते दुनिया 🙂🙂 👩\u200d👩\u200d👧 "
    "\u00a0\u2003x\u0301 שלום  مرحبا\u200b"
)
TEXTS = {
    "english": (ENGLISH * 3, 330),
    "unicode": (UNICODE * 4, 380),
    "code": ("def f(x1, x22):\n    return x1**2 + 33*x22  # it's 100%\n" * 3, 320),
    "ties": (words(1, 60, "abcd", 6), 330),
    "ties of one letter": (words(2, 40, "a", 30), 290),
    "ties of two letters": (words(3, 50, "ab", 25), 420),
    "ties of signs and digits": (words(4, 60, "12.!é", 9), 400),
    "runs to the end": ("abcabd", 1000),
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(ENGLISH + UNICODE, 400)


# --- training, encoding, decoding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", TEXTS)
def test_training_and_encoding_equal_hugging_face(name, split):
    text, n_vocab = TEXTS[name]
    ours, theirs = Tokenizer.train(text, n_vocab, split=split), hf_trained(text, n_vocab, split)
    assert {visible(entry): i for i, entry in enumerate(ours.vocabulary)} == theirs.get_vocab()
    pairs = [[visible(ours.vocabulary[left]), visible(ours.vocabulary[right])] for left, right in ours.merges]
    assert pairs == json.loads(theirs.to_str())["model"]["merges"]
    for other, _ in TEXTS.values():
        assert ours.encode(other) == theirs.encode(other).ids


@given(st.text(alphabet="ab c1.", min_size=1, max_size=120), st.integers(256, 300), st.sampled_from(sorted(SPLITS)))
def test_training_on_any_text_equals_hugging_face(text, n_vocab, split):
    ours, theirs = Tokenizer.train(text, n_vocab, split=split), hf_trained(text, n_vocab, split)
    assert {visible(entry): i for i, entry in enumerate(ours.vocabulary)} == theirs.get_vocab()
    assert ours.encode(text[::-1]) == theirs.encode(text[::-1]).ids


def test_first_merges_by_hand():
    # "abab" and "ab": the pair ab stands there three times, then abab once; c and d never stand side by side twice
    trained = Tokenizer.train("abab ab cd", 256 + 2)
    a, b = trained.vocabulary.index(b"a"), trained.vocabulary.index(b"b")
    assert trained.merges[0] == (a, b)
    assert trained.vocabulary[256] == b"ab"
    # now (ab, ab), (space, ab), (space, c) and (c, d) stand once each: the smallest left id wins, and c < space
    assert trained.vocabulary[257] == b"cd"


def test_of_equally_common_pairs_the_smaller_ids_come_first():
    trained = Tokenizer.train("zy\nyx\nxz", 259)
    assert trained.vocabulary[256:] == [b"xz", b"yx", b"zy"]


@given(st.binary(max_size=200))
@example(bytes(range(256)))
@example(b"\xff\xfe\x80 \xe2\x82")
def test_decoding_undoes_encoding_of_any_bytes(tokenizer, data):
    assert tokenizer.decode_bytes(tokenizer.encode(data)) == data


@given(st.text(max_size=100))
@example("")
@example(UNICODE)
@example("\x1c\x1d\x85\u2028 \u3000")
def test_decoding_undoes_encoding_of_any_text(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode(text) == tokenizer.encode(text.encode("utf-8"))


@given(st.text(alphabet=" ab'é½7\n", max_size=60))
def test_merges_never_grow_the_number_of_ids(text):
    small, large = Tokenizer.train(ENGLISH, 270), Tokenizer.train(ENGLISH, 350)
    assert len(large.encode(text)) <= len(small.encode(text)) <= len(text.encode("utf-8"))


@pytest.mark.parametrize("name", TEXTS)
def test_training_further_keeps_what_was_learned(name):
    text, most = TEXTS[name]
    longer = Tokenizer.train(text, most)
    for n_vocab in (256, 257, 263, 280):
        shorter = Tokenizer.train(text, n_vocab)
        assert shorter.n_vocab == min(n_vocab, longer.n_vocab)
        assert shorter.vocabulary == longer.vocabulary[: shorter.n_vocab]
        assert shorter.merges == longer.merges[: shorter.n_vocab - 256]


def test_training_stops_when_no_pair_is_left():
    trained = Tokenizer.train("abc abc", 10_000)
    assert trained.n_vocab == 256 + len(trained.merges) < 270
    assert len(trained.encode("abc")) == len(trained.encode(" abc")) == 1
    assert Tokenizer.train("a", 1000).n_vocab == 256  # one letter has no neighbour


def test_every_merge_joins_two_earlier_entries(tokenizer):
    assert sorted(tokenizer.vocabulary[:256]) == [bytes([byte]) for byte in range(256)]
    assert [byte for entry in tokenizer.vocabulary[:256] for byte in entry] == BYTE_ORDER
    for i, (left, right) in enumerate(tokenizer.merges, start=256):
        assert left < i and right < i
        assert tokenizer.vocabulary[i] == tokenizer.vocabulary[left] + tokenizer.vocabulary[right]


@pytest.mark.parametrize("kind", ["letters", "one letter", "two letters", "base64"])
def test_a_long_unbroken_run_equals_hugging_face(kind):
    dice = random.Random(5)
    long = {
        "letters": "".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=20_000)),
        "one letter": "a" * 20_000,
        "two letters": "".join(dice.choices("ab", k=20_000)),
        "base64": base64.b64encode(dice.randbytes(15_000)).decode("ascii"),
    }[kind]
    text = " ".join(long[i : i + 7] for i in range(0, 3000, 7)) + " " + "a" * 64
    ours, theirs = Tokenizer.train(text, 400), hf_trained(text, 400)
    assert ours.encode(long) == theirs.encode(long).ids


def test_digits_stand_alone_when_asked():
    text = "in 2017 there were 2017 2017 2017"
    assert b" 2017" in Tokenizer.train(text, 300).vocabulary
    alone = Tokenizer.train(text, 300, split="single-digits")
    assert not any(len(entry) > 1 and any(chr(byte).isdigit() for byte in entry) for entry in alone.vocabulary)


def test_encoding_leaves_what_it_remembers_alone(tokenizer):
    first = tokenizer.encode("paid paid")
    copy = list(first)
    first.append(-1)
    assert tokenizer.encode("paid paid") == copy


@given(st.lists(st.integers(0, 3), max_size=30), st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_merge_goes_from_left_to_right(ids, pair):
    merged = merge(ids, pair, 9)
    undone = [i for m in merged for i in (pair if m == 9 else [m])]
    assert undone == ids
    text = "".join(map(str, ids)).replace("".join(map(str, pair)), "9")  # str.replace goes from left to right too
    assert "".join(map(str, merged)) == text


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("i", [-1, 400, 10**9])
def test_an_id_outside_the_vocabulary_is_refused(tokenizer, i):
    with pytest.raises(ValueError, match=rf"id {i} .*0 to 399"):
        tokenizer.decode([0, i])
    with pytest.raises(ValueError, match=rf"id {i} .*0 to 399"):
        tokenizer.decode_bytes([i])
    assert tokenizer.decode_bytes([0, 399])  # both ends are inside


@pytest.mark.parametrize("ids", [[1.0], ["a"], "abc", [None], [True], [[1, 2]]], ids=repr)
def test_an_id_of_another_type_is_refused(tokenizer, ids):
    with pytest.raises(TypeError, match="an id is an int, got"):
        tokenizer.decode(ids)


def test_a_batch_of_ids_is_refused_with_its_shape_or_type(tokenizer):
    with pytest.raises((TypeError, ValueError), match=r"an id is an int|one sequence"):
        tokenizer.decode(torch.zeros(2, 3, dtype=torch.int64))


def test_ids_may_come_as_a_tensor(tokenizer):
    ids = tokenizer.encode("The fund pays it.")
    assert tokenizer.decode(torch.tensor(ids)) == "The fund pays it."


def test_ids_that_are_no_text_are_refused(tokenizer):
    cut = tokenizer.encode("é".encode()[:1])
    assert tokenizer.decode_bytes(cut) == b"\xc3"
    with pytest.raises(ValueError, match=r"not UTF-8.*decode_bytes") as caught:
        tokenizer.decode(cut)
    assert not isinstance(caught.value, UnicodeDecodeError)


@pytest.mark.parametrize("text", ["\ud800", "pay \udcff it"])
def test_half_a_surrogate_pair_is_refused(tokenizer, text):
    for take in (tokenizer.encode, split_into_pieces, lambda text: Tokenizer.train(text, 300)):
        with pytest.raises(ValueError, match=rf"character {text.index(max(text))} .*surrogate"):
            take(text)


@pytest.mark.parametrize("data", [None, 7, ["a"], [98, 99]], ids=repr)
def test_what_is_neither_text_nor_bytes_is_refused(tokenizer, data):
    with pytest.raises(TypeError, match=f"str or bytes, got {type(data).__name__}"):
        tokenizer.encode(data)


@pytest.mark.parametrize("n_vocab", [255, 0, -1])
def test_a_vocabulary_smaller_than_the_bytes_is_refused(n_vocab):
    with pytest.raises(ValueError, match=rf"n_vocab={n_vocab} .*256"):
        Tokenizer.train("pay", n_vocab)


@pytest.mark.parametrize("text", ["", b""])
def test_nothing_is_learned_from_an_empty_text(text):
    with pytest.raises(ValueError, match="empty text"):
        Tokenizer.train(text, 300)


def test_an_unknown_split_is_refused_with_the_known_ones(tokenizer):
    for call in (
        lambda: Tokenizer(tokenizer.vocabulary, tokenizer.merges, split="gpt5"),
        lambda: split_into_pieces("pay", "gpt5"),
        lambda: Tokenizer.train("pay", 300, split="gpt5"),
    ):
        with pytest.raises(ValueError, match=r"gpt5.*gpt2.*single-digits"):
            call()


def test_a_vocabulary_that_cannot_encode_is_refused():
    every = [bytes([byte]) for byte in range(256)]
    with pytest.raises(ValueError, match=r"single bytes.* 97 of 256"):
        Tokenizer(every[:97], [])
    with pytest.raises(ValueError, match=r"merge 0 .*'ab'"):
        Tokenizer(every, [(97, 98)])


def test_a_byte_that_the_vocabulary_lacks_is_refused_when_it_comes():
    most = Tokenizer([bytes([byte]) for byte in range(256) if byte != 0xF3], [])  # real vocabularies lack a few
    assert most.decode(most.encode("pay")) == "pay"
    with pytest.raises(ValueError, match=r"0xf3 .*no entry"):
        most.encode(b"pay \xf3")


@pytest.mark.parametrize("pair", [(-1, 97), (97, 300)], ids=repr)
def test_a_merge_of_an_id_outside_the_vocabulary_is_refused(pair):
    every = [bytes([byte]) for byte in range(256)]
    with pytest.raises(ValueError, match="merge 0"):
        Tokenizer([*every, b"\xffa"], [pair])


def test_the_same_entry_twice_is_refused():
    every = [bytes([byte]) for byte in range(256)]
    with pytest.raises(ValueError, match=r"twice|duplicate|more than once"):
        Tokenizer([*every, b"ab", b"ab"], [(97, 98)])  # which of the two would the merge give?


# --- the embedding ---------------------------------------------------------------------------------------------------


def test_embedding_equals_torch_and_one_hot_rows():
    embed = Embedding(11, 5)
    ids = torch.randint(11, (2, 3, 7))
    assert torch.equal(embed(ids), torch.nn.functional.embedding(ids, embed.weight))
    one_hot = torch.nn.functional.one_hot(ids, 11).double()
    assert torch.equal(embed(ids).double(), one_hot @ embed.weight.double())  # one term a sum: nothing is rounded
    assert torch.equal(embed(ids.int()), embed(ids))


def test_embedding_moves_only_the_rows_it_used():
    embed = Embedding(9, 4)
    ids = torch.tensor([[1, 7, 1], [3, 1, 7]])
    embed(ids).sum().backward()
    times = torch.tensor([0, 3, 0, 1, 0, 0, 0, 2, 0]).float()
    assert torch.equal(embed.weight.grad, times[:, None].expand(9, 4))


def test_embedding_has_one_table_and_works_without_memory():
    with torch.device("meta"):
        embed = Embedding(32_000, 4_096)
    assert [tuple(p.shape) for p in embed.parameters()] == [(32_000, 4_096)]
    assert embed(torch.zeros(2, 3, dtype=torch.int64, device="meta")).shape == (2, 3, 4_096)


def test_embedding_refuses_what_selects_no_row():
    embed = Embedding(9, 4)
    for ids, error, message in [
        (torch.tensor([0, 9]), ValueError, r"0 … 8, got 0 … 9"),
        (torch.tensor([-1, 3]), ValueError, r"0 … 8, got -1 … 3"),
        (torch.zeros(3), TypeError, r"int64, got torch\.float32"),
        (torch.ones(3, dtype=torch.bool), TypeError, r"int64, got torch\.bool"),
        (torch.zeros(2, 0, dtype=torch.int64), ValueError, r"empty sequence.*\(2, 0\)"),
    ]:
        with pytest.raises(error, match=message):
            embed(ids)
    for sizes in [(0, 4), (9, 0), (-1, 4)]:
        with pytest.raises(ValueError, match=f"{sizes[0]} × {sizes[1]}"):
            Embedding(*sizes)


@pytest.mark.parametrize("ids", ["abc", b"abc", 5, None], ids=repr)
def test_what_is_no_sequence_of_ids_is_refused(tokenizer, ids):
    with pytest.raises(TypeError, match=f"sequence of another kind: {type(ids).__name__}"):
        tokenizer.decode(ids)


@pytest.mark.parametrize("n_vocab", [300.0, "300", True, None], ids=repr)
def test_a_vocabulary_of_no_whole_size_is_refused(n_vocab):
    with pytest.raises(TypeError, match="must be an int"):
        Tokenizer.train("pay", n_vocab)


def test_training_on_what_is_no_text_is_refused_as_that():
    with pytest.raises(TypeError, match="str or bytes, got NoneType"):
        Tokenizer.train(None, 300)


def test_an_embedding_names_a_list_and_filler():
    table = Embedding(5, 3)
    with pytest.raises(TypeError, match=r"tensor, got list.*torch\.tensor"):
        table([1, 2])
    with pytest.raises(ValueError, match=r"0 … 4, got -100 … 1.*filler"):
        table(torch.tensor([1, -100]))
    with pytest.raises(ValueError, match=r"5\.0 × 3"):
        Embedding(5.0, 3)
