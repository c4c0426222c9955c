"""Makes a processor of each stage of a query, with an arc from each stage to those that read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.pipelines.processors import SOURCE
from kafka_pipeline.common.pipelines.serde_specs import SchemaSerde
from kafka_pipeline.common.pipelines.specs import DEFAULT_MAX_PROCESS_TIME_MS, SqlSpec
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile, Target
from kafka_pipeline.streams.pipeline.kinds.group_keys import require_sink_of_its_own
from kafka_pipeline.streams.pipeline.kinds.tables import VIEW
from kafka_pipeline.streams.sql.query_text import tables_of
from kafka_pipeline.streams.sql.stage import Stage

_Readers = Mapping[str, Mapping[str, Sequence[str]]]
"""For each entry that is cut, the ids of the stages that read each of its inputs."""


def with_stages(file: PipelineFile, problems: Problems) -> PipelineFile:
    """Return a pipeline in which each stage of a query is an entry of its own.

    The last stage has the id and the targets of the entry, and the others follow it in its name:
    `<id>.<name>`. Who sends to the entry now sends to the stages that read these records.
    """
    if not any(entry.stages for entry in file.entries):
        return file
    entries: list[Entry] = []
    readers: dict[str, Mapping[str, Sequence[str]]] = {}
    for entry in file.entries:
        if entry.stages:
            cutting = _Cutting(entry, file.inputs(entry), problems)
            entries += cutting.entries()
            readers[entry.id] = cutting.readers
        else:
            entries.append(entry)
    _check_ids(entries, problems)
    stages = {entry.id: entry.part_of for entry in entries if entry.part_of}
    for entry in file.entries:
        for target in (each for each in entry.targets if each.id in stages):
            problems.add(
                target.at,
                f'"{target.id}" is a stage of the query "{stages[target.id]}": send to '
                f'"{stages[target.id]}"',
            )
    return replace(file, entries=[_directed(entry, readers) for entry in entries])


def _check_ids(entries: Sequence[Entry], problems: Problems) -> None:
    """Report processors that have the id of a stage."""
    stages = {entry.id: entry.part_of for entry in entries if entry.part_of}
    for entry in entries:
        if not entry.part_of and entry.id in stages:
            problems.add(
                entry.at,
                f'"{entry.id}" is also the id of a stage of the query "{stages[entry.id]}": rename '
                "one",
            )


def _directed(entry: Entry, readers: _Readers) -> Entry:
    """Return an entry that sends to stages in place of the queries that are cut."""
    targets = [
        Target(id_, target.at)
        for target in entry.targets
        for id_ in readers.get(target.id, {}).get(entry.id, (target.id,))
    ]
    return replace(entry, targets=tuple(targets))


class _Cutting:
    """The stages of one entry."""

    def __init__(self, entry: Entry, inputs: Sequence[str], problems: Problems) -> None:
        assert isinstance(entry.spec, SqlSpec), "only queries have stages"
        self._entry = entry
        schemas = entry.spec.schemas
        # Those of inputs in Avro are found later, as is that others lack one.
        is_avro = isinstance(entry.spec.value, SchemaSerde)
        known = set(schemas) & set(inputs) if is_avro else set(inputs)
        if schemas and set(schemas) != known:
            problems.add(
                entry.at,
                f'"{entry.id}": schema has {" and ".join(schemas)}, but the inputs are '
                f"{' and '.join(inputs)}",
            )
            schemas = {}
        self._schemas = schemas
        self._specs = {**entry.spec.stages, "": entry.spec}
        self._inputs = inputs
        self._problems = problems
        self._knows_all = True
        self.readers: dict[str, list[str]] = {}

    def entries(self) -> list[Entry]:
        """Return an entry for each stage, with arcs to those that read it."""
        entry = self._entry
        made: dict[str, tuple[Stage, SqlSpec, Sequence[str]]] = {}
        for stage in entry.stages:
            names = tables_of(stage.query) - self._lookups(stage)
            inner = [id_ for id_ in made if id_.lower() in names]
            inputs = self._read(names - {id_.lower() for id_ in inner})
            id_ = f"{entry.id}.{stage.name}" if stage.name else entry.id
            for name in inputs:
                self.readers.setdefault(name, []).append(id_)
            results = {name: _result(made[name][1]) for name in inner}
            made[id_] = stage, self._spec(stage, inputs, results), inputs
        self._check()
        return [
            replace(
                entry,
                id=id_,
                spec=spec,
                targets=self._targets(id_, {name: each for name, (_, each, _) in made.items()}),
                sources=self._sources(inputs),
                was=f"{entry.was}.{stage.name}" if entry.was and stage.name else entry.was,
                stages=(stage,),
                part_of=entry.id if stage.name else "",
            )
            for id_, (stage, spec, inputs) in made.items()
        ]

    def _lookups(self, stage: Stage) -> set[str]:
        spec = self._specs[stage.name]
        return {name.lower() for name in (*spec.tables, *spec.topic_tables)}

    def _read(self, names: frozenset[str]) -> list[str]:
        """Return the inputs of the entry with these names, which may be the view of them all."""
        known = {name.lower() for name in self._inputs}
        for name in sorted(names - known - {VIEW}):
            self._knows_all = False
            self._problems.add(
                self._entry.at,
                f'"{self._entry.id}": the query reads "{name}", which is neither an input nor a '
                f"table: the inputs are {' and '.join(self._inputs)}",
            )
        return [name for name in self._inputs if VIEW in names or name.lower() in names]

    def _spec(self, stage: Stage, inputs: Sequence[str], results: Mapping[str, SqlSpec]) -> SqlSpec:
        """Return the spec of a stage, with what it needs to read its inputs and other stages."""
        spec = self._specs[stage.name]
        schemas = {name: schema for name, schema in self._schemas.items() if name in inputs}
        schema = spec.schema if inputs else ""
        if len(inputs) == 1 and schemas:
            schema, schemas = schemas[inputs[0]], {}
        return structs.replace(
            spec,
            inputs=(*inputs, *results),
            schema=schema,
            schemas=schemas,
            stages=results,
            is_inner=bool(stage.name),
        )

    def _targets(self, id_: str, specs: Mapping[str, SqlSpec]) -> tuple[Target, ...]:
        if id_ == self._entry.id:
            return self._entry.targets
        at = self._entry.at
        return tuple(Target(name, at) for name, spec in specs.items() if id_ in spec.stages)

    def _sources(self, inputs: Sequence[str]) -> tuple[Target, ...]:
        given = tuple(source for source in self._entry.sources if source.id in inputs)
        if SOURCE in inputs and not given:
            return (Target(SOURCE, self._entry.at),)
        return given

    def _check(self) -> None:
        """Report inputs that no stage reads, and late records that go where the results go.

        A wrong name in the query explains an input that is not read.
        """
        for spec in self._specs.values():
            kept = spec.join or spec.over or spec.grouping
            if kept is not None and kept.late_to is not None:
                require_sink_of_its_own(self._entry, kept.late_to, self._problems)
        for name in self._inputs:
            if name not in self.readers and self._knows_all:
                self._problems.add(
                    self._entry.at, f'"{self._entry.id}": the query does not read "{name}"'
                )


def _result(spec: SqlSpec) -> SqlSpec:
    """Return what those who read a stage must know of it: what decides the types of its results."""
    tables = {
        name: structs.replace(table, topic=name, history_ms=None)
        for name, table in spec.topic_tables.items()
    }
    return structs.replace(
        spec,
        grouping=None,
        join=None,
        over=None,
        topic_tables=tables,
        max_task_idle_ms=0,
        max_process_time_ms=DEFAULT_MAX_PROCESS_TIME_MS,
    )
