"""A table in PostgreSQL: the transaction that writes rows moves the offset in another table too.

Each commit has a connection of its own, so that nothing is idle between two commits, and a server
that was started again in the meantime is not noticed. psycopg is imported late: it is an extra.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa

from kafka_pipeline.common.kafka.clients import NonRetriableError, TransactionFailedError
from kafka_pipeline.common.pipelines.specs import TableSinkSpec
from kafka_pipeline.streams.tables.changes import last_changes
from kafka_pipeline.streams.tables.columns import DELETED, Columns
from kafka_pipeline.streams.tables.postgres_catalog import (
    add_columns,
    create,
    found_table,
    lacking_rights,
    problems_of,
)
from kafka_pipeline.streams.tables.postgres_values import (
    as_csv,
    described_columns,
    first_misfit,
    quoted,
)
from kafka_pipeline.streams.tables.table import missing_extra, overtaken

OFFSETS = "kafka_pipeline_offsets"
"""The table of offsets, in the schema of the tables that are written."""

MOST_TRIES = 5
"""How often a commit is tried if the server ends it to resolve a deadlock."""

_CHANGES = "pg_temp.kafka_pipeline_changes"
_LOCK_TO_CREATE = 5_135_098
"""The advisory lock of a task that creates tables: the number has no meaning."""

_CONNECTION = {
    "application_name": "kafka-pipeline",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "client_encoding": "utf8",
}
"""Settings of a connection, unless the URL has others: a server that is lost is noticed in 40 s."""

_TRANSACTION = """
SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = '60s';
SET LOCAL TimeZone = 'UTC';
SELECT set_config('synchronous_commit', 'local', true)
  WHERE current_setting('synchronous_commit') = 'off';
"""
"""A lock that somebody holds is a wait that ends; a client that stands still holds none forever.

A commit is on the disk before Kafka's offset moves, also for a role that need not wait for that."""

_TRANSIENT = re.compile(r"08|25006|25P0[34]|40|53|55P03|57|58|XX")
"""How SQLSTATEs begin that may pass by themselves: PostgreSQL, Appendix A."""

_MAY_BE_SHOWN = re.compile(r"0A|25|3D|3F|40|42|53|55|57|58")
"""How SQLSTATEs begin whose messages name tables and settings, but quote no values of rows."""

_QUOTED = re.compile(r"\"[^\"]*\"|«[^»]*»|»[^«]*«|„[^“]*“")


class PostgresTable:
    """See `Table`. A server that does not answer is a `TransactionFailedError`."""

    def __init__(self, spec: TableSinkSpec, columns: Columns, application: str) -> None:
        """Check the table, or create it.

        Raises `NonRetriableError` without psycopg, or if the table does not fit.
        """
        try:
            import psycopg
        except ImportError as error:
            raise missing_extra(error) from error
        self._psycopg: Any = psycopg
        self._connection = self._settings(spec)
        self._columns = columns
        self._application = application
        self._table = spec.table
        self._evolves = spec.evolve == "add"
        with self._answering(), self._transaction() as cursor:
            self._prepare(cursor)

    def position(self) -> int | None:
        with self._answering(), self._transaction() as cursor:
            return self._position(cursor)

    def misfit(self, rows: pa.RecordBatch) -> tuple[int, str]:
        return first_misfit(rows, self._columns.key)

    def write(self, rows: Sequence[pa.RecordBatch], position: int, former: int | None) -> None:
        if self._columns.key and rows:
            rows = last_changes(rows, self._columns).to_batches(max_chunksize=50_000)
        errors = self._psycopg.errors
        with self._answering():
            for tries in range(1, MOST_TRIES + 1):
                try:
                    with self._transaction() as cursor:
                        self._send(cursor, rows)
                        # Rows that are sent lock the table, so its columns stay until the commit.
                        self._require_columns(cursor)
                        # Last, so that an owner that stands still does not lock the row for long.
                        self._move(cursor, position, former)
                    return
                except (errors.DeadlockDetected, errors.SerializationFailure):
                    if tries == MOST_TRIES:
                        raise

    # Statements

    def _send(self, cursor: Any, rows: Sequence[pa.RecordBatch]) -> None:
        if not rows:
            return
        if not self._columns.key:
            self._copy(cursor, self._place, self._columns.schema, rows)
            return
        of_changes = self._columns.of_changes
        types = ", ".join(described_columns(of_changes))
        cursor.execute(f"CREATE TEMPORARY TABLE {_CHANGES} ({types}) ON COMMIT DROP")
        self._copy(cursor, _CHANGES, of_changes, rows)
        key = [quoted(name) for name in self._columns.key]
        names = [quoted(name) for name in self._columns.schema.names]
        others = [name for name in names if name not in key]
        updates = ", ".join(f"{name} = EXCLUDED.{name}" for name in others)
        cursor.execute(
            f"INSERT INTO {self._place} ({', '.join(names)}) SELECT {', '.join(names)} "
            f"FROM {_CHANGES} WHERE NOT {quoted(DELETED)} ORDER BY {', '.join(key)} "
            f"ON CONFLICT ({', '.join(key)}) DO "
            + (f"UPDATE SET {updates}" if updates else "NOTHING")
        )
        same = " AND ".join(f"t.{name} = c.{name}" for name in key)
        cursor.execute(
            f"DELETE FROM {self._place} t USING {_CHANGES} c WHERE c.{quoted(DELETED)} AND {same}"
        )

    def _copy(
        self, cursor: Any, place: str, schema: pa.Schema, rows: Sequence[pa.RecordBatch]
    ) -> None:
        names = ", ".join(quoted(name) for name in schema.names)
        with cursor.copy(f"COPY {place} ({names}) FROM STDIN (FORMAT csv)") as copy:
            for each in rows:
                copy.write(as_csv(each))

    def _move(self, cursor: Any, position: int, former: int | None) -> None:
        place = (self._table, self._application)
        if former is None:
            cursor.execute(
                f"INSERT INTO {self._offsets} (table_name, application, next_offset) "
                "VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                (*place, position),
            )
        else:
            cursor.execute(
                f"UPDATE {self._offsets} SET next_offset = %s "
                "WHERE table_name = %s AND application = %s AND next_offset = %s",
                (position, *place, former),
            )
        if cursor.rowcount != 1:
            raise overtaken(self._table, self._position(cursor), former)

    def _position(self, cursor: Any) -> int | None:
        cursor.execute(
            f"SELECT next_offset FROM {self._offsets} WHERE table_name = %s AND application = %s",
            (self._table, self._application),
        )
        found: tuple[int] | None = cursor.fetchone()
        return None if found is None else found[0]

    # The start

    def _prepare(self, cursor: Any) -> None:
        """Find out where the table is, and create it and that of offsets, if they are missing."""
        cursor.execute("SELECT current_schema(), current_setting('server_encoding')")
        schema, encoding = cursor.fetchone()
        if encoding != "UTF8":
            raise NonRetriableError(
                f"the database of table {self._table} has the encoding {encoding}, which lacks "
                "characters: use one with UTF8"
            )
        *given, name = self._table.split(".")
        schema = given[0] if given else schema
        if schema is None:
            raise NonRetriableError(f"table {self._table}: name its schema, as in public.orders")
        self._names = (schema, name)
        self._place = f"{quoted(schema)}.{quoted(name)}"
        # Statements with parameters take "%" as the beginning of one.
        self._offsets = f"{quoted(schema)}.{quoted(OFFSETS)}".replace("%", "%%")
        if found_table(cursor, schema, OFFSETS) is None or not found_table(cursor, schema, name):
            cursor.execute(f"SELECT pg_advisory_xact_lock({_LOCK_TO_CREATE})")
            self._create(cursor, schema, name)
        if self._evolves:
            found = found_table(cursor, schema, name)
            assert found is not None, "it was created"
            add_columns(cursor, self._place, found, self._columns)
        self._require_columns(cursor)

    def _require_columns(self, cursor: Any) -> None:
        """Raise `NonRetriableError` if values would be changed or refused.

        A column whose type somebody has changed may round them.
        """
        found = found_table(cursor, *self._names)
        if found is None:
            raise NonRetriableError(f"table {self._table} does not exist any more")
        if problems := [
            *problems_of(cursor, found, self._columns),
            *lacking_rights(cursor, found, upserts=bool(self._columns.key)),
        ]:
            raise NonRetriableError(f"table {self._table}: {'; '.join(problems)}")

    def _create(self, cursor: Any, schema: str, name: str) -> None:
        if found_table(cursor, schema, OFFSETS) is None:
            cursor.execute(
                f"CREATE TABLE {quoted(schema)}.{quoted(OFFSETS)} (table_name text, "
                "application text, next_offset bigint NOT NULL, "
                "PRIMARY KEY (table_name, application))"
            )
        if found_table(cursor, schema, name) is not None:
            return
        position = self._position(cursor)
        if position is not None:
            raise NonRetriableError(
                f"table {self._table} is missing, but {OFFSETS} says that it has the records "
                f"before offset {position}. To fill it again, delete its rows in {OFFSETS}, and "
                "let `pipeline reset` set the group back"
            )
        create(cursor, self._place, self._columns)

    # Connections

    def _settings(self, spec: TableSinkSpec) -> dict[str, str]:
        try:
            given = self._psycopg.conninfo.conninfo_to_dict(spec.url)
        except self._psycopg.Error:
            raise NonRetriableError(
                f"table {spec.table}: PostgreSQL's client cannot read the url"
            ) from None
        login = {"user": spec.user, "password": spec.password}
        return {**_CONNECTION, **given, **{key: text for key, text in login.items() if text}}

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """Yield the cursor of a transaction, which is committed unless there is an error."""
        with (
            # Closed also if the commit fails. A pooler may not keep prepared statements.
            closing(
                self._psycopg.connect(**self._connection, prepare_threshold=None)
            ) as connection,
            connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(_TRANSACTION)
            yield cursor

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as error:
            state = error.sqlstate
            lost = state is None and isinstance(error, self._psycopg.OperationalError)
            passes = lost or (state is not None and _TRANSIENT.match(state) is not None)
            kind = TransactionFailedError if passes else NonRetriableError
            words, shown = str(error), self._shown(error)
            what = f"table {self._table}: "
            raise kind(what + " ".join(words.split()), shown=what + shown) from error

    def _shown(self, error: Any) -> str:
        """Return what is wrong in words without values of rows and of references."""
        state, diag = error.sqlstate, error.diag
        if state is None:
            return _QUOTED.sub('"…"', " ".join(str(error).split()))
        if _MAY_BE_SHOWN.match(state):
            return f"{diag.message_primary} ({state})"
        names = {"constraint": diag.constraint_name, "column": diag.column_name}
        where = "".join(f', {what} "{name}"' for what, name in names.items() if name)
        return f"{type(error).__name__} ({state}){where}"
