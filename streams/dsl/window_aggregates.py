"""The common parts of aggregates in all kinds of windows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kafka_pipeline.common.pipelines.specs import EmitTime
from kafka_pipeline.streams.dsl.aggregate_functions import AggregateFunctions
from kafka_pipeline.streams.dsl.change import Change
from kafka_pipeline.streams.dsl.graph import Compiling, Operation, Step
from kafka_pipeline.streams.dsl.table_values import (
    Found,
    TableReader,
    TableSerdes,
    TableValues,
    unwritable,
)
from kafka_pipeline.streams.dsl.windows import (
    CalendarWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
)
from kafka_pipeline.streams.engine.either_way import EitherWay
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.event_time.step_time import (
    ENDS_MS,
    NO_TIME,
    SENT_ON,
    FollowsTime,
    StepTime,
    times_store_name,
)
from kafka_pipeline.streams.processor import BatchProcessor, Processor, ProcessorContext
from kafka_pipeline.streams.punctuation import PunctuationType
from kafka_pipeline.streams.record import Batch, Record
from kafka_pipeline.streams.stores import StoreBuilder, Window, Windowed
from kafka_pipeline.streams.stores.expiring import Expiring
from kafka_pipeline.streams.stores.layout import SESSION_BYTES, TIME_BYTES

LATE_HEADERS = "__streams.late."
"""The names of the headers of late records begin with this."""

LOOKED_UP_MS = 86_400_000
"""How much longer windows are kept, in event time, that a join looks up."""

Windows = TimeWindows | CalendarWindows | SlidingWindows | SessionWindows


def closes_ms(windows: Windows) -> int:
    """Return how long after its end a window closes."""
    gap_ms = windows.gap_ms if isinstance(windows, SessionWindows) else 0
    # The ends of sliding windows and sessions belong to them.
    has_end = isinstance(windows, SlidingWindows | SessionWindows)
    return gap_ms + windows.grace_ms + has_end


def late_headers(step: str, window: Window, now: int) -> list[tuple[str, bytes]]:
    """Return the headers that say why a record is late; `now` is stream time."""
    return [
        (f"{LATE_HEADERS}reason", b"the window has closed"),
        (f"{LATE_HEADERS}step", step.encode()),
        (f"{LATE_HEADERS}window.start", b"%d" % window.start),
        (f"{LATE_HEADERS}window.end", b"%d" % window.end),
        (f"{LATE_HEADERS}stream_time", b"%d" % now),
    ]


@dataclass(frozen=True, slots=True)
class WindowedAggregate:
    """The parameters of a window processor. `name` is that of the step and of the store."""

    name: str
    verb: str
    functions: AggregateFunctions
    windows: Windows
    emit: EmitTime = "on_update"
    is_shared: bool = False
    """Whether several processors share the store and the time, in a cogroup."""
    sends_old: bool = False
    is_looked_up: bool = False
    """Whether joins look windows up."""
    results: str | None = None
    """The child that gets the results, if another one gets late records."""
    late: str | None = None
    """The child that gets late records."""
    serdes: TableSerdes | None = None
    """Those of the keys without their windows, and of the aggregates; set when compiled."""


class WindowAggregator(FollowsTime):
    """The base of window processors: stream time, late records, and closed windows.

    Time may leap over all that windows are kept for. Joins still look up those that close then: the
    other side leaps later, and answers may come back to the task. So windows that are looked up
    expire by `StepTime.settled`, and not before the answers to them.
    """

    context: ProcessorContext

    def __init__(self, aggregate: WindowedAggregate) -> None:
        self.aggregate = aggregate
        self.functions = aggregate.functions
        self.closes = aggregate.emit == "on_close"
        """Whether results are forwarded when windows close, instead of with each update."""
        self.sends_old = aggregate.sends_old and not self.closes
        self._closes_ms = closes_ms(aggregate.windows)

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        name = self.aggregate.name
        self._expiring: Expiring = context.get_state_store(name)
        self.open_store(self._expiring)
        self.time = StepTime(
            context,
            context.get_state_store(times_store_name(name)),
            is_shared=self.aggregate.is_shared,
            leap_ms=LOOKED_UP_MS if self.aggregate.is_looked_up else None,
            on_undo=self.forget,
        )
        self._expires_by_records = self.aggregate.is_looked_up and self.time.follows_records
        if not self.time.follows_records:
            self._expiring.follow(NO_TIME)
        elif self._expires_by_records:
            self._expiring.follow(self.time.settled - ENDS_MS)
        self._seen_at_ms = context.current_system_time
        idle_ms = self.aggregate.windows.close_after_idle_ms
        if idle_ms is not None:
            context.schedule(idle_ms, PunctuationType.WALL_CLOCK_TIME, self._close_when_idle)

    @abstractmethod
    def open_store(self, store: Any) -> None:
        """Take the store of the windows."""

    def forget(self) -> None:
        """Forget cached knowledge of the store: the engine has undone writes."""

    @abstractmethod
    def closed_windows(self, closed: int, now: int) -> Iterable[tuple[Windowed[Any], Any, int]]:
        """Return the windows that have closed by the time `now`, in order.

        `closed` is the stream time of the previous call. Each window comes with its aggregate and
        the aggregate's timestamp. The call is cheap if no window has closed since.
        """

    @abstractmethod
    def all_closed_at(self, closed: int) -> int | None:
        """Return the stream time at which the last open window closes; `None` if none is open."""

    # For subclasses

    def see(self, record: Record) -> int:
        """Advance stream time, emit closed windows; return the time that decides lateness."""
        at = self.see_time(record.timestamp)
        if self.closes:
            self._close(self.time.now)
        return at

    def see_time(self, timestamp: int) -> int:
        """Advance stream time without closing windows; return the time that decides lateness."""
        if self.aggregate.windows.close_after_idle_ms is not None:
            self._seen_at_ms = self.context.current_system_time
        at = self.time.see(timestamp)
        if self._expires_by_records:
            self._expiring.go_on(self.time.settled - ENDS_MS)
        return at

    def forward(self, record: Record) -> None:
        """Forward a result."""
        self.context.forward(record, self.aggregate.results)

    def late(self, record: Record, window: Window, now: int, clock: int) -> None:
        """Drop a record for a window that has closed, or send it to the topic of late ones.

        `clock` is that of the record.
        """
        own = max(record.timestamp, clock)
        reason = self.time.late_reason(own, window.end + self._closes_ms)
        if self.aggregate.late is None:
            self.context.drop(reason)
            return
        self.context.drop(SENT_ON[reason])
        headers = late_headers(self.aggregate.name, window, now)
        self.context.forward(record.with_headers([*record.headers, *headers]), self.aggregate.late)

    def unwritable(self, error: SerializationError) -> SerializationError:
        """Return an error that names the step."""
        return unwritable(f'{self.aggregate.verb} "{self.aggregate.name}"', error)

    def _close(self, now: int) -> None:
        closed = self.time.closed
        if now <= closed:
            return
        # First find all: children may change the store.
        found = list(self.closed_windows(closed, now))
        if found:
            self.time.close(now)
        with self.time.own_clocks():
            for windowed, value, timestamp in found:
                self.forward(Record(windowed, Change(value), timestamp))

    def time_passed(self, time: int) -> None:
        now = self.time.after_hold(time)
        if now <= self.time.now:
            return
        self.time.move(now)
        if self.closes:
            self._close(now)
        if not self.time.follows_records:
            answered = self.time.after_hold(self.context.task_time.reached_ms)
            self._expiring.go_on(min(self.time.settled, answered) - ENDS_MS)

    def _close_when_idle(self, now_ms: int) -> None:
        idle_ms = self.aggregate.windows.close_after_idle_ms
        assert idle_ms is not None
        if now_ms - self._seen_at_ms < idle_ms:
            return
        at = self.all_closed_at(self.time.closed)
        if at is not None:
            self.time.move(at)
            self._close(self.time.now)


@dataclass(frozen=True, slots=True)
class AggregateWindows(Operation):
    """Aggregates the values of each key and window, with the processor that `make` makes.

    Late records go to the topic `late_to`, if it is given.
    """

    aggregate: WindowedAggregate
    store: StoreBuilder[Any, Any]
    times: StoreBuilder[Any, Any]
    make: Callable[[WindowedAggregate], Processor | BatchProcessor]
    late_to: str | None = None

    @property
    def verb(self) -> str:
        return self.aggregate.verb

    @property
    def writes_topic(self) -> str | None:
        """The topic of late records."""
        return self.late_to

    @property
    def close_delay_ms(self) -> int:
        """How long after its end a window closes."""
        return closes_ms(self.aggregate.windows)

    @property
    def holds_ms(self) -> int:
        """How much later than a record its results may be forwarded, in event time."""
        if self.aggregate.emit != "on_close":
            return 0
        return self.window_ms + self.close_delay_ms + 1

    @property
    def window_ms(self) -> int:
        """How much older than the end of its window a result can be, at most.

        The result of a session has the time of its end.
        """
        match self.aggregate.windows:
            case TimeWindows() | CalendarWindows() as windows:
                return windows.longest_ms
            case SlidingWindows(difference_ms=difference_ms):
                return difference_ms
            case SessionWindows():
                return 0

    def after_key(self, parents: Sequence[Step]) -> int:
        """Return how many bytes follow the record's key, those of the window included."""
        own = SESSION_BYTES if isinstance(self.aggregate.windows, SessionWindows) else TIME_BYTES
        return parents[0].after_key + own

    def stores(self) -> tuple[str, ...]:
        return (self.store.name, self.times.name)

    def _looked_up_ms(self, compiler: Compiling) -> int:
        """Return how much longer windows are kept as other steps look them up.

        A change of the other side of a join may come after a window has closed here, and so may the
        answer of a foreign-key join.
        """
        looking = [
            longest_delay_ms(each)
            for each in compiler.users(self.store.name)
            if not isinstance(each.operation, AggregateWindows)
            and not each.operation.runs_user_processor
        ]
        return LOOKED_UP_MS + max(looking) if looking else 0

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add the stores and the processor; for late records, a sink and a node next to it."""
        looked_up_ms = self._looked_up_ms(compiler)
        compiler.add_store(self.store, looked_up_ms)
        compiler.add_store(self.times)
        name, sends_old = step.name, compiler.sends_old_values(step)
        results, late = f"{name}-results", f"{name}-late"
        serdes = TableSerdes(self.store.key_serde, step.value_serde)
        aggregate = replace(
            self.aggregate, sends_old=sends_old, is_looked_up=looked_up_ms > 0, serdes=serdes
        )
        if self.late_to is not None:
            aggregate = replace(aggregate, results=results, late=late)
        compiler.builder.add_processor(
            name,
            partial(self.make, aggregate),
            compiler.parents(step),
            stores=self.stores(),
            holds_ms=self.holds_ms,
        )
        if self.late_to is None:
            compiler.produces(step, name)
            return
        parent = step.parents[0]
        compiler.builder.add_sink(
            late,
            self.late_to,
            name,
            key_serde=parent.key_serde,
            value_serde=parent.value_serde,
        )
        compiler.builder.add_processor(results, PassOn, name)
        compiler.produces(step, results)


def longest_delay_ms(step: Step) -> int:
    """Return how long after its end a window closes that leads to a step: the longest of all."""
    own = step.operation.close_delay_ms
    if own is not None:
        return own
    return max(map(longest_delay_ms, step.parents), default=0)


class PassOn(EitherWay):
    """A node of its own for the results, so that late records can go to another child."""

    def process(self, batch: Batch) -> None:
        self.context.forward(batch)

    def process_record(self, record: Record) -> None:
        self.context.forward(record)


class WindowedValues(TableValues):
    """The values of a table in windows, as `look_up` finds them in its store."""

    def __init__(self, store: str, look_up: Callable[[Any, Windowed[Any]], Found]) -> None:
        self._store = store
        self._look_up = look_up

    @property
    def stores(self) -> tuple[str, ...]:
        return (self._store,)

    def open(self, context: ProcessorContext) -> TableReader:
        return _WindowedReader(context.get_state_store(self._store), self._look_up)


class _WindowedReader(TableReader):
    def __init__(self, store: Any, look_up: Callable[[Any, Windowed[Any]], Found]) -> None:
        self._store = store
        self._look_up = look_up

    def get(self, key: Windowed[Any]) -> Found:
        return self._look_up(self._store, key)

    def has_expired(self, key: Windowed[Any]) -> bool:
        expired: bool = self._store.is_expired(key.window)
        return expired
