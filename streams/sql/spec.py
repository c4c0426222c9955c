"""The query of a `sql` or `dataframe` processor, as a value that is sent to the driver."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, get_args

from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.pipelines.specs import (
    DEFAULT_MAX_COLLECTED,
    Format,
    JoinedBy,
    JoinSide,
    WindowsSpec,
)
from kafka_pipeline.common.typed_json import from_json
from kafka_pipeline.streams.errors import EndedProcessError, StreamsError
from kafka_pipeline.streams.sql.large_exponents import decimal_fields

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_pipeline.streams.sql.join_shape import PreparedJoin
    from kafka_pipeline.streams.sql.json_fields import JsonFields
    from kafka_pipeline.streams.sql.over_shape import PreparedOver
    from kafka_pipeline.streams.sql.split_results import SplitResults
    from kafka_pipeline.streams.sql.state_shape import PreparedAggregation

FORMATS: tuple[Format, ...] = get_args(Format)

VISIBLE_FROM, VISIBLE_UNTIL = "__visible_from", "__visible_until"
"""Hidden columns of tables with a history: when a row becomes visible to records, and when the next
row replaces it, exclusive; null for the newest row."""

RECORD = "__record"
"""A hidden column of records and results: the index of a record in its batch."""

COLUMNS = ("key", "value", "timestamp", "partition", "offset", "headers")
"""The columns of a record."""


class QueryError(StreamsError):
    """Spark cannot run a query; if one record is the cause, `on_error` decides about it."""


class EndedQueryError(QueryError, EndedProcessError):
    """A Python function of a query ended its process. A single record is to blame, if any is."""


class SparkLostError(EngineError):
    """Spark, or the connection to it, failed; no record is to blame. The task starts again."""


CALENDAR_WINDOW = "calendar_window"
"""The SQL function that returns the calendar period of a record."""

NO_NUMBERED_SESSIONS = (
    "session_window(…) in PARTITION BY would be a session for each record: Spark merges sessions "
    "only in GROUP BY. Use window(…)"
)


@dataclass(frozen=True, slots=True)
class GroupBy:
    """What records are grouped by: `has_key` if their key is one of the grouping `columns`.

    `is_numbered` says that it is the PARTITION BY of `row_number()`, `rank()` or `dense_rank()`.
    `has_distinct` says that a function may be one of distinct values.
    """

    window: WindowsSpec | None
    has_key: bool
    columns: Sequence[str] = field(default=(), compare=False)
    is_numbered: bool = False
    has_distinct: bool = False


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """A query over the view `input`, or a function `package.module:name` of its DataFrame.

    `schema` is Spark's DDL for the values of `format: json`; with `is_lenient`, values need not
    follow RFC 8259. `inputs` are the names of the inputs; a query may read a single input by its
    name. `schemas` maps inputs to their own schemas, in place of `schema`.

    `tables` are `TableSpec`s as JSON values. `topic_tables` maps the tables that follow a topic
    partition by partition to their schemas ("" for one without columns of its own), and
    `versioned_tables` names those with a history. `global_tables` does the same for tables that
    follow a whole topic.

    `config` holds the keyword arguments of the function. `max_collected` limits the values in a
    group's collection. With `keeps_distinct`, the caller keeps the values that functions with
    DISTINCT have seen. `least_best` is how many best rows of a group are kept at
    least, whatever the query says. `calendar` is the period and the zone of `CALENDAR_WINDOW`, if
    the query calls it. `processor` names the processor in errors about references. With
    `changelog`, the records are upserts by their key: a query with GROUP BY takes former ones out
    of their groups again. In a join, the records of the sides in `changing` are upserts.
    `joined_by` says by what a join of inputs without bounds of time brings rows together; `None`
    for other queries. `stages` has the queries whose results are inputs of
    this one, by their names in `inputs`; an `is_inner` one is such a query. The JSON of the results
    of an `is_exact` one has microseconds, and NaN and infinite numbers as text. With
    `gives_columns`, the next one runs in the same task, and `takes_columns`: see
    `columns_of_stage`.
    """

    query: str = ""
    function: str = ""
    format: Format = "string"
    schema: str = ""
    is_lenient: bool = False
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    topic_tables: Mapping[str, str] = field(default_factory=dict, hash=False)
    versioned_tables: tuple[str, ...] = ()
    global_tables: Mapping[str, str] = field(default_factory=dict, hash=False)
    max_collected: int = DEFAULT_MAX_COLLECTED
    keeps_distinct: bool = False
    least_best: int = 0
    inputs: tuple[str, ...] = ()
    schemas: Mapping[str, str] = field(default_factory=dict, hash=False)
    calendar: tuple[str, ...] = ()
    processor: str = ""
    changelog: bool = False
    changing: tuple[JoinSide, ...] = ()
    joined_by: JoinedBy | None = None
    stages: Mapping[str, QuerySpec] = field(default_factory=dict, hash=False)
    is_inner: bool = False
    is_exact: bool = False
    gives_columns: bool = False
    takes_columns: bool = False

    @property
    def decimals(self) -> frozenset[str]:
        """The names of the fields of inputs that have DECIMALs."""
        return decimal_fields((self.schema, *self.schemas.values()))

    @property
    def all_tables(self) -> dict[str, Mapping[str, Any]]:
        """The tables that Spark reads for this query, and to find the types of its stages."""
        inner = (stage.all_tables for stage in self.stages.values())
        return {name: table for tables in (*inner, self.tables) for name, table in tables.items()}

    def to_json(self) -> str:
        """Return JSON that is the same for the same content."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> QuerySpec:
        """Read what `to_json` wrote."""
        found: QuerySpec = from_json(cls, json.loads(text), "the query")
        return found


@dataclass(frozen=True, slots=True)
class StateChange:
    """How a query goes on with a state that was kept for another one.

    `different` says why it cannot; "" if it can. `converted` are sentences about what is kept from
    now on, and `remarks` about what goes on unchanged under another name. `sources` has for each
    aggregate function the index of the one in the state, or `None` if it starts now.
    """

    different: str = ""
    converted: Sequence[str] = ()
    remarks: Sequence[str] = ()
    sources: Sequence[int | None] = ()


class Prepared(Protocol):
    """A query that is ready to run. One thread at a time."""

    def replace(self, name: str, rows: pa.Table) -> None:
        """Use these rows of a global table from the next call on; raises as the calls do.

        They have the columns key, value and timestamp. The query is planned again, which takes
        tenths of a second. At first, such a table is empty.
        """

    def close(self) -> None:
        """Release what the query holds."""


class SparkQuery(Prepared, Protocol):
    """A query that turns each record into results of its own."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The `COLUMNS` that the query needs."""

    @property
    def fields(self) -> JsonFields | None:
        """The fields of `value` that a table may have in place of it; `None` if it must not."""

    def run(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        """Return the output of these records, in their order.

        `lookups` has the rows of tables that follow topics, by table name: those with the keys of
        the records, with the columns key, value and timestamp. A table with a history may have
        several rows of a key, and has the columns `VISIBLE_FROM` and `VISIBLE_UNTIL` too. A missing
        table has no rows.

        The output has the columns `value` and `timestamp` (milliseconds), and `key` and `headers`
        if the query gives them. Raises `QueryError` if a record may be to blame, otherwise
        `SparkLostError`.
        """

    @property
    def split(self) -> SplitResults | None:
        """How results are made without sending all columns to Spark; `None` if it gains nothing.

        Only for records of which a table has the `fields`, and not `value`.
        """

    def parts(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        """Return what the `split` needs for a table of `for_spark`. Raises as `run` does."""


class Queries(Protocol):
    """Runs queries, on a Spark session here or on the TaskManager's driver."""

    def open(self, spec: QuerySpec) -> SparkQuery:
        """Prepare a query, which takes seconds the first time.

        Raises `QueryError` with the reason if it cannot be run batch by batch, or `SparkLostError`.
        """

    def open_aggregation(self, spec: QuerySpec) -> PreparedAggregation:
        """Prepare a query with GROUP BY, whose state the caller keeps. Raises as `open` does."""

    def open_join(self, spec: QuerySpec) -> PreparedJoin:
        """Prepare a query that joins two inputs, whose rows the caller keeps. Raises as `open`."""

    def open_over(self, spec: QuerySpec) -> PreparedOver:
        """Prepare a query with `OVER (…)`, whose rows the caller keeps. Raises as `open`."""


def quoted(name: str) -> str:
    """Return a name as it is written in a query, whatever characters it has."""
    return f"`{name.replace('`', '``')}`"
