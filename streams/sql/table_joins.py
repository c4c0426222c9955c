"""Decides which joins with tables that follow topics can run batch by batch, and how.

A task holds the rows of its own partitions of the topic, and sends Spark those with the keys of a
batch. So only a join by the record key finds all its rows. Of a table with a history, a batch gets
every version that its records may see. Hidden columns say from when to when a version is visible;
this module carries them, and the time of the records, to the join.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kafka_pipeline.streams.sql.catalyst import Catalyst
from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.plan import (
    PlanStep,
    all_nodes,
    demands,
    id_of,
    input_column,
    is_column,
    kind,
    names_read,
    reads_input,
    step_to_input,
    steps_to_input,
    with_column,
)
from kafka_pipeline.streams.sql.spec import VISIBLE_FROM, VISIBLE_UNTIL, QueryError

HASH_JOIN = "ShuffledHashJoinExec"
"""The operator that joins `input` with such a table."""

_ROW_BY_ROW = ("Project", "Filter", "View", "SubqueryAlias", "ResolvedHint")


def require_keyed_joins(plan: Any, rdd_id: int, tables: Mapping[int, str]) -> None:
    """Raise `QueryError` unless an analyzed plan looks up `tables` by the key of the records only.

    `rdd_id` is the id of the RDD of `input`; `tables` maps the RDD ids of tables to their names.
    """
    for subquery in items(plan.subqueriesAll()):
        for name in names_read(subquery, tables):
            raise QueryError(
                f"a subquery reads {name}, of which a batch has only the rows with the keys of its "
                f"records: use {_example(name)}, LEFT SEMI JOIN or LEFT ANTI JOIN"
            )
    for step in steps_to_input(plan, rdd_id):
        for index, other in enumerate(step.children):
            if index != step.index and names_read(other, tables):
                _require_by_key(step.node, step.child, other, rdd_id, tables)


def require_planned_joins(plan: Any, rdd_id: int, tables: Collection[int]) -> None:
    """Raise `QueryError` unless a physical plan keeps no rows of these tables between batches.

    A broadcast table would stay as it was in the first batch.
    """
    for node in all_nodes(plan) if tables else ():
        if not any(reads_input(node, table) for table in tables):
            continue
        if "Exchange" in kind(node):
            raise QueryError(
                f"Spark plans a {node.nodeName()} for a table that follows a topic: leave hints "
                "out, and put conditions on a key into WHERE rather than ON"
            )
        if kind(node) == HASH_JOIN and reads_input(node, rdd_id):
            step = step_to_input(node, rdd_id)
            assert step is not None
            if str(node.buildSide().toString()) == ("BuildLeft", "BuildRight")[step.index]:
                raise QueryError(
                    "Spark would give the rows in the order of a table that follows a topic, and "
                    "not in that of the records: leave hints out"
                )


def joined_in_place(join: Any, make: Catalyst) -> Any:
    """Return a `HASH_JOIN` without a shuffle: both sides have one partition.

    Spark skips the shuffle of a join that is marked as skewed, since it has been shuffled already.
    """
    keys = join.leftKeys(), join.rightKeys()
    made = make.spark.execution.joins.ShuffledHashJoinExec(
        *keys, join.joinType(), join.buildSide(), join.condition(), *items(join.children()), True
    )
    # Spark's rules ask each operator of the planner which logical one it comes from.
    made.setLogicalLink(join.logicalLink().get())
    return made


def at_record_times(plan: Any, rdd_id: int, tables: Collection[int], make: Catalyst) -> Any:
    """Return an analyzed plan that joins each record with the versions of its time.

    `rdd_id` is the id of the RDD `input`, and `tables` are those of the tables with a history. The
    plan has no other joins with them than `require_keyed_joins` allows. Its output stays the same.
    Raises `QueryError` if an operator hides the time of records.
    """
    step = step_to_input(plan, rdd_id) if tables else None
    if step is None:
        return plan
    child = at_record_times(step.child, rdd_id, tables, make)
    for index, side in enumerate(step.children):
        for table in tables:
            if index != step.index and reads_input(side, table):
                return _joined(step, child, rdd_id, side, table, make)
    return step.over(child, make)


def _joined(step: PlanStep, child: Any, rdd_id: int, side: Any, table: int, make: Catalyst) -> Any:
    """Return a join of `child`, which reads the records, with one side, which reads a table."""
    expressions = make.expressions
    time = input_column(child, "timestamp", rdd_id)
    start, end = (input_column(side, name, table) for name in (VISIBLE_FROM, VISIBLE_UNTIL))
    for name in (VISIBLE_FROM, VISIBLE_UNTIL):
        side = with_column(side, name, table, make)
    try:
        child = with_column(child, "timestamp", rdd_id, make)
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
    made = make.logical.Join(*sides, join.joinType(), make.some(condition), join.hint())
    return make.project(items(join.output()), made)


def _require_by_key(
    join: Any, input_side: Any, side: Any, rdd_id: int, tables: Mapping[int, str]
) -> None:
    """Raise `QueryError` unless a join is one of `input` with one table, by the key of both."""
    names = names_read(side, tables)
    leaf = side
    while kind(leaf) in _ROW_BY_ROW:
        (leaf,) = items(leaf.children())
    name = names[0]
    if kind(leaf) != "LogicalRDD":
        raise QueryError(
            f"{kind(leaf)} over {name} would miss rows, as a batch has only those with the keys "
            f"of its records: join {name} itself, as in {_example(name)}"
        )
    table_id = int(leaf.rdd().id())
    wanted = id_of(input_column(input_side, "key", rdd_id))
    key = id_of(input_column(side, "key", table_id))
    for left, right in _equal_columns(join):
        for of_input, of_table in ((left, right), (right, left)):
            if is_column(of_input, wanted, input_side, rdd_id) and is_column(
                of_table, key, side, table_id
            ):
                return
    raise QueryError(
        f"input must be joined with {name} by the keys of both, as only records with the same key "
        f"are in the same partition: write {_example(name)}. To join by another column, say "
        "global: true, or let a processor in front give that column as key"
    )


def _example(name: str) -> str:
    return f"LEFT JOIN {name} ON input.key = {name}.key"


def _equal_columns(join: Any) -> Iterator[tuple[Any, Any]]:
    """Yield both sides of each `=` that the condition of a join demands."""
    for expression in demands(join):
        if kind(expression) == "EqualTo":
            yield expression.left(), expression.right()
