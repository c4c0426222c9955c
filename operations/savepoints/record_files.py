"""Files of records: streams of Arrow's IPC format, compressed, one for each partition."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.record_batch import KafkaHeaders, RecordBatch
from kafka_pipeline.operations.savepoints.manifest import SavedPartition, file_of

_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.large_binary()),
        ("timestamp", pa.int64()),
        ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))),
    ]
)
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Records:
    """Some consecutive records of a partition, as columns of the same length."""

    keys: pa.BinaryArray
    values: pa.LargeBinaryArray
    timestamps: pa.Int64Array
    headers: Sequence[KafkaHeaders]

    def rows(self) -> Iterator[tuple[Any, Any, int, KafkaHeaders]]:
        """Return each record as key, value, timestamp and headers."""
        columns = (self.keys, self.values, self.timestamps)
        return zip(*(column.to_pylist() for column in columns), self.headers, strict=True)


class RecordFile:
    """Writes the records of a partition to a file of a savepoint."""

    def __init__(self, folder: Path, topic: str, partition: int) -> None:
        self._path = file_of(folder, topic, partition)
        self._partition = partition
        self._file = self._path.open("xb")
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        self._writer = pa.ipc.new_stream(self._file, _SCHEMA, options=options)
        self.records = 0

    def write(self, batch: RecordBatch) -> None:
        """Append records. Raises OSError if the disk does not take them."""
        headers = batch.headers or [None] * len(batch)
        columns = [
            pa.array(batch.keys, pa.binary()),
            pa.array(batch.values, pa.large_binary()),
            pa.array(batch.timestamps, pa.int64()),
            pa.array(map(_plain, headers), _SCHEMA.field("headers").type),
        ]
        self._writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
        self.records += len(batch)

    def so_far(self) -> SavedPartition:
        """Let `read_records` read what was written; the checksum is still to come."""
        self._file.flush()
        return SavedPartition(
            partition=self._partition, records=self.records, size_bytes=0, sha256=""
        )

    def finish(self) -> SavedPartition:
        """Complete the file, on the disk too, and return what is in it."""
        self._writer.close()
        self._file.flush()
        os.fsync(self._file)
        self._file.close()
        size_bytes, sha256 = _measured(self._path)
        return SavedPartition(
            partition=self._partition, records=self.records, size_bytes=size_bytes, sha256=sha256
        )

    def close(self) -> None:
        """Close the file, whatever is in it, if `finish` has not."""
        for each in (self._writer, self._file):
            if not self._file.closed:
                with suppress(OSError):  # It is not complete anyway.
                    each.close()


def check_file(folder: Path, topic: str, saved: SavedPartition) -> None:
    """Raise `ConfigError` if a file of records is not the one that was written."""
    path = file_of(folder, topic, saved.partition)
    try:
        found = _measured(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if found != (saved.size_bytes, saved.sha256):
        raise ConfigError(f"{path} is damaged: its size or checksum is not that of the savepoint")


def read_records(folder: Path, topic: str, partition: int) -> Iterator[Records]:
    """Yield the records of a file, in the order in which they were written."""
    with pa.OSFile(str(file_of(folder, topic, partition))) as file:
        for batch in pa.ipc.open_stream(file):
            keys, values, timestamps, headers = batch.columns
            yield Records(keys, values, timestamps, [*map(_headers, headers.to_pylist())])


def _plain(headers: KafkaHeaders) -> list[dict[str, Any]] | None:
    if headers is None:
        return None
    return [{"name": name, "value": value} for name, value in headers]


def _headers(plain: list[dict[str, Any]] | None) -> KafkaHeaders:
    if plain is None:
        return None
    return [(each["name"], each["value"]) for each in plain]


def _measured(path: Path) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            size += len(block)
    return size, digest.hexdigest()
