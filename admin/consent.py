"""Asks before something is taken away."""

from __future__ import annotations

import sys

import typer

from kafka_pipeline.common.errors import ConfigError


def require_consent(question: str, *, yes: bool) -> None:
    """Ask, unless `yes`; end the command if the answer is no.

    Raises `ConfigError` if nobody can be asked, as in a script.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Nobody can be asked here: give --yes to do it")
    typer.confirm(question, abort=True)
