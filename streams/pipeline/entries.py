"""The entries of pipeline.yaml, one by one; how they fit together is checked elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import Choice, Free, Schema, names
from kafka_pipeline.common.config.yaml_positions import (
    Items,
    Located,
    Map,
    Problems,
    Scalar,
    Value,
    describe,
)
from kafka_pipeline.common.names import name_problem
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE
from kafka_pipeline.common.pipelines.specs import ForwardSpec, ProcessorSpec
from kafka_pipeline.common.suggest import one_of
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, Target
from kafka_pipeline.streams.pipeline.kinds.kind import (
    FROM,
    ID,
    MAX_DEAD_LETTERS,
    ON_ERROR,
    TO,
    TYPE,
    WAS,
    Kind,
)
from kafka_pipeline.streams.pipeline.kinds.registry import KINDS, kind_named, kind_of

_WORDS = tuple(kind.spec.type for kind in KINDS if not kind.type_form)
_OR_ANOTHER = "".join(f", or {kind.type_form}" for kind in KINDS if kind.type_form)
_WORD = Choice(
    name=TYPE.name,
    doc=TYPE.doc,
    about=f"{one_of(_WORDS)}{_OR_ANOTHER}",
    required=True,
    choices=_WORDS,
)


def _one_of_type(kind: Kind[Any]) -> Schema:
    named = _named(kind)
    return {
        "if": {"properties": {TYPE.name: named}, "required": [TYPE.name]},
        "then": kind.schema,
    }


def _named(kind: Kind[Any]) -> Schema:
    if kind.type_pattern is not None:
        return {"type": "string", "pattern": kind.type_pattern}
    return {"const": kind.spec.type}


ENTRIES_SCHEMA: Schema = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {
            ID.name: ID.schema(),
            TYPE.name: {
                "description": TYPE.doc,
                "anyOf": [{"description": kind.doc, **_named(kind)} for kind in KINDS],
            },
        },
        "required": [ID.name, TYPE.name],
        "allOf": [_one_of_type(kind) for kind in KINDS],
    },
}
"""The JSON Schema of the list of processors."""
_STAND_IN = ForwardSpec()
"""In place of what a processor with a wrong type does."""


def read_entries(
    root: Value,
    problems: Problems,
    views: Mapping[str, str] = {},
    schemas: Mapping[str, str] = {},
) -> list[Entry]:
    """Return the entries that have an id, each id once, in file order.

    `views` are the queries of views by name, in small letters, and `schemas` those of sources.
    """
    if not isinstance(root, Items):
        problems.add(root, f"must be a list of processors (`- id: …`), got {describe(root)}")
        return []
    if not root.items:
        problems.add(root, "the pipeline is empty: it needs at least one processor")
    entries: dict[str, Entry] = {}
    for item in root.items:
        entry = _entry(item, problems, views, schemas)
        if entry is None:
            continue
        first = entries.setdefault(entry.id, entry)
        if first is not entry:
            problems.add(
                entry.at, f'id "{entry.id}" is given twice (first at line {first.at.line})'
            )
    _check_former_ids(entries, problems)
    return list(entries.values())


def _check_former_ids(entries: Mapping[str, Entry], problems: Problems) -> None:
    """Report former ids that are in use, or that two processors claim."""
    claimed: dict[str, str] = {}
    for entry in entries.values():
        if not entry.was:
            continue
        if entry.was in entries:
            problems.add(
                entry.at, f'"{entry.id}" was "{entry.was}", but there is a processor with that id'
            )
        first = claimed.setdefault(entry.was, entry.id)
        if first != entry.id:
            problems.add(entry.at, f'both "{first}" and "{entry.id}" were "{entry.was}"')


def _entry(
    item: Value, problems: Problems, views: Mapping[str, str], schemas: Mapping[str, str]
) -> Entry | None:
    if not isinstance(item, Map):
        problems.add(item, f"a processor must be a map with id, type and to, got {describe(item)}")
        return None
    found = _kind(item, problems)
    found = found and found.within(views, schemas)
    kind = found or kind_of(_STAND_IN)
    fields = Fields(item.pairs, problems, at=item, known=names(kind.keys))
    id_ = fields.text(ID)
    _check_id(id_, fields.at(ID.name), problems)
    was = fields.text(WAS)
    if was and (was in (SOURCE, SINK) or name_problem(was)):
        problems.add(fields.at(WAS.name), f'was: "{was}" cannot have been the id of a processor')
    on_error = fields.choice(ON_ERROR)
    most = fields.number_or_none(MAX_DEAD_LETTERS)
    if most is not None and not on_error.writes_dead_letters:
        problems.add(
            fields.at(MAX_DEAD_LETTERS.name),
            f"{MAX_DEAD_LETTERS.name} has no effect without {ON_ERROR.name}: dead_letter",
        )
    targets: tuple[Target, ...] = ()
    sources: tuple[Target, ...] = ()
    if not kind.names_topics:
        if not kind.spec.writes_outside:
            targets = _targets(fields, TO, problems)
        if fields.get(FROM.name) is not None:
            sources = _targets(fields, FROM, problems)
    # If the type is wrong, it is unknown which parameters are right.
    spec: ProcessorSpec = found.read(fields, problems) if found else _STAND_IN
    if not id_ or id_ in (SOURCE, SINK):
        return None
    stages = found.stages(fields, problems) if found else ()
    return Entry(id_, fields.at(ID.name), spec, targets, on_error, most, sources, was, stages)


def _kind(item: Map, problems: Problems) -> Kind[Any] | None:
    """Return the type of an entry, or None if it is missing or wrong."""
    given = [pair for pair in item.pairs if pair.key == TYPE.name]
    for pair in given:
        if isinstance(pair.value, Scalar) and isinstance(pair.value.value, str):
            kind = kind_named(pair.value.value)
            if kind is not None:
                return kind
    types = Fields(given, problems, at=item, known=(TYPE.name,))
    types.choice(_WORD, or_=_OR_ANOTHER)
    return None


def _check_id(id_: str, at: Located, problems: Problems) -> None:
    if id_ in (SOURCE, SINK):
        problems.add(at, f'id "{id_}" is reserved for the {id_} topic: choose another one')
    elif id_ and (wrong := name_problem(id_)):
        problems.add(at, f'id "{id_}" {wrong}')


def _targets(fields: Fields, key: Free, problems: Problems) -> tuple[Target, ...]:
    what, end = ("processor", SINK) if key is TO else ("source", SOURCE)
    words = "processor ids" if key is TO else "names of sources"
    listed = fields.items(key)
    if listed is None:
        return ()
    if not listed.items:
        problems.add(listed, f'{key.name} is empty: name at least one {what}, or "{end}"')
    targets: dict[str, Target] = {}
    for item in listed.items:
        if problems.found_at(item):
            continue
        if not isinstance(item, Scalar) or not isinstance(item.value, str):
            problems.add(item, f"{key.name} must hold {words}, got {describe(item)}")
        elif item.value in targets:
            one = "target" if key is TO else "source"
            problems.add(item, f'{one} "{item.value}" is given twice')
        else:
            targets[item.value] = Target(item.value, item)
    return tuple(targets.values())
