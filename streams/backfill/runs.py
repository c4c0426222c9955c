"""Runs: records of one topic partition in the order of one writer, as Arrow files.

What several tasks write to one partition are several runs. To read the partition is to merge them
by time: records of one run never change their order, just as those of one producer in Kafka, and
the order does not depend on chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from common.record_batch import RecordBatch
from streams.spark.columns import HEADERS, binary_items, header_items

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", HEADERS),
        # Ascends within a run; decides between records of one time.
        ("position", pa.int64()),
    ]
)
BATCH_RECORDS = 100_000
TASK_BATCH_RECORDS = 20_000
"""What a task takes at once: a record that is rejected costs time for all behind it there."""
_BATCH_BYTES = 64 * 1024 * 1024
_SMALLEST_BATCH = 20_000


class RunWriter:
    """Writes one run. `path` and its folder are made with the first record."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: pa.ipc.RecordBatchFileWriter | None = None
        self._waiting: list[pa.Table] = []
        self._size = 0
        self.records = 0
        """How many records it has got."""

    def write(self, table: pa.Table) -> None:
        """Write records of `SCHEMA` behind the others."""
        self._waiting.append(table)
        self._size += len(table)
        self.records += len(table)
        # Where many partitions share what is written, batches would become small.
        if self._size >= _SMALLEST_BATCH:
            self._flush()

    def close(self) -> None:
        """Write the rest."""
        if self._size:
            self._flush()
        if self._file is not None:
            self._file.close()

    def _flush(self) -> None:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = pa.ipc.new_file(str(self._path), SCHEMA)
        table = pa.concat_tables(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
        self._file.write_table(table.combine_chunks(), max_chunksize=BATCH_RECORDS)
        self._waiting, self._size = [], 0


def merged(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield the records of runs, merged by time, in tables of up to 100,000 records or 64 MB.

    The time of a record is the largest timestamp of its run up to it. Of equal times, the smaller
    position comes first, then the run that is named first.
    """
    cursors = [_Cursor(path) for path in paths]
    while True:
        for cursor in cursors:
            if not len(cursor):
                cursor.load()
        cursors = [cursor for cursor in cursors if len(cursor)]
        if not cursors:
            return
        open_ends = [cursor.times[-1] for cursor in cursors if not cursor.is_at_end]
        # Whatever is still to be read of a run is not older than what was read last.
        bound = min(open_ends, default=None) if len(cursors) > 1 else None
        parts = [
            (number, *cursor.take(bound))
            for number, cursor in enumerate(cursors)
            if cursor.count_before(bound)
        ]
        if parts:
            yield from _sliced(_in_order(parts))
            continue
        for cursor in cursors:
            if not cursor.is_at_end and cursor.times[-1] == bound:
                cursor.load()


class _Cursor:
    """What was read of a run and not taken yet."""

    def __init__(self, path: Path) -> None:
        self._file = pa.ipc.open_file(pa.memory_map(str(path)))
        self._next = 0
        self._latest = np.iinfo(np.int64).min
        self._table = SCHEMA.empty_table()
        self.times: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self.times)

    @property
    def is_at_end(self) -> bool:
        return self._next == int(self._file.num_record_batches)

    def load(self) -> None:
        if self.is_at_end:
            return
        table = pa.Table.from_batches([self._file.get_batch(self._next)])
        self._next += 1
        timestamps = table["timestamp"].to_numpy()
        times = np.maximum(np.maximum.accumulate(timestamps), self._latest)
        self._latest = times[-1]
        if len(self):
            table, times = pa.concat_tables([self._table, table]), np.append(self.times, times)
        self._table, self.times = table, times

    def count_before(self, bound: np.int64 | None) -> int:
        return len(self) if bound is None else int(np.searchsorted(self.times, bound))

    def take(self, bound: np.int64 | None) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        count = self.count_before(bound)
        taken = self._table.slice(0, count), self.times[:count]
        self._table, self.times = self._table.slice(count), self.times[count:]
        return taken


def _in_order(parts: Sequence[tuple[int, pa.Table, npt.NDArray[np.int64]]]) -> pa.Table:
    if len(parts) == 1:
        return parts[0][1]
    table = pa.concat_tables([part for _, part, _ in parts])
    times = np.concatenate([times for _, _, times in parts])
    numbers = np.concatenate([np.full(len(times), number) for number, _, times in parts])
    order = np.lexsort((numbers, table["position"].to_numpy(), times))
    return table.take(pa.array(order))


def _sliced(table: pa.Table) -> Iterator[pa.Table]:
    most = max(1, min(BATCH_RECORDS, _BATCH_BYTES * len(table) // max(table.nbytes, 1)))
    for start in range(0, len(table), most):
        yield table.slice(start, most)


def batches(
    paths: Sequence[Path], topic: str, partition: int, keeps_offsets: bool
) -> Iterator[RecordBatch]:
    """Yield the records of a partition as a task takes them.

    Their offsets count from 0, as if they had been written to an empty topic, unless the one run
    that there is has those of a topic.
    """
    offset = 0
    for table in merged(paths):
        end = offset + len(table)
        whole = RecordBatch(
            topic,
            partition,
            binary_items(table["key"]),
            binary_items(table["value"]),
            table["timestamp"].to_numpy().tolist(),
            table["position"].to_numpy().tolist() if keeps_offsets else range(offset, end),
            header_items(table["headers"]),
        )
        for start in range(0, len(whole), TASK_BATCH_RECORDS):
            yield whole.part(start, min(start + TASK_BATCH_RECORDS, len(whole)))
        offset = end
