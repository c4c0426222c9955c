"""What tables do without streams: views of their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, cast, overload

from kafka_pipeline.streams.dsl.expression_calls import condition_of_both, mapper_of_value
from kafka_pipeline.streams.dsl.expressions import Expression
from kafka_pipeline.streams.dsl.graph import Graph, Step
from kafka_pipeline.streams.dsl.table_values import ComputedValues, StoredValues, TableValues
from kafka_pipeline.streams.dsl.tables import ViewTable
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.type_variables import V2, K, V

if TYPE_CHECKING:
    from kafka_pipeline.streams.dsl.streams_and_tables import Table


class TableSteps(Generic[K, V]):
    """The last value of each key, as it changes.

    Every method adds a step and returns what comes of it; the table itself stays as it is, and may
    go on in several ways. Functions of a key and a value take both, functions named `…_values` the
    value. They must not change what they get, and must return the same whenever they are called:
    what they made of a value is computed again when the value is replaced, or looked up.

    A view with a `name` keeps its values in a store of that name, for lookups that are cheaper than
    computing them. One without a name has no store.
    """

    def __init__(
        self, graph: Graph, step: Step, values: TableValues, is_versioned: bool = False
    ) -> None:
        """For the DSL itself; `values` says how joins look this table up."""
        graph.tables.add(step)
        self.graph = graph
        self.step = step
        self.values = values
        self.is_versioned = is_versioned

    def filter(
        self, predicate: Callable[[K, V], object] | Expression, *, name: str | None = None
    ) -> Table[K, V]:
        """Keep the values for which `predicate(key, value)` is true; others become `None`."""
        holds = condition_of_both(predicate, "filter", name)

        def compute(key: Any, value: Any) -> Any:
            return value if holds(key, value) else None

        return self._view("filter", compute, name, None, is_filter=True)

    def filter_not(
        self, predicate: Callable[[K, V], object] | Expression, *, name: str | None = None
    ) -> Table[K, V]:
        """Keep the values for which `predicate(key, value)` is false; others become `None`.

        Where a column expression is null, the value becomes `None`.
        """
        holds = condition_of_both(predicate, "filter_not", name, is_negated=True)

        def compute(key: Any, value: Any) -> Any:
            return None if holds(key, value) else value

        return self._view("filter_not", compute, name, None, is_filter=True)

    @overload
    def map_values(
        self,
        mapper: Expression,
        *,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Table[K, Any]: ...
    @overload
    def map_values(
        self,
        mapper: Callable[[V], V2 | None],
        *,
        name: str | None = None,
        value_serde: Serde[V2] | None = None,
    ) -> Table[K, V2]: ...
    def map_values(
        self,
        mapper: Callable[[V], Any] | Expression,
        *,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Table[K, Any]:
        """Replace each value by what `mapper(value)` returns. `None` stays `None`."""
        compute = mapper_of_value(mapper, "map_values", name)
        serde = value_serde or self.graph.value_serde
        return self._view("map_values", compute, name, serde, is_filter=False)

    def _view(
        self,
        verb: str,
        compute: Callable[[Any, Any], Any],
        name: str | None,
        value_serde: Serde[Any] | None,
        is_filter: bool,
    ) -> Table:
        is_versioned = self.is_versioned and name is None
        operation = ViewTable(verb, compute, name, is_filter, self.is_versioned)
        step = self.graph.add(operation, [self.step], name, value_serde=value_serde)
        values: TableValues = (
            ComputedValues(self.values, compute) if name is None else StoredValues(name, verb)
        )
        return cast("Table", type(self)(self.graph, step, values, is_versioned))
