"""Steps with state that are ready to use: `deduplicate`, `distinct` and `lag`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl.expression_calls import KeyValueFunction, function_of_both
from kafka_pipeline.streams.dsl.expressions import Expression
from kafka_pipeline.streams.dsl.graph import Operation, Step
from kafka_pipeline.streams.dsl.repeats import (
    Deduplicator,
    DistinctFilter,
    Lagger,
    StatefulStep,
    identities,
    lags,
)
from kafka_pipeline.streams.dsl.stream_steps import StreamSteps
from kafka_pipeline.streams.durations import Milliseconds, whole_ms
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.event_time.step_time import times_store
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import StoreBuilder, key_value, window
from kafka_pipeline.streams.type_variables import K, V

if TYPE_CHECKING:
    from kafka_pipeline.streams.dsl.streams_and_tables import Stream

_GRACE_MS = 60_000
"""The least grace period by default: the store forgets a minute at a time, so it costs little."""


class ReadySteps(StreamSteps[K, V]):
    """The ready steps of a stream. Records without a key are dropped, and counted.

    `name` is that of the step, of its store and of its state topic. If the key was changed
    upstream, a repartition topic `<name>-by-key-repartition` comes first.
    """

    def deduplicate(
        self,
        *,
        within_ms: Milliseconds,
        grace_ms: Milliseconds | None = None,
        name: str | None = None,
        by: Callable[[K, V], object] | Expression | None = None,
    ) -> Stream[K, V]:
        """Drop records that repeat one that was passed on less than `within_ms` before or after.

        A record repeats another if it has the same key and, with `by`, the same result of the
        function of key and value, or of the column expression; `None` is a result like others.
        Times are those of the records. The first record that comes is passed on, and begins the
        time; those that are dropped do not prolong it.

        A record that is more than `grace_ms` behind the largest time so far is dropped and counted
        as "expired", even if it repeats none: what it may repeat is forgotten by then. By default,
        that is `within_ms`, but at least a minute. The state keeps one entry per record that was
        passed on, for `within_ms` and `grace_ms`.
        """
        within = whole_ms("deduplicate", "within_ms", within_ms, 1)
        grace = max(within, _GRACE_MS)
        if grace_ms is not None:
            grace = whole_ms("deduplicate", "grace_ms", grace_ms, 0)

        def operation(store: str, parent: Step) -> Operation:
            seen = window(
                store,
                identities(parent.key_serde),
                serdes.bytes,
                retention_ms=within + grace + 1,
                window_size_ms=within,
            ).spread(has_length=True, after=parent.after_key)
            identity = self._identity(by, "deduplicate", name)
            make = partial(Deduplicator, store, within, grace, identity)
            return StatefulStep("deduplicate", (seen, times_store(store)), make)

        return self._stateful("deduplicate", name, operation)

    def distinct(
        self,
        *,
        name: str | None = None,
        by: Callable[[K, V], object] | Expression | None = None,
    ) -> Stream[K, V]:
        """Drop records that repeat any earlier one; see `deduplicate` for what that means.

        This is SELECT DISTINCT: the first record that comes counts, whatever its time. The state
        keeps one entry for each different record, forever; if repeats come within a known time,
        use `deduplicate`.
        """

        def operation(store: str, parent: Step) -> Operation:
            seen = key_value(store, identities(parent.key_serde), serdes.bytes).spread(
                has_length=True, after=parent.after_key
            )
            make = partial(DistinctFilter, store, self._identity(by, "distinct", name))
            return StatefulStep("distinct", (seen,), make)

        return self._stateful("distinct", name, operation)

    def lag(
        self, n: int = 1, *, name: str | None = None, value_serde: Serde[Any] | None = None
    ) -> Stream[K, dict[str, Any]]:
        """Replace each value by `{"current": value, "previous": …}`.

        The previous value is the one `n` records before with the same key, in the order in which
        the records come, or `None` for the first `n`. Values of `None` count. As in LAG of SQL,
        with the order of the stream. The state keeps the last `n` values of each key, forever;
        they are written as the stream's values are. `value_serde` writes the results; by default,
        that is the builder's.
        """
        if type(n) is not int or n < 1:
            raise TopologyError(f"lag goes back by 1 record or more, not {n!r}")
        values = lags(self.step.value_serde)

        def operation(store: str, parent: Step) -> Operation:
            last: StoreBuilder[Any, Any] = key_value(store, parent.key_serde, values)
            last = last.spread(after=parent.after_key)
            return StatefulStep("lag", (last,), partial(Lagger, store, n))

        return self._stateful("lag", name, operation, value_serde or self.graph.value_serde)

    @staticmethod
    def _identity(by: object, verb: str, name: str | None) -> KeyValueFunction:
        return _nothing if by is None else function_of_both(by, verb, name)

    def _stateful(
        self,
        verb: str,
        name: str | None,
        operation: Callable[[str, Step], Operation],
        value_serde: Serde[Any] | None = None,
    ) -> Stream:
        graph = self.graph
        name = graph.required_name(verb, name, self.step, "its store")
        parent = self.keyed(None if name is None else f"{name}-by-key")
        store = name or graph.generated_name(verb, parent)
        return self.next(operation(store, parent), store, parents=[parent], value_serde=value_serde)


def _nothing(key: Any, value: Any) -> None:
    return None
