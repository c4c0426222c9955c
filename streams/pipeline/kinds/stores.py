"""Reads `stores:` of a processor in pipeline.yaml, and makes stores from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from kafka_pipeline.common.code.user_code import CODE_PATTERN, UserCode, form_problem
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import (
    Choice,
    ConfigKey,
    Flag,
    Free,
    Number,
    Schema,
    Text,
    map_schema,
    names,
)
from kafka_pipeline.common.config.yaml_positions import (
    Items,
    Map,
    Problems,
    Scalar,
    Value,
    describe,
)
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.names import NAME_PATTERN
from kafka_pipeline.common.pipelines.store_specs import BYTES, StoreSpec, StoreType
from kafka_pipeline.common.suggest import one_of
from kafka_pipeline.common.typed_json import as_json
from kafka_pipeline.streams import serdes, stores
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.stores import StoreBuilder
from kafka_pipeline.streams.stores.formats import MOST_FORMATS, ValueFormat

_MAKERS: Mapping[StoreType, Callable[..., StoreBuilder[Any, Any]]] = {
    "key_value": stores.key_value,
    "timestamped_key_value": stores.timestamped_key_value,
    "window": stores.window,
    "session": stores.session,
    "versioned_key_value": stores.versioned_key_value,
}


def serde_key(name: str, doc: str, default: str | None) -> Choice[str]:
    """Return a key whose value is the name of a serde."""
    return Choice(name=name, doc=doc, choices=serdes.NAMES, default=default, says="serde")


def _time(name: str, doc: str, low: int = 1) -> Number:
    return Number(name=name, doc=doc, about="milliseconds", low=low, required=True)


_RETENTION = _time("retention_ms", "of `window` and `session`: how long entries are kept, in ms")
_WINDOW_SIZE = _time("window_size_ms", "of `window`: how long a window is, in ms")
_HISTORY = _time(
    "history_retention_ms", "of `versioned_key_value`: how long old versions are kept, in ms", low=0
)
_TIMES: Mapping[StoreType, Sequence[Number]] = {
    "window": (_RETENTION, _WINDOW_SIZE),
    "session": (_RETENTION,),
    "versioned_key_value": (_HISTORY,),
}
_ALL_TIMES = (_RETENTION, _WINDOW_SIZE, _HISTORY)
_NAME = Text(
    name="name",
    doc="the name by which the processor asks for the store",
    about="the name by which the processor asks for the store",
    required=True,
    pattern=NAME_PATTERN,
)
_TYPE: Choice[StoreType] = Choice(
    name="type", doc="what kind of store it is", choices=get_args(StoreType), default="key_value"
)
_KEY = serde_key("key", "the serde of keys", default=BYTES)
_VALUE = serde_key("value", "the serde of values", default=BYTES)
_PERSISTENT = Flag(name="persistent", doc="on disk; otherwise in memory", default=True)
_LOGGED = Flag(
    name="logged", doc="with a state topic, from which a new owner restores it", default=True
)
_FORMAT = Number(
    name="format",
    doc="the version of the format of values; those of a format above 1 carry it",
    low=1,
    high=MOST_FORMATS,
    default=1,
)
_UPGRADE = Text(
    name="upgrade",
    doc="a function that converts values of former formats to this one when they are read, as "
    "`package.module:function`",
    about="a function of a value and its format",
    pattern=CODE_PATTERN,
)
_FORMER = Free(
    name="former",
    doc="the serdes of formats 1, 2 and so on, if values had another one than `value`",
    about="a list of serdes",
    of={"type": "array", "minItems": 1, "items": {"enum": list(serdes.NAMES)}},
    says="list of serdes",
)
_KEYS: tuple[ConfigKey, ...] = (
    *(_NAME, _TYPE, _KEY, _VALUE, _PERSISTENT, _LOGGED),
    *(_FORMAT, _UPGRADE, _FORMER),
)
_UPGRADE_RULE: Schema = {
    "if": {"required": [_UPGRADE.name]},
    "then": {
        "properties": {_FORMAT.name: {"minimum": 2}},
        "required": [_FORMAT.name],
    },
    "else": {"properties": {_FORMER.name: False}},
}
"""Only values of former formats are upgraded."""


def _of_type(type_: StoreType) -> Schema:
    of_type = {"properties": {_TYPE.name: {"const": type_}}}
    condition = of_type if type_ == _TYPE.default else {**of_type, "required": [_TYPE.name]}
    return {"if": condition, "then": map_schema((*_KEYS, *_TIMES.get(type_, ())))}


STORES = Free(
    name="stores",
    doc="the stores of each task",
    of={
        "type": "array",
        "items": {
            "type": "object",
            "required": [_NAME.name],
            "properties": {_TYPE.name: _TYPE.schema()},
            "allOf": [*(_of_type(type_) for type_ in _MAKERS), _UPGRADE_RULE],
        },
    },
    says="list of maps",
    parts=(*_KEYS, *(replace(key, required=False) for key in _ALL_TIMES)),
)


def read_stores(value: Value | None, problems: Problems) -> tuple[StoreSpec, ...]:
    """Return the stores of a processor; each mistake goes to `problems`."""
    if value is None:
        return ()
    if not isinstance(value, Items):
        problems.add(value, f"stores must be a list, got {describe(value)}")
        return ()
    found: list[StoreSpec] = []
    for item in value.items:
        if not isinstance(item, Map):
            problems.add(item, f"a store must be a map with a name, got {describe(item)}")
            continue
        spec = _read_store(item, problems)
        if any(other.name == spec.name for other in found):
            problems.add(item, f'store "{spec.name}" is given twice')
        elif _is_sound(item, problems):
            found.append(spec)
    return tuple(found)


def store_of(spec: StoreSpec) -> StoreBuilder[Any, Any]:
    """Return the definition of a store; it knows its upgrade by name only, see `loaded`.

    Raises ConfigError for what no pipeline.yaml can say.
    """
    times = {key.name: getattr(spec, key.name) for key in _TIMES.get(spec.type, ())}
    try:
        former = tuple(map(serdes.by_name, spec.former))
        found = _MAKERS[spec.type](
            spec.name,
            key_serde=serdes.by_name(spec.key),
            value_serde=serdes.by_name(spec.value),
            persistent=spec.persistent,
            logged=spec.logged,
            **times,
        )
        return replace(found, format=ValueFormat(spec.format, None, former, spec.upgrade))
    except (TypeError, ValueError, TopologyError) as error:
        raise ConfigError(f"no store can be made of {as_json(spec)}: {error}") from error


def loaded(store: StoreBuilder[Any, Any], code: UserCode) -> StoreBuilder[Any, Any]:
    """Return a definition with its upgrade. Raises ConfigError if that is not a function."""
    reference = store.format.code
    if not reference:
        return store
    found = code.load(reference)
    if isinstance(found, type) or not callable(found):
        raise ConfigError(
            f'upgrade of store "{store.name}": {reference} is not a function of a value and its '
            "format"
        )
    return replace(store, format=replace(store.format, upgrade=found))


def _read_former(fields: Fields, problems: Problems) -> tuple[str, ...]:
    listed = fields.items(_FORMER)
    if listed is None:
        return ()
    if not listed.items:
        problems.add(listed, "former is empty: name the serde of each former format")
    found = []
    for item in listed.items:
        name = item.value if isinstance(item, Scalar) else None
        if name not in serdes.NAMES:
            problems.add(
                item, f"former has serdes, such as {one_of(serdes.NAMES)}, got {describe(item)}"
            )
        found.append(str(name))
    return tuple(found)


def _read_store(item: Map, problems: Problems) -> StoreSpec:
    types = Fields(
        [p for p in item.pairs if p.key == _TYPE.name], problems, at=item, known=("type",)
    )
    type_ = types.choice(_TYPE)
    times = _TIMES.get(type_, ())
    # If the type is wrong, it is unknown which times are right.
    known = _ALL_TIMES if problems.found_at(types.at(_TYPE.name)) else times
    fields = Fields(item.pairs, problems, at=item, known=names((*_KEYS, *known)))
    spec = StoreSpec(
        name=fields.text(_NAME),
        type=type_,
        key=fields.choice(_KEY),
        value=fields.choice(_VALUE),
        persistent=fields.boolean(_PERSISTENT),
        logged=fields.boolean(_LOGGED),
        format=fields.number(_FORMAT),
        upgrade=fields.text(_UPGRADE),
        former=_read_former(fields, problems),
        **{key.name: fields.number(key) for key in times},
    )
    if spec.upgrade and (wrong := form_problem(spec.upgrade)):
        problems.add(fields.at(_UPGRADE.name), wrong)
    if _is_sound(item, problems):
        try:
            store_of(spec)
        except ConfigError as error:
            problems.add(item, str(error.__cause__))
    return spec


def _is_sound(item: Map, problems: Problems) -> bool:
    """Whether no problem was found in a store so far, so that its values can be used."""
    places = (item, *(place for pair in item.pairs for place in (pair.at, pair.value)))
    return not any(problems.found_at(place) for place in places)
