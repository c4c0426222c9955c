"""Definitions of stores: state topics, identities, and invalid options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline import serdes, stores
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.stores import (
    KeyValueStore,
    SessionStore,
    StoreBuilder,
    TimestampedKeyValueStore,
    VersionedKeyValueStore,
    WindowStore,
)
from kafka_pipeline.streams.stores.memory import MemoryStore
from kafka_pipeline.streams.stores.rocksdb import RocksDBStore

SERDES = (serdes.string, serdes.int64)
HOUR = 3_600_000

DEFINITIONS: list[tuple[StoreBuilder[Any, Any], type, str]] = [
    (stores.key_value("s", *SERDES), KeyValueStore, "key-value"),
    (
        stores.timestamped_key_value("s", *SERDES),
        TimestampedKeyValueStore,
        "timestamped-key-value",
    ),
    (
        stores.window("s", *SERDES, retention_ms=HOUR, window_size_ms=10),
        WindowStore,
        "window, segments of 1800000 ms",
    ),
    (
        stores.session("s", *SERDES, retention_ms=1),
        SessionStore,
        "session, segments of 60000 ms",
    ),
    (
        stores.versioned_key_value("s", *SERDES, history_retention_ms=HOUR),
        VersionedKeyValueStore,
        "versioned-key-value",
    ),
]


@pytest.mark.parametrize(
    ("definition", "store", "kind"), DEFINITIONS, ids=[kind for *_, kind in DEFINITIONS]
)
def test_definition_opens_and_builds_its_store(
    definition: StoreBuilder[Any, Any], store: type, kind: str, tmp_path: Path
) -> None:
    assert definition.kind == kind
    opened = definition.open(tmp_path, {})
    assert isinstance(opened, RocksDBStore)
    built = definition.build(opened)
    assert type(built) is store
    assert built.name == "s"
    opened.close()


def test_store_that_is_not_persistent_is_in_memory(tmp_path: Path) -> None:
    definition = stores.key_value("s", *SERDES, persistent=False)
    assert isinstance(definition.open(tmp_path / "unused", {}), MemoryStore)
    assert not (tmp_path / "unused").exists()


def test_content_of_another_kind_is_wiped_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = {"topic": "state_topic_s"}
    old = stores.session("s", *SERDES, retention_ms=HOUR).open(tmp_path, identity)
    old.commit(5)
    old.close()
    new = stores.session("s", *SERDES, retention_ms=2 * HOUR).open(tmp_path, identity)
    assert new.offset is None
    new.close()
    assert (
        "kind of store session, segments of 1800000 ms, this version has kind of store "
        "session, segments of 3600000 ms"
    ) in capsys.readouterr().out


def test_content_lasts_over_another_retention(tmp_path: Path) -> None:
    short = stores.window("s", *SERDES, retention_ms=HOUR, window_size_ms=10)
    long = stores.window("s", *SERDES, retention_ms=9 * HOUR, window_size_ms=10)
    state_topic: dict[bytes, bytes | None] = {}
    opened = short.open(tmp_path, {})
    window = short.build(opened)
    assert isinstance(window, WindowStore)
    for start in range(0, HOUR, HOUR // 10):
        window.put("a", start, start)
    state_topic.update(opened.uncommitted)
    opened.commit(10)
    opened.close()
    opened = long.open(tmp_path, {})
    opened.restore(state_topic, 10)
    window = long.build(opened)
    assert isinstance(window, WindowStore)
    assert [start for start, _ in window.fetch("a", 0, HOUR)] == list(range(0, HOUR, HOUR // 10))
    opened.close()


@pytest.mark.parametrize(
    ("definition", "config"),
    [
        (DEFINITIONS[0][0], {"cleanup.policy": "compact"}),
        (DEFINITIONS[1][0], {"cleanup.policy": "compact"}),
        (DEFINITIONS[2][0], {"cleanup.policy": "compact,delete", "retention.ms": "608400000"}),
        (DEFINITIONS[3][0], {"cleanup.policy": "compact,delete", "retention.ms": "604800001"}),
        (DEFINITIONS[4][0], {"cleanup.policy": "compact"}),
    ],
    ids=[kind for *_, kind in DEFINITIONS],
)
def test_state_topic_keeps_windows_a_week_longer_and_the_rest_for_good(
    definition: StoreBuilder[Any, Any], config: dict[str, str]
) -> None:
    assert definition.topic_config() == config


def test_record_of_another_hand_in_a_state_topic_does_not_stop_a_restore(tmp_path: Path) -> None:
    for number, (definition, *_) in enumerate(DEFINITIONS):
        opened = definition.open(tmp_path / f"{number}", {})
        opened.restore({b"": b"", b"short": b"x"}, 2)
        assert opened.offset == 2
        opened.close()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "is empty"),
        ("..", "Kafka refuses"),
        ("a/b", 'has the character "/"'),
        ("ä", 'has the character "ä"'),
        ("x" * 250, "250 characters"),
    ],
)
def test_name_that_cannot_be_part_of_a_topic_is_refused(name: str, why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        stores.key_value(name, *SERDES)


def windows(**options: Any) -> StoreBuilder[str, int]:
    return stores.window("s", *SERDES, **{"retention_ms": 10, "window_size_ms": 10} | options)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: windows(retention_ms=9), "retention_ms of 9, below its window_size_ms of 10"),
        (lambda: windows(retention_ms=-1), "retention_ms=-1: give a timedelta, or a whole number"),
        (lambda: windows(window_size_ms=0), "window_size_ms=0: give .* 1 or more"),
        (lambda: windows(window_size_ms=1.5), "window_size_ms=1.5"),
        (lambda: windows(window_size_ms=True), "window_size_ms=True"),
        (lambda: stores.session("s", *SERDES, retention_ms=0), 'session store "s".* 1 or more'),
        (
            lambda: stores.versioned_key_value("s", *SERDES, history_retention_ms=-1),
            'versioned store "s".* 0 or more',
        ),
        (
            lambda: stores.key_value("s", str, serdes.int64),  # type: ignore[arg-type]
            'key_serde of the store "s" is a type: use one of kafka_pipeline.serdes',
        ),
        (
            lambda: stores.key_value("s", serdes.string, "int64"),  # type: ignore[arg-type]
            'value_serde of the store "s" is a str',
        ),
    ],
)
def test_option_that_cannot_be_is_refused_with_what_to_do(
    make: Callable[[], object], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        make()


def test_state_topic_keeps_windows_no_longer_than_kafka_can_say() -> None:
    forever = stores.window("W", serdes.string, serdes.string, retention_ms=2**63, window_size_ms=1)
    assert forever.topic_config()["retention.ms"] == str(2**63 - 1)
