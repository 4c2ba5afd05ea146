"""A Config refuses what cannot be built and says why; presets are all there."""

import ast
import copy
import dataclasses
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import plainformer
from plainformer.config import Config, preset, presets, published

LIBRARY = Path(plainformer.__file__).parent
SIZES = {"n_vocab": 11, "d_model": 24, "n_heads": 6, "n_kv_heads": 3, "n_context": 7, "d_ff": 5, "n_layers": 2}


def test_sizes_are_required_and_choices_are_not():
    config = Config(**SIZES)
    assert {name: getattr(config, name) for name in SIZES} == SIZES
    assert config.d_head == 24 // 6
    fields = {field.name: field.default for field in dataclasses.fields(Config)}
    assert {name for name, default in fields.items() if default is dataclasses.MISSING} == set(SIZES)
    with pytest.raises(TypeError):
        Config(*SIZES.values())


@pytest.mark.parametrize("name", SIZES)
def test_a_missing_size_is_named(name):
    with pytest.raises(TypeError, match=name):
        Config(**{size: n for size, n in SIZES.items() if size != name})


def test_nothing_given_is_refused():
    with pytest.raises(TypeError, match="n_vocab"):
        Config()


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("name", SIZES)
def test_a_size_below_one_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"{name}={value} .*at least 1"):
        Config(**SIZES | {name: value})


@pytest.mark.parametrize("value", [2.0, "2", True, None], ids=repr)
@pytest.mark.parametrize("name", SIZES)
def test_a_size_of_another_type_is_refused(name, value):
    with pytest.raises(TypeError, match=rf"{name}={value!r} .*int.*{type(value).__name__}"):
        Config(**SIZES | {name: value})


OPTIONAL = {"n_encoder_layers": 0, "n_token_types": 0, "n_experts": 1, "n_active_experts": 1, "window": 1}


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_count_that_has_a_default_is_checked_too(name):
    least = OPTIONAL[name]
    assert getattr(Config(**SIZES, **{name: least}), name) == least
    with pytest.raises(ValueError, match=rf"{name}={least - 1} .*at least {least}"):
        Config(**SIZES, **{name: least - 1})
    for value in (2.0, "2", True):
        with pytest.raises(TypeError, match=rf"{name}={value!r} .*int"):
            Config(**SIZES, **{name: value})


@pytest.mark.parametrize("name", ["norm_eps", "rope_base"])
def test_a_real_number_is_positive_and_finite(name):
    assert getattr(Config(**SIZES, **{name: 2}), name) == 2
    for value in (0, -1e-5, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=rf"{name}={value} must be positive"):
            Config(**SIZES, **{name: value})
    for value in ("1", True, None):
        with pytest.raises(TypeError, match=rf"{name}={value!r} must be a number"):
            Config(**SIZES, **{name: value})


def test_attention_s_bias_follows_the_other_biases_unless_it_is_chosen():
    for bias in (True, False):
        assert Config(**SIZES, bias=bias).has_attn_bias is bias
        for chosen in (True, False):
            assert Config(**SIZES, bias=bias, attn_bias=chosen).has_attn_bias is chosen


@pytest.mark.parametrize("value", [1, 0, "yes", None], ids=repr)
@pytest.mark.parametrize("name", ["bias", "tied", "causal", "embed_scale", "embed_norm"])
def test_a_switch_of_another_type_is_refused(name, value):
    with pytest.raises(TypeError, match=rf"{name}={value!r} .*True or False"):
        Config(**SIZES, **{name: value})


TWO_STACKS = {"n_encoder_layers": 3, "positions": "sinusoidal"}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"n_heads": 5}, ["d_model=24", "n_heads=5"]),
        ({"n_kv_heads": 4}, ["n_heads=6", "n_kv_heads=4"]),
        ({"n_kv_heads": 12}, ["n_heads=6", "n_kv_heads=12"]),
        ({"d_model": 18, "positions": "rotary"}, ["rotary", "3"]),
        ({"d_model": 9, "n_heads": 3, "n_kv_heads": 1, "positions": "sinusoidal"}, ["sinusoidal", "d_model=9"]),
        ({"n_experts": 3, "n_active_experts": 4}, ["n_active_experts=4", "n_experts=3"]),
        ({"n_active_experts": 2}, ["n_active_experts=2", "n_experts=1"]),
        ({"window": 3, "causal": False}, ["window=3", "causal=True"]),
        ({"n_encoder_layers": 3}, ["n_encoder_layers=3", "positions='rotary'", "'sinusoidal'"]),
        ({**TWO_STACKS, "positions": "learned"}, ["positions='learned'"]),
        ({**TWO_STACKS, "window": 3}, ["window=3", "n_encoder_layers=3"]),
        ({**TWO_STACKS, "causal": False, "n_token_types": 2}, ["causal=False", "n_token_types=2"]),
        ({**TWO_STACKS, "embed_norm": True}, ["embed_norm=True"]),
        ({**TWO_STACKS, "output": "pooled"}, ["output='pooled'"]),
    ],
    ids=str,
)
def test_sizes_that_do_not_go_together_are_refused(change, names):
    with pytest.raises(ValueError) as caught:
        Config(**SIZES | change)
    assert all(name in str(caught.value) for name in names)


def test_odd_widths_are_fine_where_nothing_comes_in_pairs():
    odd = SIZES | {"d_model": 9, "n_heads": 3, "n_kv_heads": 1}
    assert Config(**odd, positions="learned").d_head == Config(**odd, positions="none").d_head == 3


CHOICES = {
    "norm": (["layer", "rms"], "layers"),
    "norm_placement": (["pre", "post"], "prenorm"),
    "mlp": (["relu", "gelu", "gelu_tanh", "swiglu"], "swigl"),
    "pairing": (["halves", "even-odd"], "half"),
    "output": (["logits", "states", "pooled"], "logit"),
    "positions": (["none", "sinusoidal", "learned", "rotary"], "rotery"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices(name):
    known, misspelt = CHOICES[name]
    for value in known:
        assert getattr(Config(**SIZES, **{name: value}), name) == value
    with pytest.raises(ValueError, match=f"{name}='{misspelt}'.*did you mean") as caught:
        Config(**SIZES, **{name: misspelt})
    assert all(repr(value) in str(caught.value) for value in known)
    for value in (None, 3, ["rms"], "zzzzzz"):
        with pytest.raises(ValueError, match=name) as caught:
            Config(**SIZES, **{name: value})
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("n_layer", "n_layers"), ("d_modell", "d_model"), ("n_vocabulary", "n_vocab"), ("n_kv_head", "n_kv_heads")],
)
def test_an_unknown_field_gets_the_nearest_name(given, meant):
    with pytest.raises(TypeError, match=rf"no field '{given}'.*did you mean '{meant}'"):
        Config(**SIZES, **{given: 3})
    with pytest.raises(TypeError, match="no field 'qqqq'") as caught:
        Config(**SIZES, qqqq=1)
    assert "did you mean" not in str(caught.value)


def test_frozen():
    config = Config(**SIZES)
    for name in ("n_layers", "norm", "d_head", "new"):
        with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
            setattr(config, name, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        del config.n_layers


def test_replaced_copied_and_pickled():
    config = Config(**SIZES, tied=True, norm="layer")
    assert dataclasses.replace(config, n_layers=9) == Config(**SIZES | {"n_layers": 9}, tied=True, norm="layer")
    with pytest.raises(ValueError, match="n_heads=7"):
        dataclasses.replace(config, n_heads=7)
    with pytest.raises(TypeError, match="did you mean 'n_heads'"):
        dataclasses.replace(config, n_head=6)
    for again in (copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert again == config and hash(again) == hash(config) and again.d_head == 4
    assert config != Config(**SIZES) and len({config, copy.copy(config), Config(**SIZES)}) == 2
    assert eval(repr(config)) == config


# --- presets ---------------------------------------------------------------------------------------------------------


def test_presets_are_the_models_of_the_families():
    files = (LIBRARY / "families").glob("*.toml")
    models = [model for file in files for model in tomllib.loads(file.read_text("utf-8"))["models"]]
    assert sorted(models) == sorted(presets()) and len(set(models)) == len(models)
    assert {
        "vaswani-base", "gpt2-small", "gpt2-xl", "gpt3-175b", "llama-2-7b", "llama-2-70b", "llama-3-8b", "llama-3-70b",
        "mistral-7b", "mixtral-8x7b", "source-003", "bert-base", "bge-small-en-v1.5", "smollm2-135m",
        "all-minilm-l6-v2",
    } <= set(presets())  # fmt: skip
    assert presets() == sorted(presets())


ROUNDED = {"gpt3-175b": "175.0 B", "vaswani-base": "65 M"}  # as the papers print them; no checkpoint was released


@pytest.mark.parametrize("name", presets())
def test_preset_loads(name):
    assert isinstance(preset(name), Config)
    assert preset(name) == preset(name)
    if name in ROUNDED:
        with pytest.raises(
            ValueError, match=rf"of {name} only a rounded figure was published: {ROUNDED[name]}.*20\d\d"
        ):
            published(name)
    else:
        assert isinstance(published(name), int) and published(name) > 0


@pytest.mark.parametrize("family", sorted((LIBRARY / "families").glob("*.toml")), ids=lambda file: file.stem)
def test_every_published_count_has_its_source(family):
    for model in tomllib.loads(family.read_text("utf-8"))["models"].values():
        exact, rounded = {"n_parameters", "source"}, {"printed", "within", "source"}
        assert set(model["published"]) - {"n_active"} in (exact, rounded) and model["published"]["source"]
        assert 0 < model["published"].get("within", 0.01) < 0.05  # a rounded figure that allows anything checks nothing


@pytest.mark.parametrize("ask", [preset, published])
def test_an_unknown_preset_gets_the_nearest_name(ask):
    with pytest.raises(ValueError, match=r"'gpt-2-small' .*did you mean 'gpt2-small'.*llama-2-7b"):
        ask("gpt-2-small")
    with pytest.raises(ValueError, match=r"LLaMA-2-7B.*did you mean 'llama-2-7b'"):
        ask("LLaMA-2-7B")
    with pytest.raises(ValueError, match="no preset is called 3"):
        ask(3)


# --- the package as a whole ------------------------------------------------------------------------------------------


def test_importing_prints_nothing():
    modules = [f"plainformer.{file.stem}" for file in sorted(LIBRARY.glob("*.py")) if not file.stem.startswith("__")]
    ran = subprocess.run(
        [sys.executable, "-c", "import importlib\nfor name in " + repr(modules) + ": importlib.import_module(name)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (ran.stdout, ran.stderr) == ("", "")


@pytest.mark.parametrize("file", sorted(LIBRARY.rglob("*.py")), ids=lambda file: str(file.relative_to(LIBRARY)))
def test_the_library_imports_torch_and_the_standard_library_alone(file):
    tree = ast.parse(file.read_text(encoding="utf-8"))
    at_the_top = {id(node) for node in ast.walk(tree)}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            at_the_top -= {id(node) for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write imports in full"
            names = [node.module]
        else:
            continue
        for name in {name.partition(".")[0] for name in names} - {"torch", "plainformer", *sys.stdlib_module_names}:
            assert name in ("gguf", "safetensors"), f"{file.name} imports {name}"
            assert file.name in ("pretrained.py", "checkpoints.py") and id(node) not in at_the_top
