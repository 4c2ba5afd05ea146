"""Interactive figures: small custom elements, fed by Python objects, at home in the book and in JupyterLab.

`frame` says how one is made; each other module holds one figure, with its script beside it.
"""

from classroom.elements.frame import FOLDER, PARTS, Element, bundle, in_lab, style, table  # isort: skip
from classroom.elements.attention import attention
from classroom.elements.calculator import calculator
from classroom.elements.dial import dial
from classroom.elements.softmax import softmax
from classroom.elements.stream import stream
from classroom.elements.tape import tape
from classroom.elements.three_tokens import three_tokens

__all__ = [
    "FOLDER",
    "PARTS",
    "Element",
    "attention",
    "bundle",
    "calculator",
    "dial",
    "in_lab",
    "softmax",
    "stream",
    "style",
    "table",
    "tape",
    "three_tokens",
]
