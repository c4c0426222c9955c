"""Who is there is told by the brokers' clock, whatever this host's or a daemon's says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from admin import cluster_watcher
from admin.cluster_status import Presence
from admin.cluster_watcher import ClusterWatcher
from common.codec import Codec
from common.config import Config
from common.messages import ControlRecord, Heartbeat, JobManagerBeat, Report
from common.topics import TopicNames

HOUR_MS = 3_600_000
INTERVAL_MS = 1000
BROKERS_START_MS = 1_700_000_000_000
REPORT = Heartbeat(Report(0, "a", 1, 1))


class FakeAdmin:
    def __init__(self, _config: Config) -> None:
        pass

    def check_broker(self, _timeout_s: float) -> str:
        return "cluster"

    def partition_counts(self, names: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(names, 1)


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
    config = Config(
        server_ip="127.0.0.1",
        server_port=9092,
        job_name="job",
        tm_number=1,
        parallelism=1,
        replication_factor=1,
        source_topic="in",
        heartbeat_interval_ms=INTERVAL_MS,
        sink_topic="out",
        state_dir=tmp_path,
    )
    return ClusterWatcher(config)


def follow(watcher: ClusterWatcher, *records: ControlRecord) -> None:
    """Let the brokers have these records, each from its timestamp on."""
    reader = watcher._reader
    assert isinstance(reader, FakeReader)
    reader.waiting = list(records)


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
    ruling = JobManagerBeat(1, 0, {})
    follow(watcher, beat(-1, -silent_for_ms, ruling), beat(0, -silent_for_ms))

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
    ruling = JobManagerBeat(1, 0, {})
    follow(watcher, beat(0, -50_000), beat(1, 500, ruling), beat(2, 1500, ruling))

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
