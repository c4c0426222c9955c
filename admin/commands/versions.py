"""`pipeline versions`: lists the pipelines that a job has run."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from kafka_pipeline.admin.arguments import AsJson, ConfigPath
from kafka_pipeline.admin.terminal import show, show_json
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.printable import LAYOUT, printable
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.deployment.desired_state import Deployment
from kafka_pipeline.deployment.job import connected, read_deployment
from kafka_pipeline.operations.times import shown_time


@run_command
def versions(
    config: ConfigPath,
    text: Annotated[
        int | None,
        typer.Option(min=1, metavar="VERSION", help="Print the pipeline.yaml of this version."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the versions of the job's pipeline: which one runs, when each was made, and by whom.

    A version that has not come up was ROLLED BACK, for the reason that is shown.

    Exit codes: 0 done, 2 no such version, 3 Kafka does not answer.
    """
    settings = load_config(config)
    deployment = read_deployment(settings, connected(settings))
    if text is not None:
        if text not in deployment.numbers:
            raise ConfigError(f"this job has no version {text}: see `pipeline versions`")
        found = deployment.version(text).text
        typer.echo(printable(found, LAYOUT) if sys.stdout.isatty() else found, nl=False)
    elif as_json:
        show_json(_as_json(deployment))
    else:
        show(_table(deployment))


def _as_json(deployment: Deployment) -> list[dict[str, object]]:
    return [
        {
            "version": number,
            "state": _state(deployment, number),
            "reason": _reason(deployment, number),
            "made_at": shown_time(deployment.version(number).made_at_ms),
            "made_by": deployment.version(number).made_by,
            "processors": [p.id for p in deployment.version(number).pipeline.processors],
        }
        for number in deployment.numbers
    ]


def _table(deployment: Deployment) -> Table:
    reasons = [_reason(deployment, number) for number in deployment.numbers]
    more = ["why"] if any(reasons) else []
    table = Table("version", "", "made at", "by", "processors", *more)
    for number, reason in zip(deployment.numbers, reasons, strict=True):
        version = deployment.version(number)
        ids = ", ".join(processor.id for processor in version.pipeline.processors)
        state = _state(deployment, number)
        made_by = Text(version.made_by)
        why = [Text(reason)] if more else []
        table.add_row(str(number), state, shown_time(version.made_at_ms), made_by, ids, *why)
    return table


def _state(deployment: Deployment, number: int) -> str:
    wish = deployment.wish
    if wish is None:
        return "FORMER"
    current = "ON TRIAL" if wish.trial and wish.next is None else "CURRENT"
    former = "ROLLED BACK" if deployment.taken_back(number) else "FORMER"
    return {wish.next: "COMING", wish.version: current}.get(number, former)


def _reason(deployment: Deployment, number: int) -> str:
    """Return why a version was rolled back, or is one that takes another one back, or ""."""
    taken_back, back = deployment.taken_back(number), deployment.version(number).takes_back
    if taken_back is not None:
        return taken_back.reason
    return f"instead of version {back.version}" if back is not None else ""
