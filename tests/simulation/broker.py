"""A Kafka for simulations: ordered topics, lagging readers, and one writer that may command."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from kafka_pipeline.common.protocol.messages import (
    Heartbeat,
    HeartbeatEvent,
    JobManagerBeat,
    Message,
    Processors,
    Refused,
    ReportRequest,
    Sos,
    Threads,
)
from kafka_pipeline.common.topic_names import TopicNames

NAMES = TopicNames(None, "in", "out")


Unreliable = Threads | Heartbeat | JobManagerBeat | Refused | ReportRequest
"""Messages that are written without transactions, and may get lost."""


class WriterFencedError(Exception):
    """Another writer has taken over."""


class WriteFailedError(Exception):
    """The transaction is lost or in doubt: all of it is in the topics, or nothing."""


@dataclass(frozen=True, slots=True)
class Weather:
    """How unreliable Kafka is; probabilities are per message, or per topic and read."""

    drop: float = 0.0
    duplicate: float = 0.0
    delay_ms: int = 0
    slow_read: float = 0.0
    failed_write: float = 0.0
    write_ms: int = 0
    """How long a transaction of commands takes at most; its writer waits for it."""


CALM = Weather()


def topic_of(message: Message) -> str:
    """Return the topic to which the codec would write a message."""
    match message:
        case Sos():
            return NAMES.threads_jm
        case Threads():
            return NAMES.threads_tm
        case Processors(tm_id) | Refused(tm_id) | ReportRequest(tm_id):
            return NAMES.processors(str(tm_id))
        case HeartbeatEvent():
            return NAMES.heartbeat_events
        case _:
            return NAMES.heartbeat


class Broker:
    """Holds the topics.

    Commands are written in transactions and stay once they are written. Reports, and answers to
    them that are written without transactions, may be lost, duplicated, late or out of order.
    """

    def __init__(self, random: Random) -> None:
        self.weather = CALM
        self.now_ms = 0
        self.away_until_ms = 0
        """The time until which Kafka is out of reach."""
        self._random = random
        self._logs: defaultdict[str, list[Message]] = defaultdict(list)
        self._in_flight: list[tuple[int, Message]] = []
        self._ruler = 0
        self.written_ms = 0
        """When the last transaction of commands ends."""

    @property
    def is_away(self) -> bool:
        """Whether Kafka is out of reach for everybody."""
        return self.now_ms < self.away_until_ms

    def advance(self, now_ms: int) -> None:
        """Deliver the reports that are due."""
        self.now_ms = now_ms
        arrived = [message for at_ms, message in self._in_flight if at_ms <= now_ms]
        if arrived:
            self._in_flight = [entry for entry in self._in_flight if entry[0] > now_ms]
            for message in arrived:
                self._logs[topic_of(message)].append(message)

    def calm_down(self) -> None:
        """Be reliable from now on, and deliver all late messages."""
        self.weather, self.away_until_ms, self.written_ms = CALM, 0, self.now_ms
        for _, message in self._in_flight:
            self._logs[topic_of(message)].append(message)
        self._in_flight = []

    def report(self, message: Unreliable) -> bool:
        """Accept a message; the weather decides whether and when it is delivered.

        Returns whether the sender gets a confirmation soon.
        """
        weather, random = self.weather, self._random
        if random.random() < (0.5 if self.is_away else weather.drop):
            return False
        # Clients keep messages while Kafka is away, and send them when it is back.
        away_ms = max(self.away_until_ms - self.now_ms, 0)
        copies = 2 if random.random() < weather.duplicate else 1
        for _ in range(copies):
            delay_ms = away_ms + random.randrange(weather.delay_ms + 1)
            if delay_ms:
                self._in_flight.append((self.now_ms + delay_ms, message))
            else:
                self._logs[topic_of(message)].append(message)
        return not self.is_away

    def fence(self) -> int:
        """Become the current writer; return the number that `command` requires."""
        if self.is_away:
            raise WriteFailedError
        self._ruler += 1
        # An open transaction of the former writer is aborted.
        self._in_flight = [entry for entry in self._in_flight if isinstance(entry[1], Unreliable)]
        self.written_ms = self.now_ms
        return self._ruler

    def command(self, writer: int, messages: Sequence[Message]) -> int:
        """Write commands, all or none; return the offset of the last one."""
        if self.is_away:
            raise WriteFailedError
        if writer != self._ruler:
            raise WriterFencedError
        fails = self._random.random() < self.weather.failed_write
        if fails and self._random.random() < 0.5:
            raise WriteFailedError
        takes_ms = self._random.randrange(self.weather.write_ms + 1)
        self.written_ms = max(self.written_ms, self.now_ms) + takes_ms
        for message in messages:
            log = self._logs[topic_of(message)]
            if isinstance(message, Sos):
                log.append(replace(message, epoch=len(log)))
            elif self.written_ms > self.now_ms:
                self._in_flight.append((self.written_ms, message))
            else:
                log.append(message)
        if fails:
            raise WriteFailedError
        return len(log) - 1

    def reader(self, topics: Sequence[str]) -> Reader:
        """Return a reader that sees messages written from now on."""
        return Reader(self, {topic: len(self._logs[topic]) for topic in topics}, self._random)

    def end(self, topic: str) -> int:
        """Return the offset of the next message of a topic."""
        return len(self._logs[topic])

    def behind(self, topic: str, position: int) -> list[Message]:
        """Return the messages of a topic from `position` on."""
        return self._logs[topic][position:]


class Reader:
    """Reads each topic in order, from its end at creation; topics do not wait for each other."""

    def __init__(self, broker: Broker, positions: dict[str, int], random: Random) -> None:
        self._broker = broker
        self._positions = positions
        self._random = random

    @property
    def is_at_end(self) -> bool:
        """Whether all messages were read; False while Kafka is out of reach."""
        at_end = all(at == self._broker.end(topic) for topic, at in self._positions.items())
        return at_end and not self._broker.is_away

    def read(self) -> Iterator[Message]:
        """Yield the messages that have arrived; a topic may be skipped until the next call."""
        slow_read = self._broker.weather.slow_read
        topics = [] if self._broker.is_away else list(self._positions)
        if slow_read:
            self._random.shuffle(topics)
        for topic in topics:
            if slow_read and self._random.random() < slow_read:
                continue
            for message in self._broker.behind(topic, self._positions[topic]):
                self._positions[topic] += 1
                yield message
