"""State stores: the state of a task, as its committed transactions have left it.

    from kafka_pipeline import serdes, stores

    counts = stores.key_value("counts", serdes.string, serdes.int64)

A definition says what a store holds; the engine makes one store per task from it. A processor then
gets a `KeyValueStore`, `TimestampedKeyValueStore`, `WindowStore`, `SessionStore` or
`VersionedKeyValueStore`.
"""

from kafka_pipeline.streams.stores.api import (
    PUT_RETURN_CODE_NOT_PUT,
    PUT_RETURN_CODE_VALID_TO_UNDEFINED,
    ValueAndTimestamp,
    VersionedRecord,
)
from kafka_pipeline.streams.stores.builder import (
    StoreBuilder,
    key_value,
    session,
    timestamped_key_value,
    versioned_key_value,
    window,
)
from kafka_pipeline.streams.stores.iterators import StoreIterator
from kafka_pipeline.streams.stores.key_value import KeyValueStore, TimestampedKeyValueStore
from kafka_pipeline.streams.stores.session import SessionStore
from kafka_pipeline.streams.stores.versioned import VersionedKeyValueStore
from kafka_pipeline.streams.stores.window import WindowStore
from kafka_pipeline.streams.windowed import Window, Windowed

__all__ = [
    "PUT_RETURN_CODE_NOT_PUT",
    "PUT_RETURN_CODE_VALID_TO_UNDEFINED",
    "KeyValueStore",
    "SessionStore",
    "StoreBuilder",
    "StoreIterator",
    "TimestampedKeyValueStore",
    "ValueAndTimestamp",
    "VersionedKeyValueStore",
    "VersionedRecord",
    "Window",
    "WindowStore",
    "Windowed",
    "key_value",
    "session",
    "timestamped_key_value",
    "versioned_key_value",
    "window",
]
