"""What marks depend on besides the task: the code that makes them, and the packages that it runs on."""

from __future__ import annotations

import ast
import hashlib
import importlib
import platform
from importlib import metadata
from pathlib import Path

LIB = Path(__file__).resolve().parents[2]
# Folders that count whole, and the modules with which the processes that mark begin: so does all that they import.
WHOLE = ("plainformer", "classroom/checks", "classroom/terms")
BEGINNINGS = tuple(f"classroom/grading/{name}.py" for name in ("marking", "student", "judge"))
PACKAGES = ("torch", "numpy", "nbgrader", "nbformat", "ipykernel", "dask", "distributed")


def version(mark: str) -> str:
    """A digest of the code that `mark` ("module:function") makes marks with, of Python and of torch.

    A module that has a `version()` of its own is asked for it.
    """
    module = importlib.import_module(mark.partition(":")[0])
    if hasattr(module, "version"):
        return module.version()
    digest = hashlib.sha256(f"Python {_python()}, torch {_installed('torch')}".encode())
    for file in sources():
        digest.update(b"\0".join([file.relative_to(LIB).as_posix().encode(), file.read_bytes()]))
    return digest.hexdigest()


def versions(mark: str) -> dict[str, str]:
    """What must be the same on every machine of a cluster: name → version."""
    found = {"Python": _python(), "the course": version(mark)[:12]}
    return found | {name: _installed(name) for name in PACKAGES}


def sources() -> list[Path]:
    """The files of the course on which marks may depend, sorted."""
    found = {LIB / place for place in BEGINNINGS}
    for place in WHOLE:
        found |= {file for file in (LIB / place).rglob("*") if file.suffix in (".py", ".toml", ".txt")}
    waiting = [*found]
    while waiting:
        file = waiting.pop()
        new = _imported(file) - found if file.suffix == ".py" else set()
        found |= new
        waiting += new
    return sorted(found)


def _imported(file: Path) -> set[Path]:
    """The course's own modules that a module names in its imports."""
    names = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    paths = {LIB / f"{name.replace('.', '/')}.py" for name in names}
    return {path for path in paths if path.is_file()}


def _python() -> str:
    return ".".join(platform.python_version_tuple()[:2])


def _installed(package: str) -> str:
    try:
        return metadata.version(package).partition("+")[0]  # "+cpu": the build of torch may differ
    except metadata.PackageNotFoundError:
        return "missing"
