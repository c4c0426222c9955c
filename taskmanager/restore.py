"""Brings a store up to date with its state topic, reading only the records that it lacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.kafka.clients import NonRetriableError, Partition, TransactionFailedError
from kafka_pipeline.common.kafka.read_to_end import read_to_end
from kafka_pipeline.common.topics import TOMBSTONES_KEPT_MS
from kafka_pipeline.streams.stores.bytes_store import BytesStore
from kafka_pipeline.taskmanager.clients import Brokers, Reader

STALL_TIMEOUT_S = 60
FETCH_RECORDS = 20_000
FETCH_WAIT_S = 0.2
# A write covers many keys, but not so many that the threads of other tasks wait for long: RocksDB's
# binding holds the GIL while it writes.
_WRITE_KEYS = 50_000
_WRITE_BYTES = 16_777_216
_CLOCKS_DIFFER_MS = 86_400_000

logger = structlog.get_logger()


def restore(
    store: BytesStore,
    partition: Partition,
    reader: Reader,
    brokers: Brokers,
    progress: Callable[[int, int], None],
) -> int:
    """Apply the committed records of a state topic partition that are not in `store` yet.

    Reads up to the high watermark at the time of the call: the last stable offset would leave out
    committed records after a dead writer's open transaction, so fence that writer first.
    `progress(restored, total)` reports offsets. Returns the number of records read. Blocks until
    done. Raises `TransactionFailedError` if the brokers deliver nothing for 60 s, or do not have
    the next offset (any more), and `NonRetriableError` if they refuse to deliver records.
    """
    end = brokers.high_watermarks([partition])[partition]
    begin = brokers.oldest_offsets([partition])[partition]
    position = store.offset
    if position is not None:
        problem = _problem(position, begin, end, partition, brokers)
        if problem:
            logger.warning(f"state wiped: {problem}", offset=position)
            store.wipe()
            position = None
    start = begin if position is None else position
    total = max(end - start, 0)
    progress(0, total)
    if not total:
        if store.offset is None:
            store.restore({}, start)
        return 0
    reader.assign({partition: start})
    records, size = 0, 0
    changes: dict[bytes, bytes | None] = {}
    fetch = partial(reader.fetch_changes, FETCH_RECORDS, FETCH_WAIT_S)
    for fetched, left in read_to_end(reader, {partition: end}, fetch, STALL_TIMEOUT_S):
        position = reader.positions[partition]
        for error in fetched.errors:
            if error.is_out_of_range:
                # The position was within the topic just now.
                raise TransactionFailedError(f"the topic changed during the restore: {error}")
            raise NonRetriableError(error.reason)
        changes.update(fetched.last)
        size += sum(map(len, filter(None, fetched.last.values())))
        records += fetched.records
        is_full = len(changes) >= _WRITE_KEYS or size >= _WRITE_BYTES
        has_time = bool(changes) and not fetched.records
        if is_full or has_time or not left:
            store.restore(changes, position)
            changes, size = {}, 0
        progress(total - left, total)
    reader.unassign([partition])
    return records


def _problem(position: int, begin: int, end: int, partition: Partition, brokers: Brokers) -> str:
    """Return why a store at `position` cannot be brought up to date from there; "" if it can."""
    if not begin <= position <= end:
        return "its offset is outside the state topic"
    # The entry at the position itself is the commit marker of the store's last transaction.
    if end - position <= 1:
        return ""
    oldest_ms = wall_clock_ms() - TOMBSTONES_KEPT_MS + _CLOCKS_DIFFER_MS
    sure = brokers.offsets_at([partition], oldest_ms)[partition]
    if sure is None or sure - position > 1:
        return "so old that Kafka may have forgotten which keys were deleted since"
    return ""
