"""Attacks by what stands in the file that is handed in: cells, settings and outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from classroom.grading.demo_class.hostile import Attack

RESULT = {"output_type": "execute_result", "data": {"text/plain": "99.0"}, "metadata": {}, "execution_count": 1}
SCRIPT = {"output_type": "display_data", "data": {"text/html": "<script>ESCAPED</script>"}, "metadata": {}}


def _tests(notebook: dict[str, Any]) -> list[dict]:
    return [cell for cell in notebook["cells"] if cell["metadata"].get("nbgrader", {}).get("grade")]


def _each(change: Callable[[dict], Any]) -> Callable[[dict[str, Any]], None]:
    """An edit that changes every test cell."""

    def edit(notebook: dict[str, Any]) -> None:
        for cell in _tests(notebook):
            change(cell)

    return edit


def _set(**settings: Any) -> Callable[[dict[str, Any]], None]:
    return _each(lambda cell: cell["metadata"]["nbgrader"].update(settings))


def _delete(notebook: dict[str, Any]) -> None:
    tests = _tests(notebook)
    notebook["cells"] = [cell for cell in notebook["cells"] if cell not in tests]


def _double(notebook: dict[str, Any]) -> None:
    for cell in _tests(notebook):
        again = copy.deepcopy(cell)
        again["source"] = "print('passed')"
        notebook["cells"].append(again)


def _rename(notebook: dict[str, Any]) -> None:
    for number, cell in enumerate(_tests(notebook)):
        cell["metadata"]["nbgrader"]["grade_id"] = f"another-{number}"


def _reverse(notebook: dict[str, Any]) -> None:
    places = [k for k, cell in enumerate(notebook["cells"]) if cell["metadata"].get("nbgrader", {}).get("grade")]
    tests = [notebook["cells"][k] for k in places]
    for place, cell in zip(places, reversed(tests)):
        notebook["cells"][place] = cell


def _exchange(notebook: dict[str, Any]) -> None:
    """The tests that pass stand under the names of those that fail."""
    easy = next(cell["source"] for cell in _tests(notebook))
    for cell in _tests(notebook):
        cell["source"] = easy


def _second_answer(notebook: dict[str, Any]) -> None:
    """A test cell that says it is an answer, so that its text would be the student's."""
    for cell in _tests(notebook):
        cell["metadata"]["nbgrader"].update(solution=True, locked=False)
        cell["source"] = "pass"


def _outputs(notebook: dict[str, Any]) -> None:
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = [copy.deepcopy(RESULT), copy.deepcopy(SCRIPT)]
            cell["execution_count"] = 1


def _settings(notebook: dict[str, Any]) -> None:
    notebook["metadata"]["kernelspec"] = {"name": "@CANARY@/kernel", "display_name": "x", "language": "bash"}
    notebook["metadata"]["nbgrader"] = {"points": 99}
    notebook["metadata"]["celltoolbar"] = "<script>ESCAPED</script>"


def _attached(notebook: dict[str, Any]) -> None:
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["attachments"] = {"../../x.html": {"text/html": "<script>ESCAPED</script>"}}


_EMPTY = {"p7-answer": "", "p1-answer": ""}

ATTACKS = (
    Attack("tests edited", "test cells that check nothing", edit=_each(lambda cell: cell.update(source="pass"))),
    Attack("tests deleted", "no test cell at all", edit=_delete),
    Attack("tests doubled", "second test cells that check nothing", edit=_double),
    Attack(
        "tests retyped to text", "test cells as markdown", edit=_each(lambda cell: cell.update(cell_type="markdown"))
    ),
    Attack("tests retyped to raw", "test cells as raw cells", edit=_each(lambda cell: cell.update(cell_type="raw"))),
    Attack("tests renamed", "test cells under other names", edit=_rename),
    Attack("tests reordered", "the last test first", edit=_reverse),
    Attack("tests exchanged", "the easiest test under every name", edit=_exchange),
    Attack("tests as answers", "test cells that say they are answers", edit=_second_answer),
    Attack("points raised", "a thousand points a cell", edit=_set(points=1000)),
    Attack("points negative", "fewer points than none, out of none", edit=_set(points=-1, max_points=0)),
    Attack("points no number", "points that are a text", edit=_set(points="1e9")),
    Attack("marked by hand", "test cells to be marked by a person", edit=_set(solution=True, grade=True, task=False)),
    Attack(
        "skip tags",
        "tags that keep test cells from being run",
        edit=_each(lambda cell: cell["metadata"].update(tags=["skip-execution", "remove-cell", "raises-exception"])),
    ),
    Attack("outputs forged", "results and scripts in the outputs of the file", edit=_outputs),
    Attack("settings forged", "another kernel, and settings with a script", edit=_settings),
    Attack("attachments forged", "a script attached to the text", edit=_attached),
    Attack("nothing answered", "outputs forged, and no answer", answers=_EMPTY, edit=_outputs, points={}),
)
