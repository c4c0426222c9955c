"""Stores' errors for invalid arguments, and the forms that several entries may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_pipeline import InvalidArgumentError, StateStoreError, TopologyError, serdes, stores
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import ValueAndTimestamp, Window, Windowed
from tests.unit.streams.stores.backends import Backend

PLAIN = stores.key_value("store", serdes.string, serdes.integer)
TIMED = stores.timestamped_key_value("store", serdes.string, serdes.integer)
WINDOWS = stores.window(
    "store", serdes.string, serdes.integer, retention_ms=9000, window_size_ms=10
)
SESSIONS = stores.session("store", serdes.string, serdes.integer, retention_ms=9000)
VERSIONS = stores.versioned_key_value(
    "store", serdes.string, serdes.integer, history_retention_ms=9000
)


@pytest.mark.parametrize(
    "form", [dict, lambda pairs: pairs, lambda pairs: [[*pair] for pair in pairs], iter]
)
@pytest.mark.parametrize("definition", [PLAIN, TIMED], ids=["plain", "timestamped"])
def test_several_entries_may_be_a_mapping_or_pairs(
    backend: Backend, definition: Any, form: Callable[[Any], Any]
) -> None:
    store = backend.build(definition)
    one: Any = ValueAndTimestamp(1, 5) if definition is TIMED else 1
    store.put("yy", one)
    store.put_all(form([("x", one), ("yy", None), ("zzz", one)]))
    with store.all() as entries:
        assert list(entries) == [("x", one), ("zzz", one)]


@pytest.mark.parametrize("entries", [["xy"], [1], [("k",)], [("k", 1, 2)]])
@pytest.mark.parametrize("definition", [PLAIN, TIMED], ids=["plain", "timestamped"])
def test_entries_that_are_no_pairs_are_refused(
    backend: Backend, definition: Any, entries: Any
) -> None:
    with pytest.raises(StateStoreError, match="takes a mapping, or pairs of a key and a value"):
        backend.build(definition).put_all(entries)


REFUSED: dict[str, tuple[Any, Callable[[Any], object], str]] = {
    "a value without a time": (
        TIMED,
        lambda store: store.put("k", 7),
        "takes a ValueAndTimestamp, or a pair of a value and its time, not a int",
    ),
    "a string for a value with a time": (
        TIMED,
        lambda store: store.put("k", "ab"),
        "takes a ValueAndTimestamp, or a pair of a value and its time, not a str",
    ),
    "three for a value with a time": (
        TIMED,
        lambda store: store.put("k", (1, 2, 3)),
        "takes a ValueAndTimestamp, or a pair of a value and its time, not a tuple",
    ),
    "a value with a fraction of a time": (
        TIMED,
        lambda store: store.put("k", (1, 2.5)),
        "takes times from -1 to 2^63 - 1 ms, not a float",
    ),
    "a value with a negative time": (
        TIMED,
        lambda store: store.put_all({"k": (1, -2)}),
        "takes times from -1 to 2^63 - 1 ms, not -2",
    ),
    "a window with a fraction of a time": (
        WINDOWS,
        lambda store: store.put("k", 1, 1.5),
        "takes times from 0 to 2^63 - 1 ms, not a float",
    ),
    "a window with a string for a time": (
        WINDOWS,
        lambda store: store.put("k", 1, "1"),
        "takes times from 0 to 2^63 - 1 ms, not a str",
    ),
    "a version with a string for a time": (
        VERSIONS,
        lambda store: store.put("k", 1, "1"),
        "takes times from 0 to 2^63 - 1 ms, not a str",
    ),
    "a session that is a key": (
        SESSIONS,
        lambda store: store.put("k", 1),
        "takes a Windowed(key, Window(start, end)), not a str",
    ),
    "a session without a window": (
        SESSIONS,
        lambda store: store.remove(Windowed("k", (1, 2))),  # type: ignore[arg-type]
        "takes a Windowed(key, Window(start, end)), not a Windowed",
    ),
    "a session with a fraction of a time": (
        SESSIONS,
        lambda store: store.put(Windowed("k", Window(0, 1.5)), 1),  # type: ignore[arg-type]
        "takes times from 0 to 2^63 - 1 ms, not a float",
    ),
    "a fraction of a time to look for windows from": (
        WINDOWS,
        lambda store: store.fetch("k", 0.5, 9),
        "looks for times that are whole numbers, in ms, not a float",
    ),
    "no time to look for windows to": (
        WINDOWS,
        lambda store: store.fetch_range("a", "k", 0, None),
        "looks for times that are whole numbers, in ms, not a NoneType",
    ),
    "a fraction of the start of a window": (
        WINDOWS,
        lambda store: store.fetch_window("k", 1.5),
        "looks for times that are whole numbers, in ms, not a float",
    ),
    "a string for the start of a session": (
        SESSIONS,
        lambda store: store.fetch_session("k", "1", 5),
        "looks for times that are whole numbers, in ms, not a str",
    ),
    "a fraction of the end of sessions": (
        SESSIONS,
        lambda store: store.find_sessions("k", 1.5, 9),
        "looks for times that are whole numbers, in ms, not a float",
    ),
    "a fraction of the end of sessions, for a list": (
        SESSIONS,
        lambda store: store.find_sessions_list("k", 1.5, 9),
        "looks for times that are whole numbers, in ms, not a float",
    ),
    "a fraction of the end of sessions of all keys": (
        SESSIONS,
        lambda store: store.find_sessions_by_end(1, 9.5),
        "looks for times that are whole numbers, in ms, not a float",
    ),
    "a fraction of a time to get a version of": (
        VERSIONS,
        lambda store: store.get("k", 6.5),
        "looks for times that are whole numbers, in ms, not a float",
    ),
    "a fraction of a time to look for versions to": (
        VERSIONS,
        lambda store: store.get_versions("k", 0, 6.5),
        "looks for times that are whole numbers, in ms, not a float",
    ),
    "a fraction of a time to delete at": (
        VERSIONS,
        lambda store: store.delete("k", 6.5),
        "takes times from 0 to 2^63 - 1 ms, not a float",
    ),
    "a prefix without a serializer": (
        PLAIN,
        lambda store: store.prefix_scan("k", None),
        "needs a serde or a function for the prefix, such as serdes.string, not None",
    ),
    "a prefix with the name of a serde": (
        PLAIN,
        lambda store: store.prefix_scan("k", "string"),
        "needs a serde or a function for the prefix, such as serdes.string, not 'string'",
    ),
    "a prefix that becomes no bytes": (
        PLAIN,
        lambda store: store.prefix_scan("k", str),
        "became a str: its serializer must return bytes",
    ),
}


@pytest.mark.parametrize(("definition", "use", "message"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_argument_is_refused_in_words(
    backend: Backend, definition: Any, use: Callable[[Any], object], message: str
) -> None:
    store = backend.build(definition)
    with pytest.raises(StateStoreError) as raised:
        use(store)
    assert message in str(raised.value)
    assert '"store"' in str(raised.value)


PUTS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "plain": (PLAIN, lambda store, key, value: store.put(key, value)),
    "all": (PLAIN, lambda store, key, value: store.put_all({key: value})),
    "timestamped": (TIMED, lambda store, key, value: store.put(key, (value, 5))),
    "windows": (WINDOWS, lambda store, key, value: store.put(key, value, 5)),
    "sessions": (SESSIONS, lambda store, key, value: store.put(Windowed(key, Window(5, 5)), value)),
    "versions": (VERSIONS, lambda store, key, value: store.put(key, value, 5)),
}
OR_NONE: Serde[str] = Serde("or none", lambda text: text.encode() or None, bytes.decode)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(("definition", "put"), PUTS.values(), ids=PUTS)
def test_a_key_that_its_serde_writes_as_none_is_refused(
    backend: Backend, definition: Any, put: Callable[..., Any]
) -> None:
    """A record without a key would fail the whole transaction: its topic is compacted."""
    store = backend.build(replace(definition, key_serde=OR_NONE))
    put(store, "x", 1)
    with pytest.raises(
        SerializationError, match=r'serde or none .* the store "store" has no null key'
    ):
        put(store, "", 1)
    assert len(backend.store.uncommitted) == 1


@pytest.mark.parametrize(("definition", "put"), PUTS.values(), ids=PUTS)
def test_a_value_that_its_serde_writes_as_none_deletes(
    backend: Backend, definition: Any, put: Callable[..., Any]
) -> None:
    store = backend.build(replace(definition, value_serde=OR_NONE))
    put(store, "x", "1")
    put(store, "x", "")
    if definition is VERSIONS:
        assert store.get("x") is None
    else:
        assert [*backend.store.uncommitted.values()] == [None]


def test_an_unknown_time_survives(backend: Backend) -> None:
    store = backend.build(TIMED)
    store.put("k", (7, -1))
    backend.store.commit(1)
    assert store.get("k") == ValueAndTimestamp(7, -1)


@pytest.mark.parametrize(
    "define",
    [
        lambda: stores.window("s", serdes.string, serdes.string, retention_ms=9, window_size_ms=10),
        lambda: stores.session("s", serdes.string, serdes.string, retention_ms=0),
        lambda: stores.key_value("s", "string", serdes.string),  # type: ignore[arg-type]
        lambda: serdes.by_name("strng"),
    ],
)
def test_a_definition_that_cannot_be_is_an_invalid_argument(define: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgumentError):
        define()


def test_the_name_of_a_store_is_a_text() -> None:
    name: Any = None
    with pytest.raises(TopologyError, match="the name of a store is a string, not a NoneType"):
        stores.key_value(name, serdes.string, serdes.string)
