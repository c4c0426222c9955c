"""A writer at a fixed rate, in a separate process: it shares no interpreter with a reader."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from benchmarks.records import KEYS, STRIDE
from kafka_pipeline.common.errors import PipelineError, UnavailableError
from kafka_pipeline.common.kafka.bulk import Row

_TICK_S = 0.001
_END_TIMEOUT_S = 60
_FULL_QUEUE_S = 0.01


def numbered(number: int) -> Row:
    """Return record `number`, whose value is the number."""
    return _key(number), b"%016d" % number


def stamped(number: int) -> Row:
    """Return record `number`, whose value is the time of the call, in µs since 1970."""
    return _key(number), b"%016d" % (time.time_ns() // 1000)


def _key(number: int) -> bytes:
    return b"%d" % (number * STRIDE % KEYS)


@dataclass(frozen=True, slots=True)
class SteadyWriter:
    """A running writer; its record numbers continue those that were there before."""

    _written: Any
    _is_over: Any
    _process: Any

    @property
    def written(self) -> int:
        """The number of the next record: all earlier ones have been handed to the producer."""
        return int(self._written.value)

    def stop(self) -> int:
        """End the writer once all records are in the broker; return their total number."""
        self._is_over.set()
        self._process.join(_END_TIMEOUT_S)
        if self._process.exitcode != 0:
            raise PipelineError(f"the writer ended with exit code {self._process.exitcode}")
        return self.written


@contextmanager
def steady_writer(
    servers: str,
    topic: str,
    first: int,
    rate: int,
    record: Callable[[int], Row],
    *,
    linger_ms: int = 0,
) -> Iterator[SteadyWriter]:
    """Write `rate` records a second, starting with number `first`, until stopped.

    `record`, which must be picklable, makes each one from its number. A writer that cannot keep the
    rate falls behind.
    """
    # Do not fork: this process has Kafka clients, whose threads and locks would not survive it.
    context = multiprocessing.get_context("spawn")
    written, is_over = context.Value("q", first), context.Event()
    process = context.Process(
        target=_write,
        args=(servers, topic, first, rate, record, linger_ms, written, is_over),
        daemon=True,
    )
    process.start()
    try:
        yield SteadyWriter(written, is_over, process)
    finally:
        if process.is_alive():
            process.kill()
        process.join()


def _write(
    servers: str,
    topic: str,
    first: int,
    rate: int,
    record: Callable[[int], Row],
    linger_ms: int,
    written: Any,
    is_over: Any,
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": linger_ms,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
        }
    )
    started_s = time.perf_counter()
    number = first
    while not is_over.is_set():
        due = first + int((time.perf_counter() - started_s) * rate)
        while number < due and not is_over.is_set():
            key, value = record(number)
            try:
                producer.produce(topic, value, key)
            except BufferError:
                producer.poll(_FULL_QUEUE_S)
                continue
            number += 1
        written.value = number
        producer.poll(0)
        time.sleep(_TICK_S)
    written.value = number
    if producer.flush(_END_TIMEOUT_S):
        raise UnavailableError("the broker has not taken all records")
