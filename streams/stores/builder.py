"""Definitions of stores: what a store holds, how it is kept, and how its state topic is set up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from common.names import name_problem
from streams.errors import InvalidArgumentError, TopologyError
from streams.serdes import Serde
from streams.stores import layout
from streams.stores.bytes_store import BytesStore, StoreBytes
from streams.stores.key_value import KeyValueStore, TimestampedKeyValueStore
from streams.stores.memory import MemoryStore
from streams.stores.resources import StoreResources
from streams.stores.rocksdb import RocksDBStore
from streams.stores.segments import segment_ms
from streams.stores.session import SessionStore
from streams.stores.versioned import VersionedKeyValueStore
from streams.stores.window import WindowStore

K = TypeVar("K")
V = TypeVar("V")

ONE_WEEK_MS = 7 * 86_400_000

Store: TypeAlias = (
    KeyValueStore[Any, Any]
    | WindowStore[Any, Any]
    | SessionStore[Any, Any]
    | VersionedKeyValueStore[Any, Any]
)
_MAKERS: Mapping[str, Callable[..., Store]] = {
    "key-value": KeyValueStore,
    "timestamped-key-value": TimestampedKeyValueStore,
    "window": WindowStore,
    "session": SessionStore,
    "versioned-key-value": VersionedKeyValueStore,
}
_TIMES: Mapping[str, Callable[[bytes], int]] = {
    "window": layout.window_start,
    "session": layout.session_end,
    "versioned-key-value": layout.version_time,
}


@dataclass(frozen=True, slots=True)
class StoreBuilder(Generic[K, V]):
    """The definition of a store. Make it with one of the functions of this module.

    A store that is not `persistent` is in memory, and restored as a whole after every start. A
    store that is not `logged` has no state topic, and is empty after every start.
    """

    name: str
    family: str
    key_serde: Serde[K]
    value_serde: Serde[V]
    persistent: bool = True
    logged: bool = True
    options: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TopologyError(
                f"the name of a store is a string, not a {type(self.name).__name__}"
            )
        problem = name_problem(self.name)
        if problem:
            raise TopologyError(f'the name "{self.name}" of a store {problem}')
        for what, serde in (("key_serde", self.key_serde), ("value_serde", self.value_serde)):
            if not isinstance(serde, Serde):
                raise InvalidArgumentError(
                    f'the {what} of the store "{self.name}" is a {type(serde).__name__}: '
                    "use one of streams.serdes, or make a streams.serdes.Serde"
                )

    @property
    def kind(self) -> str:
        """The layout of the content on disk; content of another kind cannot be used.

        The kind is part of a store's identity, with the format version of RocksDBStore. Windows and
        sessions with another retention may have segments of another length.
        """
        if self._is_segmented:
            return f"{self.family}, segments of {segment_ms(self.options['retention_ms'])} ms"
        return self.family

    def topic_config(self) -> Mapping[str, str]:
        """Return the policy of the state topic, under Kafka's names.

        Kafka deletes windows and sessions at the end of their retention and a week more, counted
        from when they were written: stream time may go slower than the clock, or stand still.
        """
        if not self._is_segmented:
            return {"cleanup.policy": "compact"}
        retention_ms = self.options["retention_ms"] + ONE_WEEK_MS
        return {"cleanup.policy": "compact,delete", "retention.ms": str(retention_ms)}

    def open(
        self,
        directory: Path,
        identity: Mapping[str, str],
        resources: StoreResources | None = None,
    ) -> BytesStore:
        """Open a task's bytes for `build`; in `directory` if the store is persistent.

        `identity` says what the content belongs to; the kind is added to it. `resources` are shared
        with the other stores of the process. Raises what `RocksDBStore` raises.
        """
        timestamp_of = _TIMES.get(self.family)
        segment_of = None
        if self._is_segmented and timestamp_of is not None:
            length = segment_ms(self.options["retention_ms"])
            segment_of = layout.segment_of(timestamp_of, length)
        if not self.persistent:
            return MemoryStore(timestamp_of, segment_of)
        identity = {**identity, "kind": self.kind}
        return RocksDBStore(directory, identity, timestamp_of, segment_of, resources)

    def open_in_memory(self) -> BytesStore:
        """Open bytes for `build` in memory, whether the store is persistent or not."""
        return replace(self, persistent=False).open(Path(), {})

    def build(self, bytes_store: StoreBytes) -> Store:
        """Return the store on top of bytes that `open` returned, or of a view of them."""
        return _MAKERS[self.family](
            self.name, bytes_store, self.key_serde, self.value_serde, **self.options
        )

    @property
    def _is_segmented(self) -> bool:
        return self.family in ("window", "session")


def key_value(
    name: str,
    key_serde: Serde[K],
    value_serde: Serde[V],
    persistent: bool = True,
    logged: bool = True,
) -> StoreBuilder[K, V]:
    """Define a `KeyValueStore`."""
    return StoreBuilder(name, "key-value", key_serde, value_serde, persistent, logged)


def timestamped_key_value(
    name: str,
    key_serde: Serde[K],
    value_serde: Serde[V],
    persistent: bool = True,
    logged: bool = True,
) -> StoreBuilder[K, V]:
    """Define a `TimestampedKeyValueStore`; `value_serde` is for the values without a time."""
    return StoreBuilder(name, "timestamped-key-value", key_serde, value_serde, persistent, logged)


def window(
    name: str,
    key_serde: Serde[K],
    value_serde: Serde[V],
    *,
    retention_ms: int,
    window_size_ms: int,
    retain_duplicates: bool = False,
    persistent: bool = True,
    logged: bool = True,
) -> StoreBuilder[K, V]:
    """Define a `WindowStore`.

    The retention counts from the start of a window, so it is at least the window's size.
    """
    where = f'the window store "{name}"'
    _check_ms(where, "window_size_ms", window_size_ms, 1)
    _check_ms(where, "retention_ms", retention_ms, 1)
    if retention_ms < window_size_ms:
        raise InvalidArgumentError(
            f"{where} has a retention_ms of {retention_ms}, below its window_size_ms of "
            f"{window_size_ms}: windows must be kept at least until they end"
        )
    options = {
        "retention_ms": retention_ms,
        "window_size_ms": window_size_ms,
        "retain_duplicates": retain_duplicates,
    }
    return StoreBuilder(name, "window", key_serde, value_serde, persistent, logged, options)


def session(
    name: str,
    key_serde: Serde[K],
    value_serde: Serde[V],
    *,
    retention_ms: int,
    persistent: bool = True,
    logged: bool = True,
) -> StoreBuilder[K, V]:
    """Define a `SessionStore`. The retention counts from the end of a session."""
    _check_ms(f'the session store "{name}"', "retention_ms", retention_ms, 1)
    options = {"retention_ms": retention_ms}
    return StoreBuilder(name, "session", key_serde, value_serde, persistent, logged, options)


def versioned_key_value(
    name: str,
    key_serde: Serde[K],
    value_serde: Serde[V],
    *,
    history_retention_ms: int,
    persistent: bool = True,
    logged: bool = True,
) -> StoreBuilder[K, V]:
    """Define a `VersionedKeyValueStore`; a history of 0 ms keeps the latest versions only."""
    where = f'the versioned store "{name}"'
    _check_ms(where, "history_retention_ms", history_retention_ms, 0)
    options = {"history_retention_ms": history_retention_ms}
    return StoreBuilder(
        name, "versioned-key-value", key_serde, value_serde, persistent, logged, options
    )


def _check_ms(where: str, option: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidArgumentError(
            f"{where} has a {option} of {value!r}: give a whole number of milliseconds, "
            f"{least} or more"
        )
