"""Follows columns of Spark's plans down to where they come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafka_pipeline.streams.sql.plan import items, kind, step_to_input


def id_of(column: Any) -> int:
    """Return the id by which Spark's plans refer to a column."""
    return int(column.exprId().id())


def nodes_to_input(plan: Any, rdd_id: int) -> Iterator[Any]:
    """Yield the nodes from a plan down to the RDD with this id."""
    while True:
        yield plan
        step = step_to_input(plan, rdd_id)
        if step is None:
            return
        plan = step.children[step.index]


def is_column(column: Any, wanted: int, child: Any, rdd_id: int) -> bool:
    """Whether a column of `child` is the column with the id `wanted` of the RDD, in each row."""
    if kind(column) != "AttributeReference":
        return False
    found = origin(column, child, rdd_id)
    return kind(found) == "AttributeReference" and id_of(found) == wanted


def origin(column: Any, child: Any, rdd_id: int) -> Any:
    """Follow a column down to the expression that makes it, or to the column of the RDD."""
    for node in nodes_to_input(child, rdd_id):
        given = _given(node, id_of(column))
        if given is None:
            continue
        if kind(given) != "AttributeReference":
            return given
        column = given
    return column


def _given(node: Any, wanted: int) -> Any | None:
    """Return the expression by which a node gives the column with an id; `None` if it does not.

    A node that gives several rows for each one may have several. One that is not a column of the
    rows below is returned then, if there is one, and `None` if they are different columns.
    """
    if kind(node) == "Project":
        for column in items(node.projectList()):
            if kind(column) == "Alias" and id_of(column) == wanted:
                return column.child()
    if kind(node) == "Expand":
        for index, column in enumerate(items(node.output())):
            if id_of(column) == wanted:
                ways = [row.apply(index) for row in items(node.projections())]
                made = next((way for way in ways if kind(way) != "AttributeReference"), None)
                is_one = made is None and len({id_of(way) for way in ways}) == 1
                return ways[0] if is_one else made
    return None
