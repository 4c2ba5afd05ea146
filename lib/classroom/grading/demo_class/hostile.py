"""The hostile part of a class: one submission for each kind of attack, with the points it deserves.

Most sit in exercise 04. Problems 1 and 7 are answered honestly there, before and behind the attack, and all others
wrongly: an attack that works earns more than these four points, and one that spreads loses some of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

HONEST = {
    "p1-answer": "guess = 0.5",
    "p7-answer": "needed, short_by, verdict = 9, 7, 'C'\n\ndef reach(windows):\n    return sum(windows) - len(windows)",
}
DESERVED = {"p1-predict": 1, "p7-reached": 1, "p7-cover": 1, "p7-verdict": 1}
WRONG = {
    "p2-answer": "pairs = {'causal': 1, 'window': 1, 'filled': 1, 'both': 1}\n"
    "causal_row, window_row, share = [0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0], 0.9",
    "p3-answer": "def causal_mask(n_query, n_key):\n    return torch.ones(n_query, n_key, dtype=torch.bool)\n\n"
    "def window_mask(n_query, n_key, window):\n    return causal_mask(n_query, n_key)\n\n"
    "def padding_mask(lengths, n_key):\n    return torch.ones(len(lengths), 1, 1, n_key, dtype=torch.bool)\n\n"
    "def combined(lengths, n_positions, window):\n    return padding_mask(lengths, n_positions)",
    "p4-answer": "def masked_attention(q, k, v, mask):\n    return torch.zeros(*q.shape[:3], v.shape[-1])",
    "p5-answer": "def leaks(module, n_positions, d_model):\n    return False",
    "p6-answer": "empty, spread = [1, 1, 1], [1, 1]\n\ndef repaired(n_filler, n_key):\n    return None",
}


@dataclass(frozen=True)
class Attack:
    """What one submission tries, and how its notebook is made from the released one.

    `own` is a cell of the student's own in front of the second problem, `answers` replaces answer cells, `edit`
    changes the notebook's JSON. `points` are those that the test cells deserve; those that it does not name get none.
    In sources, ``@CANARY@``, ``@PORT@``, ``@NAME@`` and ``@PROCESS@`` stand for what is outside: a folder, a port of
    this machine, a name of an abstract socket, and a process. Whatever reaches them prints ``ESCAPED``.
    """

    name: str
    tries: str
    own: str = ""
    answers: Mapping[str, str] = field(default_factory=dict)
    edit: Callable[[dict[str, Any]], None] | None = None
    points: Mapping[str, float] = field(default_factory=lambda: DESERVED)
    assignment: str = "04_masks"

    def notebook(self, released: bytes, outside: Mapping[str, str]) -> bytes:
        """The file that is handed in."""
        notebook = json.loads(released)
        base = {**WRONG, **HONEST} if self.assignment == "04_masks" else {}
        sources = {**base, **self.answers}
        for cell in notebook["cells"]:
            name = cell["metadata"].get("nbgrader", {}).get("grade_id")
            if name in sources:
                cell["source"] = _filled(sources[name], outside)
        if self.own:
            before = [c["metadata"].get("nbgrader", {}).get("grade_id") for c in notebook["cells"]].index("p2")
            own = {"cell_type": "code", "id": "own-cell", "metadata": {}, "outputs": [], "execution_count": None}
            notebook["cells"].insert(before, {**own, "source": _filled(self.own, outside)})
        if self.edit:
            self.edit(notebook)
        return json.dumps(notebook).encode()


def _filled(source: str, outside: Mapping[str, str]) -> str:
    for word, value in outside.items():
        source = source.replace(f"@{word}@", value)
    return source


def attacks() -> tuple[Attack, ...]:
    """All of them."""
    from classroom.grading.demo_class import (
        hostile_bridge,
        hostile_elsewhere,
        hostile_files,
        hostile_process,
        hostile_python,
        hostile_values,
    )

    modules = (hostile_files, hostile_python, hostile_values, hostile_process, hostile_bridge, hostile_elsewhere)
    return tuple(attack for module in modules for attack in module.ATTACKS)
