"""The records of a topic as lines of text or JSON, and lines of JSON as records."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta, Struct

from kafka_pipeline.common import json_text
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.json_text import exact_decimal, exact_integer
from kafka_pipeline.common.printable import printable
from kafka_pipeline.common.record_batch import OutputRecord, RecordBatch
from kafka_pipeline.common.typed_json import Count, from_json
from kafka_pipeline.operations.times import shown_time
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.errors import InvalidArgumentError, StreamsError
from kafka_pipeline.streams.serdes import Serde

_FIELDS = ("partition", "offset", "timestamp_ms", "key", "value", "headers")
_ANY_PARTITION = -1
_NOW = 0
"""Instead of a timestamp: the client takes the current time."""
_BASE64 = "base64"


class _Line(Struct, frozen=True):
    key: Any = None
    value: Any = None
    partition: Annotated[int, Meta(ge=_ANY_PARTITION)] = _ANY_PARTITION
    timestamp_ms: Count = _NOW
    headers: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class RecordLines:
    """Reads and writes the records of one topic by the serdes of its keys and values.

    In JSON, bytes are base64, and UUIDs their usual text. The numbers of the serde `json` keep all
    their digits, as a `Decimal` if they have a fraction or an exponent.
    """

    topic: str
    key: Serde[Any]
    value: Serde[Any]

    @classmethod
    def by_names(cls, topic: str, key: str, value: str) -> RecordLines:
        """Return the lines of a topic by names of serdes; ConfigError if there is no such serde."""
        try:
            return cls(topic, serdes.by_name(key), serdes.by_name(value))
        except InvalidArgumentError as error:
            raise ConfigError(str(error)) from error

    def to_json(self, batch: RecordBatch, index: int) -> dict[str, Any]:
        """Return a record as plain values for `json_text.dumps`.

        Raises `ConfigError` if a serde cannot read it; the message names the record.
        """
        return {
            "partition": batch.partition,
            "offset": batch.offsets[index],
            "timestamp_ms": batch.timestamps[index],
            "key": self._read(batch, index, "key", self.key, batch.keys[index]),
            "value": self._read(batch, index, "value", self.value, batch.values[index]),
            "headers": [
                [name, _plain_header(value)]
                for name, value in (batch.headers[index] if batch.headers else None) or ()
            ],
        }

    def to_text(self, batch: RecordBatch, index: int) -> str:
        """Return a record as a line for people, without control characters. Raises as `to_json`."""
        record = self.to_json(batch, index)
        headers = ", ".join(f"{name}={text_of(value)}" for name, value in record["headers"])
        parts = [
            f"{record['partition']}@{record['offset']}",
            shown_time(record["timestamp_ms"]),
            text_of(record["key"]),
            text_of(record["value"]),
            *([f"[{headers}]"] if headers else []),
        ]
        return "  ".join(map(printable, parts))

    def from_json(self, line: str, number: int) -> OutputRecord:
        """Return the record of a line, which is the `number`-th.

        Raises `ConfigError` if it is none, or if a serde cannot write what it has; the message
        names the line.
        """
        try:
            line.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"line {number}: it is not UTF-8") from error
        try:
            data = json.loads(line, parse_float=exact_decimal, parse_int=exact_integer)
            unknown = [] if not isinstance(data, dict) else sorted(data.keys() - {*_FIELDS})
            if unknown:
                raise ValueError(f'unknown field "{unknown[0]}": it has {", ".join(_FIELDS)}')
            fields = from_json(_Line, data, "the record")
            return (
                self.topic,
                _write(self.key, fields.key, "the key"),
                _write(self.value, fields.value, "the value"),
                fields.partition,
                fields.timestamp_ms,
                [_header(header) for header in fields.headers] or None,
            )
        except ValueError as error:
            raise ConfigError(f"line {number}: {error}") from error

    def _read(
        self, batch: RecordBatch, index: int, what: str, serde: Serde[Any], data: bytes | None
    ) -> Any:
        if data is None:
            return None
        try:
            return _plain(_exact(serde).deserialize(data))
        except StreamsError as error:
            raise ConfigError(
                f"record {batch.topic}[{batch.partition}]@{batch.offsets[index]}: the {what} is "
                f"not what {serde.name} reads: {', '.join([str(error), *_notes(error)])}; choose "
                "another serde for it, such as bytes"
            ) from error


def _notes(error: Exception) -> list[str]:
    return getattr(error, "__notes__", [])


def text_of(value: Any) -> str:
    """Return a key or a value as people read it."""
    if value is None:
        return "null"
    return value if isinstance(value, str) else json_text.dumps(value, ensure_ascii=False)


def _exact(serde: Serde[Any]) -> Serde[Any]:
    """Return a serde that changes no digits: what is shown or copied is no step's result."""
    return serdes.json(decimals=True) if serde is serdes.json else serde


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case UUID():
            return str(value)
    return value


_SPECIAL: Mapping[str, Callable[[str], Any]] = {
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "uuid": UUID,
}
"""What text in JSON means to serdes whose values JSON does not have."""


def _write(serde: Serde[Any], value: Any, what: str) -> bytes | None:
    if value is None:
        return None
    try:
        if serde.name in _SPECIAL:
            if not isinstance(value, str):
                raise ValueError(f"{what} must be a string")
            value = _SPECIAL[serde.name](value)
        return _exact(serde).serialize(value)
    except (StreamsError, ValueError) as error:
        raise ValueError(f"{what} is not what {serde.name} writes: {error}") from error


def _plain_header(value: bytes | None) -> Any:
    """Return a header's value: text, or `{"base64": …}` if it is not UTF-8."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return {_BASE64: base64.b64encode(value or b"").decode()}


def _header(given: Any) -> tuple[str, bytes | None]:
    match given:
        case [str(name), None]:
            return name, None
        case [str(name), str(value)]:
            return name, value.encode()
        case [str(name), dict(value)] if value.keys() == {_BASE64}:
            try:
                return name, base64.b64decode(value[_BASE64], validate=True)
            except (binascii.Error, TypeError) as error:
                raise ValueError(f'header "{name}" is not base64: {error}') from error
    raise ValueError('headers must be a list of pairs such as ["name", "value"]')
