"""`type: table`: rows of a table, in place of results in Kafka."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, get_args

from msgspec import structs

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.expansion import REFERENCE_PATTERN, has_references
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
from kafka_pipeline.common.config.table_paths import PathError, location_of
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.specs import (
    DEFAULT_TABLE_COMMIT_INTERVAL_MS,
    RecordPart,
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
from kafka_pipeline.streams.sql.spec import Queries

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
    doc="for `delta`: the folder of the table, or its URI, such as `s3://bucket/orders`; "
    "config.yaml must allow it as one of `tables.write_paths`",
    about="the folder of the table, or its URI",
)
_URL = Text(
    name="url",
    doc="for `postgres`: the database, as `postgresql://host:5432/database`, or one reference; "
    "config.yaml must allow it as one of `tables.write_urls`",
    about="the database, as postgresql://host:5432/database",
)
_TABLE = Text(
    name="table",
    doc="for `postgres`: the name of the table, or `schema.name`",
    about="the name of the table, or schema.name",
    pattern=r"^[^.\s]+(\.[^.\s]+)?$",
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
    doc="whether each record is a row, or replaces the row with its `key`",
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
    doc="for `delta`: columns by which the files of the table are divided",
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
_PACKAGES: Mapping[TableFormat, str] = {"delta": "deltalake", "postgres": "psycopg"}
_OF_FILES: Sequence[ConfigKey] = (_PATH, _PARTITION_BY)
_OF_DATABASES: Sequence[ConfigKey] = (_URL, _TABLE, _USER, _PASSWORD)


def _rule(format_: TableFormat, needs: Sequence[ConfigKey], refuses: Sequence[ConfigKey]) -> Schema:
    """Return the condition that a format needs and refuses other keys."""
    return {
        "if": {"properties": {_FORMAT.name: {"const": format_}}, "required": [_FORMAT.name]},
        "then": {"required": [*names(needs)], "properties": dict.fromkeys(names(refuses), False)},
    }


class TableSink(Kind[TableSinkSpec]):
    """`type: table`."""

    spec = TableSinkSpec
    doc = "writes rows of a table, each record once"
    takes_records_as_they_are = True
    refused_settings = ("key", "value")
    has_columns = True
    own_keys = (
        *(_FORMAT, *_OF_FILES, *_OF_DATABASES, _MODE, _KEY),
        *(_SCHEMA, _EVOLVE, _RECORD_COLUMNS, _COMMIT_INTERVAL),
    )
    rules = (
        _rule("delta", [_PATH], _OF_DATABASES),
        _rule(_POSTGRES, [_URL, _TABLE], _OF_FILES),
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
        """See `Kind`."""
        of_records = fields.submap(_RECORD_COLUMNS)
        format_, mode = fields.choice(_FORMAT), fields.choice(_MODE)
        in_database = format_ == _POSTGRES
        spec = TableSinkSpec(
            format=format_,
            path=fields.text(replace(_PATH, required=not in_database)),
            url=fields.text(replace(_URL, required=in_database)),
            table=fields.text(replace(_TABLE, required=in_database)),
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
        for key in (_PATH, _URL, _USER, _PASSWORD):
            if (value := fields.get(key.name)) is not None:
                check_value(key.name, value, problems)
        for other in _OF_FILES if in_database else _OF_DATABASES:
            if fields.get(other.name) is not None:
                problems.add(fields.at(other.name), f"format: {format_} takes no {other.name}")
        if spec.table and not re.fullmatch(_TABLE.pattern, spec.table):
            problems.add(fields.at(_TABLE.name), "table must be a name, or schema.name")
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
            package = _PACKAGES[spec.format]
            try:
                import_module(package)
            except ImportError as error:
                problems.add(
                    entry.at,
                    f'"{entry.id}": format: {spec.format} needs the package {package} here and '
                    f'where its tasks run, pip install "kafka-pipeline[tables]": {error}',
                )

    def misfits(self, spec: TableSinkSpec, columns: Mapping[str, Any]) -> Sequence[str]:
        """See `Kind`."""
        from kafka_pipeline.streams.tables.columns import columns_of
        from kafka_pipeline.streams.tables.results import misfits

        return misfits(columns_of(spec.schema, spec.record_columns).of_values, columns)

    def located(self, spec: TableSinkSpec, settings: TableSettings) -> TableSinkSpec:
        """See `Kind`."""
        if spec.format == _POSTGRES:
            # Where its tasks run, the URL has a value in place of a reference.
            if not has_references(spec.url) and not settings.allows_writes(spec.url):
                raise ConfigError(
                    "url is not allowed by tables: {write_urls: […]} of config.yaml; parameters "
                    "must be the same too"
                )
            return spec
        try:
            location = location_of(spec.path, settings.folder)
        except PathError as error:
            raise ConfigError(f"path {error}") from None
        if location.pattern:
            raise ConfigError("path has wildcards: name one folder")
        if problem := settings.write_problem(location):
            raise ConfigError(f'path "{spec.path}" {problem}')
        return structs.replace(
            spec, path=str(location.path) if location.is_on_host else location.uri
        )

    def supplier(
        self, unit: Unit, spec: TableSinkSpec, code: UserCode, queries: Queries | None
    ) -> Supplier:
        """See `Kind`."""
        from kafka_pipeline.streams.tables.processor import TableProcessor

        return partial(TableProcessor, spec, unit.name)


def _column_problem(spec: TableSinkSpec) -> str | None:
    from kafka_pipeline.streams.tables.columns import ColumnsError, columns_of
    from kafka_pipeline.streams.tables.postgres_values import name_problem, type_of

    try:
        columns = columns_of(spec.schema, spec.record_columns)
    except ColumnsError as error:
        return f"schema: {error}"
    try:
        columns = columns.keyed(spec.key) if spec.key else columns
    except ColumnsError as error:
        return f"key: {error}"
    found = columns.schema.names
    if spec.format == _POSTGRES:
        if problem := name_problem([*found, *spec.table.split(".")]):
            return problem
        nested = [field.name for field in columns.schema if type_of(field.type) is None]
        if nested:
            return (
                f'schema: column "{nested[0]}" is an ARRAY, a MAP or a STRUCT, which format: '
                f"{_POSTGRES} cannot write"
            )
    unknown = [name for name in spec.partition_by if name not in found]
    if unknown:
        return f'partition_by: "{unknown[0]}" is not a column'
    if len(set(spec.partition_by)) == len(found):
        return "partition_by: name fewer than all columns"
    return None
