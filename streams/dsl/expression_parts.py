"""Links of a chain that compute column expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka_pipeline.streams.dsl.expression_rows import RowFunction, predicate, row_function
from kafka_pipeline.streams.dsl.expressions import Expression, Field, fields_of
from kafka_pipeline.streams.dsl.stateless import (
    Fields,
    FilterNotPart,
    FilterPart,
    MapValuesPart,
    Part,
    SelectKeyPart,
    selected,
)
from kafka_pipeline.streams.errors import StreamsError
from kafka_pipeline.streams.record import Batch, Record, items_of

FEWEST_RECORDS = 16
"""For fewer records, the kernels of Arrow are not worth it."""

_MOST_SKIPPED = 64


class Evaluation:
    """Computes an expression for records and batches; errors name the step.

    Where the kernels of Arrow do not fit the values, it computes by row, and tries Arrow again
    after some batches.
    """

    def __init__(self, step: str, expression: Expression, row: RowFunction) -> None:
        # Arrow takes a while to load and some memory, so only tasks with expressions load it.
        from kafka_pipeline.streams.dsl import columns, expression_columns

        self._unsuitable = columns.UnsuitableError
        self._columns = expression_columns
        self._step = step
        self._expression = expression
        self._row = row
        self._skipped = 0
        self._to_skip = 0

    def one(self, key: Any, value: Any, timestamp: int) -> Any:
        """Return what the expression is for a record. Raises `StreamsError`."""
        try:
            return self._row(key, value, timestamp)
        except StreamsError as error:
            raise StreamsError(f'step "{self._step}": {error}') from error

    def column(self, batch: Batch) -> Sequence[Any]:
        """Return what the expression is for each record. Raises `StreamsError`."""
        return self._all(batch, self._columns.compute)

    def condition(self, batch: Batch) -> Sequence[Any]:
        """Return what the expression, a condition, is for each record. Raises `StreamsError`."""
        return self._all(batch, self._columns.compute_condition)

    def _all(self, batch: Batch, compute: Callable[..., Sequence[Any]]) -> Sequence[Any]:
        if len(batch) >= FEWEST_RECORDS and self._skipped >= self._to_skip:
            try:
                found = compute(self._expression, self._columns.BatchColumns(batch))
            except self._unsuitable:
                self._skipped, self._to_skip = 0, min(2 * self._to_skip + 1, _MOST_SKIPPED)
            else:
                self._to_skip = 0
                return found
        self._skipped += 1
        columns = (items_of(batch.keys), items_of(batch.values), items_of(batch.timestamps))
        return list(map(self.one, *columns))


class ExpressionPart(Part):
    """A part with an expression in the place of a function."""

    row: Callable[[Expression], RowFunction] = staticmethod(row_function)

    def __init__(self, name: str, function: Expression) -> None:
        super().__init__(name, function)
        self.evaluation = Evaluation(name, function, self.row(function))
        self.reads = _fields_read(function)


def _fields_read(expression: Expression) -> Fields | None:
    """Return the paths of the fields that an expression reads; `None` if it reads all."""
    paths: set[tuple[str, ...]] = set()
    for each in fields_of(expression):
        if not isinstance(each, Field) or each.path is None:
            return None
        paths.add(each.path)
    return paths


class FilterByExpression(ExpressionPart):
    """Keeps records for which a condition is true."""

    row = staticmethod(predicate)
    drops_by_fields = True
    wanted = True

    def receive(self, record: Record) -> None:
        if self.evaluation.one(record.key, record.value, record.timestamp) is self.wanted:
            self.forward(record)

    def columns(self, batch: Batch) -> Batch:
        wanted = self.wanted
        return selected(batch, [each is wanted for each in self.evaluation.condition(batch)])


class FilterNotByExpression(FilterByExpression):
    """Keeps records for which a condition is false; not those for which it is null."""

    wanted = False


class MapValuesByExpression(ExpressionPart):
    """Replaces the value by an expression."""

    replaces_values = True

    def receive(self, record: Record) -> None:
        value = self.evaluation.one(record.key, record.value, record.timestamp)
        self.forward(Record(record.key, value, record.timestamp, record.headers))

    def columns(self, batch: Batch) -> Batch:
        return batch.with_values(self.evaluation.column(batch))


class SelectKeyByExpression(ExpressionPart):
    """Replaces the key by an expression."""

    def receive(self, record: Record) -> None:
        key = self.evaluation.one(record.key, record.value, record.timestamp)
        self.forward(Record(key, record.value, record.timestamp, record.headers))

    def columns(self, batch: Batch) -> Batch:
        keys: Sequence[Any] = items_of(self.evaluation.column(batch))
        return batch.with_columns(keys, batch.values)


BY_EXPRESSION: Mapping[type[Part], type[ExpressionPart]] = {
    FilterPart: FilterByExpression,
    FilterNotPart: FilterNotByExpression,
    MapValuesPart: MapValuesByExpression,
    SelectKeyPart: SelectKeyByExpression,
}
"""For each kind of part with a function, the kind with an expression."""
