"""A Delta table whose commits carry offsets, as application transactions (`txn`).

Delta's protocol has them for this ("Transaction Identifiers"). delta-rs refuses a commit if one
that the table object has not read has the same application id. After all other appends, it repeats
the commit (`ConflictChecker` in its crate `core`). deltalake is imported late: it is an extra.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from kafka_pipeline.common.kafka.clients import (
    FencedError,
    NonRetriableError,
    TransactionFailedError,
)

_EXTRA = "kafka-pipeline[tables]"


class DeltaTable:
    """One table, for one task.

    Its methods block, and raise `TransactionFailedError` if the storage does not answer.
    """

    def __init__(self, path: str, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """Open the table, or create it.

        Raises `NonRetriableError` without deltalake, or if the table has other columns.
        """
        try:
            import deltalake
        except ImportError as error:
            raise NonRetriableError(
                f"processors of type table need the package {_EXTRA} where their tasks run: {error}"
            ) from error
        self._deltalake: Any = deltalake
        self._path = path
        self._schema = schema
        self._partition_by = [*partition_by]
        with self._answering():
            self._table = self._opened()
        self._require_columns()

    def position(self, application: str) -> int | None:
        """Return the offset that the application has committed last; `None` if it has not yet."""
        with self._answering():
            self._table.update_incremental()
            found: int | None = self._table.transaction_version(application)
        return found

    def append(
        self,
        rows: Sequence[pa.RecordBatch],
        application: str,
        position: int,
        former: int | None,
    ) -> None:
        """Append rows and replace the application's position in one commit.

        Raises `FencedError`, and appends nothing, unless the position is still the `former` one.
        """
        self._require_position(application, former)
        transaction = self._deltalake.Transaction(application, position)
        properties = self._deltalake.CommitProperties(app_transactions=[transaction])
        try:
            with self._answering():
                self._deltalake.write_deltalake(
                    self._table,
                    pa.Table.from_batches(rows, self._schema),
                    mode="append",
                    commit_properties=properties,
                )
        except TransactionFailedError as error:
            if isinstance(error.__cause__, self._deltalake.exceptions.CommitFailedError):
                self._require_position(application, former)
            raise

    def _require_position(self, application: str, former: int | None) -> None:
        found = self.position(application)
        if found != former:
            raise FencedError(
                f"another owner of the task has committed to table {self._path}: its position is "
                f"{found}, not {former}"
            )

    def _opened(self) -> Any:
        make = self._deltalake.DeltaTable
        if not make.is_deltatable(self._path):
            try:
                make.create(self._path, self._schema, partition_by=self._partition_by)
            except self._deltalake.exceptions.DeltaError:
                if not make.is_deltatable(self._path):
                    raise  # otherwise, another task has created it
        return make(self._path)

    def _require_columns(self) -> None:
        # Through Delta's own types: Arrow has several for some of them.
        wanted = _described(self._deltalake.Schema.from_arrow(self._schema))
        found = _described(self._table.schema())
        if found != wanted:
            differing = [
                name
                for name in dict.fromkeys((*wanted, *found))
                if wanted.get(name) != found.get(name)
            ]
            raise NonRetriableError(
                f"table {self._path} has other columns than the schema of the processor: "
                f"{', '.join(differing)}. Write another table, or make them equal"
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
