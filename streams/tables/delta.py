"""A Delta table whose commits carry offsets, as application transactions (`txn`).

Delta's protocol has them for this ("Transaction Identifiers"). delta-rs refuses a commit if one
that the table object has not read has the same application id. After all other appends, it repeats
an append (`ConflictChecker` in its crate `core`). deltalake is imported late: it is an extra.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from kafka_pipeline.common.kafka.clients import NonRetriableError, TransactionFailedError
from kafka_pipeline.common.pipelines.specs import TableSinkSpec
from kafka_pipeline.streams.tables.changes import last_changes
from kafka_pipeline.streams.tables.columns import DELETED, Columns
from kafka_pipeline.streams.tables.table import lacking_columns, missing_extra, overtaken

MOST_TRIES = 20
"""How often a commit is tried while others change the same table: a merge reads what they change,
so all but one of those that are under way at the same time must begin again."""


class DeltaTable:
    """See `Table`. Storage that does not answer is a `TransactionFailedError`."""

    def __init__(self, spec: TableSinkSpec, columns: Columns, application: str) -> None:
        """Open the table, or create it.

        Raises `NonRetriableError` without deltalake, or if the table has other columns.
        """
        try:
            import deltalake
        except ImportError as error:
            raise missing_extra(error) from error
        self._deltalake: Any = deltalake
        self._path = spec.path
        self._columns = columns
        self._schema = columns.schema
        self._partition_by = [*spec.partition_by]
        self._application = application
        with self._answering():
            self._table = self._opened()
        self._require_columns(evolves=spec.evolve == "add")

    def position(self) -> int | None:
        """See `Table`."""
        with self._answering():
            self._table.update_incremental()
            found: int | None = self._table.transaction_version(self._application)
        return found

    def misfit(self, rows: pa.RecordBatch) -> tuple[int, str]:
        """See `Table`: all rows can be written."""
        return len(rows), ""

    def write(self, rows: Sequence[pa.RecordBatch], position: int, former: int | None) -> None:
        """See `Table`."""
        transaction = self._deltalake.Transaction(self._application, position)
        properties = self._deltalake.CommitProperties(app_transactions=[transaction])
        for tries in range(1, MOST_TRIES + 1):
            self._require_position(former)
            try:
                with self._answering():
                    self._commit(rows, properties, position, former)
                return
            except TransactionFailedError as error:
                if not isinstance(error.__cause__, self._deltalake.exceptions.CommitFailedError):
                    raise
                if tries == MOST_TRIES:
                    self._require_position(former)
                    raise

    def _commit(
        self, rows: Sequence[pa.RecordBatch], properties: Any, position: int, former: int | None
    ) -> None:
        if self._columns.key and rows:
            self._merge(last_changes(rows, self._columns), properties)
            if self.position() == position:
                return
            # A merge that changes nothing has made no commit.
            self._require_position(former)
            rows = ()
        self._append(rows, properties)

    def _append(self, rows: Sequence[pa.RecordBatch], properties: Any) -> None:
        self._deltalake.write_deltalake(
            self._table,
            pa.Table.from_batches(rows, self._schema),
            mode="append",
            commit_properties=properties,
        )

    def _merge(self, changes: pa.Table, properties: Any) -> None:
        same = " AND ".join(f"t.`{name}` = c.`{name}`" for name in self._columns.key)
        is_deleted = f"c.`{DELETED}`"
        (
            self._table.merge(
                changes,
                same,
                source_alias="c",
                target_alias="t",
                # Then files without any of the keys are not read.
                streamed_exec=False,
                commit_properties=properties,
            )
            .when_matched_delete(is_deleted)
            .when_matched_update_all(except_cols=[DELETED])
            .when_not_matched_insert_all(f"NOT {is_deleted}", except_cols=[DELETED])
            .execute()
        )

    def _require_position(self, former: int | None) -> None:
        found = self.position()
        if found != former:
            raise overtaken(self._path, found, former)

    def _opened(self) -> Any:
        make = self._deltalake.DeltaTable
        if not make.is_deltatable(self._path):
            try:
                make.create(self._path, self._schema, partition_by=self._partition_by)
            except self._deltalake.exceptions.DeltaError:
                if not make.is_deltatable(self._path):
                    raise  # otherwise, another task has created it
        return make(self._path)

    def _require_columns(self, *, evolves: bool) -> None:
        # Through Delta's own types: Arrow has several for some of them.
        schema = self._deltalake.Schema.from_arrow(self._schema)
        found = _described(self._table.schema())
        if lacking := lacking_columns(_described(schema), found, self._path, evolves=evolves):
            with self._answering():
                # If another task is first, this one starts again.
                self._table.alter.add_columns(
                    [field for field in schema.fields if field.name in lacking]
                )
        partition_by = self._table.metadata().partition_columns
        if partition_by != self._partition_by:
            raise NonRetriableError(
                f"table {self._path} is partitioned by {partition_by}, not by {self._partition_by}"
            )

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (self._deltalake.exceptions.DeltaError, OSError, ValueError) as error:
            raise TransactionFailedError(f"table {self._path}: {error}") from error


def _described(schema: Any) -> dict[str, tuple[str, bool]]:
    return {field.name: (str(field.type), field.nullable) for field in schema.fields}
