"""Choosing a token: distributions against their definitions, drawn one value at a time; generating against the model
asked anew for the whole text."""

import functools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plainformer.attention import fast_attention
from plainformer.cache import Cache
from plainformer.config import Config
from plainformer.model import Transformer
from plainformer.sampling import generate, greedy, probabilities, sample

SIZES = {"n_vocab": 23, "d_model": 48, "n_heads": 8, "n_kv_heads": 4, "n_context": 13, "d_ff": 19, "n_layers": 2}
PROMPTS = [[3, 1, 4], [1], [5, 9, 2, 6, 5], [3, 5]]
scores_of_a_row = st.lists(st.integers(-40, 40).map(lambda n: n / 8), min_size=1, max_size=12)  # ties are common


def model_of(fill, **change) -> Transformer:
    return fill(Transformer(Config(**SIZES | change)).double())


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def definition(scores: list[float], temperature: float, top_k: int | None, top_p: float | None) -> list[float]:
    """What the docstring says, in plain Python."""
    kept = range(len(scores))
    if top_k is not None:
        least = sorted(scores)[-min(top_k, len(scores))]
        kept = [i for i in kept if scores[i] >= least]
    weight = {i: math.exp(scores[i] / temperature) for i in kept}
    weight = {i: w / math.fsum(weight.values()) for i, w in weight.items()}
    if top_p is not None and top_p < 1:
        likeliest, reached = [], 0.0
        for i in sorted(weight, key=lambda i: (-scores[i], i)):
            if reached >= top_p:
                break
            likeliest.append(i)
            reached += weight[i]
        weight = {i: weight[i] / reached for i in likeliest}
    return [weight.get(i, 0.0) for i in range(len(scores))]


@given(
    scores_of_a_row,
    st.sampled_from([0.25, 0.7, 1.0, 3.0]),
    st.sampled_from([None, 1, 2, 5, 99]),
    st.sampled_from([None, 0.001, 0.3, 0.77, 0.999, 1.0]),
)
def test_probabilities_are_what_their_definition_says(scores, temperature, top_k, top_p):
    got = probabilities(torch.tensor(scores), temperature=temperature, top_k=top_k, top_p=top_p)
    assert got.dtype == torch.float64
    assert got.tolist() == pytest.approx(definition(scores, temperature, top_k, top_p), abs=1e-12)


def test_top_p_keeps_the_smallest_set_that_reaches_p():
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log()
    for top_p, n_kept in [(0.1, 1), (0.49, 1), (0.51, 2), (0.74, 2), (0.76, 3), (0.88, 4), (1.0, 4)]:
        got = probabilities(logits, top_p=top_p)
        assert (got > 0).tolist() == [i < n_kept for i in range(4)]
        assert got.sum().item() == pytest.approx(1)
    # a set that reaches p exactly is enough: two scores alike have exactly one half each
    assert (probabilities(torch.zeros(2), top_p=0.5) > 0).tolist() == [True, False]


def test_ties_with_the_k_th_score_all_stay():
    got = probabilities(torch.tensor([1.0, 3.0, 2.0, 2.0, 0.0]), top_k=2)
    assert (got > 0).tolist() == [False, True, True, True, False] and got[2] == got[3]


def test_rows_do_not_mix():
    logits = torch.randn(3, 4, 17)
    choice = {"temperature": 0.7, "top_k": 9, "top_p": 0.8}
    alone = torch.stack([probabilities(row, **choice) for row in logits.flatten(0, 1)]).view(3, 4, 17)
    torch.testing.assert_close(probabilities(logits, **choice), alone)
    assert greedy(logits).equal(logits.argmax(-1))
    assert sample(logits, generator=seeded()).shape == (3, 4)
    assert sample(logits[0, 0], generator=seeded()).shape == ()


def test_draws_follow_the_distribution():
    """Pearson's statistic over the six kept tokens: above 20.5 with probability 0.001 (5 degrees of freedom)."""
    logits, n_draws = torch.tensor([2.0, -1.0, 0.5, 1.0, 0.0, 1.5, -3.0]), 20_000
    for choice in ({"top_k": 6}, {"temperature": 2.0, "top_k": 6}):
        expected = n_draws * probabilities(logits, **choice)
        drawn = sample(logits.expand(n_draws, -1), **choice, generator=seeded(5)).bincount(minlength=7)
        assert drawn[6] == 0
        assert ((drawn - expected)[:6] ** 2 / expected[:6]).sum() < 20.5
        others = n_draws * probabilities(logits, temperature=1.1, top_k=6)  # near, and yet told apart
        assert ((drawn - others)[:6] ** 2 / others[:6]).sum() > 20.5


def test_a_seed_repeats_and_another_differs():
    logits = torch.randn(50, 100)
    first, again, other = (sample(logits, generator=seeded(seed)) for seed in (1, 1, 2))
    assert first.equal(again) and not first.equal(other)
    state = torch.get_rng_state()
    sample(logits, generator=seeded())
    assert torch.get_rng_state().equal(state), "the caller's generator, no other"


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-300])
def test_a_small_temperature_is_greedy(temperature):
    logits = torch.randn(40, 30) * 1000
    assert sample(logits, temperature=temperature, generator=seeded()).equal(greedy(logits))
    assert sample(logits, temperature=5000.0, top_k=1, generator=seeded()).equal(greedy(logits))
    assert sample(logits, temperature=5000.0, top_p=1e-9, generator=seeded()).equal(greedy(logits))


def test_scores_of_minus_infinity_are_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, -1.0]])
    assert probabilities(logits, temperature=0.5)[0, [0, 2]].tolist() == [0, 0]
    assert probabilities(logits, top_k=3)[0, [0, 2]].tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_types_are_computed_in_float64(dtype):
    logits = torch.randn(3, 50).to(dtype)
    assert probabilities(logits).equal(probabilities(logits.double()))


@pytest.mark.parametrize(
    ("choice", "error", "message"),
    [
        ({"temperature": 0}, ValueError, "temperature=0 must be positive.*greedy"),
        ({"temperature": -1.5}, ValueError, "temperature=-1.5 must be positive"),
        ({"temperature": math.inf}, ValueError, "temperature=inf"),
        ({"temperature": math.nan}, ValueError, "temperature=nan"),
        ({"temperature": True}, TypeError, "temperature=True"),
        ({"temperature": None}, TypeError, "temperature=None"),
        ({"top_k": 0}, ValueError, "top_k=0 must be at least 1"),
        ({"top_k": -3}, ValueError, "top_k=-3"),
        ({"top_k": 2.0}, TypeError, "top_k=2.0 must be a number without a fraction"),
        ({"top_p": 0}, ValueError, r"top_p=0 must lie in \(0, 1\]"),
        ({"top_p": 1.01}, ValueError, "top_p=1.01"),
        ({"top_p": math.nan}, ValueError, "top_p=nan"),
        ({"top_p": "0.9"}, TypeError, "top_p='0.9'"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused(choice, error, message):
    with pytest.raises(error, match=message):
        sample(torch.zeros(1, 3), **choice, generator=seeded())


@pytest.mark.parametrize("bad", [[math.nan, 1.0], [math.inf, 1.0], [-math.inf, -math.inf]])
def test_scores_that_are_no_numbers_are_refused(bad):
    for choose in (greedy, probabilities):
        with pytest.raises(ValueError, match="NaN"):
            choose(torch.tensor([[0.0, 1.0], bad]))
    with pytest.raises(TypeError, match="int64"):
        greedy(torch.tensor([1, 2]))


# --- generating ------------------------------------------------------------------------------------------------------


def anew(model: Transformer, prompt: list[int], n_new: int, choose=greedy) -> list[int]:
    """Without cache, batch or ``last_only``: the whole text through the model, for each token again."""
    text = list(prompt)
    for _ in range(n_new):
        with torch.no_grad():
            text.append(choose(model(torch.tensor([text]))[:, -1]).item())
    return text[len(prompt) :]


VARIANTS = {
    "rotary, grouped": {},
    "learned positions": {"positions": "learned", "norm": "layer", "tied": True, "bias": True},
    "window": {"window": 3},
    "experts": {"n_experts": 5, "n_active_experts": 2},
}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_a_batch_of_unequal_prompts_gives_what_each_gives_alone_and_uncached(variant, fill):
    model = model_of(fill, **variant)
    expected = [anew(model, prompt, 8) for prompt in PROMPTS]
    assert len({*map(tuple, expected)}) == len(PROMPTS), "prompts that end alike would hide a mix-up"
    assert generate(model, PROMPTS, 8) == expected
    assert [generate(model, [prompt], 8)[0] for prompt in PROMPTS] == expected
    model.attend = fast_attention
    assert generate(model, PROMPTS, 8) == expected


def test_prompts_may_be_a_tensor(fill):
    model = model_of(fill)
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    assert (
        generate(model, ids, 4)
        == generate(model, [[1, 2, 3], [4, 5, 6]], 4)
        == [anew(model, p, 4) for p in ids.tolist()]
    )


def test_sampling_takes_the_generator_s_draws_one_after_the_other(fill):
    model = model_of(fill)
    choice = {"temperature": 2.0, "top_k": 20, "top_p": 0.95}
    ours = generate(model, [PROMPTS[0]], 9, choose=functools.partial(sample, **choice, generator=seeded(3)))[0]
    assert ours == anew(model, PROMPTS[0], 9, functools.partial(sample, **choice, generator=seeded(3)))
    assert ours != generate(model, [PROMPTS[0]], 9, choose=functools.partial(sample, **choice, generator=seeded(4)))[0]


def test_a_sequence_ends_before_a_stop_id_and_the_others_go_on(fill):
    model = model_of(fill)
    full = generate(model, PROMPTS, 8)
    stop = {full[0][3], full[1][0]}
    expected = [row[: next((i for i, token in enumerate(row) if token in stop), 8)] for row in full]
    assert len({*map(len, expected)}) > 1 and expected[1] == []
    assert generate(model, PROMPTS, 8, stop=stop) == generate(model, PROMPTS, 8, stop=[*stop]) == expected


def test_it_stops_asking_when_every_sequence_has_ended(fill):
    model, calls = model_of(fill), []
    model.register_forward_hook(lambda *_: calls.append(1))
    assert generate(model, PROMPTS, 8, stop=range(23)) == [[]] * 4 and len(calls) == 1
    generate(model, PROMPTS, 8)
    assert len(calls) == 1 + 8


def test_each_token_is_handed_out_as_it_comes(fill):
    model, events = model_of(fill), []
    model.register_forward_pre_hook(lambda *_: events.append("asked"))
    new = generate(model, PROMPTS[:2], 3, on_token=lambda b, token: events.append((b, token)))
    assert events == [e for step in range(3) for e in ("asked", (0, new[0][step]), (1, new[1][step]))]
    events.clear()
    generate(model, [PROMPTS[0]], 3, stop=[new[0][1]], on_token=lambda b, token: events.append((b, token)))
    assert events == ["asked", (0, new[0][0]), "asked"]


def test_a_cache_is_continued(fill):
    model = model_of(fill)
    cache = Cache(model.config, 2, dtype=torch.float64)
    first = generate(model, [[1, 2, 3], [4]], 2, cache=cache)
    assert cache.lengths == [4, 2]  # all but the last new token, which nobody has read
    more = generate(model, [[first[0][-1], 7], [first[1][-1]]], 5, cache=cache)
    assert more[0] == anew(model, [1, 2, 3, *first[0], 7], 5)
    assert more[1] == anew(model, [4, *first[1]], 5)


def test_nothing_of_the_caller_changes(fill):
    model = model_of(fill)
    prompts, ids, stop = [list(p) for p in PROMPTS], torch.tensor([[1, 2]]), {99}
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    generate(model, prompts, 5, stop=stop)
    generate(model, ids, 5)
    assert prompts == PROMPTS and ids.tolist() == [[1, 2]] and stop == {99}
    assert all(weight.equal(before[name]) for name, weight in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters()) and torch.is_grad_enabled()


def test_the_context_may_be_filled_to_the_last_position(fill):
    model = model_of(fill)
    assert generate(model, [[1] * 13], 1) and generate(model, [[1] * 6], 8)
    for prompt, n_new in [(14, 1), (13, 2), (6, 9)]:
        with pytest.raises(
            ValueError, match=rf"prompt 1 has {prompt} tokens; with {n_new} new .*context of 13 positions"
        ):
            generate(model, [[1], [1] * prompt], n_new)
    cache = Cache(model.config, 1, 9, dtype=torch.float64)
    generate(model, [[1] * 4], 2, cache=cache)
    with pytest.raises(ValueError, match=r"prompt 0 has 4 tokens after 5 in the cache.*cache of 9"):
        generate(model, [[1] * 4], 2, cache=cache)
    assert cache.lengths == [5], "refused before it was touched"


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[1], []], "prompt 1 is empty"),
        ([], "one list of ids"),
        ([1, 2], "One prompt is a batch of 1"),
        ("ab", "one list"),
    ],
)
def test_prompts_that_are_none_are_refused(ids, message, fill):
    with pytest.raises(ValueError, match=message):
        generate(model_of(fill), ids, 1)


@pytest.mark.parametrize("n_new", [0, -1, 2.0, True])
def test_a_number_of_tokens_is_a_positive_int(n_new, fill):
    with pytest.raises(ValueError, match="n_new"):
        generate(model_of(fill), [[1]], n_new)


@pytest.mark.parametrize("change", [{"causal": False}, {"output": "states"}])
def test_a_model_that_predicts_no_next_token_is_refused(change, fill):
    with pytest.raises(ValueError, match="causal model that scores its vocabulary"):
        generate(model_of(fill, **change), [[1]], 1)


def test_ids_outside_the_vocabulary_are_refused(fill):
    with pytest.raises(ValueError, match="23"):
        generate(model_of(fill), [[1, 23]], 1)
