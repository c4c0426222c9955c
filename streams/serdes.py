"""Serdes: how keys and values become bytes, and back.

    from kafka_pipeline import serdes

    serdes.int64.serialize(7)  # b"\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x07"
    serdes.by_name("string").deserialize(b"abc")  # "abc"

`None` never reaches a serde: a null key stays null, and so does a null value, which deletes.

`string`, `int32`, `int64`, `float32`, `float64`, `uuid` and `boolean` have the same layouts as the
corresponding Java serdes, so Java clients can read what these serdes write.
"""

from __future__ import annotations

import builtins
import operator
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from json import JSONDecodeError, JSONEncoder
from typing import Any, Generic, NoReturn, TypeVar
from uuid import UUID

from msgspec import MsgspecError

from kafka_pipeline.common import json_text
from kafka_pipeline.common.calendars import Calendar
from kafka_pipeline.common.suggest import did_you_mean, one_of
from kafka_pipeline.streams import debezium as debezium_events
from kafka_pipeline.streams.durations import Milliseconds, whole_ms
from kafka_pipeline.streams.errors import InvalidArgumentError, SerializationError
from kafka_pipeline.streams.windowed import Window, Windowed

__all__ = [
    "Serde",
    "boolean",
    "bytes",
    "calendar_windowed",
    "debezium",
    "debezium_changes",
    "debezium_key",
    "float32",
    "float64",
    "int32",
    "int64",
    "integer",
    "json",
    "session_windowed",
    "string",
    "time_windowed",
    "uuid",
]

T = TypeVar("T")

Data = builtins.bytes  # in this module, `bytes` is a serde

_STOPPED = "the function raised StopIteration"


@dataclass(frozen=True, slots=True)
class Serde(Generic[T]):
    """A pair of functions between a type and bytes; hot loops bind them once.

    Both functions raise `SerializationError` for values that they cannot convert; the message has
    no payload, and is the same for the same fault: where it is, is a note. Neither is ever called
    with `None`. Your own serdes are objects of this class too: `Serde("reversed", lambda data:
    data[::-1], lambda data: data[::-1])`. If `serialize` returns anything but bytes, or `None` for
    no value, that is a `SerializationError`, too.
    """

    name: str
    serialize: Callable[[T], Data]
    deserialize: Callable[[Data], T]

    def __post_init__(self) -> None:
        if not callable(self.serialize) or not callable(self.deserialize):
            raise InvalidArgumentError(f"the serde {self.name} takes two functions")
        # A producer or a store would notice only when a whole batch is sent, too late to tell
        # which record is at fault.
        object.__setattr__(self, "serialize", _to_bytes(self.name, self.serialize))
        object.__setattr__(self, "deserialize", _never_stops(self.deserialize))


class _BuiltIn(Serde[T]):
    """A serde of this module, which is known to return bytes."""

    __slots__ = ()

    def __post_init__(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class ColumnSerde(_BuiltIn[T]):
    """For the engine: a serde that can convert all items of a column at once, which is faster.

    `serialize_all` and `deserialize_all` return what the other functions return for each item. They
    raise any exception if an item is null, or may not be converted; then each is looked at alone.
    """

    serialize_all: Callable[[Sequence[T]], list[Data]]
    deserialize_all: Callable[[Sequence[Data]], list[T]]


def _never_stops(read: Callable[[Data], T]) -> Callable[[Data], T]:
    """Return a function whose `StopIteration` is a `RuntimeError`, as Python does for generators.

    `map` and the like would take it as the end of what they go through.
    """

    def checked(data: Data) -> T:
        try:
            return read(data)
        except StopIteration as error:
            raise RuntimeError(_STOPPED) from error

    return checked


def _to_bytes(name: str, serialize: Callable[[T], Data]) -> Callable[[T], Data]:
    """Return a function like `_never_stops`, which also refuses results that are not bytes."""

    def checked(value: T) -> Data:
        try:
            data = serialize(value)
        except StopIteration as error:
            raise RuntimeError(_STOPPED) from error
        if data is not None and data.__class__ is not Data:
            _cannot_write(name, f"its function returned a {type(data).__name__}, not bytes")
        return data

    return checked


def by_name(name: str) -> Serde[Any]:
    """Return the serde of this module with this name.

    Raises `InvalidArgumentError` if there is none.
    """
    try:
        return _BY_NAME[name]
    except KeyError:
        hint = did_you_mean(name, _BY_NAME) or f": use {one_of(_BY_NAME)}"
        raise InvalidArgumentError(f'there is no serde "{name}"{hint}') from None


def is_built_in(serde: Serde[Any]) -> bool:
    """Return whether a serde is one of those that `by_name` returns, and so no user code."""
    return _BY_NAME.get(serde.name) is serde


def key_bytes(serde: Serde[Any], text: str) -> Data:
    """Return the bytes of a key that is given as text: numbers and JSON as JSON writes them.

    Raises `SerializationError`, with a message for the user, if the text is not a key of the serde,
    or if only user code can write it.
    """
    if not is_built_in(serde):
        raise SerializationError(f"keys have the serde {serde.name}: give them in hexadecimal")
    if serde is string or serde is bytes:
        return text.encode(errors="surrogateescape")
    try:
        return serde.serialize(UUID(text) if serde is uuid else json_text.decode(text))
    except (ValueError, RecursionError):
        raise SerializationError(f'"{text}" is not a key of the serde {serde.name}') from None


def _cannot_write(name: str, reason: str) -> NoReturn:
    raise SerializationError(f"the serde {name} cannot write this: {reason}") from None


def _cannot_read(name: str, reason: str, place: str = "") -> NoReturn:
    """Raise an error with the same words for the same fault; the `place` is a note."""
    error = SerializationError(f"the serde {name} cannot read these bytes: {reason}")
    if place:
        error.add_note(place)
    raise error from None


def _type_of(value: object) -> str:
    return f"it is a {type(value).__name__}"


# bytes, string


def _same_bytes(value: Data) -> Data:
    if value.__class__ is not Data:
        _cannot_write("bytes", _type_of(value))
    return value


def _as_they_are(data: Data) -> Data:
    return data


def _write_string(value: str, encode: Callable[[str], Data] = str.encode) -> Data:
    try:
        return encode(value)
    except TypeError:
        _cannot_write("string", _type_of(value))
    except UnicodeEncodeError as error:
        _cannot_write("string", error.reason)


def _read_string(data: Data, decode: Callable[[Data], str] = Data.decode) -> str:
    try:
        return decode(data)
    except UnicodeDecodeError as error:
        _cannot_read("string", *_not_utf8(error))


def _not_utf8(error: UnicodeDecodeError) -> tuple[str, str]:
    return f"not UTF-8, {error.reason}", f"at byte {error.start}"


# Numbers


def _write_integer(value: int, index: Callable[[int], int] = operator.index) -> Data:
    try:
        return b"%d" % index(value)
    except TypeError:
        _cannot_write("integer", _type_of(value))
    except ValueError:
        _cannot_write("integer", "it has too many digits")


def _read_integer(data: Data) -> int:
    try:
        value = int(data)
    except ValueError as error:
        too_long = str(error).startswith("Exceeds the limit")
        _cannot_read("integer", "too many digits" if too_long else "no decimal integer")
    if b"_" in data:
        _cannot_read("integer", "no decimal integer")
    return value


def _packed(name: str, layout: str) -> Serde[Any]:
    """Make the serde of a number that `struct` can pack."""
    packer = struct.Struct(layout)
    size = packer.size

    def write(value: Any, pack: Callable[[Any], Data] = packer.pack) -> Data:
        try:
            return pack(value)
        except (struct.error, OverflowError):
            is_number = isinstance(value, int | float)
            is_float = isinstance(value, float) and layout in (">i", ">q")
            _cannot_write(name, "out of range" if is_number and not is_float else _type_of(value))

    def read(data: Data, unpack: Callable[[Data], tuple[Any]] = packer.unpack) -> Any:
        try:
            return unpack(data)[0]
        except struct.error:
            _cannot_read(name, f"it takes {size} of them", f"not {len(data)}")

    return _BuiltIn(name, write, read)


# uuid, boolean

_UUID = re.compile(rb"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _write_uuid(value: UUID) -> Data:
    if not isinstance(value, UUID):
        _cannot_write("uuid", _type_of(value))
    return str(value).encode()


def _read_uuid(data: Data) -> UUID:
    if not _UUID.fullmatch(data):
        _cannot_read("uuid", "not of the form 8-4-4-4-12 hexadecimal digits")
    return UUID(data.decode())


def _write_boolean(value: bool) -> Data:
    if value is True:
        return b"\x01"
    if value is False:
        return b"\x00"
    _cannot_write("boolean", _type_of(value))


def _read_boolean(data: Data) -> bool:
    if data == b"\x01":
        return True
    if data == b"\x00":
        return False
    if len(data) != 1:
        _cannot_read("boolean", "it takes 1 of them", f"not {len(data)}")
    _cannot_read("boolean", "neither 0 nor 1")


# json


_encode_json = JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_encode_exactly = partial(
    json_text.dumps, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


def _json_functions(
    name: str, encode: Callable[[Any], str], decode: Callable[[str], Any]
) -> tuple[Callable[[Any], Data], Callable[[Data], Any]]:
    def write(value: Any) -> Data:
        try:
            text = encode(value)
            data = text.encode()
        except UnicodeEncodeError as error:
            _cannot_write(name, f"a string in it cannot be UTF-8, {error.reason}")
        except RecursionError:
            _cannot_write(name, "it is nested too deeply")
        except (TypeError, ValueError) as error:
            _cannot_write(name, _without_payload(error))
        for coerced in json_text.coerced_names(value, text):
            _cannot_write_name(name, coerced)
        return data

    def read(data: Data) -> Any:
        try:
            return decode(data.decode())
        except UnicodeDecodeError as error:
            _cannot_read(name, *_not_utf8(error))
        except JSONDecodeError as error:
            words = error.msg.removesuffix(" at").removesuffix(" starting")
            _cannot_read(name, words, f"at character {error.pos}")
        except RecursionError:
            _cannot_read(name, "nested too deeply")
        except ValueError as error:
            _cannot_read(name, _without_payload(error))

    return write, read


def _fast_json_functions() -> tuple[Callable[[Any], Data], Callable[[Data], Any]]:
    """Return the functions of `json`, which leave most of the work to msgspec."""
    write_any, read_any = _json_functions("json", _encode_json, json_text.decode)

    def write(value: Any) -> Data:
        data = json_text.written_fast(value)
        return write_any(value) if data is None else data

    def read(data: Data) -> Any:
        try:
            return json_text.read_fast(data)
        except (MsgspecError, ValueError, RecursionError):
            return read_any(data)

    return write, read


def _without_payload(error: TypeError | ValueError) -> str:
    """Say what JSON cannot hold; from Python 3.12 on, the error's own message may show a number."""
    message = str(error)
    if message.startswith("Out of range"):
        return "a number in it is NaN or infinite"
    if message.startswith("Exceeds the limit"):
        return "a number in it has too many digits"
    if message.endswith("range of a float"):
        return f"{message}; serdes.json(decimals=True) reads it"
    if message.startswith("keys must be"):
        return f"a name in it is a {message.rpartition(' ')[2]}: {_NAMES_ARE_TEXT}"
    if message == "Object of type Decimal is not JSON serializable":
        return f"{message}, except with serdes.json(decimals=True)"
    return message


_NAMES_ARE_TEXT = "names in JSON are strings, so write str(…), and read it so"


def _cannot_write_name(name: str, coerced: Any) -> NoReturn:
    kind = f"a {type(coerced).__name__}"
    refused = f"the serde {name} cannot write this: "
    raise SerializationError(
        f"{refused}the name {coerced!r} in it is {kind}: {_NAMES_ARE_TEXT}",
        shown=f"{refused}a name in it is {kind}: {_NAMES_ARE_TEXT}",
    )


class _Json(_BuiltIn[Any]):
    """The serde of JSON; a call returns it, or the one that keeps the digits of numbers."""

    __slots__ = ()

    def serialize_all(self, values: Sequence[Any]) -> list[Data]:
        """See `ColumnSerde`. To read all at once is no faster."""
        lines = zip(json_text.all_written_fast(values), values, strict=True)
        return [self.serialize(value) if line is None else line for line, value in lines]

    def __call__(self, *, decimals: bool = False) -> Serde[Any]:
        """Return the serde of JSON that reads numbers with a fraction as floats, or `decimals`."""
        return _json_decimals if decimals else self


bytes: Serde[Data] = _BuiltIn("bytes", _same_bytes, _as_they_are)
"""The bytes as they are."""

string: Serde[str] = ColumnSerde(
    "string",
    _write_string,
    _read_string,
    lambda items: list(map(str.encode, items)),
    lambda items: list(map(Data.decode, items)),
)
"""UTF-8; a lone surrogate cannot be written."""

integer: Serde[int] = _BuiltIn("integer", _write_integer, _read_integer)
"""Decimal text, as the built-in `sum` and `count` write it; up to 4,300 digits.

Reads a sign and surrounding blanks too, as `sum` does; writes the canonical form."""

int32: Serde[int] = _packed("int32", ">i")
"""4 bytes, big-endian, two's complement; Java's Integer."""

int64: Serde[int] = _packed("int64", ">q")
"""8 bytes, big-endian, two's complement; Java's Long."""

float32: Serde[float] = _packed("float32", ">f")
"""4 bytes, big-endian, IEEE 754; Java's Float. Rounds; NaN and the infinities are written."""

float64: Serde[float] = _packed("float64", ">d")
"""8 bytes, big-endian, IEEE 754; Java's Double. NaN and the infinities are written."""

uuid: Serde[UUID] = _BuiltIn("uuid", _write_uuid, _read_uuid)
"""36 characters of text, in lower case; reads upper case too."""

boolean: Serde[bool] = _BuiltIn("boolean", _write_boolean, _read_boolean)
"""1 byte, 0 or 1; Java's Boolean. Writes only `True` and `False`, not numbers."""

json = _Json("json", *_fast_json_functions())
"""Compact JSON in UTF-8, with non-ASCII characters unescaped.

What it writes, it reads as an equal value, except that tuples become lists. So it refuses names
that are not strings, such as those of `{7: 1}`, sets, NaN and the infinities. Subclasses of `str`,
`int`, `float`, `list` and `dict` are read as those.

It reads what RFC 8259 allows. Of a name that an object has twice, the last value counts. A number
with a fraction or an exponent becomes the nearest float, so a step that does not touch it may give
it other digits: 0.12345678901234567890 is written as 0.12345678901234568, and 1e400 is refused.
`-0` is read as 0. `serdes.json(decimals=True)`, named `json_decimals` in pipeline.yaml, reads these
numbers as `decimal.Decimal`, and writes all their digits back. That takes several times as long.

The members of an object keep their order, so equal objects may differ in bytes: as a key, an object
is a poor choice."""

_json_decimals: Serde[Any] = _BuiltIn(
    "json_decimals", *_json_functions("json_decimals", _encode_exactly, json_text.decode_exactly)
)


# Change events


def _of_events(
    name: str, decode: Callable[[Data], Any], around: tuple[Data, Data] = (b"", b"")
) -> Serde[Any]:
    """Return the serde of what `decode` reads; it writes JSON objects, with bytes `around` them."""
    write_json, _ = _json_functions(name, _encode_exactly, json_text.decode_exactly)

    def write(value: Any) -> Data:
        if not isinstance(value, dict):
            _cannot_write(name, _type_of(value))
        return around[0] + write_json(value) + around[1]

    def read(data: Data) -> Any:
        try:
            return decode(data)
        except debezium_events.EnvelopeError as error:
            _cannot_read(name, str(error))

    return _BuiltIn(name, write, read)


debezium: Serde[Any] = _of_events(
    "debezium", debezium_events.read_row, (b'{"op":"r","after":', b"}")
)
"""The row of a change event of Debezium, as a dict; a deletion is read as `None`.

    orders = builder.table("shop.public.orders", value_serde=serdes.debezium, name="Orders")

It reads JSON with and without a schema. With one, dates and times are text as ISO 8601 has it, and
decimals a `decimal.Decimal`. So are all other numbers with a fraction, with all their digits. A row
is written in an envelope of its own, which this serde reads."""

debezium_changes: Serde[Any] = _of_events("debezium_changes", debezium_events.read_event)
"""A change event of Debezium as a dict with `op`, `before`, `after`, `source` and the other fields
of its envelope. The values of both rows are as those of `debezium`."""

debezium_key: Serde[Any] = _of_events("debezium_key", debezium_events.read_event)
"""The key of a change event of Debezium as a dict of the columns of the primary key."""

_BY_NAME: Mapping[str, Serde[Any]] = {
    serde.name: serde
    for serde in (
        *(bytes, string, integer, int32, int64, float32, float64, uuid, boolean),
        *(json, _json_decimals, debezium, debezium_changes, debezium_key),
    )
}
JSON_NAMES = ("json", "json_decimals", "debezium", "debezium_changes")
"""Those whose values may have fields."""

NAMES = tuple(sorted(_BY_NAME))
"""The names that `by_name` knows."""


# Windowed keys

_TIME_BYTES = 8
_SESSION_BYTES = 16
_pack_start = struct.Struct(">q").pack
_pack_ends = struct.Struct(">qq").pack


def time_windowed(inner: Serde[T], *, size_ms: Milliseconds) -> Serde[Windowed[T]]:
    """Return the serde of keys in windows of one size; the size of a sliding window is its span.

    The layout is that of Java's TimeWindowedSerde: the key as `inner` writes it, then the window's
    start in 8 bytes. The size is not written, so the reader must know it, 0 ms or more. Raises
    `InvalidArgumentError` for invalid arguments.
    """
    _require_inner("time_windowed", inner)
    size = whole_ms("time_windowed", "size_ms", size_ms, 0)
    return _by_start("time_windowed", inner, lambda start: Window(start, start + size))


def calendar_windowed(inner: Serde[T], period: str, *, tz: str) -> Serde[Windowed[T]]:
    """Return the serde of keys in the days, weeks or months of a time zone.

    The layout is that of `time_windowed`. The end is not written, so the reader must know the
    `period` and `tz`, as `windows.calendar` takes them. Raises `InvalidArgumentError` for invalid
    arguments.
    """
    _require_inner("calendar_windowed", inner)
    try:
        calendar = Calendar(period, tz)
    except ValueError as error:
        raise InvalidArgumentError(f"calendar_windowed: {error}") from None
    return _by_start(
        "calendar_windowed", inner, lambda start: Window(start, calendar.span(start)[1])
    )


def _by_start(kind: str, inner: Serde[T], window: Callable[[int], Window]) -> Serde[Windowed[T]]:
    """Return the serde of keys in windows that are known by their start."""
    write_key, read_key = inner.serialize, inner.deserialize
    name = f"{kind} {inner.name}"

    def write(value: Windowed[T]) -> Data:
        if not isinstance(value, Windowed):
            _cannot_write(name, f"{_type_of(value)}, not a stores.Windowed")
        return write_key(value.key) + _pack_start(value.window.start)

    def read(data: Data) -> Windowed[T]:
        if len(data) < _TIME_BYTES:
            _cannot_read(name, f"it takes {_TIME_BYTES} or more of them", f"not {len(data)}")
        start = int.from_bytes(data[-_TIME_BYTES:], "big", signed=True)
        return Windowed(read_key(data[:-_TIME_BYTES]), window(start))

    return _BuiltIn(name, write, read)


def session_windowed(inner: Serde[T]) -> Serde[Windowed[T]]:
    """Return the serde of keys in sessions.

    The layout is that of Java's SessionWindowedSerde: the key as `inner` writes it, then the end
    and the start of the session in 8 bytes each. Raises `InvalidArgumentError` if `inner` is not a
    serde.
    """
    _require_inner("session_windowed", inner)
    write_key, read_key = inner.serialize, inner.deserialize
    name = f"session_windowed {inner.name}"

    def write(value: Windowed[T]) -> Data:
        if not isinstance(value, Windowed):
            _cannot_write(name, f"{_type_of(value)}, not a stores.Windowed")
        return write_key(value.key) + _pack_ends(value.window.end, value.window.start)

    def read(data: Data) -> Windowed[T]:
        if len(data) < _SESSION_BYTES:
            _cannot_read(name, f"it takes {_SESSION_BYTES} or more of them", f"not {len(data)}")
        end = int.from_bytes(data[-_SESSION_BYTES:-_TIME_BYTES], "big", signed=True)
        start = int.from_bytes(data[-_TIME_BYTES:], "big", signed=True)
        return Windowed(read_key(data[:-_SESSION_BYTES]), Window(start, end))

    return _BuiltIn(name, write, read)


def _require_inner(name: str, inner: object) -> None:
    if not isinstance(inner, Serde):
        raise InvalidArgumentError(
            f"{name} takes the serde of the keys, such as serdes.string, not {inner!r}"
        )
