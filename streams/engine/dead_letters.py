"""Dead letters: rejected records with headers that say what was wrong, and where it failed."""

from __future__ import annotations

from kafka_pipeline.common.code.engine_code import module_shown
from kafka_pipeline.common.record_batch import OutputRecord, RecordBatch, record_size
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.streams.engine.accepted import MissingKeyError, RecordTooLargeError
from kafka_pipeline.streams.engine.outputs import OutputTopics
from kafka_pipeline.streams.engine.user_errors import Explanation
from kafka_pipeline.streams.errors import EndedProcessError, InvalidTimestampError
from kafka_pipeline.streams.processor import RecordRejectedError

_STACKTRACE = "__streams.errors.stacktrace"


def dead_letter(
    batch: RecordBatch,
    index: int,
    explained: Explanation,
    source: str,
    topic: str,
    output_topics: OutputTopics,
    now_ms: int,
) -> OutputRecord | str:
    """Return a rejected record as an output for the dead letter `topic`, or why it cannot be one.

    A record that only fits without its stack trace goes without it. One whose timestamp the topic
    does not take has the time of the wall clock, `now_ms`.
    """
    key, value = batch.keys[index], batch.values[index]
    headers = [
        *((batch.headers[index] if batch.headers else None) or []),
        *_error_headers(batch, index, explained, source),
    ]
    limits = output_topics.limits(topic)
    limit = limits.size_bytes
    size = record_size(key, value, headers)
    if size > limit and headers[-1][0] == _STACKTRACE:
        del headers[-1]
        size = record_size(key, value, headers)
    if size > limit:
        return (
            f"and as a dead letter it is larger than the {counted(limit, 'byte')} that topic "
            f"{topic} takes (max.message.bytes)"
        )
    if key is None and limits.needs_key:
        return f"and it has no key, which a dead letter needs, as topic {topic} is compacted"
    timestamp = batch.timestamps[index]
    if limits.time_problem(timestamp, now_ms):
        timestamp = now_ms
    # Inputs may have more partitions than the dead letter topic.
    partition = -1 if key is not None else batch.partition % output_topics.num_partitions(topic)
    return topic, key, value, partition, timestamp, headers


def _error_headers(
    batch: RecordBatch, index: int, explained: Explanation, source: str
) -> list[tuple[str, bytes | None]]:
    """Return the headers of KIP-1034, as Kafka Streams writes them to its dead letter queues.

    KIP-1034 has no header for the node: `__streams.errors.processor` names the node or, for a
    record that never reached a processor, its `source`. The stack trace of user code comes last;
    it is left out if there is none.
    """
    node = explained.node
    headers: list[tuple[str, bytes | None]] = [
        ("__streams.errors.exception", error_name(explained.error).encode()),
        ("__streams.errors.message", explained.reason.encode(errors="backslashreplace")),
        ("__streams.errors.topic", batch.topic.encode()),
        ("__streams.errors.partition", b"%d" % batch.partition),
        ("__streams.errors.offset", b"%d" % batch.offsets[index]),
        ("__streams.errors.processor", (source if node is None else node.name).encode()),
    ]
    if explained.trace.user_entries:
        headers.append((_STACKTRACE, explained.traceback.encode(errors="backslashreplace")))
    return headers


def error_name(error: Exception) -> str:
    """Return the name of an error's class: `RecordRejected`, or `shop.OutOfStockError`."""
    match error:
        case EndedProcessError():
            return "EndedProcess"
        case InvalidTimestampError() | RecordRejectedError(__cause__=InvalidTimestampError()):
            return "InvalidTimestamp"
        case RecordRejectedError():
            return "RecordRejected"
        case RecordTooLargeError():
            return "RecordTooLarge"
        case MissingKeyError():
            return "MissingKey"
    return f"{module_shown(type(error))}.{type(error).__qualname__}"
