"""A Delta table whose commits carry offsets, as application transactions (`txn`).

Delta's protocol has them for this ("Transaction Identifiers"). delta-rs refuses a commit if one
that the table object has not read has the same application id. After all other appends, it repeats
an append (`ConflictChecker` in its crate `core`). deltalake is imported late: it is an extra.

In an object store, that needs conditional writes: a commit is a file with the number of a version,
which the store must refuse if it is there (`If-None-Match: *` in S3). A store that ignores this
keeps the last one of two commits, and nobody notices, so a new table is tried first.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from kafka_pipeline.common.delta_storage import storage_options
from kafka_pipeline.common.kafka.clients import NonRetriableError, TransactionFailedError
from kafka_pipeline.common.pipelines.specs import TableSinkSpec
from kafka_pipeline.streams.tables.changes import last_changes
from kafka_pipeline.streams.tables.columns import DELETED, Columns
from kafka_pipeline.streams.tables.partitions import first_misfit
from kafka_pipeline.streams.tables.table import lacking_columns, missing_extra, overtaken

MOST_TRIES = 20
"""How often a commit is tried while others change the same table: a merge reads what they change,
so all but one of those that are under way at the same time must begin again."""

MOST_TRY_S = 20.0
"""After this time, no other try begins. A store that fails during a commit looks like others who
change the table, and each try waits for it."""

PROBE = "kafka-pipeline.probe."
"""How the application ids begin of the commits that try a new table; a random part follows."""
_PROBES, _NEW = 8, 64
"""How many commits those are, and how many versions a table without rows may have to be tried."""

_APPEND_ONLY = "delta.appendOnly"
_RETENTION = "delta.setTransactionRetentionDuration"
_REFUSED = "failed validation check"
"""What delta-rs says of rows for which a CHECK constraint of the table does not hold."""
_UNSUPPORTED = re.compile(r"Unsupported table features required: \[(.*)\]")
"""What delta-rs says of a table that needs more of a writer, such as `RowTracking`."""

_ARROWS = re.compile(r"\s*\x1b\[31m↳\x1b\[0m\s*")
"""What delta-rs puts between an error and its causes."""
_XML = re.compile(r"<\?xml.*<Code>(.*?)</Code>.*<Message>(.*?)</Message>.*", re.DOTALL)
_HINTS = {
    "URL scheme is not allowed": "set AWS_ALLOW_HTTP=true for a store without TLS",
    "/latest/api/token": "there is no login: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
    "give this host a role",
}
"""What to do about errors that do not say it."""


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
            if "://" in self._path and self._table.version() < _NEW and not self._table.file_uris():
                self._require_conditional_writes()
        self._require_columns(evolves=spec.evolve == "add")

    def position(self) -> int | None:
        with self._answering():
            self._table.update_incremental()
            found: int | None = self._table.transaction_version(self._application)
        return found

    def misfit(self, rows: pa.RecordBatch) -> tuple[int, str]:
        return first_misfit(rows, self._partition_by, null_is_empty=True)

    def write(self, rows: Sequence[pa.RecordBatch], position: int, former: int | None) -> None:
        transaction = self._deltalake.Transaction(self._application, position)
        properties = self._deltalake.CommitProperties(app_transactions=[transaction])
        until_s = time.monotonic() + MOST_TRY_S
        for tries in range(1, MOST_TRIES + 1):
            self._require_position(former)
            try:
                with self._answering():
                    self._commit(rows, properties, position, former)
                return
            except TransactionFailedError as error:
                if not isinstance(error.__cause__, self._deltalake.exceptions.CommitFailedError):
                    raise
                if self.position() == position:
                    return  # a store that has written it, and failed, finds it there the next time
                if tries == MOST_TRIES or time.monotonic() > until_s:
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
        make, errors = self._deltalake.DeltaTable, self._deltalake.exceptions
        options = {"storage_options": storage_options(self._path)}
        try:
            # `is_deltatable` would stop all threads of the process until the storage answers.
            return make(self._path, **options)
        except errors.TableNotFoundError:
            pass
        try:
            make.create(self._path, self._schema, partition_by=self._partition_by, **options)
        except errors.DeltaError as failed:
            try:
                return make(self._path, **options)  # another task has created it
            except errors.TableNotFoundError:
                raise failed from None
        return make(self._path, **options)

    def _require_conditional_writes(self) -> None:
        """Raise `NonRetriableError` if the store has lost one of several commits at the same time.

        They are made of the same state of a table that is new, and have no rows. delta-rs looks
        which versions there are before it writes one, so only commits at the same time show it.
        """
        names = [f"{PROBE}{uuid.uuid4().hex}" for _ in range(_PROBES)]
        states = [self._opened() for _ in names]
        with ThreadPoolExecutor(_PROBES) as pool:
            list(pool.map(self._probe, states, names))
        table = self._opened()
        if not all(table.transaction_version(name) == 0 for name in names):
            raise NonRetriableError(
                f"table {self._path}: of commits at the same time, the store has lost some. It "
                "needs conditional writes (If-None-Match): use another store, or a version of it "
                "that has them, and another path"
            )

    def _probe(self, table: Any, application: str) -> None:
        transaction = self._deltalake.Transaction(application, 0)
        properties = self._deltalake.CommitProperties(app_transactions=[transaction])
        table.create_write_transaction([], "append", table.schema(), commit_properties=properties)

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
        metadata = self._table.metadata()
        if _RETENTION in metadata.configuration:
            raise NonRetriableError(
                f"table {self._path} has {_RETENTION}, by which it forgets the offsets of tasks: "
                "unset it"
            )
        if self._columns.key and metadata.configuration.get(_APPEND_ONLY) == "true":
            raise NonRetriableError(
                f"table {self._path} has {_APPEND_ONLY}, so no rows are replaced: use mode: append"
            )
        partition_by = metadata.partition_columns
        if partition_by != self._partition_by:
            raise NonRetriableError(
                f"table {self._path} is partitioned by {partition_by}, not by {self._partition_by}"
            )

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (self._deltalake.exceptions.DeltaError, OSError, ValueError) as error:
            if _REFUSED in str(error):
                # What follows has the values of rows.
                raise NonRetriableError(
                    f"table {self._path} refuses rows: a constraint or invariant does not hold"
                ) from None
            if found := _UNSUPPORTED.search(str(error)):
                raise NonRetriableError(
                    f"table {self._path} has features with which deltalake cannot write it: "
                    f"{found[1]}. Write another table, or drop them"
                ) from error
            raise TransactionFailedError(f"table {self._path}: {_in_words(error)}") from error


def _described(schema: Any) -> dict[str, tuple[str, bool]]:
    return {field.name: (str(field.type), field.nullable) for field in schema.fields}


def _in_words(error: Exception) -> str:
    """Return the message of an error in one line, with the words of S3 but not its XML."""
    words = _XML.sub(r"\1: \2", _ARROWS.sub(": ", str(error)).strip())
    return "; ".join([words, *(hint for part, hint in _HINTS.items() if part in words)])
