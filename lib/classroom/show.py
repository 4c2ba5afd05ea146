"""What a cell shows besides numbers: a listing, a table, a figure, a prediction to make, a question."""

from __future__ import annotations

import html
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path


class Markdown:
    """A cell's output as Markdown, which the book and JupyterLab both set like the text around it."""

    def __init__(self, text: str):
        self.text = text

    def _repr_markdown_(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


class Html:
    """A cell's output as HTML, with a plain text beside it."""

    def __init__(self, markup: str, text: str):
        self.markup = markup
        self.text = text

    def _repr_html_(self) -> str:
        return self.markup

    def __repr__(self) -> str:
        return self.text


def source(*objects: Callable | type) -> Markdown:
    """The library's own code, read from the library: never a copy. Long docstrings stay: they are the specification."""
    listings = []
    for thing in objects:
        file = Path(inspect.getsourcefile(thing))
        code = textwrap.dedent(inspect.getsource(thing)).rstrip()
        listings.append(f"*{file.parent.name}/{file.name}*\n\n```python\n{code}\n```")
    return Markdown("\n\n".join(listings))


def table(header: Sequence[str], rows: Iterable[Sequence], align: str | None = None) -> Markdown:
    """Rows as a table; ints get thousands separators. ``align`` is one of l, c, r a column."""
    rows = [[_cell(value) for value in row] for row in rows]
    align = align or "l" + "r" * (len(header) - 1)
    if len(align) != len(header) or any(len(row) != len(header) for row in rows):
        raise ValueError(f"every row needs {len(header)} cells, one for each of {tuple(header)}.")
    marks = {"l": ":---", "c": ":--:", "r": "---:"}
    lines = [header, [marks[a] for a in align], *rows]
    return Markdown("\n".join("| " + " | ".join(line) + " |" for line in lines))


def _cell(value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", "−")
    return str(value).replace("|", "\\|")


def reveal(question: str, answer: str) -> Html:
    """Predict first: the question stands open, the answer opens on a click."""
    return Html(
        f'<details class="pf-reveal"><summary>{html.escape(question)}</summary><p>{html.escape(answer)}</p></details>',
        f"{question}\n→ {answer}",
    )


def quiz(question: str, *options: tuple[str, str], right: int) -> Html:
    """One question with several answers, each with its reason: (answer, why). ``right`` counts from 0.

    Texts may hold `code` in backquotes and mathematics as \\(…\\). The site's script turns it into buttons;
    without the script the question and its answers stay readable and the reasons open on a click.
    """
    if not 0 <= right < len(options):
        raise ValueError(f"right={right} names none of the {len(options)} answers.")
    data = {
        "question": question,
        "options": [{"text": text, "why": why, "right": n == right} for n, (text, why) in enumerate(options)],
    }
    answers = "".join(f"<li>{inline(text)}</li>" for text, _ in options)
    reasons = "".join(
        f"<li>{'Right' if n == right else 'No'}: {inline(why)}</li>" for n, (_, why) in enumerate(options)
    )
    # "</" would end the script element early
    payload = json.dumps(data, ensure_ascii=False).replace("</", "<\\/")
    return Html(
        f'<pf-quiz><script type="application/json">{payload}</script>'
        f"<p>{inline(question)}</p><ol>{answers}</ol>"
        f"<details><summary>Answers</summary><ol>{reasons}</ol></details></pf-quiz>",
        question + "".join(f"\n  {n + 1}. {text}" for n, (text, _) in enumerate(options)),
    )


def inline(text: str) -> str:
    """Text as HTML, with `code` in backquotes set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
