"""The arguments that commands share, and how their values are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafka_pipeline.common.config import durations
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.operations.times import parse_time

_UNITS = ("s", "min", "h", "d")

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="Path of config.yaml.")]
PipelinePath = Annotated[Path, typer.Argument(metavar="PIPELINE", help="Path of pipeline.yaml.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
RestTimeout = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait for tasks to stop."),
]


def time_of(option: str, text: str) -> int:
    """Return the time that an option gives, in ms. Raises `ConfigError` if it is none."""
    try:
        return parse_time(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from error


def duration_of(option: str, text: str) -> int:
    """Return the duration that an option gives, in ms. Raises `ConfigError` if it is none."""
    found = durations.parsed(text, _UNITS, 1)
    if found is None:
        raise ConfigError(f'{option}: "{text}" is not a time such as 30 s, 10 min or 12 h')
    return found
