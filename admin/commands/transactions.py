"""`pipeline transactions`: shows what stays open in a job's topics, and aborts what tasks left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from kafka_pipeline.admin.arguments import AsJson, ConfigPath, DryRun, Yes
from kafka_pipeline.admin.tables import duration
from kafka_pipeline.admin.terminal import require_consent, show, show_json
from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.operations.cluster_watcher import read_status
from kafka_pipeline.operations.transactions import (
    JobTransactions,
    OpenTransaction,
    chosen,
    names,
    running,
)

transactions_app = typer.Typer(
    help="Look at transactions that stay open, and abort those that tasks have left.",
    no_args_is_help=True,
)

_AFTER_ABORT_S = 2.0


@transactions_app.command("list")
@run_command
def list_open(
    config: ConfigPath,
    watch_s: Annotated[
        float,
        typer.Option("--for", min=0, metavar="SECONDS", help="How long they must stay open."),
    ] = 3.0,
    with_short: Annotated[
        bool, typer.Option("--all", help="Also those that have begun meanwhile.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the partitions of the job's topics in which a transaction stays open.

    Readers of committed records see nothing from its first record on. The producer is not known:
    the command names the tasks that write to the partition, but other programs may write, too.

    Exit codes: 0 done, 2 wrong arguments, 3 Kafka does not answer.
    """
    settings = load_config(config)
    found = JobTransactions(settings).open(watch_s, also_short=with_short)
    if as_json:
        show_json({"open": [each.to_json() for each in found]})
    elif found:
        show(_table(found, settings))
    else:
        typer.echo("no transaction stays open in the topics of this job")


@transactions_app.command()
@run_command
def abort(
    config: ConfigPath,
    tasks: Annotated[
        list[str] | None,
        typer.Option("--task", metavar="ID", help="A task such as Counter_0; may be repeated."),
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="All tasks that no TaskManager runs.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also running tasks, which then restart.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Abort transactions that tasks have left open, by fencing their transactional ids.

    No record is lost: the next owner of the task processes uncommitted records again.
    Tasks of former versions of the pipeline may be given, too. Transactions of other programs are
    not aborted; those that stay open are listed.

    Exit codes: 0 done, 1 the answer was no, 2 wrong arguments or a running task, 3 Kafka does not
    answer.
    """
    if bool(tasks) is all_:
        raise ConfigError("give --task, or --all")
    settings = load_config(config)
    job = JobTransactions(settings)
    known = job.tasks()
    meant = chosen(tasks or None, known, running(read_status(settings)), force=force)
    left = "" if tasks else f", and {len(known) - len(meant)} that run are left alone"
    typer.echo(f"{counted(len(meant), 'task')} to fence{left}: {', '.join(map(str, meant)) or '-'}")
    if dry_run or not meant:
        return
    require_consent("Abort what they have open?", yes=yes)
    for task in meant:
        job.fence(task)
        typer.echo(f"{task}: fenced")
    still = job.open(_AFTER_ABORT_S, also_short=False)
    if still:
        show(_table(still, settings))


def _table(found: Sequence[OpenTransaction], config: Config) -> Table:
    table = Table("partition", "from offset", "hidden", "open for", "may be of")
    now_ms = wall_clock_ms()
    for each in found:
        if each.since_ms is not None:
            age = duration(max(now_ms - each.since_ms, 0))
        else:
            age = f"{duration(each.watched_ms)} or longer"
        is_late = each.is_late(now_ms, config.transaction_timeout_ms)
        late = ", longer than transaction_timeout_ms" if is_late else ""
        place = f"{each.topic}[{each.partition}]"
        of = names(each.tasks)
        table.add_row(place, f"{each.offset:,}", f"{each.hidden:,}", f"{age}{late}", of)
    return table
