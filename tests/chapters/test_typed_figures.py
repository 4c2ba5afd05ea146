"""No figure is typed in prose that code can compute.

Digits in the Markdown of chapters and appendix must be structure (chapter 9, section 3.2, 2017, GPT-2, $d^2$, code),
come from `glue`, or stand in typed_figures.json: worked inputs and quotations, each with a few words why it is one.
`python tests/chapters/test_typed_figures.py` prints what is left, page by page.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from classroom.reading import markdown

CHAPTERS = Path(__file__).parents[2] / "chapters"
ALLOWED = json.loads(Path(__file__).with_name("typed_figures.json").read_text(encoding="utf-8"))
PAGES = sorted(
    path
    for pattern in ("*.ipynb", "appendix/*.ipynb", "appendix/*.md")
    for path in CHAPTERS.glob(pattern)
    if not path.name.startswith(".")
)

# A figure: digits with separators between them, with a sign, a decimal part and a percent sign if it has them.
FIGURE = re.compile(r"(?<![\w.])[−-]?\d+(?:(?:,|\{,\}|\\,)\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?(?:\s?%)?(?![\d])")

# Several numbers of things that have numbers: "chapters 3, 4 and 7", "table 2.1", "blocks 1 to 6".
_NUMBERS = r"\d+(?:\.\d+)*(?:(?:\s*(?:,|;|/|–|-|to|and|or|und)\s*)+\d+(?:\.\d+)*)*"
_NUMBERED = "chapter|section|table|figure|footnote|equation|exercise|problem|appendix|source|text|page|part|version"
STRUCTURE = [
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"^(?P<fence>`{3,}|~{3,})(?!\s*\{(?!code|eval))[^\n]*\n.*?^(?P=fence)\s*$", re.DOTALL | re.MULTILINE),
    re.compile(r"^\s*:[\w-]+:.*$", re.MULTILINE),  # options of a directive
    re.compile(r"^\s*(?:`{3,}|:{3,}|~{3,})\{[\w:-]+\}.*$", re.MULTILINE),  # its first line, with a label or a title
    re.compile(r"\{[\w:]+\}`[^`]*`"),  # roles: glue, cite, eq, numref, term
    re.compile(r"(?P<ticks>`+)[^`](?:.|\n(?!\n))*?(?<!`)(?P=ticks)(?!`)"),  # inline code
    re.compile(r"\[(?:chapter )?\d+\]\((?:\.\./)?\d\d_\w+\)", re.IGNORECASE),  # links to chapters by their number
    re.compile(r"\]\([^)\s]*\)|<https?:[^>]*>|https?://\S+"),  # addresses
    re.compile(r"^\s*\d+[.)]\s", re.MULTILINE),  # numbered lists
    re.compile(rf"\b(?:{_NUMBERED})s?\s+\(?{_NUMBERS}\)?", re.IGNORECASE),
    re.compile(
        r"\b(?:position|token|layer|block|head|row|step|feature|id|index)s?\s+\d{1,2}(?:\s(?:to|and)\s\d{1,2})?(?!\w|,\d)"
    ),
    re.compile(r"\([−-]?\d{1,2}(?:, [−-]?\d{1,2})+\)"),  # worked vectors: (2, 1)
    re.compile(r"\b(?:19[5-9]\d|20[0-3]\d)\b(?![,.]\d)"),  # years
    re.compile(r"\b\d{1,2} (?:January|February|March|April|May|June|July|August|September|October|November|December)"),
    # models with a number in their name, and their sizes as names: Llama 2 7B, Mixtral 8x7B, the 70B, GPT-2
    re.compile(
        r"\b(?:L[Ll]a[Mm][Aa]|Gemma|OLMo|Phi|Qwen|Mi[sx]tral|PaLM|Falcon|DeepSeek|Claude)[ -]\d+(?:\.\d+)?\b(?!B)"
    ),
    re.compile(r"\b(?:\d+\s?[x×]\s?)?\d+[BM]\b"),
    re.compile(r"\b[A-Za-z][A-Za-z.]*-?\d[\w.-]*(?<![.-])"),  # a word that holds digits: GPT-2, float32, SmolLM2-135M
    re.compile(r"\b(?:4|8|16|32|64)[ -]bits?\b"),  # a number format
    re.compile(r"(?<![\w.,])00[0134]\b"),  # the source texts
    re.compile(r"\b(?:CC BY|MIT|BSD|Apache(?: licence)?|Python|PyTorch|torch|Jupyter Book|MathJax|WCAG) \d+(?:\.\d+)*"),
]
FORMULA = re.compile(r"\$\$.*?\$\$|(?<![\\$])\$(?!\$)(?:[^$\\]|\\.)+\$|^```\{math\}.*?^```", re.DOTALL | re.MULTILINE)
# in a formula: integers up to 24 as coefficients (24 d²), any integer as an exponent or a subscript
FORMULA_PARTS = [
    re.compile(r"[_^]\s*(?:\d|\{[^{}]*\})"),
    re.compile(r"(?<![\w.,}])(?:1?\d|2[0-4])(?!\d|[.,]\d|\{,\}\d|\\,\d|\\?%)"),
]
PROSE_CONSTANTS = re.compile(
    r"(?<![\w.,−-])[01](?!\w|[.,]\d|\{,\}\d|\\,\d|\s?%)"
)  # mean 0 and variance 1 are no figures


def blank(found: re.Match) -> str:
    """As many characters and lines, without content: places stay where they are."""
    return re.sub(r"[^\n]", " ", found[0])


def figures(text: str) -> Iterator[tuple[int, str, str]]:
    """Line (from 1), figure and surroundings of every typed figure of a Markdown text."""
    bare = text

    def coefficients(found: re.Match) -> str:
        formula = re.sub(r"\\(?:text|operatorname|label|tag)\{[^{}]*\}", blank, found[0])
        for part in FORMULA_PARTS:
            formula = part.sub(blank, formula)
        return formula

    comments, fences, *rest = STRUCTURE
    bare = fences.sub(blank, comments.sub(blank, bare))
    bare = FORMULA.sub(coefficients, bare)
    for structure in rest:
        bare = structure.sub(blank, bare)
    bare = PROSE_CONSTANTS.sub(blank, bare)
    for found in FIGURE.finditer(bare):
        around = " ".join(text[max(0, found.start() - 30) : found.end() + 30].split())
        yield bare.count("\n", 0, found.start()) + 1, plain(found[0]), around


def plain(figure: str) -> str:
    """One spelling of a figure: 1{,}536 and 1\\,536 are 1,536."""
    return figure.replace("{,}", ",").replace("\\,", ",").replace("−", "-").replace(" ", "").replace("\\", "")


def typed(path: Path) -> list[tuple[str, str, str]]:
    """(place, figure, surroundings) of a page's typed figures; the place is cell and line, or the line of a file."""
    cells = markdown(path)
    name = {True: "line", False: "cell"}[path.suffix == ".md"]
    return [
        (f"{name} {line}" if path.suffix == ".md" else f"{name} {n}, line {line}", figure, around)
        for n, cell in enumerate(cells)
        for line, figure, around in figures(cell)
    ]


def page_name(path: Path) -> str:
    return path.relative_to(CHAPTERS).with_suffix("").as_posix()


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_no_figure_is_typed_that_code_can_compute(path):
    allowed = ALLOWED.get(page_name(path), {})
    assert not [f"{place}: {figure} in “{around}”" for place, figure, around in typed(path) if figure not in allowed]


def test_every_allowed_figure_is_still_there_and_has_its_reason():
    there = {page_name(path): {figure for _, figure, _ in typed(path)} for path in PAGES}
    unused = [
        (page, figure) for page, entries in ALLOWED.items() for figure in entries if figure not in there.get(page, ())
    ]
    assert not unused, "take these out of typed_figures.json"
    assert not [(page, f) for page, entries in ALLOWED.items() for f, why in entries.items() if len(why.split()) < 2]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The model has 6,738,415,616 parameters.", ["6,738,415,616"]),
        ("That is 33 % of it, or 0.33; the loss is −1.25.", ["33%", "0.33", "-1.25"]),
        ("About 12 GiB and 3 times as much, 5x, 20k.", ["12", "3", "5", "20"]),
        ("The factor is $1{,}024 \\cdot 2.5$ of 1,000.", ["1,024", "2.5", "1,000"]),
        ("$N \\approx 8.4 \\times 10^{22}$ and $d = 4096$", ["8.4", "4096"]),
        ("It grows by 40 per cent from 2048 on.", ["40", "2048"]),
        ("```{admonition} Note\nIt took 17 steps.\n```", ["17"]),
        ("| a | 512 |", ["512"]),
        ("a loss of 2 and 1.5, (1.860, 2.432)", ["2", "1.5", "1.860", "2.432"]),
        ("about 60% of 3,000.", ["60%", "3,000"]),
    ],
)
def test_a_planted_figure_is_found(text, found):
    assert [figure for _, figure, _ in figures(text)] == found


@pytest.mark.parametrize(
    "text",
    [
        "See chapters 3, 4 and 11, section 3.2.1, table 2.1 and footnote 4 of text 004.",
        "The query (2, −1) of token 5, layers 1 to 3; chapters [6](06_norms) and [7](../07_mlp).",
        "In 2017 and from 2019 to 2024; the paper of 2020.",
        "GPT-2, Llama 2 7B, Llama-3-8B, Mixtral 8x7B, SmolLM2-135M, bge-small-en-v1.5, the 70B, OLMo 2, UTF-8, H100.",
        "{glue:text}`n_3` of {cite:p}`vaswani2017attention`, {eq}`eq-7`, `x[3:12]` and ``a ` 5``.",
        "$12 L d^2 + 4Td$, $24d^2$, $10^{22}$, $x_{17}$, $\\frac{1}{2}$, $$\\sum_{n=1}^{64} 2 n$$ (eq-x-1)",
        "1. first\n2. second\n\n```python\nx = 4096\n```\n",
        "mean 0 and variance 1, between 0 and 1, 16 bits, a 32-bit format",
        "[a](https://arxiv.org/abs/1706.03762) and https://example.org/12",
        "```{exercise} Ten\n:label: ex-10\nSay why.\n```",
        "<!-- 4096 -->",
    ],
)
def test_structure_is_no_figure(text):
    assert list(figures(text)) == []


def test_a_figure_planted_in_a_chapter_is_reported(tmp_path):
    chapter = json.loads((CHAPTERS / "02_attention.ipynb").read_text(encoding="utf-8"))
    cell = next(n for n, cell in enumerate(chapter["cells"]) if n > 8 and cell["cell_type"] == "markdown")
    chapter["cells"][cell]["source"].insert(0, "It took 4,321 steps.\n")
    path = tmp_path / "02_attention.ipynb"
    path.write_text(json.dumps(chapter), encoding="utf-8")
    (found,) = [entry for entry in typed(path) if entry[1] not in ALLOWED["02_attention"]]
    assert found[0].endswith("line 1") and found[1] == "4,321" and "It took 4,321 steps" in found[2]


def test_places_are_told():
    assert [line for line, _, _ in figures("# Title\n\n`12`\n\n$$\nx\n$$\nhere: 4096\n")] == [8]


if __name__ == "__main__":
    chosen = sys.argv[1:]
    for page in PAGES:
        if chosen and not any(word in page_name(page) for word in chosen):
            continue
        for place, figure, around in typed(page):
            if figure not in ALLOWED.get(page_name(page), {}):
                print(f"{page_name(page)}, {place}: {figure}   “{around}”")
