"""Streams whose records are grouped by key and window, and their aggregates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, get_args

from kafka_pipeline.common.pipelines.specs import EmitTime
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl.aggregate_functions import AggregateFunctions, counting, reducing
from kafka_pipeline.streams.dsl.aggregations import Aggregation, DerivedAggregate, FieldAggregates
from kafka_pipeline.streams.dsl.expressions import Expression
from kafka_pipeline.streams.dsl.graph import call
from kafka_pipeline.streams.dsl.hopping_windows import HoppingWindowAggregator
from kafka_pipeline.streams.dsl.session_windows import SessionAggregator, look_up_session
from kafka_pipeline.streams.dsl.sliding_windows import SlidingWindowAggregator
from kafka_pipeline.streams.dsl.table import Table
from kafka_pipeline.streams.dsl.table_values import TableValues
from kafka_pipeline.streams.dsl.time_windows import TimeWindowAggregator, look_up_window
from kafka_pipeline.streams.dsl.top_n import TopN
from kafka_pipeline.streams.dsl.window_aggregates import (
    AggregateWindows,
    WindowedAggregate,
    WindowedValues,
    Windows,
)
from kafka_pipeline.streams.dsl.windows import (
    CalendarWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
)
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.event_time.step_time import times_store
from kafka_pipeline.streams.processor import BatchProcessor, Processor
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import StoreBuilder, session, window
from kafka_pipeline.streams.stores.key_value import timestamped
from kafka_pipeline.streams.type_variables import K, R, V
from kafka_pipeline.streams.windowed import Windowed

if TYPE_CHECKING:
    from kafka_pipeline.streams.dsl.grouped_stream import GroupedStream


@dataclass(frozen=True, slots=True)
class WindowKind:
    """What one kind of windows needs: its stores, its processor, the serde of its keys."""

    windows: Windows
    closes: bool

    def store(
        self, name: str, key_serde: Serde[Any], value_serde: Serde[Any], after_key: int
    ) -> StoreBuilder[Any, Any]:
        """Return the definition of the store of the windows.

        Windows are kept until no record can change them any more. Those whose ends belong to them,
        and those that were not emitted yet, are kept a moment longer, as a store refuses and
        forgets what is exactly as old. Of each key, `after_key` bytes are not of the record's key.
        """
        made = self._store(name, key_serde, value_serde).of_windows(self._described())
        calendar = None
        if isinstance(self.windows, CalendarWindows):
            calendar = (self.windows.calendar.period, self.windows.calendar.zone)
        closes_ms = self._closes_ms if self.closes else None
        return made.spread(after=after_key, closes_ms=closes_ms, calendar=calendar)

    @property
    def _closes_ms(self) -> int:
        """How long after its time in the store a window is emitted; see `Spreading`."""
        match self.windows:
            case TimeWindows() as windows:
                return windows.delay_ms
            case CalendarWindows(grace_ms=grace):
                return grace
            case SlidingWindows(difference_ms=difference, grace_ms=grace):
                return difference + grace + 1
            case SessionWindows(gap_ms=gap, grace_ms=grace):
                return gap + grace + 1

    def _described(self) -> str:
        """Return which windows the entries of the store are; the grace period does not matter."""
        match self.windows:
            case TimeWindows(size_ms=size, advance_ms=advance):
                return f"of {size} ms, every {advance} ms"
            case CalendarWindows() as windows:
                return f"of {windows.calendar.period} in {windows.calendar.zone}"
            case SlidingWindows(difference_ms=difference):
                return f"that slide, of {difference} ms"
            case SessionWindows(gap_ms=gap):
                return f"of sessions with a gap of {gap} ms"

    def _store(
        self, name: str, key_serde: Serde[Any], value_serde: Serde[Any]
    ) -> StoreBuilder[Any, Any]:
        match self.windows:
            case TimeWindows() | CalendarWindows() as windows:
                made = window(
                    name,
                    key_serde,
                    timestamped(value_serde),
                    retention_ms=windows.retention_ms(closes=self.closes),
                    window_size_ms=windows.longest_ms,
                )
                if isinstance(windows, TimeWindows):
                    return made
                return made.with_options(calendar=windows.calendar)
            case SlidingWindows(difference_ms=difference, grace_ms=grace):
                # A record needs the windows that begin up to twice the difference before it.
                return window(
                    name,
                    key_serde,
                    timestamped(value_serde),
                    retention_ms=2 * difference + grace + 1,
                    window_size_ms=max(1, difference),
                )
            case SessionWindows(gap_ms=gap, grace_ms=grace):
                made = session(name, key_serde, value_serde, retention_ms=gap + grace + 1)
                # A record may be next to a session that has closed.
                return made.with_options(lingering=gap)

    def make(self) -> Callable[[WindowedAggregate], Processor | BatchProcessor]:
        match self.windows:
            case TimeWindows() as windows if not windows.is_tumbling:
                return partial(HoppingWindowAggregator, windows=windows)
            case TimeWindows() | CalendarWindows() as windows:
                return partial(TimeWindowAggregator, windows=windows)
            case SlidingWindows() as windows:
                return partial(SlidingWindowAggregator, windows=windows)
            case SessionWindows() as windows:
                return partial(SessionAggregator, windows=windows)

    def key_serde(self, inner: Serde[Any]) -> Serde[Any]:
        """Return the serde of windowed keys, as Java's."""
        match self.windows:
            case TimeWindows(size_ms=size) | SlidingWindows(difference_ms=size):
                return serdes.time_windowed(inner, size_ms=size)
            case CalendarWindows(calendar=calendar):
                return serdes.calendar_windowed(inner, calendar.period, tz=calendar.zone)
            case SessionWindows():
                return serdes.session_windowed(inner)

    def values(self, store: str) -> TableValues:
        """Return where the values of the table are looked up."""
        is_session = isinstance(self.windows, SessionWindows)
        return WindowedValues(store, look_up_session if is_session else look_up_window)


class WindowedStream(Generic[K, V]):
    """A stream by key and window, ready to be aggregated; `windowed_by` makes it.

    The keys of its tables are `stores.Windowed(key, Window(start, end))`. Records without a key are
    dropped, and counted; so are records without a value in sliding windows. Records for windows
    that have closed are dropped and counted as "expired", or go to the topic `late_to`.

    `name` is that of the step, of its store and of its state topic. `value_serde` writes the
    aggregates; by default, that is the builder's.
    """

    def __init__(
        self,
        grouped: GroupedStream[K, V],
        windows: Windows,
        emit: EmitTime,
        late_to: str | None,
    ) -> None:
        """For the DSL itself."""
        self._graph = grouped.graph
        self._grouped = grouped
        self._windows = windows
        self._emit = emit
        self._late_to = late_to

    def count(
        self, *, name: str | None = None, value_serde: Serde[int] | None = None
    ) -> Table[Windowed[K], int]:
        """Return the table of the number of records per key and window, as `serdes.int64`."""
        return self._aggregate("count", counting(), name, value_serde or serdes.int64)

    def reduce(
        self,
        reducer: Callable[[V, V], V | None],
        *,
        name: str | None = None,
        value_serde: Serde[V] | None = None,
    ) -> Table[Windowed[K], V]:
        """Return the table of `reducer(aggregate, value)` per key and window.

        The first value is the first aggregate. Sessions are merged by the same function.
        """
        call(reducer, "reduce", "a function of aggregate and value", name)
        return self._aggregate("reduce", reducing(reducer), name, value_serde)

    def aggregate(
        self,
        initializer: Callable[[], R],
        adder: Callable[[K, V, R], R | None],
        *,
        merger: Callable[[K, R, R], R | None] | None = None,
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Table[Windowed[K], R]:
        """Return the table of `adder(key, value, aggregate)` per key and window.

        The first aggregate is what `initializer()` returns. Sessions need `merger(key, a, b)`,
        which makes one aggregate of those of two sessions that a record connects. The adder and the
        merger may change an aggregate and return it.
        """
        call(initializer, "aggregate", "a function without arguments to begin with", name)
        call(adder, "aggregate", "a function of key, value and aggregate", name)
        check_merger(self._windows, merger, name)
        functions = AggregateFunctions(initializer, adder, None, merger)
        return self._aggregate("aggregate", functions, name, value_serde or self._graph.value_serde)

    def agg(
        self,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
        /,
        **fields: Aggregation,
    ) -> Table[Windowed[K], dict[str, Any]]:
        """Return the table of dicts with these fields per key and window, for sessions as well.

        See `GroupedStream.agg`.
        """
        return self._derived("agg", FieldAggregates(fields, name), name, value_serde)

    def top_n(
        self,
        n: int,
        *,
        by: Callable[[K, V], float | str | None] | Expression,
        name: str | None = None,
        ascending: bool = False,
        value_serde: Serde[list[V]] | None = None,
    ) -> Table[Windowed[K], list[V]]:
        """Return the table of the `n` values per key and window for which `by` is largest.

        See `GroupedStream.top_n`.
        """
        top = TopN(n, by, ascending, self._grouped.value_serde, name)
        return self._derived("top_n", top, name, value_serde)

    def _derived(
        self,
        verb: str,
        aggregate: DerivedAggregate,
        name: str | None,
        value_serde: Serde[Any] | None,
    ) -> Table:
        """Return the table of what an aggregate gives, which is not what is in its store."""
        table = self._aggregate(verb, aggregate.functions, name, aggregate.serde)
        return table.map_values(aggregate.result, value_serde=value_serde)

    def _aggregate(
        self,
        verb: str,
        functions: AggregateFunctions,
        name: str | None,
        value_serde: Serde[Any] | None,
    ) -> Table:
        graph, parent = self._graph, self._grouped.keyed()
        name = graph.state_name(verb, name, parent, "its store")
        kind = WindowKind(self._windows, self._emit == "on_close")
        key_serde = self._grouped.key_serde
        value_serde = value_serde or self._grouped.value_serde
        store = kind.store(name, key_serde, value_serde, parent.after_key)
        step = graph.add(
            AggregateWindows(
                WindowedAggregate(name, verb, functions, self._windows, self._emit),
                store.of_parts(functions.parts),
                times_store(name),
                kind.make(),
                self._late_to,
            ),
            [parent],
            name,
            key_serde=kind.key_serde(key_serde),
            value_serde=value_serde,
        )
        return Table(graph, step, kind.values(name))


def check_windows(windows: object, emit: object, late_to: object) -> None:
    """Raise `TopologyError` unless these are arguments for `windowed_by`."""
    if not isinstance(windows, Windows):
        raise TopologyError(
            "windowed_by takes what windows.tumbling, hopping, calendar, sliding or session "
            f"return, not {windows!r}"
        )
    if emit not in get_args(EmitTime):
        raise TopologyError(f'windowed_by has emit={emit!r}: give "on_update" or "on_close"')
    if windows.close_after_idle_ms is not None and emit != "on_close":
        raise TopologyError(
            "windowed_by has windows with close_after_idle_ms, which matters only with "
            'emit="on_close": add that, or leave close_after_idle_ms out'
        )
    if late_to is not None and not isinstance(late_to, str):
        raise TopologyError(f"windowed_by has late_to={late_to!r}: give the name of a topic")


def check_merger(windows: Windows, merger: object, name: str | None) -> None:
    """Raise `TopologyError` if sessions have no merger, or other windows have one."""
    if isinstance(windows, SessionWindows):
        call(merger, "aggregate", "a merger, a function of key and two aggregates", name)
    elif merger is not None:
        step = f'aggregate "{name}"' if name else "aggregate"
        raise TopologyError(f"{step} has a merger: only sessions are merged, leave it out")
