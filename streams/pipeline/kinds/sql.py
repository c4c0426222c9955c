"""Queries that Spark runs: `type: sql`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import structs

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import Text
from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.pipelines.specs import SqlSpec
from kafka_pipeline.streams.engine.nodes import Supplier
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile
from kafka_pipeline.streams.pipeline.kinds.group_keys import GROUP_KEYS, grouping_of_query
from kafka_pipeline.streams.pipeline.kinds.groups import check_late, with_late
from kafka_pipeline.streams.pipeline.kinds.joins import (
    SCHEMAS,
    check_join,
    read_joining,
    read_schemas,
)
from kafka_pipeline.streams.pipeline.kinds.kept_state import kept_sides
from kafka_pipeline.streams.pipeline.kinds.kind import (
    MAX_PROCESS_TIME,
    MAX_TASK_IDLE,
    Means,
    Unit,
    refuse_config,
)
from kafka_pipeline.streams.pipeline.kinds.spark import (
    FORMAT,
    LENIENT,
    Spark,
    query_of,
    read_lenient,
    read_schema,
)
from kafka_pipeline.streams.pipeline.kinds.tables import TABLES, VIEW, read_tables
from kafka_pipeline.streams.sql.query_text import read_groups
from kafka_pipeline.streams.sql.spec import Queries, QuerySpec
from kafka_pipeline.streams.sql.state_stores import join_stores
from kafka_pipeline.streams.stores import StoreBuilder

_QUERY = Text(
    name="query",
    doc=f"a SELECT over `{VIEW}`, the records of all inputs; a single input also has its own name",
    about=f"a SELECT over the view {VIEW}, or over the name of the input",
    required=True,
)


class Sql(Spark[SqlSpec]):
    """`type: sql`."""

    spec = SqlSpec
    doc = "a query on Spark"
    own_keys = (
        *(_QUERY, FORMAT, SCHEMAS, LENIENT, TABLES),
        *(*GROUP_KEYS, MAX_TASK_IDLE, MAX_PROCESS_TIME),
    )

    def read(self, fields: Fields, problems: Problems) -> SqlSpec:
        """See `Kind`."""
        refuse_config(self.spec.type, fields, problems)
        format_ = fields.choice(FORMAT)
        query = fields.text(_QUERY)
        tables = read_tables(fields, problems)
        join = read_joining(fields, query, tables.names, problems)
        schemas = read_schemas(fields, problems)
        return SqlSpec(
            query=query,
            grouping=None if join else grouping_of_query(fields, query, tables.names, problems),
            join=join,
            format=format_,
            schema=read_schema(fields, format_, problems, schemas),
            schemas=schemas,
            lenient=read_lenient(fields, format_, problems),
            tables=tables.by_spark,
            topic_tables=tables.of_topics,
            max_task_idle_ms=fields.number(MAX_TASK_IDLE),
            max_process_time_ms=fields.number(MAX_PROCESS_TIME),
        )

    def check(self, entry: Entry, spec: SqlSpec, file: PipelineFile, problems: Problems) -> None:
        """See `Kind`."""
        super().check(entry, spec, file, problems)
        if spec.join is not None:
            check_late(entry, spec.join.late_to, file, problems)
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
        found = structs.replace(spec, inputs=file.inputs(entry))
        super().check_code(entry, found, file, means, problems)

    def processors(
        self, entry: Entry, spec: SqlSpec, file: PipelineFile, config: Config, problems: Problems
    ) -> list[PipelineProcessor]:
        """See `Kind`."""
        spec = structs.replace(spec, inputs=file.inputs(entry))
        found = super().processors(entry, spec, file, config, problems)
        if spec.join is None:
            return found
        return [with_late(each, spec.join.late_to, file) for each in found]

    def takes_inputs_as_they_come(self, spec: SqlSpec) -> bool:
        """See `Kind`: in joins, the order of time says what is late."""
        return spec.join is None and super().takes_inputs_as_they_come(spec)

    def stores(self, spec: SqlSpec) -> Sequence[StoreBuilder[Any, Any]]:
        """See `Kind`."""
        return super().stores(spec) if spec.join is None else join_stores(spec.join)

    def keeps(self, spec: SqlSpec) -> Sequence[str]:
        """See `Kind`."""
        return super().keeps(spec) if spec.join is None else (kept_sides(spec.join),)

    def holds_ms(self, spec: SqlSpec) -> int:
        """See `Kind`: rows without a partner wait."""
        join = spec.join
        if join is None:
            return super().holds_ms(spec)
        reach_ms = max(join.after_ms, join.before_ms, 0)
        return reach_ms + join.grace_ms + 1 if join.keeps else 0

    def rows_of_groups(self, spec: SqlSpec) -> str:
        """See `Spark`."""
        groups = read_groups(spec.query, [*spec.tables, *spec.topic_tables])
        assert groups is not None, "there is a grouping"
        what = "the best rows" if groups.is_numbered else "a row"
        return f"{what} for each {', '.join(groups.columns)}"

    def try_out(self, spec: SqlSpec, queries: Queries) -> None:
        """See `Spark`."""
        if spec.join is None:
            super().try_out(spec, queries)
            return
        from kafka_pipeline.streams.sql.join_processor import require_join_as_planned

        join = queries.open_join(self.query(spec))
        try:
            require_join_as_planned(join.shape.join, spec.join)
        finally:
            join.close()

    def supplier(
        self, unit: Unit, spec: SqlSpec, code: UserCode, queries: Queries | None
    ) -> Supplier:
        """See `Kind`."""
        join = spec.join
        if join is None:
            return super().supplier(unit, spec, code, queries)
        assert queries is not None, "only hosts with a Spark run such a processor"
        from kafka_pipeline.streams.sql.join_processor import JoinProcessor

        names = [name.lower() for name in unit.from_]
        right = unit.in_topics[names.index(join.right)]
        results = tuple(target for target in unit.to if target != join.late_to)
        query = replace(self.query(spec), processor=unit.name)
        return partial(JoinProcessor, query, join, right, results, queries.open_join)

    def query(self, spec: SqlSpec) -> QuerySpec:
        """See `Spark`."""
        return replace(query_of(spec), query=spec.query, inputs=spec.inputs, schemas=spec.schemas)
