"""Looks keys up in the committed content of a store, and shows it as JSON. Runs no user code.

Keys and values go through the serdes of `kafka_pipeline.serdes` only. What another serde has
written is shown as text if it is UTF-8, and in hexadecimal otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores.builder import StoreBuilder
from kafka_pipeline.streams.stores.bytes_store import SEGMENT_BYTES
from kafka_pipeline.streams.stores.committed import CommittedBytes, ReadLimitError
from kafka_pipeline.streams.stores.formats import PLAIN, split
from kafka_pipeline.streams.stores.key_value import KeyValueStore, TimestampedSerde
from kafka_pipeline.streams.stores.layout import (
    MAX_TIME,
    SESSION_BYTES,
    TIME_BYTES,
    WINDOW_BYTES,
    prefix_end,
    range_end,
    session_end,
    session_start,
    signed_time,
    version_time,
    window_start,
)
from kafka_pipeline.streams.stores.segments import segment_ms, segments_between
from kafka_pipeline.streams.stores.session import SessionStore
from kafka_pipeline.streams.stores.versioned import VersionedKeyValueStore
from kafka_pipeline.streams.stores.window import WindowStore

Row = dict[str, Any]
"""An entry as plain values for `json.dumps`."""

MOST_ROWS = 1000
MOST_BYTES = 400_000
"""The most entries, and bytes of keys and values, of one answer; a larger entry comes alone. As
JSON, that is about 1 MB at most, unless text has many control characters."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some entries, in order, and where the next page begins; `None` after the last one."""

    rows: list[Row]
    next: bytes | None


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Which windows, sessions or versions are wanted, in ms; both ends are included.

    Of a window, its start is meant. Sessions overlap the interval. `as_of` is for versions.
    """

    first: int = 0
    last: int = MAX_TIME
    as_of: int | None = None


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys from `low` to `high`, both included, that begin with `prefix`, as bytes."""

    low: bytes = b""
    high: bytes | None = None
    prefix: bytes = b""

    def has(self, key: bytes) -> bool:
        """Return whether a key is in the range."""
        is_low = key < self.low or (self.high is not None and key > self.high)
        return not is_low and key.startswith(self.prefix)


def described(builder: StoreBuilder[Any, Any]) -> Row:
    """Return what a store is, as plain values for `json.dumps`."""
    serde = builder.value_serde
    of_value = serde.of_value if isinstance(serde, TimestampedSerde) else serde
    return {
        "store": builder.name,
        "type": builder.family,
        "key_serde": builder.key_serde.name,
        "value_serde": serde.name,
        "keys_readable": serdes.is_built_in(builder.key_serde),
        "values_readable": serdes.is_built_in(of_value),
        **({"format": builder.format.version} if builder.format.version > 1 else {}),
        "persistent": builder.persistent,
        "logged": builder.logged,
        **{name: value for name, value in builder.options.items() if name.endswith("_ms")},
    }


def look_up(
    builder: StoreBuilder[Any, Any], view: CommittedBytes, key: bytes, times: TimeRange, most: int
) -> tuple[list[Row], bool]:
    """Return up to `most` entries of a key, oldest first, and whether there are more.

    Raises `StateStoreError` once the store closes, and `ReadLimitError` if the times have too many
    entries of other keys between them.
    """
    rows: list[Row] = []
    size = 0
    for row_bytes, row in _found(builder, view, key, times):
        size += row_bytes
        if rows and (len(rows) >= most or size > MOST_BYTES):
            return rows, True
        rows.append(row)
    return rows, False


def page(
    builder: StoreBuilder[Any, Any],
    view: CommittedBytes,
    wanted: KeyRange,
    start: bytes | None,
    most: int,
) -> Page:
    """Return up to `most` entries of a range of keys, from the `next` of the page before.

    Key-value stores give their keys in order, versioned ones the latest version of each key.
    Windows and sessions come in the order of their segments of time, and in each in the order of
    keys. A page may be empty and have a next one: as much was read as one page may. Raises
    `StateStoreError` once the store closes, and `ReadLimitError` if not one entry was read in time.
    """
    rows: list[Row] = []
    size, position = 0, start
    shower = _Shower(builder, view)
    try:
        for stored, value in _stored(builder, view, wanted, start):
            if rows and (len(rows) >= most or size + len(stored) + len(value) > MOST_BYTES):
                assert position is not None, "an entry was read"
                return Page(rows, _first_bytes(stored, position))
            row = shower.row(stored, value, wanted)
            if row is not None:
                rows.append(row)
                size += len(stored) + len(value)
            position = stored + b"\x00"
    except ReadLimitError:
        if position == start:
            raise
        return Page(rows, position)
    return Page(rows, None)


def _first_bytes(key: bytes, after: bytes) -> bytes:
    """Return as much of a stored key as tells it from all keys before `after`, which it follows.

    Where a page begins is part of a request, which may not be long.
    """
    pairs = enumerate(zip(key, after, strict=False))
    shared = next((n for n, (one, other) in pairs if one != other), len(after))
    return key[: max(shared + 1, SEGMENT_BYTES)]


def _found(
    builder: StoreBuilder[Any, Any], view: CommittedBytes, key: bytes, times: TimeRange
) -> Iterator[tuple[int, Row]]:
    """Yield the size and the row of each entry of a key."""
    shown_key = _shown("key", builder.key_serde, key)

    def row(value: bytes, **more: Any) -> tuple[int, Row]:
        return len(key) + len(value), {
            **shown_key,
            **more,
            **_shown_value(builder, value),
        }

    store = _over_bytes(builder, view)
    match store:
        case WindowStore():
            with store.fetch(key, times.first, times.last) as windows:
                for start, value in windows:
                    yield row(value, window=_window(*store.window(start)))
        case SessionStore():
            with store.find_sessions(key, times.first, times.last) as sessions:
                for session, value in sessions:
                    yield row(value, window=_window(*session.window))
        case VersionedKeyValueStore():
            version = store.get(key, times.as_of)
            if version is not None:
                yield row(
                    version.value, valid_from_ms=version.timestamp, valid_to_ms=version.valid_to
                )
        case KeyValueStore():
            value = store.get(key)
            if builder.family == "key-value" and value is not None:
                yield row(value)
            elif value is not None:
                yield row(value.value, timestamp_ms=value.timestamp)


def _over_bytes(builder: StoreBuilder[Any, Any], view: CommittedBytes) -> Any:
    """Return the store over a view, with keys and values as bytes."""
    of_bytes = replace(builder, key_serde=serdes.bytes, value_serde=serdes.bytes, format=PLAIN)
    return of_bytes.build(view)


def _stored(
    builder: StoreBuilder[Any, Any], view: CommittedBytes, wanted: KeyRange, start: bytes | None
) -> Iterator[tuple[bytes, bytes]]:
    """Yield stored entries from `start` on: all of a range of keys, and maybe others."""
    low = max(wanted.low, wanted.prefix)
    ends = [prefix_end(wanted.prefix)]
    if (high := wanted.high) is not None:
        is_plain = builder.family in ("key-value", "timestamped-key-value")
        ends.append(high + b"\x00" if is_plain else range_end(high, view.max_timestamp))
    high = min((end for end in ends if end is not None), default=None)
    for segment in _segments(builder, view, start):
        first = segment + low
        if high is not None:
            end: bytes | None = segment + high
        else:
            end = prefix_end(segment)
        with view.scan(first if start is None else max(first, start), end) as entries:
            yield from entries


def _segments(
    builder: StoreBuilder[Any, Any], view: CommittedBytes, start: bytes | None
) -> Iterator[bytes]:
    """Return what keys begin with, for each segment from `start` on that has not expired."""
    if builder.family not in ("window", "session"):
        return iter((b"",))
    length = segment_ms(builder.options["retention_ms"])
    first, last = _live_from(builder, view) // length, view.max_timestamp // length
    if start is not None:
        first = max(first, int.from_bytes(start[:SEGMENT_BYTES], "big"))
    return segments_between(view, first, last)


def _live_from(builder: StoreBuilder[Any, Any], view: CommittedBytes) -> int:
    """Return the first time of a window or session that has not expired."""
    retention_ms: int = builder.options["retention_ms"]
    return max(0, view.committed_expiry_time - retention_ms + 1)


class _Shower:
    """Makes rows of the stored entries of a store."""

    def __init__(self, builder: StoreBuilder[Any, Any], view: CommittedBytes) -> None:
        self._builder = builder
        self._store = _over_bytes(builder, view)
        is_segmented = builder.family in ("window", "session")
        self._live_from = _live_from(builder, view) if is_segmented else 0

    def row(self, stored: bytes, value: bytes, wanted: KeyRange) -> Row | None:
        """Return an entry as a row; `None` if it is not wanted, has expired, or was replaced."""
        more: Row = {}
        match self._builder.family:
            case "window":
                stored = stored[SEGMENT_BYTES:]
                key, start = stored[:-WINDOW_BYTES], window_start(stored)
                if start < self._live_from:
                    return None
                more = {"window": _window(*self._store.window(start))}
            case "session":
                stored = stored[SEGMENT_BYTES:]
                key, end = stored[:-SESSION_BYTES], session_end(stored)
                if end < self._live_from:
                    return None
                more = {"window": _window(session_start(stored), end)}
            case "versioned-key-value":
                key = stored[:-TIME_BYTES]
                latest = self._store.get(key) if wanted.has(key) else None
                if latest is None or latest.timestamp != version_time(stored):
                    return None
                value = latest.value
                more = {"valid_from_ms": latest.timestamp, "valid_to_ms": None}
            case "timestamped-key-value":
                key = stored
                more = {"timestamp_ms": signed_time(value)}
                value = value[TIME_BYTES:]
            case _:
                key = stored
        if not wanted.has(key):
            return None
        builder = self._builder
        return {
            **_shown("key", builder.key_serde, key),
            **more,
            **_shown_value(builder, value),
        }


def _window(start: int, end: int) -> Mapping[str, int]:
    return {"start_ms": start, "end_ms": end}


def _shown_value(builder: StoreBuilder[Any, Any], data: bytes) -> Row:
    """Return a value as a field, and its time as another one if the serde has that.

    One of a former format is shown as it is, with that format: an upgrade is user code, and runs in
    the task only.
    """
    format_, serde = builder.format, builder.value_serde
    if isinstance(serde, TimestampedSerde):
        value = _shown("value", serde.of_value, data[TIME_BYTES:])
        return {"timestamp_ms": signed_time(data), **value}
    if format_.version == 1:
        return _shown("value", serde, data)
    version, written = split(data)
    serde = format_.serde_of(version, serde)
    of_former = {} if version == format_.version else {"format": version}
    return {**_shown("value", serde, written), **of_former}


def _shown(name: str, serde: Serde[Any], data: bytes) -> Row:
    """Return bytes as a field: its value, or else text or hexadecimal, named so."""
    if serde is not serdes.bytes and serdes.is_built_in(serde):
        try:
            value = serde.deserialize(data)
            if serde in _OF_ALL_DIGITS:
                return {f"{name}_text": _EXACT_JSON.serialize(value).decode()}
            return {name: _plain(value)}
        except SerializationError:
            return {f"{name}_hex": data.hex()}
    text = _text(data)
    if text is None:
        return {f"{name}_hex": data.hex()}
    return {name if serde is serdes.bytes else f"{name}_text": text}


_EXACT_JSON = serdes.json(decimals=True)
_OF_ALL_DIGITS = (_EXACT_JSON, serdes.debezium, serdes.debezium_changes, serdes.debezium_key)
"""Their values are shown as text, since plain JSON would round the numbers in it."""


def _text(data: bytes) -> str | None:
    """Return bytes as text; `None` if they are hardly meant as such."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(each.isprintable() or each in "\n\r\t" for each in text) else None


def _plain(value: Any) -> Any:
    """Return a value of a serde as one that JSON has."""
    if isinstance(value, UUID) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value
