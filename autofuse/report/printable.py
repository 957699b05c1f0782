"""Text that may come from a stranger, made harmless for a terminal."""

from __future__ import annotations

import unicodedata

_STAYS = frozenset("\n\t")


def printable(text: str) -> str:
    r"""The text with control and format characters written as escapes (`\x1b`, `\u202e`); line ends and tabs stay.

    Notes and source locations of a plan file are free text. A terminal would obey what they say: colours, titles, a
    clipboard, lines that overwrite what stands above them.
    """
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(c if c in _STAYS or unicodedata.category(c) not in ("Cc", "Cf") else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
