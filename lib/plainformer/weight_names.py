"""Whose weight is it? A table from a file's names to ours, read forwards to load and backwards to export.

A row of ``families/*.toml`` says ``"h.{}.ln_1" = "blocks.{}.attn_norm"``: names without their last part
(``weight`` or ``bias``, which stays), ``{}`` for the number of a layer or an expert. A row that must also reshape
is a table: ``to`` (several names: the file stacks their rows), ``transpose`` (the file keeps (in, out)),
``pairing`` and ``heads`` (which features the file's rotary positions turn together, in heads counted by that
field of the config).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from plainformer.config import Config
from plainformer.positions import convert_pairing
from plainformer.shapes import Float


@dataclass(frozen=True)
class Row:
    """One line of the table: what the file calls it, what we call it, and how the numbers are laid out there."""

    theirs: str
    to: tuple[str, ...]
    transpose: bool = False
    pairing: str | None = None
    heads: str | None = None

    def stored_shape(self, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
        """The shape in the file of what has these shapes here."""
        stacked = (sum(shape[0] for shape in shapes), *shapes[0][1:])
        return stacked[::-1] if self.transpose else stacked

    def read(self, stored: Float["..."], n_rows: list[int], config: Config) -> list[Float["..."]]:
        """The file's tensor as ours, one for each name in ``to``."""
        turned = stored.T if self.transpose and stored.dim() == 2 else stored
        parts = [turned.contiguous()]  # a view of the file, where nothing has to move
        if len(self.to) > 1:
            parts = [part.clone(memory_format=torch.contiguous_format) for part in turned.split(n_rows)]
        return [self._paired(part, config, self.pairing, config.pairing) for part in parts]

    def write(self, parts: list[Float["..."]], config: Config) -> Float["..."]:
        """`read` undone."""
        parts = [self._paired(part, config, config.pairing, self.pairing) for part in parts]
        stacked = torch.cat(parts) if len(parts) > 1 else parts[0]
        return stacked.T.contiguous() if self.transpose and stacked.dim() == 2 else stacked

    def _paired(self, weight: Tensor, config: Config, now: str | None, wanted: str | None) -> Tensor:
        if self.pairing is None or now == wanted:
            return weight
        return convert_pairing(weight, getattr(config, self.heads), to=wanted).contiguous()


class Names:
    """The table of one kind of file in one family."""

    def __init__(self, table: dict):
        self._prefix = table.get("prefix", "")  # stands before every name in some files and is absent in others
        self._endings = table.get("endings", {})
        self._ignored = [_pattern(name) for name in table.get("ignore", ())]
        self._rows = []
        for theirs, entry in table["names"].items():
            entry = entry if isinstance(entry, dict) else {"to": entry}
            to = (entry["to"],) if isinstance(entry["to"], str) else tuple(entry["to"])
            row = Row(theirs, **entry | {"to": to})
            self._rows.append((_pattern(theirs), _pattern(to[0]), row))

    def ours(self, name: str) -> tuple[Row, list[str]] | None:
        """The row that a file's name belongs to, and our names; None for a name that the table does not have."""
        for candidate in self._spellings(name):
            stem, _, ending = candidate.rpartition(".")
            for theirs, _, row in self._rows:
                if match := theirs.fullmatch(stem):
                    ending = self._endings.get(ending, ending)
                    return row, [f"{to.format(*match.groups())}.{ending}" for to in row.to]
        return None

    def theirs(self, name: str) -> tuple[Row, str, list[str]] | None:
        """The row of one of our names, the file's name, and all of ours that go into it.

        None for a name without a row, and for one that is written together with an earlier one.
        """
        stem, _, ending = name.rpartition(".")
        for _, ours, row in self._rows:
            if match := ours.fullmatch(stem):
                numbers = match.groups()
                return (
                    row,
                    f"{row.theirs.format(*numbers)}.{ending}",
                    [f"{to.format(*numbers)}.{ending}" for to in row.to],
                )
        return None

    def is_ignored(self, name: str) -> bool:
        """Whether the file may hold this without being asked: a buffer, or a head that the model does not have."""
        return any(p.fullmatch(candidate) for candidate in self._spellings(name) for p in self._ignored)

    def _spellings(self, name: str) -> list[str]:
        return list(dict.fromkeys([name, self._prefix + name, name.removeprefix(self._prefix)]))


def _pattern(name: str) -> re.Pattern:
    return re.compile(re.escape(name).replace(r"\{\}", r"([0-9]+)").replace(r"\*", ".*"))
