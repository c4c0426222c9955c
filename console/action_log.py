"""The actions of the console as events, merged with the job's own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.errors import shorten
from kafka_pipeline.common.suggest import counted, listed
from kafka_pipeline.console.history import MOST_EVENTS
from kafka_pipeline.console.views.snapshot import Event, EventKind, Snapshot

_LONGEST = 200


class ActionLog:
    """The latest actions, oldest first. For the console's thread only."""

    def __init__(self, clock: Callable[[], int] = wall_clock_ms) -> None:
        """Start without actions; `clock` is this host's, in ms since the epoch."""
        self._clock = clock
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._ahead_ms = 0
        """How far the brokers' clock, which snapshots use, is ahead of this host's."""

    def add(self, what: str, address: str, failure: str = "") -> None:
        """Add an action that has just ended: who requested it, and why it failed, if it did."""
        end = "failed" if failure else "done"
        self._events.append(
            Event(
                self._clock() + self._ahead_ms,
                EventKind.ACTION,
                f"{what}, asked for by {address}: {end}",
                failure,
                needs_care=bool(failure),
            )
        )

    def joined(self, snapshot: Snapshot) -> Snapshot:
        """Return a current snapshot with the actions among its events."""
        self._ahead_ms = snapshot.at_ms - self._clock()
        events = sorted((*snapshot.events, *self._events), key=lambda event: event.at_ms)
        return replace(snapshot, events=tuple(events[-MOST_EVENTS:]))


def action_line(
    action: str, processors: Sequence[str], ids: Sequence[str] = (), count: int | None = None
) -> str:
    """Describe an action; `count` is the number of dead letters that it has handled."""
    names = [*processors, *ids]
    letters = "" if count is None else f" of {counted(count, 'dead letter')}"
    return f"{action}{letters}: {shorten(listed(names), _LONGEST) or 'all processors'}"
