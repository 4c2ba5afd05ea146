"""The examples in docstrings give what they say, and the library's reference lists every module."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import plainformer

MODULES = [m.name for m in pkgutil.iter_modules(plainformer.__path__) if m.name not in ("__main__", "families")]
REFERENCE = Path(__file__).parents[2] / "chapters" / "appendix" / "library.md"


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name):
    failed, _ = doctest.testmod(importlib.import_module(f"plainformer.{name}"))
    assert failed == 0


def test_there_are_examples():
    found = [doctest.DocTestFinder().find(importlib.import_module(f"plainformer.{name}")) for name in MODULES]
    assert sum(len(test.examples) for tests in found for test in tests) >= 5


def test_the_reference_lists_every_module():
    text = REFERENCE.read_text(encoding="utf-8")
    assert [name for name in MODULES if f".. automodule:: plainformer.{name}\n" not in text] == []
