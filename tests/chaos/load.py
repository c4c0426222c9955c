"""The writer and the reader that run while faults occur."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from random import Random

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from common.config import Config
from common.kafka.bulk import BulkWriter
from common.kafka.lifeline import connect_with_lifeline
from tests.chaos.event_times import EventTimes
from tests.chaos.ledger import Ledger, value_of

TICK_S = 0.05
KEYS = tuple(b"k%02d" % number for number in range(48))
_FLUSH_TIMEOUT_S = 120.0


class Load:
    """Writes numbered records of all keys at a steady rate, in bursts, until it is paused.

    With `times`, records have event times; else the time of the moment.
    """

    def __init__(
        self, config: Config, random: Random, records_per_s: int, times: EventTimes | None = None
    ) -> None:
        self.numbers = dict.fromkeys(KEYS, 0)
        """How many records of each key were handed to Kafka's client."""
        self._writer = BulkWriter(config, config.source_topic)
        self._random = random
        self._times = times
        self._per_tick = max(int(records_per_s * TICK_S), 1)
        self._upcoming: list[bytes] = []
        self._runs = threading.Event()
        self._rests = threading.Event()
        self._ends = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Continue writing. Raises the error that has stopped the writer."""
        self._require_sound()
        self._rests.clear()
        self._runs.set()

    def pause(self) -> None:
        """Stop writing, and wait until Kafka has all. Raises the error that stopped the writer."""
        self._runs.clear()
        self._rests.wait(_FLUSH_TIMEOUT_S)
        self._require_sound()
        self._writer.flush(_FLUSH_TIMEOUT_S)

    def close_windows(self) -> None:
        """Begin the next epoch with one record of each key, while the writer is paused."""
        assert self._times is not None, "records have no event times"
        self._times.begin_epoch(self.numbers)
        # Otherwise, some keys would be one record ahead of others, whose records would then be
        # behind the time of the join: those go out alone before their partners come.
        self._upcoming = []
        self._write(KEYS)
        self._writer.flush(_FLUSH_TIMEOUT_S)

    def close(self) -> None:
        """End the writer's thread."""
        self._ends = True
        self._runs.set()
        self._thread.join()

    def _require_sound(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._ends:
                if not self._runs.is_set():
                    self._rests.set()
                    self._runs.wait()
                    continue
                self._write(self._draw())
                time.sleep(TICK_S)
        except Exception as error:
            self._error = error
        finally:
            self._rests.set()

    def _write(self, keys: Iterable[bytes]) -> None:
        numbers = [(key, self._next(key)) for key in keys]
        if self._times is None:
            self._writer.write((key, b"%d" % value_of(number)) for key, number in numbers)
            return
        next_time = self._times.next_time
        self._writer.write_at(
            (key, b"%d" % value_of(number), next_time(key, number)) for key, number in numbers
        )

    def _draw(self) -> list[bytes]:
        while len(self._upcoming) < self._per_tick:
            self._upcoming += self._random.sample(KEYS, len(KEYS))
        keys, self._upcoming = (
            self._upcoming[: self._per_tick],
            self._upcoming[self._per_tick :],
        )
        return keys

    def _next(self, key: bytes) -> int:
        self.numbers[key] += 1
        return self.numbers[key]


class SinkReader:
    """Continuously reads the sink into a ledger, read_committed, as a user's application would."""

    def __init__(self, config: Config, ledger: Ledger) -> None:
        self._ledger = ledger
        self._settings = {
            "bootstrap.servers": config.bootstrap_servers,
            "group.id": "chaos",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
            "socket.timeout.ms": 10_000,
            "log_level": 0,
            "logger": logging.getLogger(__name__),
        }
        self._topic = config.sink_topic
        self._next = dict.fromkeys(range(config.parallelism), 0)
        self._connect()
        self._ends = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="sink reader", daemon=True)
        self._thread.start()

    def require_sound(self) -> None:
        """Raise the error that has stopped the reader, if there is one."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the reader's thread."""
        self._ends = True
        self._thread.join()
        self._consumer.close()

    def _connect(self) -> None:
        self._consumer, self._lifeline = connect_with_lifeline(Consumer, self._settings)
        self._consumer.assign([TopicPartition(self._topic, *place) for place in self._next.items()])

    def _run(self) -> None:
        try:
            while not self._ends:
                message = self._consumer.poll(0.1)
                if message is None:
                    if self._lifeline.is_lost:
                        self._consumer.close()
                        self._connect()
                    continue
                for each in (message, *self._consumer.consume(5000, 0)):
                    error = each.error()
                    if error is None:
                        self._note(each)
                    elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                        raise RuntimeError(f"the sink lost records: {error.str()}")
        except Exception as error:
            self._error = error

    def _note(self, message: Message) -> None:
        partition, offset = message.partition() or 0, message.offset() or 0
        # librdkafka may deliver records twice (its issues 4637 and 5345); the sink has them once.
        if offset >= self._next[partition]:
            self._ledger.note(message.key(), message.value())
            self._next[partition] = offset + 1
