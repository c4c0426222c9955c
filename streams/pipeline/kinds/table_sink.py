"""`type: table`: rows of a table, in place of results in Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import get_args

from msgspec import structs

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import (
    Choice,
    ConfigKey,
    Number,
    Section,
    Text,
    Texts,
)
from kafka_pipeline.common.config.table_paths import PathError, location_of
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.specs import (
    DEFAULT_TABLE_COMMIT_INTERVAL_MS,
    RecordPart,
    TableFormat,
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

_FORMAT: Choice[TableFormat] = Choice(
    name="format",
    doc="what the table is",
    about="such as delta",
    choices=get_args(TableFormat),
    required=True,
)
_PATH = Text(
    name="path",
    doc="the folder of the table, or its URI, such as `s3://bucket/orders`; config.yaml must allow "
    "it as one of `tables.write_paths`",
    about="the folder of the table, or its URI",
    required=True,
)
_SCHEMA = Text(
    name="schema",
    doc="the columns of the JSON values, as DDL of Spark, such as `id BIGINT NOT NULL, name "
    "STRING`",
    about='the columns of the JSON values, such as "id BIGINT NOT NULL, name STRING"',
    required=True,
)
_PARTITION_BY = Texts(
    name="partition_by", doc="columns by which the files of the table are divided"
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


class TableSink(Kind[TableSinkSpec]):
    """`type: table`."""

    spec = TableSinkSpec
    doc = "appends rows to a table, each record once"
    takes_records_as_they_are = True
    refused_settings = ("key", "value")
    own_keys = (_FORMAT, _PATH, _SCHEMA, _PARTITION_BY, _RECORD_COLUMNS, _COMMIT_INTERVAL)

    @property
    def keys(self) -> Sequence[ConfigKey]:
        """See `Kind`. The table knows its rows by the processor's id, so there is no `was`."""
        return (ID, TYPE, FROM, ON_ERROR, MAX_DEAD_LETTERS, *self.own_keys)

    def read(self, fields: Fields, problems: Problems) -> TableSinkSpec:
        """See `Kind`."""
        of_records = fields.submap(_RECORD_COLUMNS)
        spec = TableSinkSpec(
            format=fields.choice(_FORMAT),
            path=fields.text(_PATH),
            schema=fields.text(_SCHEMA),
            partition_by=fields.texts(_PARTITION_BY),
            record_columns={
                part: name for part, key in _PARTS.items() if (name := of_records.text(key))
            },
            commit_interval_ms=fields.number(_COMMIT_INTERVAL),
        )
        if (path := fields.get(_PATH.name)) is not None:
            check_value(_PATH.name, path, problems)
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
        """Report a place that config.yaml does not allow."""
        try:
            self.located(spec, means.config.tables)
        except ConfigError as error:
            problems.add(entry.at, f'"{entry.id}": {error}')

    def located(self, spec: TableSinkSpec, settings: TableSettings) -> TableSinkSpec:
        """See `Kind`."""
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

    try:
        names = columns_of(spec.schema, spec.record_columns).schema.names
    except ColumnsError as error:
        return f"schema: {error}"
    unknown = [name for name in spec.partition_by if name not in names]
    if unknown:
        return f'partition_by: "{unknown[0]}" is not a column'
    if len(set(spec.partition_by)) == len(names):
        return "partition_by: name fewer than all columns"
    return None
