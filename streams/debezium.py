"""Change events of Debezium: what each one does to a row, and where it is in the source's log.

A connector writes a topic for each table. The key of a record is the primary key, and its value an
envelope: `op` is `c` (insert), `u`, `d`, or `r` (read by a snapshot), `after` is the row as it is
now, and `source` the position in the database's log. With JsonConverter's
`schemas.enable=true`, each value has its schema around it. After a deletion comes a tombstone.

`before` is not read: it is null or partial unless the database logs whole rows (REPLICA IDENTITY
FULL in PostgreSQL).
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from hashlib import md5
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from kafka_pipeline.common.kafka import connect_values
from kafka_pipeline.common.kafka.connect_values import Convert
from kafka_pipeline.streams import mongodb_values

_PLACEHOLDER = "__debezium_unavailable_value"
"""What Debezium writes for a column that the database did not log, in the type of the column.

In PostgreSQL, these are large values that an update has left as they are (TOAST). See
`UnchangedToastedPlaceholder` in Debezium's connector."""

_IN_BASE64 = b64encode(_PLACEHOLDER.encode()).decode()
_UNAVAILABLE_TEXT = frozenset(
    (
        _PLACEHOLDER,
        *(_IN_BASE64, _PLACEHOLDER.encode().hex()),
        f'{{"{_PLACEHOLDER}":"{_PLACEHOLDER}"}}',  # an hstore
    )
)
_UNAVAILABLE = (
    *([_PLACEHOLDER], [_IN_BASE64]),
    [str(UUID(bytes=md5(_PLACEHOLDER.encode(), usedforsecurity=False).digest(), version=3))],
    # Arrays of numbers and of dates have one element for each byte.
    [*_PLACEHOLDER.encode()],
    [connect_values.date_of(byte) for byte in _PLACEHOLDER.encode()],
    {_PLACEHOLDER: _PLACEHOLDER},
)

TABLE_ADVICE = (
    "it is not a change event of Debezium. Rows that ExtractNewRecordState has taken out of their "
    "envelopes are read with changelog: true, without format: debezium"
)

Position = tuple[str, str, tuple[int | str, ...]]
"""The kind of the log, the log itself, and a place in it; see `is_older`."""

_BINLOG = "binlog"
_GTID = re.compile(r"(?:(?P<server>.+):|(?P<domain>[0-9]+)-[0-9]+-)(?P<number>[0-9]+)")
"""MySQL's `UUID:number` or `UUID:tag:number`, and MariaDB's `domain-server-number`."""

_NO_SCHEMA = (b"", b"null")


class EnvelopeError(ValueError):
    """A record is not a change of a row; the message names the field, and quotes no values."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a record does to the row of its key: `row` is the new row, or `None` for a deletion.

    A tombstone has no `position`, nor have changes of databases whose positions are unknown. A
    change that `is_read` comes from a snapshot: it is the row as the snapshot found it. The columns
    in `missing` are those whose values are as they were, and not in the record.
    """

    row: Mapping[str, Any] | None = None
    position: Position | None = None
    is_read: bool = False
    is_tombstone: bool = False
    missing: tuple[str, ...] = ()


TOMBSTONE = Change(is_tombstone=True)


class _Source(msgspec.Struct):
    """The fields of `source` that say where a change is in the log."""

    connector: str = ""
    snapshot: str | bool | None = None
    db: str | None = None
    lsn: int | str | None = None  # text in YugabyteDB
    server_id: int | None = None
    file: str | None = None
    pos: int | None = None
    gtid: str | None = None
    commit_lsn: str | None = None
    change_lsn: str | None = None
    event_serial_no: int | None = None

    @property
    def position(self) -> Position | None:
        """The position; `None` if this is the source of another database, or without one."""
        match self.connector:
            case "postgresql" if isinstance(self.lsn, str):
                raise EnvelopeError("source.lsn is text, not a number")
            case "postgresql" if self.lsn is not None:
                return "lsn", self.db or "", (self.lsn,)
            case "mysql" | "mariadb" if self.file and self.pos is not None:
                log, _, number = self.file.rpartition(".")
                if number.isdecimal():
                    return _BINLOG, log, (int(number), self.pos, *self._origin)
            case "sqlserver" if self.commit_lsn:
                within = (self.change_lsn or "", self.event_serial_no or 0)
                return "commit_lsn", self.db or "", (self.commit_lsn, *within)
        return None

    @property
    def _origin(self) -> tuple[str, int] | tuple[()]:
        """The server that a transaction of a binlog was written at, and its number there.

        A number says something only with GTIDs. A snapshot has no transaction.
        """
        if found := _GTID.fullmatch(self.gtid or ""):
            return found["server"] or found["domain"], int(found["number"])
        return (str(self.server_id), 0) if self.server_id else ()

    @property
    def is_snapshot(self) -> bool:
        """Whether a snapshot has read the row."""
        return self.snapshot not in (None, False, "false")


class _Event(msgspec.Struct, rename={"update": "updateDescription", "tables": "tableChanges"}):
    """The fields of a value that matter, of any event that Debezium writes.

    Values with a schema have only `schema` and `payload`, which is the event.
    """

    schema: msgspec.Raw = msgspec.Raw()
    payload: msgspec.Raw = msgspec.Raw()
    op: str | None = None
    after: Any = None
    source: _Source | None = None
    update: Any = None
    status: Any = None
    ddl: Any = None
    tables: Any = None


_decode = msgspec.json.Decoder(_Event | None, float_hook=Decimal).decode
_decode_any = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode


def read_change(value: bytes | None) -> Change | None:
    """Return what a value of JSON does to its row; `None` if it is an event about no row.

    Those are markers of transactions, messages of `pg_logical_emit_message`, and schema changes.
    Numbers with a fraction are a `Decimal`. Raises `EnvelopeError`.
    """
    if value is None:
        return TOMBSTONE
    event, schema = _decoded(_decode, value), b""
    if event is not None and (payload := bytes(event.payload)):
        schema = bytes(event.schema)
        event = _decoded(_decode, payload)
    return TOMBSTONE if event is None else _change(event, schema)


def read_key(key: bytes) -> bytes:
    """Return a key of JSON without its schema, as the same bytes with and without one."""
    if not key.startswith(b'{"schema":'):
        return key
    try:
        found = msgspec.json.decode(key, type=_Keyed)
    except msgspec.ValidationError:
        return key
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise EnvelopeError(f"the key cannot be read: {_words(error)}") from None
    is_schema = bytes(found.schema).startswith((b"{", b"null"))
    return bytes(found.payload) if is_schema else key


class _Keyed(msgspec.Struct, forbid_unknown_fields=True):
    """A key with its schema. The columns of a primary key may have these names too."""

    schema: msgspec.Raw
    payload: msgspec.Raw


def read_row(value: bytes) -> dict[str, Any] | None:
    """Return the row after a change, `None` if it is deleted. Raises `EnvelopeError`."""
    change = read_change(value)
    if change is None:
        raise EnvelopeError("it is about no row")
    for name in change.missing:
        raise EnvelopeError(
            f"after.{name} has no value, since the update left it as it was: set REPLICA IDENTITY "
            "FULL for the table"
        )
    return None if change.row is None else dict(change.row)


def read_event(value: bytes) -> Any:
    """Return an event without its schema: op, before, after, source and the others it has.

    The values of `before` and `after` are as in rows. Raises `EnvelopeError`.
    """
    event = _decoded(_decode_any, value)
    # The columns of a primary key may have these names too.
    is_with_schema = isinstance(event, dict) and event.keys() == {"schema", "payload"}
    if not is_with_schema or not isinstance(event["schema"], dict | None):
        return event
    found, schema = event["payload"], _encode(event["schema"])
    for part in ("before", "after") if isinstance(found, dict) else ():
        if isinstance(found.get(part), dict):
            found[part] = _converted(part, found[part], schema)
    return found


def row_text(row: Mapping[str, Any]) -> bytes:
    """Return a row as JSON, with all digits of its numbers."""
    return _encode(row)


def row_of(text: bytes) -> dict[str, Any]:
    """Return the row of a `row_text`."""
    row: dict[str, Any] = _decode_any(text)
    return row


def is_older(position: Position | None, than: Position | None) -> bool:
    """Whether a position is certainly before another one of the same log.

    The binlogs of MySQL and MariaDB have the same names on all servers, and other places for the
    same transactions. So both must say it, the place and the number of the transaction: places mean
    nothing after a failover, and numbers of GTIDs go down again in a group of servers that reserves
    blocks of them.
    """
    if position is None or than is None or position[:2] != than[:2]:
        return False
    (place, origin), (other, its_origin) = _parts(position), _parts(than)
    if origin and its_origin and (origin[0] != its_origin[0] or origin > its_origin):
        return False
    return place < other


def _parts(position: Position) -> tuple[tuple[int | str, ...], tuple[int | str, ...]]:
    """Return the place and the origin of a position, which is empty if it is not known."""
    size = 2 if position[0] == _BINLOG else len(position[2])
    return position[2][:size], position[2][size:]


def is_shared(position: Position | None) -> bool:
    """Whether several changes of a key may have this position.

    In a binlog, those of a transaction do that MySQL has compressed
    (`binlog_transaction_compression`).
    """
    return position is not None and position[0] == _BINLOG


def _change(event: _Event, schema: bytes) -> Change | None:
    source = event.source or _Source()
    match event.op:
        case "c" | "u" | "r":
            row = _row(event, schema)
            missing = tuple(name for name, value in row.items() if _is_unavailable(value))
            is_read = event.op == "r" or source.is_snapshot
            return Change(row, source.position, is_read, missing=missing)
        case "d":
            return Change(None, source.position)
        case "t":
            raise EnvelopeError(
                "op is t: a TRUNCATE has removed all rows, and names none of them. Delete rows "
                "by DELETE, or have the connector leave truncates out (skipped.operations: t) and "
                "start over"
            )
        case "m":
            return None
        case None if event.status in ("BEGIN", "END") or event.ddl or event.tables:
            return None
        case None:
            raise EnvelopeError(f"the value has no field op: {TABLE_ADVICE}")
    raise EnvelopeError("op is none of c, u, d, r, t and m: it is not known what it does")


def _row(event: _Event, schema: bytes) -> Mapping[str, Any]:
    row = event.after
    if isinstance(row, str):
        return _document(row)
    if row is None and event.update is not None:
        raise EnvelopeError(
            "after is null, and updateDescription has only what has changed: set the connector's "
            "capture.mode to change_streams_update_full. With it, after is null if the document "
            "was deleted before the connector looked it up: set capture.mode.full.update.type to "
            "post_image, too"
        )
    if not isinstance(row, dict):
        raise EnvelopeError(f"op is {event.op}, but after is not an object")
    return _converted("after", row, schema)


def _document(text: str) -> Mapping[str, Any]:
    """Return a document of MongoDB, whose connector writes it as text."""
    try:
        document = mongodb_values.plain(_decode_any(text))
    except (msgspec.DecodeError, RecursionError) as error:
        raise EnvelopeError(f"after is text that is not JSON: {_words(error)}") from None
    except ValueError as error:
        raise EnvelopeError(f"after is not a document of MongoDB: {error}") from None
    if not isinstance(document, dict):
        raise EnvelopeError("after is text, but not an object: it is not a document of MongoDB")
    return document


def _converted(part: str, row: Mapping[str, Any], schema: bytes) -> Mapping[str, Any]:
    """Return a row with its values converted by the schema of its envelope, if there is one."""
    if schema in _NO_SCHEMA or not (of_fields := _of_row(schema)):
        return row
    try:
        return connect_values.converted(row, of_fields)
    except ValueError as error:
        raise EnvelopeError(f"{part}.{error}") from None


def _is_unavailable(value: Any) -> bool:
    if isinstance(value, str):
        return value in _UNAVAILABLE_TEXT
    return isinstance(value, list | dict) and value in _UNAVAILABLE


def _decoded(decode: Any, data: Any) -> Any:
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise EnvelopeError(f"the value cannot be read: {_words(error)}") from None


def _words(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return "it is not UTF-8" if isinstance(error, UnicodeError) else str(error)


@lru_cache(maxsize=64)
def _of_row(schema: bytes) -> Mapping[str, Convert]:
    """Return the functions for the columns of the rows of an envelope, by its schema."""
    try:
        envelope = msgspec.json.decode(schema)
        fields = envelope["fields"]
        after = next(field for field in fields if field["field"] == "after")
    except (msgspec.DecodeError, UnicodeError, RecursionError, LookupError, TypeError):
        _no_schema()
    except StopIteration:
        return {}
    if after.get("type") != "struct":
        return {}
    try:
        return connect_values.converters(after)
    except (ValueError, TypeError) as error:
        raise EnvelopeError(f"the schema of after cannot be read: {error}") from None


def _no_schema() -> NoReturn:
    raise EnvelopeError("the schema is not that of an envelope")
