"""Gives the windows of a calendar to Spark's analyzed plans, in place of plain ones.

Spark would read the rules of zones from the files of its JVM. The engine, which closes windows, has
those of Python. So it computes the period of each record itself, as the DSL does, and the plan
takes that from a column of the records.
"""

from __future__ import annotations

from typing import Any

from kafka_pipeline.streams.sql.plan import (
    alias,
    all_nodes,
    input_column,
    is_window,
    items,
    kind,
    seq,
    step_to_input,
    with_column,
)
from kafka_pipeline.streams.sql.spec import CALENDAR_WINDOW, QueryError
from kafka_pipeline.streams.sql.state_shape import PERIOD


def require_one_window(analyzed: Any) -> None:
    """Raise `QueryError` if a plan makes windows in two places: one may be that of a table."""
    places = sum(
        any(map(_makes_window, items(node.projectList())))
        for node in all_nodes(analyzed)
        if kind(node) == "Project"
    )
    if places > 1:
        raise QueryError(
            f"a query with {CALENDAR_WINDOW}(…) may have windows in one place only: where it "
            "groups the records of its input. Put others into a processor before this one"
        )


def with_periods(plan: Any, rdd_id: int, jvm: Any) -> Any:
    """Return a plan, below the operator that groups, whose window is the `PERIOD` of a record."""
    if kind(plan) == "Project" and any(map(_makes_window, items(plan.projectList()))):
        child = with_column(items(plan.children())[0], PERIOD, rdd_id, jvm)
        period = input_column(child, PERIOD, rdd_id)
        columns = [
            alias(period, str(column.name()), jvm, column.exprId())
            if _makes_window(column)
            else column
            for column in items(plan.projectList())
        ]
        return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(seq(jvm, columns), child)
    step = step_to_input(plan, rdd_id)
    assert step is not None, "a window is a column of the records"
    return step.over(with_periods(step.children[step.index], rdd_id, jvm), jvm)


def _makes_window(column: Any) -> bool:
    """Whether a column of a SELECT is made by `window(…)`, and not passed on."""
    is_made = kind(column) == "Alias" and kind(column.child()) == "CreateNamedStruct"
    return is_made and is_window(column)
