"""Processors that Spark runs: `type: sql` and `type: dataframe`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, ClassVar, TypeVar

from common.config import Config
from common.fields import Fields
from common.keys import Choice, Free, Key, Schema, Text, map_schema, names
from common.processors import PipelineProcessor
from common.specs import DataFrameSpec, Format, SparkSpec, SqlSpec, TableSpec
from common.yaml_positions import Map, Problems, Scalar, describe, plain
from streams.engine.nodes import Supplier
from streams.engine.user_code import UserCode
from streams.pipeline.kinds.entry import Entry, PipelineFile
from streams.pipeline.kinds.groups import (
    GROUP_KEYS,
    GROUP_RULES,
    check_late,
    read_grouping,
    with_groups,
)
from streams.pipeline.kinds.kind import (
    ARGUMENTS,
    CODE_PATTERN,
    MAX_PROCESS_TIME,
    Kind,
    Means,
    Unit,
    read_arguments,
    read_reference,
    refuse_config,
    require_allowed,
)
from streams.sql.access import table_problems
from streams.sql.spec import FORMATS, Queries, QueryError, QuerySpec, SparkLostError
from streams.sql.state_stores import state_stores
from streams.stores import StoreBuilder

Q = TypeVar("Q", bound=SparkSpec)

_INTERVAL = re.compile(r"([1-9][0-9]*)\s*(s|sec|min|h)")
_SECONDS = {"s": 1, "sec": 1, "min": 60, "h": 3600}
_VIEW = "input"
_JSON: Format = "json"
"""The one format whose values have columns."""

_QUERY = Text(
    name="query",
    doc=f"a SELECT over the view `{_VIEW}`",
    about=f"a SELECT over the view {_VIEW}",
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
_TABLE_FORMAT = Text(
    name="format",
    doc="a source of Spark that config.yaml allows, such as `parquet`, `csv` or `jdbc`",
    about="a source of Spark, such as parquet or csv",
    required=True,
)
_TABLE_PATH = Text(name="path", doc="a file or folder", default="")
_TABLE_SCHEMA = Text(name="schema", doc="the table's columns, as DDL of Spark", default="")
_TABLE_OPTIONS = Free(
    name="options",
    doc="options of Spark's source",
    of={
        "type": "object",
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    },
    says="map",
)
_REFRESH = Text(
    name="refresh_interval",
    doc="how often the table is read again, such as `10 min`; never without it",
    default="",
    pattern=rf"^{_INTERVAL.pattern}$",
)
_TABLE_KEYS: tuple[Key, ...] = (
    _TABLE_FORMAT,
    _TABLE_PATH,
    _TABLE_SCHEMA,
    _TABLE_OPTIONS,
    _REFRESH,
)
_TABLES = Free(
    name="tables",
    doc="lookup tables, by the names that the query uses",
    of={
        "type": "object",
        "propertyNames": {
            "not": {"pattern": "^[Ii][Nn][Pp][Uu][Tt]$"},
            "pattern": r"^[^0-9\s.-][^\s.-]*$",
        },
        "additionalProperties": map_schema(_TABLE_KEYS),
    },
    says="map",
    parts=tuple(replace(key, name=f"<name>.{key.name}") for key in _TABLE_KEYS),
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

    def check_code(self, entry: Entry, spec: Q, means: Means, problems: Problems) -> None:
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
    own_keys = (_QUERY, _FORMAT, _SCHEMA, _TABLES, *GROUP_KEYS, MAX_PROCESS_TIME)
    rules = (*_Spark.rules, *GROUP_RULES)

    def read(self, fields: Fields, problems: Problems) -> SqlSpec:
        """See `Kind`."""
        refuse_config(self.spec.type, fields, problems)
        format_ = fields.choice(_FORMAT)
        query = fields.text(_QUERY)
        return SqlSpec(
            query=query,
            grouping=read_grouping(fields, query, problems),
            format=format_,
            schema=_schema(fields, format_, problems),
            tables=_tables(fields, problems),
            max_process_time_ms=fields.number(MAX_PROCESS_TIME),
        )

    def check(self, entry: Entry, spec: SqlSpec, file: PipelineFile, problems: Problems) -> None:
        """See `Kind`."""
        super().check(entry, spec, file, problems)
        check_late(entry, spec, file, problems)

    def processors(
        self, entry: Entry, spec: SqlSpec, file: PipelineFile, config: Config, problems: Problems
    ) -> list[PipelineProcessor]:
        """See `Kind`: two for a query whose groups have records with different keys."""
        (found,) = super().processors(entry, spec, file, config, problems)
        if spec.grouping is None:
            return [found]
        names = config.topic_names
        return with_groups(found, spec.grouping, file, names, problems, entry)

    def takes_inputs_as_they_come(self, spec: SqlSpec) -> bool:
        """See `Kind`: with windows, the order of time says what is late."""
        return spec.grouping is None or spec.grouping.window is None

    def stores(self, spec: SqlSpec) -> Sequence[StoreBuilder[Any, Any]]:
        """See `Kind`."""
        return () if spec.grouping is None else state_stores(spec.grouping)

    def try_out(self, spec: SqlSpec, queries: Queries) -> None:
        """See `_Spark`."""
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
        grouping = spec.grouping
        if grouping is None:
            return super().supplier(unit, spec, code, queries)
        from streams.sql.aggregating import MergedRows, RowsOfGroups, WholeAggregation

        assert queries is not None, "only hosts with a Spark run such a processor"
        made = {"whole": WholeAggregation, "rows": RowsOfGroups, "groups": MergedRows}
        results = tuple(target for target in unit.to if target != grouping.late_to)
        opened = queries.open_aggregation
        return partial(made[grouping.stage], self.query(spec), grouping, results, opened)

    def query(self, spec: SqlSpec) -> QuerySpec:
        """See `_Spark`."""
        return QuerySpec(
            query=spec.query, format=spec.format, schema=spec.schema, tables=_as_json(spec)
        )


class DataFrame(_Spark[DataFrameSpec]):
    """`type: dataframe`."""

    spec = DataFrameSpec
    doc = "a Python function of Spark's DataFrame"
    own_keys = (_FUNCTION, _FORMAT, _SCHEMA, _TABLES, MAX_PROCESS_TIME)
    config = ARGUMENTS

    def read(self, fields: Fields, problems: Problems) -> DataFrameSpec:
        """See `Kind`."""
        format_ = fields.choice(_FORMAT)
        return DataFrameSpec(
            code=read_reference(fields, _FUNCTION, problems),
            config=read_arguments(fields.pairs(ARGUMENTS), problems),
            format=format_,
            schema=_schema(fields, format_, problems),
            tables=_tables(fields, problems),
            max_process_time_ms=fields.number(MAX_PROCESS_TIME),
        )

    def check_code(
        self, entry: Entry, spec: DataFrameSpec, means: Means, problems: Problems
    ) -> None:
        """See `Kind`."""
        if spec.code:
            require_allowed(spec.code, entry, means.config, problems)
        super().check_code(entry, spec, means, problems)

    def query(self, spec: DataFrameSpec) -> QuerySpec:
        """See `_Spark`."""
        return QuerySpec(
            function=spec.code,
            format=spec.format,
            schema=spec.schema,
            tables=_as_json(spec),
            config=spec.config,
        )


def _as_json(spec: SparkSpec) -> dict[str, dict[str, Any]]:
    return {name: asdict(table) for name, table in spec.tables.items()}


def _schema(fields: Fields, format_: Format, problems: Problems) -> str:
    schema = fields.text(_SCHEMA)
    is_given = fields.get(_SCHEMA.name) is not None
    if format_ == _JSON and not is_given:
        fields.require(_SCHEMA)
    elif format_ != _JSON and is_given:
        problems.add(fields.at(_SCHEMA.name), "schema belongs to format: json")
    return schema


def _tables(fields: Fields, problems: Problems) -> dict[str, TableSpec]:
    tables: dict[str, TableSpec] = {}
    for pair in fields.pairs(_TABLES):
        if not pair.key.isidentifier() or pair.key.lower() == _VIEW:
            problems.add(pair.at, f'"{pair.key}" cannot be the name of a table')
        if not isinstance(pair.value, Map):
            problems.add(
                pair.value, f"a table must be a map with format, got {describe(pair.value)}"
            )
            continue
        table = Fields(pair.value.pairs, problems, at=pair.value, known=names(_TABLE_KEYS))
        tables[pair.key] = TableSpec(
            format=table.text(_TABLE_FORMAT),
            path=table.text(_TABLE_PATH),
            schema=table.text(_TABLE_SCHEMA),
            options=_options(table, problems),
            refresh_s=_interval(table, problems),
        )
    return tables


def _options(table: Fields, problems: Problems) -> dict[str, str]:
    options = {}
    for pair in table.pairs(_TABLE_OPTIONS):
        if not isinstance(pair.value, Scalar) or pair.value.value is None:
            problems.add(pair.value, f"option {pair.key} must be one value")
            continue
        value = plain(pair.value)
        options[pair.key] = str(value).lower() if isinstance(value, bool) else str(value)
    return options


def _interval(table: Fields, problems: Problems) -> int:
    """Return the refresh interval in seconds; 0 if the table is read only once."""
    text = table.text(_REFRESH)
    if not text:
        return 0
    found = _INTERVAL.fullmatch(text)
    if found is None:
        problems.add(
            table.at(_REFRESH.name),
            f'refresh_interval must be a time such as "30 s", "10 min" or "1 h", got "{text}"',
        )
        return 0
    return int(found[1]) * _SECONDS[found[2]]
