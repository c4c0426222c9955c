"""Column expressions give the same by row and by column."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from kafka_pipeline import Expression, StreamsError, serdes
from kafka_pipeline.streams.dsl.columns import StructColumn, UnsuitableError
from kafka_pipeline.streams.dsl.expression_columns import BatchColumns, compute, compute_condition
from kafka_pipeline.streams.dsl.expression_rows import predicate, row_function
from kafka_pipeline.streams.record import Batch
from tests.unit.streams.dsl.expression_strategies import expressions, records

RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))


def exact(found: Any) -> Any:
    """Return what tells results apart that are equal: 1, 1.0 and True, 0.0 and -0.0."""
    return repr(found)


def by_row(function: Any, rows: list[tuple[Any, Any, int]]) -> list[Any] | None:
    try:
        return [function(*row) for row in rows]
    except StreamsError:
        return None


def batch_of(rows: list[tuple[Any, Any, int]]) -> Batch:
    keys, values, timestamps = (list(column) for column in zip(*rows, strict=True))
    return Batch(keys, values, timestamps)


@RELAXED
@given(expressions(), records())
def test_columns_give_what_rows_give(
    expression: Expression, rows: list[tuple[Any, Any, int]]
) -> None:
    expected = by_row(row_function(expression), rows)
    try:
        found = compute(expression, BatchColumns(batch_of(rows)))
    except UnsuitableError:
        event("only by row")
        return
    event("by column")
    assert exact(found.to_pylist()) == exact(expected)


@RELAXED
@given(expressions("bool"), records())
def test_conditions_by_column_hold_where_they_hold_by_row(
    expression: Expression, rows: list[tuple[Any, Any, int]]
) -> None:
    expected = by_row(predicate(expression), rows)
    try:
        found = compute_condition(expression, BatchColumns(batch_of(rows)))
    except UnsuitableError:
        return
    assert exact(found) == exact(expected)


@RELAXED
@given(expressions("other"), records(), st.data())
def test_columns_of_dicts_become_the_same_json(
    expression: Expression, rows: list[tuple[Any, Any, int]], data: st.DataObject
) -> None:
    try:
        found = compute(expression, BatchColumns(batch_of(rows)))
    except UnsuitableError:
        return
    kept = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    found = found.selected(kept)
    if not isinstance(found, StructColumn):
        return

    def write(column: Any) -> Any:
        try:
            return column()
        except StreamsError as error:
            return str(error)

    items = by_row(
        row_function(expression), [r for r, each in zip(rows, kept, strict=True) if each]
    )
    assert items is not None
    serialize = serdes.json.serialize
    assert write(lambda: found.converted(serialize)) == write(lambda: list(map(serialize, items)))
