"""The ledger of claims: what the sources state, what the course computes, and the chapter that checks it.

A chapter calls `claim("000-scale-07", math.exp(16))`. The value is compared with the row of
`chapters/claims.csv` under the row's own rule; a disagreement raises, an agreement shows a quiet badge.
Values are in base units: plain counts, bytes, FLOPs; a percentage is given as a fraction of one.
`python -m classroom.ledger` prints what is checked and what still waits, chapter by chapter.
"""

import ast
import csv
import difflib
import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

from classroom import figures
from classroom.badges import Badge, Badges
from classroom.figures import Figure, Number

STEMS = (
    *("01_tokens", "02_attention", "03_heads", "04_masks", "05_positions", "06_norms", "07_mlp", "08_model"),
    *("09_parameters", "10_flops", "11_cache", "12_training", "13_pretrained", "14_since_2017", "15_limits"),
)


class ClaimError(AssertionError):
    """The code and the ledger disagree, or a claim cannot be made with this value."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One claim. `stated` is what the source prints; where that is a formula, "formula = its figure".

    `rule` is exact, rounded, within X, within X%, holds, wrong, wrong within X or unchecked; `chapter` is a
    stem, or empty for an unchecked row, whose `note` then says why.
    """

    id: str
    source: str
    section: str
    claim: str
    stated: str
    rule: str
    computed: str
    verdict: str
    chapter: str
    note: str

    @property
    def numeric(self) -> bool:
        """Whether the row is checked with numbers; otherwise with True."""
        by_number = self.rule in ("exact", "rounded") or "within " in self.rule
        return by_number or (self.corrected and figures.is_printed(self.computed))

    @property
    def corrected(self) -> bool:
        """Whether the source is wrong and `computed` is right."""
        return self.rule.startswith("wrong")

    def stated_figures(self) -> tuple[Figure, ...] | None:
        """The figures that the source prints, or None where it prints words or a bare formula."""
        text = self.stated.rsplit("=", 1)[-1]
        return figures.parse(text) if figures.is_printed(text) else None

    def target(self) -> tuple[Figure, ...]:
        """What a value is compared with: the stated figures; ours where the source is wrong or prints none."""
        stated = None if self.corrected else self.stated_figures()
        return stated or figures.parse(self.computed)

    def tolerance(self) -> tuple[Fraction, bool]:
        """The X of `within X`, and whether it is a fraction of the figure."""
        (figure,) = figures.parse(self.rule.rsplit("within ", 1)[1])
        return figure.value, figure.unit == "%"

    def accepts(self, values: tuple[Number, ...]) -> bool:
        """Whether the values of a numeric row satisfy its rule."""
        if self.rule == "exact":
            return figures.equals(values, self.target())
        if "within " in self.rule:
            agrees = figures.near(values, self.target(), *self.tolerance())
        else:
            agrees = figures.prints_as(values, self.target())
        if not agrees:
            return False
        stated = self.stated_figures() if self.corrected else None
        return stated is None or not figures.prints_as(values, stated)


def ledger_path() -> Path:
    """The repository's chapters/claims.csv, found upwards from this file (the package is installed editable)."""
    for folder in Path(__file__).resolve().parents:
        if (folder / "chapters" / "claims.csv").is_file():
            return folder / "chapters" / "claims.csv"
    raise FileNotFoundError(
        f"No folder above {Path(__file__).resolve()} holds chapters/claims.csv. The ledger is part of the "
        "repository: install the package from a checkout with `pip install -e .`, or give the file's path."
    )


def load(path: Path | None = None) -> tuple[Row, ...]:
    """Every row of the ledger, in order. A header other than Row's fields, or a repeated id, is a ValueError."""
    path = Path(path or ledger_path())
    return _load(path, path.stat().st_mtime_ns)


@lru_cache
def _load(path: Path, changed: int) -> tuple[Row, ...]:
    """Reads the file once for each time it changed."""
    names = [field.name for field in fields(Row)]
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        if reader.fieldnames != names:
            raise ValueError(f"{path}: the columns are {reader.fieldnames}, expected {names}.")
        loaded = []
        for cells in reader:
            if None in cells or None in cells.values():
                raise ValueError(f"{path}, line {reader.line_num}: {cells['id']!r} has not {len(names)} cells.")
            loaded.append(Row(**cells))
    if repeated := [name for name, times in Counter(row.id for row in loaded).items() if times > 1]:
        raise ValueError(f"{path}: these ids stand on more than one line: {', '.join(repeated)}.")
    return tuple(loaded)


def rows(chapter: str | None = None, *, path: Path | None = None) -> tuple[Row, ...]:
    """The rows that a chapter (a stem such as "02_attention") checks; all rows without one."""
    if chapter is not None and chapter not in STEMS:
        raise ValueError(f"No chapter is called {chapter!r}; the chapters are {', '.join(STEMS)}.")
    return tuple(row for row in load(path) if chapter in (None, row.chapter))


def claim(id: str, value, *, path: Path | None = None) -> Badge:
    """Checks a computed value against the row `id` and returns its badge.

    `value`: an int, float, Fraction or 0-d tensor, or a tuple of these, for a row with a figure; True for a
    row with a statement. Raises ClaimError when the ledger does not agree, is asked for an unknown or
    unchecked row, or gets a value of the wrong kind.
    """
    return _check({row.id: row for row in load(path)}, id, value)


def claims(values: dict[str, object], *, path: Path | None = None) -> Badges:
    """Checks several claims, {id: value}; raises one ClaimError that lists every failure."""
    by_id, badges, failures = {row.id: row for row in load(path)}, [], []
    if not values:
        raise ClaimError("claims() was given no claim. It takes {id: value, ...}.")
    for name, value in values.items():
        try:
            badges.append(_check(by_id, name, value))
        except ClaimError as error:
            failures.append(str(error))
    if failures:
        raise ClaimError("\n\n".join(failures))
    return Badges(tuple(badges))


def _check(by_id: dict[str, Row], name: str, value) -> Badge:
    if name not in by_id:
        nearest = ", ".join(difflib.get_close_matches(str(name), by_id, n=4, cutoff=0.0))
        raise ClaimError(f"The ledger has no claim {name!r}. Nearest ids: {nearest}.")
    row = by_id[name]
    if row.rule == "unchecked":
        raise ClaimError(
            f"{row.id} ({row.claim}) is marked as not checkable: {row.note}\nTo check it after all, give it a "
            "rule and a chapter in chapters/claims.csv."
        )
    values = _values(row, value)
    if not row.numeric:
        if values != (True,):
            raise _disagreement(row, value)
        return Badge(row, f"ours, verified: {row.computed}" if row.corrected else "verified")
    if not row.accepts(values):
        raise _disagreement(row, value)
    return Badge(row, _print(row, values))


def _values(row: Row, value) -> tuple:
    """The value as a flat tuple of ints, floats and fractions, or as (bool,)."""

    def flatten(item) -> Iterable:
        if isinstance(item, (tuple, list)):
            for inner in item:
                yield from flatten(inner)
        else:
            yield item.item() if hasattr(item, "item") and getattr(item, "shape", None) == () else item

    values = tuple(flatten(value))
    if row.numeric:
        wanted = "a number, or a tuple of numbers"
        good = all(isinstance(v, (int, float, Fraction)) and not isinstance(v, bool) for v in values)
        good = good and all(math.isfinite(v) for v in values if isinstance(v, float))
    else:
        wanted = "True or False: whether the statement was verified"
        good = len(values) == 1 and isinstance(values[0], bool)
    if not good:
        raise ClaimError(
            f"{row.id} ({row.claim}) has the rule {row.rule!r} and needs {wanted}; given: {value!r} "
            f"({type(value).__name__}). Usual causes: a formatted string, a whole tensor instead of one number "
            "(`tuple(t.tolist())` makes a tuple), NaN, or the id of another claim."
        )
    return values


def _disagreement(row: Row, value) -> ClaimError:
    rule = row.rule
    if row.corrected:
        rule += ", so give our number, not the stated one" if row.numeric else ", so give True once ours is verified"
    return ClaimError(
        f"{row.id}: the code and the ledger disagree.\n  claim:    {row.claim}\n  stated:   {row.stated}\n"
        f"  computed: {row.computed} (in the ledger)\n  given:    {value!r}\n  rule:     {rule}\n"
        "Mend the code. If the code is right (check it in a second way), mend the row in chapters/claims.csv.\n"
        "Usual causes: a percentage given as 33 instead of 0.33, or another unit (bytes, FLOPs and plain counts)."
    )


def _print(row: Row, values: tuple[Number, ...]) -> str:
    """The values with digits that are safe: a measured one as finely as it was compared, others to six digits."""
    target = row.target()
    if row.rule == "exact":
        steps = [Fraction(0)] * len(target)
    elif "within " in row.rule:
        size, relative = row.tolerance()
        steps = [size * (abs(figure.value) if relative else 1) for figure in target]
    else:
        steps = [min(Fraction(1), Fraction(10) ** (math.floor(math.log10(abs(v))) - 5)) if v else 0 for v in values]
    shown = [figures.show(v, step, figure.unit) for v, step, figure in zip(values, steps, target)]
    return ", ".join(shown)


def called(notebook: Path) -> list[str]:
    """The ids that a notebook's code cells claim, one entry for each time.

    Ids are found without running anything, so they must be written out: `claim("id", …)` or
    `claims({"id": …})`; anything else is a ValueError.
    """
    found = []
    for number, cell in enumerate(json.loads(Path(notebook).read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] != "code":
            continue
        lines = "".join(cell["source"]).splitlines()
        code = "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in lines)
        for node in ast.walk(ast.parse(code)):
            name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
            if name not in ("claim", "claims"):
                continue
            first = node.args[0] if node.args else None
            keys = first.keys if name == "claims" and isinstance(first, ast.Dict) else [first]
            if not all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in keys):
                raise ValueError(f"{notebook}, cell {number}: the ids of {name}() must be written out as strings.")
            found += [key.value for key in keys]
    return found


def _main() -> None:
    chapters = ledger_path().parent
    print(f"{'chapter':<16}{'claims':>8}{'checked':>9}{'waiting':>9}")
    total = done = 0
    for stem in STEMS:
        wanted = {row.id for row in rows(stem)}
        notebook = chapters / f"{stem}.ipynb"
        checked = len(wanted.intersection(called(notebook))) if notebook.exists() else 0
        total, done = total + len(wanted), done + checked
        print(f"{stem:<16}{len(wanted):>8}{checked:>9}{len(wanted) - checked:>9}")
    print(f"{'together':<16}{total:>8}{done:>9}{total - done:>9}")
    print(f"not checkable: {sum(row.rule == 'unchecked' for row in load())}")


if __name__ == "__main__":
    _main()
