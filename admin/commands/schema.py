"""`pipeline schema`: prints the JSON Schema of a file."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_pipeline.admin.schema import SchemaName, schema_text
from kafka_pipeline.common.process.cli import run_command


@run_command
def schema(
    name: Annotated[SchemaName, typer.Argument(help="Which file the schema is for.")],
) -> None:
    """Print the JSON Schema of config.yaml or pipeline.yaml, for editors.

    It checks one value at a time; `pipeline validate` also checks how they fit together.
    """
    typer.echo(schema_text(name), nl=False)
