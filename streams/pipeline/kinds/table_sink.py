"""`type: table`: rows of a table, in place of results in Kafka."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, get_args

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.expansion import REFERENCE_PATTERN
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import (
    Choice,
    ConfigKey,
    Number,
    Schema,
    Section,
    Text,
    Texts,
    names,
)
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.history import RecordPart
from kafka_pipeline.common.pipelines.specs import (
    DEFAULT_TABLE_COMMIT_INTERVAL_MS,
    TableEvolution,
    TableFormat,
    TableMode,
    TableSinkSpec,
)
from kafka_pipeline.streams.engine.nodes import Supplier
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile
from kafka_pipeline.streams.pipeline.kinds.kind import (
    FROM,
    ID,
    MAX_DEAD_LETTERS,
    NO_LIMIT,
    ON_ERROR,
    TYPE,
    Kind,
    Means,
    Unit,
)
from kafka_pipeline.streams.pipeline.kinds.references import check_value
from kafka_pipeline.streams.pipeline.kinds.table_places import CATALOG_TYPE, NAME, SQL, located
from kafka_pipeline.streams.sql.spec import Queries

_ICEBERG: TableFormat = "iceberg"
_PARQUET: TableFormat = "parquet"
_POSTGRES: TableFormat = "postgres"
_UPSERT: TableMode = "upsert"
_FORMAT: Choice[TableFormat] = Choice(
    name="format",
    doc="what the table is",
    about="such as delta",
    choices=get_args(TableFormat),
    required=True,
)
_PATH = Text(
    name="path",
    doc="for `delta` and `parquet`: the folder of the table, or for `delta` its URI, such as "
    "`s3://bucket/orders`; config.yaml must allow it as one of `tables.write_paths`",
    about="the folder of the table, or its URI",
)
_WAREHOUSE = Text(
    name="warehouse",
    doc="for `sql`: the folder of the tables, or its URI; for `rest`: the server's name for the "
    "warehouse",
    default="",
)
_SECRET = Text(
    name="", doc="as in PyIceberg, given as `${NAME}` or `${file:PATH}`", pattern=REFERENCE_PATTERN
)
_CATALOG_KEYS: Sequence[Text | Choice[str]] = (
    CATALOG_TYPE,
    Text(
        name="uri",
        doc="`sqlite:///FILE`, `postgresql://host:5432/database` or `https://host/catalog`; may "
        "have references",
        about="where the catalog is, such as https://host/catalog",
        required=True,
    ),
    _WAREHOUSE,
    Text(name="name", doc="the name of the catalog, by which `sql` finds tables", default=NAME),
    *(replace(_SECRET, name=name) for name in ("credential", "token")),
    *(
        Text(name=name, doc="as in PyIceberg", default="")
        for name in ("scope", "audience", "resource", "s3.region")
    ),
    *(
        replace(_SECRET, name=f"s3.{name}")
        for name in ("access-key-id", "secret-access-key", "session-token")
    ),
)
_CATALOG = Section(
    name="catalog",
    doc="for `iceberg`: properties of the catalog by PyIceberg's names. config.yaml must allow "
    "folders by `tables.write_paths`, and servers by `tables.write_urls`",
    about="the catalog, as type, uri and more",
    keys=_CATALOG_KEYS,
)
_URL = Text(
    name="url",
    doc="for `postgres`: the database, as `postgresql://host:5432/database`, or one reference; "
    "config.yaml must allow it as one of `tables.write_urls`",
    about="the database, as postgresql://host:5432/database",
)
_TABLE = Text(
    name="table",
    doc="for `postgres`: the name of the table, or `schema.name`; for `iceberg`, `namespace.name`",
    about="the name of the table, with its schema or namespace in front",
)
_USER = Text(
    name="user", doc="for `postgres`: the user; may be `${NAME}` or `${file:PATH}`", default=""
)
_PASSWORD = Text(
    name="password",
    doc="for `postgres`: the password, as `${NAME}` or `${file:PATH}`",
    default="",
    pattern=REFERENCE_PATTERN,
)
_MODE: Choice[TableMode] = Choice(
    name="mode",
    doc="whether each record is a row, or replaces the row with its `key`; `iceberg` and "
    "`parquet` have only `append`",
    choices=get_args(TableMode),
    default="append",
)
_KEY = Texts(
    name="key",
    doc="for `upsert`: the columns that name a row; a null value deletes the row that the record's "
    "key names",
)
_SCHEMA = Text(
    name="schema",
    doc="the columns of the JSON values, as DDL of Spark, such as `id BIGINT NOT NULL, name "
    "STRING`",
    about='the columns of the JSON values, such as "id BIGINT NOT NULL, name STRING"',
    required=True,
)
_EVOLVE: Choice[TableEvolution] = Choice(
    name="evolve",
    doc="what happens if an existing table lacks columns of the schema: the task fails, or it adds "
    "those that may be null",
    choices=get_args(TableEvolution),
    default="refuse",
)
_PARTITION_BY = Texts(
    name="partition_by",
    doc="for `delta` and `iceberg`: columns by which the files of the table are divided",
)
_PARTS: Mapping[RecordPart, Text] = {
    "key": Text(name="key", doc="the column of the key, a STRING", default=""),
    "timestamp": Text(name="timestamp", doc="the column of the time, a TIMESTAMP", default=""),
    "partition": Text(name="partition", doc="the column of the partition, an INT", default=""),
    "offset": Text(name="offset", doc="the column of the offset, a BIGINT", default=""),
}
_RECORD_COLUMNS = Section(
    name="record_columns",
    doc="columns for parts of the records themselves, after those of the schema",
    keys=tuple(_PARTS.values()),
)
_COMMIT_INTERVAL = Number(
    name="commit_interval_ms",
    doc="how often a task commits to the table, in place of `commit_interval_ms` of config.yaml",
    low=1,
    high=NO_LIMIT,
    default=DEFAULT_TABLE_COMMIT_INTERVAL_MS,
)
_PACKAGES: Mapping[TableFormat, str] = {
    "delta": "deltalake",
    "iceberg": "pyiceberg",
    "postgres": "psycopg",
}
_PLACES: Sequence[ConfigKey] = (_PATH, _CATALOG, _URL, _TABLE, _USER, _PASSWORD, _PARTITION_BY)
_NEEDED: Mapping[TableFormat, Sequence[ConfigKey]] = {
    "delta": (_PATH,),
    _ICEBERG: (_CATALOG, _TABLE),
    _PARQUET: (_PATH,),
    _POSTGRES: (_URL, _TABLE),
}
_TAKEN: Mapping[TableFormat, Sequence[ConfigKey]] = {
    "delta": (_PARTITION_BY,),
    _ICEBERG: (_PARTITION_BY,),
    _PARQUET: (),
    _POSTGRES: (_USER, _PASSWORD),
}
_NO_UPSERTS: Mapping[TableFormat, str] = {
    _ICEBERG: "PyIceberg writes no files of deletions, so each commit would read the whole table, "
    "and write most of it again",
    _PARQUET: "readers know files by their names alone, so none is ever changed",
}
"""Why formats cannot replace rows."""


_NAMES: Mapping[TableFormat, tuple[str, str]] = {
    _ICEBERG: (r"[^.\s]+(\.[^.\s]+)+", "namespace.name"),
    _POSTGRES: (r"[^.\s]+(\.[^.\s]+)?", "a name, or schema.name"),
}
"""The patterns of names of tables, and what they allow."""


def _refused(format_: TableFormat) -> Sequence[ConfigKey]:
    """Return the keys of other formats."""
    known = (*_NEEDED[format_], *_TAKEN[format_])
    return [key for key in _PLACES if key not in known]


def _rule(format_: TableFormat) -> Schema:
    """Return the condition that a format needs keys, and refuses those of others."""
    rules: Schema = dict.fromkeys(names(_refused(format_)), False)
    if _TABLE in _NEEDED[format_]:
        rules[_TABLE.name] = {"pattern": f"^{_NAMES[format_][0]}$"}
    return {
        "if": {"properties": {_FORMAT.name: {"const": format_}}, "required": [_FORMAT.name]},
        "then": {"required": [*names(_NEEDED[format_])], "properties": rules},
    }


class TableSink(Kind[TableSinkSpec]):
    """`type: table`."""

    spec = TableSinkSpec
    doc = "writes rows of a table, each record once"
    takes_records_as_they_are = True
    refused_settings = ("key", "value")
    has_columns = True
    own_keys = (
        *(_FORMAT, *_PLACES, _MODE, _KEY),
        *(_SCHEMA, _EVOLVE, _RECORD_COLUMNS, _COMMIT_INTERVAL),
    )
    rules = (
        *map(_rule, _NEEDED),
        {
            "if": {
                "properties": {_FORMAT.name: {"enum": [*_NO_UPSERTS]}},
                "required": [_FORMAT.name],
            },
            "then": {"properties": {_MODE.name: {"const": "append"}}},
        },
        {
            "if": {
                "properties": {
                    _CATALOG.name: {
                        "properties": {CATALOG_TYPE.name: {"const": SQL}},
                        "required": [CATALOG_TYPE.name],
                    }
                },
                "required": [_CATALOG.name],
            },
            "then": {"properties": {_CATALOG.name: {"required": [_WAREHOUSE.name]}}},
        },
        {
            "if": {"properties": {_MODE.name: {"const": _UPSERT}}, "required": [_MODE.name]},
            "then": {"required": [_KEY.name], "properties": {_KEY.name: {"minItems": 1}}},
            "else": {"properties": {_KEY.name: False}},
        },
    )

    @property
    def keys(self) -> Sequence[ConfigKey]:
        """See `Kind`. The table knows its rows by the processor's id, so there is no `was`."""
        return (ID, TYPE, FROM, ON_ERROR, MAX_DEAD_LETTERS, *self.own_keys)

    def read(self, fields: Fields, problems: Problems) -> TableSinkSpec:
        of_records = fields.submap(_RECORD_COLUMNS)
        format_, mode = fields.choice(_FORMAT), fields.choice(_MODE)
        needed = _NEEDED[format_]
        spec = TableSinkSpec(
            format=format_,
            path=fields.text(replace(_PATH, required=_PATH in needed)),
            catalog=_read_catalog(fields, problems) if _CATALOG in needed else {},
            url=fields.text(replace(_URL, required=_URL in needed)),
            table=fields.text(replace(_TABLE, required=_TABLE in needed)),
            user=fields.text(_USER),
            password=fields.text(_PASSWORD),
            mode=mode,
            key=fields.texts(_KEY),
            schema=fields.text(_SCHEMA),
            evolve=fields.choice(_EVOLVE),
            partition_by=fields.texts(_PARTITION_BY),
            record_columns={
                part: name for part, key in _PARTS.items() if (name := of_records.text(key))
            },
            commit_interval_ms=fields.number(_COMMIT_INTERVAL),
        )
        for key in (_PATH, _CATALOG, _URL, _USER, _PASSWORD):
            if (value := fields.get(key.name)) is not None:
                check_value(key.name, value, problems)
        for other in _refused(format_):
            if fields.get(other.name) is not None:
                problems.add(fields.at(other.name), f"format: {format_} takes no {other.name}")
        if spec.table and _TABLE in needed and not re.fullmatch(_NAMES[format_][0], spec.table):
            problems.add(fields.at(_TABLE.name), f"table must be {_NAMES[format_][1]}")
        if mode == _UPSERT and format_ in _NO_UPSERTS:
            problems.add(
                fields.at(_MODE.name),
                f"format: {format_} has no mode: {_UPSERT}: {_NO_UPSERTS[format_]}. Write a Delta "
                "table, or append",
            )
        if mode == _UPSERT and not spec.key:
            problems.add(
                fields.at(_KEY.name), "mode: upsert needs key: the columns that name a row"
            )
        if mode != _UPSERT and fields.get(_KEY.name) is not None:
            problems.add(fields.at(_KEY.name), "key belongs to mode: upsert")
        return spec

    def check(
        self, entry: Entry, spec: TableSinkSpec, file: PipelineFile, problems: Problems
    ) -> None:
        """Report wrong columns, several inputs, and a source that is read from its end.

        Nothing would say which records the table lacks on purpose.
        """
        super().check(entry, spec, file, problems)
        if spec.schema and (problem := _column_problem(spec)):
            problems.add(entry.at, f'"{entry.id}": {problem}')
        inputs = file.inputs(entry)
        if len(inputs) > 1:
            problems.add(
                entry.at,
                f'"{entry.id}" has several inputs, {", ".join(inputs)}: a table has one. Let a '
                "processor of type forward bring them together",
            )
        for name in inputs:
            source = file.source_specs.get(name)
            if source is not None and source.auto_offset_reset == "latest":
                problems.add(
                    entry.at,
                    f'"{entry.id}" reads "{name}" with auto_offset_reset: latest, but a table has '
                    "all records: leave it out",
                )

    def check_code(
        self,
        entry: Entry,
        spec: TableSinkSpec,
        file: PipelineFile,
        means: Means,
        problems: Problems,
    ) -> None:
        """Report a place that config.yaml does not allow, and a package that is missing here."""
        try:
            self.located(spec, means.config.tables)
        except ConfigError as error:
            problems.add(entry.at, f'"{entry.id}": {error}')
        if means.imports_classes:
            package = _PACKAGES.get(spec.format)
            try:
                if package is not None:
                    import_module(package)
            except ImportError as error:
                problems.add(
                    entry.at,
                    f'"{entry.id}": format: {spec.format} needs the package {package} here and '
                    f'where its tasks run, pip install "kafka-pipeline[tables]": {error}',
                )

    def misfits(self, spec: TableSinkSpec, columns: Mapping[str, Any]) -> Sequence[str]:
        from kafka_pipeline.streams.tables.columns import columns_of
        from kafka_pipeline.streams.tables.results import misfits

        return misfits(columns_of(spec.schema, spec.record_columns).of_values, columns)

    def located(self, spec: TableSinkSpec, settings: TableSettings) -> TableSinkSpec:
        return located(spec, settings)

    def supplier(
        self, unit: Unit, spec: TableSinkSpec, code: UserCode, queries: Queries | None
    ) -> Supplier:
        from kafka_pipeline.streams.tables.processor import TableProcessor

        return partial(TableProcessor, spec, unit.name)


def _read_catalog(fields: Fields, problems: Problems) -> Mapping[str, str]:
    """Return the properties of a catalog that are given; what is wrong goes to `problems`.

    Others name classes and further servers, to which secrets would be sent. PyIceberg reads them
    from the environment of the TaskManager.
    """
    if fields.require(_CATALOG) is None:
        return {}
    given = fields.submap(_CATALOG)
    found = {
        key.name: given.choice(key) if isinstance(key, Choice) else given.text(key)
        for key in _CATALOG_KEYS
    }
    if found[CATALOG_TYPE.name] == SQL and not found[_WAREHOUSE.name]:
        problems.add(fields.at(_CATALOG.name), f"{_CATALOG.name}: type: {SQL} needs a warehouse")
    return {name: text for name, text in found.items() if text}


def _column_problem(spec: TableSinkSpec) -> str | None:
    from kafka_pipeline.streams.tables.columns import ColumnsError, columns_of
    from kafka_pipeline.streams.tables.partitions import column_problem
    from kafka_pipeline.streams.tables.postgres_values import name_problem

    try:
        columns = columns_of(spec.schema, spec.record_columns)
    except ColumnsError as error:
        return f"schema: {error}"
    try:
        columns = columns.keyed(spec.key) if spec.key else columns
    except ColumnsError as error:
        return f"key: {error}"
    found = columns.schema.names
    if spec.format == _POSTGRES and (problem := name_problem([*found, *spec.table.split(".")])):
        return problem
    unknown = [name for name in spec.partition_by if name not in found]
    if unknown:
        return f'partition_by: "{unknown[0]}" is not a column'
    divided = [columns.schema.field(name) for name in spec.partition_by]
    if (problem := column_problem(spec.format, divided)) is not None:
        return f"partition_by: {problem}"
    if len(set(spec.partition_by)) == len(found):
        return "partition_by: name fewer than all columns"
    return None
