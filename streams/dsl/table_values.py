"""The values of a table, as other steps look them up: in its store, or computed from its parent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.streams.errors import SerializationError, reworded
from kafka_pipeline.streams.event_time.step_time import NO_TIME
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import (
    PUT_RETURN_CODE_NOT_PUT,
    PUT_RETURN_CODE_VALID_TO_UNDEFINED,
    StoreBuilder,
    TimestampedKeyValueStore,
    ValueAndTimestamp,
    VersionedKeyValueStore,
    timestamped_key_value,
    versioned_key_value,
)
from kafka_pipeline.streams.stores.bytes_store import Changes

Found = ValueAndTimestamp[Any] | None


@dataclass(frozen=True, slots=True)
class TableSerdes:
    """The serdes of the keys and values of a table."""

    key: Serde[Any]
    value: Serde[Any]


class TableReader(ABC):
    """Looks up values of a table within a task."""

    is_versioned: bool = False
    """Whether `get_as_of` knows the past."""

    @abstractmethod
    def get(self, key: Any) -> Found:
        """Return the latest value of `key` and its time, or `None`."""

    def has_expired(self, key: Any) -> bool:
        """Return whether the value of `key` has expired, or a part of it, if it ever had one."""
        return False

    def get_all(self, keys: Sequence[Any]) -> Sequence[Found]:
        """Return what `get` returns for each of the keys; each gets a value of its own."""
        return [self.get(key) for key in keys]

    def get_as_of(self, key: Any, timestamp: int) -> Found:
        """Return the value that was valid at a time; of an unversioned table, the latest one."""
        return self.get(key)

    def serialized(self, key_serde: Serde[Any], value_serde: Serde[Any]) -> SerializedReader:
        """Return a reader of the latest values as bytes; the serdes are those of the table."""
        return _Serializing(self, key_serde, value_serde)


class SerializedReader(ABC):
    """Looks up latest values of a table as bytes, under keys as bytes."""

    @abstractmethod
    def get(self, key: bytes) -> tuple[bytes, int] | None:
        """Return the bytes of the value of `key` and its time, or `None`."""

    def get_all(self, keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
        """Return what `get` returns for each of the keys."""
        return list(map(self.get, keys))

    @abstractmethod
    def value(self, data: bytes) -> Any:
        """Return the value whose bytes the last call of `get` returned."""


class _Serializing(SerializedReader):
    def __init__(self, reader: TableReader, key_serde: Serde[Any], value_serde: Serde[Any]) -> None:
        self._reader = reader
        self._read_key = key_serde.deserialize
        self._write = value_serde.serialize
        self._value: Any = None

    def get(self, key: bytes) -> tuple[bytes, int] | None:
        found = self._reader.get(self._read_key(key))
        if found is None:
            return None
        self._value = found.value
        return self._write(found.value), found.timestamp

    def value(self, data: bytes) -> Any:
        return self._value


class _Stored(SerializedReader):
    def __init__(self, store: TimestampedKeyValueStore[Any, Any], value_serde: Serde[Any]) -> None:
        self._get = store.get_serialized
        self._get_all = store.get_all_serialized
        self._read = value_serde.deserialize

    def get(self, key: bytes) -> tuple[bytes, int] | None:
        return self._get(key)

    def get_all(self, keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
        return self._get_all(keys)

    def value(self, data: bytes) -> Any:
        return self._read(data)


class TableValues(ABC):
    """Where the values of a table come from; the same for all tasks."""

    @property
    @abstractmethod
    def stores(self) -> tuple[str, ...]:
        """The stores that a processor must be connected to for `open`."""

    @abstractmethod
    def open(self, context: ProcessorContext) -> TableReader:
        """Return a reader for the processor with this context."""


class TableStore(TableReader):
    """The store of a table, with or without versions, behind one interface.

    What `get` returns was deserialized for the caller, who may change it.
    """

    @abstractmethod
    def put(self, key: Any, value: Any, timestamp: int) -> bool | None:
        """Set or delete the value of `key`; return whether it is the latest one.

        Returns `None` if a versioned store dropped it, as it is older than the history.
        """

    def follow(self) -> None:
        """Let history end by the time of the task, and not by what is put."""

    def go_on(self, time: int) -> None:
        """Go on to a time of the task, by which history ends."""


class TimestampedTable(TableStore):
    """The store of a table without versions."""

    def __init__(self, store: TimestampedKeyValueStore[Any, Any], where: str) -> None:
        self._store = store
        self.where = where
        """The step that made the table, for messages."""
        self.get = store.get  # type: ignore[method-assign]

    def get(self, key: Any) -> Found:
        return self._store.get(key)

    def get_all(self, keys: Sequence[Any]) -> Sequence[Found]:
        return self._store.get_all(keys)

    def serialized(self, key_serde: Serde[Any], value_serde: Serde[Any]) -> SerializedReader:
        return _Stored(self._store, value_serde)

    def put(self, key: Any, value: Any, timestamp: int) -> bool | None:
        try:
            self._store.put_value(key, value, timestamp)
        except SerializationError as error:
            raise unwritable(self.where, error) from error
        return True

    def get_all_stored(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values under keys that are bytes, as bytes that begin with their times."""
        return self._store.get_all_stored(keys)

    def put_serialized(self, changes: Changes) -> None:
        """Set values under keys that are bytes; the caller must not use the dict afterwards."""
        self._store.put_serialized(changes)

    def put_all(
        self, keys: Sequence[Any], values: Sequence[Any], times: Sequence[int], gets_old: bool
    ) -> Sequence[Any]:
        """Put each value; return the ones that they have replaced, or `None` for each."""
        try:
            if gets_old:
                return self._store.exchange(keys, values, times)
            self._store.put_values(keys, values, times)
        except SerializationError as error:
            raise unwritable(self.where, error) from error
        return [None] * len(keys)


class _Versioned(TableStore):
    is_versioned = True

    def follow(self) -> None:
        self._store.follow(NO_TIME)

    def go_on(self, time: int) -> None:
        self._store.go_on(time)

    def __init__(self, store: VersionedKeyValueStore[Any, Any], where: str) -> None:
        self._store = store
        self._where = where

    def get(self, key: Any) -> Found:
        found = self._store.get(key)
        return None if found is None else ValueAndTimestamp(found.value, found.timestamp)

    def get_as_of(self, key: Any, timestamp: int) -> Found:
        found = self._store.get(key, timestamp)
        return None if found is None else ValueAndTimestamp(found.value, found.timestamp)

    def put(self, key: Any, value: Any, timestamp: int) -> bool | None:
        try:
            code = self._store.put(key, value, timestamp)
        except SerializationError as error:
            raise unwritable(self._where, error) from error
        if code == PUT_RETURN_CODE_NOT_PUT:
            return None
        return code == PUT_RETURN_CODE_VALID_TO_UNDEFINED


def unwritable(where: str, error: SerializationError) -> SerializationError:
    """Return an error that names the step, and the arguments that help."""
    return reworded(error, f"This is for the store of {where}: give it key_serde or value_serde")


def open_table_store(context: ProcessorContext, name: str, verb: str) -> TableStore:
    """Return the store of a table; `verb` is the method that made it, for messages."""
    store = context.get_state_store(name)
    where = f'{verb} "{name}"'
    if isinstance(store, VersionedKeyValueStore):
        return _Versioned(store, where)
    return TimestampedTable(store, where)


def table_store(
    name: str,
    key_serde: Serde[Any],
    value_serde: Serde[Any],
    history_retention_ms: int | None = None,
    *,
    after_key: int = 0,
) -> StoreBuilder[Any, Any]:
    """Return the definition of a table's store; it is versioned if there is a history.

    Of each key, `after_key` bytes are not of the record's key.
    """
    if history_retention_ms is None:
        return timestamped_key_value(name, key_serde, value_serde).spread(after=after_key)
    return versioned_key_value(
        name, key_serde, value_serde, history_retention_ms=history_retention_ms
    ).spread(after=after_key)


@dataclass(frozen=True, slots=True)
class StoredValues(TableValues):
    """The values of a table with a store; `verb` is the method that made it."""

    store: str
    verb: str

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)

    def open(self, context: ProcessorContext) -> TableReader:
        return open_table_store(context, self.store, self.verb)


@dataclass(frozen=True, slots=True)
class ComputedValues(TableValues):
    """The values of a view: what `compute(key, value)` makes of those of the parent."""

    parent: TableValues
    compute: Callable[[Any, Any], Any]

    @property
    def stores(self) -> tuple[str, ...]:
        return self.parent.stores

    def open(self, context: ProcessorContext) -> TableReader:
        return _Computed(self.parent.open(context), self.compute)


class _Computed(TableReader):
    def __init__(self, parent: TableReader, compute: Callable[[Any, Any], Any]) -> None:
        self._parent = parent
        self._compute = compute
        self.is_versioned = parent.is_versioned

    def get(self, key: Any) -> Found:
        return self._of(key, self._parent.get(key))

    def get_all(self, keys: Sequence[Any]) -> Sequence[Found]:
        founds = self._parent.get_all(keys)
        return [self._of(key, found) for key, found in zip(keys, founds, strict=True)]

    def get_as_of(self, key: Any, timestamp: int) -> Found:
        return self._of(key, self._parent.get_as_of(key, timestamp))

    def has_expired(self, key: Any) -> bool:
        return self._parent.has_expired(key)

    def _of(self, key: Any, found: Found) -> Found:
        if found is None:
            return None
        value = self._compute(key, found.value)
        return None if value is None else ValueAndTimestamp(value, found.timestamp)
