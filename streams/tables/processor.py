"""`type: table`: writes the rows of records into a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import structlog

from kafka_pipeline.common.kafka.clients import NonRetriableError
from kafka_pipeline.common.pipelines.specs import TableFormat, TableSinkSpec
from kafka_pipeline.streams.engine.exact_sink import ExactSink, SinkStart
from kafka_pipeline.streams.processor import RecordRejectedError
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.tables.columns import Columns, columns_of
from kafka_pipeline.streams.tables.delta import DeltaTable
from kafka_pipeline.streams.tables.iceberg import IcebergTable
from kafka_pipeline.streams.tables.parquet import ParquetTable
from kafka_pipeline.streams.tables.postgres import PostgresTable
from kafka_pipeline.streams.tables.rows import RowReader
from kafka_pipeline.streams.tables.table import Table

MOST_ROWS = 1_000_000
MOST_BYTES = 64 * 1024 * 1024
"""How much waits for a commit of the table; then it is committed before its interval is over."""

_TABLES: Mapping[TableFormat, Callable[[TableSinkSpec, Columns, str], Table]] = {
    "delta": DeltaTable,
    "iceberg": IcebergTable,
    "parquet": ParquetTable,
    "postgres": PostgresTable,
}

logger = structlog.get_logger()


class TableProcessor(ExactSink):
    """Keeps rows as Arrow columns until they are committed to the table with the offset after them.

    A record that does not fit the table is rejected.
    """

    def __init__(self, spec: TableSinkSpec, name: str) -> None:
        """`name` is that of the processor. Raises `ColumnsError`."""
        self._spec = spec
        self._name = name
        columns = columns_of(spec.schema, spec.record_columns)
        self._columns = columns.keyed(spec.key) if spec.key else columns
        self._rows: list[pa.RecordBatch] = []
        self._count = self._bytes = 0

    def resume(self, start: SinkStart) -> None:
        job, processor = self.context.application_id, self._name
        place = f"{start.topic}/{start.topic_id}/{start.partition}"
        self._application = f"{job}/{processor}/{place}"
        self._table = _opened(self._spec, self._columns, self._application)
        self._position = self._table.position()
        self._reader = RowReader(self._columns, start.partition)
        self._require_whole(start)
        begin = start.oldest if start.committed is None else start.committed
        if self._position is not None and begin < self._position:
            logger.info(
                "rows that the table has already are left out",
                task=self.context.task_id,
                offsets=f"{begin} to {self._position - 1}",
            )

    def process(self, batch: Batch) -> None:
        """Keep the rows, up to the first record that does not fit."""
        rows, reason = self._reader.read(batch)
        size, misfit = self._table.misfit(rows)
        reason = misfit or reason
        rows = rows[self._count_written(batch, size) : size]
        if len(rows):
            self._rows.append(rows)
            self._count += len(rows)
            self._bytes += rows.nbytes
            if self._count >= MOST_ROWS or self._bytes >= MOST_BYTES:
                self.context.commit()
        if reason:
            raise RecordRejectedError(reason, batch, size)

    def write(self, position: int) -> None:
        former = self._position
        if former is not None and position <= former:
            return  # all records were in the table before
        self._table.write(self._rows, position, former)
        self._position = position
        self._rows, self._count, self._bytes = [], 0, 0

    def _count_written(self, batch: Batch, size: int) -> int:
        """Return how many of the first records the table has already."""
        if self._position is None or not size or batch.offsets is None:
            return 0
        offsets = batch.offsets[:size]
        if offsets[0] >= self._position:
            return 0
        return sum(offset < self._position for offset in offsets)

    def _require_whole(self, start: SinkStart) -> None:
        """Raise `NonRetriableError` if the table would lack records."""
        where = f"{start.topic}[{start.partition}]"
        begin, position = start.committed, self._position
        if position is not None and position > start.end:
            raise NonRetriableError(
                f"the table has {where} up to offset {position}, but its records end at "
                f"{start.end}: the broker has lost records, and offsets are used again"
            )
        known = start.oldest if position is None else position
        if begin is None:
            begin = start.oldest
        if begin > known:
            only = "none" if position is None else f"only those before offset {position}"
            raise NonRetriableError(
                f"of the records of {where}, the table has {only}, and the task goes on at offset "
                f"{begin}: those in between would be missing. Was the table replaced? To fill it, "
                f"`pipeline reset` with --to-offset {known}; to leave them out, see "
                f'docs/how-to/write_tables.md, "Move the position"; the application id is '
                f'"{self._application}"'
            )


def _opened(spec: TableSinkSpec, columns: Columns, application: str) -> Table:
    """Open or create the table.

    Raises `NonRetriableError` if it has other columns or the package for its format is missing, and
    `TransactionFailedError` if it does not answer.
    """
    return _TABLES[spec.format](spec, columns, application)
