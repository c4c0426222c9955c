"""The arguments that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="Path of config.yaml.")]
PipelinePath = Annotated[Path, typer.Argument(metavar="PIPELINE", help="Path of pipeline.yaml.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print it for programs.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
