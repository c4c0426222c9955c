"""What pipeline.yaml says about a query that joins two inputs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from msgspec import structs

from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import Free
from kafka_pipeline.common.config.yaml_positions import Map, Problems, plain
from kafka_pipeline.common.pipelines.specs import JoinSpec, SqlSpec
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile
from kafka_pipeline.streams.pipeline.kinds.group_keys import DEFAULT_GRACE_MS, EMIT, GRACE, LATE_TO
from kafka_pipeline.streams.pipeline.kinds.tables import VIEW
from kafka_pipeline.streams.sql.query_text import read_groups, read_join
from kafka_pipeline.streams.sql.spec import QueryError

SCHEMAS = Free(
    name="schema",
    doc="the columns of the values of `format: json`, as in `name STRING, price DOUBLE`; required "
    "there. In a join, a map may have those of each input",
    about='the columns of the values, such as "name STRING, price DOUBLE"',
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


def read_schemas(fields: Fields, problems: Problems) -> dict[str, str]:
    """Return the schemas of the inputs by name; none if there is one for all."""
    value = fields.get(SCHEMAS.name)
    if not isinstance(value, Map):
        return {}
    schemas = {}
    for pair in value.pairs:
        schema = plain(pair.value)
        if not isinstance(schema, str) or not schema.strip():
            problems.add(pair.value, f"the schema of {pair.key} must be a string")
        schemas[pair.key] = str(schema)
    return schemas


def read_joining(
    fields: Fields, query: str, tables: Collection[str], problems: Problems
) -> JoinSpec | None:
    """Return the join of two inputs of a query with these lookup tables, or None without one."""
    try:
        join = read_join(query, tables)
        if join is None:
            return None
        if read_groups(query, tables) is not None:
            raise QueryError(
                "GROUP BY, DISTINCT and row_number() cannot follow a join of two inputs in the "
                "same query: put them into a sql processor after this one"
            )
    except QueryError as error:
        problems.add(fields.at("query"), str(error))
        return None
    if fields.get(EMIT.name) is not None:
        problems.add(
            fields.at(EMIT.name), "emit belongs to a query with GROUP BY: leave it out in a join"
        )
    grace_ms = fields.duration(GRACE)
    if grace_ms is None and join.keeps:
        fields.require(replace(GRACE, required=True))
    return structs.replace(
        join,
        grace_ms=DEFAULT_GRACE_MS if grace_ms is None else grace_ms,
        late_to=fields.text(LATE_TO) or None,
    )


def check_join(entry: Entry, spec: SqlSpec, file: PipelineFile, problems: Problems) -> None:
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
    if spec.schemas and set(spec.schemas) != set(inputs):
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
    elif sorted(name.lower() for name in inputs) != sorted((join.left, join.right)):
        problems.add(
            entry.at,
            f"{where}, but the processor reads {' and '.join(inputs)}: its inputs must be the two "
            "that are joined, and everything else that the query reads is named under tables",
        )
    for name, table in spec.topic_tables.items():
        if not table.is_global:
            problems.add(
                entry.at,
                f'"{entry.id}": table "{name}" follows a topic, which is not possible in a join of '
                "two inputs: say global: true, or look it up in a processor before or after this "
                "one",
            )
