"""Output for a terminal, a pipe or a file."""

from __future__ import annotations

import sys

from rich.console import Console, RenderableType

_PIPE_WIDTH = 200


def show(content: RenderableType) -> None:
    """Print tables and trees."""
    # In a pipe or a file, names stay on one line, so that grep finds them.
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    # Without cropping: the terminal wraps lines that are too long.
    Console(width=width).print(content, crop=False)
