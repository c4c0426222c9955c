"""Values of Avro as the rows of queries have them: what each type is in JSON, and in Spark's DDL.

Functions here take schemas as fastavro's `parse_schema` returns them, and values as fastavro reads
and writes them by a schema `without_logical_types`: a decimal is bytes, a date a number. In a row,
a decimal is a number with all its digits, times are text as ISO 8601 has it, and bytes are base64,
as Spark reads them. A value of a union of several types is a struct, of which one field is not
null: `member_<type>`.

Types of Kafka Connect (`connect.name`) come before Avro's logical types, see `connect_values`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from functools import partial
from typing import Any
from uuid import UUID

from kafka_pipeline.common.kafka import connect_values
from kafka_pipeline.common.kafka.avro_types import (
    base_type,
    label_of,
    members_of,
    named_in,
    resolved_type,
)
from kafka_pipeline.common.kafka.connect_values import Convert

MOST_DIGITS = 38
"""The largest precision of Spark's DECIMAL. More digits are text."""
_MOST_DIGITS_OF_LONG = 19

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PER_SECOND = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
_MICROS_OF = {"millis": 1_000, "micros": 1}
_SIMPLE = {
    "null": "STRING",
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "enum": "STRING",
    "bytes": "BINARY",
    "fixed": "BINARY",
}
_TYPES_BY_END = (("Date", "DATE"), ("Timestamp", "TIMESTAMP"))
_OF_CONNECT = {
    **{
        name: next((type_ for end, type_ in _TYPES_BY_END if name.endswith(end)), "STRING")
        for name in connect_values.BY_NAME
    },
    "io.debezium.time.ZonedTimestamp": "TIMESTAMP",
    connect_values.VARIABLE_DECIMAL: "STRING",
}
_PYTHON_TYPES: Mapping[type, Sequence[str]] = {
    bool: ("boolean",),
    int: ("long", "int"),
    float: ("double", "float"),
    str: ("string",),
    bytes: ("bytes",),
    list: ("array",),
    dict: ("map",),
}
"""The types without a name that a value may have in a union, the widest first."""


class UnfitError(ValueError):
    """A value does not fit a type; the message names the field, and quotes nothing of the value."""

    def __init__(self, reason: str, path: Sequence[str] = ()) -> None:
        place = f'field "{".".join(path)}": ' if path else ""
        super().__init__(f"{place}{reason}")
        self._reason, self._path = reason, path

    @classmethod
    def at(cls, field: str, error: Exception) -> UnfitError:
        """Return the error of the value of a field, of which a part may be to blame."""
        if isinstance(error, UnfitError):
            return cls(error._reason, (field, *error._path))
        is_said = isinstance(error, ValueError)
        return cls(str(error) if is_said else f"it is of another type ({error})", (field,))


def without_logical_types(schema: Any) -> Any:
    """Return a schema by which fastavro reads and writes what values are stored as."""
    if isinstance(schema, list):
        return [without_logical_types(each) for each in schema]
    if isinstance(schema, dict):
        return {
            name: each if name == "default" else without_logical_types(each)
            for name, each in schema.items()
            if name != "logicalType"
        }
    return schema


def columns_of(schema: Any, field: str = "") -> dict[str, str]:
    """Return the columns of the rows of a record, or of that in a field, as types of Spark.

    Raises `UnfitError` for a schema that is not a record's, and for a type that contains itself.
    """
    named = named_in(schema)
    record = resolved_type(schema, named)
    if field:
        inner = [each["type"] for each in record.get("fields", ()) if each["name"] == field]
        members = members_of(inner[0] if isinstance(inner[0], list) else inner) if inner else []
        if len(members) != 1:
            raise UnfitError(f"it has no record {field}, as that of a change event has")
        record = resolved_type(members[0], named)
    if base_type(record) != "record":
        raise UnfitError(f"it is {base_type(record)}, and only a record has columns")
    return {each["name"]: _type(each["type"], named, (), each["name"]) for each in record["fields"]}


def ddl(columns: Mapping[str, str]) -> str:
    """Return columns as Spark's DDL has them."""
    return ", ".join(f"`{name}` {type_}" for name, type_ in columns.items())


def _type(schema: Any, named: Mapping[str, Any], within: tuple[str, ...], path: str) -> str:
    schema = resolved_type(schema, named)
    if isinstance(schema, list):
        members = members_of(schema)
        if len(members) == 1:
            return _type(members[0], named, within, path)
        if problem := _union_problem(members, named):
            raise UnfitError(problem, [path])
        types = (
            f"`{member_name(each, named)}`: {_type(each, named, within, path)}"
            for each in _merged(members)
        )
        return f"STRUCT<{', '.join(types)}>" if members else "STRING"
    base = base_type(schema)
    found = schema if isinstance(schema, dict) else {}
    if (known := _OF_CONNECT.get(str(found.get("connect.name")))) is not None:
        return known
    match base:
        case "array":
            return f"ARRAY<{_type(found['items'], named, within, path)}>"
        case "map":
            return f"MAP<STRING, {_type(found['values'], named, within, path)}>"
        case "record":
            if found["name"] in within:
                raise UnfitError(
                    f"it contains itself (record {found['name']}), which a column cannot do", [path]
                )
            inner = (*within, found["name"])
            fields = {
                each["name"]: _type(each["type"], named, inner, f"{path}.{each['name']}")
                for each in found["fields"]
            }
            return f"STRUCT<{', '.join(f'`{name}`: {type_}' for name, type_ in fields.items())}>"
    return logical_type(found) or _SIMPLE[base]


def logical_type(schema: Mapping[str, Any]) -> str:
    """Return the type of a logical type or, for those that are shown as they are stored, ""."""
    if is_decimal(schema):
        precision, scale = int(schema.get("precision", MOST_DIGITS + 1)), _scale(schema)
        # Connect says 64 where the database says nothing.
        given = (schema.get("connect.parameters") or {}).get("connect.decimal.precision")
        precision = int(given or precision)
        return f"DECIMAL({precision}, {scale})" if precision <= MOST_DIGITS else "STRING"
    match str(schema.get("logicalType")).split("-"):
        case ["date"]:
            return "DATE"
        case ["time", _] | ["uuid"]:
            return "STRING"
        case ["timestamp", unit] if unit in _PER_SECOND:
            return "TIMESTAMP"
        case ["local", "timestamp", unit] if unit in _PER_SECOND:
            return "TIMESTAMP_NTZ"
    return ""


# From Avro to rows


def reader_of(schema: Any) -> Convert:
    """Return what makes a value of a row of what fastavro has read.

    It raises `UnfitError` or another `ValueError`, none of which quotes the value. fastavro must
    have been called with `return_named_type`.
    """
    return item_reader(schema) or _same


def item_reader(schema: Any) -> Convert | None:
    """Return `reader_of` for values that are not null; `None` if all of them stay as they are."""
    return _reader(schema, named_in(schema), {})


def _same(value: Any) -> Any:
    return value


def _reader(schema: Any, named: Mapping[str, Any], made: dict[str, Convert]) -> Convert | None:
    """Return what converts a value that is not null, `None` if it stays as it is."""
    schema = resolved_type(schema, named)
    if isinstance(schema, list):
        return _union_reader(schema, named, made)
    base, found = base_type(schema), schema if isinstance(schema, dict) else {}
    name = found.get("connect.name")
    if name == connect_values.VARIABLE_DECIMAL:
        return lambda value: connect_values.decimal_of(_bytes(value["value"]), value["scale"])
    match base:
        case "record":
            return _record_reader(found, named, made)
        case "array":
            item = _reader(found["items"], named, made)
            return None if item is None else lambda value: [_or_null(item, each) for each in value]
        case "map":
            inner = _reader(found["values"], named, made)
            if inner is None:
                return None
            return lambda value: {key: _or_null(inner, each) for key, each in value.items()}
        case "float" | "double":
            return connect_values.finite_or_text
        case "int" | "long":
            return connect_values.BY_NAME.get(str(name)) or _time_reader(found)
        case "bytes" | "fixed":
            if is_decimal(found):
                scale = _scale(found)
                return lambda value: connect_values.decimal_of(_bytes(value), scale)
            is_uuid = found.get("logicalType") == "uuid"
            return _uuid_text if is_uuid else _base64
    return None


def _record_reader(
    schema: Mapping[str, Any], named: Mapping[str, Any], made: dict[str, Convert]
) -> Convert:
    name = schema["name"]
    if name in made:
        # Found again within itself: by then, the function is there.
        return lambda value: made[name](value)
    made[name] = _same
    fields = {each["name"]: _reader(each["type"], named, made) for each in schema["fields"]}
    converts = [(field, convert) for field, convert in fields.items() if convert is not None]

    def read(value: dict[str, Any]) -> dict[str, Any]:
        for field, convert in converts:
            found = value.get(field)
            if found is not None:
                try:
                    value[field] = convert(found)
                except (ValueError, TypeError) as error:
                    raise UnfitError.at(field, error) from None
        return value

    made[name] = read
    return read


def _union_reader(
    schema: Sequence[Any], named: Mapping[str, Any], made: dict[str, Convert]
) -> Convert | None:
    members = members_of(schema)
    if not members:
        return None
    if len(members) == 1:
        only = _reader(members[0], named, made) or _same
        return lambda value: only(value[1] if isinstance(value, tuple) else value)
    if problem := _union_problem(members, named):
        raise UnfitError(problem)
    merged = _merged(members)
    labels = {label_of(each, named): member_name(each, named) for each in merged}
    converts = {label_of(each, named): _reader(each, named, made) or _same for each in merged}
    nulls = dict.fromkeys(labels.values())

    def read(value: Any) -> dict[str, Any]:
        if isinstance(value, tuple):
            label, value = value
        else:
            label = next(each for each in _PYTHON_TYPES[type(value)] if each in labels)
        return {**nulls, labels[label]: converts[label](value)}

    return read


def _or_null(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _bytes(value: bytes | str) -> bytes:
    """Return bytes; a default in a schema is text whose characters are the bytes."""
    return value.encode("latin-1") if isinstance(value, str) else value


def _base64(value: bytes | str) -> str:
    return b64encode(_bytes(value)).decode()


def _uuid_text(value: bytes | str) -> str:
    return str(UUID(bytes=_bytes(value)))


def _time_reader(schema: Mapping[str, Any]) -> Convert | None:
    match str(schema.get("logicalType")).split("-"):
        case ["date"]:
            return connect_values.date_of
        case ["time", unit] if unit in _PER_SECOND:
            return connect_values.time_of_day(_PER_SECOND[unit])
        case ["timestamp", unit] if unit in _PER_SECOND:
            local = connect_values.moment(_PER_SECOND[unit])
            return lambda value: f"{local(value)}Z"
        case ["local", "timestamp", unit] if unit in _PER_SECOND:
            return connect_values.moment(_PER_SECOND[unit])
    return None


# From rows to Avro


def writer_of(schema: Any, named: Mapping[str, Any] | None = None) -> Convert:
    """Return what makes the value that fastavro writes of a value of a row.

    The row is JSON whose numbers with a fraction are a `Decimal`. A value of another type than its
    schema may be left to fastavro. `named` has the types that a part of a schema gives by name.
    Raises `UnfitError`, which names the field.
    """
    return _writer(schema, named_in(schema) if named is None else named, {})


def _writer(schema: Any, named: Mapping[str, Any], made: dict[str, Convert]) -> Convert:
    schema = resolved_type(schema, named)
    if isinstance(schema, list):
        return _union_writer(schema, named, made)
    base, found = base_type(schema), schema if isinstance(schema, dict) else {}
    match base:
        case "record":
            return _record_writer(found, named, made)
        case "array":
            item = _writer(found["items"], named, made)
            return lambda value: [item(each) for each in _of(list, value, "an array")]
        case "map":
            inner = _writer(found["values"], named, made)
            return lambda value: {
                key: inner(each) for key, each in _of(dict, value, "a map").items()
            }
        case "float" | "double":
            return _float
        case "int" | "long":
            return time_writer(found) or _integer
        case "bytes" | "fixed":
            size = found.get("size")
            if is_decimal(found):
                scale, precision = _scale(found), int(found.get("precision", 0))
                return partial(_unscaled, scale=scale, precision=precision, size=size)
            if found.get("logicalType") == "uuid":
                return lambda value: UUID(_of(str, value, "text")).bytes
            return _from_base64
    return _same


def _record_writer(
    schema: Mapping[str, Any], named: Mapping[str, Any], made: dict[str, Convert]
) -> Convert:
    name = schema["name"]
    if name in made:
        return lambda value: made[name](value)
    made[name] = _same
    fields = {each["name"]: _writer(each["type"], named, made) for each in schema["fields"]}
    required = [each["name"] for each in schema["fields"] if "default" not in each]

    def write(value: Any) -> dict[str, Any]:
        given = _of(dict, value, "a struct")
        for field in required:
            if field not in given:
                raise UnfitError("it is missing, and has no default", (field,))
        result: dict[str, Any] = {}
        for field, each in given.items():
            if field not in fields:
                raise UnfitError("it is not in the schema", (field,))
            try:
                result[field] = fields[field](each)
            except (ValueError, TypeError) as error:
                raise UnfitError.at(field, error) from None
        return result

    made[name] = write
    return write


def _union_writer(
    schema: Sequence[Any], named: Mapping[str, Any], made: dict[str, Convert]
) -> Convert:
    members = members_of(schema)
    if problem := _name_problem(members, named):
        raise UnfitError(problem)
    has_null = len(members) < len(schema)
    labels = {member_name(each, named): label_of(each, named) for each in members}
    converts = {member_name(each, named): _writer(each, named, made) for each in members}

    def write(value: Any) -> Any:
        if value is None:
            if not has_null:
                raise UnfitError("it is null, which the schema does not allow")
            return None
        if len(converts) == 1:
            ((member, convert),) = converts.items()
            return labels[member], convert(value)
        found = [
            (each, one) for each, one in _of(dict, value, "a struct").items() if one is not None
        ]
        if not found and has_null:
            return None
        if len(found) != 1 or found[0][0] not in converts:
            raise UnfitError(f"it is a union: give one of {', '.join(converts)}")
        member, one = found[0]
        return labels[member], converts[member](one)

    return write


def _of(type_: type, value: Any, what: str) -> Any:
    if not isinstance(value, type_):
        raise UnfitError(f"it is not {what}, as the schema says")
    return value


def _float(value: Any) -> Any:
    is_text = value in ("NaN", "Infinity", "-Infinity")
    if isinstance(value, bool) or not (is_text or isinstance(value, int | float | Decimal)):
        raise UnfitError("it is not a number, as the schema says")
    return float(value)


def _integer(value: Any) -> Any:
    is_number = isinstance(value, int | Decimal)
    if isinstance(value, Decimal) and value.adjusted() > _MOST_DIGITS_OF_LONG:
        # An `int` of 1e999999999 would take all memory, and hours.
        raise UnfitError("it is beyond the range of a long")
    if isinstance(value, bool) or (is_number and value != int(value)):
        raise UnfitError("it is not a whole number, as the schema says")
    return int(value) if is_number else value


def _unscaled(value: Any, *, scale: int, precision: int, size: int | None) -> bytes:
    """Return the bytes of a decimal; raises `UnfitError` if it would lose digits."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise UnfitError("it is not a number, as the schema says")
    try:
        moved = Decimal(value).scaleb(scale, _WIDE)
        unscaled = int(moved)
        if unscaled != moved:
            raise UnfitError(f"it has more than {scale} decimal places, which the schema has")
    except DecimalException:
        raise UnfitError("it has too many digits") from None
    if precision and len(str(abs(unscaled))) > precision:
        raise UnfitError(f"it has more than {precision} digits, which the schema has")
    length = size or (8 + (unscaled + (unscaled < 0)).bit_length()) // 8
    try:
        return unscaled.to_bytes(length, "big", signed=True)
    except OverflowError:
        raise UnfitError(f"it has more than {size} bytes, which the schema has") from None


_WIDE = Context(prec=10_000, traps=[Inexact, InvalidOperation])


def _from_base64(value: Any) -> bytes:
    try:
        return b64decode(_of(str, value, "bytes"), validate=True)
    except ValueError:
        raise UnfitError("it is not bytes, as the schema says") from None


def time_writer(schema: Mapping[str, Any]) -> Convert | None:
    """Return what makes a number of the text of a time, `None` if the type is not one."""
    match str(schema.get("logicalType")).split("-"):
        case ["date"]:
            return lambda value: (_parsed(date.fromisoformat, value) - _EPOCH.date()).days
        case ["timestamp", unit] | ["local", "timestamp", unit] if unit in _MICROS_OF:
            return partial(_count_of_moment, micros=_MICROS_OF[unit])
        case ["time", unit] if unit in _MICROS_OF:
            return partial(_count_of_day, micros=_MICROS_OF[unit])
    return None


def _count_of_moment(value: Any, *, micros: int) -> int:
    found = _parsed(datetime.fromisoformat, value)
    moment = found if found.tzinfo else found.replace(tzinfo=UTC)
    return _whole((moment - _EPOCH) // _MICROSECOND, micros)


def _count_of_day(value: Any, *, micros: int) -> int:
    found = _parsed(datetime.fromisoformat, value, "1970-01-01T")
    return _whole((found.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND, micros)


def _whole(count: int, micros: int) -> int:
    whole, rest = divmod(count, micros)
    if rest:
        raise UnfitError("it has microseconds, and the schema has milliseconds")
    return whole


def _parsed(parse: Callable[[str], Any], value: Any, before: str = "") -> Any:
    try:
        return parse(before + _of(str, value, "a time"))
    except UnfitError:
        raise
    except ValueError:
        raise UnfitError("it is not a time that can be read") from None


# Both ways


def _merged(members: Sequence[Any]) -> list[Any]:
    """Return the types without those that a wider one of them includes."""
    bases = {base_type(each) for each in members}
    narrow = {small for small, wide in (("int", "long"), ("float", "double")) if wide in bases}
    return [each for each in members if base_type(each) not in narrow]


def _union_problem(members: Sequence[Any], named: Mapping[str, Any]) -> str:
    """Return why values of a union cannot be the fields of a struct; "" if they can."""
    if problem := _name_problem(members, named):
        return problem
    if len(_merged(members)) < len(members) and any(map(_is_logical, members)):
        # fastavro does not say which of them a number is.
        return "it is a union of int and long, and one of them is a time or a date"
    return ""


def _name_problem(members: Sequence[Any], named: Mapping[str, Any]) -> str:
    names = [member_name(each, named) for each in members]
    twice = next((name for name in names if names.count(name) > 1), "")
    name = twice.removeprefix("member_")
    return f"it is a union of several types with the name {name}" if twice else ""


def _is_logical(schema: Any) -> bool:
    return base_type(schema) in ("int", "long") and bool(
        isinstance(schema, dict) and logical_type(schema)
    )


def member_name(schema: Any, named: Mapping[str, Any]) -> str:
    """Return the name of the field that a type of a union has in a struct."""
    return f"member_{label_of(schema, named).rpartition('.')[2]}"


def is_decimal(schema: Mapping[str, Any]) -> bool:
    by_connect = schema.get("connect.name") == connect_values.DECIMAL
    return by_connect or schema.get("logicalType") == "decimal"


def _scale(schema: Mapping[str, Any]) -> int:
    of_connect = (schema.get("connect.parameters") or {}).get("scale", 0)
    return int(schema.get("scale", of_connect))
