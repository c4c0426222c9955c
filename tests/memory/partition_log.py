"""One partition in memory: records and markers at their offsets, and what readers may see."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.record_batch import KafkaHeaders


class Outcome(Enum):
    """The coordinator's decision about a transaction."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass(eq=False, slots=True)
class Transaction:
    """A transaction as the coordinator and the partitions see it."""

    name: str
    outcome: Outcome = Outcome.OPEN
    partitions: dict[Partition, None] = field(default_factory=dict)
    """The partitions that the transaction writes to; an ordered set."""
    positions: dict[str, dict[Partition, Committed]] = field(default_factory=dict)
    """The positions that the transaction commits, by group."""
    missing_markers: int = 0
    """How many partitions and groups do not know the outcome yet."""


class Entry(NamedTuple):
    """The entry at an offset: a record, or the marker of a transaction."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: KafkaHeaders
    transaction: Transaction | None = None
    is_marker: bool = False


class PartitionLog:
    """Holds all entries ever written, as a list whose indices are the offsets."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.start = 0
        """The offset of the oldest entry that readers can get."""
        self._open: dict[Transaction, int] = {}
        """The first offset of each transaction without a marker; in ascending order."""

    @property
    def end(self) -> int:
        """The high watermark."""
        return len(self.entries)

    @property
    def stable_end(self) -> int:
        """The last stable offset: the start of the oldest unmarked transaction, or the end."""
        return next(iter(self._open.values()), len(self.entries))

    def append(self, entry: Entry) -> int:
        """Write a record; return its offset."""
        offset = len(self.entries)
        self.entries.append(entry)
        if entry.transaction is not None:
            self._open.setdefault(entry.transaction, offset)
        return offset

    def mark(self, transaction: Transaction, timestamp: int) -> None:
        """Write the marker of a decided transaction."""
        self.entries.append(Entry(None, None, timestamp, None, transaction, is_marker=True))
        self._open.pop(transaction, None)

    def delete_before(self, offset: int) -> None:
        """Delete old entries, but none after the last stable offset."""
        self.start = max(self.start, min(offset, self.stable_end))

    def visible(self, begin: int, limit: int | None = None) -> tuple[list[int], int]:
        """Return the offsets of committed records from `begin` on, and the offset to continue at.

        At most `limit` offsets are returned, all of them before the last stable offset.
        """
        end, entries = self.stable_end, self.entries
        found: list[int] = []
        for offset in range(begin, end):
            if is_visible(entries[offset]):
                if len(found) == limit:
                    return found, offset
                found.append(offset)
        return found, end

    def first_at(self, timestamp_ms: int) -> int | None:
        """Return the offset of the first entry at or after a time, if there is one."""
        for offset in range(self.start, len(self.entries)):
            if self.entries[offset].timestamp >= timestamp_ms:
                return offset
        return None

    def committed(self) -> list[Entry]:
        """Return all committed records, including deleted and temporarily hidden ones."""
        return [entry for entry in self.entries if is_visible(entry)]


def is_visible(entry: Entry) -> bool:
    """Return whether an entry is a committed record."""
    transaction = entry.transaction
    return transaction is None or (transaction.outcome is Outcome.COMMITTED and not entry.is_marker)
