"""A figure or an equation that has a number is referred to somewhere: what has none needs no number."""

import re
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted(ROOT.glob("chapters/*.ipynb")) + sorted(ROOT.glob("chapters/appendix/*.ipynb"))


def words(path: Path) -> str:
    return "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")


def numbered(path: Path) -> set[str]:
    """The names of a chapter's figures, from the metadata of their cells, and of its equations, behind their `$$`."""
    cells = nbformat.read(path, as_version=4).cells
    figures = {cell.metadata.get("mystnb", {}).get("figure", {}).get("name") for cell in cells} - {None}
    return figures | set(re.findall(r"\$\$ \(([\w-]+)\)", words(path)))


def test_every_numbered_figure_and_equation_is_referred_to():
    text = "\n".join(words(path) for path in CHAPTERS)
    names = {name for path in CHAPTERS for name in numbered(path)}
    assert len(names) > 50
    referred = set(re.findall(r"\{(?:numref|eq|ref)\}`(?:[^`<]*<)?([\w-]+)>?`", text))
    assert sorted(names - referred) == []
