"""`pipeline topic`: reads the records of a topic, and writes some."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kafka_pipeline.admin.arguments import ConfigPath
from kafka_pipeline.common import json_text
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.operations.starts import parse_start
from kafka_pipeline.operations.topic_records import TopicRecords

topic_app = typer.Typer(
    help="Read the records of a topic, and write some.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Key = Annotated[str, typer.Option(metavar="SERDE", help="How keys are read or written.")]
Value = Annotated[str, typer.Option(metavar="SERDE", help="How values are read or written.")]


@topic_app.command()
@run_command
def read(
    config: ConfigPath,
    topic: Topic,
    key: Key = "string",
    value: Value = "string",
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="Where to begin in each partition: earliest, latest, an offset, a time in "
            "ISO 8601, or -10 for the last 10 records.",
        ),
    ] = "earliest",
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", min=0, help="Only this partition.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after so many records.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for more records, until Ctrl-C.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON for each record.")
    ] = False,
) -> None:
    """Print committed records: partition@offset, time, key, value and headers.

    Those of a partition come in order. Without --follow, it ends with what is there now.

    Exit codes: 0 done, 2 wrong arguments or records, 3 Kafka is not there.
    """
    records = TopicRecords(load_config(config), topic, key, value)
    try:
        start = parse_start(from_)
    except ValueError as error:
        raise ConfigError(f"--from: {error}") from error
    lines = records.lines
    for batch, index in records.read(start, partitions or (), most=limit, follow=follow):
        line = json_text.dumps(lines.to_json(batch, index)) if as_json else ""
        print(line or lines.to_text(batch, index), flush=follow)


@topic_app.command()
@run_command
def write(config: ConfigPath, topic: Topic, key: Key = "string", value: Value = "string") -> None:
    """Write the lines of standard input, each a record as `read --json` prints it.

    A line needs no more than {"value": "…"}. The offset is ignored; without a partition, the key
    decides, as in Java clients. Lines are written in transactions of 500. The last line of the
    output says how many were written, also if a line is wrong. The topics that the engine itself
    writes are refused.

    Exit codes: 0 done, 2 wrong arguments or lines, 3 Kafka is not there.
    """
    records = TopicRecords(load_config(config), topic, key, value)
    written = 0
    try:
        for total in records.write(sys.stdin):
            written = total
    finally:
        typer.echo(f"{counted(written, 'record')} written to {topic}")
