"""`pipeline test`: runs suites of tests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafka_pipeline.common.process.cli import run_command


@run_command
def test(
    suites: Annotated[list[Path], typer.Argument(metavar="SUITE...", help="Paths of suites.")],
) -> None:
    """Run a pipeline without Kafka, and compare with what YAML suites expect.

    Exit codes: 0 all tests passed, 1 some failed, 2 a file is wrong, 3 something that is needed,
    such as Java, is missing.
    """
    # Imported late: the stream API takes a while, and most commands do not need it.
    from kafka_pipeline.streams.testing.suites import run_suite

    passed = failed = 0
    # What is known is shown even if a later suite is wrong.
    for suite in suites:
        for result in run_suite(suite):
            typer.echo(f"FAILED  {result.name}" if result.problem else f"ok      {result.name}")
            if result.problem:
                typer.echo(f"        {result.problem}")
                failed += 1
            else:
                passed += 1
    typer.echo(f"{passed} passed, {failed} failed")
    if failed:
        raise typer.Exit(1)
