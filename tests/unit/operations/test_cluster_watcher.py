"""Presence goes by the brokers' clock, not by this host's or a daemon's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_pipeline.common.cluster.cluster_status import Presence
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.messages import ControlRecord, Heartbeat, JobManagerBeat, Report
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.operations import cluster_watcher
from kafka_pipeline.operations.cluster_watcher import ClusterWatcher
from tests.small_config import small_config

HOUR_MS = 3_600_000
INTERVAL_MS = 1000
BROKERS_START_MS = 1_700_000_000_000
REPORT = Heartbeat(Report(0, "a", 1, 1))


class FakeAdmin:
    def __init__(self, _config: Config) -> None:
        pass

    def check_broker(self, _timeout_s: float) -> str:
        return "cluster"

    def finds(self, _topic: str) -> bool:
        return True


class FakeClock:
    """Stands for the module `time`, and for this host's wall clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.host_ahead_ms = 0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s

    def brokers_ms(self) -> int:
        return BROKERS_START_MS + int(self.now_s * 1000)

    def wall_clock_ms(self) -> int:
        return self.brokers_ms() + self.host_ahead_ms


class FakeReader:
    """Has one old heartbeat, and others that are written after the reader was made."""

    clock: FakeClock

    refusal: str = ""

    def __init__(self, _config: Config, topics: Sequence[str], _history: int) -> None:
        self.ends = dict.fromkeys(topics, 1)
        self.waiting: list[ControlRecord] = []

    def read(self, wait_s: float) -> list[ControlRecord]:
        self.clock.sleep(wait_s)
        now_ms = self.clock.brokers_ms()
        records = [record for record in self.waiting if record.timestamp_ms <= now_ms]
        self.waiting = self.waiting[len(records) :]
        return records


def beat(
    offset: int, at_ms: int, content: Heartbeat | JobManagerBeat = REPORT, sender_ahead_ms: int = 0
) -> ControlRecord:
    """Return a heartbeat that the brokers got `at_ms` milliseconds after the start."""
    got_at_ms = BROKERS_START_MS + at_ms
    codec = Codec(TopicNames("job", "in", "out"))
    (record,) = codec.encode(content, got_at_ms + sender_ahead_ms)
    return replace(record, offset=offset, timestamp_ms=got_at_ms)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(FakeReader, "clock", clock, raising=False)
    monkeypatch.setattr(cluster_watcher, "time", clock)
    monkeypatch.setattr(cluster_watcher, "wall_clock_ms", clock.wall_clock_ms)
    return clock


@pytest.fixture
def watcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock) -> ClusterWatcher:
    monkeypatch.setattr(cluster_watcher, "Admin", FakeAdmin)
    monkeypatch.setattr(cluster_watcher, "ControlReader", FakeReader)
    config = small_config(job_name="job", heartbeat_interval_ms=INTERVAL_MS, state_dir=tmp_path)
    return ClusterWatcher(config)


def follow(watcher: ClusterWatcher, *records: ControlRecord) -> None:
    """Let the brokers have these records, each from its timestamp on."""
    reader = watcher._reader
    assert isinstance(reader, FakeReader)
    reader.waiting = list(records)


def report(number: int, *tasks: TaskStatus, base: int | None = None, closed: int = -1) -> Heartbeat:
    gone = (TaskId("P", closed),) if closed >= 0 else ()
    return Heartbeat(Report(0, "a", 1, number, tasks=tasks, base=base, closed=gone))


def running(partition: int, records_in: int = 0) -> TaskStatus:
    return TaskStatus(TaskId("P", partition), TaskState.RUNNING, figures={"records_in": records_in})


def shown(watcher: ClusterWatcher) -> dict[int, int | str]:
    """Return how many records each task has taken in, or the text shown instead."""
    return {
        info.task.partition: info.status.count("records_in") if info.status else info.reason
        for info in watcher.status().tasks
    }


def presence(watcher: ClusterWatcher) -> Presence:
    return watcher.status().task_managers[0].presence


@pytest.mark.parametrize("sender_ahead_ms", [-HOUR_MS, 0, HOUR_MS])
@pytest.mark.parametrize("host_ahead_ms", [-HOUR_MS, 0, HOUR_MS])
def test_a_fresh_heartbeat_means_up(
    watcher: ClusterWatcher, clock: FakeClock, host_ahead_ms: int, sender_ahead_ms: int
) -> None:
    clock.host_ahead_ms = host_ahead_ms
    follow(watcher, beat(1, 0, sender_ahead_ms=sender_ahead_ms))
    watcher.read(0)
    assert presence(watcher) is Presence.UP


@pytest.mark.parametrize("sender_ahead_ms", [-HOUR_MS, 0, HOUR_MS])
def test_an_old_heartbeat_means_down(watcher: ClusterWatcher, sender_ahead_ms: int) -> None:
    follow(watcher, beat(0, -10_000, sender_ahead_ms=sender_ahead_ms))
    watcher.read(0)
    assert presence(watcher) is Presence.DOWN


@pytest.mark.parametrize("host_ahead_ms", [-HOUR_MS, -60_000, 0, 60_000])
@pytest.mark.parametrize("silent_for_ms", [0, 50_000])
def test_all_that_sends_nothing_for_three_intervals_is_down(
    watcher: ClusterWatcher, clock: FakeClock, host_ahead_ms: int, silent_for_ms: int
) -> None:
    clock.host_ahead_ms = host_ahead_ms
    leader = JobManagerBeat(1, 0, {})
    follow(watcher, beat(-1, -silent_for_ms, leader), beat(0, -silent_for_ms))

    watcher.read_until_fresh()

    found = watcher.status()
    assert [found.job_manager.presence, found.task_managers[0].presence] == [Presence.DOWN] * 2
    assert found.task_managers[0].age_ms is not None
    assert found.task_managers[0].age_ms > 3 * INTERVAL_MS
    assert clock.now_s * 1000 < 4 * INTERVAL_MS


@pytest.mark.parametrize("host_ahead_ms", [-HOUR_MS, 0, HOUR_MS])
def test_who_sends_a_late_heartbeat_is_up(
    watcher: ClusterWatcher, clock: FakeClock, host_ahead_ms: int
) -> None:
    clock.host_ahead_ms = host_ahead_ms
    follow(watcher, beat(0, -100), beat(1, 2800))

    watcher.read_until_fresh()

    assert presence(watcher) is Presence.UP


@pytest.mark.parametrize("host_ahead_ms", [-HOUR_MS, 0, HOUR_MS])
def test_the_silent_one_of_several_is_told_from_the_others(
    watcher: ClusterWatcher, clock: FakeClock, host_ahead_ms: int
) -> None:
    clock.host_ahead_ms = host_ahead_ms
    leader = JobManagerBeat(1, 0, {})
    follow(watcher, beat(0, -50_000), beat(1, 500, leader), beat(2, 1500, leader))

    watcher.read_until_fresh()

    assert watcher.status().job_manager.presence is Presence.UP
    assert presence(watcher) is Presence.DOWN
    assert clock.now_s * 1000 < 2 * INTERVAL_MS


def test_it_returns_once_all_have_sent_a_heartbeat(
    watcher: ClusterWatcher, clock: FakeClock
) -> None:
    follow(watcher, beat(1, 100, JobManagerBeat(1, 0, {})), beat(2, 200))

    watcher.read_until_fresh()

    assert clock.now_s == pytest.approx(0.2, abs=0.11)


LEADER = JobManagerBeat(1, 0, {TaskId("P", 0): 0, TaskId("P", 1): 0})


def test_reports_are_put_together(watcher: ClusterWatcher) -> None:
    follow(
        watcher,
        beat(1, 0, LEADER),
        beat(2, 0, report(1, running(0, 5), running(1, 5))),
        beat(3, 0, report(2, running(1, 6), base=1)),
        beat(4, 0, report(3, base=1, closed=0)),
    )
    watcher.read(0)
    assert shown(watcher) == {0: "assigned, not started yet", 1: 6}


def test_tasks_of_a_report_without_its_full_one_are_not_taken_for_all(
    watcher: ClusterWatcher,
) -> None:
    follow(watcher, beat(1, 0, LEADER), beat(2, 0, report(7, running(1, 6), base=3)))
    watcher.read(0)
    assert presence(watcher) is Presence.UP
    assert shown(watcher) == {0: "unknown until its TaskManager's next full report", 1: 6}


def test_full_report_is_waited_for(watcher: ClusterWatcher, clock: FakeClock) -> None:
    follow(
        watcher,
        *(beat(n, 1000 * n, LEADER) for n in range(8)),
        *(beat(10 + n, 1000 * n, report(n, base=0)) for n in range(1, 4)),
        beat(20, 4000, report(4, running(0, 1), running(1, 2))),
    )
    assert isinstance(watcher._reader, FakeReader)
    watcher._reader.waiting.sort(key=lambda record: record.timestamp_ms)

    watcher.read_until_fresh()

    assert shown(watcher) == {0: 1, 1: 2}
    assert 4 <= clock.now_s < 5


def test_full_report_is_not_waited_for_without_end(
    watcher: ClusterWatcher, clock: FakeClock
) -> None:
    beats = [(beat(n, 500 * n, LEADER), beat(n, 500 * n, report(n, base=0))) for n in range(1, 40)]
    follow(watcher, *(record for pair in beats for record in pair))

    watcher.read_until_fresh()

    assert 5 < clock.now_s < 6


def test_a_right_that_is_missing_is_not_taken_for_silence(watcher: ClusterWatcher) -> None:
    reader = watcher._reader
    assert isinstance(reader, FakeReader)
    reader.refusal = "a right is missing, Read of topic heartbeat_topic"
    with pytest.raises(UnavailableError, match="heartbeats cannot be read: a right is missing"):
        watcher.read_until_fresh()
