"""Feeds the flights to the running pipeline, and watches the results come out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from admin.cluster_status import ClusterStatus
from admin.cluster_watcher import ClusterWatcher
from admin.quickstart.display import Display, Progress
from admin.quickstart.rates import Rate, TaskRates
from admin.quickstart.sink_follower import SinkFollower
from common.config import Config
from common.kafka.bulk import BulkWriter

LOAD_S = 12.0
"""At full speed, the run would end in a second or two: too soon to watch it or kill anything."""

_STALL_TIMEOUT_S = 60.0
_FLUSH_TIMEOUT_S = 30.0
_POLL_S = 0.05
_PAUSE_S = 0.01


class Flow:
    """Loads the source topic at a bounded pace and follows the sink topic at the same time."""

    def __init__(
        self,
        config: Config,
        records: Sequence[tuple[bytes, bytes]],
        to_arrive: int,
        watcher: ClusterWatcher,
        display: Display,
    ) -> None:
        """Prepare to load `records` and to wait for `to_arrive` results."""
        self._records = records
        self._to_arrive = to_arrive
        self._watcher = watcher
        self._display = display
        self._writer = BulkWriter(config, config.source_topic)
        self._follower = SinkFollower(config)
        self._loaded = 0
        self._rate = Rate()
        self._task_rates = TaskRates()

    @property
    def arrivals_s(self) -> Sequence[Sequence[float]]:
        """When results arrived, for each partition of the sink topic, by `time.monotonic`."""
        return list(self._follower.arrivals_s.values())

    def run(self, check: Callable[[], None], half_way: Callable[[ClusterStatus], None]) -> bool:
        """Return True once all results have arrived, False if none arrived for a minute.

        Calls `check` repeatedly, and `half_way` once, when half of the results have arrived.
        """
        started_s = moved_s = time.monotonic()
        is_half_way = False
        while True:
            check()
            arrived = self._follower.records
            self._load(time.monotonic() - started_s)
            self._follower.read(_POLL_S)
            self._watcher.read(0)
            now_s = time.monotonic()
            self._display.update(self._progress(now_s))
            if not is_half_way and 2 * self._follower.records >= self._to_arrive:
                is_half_way = True
                half_way(self._watcher.status())
            if self._follower.records > arrived:
                moved_s = now_s
            if self._loaded == len(self._records) and self._follower.records >= self._to_arrive:
                return True
            if now_s - moved_s > _STALL_TIMEOUT_S:
                return False
            # Results trickle in; without a pause, this loop would use a whole core.
            time.sleep(_PAUSE_S)

    def close(self) -> None:
        """Disconnect from the brokers."""
        self._follower.close()

    def _load(self, elapsed_s: float) -> None:
        """Write the records that are due by now."""
        total = len(self._records)
        if self._loaded == total:
            return
        due = min(int(total * elapsed_s / LOAD_S), total)
        self._writer.write(self._records[self._loaded : due])
        self._loaded = due
        if due == total:
            self._writer.flush(_FLUSH_TIMEOUT_S)

    def _progress(self, now_s: float) -> Progress:
        status = self._watcher.status()
        return Progress(
            loaded=self._loaded,
            to_load=len(self._records),
            arrived=self._follower.records,
            to_arrive=self._to_arrive,
            rate=self._rate.update(now_s, self._follower.records),
            status=status,
            task_rates=self._task_rates.update(now_s, status),
        )
