"""Renews the leases of the PipelineThreads while the TaskManager's main loop is alive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kafka_pipeline.common.protocol.messages import MISSED_BEATS

PINGS_PER_BEAT = 2
LIFE_BEATS = MISSED_BEATS
"""The main loop counts as alive for so many heartbeats after its last sign of life.

A loop that is silent for longer sends no heartbeats either, so the JobManager gives its tasks to
other TaskManagers, and no lease is left to renew.
"""


class LeaseKeeper:
    """Pings the PipelineThreads from a thread of its own.

    A round of the main loop may then take up to `LIFE_BEATS` heartbeats without costing a lease. If
    the loop is silent for longer, pings stop until it shows life again, and the leases end
    `MISSED_BEATS` heartbeats after the last ping.
    """

    def __init__(
        self,
        heartbeat_interval_ms: int,
        ping: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ping` reaches all PipelineThreads and does not block; `clock` returns seconds."""
        self._interval_s = heartbeat_interval_ms / 1000
        self._ping = ping
        self._clock = clock
        self._alive_s = clock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)

    def start(self) -> None:
        """Start pinging. The main loop must show life from now on."""
        self.show_life()
        self._thread.start()

    def show_life(self) -> None:
        """Record that the main loop is alive; it must call this with each event that it handles."""
        self._alive_s = self._clock()

    def renew(self) -> None:
        """Ping once, unless the main loop has been silent for too long."""
        if self._clock() - self._alive_s <= LIFE_BEATS * self._interval_s:
            self._ping()

    def stop(self) -> None:
        """Stop pinging."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s / PINGS_PER_BEAT):
            self.renew()
