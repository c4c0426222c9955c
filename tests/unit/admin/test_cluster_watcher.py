"""Who is there is told by the brokers' clock, whatever this host's or a daemon's says."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from admin import cluster_watcher
from admin.cluster_status import Presence
from admin.cluster_watcher import ClusterWatcher
from common.codec import Codec
from common.config import Config
from common.messages import ControlRecord, Heartbeat, Report
from common.topics import TopicNames

HOUR_MS = 3_600_000
TOPIC = "heartbeat_topic_job"


class FakeAdmin:
    def __init__(self, _config: Config) -> None:
        pass

    def check_broker(self, _timeout_s: float) -> str:
        return "cluster"

    def partition_counts(self, names: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(names, 1)


class FakeReader:
    """Has one old heartbeat, and one that is written after the reader was made."""

    def __init__(self, _config: Config, topics: Sequence[str], _history: int) -> None:
        self.ends = dict.fromkeys(topics, 1)
        self.waiting: list[ControlRecord] = []

    def read(self, _wait_s: float) -> list[ControlRecord]:
        records, self.waiting = self.waiting, []
        return records


def beat(offset: int, brokers_ahead_ms: int, sender_ahead_ms: int, age_ms: int) -> ControlRecord:
    now_ms = int(time.time() * 1000) - age_ms
    codec = Codec(TopicNames("job", "in", "out"))
    (record,) = codec.encode(Heartbeat(Report(0, "a", 1, 1)), now_ms + sender_ahead_ms)
    return replace(record, offset=offset, timestamp_ms=now_ms + brokers_ahead_ms)


@pytest.fixture
def watcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ClusterWatcher:
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
        sink_topic="out",
        state_dir=tmp_path,
    )
    return ClusterWatcher(config)


def presence_after(watcher: ClusterWatcher, record: ControlRecord) -> Presence:
    reader = watcher._reader
    assert isinstance(reader, FakeReader)
    reader.waiting = [record]
    watcher.read(0)
    return watcher.status().task_managers[0].presence


@pytest.mark.parametrize("sender_ahead_ms", [-HOUR_MS, 0, HOUR_MS])
@pytest.mark.parametrize("brokers_ahead_ms", [-HOUR_MS, 0, HOUR_MS])
def test_a_fresh_heartbeat_means_up(
    watcher: ClusterWatcher, brokers_ahead_ms: int, sender_ahead_ms: int
) -> None:
    record = beat(1, brokers_ahead_ms, sender_ahead_ms, age_ms=0)
    assert presence_after(watcher, record) is Presence.UP


@pytest.mark.parametrize("sender_ahead_ms", [-HOUR_MS, 0, HOUR_MS])
def test_an_old_heartbeat_means_down(watcher: ClusterWatcher, sender_ahead_ms: int) -> None:
    record = beat(0, 0, sender_ahead_ms, age_ms=10_000)
    assert presence_after(watcher, record) is Presence.DOWN
