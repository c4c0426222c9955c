"""Reads `stores:` of a processor in pipeline.yaml, and makes stores from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from common.errors import ConfigError
from common.fields import Fields
from common.yaml_positions import Items, Map, Problems, Value, describe
from streams import serdes, stores
from streams.errors import TopologyError
from streams.stores import StoreBuilder

_MAKERS: Mapping[str, Callable[..., StoreBuilder[Any, Any]]] = {
    "key_value": stores.key_value,
    "timestamped_key_value": stores.timestamped_key_value,
    "window": stores.window,
    "session": stores.session,
    "versioned_key_value": stores.versioned_key_value,
}
_TIMES: Mapping[str, Sequence[str]] = {
    "window": ("retention_ms", "window_size_ms"),
    "session": ("retention_ms",),
    "versioned_key_value": ("history_retention_ms",),
}
_ALL_TIMES = tuple(dict.fromkeys(name for names in _TIMES.values() for name in names))
_KEYS = ("name", "type", "key", "value", "persistent", "logged")
SERDES = tuple(name for name in dir(serdes) if isinstance(getattr(serdes, name), serdes.Serde))


def read_stores(value: Value | None, problems: Problems) -> list[dict[str, Any]]:
    """Return the stores of a processor as JSON values that `store_of` understands."""
    if value is None:
        return []
    if not isinstance(value, Items):
        problems.add(value, f"stores must be a list, got {describe(value)}")
        return []
    found: list[dict[str, Any]] = []
    for item in value.items:
        if not isinstance(item, Map):
            problems.add(item, f"a store must be a map with a name, got {describe(item)}")
            continue
        spec = _read_store(item, problems)
        if any(other["name"] == spec["name"] for other in found):
            problems.add(item, f'store "{spec["name"]}" is given twice')
        elif _is_sound(item, problems):
            found.append(spec)
    return found


def store_of(spec: Mapping[str, Any]) -> StoreBuilder[Any, Any]:
    """Return the definition of a store. Raises ConfigError if `spec` is not from `read_stores`."""
    try:
        options = {name: spec[name] for name in _TIMES.get(spec["type"], ())}
        return _MAKERS[spec["type"]](
            spec["name"],
            key_serde=serdes.by_name(spec["key"]),
            value_serde=serdes.by_name(spec["value"]),
            persistent=spec["persistent"],
            logged=spec["logged"],
            **options,
        )
    except (KeyError, TypeError, ValueError, TopologyError) as error:
        raise ConfigError(f"no store can be made of {dict(spec)}: {error}") from error


def _read_store(item: Map, problems: Problems) -> dict[str, Any]:
    types = Fields([p for p in item.pairs if p.key == "type"], problems, at=item, known=("type",))
    type_ = types.choice("type", tuple(_MAKERS), default="key_value")
    times = _TIMES.get(type_, ())
    # If the type is wrong, it is unknown which times are right.
    known = _ALL_TIMES if problems.found_at(types.at("type")) else times
    fields = Fields(item.pairs, problems, at=item, known=(*_KEYS, *known))
    spec: dict[str, Any] = {
        "name": fields.text("name", about="what the processor asks for"),
        "type": type_,
        "key": fields.choice("key", SERDES, default="bytes"),
        "value": fields.choice("value", SERDES, default="bytes"),
        "persistent": fields.boolean("persistent", default=True),
        "logged": fields.boolean("logged", default=True),
    }
    for name in times:
        spec[name] = fields.number(name, low=0, about="milliseconds")
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
