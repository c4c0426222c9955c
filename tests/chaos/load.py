"""The writer and the reader that run while faults occur.

With event times, one source partition gets many times as many records as the others, whose times go
on at the same pace. Kafka has all records of a window before it gets one of a later window: so an
engine that waits for what Kafka has never meets a late record, even if the leader of one partition
takes nothing for a while.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from itertools import groupby
from random import Random

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.bulk import BulkWriter, Row
from kafka_pipeline.common.kafka.lifeline import connect_with_lifeline
from kafka_pipeline.streams.partitioning import default_partition
from tests.chaos.event_times import EventTimes
from tests.chaos.ledger import Ledger, value_of
from tests.user_code.numbered import WINDOW_MS

TICK_S = 0.05
BACKLOG_S = 5.0
"""Records that would take this long are sometimes written at once, if they have event times."""
BACKLOG_EVERY_S = 20.0
KEYS = tuple(b"k%02d" % number for number in range(48))
_FLUSH_TIMEOUT_S = 120.0
_OUTAGE_TIMEOUT_S = 300.0


def keys_in(partition: int, partitions: int) -> list[bytes]:
    """Return the keys whose records are in a partition of the source."""
    return [key for key in KEYS if default_partition(key, partitions) == partition]


class Load:
    """Writes numbered records of all keys at a steady rate, in bursts, until it is paused.

    With `times`, records have event times, in order, and some are written as a backlog; else they
    have the time of the moment.
    """

    def __init__(
        self, config: Config, random: Random, records_per_s: int, times: EventTimes | None = None
    ) -> None:
        self.numbers = dict.fromkeys(KEYS, 0)
        """How many records of each key were handed to Kafka's client."""
        self._writer = BulkWriter(config, config.source_topic)
        self._partitions = config.parallelism
        self._random = random
        self._records_per_s = records_per_s
        self._times = times
        self._until_ms = 0.0 if times is None else float(times.start_of(0))
        """The event time before which all records are written."""
        self._latest_ms = int(self._until_ms)
        """The event time of the last record."""
        self._upcoming: list[bytes] = []
        self._lock = threading.Lock()
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
        """Begin the next epoch with a record of each key, while the writer is paused.

        So there is one in every partition.
        """
        times = self._event_times
        fast = self._random.randrange(self._partitions)
        times.begin_epoch(self.numbers, keys_in(fast, self._partitions))
        self._until_ms = times.start_of(times.epoch)
        with self._lock:
            self._write_for(times.longest_step_ms)
        self._writer.flush(_FLUSH_TIMEOUT_S)

    def add(self, rows: Iterable[Row]) -> None:
        """Write other records among these, at their present time; wait until Kafka has them."""
        with self._lock:
            if self._times is None:
                self._writer.write(rows)
            else:
                self._writer.write_at((*row, self._latest_ms) for row in rows)
            self._writer.flush(_FLUSH_TIMEOUT_S)

    def rate_in(self, partition: int) -> float:
        """Return how many records a partition gets per second, backlogs aside."""
        per_ms = self._event_times.records_per_ms
        keys = keys_in(partition, self._partitions)
        return self._pace * sum(per_ms[key] for key in keys)

    def written_in(self, partition: int) -> int:
        """Return how many records a partition has got."""
        return sum(self.numbers[key] for key in keys_in(partition, self._partitions))

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
                with self._lock:
                    self._write_tick()
                time.sleep(TICK_S)
        except Exception as error:
            self._error = error
        finally:
            self._rests.set()

    def _write_tick(self) -> None:
        if self._times is None:
            rows = [(key, self._next(key)) for key in self._draw()]
            self._writer.write((key, b"%d" % value_of(number)) for key, number in rows)
            return
        is_backlog = self._random.random() < TICK_S / BACKLOG_EVERY_S
        self._write_for(self._pace * (BACKLOG_S if is_backlog else TICK_S))

    @property
    def _event_times(self) -> EventTimes:
        assert self._times is not None, "records have no event times"
        return self._times

    @property
    def _pace(self) -> float:
        """How many ms of event time pass per second."""
        return self._records_per_s / sum(self._event_times.records_per_ms.values())

    def _write_for(self, event_ms: float) -> None:
        """Write all records of the next `event_ms` of event time, in order."""
        self._until_ms += event_ms
        for window, rows in groupby(self._due(), lambda row: row[0] // WINDOW_MS):
            if window != self._latest_ms // WINDOW_MS:
                self._writer.flush(_OUTAGE_TIMEOUT_S)
            for time_ms, key, number in rows:
                self.numbers[key] = number
                self._latest_ms = time_ms
                self._writer.write_at([(key, b"%d" % value_of(number), time_ms)])

    def _due(self) -> list[tuple[int, bytes, int]]:
        """Return the records before the time that is reached: time, key and number."""
        due = []
        for key in self._random.sample(KEYS, len(KEYS)):
            number = self.numbers[key] + 1
            while (time_ms := self._event_times.next_time(key, number)) < self._until_ms:
                due.append((time_ms, key, number))
                number += 1
        return sorted(due, key=lambda row: row[0])

    def _draw(self) -> list[bytes]:
        count = max(int(self._records_per_s * TICK_S), 1)
        while len(self._upcoming) < count:
            self._upcoming += self._random.sample(KEYS, len(KEYS))
        keys, self._upcoming = self._upcoming[:count], self._upcoming[count:]
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
            # A leader that is cut off answers with nothing. By default, it is left after 5 minutes.
            "topic.metadata.refresh.interval.ms": 5000,
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
