"""Text from outside, made safe for a terminal."""

from __future__ import annotations

LAYOUT = "\n\t"
"""The control characters of text with several lines."""


def printable(text: str, kept: str = "") -> str:
    r"""Return the text with escapes such as `\x1b` for unprintable characters, except those `kept`.

    Names, reasons, headers and records may come from anyone. A terminal would obey control
    characters in them: clear the screen, set its title, or show one word in place of another.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape").decode()
        for each in text
    )


def encodable(text: str) -> str:
    r"""Return the text with escapes such as `\ud83d` for halves of surrogate pairs.

    UTF-8 cannot hold those. They may come from the JSON of a record, or from the name of a file.
    """
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
