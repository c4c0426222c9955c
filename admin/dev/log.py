"""The one log of `pipeline dev`: the lines of all daemons, each with its name in a colour."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.text import Text

OWN = "dev"
"""The name of the command's own lines."""

_COLORS = ("cyan", "magenta", "green", "blue", "bright_cyan", "bright_magenta")
_WIDTH = 13
_LEVEL = re.compile(r"\[(warning|error|critical) *\]")
_PROBLEM = re.compile(r"\S+:\d+:\d+: ")
"""How a mistake in a file begins: with its place."""

_STYLES: Mapping[str, str] = {"warning": "yellow", "error": "bold red", "critical": "bold red"}


@dataclass(slots=True)
class _Follower:
    """A log file that is read on and on; the start of a line waits for its end."""

    file: Path
    place: int
    rest: bytes = b""

    def lines(self) -> list[str]:
        try:
            with self.file.open("rb") as stream:
                stream.seek(self.place)
                found = stream.read()
        except OSError:
            return []
        self.place += len(found)
        *lines, self.rest = (self.rest + found).split(b"\n")
        return [line.decode(errors="replace") for line in lines]


@dataclass(slots=True)
class DevLog:
    """Prints what daemons log. `console` decides on colours: none with NO_COLOR, or in a pipe."""

    console: Console
    _followers: dict[str, _Follower] = field(default_factory=dict)

    def follow(self, name: str, file: Path) -> None:
        """Print from now on what is added to a file. Its former content is deleted."""
        if name not in self._followers:
            file.write_bytes(b"")
            self._followers[name] = _Follower(file, 0)

    def pump(self) -> None:
        """Print what came since the last call."""
        for number, (name, follower) in enumerate(self._followers.items()):
            for line in follower.lines():
                self._print(name, line, _COLORS[number % len(_COLORS)], style_of(line))

    def say(self, text: str, style: str = "bold") -> None:
        """Print lines of the command itself."""
        for line in text.splitlines():
            self._print(OWN, line, "bold", style)

    def _print(self, name: str, line: str, color: str, style: str) -> None:
        text = Text.assemble((f"{name:<{_WIDTH}} | ", color), (line, style))
        # Without wrapping: the terminal wraps, and in a pipe a line stays a line.
        self.console.print(text, soft_wrap=True)


def style_of(line: str) -> str:
    """Return the style for a line of a daemon's log, by its level, or of a mistake in a file."""
    found = _LEVEL.search(line)
    if found:
        return _STYLES[found[1]]
    return _STYLES["error"] if _PROBLEM.match(line) else ""
