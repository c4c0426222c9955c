"""`pipeline state`: looks up the state of the tasks of a running job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from kafka_pipeline.admin.arguments import AsJson, ConfigPath, time_of
from kafka_pipeline.admin.terminal import say, show, show_json
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.operations.cluster_watcher import ClusterWatcher
from kafka_pipeline.operations.state import StateClient, StoreInfo, shown
from kafka_pipeline.operations.times import shown_time

_LONGEST = 100

state_app = typer.Typer(
    help="Look up the state of a running job: what its tasks have committed.",
    no_args_is_help=True,
)

Processor = Annotated[str, typer.Argument(metavar="PROCESSOR", help="Id of the processor.")]
StoreName = Annotated[
    str | None,
    typer.Option("--store", metavar="NAME", help="Which store, if the processor has several."),
]
Partition = Annotated[int | None, typer.Option(min=0, metavar="N", help="Only this partition.")]
Limit = Annotated[int, typer.Option(min=1, metavar="N", help="End after this many entries.")]


@state_app.command("list")
@run_command
def list_stores(config: ConfigPath, as_json: AsJson = False) -> None:
    """List the stores of running tasks: types, serdes, and the owner of each partition.

    Exit codes: 0 done, 2 wrong arguments, or no state_port in config.yaml, 3 Kafka or a TaskManager
    does not answer.
    """
    with _client(config) as client:
        found = client.listed()
    if as_json:
        show_json(found)
        return
    table = Table("processor", "store", "type", "keys", "values", "partition", "TaskManager")
    for row in found:
        copy = f" (standby, lag {_lag(row)})" if row["standby"] else ""
        table.add_row(
            *map(Text, (row["processor"], row["store"], row["type"])),
            *map(Text, (row["key_serde"], row["value_serde"])),
            *(str(row["partition"]), f"{row['task_manager']}{copy}"),
        )
    show(table)


@state_app.command("get")
@run_command
def get_entry(
    config: ConfigPath,
    processor: Processor,
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="[KEY]", help="The key as text; numbers and JSON as JSON writes them."
        ),
    ] = None,
    key_hex: Annotated[
        str, typer.Option(metavar="HEX", help="The key's bytes in hexadecimal, instead of KEY.")
    ] = "",
    store: StoreName = None,
    partition: Partition = None,
    from_: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="Windows and sessions from this time on, in ISO 8601."
        ),
    ] = "",
    to: Annotated[
        str, typer.Option(metavar="TIME", help="Windows and sessions up to this time.")
    ] = "",
    as_of: Annotated[
        str, typer.Option(metavar="TIME", help="The version that was valid at this time.")
    ] = "",
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Print the value of a key in a store, or its windows, its sessions or a version of it.

    Asks the partition that the key belongs to, and the others if it has nothing.

    Exit codes: 0 found, 1 nothing there, 2 wrong arguments, 3 Kafka or the TaskManager that has the
    task does not answer.
    """
    if (key is None) == (not key_hex):
        raise ConfigError("give a KEY, or --key-hex")
    times = {
        name: max(time_of(option, text), 0)
        for name, option, text in (
            ("from_ms", "--from", from_),
            ("to_ms", "--to", to),
            ("as_of_ms", "--as-of", as_of),
        )
        if text
    }
    with _client(config) as client:
        wanted = client.store(processor, store)
        data = wanted.key(key) if key is not None else _hex("--key-hex", key_hex)
        found = client.get(wanted, data, partition, {**times, "limit": limit})
    if as_json:
        show_json(found)
    else:
        _print(wanted, [found])
        if found["more"]:
            typer.echo("there are more: give a shorter interval")
    if not found["entries"]:
        raise SystemExit(1)


@state_app.command()
@run_command
def scan(
    config: ConfigPath,
    processor: Processor,
    store: StoreName = None,
    from_key: Annotated[str, typer.Option(metavar="KEY", help="From this key on.")] = "",
    to_key: Annotated[str, typer.Option(metavar="KEY", help="Up to this key, included.")] = "",
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="Only keys that begin with this text.")
    ] = "",
    partition: Partition = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Print keys and values, in the order of keys in each partition; windows by time first.

    The order of keys is that of their bytes.

    Exit codes: 0 done, 2 wrong arguments, 3 Kafka or a TaskManager that has a task does not answer.
    """
    with _client(config) as client:
        wanted = client.store(processor, store)
        query: dict[str, Any] = {
            f"{name}_hex": wanted.key(text).hex()
            for name, text in (("from_key", from_key), ("to_key", to_key))
            if text
        }
        if prefix:
            query["prefix"] = prefix
        partitions = range(wanted.partitions) if partition is None else [partition]
        pages = client.scan(wanted, partitions, query, limit)
        if as_json:
            rows = [{"partition": p["partition"], **row} for p in pages for row in p["entries"]]
            show_json(rows)
        else:
            _print(wanted, pages)


@contextmanager
def _client(config: Path) -> Iterator[StateClient]:
    with closing(ClusterWatcher(load_config(config))) as watcher:
        watcher.read_until_fresh()
        yield StateClient(watcher)


def _print(store: StoreInfo, answers: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> None:
    """Print the entries of answers as a table, and what to know about them."""
    found = list(answers)
    rows = [(answer, row) for answer in found for row in answer["entries"]]
    has_time = any(name in row for _, row in rows for name in ("window", *_TIMES))
    table = Table("partition", "key", *(["time"] if has_time else []), "value")
    for answer, row in rows:
        time = [_when(row)] if has_time else []
        cells = (
            str(answer["partition"]),
            shown(row, "key", _LONGEST),
            *time,
            shown(row, "value", _LONGEST),
        )
        table.add_row(*map(Text, cells))
    if rows:
        show(table)
    noun = "entry" if len(rows) == 1 else "entries"
    say(f"{len(rows):,} {noun} of {store.processor}, {store.name}")
    copies = {a["partition"]: a for a in found if a["standby"]}
    for number, answer in sorted(copies.items()):
        typer.echo(f"partition {number} comes from a standby, whose lag is {_lag(answer)}")
    for what, serde in (("keys", "key_serde"), ("values", "value_serde")):
        if rows and not store.about[f"{what}_readable"]:
            name = store.about[serde]
            say(f"{what} have the serde {name}, which is not decoded here")


_TIMES = ("timestamp_ms", "valid_from_ms")


def _when(row: dict[str, Any]) -> str:
    if "window" in row:
        return " to ".join(shown_time(row["window"][end]) for end in ("start_ms", "end_ms"))
    return "".join(shown_time(row[name]) for name in _TIMES if name in row and row[name] >= 0)


def _lag(row: dict[str, Any]) -> str:
    return "unknown" if row["lag"] is None else f"{row['lag']:,}"


def _hex(option: str, text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise ConfigError(f'{option}: "{text}" is not hexadecimal') from error
