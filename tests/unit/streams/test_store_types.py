"""What type checkers know of a store that a processor asks for; mypy checks `assert_type`."""

from __future__ import annotations

import re
from typing import Any, assert_type

import pytest

from kafka_pipeline import (
    Processor,
    ProcessorContext,
    Record,
    StreamsError,
    TopologyBuilder,
    serdes,
)
from kafka_pipeline.streams.stores import (
    KeyValueStore,
    SessionStore,
    StoreBuilder,
    TimestampedKeyValueStore,
    VersionedKeyValueStore,
    WindowStore,
    key_value,
    session,
    timestamped_key_value,
    versioned_key_value,
    window,
)
from kafka_pipeline.testing import TopologyTestDriver

TEXT, NUMBER = serdes.string, serdes.int64
STORES: list[StoreBuilder[str, int]] = [
    key_value("kv", TEXT, NUMBER),
    timestamped_key_value("timestamped", TEXT, NUMBER),
    window("window", TEXT, NUMBER, retention_ms=1000, window_size_ms=100),
    session("session", TEXT, NUMBER, retention_ms=1000),
    versioned_key_value("versioned", TEXT, NUMBER, history_retention_ms=1000),
]


class AsksForAll(Processor):
    """Asks for each store by its kind; its types are as in the store's definition."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        kv = context.get_state_store("kv", KeyValueStore[str, int])
        assert_type(kv, KeyValueStore[str, int])
        assert_type(kv.get("a"), int | None)
        timestamped = context.get_state_store("timestamped", TimestampedKeyValueStore[str, int])
        assert_type(timestamped, TimestampedKeyValueStore[str, int])
        windows = context.get_state_store("window", WindowStore[str, int])
        assert_type(windows, WindowStore[str, int])
        sessions = context.get_state_store("session", SessionStore[str, int])
        assert_type(sessions, SessionStore[str, int])
        versioned = context.get_state_store("versioned", VersionedKeyValueStore[str, int])
        assert_type(versioned, VersionedKeyValueStore[str, int])
        assert_type(context.get_state_store("kv", kind=KeyValueStore), KeyValueStore[Any, Any])
        assert_type(context.get_state_store("kv"), Any)
        self.found = [kv, timestamped, windows, sessions, versioned]

    def process(self, record: Record) -> None:
        """Do nothing."""


class AsksForWindows(Processor):
    """Asks for a store by the wrong kind."""

    def init(self, context: ProcessorContext) -> None:
        context.get_state_store("kv", WindowStore[str, int])

    def process(self, record: Record) -> None:
        """Do nothing."""


def driver_of(processor: Processor) -> TopologyTestDriver:
    builder = TopologyBuilder()
    builder.add_source("Source", "in")
    builder.add_processor("P", lambda: processor, ["Source"])
    for store in STORES:
        builder.add_state_store(store, ["P"])
    return TopologyTestDriver(builder)


def test_a_store_is_of_the_kind_that_was_asked_for() -> None:
    processor = AsksForAll()
    with driver_of(processor):
        assert [type(store) for store in processor.found] == [
            KeyValueStore,
            TimestampedKeyValueStore,
            WindowStore,
            SessionStore,
            VersionedKeyValueStore,
        ]


def test_a_store_of_another_kind_is_refused() -> None:
    message = 'the store "kv" of processor "P" is a KeyValueStore, not a WindowStore: ask for'
    with pytest.raises(StreamsError, match=re.escape(message)):
        driver_of(AsksForWindows())


def test_a_slip_in_the_name_of_a_store_is_named() -> None:
    class Slips(Processor):
        def init(self, context: ProcessorContext) -> None:
            context.get_state_store("windw")

        def process(self, record: Record) -> None:
            """Do nothing."""

    message = 'processor "P" has no store "windw", did you mean "window"?'
    with pytest.raises(StreamsError, match=re.escape(message)):
        driver_of(Slips())
