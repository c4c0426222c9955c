"""Commands of `pipeline` in the process of the tests: a process of its own imports for a second."""

from __future__ import annotations

from typer.testing import CliRunner

from kafka_pipeline.admin.app import app_with


def run_pipeline(*words: str, given: str = "", code: int = 0) -> str:
    """Run a command with an input; return what it prints on both streams.

    Raises `AssertionError` if it ends with another exit code, and what a bug in it raises.
    """
    done = CliRunner().invoke(app_with(), words, input=given, catch_exceptions=False)
    assert done.exit_code == code, f"{words} ended with {done.exit_code}:\n{done.output}"
    return done.output
