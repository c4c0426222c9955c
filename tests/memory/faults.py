"""The faults between a worker and the brokers; the seed decides which occur and when."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from random import Random

LONGEST_ABORT_DELAY_S = 10.0
"""Brokers look for timed-out transactions at this interval."""


class CommitOutcome(Enum):
    """The outcome of a commit."""

    DONE = auto()
    LOST_BEFORE_OFFSETS = auto()
    """The commit fails before the offsets are added; nothing is committed."""
    LOST = auto()
    """The commit fails after the offsets are added; nothing is committed."""
    LATE = auto()
    """The client gives up, and the request arrives later; it is refused if fenced by then."""
    ANSWER_LOST = auto()
    """Everything is committed, but the client does not learn of it."""
    SLOW = auto()
    """The request takes long, possibly longer than the transaction may be open."""


_MISHAPS = tuple(outcome for outcome in CommitOutcome if outcome is not CommitOutcome.DONE)


@dataclass(frozen=True, slots=True)
class Weather:
    """How unreliable the brokers and the network are; probabilities are per call."""

    delay_ms: int = 0
    """The longest time that a request takes."""
    marker_delay_ms: int = 0
    """The longest time from a decision about a transaction to its markers."""
    cut_off: float = 0.0
    """A coordinator, or a leader, that is cut off from the other brokers answers a request."""
    bad_commit: float = 0.0
    broken_connection: float = 0.0
    crash: float = 0.0
    preempted: float = 0.0
    """Another owner acts while a call is in progress."""
    quiet_fetch: float = 0.0
    """A reader delivers nothing for up to two seconds."""
    replaced_reader: float = 0.0
    partial_fetch: float = 0.0
    late_end: float = 0.0
    """The end of a partition is reported one fetch after the one that has its last record."""
    early_send: float = 0.0
    """Some records that wait to be sent are in the topics before the commit."""
    unknown_offset: float = 0.0
    """The offset of committed state in its topic is unknown."""
    call_ms: int = 0
    """The longest time that a call of user code takes."""
    answer_ms: int = 0
    """The longest time that the answer to an asynchronous call takes."""
    interrupted_call: float = 0.0
    """Others act during a call of user code, including the loop of its own thread."""
    stuck_call: float = 0.0
    """A call of user code, or an answer, takes longer than allowed."""
    occupied_thread: float = 0.0
    """A task gets no turn for a while, since another one has the thread; records come meanwhile."""


CALM = Weather()


class Faults:
    """Draws the faults for each call of the clients of one worker."""

    def __init__(self, random: Random | None = None, weather: Weather = CALM) -> None:
        self.random = random or Random(0)
        self.weather = weather

    def delay_s(self) -> float:
        """Return how long a request takes."""
        return self._up_to(self.weather.delay_ms)

    def marker_delay_s(self) -> float:
        """Return how long it takes until the marker of a transaction is in a partition."""
        return self._up_to(self.weather.marker_delay_ms)

    def abort_delay_s(self) -> float:
        """Return how long a timed-out transaction stays open."""
        if self.weather is CALM:
            return 0.0
        return self.random.random() * LONGEST_ABORT_DELAY_S

    def commit_outcome(self) -> CommitOutcome:
        """Return the outcome of a commit."""
        if self.happens(self.weather.bad_commit):
            return self.random.choice(_MISHAPS)
        return CommitOutcome.DONE

    def call_s(self) -> float:
        """Return how long a call of user code takes."""
        return self._up_to(self.weather.call_ms)

    def answer_s(self) -> float:
        """Return how long the answer to an asynchronous call takes."""
        return self._up_to(self.weather.answer_ms)

    def occupied_s(self) -> float:
        """Return for how long another task has the thread; mostly 0."""
        is_occupied = self.happens(self.weather.occupied_thread)
        return self.random.choice((0.5, 2, 10, 30)) if is_occupied else 0.0

    def is_stuck(self) -> bool:
        """Return whether a call of user code takes longer than allowed."""
        return self.happens(self.weather.stuck_call)

    def part(self, count: int, rate: float) -> int:
        """Return `count`, or a smaller number with the probability `rate`."""
        return self.random.randint(0, count) if count and self.happens(rate) else count

    def happens(self, rate: float) -> bool:
        """Return whether an event of this probability occurs."""
        return rate > 0 and self.random.random() < rate

    def _up_to(self, longest_ms: int) -> float:
        return self.random.random() * longest_ms / 1000 if longest_ms else 0.0
