"""Parses what `faulthandler` writes when a signal ends a Python process."""

from __future__ import annotations

import re
from typing import NamedTuple

from kafka_pipeline.common.code.user_frames import StackLine

_CURRENT = re.compile(r"^Current thread 0x([0-9a-f]+).*:$", re.MULTILINE)
_LINE = re.compile(r'^  File "([^"\n]+)", line (\d+) in (.+)$')


class FatalStack(NamedTuple):
    """The stack of the thread that got the signal."""

    thread: int
    """Python's id of the thread."""
    lines: tuple[StackLine, ...]
    """The lines, innermost first."""


def fatal_stack(text: str) -> FatalStack | None:
    """Return the stack in a text; `None` if no thread in it got the signal."""
    found = _CURRENT.search(text)
    if found is None:
        return None
    lines = []
    for line in text[found.end() :].lstrip("\n").splitlines():
        match = _LINE.match(line)
        if match is None:
            break
        lines.append(StackLine(match[1], int(match[2]), match[3]))
    return FatalStack(int(found[1], 16), tuple(lines))
