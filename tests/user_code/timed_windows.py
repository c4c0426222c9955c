"""Windows and joins behind one to three repartitions, as a plan says: for tests of event time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from streams import Batch, BatchProcessor, Emit, Processor, Record, StreamsBuilder, serdes, windows
from streams.stores import Windowed
from streams.topology import Topology

DROPPED = b"x"
"""The values of records that the step `filter` drops begin with this."""
ALONE = b"-"
"""The place of a side in a result of a join without a partner."""
OUT = "out"


@dataclass(frozen=True, slots=True)
class Level:
    """Windows on close behind a repartition to `keys` keys; `size_ms` of sessions is their gap."""

    kind: str
    size_ms: int
    advance_ms: int
    grace_ms: int
    keys: int
    partitions: int

    @property
    def windows(self) -> Any:
        """The windows as the DSL takes them."""
        match self.kind:
            case "tumbling":
                return windows.tumbling(self.size_ms, grace_ms=self.grace_ms)
            case "hopping":
                return windows.hopping(
                    self.size_ms, advance_ms=self.advance_ms, grace_ms=self.grace_ms
                )
            case _:
                return windows.session(self.size_ms, grace_ms=self.grace_ms)


@dataclass(frozen=True, slots=True)
class Join:
    """A join of two streams by `keys` keys; both are spread over `partitions`.

    `kind` is the name of the method.
    """

    kind: str
    before_ms: int
    after_ms: int
    grace_ms: int
    keys: int
    partitions: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A topology: each source goes through its hops, then come a join and windows.

    Ahead of each repartition of a source are the steps that `steps` names. A hop is a repartition
    without state, with so many partitions.
    """

    steps: tuple[tuple[str, ...], ...]
    hops: tuple[int, ...]
    join: Join | None
    levels: tuple[Level, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """The sources."""
        return ("in0",) if self.join is None else ("in0", "in1")

    @property
    def drops(self) -> bool:
        """Whether records are filtered."""
        return any("filter" in each for each in self.steps)

    def write(self) -> str:
        """Return the plan as JSON, for the config of a topology."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Plan:
        """Read what `write` wrote."""
        found = json.loads(text)
        return cls(
            steps=tuple(map(tuple, found["steps"])),
            hops=tuple(found["hops"]),
            join=None if found["join"] is None else Join(**found["join"]),
            levels=tuple(Level(**each) for each in found["levels"]),
        )


class Passing(Processor):
    """Forwards what comes, record by record."""

    def process(self, record: Record) -> None:
        self.context.forward(Record(record.key, record.value, record.timestamp))


class PassingBatches(BatchProcessor):
    """Forwards what comes, in batches."""

    def process(self, batch: Batch) -> None:
        self.context.forward(batch.with_values(list(batch.values)))


def build(plan: str) -> Topology:
    """Return the topology of a plan."""
    return topology(Plan.read(plan))


def topology(plan: Plan) -> Topology:
    """Return the topology of a plan."""
    builder = StreamsBuilder(key_serde=serdes.bytes, value_serde=serdes.bytes)
    sides = [
        _with_hops(builder.stream(topic, name=f"Read{number}"), plan, number)
        for number, topic in enumerate(plan.topics)
    ]
    stream, number = sides[0], 0
    if plan.join is not None:
        stream, number = _joined(plan.join, *sides), 1
    for level in plan.levels:
        stream, number = _windowed(stream, level, number), number + 1
    stream.to(OUT)
    return builder.build()


def _with_hops(stream: Any, plan: Plan, source: int) -> Any:
    for number, steps in enumerate(plan.steps):
        for step in steps:
            stream = {**_STEPS, **FIRST_STEPS}[step](stream)
        if number < len(plan.hops):
            moved = stream.map(lambda key, value: (b"%d" % (int(key) + 1), value))
            stream = moved.repartition(name=f"Hop{source}{number}", partitions=plan.hops[number])
    return stream


def _joined(join: Join, left: Any, right: Any) -> Any:
    left, right = (
        side.select_key(_fewer(join.keys)).repartition(name=name, partitions=join.partitions)
        for side, name in ((left, "Left"), (right, "Right"))
    )
    return getattr(left, join.kind)(
        right,
        lambda one, other: b"%b+%b" % (one or ALONE, other or ALONE),
        windows.join(before_ms=join.before_ms, after_ms=join.after_ms, grace_ms=join.grace_ms),
        name="Joined",
    )


def _windowed(stream: Any, level: Level, number: int) -> Any:
    moved = stream.select_key(_fewer(level.keys))
    grouped = moved.repartition(name=f"By{number}", partitions=level.partitions).group_by_key()
    table = grouped.windowed_by(level.windows, emit=Emit.ON_WINDOW_CLOSE).aggregate(
        lambda: b"",
        lambda _, value, aggregate: b"%b,%b" % (aggregate, value) if aggregate else value,
        merger=_merge if level.kind == "sessions" else None,
        name=f"Windows{number}",
    )
    return table.to_stream().map(_shown)


def _merge(_: bytes, one: bytes, other: bytes) -> bytes:
    return b",".join(filter(None, (one, other)))


def _shown(windowed: Windowed[bytes], value: bytes) -> tuple[bytes, bytes]:
    return b"%b|%d|%d" % (windowed.key, *windowed.window), value


def _fewer(keys: int) -> Callable[[bytes, bytes], bytes]:
    return lambda key, _: b"%d" % (int(key.partition(b"|")[0]) % keys)


async def _answer(value: bytes) -> bytes:
    await asyncio.sleep(int(value.removeprefix(DROPPED)) % 3 / 100)
    return value


def _branches(stream: Any) -> Any:
    found = stream.split({"one": lambda key, value: int(key) % 2 == 0}, default="other")
    return found["one"].map_values(bytes).merge(found["other"].map_values(bytes))


_STEPS: dict[str, Callable[[Any], Any]] = {
    "filter": lambda stream: stream.filter(lambda _, value: not value.startswith(DROPPED)),
    "map": lambda stream: stream.map(lambda key, value: (key, bytes(value))),
    "branches": _branches,
    "processor": lambda stream: stream.process(Passing),
    "batches": lambda stream: stream.process(PassingBatches),
}
STEPS = tuple(_STEPS)
FIRST_STEPS: dict[str, Callable[[Any], Any]] = {"calls": lambda stream: stream.map_values(_answer)}
"""Steps that come directly after a topic."""
