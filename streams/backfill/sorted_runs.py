"""Sorted runs: records of one topic partition in the order of one writer, as Arrow files.

If several tasks write to one partition, each makes its own runs. Reading the partition merges its
runs by time. Records of one run keep their order, like those of one producer in Kafka, and the
merged order is deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_pipeline.common.record_batch import KafkaHeaders, RecordBatch
from kafka_pipeline.streams.clocks import clocks_in
from kafka_pipeline.streams.sql.columns import HEADERS, binary_items, header_array, header_items

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", HEADERS),
        # Ascends within a run; decides between records with the same time.
        ("position", pa.int64()),
    ]
)
"""The columns of a run."""
BATCH_RECORDS = 100_000
TASK_BATCH_RECORDS = 20_000
"""How many records a task takes at once: a rejection costs time for all that come after it."""
_BATCH_BYTES = 16 * 1024 * 1024
_SMALLEST_BATCH = 20_000
_RUN_BATCH_BYTES = 4 * 1024 * 1024
"""A merge holds one batch of each run in memory."""
_MOST_AT_ONCE = 100
"""How many runs are merged at once."""


def run_table(
    keys: pa.Array,
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
    headers: Sequence[KafkaHeaders] | None,
    positions: Sequence[int] | npt.NDArray[np.int64],
) -> pa.Table:
    """Return records as a table of `SCHEMA`."""
    columns = [
        keys,
        pa.array(values, pa.binary()),
        pa.array(timestamps, pa.int64()),
        pa.nulls(len(keys), HEADERS) if headers is None else header_array(headers),
        pa.array(positions, pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


class RunWriter:
    """Writes one run; the first record creates `path` and its folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: pa.ipc.RecordBatchFileWriter | None = None
        self._waiting: list[pa.Table] = []
        self._size = 0
        self._bytes = 0
        self.records = 0
        """How many records were written so far."""

    def write(self, table: pa.Table) -> None:
        """Append records of `SCHEMA`."""
        self._waiting.append(table)
        self._size += len(table)
        self._bytes += table.nbytes
        self.records += len(table)
        # Tables are accumulated: if they are spread over many partitions, each one here is small.
        if self._size >= _SMALLEST_BATCH or self._bytes >= _RUN_BATCH_BYTES:
            self._flush()

    def close(self) -> None:
        """Write the rest."""
        if self._size:
            self._flush()
        if self._file is not None:
            self._file.close()

    def _flush(self) -> None:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = pa.ipc.new_file(str(self.path), SCHEMA)
        table = pa.concat_tables(self._waiting).combine_chunks()
        for piece in _pieces(table, _RUN_BATCH_BYTES):
            self._file.write_table(piece)
        self._waiting, self._size, self._bytes = [], 0, 0


def merged(paths: Sequence[Path], scratch: Path) -> Iterator[pa.Table]:
    """Yield the records of runs, merged by time, in tables of up to 100,000 records or 16 MB.

    The time of a record is the largest timestamp in its run up to that record. If times are equal,
    the smaller position comes first, then the run that is named first. More than 100 runs are first
    merged into fewer, in a folder of `scratch` that is removed at the end. No file is held open.
    """
    if len(paths) <= _MOST_AT_ONCE:
        yield from _merged(paths)
        return
    # If a task fails, the folder around this one may be gone first.
    with TemporaryDirectory(prefix="merged-", dir=scratch, ignore_cleanup_errors=True) as folder:
        yield from _merged(_fewer(paths, Path(folder)))


def _fewer(paths: Sequence[Path], folder: Path) -> Sequence[Path]:
    """Merge neighbouring runs, no more than necessary, until all can be merged at once.

    A merged run keeps the order of its parts, so its times and positions ascend like theirs.
    """
    count = 0
    while len(paths) > _MOST_AT_ONCE:
        excess = len(paths) - _MOST_AT_ONCE
        fewer: list[Path] = []
        start = 0
        while start < len(paths):
            group = paths[start : start + min(_MOST_AT_ONCE, excess + 1)]
            start += len(group)
            excess -= len(group) - 1
            if len(group) == 1:
                fewer += group
                continue
            writer = RunWriter(folder / f"{count}.arrow")
            count += 1
            for table in _merged(group):
                writer.write(table)
            writer.close()
            fewer.append(writer.path)
            for path in group:
                if path.parent == folder:
                    path.unlink()
        paths = fewer
    return paths


def _merged(paths: Sequence[Path]) -> Iterator[pa.Table]:
    cursors = [_Cursor(number, path) for number, path in enumerate(paths)]
    while True:
        for cursor in cursors:
            if not len(cursor):
                cursor.load()
        cursors = [cursor for cursor in cursors if len(cursor)]
        if not cursors:
            return
        # Records of a run that are still to be read come after the last one that was read.
        bound = min((cursor.last for cursor in cursors if not cursor.is_at_end), default=_END)
        parts = [(cursor.number, *cursor.take(bound)) for cursor in cursors]
        yield from _pieces(_in_order([part for part in parts if len(part[1])]), _BATCH_BYTES)


_At = tuple[int, int, int]
"""A record's place in the merged order: its time, its position, and the number of its run."""
_END: _At = (2**63 - 1, 2**63 - 1, 2**63 - 1)


class _Cursor:
    """The records that were read from a run and not taken yet."""

    def __init__(self, number: int, path: Path) -> None:
        self.number = number
        self._path = path
        self._next = 0
        self._latest = np.iinfo(np.int64).min
        self._table = SCHEMA.empty_table()
        self._times: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._positions: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self.is_at_end = False

    def __len__(self) -> int:
        return len(self._times)

    @property
    def last(self) -> _At:
        """The place of the last record that was read."""
        return int(self._times[-1]), int(self._positions[-1]), self.number

    def load(self) -> None:
        """Read the next batch, if there is one; to be called once all records are taken."""
        if self.is_at_end:
            return
        # Opened again each time: the batch stays mapped without a file descriptor.
        with pa.memory_map(str(self._path)) as file:
            reader = pa.ipc.open_file(file)
            self._table = pa.Table.from_batches([reader.get_batch(self._next)])
            self._next += 1
            self.is_at_end = self._next == int(reader.num_record_batches)
        times = np.maximum.accumulate(self._table["timestamp"].to_numpy())
        self._times = np.maximum(times, self._latest)
        self._latest = self._times[-1]
        self._positions = self._table["position"].to_numpy()

    def take(self, bound: _At) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """Take the records up to and including a place, and their times."""
        time, position, number = bound
        first, end = (int(np.searchsorted(self._times, time, side)) for side in ("left", "right"))
        side: Literal["left", "right"] = "right" if self.number <= number else "left"
        count = first + int(np.searchsorted(self._positions[first:end], position, side))
        taken = self._table.slice(0, count), self._times[:count]
        self._table, self._times = self._table.slice(count), self._times[count:]
        self._positions = self._positions[count:]
        return taken


def _in_order(parts: Sequence[tuple[int, pa.Table, npt.NDArray[np.int64]]]) -> pa.Table:
    if len(parts) == 1:
        return parts[0][1]
    table = pa.concat_tables([part for _, part, _ in parts])
    times = np.concatenate([times for _, _, times in parts])
    numbers = np.concatenate([np.full(len(times), number) for number, _, times in parts])
    order = np.lexsort((numbers, table["position"].to_numpy(), times))
    return table.take(pa.array(order))


def _pieces(table: pa.Table, most_bytes: int) -> Iterator[pa.Table]:
    """Yield a table in parts of up to 100,000 records and `most_bytes`, but at least one record."""
    size = len(table)
    count = max(-(-size // BATCH_RECORDS), -(-table.nbytes // most_bytes))
    if count <= 1 or size <= 1:
        yield table
        return
    most = -(-size // min(count, size))
    for start in range(0, size, most):
        # Split again if needed: records differ in size.
        yield from _pieces(table.slice(start, most), most_bytes)


def batches(
    paths: Sequence[Path], topic: str, partition: int, keeps_offsets: bool, scratch: Path
) -> Iterator[RecordBatch]:
    """Yield the records of a partition in the batches that a task takes.

    Offsets count from 0, as if the records had been written to an empty topic. If `keeps_offsets`
    is set, the positions of the only run are offsets, and kept. `scratch` is as in `merged`.
    """
    offset = 0
    for table in merged(paths, scratch):
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


def least_clocks(paths: Sequence[Path], scratch: Path) -> list[int]:
    """Return the least clock of the records of each batch that `batches` yields, in order.

    The paths are those of an internal topic, whose late records have their clocks as headers.
    """
    found: list[int] = []
    for table in merged(paths, scratch):
        clocks = table["timestamp"].to_numpy()
        headers = header_items(table["headers"])
        if headers is not None:
            clocks = np.asarray(clocks_in(headers, clocks.tolist()), np.int64)
        starts = range(0, len(clocks), TASK_BATCH_RECORDS)
        found += [int(clocks[start : start + TASK_BATCH_RECORDS].min()) for start in starts]
    return found
