"""Processors that compare a record with those before it: repeats, and the values before."""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.common.json_text import coerced_names
from kafka_pipeline.streams.dsl.graph import Compiling, Operation, Step
from kafka_pipeline.streams.dsl.stateless import NULL_KEY
from kafka_pipeline.streams.engine.nodes import NamedPart
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.event_time.step_time import (
    ENDS_MS,
    FollowsTime,
    StepTime,
    times_store_name,
)
from kafka_pipeline.streams.processor import Processor, ProcessorContext
from kafka_pipeline.streams.record import Record
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import KeyValueStore, StoreBuilder, WindowStore

_LENGTH = struct.Struct(">I")

Identity = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class StatefulStep(Operation):
    """Runs a processor of the DSL's own with its stores."""

    method: str
    used: tuple[StoreBuilder[Any, Any], ...]
    make: Callable[[], Processor]

    @property
    def verb(self) -> str:
        return self.method

    def stores(self) -> tuple[str, ...]:
        return tuple(store.name for store in self.used)

    def compile(self, step: Step, compiler: Compiling) -> None:
        for store in self.used:
            compiler.add_store(store)
        compiler.runs(step, self.make)


class Identifier(NamedPart):
    """Finds what a record is recognised by: its key, and the result of a function."""

    def __init__(self, name: str, function: Identity) -> None:
        self.name = name
        self._function = function

    def of(self, record: Record) -> tuple[Any, Any]:
        """Return the key and the result."""
        return record.key, self._function(record.key, record.value)


class Deduplicator(Processor, FollowsTime):
    """Drops records that repeat one within a time, and those that come after a grace period."""

    def __init__(self, store: str, within_ms: int, grace_ms: int, identity: Identity) -> None:
        self._name = store
        self._within_ms = within_ms
        self._grace_ms = grace_ms
        self._identifier = Identifier(store, identity)

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store: WindowStore[Any, bytes] = context.get_state_store(self._name, WindowStore)
        times = context.get_state_store(times_store_name(self._name))
        self._time = StepTime(context, times)
        if not self._time.follows_records:
            self._store.follow(self._time.now)

    def process(self, record: Record) -> None:
        if record.key is None:
            self.context.drop(NULL_KEY)
            return
        timestamp, within_ms = record.timestamp, self._within_ms
        late_after = timestamp + self._grace_ms
        if self._time.see(timestamp) > late_after:
            own = max(timestamp, self._time.clock)
            self.context.drop(self._time.late_reason(own, late_after + 1))
            return
        identity = self._identifier.of(record)
        first = max(0, timestamp - within_ms + 1)
        with self._store.fetch(identity, first, timestamp + within_ms - 1) as found:
            is_repeated = next(found, None) is not None
        if not is_repeated:
            self._store.put(identity, b"", timestamp)
            self.context.forward(record)

    def time_passed(self, time: int) -> None:
        now = self._time.after_hold(time)
        if now > self._time.now:
            self._time.move(now)
            if not self._time.follows_records:
                self._store.go_on(now - ENDS_MS)


class DistinctFilter(Processor):
    """Drops records that repeat any earlier one."""

    def __init__(self, store: str, identity: Identity) -> None:
        self._name = store
        self._identifier = Identifier(store, identity)

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store: KeyValueStore[Any, bytes] = context.get_state_store(self._name, KeyValueStore)

    def process(self, record: Record) -> None:
        if record.key is None:
            self.context.drop(NULL_KEY)
        elif self._store.put_if_absent(self._identifier.of(record), b"") is None:
            self.context.forward(record)


class Lagger(Processor):
    """Forwards each value with the one `n` records before."""

    def __init__(self, store: str, n: int) -> None:
        self._name = store
        self._n = n

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store: KeyValueStore[Any, list[Any]] = context.get_state_store(
            self._name, KeyValueStore
        )

    def process(self, record: Record) -> None:
        key, value = record.key, record.value
        if key is None:
            self.context.drop(NULL_KEY)
            return
        n, values = self._n, self._store.get(key) or []
        # A former version of the code may have kept more.
        previous = values[-n] if len(values) >= n else None
        self._store.put(key, [*values, value][-n:])
        self.context.forward(record.with_value({"current": value, "previous": previous}))


def identities(key_serde: Serde[Any]) -> Serde[tuple[Any, Any]]:
    """Return the serde of a key and the result of a function, which JSON can hold."""
    write_key, read_key = key_serde.serialize, key_serde.deserialize

    def write(identity: tuple[Any, Any]) -> bytes:
        key, result = identity
        data = write_key(key)
        try:
            text = json.dumps(result, sort_keys=True, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError):
            raise SerializationError(
                f"by gives a {type(result).__name__}, which cannot be compared: return what JSON "
                "can hold"
            ) from None
        for name in coerced_names(result, text):
            raise SerializationError(
                f"by gives a dict with a name that is a {type(name).__name__}, which cannot be "
                "compared: names in JSON are strings"
            )
        return _LENGTH.pack(len(data)) + data + text.encode()

    def read(data: bytes) -> tuple[Any, Any]:
        end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
        return read_key(data[_LENGTH.size : end]), json.loads(data[end:])

    return Serde(f"{key_serde.name} and more", write, read)


def lags(value_serde: Serde[Any]) -> Serde[list[Any]]:
    """Return the serde of a list of values that another serde writes."""
    write_value, read_value = value_serde.serialize, value_serde.deserialize

    def write(values: list[Any]) -> bytes:
        written = [
            None if each is None else b64encode(write_value(each)).decode() for each in values
        ]
        return json.dumps(written, separators=(",", ":")).encode()

    def read(data: bytes) -> list[Any]:
        return [None if e is None else read_value(b64decode(e)) for e in json.loads(data)]

    return Serde(f"list of {value_serde.name}", write, read)
