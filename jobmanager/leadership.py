"""Decides whether this JobManager leads or another one does. Events in, commands out, no clock.

Kafka decides: the JobManager with the newest transactional writer fences all others. It leads once
its `sos` is written; the offset of that record is its epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kafka_pipeline.common.tick import Tick

RIVAL_WAIT_MS = 2000
RETRY_MS = 1000
MOST_RETRY_MS = 32_000
STEADY_MS = 10_000
"""Who has led for so long takes over again at once when a write fails."""


class LeaderState(StrEnum):
    """The states of a JobManager between its start and its end.

    ::

            sos written                fenced
        CANDIDATE ──▶ LEADING ─────────────────▶ YIELDING
          ▲ ▲  │         │                        ▲  │ │
          │ │  │         │                 fenced │  │ │
          │ │  └─────────┼────────────────────────┘  │ │
          │ └────────────┘ a write failed            │ │
          └──────────────────────────────────────────┘ │
                    nobody took over in two seconds    │
                                                       ▼
        CANDIDATE, LEADING ──────────────────────▶ SUPERSEDED
                             another one leads

        CANDIDATE, LEADING, YIELDING ────────────▶ STOPPED
                              asked to stop

    A LEADING JobManager that reads a newer `sos` from another one writes its own again. If the
    write succeeds, the other one was an impostor or is now fenced. If the write is fenced, the
    other one leads. A CANDIDATE or a YIELDING JobManager has no writer to test this with, and
    believes what it reads.
    """

    CANDIDATE = "CANDIDATE"
    LEADING = "LEADING"
    YIELDING = "YIELDING"
    SUPERSEDED = "SUPERSEDED"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class SosWritten:
    """This JobManager's `sos` is in Kafka, at offset `epoch`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class WriteFenced:
    """Kafka refused a write: there is a newer writer, or a broker timed this one out."""


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """A write failed or its outcome is unknown; the writer cannot be used any more."""


@dataclass(frozen=True, slots=True)
class SosRead:
    """A `sos` was read, possibly this JobManager's own. `incarnation` is its author."""

    epoch: int
    incarnation: str


@dataclass(frozen=True, slots=True)
class LeaderStopRequested:
    """The process was asked to stop."""


Event = Tick | SosWritten | WriteFenced | WriteFailed | SosRead | LeaderStopRequested


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Make a new writer, which fences all others, and write `sos` with it."""


@dataclass(frozen=True, slots=True)
class WriteSos:
    """Write `sos` with the current writer."""


@dataclass(frozen=True, slots=True)
class StepDown:
    """End the process: the JobManager of `rival_epoch` leads."""

    rival_epoch: int


@dataclass(frozen=True, slots=True)
class SayGoodbye:
    """Send a last heartbeat, which says that the JobManager of this epoch stops."""

    epoch: int


Command = TakeOver | WriteSos | StepDown | SayGoodbye


class Leadership:
    """Whether this JobManager leads. `handle` is the only way to change it.

    The caller carries out a `TakeOver` or `WriteSos` before it handles anything else, and reports
    the outcome: `SosWritten`, `WriteFenced` or `WriteFailed`. It also reports the latter two for
    commands to TaskManagers. After either of these two, it drops the writer.
    """

    def __init__(self, incarnation: str) -> None:
        self.state = LeaderState.CANDIDATE
        self.epoch = -1
        """The offset of the last `sos` that this JobManager wrote."""
        self._incarnation = incarnation
        self._wait_ms = 0
        """How long to stay in this state, counted from the next tick."""
        self._wait_until_ms: int | None = None
        self._led_since_ms: int | None = None
        """The first tick since the last `sos`."""
        self._next_pause_ms = 0
        """How long to wait if the next write as the leader fails."""
        self._rival_epoch: int | None = None
        """The epoch of the JobManager whose `sos` is being answered."""

    def handle(self, event: Event) -> list[Command]:
        """Handle an event; return what to do, which is nothing once SUPERSEDED or STOPPED."""
        if self.state in (LeaderState.SUPERSEDED, LeaderState.STOPPED):
            return []
        match event:
            case Tick(now_ms):
                return self._on_tick(now_ms)
            case SosWritten(epoch):
                self.state, self.epoch, self._rival_epoch = LeaderState.LEADING, epoch, None
                self._led_since_ms = None
            case WriteFenced():
                if self._rival_epoch is not None:
                    return self._step_down(self._rival_epoch)
                self._wait(LeaderState.YIELDING, RIVAL_WAIT_MS)
            case WriteFailed():
                self._wait(LeaderState.CANDIDATE, self._pause_ms())
                self._rival_epoch = None
            case SosRead(epoch, incarnation):
                if epoch > self.epoch and incarnation != self._incarnation:
                    return self._on_rival(epoch)
                # Its own epoch may be newer than it knows: a failed write may have succeeded. But
                # once it leads, a newer one of its own is a copy, which TaskManagers follow.
                if epoch > self.epoch and self.state is LeaderState.LEADING:
                    return [WriteSos()]
            case LeaderStopRequested():
                was_leading = self.state is LeaderState.LEADING
                self.state = LeaderState.STOPPED
                # Unless it led, its end changes nothing: another one may be leading.
                return [SayGoodbye(self.epoch)] if was_leading else []
        return []

    def _on_tick(self, now_ms: int) -> list[Command]:
        if self.state is LeaderState.LEADING:
            if self._led_since_ms is None:
                self._led_since_ms = now_ms
            elif now_ms - self._led_since_ms >= STEADY_MS:
                self._next_pause_ms = 0
            return []
        if self._wait_until_ms is None:
            # Counted from here, as the write may have blocked for long: unread messages come first.
            self._wait_until_ms = now_ms + self._wait_ms
        if now_ms < self._wait_until_ms:
            return []
        self.state = LeaderState.CANDIDATE
        return [TakeOver()]

    def _on_rival(self, epoch: int) -> list[Command]:
        """Test by writing whether the author of another `sos` leads, if there is a writer.

        Without this test, anybody who can write to the topic could end the JobManager.
        TaskManagers follow the newest epoch, so this JobManager's must become the newest again.
        """
        if self.state is not LeaderState.LEADING:
            return self._step_down(epoch)
        self._rival_epoch = epoch
        return [WriteSos()]

    def _pause_ms(self) -> int:
        """Return how long to wait after a write that has failed.

        A leader retries at once, as TaskManagers may be waiting for its commands. But each `sos`
        has all of them introduce themselves again. So if a leader's writes go on failing, as when a
        right is missing, it pauses for longer each time.
        """
        if self.state is not LeaderState.LEADING:
            return RETRY_MS
        pause_ms = self._next_pause_ms
        self._next_pause_ms = min(max(2 * pause_ms, RETRY_MS), MOST_RETRY_MS)
        return pause_ms

    def _wait(self, state: LeaderState, wait_ms: int) -> None:
        self.state, self._wait_ms, self._wait_until_ms = state, wait_ms, None

    def _step_down(self, rival_epoch: int) -> list[Command]:
        self.state = LeaderState.SUPERSEDED
        return [StepDown(rival_epoch)]
