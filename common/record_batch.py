"""Records of one partition as columns, the unit that a task processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Headers = list[tuple[str, bytes | None]] | None

OutputRecord = tuple[str, bytes | None, bytes | None, int, int, Headers]
"""A record to send: topic, key, value, partition, timestamp and headers.

The partition is -1 where the key decides. A plain tuple, as one is made for each record.
"""


@dataclass(slots=True)
class RecordBatch:
    """Consecutive records of one topic partition, oldest first; all columns have one length.

    Keys and values are the bytes of the topic, `None` where the record has none. Timestamps are
    milliseconds since the epoch. `headers` is `None` when no record of the batch carries any.
    Offsets ascend but may have gaps (transaction markers, compaction).

    `error` says why the record of a batch of one cannot be processed at all; empty as a rule.
    """

    topic: str
    partition: int
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]
    offsets: Sequence[int]
    headers: Sequence[Headers] | None = None
    error: str = ""

    def __len__(self) -> int:
        return len(self.offsets)

    def behind(self, count: int) -> RecordBatch:
        """Return the records behind the first `count` ones."""
        return RecordBatch(
            self.topic,
            self.partition,
            self.keys[count:],
            self.values[count:],
            self.timestamps[count:],
            self.offsets[count:],
            self.headers[count:] if self.headers else None,
            self.error,
        )
