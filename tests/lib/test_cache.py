"""Any way of feeding a text through a cache gives the logits that the whole text gives without one."""

import dataclasses

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from plainformer.attention import attention, fast_attention
from plainformer.cache import (
    Cache,
    bytes_per_sequence,
    bytes_per_token,
    latent_bytes_per_token,
    numbers_per_token,
)
from plainformer.config import Config, preset
from plainformer.model import Transformer

BOTH = [attention, fast_attention]
BATCH, CONTEXT = 3, 13
SIZES = {"n_vocab": 23, "d_model": 32, "n_heads": 8, "n_kv_heads": 4, "n_context": CONTEXT, "d_ff": 19, "n_layers": 2}
LLAMA = Config(**SIZES, norm_eps=0.05)


def change(config: Config = LLAMA, **changes) -> Config:
    return dataclasses.replace(config, **changes)


VARIANTS = {
    "many heads": change(n_kv_heads=8),
    "groups": LLAMA,
    "one key head": change(n_kv_heads=1),
    "even-odd pairs": change(pairing="even-odd", rope_base=50.0),
    "window of 1": change(window=1),
    "window": change(window=4),
    "window as long as the context": change(window=CONTEXT),
    "window, one key head": change(window=3, n_kv_heads=1),
    "experts": change(n_experts=5, n_active_experts=2),
    "learned": change(positions="learned", norm="layer", mlp="gelu_tanh", bias=True, tied=True, n_kv_heads=8),
    "sinusoidal, post-norm": change(positions="sinusoidal", norm_placement="post", embed_scale=True, embed_norm=True),
    "no positions, window": change(positions="none", window=5, mlp="relu", norm="layer"),
    "states": change(output="states"),
}


def texts(n_sequences=BATCH, length=CONTEXT, seed=1) -> torch.Tensor:
    return torch.randint(23, (n_sequences, length), generator=torch.Generator().manual_seed(seed))


def feed(model, cache, ids, parts, n_extra=0) -> list[torch.Tensor]:
    """Feeds ``parts``, a list of new tokens for each sequence, filled up behind with other tokens; real outputs."""
    got = [[] for _ in ids]
    for n_new in parts:
        n_columns = max(n_new) + n_extra
        chunk = texts(len(ids), n_columns, seed=99)
        for b, n in enumerate(n_new):
            chunk[b, :n] = ids[b, cache.lengths[b] : cache.lengths[b] + n]
        alike = min(n_new) == n_columns
        out = model(chunk, cache=cache, **({} if alike else {"lengths": n_new}))
        for b, n in enumerate(n_new):
            got[b].append(out[b, :n])
    return [torch.cat(rows) for rows in got]


@st.composite
def splits(draw, batch=BATCH, ragged=True):
    """Parts of a text: chunks and single steps, for each sequence its own unless ``ragged`` is False."""
    parts, left = [], [CONTEXT] * batch
    for _ in range(draw(st.integers(1, 7))):
        if min(left) == 0:
            break
        if ragged and draw(st.booleans()):
            n_new = [draw(st.integers(1, n)) for n in left]
        else:
            n_new = [draw(st.just(1) | st.integers(1, min(left)))] * batch
        parts.append(n_new)
        left = [n - new for n, new in zip(left, n_new)]
    return parts


@pytest.mark.parametrize("attend", BOTH)
@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=15)
@given(data=st.data())
def test_any_split_gives_the_uncached_outputs(data, name, attend, fill):
    model, ids = fill(Transformer(VARIANTS[name], attend=attend).double()), texts()
    parts, n_extra = data.draw(splits()), data.draw(st.sampled_from([0, 0, 2]))
    cache = Cache(model.config, BATCH, dtype=torch.float64)
    with torch.no_grad():
        whole = model(ids)
        got = feed(model, cache, ids, parts, n_extra)
    for b, rows in enumerate(got):
        assert cache.lengths[b] == len(rows)
        torch.testing.assert_close(rows, whole[b, : len(rows)], rtol=0, atol=1e-11)


@pytest.mark.parametrize("attend", BOTH)
@pytest.mark.parametrize("window", range(1, CONTEXT + 2))
def test_every_window_at_its_edge(window, attend, fill):
    """Single steps over the edge, a prefill that ends one before, at and one behind it, and chunks across it."""
    model, ids = fill(Transformer(change(window=window), attend=attend).double()), texts()
    with torch.no_grad():
        whole = model(ids)
        for first in {max(1, min(CONTEXT - 1, window + offset)) for offset in (-1, 0, 1)}:
            for size in (1, 2, CONTEXT):
                rest = CONTEXT - first
                parts = [first, *[size] * (rest // size), *([rest % size] if rest % size else [])]
                cache = Cache(model.config, BATCH, dtype=torch.float64)
                got = feed(model, cache, ids, [[n] * BATCH for n in parts])
                torch.testing.assert_close(torch.stack(got), whole, rtol=0, atol=1e-11)


@pytest.mark.parametrize("attend", BOTH)
@pytest.mark.parametrize("name", VARIANTS)
def test_unequal_texts_then_steps_then_unequal_chunks(name, attend, fill):
    model, ids = fill(Transformer(VARIANTS[name], attend=attend).double()), texts()
    parts = [[7, 1, 4], [1, 1, 1], [1, 1, 1], [2, 5, 1], [1, 1, 1], [1, 4, 3]]
    cache = Cache(model.config, BATCH, dtype=torch.float64)
    with torch.no_grad():
        got, whole = feed(model, cache, ids, parts), model(ids)
    assert cache.lengths == [13, 13, 11]
    for b, rows in enumerate(got):
        torch.testing.assert_close(rows, whole[b, : len(rows)], rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", VARIANTS)
def test_last_only_is_each_sequence_s_last_token(name, fill):
    model, ids = fill(Transformer(VARIANTS[name]).double()), texts()
    cache = Cache(model.config, BATCH, dtype=torch.float64)
    with torch.no_grad():
        whole = model(ids)
        for n_new in ([5, 1, 3], [1, 1, 1], [2, 4, 1]):
            chunk = texts(BATCH, max(n_new), seed=99)
            for b, n in enumerate(n_new):
                chunk[b, :n] = ids[b, cache.lengths[b] : cache.lengths[b] + n]
            last = model(chunk, lengths=n_new, cache=cache, last_only=True)
            assert last.shape == (BATCH, 1, whole.shape[-1])
            for b, n in enumerate(cache.lengths):
                torch.testing.assert_close(last[b, 0], whole[b, n - 1], rtol=0, atol=1e-11)


def test_types_of_tokens_pass_through_the_cache(fill):
    model, ids = fill(Transformer(change(n_token_types=3)).double()), texts()
    types = torch.randint(3, ids.shape, generator=torch.Generator().manual_seed(4))
    cache = Cache(model.config, BATCH, dtype=torch.float64)
    whole = model(ids, token_types=types)
    rows = [model(ids[:, a:b], token_types=types[:, a:b], cache=cache) for a, b in ((0, 6), (6, 7), (7, 13))]
    torch.testing.assert_close(torch.cat(rows, 1), whole, rtol=0, atol=1e-11)


def test_a_smaller_cache_serves_as_far_as_it_goes(fill):
    model, ids = fill(Transformer(LLAMA).double()), texts()
    cache = Cache(LLAMA, BATCH, 6, dtype=torch.float64)
    got = feed(model, cache, ids, [[4] * BATCH, [1] * BATCH, [1] * BATCH])
    torch.testing.assert_close(torch.stack(got), model(ids)[:, :6], rtol=0, atol=1e-11)
    with pytest.raises(ValueError, match=r"sequence 0 has 6 tokens.*1 more do not fit into its 6 positions"):
        model(ids[:, 6:7], cache=cache)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_number_types(dtype, fill):
    model, ids = fill(Transformer(LLAMA).to(dtype)), texts()
    cache = Cache(LLAMA, BATCH, dtype=dtype)
    with torch.no_grad():
        got, whole = torch.stack(feed(model, cache, ids, [[8] * BATCH, *[[1] * BATCH] * 5])), model(ids)
    assert got.dtype == cache.keys.dtype == dtype
    size = 60 if dtype == torch.float32 else 8  # roundings of the type that a logit may be off by, of the largest
    assert (got - whole).abs().max() <= size * torch.finfo(dtype).eps * whole.abs().max()


# --- what a call changes, and what it does not -----------------------------------------------------------------------


def snapshot(cache: Cache):
    return cache.keys.detach().clone(), cache.values.detach().clone(), list(cache.lengths)


def unchanged(cache: Cache, before) -> bool:
    keys, values, lengths = before
    return torch.equal(cache.keys, keys) and torch.equal(cache.values, values) and cache.lengths == lengths


def test_nothing_that_the_caller_passed_in_is_mutated_but_the_cache(fill):
    model = fill(Transformer(change(n_token_types=3)).double())
    ids, types, lengths = texts(length=5), texts(length=5) % 3, [5, 2, 4]
    given = ids.clone(), types.clone(), list(lengths)
    cache = Cache(model.config, BATCH, dtype=torch.float64)
    held = cache.lengths
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model(ids, lengths=lengths, token_types=types, cache=cache)
    assert torch.equal(ids, given[0]) and torch.equal(types, given[1]) and lengths == given[2]
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    assert cache.lengths == [5, 2, 4] and held == [0, 0, 0]  # what was read before is not rewritten


def test_only_new_positions_are_written(fill):
    model, ids = fill(Transformer(LLAMA).double()), texts()
    cache = Cache(LLAMA, BATCH, dtype=torch.float64)
    model(ids[:, :4], cache=cache)
    before = snapshot(cache)
    assert before[0][:, :, :, :4].abs().amin() > 0 and (before[0][:, :, :, 4:] == 0).all()
    model(ids[:, 4:7], lengths=[3, 1, 2], cache=cache)
    for now, old in zip((cache.keys, cache.values), before):
        assert torch.equal(now[:, :, :, :4], old[:, :, :, :4])
        for b, n in enumerate([7, 5, 6]):
            assert now[:, b, :, 4:n].abs().amin() > 0 and (now[:, b, :, n:] == 0).all()


IDS = texts(length=4)
FAILS = {  # the model's config, the cache's, what is passed; error; what the message names
    "a position too many": (LLAMA, LLAMA, (texts(length=9),), {}, ValueError, ["5 tokens", "9 more", "13 positions"]),
    "one row too long": (
        LLAMA, LLAMA, (texts(length=9),), {"lengths": [8, 9, 8]}, ValueError, ["sequence 1", "9 more"]),
    "past the model's context": (
        change(n_context=7), LLAMA, (IDS,), {}, ValueError, ["9 tokens long", "n_context=7"]),
    "another batch": (LLAMA, LLAMA, (IDS[:2],), {}, ValueError, ["holds 3 sequences", "has 2"]),
    "a batch of one": (LLAMA, LLAMA, (IDS[:1],), {}, ValueError, ["holds 3 sequences", "has 1"]),
    "id out of range": (LLAMA, LLAMA, (IDS + 20,), {}, ValueError, ["0 … 22"]),
    "wrong lengths": (LLAMA, LLAMA, (IDS,), {"lengths": [5, 4, 4]}, ValueError, ["1 … 4"]),
    "no batch": (LLAMA, LLAMA, (IDS[0],), {}, ValueError, ["(4,)"]),
    "types without a table": (LLAMA, LLAMA, (IDS,), {"token_types": IDS}, ValueError, ["n_token_types=0"]),
    "type out of range": (
        change(n_token_types=2), LLAMA, (IDS,), {"token_types": IDS * 0 + 2}, ValueError, ["0 … 1"]),
    "more layers": (change(n_layers=3), LLAMA, (IDS,), {}, ValueError, ["(2, 4, 4)", "(3, 4, 4)"]),
    "fewer layers": (change(n_layers=1), LLAMA, (IDS,), {}, ValueError, ["(2, 4, 4)", "(1, 4, 4)"]),
    "one key head": (change(n_kv_heads=1), LLAMA, (IDS,), {}, ValueError, ["(2, 4, 4)", "(2, 1, 4)"]),
    "other width": (change(d_model=16), LLAMA, (IDS,), {}, ValueError, ["(2, 4, 4)", "(2, 4, 2)"]),
    "an encoder": (change(causal=False), LLAMA, (IDS,), {}, ValueError, ["causal=False"]),
}  # fmt: skip


@pytest.mark.parametrize("attend", BOTH)
@pytest.mark.parametrize("case", FAILS)
def test_a_call_that_fails_changes_nothing(case, attend, fill):
    config, of_cache, args, how, error, names = FAILS[case]
    model = fill(Transformer(config, attend=attend).double())
    filled = fill(Transformer(of_cache, attend=attend).double())
    cache = Cache(of_cache, BATCH, dtype=torch.float64)
    filled(texts(length=5), cache=cache)
    before = snapshot(cache)
    with pytest.raises(error) as caught:
        model(*args, cache=cache, **how)
    assert all(name in str(caught.value) for name in names), str(caught.value)
    assert unchanged(cache, before)


def test_a_cache_of_another_number_type_is_refused(fill):
    model = fill(Transformer(LLAMA).double())
    cache = Cache(LLAMA, BATCH)
    before = snapshot(cache)
    with pytest.raises(ValueError, match=r"torch\.float32.*torch\.float64"):
        model(IDS, cache=cache)
    assert unchanged(cache, before)


def test_after_a_refused_call_the_text_goes_on(fill):
    model, ids = fill(Transformer(LLAMA).double()), texts()
    cache = Cache(LLAMA, BATCH, dtype=torch.float64)
    first = model(ids[:, :5], cache=cache)
    with pytest.raises(ValueError):
        model(ids, cache=cache)
    rest = model(ids[:, 5:], cache=cache)
    torch.testing.assert_close(torch.cat([first, rest], 1), model(ids), rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("config", "sizes", "names"),
    [
        (LLAMA, (0,), ["got 0"]),
        (LLAMA, (2, 0), ["n_context=13", "2 and 0"]),
        (LLAMA, (2, 14), ["n_context=13", "2 and 14"]),
        (change(causal=False), (2,), ["causal"]),
    ],
    ids=["no sequence", "no position", "past the context", "encoder"],
)
def test_impossible_caches_are_refused(config, sizes, names):
    with pytest.raises(ValueError) as caught:
        Cache(config, *sizes)
    assert all(name in str(caught.value) for name in names)


# --- how large it is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama-2-7b", "llama-3-70b", "mistral-7b", "gpt2-small", "smollm2-135m"])
def test_numbers_are_those_of_the_tensors(name):
    config = preset(name)
    cache = Cache(config, 3, 5, dtype=torch.bfloat16, device=torch.device("meta"))
    assert (cache.n_sequences, cache.n_positions) == (3, 5)
    per_token = (cache.keys.numel() + cache.values.numel()) // (3 * 5)
    assert numbers_per_token(config) == per_token
    assert bytes_per_token(config) == per_token * cache.keys.element_size()
    assert bytes_per_sequence(config, 5) == (cache.keys.nbytes + cache.values.nbytes) // 3
    assert bytes_per_token(config, n_bytes=4) == 2 * bytes_per_token(config)


def test_llama_2_keeps_half_a_mebibyte_for_each_token():
    """2 · 32 layers · 4096 · 2 bytes; 2 GiB for its whole context."""
    assert bytes_per_token(preset("llama-2-7b")) == 2**19
    assert bytes_per_sequence(preset("llama-2-7b"), 4096) == 2 * 2**30


def test_a_cache_is_allocated_for_the_whole_context_unless_told():
    assert Cache(LLAMA, 2).keys.shape == (2, 2, 4, CONTEXT, 4)
    assert Cache(LLAMA, 2).keys.dtype == torch.float32 and Cache(LLAMA, 2).lengths == [0, 0]


def test_behind_a_window_no_more_than_the_window_is_needed():
    mistral = preset("mistral-7b")
    whole = dataclasses.replace(mistral, window=None)
    for n in (1, 4095, 4096, 4097, 8192):
        assert bytes_per_sequence(mistral, n) == min(n, 4096) * bytes_per_token(mistral)
        assert bytes_per_sequence(whole, n) == n * bytes_per_token(mistral)


def test_fewer_key_heads_need_proportionally_less():
    many, grouped = (numbers_per_token(change(n_kv_heads=n)) for n in (8, 2))
    assert many == 4 * grouped == 8 * numbers_per_token(change(n_kv_heads=1))


def test_latent_attention_is_as_small_as_two_and_a_quarter_key_heads():
    """DeepSeek-V2's own comparison: 512 + 64 numbers are those of a key and a value for 2.25 heads of width 128."""
    assert latent_bytes_per_token(60, 512, 64) == 60 * 2.25 * (2 * 128) * 2
    assert latent_bytes_per_token(60, 512, 64, n_bytes=1) == 60 * 576


@pytest.mark.parametrize(
    "call",
    [
        lambda: bytes_per_token(LLAMA, n_bytes=0),
        lambda: bytes_per_sequence(LLAMA, 0),
        lambda: bytes_per_sequence(LLAMA, 5, n_bytes=-1),
        lambda: latent_bytes_per_token(0, 512, 64),
        lambda: latent_bytes_per_token(60, 0, 64),
        lambda: latent_bytes_per_token(60, 512, 64, n_bytes=0),
        lambda: latent_bytes_per_token(60, 512, -1),
    ],
)
def test_impossible_sizes_are_refused(call):
    with pytest.raises(ValueError, match="must be at least"):
        call()
