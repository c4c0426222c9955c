"""The turns of a TaskManager's main loop, without a Kafka and without a Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_pipeline.common.config.config import SparkConfig
from kafka_pipeline.common.errors import ConfigError, PipelineError, UnavailableError
from kafka_pipeline.common.monitoring.long_wait import LongWait
from kafka_pipeline.common.monitoring.metric import Metric
from kafka_pipeline.common.monitoring.monitoring import Monitoring
from kafka_pipeline.common.monitoring.times import Times
from kafka_pipeline.common.pipelines.specs import DataFrameSpec, ProcessorSpec, SqlSpec
from kafka_pipeline.common.process.stop_signals import StopSignals
from kafka_pipeline.common.protocol.messages import Processors, Report, Sos
from kafka_pipeline.common.tick import Tick
from kafka_pipeline.taskmanager import channel_messages, metrics
from kafka_pipeline.taskmanager import daemon as daemon_module
from kafka_pipeline.taskmanager.channel_messages import TaskMeasures
from kafka_pipeline.taskmanager.daemon import TaskManagerDaemon
from kafka_pipeline.taskmanager.events import AssignTask, CodeChanged, ThreadConnected, ThreadLost
from kafka_pipeline.taskmanager.measurements import Measurements
from kafka_pipeline.taskmanager.state import TaskManagerState
from tests.unit.taskmanager.fakes import CONFIG
from tests.unit.taskmanager.host import replica

REPLICA = replica(0)


def test_errors_of_reports_are_looked_for_in_each_turn() -> None:
    polls: list[str] = []
    daemon = TaskManagerDaemon.__new__(TaskManagerDaemon)
    parts = {
        "_reader": SimpleNamespace(read=lambda _: []),
        "_writer": SimpleNamespace(poll=lambda: polls.append("reports")),
        "_leases": SimpleNamespace(show_life=lambda: None),
        "_state": SimpleNamespace(
            handle=lambda _: [], is_registered=True, contact=SimpleNamespace(is_sure=True)
        ),
        "_wait": LongWait(None, ""),
        "_events": SimpleQueue(),
        "_monitoring": SimpleNamespace(turned=lambda: None),
        "_changing": Lock(),
    }
    for name, part in parts.items():
        setattr(daemon, name, part)
    daemon._tick()
    daemon._tick()
    assert polls == ["reports", "reports"]


def test_what_this_host_lacks_is_reported_before_kafka_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No Kafka runs here, and Java is not there either."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    config = replace(CONFIG, state_dir=tmp_path / "state")
    with pytest.raises(UnavailableError, match="need Java 17 or later"):
        TaskManagerDaemon(config, 0, 1, StopSignals(), Monitoring(config))
    few = replace(config, spark=SparkConfig(master="local[1]"))
    with pytest.raises(ConfigError, match="2 threads need one each"):
        TaskManagerDaemon(few, 0, 2, StopSignals(), Monitoring(few))


def test_workers_learn_at_once_whether_their_tasks_may_start() -> None:
    daemon = TaskManagerDaemon.__new__(TaskManagerDaemon)
    contact, pings = SimpleNamespace(is_sure=True), list[bool]()
    parts = {
        "_state": SimpleNamespace(contact=contact),
        "_channel": SimpleNamespace(ping=pings.append),
        "_log": SimpleNamespace(info=lambda _: None, warning=lambda _: None),
    }
    for name, part in parts.items():
        setattr(daemon, name, part)
    for is_sure in (True, False, False, True, True):
        contact.is_sure = is_sure
        daemon._pass_on_doubt()
    assert pings == [False, True]


class Reloading:
    """A TaskManager's daemon that may be asked to read the user's code again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.handled: list[object] = []
        self.refusals: list[str] = []
        self.daemon = TaskManagerDaemon.__new__(TaskManagerDaemon)
        monkeypatch.setattr(daemon_module, "snapshot", lambda *_: ())
        log = SimpleNamespace(
            info=lambda *_, **_more: None, error=lambda _, reason: self.refusals.append(reason)
        )
        parts = {
            "_config": CONFIG,
            "_code_from": (),
            "_tm_id": 0,
            "_code": SimpleNamespace(forget_modules=lambda: None, import_all=lambda: None),
            "_log": log,
            "_handle": self.handled.append,
            "_open_files": SimpleNamespace(check=lambda _: None),
            "_state": SimpleNamespace(tasks={}),
            "_channel": SimpleNamespace(send=lambda *_: None),
        }
        for name, part in parts.items():
            setattr(self.daemon, name, part)

    def has(self, spec: ProcessorSpec) -> None:
        """Have a task of a processor assigned."""
        self.daemon._execute(AssignTask(0, replace(REPLICA, spec=spec), 0))


def test_code_is_read_again_unless_spark_keeps_a_function_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Reloading(monkeypatch)
    host.has(SqlSpec(query="SELECT * FROM input"))
    host.daemon._reload()
    assert host.handled == [CodeChanged({})]
    host.has(DataFrameSpec(code="shop:prices"))
    host.daemon._reload()
    assert len(host.handled) == 1
    assert host.refusals == [f"Spark keeps the function of {REPLICA.name} in processes of its own"]


class Watched:
    """A TaskManager's daemon with one thread, as far as its pages look at it."""

    def __init__(self) -> None:
        self.state = TaskManagerState(Report(3, "incarnation", 1, beat=0, interval_ms=1000), 15_000)
        self.has_spark = True
        self.daemon = TaskManagerDaemon.__new__(TaskManagerDaemon)
        parts = {
            "_state": self.state,
            "_changing": Lock(),
            "_inbox": SimpleNamespace(rejected=2),
            "_measured": Measurements(),
            "_events": SimpleQueue(),
            "_spark": self,
        }
        for name, part in parts.items():
            setattr(self.daemon, name, part)

    @property
    def is_alive(self) -> bool:
        return self.has_spark

    def connect(self) -> None:
        """Let the thread come up."""
        self.state.handle(Tick(1000))
        self.state.handle(ThreadConnected(0))

    def answer(self, epoch: int) -> None:
        """Let the JobManager of an epoch send a command."""
        self.state.handle(Processors(3, "incarnation", epoch, 1, (REPLICA,), ()))

    def values(self, metric: Metric) -> list[Any]:
        return [s.value for s in self.daemon._samples() if s.metric is metric]


def test_a_task_manager_is_ready_once_the_job_manager_that_leads_has_answered() -> None:
    watched = Watched()
    watched.connect()
    assert watched.daemon._not_ready() == ["no JobManager has answered this TaskManager yet"]
    watched.answer(epoch=5)
    assert watched.daemon._not_ready() == []
    watched.state.handle(Sos(epoch=6))
    assert len(watched.daemon._not_ready()) == 1
    watched.answer(epoch=6)
    assert watched.daemon._not_ready() == []


def test_a_task_manager_is_not_ready_while_none_of_its_threads_runs() -> None:
    watched = Watched()
    watched.answer(epoch=5)
    none_runs = ["none of its PipelineThreads runs"]
    assert watched.daemon._not_ready() == none_runs
    watched.connect()
    assert watched.daemon._not_ready() == []
    watched.state.handle(ThreadLost(0))
    assert watched.daemon._not_ready() == none_runs


def test_a_task_manager_without_spark_is_not_ready() -> None:
    watched = Watched()
    watched.connect()
    watched.answer(epoch=5)
    watched.has_spark = False
    assert watched.daemon._not_ready() == ["Spark is gone"]


def test_an_error_of_a_turn_gives_way_to_its_cause_if_spark_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that is lost with the JVM is launched again, which asks the JVM for its host."""
    watched = Watched()

    def tick() -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(watched.daemon, "_tick", tick)
    with pytest.raises(ConnectionRefusedError):
        watched.daemon._turn()
    watched.has_spark = False
    with pytest.raises(PipelineError, match="Start this TaskManager again"):
        watched.daemon._turn()


def test_a_task_manager_shows_what_its_core_and_its_workers_know() -> None:
    watched = Watched()
    watched.answer(epoch=5)
    assert watched.values(metrics.EPOCH) == [5]
    assert watched.values(metrics.TASKS) == [1]
    assert watched.values(metrics.REJECTED) == [2]
    assert watched.values(metrics.TURNS) == []
    times = TaskMeasures(Times(sum_us=1), Times(sum_us=2))
    watched.daemon._on_message(0, channel_messages.Measured(10, {REPLICA.task: times}))
    assert watched.values(metrics.TURNS) == [times.turns]
    assert watched.values(metrics.COMMITS) == [times.commits]
    watched.daemon._on_message(0, channel_messages.Closed(REPLICA.task))
    assert watched.values(metrics.TURNS) == []


def test_heartbeats_that_were_sent_are_counted() -> None:
    watched = Watched()
    watched.state.handle(Tick(0))
    watched.state.handle(ThreadConnected(0))
    assert watched.values(metrics.HEARTBEATS_SENT) == [0]
    for now_ms in (1, 1001, 2001):
        watched.state.handle(Tick(now_ms))
    assert watched.values(metrics.HEARTBEATS_SENT) == [3]
