"""Joins with tables that have a history: a record finds the row that was valid at its own time.

A batch has all versions that its records may see, each with the times at which they may. These are
hidden columns, which this module brings to the join, with the time of the records.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kafka_pipeline.streams.sql.plan import (
    Step,
    input_column,
    is_input,
    items,
    reads_input,
    seq,
    step_to_input,
    with_column,
)
from kafka_pipeline.streams.sql.spec import VISIBLE_FROM, VISIBLE_UNTIL, QueryError


def at_record_times(plan: Any, rdd_id: int, tables: Collection[int], jvm: Any) -> Any:
    """Return an analyzed plan that joins each record with the versions of its time.

    `rdd_id` is the id of the RDD `input`, and `tables` are those of the tables with a history. The
    plan has no other joins with them than `require_keyed_joins` allows. Its output stays the same.
    Raises `QueryError` if an operator hides the time of records.
    """
    if not tables or is_input(plan, rdd_id):
        return plan
    step = step_to_input(plan, rdd_id)
    assert step is not None, "the query reads input"
    child = at_record_times(step.children[step.index], rdd_id, tables, jvm)
    for index, side in enumerate(step.children):
        for table in tables:
            if index != step.index and reads_input(side, table):
                return _joined(step, child, rdd_id, side, table, jvm)
    return step.over(child, jvm)


def _joined(step: Step, child: Any, rdd_id: int, side: Any, table: int, jvm: Any) -> Any:
    """Return a join of `child`, which reads the records, with one side, which reads a table."""
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    logical = jvm.org.apache.spark.sql.catalyst.plans.logical
    time = input_column(child, "timestamp", rdd_id)
    start, end = (input_column(side, name, table) for name in (VISIBLE_FROM, VISIBLE_UNTIL))
    for name in (VISIBLE_FROM, VISIBLE_UNTIL):
        side = with_column(side, name, table, jvm)
    try:
        child = with_column(child, "timestamp", rdd_id, jvm)
    except QueryError as error:
        raise QueryError(
            "a table with a history is joined by the time of the records, which is not known any "
            f"more: {error}; or join the table below that"
        ) from error
    has_begun = expressions.GreaterThanOrEqual(time, start)
    has_not_ended = expressions.Or(expressions.IsNull(end), expressions.LessThan(time, end))
    is_visible = expressions.And(has_begun, has_not_ended)
    join = step.node
    condition = expressions.And(join.condition().get(), is_visible)
    sides = (child, side) if step.index == 0 else (side, child)
    made = logical.Join(*sides, join.joinType(), jvm.scala.Option.apply(condition), join.hint())
    return logical.Project(seq(jvm, items(join.output())), made)
