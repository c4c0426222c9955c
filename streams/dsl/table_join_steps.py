"""The joins of tables: by key, and by a key in the values of the left one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast, overload

from kafka_pipeline.streams.dsl.common_origins import common_origins
from kafka_pipeline.streams.dsl.foreign_key_join import RightTable, add_foreign_key_join
from kafka_pipeline.streams.dsl.foreign_key_left import ForeignKeyJoin
from kafka_pipeline.streams.dsl.graph import call
from kafka_pipeline.streams.dsl.joining import Joiner, JoinFunction, JoinKind, called, check_builder
from kafka_pipeline.streams.dsl.table_joins import JoinedValues, JoinTables, TableSide
from kafka_pipeline.streams.dsl.table_steps import TableSteps
from kafka_pipeline.streams.dsl.table_values import Serdes, StoredValues, TableValues
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.type_variables import K2, V2, K, R, V

if TYPE_CHECKING:
    from kafka_pipeline.streams.dsl.streams_and_tables import Table

_JOINER = "a function of the left and the right value"


class TableJoins(TableSteps[K, V]):
    """The joins of a table with another one.

    `joiner(left, right)` makes the value of a result. A change of either table changes the result;
    its time is the larger one of the two. `value_serde` says how results are written; by default,
    as the builder says. A join with a `name` keeps its results in a store of that name; one without
    computes them when they are looked up.

    A foreign-key join takes `foreign_key=f`, a function of a left value, or of a left key and its
    value, that returns a key of the right table. Such a join has a `name`, which its results, its
    subscriptions and its two topics get their names from. The time of a result is that of the
    change that led to it, or that of the right value if the left one changed and it is larger. It
    may forward `None` for keys that had no result (KIP-213).
    """

    @overload
    def join(
        self,
        other: Table[K, V2],
        joiner: Callable[[V, V2], R | None],
        *,
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Table[K, R]: ...
    @overload
    def join(
        self,
        other: Table[K2, V2],
        joiner: Callable[[V, V2], R | None],
        *,
        foreign_key: Callable[[V], K2 | None],
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Table[K, R]: ...
    @overload
    def join(
        self,
        other: Table[K2, V2],
        joiner: Callable[[V, V2], R | None],
        *,
        foreign_key: Callable[[K, V], K2 | None],
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Table[K, R]: ...
    def join(
        self,
        other: Table[Any, Any],
        joiner: JoinFunction,
        *,
        foreign_key: Callable[..., Any] | None = None,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Table[K, Any]:
        """Return the table of the keys that both tables have.

        With `foreign_key`, the key in the other table comes from the values of this one.
        """
        kind = JoinKind.INNER
        if foreign_key is not None:
            return self._join_foreign(kind, other, joiner, foreign_key, name, value_serde)
        return self._join(kind, other, joiner, name, value_serde)

    @overload
    def left_join(
        self,
        other: Table[K, V2],
        joiner: Callable[[V, V2 | None], R | None],
        *,
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Table[K, R]: ...
    @overload
    def left_join(
        self,
        other: Table[K2, V2],
        joiner: Callable[[V, V2 | None], R | None],
        *,
        foreign_key: Callable[[V], K2 | None],
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Table[K, R]: ...
    @overload
    def left_join(
        self,
        other: Table[K2, V2],
        joiner: Callable[[V, V2 | None], R | None],
        *,
        foreign_key: Callable[[K, V], K2 | None],
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Table[K, R]: ...
    def left_join(
        self,
        other: Table[Any, Any],
        joiner: JoinFunction,
        *,
        foreign_key: Callable[..., Any] | None = None,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Table[K, Any]:
        """Return the table of the keys of this table; a missing right value is `None`.

        With `foreign_key`, the key in the other table comes from the values of this one; if that
        key is `None`, so is the right value.
        """
        kind = JoinKind.LEFT
        if foreign_key is not None:
            return self._join_foreign(kind, other, joiner, foreign_key, name, value_serde)
        return self._join(kind, other, joiner, name, value_serde)

    def outer_join(
        self,
        other: Table[K, V2],
        joiner: Callable[[V | None, V2 | None], R | None],
        *,
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Table[K, R]:
        """Return the table of the keys of either table; the missing value is `None`."""
        return self._join(JoinKind.OUTER, other, joiner, name, value_serde)

    def _join(
        self,
        kind: JoinKind,
        other: TableJoins[Any, Any],
        joiner: JoinFunction,
        name: str | None,
        value_serde: Serde[Any] | None,
    ) -> Table:
        graph, verb = self.graph, kind.value
        self._check(kind, other, joiner, name)
        sides = (
            TableSide(self.values, self.is_versioned),
            TableSide(other.values, other.is_versioned),
        )
        origins = common_origins(self.step, other.step, graph.tables)
        step = graph.add(
            JoinTables(kind, joiner, sides, name, origins),
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
        return cast("Table", type(self)(graph, step, values))

    def _join_foreign(
        self,
        kind: JoinKind,
        other: TableJoins[Any, Any],
        joiner: JoinFunction,
        foreign_key: Callable[..., Any],
        name: str | None,
        value_serde: Serde[Any] | None,
    ) -> Table:
        graph, verb = self.graph, kind.value
        self._check(kind, other, joiner, name)
        call(foreign_key, verb, "a foreign_key, a function of the left value", name)
        name = graph.required_name(verb, name, self.step, "its stores and topics")
        name = name or graph.generated_name(verb, self.step)
        join = ForeignKeyJoin(
            name,
            kind,
            joiner,
            _of_both(foreign_key),
            self.values,
            self.is_versioned,
            Serdes(self.step.key_serde, self.step.value_serde),
            Serdes(other.step.key_serde, other.step.value_serde),
        )
        right = RightTable(other.step, other.values, other.is_versioned)
        step = add_foreign_key_join(graph, self.step, right, join, value_serde)
        return cast("Table", type(self)(graph, step, StoredValues(name, verb)))

    def _check(
        self, kind: JoinKind, other: TableJoins[Any, Any], joiner: JoinFunction, name: str | None
    ) -> None:
        where = called(kind, name)
        call(joiner, kind.value, _JOINER, name)
        if not isinstance(other, TableJoins):
            raise TopologyError(f"{where} takes a table, not {other!r}")
        check_builder(self.graph, other.graph, where)


def _of_both(foreign_key: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return a function of key and value: the given one, or one that leaves the key out."""
    try:
        parameters = inspect.signature(foreign_key).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    required = [
        each
        for each in parameters
        if each.default is each.empty
        and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    return foreign_key if len(required) > 1 else lambda key, value: foreign_key(value)
