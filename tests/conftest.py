"""What holds for every test: fixed seeds, one thread, quiet hypothesis, and shapes checked on every call.

The library writes shapes as words, ``q: Float["... query d_head"]``, and never reads them. While tests run,
an import hook puts a check around every function of ``plainformer``: after the call has returned, arguments
and result must fit their words (jaxtyping), and one word must mean one size within the call. Checking after
the call, not before, lets bad input reach the library's own message.
"""

from __future__ import annotations

import ast
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import random
import sys
import types
import typing
from pathlib import Path

import hypothesis
import jaxtyping
import nbval.kernel
import nbval.plugin
import numpy
import pytest
import torch
from beartype.door import is_bearable

from classroom import kernels

hypothesis.settings.register_profile(
    "plainformer",
    deadline=None,  # no test asserts a time
    derandomize=True,
    max_examples=40,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("plainformer")
torch.set_num_threads(1)
PATIENCE = 120  # seconds for what takes a moment: the machine may be busy with something else


class ShapeError(AssertionError):
    """A function of the library does not keep the shapes of its signature.

    No subclass of ``TypeError`` or ``ValueError``: a test that waits for one of these must not take it for theirs.
    """


def has_words(hint) -> bool:
    """Whether shape words stand anywhere in a type hint."""
    if typing.get_origin(hint) is typing.Annotated:
        return _is_shape(hint) or has_words(hint.__origin__)
    return any(has_words(part) for part in typing.get_args(hint) if not isinstance(part, str))


def as_jaxtyping(hint):
    """The same hint with ``Annotated[Tensor, Float, words]`` replaced by ``jaxtyping.Float[Tensor, words]``."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        if _is_shape(hint):
            kind, words = hint.__metadata__
            return getattr(jaxtyping, kind.__name__)[hint.__origin__, words]
        return as_jaxtyping(hint.__origin__)
    if not has_words(hint):
        return hint
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(as_jaxtyping(part) for part in parts)]  # noqa: UP007
    if isinstance(origin, type) and origin.__module__ == "collections.abc" and "Callable" in origin.__name__:
        return hint  # what a callable takes and gives is checked when it is called
    return origin[tuple(part if part is Ellipsis else as_jaxtyping(part) for part in parts)]


def _is_shape(hint) -> bool:
    return getattr(hint.__metadata__[0], "__module__", None) == "plainformer.shapes"


def with_shapes_checked(function):
    """The function, with its words checked after every call. Applied by the import hook to each ``def``."""

    @functools.cache
    def signature():  # at the first call: hints may name classes that stand further down in the module
        hints = typing.get_type_hints(function, include_extras=True)
        if not any(map(has_words, hints.values())):
            return None
        return inspect.signature(function), {name: as_jaxtyping(hint) for name, hint in hints.items()}

    @functools.wraps(function)
    def checked(*args, **kwargs):
        result = function(*args, **kwargs)
        if signature() is not None:
            parameters, hints = signature()
            values = {**parameters.bind(*args, **kwargs).arguments, "return": result}
            _check(function.__qualname__, values, hints)
        return result

    checked.shapes_are_checked = True
    return checked


def _check(name: str, values: dict, hints: dict) -> None:
    with jaxtyping.jaxtyped("context"):
        for word, hint in hints.items():
            if word in values and not is_bearable(values[word], hint):
                seen = {w: tuple(v.shape) for w, v in values.items() if isinstance(v, torch.Tensor)}
                raise ShapeError(f"{name}: {word} is not {hint}; shapes in this call: {seen}")


class CheckingLoader(importlib.machinery.SourceFileLoader):
    """Compiles a module with ``with_shapes_checked`` around each function and method."""

    def get_code(self, fullname):  # never from or into the cache of compiled files
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def source_to_code(self, data, path, **_):
        tree = ast.parse(data, path)
        for scope in ast.walk(tree):
            if isinstance(scope, ast.Module | ast.ClassDef):
                for statement in scope.body:
                    if isinstance(statement, ast.FunctionDef):
                        decorator = ast.Name("__with_shapes_checked__", ast.Load())
                        ast.copy_location(decorator, statement)
                        statement.decorator_list.append(decorator)  # innermost: below @property, @classmethod
        return compile(tree, path, "exec", dont_inherit=True)

    def exec_module(self, module):
        module.__with_shapes_checked__ = with_shapes_checked
        super().exec_module(module)


class CheckingFinder(importlib.abc.MetaPathFinder):
    """Finds ``plainformer`` where Python finds it, and loads it with the checks."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] != "plainformer":
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if type(spec.loader) is importlib.machinery.SourceFileLoader:
                    spec.loader = CheckingLoader(fullname, spec.origin)
                return spec
        return None


# ---- tests on several workers ----


def pytest_configure(config):
    """The kernels of nbval are spoken to through files: two workers may choose one port."""
    transport = kernels.by_files()
    nbval.kernel.KernelManager = functools.partial(nbval.kernel.KernelManager, config=transport.__enter__())
    config.add_cleanup(lambda: transport.__exit__(None, None, None))
    config.option.nbval_kernel_startup_timeout = PATIENCE


def pytest_collection_modifyitems(items):
    """nbval waits 5 seconds for an output that is already on its way: longer, if the machine does something else."""
    for item in items:
        if isinstance(item, nbval.plugin.IPyNbCell):
            item.output_timeout = PATIENCE


# Files in which each parameter has expensive fixtures of its own: its tests stay together, and the file is shared out.
SHARED_OUT = (
    "tests/exercises/test_graders.py",
    "tests/exercises/test_release.py",
    "tests/book/test_browser.py",
    "tests/grading/test_hostile.py",
    "tests/grading/test_same_marks.py",
)


def unit_of_work(nodeid: str) -> str:
    """What one worker runs from beginning to end: the tests of a file, or those of one parameter of it."""
    file, _, test = nodeid.partition("::")
    return f"{file}{''.join(test.partition('[')[1:])}" if file in SHARED_OUT else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """``--dist loadfile``, with some files in parts."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return unit_of_work(nodeid)

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


if "plainformer" in sys.modules:
    raise pytest.UsageError("plainformer was imported before tests/conftest.py: its shapes would go unchecked.")
sys.meta_path.insert(0, CheckingFinder())


@pytest.fixture
def shape_error() -> type[Exception]:
    """What the hook raises."""
    return ShapeError


@pytest.fixture
def import_checked():
    """Loads any Python file as the hook loads a module of the library."""

    def load(path: Path):
        loader = CheckingLoader(f"checked_{path.stem}", str(path))
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(module)
        return module

    return load


@pytest.fixture(autouse=True)
def same_numbers_every_time():
    """Seeds the three generators before each test, and keeps tensors small-threaded and in float32."""
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session")
def fill():
    """Gives a model numbers under which no part of it is without effect, the same in every number type.

    Biases are not zero, norms not one, and weights are so large that attention is far from uniform.
    """

    def filled(model: torch.nn.Module, *, seed: int = 0, spread: float = 0.3) -> torch.nn.Module:
        random = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                noise = torch.randn(parameter.shape, generator=random, dtype=torch.float64) * spread
                parameter.copy_(noise + 1 if "norm" in name and name.endswith("weight") else noise)
        return model.eval()

    return filled


@pytest.fixture(scope="session")
def patiently():
    """A function: the browser, whose new pages wait longer than Playwright's own 30 seconds; so does `expect`."""
    from playwright.sync_api import expect

    expect.set_options(timeout=1000 * PATIENCE)

    def patient(browser):
        new_context = browser.new_context

        def new_patient_context(**options):
            context = new_context(**options)
            context.set_default_timeout(1000 * PATIENCE)
            return context

        browser.new_context = new_patient_context
        return browser

    return patient
