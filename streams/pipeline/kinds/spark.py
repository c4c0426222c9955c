"""What `type: sql` and `type: dataframe` have in common: Spark, tables and groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar

from msgspec import structs

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.durations import spoken
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import Choice, Flag, Schema, Text
from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.names import name_problem
from kafka_pipeline.common.pipelines.lookup_tables import TopicTableSpec
from kafka_pipeline.common.pipelines.processors import (
    ROWS_SUFFIX,
    SINK,
    SOURCE,
    LoggedStore,
    PipelineProcessor,
)
from kafka_pipeline.common.pipelines.serde_specs import AnySerde, SchemaSerde
from kafka_pipeline.common.pipelines.specs import (
    GROUPS_TOPIC,
    CalendarSpec,
    FieldTime,
    Format,
    GroupingSpec,
    SessionSpec,
    SourceSpec,
    SparkSpec,
    WindowSpec,
)
from kafka_pipeline.common.pipelines.store_specs import BYTES
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.streams.engine.nodes import Supplier
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile, Target
from kafka_pipeline.streams.pipeline.kinds.group_keys import GROUP_RULES, check_late
from kafka_pipeline.streams.pipeline.kinds.kind import (
    MAX_TASK_IDLE,
    Kind,
    Means,
    TableInput,
    Unit,
    logged,
    refuse_settings,
)
from kafka_pipeline.streams.pipeline.kinds.query_forms import QueryForm
from kafka_pipeline.streams.pipeline.kinds.schema_serdes import RowSerdeKey, read_serde
from kafka_pipeline.streams.pipeline.kinds.tables import check_topic
from kafka_pipeline.streams.processor import BatchProcessor
from kafka_pipeline.streams.sql.access import table_problems
from kafka_pipeline.streams.sql.change_rows import ChangesOfQuery, ChangesOfTable
from kafka_pipeline.streams.sql.spec import (
    FORMATS,
    Queries,
    QueryError,
    QuerySpec,
    SparkLostError,
    StateChange,
)
from kafka_pipeline.streams.sql.state_stores import (
    changes_store,
    state_stores,
    topic_store,
    windows_of,
)
from kafka_pipeline.streams.stores import StoreBuilder

Q = TypeVar("Q", bound=SparkSpec)

_JSON: Format = "json"
"""The one format whose values have columns."""

_AVRO: Literal["avro"] = "avro"
"""Values whose columns are those of a schema in the registry. Between processors, they are JSON."""

FORMAT: Choice[Format | Literal["avro"]] = Choice(
    name="format", doc="what the values are", choices=(*FORMATS, _AVRO), default="string"
)
OUT_VALUE = RowSerdeKey(
    name="out_value",
    doc="how results are written to sinks, if not as `format` says: `json`, `avro`, or a map such "
    "as `{avro: {subject: …}}`",
)
SCHEMA = Text(
    name="schema",
    doc="the columns of the values of `format: json`, as in `name STRING, price DOUBLE`; default: "
    "what the sources say. With `format: avro`, those of inputs that are not Avro",
    about='the columns of the values, such as "name STRING, price DOUBLE"',
    default="",
)
LENIENT = Flag(
    name="lenient",
    doc="whether values of `format: json` may be what only Spark reads: single quotes, NaN, text "
    "after the object, or nothing; default: what RFC 8259 does not allow is rejected",
    default=False,
)


class Spark(Kind[Q]):
    """The base of processors that Spark runs."""

    needs_spark = True
    takes_records_as_they_are = True
    refused_settings = ()
    rules: ClassVar[Sequence[Schema]] = (
        {
            "if": {"properties": {FORMAT.name: {"const": _JSON}}, "required": [FORMAT.name]},
            "else": {"properties": {LENIENT.name: False}},
        },
        {
            "if": {
                "properties": {FORMAT.name: {"enum": [_JSON, _AVRO]}},
                "required": [FORMAT.name],
            },
            "else": {"properties": {SCHEMA.name: False, OUT_VALUE.name: False}},
        },
        *GROUP_RULES,
    )

    def query(self, spec: Q) -> QuerySpec:
        """Return what Spark runs."""
        raise NotImplementedError

    def form(self, _spec: Q) -> QueryForm | None:
        """Return what is done for a query that keeps rows, and not groups; `None` for others."""
        return None

    def rows_of_groups(self, spec: Q) -> str:
        """Return which rows a query with groups keeps, in words."""
        raise NotImplementedError

    def check(self, entry: Entry, spec: Q, file: PipelineFile, problems: Problems) -> None:
        super().check(entry, spec, file, problems)
        tables = [Target(table.topic, entry.at) for table in spec.topic_tables.values()]
        refuse_settings(entry, tables, file, problems, ("history",))
        for source in (*entry.sources, *tables):
            found = file.source_specs.get(source.id, SourceSpec())
            if isinstance(found.timestamp, FieldTime) and spec.format != _JSON:
                problems.add(
                    source.at,
                    f'source "{source.id}": the time is in a field, which only values of format: '
                    f"{_JSON} have, not {spec.format}",
                )
            _check_serdes(source, entry, spec, file, problems)
        for name, table in spec.topic_tables.items():
            check_topic(name, table, entry, file, problems)
        if spec.grouping is not None:
            check_late(entry, spec.grouping.late_to, file, problems)
        if spec.max_task_idle_ms and self.takes_inputs_as_they_come(spec):
            problems.add(
                entry.at,
                f'"{entry.id}": {MAX_TASK_IDLE.name} belongs to a query that takes records in the '
                "order of time: one with a table of a topic, with windows, or with a join of two "
                "inputs. Leave it out",
            )

    def takes_inputs_as_they_come(self, spec: Q) -> bool:
        """See `Kind`.

        A record sees a table as it was at the record's time, and the order of time says what is
        late for a window.
        """
        has_no_windows = spec.grouping is None or spec.grouping.window is None
        return has_no_windows and not _keyed(spec)

    def out_value(self, spec: Q, target: str) -> AnySerde:
        """See `Kind`: other processors get JSON."""
        return spec.out_value if target in spec.schema_sinks else BYTES

    def input_stores(self, spec: Q) -> tuple[StoreBuilder[Any, Any], ...]:
        """Return the stores by which records are understood: of tables, and of change events."""
        tables = _keyed(spec)
        changes = [changes_store(name) for name, table in tables.items() if table.has_changes]
        if spec.reads_changes:
            changes.append(changes_store())
        return (*(topic_store(name, table) for name, table in tables.items()), *changes)

    def kept_inputs(self, spec: Q) -> Sequence[str]:
        """Return what the `input_stores` keep, in words."""
        changes = ("the last change of each key",) if spec.reads_changes else ()
        return (*_kept_tables(_keyed(spec)), *changes)

    def stores(self, spec: Q) -> Sequence[StoreBuilder[Any, Any]]:
        """See `Kind`: where two processors do the work, the first one has the tables."""
        if (form := self.form(spec)) is not None:
            return form.stores()
        if spec.grouping is None:
            return self.input_stores(spec)
        tables = () if spec.grouping.stage == "groups" else self.input_stores(spec)
        return (*tables, *state_stores(spec.grouping))

    def keeps(self, spec: Q) -> Sequence[str]:
        if (form := self.form(spec)) is not None:
            return form.keeps()
        tables = self.kept_inputs(spec)
        if spec.grouping is None or spec.grouping.stage == "rows":
            return tables
        groups = _kept_groups(self.rows_of_groups(spec), spec.grouping)
        return (groups,) if spec.grouping.stage == "groups" else (*tables, groups)

    def holds_ms(self, spec: Q) -> int:
        """See `Kind`: results on close come after their windows."""
        if (form := self.form(spec)) is not None:
            return form.holds_ms()
        grouping = spec.grouping
        if grouping is None or grouping.emit != "on_close" or grouping.stage == "rows":
            return 0
        match grouping.window:
            case WindowSpec() | CalendarSpec():
                return windows_of(grouping).longest_ms + grouping.grace_ms + 1
            case SessionSpec(gap_ms=gap_ms):
                return gap_ms + grouping.grace_ms + 1
        return 0

    def table_inputs(self, spec: Q) -> Mapping[str, TableInput]:
        return {
            table.topic: _table_input(name, table, spec.format)
            for name, table in _keyed(spec).items()
        }

    def processors(
        self, entry: Entry, spec: Q, file: PipelineFile, config: Config, problems: Problems
    ) -> list[PipelineProcessor]:
        """See `Kind`: two for groups of records with different keys.

        Global tables get the names of their topics in Kafka.
        """
        known = {SOURCE: config.topic_names.source, **file.topics}
        tables = {
            name: _located(table, known, file.read_as(table.topic, spec))
            if table.is_global
            else table
            for name, table in spec.topic_tables.items()
        }
        sinks = tuple(target.id for target in entry.targets if target.id in (SINK, *file.sinks))
        is_written = isinstance(spec.out_value, SchemaSerde)
        spec = structs.replace(spec, topic_tables=tables, schema_sinks=sinks if is_written else ())
        (found,) = super().processors(entry, spec, file, config, problems)
        sources = {
            name: read
            for name in found.from_
            if name in (SOURCE, *file.sources)
            and (read := file.read_as(name, spec)) != SourceSpec()
        }
        found = replace(found, sources=sources)
        if spec.grouping is None:
            return [found]
        names, front_stores = config.topic_names, logged(self.input_stores(spec))
        return _with_groups(found, spec.grouping, file, names, front_stores, problems, entry)

    def check_code(
        self, entry: Entry, spec: Q, file: PipelineFile, means: Means, problems: Problems
    ) -> None:
        """Report lookup tables that TaskManagers would not read; then let Spark check, if there.

        Each TaskManager checks the tables by its own config.yaml.
        """
        query = self.query(spec)
        # A table without a format was reported already.
        known = {name: table for name, table in query.tables.items() if table["format"]}
        refused = table_problems(means.config.tables, known, is_written=True)
        for problem in refused:
            problems.add(entry.at, f'"{entry.id}": {problem}')
        if means.queries is None or refused:
            return
        try:
            self.try_out(spec, means.queries)
        except (QueryError, SparkLostError) as error:
            problems.add(entry.at, f'"{entry.id}": {self.said(entry, str(error))}')

    def said(self, entry: Entry, message: str) -> str:
        """Return a message about the query of an entry, with places as the user knows them."""
        return message

    def try_out(self, spec: Q, queries: Queries) -> None:
        """Let Spark check the query. Raises `QueryError` and `SparkLostError`."""
        query = self.query(spec)
        if (form := self.form(spec)) is not None:
            form.try_out(query, queries)
            return
        if spec.grouping is None:
            queries.open(query).close()
            return
        from kafka_pipeline.streams.sql.declared_groups import require_as_planned

        with closing(queries.open_aggregation(query)) as opened:
            require_as_planned(opened.shape, spec.grouping, query.function)

    def kept_for(self, spec: Q) -> str:
        """Return text that is the same for specs that keep the same content; "" if none is kept."""
        if (form := self.form(spec)) is not None:
            return form.kept_for(self.query(spec))
        grouping = spec.grouping
        if grouping is None or grouping.stage == "rows":
            return ""
        return " ".join((self.query(spec).to_json(), grouping.stage, repr(grouping.window)))

    def declared_difference(self, spec: Q, kept: str) -> str:
        """Return what the spec alone shows to differ from a content that was kept, in words."""
        if (form := self.form(spec)) is not None:
            return form.declared_difference(kept)
        from kafka_pipeline.streams.sql.state_change import declared_difference

        assert spec.grouping is not None, "it keeps something"
        return declared_difference(kept, spec.grouping)

    def content(self, spec: Q, queries: Queries) -> str:
        """Return what Spark says that the query keeps. Raises `QueryError` and `SparkLostError`."""
        if (form := self.form(spec)) is not None:
            return form.content(self.query(spec), queries)
        from kafka_pipeline.streams.sql.kept_shape import kept_content
        from kafka_pipeline.streams.sql.state_shape import ROUTES

        assert spec.grouping is not None, "it keeps something"
        with closing(queries.open_aggregation(self.query(spec))) as opened:
            return kept_content(opened.shape, ROUTES[spec.grouping.stage])

    def change(self, spec: Q, kept: str, content: str) -> StateChange:
        """Compare a content that was kept with that of the spec."""
        if (form := self.form(spec)) is not None:
            return form.change(kept, content)
        from kafka_pipeline.streams.sql.state_change import state_change

        return state_change(kept, content)

    def supplier(self, unit: Unit, spec: Q, code: UserCode, queries: Queries | None) -> Supplier:
        assert queries is not None, "only hosts with a Spark run such a processor"
        query = replace(self.query(spec), processor=unit.name)
        made = self.running(unit, spec, query, queries)
        reads_topic = spec.grouping is None or spec.grouping.stage != "groups"
        if not spec.reads_changes or not reads_topic:
            return made
        return partial(ChangesOfQuery, changes_store().name, made)

    def running(
        self, unit: Unit, spec: Q, query: QuerySpec, queries: Queries
    ) -> Callable[[], BatchProcessor]:
        """Return what makes its processors, which take records of rows."""
        if (form := self.form(spec)) is not None:
            return form.supplier(unit, query, queries)
        if spec.grouping is not None:
            return of_groups(unit, query, spec.grouping, queries)
        # Imported late: Arrow takes a while to import, and most tasks do not need it.
        from kafka_pipeline.streams.sql.processor import SparkProcessor

        return partial(SparkProcessor, query, queries.open)


def query_of(spec: SparkSpec) -> QuerySpec:
    """Return what the queries of all types have."""
    grouping = spec.grouping or GroupingSpec()
    return QuerySpec(
        format=spec.format,
        schema=spec.schema,
        is_lenient=spec.lenient,
        tables={name: structs.asdict(table) for name, table in spec.tables.items()},
        topic_tables=_schemas(spec, is_global=False),
        global_tables=_schemas(spec, is_global=True),
        versioned_tables=_versioned(spec),
        max_collected=grouping.max_collected,
        keeps_distinct=grouping.keeps_distinct,
        is_exact=isinstance(spec.out_value, SchemaSerde),
        calendar=_calendar(grouping),
    )


@dataclass(frozen=True, slots=True)
class Written:
    """How the values of a query are written: `value` in sources that do not say it."""

    format: Format
    schema: str
    lenient: bool
    value: AnySerde
    out_value: AnySerde


def read_written(
    fields: Fields, problems: Problems, schemas: Mapping[str, str] | None = None
) -> Written:
    """Return how values are written; the schema is "" if each input has its own in `schemas`.

    It is also "" if it is not given: then it is that of the sources; see `with_source_schemas` and,
    for Avro, `with_columns`.
    """
    format_ = fields.choice(FORMAT)
    has_columns = format_ in (_JSON, _AVRO)
    for key in (SCHEMA, OUT_VALUE):
        if not has_columns and fields.get(key.name) is not None:
            problems.add(fields.at(key.name), f"{key.name} belongs to format: json or avro")
    if format_ != _JSON and fields.get(LENIENT.name) is not None:
        problems.add(fields.at(LENIENT.name), "lenient belongs to format: json")
    value: AnySerde = SchemaSerde(kind=_AVRO) if format_ == _AVRO else BYTES
    out_value = read_serde(fields, OUT_VALUE, problems) or value
    return Written(
        format=_JSON if format_ == _AVRO else format_,
        schema="" if schemas or not has_columns else fields.text(SCHEMA),
        lenient=fields.boolean(LENIENT),
        value=value,
        out_value=out_value if isinstance(out_value, SchemaSerde) else BYTES,
    )


def _check_serdes(
    source: Target, entry: Entry, spec: SparkSpec, file: PipelineFile, problems: Problems
) -> None:
    """Report a source whose records are not as a query reads them."""
    found = file.source_specs.get(source.id, SourceSpec())
    for part, serde in (("key", found.key), ("value", found.value)):
        is_avro = isinstance(serde, SchemaSerde) and serde.kind == _AVRO and not serde.events
        if serde is None or serde == _JSON or is_avro:
            if is_avro and spec.value == BYTES:
                problems.add(
                    source.at,
                    f'source "{source.id}" has {part}: avro, so "{entry.id}" must say format: avro',
                )
            continue
        problems.add(
            source.at,
            f'a query takes records as they are: source "{source.id}" may say {part}: avro or '
            f"json, and it says {serde}",
        )


def _located(table: TopicTableSpec, topics: Mapping[str, str], read: SourceSpec) -> TopicTableSpec:
    """Return a global table with the name of its topic in Kafka, and how it is written."""
    return structs.replace(
        table,
        topic=topics.get(table.topic, table.topic),
        key=read.key or BYTES,
        value=read.value or BYTES,
    )


def of_groups(
    unit: Unit, query: QuerySpec, grouping: GroupingSpec, queries: Queries
) -> Callable[[], BatchProcessor]:
    """Return what makes the processor of a stage of a grouping."""
    from kafka_pipeline.streams.sql.group_processor import WindowProcessor
    from kafka_pipeline.streams.sql.session_processor import SessionProcessor

    make = SessionProcessor if isinstance(grouping.window, SessionSpec) else WindowProcessor
    results = tuple(target for target in unit.to if target != grouping.late_to)
    return partial(make, query, grouping, results, queries.open_aggregation)


def _keyed(spec: SparkSpec) -> dict[str, TopicTableSpec]:
    """Return the tables of which a task has the keys of its records."""
    return {name: table for name, table in spec.topic_tables.items() if not table.is_global}


def _calendar(grouping: GroupingSpec) -> tuple[str, ...]:
    match grouping.window:
        case CalendarSpec(period=period, zone=zone):
            return period, zone
    return ()


def _schemas(spec: SparkSpec, *, is_global: bool) -> dict[str, str]:
    tables = spec.topic_tables.items()
    return {name: table.schema for name, table in tables if table.is_global is is_global}


def _versioned(spec: SparkSpec) -> tuple[str, ...]:
    """Return the names of the tables with a history."""
    return tuple(name for name, table in spec.topic_tables.items() if table.has_history)


def _table_input(name: str, table: TopicTableSpec, format_: Format) -> TableInput:
    store = table.store_of(name)
    made = partial(_topic_table, store, format_, table.schema, table.history_ms)
    if not table.has_changes:
        return TableInput(store, made, has_history=table.has_history)
    of_changes = changes_store(name).name
    changes = partial(ChangesOfTable, of_changes, made)
    return TableInput(store, changes, of_changes, table.has_history)


def _topic_table(
    store: str, format_: Format, schema: str, history_ms: int | None
) -> BatchProcessor:
    # Imported late: Arrow takes a while to import, and most tasks do not need it.
    from kafka_pipeline.streams.sql.topic_tables import TopicTable

    return TopicTable(store, format_, schema, history_ms)


def with_late(
    processor: PipelineProcessor, late_to: str | None, file: PipelineFile
) -> PipelineProcessor:
    """Return a processor that also sends to `late_to`, if it is given."""
    if late_to is None:
        return processor
    topics = {name: file.topics[name] for name in (late_to,) if name in file.topics}
    return replace(processor, to=(*processor.to, late_to), topics={**processor.topics, **topics})


def _with_groups(
    processor: PipelineProcessor,
    grouping: GroupingSpec,
    file: PipelineFile,
    names: TopicNames,
    front_stores: tuple[LoggedStore, ...],
    problems: Problems,
    entry: Entry,
) -> list[PipelineProcessor]:
    """Return the processors of a query: one, or two with an internal topic in between.

    The first one of two has the `front_stores`, whose rows it looks up by the keys of records.
    """
    if grouping.stage == "whole":
        return [with_late(processor, grouping.late_to, file)]
    assert isinstance(processor.spec, SparkSpec)
    front = structs.replace(processor.spec, grouping=structs.replace(grouping, stage="rows"))
    late_to = grouping.late_to
    found = through_topic(
        processor, front, GROUPS_TOPIC, late_to, file, names, front_stores, problems, entry
    )
    return [*found]


def through_topic(
    processor: PipelineProcessor,
    front_spec: SparkSpec,
    topic: str,
    late_to: str | None,
    file: PipelineFile,
    names: TopicNames,
    front_stores: tuple[LoggedStore, ...],
    problems: Problems,
    entry: Entry,
) -> tuple[PipelineProcessor, PipelineProcessor]:
    """Return two processors with an internal topic in between, in place of one.

    The first one, of `front_spec`, sends rows to the topic, and late records to `late_to`. The
    second one has all else of the `processor`.
    """
    late = () if late_to is None else (late_to,)
    late_topics = {name: file.topics[name] for name in late if name in file.topics}
    between = {topic: names.internal(processor.id, topic)}
    id_ = f"{processor.id}{ROWS_SUFFIX}"
    if wrong := name_problem(id_):
        problems.add(
            entry.at, f'the id "{id_}" of the processor in front of the topic {topic} {wrong}'
        )
    senders = {other.id for other in file.entries}
    arcs = {name: names.arc(name, processor.id) for name in processor.from_ if name in senders}
    read = {name: topic for name, topic in processor.topics.items() if name in processor.from_}
    front = replace(
        processor,
        id=id_,
        spec=front_spec,
        to=(topic, *late),
        topics={**read, **arcs, **late_topics, **between},
        stores=front_stores,
        meetings=None if front_stores else (),
    )
    written = {name: topic for name, topic in processor.topics.items() if name in processor.to}
    back = replace(
        processor, from_=(topic,), topics={**written, **between}, sources={}, looked_up=()
    )
    return front, back


def _kept_groups(rows: str, grouping: GroupingSpec) -> str:
    """Return the rows that a query with groups keeps, and for how long, in words."""
    if grouping.window is None:
        return rows
    return f"{rows}, until {spoken(grouping.grace_ms)} after the window"


def _kept_tables(tables: Mapping[str, TopicTableSpec]) -> Iterator[str]:
    """Yield what tasks keep of tables that follow topics, in words."""
    for name, table in tables.items():
        past = "" if table.history_ms is None else f", with a history of {spoken(table.history_ms)}"
        yield f"the last record of each key of {table.topic}{past}, as table {name}"
