"""Definitions of stores: what a store holds, how it is kept, and how its state topic is set up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import structs

from kafka_pipeline.common.names import name_problem
from kafka_pipeline.common.pipelines.processors import StoreContent
from kafka_pipeline.common.pipelines.spreading import SAID, Rule, Spreading
from kafka_pipeline.streams.durations import Milliseconds, whole_ms
from kafka_pipeline.streams.errors import InvalidArgumentError, SerializationError, TopologyError
from kafka_pipeline.streams.serdes import Serde, is_built_in
from kafka_pipeline.streams.stores import layout
from kafka_pipeline.streams.stores.bytes_store import SEGMENT_BYTES, BytesStore, StoreBytes
from kafka_pipeline.streams.stores.formats import (
    PLAIN,
    FormattedBytes,
    Upgrade,
    ValueFormat,
    marked,
)
from kafka_pipeline.streams.stores.key_value import KeyValueStore, TimestampedKeyValueStore
from kafka_pipeline.streams.stores.layout import MAX_TIME
from kafka_pipeline.streams.stores.memory import MemoryStore
from kafka_pipeline.streams.stores.resources import StoreResources
from kafka_pipeline.streams.stores.rocksdb import RocksDBStore
from kafka_pipeline.streams.stores.segments import segment_ms
from kafka_pipeline.streams.stores.session import SessionStore
from kafka_pipeline.streams.stores.versioned import VersionedKeyValueStore
from kafka_pipeline.streams.stores.window import WindowStore

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


@dataclass(frozen=True, slots=True)
class StoreBuilder(Generic[K, V]):
    """The definition of a store. Make it with one of the functions of this module.

    A store that is not `persistent` is in memory, and restored as a whole after every start. A
    store that is not `logged` has no state topic, and is empty after every start. `spreading` says
    how the state goes to another number of tasks. `windows` says which windows the entries are, in
    words; "" if that does not matter. `with_format` gives it a `format` of values. `sides` and
    `parts` are those of `StoreContent`.
    """

    name: str
    family: str
    key_serde: Serde[K]
    value_serde: Serde[V]
    persistent: bool = True
    logged: bool = True
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    spreading: Spreading = SAID
    windows: str = ""
    format: ValueFormat = PLAIN
    sides: tuple[tuple[str, ...], ...] = ()
    parts: tuple[str, ...] = ()

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
                    "use one of kafka_pipeline.serdes, or make a kafka_pipeline.serdes.Serde"
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

    @property
    def content(self) -> StoreContent:
        """What the bytes in the state topic mean."""
        key, value = self.key_serde.name, self.value_serde.name
        return StoreContent(
            family=self.family,
            key=key,
            value=value,
            windows=self.windows,
            format=self.format.version,
            former=self.format.serdes(self.value_serde),
            sides=self.sides,
            parts=self.parts,
        )

    def topic_config(self) -> Mapping[str, str]:
        """Return the policy of the state topic, under Kafka's names.

        Kafka deletes windows and sessions at the end of their retention and a week more, counted
        from when they were written: stream time may go slower than the clock, or stand still. Kafka
        takes no number above `MAX_TIME`.
        """
        if not self._is_segmented:
            return {"cleanup.policy": "compact"}
        retention_ms = min(self.options["retention_ms"] + ONE_WEEK_MS, MAX_TIME)
        return {"cleanup.policy": "compact,delete", "retention.ms": str(retention_ms)}

    def spread(
        self,
        rule: Rule = "key",
        *,
        before: int = 0,
        after: int = 0,
        has_length: bool = False,
        answers: str | None = None,
        after_row_key: int = 0,
        closes_ms: int | None = None,
        calendar: tuple[str, str] | None = None,
        marks_given: bool = False,
    ) -> StoreBuilder[K, V]:
        """Return the definition of a store of the engine, which knows what it has in its keys.

        See `Spreading`, also for the arguments.
        """
        spreading = Spreading(
            rule=rule,
            time=self.spreading.time,
            before=before,
            after=after,
            has_length=has_length,
            answers=answers,
            after_row_key=after_row_key,
            closes_ms=closes_ms,
            calendar=calendar,
            kept_ms=None if closes_ms is None else self.options["retention_ms"],
            marks_given=marks_given,
        )
        return replace(self, spreading=spreading)

    def with_format(
        self,
        version: int,
        upgrade: Upgrade | None = None,
        former: Sequence[Serde[Any]] = (),
    ) -> StoreBuilder[K, V]:
        """Return the definition with a version of the format of values, from 1 to 255.

        Values of a format above 1 carry it, in 8 bytes; those without are of format 1. When a value
        of a former format is read, `upgrade(value, its_format)` returns what it is today, which is
        put at once: the function is not called again for it, unless its record is undone. It must
        not return `None`. If it raises, reading raises `UpgradeError`.

        `former` has the serdes of formats 1, 2 and so on; without any, all have `value_serde`.
        Without an `upgrade`, the store must have no value of a former format. Raises
        `InvalidArgumentError`.
        """
        try:
            found = ValueFormat(version, upgrade, tuple(former))
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f'the store "{self.name}": {error}') from None
        return replace(self, format=found)

    def of_former(self, version: int) -> StoreBuilder[K, Any]:
        """Return the definition as it was with a former format, for tests."""
        serde = self.format.serde_of(version, self.value_serde)
        return replace(self, value_serde=serde, format=ValueFormat(version))

    def kept_longer(self, more_ms: int) -> StoreBuilder[K, V]:
        """Return the definition of windows or sessions that are kept longer by this."""
        retention_ms, spreading = self.options["retention_ms"] + more_ms, self.spreading
        if spreading.kept_ms is not None:
            spreading = structs.replace(spreading, kept_ms=retention_ms)
        return replace(
            self, options={**self.options, "retention_ms": retention_ms}, spreading=spreading
        )

    def of_windows(self, windows: str) -> StoreBuilder[K, V]:
        """Return the definition of a store of the engine with these windows, in words."""
        return replace(self, windows=windows)

    def of_topics(self, *sides: Sequence[str]) -> StoreBuilder[K, V]:
        """Return the definition of a store of the engine with what came from these topics.

        For one side of a join, the topics of the other side follow.
        """
        return replace(self, sides=tuple(map(tuple, sides)))

    def of_parts(self, parts: tuple[str, ...]) -> StoreBuilder[K, V]:
        """Return the definition of a store of the engine with values that consist of these."""
        return replace(self, parts=parts)

    def with_options(self, **options: Any) -> StoreBuilder[K, V]:
        """Return the definition with further arguments of its class, for the engine's own steps.

        They do not change what is on disk.
        """
        return replace(self, options={**self.options, **options})

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
        time = self.spreading.time
        timestamp_of = None if time is None else layout.TIME_OF[time]
        segment_of = None
        if self._is_segmented and time is not None:
            segment_of = layout.segment_of(time, segment_ms(self.options["retention_ms"]))
        if not self.persistent:
            return MemoryStore(timestamp_of, segment_of)
        identity = {**identity, "kind": self.kind}
        return RocksDBStore(directory, identity, timestamp_of, segment_of, resources)

    def open_in_memory(self) -> BytesStore:
        """Open bytes for `build` in memory, whether the store is persistent or not."""
        return replace(self, persistent=False).open(Path(), {})

    def build(self, bytes_store: StoreBytes) -> Store:
        """Return the store on top of bytes that `open` returned, or of a view of them.

        Only without a format, the bytes may be ones that cannot be written.
        """
        serde = self.value_serde
        if self.format.version > 1:
            bytes_store = FormattedBytes(
                self.name,
                self.family,
                bytes_store,
                SEGMENT_BYTES if self._is_segmented else 0,
                serde,
                self.format,
            )
            serde = marked(serde, self.format.version)
        keys = _of_keys(self.key_serde, self.name)
        return _MAKERS[self.family](self.name, bytes_store, keys, serde, **self.options)

    @property
    def _is_segmented(self) -> bool:
        return self.family in ("window", "session")


def _of_keys(serde: Serde[K], store: str) -> Serde[K]:
    """Return a serde like this one that refuses to write `None`: a store has no null key."""
    if is_built_in(serde):
        return serde
    write = serde.serialize

    def serialize(key: K) -> bytes:
        data: bytes | None = write(key)
        if data is None:
            raise SerializationError(
                f'the serde {serde.name} cannot write this: the store "{store}" has no null key, '
                "and its function returned None"
            )
        return data

    return Serde(serde.name, serialize, serde.deserialize)


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
    retention_ms: Milliseconds,
    window_size_ms: Milliseconds,
    retain_duplicates: bool = False,
    persistent: bool = True,
    logged: bool = True,
) -> StoreBuilder[K, V]:
    """Define a `WindowStore`.

    The retention counts from the start of a window, so it is at least the window's size.
    """
    where = f'the window store "{name}"'
    size = whole_ms(where, "window_size_ms", window_size_ms, 1)
    retention = whole_ms(where, "retention_ms", retention_ms, 1)
    if retention < size:
        raise InvalidArgumentError(
            f"{where} has a retention_ms of {retention}, below its window_size_ms of {size}: "
            "windows must be kept at least until they end"
        )
    options = {
        "retention_ms": retention,
        "window_size_ms": size,
        "retain_duplicates": retain_duplicates,
    }
    spreading = Spreading(time="window")
    return StoreBuilder(
        name,
        "window",
        key_serde,
        value_serde,
        persistent,
        logged,
        options,
        spreading,
        windows=f"of {size} ms",
    )


def session(
    name: str,
    key_serde: Serde[K],
    value_serde: Serde[V],
    *,
    retention_ms: Milliseconds,
    persistent: bool = True,
    logged: bool = True,
) -> StoreBuilder[K, V]:
    """Define a `SessionStore`. The retention counts from the end of a session."""
    where = f'the session store "{name}"'
    options = {"retention_ms": whole_ms(where, "retention_ms", retention_ms, 1)}
    spreading = Spreading(time="session")
    return StoreBuilder(
        name, "session", key_serde, value_serde, persistent, logged, options, spreading
    )


def versioned_key_value(
    name: str,
    key_serde: Serde[K],
    value_serde: Serde[V],
    *,
    history_retention_ms: Milliseconds,
    persistent: bool = True,
    logged: bool = True,
) -> StoreBuilder[K, V]:
    """Define a `VersionedKeyValueStore`; a history of 0 ms keeps the latest versions only."""
    where = f'the versioned store "{name}"'
    history = whole_ms(where, "history_retention_ms", history_retention_ms, 0)
    options = {"history_retention_ms": history}
    spreading = Spreading(time="version")
    family = "versioned-key-value"
    return StoreBuilder(
        name, family, key_serde, value_serde, persistent, logged, options, spreading
    )
