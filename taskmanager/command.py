"""The `taskmanager` command: its arguments, and how it ends."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.config.registry_settings import require_shared
from kafka_pipeline.common.config.secret_files import warn_of_readable_secrets
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.kafka.setting_problem import setting_problem
from kafka_pipeline.common.monitoring import logs
from kafka_pipeline.common.monitoring.monitoring import Monitoring
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.process.heap import trimmed_heap
from kafka_pipeline.common.process.stop_signals import StopSignals
from kafka_pipeline.deployment.desired_state import task_managers_of
from kafka_pipeline.deployment.job import connected, read_deployment

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
@run_command
def taskmanager(
    context: typer.Context,
    tm_id: Annotated[int, typer.Argument(metavar="ID", help="0 to tm_number - 1, once each.")],
    threads_num: Annotated[
        int, typer.Argument(metavar="THREADS_NUM", help="PipelineThreads of this host, 1 or more.")
    ],
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Path of config.yaml.")],
) -> None:
    """Run the TaskManager of this host: it waits for a JobManager and runs what it is given.

    SIGTERM, Ctrl-C or SIGHUP: commits, hands its tasks back and ends. SIGUSR1: prints all stacks.
    SIGUSR2: reads your code again, unless Spark keeps a function of DataFrames.
    Exit codes: 0 stopped, 2 wrong argument or configuration, 3 Kafka, Java or the state
    directory is not there, or metrics_port or state_port is taken, 4 the id is taken by a
    TaskManager that is alive.
    """
    signals: StopSignals = context.obj
    settings = load_config(config, setting_problem)
    require_shared(settings.schema_registry)
    if threads_num < 1:
        raise ConfigError(f"threads_num is {threads_num}: a TaskManager needs 1 thread or more.")
    require_allowed(settings, tm_id)
    logs.configure_as(settings)
    warn_of_readable_secrets(config, settings)
    monitoring = Monitoring(settings)
    # Imported late: Spark takes a while, and mistakes in the arguments should not wait for it.
    from kafka_pipeline.taskmanager.daemon import TaskManagerDaemon
    from kafka_pipeline.taskmanager.task_stores import sole_owner

    with sole_owner(settings, tm_id) if settings.spark.is_local else nullcontext():
        try:
            daemon = TaskManagerDaemon(settings, tm_id, threads_num, signals, monitoring)
        except UnavailableError:
            # A signal to the process group also ends Spark's JVM if that is just starting.
            if signals.is_requested:
                return
            raise
        with trimmed_heap():
            daemon.run()


def require_allowed(config: Config, tm_id: int) -> None:
    """Raise `ConfigError` for an id that neither `tm_number` nor `pipeline grow` allows.

    Asks Kafka only if config.yaml does not allow the id. Raises `UnavailableError` if no broker
    answers.
    """
    if 0 <= tm_id < config.tm_number:
        return
    wish = read_deployment(config, connected(config)).wish if tm_id >= 0 else None
    number = task_managers_of(wish, config.tm_number)
    if not 0 <= tm_id < number:
        raise ConfigError(
            f"TaskManager id {tm_id} is outside 0..{number - 1}: config.yaml sets tm_number to "
            f"{config.tm_number}, and `pipeline grow` allows more while the job runs"
        )
