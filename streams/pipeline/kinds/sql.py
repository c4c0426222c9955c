"""Queries that Spark runs: `type: sql`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import structs

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import Free, Text
from kafka_pipeline.common.config.yaml_positions import Map, Problems, plain
from kafka_pipeline.common.pipelines.processors import OnError, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import (
    JoinSpec,
    SqlSpec,
)
from kafka_pipeline.streams.engine.nodes import Supplier
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile
from kafka_pipeline.streams.pipeline.kinds.group_keys import (
    DEFAULT_GRACE_MS,
    EMIT,
    GRACE,
    GROUP_KEYS,
    LATE_TO,
    check_late,
    grouping_of_query,
)
from kafka_pipeline.streams.pipeline.kinds.input_columns import InputColumns
from kafka_pipeline.streams.pipeline.kinds.kind import (
    ID,
    MAX_PROCESS_TIME,
    MAX_TASK_IDLE,
    Means,
    Unit,
    refuse_config,
)
from kafka_pipeline.streams.pipeline.kinds.over_keys import processors_of_over, read_over_keys
from kafka_pipeline.streams.pipeline.kinds.query_forms import QueryForm, form_of
from kafka_pipeline.streams.pipeline.kinds.regular_joins import (
    TTL,
    joined_by,
    processors_of_join,
    read_regular_join,
    refuse_ttl,
    with_ttl,
)
from kafka_pipeline.streams.pipeline.kinds.spark import (
    FORMAT,
    LENIENT,
    OUT_VALUE,
    SCHEMA,
    Spark,
    of_groups,
    query_of,
    read_written,
)
from kafka_pipeline.streams.pipeline.kinds.stage_keys import fields_of_stages
from kafka_pipeline.streams.pipeline.kinds.tables import TABLES, VIEW, read_tables
from kafka_pipeline.streams.processor import BatchProcessor
from kafka_pipeline.streams.sql.query_text import (
    read_groups,
    read_join,
    read_stages,
    require_joined,
    require_readable,
    tables_of,
)
from kafka_pipeline.streams.sql.spec import Queries, QueryError, QuerySpec
from kafka_pipeline.streams.sql.stage import Stage
from kafka_pipeline.streams.sql.state_stores import changelog_store
from kafka_pipeline.streams.stores import StoreBuilder

_QUERY = Text(
    name="query",
    doc=f"a SELECT over `{VIEW}`, the records of all inputs; a single input also has its own name",
    about=f"a SELECT over the view {VIEW}, or over the name of the input",
    required=True,
)
_SCHEMAS = Free(
    name="schema",
    doc=f"{SCHEMA.doc}. In a join, a map may have those of each input",
    about=SCHEMA.about,
    of={
        "anyOf": [
            {"type": "string", "pattern": r"\S"},
            {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": {"type": "string", "pattern": r"\S"},
            },
        ]
    },
    says="string or map",
)


class Sql(Spark[SqlSpec]):
    """`type: sql`."""

    spec = SqlSpec
    doc = "a query on Spark"
    own_keys = (
        *(_QUERY, FORMAT, _SCHEMAS, LENIENT, OUT_VALUE, TABLES),
        *(*GROUP_KEYS, TTL, MAX_TASK_IDLE, MAX_PROCESS_TIME),
    )

    def __init__(self, views: Mapping[str, str] = {}, schemas: Mapping[str, str] = {}) -> None:
        """Take the queries of the views by name, in small letters, and the schemas of sources."""
        self._views, self._schemas = views, schemas

    def within(self, views: Mapping[str, str], schemas: Mapping[str, str]) -> Sql:
        return Sql(views, schemas)

    def read(self, fields: Fields, problems: Problems) -> SqlSpec:
        refuse_config(self.spec.type, fields, problems)
        tables = read_tables(fields, problems)
        for pair in fields.pairs(TABLES):
            if pair.key.lower() in self._views:
                problems.add(pair.at, f'table "{pair.key}" has the name of a view: rename one')
        schemas = _read_schemas(fields, problems)
        written = read_written(fields, problems, schemas)
        stages = self._stages(fields, problems)
        of_stages = fields_of_stages(fields, stages, tables, fields.text(ID))
        specs = {}
        for stage, (own, its_tables) in zip(stages, of_stages, strict=True):
            query, names = stage.query, tables.names
            join, over, grouping = None, None, None
            # Once something is wrong with the query, nothing is known of the keys that it may have.
            if not problems.found_at(fields.at(_QUERY.name)):
                join = _read_joining(own, query, names, problems)
            if not join and not problems.found_at(fields.at(_QUERY.name)):
                over = read_over_keys(own, query, names, problems)
            if not join and not over and not problems.found_at(fields.at(_QUERY.name)):
                grouping = grouping_of_query(own, query, names, problems)
            if _reads_stage(stage, stages, fields.text(ID)):
                # A null in what an earlier stage calls key is a group like others.
                grouping = grouping and structs.replace(grouping, stage="groups")
                over = over and structs.replace(over, stage="frames")
            specs[stage.name] = SqlSpec(
                query=query,
                grouping=grouping,
                join=join,
                over=over,
                format=written.format,
                schema=written.schema,
                # Of a query with a mistake, it is not known whether it joins inputs.
                schemas={} if problems.found_at(fields.at(_QUERY.name)) else schemas,
                lenient=written.lenient,
                value=written.value,
                out_value=written.out_value,
                tables=its_tables.by_spark,
                topic_tables=its_tables.of_topics,
                max_task_idle_ms=own.number(MAX_TASK_IDLE),
                max_process_time_ms=own.number(MAX_PROCESS_TIME),
            )
        last = specs.pop("")
        return structs.replace(last, stages=specs)

    def stages(self, fields: Fields, problems: Problems) -> tuple[Stage, ...]:
        found = self._stages(fields, problems)
        is_whole = len(found) == 1 and found[0].query == fields.text(_QUERY)
        return () if is_whole else tuple(found)

    def _stages(self, fields: Fields, problems: Problems) -> list[Stage]:
        query, tables = fields.text(_QUERY), [pair.key for pair in fields.pairs(TABLES)]
        try:
            columns = InputColumns(fields, self._schemas).of
            return read_stages(query, tables, fields.text(ID), self._views, columns)
        except QueryError as error:
            problems.add(fields.at(_QUERY.name), str(error))
            return [Stage.of_all(query)]

    def check(self, entry: Entry, spec: SqlSpec, file: PipelineFile, problems: Problems) -> None:
        super().check(entry, spec, file, problems)
        if spec.join is not None:
            check_late(entry, spec.join.late_to, file, problems)
        if spec.over is not None:
            check_late(entry, spec.over.late_to, file, problems)
            _check_tables(entry, spec, "a query with OVER (…)", problems)
        _check_join(entry, spec, file, problems)
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
        found = structs.replace(spec, inputs=file.inputs(entry))
        super().check_code(entry, found, file, means, problems)

    def processors(
        self, entry: Entry, spec: SqlSpec, file: PipelineFile, config: Config, problems: Problems
    ) -> list[PipelineProcessor]:
        spec = structs.replace(spec, inputs=file.inputs(entry))
        found = super().processors(entry, spec, file, config, problems)
        if spec.join is not None:
            (processor,) = found
            found = processors_of_join(processor, spec.join, file, config, problems, entry)
            return _with_strict_back(found) if spec.join.changing and len(found) > 1 else found
        if spec.over is not None:
            (processor,) = found
            return processors_of_over(processor, spec.over, file, config, problems, entry)
        return _with_strict_back(found) if spec.changelog and len(found) > 1 else found

    def takes_inputs_as_they_come(self, spec: SqlSpec) -> bool:
        """See `Kind`: in joins and frames, the order of time says what is late."""
        return form_of(spec) is None and super().takes_inputs_as_they_come(spec)

    def form(self, spec: SqlSpec) -> QueryForm | None:
        return form_of(spec)

    def input_stores(self, spec: SqlSpec) -> tuple[StoreBuilder[Any, Any], ...]:
        """See `Spark`: over a changelog, groups need the newest record of each key."""
        tables = super().input_stores(spec)
        return (*tables, changelog_store()) if _keeps_changelog(spec) else tables

    def kept_inputs(self, spec: SqlSpec) -> Sequence[str]:
        tables = super().kept_inputs(spec)
        return (*tables, "the last record of each key") if _keeps_changelog(spec) else tables

    def rows_of_groups(self, spec: SqlSpec) -> str:
        groups = read_groups(spec.query, [*spec.tables, *spec.topic_tables])
        assert groups is not None, "there is a grouping"
        what = "the best rows" if groups.is_numbered else "a row"
        return f"{what} for each {', '.join(groups.columns)}"

    def running(
        self, unit: Unit, spec: SqlSpec, query: QuerySpec, queries: Queries
    ) -> Callable[[], BatchProcessor]:
        query = replace(query, gives_columns=spec.front is not None)
        if not spec.changelog or spec.grouping is not None or form_of(spec) is not None:
            return super().running(unit, spec, query, queries)
        # Imported late: Arrow takes a while to import, and most tasks do not need it.
        from kafka_pipeline.streams.sql.changelog import PassingProcessor

        return partial(PassingProcessor, query, queries.open)

    def follower(self, unit: Unit, spec: SqlSpec, queries: Queries | None) -> Supplier | None:
        """See `Kind`: after a join, what makes rows of groups."""
        if spec.front is None or spec.front.grouping is None:
            return None
        assert queries is not None, "only hosts with a Spark run such a processor"
        query = replace(self.query(spec.front), processor=unit.name, takes_columns=True)
        return of_groups(unit, query, spec.front.grouping, queries)

    def query(self, spec: SqlSpec) -> QuerySpec:
        return replace(
            query_of(spec),
            query=spec.query,
            inputs=spec.inputs,
            schemas=spec.schemas,
            joined_by=joined_by(spec.join),
            stages={name: self.query(stage) for name, stage in spec.stages.items()},
            is_inner=spec.is_inner,
            changelog=spec.changelog,
            changing=spec.join.changing if spec.join is not None else (),
        )

    def said(self, entry: Entry, message: str) -> str:
        """See `Spark`: places in a stage become those in the whole query."""
        return entry.stages[0].placed(message) if entry.stages else message


def _with_strict_back(processors: Sequence[PipelineProcessor]) -> list[PipelineProcessor]:
    """Return the processors of a query over a changelog, the last of which rejects nothing.

    The first one keeps the rows that it sends, and takes each of them out again later. So if the
    last one rejected a row, that row would be taken out of where it never was.
    """
    *front, back = processors
    return [*front, replace(back, on_error=OnError.FAIL, max_dead_letters_per_minute=None)]


def _reads_stage(stage: Stage, stages: Sequence[Stage], id_: str) -> bool:
    """Whether a stage of the processor with an id reads another one."""
    inner = {f"{id_}.{each.name}".lower() for each in stages if each.name}
    return bool(inner) and not inner.isdisjoint(tables_of(stage.query))


def _read_schemas(fields: Fields, problems: Problems) -> dict[str, str]:
    """Return the schemas of the inputs by name; none if there is one for all."""
    value = fields.get(_SCHEMAS.name)
    if not isinstance(value, Map):
        return {}
    schemas = {}
    for pair in value.pairs:
        schema = plain(pair.value)
        if not isinstance(schema, str) or not schema.strip():
            problems.add(pair.value, f"the schema of {pair.key} must be a string")
        schemas[pair.key] = str(schema)
    return schemas


def _read_joining(
    fields: Fields, query: str, tables: Collection[str], problems: Problems
) -> JoinSpec | None:
    """Return the join of two inputs of a query with these lookup tables, or None without one."""
    try:
        join = read_join(query, tables)
        require_joined(query, tables)
        if join is None:
            if fields.get(TTL.name) is not None:
                require_readable(query, tables)
            refuse_ttl(fields, problems)
            return None
        if read_groups(query, tables) is not None:
            raise QueryError(
                "GROUP BY, DISTINCT and row_number() cannot be in the SELECT that joins two "
                "inputs: put the join into a subquery, as in SELECT … FROM (SELECT … FROM a JOIN b "
                "ON …) GROUP BY …"
            )
    except QueryError as error:
        problems.add(fields.at("query"), str(error))
        return None
    if fields.get(EMIT.name) is not None:
        problems.add(
            fields.at(EMIT.name), "emit belongs to a query with GROUP BY: leave it out in a join"
        )
    if join.regular is not None:
        return read_regular_join(fields, join, join.regular, problems)
    over_updates = None
    if fields.get(TTL.name) is not None:
        unbounded = read_join(query, tables, may_have_bounds=False)
        assert unbounded is not None, "it joins"
        assert unbounded.regular is not None, "it has no bounds"
        over_updates = with_ttl(fields, unbounded.regular, problems)
    grace_ms = fields.duration(GRACE)
    if grace_ms is None and join.keeps and over_updates is None:
        fields.require(replace(GRACE, required=True))
    return structs.replace(
        join,
        grace_ms=DEFAULT_GRACE_MS if grace_ms is None else grace_ms,
        late_to=fields.text(LATE_TO) or None,
        over_updates=over_updates,
    )


def _check_join(entry: Entry, spec: SqlSpec, file: PipelineFile, problems: Problems) -> None:
    """Report inputs other than the two that are joined, and tables that a join cannot look up."""
    join, inputs = spec.join, file.inputs(entry)
    if join is None:
        if spec.schemas:
            problems.add(
                entry.at,
                f'"{entry.id}": schema is a map, which belongs to a join of two inputs: give one '
                "schema for all of them",
            )
        return
    if spec.schemas and {*spec.schemas, *spec.stages} != set(inputs):
        problems.add(
            entry.at,
            f'"{entry.id}": schema has {" and ".join(spec.schemas)}, but the inputs are '
            f"{' and '.join(inputs)}",
        )
    where = f'"{entry.id}": the query joins {join.left} and {join.right}'
    if VIEW in (join.left, join.right):
        problems.add(
            entry.at, f"{where}, but {VIEW} has the records of all inputs: join two of them by name"
        )
    elif sorted(name.lower() for name in inputs) != sorted({join.left, join.right}):
        problems.add(
            entry.at,
            f"{where}, but the processor reads {' and '.join(inputs)}: its inputs must be those "
            "that are joined, and everything else that the query reads is named under tables",
        )
    _check_tables(entry, spec, "a join of two inputs", problems)


def _check_tables(entry: Entry, spec: SqlSpec, where: str, problems: Problems) -> None:
    """Report tables whose rows would have to be looked up by the keys of records."""
    for name, table in spec.topic_tables.items():
        if not table.is_global:
            problems.add(
                entry.at,
                f'"{entry.id}": table "{name}" follows a topic, which is not possible in {where}: '
                "say global: true, or look it up in a processor before or after this one",
            )


def _keeps_changelog(spec: SqlSpec) -> bool:
    return spec.changelog and spec.grouping is not None
