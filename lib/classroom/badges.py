"""How a checked claim shows itself in a page: one quiet line, or one folded table for several."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from classroom.ledger import Row


@dataclass(frozen=True, repr=False)
class Badge:
    """A checked claim; shows itself as one quiet line."""

    row: Row
    given: str  # the value, printed

    @property
    def verdict(self) -> str:
        row = self.row
        if row.corrected:
            return "corrected"
        words = {"exact": "agrees", "rounded": "agrees after rounding", "holds": "verified"}
        return words.get(row.rule, f"agrees {row.rule}")

    def __repr__(self) -> str:
        return f"{self.row.id} · {self._sentence()}"

    def _repr_html_(self) -> str:
        kind = " pf-claim-corrected" if self.row.corrected else ""
        return (
            f'<p class="pf-claim{kind} mathjax_ignore"><span class="pf-claim-verdict">{escape(self.verdict)}'
            f"</span> <code>{self.row.id}</code> {escape(self._sentence())}</p>"
        )

    def _sentence(self) -> str:
        row = self.row
        if row.rule == "holds":
            return row.claim
        lead = "the source says" if row.corrected else "stated"
        return f"{row.claim}: {lead} {row.stated or 'so'}; here: {self.given}"


@dataclass(frozen=True, repr=False)
class Badges:
    """Several checked claims; show themselves as one folded table."""

    badges: tuple[Badge, ...]

    @property
    def summary(self) -> str:
        corrected = sum(badge.row.corrected for badge in self.badges)
        text = f"{len(self.badges)} claim{'s' * (len(self.badges) != 1)} of the source texts checked"
        return text + (f", {corrected} of them corrected" if corrected else "")

    def __repr__(self) -> str:
        return "\n".join([self.summary, *(f"  {badge!r}" for badge in self.badges)])

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{name}</th>' for name in ("claim", "stated", "computed here", "verdict"))
        return (
            f'<details class="pf-claims mathjax_ignore"><summary>{self.summary}</summary><table>'
            "<caption>What the sources state beside what this page computed</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{''.join(map(self._line, self.badges))}</tbody></table></details>"
        )

    @staticmethod
    def _line(badge: Badge) -> str:
        kind = ' class="pf-claim-corrected"' if badge.row.corrected else ""
        cells = (badge.row.stated, badge.given, badge.verdict)
        return (
            f'<tr{kind}><th scope="row">{escape(badge.row.claim)} <code>{badge.row.id}</code></th>'
            f"{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        )
