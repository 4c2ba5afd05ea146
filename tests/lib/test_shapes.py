"""The words in signatures are true, and the hook in conftest.py that checks them sees every function."""

import ast
import collections.abc
import contextlib
import importlib
import inspect
import pkgutil
import typing
from pathlib import Path

import pytest
import torch

import plainformer
from plainformer import shapes

LIBRARY = Path(plainformer.__file__).parent
MODULES = sorted(
    module.name for module in pkgutil.iter_modules([str(LIBRARY)]) if not module.ispkg and module.name != "__main__"
)


def functions() -> dict[str, ast.FunctionDef]:
    """Every function and method of the library, read from its source: 'attention.SelfAttention.forward'."""
    found = {}
    for module in MODULES:
        body = ast.parse((LIBRARY / f"{module}.py").read_text(encoding="utf-8")).body
        scopes = [(module, body), *((f"{module}.{c.name}", c.body) for c in body if isinstance(c, ast.ClassDef))]
        for scope, statements in scopes:
            found |= {f"{scope}.{f.name}": f for f in statements if isinstance(f, ast.FunctionDef)}
    return found


def the(name: str):
    """The plain function that stands in the library under a dotted name, still inside the hook's wrapper."""
    module, *path = name.split(".")
    thing = importlib.import_module(f"plainformer.{module}")
    for part in path:
        thing = inspect.getattr_static(thing, part)
    thing = getattr(thing, "fget", None) or getattr(thing, "func", None) or thing
    return getattr(thing, "__func__", thing)


PUBLIC = [name for name in functions() if not any(part.startswith("_") for part in name.split("."))]


def test_the_list_of_functions_is_whole():
    wanted = {
        "attention.attention_weights",
        "attention.attention",
        "attention.fast_attention",
        "attention.SelfAttention.forward",
        "tokens.Embedding.forward",
        "masks.causal",
        "masks.sliding_window",
        "masks.padding",
        "heads.split",
        "heads.MultiHeadAttention.forward",
        "positions.rotate",
        "norms.layer_norm",
        "norms.RMSNorm.forward",
        "mlp.route",
        "mlp.MixtureOfExperts.forward",
        "block.Block.forward",
        "inputs.embed",
        "model.Transformer.forward",
        "model.Transformer.states",
        "model.EncoderDecoder.encode",
        "cache.Cache.store",
        "cache.Cache.n_positions",
        "parameters.total",
        "config.preset",
    }
    assert wanted <= set(PUBLIC)
    for module in MODULES:  # the same list, asked of Python instead of read from the source
        thing = importlib.import_module(f"plainformer.{module}")
        for name, value in vars(thing).items():
            if inspect.isfunction(value) and value.__module__ == thing.__name__ and not name.startswith("_"):
                assert f"{module}.{name}" in PUBLIC
            if inspect.isclass(value) and issubclass(value, torch.nn.Module) and value.__module__ == thing.__name__:
                assert f"{module}.{name}.forward" in PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_hook_covers(name):
    assert getattr(the(name), "shapes_are_checked", False)
    typing.get_type_hints(the(name), include_extras=True)  # no annotation names something that is not there


def has_bare_tensor(hint) -> bool:
    """Whether a tensor without words stands anywhere in a hint; what a callable takes is checked at its own call."""
    if typing.get_origin(hint) in (typing.Annotated, collections.abc.Callable):
        return False
    return hint is torch.Tensor or any(has_bare_tensor(part) for part in typing.get_args(hint))


def test_bare_tensors_are_seen_wherever_they_stand():
    tensor, words = torch.Tensor, shapes.Float["a"]
    for hint in (tensor, tensor | None, tuple[tensor, int], list[tuple[words, tensor]] | None):
        assert has_bare_tensor(hint)
    for hint in (words, words | None, tuple[words, int], collections.abc.Callable[[tensor], tensor] | None):
        assert not has_bare_tensor(hint)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_tensor_in_a_public_signature_has_words(name):
    hints = typing.get_type_hints(the(name), include_extras=True)
    bare = [word for word, hint in hints.items() if has_bare_tensor(hint)]
    assert not bare, f"{name}: write Float/Int/Bool[words] in place of Tensor for {bare}"


@pytest.mark.parametrize("name", PUBLIC)
def test_nothing_in_a_public_signature_is_left_without_an_annotation(name):
    function, arguments = functions()[name], functions()[name].args
    named = [
        a for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if a.arg not in ("self", "cls")
    ]
    assert function.returns is not None
    assert not [argument.arg for argument in named if not argument.annotation and argument.arg not in ("self", "cls")]


def test_names_imported_elsewhere_are_the_checked_ones():
    from plainformer.attention import SelfAttention, attention

    assert attention.shapes_are_checked
    assert SelfAttention(4, 2).attend is attention  # captured as a default argument while the module was loaded


def test_words_are_plain_annotations():
    hint = shapes.Float["batch d_model"]
    assert typing.get_origin(hint) is typing.Annotated
    assert typing.get_args(hint) == (torch.Tensor, shapes.Float, "batch d_model")
    assert {shapes.Float["a"], shapes.Int["a"], shapes.Bool["a"]} == {
        shapes.Float["a"],
        shapes.Int["a"],
        shapes.Bool["a"],
    }
    assert len({shapes.Float["a"], shapes.Int["a"], shapes.Bool["a"]}) == 3


WRONG = {  # of attention_weights: the parameter, and words that are not true of it
    "result transposed": ("return", 'Float["... key query"]'),
    "result of another kind": ("return", 'Int["... query key"]'),
    "result with an axis too many": ("return", 'Float["head query key"]'),
    "one word for two sizes": ("k", 'Float["... query d_head"]'),
    "optional argument": ("mask", 'Bool["key query"] | None'),
    "argument of another kind": ("mask", 'Float["query key"] | None'),
}


@pytest.mark.parametrize("slip", [None, *WRONG])
def test_a_wrong_annotation_in_attention_is_caught(slip, tmp_path, import_checked, shape_error):
    tree = ast.parse(
        (LIBRARY / "attention.py").read_text(encoding="utf-8").replace("import Bool,", "import Int, Bool,")
    )
    [function] = [f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == "attention_weights"]
    if slip:
        name, words = WRONG[slip]
        annotation = ast.parse(words, mode="eval").body
        if name == "return":
            function.returns = annotation
        else:
            [argument] = [argument for argument in function.args.args if argument.arg == name]
            argument.annotation = annotation
    (tmp_path / "attention.py").write_text(ast.unparse(tree), encoding="utf-8")
    module = import_checked(tmp_path / "attention.py")
    with pytest.raises(shape_error, match="attention_weights") if slip else contextlib.nullcontext():
        module.attention_weights(torch.randn(3, 5), torch.randn(4, 5), torch.ones(3, 4, dtype=torch.bool))


def test_a_wrong_annotation_of_forward_is_caught_and_a_right_one_is_not(tmp_path, import_checked, shape_error):
    source = """
from __future__ import annotations
from torch import nn
from plainformer.shapes import Float

class Widen(nn.Module):
    def forward(self, x: Float["... position d_model"]) -> Float["... position {width}"]:
        return x.repeat(1, 2)

def pair(x: Float["a b"] | None) -> tuple[Float["a b"] | None, list[Float["{first} a"]]]:
    return x, [x.T]
"""
    (tmp_path / "right.py").write_text(source.format(width="d_wide", first="b"), encoding="utf-8")
    (tmp_path / "wrong.py").write_text(source.format(width="d_model", first="c a"), encoding="utf-8")
    right, wrong = (import_checked(tmp_path / f"{name}.py") for name in ("right", "wrong"))
    assert right.Widen()(torch.ones(3, 2)).shape == (3, 4)
    assert len(right.pair(torch.ones(3, 2))) == 2
    for call in (wrong.Widen(), wrong.pair):
        with pytest.raises(shape_error):
            call(torch.ones(3, 2))


def test_bad_input_meets_the_library_s_own_message_first():
    from plainformer.attention import attention

    with pytest.raises(ValueError, match="d_head"):  # the words would refuse it too, with a worse message
        attention(torch.randn(3, 5), torch.randn(4, 6), torch.randn(4, 7))


def test_source_can_still_be_shown():
    from plainformer.attention import attention

    assert inspect.getsource(attention).startswith("def attention(")
    assert list(inspect.signature(attention).parameters) == ["q", "k", "v", "mask", "causal"]
