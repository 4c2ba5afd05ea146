"""A table's rows read and write: each is the other undone, and each does what its words say."""

import dataclasses

import pytest
import torch

from plainformer.config import Config, preset
from plainformer.positions import convert_pairing
from plainformer.weight_names import Names, Row

CONFIG = Config(n_vocab=23, d_model=48, n_heads=8, n_kv_heads=4, n_context=13, d_ff=19, n_layers=2)
NAMES = Names(
    {
        "prefix": "model.",
        "endings": {"gamma": "weight"},
        "ignore": ["model.h.{}.buffer", "cls.*"],
        "names": {
            "model.wte": "embed",
            "model.h.{}.ln": "blocks.{}.attn_norm",
            "model.h.{}.e.{}.w1": "blocks.{}.mlp.experts.{}.gate",
            "model.h.{}.qkv": {"to": ["blocks.{}.q", "blocks.{}.k", "blocks.{}.v"], "transpose": True},
            "head": "unembed",
        },
    }
)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("model.wte.weight", ["embed.weight"]),
        ("wte.weight", ["embed.weight"]),  # the prefix may be absent
        ("model.h.12.ln.bias", ["blocks.12.attn_norm.bias"]),
        ("h.12.ln.bias", ["blocks.12.attn_norm.bias"]),
        ("model.h.3.ln.gamma", ["blocks.3.attn_norm.weight"]),
        ("model.h.3.e.14.w1.weight", ["blocks.3.mlp.experts.14.gate.weight"]),
        ("model.h.0.qkv.bias", ["blocks.0.q.bias", "blocks.0.k.bias", "blocks.0.v.bias"]),
        ("head.weight", ["unembed.weight"]),
    ],
)
def test_a_name_of_the_file_is_ours(theirs, ours):
    row, got = NAMES.ours(theirs)
    assert got == ours and isinstance(row, Row)
    if "gamma" not in theirs:
        assert NAMES.theirs(ours[0])[1:] == (
            theirs if theirs.startswith(("model", "head")) else f"model.{theirs}",
            ours,
        )


@pytest.mark.parametrize(
    "name", ["model.h.x.ln.weight", "model.h.1.lnn.weight", "model.wte", "h.1.2.ln.weight", "", "xwte.w"]
)
def test_a_name_that_is_not_in_the_table_has_no_place(name):
    assert NAMES.ours(name) is None and not NAMES.is_ignored(name)


@pytest.mark.parametrize("name", ["model.h.7.buffer", "h.7.buffer", "cls.a.b.weight"])
def test_what_may_be_ignored_is(name):
    assert NAMES.is_ignored(name) and NAMES.ours(name) is None


def test_the_second_name_of_a_stacked_row_is_not_written_by_itself():
    assert NAMES.theirs("blocks.1.q.weight")[1] == "model.h.1.qkv.weight"
    assert NAMES.theirs("blocks.1.k.weight") is None and NAMES.theirs("nowhere.weight") is None


def test_a_transposed_stack_is_cut_into_parts_of_our_sizes():
    """Query, key and value of unequal widths; each entry says where it stood."""
    row = NAMES.ours("model.h.0.qkv.weight")[0]
    stored = torch.arange(6.0).view(6, 1) * 100 + torch.arange(8.0)  # (in, out)
    q, k, v = row.read(stored, [4, 3, 1], CONFIG)
    assert row.stored_shape([(4, 6), (3, 6), (1, 6)]) == (6, 8)
    assert q.tolist() == [[i * 100 + o for i in range(6)] for o in range(4)]
    assert k.tolist() == [[i * 100 + o for i in range(6)] for o in range(4, 7)] and v.shape == (1, 6)
    assert row.write([q, k, v], CONFIG).equal(stored)
    bias = torch.arange(8.0)
    assert row.stored_shape([(4,), (3,), (1,)]) == (8,)
    assert [part.tolist() for part in row.read(bias, [4, 3, 1], CONFIG)] == [[0, 1, 2, 3], [4, 5, 6], [7]]
    assert row.write(row.read(bias, [4, 3, 1], CONFIG), CONFIG).equal(bias)
    parts = row.read(stored, [4, 3, 1], CONFIG)
    assert all(part.is_contiguous() for part in parts)
    parts[0].zero_()
    assert stored[0, 1] == 1, "parts are copies: training one must not change the file's view"


@pytest.mark.parametrize("wanted", ["halves", "even-odd"])
@pytest.mark.parametrize("stored", ["halves", "even-odd"])
@pytest.mark.parametrize("shape", [(24, 5), (24,)], ids=["weight", "bias"])
def test_a_pairing_is_converted_where_the_config_has_another(stored, wanted, shape):
    config = dataclasses.replace(CONFIG, pairing=wanted)
    row = Row("x", ("y",), pairing=stored, heads="n_kv_heads")
    weight = torch.randn(shape)
    [ours] = row.read(weight, [24], config)
    assert ours.equal(weight if stored == wanted else convert_pairing(weight, 4, to=wanted))
    assert (ours.equal(weight)) == (stored == wanted)
    assert row.write([ours], config).equal(weight)


def test_a_plain_row_keeps_the_file_s_memory():
    weight = torch.randn(3, 4)
    row = Row("x", ("y",))
    assert row.read(weight, [3], CONFIG)[0].data_ptr() == weight.data_ptr()
    assert row.write([weight], CONFIG) is weight and row.stored_shape([(3, 4)]) == (3, 4)


def test_a_row_with_a_word_that_is_not_known_is_refused():
    with pytest.raises(TypeError, match="turn"):
        Names({"names": {"a": {"to": "b", "turn": True}}})
    assert preset("gpt2-small")
