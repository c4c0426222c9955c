"""What goes wrong between a worker and the brokers, and when: the seed decides."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from random import Random

LONGEST_ABORT_DELAY_S = 10.0
"""Brokers look for transactions that have timed out this often."""


class Fate(Enum):
    """What becomes of a commit."""

    DONE = auto()
    LOST_BEFORE_OFFSETS = auto()
    """It fails before the offsets are added; nothing is committed."""
    LOST = auto()
    """It fails after the offsets are added; nothing is committed."""
    LATE = auto()
    """The client gives up, and the request arrives later: what was fenced by then is refused."""
    ANSWER_LOST = auto()
    """All is committed, and the client does not know."""
    SLOW = auto()
    """The request takes long, maybe longer than the transaction may be open."""


_MISHAPS = tuple(fate for fate in Fate if fate is not Fate.DONE)


@dataclass(frozen=True, slots=True)
class Weather:
    """How unreliable the brokers and the way to them are; probabilities are per call."""

    delay_ms: int = 0
    """The longest time that a request takes."""
    marker_delay_ms: int = 0
    """The longest time from a decision about a transaction to its markers."""
    bad_commit: float = 0.0
    broken_connection: float = 0.0
    crash: float = 0.0
    preempted: float = 0.0
    """Somebody else acts while a call is under way."""
    quiet_fetch: float = 0.0
    """From then on a reader brings nothing for up to two seconds."""
    replaced_reader: float = 0.0
    partial_fetch: float = 0.0
    late_end: float = 0.0
    """The end of a partition is reported by the fetch after that of its last record."""
    early_send: float = 0.0
    """Some of what waits to be sent is in the topics before the commit."""
    unknown_offset: float = 0.0
    """Nobody knows where state that was committed is in its topic."""
    call_ms: int = 0
    """The longest time that a call of user code takes."""
    answer_ms: int = 0
    """The longest time that the answer to an asynchronous call takes."""
    interrupted_call: float = 0.0
    """Others act while a call of user code goes on, the loop of its own thread among them."""
    stuck_call: float = 0.0
    """A call of user code, or an answer, takes longer than it may."""


CALM = Weather()


class Faults:
    """Draws what happens to each call of the clients of one worker."""

    def __init__(self, random: Random | None = None, weather: Weather = CALM) -> None:
        self.random = random or Random(0)
        self.weather = weather

    def delay_s(self) -> float:
        """Return how long a request takes."""
        return self._up_to(self.weather.delay_ms)

    def marker_delay_s(self) -> float:
        """Return after what time the marker of a transaction is in a partition."""
        return self._up_to(self.weather.marker_delay_ms)

    def abort_delay_s(self) -> float:
        """Return how long a transaction that has timed out stays open."""
        if self.weather is CALM:
            return 0.0
        return self.random.random() * LONGEST_ABORT_DELAY_S

    def commit_fate(self) -> Fate:
        """Return what becomes of a commit."""
        if self.happens(self.weather.bad_commit):
            return self.random.choice(_MISHAPS)
        return Fate.DONE

    def call_s(self) -> float:
        """Return how long a call of user code takes."""
        return self._up_to(self.weather.call_ms)

    def answer_s(self) -> float:
        """Return how long the answer to an asynchronous call takes."""
        return self._up_to(self.weather.answer_ms)

    def is_stuck(self) -> bool:
        """Tell whether a call of user code takes longer than it may."""
        return self.happens(self.weather.stuck_call)

    def part(self, count: int, rate: float) -> int:
        """Return `count`, or with the probability `rate` a smaller number."""
        return self.random.randint(0, count) if count and self.happens(rate) else count

    def happens(self, rate: float) -> bool:
        """Tell whether something of this probability happens."""
        return rate > 0 and self.random.random() < rate

    def _up_to(self, longest_ms: int) -> float:
        return self.random.random() * longest_ms / 1000 if longest_ms else 0.0
