"""Topologies whose state is computed again: one reads sources only, one counts after a topic."""

from __future__ import annotations

from functools import partial

from kafka_pipeline import Processor, ProcessorContext, Record, StreamsBuilder, serdes, windows
from kafka_pipeline.common.pipelines.specs import EmitTime
from kafka_pipeline.streams.engine.topology import Topology
from kafka_pipeline.streams.stores import Windowed

WINDOW_MS = 1_000
GRACE_MS = 500


def build(factor: int = 1) -> Topology:
    """Sum numbers, times `factor`, in windows of each kind, and join two sources."""
    builder = StreamsBuilder(key_serde=serdes.bytes, value_serde=serdes.bytes)
    numbers = builder.stream("source", name="Numbers").map_values(
        lambda value: int(value) * factor, value_serde=serdes.int64
    )
    grouped = numbers.group_by_key()

    def add(key: bytes, value: int, total: int) -> int:
        return total + value

    kind = windows.tumbling(WINDOW_MS, grace_ms=GRACE_MS)
    sums = grouped.windowed_by(kind).aggregate(int, add, name="Sums", value_serde=serdes.int64)
    sums.to_stream().map(lambda key, value: shown(b"sum", key, value)).to("sink")
    closed = grouped.windowed_by(kind, emit="on_close").aggregate(
        int, add, name="Closed", value_serde=serdes.int64
    )
    closed.to_stream().map(lambda key, value: shown(b"closed", key, value)).to("sink")
    sessions = grouped.windowed_by(windows.session(300, grace_ms=GRACE_MS), emit="on_close").count(
        name="Sessions"
    )
    sessions.to_stream().map(lambda key, value: shown(b"session", key, value)).to("sink")
    numbers.filter(lambda key, number: number % 2 == 0).join(
        numbers.filter(lambda key, number: number % 2 == 1),
        lambda left, right: b"join %d %d" % (left, right),
        windows.join(before_ms=400, after_ms=400, grace_ms=GRACE_MS),
        name="Joined",
        value_serde=serdes.bytes,
    ).to("sink")
    return builder.build()


def windowed(factor: int) -> Topology:
    """Sum numbers, times `factor`, in windows, on update and on close."""
    builder = StreamsBuilder(key_serde=serdes.bytes, value_serde=serdes.bytes)
    numbers = builder.stream("source", name="Numbers").map_values(
        lambda value: int(value) * factor, value_serde=serdes.int64
    )

    def add(key: bytes, value: int, total: int) -> int:
        return total + value

    kind, grouped = windows.tumbling(WINDOW_MS, grace_ms=GRACE_MS), numbers.group_by_key()
    emits: dict[str, EmitTime] = {"sum": "on_update", "closed": "on_close"}
    for what, emit in emits.items():
        sums = grouped.windowed_by(kind, emit=emit).aggregate(
            int, add, name=what, value_serde=serdes.int64
        )
        sums.to_stream().map(partial(shown, what.encode())).to("results")
    return builder.build()


def close_when_idle() -> Topology:
    """Count in windows that close by the wall clock, too."""
    builder = StreamsBuilder(key_serde=serdes.bytes, value_serde=serdes.bytes)
    kind = windows.tumbling(WINDOW_MS, grace_ms=GRACE_MS, close_after_idle_ms=1_000)
    grouped = builder.stream("source", name="Numbers").group_by_key()
    counted = grouped.windowed_by(kind, emit="on_close").count(name="Counted")
    counted.to_stream().map(lambda key, value: shown(b"count", key, value)).to("sink")
    return builder.build()


def count_names(suffix: str = "") -> Topology:
    """Count values after a repartition by them."""
    builder = StreamsBuilder(key_serde=serdes.bytes, value_serde=serdes.bytes)
    named = builder.stream("source", name="Names").map(
        lambda key, value: (b"name%d" % (int(value) % 7), value)
    )
    counted = named.group_by_key(name="ByName").count(name="Counted")
    counted.to_stream().map_values(
        lambda count: b"%d%s" % (count, suffix.encode()), value_serde=serdes.bytes
    ).to("sink")
    return builder.build()


def names_in_windows(
    emit: EmitTime = "on_close", modulus: int = 7, what: str = "count"
) -> Topology:
    """Count values in windows after a repartition by what is left of them."""
    builder = StreamsBuilder(key_serde=serdes.bytes, value_serde=serdes.bytes)
    named = builder.stream("source", name="Names").map(
        lambda key, value: (b"name%d" % (int(value) % modulus), value)
    )
    kind = windows.tumbling(WINDOW_MS, grace_ms=GRACE_MS)
    by_name = named.group_by_key(name="ByName").windowed_by(kind, emit=emit)
    counted = by_name.count(name="Counted").to_stream()
    counted.map(partial(shown, what.encode())).to("sink")
    return builder.build()


class Largest(Processor):
    """Forwards the largest number of each key so far; 0 forgets it."""

    def init(self, context: ProcessorContext) -> None:
        """Keep the store."""
        self.context = context
        self.best = context.get_state_store("Best")

    def process(self, record: Record) -> None:
        """Take a number."""
        number = int(record.value)
        known = self.best.get(record.key)
        found = number if known is None else max(number, known)
        self.best.put(record.key, found if number else None)
        self.context.forward(record.with_value(b"%d" % found))


def shown(what: bytes, windowed: Windowed[bytes], value: int) -> tuple[bytes, bytes]:
    """Return a result of a window."""
    return windowed.key, b"%s %d %d" % (what, windowed.window.start, value)
