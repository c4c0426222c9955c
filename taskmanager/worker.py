"""The worker of a PipelineThread: the process in which Spark runs it."""

from __future__ import annotations

import faulthandler
import gc
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

import structlog

from kafka_pipeline.common.code.error_words import described
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.engine_version import installed_version
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.group_positions import GroupPositions
from kafka_pipeline.common.kafka.offsets import Offsets
from kafka_pipeline.common.monitoring import logs
from kafka_pipeline.common.process.heap import trimmed_heap
from kafka_pipeline.streams.stores.resources import StoreResources
from kafka_pipeline.taskmanager.channel import WorkerChannel, tell_of_death
from kafka_pipeline.taskmanager.channel_messages import Died
from kafka_pipeline.taskmanager.clients import KafkaClients
from kafka_pipeline.taskmanager.global_stores import GlobalStores
from kafka_pipeline.taskmanager.lag_watch import LagWatch
from kafka_pipeline.taskmanager.marks import Marks
from kafka_pipeline.taskmanager.pipeline_thread import PipelineThread
from kafka_pipeline.taskmanager.remote_queries import RemoteQueries
from kafka_pipeline.taskmanager.running_task import TaskContext
from kafka_pipeline.taskmanager.supervision import supervised
from kafka_pipeline.taskmanager.task_stores import check_writable, job_directory
from kafka_pipeline.taskmanager.time_watch import TimeWatch
from kafka_pipeline.taskmanager.unused_state import UnusedState
from kafka_pipeline.taskmanager.user_errors import UserErrorLog

_COLLECTED_AT = (20_000, 20, 20)
"""The thresholds of Python's garbage collector. A batch of thousands of records has tens of
thousands of objects; with the defaults, the collector looks for cycles among them all the time."""


@dataclass(frozen=True, slots=True)
class ThreadSettings:
    """The settings with which a PipelineThread is launched; they travel in the Spark task."""

    config: Config
    tm_id: int
    thread: int
    address: tuple[str, int]
    authkey: bytes
    queries: tuple[str, int]
    """The address of the driver's query server; it has the same key."""
    engine: str
    """The version of the engine that the driver runs; "" if workers get it from the driver."""


def run(settings: ThreadSettings, marks: Marks) -> None:
    """Run a PipelineThread until the driver stops it or is gone."""
    logs.configure_as(settings.config)
    structlog.contextvars.bind_contextvars(task_manager=settings.tm_id, thread=settings.thread)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    marks.watch_forks()
    gc.freeze()
    gc.set_threshold(*_COLLECTED_AT)
    if not settings.config.spark.is_local:
        check_writable(settings.config)
    admin = Admin(settings.config)
    clients = KafkaClients(settings.config, admin)
    tm_id, thread = settings.tm_id, settings.thread
    resources = StoreResources()
    context = TaskContext(
        settings.config,
        tm_id,
        thread,
        admin.check_broker(),
        clients,
        GlobalStores(settings.config, tm_id, thread, clients, resources),
        LagWatch(settings.config, Offsets(settings.config, admin)),
        TimeWatch(settings.config, GroupPositions(settings.config, admin)),
        RemoteQueries(settings.queries, settings.authkey),
        resources,
        UserErrorLog(with_values=settings.config.log_record_values),
        marks=marks,
    )
    unused = UnusedState(job_directory(settings.config, tm_id), resources.open_folders.copy)
    # Connect last, when nothing is left to wait for: the driver starts counting at the hello.
    channel = WorkerChannel(settings.address, settings.authkey, settings.thread)
    with (
        closing(channel),
        closing(context.lag_watch),
        closing(context.time_watch),
        closing(unused),
        trimmed_heap(),
    ):
        context.lag_watch.start()
        context.time_watch.start()
        unused.start()
        PipelineThread(context, channel).loop()


def require_same_engine(of_driver: str) -> None:
    """Raise RuntimeError if another version was installed since the driver started.

    Half of the engine would run in one version, and half in the other.
    """
    here = installed_version()
    if of_driver and here != of_driver:
        raise RuntimeError(
            f"version {here or '(none)'} of the engine was installed over {of_driver}, which this "
            "TaskManager runs: start the TaskManager again. Install versions next to each other, "
            "see docs/how-to/upgrade.md"
        )


def spark_body(settings: ThreadSettings) -> Callable[[Iterable[int]], Iterator[int]]:
    """Return the function that Spark runs in the worker, over a partition of one element."""

    def body(_: Iterable[int]) -> Iterator[int]:
        require_same_engine(settings.engine)
        address, authkey = settings.address, settings.authkey
        supervised(
            lambda marks: run(settings, marks),
            # The driver logs Spark's report of this, including the message.
            lambda error: described(error, with_values=settings.config.log_record_values),
            lambda pid, death, goes_on: tell_of_death(
                address, authkey, Died(settings.thread, pid, death, goes_on)
            ),
        )
        return iter(())

    return body
