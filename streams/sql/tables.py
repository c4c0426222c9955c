"""Lookup tables as Spark sees them, in the driver's memory.

Those that Spark reads are refreshed at an interval. Global ones follow topics as a whole.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import structlog
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_pipeline.streams.spark.zone import new_session
from kafka_pipeline.streams.sql.access import quotes_no_value
from kafka_pipeline.streams.sql.columns import lookup_schema
from kafka_pipeline.streams.sql.messages import is_mistake, one_line, without_values
from kafka_pipeline.streams.sql.output import require_plain_types
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec, SparkLostError

_ROWS_IN_MEMORY = ("spark.sql.execution.arrow.localRelationThreshold", str(2**40))
"""Settings of sessions whose DataFrames hold their rows, so that a join needs no Spark job."""

STRICT = {"allowNonNumericNumbers": "false", "allowSingleQuotes": "false"}
"""Options of Spark's reader of JSON: else the text "NaN" is a number."""

Opened = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Returns tables as they are to be read, with values in place of references; see `Readable`."""

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of some tables, by table name; `version` grows when a table was read again."""

    version: int
    frames: Mapping[str, DataFrame]


class Tables:
    """Some tables, as DataFrames whose rows are in memory, so that a join needs no Spark job."""

    def __init__(
        self, session: SparkSession, specs: Mapping[str, Mapping[str, Any]], opened: Opened
    ) -> None:
        """Read all of the tables, each as `opened` says at that moment.

        If a table cannot be read, raises an error that names it: `QueryError`, or `SparkLostError`
        if the cause may be temporary, such as a database that does not answer.
        """
        self._session = new_session(session)
        self._session.conf.set(*_ROWS_IN_MEMORY)
        self._specs = specs
        self._opened = opened
        self.rows = Rows(0, {name: self._read(name) for name in specs})
        self._changing = threading.Lock()
        self._closed = threading.Event()
        for name, spec in specs.items():
            if spec.get("refresh_s"):
                threading.Thread(
                    target=self._keep_fresh, args=(name,), name=f"table-{name}", daemon=True
                ).start()

    def close(self) -> None:
        """Stop refreshing tables."""
        self._closed.set()

    def _read(self, name: str) -> DataFrame:
        written = self._specs[name]
        spec = self._opened({name: written})[name]
        reader = self._session.read.format(spec["format"]).options(**spec.get("options", {}))
        try:
            if spec.get("schema"):
                reader = reader.schema(spec["schema"])
            found = reader.load(spec["path"]) if spec.get("path") else reader.load()
            require_plain_types(found)
            return self._session.createDataFrame(found.toArrow(), found.schema)
        except Exception as error:
            # With other references than a password, whoever writes commands could choose which
            # value a database quotes, and how much of it.
            failed = f'table "{name}" cannot be read: '
            quotes_none = quotes_no_value(written)
            reason = failed + (one_line(error) if quotes_none else _kind(error))
            shown = failed + (without_values(error) if quotes_none else _kind(error))
            if isinstance(error, QueryError) or is_mistake(error):
                raise QueryError(reason, shown=shown) from error
            raise SparkLostError(reason, shown=shown) from error

    def refresh(self, name: str) -> None:
        """Read a table again. If that fails, keeps its rows and raises as the constructor does."""
        frame = self._read(name)
        with self._changing:
            self.rows = Rows(self.rows.version + 1, {**self.rows.frames, name: frame})

    def _keep_fresh(self, name: str) -> None:
        while not self._closed.wait(self._specs[name]["refresh_s"]):
            try:
                self.refresh(name)
            except (QueryError, SparkLostError) as error:
                logger.warning("table keeps its old rows", table=name, reason=error.shown)


def _kind(error: Exception) -> str:
    """Return what kind of error it is, without its message."""
    java = getattr(error, "java_exception", None)
    name = type(error).__name__ if java is None else str(java.getClass().getName())
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    return (
        f"{condition or name}. The message is left out, since it may quote the value of a "
        "reference; it is shown if password is the only one"
    )


@dataclass(slots=True, eq=False)
class _Shared:
    """Tables that some queries share; the first query that gets `reading` reads them."""

    users: int = 0
    tables: Tables | None = None
    reading: threading.Lock = field(default_factory=threading.Lock)


class SharedTables:
    """The tables of all queries of a process; tables that are the same are read once."""

    def __init__(self, session: SparkSession, opened: Opened) -> None:
        self._session = session
        self._opened = opened
        self._lock = threading.Lock()
        self._used: dict[str, _Shared] = {}

    def take(self, specs: Mapping[str, Mapping[str, Any]]) -> Tables:
        """Return tables and count their users; waits for no other tables. Raises as `Tables`."""
        name = json.dumps(specs, sort_keys=True)
        with self._lock:
            shared = self._used.setdefault(name, _Shared())
            shared.users += 1
        try:
            with shared.reading:
                if shared.tables is None:
                    shared.tables = Tables(self._session, specs, self._opened)
                return shared.tables
        except BaseException:
            self._leave(name, shared)
            raise

    def give_back(self, tables: Tables) -> None:
        """Release tables; the last user closes them."""
        for name, shared in self._used.copy().items():
            if shared.tables is tables:
                self._leave(name, shared)

    def _leave(self, name: str, shared: _Shared) -> None:
        with self._lock:
            shared.users -= 1
            if shared.users:
                return
            del self._used[name]
        if shared.tables is not None:
            shared.tables.close()


class GlobalRows:
    """The global tables of one query, as DataFrames whose rows are in memory."""

    def __init__(self, session: SparkSession, spec: QuerySpec) -> None:
        """Begin with empty tables."""
        self._session = new_session(session)
        self._session.conf.set(*_ROWS_IN_MEMORY)
        self._schemas = spec.global_tables
        self._version = 0
        empty = lookup_schema(spec.format).empty_table()
        self._frames = {name: self._frame(name, empty) for name in self._schemas}

    def replace(self, name: str, rows: pa.Table) -> None:
        """Take other rows for a table."""
        self._frames[name] = self._frame(name, rows)
        self._version += 1

    def with_others(self, rows: Rows) -> Rows:
        """Return these tables and others; the version grows with those of both."""
        return Rows(rows.version + self._version, {**rows.frames, **self._frames})

    def _frame(self, name: str, rows: pa.Table) -> DataFrame:
        raw = self._session.createDataFrame(rows)
        schema = self._schemas[name]
        frame = parsed_table(raw, schema) if schema else raw
        require_plain_types(frame)
        return frame


def parsed_table(raw: DataFrame, schema: str) -> DataFrame:
    """Return a table with the fields of its JSON values as columns, between key and timestamp.

    A field that does not fit is null, as no record of a batch is to blame for it.
    """
    value = F.from_json(F.col("value").cast("string"), schema, STRICT).alias("value")
    return raw.select("key", value, "timestamp").select("key", "value.*", "timestamp")
