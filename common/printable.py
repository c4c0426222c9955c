"""Text from outside, made safe for a terminal."""

from __future__ import annotations

LAYOUT = "\n\t"
"""What text of several lines is made of."""


def printable(text: str, kept: str = "") -> str:
    r"""Return the text with escapes such as `\x1b` for what is not printed, but for `kept`.

    Names, reasons, headers and records may come from anyone. A terminal would carry out what is in
    them: it clears the screen, sets its title, or shows one word in place of another.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape").decode()
        for each in text
    )
