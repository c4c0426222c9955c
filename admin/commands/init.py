"""`pipeline init`: writes the files to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafka_pipeline.admin.samples import Template, write_samples
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.process.cli import run_command


@run_command
def init(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where to.")] = Path("."),
    template: Annotated[
        Template,
        typer.Option(
            help="What the pipeline has: processors without code; your own class; a SQL query "
            "with a window; a topology of the DSL; a join with a table, in SQL."
        ),
    ] = Template.BASIC,
) -> None:
    """Write a sample config.yaml and pipeline.yaml, and the schemas with which editors check them.

    The job gets the name of the folder. All templates but the basic one have tests, too: run
    `pipeline test tests.yaml`. Existing files stay untouched.
    """
    try:
        folder = folder.expanduser()  # quotes keep the shell from doing so
    except RuntimeError as error:
        raise ConfigError(f"{folder} does not exist: {error}") from error
    for path in write_samples(folder, template):
        typer.echo(f"wrote {path}")
