"""Specs describe processors as values: one class for each `type` in pipeline.yaml.

The modules in `streams/pipeline/kinds/` read, check and run them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, cast, get_args

from msgspec import Meta

from kafka_pipeline.common.pipelines.history import HistorySpec, RecordPart
from kafka_pipeline.common.pipelines.lookup_tables import TableSpec, TopicTableSpec
from kafka_pipeline.common.pipelines.serde_specs import AnySerde
from kafka_pipeline.common.pipelines.store_specs import BYTES, StoreSpec
from kafka_pipeline.common.typed_json import Count, Name, Positive, Strict, from_json

COUNT_STORE = "counts"
"""The name of the store of the built-in type `count`."""

DEFAULT_MAX_PROCESS_TIME_MS = 300_000
"""The limit for one call of user code, unless its processor sets another one."""

DEFAULT_BUFFERED_RECORDS = 1000
DEFAULT_TABLE_COMMIT_INTERVAL_MS = 10_000
DEFAULT_SUM = 1
GROUPS_TOPIC = "groups-repartition"
"""The internal topic that brings the rows of each group of a query together."""

JOIN_TOPIC = "join-repartition"
"""The internal topic that brings the rows of both sides of a join together, by its columns."""

OVER_TOPIC = "over-repartition"
"""The internal topic that brings the rows of each group of a query with `OVER (…)` together."""

SHAPE_STORE = "shape"
"""The store that describes the layout of the other stores of a query's groups."""

Format = Literal["string", "binary", "json"]
TableFormat = Literal["delta", "iceberg", "parquet", "postgres"]
TableMode = Literal["append", "upsert"]
SourceFormat = Literal["debezium"]
TableEvolution = Literal["refuse", "add"]
OffsetReset = Literal["earliest", "latest"]
TimeUnit = Literal["ms", "s", "us", "iso8601"]
OnInvalid = Literal["fail", "skip", "partition_time"]
EmitTime = Literal["on_update", "on_close"]
GroupStage = Literal["whole", "rows", "groups"]
JoinSide = Literal["left", "right"]
JoinStage = Literal["whole", "rows", "pairs"]
JoinedBy = Literal["key", "key and columns", "columns"]
OverStage = Literal["whole", "rows", "frames"]
DEFAULT_MAX_COLLECTED = 10_000
"""The default limit of values in a collection of a group."""
WALL_CLOCK: Literal["wall_clock"] = "wall_clock"
"""The time of a record is the time at which it is read."""


class FieldTime(Strict, frozen=True, kw_only=True):
    """The time of a record is in a field of its value, with a unit or, as text, with a `format`."""

    field: str
    unit: TimeUnit = "ms"
    on_invalid: OnInvalid = "fail"
    format: str = ""
    zone: str = "UTC"


class SourceSpec(Strict, frozen=True, kw_only=True):
    """How to read a source; a serde of `None` means the processor's.

    `feedback` says that the records of the job's own processors come back by it, and `changelog`
    that each record replaces the former one with its key, and that a null value deletes it. With a
    `format`, records are changes of the rows of a database's table. `history` has the records that
    are not in the topic any more.
    """

    key: AnySerde | None = None
    value: AnySerde | None = None
    timestamp: Literal["wall_clock"] | FieldTime | None = None
    auto_offset_reset: OffsetReset = "earliest"
    feedback: bool = False
    changelog: bool = False
    format: SourceFormat | None = None
    history: HistorySpec | None = None

    @property
    def is_table(self) -> bool:
        """Whether its records are those of a table, each the newest one of its key."""
        return self.changelog or self.format is not None


class Serdes(Strict, frozen=True, kw_only=True):
    """The serdes of input and output records."""

    key: AnySerde = BYTES
    value: AnySerde = BYTES
    out_key: AnySerde = BYTES
    out_value: AnySerde = BYTES


class RecordSerdes(Strict, frozen=True, kw_only=True):
    """The names of the serdes of records in a topic; several ones are joined by ` or `."""

    key: str
    value: str


class AsyncSpec(Strict, frozen=True, kw_only=True):
    """The settings of an `AsyncProcessor`; `None` leaves the choice to the class."""

    max_in_flight: Positive | None = None
    timeout_ms: Positive | None = None
    ordered: Literal[True, "key"] | None = None


class PatternSpec(Strict, frozen=True, kw_only=True):
    """A regular expression for topics, with its flags, and where a task begins in them."""

    pattern: str
    flags: int = 0
    auto_offset_reset: OffsetReset = "earliest"


class ProcessorSpec(Strict, frozen=True, kw_only=True):
    """The fields of all processors, times in ms; `GroupSettings` explains `max_task_idle_ms`.

    `type` is the word in pipeline.yaml. The state topic of a `sole_store` is named after the
    processor alone. One that `writes_outside` of Kafka has no `to`. `commit_interval_ms` is `None`
    if config.yaml has it. `job_topics` has topics of a job by those of its shadow in a rehearsal.
    """

    type: ClassVar[str]
    sole_store: ClassVar[str | None] = None
    writes_outside: ClassVar[bool] = False

    max_process_time_ms: Positive = DEFAULT_MAX_PROCESS_TIME_MS
    max_task_idle_ms: Annotated[int, Meta(ge=-1)] = 0
    buffered_records: Positive = DEFAULT_BUFFERED_RECORDS
    commit_interval_ms: Positive | None = None
    job_topics: Mapping[Name, Name] = {}

    @property
    def what(self) -> str:
        """The type, or the reference to the user code."""
        return self.type

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters that the user sets, by name."""
        return {}

    @property
    def internal_topics(self) -> Mapping[str, int | None]:
        """The internal topics that it reads, with their partition counts."""
        return {}

    @property
    def global_stores(self) -> Mapping[str, str]:
        """The topics of the global stores that its tasks can read, by store name."""
        return {}

    @property
    def change_stores(self) -> frozenset[str]:
        """Those of the global stores whose topics have change events."""
        return frozenset()

    @property
    def global_serdes(self) -> Mapping[str, tuple[AnySerde, AnySerde]]:
        """How keys and values of topics of global stores are written that do not have bytes."""
        return {}

    @property
    def topic_patterns(self) -> tuple[PatternSpec, ...]:
        """Patterns of further topics that it reads."""
        return ()


class CodeSpec(ProcessorSpec, frozen=True, kw_only=True):
    """User code `package.module:name`; `config` has its keyword arguments."""

    code: str
    config: Mapping[str, Any] = {}

    @property
    def what(self) -> str:
        """The reference to the code."""
        return self.code

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The config."""
        return self.config


class ForwardSpec(ProcessorSpec, frozen=True, kw_only=True):
    """Passes records on."""

    type = "forward"


class SumSpec(ProcessorSpec, frozen=True, kw_only=True):
    """Adds a constant to each value."""

    type = "sum"
    constant: int = DEFAULT_SUM

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The constant."""
        return {"constant": self.constant}


class CountSpec(ProcessorSpec, frozen=True, kw_only=True):
    """Counts the records of each key."""

    type = "count"
    sole_store = COUNT_STORE


BuiltInSpec = ForwardSpec | SumSpec | CountSpec


class WindowsSpec:
    """The windows of a query: a `WindowSpec`, a `CalendarSpec` or a `SessionSpec`."""

    __slots__ = ()

    @classmethod
    def parse(cls, data: Any) -> WindowsSpec:
        """Read windows from JSON; its fields decide on the class. Raises ValueError."""
        has = data if isinstance(data, dict) else {}
        type_ = CalendarSpec if "period" in has else SessionSpec if "gap_ms" in has else WindowSpec
        return cast(WindowsSpec, from_json(type_, data, "windows"))


class WindowSpec(WindowsSpec, Strict, frozen=True, kw_only=True):
    """The windows of a query, which start at `start_ms + n * slide_ms` since the epoch."""

    size_ms: Positive
    slide_ms: Positive
    start_ms: int = 0


class CalendarSpec(WindowsSpec, Strict, frozen=True, kw_only=True):
    """The windows of a query that are periods of a `Calendar`, such as `1 day` in a zone."""

    period: str
    zone: str


class SessionSpec(WindowsSpec, Strict, frozen=True, kw_only=True):
    """The sessions of a query: a record more than `gap_ms` after the last one starts another."""

    gap_ms: Positive


class GroupingSpec(Strict, frozen=True, kw_only=True):
    """How the state of a query with GROUP BY is kept.

    A window closes `grace_ms` after its end. Later records go to `late_to`, one of the processor's
    targets, if it is given. If no record comes for `close_after_idle_ms` by the wall clock, all
    windows close; with `None`, they wait for records. A collection of a group, such as that of
    `collect_list`, has at most `max_collected` values. The stage is `whole` if all records of a
    group have the same key. Otherwise, a processor of stage `rows` turns records into rows of
    groups and buffers, and sends them through the internal topic `GROUPS_TOPIC` to one of stage
    `groups`, which keeps the state. With `keeps_distinct`, a store has the values that functions
    with DISTINCT have seen, and with `keeps_values`, those of the rows of a changelog.
    """

    window: WindowsSpec | None = None
    emit: EmitTime = "on_update"
    grace_ms: Count = 0
    late_to: Name | None = None
    max_collected: Positive = DEFAULT_MAX_COLLECTED
    stage: GroupStage = "whole"
    close_after_idle_ms: Positive | None = None
    keeps_distinct: bool = False
    keeps_values: bool = False


class RegularJoinSpec(Strict, frozen=True, kw_only=True):
    """How the rows of a join without bounds of time are kept.

    Rows meet if their times are at most `ttl_ms` apart, whatever these are if that is `None`. A
    record is late once event time has passed its timestamp by more than that. With `only`, the
    results are the rows of the left side that have a partner (`semi`) or none (`anti`).

    The stage is `whole` if partners have the same key; with `also_by_columns`, they are also equal
    in other columns. Otherwise, a processor of stage `rows` sends the rows of both sides through
    the internal topic `JOIN_TOPIC` to one of stage `pairs`, which keeps and joins them.
    """

    only: Literal["semi", "anti"] | None = None
    ttl_ms: Positive | None = None
    stage: JoinStage = "whole"
    also_by_columns: bool = False

    @property
    def kept_ms(self) -> int | None:
        """How long rows are kept, by event time; `None` if that is forever.

        A record that is not late yet may meet one that is older by `ttl_ms`.
        """
        return None if self.ttl_ms is None else 2 * self.ttl_ms


class JoinSpec(Strict, frozen=True, kw_only=True):
    """How the records of two inputs are joined, and how their rows are kept.

    With bounds of time, a record of `left` meets those of `right` with its key that are at most
    `before_ms` older and `after_ms` younger; either may be negative. Records more than `grace_ms`
    behind stream time are late. A join without bounds is `regular`. Rows of the sides in `keeps`
    have results without a partner, too. Late records go to `late_to`, one of the processor's
    targets, if it is given. The records of the sides in `changing` are upserts by their key: each
    one takes the rows of the former one out of a regular join. So a join with bounds becomes the
    regular one of `over_updates` if it reads upserts: its bounds are conditions like others then.
    """

    left: Name
    right: Name
    keeps: tuple[JoinSide, ...]
    before_ms: int
    after_ms: int
    grace_ms: Count = 0
    late_to: Name | None = None
    regular: RegularJoinSpec | None = None
    over_updates: RegularJoinSpec | None = None
    changing: tuple[JoinSide, ...] = ()


class OverSpec(Strict, frozen=True, kw_only=True):
    """How the rows around a record are kept, for a query with `OVER (…)`.

    Frames by time reach up to `range_ms` back. If the query `counts_rows`, it also has frames of a
    number of rows, or `lag`. A record more than `grace_ms` behind stream time is late; it goes to
    `late_to`, one of the processor's targets, if it is given.

    The stage is `whole` if all rows of a group have the same key. Otherwise, a processor of stage
    `rows` sends rows through the internal topic `OVER_TOPIC` to one of stage `frames`, which keeps
    them and gives the results.
    """

    range_ms: Count = 0
    counts_rows: bool = False
    grace_ms: Count = 0
    late_to: Name | None = None
    stage: OverStage = "whole"


class SparkSpec(ProcessorSpec, frozen=True, kw_only=True):
    """The fields of processors on Spark; `schema` is the DDL of values of `format: json`.

    With `lenient`, values may be any JSON that Spark accepts. Spark reads `tables`; `topic_tables`
    follow topics. A query that groups records has a `grouping`. One that `reads_changes` has an
    input of change events, of which it gets the rows. `value` says how the records of sources are
    written that do not say it, and `out_value` how results go to the `schema_sinks`. Bytes are as
    `format` says.
    """

    format: Format = "string"
    schema: str = ""
    lenient: bool = False
    tables: Mapping[str, TableSpec] = {}
    topic_tables: Mapping[str, TopicTableSpec] = {}
    grouping: GroupingSpec | None = None
    reads_changes: bool = False
    value: AnySerde = BYTES
    out_value: AnySerde = BYTES
    schema_sinks: tuple[Name, ...] = ()
    # A batch has up to 100,000 records, which count until Spark has computed. Others can be read
    # meanwhile.
    buffered_records: Positive = 150_000

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What the query does with its groups."""
        return self._of_groups

    @property
    def internal_topics(self) -> Mapping[str, int | None]:
        return {GROUPS_TOPIC: None} if self._merges_only else {}

    @property
    def global_stores(self) -> Mapping[str, str]:
        """The topics of global tables; a processor that only merges rows of groups has none."""
        if self._merges_only:
            return {}
        tables = self.topic_tables.items()
        return {table.store_of(name): table.topic for name, table in tables if table.is_global}

    @property
    def change_stores(self) -> frozenset[str]:
        tables = self.topic_tables.items()
        return frozenset(
            table.store_of(name) for name, table in tables if table.is_global and table.has_changes
        )

    @property
    def global_serdes(self) -> Mapping[str, tuple[AnySerde, AnySerde]]:
        return {
            table.store_of(name): (table.key, table.value)
            for name, table in self.topic_tables.items()
            if table.is_global and (table.key, table.value) != (BYTES, BYTES)
        }

    @property
    def _of_groups(self) -> Mapping[str, Any]:
        if self.grouping is None:
            return {}
        return {"gives": "rows of groups"} if self.gives_rows else {"emits": self.grouping.emit}

    @property
    def gives_rows(self) -> bool:
        """Whether it sends rows of groups to the processor that keeps the groups."""
        return self.grouping is not None and self.grouping.stage == "rows"

    @property
    def _merges_only(self) -> bool:
        return self.grouping is not None and self.grouping.stage == "groups"


class SqlSpec(SparkSpec, frozen=True, kw_only=True):
    """A query over the view `input`, or over inputs by name if `inputs` has names.

    A query over two inputs has a `join`. Then `schemas` may have the DDL of each input, by name, in
    place of `schema`. With `changelog`, it is a query over the newest record of each key of its
    input, of which a null value deletes the key; without groups, it passes deletions on. One with
    `OVER (…)` over the stream has an `over`. `stages` has the queries whose results this one reads,
    by the names of its inputs. Results that only another stage of the same query reads are those of
    an `is_inner` one. If that stage groups them, a join has its `front`: what makes rows of groups.
    It runs in the tasks of the join, and these send its rows.
    """

    type = "sql"
    query: str
    inputs: tuple[Name, ...] = ()
    schemas: Mapping[str, str] = {}
    join: JoinSpec | None = None
    over: OverSpec | None = None
    stages: Mapping[Name, SqlSpec] = {}
    is_inner: bool = False
    changelog: bool = False
    front: SqlSpec | None = None

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What a query reads as a table, does with its groups, or which inputs it joins."""
        if self._over_stage == "rows":
            return {"gives": "rows of frames"}
        if self.join is None:
            reads = {"reads": "upserts"} if self.changelog and not self._merges_only else {}
            return {**reads, **self._of_groups}
        upserts = {"reads": "upserts"} if self.join.changing and self._join_stage != "pairs" else {}
        if self._join_stage == "rows":
            return {**upserts, "gives": "rows to join"}
        joins = {**upserts, "joins": f"{self.join.left} and {self.join.right}"}
        return joins if self.front is None else {**joins, **self.front.parameters}

    @property
    def internal_topics(self) -> Mapping[str, int | None]:
        if self._over_stage == "frames":
            return {OVER_TOPIC: None}
        return {JOIN_TOPIC: None} if self._join_stage == "pairs" else super().internal_topics

    @property
    def gives_rows(self) -> bool:
        """Whether it sends rows to the processor that keeps them."""
        return "rows" in (self._join_stage, self._over_stage) or super().gives_rows

    @property
    def _join_stage(self) -> JoinStage:
        regular = None if self.join is None else self.join.regular
        return "whole" if regular is None else regular.stage

    @property
    def _over_stage(self) -> OverStage:
        return "whole" if self.over is None else self.over.stage


class DataFrameSpec(SparkSpec, frozen=True, kw_only=True):
    """A function `package.module:name` of the DataFrame; `config` has its keyword arguments."""

    type = "dataframe"
    code: str
    config: Mapping[str, Any] = {}

    @property
    def what(self) -> str:
        """The reference to the function."""
        return self.code

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What the function does with its groups, and the config."""
        return {**self._of_groups, **self.config}


class ClassSpec(CodeSpec, frozen=True, kw_only=True):
    """A user's class."""

    type = "class"
    serdes: Serdes = Serdes()
    stores: tuple[StoreSpec, ...] = ()
    asynchronous: AsyncSpec = AsyncSpec()


class TopologySpec(CodeSpec, frozen=True, kw_only=True):
    """A node group of the topology that a function builds.

    `group` is "" for the topology as a whole. `internal` maps the internal topics that the group
    reads to their partition counts, or `None`. `serdes` has those of the internal topics that it
    reads or writes; versions that an earlier engine has written lack them. `followed` maps global
    stores to their topics in Kafka.
    """

    type = "topology"
    group: Name = ""
    internal: Mapping[Name, Positive | None] = {}
    serdes: Mapping[Name, RecordSerdes] = {}
    followed: Mapping[Name, Name] = {}
    patterns: tuple[PatternSpec, ...] = ()

    @property
    def internal_topics(self) -> Mapping[str, int | None]:
        return self.internal

    @property
    def global_stores(self) -> Mapping[str, str]:
        return self.followed

    @property
    def topic_patterns(self) -> tuple[PatternSpec, ...]:
        return self.patterns


class TableSinkSpec(ProcessorSpec, frozen=True, kw_only=True):
    """Writes JSON values as rows of a table; `record_columns` names columns of record parts.

    A table of files has a `path`, and one of a catalog a `table` and the properties `catalog`. One
    of a database has a `url` and a `table`. Properties, the URL, the user and the password may have
    references. In the mode `upsert`, a row replaces the former one with the same values in the
    columns `key`, and a null value deletes it. `evolve` says what happens if an existing table
    lacks columns.
    """

    type = "table"
    writes_outside = True
    format: TableFormat
    path: str = ""
    catalog: Mapping[str, str] = {}
    url: str = ""
    table: str = ""
    user: str = ""
    password: str = ""
    mode: TableMode = "append"
    key: tuple[str, ...] = ()
    schema: str
    evolve: TableEvolution = "refuse"
    partition_by: tuple[str, ...] = ()
    record_columns: Mapping[RecordPart, str] = {}
    commit_interval_ms: Positive = DEFAULT_TABLE_COMMIT_INTERVAL_MS
    buffered_records: Positive = 50_000

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The place of the table, and how it is written."""
        place = {"path": self.path, "url": self.url, "table": self.table}
        given = {name: text for name, text in place.items() if text}
        return {"format": self.format, **given, "mode": self.mode}

    @property
    def login(self) -> Mapping[str, Any]:
        """The settings of a connection that may have references, by their keys."""
        return {
            "catalog": dict(self.catalog),
            "url": self.url,
            "user": self.user,
            "password": self.password,
        }


AnySpec = BuiltInSpec | SqlSpec | DataFrameSpec | ClassSpec | TopologySpec | TableSinkSpec

SPECS: Mapping[str, type[ProcessorSpec]] = {spec.type: spec for spec in get_args(AnySpec)}
"""The classes by type."""
