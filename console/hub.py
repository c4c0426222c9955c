"""Gives the newest snapshot to all listeners, encoded once per view."""

from __future__ import annotations

import asyncio
import time

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.console.views.snapshot import Snapshot
from kafka_pipeline.console.views.views import encode

MOST_LISTENERS = 32


class Hub:
    """The newest snapshot, and listeners that wait for the next one.

    For the console's thread only.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._encoded: dict[str, bytes] = {}
        self._changed = asyncio.Event()
        self._listeners = 0
        self.is_closed = False
        """Whether listeners must leave."""

    @property
    def snapshot(self) -> Snapshot:
        """The newest snapshot; any thread may read it."""
        return self._snapshot

    @property
    def number(self) -> int:
        """The number of the newest snapshot."""
        return self._snapshot.number

    def publish(self, snapshot: Snapshot) -> None:
        """Replace the snapshot, and wake all listeners."""
        self._snapshot, self._encoded = snapshot, {}
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def close(self) -> None:
        """Make all listeners leave."""
        self.is_closed = True
        self._changed.set()

    def view(self, name: str) -> bytes | None:
        """Return a view of the newest snapshot as JSON; None if there is no such view."""
        found = self._encoded.get(name)
        if found is None:
            found = encode(self._snapshot, name)
            if found is not None:
                self._encoded[name] = found
        return found

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the next snapshot; return whether it came in time."""
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def join(self) -> bool:
        """Count one more listener; return False if there are too many."""
        if self._listeners >= MOST_LISTENERS:
            return False
        self._listeners += 1
        return True

    def leave(self) -> None:
        """Count one listener less."""
        self._listeners -= 1


class HubHeartbeats:
    """The heartbeats in a hub's snapshots, for users on other threads."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def read(self, wait_s: float) -> None:
        """Wait for `wait_s`: meanwhile, the hub may publish another snapshot."""
        time.sleep(wait_s)

    def status(self) -> ClusterStatus:
        """Return the status of the cluster in the newest snapshot."""
        return self._hub.snapshot.status
