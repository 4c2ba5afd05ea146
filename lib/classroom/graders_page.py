"""The table of the graders' trial in the instructor guide. A Sphinx extension.

The directive `graders` shows chapters/data/graders.json, which `python -m classroom.grading trial` measures:
what right, untouched and wrong answers got from the autograder, and below it every wrong answer that was tried.
"""

from __future__ import annotations

import json
from pathlib import Path

import docutils.nodes as nodes
from docutils.parsers.rst import Directive

from classroom.show import inline

COLUMNS = {
    "checks": "checks",
    "points": "points",
    "right": "right answers",
    "untouched": "untouched",
    "broken": "broken",
    "tried": "wrong answers",
    "rejected": "rejected",
    "named": "named",
    "false_accepts": "false accepts",
    "false_rejects": "false rejects",
}


class Graders(Directive):
    """The table, and a folded list for each assignment."""

    def run(self) -> list[nodes.Node]:
        env = self.state.document.settings.env
        path = Path(env.srcdir, "chapters", "data", "graders.json")
        env.note_dependency(str(path))
        records = json.loads(path.read_text(encoding="utf-8"))
        return [nodes.raw("", page(records), format="html")]


def page(records: dict[str, dict]) -> str:
    """The markup: a row for each assignment, all together, and the wrong answers by check."""
    lines = [_row(f"<code>{name}</code>", _shown(record)) for name, record in records.items()]
    lines.append(_row("together", together(records)))
    head = "".join(f'<th role="columnheader" scope="col">{name}</th>' for name in ("assignment", *COLUMNS.values()))
    table = (
        '<table role="table" class="pf-graders"><caption>What the autograder gives for right answers in several '
        "styles, for the notebook as released, for one that does not run, and for every wrong answer that the checks "
        f'know</caption><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{"".join(lines)}</tbody></table>'
    )
    return table + "".join(_fold(name, record["slips"]) for name, record in records.items())


def together(records: dict[str, dict]) -> dict[str, object]:
    """The sums; of the right answers, how many have full marks."""
    sums = {key: sum(record[key] for record in records.values()) for key in COLUMNS if key != "right"}
    full = sum(points == record["points"] for record in records.values() for points in _right(record))
    return sums | {"right": f"{full} full"}


def _right(record: dict) -> list[float]:
    return [record["reference"], *record["styles"].values()]


def _shown(record: dict) -> dict[str, object]:
    return record | {"right": " ".join(f"{points:g}" for points in _right(record))}


def _row(head: str, shown: dict[str, object]) -> str:
    cells = "".join(
        f'<td role="cell" data-label="{label}"><span>{shown[key]}</span></td>' for key, label in COLUMNS.items()
    )
    return f'<tr role="row"><th role="rowheader" scope="row">{head}</th>{cells}</tr>'


def _fold(name: str, slips: dict[str, list[str]]) -> str:
    n_slips = sum(map(len, slips.values()))
    lists = "".join(
        f"<dt><code>{check}</code></dt><dd><ul>{''.join(f'<li>{inline(says)}</li>' for says in known)}</ul></dd>"
        for check, known in slips.items()
    )
    return (
        f'<details class="pf-ledger mathjax_ignore" id="graders-{name}">'
        f"<summary>{name}: {n_slips} wrong answers by check</summary><dl>{lists}</dl></details>"
    )


def setup(app) -> dict:
    """Registers the directive `graders`."""
    app.add_directive("graders", Graders)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
