"""The headers of dead letters: those of the record, and what went wrong with it."""

from __future__ import annotations

from common.record_batch import RecordBatch
from streams.processor import RecordRejectedError
from streams.running import RecordTooLargeError
from streams.user_errors import Explanation

DeadLetterHeaders = list[tuple[str, bytes | None]]

_STACKTRACE = "__streams.errors.stacktrace"


def dead_letter_headers(
    batch: RecordBatch, index: int, error: Exception, explained: Explanation, source: str
) -> DeadLetterHeaders:
    """Return a record's headers, then those of KIP-1034, the stack trace at the end.

    KIP-1034 has none for the node; of the stack trace, only the user's part is shown. `source` is
    the name of the source that read the record: what never came to a processor has failed there.
    """
    node, trace = explained.node, explained.trace
    name = source if node is None else node.name
    headers: DeadLetterHeaders = [
        *((batch.headers[index] if batch.headers else None) or []),
        ("__streams.errors.exception", _error_name(error).encode()),
        ("__streams.errors.message", explained.reason.encode(errors="backslashreplace")),
        ("__streams.errors.topic", batch.topic.encode()),
        ("__streams.errors.partition", b"%d" % batch.partition),
        ("__streams.errors.offset", b"%d" % batch.offsets[index]),
        ("__streams.errors.processor", name.encode()),
    ]
    if trace.user_entries:
        headers.append((_STACKTRACE, trace.text.encode(errors="backslashreplace")))
    return headers


def without_stacktrace(headers: DeadLetterHeaders) -> DeadLetterHeaders:
    """Return the headers without the stack trace, for a letter that is too large with it."""
    return headers[:-1] if headers[-1][0] == _STACKTRACE else headers


def _error_name(error: Exception) -> str:
    match error:
        case RecordRejectedError():
            return "RecordRejected"
        case RecordTooLargeError():
            return "RecordTooLarge"
    return f"{type(error).__module__}.{type(error).__qualname__}"
