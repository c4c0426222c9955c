"""Records of a topic as lines, and lines as records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_pipeline.common import json_text
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.printable import printable
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.operations.record_lines import RecordLines

TIME_MS = 1_732_280_000_000


def lines(key: str = "string", value: str = "string") -> RecordLines:
    return RecordLines.by_names("orders", key, value)


def one(key: bytes | None, value: bytes | None, headers: Any = None) -> RecordBatch:
    return RecordBatch("orders", 3, [key], [value], [TIME_MS], [7], [headers] if headers else None)


@pytest.mark.parametrize(
    ("serde", "data", "shown"),
    [
        ("string", "Äpfel".encode(), "Äpfel"),
        ("json", b'{"a": [1, null]}', {"a": [1, None]}),
        ("int64", (5).to_bytes(8, "big"), 5),
        ("boolean", b"\x01", True),
        ("float64", b"?\xe0\0\0\0\0\0\0", 0.5),
        ("uuid", b"12345678-1234-5678-1234-567812345678", "12345678-1234-5678-1234-567812345678"),
        ("bytes", b"\xff\0", "/wA="),
        ("string", None, None),
    ],
)
def test_what_is_read_is_written_as_it_was(serde: str, data: bytes | None, shown: Any) -> None:
    headers = [("plain", b"x"), ("empty", None), ("raw", b"\xff")]
    of = lines(serde, serde)
    record = of.to_json(one(data, data, headers), 0)
    assert record == {
        "partition": 3,
        "offset": 7,
        "timestamp_ms": TIME_MS,
        "key": shown,
        "value": shown,
        "headers": [["plain", "x"], ["empty", None], ["raw", {"base64": "/w=="}]],
    }
    if data is not None and serde == "json":
        data = json.dumps(shown, separators=(",", ":")).encode()
    again = of.from_json(json.dumps(record), 1)
    assert again == ("orders", data, data, 3, TIME_MS, headers)


@pytest.mark.parametrize("serde", ["json", "json_decimals"])
def test_numbers_keep_their_digits(serde: str) -> None:
    data = b'{"a":[799.929496989092949698,1E+400,-0,1.0],"b":12345678901234567890}'
    of = lines(value=serde)
    record = of.to_json(one(None, data), 0)
    text = of.to_text(one(None, data), 0)
    assert '{"a": [799.929496989092949698, 1E+400, -0, 1.0], "b": 12345678901234567890}' in text
    assert of.from_json(json_text.dumps(record), 1)[2] == data


def test_floats_are_written_from_decimal_text() -> None:
    assert lines(value="float64").from_json('{"value": 0.5}', 1)[2] == b"?\xe0\0\0\0\0\0\0"


def test_a_line_needs_only_what_it_has() -> None:
    assert lines().from_json("{}", 1) == ("orders", None, None, -1, 0, None)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("x", "Expecting value: line 1 column 1 (char 0)"),
        ('{"value": "\udcff"}', "it is not UTF-8"),
        ("[]", "the record: Expected `object`, got `array`"),
        (
            '{"valeu": "x"}',
            'unknown field "valeu": it has partition, offset, timestamp_ms, key, value, headers',
        ),
        ('{"value": 5}', "the value is not what string writes: the serde string cannot write this"),
        (
            '{"key": "x", "partition": "0"}',
            "the record: Expected `int`, got `str` - at",
        ),
        ('{"timestamp_ms": -1}', "the record: Expected `int` >= 0 - at `$.timestamp_ms`"),
        ('{"headers": {"a": "b"}}', "the record: Expected `array`, got `object` - at `$.headers`"),
        ('{"headers": ["a"]}', 'headers must be a list of pairs such as ["name", "value"]'),
        ('{"headers": [["a", {"base64": "x"}]]}', 'header "a" is not base64'),
    ],
)
def test_a_wrong_line_is_named(line: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        lines().from_json(line, 12)
    assert str(raised.value).startswith(f"line 12: {problem}")


@pytest.mark.parametrize("serde", ["bytes", "uuid"])
@pytest.mark.parametrize("value", [5, "x"])
def test_text_that_a_serde_does_not_know_is_named(serde: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"line 1: the value is not what {serde} writes"):
        lines(value=serde).from_json(json.dumps({"value": value}), 1)


def test_a_record_that_a_serde_cannot_read_is_named() -> None:
    with pytest.raises(ConfigError) as raised:
        lines().to_json(one(b"k", b"\xff"), 0)
    said = str(raised.value)
    assert said.startswith("record orders[3]@7: the value is not what string reads: ")
    assert said.endswith("; choose another serde for it, such as bytes")


def test_a_serde_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match='there is no serde "xml"'):
        lines("xml")


def test_a_line_for_people_has_no_control_characters() -> None:
    evil = "a\x1b[31m\nb\x9b\u202e".encode()
    text = lines(value="json").to_text(one(evil, b'{"x": "\\u001b"}', [(evil.decode(), None)]), 0)
    assert text == (
        "3@7  2024-11-22T12:53:20.000+00:00  a\\x1b[31m\\nb\\x9b\\u202e  "
        '{"x": "\\u001b"}  [a\\x1b[31m\\nb\\x9b\\u202e=null]'
    )
    assert text.isprintable()


def test_text_that_can_be_printed_stays() -> None:
    assert printable("Äpfel, 日本 🙂") == "Äpfel, 日本 🙂"
