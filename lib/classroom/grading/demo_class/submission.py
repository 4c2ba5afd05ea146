"""One synthetic submission."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Submission:
    """Answers as text to put into answer cells, and the marks they must get.

    `changed` maps an answer cell to its source; cells that it does not name get the reference answer, or stay
    untouched if `from_reference` is False. `marks` names the problems that do not get full marks; with None nothing
    gets any.
    """

    student: str
    changed: dict[str, str] = field(default_factory=dict)
    marks: dict[str, float] | None = field(default_factory=dict)
    from_reference: bool = True
    wrap: str = "{}"  # put around every answer, to break it

    def answers(self, reference: dict[str, str]) -> dict[str, str]:
        """Source for each answer cell, given the reference answers."""
        whole = (reference if self.from_reference else {}) | self.changed
        return {cell: self.wrap.format(source) for cell, source in whole.items()}

    def expected(self, full: dict[str, float]) -> dict[str, float]:
        """Points by problem that it must get, given those of a right answer."""
        return dict.fromkeys(full, 0) if self.marks is None else full | self.marks
