"""Processors that Spark runs: `type: sql` and `type: dataframe`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, ClassVar, TypeVar

from common.config import Config
from common.fields import Fields
from common.keys import Choice, Schema, Text
from common.processors import SOURCE, PipelineProcessor
from common.specs import (
    DataFrameSpec,
    Format,
    GroupingSpec,
    SessionSpec,
    SparkSpec,
    SqlSpec,
    TopicTableSpec,
)
from common.yaml_positions import Problems
from streams.engine.nodes import Supplier
from streams.engine.user_code import UserCode
from streams.pipeline.kinds.entry import Entry, PipelineFile, Target
from streams.pipeline.kinds.groups import (
    GROUP_KEYS,
    GROUP_RULES,
    check_late,
    read_grouping,
    with_groups,
    with_late,
)
from streams.pipeline.kinds.joins import (
    SCHEMAS,
    check_join,
    read_joining,
    read_schemas,
)
from streams.pipeline.kinds.kept_state import kept_groups, kept_sides, kept_tables
from streams.pipeline.kinds.kind import (
    ARGUMENTS,
    CODE_PATTERN,
    MAX_PROCESS_TIME,
    MAX_TASK_IDLE,
    Kind,
    Means,
    TableInput,
    Unit,
    logged,
    read_arguments,
    read_reference,
    refuse_config,
    refuse_settings,
    require_allowed,
)
from streams.pipeline.kinds.tables import TABLES, VIEW, check_topic, read_tables
from streams.processor import BatchProcessor
from streams.sql.access import table_problems
from streams.sql.join_stores import join_stores
from streams.sql.spec import FORMATS, Queries, QueryError, QuerySpec, SparkLostError
from streams.sql.state_stores import state_stores, table_store
from streams.stores import StoreBuilder

Q = TypeVar("Q", bound=SparkSpec)

_JSON: Format = "json"
"""The one format whose values have columns."""

_QUERY = Text(
    name="query",
    doc=f"a SELECT over `{VIEW}`, the records of all inputs; a single input also has its own name",
    about=f"a SELECT over the view {VIEW}, or over the name of the input",
    required=True,
)
_FUNCTION = Text(
    name="function",
    doc="a function of the DataFrame of records, as `package.module:function`",
    about="package.module:function",
    required=True,
    pattern=CODE_PATTERN,
)
_FORMAT: Choice[Format] = Choice(
    name="format", doc="what the values are", choices=FORMATS, default="string"
)
_SCHEMA = Text(
    name="schema",
    doc="the columns of the values of `format: json`, as in `name STRING, price DOUBLE`; required "
    "there",
    about='the columns of the values, such as "name STRING, price DOUBLE"',
    default="",
)


class _Spark(Kind[Q]):
    needs_spark = True
    takes_records_as_they_are = True
    rules: ClassVar[Sequence[Schema]] = (
        {
            "if": {
                "properties": {_FORMAT.name: {"const": _JSON}},
                "required": [_FORMAT.name],
            },
            "then": {"required": [_SCHEMA.name]},
            "else": {"properties": {_SCHEMA.name: False}},
        },
    )

    def query(self, spec: Q) -> QuerySpec:
        """Return what Spark runs."""
        raise NotImplementedError

    def check(self, entry: Entry, spec: Q, file: PipelineFile, problems: Problems) -> None:
        """See `Kind`."""
        super().check(entry, spec, file, problems)
        topics = [Target(table.topic, entry.at) for table in spec.topic_tables.values()]
        refuse_settings(entry, topics, file, problems)
        for name, table in spec.topic_tables.items():
            check_topic(name, table, entry, file, problems)
        if spec.max_task_idle_ms and self.takes_inputs_as_they_come(spec):
            problems.add(
                entry.at,
                f'"{entry.id}": {MAX_TASK_IDLE.name} belongs to a query that takes records in the '
                "order of time: one with a table of a topic, with windows, or with a join of two "
                "inputs. Leave it out",
            )

    def takes_inputs_as_they_come(self, spec: Q) -> bool:
        """See `Kind`: a record sees a table as it was at the record's time."""
        return not _keyed(spec)

    def stores(self, spec: Q) -> Sequence[StoreBuilder[Any, Any]]:
        """See `Kind`."""
        return tuple(map(table_store, _keyed(spec)))

    def keeps(self, spec: Q) -> Sequence[str]:
        """See `Kind`."""
        return tuple(kept_tables(_keyed(spec)))

    def table_inputs(self, spec: Q) -> Mapping[str, TableInput]:
        """See `Kind`."""
        return {
            table.topic: TableInput(
                table.store_of(name),
                partial(_topic_table, name, spec.format, bool(table.schema)),
            )
            for name, table in _keyed(spec).items()
        }

    def processors(
        self, entry: Entry, spec: Q, file: PipelineFile, config: Config, problems: Problems
    ) -> list[PipelineProcessor]:
        """See `Kind`: global tables get the names of their topics in Kafka."""
        known = {SOURCE: config.topic_names.source, **file.topics}
        tables = {
            name: replace(table, topic=known.get(table.topic, table.topic))
            if table.is_global
            else table
            for name, table in spec.topic_tables.items()
        }
        found = replace(spec, topic_tables=tables)
        return super().processors(entry, found, file, config, problems)

    def check_code(
        self, entry: Entry, spec: Q, file: PipelineFile, means: Means, problems: Problems
    ) -> None:
        """Report lookup tables that TaskManagers would not read; then let Spark check, if there.

        Each TaskManager checks the tables by its own config.yaml.
        """
        query = self.query(spec)
        # A table without a format was reported already.
        known = {name: table for name, table in query.tables.items() if table["format"]}
        refused = table_problems(means.config.tables, known)
        for problem in refused:
            problems.add(entry.at, f'"{entry.id}": {problem}')
        if means.queries is None or refused:
            return
        try:
            self.try_out(spec, means.queries)
        except (QueryError, SparkLostError) as error:
            problems.add(entry.at, f'"{entry.id}": {error}')

    def try_out(self, spec: Q, queries: Queries) -> None:
        """Let Spark check the query. Raises `QueryError` and `SparkLostError`."""
        queries.open(self.query(spec)).close()

    def supplier(self, unit: Unit, spec: Q, code: UserCode, queries: Queries | None) -> Supplier:
        """See `Kind`."""
        # Imported late: Arrow takes a while to import, and most tasks do not need it.
        from streams.sql.processor import SparkProcessor

        assert queries is not None, "only hosts with a Spark run such a processor"
        return partial(SparkProcessor, self.query(spec), queries.open)


class Sql(_Spark[SqlSpec]):
    """`type: sql`."""

    spec = SqlSpec
    doc = "a query on Spark"
    own_keys = (_QUERY, _FORMAT, SCHEMAS, TABLES, *GROUP_KEYS, MAX_TASK_IDLE, MAX_PROCESS_TIME)
    rules = (*_Spark.rules, *GROUP_RULES)

    def read(self, fields: Fields, problems: Problems) -> SqlSpec:
        """See `Kind`."""
        refuse_config(self.spec.type, fields, problems)
        format_ = fields.choice(_FORMAT)
        query = fields.text(_QUERY)
        tables = read_tables(fields, problems)
        join = read_joining(fields, query, tables.names, problems)
        schemas = read_schemas(fields, problems)
        return SqlSpec(
            query=query,
            grouping=None if join else read_grouping(fields, query, tables.names, problems),
            join=join,
            format=format_,
            schema=_schema(fields, format_, problems, schemas),
            schemas=schemas,
            tables=tables.by_spark,
            topic_tables=tables.of_topics,
            max_task_idle_ms=fields.number(MAX_TASK_IDLE),
            max_process_time_ms=fields.number(MAX_PROCESS_TIME),
        )

    def check(self, entry: Entry, spec: SqlSpec, file: PipelineFile, problems: Problems) -> None:
        """See `Kind`."""
        super().check(entry, spec, file, problems)
        check_late(entry, spec, file, problems)
        check_join(entry, spec, file, problems)
        inputs = {name.lower(): name for name in file.inputs(entry)}
        for name in (*spec.tables, *spec.topic_tables):
            if name.lower() in inputs:
                problems.add(
                    entry.at,
                    f'"{entry.id}": table "{name}" has the name of the input '
                    f'"{inputs[name.lower()]}", which the query can read under it: give the table '
                    "another name",
                )

    def check_code(
        self, entry: Entry, spec: SqlSpec, file: PipelineFile, means: Means, problems: Problems
    ) -> None:
        """See `Kind`."""
        found = replace(spec, inputs=file.inputs(entry))
        super().check_code(entry, found, file, means, problems)

    def processors(
        self, entry: Entry, spec: SqlSpec, file: PipelineFile, config: Config, problems: Problems
    ) -> list[PipelineProcessor]:
        """See `Kind`: two for a query whose groups have records with different keys."""
        spec = replace(spec, inputs=file.inputs(entry))
        (found,) = super().processors(entry, spec, file, config, problems)
        if spec.join is not None:
            return [with_late(found, spec.join.late_to, file)]
        if spec.grouping is None:
            return [found]
        names = config.topic_names
        front_stores = logged(_Spark.stores(self, spec))
        return with_groups(found, spec.grouping, file, names, front_stores, problems, entry)

    def takes_inputs_as_they_come(self, spec: SqlSpec) -> bool:
        """See `Kind`: with windows and in joins, the order of time says what is late."""
        has_no_windows = spec.grouping is None or spec.grouping.window is None
        return has_no_windows and spec.join is None and super().takes_inputs_as_they_come(spec)

    def stores(self, spec: SqlSpec) -> Sequence[StoreBuilder[Any, Any]]:
        """See `Kind`: where two processors do the work, the first one has the tables."""
        if spec.join is not None:
            return join_stores(spec.join)
        if spec.grouping is None:
            return super().stores(spec)
        tables = () if spec.grouping.stage == "groups" else super().stores(spec)
        return (*tables, *state_stores(spec.grouping))

    def keeps(self, spec: SqlSpec) -> Sequence[str]:
        """See `Kind`."""
        if spec.join is not None:
            return (kept_sides(spec.join),)
        if spec.grouping is None or spec.grouping.stage == "rows":
            return super().keeps(spec)
        tables = () if spec.grouping.stage == "groups" else super().keeps(spec)
        return (*tables, kept_groups(spec, spec.grouping))

    def try_out(self, spec: SqlSpec, queries: Queries) -> None:
        """See `_Spark`."""
        if spec.join is not None:
            from streams.sql.joining import require_join_as_planned

            join = queries.open_join(self.query(spec))
            try:
                require_join_as_planned(join.shape.text, spec.join)
            finally:
                join.close()
            return
        if spec.grouping is None:
            super().try_out(spec, queries)
            return
        from streams.sql.aggregating import require_as_planned

        query = queries.open_aggregation(self.query(spec))
        try:
            require_as_planned(query.shape, spec.grouping)
        finally:
            query.close()

    def supplier(
        self, unit: Unit, spec: SqlSpec, code: UserCode, queries: Queries | None
    ) -> Supplier:
        """See `Kind`."""
        grouping, join = spec.grouping, spec.join
        if grouping is None and join is None:
            return super().supplier(unit, spec, code, queries)
        assert queries is not None, "only hosts with a Spark run such a processor"
        if join is not None:
            from streams.sql.joining import JoinProcessor

            names = [name.lower() for name in unit.from_]
            right = unit.in_topics[names.index(join.right)]
            results = tuple(target for target in unit.to if target != join.late_to)
            return partial(JoinProcessor, self.query(spec), join, right, results, queries.open_join)
        assert grouping is not None
        from streams.sql.aggregating import MergedRows, RowsOfGroups, WholeAggregation
        from streams.sql.session_aggregating import MergedSessions, RowsOfSessions, WholeSessions

        made = {"whole": WholeAggregation, "rows": RowsOfGroups, "groups": MergedRows}
        if isinstance(grouping.window, SessionSpec):
            made = {"whole": WholeSessions, "rows": RowsOfSessions, "groups": MergedSessions}
        results = tuple(target for target in unit.to if target != grouping.late_to)
        opened = queries.open_aggregation
        return partial(made[grouping.stage], self.query(spec), grouping, results, opened)

    def query(self, spec: SqlSpec) -> QuerySpec:
        """See `_Spark`."""
        grouping = spec.grouping or GroupingSpec()
        return QuerySpec(
            query=spec.query,
            inputs=spec.inputs,
            schemas=spec.schemas,
            format=spec.format,
            schema=spec.schema,
            tables=_as_json(spec),
            topic_tables=_schemas(spec, is_global=False),
            global_tables=_schemas(spec, is_global=True),
            max_collected=grouping.max_collected,
        )


class DataFrame(_Spark[DataFrameSpec]):
    """`type: dataframe`."""

    spec = DataFrameSpec
    doc = "a Python function of Spark's DataFrame"
    own_keys = (_FUNCTION, _FORMAT, _SCHEMA, TABLES, MAX_TASK_IDLE, MAX_PROCESS_TIME)
    config = ARGUMENTS

    def read(self, fields: Fields, problems: Problems) -> DataFrameSpec:
        """See `Kind`."""
        format_ = fields.choice(_FORMAT)
        tables = read_tables(fields, problems)
        return DataFrameSpec(
            code=read_reference(fields, _FUNCTION, problems),
            config=read_arguments(fields.pairs(ARGUMENTS), problems),
            format=format_,
            schema=_schema(fields, format_, problems),
            tables=tables.by_spark,
            topic_tables=tables.of_topics,
            max_task_idle_ms=fields.number(MAX_TASK_IDLE),
            max_process_time_ms=fields.number(MAX_PROCESS_TIME),
        )

    def check_code(
        self,
        entry: Entry,
        spec: DataFrameSpec,
        file: PipelineFile,
        means: Means,
        problems: Problems,
    ) -> None:
        """See `Kind`."""
        if spec.code:
            require_allowed(spec.code, entry, means.config, problems)
        super().check_code(entry, spec, file, means, problems)

    def query(self, spec: DataFrameSpec) -> QuerySpec:
        """See `_Spark`."""
        return QuerySpec(
            function=spec.code,
            format=spec.format,
            schema=spec.schema,
            tables=_as_json(spec),
            config=spec.config,
            topic_tables=_schemas(spec, is_global=False),
            global_tables=_schemas(spec, is_global=True),
        )


def _as_json(spec: SparkSpec) -> dict[str, dict[str, Any]]:
    return {name: asdict(table) for name, table in spec.tables.items()}


def _keyed(spec: SparkSpec) -> dict[str, TopicTableSpec]:
    """Return the tables of which a task has the keys of its records."""
    return {name: table for name, table in spec.topic_tables.items() if not table.is_global}


def _schemas(spec: SparkSpec, *, is_global: bool) -> dict[str, str]:
    tables = spec.topic_tables.items()
    return {name: table.schema for name, table in tables if table.is_global is is_global}


def _topic_table(table: str, format_: Format, has_columns: bool) -> BatchProcessor:
    # Imported late: Arrow takes a while to import, and most tasks do not need it.
    from streams.sql.topic_tables import TopicTable

    return TopicTable(table, format_, has_columns)


def _schema(
    fields: Fields, format_: Format, problems: Problems, schemas: Mapping[str, str] | None = None
) -> str:
    """Return the schema of all inputs; "" if each one has its own in `schemas`."""
    schema = "" if schemas else fields.text(_SCHEMA)
    is_given = fields.get(_SCHEMA.name) is not None
    if format_ == _JSON and not is_given:
        fields.require(_SCHEMA)
    elif format_ != _JSON and is_given:
        problems.add(fields.at(_SCHEMA.name), "schema belongs to format: json")
    return schema
