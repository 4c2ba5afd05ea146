"""The results folder of an assignment: one file a student, with what became of each notebook handed in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from classroom.grading.task import Result

_LISTS, _TEXTS, _NUMBERS = ("findings", "flags"), ("key", "isolation"), ("wall_seconds", "cpu_seconds")


class Damaged(ValueError):
    """A file of results that holds something else; the message says what."""


def read(folder: Path) -> tuple[dict[str, dict[str, Result]], dict[str, str]]:
    """All results below `folder`: student → notebook → result, and the damaged files: name → what is wrong."""
    found: dict[str, dict[str, Result]] = {}
    damaged: dict[str, str] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            results = read_one(path)
            student = next(iter(results.values())).student or path.name.removesuffix(".json")
            found[student] = results
        except Damaged as error:
            damaged[path.name] = str(error)
    return found, damaged


def read_one(path: Path) -> dict[str, Result]:
    """The results in one file, by notebook; `Damaged` if it holds none. The name of a lone result is empty."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Damaged(f"no JSON ({type(error).__name__}). Delete it, and grade again.") from None
    return {name: _result(given) for name, given in _parts(document)}


def _parts(document: object) -> Iterator[tuple[str, dict]]:
    """One result is a file by itself; several stand below the names of their notebooks."""
    if not isinstance(document, dict):
        raise Damaged("no result: an object was expected. Delete it, and grade again.")
    if "student" in document and "points" in document:
        yield "", document
        return
    inside = document.get("notebooks", document)
    parts = {name: part for name, part in inside.items() if isinstance(part, dict) and "points" in part}
    if not parts:
        raise Damaged("no result: it has no points. Delete it, and grade again.")
    yield from parts.items()


def _result(given: dict) -> Result:
    """The fields of a result, checked: this file is ours, but what stands in it came from students."""
    values = {field.name: given[field.name] for field in fields(Result) if field.name in given}
    points, slips = values.get("points", {}), values.get("slips", {})
    right = (
        isinstance(values.setdefault("student", ""), str)
        and isinstance(values.setdefault("key", ""), str)
        and isinstance(values.setdefault("notebook", None), str | None)
        and isinstance(points, dict)
        and all(value is None or _is_number(value) for value in points.values())
        and isinstance(slips, dict)
        and all(isinstance(text, str) for text in slips.values())
        and all(isinstance(text, str) for name in _LISTS for text in values.get(name, []))
        and all(isinstance(values.get(name, ""), str) for name in _TEXTS)
        and all(_is_number(values.get(name, 0.0)) for name in _NUMBERS)
    )
    if not right:
        raise Damaged("a field of a result is of the wrong kind. Delete it, and grade again.")
    return Result(**values)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(value) < 1e12  # no nan, no infinity either
