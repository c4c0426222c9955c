"""Serdes: the bytes that they write, the values that they read, and their errors."""

from __future__ import annotations

import math
import struct
from collections import Counter, namedtuple
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum, StrEnum
from json import dumps, loads
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_pipeline import serdes
from kafka_pipeline.common import json_text
from kafka_pipeline.streams.errors import InvalidArgumentError, SerializationError, StreamsError
from kafka_pipeline.streams.serdes import Serde

NAMES = [
    "boolean",
    "bytes",
    "debezium",
    "debezium_changes",
    "debezium_key",
    "float32",
    "float64",
    "int32",
    "int64",
    "integer",
    "json",
    "json_decimals",
    "string",
    "uuid",
]
DECIMALS = serdes.json(decimals=True)
A_UUID = UUID("0123ABCD-4567-89ab-cdef-0123456789ab")

ROWS = st.dictionaries(
    st.text(), st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text()
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.binary(),
    "string": st.text(),
    "integer": st.integers(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float32": st.floats(width=32),
    "float64": st.floats(),
    "uuid": st.uuids(),
    "boolean": st.booleans(),
    "json": st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    ),
    "json_decimals": st.recursive(
        st.none() | st.integers() | st.decimals(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    ).filter(lambda value: not isinstance(value, Decimal) or str(value).strip("-0123456789")),
    "debezium": ROWS,
    "debezium_changes": ROWS,
    "debezium_key": ROWS,
}


def refusal(function: Callable[[Any], object], argument: object) -> str:
    with pytest.raises(SerializationError) as caught:
        function(argument)
    return str(caught.value)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


# What they make of a value, and back


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_every_serde_gives_back_what_it_was_given(name: str, data: st.DataObject) -> None:
    serde = serdes.by_name(name)
    value = data.draw(VALUES[name])
    written = serde.serialize(value)
    assert type(written) is bytes
    read = serde.deserialize(written)
    assert type(read) is type(value)
    assert read == value or (math.isnan(read) and math.isnan(value))


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (serdes.bytes, b"\xff\x00", b"\xff\x00"),
        (serdes.string, "my string", b"my string"),
        (serdes.string, "ü€𝄞", b"\xc3\xbc\xe2\x82\xac\xf0\x9d\x84\x9e"),
        (serdes.string, "", b""),
        (serdes.integer, -42, b"-42"),
        (serdes.int32, 0x01020304, b"\x01\x02\x03\x04"),
        (serdes.int32, -1, b"\xff\xff\xff\xff"),
        (serdes.int64, 1, b"\x00\x00\x00\x00\x00\x00\x00\x01"),
        (serdes.int64, -(2**63), b"\x80\x00\x00\x00\x00\x00\x00\x00"),
        (serdes.float32, 1.5, b"\x3f\xc0\x00\x00"),
        (serdes.float64, 1.5, b"\x3f\xf8\x00\x00\x00\x00\x00\x00"),
        (serdes.float64, -math.inf, b"\xff\xf0\x00\x00\x00\x00\x00\x00"),
        (serdes.uuid, A_UUID, b"0123abcd-4567-89ab-cdef-0123456789ab"),
        (serdes.boolean, True, b"\x01"),
        (serdes.boolean, False, b"\x00"),
        (serdes.json, {"b": [1, None, True], "a": "ü"}, b'{"b":[1,null,true],"a":"\xc3\xbc"}'),
        (serdes.json, None, b"null"),
    ],
)
def test_bytes_are_those_that_java_clients_expect(
    serde: Serde[Any], value: object, data: bytes
) -> None:
    assert serde.serialize(value) == data
    assert serde.deserialize(data) == value


def test_a_float_of_four_bytes_is_rounded() -> None:
    assert serdes.float32.deserialize(serdes.float32.serialize(5678567.12312)) == 5678567.0


@pytest.mark.parametrize("bits", [0x7FC00001, 0x7F800001, 0x7F800002])
def test_every_nan_of_java_is_read_as_nan(bits: int) -> None:
    assert math.isnan(serdes.float32.deserialize(struct.pack(">I", bits)))


@pytest.mark.parametrize(
    ("data", "value"), [(b"7", 7), (b" +07 ", 7), (b"-0", 0), (b"\t-12\n", -12)]
)
def test_integers_are_read_with_signs_and_blanks_as_by_the_sum_processor(
    data: bytes, value: int
) -> None:
    assert serdes.integer.deserialize(data) == value


def test_upper_case_uuids_are_read_too() -> None:
    assert serdes.uuid.deserialize(str(A_UUID).upper().encode()) == A_UUID


# What they refuse


@pytest.mark.parametrize(
    ("serde", "value", "reason"),
    [
        (serdes.bytes, "text", "it is a str"),
        (serdes.bytes, bytearray(b"x"), "it is a bytearray"),
        (serdes.string, b"x", "it is a bytes"),
        (serdes.string, "ab\ud800", "surrogates not allowed"),
        (serdes.integer, 1.5, "it is a float"),
        (serdes.integer, "7", "it is a str"),
        pytest.param(serdes.integer, 10**4300, "it has too many digits", id="4301 digits"),
        (serdes.int32, 2**31, "out of range"),
        (serdes.int64, -(2**63) - 1, "out of range"),
        (serdes.int64, 1.0, "it is a float"),
        (serdes.int64, None, "it is a NoneType"),
        (serdes.float32, 1e39, "out of range"),
        pytest.param(serdes.float64, 10**400, "out of range", id="401 digits"),
        (serdes.float64, "1.5", "it is a str"),
        (serdes.uuid, str(A_UUID), "it is a str"),
        (serdes.boolean, 1, "it is a int"),
        (serdes.json, math.nan, "a number in it is NaN or infinite"),
        (serdes.json, [math.inf], "a number in it is NaN or infinite"),
        (serdes.json, {(1, 2): 3}, "a name in it is a tuple: names in JSON are strings"),
        (serdes.json, Decimal("1.5"), "Object of type Decimal is not JSON serializable, except"),
        (DECIMALS, [Decimal("NaN")], "a number in it is NaN or infinite"),
        (DECIMALS, Decimal("-Infinity"), "a number in it is NaN or infinite"),
        (DECIMALS, [math.nan], "a number in it is NaN or infinite"),
        (DECIMALS, [{1}, Decimal(1)], "Object of type set is not JSON serializable"),
        (serdes.json, {1, 2}, "Object of type set is not JSON serializable"),
        (serdes.json, "\ud800", "a string in it cannot be UTF-8"),
        pytest.param(serdes.json, nested(100_000), "it is nested too deeply", id="deep"),
        pytest.param(serdes.json, [10**4300], "a number in it has too many digits", id="json"),
    ],
)
def test_what_a_serde_cannot_write_is_refused_with_its_name_and_a_reason(
    serde: Serde[Any], value: object, reason: str
) -> None:
    message = refusal(serde.serialize, value)
    assert message.startswith(f"the serde {serde.name} cannot write this: {reason}")


@pytest.mark.parametrize(
    ("serde", "data", "reason"),
    [
        (serdes.string, b"ab\xff", "not UTF-8, invalid start byte"),
        (serdes.integer, b"", "no decimal integer"),
        (serdes.integer, b"1_0", "no decimal integer"),
        (serdes.integer, b"1.5", "no decimal integer"),
        pytest.param(serdes.integer, b"9" * 4301, "too many digits", id="4301 digits"),
        (serdes.int32, b"\x00" * 8, "it takes 4 of them"),
        (serdes.int64, b"", "it takes 8 of them"),
        (serdes.float32, b"", "it takes 4 of them"),
        (serdes.float32, b"abc", "it takes 4 of them"),
        (serdes.float32, b"abcde", "it takes 4 of them"),
        (serdes.uuid, b"{0123abcd-4567-89ab-cdef-0123456789ab}", "not of the form"),
        (serdes.uuid, b"0123abcd456789abcdef0123456789ab", "not of the form"),
        (serdes.boolean, b"", "it takes 1 of them"),
        (serdes.boolean, b"\x02", "neither 0 nor 1"),
        (serdes.json, b"", "Expecting value"),
        (serdes.json, b"[1,]", ""),
        (serdes.json, b"[NaN]", "NaN is no JSON"),
        (serdes.json, b"-Infinity", "-Infinity is no JSON"),
        (serdes.json, b"1e999", "a number is beyond the range of a float"),
        (serdes.json, b"-1e400", "a number is beyond the range of a float; serdes.json(decimals="),
        (DECIMALS, b"1e9999999999999999999", "a number is beyond the range of a Decimal"),
        (DECIMALS, b"1e-9999999999999999999", "a number is beyond the range of a Decimal"),
        (DECIMALS, b"[Infinity]", "Infinity is no JSON"),
        (serdes.json, b"\xff", "not UTF-8"),
        (serdes.json, '"ü"'.encode("utf-16"), "not UTF-8"),
        pytest.param(serdes.json, b"[" * 100_000, "nested too deeply", id="deep"),
        pytest.param(
            serdes.json, b"9" * 5000, "a number in it has too many digits", id="5000 digits"
        ),
    ],
)
def test_bytes_that_a_serde_cannot_read_are_refused_with_its_name_and_a_reason(
    serde: Serde[Any], data: bytes, reason: str
) -> None:
    message = refusal(serde.deserialize, data)
    assert message.startswith(f"the serde {serde.name} cannot read these bytes: {reason}")


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"bytes"}))
def test_refusals_hold_no_payload(name: str) -> None:
    serde = serdes.by_name(name)
    assert "secret" not in refusal(serde.deserialize, b"secret\xff")
    if name not in ("string", "json", "json_decimals"):
        assert "secret" not in refusal(serde.serialize, "secret")


def test_a_refusal_is_an_error_of_the_stream_api() -> None:
    with pytest.raises(StreamsError):
        serdes.int64.deserialize(b"")


# JSON that reads back as it was written


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


@pytest.mark.parametrize("serde", [serdes.json, DECIMALS])
@pytest.mark.parametrize("name", [7, -7, 2.5, 1e16, 1e-7, True, False, None, Level.LOW])
@pytest.mark.parametrize(
    "around",
    [
        lambda inner: inner,
        lambda inner: [{"a": 1}, inner],
        lambda inner: {"a": {"b": (inner,)}},
        lambda inner: Counter({"a": inner}),
        lambda inner: {"ü": inner},
    ],
)
def test_a_name_that_is_not_text_is_refused_and_not_made_text(
    serde: Serde[Any], name: Any, around: Callable[[Any], Any]
) -> None:
    with pytest.raises(
        SerializationError, match="names in JSON are strings, so write str"
    ) as found:
        serde.serialize(around({"x": 1, name: 2}))
    assert repr(name) in str(found.value)
    assert f"the name {name!r}" not in found.value.shown
    assert type(name).__name__ in str(found.value)


@pytest.mark.parametrize(
    "value",
    [
        {"7": 1, "item1": 2, "true": 3, "null": 4, "1.5": 5, "a": {"value": {"8": []}}},
        {"text": '{"7":1}', '"7":': "null:"},
        {"-0.0": -0.0, "whole": 1.0, "large": 1e300, "small": 5e-324, "long": 10**400},
        {Colour.RED: Colour.RED, "level": Level.LOW, "counts": Counter("aab")},
    ],
)
def test_values_are_read_as_equal_ones(value: Any) -> None:
    found = serdes.json.deserialize(serdes.json.serialize(value))
    assert found == value
    assert str(found.get("-0.0", -0.0)) == "-0.0"


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.builds(lambda digits, places: digits / 10**places, st.integers(), st.integers(0, 30))
    | st.text()
    | st.text('\b\f\n\r\t\u2028\ud800\x00\x7f"\\/e0.-', max_size=5)
    | st.datetimes()
    | st.decimals()
    | st.uuids()
    | st.binary()
    | st.sampled_from([Colour.RED, Level.LOW, Counter("aab"), {1, 2}]),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.none() | st.sampled_from([2.5]), inner)
    ),
    max_leaves=8,
)


@given(ANYTHING)
@example(1e16)
@example(1e-7)
@example(0.00001)
@example(nested(400))
@example("".join(map(chr, range(256))))
@example([1e22, {"n": -1.5e-9, "e": 2e16}])
@example({"id": "a5e3-1e-9", "text": '":1e9,0.00001', "[1e5": "[-2.5e7"})
def test_json_is_what_the_standard_library_writes(value: Any) -> None:
    try:
        text = dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        expected = text.encode()
    except (TypeError, ValueError):
        refusal(serdes.json.serialize, value)
        return
    if json_text.coerced_names(value, text):
        refusal(serdes.json.serialize, value)
    else:
        assert serdes.json.serialize(value) == expected


@given(st.lists(ANYTHING, max_size=4))
@example([{"id": "a5e3-1e-9"}, {"n": 1e22}])
@example([1, 1e22])
@example([{"a": "line\nline\r\u2028"}, "\n", ""])
@example([{"a": None}, None])
def test_values_are_written_together_as_alone_or_not_at_all(values: list[Any]) -> None:
    try:
        found = serdes.json.serialize_all(values)
    except Exception:
        return
    assert found == [serdes.json.serialize(value) for value in values]


def test_usual_values_are_written_together() -> None:
    values = [{"id": "3f2a5e3c-11d4-4e5e-9a5e", "n": -1, "x": [0.5, True, None]}, "é\n", 7, []]
    assert serdes.json.serialize_all(values) == list(map(serdes.json.serialize, values))
    assert serdes.json.serialize_all([]) == []


JSON_PARTS = [
    *'[]{}",:.eE+- \n\x01\x7f\\é\ufeff',
    *["-0", "1", "00", "9" * 20, "1e400", "1e-400", "0.1", "5e-324", "true", "null", "NaN"],
    *["Infinity", '"a":', "[1,", r"\ud800", r"\u0000"],
]
JSON_TEXTS = st.lists(st.sampled_from(JSON_PARTS), max_size=12).map("".join)


@given(JSON_TEXTS.map(str.encode) | st.binary() | ANYTHING.map(repr).map(str.encode))
def test_json_is_read_as_the_standard_library_does(data: bytes) -> None:
    try:
        expected = json_text.decode(data.decode())
    except ValueError:
        refusal(serdes.json.deserialize, data)
    else:
        assert repr(serdes.json.deserialize(data)) == repr(expected)


def test_tuples_are_read_as_lists() -> None:
    point = namedtuple("point", "x y")
    assert serdes.json.deserialize(serdes.json.serialize({"a": (1, point(2, 3))})) == {
        "a": [1, [2, 3]]
    }


def test_of_a_name_that_comes_twice_the_last_value_counts() -> None:
    # State that an earlier version has written may have such names.
    assert serdes.json.deserialize(b'{"7":1,"7":2}') == {"7": 2}


@pytest.mark.parametrize(
    "number",
    [
        *("799.929496989092949698", "0.1", "1.0", "-0.0", "-0", "0", "1E+2", "1E+400", "1E-400"),
        *("1.10", "0E-10", "12345678901234567890123456789", "-1.5E-7", "9" * 4000 + ".5"),
    ],
)
def test_a_number_that_no_step_touches_keeps_its_digits_as_a_decimal(number: str) -> None:
    # FLINK-20170
    data = f'{{"a":[{number},"{number}"],"b":{number}}}'.encode()
    read = DECIMALS.deserialize(data)
    assert isinstance(read["b"], int if number.strip("-").isdigit() else Decimal) or number == "-0"
    assert DECIMALS.serialize(read) == data


def test_other_ways_to_write_a_number_keep_its_digits_and_exponent() -> None:
    assert DECIMALS.serialize(DECIMALS.deserialize(b"[1e2, 1.50e+02, 0.00000001]")) == (
        b"[1E+2,150,1E-8]"
    )


def test_floats_can_be_written_among_decimals() -> None:
    assert DECIMALS.serialize({"a": 0.1, "b": Decimal("0.10"), "c": 7}) == (
        b'{"a":0.1,"b":0.10,"c":7}'
    )


def test_json_without_decimals_is_the_serde_itself() -> None:
    assert serdes.json() is serdes.json is serdes.json(decimals=False)
    assert serdes.by_name("json_decimals") is DECIMALS
    assert serdes.is_built_in(DECIMALS)


# Of one's own


@pytest.mark.parametrize(("made", "given"), [(dumps, "str"), (bytearray, "bytearray")])
def test_a_function_that_returns_no_bytes_is_found_out_at_once(
    made: Callable[[Any], Any], given: str
) -> None:
    serde = serdes.Serde("mine", made, loads)
    message = f"the serde mine cannot write this: its function returned a {given}, not bytes"
    with pytest.raises(SerializationError, match=message):
        serde.serialize([1])


def test_a_serde_is_made_of_two_functions() -> None:
    with pytest.raises(InvalidArgumentError, match="the serde mine takes two functions"):
        serdes.Serde("mine", dumps, "loads")  # type: ignore[arg-type]


# By name


def test_names_are_those_of_the_serdes() -> None:
    assert [serdes.by_name(name).name for name in NAMES] == NAMES
    assert serdes.by_name("string") is serdes.string


def test_a_misspelt_name_is_answered_by_the_nearest_one() -> None:
    with pytest.raises(ValueError, match=r'no serde "int46", did you mean "int64"\?'):
        serdes.by_name("int46")


def test_an_unknown_name_is_answered_by_all_names() -> None:
    with pytest.raises(ValueError, match='"debezium_changes" or "debezium_key"'):
        serdes.by_name("zzz")
