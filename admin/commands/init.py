"""`pipeline init`: writes the files to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from admin.samples import write_samples
from common.cli import run_command


@run_command
def init(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where to.")] = Path("."),
) -> None:
    """Write a sample config.yaml and pipeline.yaml, and the schemas that editors check them by.

    Existing files stay untouched.
    """
    for path in write_samples(folder):
        typer.echo(f"wrote {path}")
