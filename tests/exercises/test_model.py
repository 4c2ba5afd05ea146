"""Exercise 08: what its checks take for right, held against modules and formulas that they do not use."""

import inspect
import math
import tracemalloc

import nbformat
import pytest
import torch

from classroom.checks import model as checks
from classroom.checks import model_answers as known
from classroom.checks.expect import CheckFailed
from classroom.checks.tensors import numbers
from classroom.grading import course, marking, sandbox
from classroom.grading.authority import authority
from classroom.grading.task import Task
from plainformer.config import Config, preset
from plainformer.heads import split
from plainformer.model import Transformer
from plainformer.parameters import total

PROBLEM_2 = Config(
    n_vocab=known.N_VOCAB, d_model=known.D_MODEL, n_heads=known.N_HEADS, n_kv_heads=known.N_KV_HEADS, d_ff=known.D_FF,
    n_context=known.T, n_layers=known.N_LAYERS, positions="none",
)  # fmt: skip


def test_the_shapes_of_problem_2_are_those_of_a_model_that_runs():
    seen = {}

    def watching(q, k, v, mask=None, *, causal=False):
        weights = (q @ k.transpose(-2, -1)).softmax(-1)
        seen["queries"], seen["weights"] = q.shape, weights.shape
        return weights @ v

    model = Transformer(PROBLEM_2, attend=watching)
    block = model.blocks[-1]
    block.attn.key.register_forward_hook(lambda m, i, out: seen.update(keys=split(out, known.N_KV_HEADS).shape))
    block.attn.out.register_forward_hook(lambda m, i, out: seen.update(joined=i[0].shape))
    block.mlp.down.register_forward_hook(lambda m, i, out: seen.update(hidden=i[0].shape))
    block.register_forward_hook(lambda m, i, out: seen.update(leaves=out.shape))
    ids = torch.zeros(known.B, known.T, dtype=torch.int64)
    seen["logits"] = model(ids).shape
    assert seen == {**known.IN_ATTENTION, **known.AROUND, "logits": known.AT_THE_END["logits"]}
    assert model(ids, last_only=True).shape == known.AT_THE_END["last_only"]


def test_sizes_of_problem_2_differ_so_that_none_can_stand_for_another():
    c = PROBLEM_2
    sizes = [known.B, known.T, c.n_layers, c.d_model, c.n_heads, c.n_kv_heads, c.d_head, c.d_ff, c.n_vocab]
    assert len({*sizes, c.n_kv_heads * c.d_head}) == len(sizes) + 1 and c.d_ff != 4 * c.d_model


@pytest.mark.parametrize("name", ["gpt2-small", "llama-2-7b"])
def test_shapes_from_sizes_fit_the_weights_that_make_them(name):
    with torch.device("meta"):
        model = Transformer(preset(name))
    shapes = known.shapes_in(preset(name), 2, 3)
    for module, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear) and module in shapes:
            assert shapes[module] == (2, 3, layer.out_features)


def test_heads_are_pytorch_s():
    x, *weights = numbers(2, 5, 12), *(numbers(12, 12, key=n) for n in range(1, 5))
    theirs = torch.nn.MultiheadAttention(12, 3, bias=False, batch_first=True, dtype=torch.float64)
    theirs.in_proj_weight.data = torch.cat([W.T for W in weights[:3]])
    theirs.out_proj.weight.data = weights[3].T
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
    right, _ = theirs(x, x, x, attn_mask=mask, need_weights=False)
    torch.testing.assert_close(known.heads(x, *weights, n_heads=3), right.detach(), atol=1e-10, rtol=0)


def test_the_suspect_s_heads_hold_two_positions_each():
    """Eighteen pieces of six positions fill three heads in order: six pieces, two whole positions, a head."""
    from plainformer.attention import attention

    def suspect(x, W_Q, W_K, W_V, W_O, n_heads):
        B, T, d = x.shape
        q, k, v = ((x @ W).view(B, n_heads, T, d // n_heads) for W in (W_Q, W_K, W_V))
        return attention(q, k, v, causal=True).reshape(B, T, d) @ W_O

    right = [[source // 2 == reader // 2 and source <= reader for source in range(6)] for reader in range(6)]
    assert checks._sees(suspect) == right


def test_the_numbers_of_the_last_step():
    config = preset("smollm2-135m")
    logits = 4 * 16 * 2048 * config.n_vocab
    assert pytest.approx(logits / (4 * total(config))) == known.RATIO
    assert config.tied and math.isclose(known.RATIO, 11.973, abs_tol=5e-4)


def test_one_chunk_s_worth_of_copies_is_allowed_and_all_rows_are_not():
    def rows(states, targets, unembed, n_chunk, at_once=1):
        picked = zip(states.split(at_once * n_chunk), targets.split(at_once * n_chunk))
        return sum(-(x @ unembed.T).log_softmax(-1).gather(1, y[:, None]).sum().item() for x, y in picked) / len(states)

    checks.frugal(rows)
    with pytest.raises(CheckFailed, match="all rows are there at once"):
        checks.frugal(lambda **given: rows(**given, at_once=9))


def test_a_trace_without_the_model_s_own_shape_is_told_where_it_stands():
    def trace(model, ids):
        found = known.shapes_in(model.config, *ids.shape)
        del found[""]
        return found

    with pytest.raises(CheckFailed, match="begins with it"):
        checks.traced(trace)


@pytest.mark.parametrize(
    ("some_loss", "says"),
    [
        (lambda states, **given: 0.0, "too small: you have 0"),
        (lambda states, targets, unembed, n_chunk: known.lost(states[-4:], targets[-4:], unembed, 4), "96 rows is too"),
    ],
)
def test_who_leaves_rows_out_saves_no_memory(some_loss, says):
    with pytest.raises(CheckFailed, match=says):
        checks.frugal(some_loss)


def test_a_wrong_mean_costs_its_own_check_and_not_the_one_of_memory():
    def means(states, targets, unembed, n_chunk):
        parts = zip(states.split(n_chunk), targets.split(n_chunk))
        losses = [known.lost(x, y, unembed, n_chunk) for x, y in parts]
        return sum(losses) / len(losses)

    with pytest.raises(CheckFailed, match="shorter last chunk"):
        checks.chunked(means)
    checks.frugal(means, (130, 700, 3))


def test_a_loss_of_nothing_is_seen_where_the_system_counts(monkeypatch):
    def some(states, **rest):
        return 0.0 if len(states) > 500 else known.lost(states, **rest)

    checks.frugal(some)  # here nothing counts but the check itself
    monkeypatch.setattr("classroom.memory.growth", lambda call: call() or 0)
    checks.frugal(known.lost)
    with pytest.raises(CheckFailed, match="1,000 rows is too small"):
        checks.frugal(some)


# ---- answers that earned points without doing what is asked, and honest ones in other styles ----


def test_networks_give_the_shapes_that_their_sizes_say():
    for _ in range(20):
        network, ids, shapes = known.network()
        found, x = {}, ids
        for name, layer in network.named_children():
            inner = x
            for part, small in layer.named_children():
                inner = found[f"{name}.{part}"] = small(inner)
            x = found[name] = layer(x)
        found[""] = x
        assert {name: tuple(given.shape) for name, given in found.items()} == shapes
        assert len(list(network.named_modules())) == len(shapes) + 1  # and one that never runs


def by_name_from_the_configuration(model, ids):
    return known.shapes_in(model.config, *ids.shape)


def by_name_from_the_weights(model, ids):
    """No configuration needed: a layer's own weights say how wide its output is, and all the rest is a stream."""
    weights = {name: weight.shape for name, weight in model.named_parameters()}
    n_vocab, d_model = next(shape for shape in weights.values() if len(shape) == 2)
    found = {}
    for name, module in model.named_modules():
        own = weights.get(f"{name}.weight", ())
        if not isinstance(module, torch.nn.ModuleList):
            found[name] = (*ids.shape, own[0] if len(own) == 2 and "embed" not in name else d_model)
    return found | {"": (*ids.shape, n_vocab)}


@pytest.mark.parametrize("trace", [by_name_from_the_configuration, by_name_from_the_weights])
def test_a_table_of_shapes_by_name_is_no_trace(trace):
    checks.traced(trace)  # the names of a Transformer say what it gives
    with pytest.raises(CheckFailed):
        checks.traced(trace, *checks.networks())
    with pytest.raises(CheckFailed):
        checks.traced(trace, known.network())


def hooks_of_all(model, ids):
    found, names = {}, {module: name for name, module in model.named_modules()}

    def note(module, inputs, output):
        found[names[module]] = [*output.shape]

    hooks = [module.register_forward_hook(note) for module in names]
    try:
        model(ids)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def hooks_down_the_tree(model, ids):
    found, hooks = {}, []

    def watch(module, name):
        hooks.append(module.register_forward_hook(lambda m, i, out: found.update({name: out.shape})))
        for part, child in module.named_children():
            watch(child, f"{name}.{part}".lstrip("."))

    watch(model, "")
    model(ids)
    for hook in hooks:
        hook.remove()
    return found


def other_methods(model, ids):
    """No hooks at all: each module runs a method of ours for once."""
    found = {}

    def noting(name, forward):
        def run(*args, **kwargs):
            output = forward(*args, **kwargs)
            found[name] = tuple(output.shape)
            return output

        return run

    modules = dict(model.named_modules())
    for name, module in modules.items():
        module.forward = noting(name, module.forward)
    model(ids)
    for module in modules.values():
        del module.forward
    return found


@pytest.mark.parametrize("trace", [hooks_of_all, hooks_down_the_tree, other_methods])
def test_a_trace_may_look_at_any_network_in_any_way(trace):
    checks.traced(trace)
    checks.traced(trace, *checks.networks())
    checks.cleaned(trace)


IN_NUMPY = """
import numpy as np
def loss_in_chunks(states, targets, unembed, n_chunk):
    states, unembed = (x.numpy().astype("{kind}") for x in (states, unembed))
    n_rows, total = len(states), 0.0
    for start in range(0, n_rows, {rows}):
        table, right = states[start : start + {rows}] @ unembed.T, targets[start : start + {rows}].numpy()
        own = table[np.arange(len(table)), right].astype("d")
        np.exp(table, out=table)
        total += float((np.log(table.sum(1, dtype="d")) - own).sum())
    return total / n_rows
"""


def counting_python_and_numpy(call) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["d", "f"])
def test_a_table_of_logits_in_numpy_is_one_too(kind, monkeypatch):
    """torch does not see it, and written over in place it was smaller than what the heap was allowed to keep."""
    monkeypatch.setattr("classroom.memory.growth", counting_python_and_numpy)
    in_chunks, at_once = {}, {}
    exec(IN_NUMPY.format(kind=kind, rows="n_chunk"), in_chunks)
    exec(IN_NUMPY.format(kind=kind, rows="n_rows"), at_once)
    checks.frugal(in_chunks["loss_in_chunks"])
    with pytest.raises(CheckFailed, match="all rows are there at once"):
        checks.frugal(at_once["loss_in_chunks"])


ROW_BY_ROW = """
def loss_in_chunks(states, targets, unembed, n_chunk):
    losses = []
    for state, target in zip(states, targets):
        logits = unembed @ state
        losses.append(logits.logsumexp(0) - logits[target])
    return torch.stack(losses).mean()
"""
BY_NAME = """
def trace(model, ids):
    stream = (*ids.shape, model.config.d_model)
    found = {name: stream for name, _ in model.named_modules() if name != "blocks"}
    for name, _ in model.named_modules():
        if name.endswith((".key", ".value")):
            found[name] = (*ids.shape, model.config.n_kv_heads * model.config.d_head)
        if name.endswith((".gate", ".up")):
            found[name] = (*ids.shape, model.config.d_ff)
    return found | {"": (*ids.shape, model.config.n_vocab)}
"""
DOWN_THE_TREE = inspect.getsource(hooks_down_the_tree) + "trace = hooks_down_the_tree\n"


def test_boxes_see_who_looks_and_who_keeps_all():
    """One row's logits after the other's, with small tensors between them that stay: the heap may keep no gaps."""
    if why := sandbox.why_not():
        pytest.skip(why)
    name, points = "08_model", []
    for trace, loss in (
        ("", ROW_BY_ROW),
        (DOWN_THE_TREE, IN_NUMPY.format(kind="d", rows="n_chunk")),
        (BY_NAME, IN_NUMPY.format(kind="f", rows="n_rows")),
    ):
        notebook = nbformat.read(course.ROOT / "solutions" / name / f"{name}.ipynb", as_version=4)
        for answer, added in (("p5-answer", trace), ("p7-answer", loss)):
            next(c for c in notebook.cells if c.metadata.nbgrader.grade_id == answer).source += "\n" + added
        data = nbformat.writes(notebook).encode()
        task = Task(assignment=name, student="s", notebook=data, authority=authority(name)[name], key="k")
        marks = marking.mark(task).points
        points.append([marks[check] for check in ("p5-traced", "p5-cleaned", "p7-frugal")])
    marking.close()
    assert points == [[1, 1, 1], [1, 1, 1], [0, 0, 0]]
