"""The headers of a dead letter: what was wrong with the record, and where it failed."""

from __future__ import annotations

from common.record_batch import RecordBatch
from streams.engine.running import RecordTooLargeError
from streams.engine.user_errors import Explanation
from streams.processor import RecordRejectedError

STACKTRACE = "__streams.errors.stacktrace"


def error_headers(
    batch: RecordBatch, index: int, explained: Explanation, source: str
) -> list[tuple[str, bytes | None]]:
    """Return the headers of KIP-1034, as Kafka Streams writes them to its dead letter queues.

    KIP-1034 has no header for the node: `__streams.errors.processor` names the node or, for a
    record that never reached a processor, its `source`. The stack trace of user code comes last;
    it is left out if there is none.
    """
    trace, node = explained.trace, explained.node
    headers: list[tuple[str, bytes | None]] = [
        ("__streams.errors.exception", _error_name(explained.error).encode()),
        ("__streams.errors.message", explained.reason.encode(errors="backslashreplace")),
        ("__streams.errors.topic", batch.topic.encode()),
        ("__streams.errors.partition", b"%d" % batch.partition),
        ("__streams.errors.offset", b"%d" % batch.offsets[index]),
        ("__streams.errors.processor", (source if node is None else node.name).encode()),
    ]
    if trace.user_entries:
        headers.append((STACKTRACE, trace.text.encode(errors="backslashreplace")))
    return headers


def _error_name(error: Exception) -> str:
    match error:
        case RecordRejectedError():
            return "RecordRejected"
        case RecordTooLargeError():
            return "RecordTooLarge"
    return f"{type(error).__module__}.{type(error).__qualname__}"
