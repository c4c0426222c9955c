"""Output for a terminal, a pipe or a file, and questions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.printable import LAYOUT, printable

_PIPE_WIDTH = 200
_LAST_LINES = 12


class Harmless:
    """Shows what it is given, with escapes for what a terminal would carry out.

    Names, reasons and times in it may come from a topic, to which others may write.
    """

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Render the content."""
        for text, style, control in console.render(self._content, options):
            yield Segment(text if control else printable(text, LAYOUT), style, control)


def show(content: RenderableType) -> None:
    """Print tables and trees."""
    # In a pipe or a file, names stay on one line, so that grep finds them.
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    _break_words(content)
    # Without cropping: the terminal wraps lines that are too long.
    Console(width=width).print(Harmless(content), crop=False)


def _break_words(content: RenderableType) -> None:
    """Have tables break words that are too long for a narrow terminal: rich would cut them off."""
    match content:
        case Group(renderables=parts):
            for part in parts:
                _break_words(part)
        case Table(columns=columns):
            for column in columns:
                column.overflow = "fold"


def say(line: str) -> None:
    """Print a line of the result, which may have parts from a topic, as `Harmless` does."""
    typer.echo(printable(line, LAYOUT))


def say_progress(line: str) -> None:
    """Print a line about progress on stderr, apart from results, likewise."""
    typer.echo(printable(line, LAYOUT), err=True)


def show_json(content: object) -> None:
    """Print something as JSON, for programs."""
    typer.echo(json.dumps(content, indent=2))


def last_words(output: str) -> str:
    """Return the end of a program's output, indented, without rulers and stack frames of Java."""
    lines = [line for line in output.splitlines() if any(map(str.isalnum, line))]
    useful = [line for line in lines if not line.startswith(("\tat ", "\t... "))]
    return "\n".join(f"  {line}" for line in useful[-_LAST_LINES:]) or "  (nothing)"


def require_consent(question: str, *, yes: bool) -> None:
    """Ask, unless `yes`; end the command if the answer is no.

    Raises `ConfigError` if nobody can be asked, as in a script.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Nobody can be asked here: give --yes to do it")
    typer.confirm(question, abort=True)
