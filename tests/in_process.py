"""Commands of `pipeline` in the process of the tests: a process of its own imports for a second."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from typer.testing import CliRunner, Result

from kafka_pipeline.admin.app import app_for


def run_pipeline(*words: str, given: str = "", code: int = 0) -> str:
    """Run a command with an input; return what it prints on both streams.

    Raises `AssertionError` if it ends with another exit code, and what a bug in it raises.
    """
    done = invoke(*words, given=given, catch_exceptions=False)
    assert done.exit_code == code, f"{words} ended with {done.exit_code}:\n{done.output}"
    return done.output


def invoke(
    *words: str | Path,
    given: str = "",
    env: Mapping[str, str] | None = None,
    catch_exceptions: bool = True,
) -> Result:
    """Run a command as its process does, which makes no other command; return what came of it."""
    made = [str(word) for word in words]
    return CliRunner().invoke(
        app_for(made), made, input=given, env=env, catch_exceptions=catch_exceptions
    )
