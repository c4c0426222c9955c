"""`pipeline topic`: makes and changes topics, reads their records, and writes some."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from kafka_pipeline.admin.arguments import ConfigPath, DryRun, PipelinePath, Yes
from kafka_pipeline.admin.files import load_files
from kafka_pipeline.admin.terminal import require_consent, show_json
from kafka_pipeline.common import json_text
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.config.config_keys import PARALLELISM, REPLICATION_FACTOR
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.deployment.job import connected
from kafka_pipeline.operations.record_lines import RecordLines
from kafka_pipeline.operations.result_schema import ResultSchema
from kafka_pipeline.operations.starts import parse_start
from kafka_pipeline.operations.topic_changes import TopicChange, TopicOptions, missing_topics
from kafka_pipeline.operations.topic_records import TopicRecords
from kafka_pipeline.streams.pipeline.kinds.command_serdes import command_serde

topic_app = typer.Typer(
    help="Make and change topics, read their records, and write some.",
    no_args_is_help=True,
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Key = Annotated[
    str,
    typer.Option(
        metavar="SERDE",
        help="How keys are read or written: a serde, avro[:SUBJECT], json_schema[:SUBJECT] or "
        "protobuf:MODULE:CLASS.",
    ),
]
Value = Annotated[
    str, typer.Option(metavar="SERDE", help="How values are read or written; as for --key.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="NAME=VALUE", help="A setting of Kafka, by Kafka's name."),
]


@topic_app.command()
@run_command
def create(
    config: ConfigPath,
    pipeline: PipelinePath,
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]...", help="Only these; all that are missing by default."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, max=PARALLELISM.high, metavar="N", help="By default, parallelism."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=REPLICATION_FACTOR.high,
            metavar="N",
            help="By default, that of config.yaml.",
        ),
    ] = None,
    settings: Settings = None,
    dry_run: DryRun = False,
) -> None:
    """Create the sources, sinks and dead-letter topics of a pipeline that do not exist.

    Existing topics are left unchanged. Settings that are not given are those that the JobManager
    would use: mostly the brokers' defaults.

    Exit codes: 0 done, 2 wrong arguments or files, or Kafka refuses it, 3 Kafka does not answer.
    """
    loaded_config, loaded = load_files(config, pipeline)
    given = _settings(settings)
    for name, value in given.items():
        if value is None:
            raise ConfigError(f"--config {name}=: a new topic needs a value")
    admin = connected(loaded_config)
    options = TopicOptions(partitions, replication_factor, given)
    missing = missing_topics(loaded_config, loaded, admin, topics or (), options)
    for spec in missing:
        made = "would be made" if dry_run else "made"
        copies = f"replication factor {spec.replication_factor}"
        set_ = "".join(f", {name}={value}" for name, value in spec.made_with.items())
        typer.echo(f"{spec.name}: {made}, {counted(spec.partitions, 'partition')}, {copies}{set_}")
        if not dry_run:
            admin.ensure_topics([spec])
    if not missing:
        typer.echo("nothing is missing")


@topic_app.command()
@run_command
def alter(
    config: ConfigPath,
    pipeline: PipelinePath,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of topics.")],
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, max=PARALLELISM.high, metavar="N", help="How many in all; never fewer."
        ),
    ] = None,
    settings: Settings = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Change settings of sources, sinks and dead-letter topics, or add partitions.

    NAME= without a value restores the brokers' default. More partitions are refused if a processor
    with state reads the topic, as keys would move away from their state, and if the number would
    differ from that of topics whose records meet those of this topic by key.

    Exit codes: 0 done, 1 the answer was no, 2 wrong arguments or files, or keys would leave their
    state, or Kafka refuses it, 3 Kafka does not answer.
    """
    if partitions is None and not settings:
        raise ConfigError("give --partitions or --config: what is to change?")
    loaded_config, loaded = load_files(config, pipeline)
    options = TopicOptions(partitions, None, _settings(settings))
    change = TopicChange(loaded_config, loaded, connected(loaded_config), topics, options)
    for topic, count in change.counts.items():
        typer.echo(f"{topic} gets {counted(count, 'partition')}")
    for name, value in options.settings.items():
        to = "the brokers' default" if value is None else value
        typer.echo(f"{name} of {', '.join(change.topics)} becomes {to}")
    for caution in change.cautions:
        typer.echo(caution)
    if dry_run:
        return
    if change.cautions:
        require_consent("Add the partitions? Kafka cannot take them away again.", yes=yes)
    change.make()


def _settings(given: list[str] | None) -> dict[str, str | None]:
    """Read the arguments NAME=VALUE; without a value, it is None."""
    found: dict[str, str | None] = {}
    for argument in given or ():
        name, equals, value = argument.partition("=")
        if not name or not equals:
            raise ConfigError(
                f"--config {argument}: give NAME=VALUE, such as retention.ms=86400000"
            )
        found[name] = value or None
    return found


def _records(config: Path, topic: str, key: str, value: str) -> TopicRecords:
    settings = load_config(config)
    serdes = (
        command_serde(given, f"{topic}-{part}", settings)
        for part, given in (("key", key), ("value", value))
    )
    return TopicRecords(settings, topic, RecordLines(topic, *serdes))


@topic_app.command()
@run_command
def schema(
    config: ConfigPath,
    pipeline: PipelinePath,
    topic: Topic,
    register: Annotated[
        bool,
        typer.Option("--register", help="Also register it, if its subject has no schema yet."),
    ] = False,
) -> None:
    """Print the Avro schema of the results of the query that writes to a topic.

    Decimals keep their digits, times keep their microseconds, and nullable columns are unions.
    Starts Spark for a few seconds.

    Exit codes: 0 done, 2 wrong arguments or files, or the subject has a schema, 3 the schema
    registry does not answer.
    """
    settings, loaded = load_files(config, pipeline)
    found = ResultSchema(settings, loaded, topic)
    show_json(found.schema)
    if register:
        id_ = found.register()
        typer.echo(f'registered in subject "{found.subject}" with id {id_}', err=True)


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
        int | None, typer.Option(min=1, metavar="N", help="End after this many records.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for more records, until Ctrl-C.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON for each record.")
    ] = False,
) -> None:
    """Print committed records: partition@offset, time, key, value and headers.

    The records of a partition are in order. Without --follow, ends at the current end of the topic.

    Exit codes: 0 done, 2 wrong arguments or records, 3 Kafka or the schema registry does not
    answer.
    """
    records = _records(config, topic, key, value)
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

    A line needs only {"value": "…"}. The offset is ignored; without a partition, the key determines
    it, as in Java clients. Lines are written in transactions of 500. The last line of the output
    says how many were written, even if a line is wrong. Topics that the engine itself writes are
    refused.

    Exit codes: 0 done, 2 wrong arguments or lines, 3 Kafka or the schema registry does not answer.
    """
    records = _records(config, topic, key, value)
    written = 0
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # a wrong line is refused with its number
    try:
        for total in records.write(sys.stdin):
            written = total
    finally:
        typer.echo(f"{counted(written, 'record')} written to {topic}")
