"""Stores of user code: each key's entries go to its task, where the store reads the same."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kafka_pipeline import serdes, stores
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.pipeline.kinds.kind import logged
from kafka_pipeline.streams.rescaling.saved import SavedRow
from kafka_pipeline.streams.rescaling.tasks import Tasks
from kafka_pipeline.streams.stores import StoreBuilder, Window, Windowed
from kafka_pipeline.streams.stores.layout import NO_KEY
from tests.unit.streams.rescaling.sharded import Logs, spread

KEYS = [f"key-{number}" for number in range(40)] + [""]
BUILDERS: list[StoreBuilder[Any, Any]] = [
    stores.key_value("S", serdes.string, serdes.int64),
    stores.timestamped_key_value("S", serdes.string, serdes.int64),
    stores.window("S", serdes.string, serdes.int64, retention_ms=500_000, window_size_ms=1000),
    stores.window(
        "S",
        serdes.string,
        serdes.int64,
        retention_ms=500_000,
        window_size_ms=1000,
        retain_duplicates=True,
    ),
    stores.session("S", serdes.string, serdes.int64, retention_ms=500_000),
    stores.versioned_key_value("S", serdes.string, serdes.int64, history_retention_ms=500_000),
]
IDS = ["key-value", "timestamped", "window", "duplicates", "session", "versioned"]


def put(store: Any, key: str, value: int, time: int) -> None:
    match store:
        case stores.WindowStore():
            store.put(key, value, time // 1000 * 1000)
        case stores.SessionStore():
            store.put(Windowed(key, Window(time, time + 10)), value)
        case stores.VersionedKeyValueStore():
            store.put(key, value if value % 5 else None, time)
        case stores.TimestampedKeyValueStore():
            store.put(key, stores.ValueAndTimestamp(value, time))
        case _:
            store.put(key, value if value % 5 else None)


def read(store: Any, key: str) -> Any:
    match store:
        case stores.WindowStore():
            return list(store.fetch(key, 0, 10**9))
        case stores.SessionStore():
            return list(store.fetch(key))
        case stores.VersionedKeyValueStore():
            return list(store.get_versions(key))
    return store.get(key)


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (3, 5), (1, 6), (6, 4)])
@pytest.mark.parametrize("builder", BUILDERS, ids=IDS)
def test_store_reads_the_same_in_the_task_of_the_key(
    builder: StoreBuilder[Any, Any], before: int, after: int
) -> None:
    # Each task has begun with a proof that its empty store was whole.
    logs = Logs({("S", task): [SavedRow(NO_KEY, None, 0)] for task in range(before)})
    chance = random.Random(before * 10 + after)
    former = [builder.open_in_memory() for _ in range(before)]
    built = [builder.build(each) for each in former]
    for number in range(400):
        key = chance.choice(KEYS)
        task = default_partition(key.encode(), before)
        put(built[task], key, number, number * 777 + chance.randrange(5_000))
        # A store may sweep the entries of other keys, of its own task.
        logs.log["S", task] += [
            SavedRow(stored, value, number) for stored, value in former[task].uncommitted.items()
        ]
        former[task].commit(number)
    found = [builder.open_in_memory() for _ in range(after)]
    for _, row in spread(logged([builder]), Tasks(before, after), logs):
        found[row.partition].restore({row.key: row.value}, 1)
    for key in KEYS:
        was = built[default_partition(key.encode(), before)]
        task = default_partition(key.encode(), after)
        assert read(builder.build(found[task]), key) == read(was, key)
        assert not any(read(builder.build(each), key) for n, each in enumerate(found) if n != task)


def test_keys_that_are_not_those_of_records_are_refused() -> None:
    builder = stores.window(
        "S", serdes.string, serdes.int64, retention_ms=500_000, window_size_ms=1000
    )
    store = builder.open_in_memory()
    window_store = builder.build(store)
    key = next(key for key in KEYS if default_partition(key.encode(), 2) == 1)
    put(window_store, key, 1, 5_000)
    logs = Logs({("S", 0): [SavedRow(key, value, 1) for key, value in store.uncommitted.items()]})
    with pytest.raises(ConfigError, match='the store "S" of "P" has keys in task 0'):
        spread(logged([builder]), Tasks(2, 4), logs)
