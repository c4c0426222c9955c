"""Records and values as a YAML suite writes them, and as they are in topics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, repeat
from typing import Any

from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.testing.driver_topics import ReadRecord


def shown_as(
    record: ReadRecord,
    wanted: Mapping[str, Any],
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
) -> dict[str, Any]:
    """Return the wanted fields of a record; key and value if the record was not expected."""
    names = list(wanted) or ["key", "value"]
    shown: dict[str, Any] = {}
    for name in names:
        match name:
            case "key":
                shown[name] = _from_bytes(record.key, wanted.get(name), key_serde)
            case "value":
                shown[name] = _from_bytes(record.value, wanted.get(name), value_serde)
            case "headers":
                shown[name] = _shown_headers(record.headers, wanted["headers"])
            case "timestamp_ms":
                shown[name] = record.timestamp
            case _:
                shown[name] = getattr(record, name)
    return shown


def _shown_headers(
    headers: Iterable[tuple[str, bytes | None]], wanted: list[tuple[str, Any]]
) -> list[tuple[str, Any]]:
    """Return headers, each in the form of the wanted header at the same position."""
    likes = chain((like for _, like in wanted), repeat(None))
    return [
        (name, _from_bytes(data, like, None))
        for (name, data), like in zip(headers, likes, strict=False)
    ]


def is_same(found: Any, wanted: Any) -> bool:
    """Whether two values are deeply equal.

    1, 1.0 and true are not equal to each other, nor are 0.0 and -0.0; NaN equals NaN. So two keys
    are the same only if their bytes are.
    """
    if isinstance(found, dict) and isinstance(wanted, dict):
        keys = found.keys()
        return keys == wanted.keys() and all(is_same(found[key], wanted[key]) for key in keys)
    if isinstance(found, list | tuple) and type(found) is type(wanted):
        return len(found) == len(wanted) and all(map(is_same, found, wanted))
    if type(found) is type(wanted) is float:
        return repr(found) == repr(wanted)
    kinds = {type(found), type(wanted)}
    return bool(found == wanted) and not (len(kinds) > 1 and kinds <= {bool, int, float})


def to_bytes(value: Any, serde: Serde[Any] | None) -> bytes | None:
    """Return a value of the suite as it is in a topic: text, decimal text, or JSON."""
    if value is None:
        return None
    if serde is not None:
        return serde.serialize(value)
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def _from_bytes(data: bytes | None, wanted: Any, serde: Serde[Any] | None) -> Any:
    """Return the content of a topic in the form of the value that it is compared with."""
    if data is None:
        return None
    if serde is not None:
        return serde.deserialize(data)
    read: Callable[[bytes], Any] = bytes.decode if isinstance(wanted, str | None) else json.loads
    try:
        return read(data)
    except ValueError:
        return data


def text_of(records: list[dict[str, Any]]) -> str:
    """Return records as a message shows them."""
    return json.dumps(records, ensure_ascii=False, default=repr) if records else "no records"
