"""The joins of tables: by key, and by a key in the values of the left one."""

from __future__ import annotations

from typing import Any, Self

from streams.dsl.graph import call
from streams.dsl.joining import Joiner, JoinFunction, JoinKind, called, check_builder
from streams.dsl.table_joins import JoinedValues, JoinTables, TableSide
from streams.dsl.table_steps import TableSteps
from streams.dsl.table_values import StoredValues, TableValues
from streams.errors import TopologyError
from streams.serdes import Serde

_JOINER = "a function of the left and the right value"


class TableJoins(TableSteps):
    """The joins of a table with another one.

    `joiner(left, right)` makes the value of a result. A change of either table changes the result;
    its time is the larger one of the two. `value_serde` says how results are written; by default,
    as the builder says. A join with a `name` keeps its results in a store of that name; one without
    computes them when they are looked up.
    """

    def join(
        self,
        other: TableJoins,
        joiner: JoinFunction,
        *,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Self:
        """Return the table of the keys that both tables have."""
        return self._join(JoinKind.INNER, other, joiner, name, value_serde)

    def left_join(
        self,
        other: TableJoins,
        joiner: JoinFunction,
        *,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Self:
        """Return the table of the keys of the left table; a missing right value is `None`."""
        return self._join(JoinKind.LEFT, other, joiner, name, value_serde)

    def outer_join(
        self,
        other: TableJoins,
        joiner: JoinFunction,
        *,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Self:
        """Return the table of the keys of either table; the missing value is `None`."""
        return self._join(JoinKind.OUTER, other, joiner, name, value_serde)

    def _join(
        self,
        kind: JoinKind,
        other: TableJoins,
        joiner: JoinFunction,
        name: str | None,
        value_serde: Serde[Any] | None,
    ) -> Self:
        graph, verb, where = self.graph, kind.value, called(kind, name)
        call(joiner, verb, _JOINER, name)
        if not isinstance(other, TableJoins):
            raise TopologyError(f"{where} takes a table, not {other!r}")
        check_builder(graph, other.graph, where)
        sides = (
            TableSide(self.values, self.is_versioned),
            TableSide(other.values, other.is_versioned),
        )
        step = graph.add(
            JoinTables(kind, joiner, sides, name),
            [self.step, other.step],
            name,
            value_serde=value_serde or graph.value_serde,
            key_changed=False,
        )
        values: TableValues = (
            JoinedValues(kind, Joiner(step.name, joiner), self.values, other.values)
            if name is None
            else StoredValues(name, verb)
        )
        return type(self)(graph, step, values)
