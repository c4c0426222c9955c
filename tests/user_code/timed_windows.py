"""Windows and joins behind one to three repartitions, as a plan says: for tests of event time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from kafka_pipeline import (
    AsyncSettings,
    Batch,
    BatchProcessor,
    Processor,
    Record,
    StreamsBuilder,
    Suppress,
    serdes,
    timestamp,
    windows,
)
from kafka_pipeline.common.pipelines.specs import EmitTime
from kafka_pipeline.streams.engine.topology import Topology
from kafka_pipeline.streams.stores import Windowed

DROPPED = b"x"
"""The values of records that the step `filter` drops begin with this."""
ALONE = b"-"
"""The place of a side in a result of a join without a partner."""
SELF_JOIN = "self_join"
VERSIONED = "versioned"
"""The kind of a join with a table that has a history: records wait for it."""
MISSED = b"999"
"""The key of a record that has not found its own version in a history."""
OUT = "out"
BACK = "back"
"""The topic by which some records come back to the first step, once each."""
_RETURNED = b"r"
"""The values of records that have come back begin with this."""
ROWS = "rows"
"""The topic of the table in which the first source's records look something up."""
_CALL_TIMEOUT_MS = 10**9
"""Calls must not time out while their task is hardly ever stepped."""


@dataclass(frozen=True, slots=True)
class Level:
    """Windows behind a repartition to `keys` keys, with one result each.

    `size_ms` of sessions is their gap, of sliding windows the difference. Results come on close, or
    updates do that are `suppressed`.
    """

    kind: str
    size_ms: int
    advance_ms: int
    grace_ms: int
    keys: int
    partitions: int
    suppressed: bool = False

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
            case "sliding":
                return windows.sliding(self.size_ms, grace_ms=self.grace_ms)
            case _:
                return windows.session(self.size_ms, grace_ms=self.grace_ms)


@dataclass(frozen=True, slots=True)
class Join:
    """A join of two streams by `keys` keys; both are spread over `partitions`.

    `kind` is the name of the method, `SELF_JOIN` or `VERSIONED`; with the latter, `after_ms` is the
    history. Then some versions may be `deletes`, and records may look up a `view` of the table.
    """

    kind: str
    before_ms: int
    after_ms: int
    grace_ms: int
    keys: int
    partitions: int
    deletes: bool = False
    view: bool = False

    def is_found(self, time: int) -> bool:
        """Return whether the version of a time has a value that is looked up."""
        is_deleted = self.deletes and time // 7 % 3 == 0
        return not is_deleted and not (self.view and time // 5 % 4 == 0)


@dataclass(frozen=True, slots=True)
class Kept:
    """What a hop has after its repartition: tables of records that each have a key of their own.

    `kinds` are the names of `KEPT`. A history has `history_ms`. What is held back, or waits, is so
    for `hold_ms`.
    """

    kinds: tuple[str, ...]
    history_ms: int
    hold_ms: int

    @property
    def waits(self) -> bool:
        """Whether records that look something up wait for other tasks."""
        others = any("foreign key" in kind or kind in IN_WINDOWS for kind in self.kinds)
        return others and any("lookup" in kind for kind in self.kinds)


@dataclass(frozen=True, slots=True)
class Plan:
    """A topology: each source goes through its hops, then come a join and windows.

    Ahead of each repartition of a source are the steps that `steps` names. A hop is a repartition
    with so many partitions, 0 for the parallelism, and with what `kept` says. If it
    `begins_with_windows`, the first ones come without a repartition. If it `looks_up`, there are
    neither, but `_looked_up`. The records of the first source look something up in a `table` that
    follows a topic, "directly" or "repartitioned". With `feedback`, some come back to the first
    step when they have gone through all hops.
    """

    steps: tuple[tuple[str, ...], ...]
    hops: tuple[int, ...]
    join: Join | None
    levels: tuple[Level, ...]
    begins_with_windows: bool = False
    looks_up: bool = False
    table: str = ""
    kept: tuple[Kept, ...] = ()
    feedback: bool = False

    @property
    def topics(self) -> tuple[str, ...]:
        """The sources of the results."""
        has_two = self.join is not None and self.join.kind != SELF_JOIN
        return ("in0", "in1") if has_two or self.looks_up else ("in0",)

    @property
    def all_topics(self) -> tuple[str, ...]:
        """The sources, with the table's."""
        return (*self.topics, ROWS) if self.table else self.topics

    @property
    def rows_away(self) -> tuple[int, ...]:
        """How much younger or older than the stream a table may be."""
        return (-1, 0, 1)

    @property
    def rows_may_come_first(self) -> bool:
        """Whether it makes no difference that a table is read before the stream is there."""
        return True

    @property
    def meets_by_key(self) -> bool:
        """Whether the sources have as many partitions."""
        return False

    @property
    def waits(self) -> bool:
        """Whether records wait for rows of other tasks, and go on once these are idle."""
        return self.table == "repartitioned" or any(each.waits for each in self.kept)

    @property
    def holds_one_of_two(self) -> bool:
        """Whether records of one source may be held back while those of another one go on."""
        holds = any(not HOLDING.keys().isdisjoint(each.kinds) for each in self.kept)
        return holds and len(self.topics) > 1

    @property
    def without_counts(self) -> Self:
        """The same with as many partitions as the parallelism says."""
        return replace(
            self,
            hops=(0,) * len(self.hops),
            join=None if self.join is None else replace(self.join, partitions=0),
            levels=tuple(replace(each, partitions=0) for each in self.levels),
        )

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
            begins_with_windows=found["begins_with_windows"],
            looks_up=found["looks_up"],
            table=found["table"],
            feedback=found["feedback"],
            kept=tuple(Kept(**{**each, "kinds": tuple(each["kinds"])}) for each in found["kept"]),
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
    if plan.looks_up:
        _looked_up(builder)
        return builder.build()
    streams = [builder.stream(topic, name=f"Read{n}") for n, topic in enumerate(plan.topics)]
    if plan.feedback:
        streams[0] = streams[0].merge(builder.stream(BACK, name="ReadBack", feedback=True))
    if plan.table:
        streams[0] = streams[0].left_join(_rows(builder, plan.table), _left, name="WithRows")
    sides = [_with_hops(stream, plan, number) for number, stream in enumerate(streams)]
    stream, number = sides[0], 0
    if plan.feedback:
        stream = _without_returning(stream)
    if plan.join is not None:
        stream, number = _joined(plan.join, *sides), 1
    for level in plan.levels:
        is_spread = number > 0 or not plan.begins_with_windows
        stream, number = _windowed(stream, level, number, is_spread=is_spread), number + 1
    stream.to(OUT)
    return builder.build()


def _looked_up(builder: StreamsBuilder) -> None:
    """Look up rows of a table by key, and also by a foreign key, for which two tasks talk."""
    table = builder.table("in1", name="Read1")
    stream = builder.stream("in0", name="Read0")
    stream.map(lambda key, value: (value, key)).join(table, _both, name="Found").to(OUT)
    rows = stream.to_table(name="Rows")
    referring = rows.join(table, _both, foreign_key=lambda value: value, name="Referring")
    referring.to_stream().filter(lambda _, value: value is not None).to(OUT)


def comes_back(value: bytes) -> bool:
    """Return whether a record with this value in its source comes back."""
    return not value.startswith(_RETURNED) and int(value.removeprefix(DROPPED)) % 3 == 0


def _without_returning(stream: Any) -> Any:
    returning = stream.filter(lambda _, value: comes_back(value))
    returning.map_values(lambda value: _RETURNED + value).to(BACK)
    others = stream.filter(lambda _, value: not comes_back(value))
    return others.map_values(lambda value: value.removeprefix(_RETURNED))


def _rows(builder: StreamsBuilder, kind: str) -> Any:
    if kind == "directly":
        return builder.table(ROWS, name="Rows").map_values(bytes)
    moved = builder.stream(ROWS, name="ReadRows").select_key(lambda key, _: key)
    return moved.to_table(name="Rows")


def _left(left: bytes, _: bytes | None) -> bytes:
    return left


def _both(left: bytes, right: bytes) -> bytes:
    return b"%b,%b" % (left, right)


def _with_hops(stream: Any, plan: Plan, source: int) -> Any:
    for number, steps in enumerate(plan.steps):
        for step in steps:
            stream = {**_STEPS, **FIRST_STEPS}[step](stream)
        if number < len(plan.hops):
            stream = _hop(stream, f"{source}{number}", plan.hops[number], plan.kept[number])
    return stream


def _hop(stream: Any, number: str, partitions: int, kept: Kept) -> Any:
    moved = stream.map(lambda key, value: (b"%d" % (int(key) + 1), value))
    if not kept.kinds:
        return moved.repartition(name=f"Hop{number}", partitions=partitions or None)
    alone = moved.map(lambda key, value: (value, key))
    stream = alone.repartition(name=f"Hop{number}", partitions=partitions or None)
    for place, kind in enumerate(kept.kinds):
        stream = KEPT[kind](stream, kept, f"Kept{number}{place}")
    return stream.map(lambda value, key: (key, value))


def _table(stream: Any, kept: Kept, name: str) -> Any:
    return stream.to_table(name=name, history_retention_ms=kept.history_ms)


def _view(stream: Any, kept: Kept, name: str) -> Any:
    return _table(stream, kept, name).filter(lambda _, value: bool(value)).map_values(bytes)


def _aggregate(stream: Any, kept: Kept, name: str) -> Any:
    return stream.group_by_key(name=f"{name}By").aggregate(
        lambda: b"", lambda _, value, __: value, name=name, history_retention_ms=kept.history_ms
    )


def _joined_tables(stream: Any, kept: Kept, name: str) -> Any:
    left, right = _table(stream, kept, f"{name}Left"), _view(stream, kept, f"{name}Right")
    return left.join(right, _left)


def _by_foreign_key(stream: Any, kept: Kept, name: str) -> Any:
    left = _table(stream.map(lambda key, value: (key, key + b"|" + value)), kept, f"{name}Left")
    return _referring(left, _table(stream, kept, f"{name}Right"), name)


def _by_foreign_key_elsewhere(stream: Any, kept: Kept, name: str) -> Any:
    moved = stream.map_values(bytes).repartition(name=f"{name}Moved", partitions=2)
    right = _table(moved, kept, f"{name}Right")
    left = _table(stream.map(lambda key, value: (key, key + b"|" + value)), kept, f"{name}Left")
    return _referring(left, right, name)


def _referring(left: Any, right: Any, name: str) -> Any:
    joined = left.join(
        right, lambda _, value: value, foreign_key=lambda value: value.split(b"|")[0], name=name
    )
    return joined.filter(lambda _, value: value is not None)


def _held(stream: Any, kept: Kept, name: str) -> Any:
    limit = Suppress.until_time_limit(kept.hold_ms)
    return stream.to_table(name=name).suppress(limit, name=f"{name}Last").to_stream()


def _looked_up_itself(stream: Any, kept: Kept, name: str) -> Any:
    return stream.left_join(_table(stream, kept, name), _own, name=f"{name}Own")


def _looked_up_later(stream: Any, kept: Kept, name: str) -> Any:
    table = _table(stream, kept, name)
    return stream.left_join(table, _own, grace_ms=kept.hold_ms, name=f"{name}Later")


def _own(left: bytes, right: bytes | None) -> bytes:
    return left if left == right else MISSED


def _held_and_looked_up(stream: Any, kept: Kept, name: str) -> Any:
    table = _table(stream, kept, name)
    return _held(stream, kept, f"{name}Held").left_join(table, _own, name=f"{name}Own")


def _in_windows(stream: Any, kept: Kept, name: str, kind: str, emit: EmitTime = "on_close") -> Any:
    """Return the table of windows with one record each: its key and value."""
    half_ms = max(kept.hold_ms // 2, 1)
    grace = {"grace_ms": kept.history_ms}
    spans = {
        "tumbling": windows.tumbling(kept.hold_ms, **grace),
        "hopping": windows.hopping(2 * half_ms, advance_ms=half_ms, **grace),
        "sliding": windows.sliding(kept.hold_ms, **grace),
        "sessions": windows.session(kept.hold_ms, **grace),
    }
    return (
        stream.group_by_key(name=f"{name}By")
        .windowed_by(spans[kind], emit=emit)
        .aggregate(
            lambda: b"",
            lambda key, value, _: key + b"|" + value,
            merger=_merge if kind == "sessions" else None,
            name=name,
        )
    )


def _out_of_windows(stream: Any, kept: Kept, kind: str = "") -> Any:
    """Return what was put into windows; of two that overlap, each record is in one that counts."""
    size_ms = 2 * max(kept.hold_ms // 2, 1) if kind == "hopping" else 1
    found = stream.filter(lambda key, _: key.window.start % size_ms == 0)
    return found.map(lambda key, value: (key.key, value.split(b"|")[-1]))


def _windowed_by(kind: str) -> Callable[[Any, Kept, str], Any]:
    def build(stream: Any, kept: Kept, name: str) -> Any:
        table = _in_windows(stream, kept, name, kind)
        return _out_of_windows(table.to_stream(), kept, kind)

    return build


def _suppressed_windows(stream: Any, kept: Kept, name: str) -> Any:
    table = _in_windows(stream, kept, name, "tumbling", "on_update")
    return table.suppress(Suppress.until_window_closes(), name=f"{name}Last")


def _windows_joined(stream: Any, kept: Kept, name: str) -> Any:
    left = _windowed_by("tumbling")(stream, kept, f"{name}Windows")
    return left.to_table(name=f"{name}Left").join(_table(stream, kept, f"{name}Right"), _left)


def _joined_windows(stream: Any, kept: Kept, name: str) -> Any:
    """Join windows with their like: each side has a result when they close, and one passes."""
    left, right = (
        _in_windows(stream, kept, f"{name}{side}", "tumbling") for side in ("Left", "Right")
    )
    joined = left.left_join(right, _own)
    return joined.suppress(Suppress.until_time_limit(kept.hold_ms), name=f"{name}Last")


def _windows_by_foreign_key(stream: Any, kept: Kept, name: str) -> Any:
    right = _table(stream, kept, f"{name}Right")
    return _referring(_in_windows(stream, kept, f"{name}Left", "tumbling"), right, name)


def _suppressed_by_foreign_key(stream: Any, kept: Kept, name: str) -> Any:
    moved = stream.map_values(bytes).repartition(name=f"{name}Moved", partitions=2)
    right = _table(moved, kept, f"{name}Right")
    return _referring(_suppressed_windows(stream, kept, f"{name}Left"), right, name)


KEPT: dict[str, Callable[[Any, Kept, str], Any]] = {
    "table": lambda *each: _table(*each).to_stream(),
    "view": lambda *each: _view(*each).to_stream(),
    "aggregate": lambda *each: _aggregate(*each).to_stream(),
    "joined tables": lambda *each: _joined_tables(*each).to_stream(),
    "foreign key": lambda *each: _by_foreign_key(*each).to_stream(),
    "foreign key elsewhere": lambda *each: _by_foreign_key_elsewhere(*each).to_stream(),
    "lookup": _looked_up_itself,
}
IN_WINDOWS: dict[str, Callable[[Any, Kept, str], Any]] = {
    "tumbling": _windowed_by("tumbling"),
    "hopping": _windowed_by("hopping"),
    "sliding": _windowed_by("sliding"),
    "sessions": _windowed_by("sessions"),
    "suppressed windows": lambda stream, kept, name: _out_of_windows(
        _suppressed_windows(stream, kept, name).to_stream(), kept
    ),
    "joined windows": lambda stream, kept, name: _out_of_windows(
        _joined_windows(stream, kept, name).to_stream(), kept
    ),
    "windows joined": lambda *each: _windows_joined(*each).to_stream(),
    "windows by foreign key": lambda stream, kept, name: _out_of_windows(
        _windows_by_foreign_key(stream, kept, name).to_stream(), kept
    ),
    "suppressed windows by foreign key": lambda stream, kept, name: _out_of_windows(
        _suppressed_by_foreign_key(stream, kept, name).to_stream(), kept
    ),
}
"""Those with windows, after which records are repartitioned again."""
HOLDING: dict[str, Callable[[Any, Kept, str], Any]] = {
    "held": _held,
    "later lookup": _looked_up_later,
    "lookup of what was held": _held_and_looked_up,
    **IN_WINDOWS,
}
"""Those that hold records back."""
KEPT |= HOLDING


def _joined(join: Join, *sides: Any) -> Any:
    left, *others = (
        side.select_key(_fewer(join.keys)).repartition(
            name=name, partitions=join.partitions or None
        )
        for side, name in zip(sides, ("Left", "Right"), strict=False)
    )
    right = others[0] if others else left
    if join.kind == VERSIONED:
        times = right.map_values(timestamp().cast(str), value_serde=serdes.string)
        if join.deletes:
            times = times.map_values(
                lambda time: time if join.is_found(int(time)) else None, value_serde=serdes.string
            )
        table = times.to_table(name="Versions", history_retention_ms=join.after_ms)
        if join.view:
            table = table.filter(lambda _, time: join.is_found(int(time)))
        return left.left_join(
            table,
            lambda one, time: b"%b+%b" % (one, time.encode() if time else ALONE),
            grace_ms=join.grace_ms,
            name="Joined",
        )
    return getattr(left, "join" if join.kind == SELF_JOIN else join.kind)(
        right,
        lambda one, other: b"%b+%b" % (one or ALONE, other or ALONE),
        windows.join(before_ms=join.before_ms, after_ms=join.after_ms, grace_ms=join.grace_ms),
        name="Joined",
    )


def _windowed(stream: Any, level: Level, number: int, *, is_spread: bool) -> Any:
    if is_spread:
        moved = stream.select_key(_fewer(level.keys))
        stream = moved.repartition(name=f"By{number}", partitions=level.partitions or None)
    emit: EmitTime = "on_update" if level.suppressed else "on_close"
    table = (
        stream.group_by_key()
        .windowed_by(level.windows, emit=emit)
        .aggregate(
            lambda: b"",
            lambda _, value, aggregate: b"%b,%b" % (aggregate, value) if aggregate else value,
            merger=_merge if level.kind == "sessions" else None,
            name=f"Windows{number}",
        )
    )
    if level.suppressed:
        table = table.suppress(Suppress.until_window_closes(), name=f"Last{number}")
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
FIRST_STEPS: dict[str, Callable[[Any], Any]] = {
    "calls": lambda stream: stream.map_values(
        _answer, asynchronous=AsyncSettings(timeout_ms=_CALL_TIMEOUT_MS)
    )
}
"""Steps that come directly after a topic."""
