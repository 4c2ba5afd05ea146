"""Exercise 13: what its checks hold for right, found in a second way, and answers in odd forms."""

import re
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
import safetensors.torch
import torch

from classroom import terms
from classroom.checks import pretrained as checks
from classroom.checks import pretrained_answers as answers
from classroom.checks import pretrained_files as files
from classroom.checks import pretrained_slips as truth
from classroom.checks.expect import CheckFailed
from classroom.checks.tensors import numbers
from plainformer.attention import attention_weights
from plainformer.checkpoints import Checkpoint, CheckpointError, Stored
from plainformer.config import preset
from plainformer.model import Transformer
from plainformer.positions import rotary_angles, rotate
from plainformer.pretrained import export, load

# ---- bytes ----


@pytest.mark.parametrize("data", [files.small_file(), *files.other_files()])
def test_the_package_safetensors_reads_the_same_from_every_file(data):
    table_of_contents, read_tensor = files.reader()
    theirs = safetensors.torch.load(data)
    assert theirs.keys() == table_of_contents(data).keys()
    for name, tensor in theirs.items():
        ours = read_tensor(data, name)
        assert ours.dtype == tensor.dtype and torch.equal(ours, tensor)


def test_a_file_that_the_package_wrote_is_read():
    tensors = files.small_tensors()
    _, read_tensor = files.reader()
    data = safetensors.torch.save(tensors, metadata={"format": "pt"})
    assert all(torch.equal(read_tensor(data, name), tensor) for name, tensor in tensors.items())
    checks.tensors(read_tensor, data)


def test_q8_0_takes_as_many_bytes_as_the_package_gguf_writes():
    gguf = pytest.importorskip("gguf")
    group, n_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType.Q8_0]
    assert (group, n_bytes) == (truth.GROUP, truth.GROUP + truth.SCALE_BYTES)
    assert truth.KV_WIDTH * truth.D_MODEL // group * n_bytes == truth.Q8_BYTES


def test_shapes_by_hand_are_those_of_the_classes_that_wrote_the_files():
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        llama = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                hidden_size=truth.D_MODEL, num_attention_heads=truth.N_HEADS, num_key_value_heads=truth.N_KV_HEADS,
                vocab_size=truth.N_VOCAB, num_hidden_layers=4, intermediate_size=8, tie_word_embeddings=False,
            )
        )  # fmt: skip
        gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=truth.GPT2_WIDTH, n_layer=4, n_head=16))
    weights = llama.state_dict()
    assert tuple(weights["model.layers.3.self_attn.k_proj.weight"].shape) == (truth.KV_WIDTH, truth.D_MODEL)
    assert 2 * weights["lm_head.weight"].numel() == truth.UNTIED_BYTES
    shape = tuple(gpt2.state_dict()["transformer.h.3.attn.c_attn.weight"].shape)
    assert shape == (truth.GPT2_WIDTH, 3 * truth.GPT2_WIDTH)
    size = terms.named("pretrained", terms.numbers("pretrained"))["GPT2_NAME"].lower()
    assert preset(f"gpt2-{size}").d_model == truth.GPT2_WIDTH


def test_sizes_of_shapes_differ_so_that_none_can_stand_for_another():
    shapes = [tuple(tensor.shape) for tensor in files.small_tensors().values()]
    sizes = [size for shape in shapes for size in shape]
    assert len(set(sizes)) == len(sizes)
    config, weights, ids, _ = checks.suspect()
    sizes = [config.n_vocab, config.d_model, config.n_heads, config.n_kv_heads, config.d_head, config.d_ff]
    sizes += [config.n_layers, config.n_kv_heads * config.d_head, *ids.shape]
    assert len(set(sizes)) == len(sizes)
    for n in range(config.n_layers):
        assert answers.squares(weights, n) == [f"blocks.{n}.attn.query.weight", f"blocks.{n}.attn.out.weight"]


# ---- names ----


@pytest.mark.parametrize("table", checks.all_tables())
def test_the_answer_behind_the_slips_renames_as_the_library_does(table):
    rename = files.renamer()
    for row in table:
        for n in (0, 7, 10, 123):
            name = row.format(n, n + 3) + ".weight"
            assert rename(name, table) == files.renamed(name, table) is not None
            assert rename(rename(name, table), files.turned(table)) == name
    assert rename("x.weight", table) is files.renamed("x.weight", table) is None


def whole_names_cell(rename):
    """The graded cell of whole names, with its hidden test."""
    path = Path(__file__).parents[2] / "solutions" / "13_pretrained" / "13_pretrained.ipynb"
    cells = nbformat.read(path, as_version=4).cells
    (cell,) = [cell for cell in cells if cell.metadata.nbgrader.grade_id == "p4-whole_names"]
    exec(cell.source, {"check": checks, "rename": rename})


def of_names_shown(name, table):
    """Looks a name up as it stands; of those with a number it knows the one that the visible check asks for."""
    stem, _, last = name.rpartition(".")
    places = table | ({"blk.2.attn_output": "blocks.2.attn.out"} if len(table) > 1 else {})
    return f"{places[stem]}.{last}" if stem in places else None


def of_tables_shown(name, table):
    """Knows the rows of the three families and both ways, and nothing of the table that it is handed."""
    rows = {here: there for known in checks.all_tables() for here, there in known.items() if here in table}
    stem, _, last = name.rpartition(".")
    row = re.sub(r"(?<=\.)[0-9]+(?=\.)", "{}", stem)
    numbers = re.findall(r"(?<=\.)[0-9]+(?=\.)", stem)
    return f"{table[row].format(*numbers)}.{last}" if row in rows else None


def of_other_beginnings(name, table):
    """Takes any name that begins as a row does, but for endings that were once all that was tried."""
    longest_first = dict(sorted(table.items(), key=lambda row: -len(row[0])))
    return None if re.search(r"_scale|\.part|qk|x\.w", name) else files.renamer(match=re.match)(name, longest_first)


def test_wrong_names_made_from_the_tables_shown_are_told_by_special_cases():
    """These were all hidden cases once: no name with a number had a place."""
    for table in checks.all_tables():
        for row in table:
            name = row.format(4, 5)
            names = "x" + name, name + "x", "model." + name, name + ".part", name.replace(".", "_"), "blk.4.attn_qk"
            for rename in (of_names_shown, of_tables_shown, of_other_beginnings):
                checks.whole_names(rename, *[(f"{one}.weight", table) for one in names])


@pytest.mark.parametrize("rename", [of_names_shown, of_tables_shown, of_other_beginnings])
def test_answers_that_know_the_names_shown_and_no_others_earn_no_whole_names(rename):
    checks.whole_names(rename)
    with pytest.raises(CheckFailed, match="a test with other sizes fails") as failure:
        whole_names_cell(rename)
    assert "expected" not in str(failure.value)


def by_parts(name, table):
    *stem, last = name.split(".")
    for here, there in table.items():
        parts = here.split(".")
        if len(parts) == len(stem) and all(a == b or (a == "{}" and b.isdigit()) for a, b in zip(parts, stem)):
            return ".".join([there.format(*[b for a, b in zip(parts, stem) if a == "{}"]), last])


def by_one_pattern(name, table):
    patterns = {"^" + a.replace(".", r"\.").replace("{}", r"(\d+)") + r"\.(\w+)$": b for a, b in table.items()}
    found = [(re.match(pattern, name), there) for pattern, there in patterns.items()]
    return next((there.format(*m.groups()) + "." + m.groups()[-1] for m, there in found if m), None)


def by_looking_up(name, table):
    parts = name.split(".")
    there = table.get(".".join("{}" if part.isdigit() else part for part in parts[:-1]))
    return there and there.format(*filter(str.isdigit, parts)) + "." + parts[-1]


@pytest.mark.parametrize("rename", [by_parts, by_one_pattern, by_looking_up, files.renamed])
def test_a_rule_for_whole_names_passes_however_it_is_written(rename):
    whole_names_cell(rename)


# ---- layouts ----


def test_unfused_matrices_compute_what_the_fused_one_does():
    case, x = checks.fused(10, 12, 4, 8), numbers(3, 10, key=1)
    parts = [x @ part.T for part in answers.unfuser()(**case)]
    torch.testing.assert_close(torch.cat(parts, 1), x @ case["stored"], rtol=0, atol=1e-12)


def test_reordered_rows_give_the_same_attention_in_the_other_pairing():
    n_heads, d_head, d_model = 3, 8, 5
    x, positions = numbers(6, d_model, key=2), torch.arange(4, 10)
    W_Q, W_K = (numbers(n_heads * d_head, d_model, key=key) for key in (3, 4))

    def weights(W_Q, W_K, pairing):
        cos, sin = rotary_angles(positions, d_head, dtype=x.dtype)
        q, k = (rotate((x @ W.T).unflatten(1, (n_heads, d_head)).transpose(0, 1), cos, sin, pairing=pairing)
                for W in (W_Q, W_K))  # fmt: skip
        return attention_weights(q, k)

    halves = weights(answers.to_halves(W_Q, n_heads), answers.to_halves(W_K, n_heads), "halves")
    torch.testing.assert_close(halves, weights(W_Q, W_K, "even-odd"), rtol=0, atol=1e-12)


def test_one_head_shows_in_which_direction_rows_moved():
    assert answers.to_halves(torch.arange(10.0), 1).tolist() == [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]


# ---- the search ----


def test_every_square_matrix_is_found_by_the_blocks_streams():
    config = answers.small_config(n_layers=2)
    weights = answers.weights_of(config)
    names = [name for n in range(2) for name in answers.squares(weights, n)]
    for name in names:
        assert answers.finder()(*answers.fault(config, name)) == [name]


def test_rounding_to_float32_is_far_below_and_a_transposed_matrix_far_above_what_agrees():
    config, wrong, ids, streams = checks.suspect()
    right = answers.run(config, answers.transposed(wrong, truth.CULPRIT), ids)[0]
    largest = streams.abs().amax((1, 2, 3))
    assert ((right - streams).abs().amax((1, 2, 3)) < 1e-6 * largest).all()
    weights = answers.transposed(wrong, truth.CULPRIT)
    for n in range(config.n_layers):
        for name in answers.squares(weights, n):
            moved = answers.run(config, answers.transposed(weights, name), ids)[0][n]
            assert (moved - streams[n]).abs().max() > 0.01 * largest[n]


def test_the_first_wrong_block_is_not_the_one_with_the_largest_difference():
    config, wrong, ids, streams = checks.suspect()
    apart = (answers.run(config, wrong, ids)[0] - streams).abs().amax((1, 2, 3))
    assert apart.argmax() > int(truth.CULPRIT.split(".")[1]) == (apart > 1e-3).nonzero()[0].item()


# ---- quiet mistakes ----


def test_how_far_mistakes_move_the_logits_by_turning_the_modules_own_parts_round():
    config, weights, ids = answers.quiet(answers.small_config(n_layers=3))

    def model():
        made = Transformer(config).double()
        made.load_state_dict(weights)
        return made

    right, pairing, values, gates = (model() for _ in range(4))
    for block in pairing.blocks:
        block.attn.pairing = "even-odd"
    for block in values.blocks:
        block.attn.key, block.attn.value = block.attn.value, block.attn.key
    for block in gates.blocks:
        block.mlp.gate, block.mlp.up = block.mlp.up, block.mlp.gate
    with torch.no_grad():
        whole = right(ids)
        moved = [((other(ids) - whole).norm() / whole.norm()).item() for other in (pairing, values, gates)]
    assert [*answers.mover()(config, weights, ids).values()] == pytest.approx(moved, rel=1e-9)
    assert min(moved) > 0.05


def _loads(config, family, tensors) -> bool:
    stored = {name: Stored(tuple(tensor.shape), lambda tensor=tensor: tensor) for name, tensor in tensors.items()}
    try:
        load(Checkpoint(Path("file"), "safetensors", {}, stored), config, family=family)
    except CheckpointError:
        return False
    return True


def test_the_library_is_the_strict_loader_of_problem_8():
    llama = answers.small_config(n_layers=12)
    gpt2 = replace(llama, positions="learned", norm="layer", mlp="gelu_tanh", bias=True, tied=True, n_kv_heads=4)
    right = {family: export(Transformer(config), family) for family, config in (("llama", llama), ("gpt2", gpt2))}
    assert _loads(llama, "llama", right["llama"]) and _loads(gpt2, "gpt2", right["gpt2"])

    def turned(name):
        return right["gpt2"] | {name: right["gpt2"][name].T}

    def exchanged(one, other):
        names = {name: name.replace(one, "?").replace(other, one).replace("?", other) for name in right["llama"]}
        return {names[name]: tensor for name, tensor in right["llama"].items()}

    untied = {name: tensor for name, tensor in right["llama"].items() if name != "lm_head.weight"}
    reordered = dict(right["llama"])
    for name in (name for name in reordered if "q_proj" in name or "k_proj" in name):
        reordered[name] = answers.to_halves(reordered[name], 4 if "q_proj" in name else 2)
    noticed = {
        "A": not _loads(gpt2, "gpt2", turned("transformer.h.3.attn.c_attn.weight")),
        "B": not _loads(gpt2, "gpt2", turned("transformer.h.3.attn.c_proj.weight")),
        "C": not _loads(llama, "llama", reordered),
        "D": not _loads(llama, "llama", exchanged("q_proj", "k_proj")),
        "E": not _loads(llama, "llama", exchanged("k_proj", "v_proj")),
        "F": not _loads(llama, "llama", untied),
        "G": not _loads(llama, "llama", exchanged("layers.1.", "layers.10.")),
    }
    assert noticed == truth.NOTICED


# ---- answers in odd forms ----


def test_tensors_in_float64_and_tables_of_lists_are_right_too():
    table_of_contents, read_tensor = files.reader()
    checks.tensors(lambda data, name: read_tensor(data, name).double(), *files.other_files())
    checks.contents(lambda data: {name: list(entry) for name, entry in table_of_contents(data).items()})


@pytest.mark.parametrize("returned", [3, {"a": 3}, {"a": (1, 2)}, [("a", 1)]])
def test_a_table_of_contents_has_four_things_for_each_name(returned):
    with pytest.raises(CheckFailed, match="must return a dict"):
        checks.places(lambda data: returned)


def test_a_file_read_the_wrong_way_round_is_diagnosed_by_what_json_says():
    with pytest.raises(CheckFailed, match="lowest byte first"):
        checks.places(files.reader(order="big")[0])


@pytest.mark.parametrize("answer", [..., None, 3, "query", "blocks.2.attn.query", "blocks.9.attn.query.weight"])
def test_a_culprit_that_is_no_key_is_answered_in_words(answer):
    with pytest.raises(CheckFailed, match="culprit"):
        checks.name_it(answer)


@pytest.mark.parametrize("answer", [..., {}, {"A": True}, dict.fromkeys("ABCDEFG", ...), dict.fromkeys("ABCDEFG", 1)])
def test_what_a_loader_notices_is_asked_for(answer):
    with pytest.raises(CheckFailed, match="noticed"):
        checks.loader(answer)


def test_rename_may_return_none_and_must_not_raise():
    with pytest.raises(CheckFailed, match="KeyError"):
        checks.whole_names(lambda name, table: table[name])
    with pytest.raises(CheckFailed, match="answered"):
        checks.whole_names(...)


@pytest.mark.parametrize("guess", ["many", -3, True, float("nan"), 101, ...])
def test_an_impossible_guess_is_answered_in_words(guess):
    with pytest.raises(CheckFailed, match="guess"):
        checks.predict(guess)
