"""One synthetic submission."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Submission:
    """Answers as text to put into answer cells, and the marks they must get.

    `changed` maps an answer cell to its source; cells that it does not name get the reference answer, or stay
    untouched if `from_reference` is False. `marks` names the problems that do not get full marks.
    """

    student: str
    changed: dict[str, str] = field(default_factory=dict)
    marks: dict[str, float] = field(default_factory=dict)
    from_reference: bool = True
    wrap: str = "{}"  # put around every answer, to break it

    def answers(self, reference: dict[str, str]) -> dict[str, str]:
        """Source for each answer cell, given the reference answers."""
        whole = (reference if self.from_reference else {}) | self.changed
        return {cell: self.wrap.format(source) for cell, source in whole.items()}
