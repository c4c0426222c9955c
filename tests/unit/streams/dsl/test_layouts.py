"""Bytes of windowed keys, and of changes in a repartition topic, as Kafka Streams writes them."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_pipeline import SerializationError, serdes
from kafka_pipeline.streams.dsl.change import Change, change_serde
from kafka_pipeline.streams.stores import Window, Windowed

CHANGES = change_serde(serdes.string)


@pytest.mark.parametrize(
    ("change", "data"),
    [
        (Change("new"), b"new\x01"),
        (Change(None, "old"), b"old\x00"),
        (Change("new", "old"), b"\x06newold\x02"),
        (Change("", ""), b"\x00\x02"),
        (Change("n" * 100, "old"), b"\xc8\x01" + b"n" * 100 + b"old\x02"),
        (Change("new", None, False), b"new\x00\x04"),
        (Change(None, "old", False), b"old\x00\x03"),
        (Change("new", "old", False), b"\x06newold\x00\x05"),
    ],
    ids=repr,
)
def test_changes(change: Change, data: bytes) -> None:
    """KIP-904, in ChangedSerdeTest.

    shouldSerializeAndDeserializeChangeWithNonNullNewAndOldValues,
    shouldSerializeAndDeserializeChangeWithNonNullNewValueAndNullOldValue,
    shouldSerializeAndDeserializeChangeWithNullNewValueAndNonNullOldValue,
    shouldDeserializeReservedVersions3Through5
    """
    assert CHANGES.serialize(change) == data
    read = CHANGES.deserialize(data)
    assert (read.new, read.old, read.is_latest) == (change.new, change.old, change.is_latest)


def test_a_latest_change_with_the_longer_flag_is_read() -> None:
    assert CHANGES.deserialize(b"new\x01\x04").is_latest


@pytest.mark.parametrize("data", [b"", b"new\x07", b"\xff\xff\x02"])
def test_other_bytes_are_no_change(data: bytes) -> None:
    """ChangedSerdeTest.shouldThrowErrorIfEncountersAnUnknownByteValueForOldNewFlag"""
    with pytest.raises(SerializationError, match="the serde change of string cannot read these"):
        CHANGES.deserialize(data)


def test_a_change_without_values_is_not_written() -> None:
    """ChangedSerdeTest.serializerShouldThrowIfGivenAChangeWithBothNewAndOldValuesAsNull"""
    with pytest.raises(SerializationError, match="it has no value at all"):
        CHANGES.serialize(Change(None))


KEY = Windowed("k", Window(10, 30))


def test_keys_of_windows() -> None:
    """WindowedSerdesTest.testTimeWindowSerdeFrom"""
    serde = serdes.time_windowed(serdes.string, size_ms=20)
    assert serde.serialize(KEY) == b"k" + (10).to_bytes(8, "big")
    assert serde.deserialize(serde.serialize(KEY)) == KEY


def test_keys_of_calendars() -> None:
    serde = serdes.calendar_windowed(serdes.string, "1 day", tz="Europe/Berlin")
    start = 1_711_839_600_000  # 2024-03-31, which has 23 hours
    key = Windowed("k", Window(start, start + 23 * 3_600_000))
    assert serde.serialize(key) == b"k" + start.to_bytes(8, "big")
    assert serde.deserialize(serde.serialize(key)) == key


def test_keys_of_sessions() -> None:
    """WindowedSerdesTest.testSessionWindowedSerdeFrom"""
    serde = serdes.session_windowed(serdes.string)
    assert serde.serialize(KEY) == b"k" + (30).to_bytes(8, "big") + (10).to_bytes(8, "big")
    assert serde.deserialize(serde.serialize(KEY)) == KEY


@pytest.mark.parametrize(
    "serde",
    [
        serdes.time_windowed(serdes.string, size_ms=20),
        serdes.calendar_windowed(serdes.string, "1 day", tz="UTC"),
        serdes.session_windowed(serdes.string),
    ],
)
def test_what_is_no_windowed_key_is_refused(serde: Any) -> None:
    with pytest.raises(SerializationError, match="cannot write this: it is a str, not a stores"):
        serde.serialize("k")
    with pytest.raises(SerializationError, match="cannot read these bytes: it takes"):
        serde.deserialize(b"short")
