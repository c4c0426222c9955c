"""Feeds records to the running pipeline, and watches the results come out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kafka_pipeline.admin.cluster_watcher import ClusterWatcher
from kafka_pipeline.admin.quickstart.display import Display, Progress
from kafka_pipeline.admin.quickstart.rates import Rate
from kafka_pipeline.admin.quickstart.sink_follower import SinkFollower
from kafka_pipeline.admin.task_rates import TaskRates
from kafka_pipeline.common.cluster_status import ClusterStatus
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.bulk import BulkWriter

LOAD_S = 12.0
"""At full speed, the run would end in a second or two: too soon to watch it or kill anything."""

_STALL_TIMEOUT_S = 60.0
_FLUSH_TIMEOUT_S = 30.0
_POLL_S = 0.05
_PAUSE_S = 0.01


class PacedLoader:
    """Loads the source topic over `LOAD_S` seconds."""

    def __init__(self, config: Config, records: Sequence[tuple[bytes, bytes]]) -> None:
        self._records = records
        self._writer = BulkWriter(config, config.source_topic)
        self._loaded = 0

    def load(self, elapsed_s: float) -> int:
        """Write the records that are due by now; return how many there are so far."""
        total = len(self._records)
        if self._loaded < total:
            due = min(int(total * elapsed_s / LOAD_S), total)
            self._writer.write(self._records[self._loaded : due])
            self._loaded = due
            if due == total:
                self._writer.flush(_FLUSH_TIMEOUT_S)
        return self._loaded


class Flow:
    """Has records loaded, and follows the results at the same time."""

    def __init__(
        self,
        load: Callable[[float], int],
        to_load: int,
        follower: SinkFollower,
        to_arrive: int,
        watcher: ClusterWatcher,
        display: Display,
    ) -> None:
        """Prepare to wait for `to_arrive` results of `to_load` records.

        `load` is called with the seconds since the start, and returns how many records are loaded.
        """
        self._load = load
        self._to_load = to_load
        self._follower = follower
        self._to_arrive = to_arrive
        self._watcher = watcher
        self._display = display
        self._loaded = 0
        self._rate = Rate()
        self._task_rates = TaskRates()

    def run(self, check: Callable[[], None], half_way: Callable[[ClusterStatus], None]) -> bool:
        """Return True once all results have arrived, False if none arrived for a minute.

        Calls `check` repeatedly, and `half_way` once, when half of the results have arrived.
        """
        started_s = moved_s = time.monotonic()
        is_half_way = False
        while True:
            check()
            arrived = self._follower.records
            self._loaded = self._load(time.monotonic() - started_s)
            self._follower.read(_POLL_S)
            self._watcher.read(0)
            now_s = time.monotonic()
            self._display.update(self._progress(now_s))
            if not is_half_way and 2 * self._follower.records >= self._to_arrive:
                is_half_way = True
                half_way(self._watcher.status())
            if self._follower.records > arrived:
                moved_s = now_s
            if self._loaded == self._to_load and self._follower.records >= self._to_arrive:
                return True
            if now_s - moved_s > _STALL_TIMEOUT_S:
                return False
            # Results trickle in; without a pause, this loop would use a whole core.
            time.sleep(_PAUSE_S)

    def _progress(self, now_s: float) -> Progress:
        status = self._watcher.status()
        return Progress(
            loaded=self._loaded,
            to_load=self._to_load,
            arrived=self._follower.records,
            to_arrive=self._to_arrive,
            rate=self._rate.update(now_s, self._follower.records),
            status=status,
            task_rates=self._task_rates.update(now_s, status),
        )
