"""Bodies and queries of requests to the console, as values; their senders get the errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.typed_json import Strict, from_json, parse
from kafka_pipeline.console.job import RecordQuery
from kafka_pipeline.console.views.letters import LetterQuery
from kafka_pipeline.operations.dead_letters import LetterId, Wanted
from kafka_pipeline.operations.starts import Latest, parse_start
from kafka_pipeline.operations.times import parse_time

MOST_LETTERS = 200
MOST_RECORDS = 100
MOST_ENTRIES = 100
LAST = "last"
"""In place of a start: the newest records."""

T = TypeVar("T")


class AskRequest(Strict, frozen=True):
    """The body of `pause`, `resume` and `restart`; without processors, it means all of them."""

    processors: tuple[str, ...] = ()
    dry_run: bool = False
    confirmed: bool = False


class DealRequest(Strict, frozen=True):
    """The body of `redrive` and `purge`; empty and null fields do not limit the letters.

    `before` is the answer of a dry run: an offset by processor and partition. Only letters before
    it are handled, so that nobody handles letters unseen.
    """

    processors: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    reason: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    before: Mapping[str, Mapping[str, int]] | None = None
    dry_run: bool = False
    confirmed: bool = False

    def wanted(self) -> Wanted:
        """Return the letters to handle. Raises `ConfigError` for a bad id or `before`."""
        before = None
        try:
            ids = [LetterId.parse(each) for each in self.ids]
            if self.before is not None:
                before = {
                    (processor, int(partition)): offset
                    for processor, offsets in self.before.items()
                    for partition, offset in offsets.items()
                }
        except ValueError as error:
            raise ConfigError(str(error)) from error
        return Wanted(
            processors=self.processors,
            ids=ids,
            reason=self.reason,
            since_ms=self.since_ms,
            until_ms=self.until_ms,
            before=before,
        )


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """The key whose entries are requested: `key` is its text, or its bytes.

    Without a partition, all partitions are asked. `times` are parameters for the TaskManagers, in
    ms.
    """

    processor: str
    store: str
    key: bytes | str
    partition: int | None
    times: Mapping[str, int]
    limit: int


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """The page of a partition's entries that is requested.

    `bounds` has `from_key`, `to_key` and `prefix`, as text or bytes, if they are given. `page` is
    the `next` of the previous page, or "".
    """

    processor: str
    store: str
    partition: int
    bounds: Mapping[str, bytes | str]
    page: str
    limit: int


def parse_body(type_: type[T], body: bytes) -> T:
    """Return the body of an action.

    Raises `ConfigError` if it is malformed, or if it is neither a dry run nor confirmed.
    """
    try:
        found: Any = from_json(type_, parse(body), "the body")
    except ValueError as error:
        raise ConfigError(f"this is not the body of an action: {error}") from error
    if found.dry_run == found.confirmed:
        raise ConfigError(
            'say "dry_run": true for what the action would do, or "confirmed": true to do it'
        )
    if isinstance(found, DealRequest) and found.confirmed and found.before is None:
        raise ConfigError(
            'say which letters are meant: "before" must be what a dry run has answered'
        )
    return found  # type: ignore[no-any-return]


def parse_letter_query(query: Mapping[str, str]) -> LetterQuery:
    """Return the query for letters in a URL's parameters. Raises `ConfigError`."""
    _require_known(query, ("processor", "reason", "since", "until", "handled", "limit"))
    wanted = Wanted(
        processors=[query["processor"]] if query.get("processor") else (),
        reason=query.get("reason", ""),
        since_ms=_time(query.get("since", "")),
        until_ms=_time(query.get("until", "")),
    )
    handled = query.get("handled", "false")
    if handled not in ("true", "false"):
        raise ConfigError(f'handled must be true or false, not "{handled}"')
    return LetterQuery(wanted, handled == "true", _number(query, "limit", MOST_LETTERS))


def parse_record_query(query: Mapping[str, str]) -> RecordQuery:
    """Return the query for records in a URL's parameters. Raises `ConfigError`."""
    _require_known(query, ("topic", "from", "partition", "limit", "key", "value"))
    if not query.get("topic"):
        raise ConfigError("name a topic")
    limit = _number(query, "limit", MOST_RECORDS)
    place = query.get("from", "earliest")
    newest = place == LAST
    try:
        start = Latest(limit) if newest else parse_start(place)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    partition = _partition(query)
    return RecordQuery(
        query["topic"],
        start,
        limit,
        newest,
        () if partition is None else [partition],
        query.get("key", "string"),
        query.get("value", "string"),
    )


def parse_key_query(query: Mapping[str, str]) -> KeyQuery:
    """Return the query for a store's key in a URL's parameters. Raises `ConfigError`."""
    names = ("key", "key_hex", "partition", "from", "to", "as_of", "limit")
    processor, store = _store(query, names)
    if ("key" in query) == ("key_hex" in query):
        raise ConfigError("give a key, or key_hex")
    key = _bytes_or_text(query, "key")
    assert key is not None
    times = {
        f"{name}_ms": max(ms, 0)
        for name in ("from", "to", "as_of")
        if (ms := _time(query.get(name, ""))) is not None
    }
    return KeyQuery(
        processor,
        store,
        key,
        _partition(query),
        times,
        _number(query, "limit", MOST_ENTRIES),
    )


def parse_range_query(query: Mapping[str, str]) -> RangeQuery:
    """Return the query for a store's entries in a URL's parameters. Raises `ConfigError`."""
    bounds = ("from_key", "to_key", "prefix")
    names = (*(f"{name}{end}" for name in bounds for end in ("", "_hex")), "partition")
    processor, store = _store(query, (*names, "page", "limit"))
    found = {name: _bytes_or_text(query, name) for name in bounds}
    return RangeQuery(
        processor,
        store,
        _partition(query) or 0,
        {name: bound for name, bound in found.items() if bound},
        query.get("page", ""),
        _number(query, "limit", MOST_ENTRIES),
    )


def _store(query: Mapping[str, str], more: tuple[str, ...]) -> tuple[str, str]:
    _require_known(query, ("processor", "store", *more))
    if not query.get("processor") or not query.get("store"):
        raise ConfigError("name a processor and a store")
    return query["processor"], query["store"]


def _bytes_or_text(query: Mapping[str, str], name: str) -> bytes | str | None:
    """Return a key as bytes if it is in hexadecimal, otherwise as text; `None` without one."""
    hexadecimal = query.get(f"{name}_hex")
    if hexadecimal is None:
        return query.get(name)
    if name in query:
        raise ConfigError(f"give {name} or {name}_hex, not both")
    try:
        return bytes.fromhex(hexadecimal.removeprefix("0x"))
    except ValueError as error:
        raise ConfigError(f'{name}_hex: "{hexadecimal}" is not hexadecimal') from error


def _partition(query: Mapping[str, str]) -> int | None:
    text = query.get("partition", "")
    if text and not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ConfigError(f'"{text}" is not the number of a partition')
    return int(text) if text else None


def _require_known(query: Mapping[str, str], names: tuple[str, ...]) -> None:
    for unknown in sorted(query.keys() - {*names}):
        raise ConfigError(f'there is no "{unknown}" here, only {", ".join(names)}')


def _number(query: Mapping[str, str], name: str, most: int) -> int:
    """Return a number from 1 to `most`, which is the default."""
    text = query.get(name, str(most))
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= most):
        raise ConfigError(f'{name} must be a number from 1 to {most}, not "{text}"')
    return int(text)


def _time(text: str) -> int | None:
    try:
        return parse_time(text) if text else None
    except (ValueError, OverflowError) as error:
        raise ConfigError(str(error)) from error
