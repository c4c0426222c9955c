"""Text from outside, made safe for a terminal."""

from __future__ import annotations

import re

# Control characters but tab and newline, and those that turn the direction of what follows.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Return the text with control characters as escapes such as `\x1b`.

    Names, reasons and headers may come from anyone. A terminal would carry out what is in them: it
    clears the screen, sets its title, or shows one word in place of another.
    """
    return _CONTROL.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
