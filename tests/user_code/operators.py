"""One topology for each operator of the DSL, from the topics `a` and `b` to `out`.

Keys and values are strings. The joins by a foreign key read `rows` and `rates` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streams import (
    Emit,
    Processor,
    ProcessorContext,
    Record,
    StreamsBuilder,
    Suppress,
    serdes,
    stores,
    windows,
)
from streams.dsl.streams_and_tables import Stream, Table
from streams.topology import Topology

JOINED = windows.join(before_ms=4, after_ms=4, grace_ms=2)


@dataclass(frozen=True)
class Operator:
    """The builder of one topology, with the names of its topics."""

    builder: StreamsBuilder
    prefix: str
    out: str

    @property
    def a(self) -> Stream:
        return self.builder.stream(f"{self.prefix}a", name="A")

    @property
    def b(self) -> Stream:
        return self.builder.stream(f"{self.prefix}b", name="B")

    @property
    def table(self) -> Table:
        return self.builder.table(f"{self.prefix}b", name="B")

    @property
    def versioned(self) -> Table:
        return self.builder.table(f"{self.prefix}b", name="B", history_retention_ms=1000)


Fill = Callable[[Operator], Stream | Table | None]
OPERATORS: dict[str, Fill] = {}


def _operator(fill: Fill) -> Fill:
    OPERATORS[fill.__name__] = fill
    return fill


def build(operator: str, prefix: str) -> Topology:
    """Return the topology of an operator; names of topics begin with `prefix`."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)
    out = f"{prefix}out-{operator}"
    result = OPERATORS[operator](Operator(builder, prefix, out))
    if isinstance(result, Table):
        result = result.to_stream()
    if result is not None:
        result.to(out)
    return builder.build()


def _join(left: Any, right: Any) -> str:
    return f"{left}+{right}"


def _windowed(table: Table) -> Stream:
    """Return the results of a windowed table with strings as keys and values."""
    return table.to_stream().map(
        lambda windowed, value: (
            f"{windowed.key}@{windowed.window.start}-{windowed.window.end}",
            str(value),
        )
    )


def _add(key: str, value: str, total: str) -> str:
    return f"{total},{value}"


# Without state


@_operator
def filters(of: Operator) -> Stream:
    kept = of.a.filter(lambda key, value: value != "2")
    return kept.filter_not(lambda key, value: value == "4")


@_operator
def maps(of: Operator) -> Stream:
    mapped = of.a.map(lambda key, value: (key * 2, value))
    return mapped.map_values(lambda value: value * 2)


@_operator
def flat_maps(of: Operator) -> Stream:
    mapped = of.a.flat_map(lambda key, value: [(key, value), (value, key)])
    return mapped.flat_map_values(lambda value: [value, value * 2])


@_operator
def peek_and_merge(of: Operator) -> Stream:
    return of.a.peek(lambda key, value: None).merge(of.b)


@_operator
def split(of: Operator) -> None:
    split = of.a.split({"odd": lambda key, value: int(value) % 2}, default="even")
    split["odd"].map_values(lambda value: f"odd {value}").to(lambda record: of.out)
    split["even"].to(of.out)


@_operator
def repartition(of: Operator) -> Stream:
    keyed = of.a.select_key(lambda key, value: value)
    return keyed.repartition(name="Again", partitions=1).map_values(lambda value: f"{value}!")


class _Numbering(Processor):
    """Puts the number of values so far in front of each value."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._numbers = context.get_state_store("Numbers")

    def process(self, record: Record) -> None:
        number = (self._numbers.get("n") or 0) + 1
        self._numbers.put("n", number)
        self.context.forward(record.with_value(f"{number}: {record.value}"))


@_operator
def process(of: Operator) -> Stream:
    numbers = stores.key_value("Numbers", serdes.string, serdes.int64)
    return of.a.process(_Numbering, stores=[numbers], name="Numbering")


@_operator
def process_values(of: Operator) -> Stream:
    numbers = stores.key_value("Numbers", serdes.string, serdes.int64)
    return of.a.process_values(_Numbering, stores=[numbers], name="Numbering")


# Aggregates


@_operator
def count(of: Operator) -> Stream:
    return of.a.group_by_key().count(name="Counts").to_stream().map_values(str)


@_operator
def reduce(of: Operator) -> Table:
    grouped = of.a.group_by(lambda key, value: value[0], name="ByDigit")
    return grouped.reduce(lambda total, value: f"{total},{value}", name="Reduced")


@_operator
def aggregate(of: Operator) -> Table:
    return of.a.group_by_key().aggregate(lambda: "", _add, name="Added")


@_operator
def cogroup(of: Operator) -> Table:
    both = of.a.group_by_key().cogroup(_add)
    return both.cogroup(
        of.b.group_by_key(), lambda key, value, total: f"{total};{value}"
    ).aggregate(lambda: "", name="Cogrouped")


@_operator
def group_table(of: Operator) -> Table:
    grouped = of.table.group_by(lambda key, value: (value[0], value), name="ByDigit")
    return grouped.aggregate(
        lambda: "",
        lambda key, value, total: f"{total}+{value}",
        lambda key, value, total: f"{total}-{value}",
        name="Groups",
    )


# Windows


@_operator
def tumbling(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(windows.tumbling(10, grace_ms=5))
    return _windowed(windowed.count(name="Counts"))


@_operator
def tumbling_on_close(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(
        windows.tumbling(10, grace_ms=5), emit=Emit.ON_WINDOW_CLOSE
    )
    return _windowed(windowed.count(name="Counts"))


@_operator
def late_records(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(windows.tumbling(10, grace_ms=0), late_to=of.out)
    return _windowed(windowed.count(name="Counts"))


@_operator
def hopping(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(windows.hopping(10, advance_ms=5, grace_ms=5))
    return _windowed(windowed.reduce(lambda total, value: total + value, name="Reduced"))


@_operator
def sliding(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(windows.sliding(6, grace_ms=5))
    return _windowed(windowed.aggregate(lambda: "", _add, name="Added"))


@_operator
def sliding_on_close(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(
        windows.sliding(6, grace_ms=5), emit=Emit.ON_WINDOW_CLOSE
    )
    return _windowed(windowed.aggregate(lambda: "", _add, name="Added"))


@_operator
def sessions(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(windows.session(3, grace_ms=5))
    return _windowed(windowed.count(name="Counts"))


@_operator
def sessions_on_close(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(
        windows.session(3, grace_ms=5), emit=Emit.ON_WINDOW_CLOSE
    )
    return _windowed(windowed.count(name="Counts"))


@_operator
def cogroup_windows(of: Operator) -> Stream:
    both = of.a.group_by_key().cogroup(_add).cogroup(of.b.group_by_key(), _add)
    windowed = both.windowed_by(windows.tumbling(10, grace_ms=5))
    return _windowed(windowed.aggregate(lambda: "", name="Cogrouped"))


@_operator
def suppress_windows(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(windows.tumbling(10, grace_ms=5))
    counted = windowed.count(name="Counts")
    return _windowed(counted.suppress(Suppress.until_window_closes(), name="Closed"))


@_operator
def suppress_updates(of: Operator) -> Table:
    return of.table.suppress(Suppress.until_time_limit(8), name="Seldom")


# Tables


@_operator
def to_table(of: Operator) -> Table:
    return of.a.to_table(name="Table").map_values(lambda value: value * 2, name="Doubled")


@_operator
def filter_table(of: Operator) -> Table:
    return of.table.filter(lambda key, value: int(value) % 3 != 0).filter_not(
        lambda key, value: value == "4", name="Kept"
    )


def _of_tables(of: Operator, method: str, name: str | None) -> Table:
    left = of.a.to_table(name="Left")
    joined: Table = getattr(left, method)(of.table, _join, name=name)
    return joined


@_operator
def join_tables(of: Operator) -> Table:
    return _of_tables(of, "join", None)


@_operator
def left_join_tables(of: Operator) -> Table:
    return _of_tables(of, "left_join", "Joined")


@_operator
def outer_join_tables(of: Operator) -> Table:
    return _of_tables(of, "outer_join", "Joined")


def _by_foreign_key(of: Operator, method: str) -> Table:
    rows = of.builder.table(f"{of.prefix}rows", name="Rows")
    rates = of.builder.table(f"{of.prefix}rates", name="Rates")
    joined: Table = getattr(rows, method)(
        rates, _join, foreign_key=lambda value: value[0], name="Rated"
    )
    return joined


@_operator
def join_by_foreign_key(of: Operator) -> Table:
    return _by_foreign_key(of, "join")


@_operator
def left_join_by_foreign_key(of: Operator) -> Table:
    return _by_foreign_key(of, "left_join")


# Joins of streams


@_operator
def join_streams(of: Operator) -> Stream:
    return of.a.join(of.b, _join, JOINED, name="Joined")


@_operator
def left_join_streams(of: Operator) -> Stream:
    return of.a.left_join(of.b, _join, JOINED, name="Joined")


@_operator
def outer_join_streams(of: Operator) -> Stream:
    return of.a.outer_join(of.b, _join, JOINED, name="Joined")


@_operator
def join_with_itself(of: Operator) -> Stream:
    both = of.a
    return both.join(both, _join, JOINED, name="Joined")


@_operator
def join_table(of: Operator) -> Stream:
    return of.a.join(of.table, _join)


@_operator
def left_join_table(of: Operator) -> Stream:
    return of.a.left_join(of.table, _join)


@_operator
def join_versioned_table(of: Operator) -> Stream:
    return of.a.join(of.versioned, _join)


@_operator
def join_versioned_table_later(of: Operator) -> Stream:
    return of.a.left_join(of.versioned, _join, grace_ms=5, name="Joined")


@_operator
def join_global_table(of: Operator) -> Stream:
    names = of.builder.global_table(f"{of.prefix}rates", name="Names")
    return of.a.left_join(names, _join, key=lambda key, value: value[0])
