"""The steps of a submission, made from the instructor's notebook and the student's text; and what that notebook uses.

Apart from `steps`, which the processes of students and judges import: they need not wait for nbgrader.
"""

from __future__ import annotations

import ast
import re

from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode
from nbgrader.utils import is_grade, is_locked, is_solution

from classroom.grading.steps import Step, is_judged


def plan(notebook: NotebookNode, authority: NotebookNode) -> list[Step]:
    """The steps of `notebook`, which is `authority` with a student's text in its answer cells and between them."""
    given = {cell.metadata.nbgrader.grade_id: cell for cell in authority.cells if "nbgrader" in cell.metadata}
    made, giver = [], {}
    for place, cell in enumerate(notebook.cells):
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        kind = "student"
        if is_grade(cell) and not is_solution(cell):
            kind = "graded"
        elif name and is_locked(cell) and not is_solution(cell):
            kind = "shared"
        # of an answer the released text counts: what it defines there is what the tests ask for. A student's own text
        # is not looked at: to read it may take as long as they like
        loads, stores = names(given[name].source) if name in given else (set(), set())
        answers = sorted(one for one in loads if giver.get(one) == "student") if kind != "student" else []
        locked = sorted(one for one in loads if giver.get(one) == "locked")
        made.append(Step(kind, name, cell.source, place, sorted(loads), answers, locked))
        if name:
            giver |= dict.fromkeys(stores, "student" if kind == "student" else "locked")
    needed: set[str] = set()
    for step in reversed(made):
        _, stores = names(step.source) if step.kind == "shared" else (set(), set())
        step.in_judge = step.kind == "graded" or bool(stores & needed)
        if step.in_judge:
            needed |= set(step.loads)
    return made


def names(source: str) -> tuple[set[str], set[str]]:
    """The names that a cell uses, and those that its lines define for later cells."""
    try:
        tree = ast.parse(TransformerManager().transform_cell(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set(), set()
    loads = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    stores: set[str] = set()
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            stores.add(node.name)
            continue
        if isinstance(node, ast.alias):
            stores.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stores.add(node.id)
        elif isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            continue
        todo += ast.iter_child_nodes(node)
    return loads, stores


def shown(authority: NotebookNode) -> list[tuple[str, str]]:
    """The names of the judge's modules that the text of a notebook uses: (module, name)."""
    text = "\n".join(cell.source for cell in authority.cells)
    found: list[tuple[str, str]] = []
    for cell in authority.cells:
        if cell.cell_type != "code" or is_solution(cell):
            continue
        for node in _walk(cell.source):
            if isinstance(node, ast.ImportFrom) and is_judged(node.module or ""):
                for alias in node.names:
                    module = f"{node.module}.{alias.name}"
                    used = re.findall(rf"\b{re.escape(alias.asname or alias.name)}\.([A-Za-z]\w*)", text)
                    found += [(module, name) for name in used] + [(node.module, alias.name)]
    return sorted(set(found))


def imports(authority: NotebookNode) -> list[str]:
    """The modules that the locked cells of a notebook import."""
    found = set()
    for cell in authority.cells:
        if cell.cell_type == "code" and not is_solution(cell):
            for node in _walk(cell.source):
                if isinstance(node, ast.Import):
                    found |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return sorted(found)


def _walk(source: str):
    try:
        return list(ast.walk(ast.parse(TransformerManager().transform_cell(source))))
    except (SyntaxError, ValueError, RecursionError):
        return []
