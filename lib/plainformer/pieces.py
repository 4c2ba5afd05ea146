"""The cut that comes before byte-pair encoding: merges never cross a piece.

The rule is GPT-2's (Radford et al. 2019): a contraction's tail, or one run of letters, of digits or of other
signs, each with the one space before it, or a run of white space.
"""

from __future__ import annotations

import re
import unicodedata

# Written on stand-ins (see _StandIns), hence plain ASCII.
_COMMON = r"'(?:[sdmt]|ll|ve|re)| ?[A-Za-z]+|{number}| ?[^\sA-Za-z0-9]+|\s+(?!{next})|\s+"
SPLITS = {
    "gpt2": re.compile(_COMMON.format(number=" ?[0-9]+", next=r"\S"), re.ASCII),
    "single-digits": re.compile(_COMMON.format(number="[0-9]", next=r"[^\s0-9]"), re.ASCII),
}


class _StandIns(dict):
    """ASCII stands for itself, any other character for its class: a letter A, a number 0, a space, or another sign."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kind = unicodedata.category(character)[0]
        stand_in = {"L": "A", "N": "0"}.get(kind, "\n" if character.isspace() else "!")
        self[code] = character if code < 128 else stand_in
        return self[code]


_STAND_INS = _StandIns()


def check_split(split: str) -> None:
    """Raises ``ValueError`` for a rule that is not one of `SPLITS`."""
    if split not in SPLITS:
        raise ValueError(f"split={split!r} is not known; expected one of {tuple(SPLITS)}.")


def split_into_pieces(data: str | bytes, split: str = "gpt2") -> list[bytes]:
    """The pieces that merges never cross; joined, they are the input."""
    check_split(split)
    if isinstance(data, str):
        try:
            data.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"character {error.start} of the text is half of a surrogate pair, which UTF-8 cannot hold. "
                "Usual cause: bytes decoded with errors='surrogateescape'. Pass the bytes themselves."
            ) from None
        text = data
    elif isinstance(data, bytes | bytearray):
        text = bytes(data).decode("utf-8", "surrogateescape")  # a stray byte becomes one sign, and a byte again below
    else:
        raise TypeError(f"a tokenizer reads str or bytes, got {type(data).__name__}.")
    stand_ins = text.translate(_STAND_INS)
    return [text[m.start() : m.end()].encode("utf-8", "surrogateescape") for m in SPLITS[split].finditer(stand_ins)]
