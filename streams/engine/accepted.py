"""Checks that an output topic will accept the records of a sink.

A record that the broker refuses aborts the whole transaction, without a hint which one it was. So
records are checked when a node forwards them, and `on_error` decides about the input record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafka_pipeline.common.record_batch import KafkaHeaders, record_size
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.common.topics import ANY_TIME_MS
from kafka_pipeline.streams.engine.outputs import OutputTopics
from kafka_pipeline.streams.engine.sendable import END_OF_TIME, check_timestamp
from kafka_pipeline.streams.engine.time_limit import unit_advice
from kafka_pipeline.streams.errors import InvalidTimestampError, StreamsError

_INT = {int}


class RecordTooLargeError(StreamsError):
    """A record is larger than its topic allows; `on_error` says what happens to its input."""


class MissingKeyError(StreamsError):
    """A record for a compacted topic has no key; `on_error` says what happens to its input."""


class Accepted:
    """The limits of one topic; `where` in messages names the sink.

    Timestamps from `from_ms` to `until_ms` are accepted for sure. Others must be checked, with the
    time of the clock: the limits of a topic move on with it.
    """

    __slots__ = (
        "_clock_ms",
        "_limits",
        "_topic",
        "_topics",
        "_where",
        "from_ms",
        "needs_key",
        "size_bytes",
        "until_ms",
    )

    def __init__(
        self, where: str, topic: str, topics: OutputTopics, clock_ms: Callable[[], int]
    ) -> None:
        """Ask for the limits, as `OutputTopics.limits` does."""
        limits = topics.limits(topic)
        self._where = where
        self._topic = topic
        self._topics = topics
        self._clock_ms = clock_ms
        self._limits = limits
        self.size_bytes = limits.size_bytes
        self.needs_key = limits.needs_key
        self.from_ms = 0 if limits.before_ms == ANY_TIME_MS else END_OF_TIME
        self.until_ms = -1
        self._move(clock_ms())

    def _move(self, now_ms: int) -> None:
        self.until_ms = min(now_ms + self._limits.after_ms, END_OF_TIME - 1)

    def require_time(self, timestamp: int) -> None:
        """Raise unless this is a timestamp that the topic accepts now."""
        check_timestamp(self._where, timestamp)
        now_ms = self._clock_ms()
        self._move(now_ms)
        problem = self._limits.time_problem(timestamp, now_ms)
        if problem:
            self._topics.recheck_limits(self._topic)
            refused = f"topic {self._topic} does not take the timestamp"
            advice = unit_advice(timestamp)
            raise InvalidTimestampError(
                f"{refused} {timestamp}: it is {problem}{advice}",
                shown=f"{refused} of the output: it is {problem}{advice}",
            )

    def require_times(self, timestamps: Sequence[int]) -> None:
        """Raise unless a column, of one item or more, has only such timestamps.

        Takes about 25 ns per item.
        """
        is_sure = (
            set(map(type, timestamps)) == _INT
            and min(timestamps) >= self.from_ms
            and max(timestamps) <= self.until_ms
        )
        for timestamp in () if is_sure else timestamps:
            self.require_time(timestamp)

    def require_fit(self, key: bytes | None, value: bytes | None, headers: KafkaHeaders) -> None:
        """Raise unless a record is small enough."""
        if record_size(key, value, headers) > self.size_bytes:
            self._topics.recheck_limits(self._topic)
            raise RecordTooLargeError(
                f"the output is larger than the {counted(self.size_bytes, 'byte')} that topic "
                f"{self._topic} takes (max.message.bytes)"
            )

    def refuse_keyless(self) -> None:
        """Raise, unless the topic has changed and takes records without a key."""
        self._topics.recheck_limits(self._topic)
        raise MissingKeyError(
            f"the output has no key, and topic {self._topic} takes none without one "
            "(cleanup.policy=compact)"
        )
