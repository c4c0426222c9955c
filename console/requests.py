"""What is asked of the console: bodies and queries as values, or an error for whoever sent them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from common.errors import ConfigError
from common.typed_json import from_json
from console.job import RecordQuery
from operations.dead_letters import LetterId, Wanted
from operations.starts import Latest, parse_start
from operations.times import parse_time

MOST_LETTERS = 200
MOST_RECORDS = 100
LAST = "last"
"""In place of a start: the newest records."""

_OFFSETS_PER_RECORD = 3
"""How far to look back for the newest records: each transaction's marker takes an offset, too."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AskRequest:
    """The body of `pause`, `resume` and `restart`; no processors are all of them."""

    processors: tuple[str, ...] = ()
    dry_run: bool = False
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class DealRequest:
    """The body of `redrive` and `purge`; what is empty or null does not matter.

    `before` is what a dry run has answered: by processor and partition, an offset. Only letters
    before it are dealt with, and so none that nobody has seen.
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
        """Return which letters are meant. Raises `ConfigError` for what is none."""
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
class LetterQuery:
    """Which dead letters are to be listed; those that were dealt with only if `handled`."""

    wanted: Wanted
    handled: bool
    limit: int


def parse_body(type_: type[T], body: bytes) -> T:
    """Return the body of an action.

    Raises `ConfigError` if it is not one, or if it is neither a dry run nor confirmed.
    """
    try:
        found: Any = from_json(type_, json.loads(body), "the body")
    except (ValueError, RecursionError) as error:
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
    """Return which letters the query of an address names. Raises `ConfigError`."""
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
    """Return which records the query of an address names. Raises `ConfigError`."""
    _require_known(query, ("topic", "from", "partition", "limit", "key", "value"))
    if not query.get("topic"):
        raise ConfigError("name a topic")
    limit = _number(query, "limit", MOST_RECORDS)
    place = query.get("from", "earliest")
    newest = place == LAST
    try:
        start = Latest(limit * _OFFSETS_PER_RECORD) if newest else parse_start(place)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    partition = query.get("partition", "")
    if partition and not (partition.isascii() and partition.isdecimal() and len(partition) < 10):
        raise ConfigError(f'"{partition}" is not the number of a partition')
    return RecordQuery(
        query["topic"],
        start,
        limit,
        newest,
        [int(partition)] if partition else (),
        query.get("key", "string"),
        query.get("value", "string"),
    )


def _require_known(query: Mapping[str, str], names: tuple[str, ...]) -> None:
    for unknown in sorted(query.keys() - {*names}):
        raise ConfigError(f'there is no "{unknown}" here, only {", ".join(names)}')


def _number(query: Mapping[str, str], name: str, most: int) -> int:
    """Return a number from 1 to `most`, which is the default."""
    text = query.get(name, str(most))
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= most):
        raise ConfigError(f'{name} must be a number from 1 to {most}, not "{text}"')
    return int(text)


def _time(text: str) -> int | None:
    try:
        return parse_time(text) if text else None
    except (ValueError, OverflowError) as error:
        raise ConfigError(str(error)) from error
