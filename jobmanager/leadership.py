"""Which of several JobManagers leads: this one's part in it. Events in, commands out, no clock.

Kafka decides: whoever makes the newest transactional writer fences all others. A JobManager leads
from its `sos` on, whose offset is its epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jobmanager.events import Tick

RIVAL_WAIT_MS = 2000
RETRY_MS = 1000


class LeaderState(StrEnum):
    """Where a JobManager is between its start and its end.

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

    A LEADING one that reads somebody else's newer `sos` writes one again. If that works, the other
    one was an impostor or is fenced; if it is fenced then, the other one leads. A CANDIDATE or a
    YIELDING one has no writer to find out with, and believes what it reads.
    """

    CANDIDATE = "CANDIDATE"
    LEADING = "LEADING"
    YIELDING = "YIELDING"
    SUPERSEDED = "SUPERSEDED"


@dataclass(frozen=True, slots=True)
class SosWritten:
    """This JobManager's `sos` is in Kafka, at offset `epoch`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class WriteFenced:
    """Kafka refused a write, as somebody has made a newer writer or a broker timed this one out."""


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """Kafka did not take a write, or nobody knows whether it did; the writer is of no more use."""


@dataclass(frozen=True, slots=True)
class SosRead:
    """A JobManager's `sos` was read, be it one's own. `incarnation` is its author."""

    epoch: int
    incarnation: str


Event = Tick | SosWritten | WriteFenced | WriteFailed | SosRead


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Make a new writer, which fences all others, and write `sos` with it."""


@dataclass(frozen=True, slots=True)
class WriteSos:
    """Write `sos` with the writer at hand."""


@dataclass(frozen=True, slots=True)
class StepDown:
    """End the process: the JobManager of `rival_epoch` leads."""

    rival_epoch: int


Command = TakeOver | WriteSos | StepDown


class Leadership:
    """Whether this JobManager leads. `handle` is the only way to change it.

    The caller carries a `TakeOver` or `WriteSos` out before it handles anything else, and tells
    how it went: `SosWritten`, `WriteFenced` or `WriteFailed`. The latter two are also for commands
    to TaskManagers. Then the writer is to be dropped.
    """

    def __init__(self, incarnation: str) -> None:
        self.state = LeaderState.CANDIDATE
        self.epoch = -1
        """Of the last `sos` that this JobManager wrote."""
        self._incarnation = incarnation
        self._wait_ms = 0
        """How long to stay as it is, from the next tick on."""
        self._wait_until_ms: int | None = None
        self._rival_epoch: int | None = None
        """Of the one whose `sos` is being answered."""

    def handle(self, event: Event) -> list[Command]:
        """Take an event in; return what to do. Once SUPERSEDED, there is nothing to do."""
        if self.state is LeaderState.SUPERSEDED:
            return []
        match event:
            case Tick(now_ms):
                return self._on_tick(now_ms)
            case SosWritten(epoch):
                self.state, self.epoch, self._rival_epoch = LeaderState.LEADING, epoch, None
            case WriteFenced():
                if self._rival_epoch is not None:
                    return self._step_down(self._rival_epoch)
                self._wait(LeaderState.YIELDING, RIVAL_WAIT_MS)
            case WriteFailed():
                # One that led tries at once: others may be waiting for its commands.
                was_leading = self.state is LeaderState.LEADING
                self._wait(LeaderState.CANDIDATE, 0 if was_leading else RETRY_MS)
                self._rival_epoch = None
            case SosRead(epoch, incarnation):
                # Its own may be newer than it knows: a write that failed may still have worked.
                if epoch > self.epoch and incarnation != self._incarnation:
                    return self._on_rival(epoch)
        return []

    def _on_tick(self, now_ms: int) -> list[Command]:
        if self.state is LeaderState.LEADING:
            return []
        if self._wait_until_ms is None:
            # Not from the write on: it may have blocked for long, and news is still to be read.
            self._wait_until_ms = now_ms + self._wait_ms
        if now_ms < self._wait_until_ms:
            return []
        self.state = LeaderState.CANDIDATE
        return [TakeOver()]

    def _on_rival(self, epoch: int) -> list[Command]:
        """Find out by writing whether the author of another `sos` leads, if there is a writer.

        Otherwise anybody who can write to the topic could end the JobManager. TaskManagers follow
        the newest epoch, so this one's has to be newer again.
        """
        if self.state is not LeaderState.LEADING:
            return self._step_down(epoch)
        self._rival_epoch = epoch
        return [WriteSos()]

    def _wait(self, state: LeaderState, wait_ms: int) -> None:
        self.state, self._wait_ms, self._wait_until_ms = state, wait_ms, None

    def _step_down(self, rival_epoch: int) -> list[Command]:
        self.state = LeaderState.SUPERSEDED
        return [StepDown(rival_epoch)]
