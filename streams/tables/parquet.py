"""A folder of Parquet files, each with the rows of one commit and the offset after them.

The name of a file says at which offset of which task it begins, and its footer at which it ends. So
the files of a task are a chain, and the last one has the task's position. A file is written under a
hidden name, and gets its own by a hard link, which fails if another owner of the task has a file
that begins there: readers of `*.parquet` see whole files, and no row twice.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_pipeline.common.kafka.clients import (
    FencedError,
    NonRetriableError,
    TransactionFailedError,
)
from kafka_pipeline.common.pipelines.specs import TableSinkSpec
from kafka_pipeline.streams.tables.columns import Columns
from kafka_pipeline.streams.tables.table import lacking_columns, overtaken

APPLICATION = b"kafka-pipeline.application"
POSITION = b"kafka-pipeline.next-offset"
"""What the footer of a file names the owner and the offset after the rows."""

_DIGITS = 20
_HASH_BYTES = 8
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS)


class ParquetTable:
    """See `Table`. A file system that does not answer is a `TransactionFailedError`."""

    def __init__(self, spec: TableSinkSpec, columns: Columns, application: str) -> None:
        """Create the folder if there is none, and delete what an owner left unfinished.

        Raises `NonRetriableError` if the newest file has other columns.
        """
        self._where, self._folder = spec.path, Path(spec.path)
        self._schema = columns.schema
        self._application = application
        self._prefix = prefix_of(application)
        with self._answering():
            self._folder.mkdir(parents=True, exist_ok=True)
            for file in self._folder.glob(f".{self._prefix}*"):
                # An owner that still writes it finds out that it is gone.
                file.unlink(missing_ok=True)
            self._require_columns(evolves=spec.evolve == "add")

    def position(self) -> int | None:
        with self._answering():
            names = [name for name in os.listdir(self._folder) if name.startswith(self._prefix)]
            if not names:
                return None
            # An owner that was killed may not have done so.
            _sync(self._folder)
            return int(pq.read_metadata(self._folder / max(names)).metadata[POSITION])

    def misfit(self, rows: pa.RecordBatch) -> tuple[int, str]:
        """See `Table`: all rows can be written."""
        return len(rows), ""

    def write(self, rows: Sequence[pa.RecordBatch], position: int, former: int | None) -> None:
        """See `Table`. A commit without rows is a file without rows, which keeps the position."""
        if position == 0:
            return  # without a file, a task begins there too
        found, begin = self.position(), former or 0
        if (found or 0) != begin:
            raise overtaken(self._where, found, former)
        name = f"{self._prefix}{begin:0{_DIGITS}}.parquet"
        hidden = self._folder / f".{name}.{uuid.uuid4().hex}"
        with self._answering():
            try:
                self._write_file(hidden, rows, position)
                os.link(hidden, self._folder / name)
                _sync(self._folder)
            except FileExistsError:
                raise overtaken(self._where, self.position(), former) from None
            except FileNotFoundError:
                raise FencedError(
                    f"another owner of the task has started, and deleted {hidden}"
                ) from None
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise NonRetriableError(
                        f"table {self._where}: its file system has no hard links, by which files "
                        "of format: parquet appear at once: write a Delta or Iceberg table"
                    ) from error
                raise
            finally:
                with suppress(OSError):
                    hidden.unlink(missing_ok=True)

    def _write_file(self, path: Path, rows: Sequence[pa.RecordBatch], position: int) -> None:
        about = {APPLICATION: self._application.encode(), POSITION: str(position).encode()}
        pq.write_table(
            pa.Table.from_batches(rows, self._schema).replace_schema_metadata(about), path
        )
        _sync(path)

    def _require_columns(self, *, evolves: bool) -> None:
        """Compare the schema with that of the file that was written last, by any task."""
        files = [*self._folder.glob("*.parquet")]
        if not files:
            return
        newest = max(files, key=lambda file: file.stat().st_mtime_ns)
        # Files that lack a column are read as if it were null in them.
        lacking_columns(
            _by_name(self._schema), _by_name(pq.read_schema(newest)), self._where, evolves=evolves
        )

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, KeyError) as error:
            raise TransactionFailedError(f"table {self._where}: {error}") from error


def prefix_of(application: str) -> str:
    """Return how the names of a task's files begin; in their order, these are a chain."""
    of_task = blake2b(application.encode(), digest_size=_HASH_BYTES).hexdigest()
    return f"part-{of_task}-"


def _by_name(schema: pa.Schema) -> dict[str, tuple[pa.DataType, bool]]:
    return {field.name: (field.type, field.nullable) for field in schema}


def _sync(path: Path) -> None:
    """Wait until the disk has the content of a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
