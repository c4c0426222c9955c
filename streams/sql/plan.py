"""Decides which plans can run batch by batch: those that look at one record at a time.

Works on Spark's plans through py4j, by the names of their operators in Spark 4. An analyzed plan is
walked from the result down to `input`. On this path, operators must turn each record into its own
rows and keep the order. Off the path, any operators on lookup tables are accepted.
Columns are followed on it down to where they come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.streams.sql.catalyst import Catalyst
from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.join_bounds import EXAMPLE as JOIN_EXAMPLE
from kafka_pipeline.streams.sql.join_bounds import Comparing
from kafka_pipeline.streams.sql.spec import QueryError

_NARROW = ("Project", "Filter", "Generate", "View", "SubqueryAlias", "ResolvedHint")
_OPAQUE = ("MapInPandas", "MapInArrow", "Expand")
"""Narrow too, but their output has none of the columns of their input."""

WINDOW_MARK = "spark.timeWindow"
"""In the metadata of a column that `window(…)` gives."""

_STREAM_IS_LEFT = ("Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti")
_STREAM_IS_RIGHT = ("Inner", "Cross", "RightOuter")

_ADVICE = "use type: count, or a class with a store"
_BATCH = "a batch holds just the records that came together"
_STATE = "keeps state that only Spark's own streams have"
_REFUSED = {
    "Aggregate": f"GROUP BY and aggregates need all rows of a key, and {_BATCH}: use GROUP BY, or "
    "a class with a store",
    "Distinct": f"DISTINCT needs all rows, and {_BATCH}: use SELECT DISTINCT, or a class with a "
    "store",
    "Sort": f"ORDER BY needs all rows, and {_BATCH}: records keep the order of their partition",
    "Window": f"OVER (…) needs the rows around a row, and {_BATCH}: use row_number() with a limit, "
    "a frame of a sql processor over timestamp, or a class with a store",
    "GlobalLimit": f"LIMIT counts the rows of a batch, and {_BATCH}: use WHERE",
    "LocalLimit": f"LIMIT counts the rows of a batch, and {_BATCH}: use WHERE",
    "Tail": f"tail counts the rows of a batch, and {_BATCH}: use WHERE",
    "Offset": f"OFFSET counts the rows of a batch, and {_BATCH}: use WHERE",
    "Sample": "TABLESAMPLE takes the same sample of every batch: use WHERE rand() < …",
    "Union": "UNION would change the order of records: use explode, or two processors",
    "Intersect": f"INTERSECT needs all rows, and {_BATCH}: use a lookup table and LEFT SEMI JOIN",
    "Except": f"EXCEPT needs all rows, and {_BATCH}: use a lookup table and LEFT ANTI JOIN",
    "LateralJoin": "LATERAL joins each record with rows of its own: use LATERAL VIEW, as in FROM "
    "input LATERAL VIEW explode(items) v AS item",
    "PipeOperator": "a query is a SELECT here: write what |> does as its clauses",
    "Repartition": "a batch is one partition, in the order of its records",
    "RepartitionByExpression": "a shuffle would change the order of records: DISTRIBUTE BY and "
    "repartition are done by writing the key that is wanted",
    "ScriptTransformation": "TRANSFORM … USING would run a program on the TaskManager's host",
    "DeduplicateWithinWatermark": f"dropDuplicatesWithinWatermark {_STATE}: use deduplicate of the "
    "DSL, which forgets rows after a while",
    "FlatMapGroupsInPandasWithState": f"applyInPandasWithState {_STATE}: use a class with a store",
    "TransformWithStateInPySpark": f"transformWithState {_STATE}: use a class with a store",
}
_IN_PYTHON = (
    f"a Python function of whole groups needs all rows of a group, and {_BATCH}: use "
    "groupBy(…).agg(…), or a class with a store"
)
_PYTHON_GROUPS = (
    "FlatMapGroupsInPandas",
    "FlatMapGroupsInArrow",
    "FlatMapCoGroupsInPandas",
    "FlatMapCoGroupsInArrow",
)
_GIVEN = ("LogicalRDD", "LocalRelation", "OneRowRelation", "Range", "UnionLoopRef")
"""Leaves that open nothing: the input, the rows of tables, and rows in the query's text."""

_MAY_BE_ON_THE_WAY = (
    "WholeStageCodegenExec",
    "InputAdapter",
    "ProjectExec",
    "FilterExec",
    "GenerateExec",
    "BroadcastHashJoinExec",
    "BroadcastNestedLoopJoinExec",
    "ShuffledHashJoinExec",
    "ArrowEvalPythonExec",
    "BatchEvalPythonExec",
    "MapInPandasExec",
    "MapInArrowExec",
    "ExpandExec",
)


_OVER_SORTED = ("SortExec", "InputAdapter", "WholeStageCodegenExec")
"""What is between an operator that numbers rows and a shuffle."""

_COMPARISONS: dict[str, Comparing] = {
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "EqualTo": "=",
    "GreaterThanOrEqual": ">=",
    "GreaterThan": ">",
}


def kind(node: Any) -> str:
    """Return the name of the class of an operator or an expression, without its package."""
    return str(node.productPrefix())


def type_of(expression: Any) -> str:
    """Return the type of the values of an expression, as SQL names it."""
    return str(expression.dataType().catalogString())


def id_of(column: Any) -> int:
    """Return the id by which plans refer to a column."""
    return int(column.exprId().id())


def reads_input(node: Any, rdd_id: int) -> bool:
    """Whether a node is `input`, the RDD with this id, or has it below."""
    return _input_below(node, rdd_id) is not None


def _input_below(node: Any, rdd_id: int) -> Any | None:
    """Return `input`, if a node is it or has it below. Spark looks for the leaves in one call."""
    leaves = items(node.collectLeaves())
    return next((leaf for leaf in leaves if is_input(leaf, rdd_id)), None)


def names_read(plan: Any, names: Mapping[int, str]) -> list[str]:
    """Return the names of the RDDs below a node, of those with these ids and names."""
    return [name for rdd_id, name in names.items() if reads_input(plan, rdd_id)]


def require_narrow(plan: Any, rdd_id: int) -> None:
    """Raise `QueryError` unless an analyzed plan turns each input record into its own rows."""
    require_one_input(plan, rdd_id)
    for step in steps_to_input(plan, rdd_id):
        if kind(step.node) == "Join":
            require_lookup(step.node, rdd_id)
        elif kind(step.node) not in (*_NARROW, *_OPAQUE):
            raise refusal(step.node)


def require_one_input(plan: Any, rdd_id: int) -> None:
    """Raise `QueryError` unless an analyzed plan reads `input`, and not in a subquery.

    TRANSFORM, which runs a program, is refused here too, wherever it is.
    """
    for node in all_nodes(plan):
        if kind(node) == "ScriptTransformation":
            raise refusal(node)
    for subquery in items(plan.subqueriesAll()):
        if reads_input(subquery, rdd_id):
            raise QueryError(f"a subquery reads input, and {_BATCH}: {_ADVICE}")
    if not reads_input(plan, rdd_id):
        raise QueryError(f"only a SELECT that reads input can be run ({kind(plan)} does not)")


def require_all_inputs(plan: Any, inputs: Mapping[int, str]) -> None:
    """Raise `QueryError` if an analyzed plan reads one of several inputs.

    `inputs` has the ids of their RDDs, with their names.
    """
    read = [
        name
        for rdd_id, name in inputs.items()
        if any(is_input(node, rdd_id) for node in all_nodes(plan))
    ]
    if len(read) > 1:
        raise QueryError(
            f"the query reads {' and '.join(read)}, and not as a join of two inputs whose text can "
            f"be read: write {JOIN_EXAMPLE}"
        )
    for name in read:
        raise QueryError(
            f"the query reads {name}, which is one of several inputs: read input, which has the "
            f"records of all of them, or give {name} a processor of its own"
        )


def require_given(plan: Any) -> None:
    """Raise `QueryError` unless an analyzed plan reads nothing but the input and lookup tables."""
    for node in all_nodes(plan):
        if node.children().isEmpty() and kind(node) not in _GIVEN:
            raise QueryError(
                f"a query reads input and its lookup tables, and nothing else ({kind(node)}): name "
                "what it needs under tables"
            )


def with_time(plan: Any, rdd_id: int, make: Catalyst) -> Any:
    """Return a narrow plan with the time of the records, if it gives no `timestamp` of its own.

    Raises as `with_column` does.
    """
    names = {str(column.name()).lower() for column in items(plan.output())}
    return plan if "timestamp" in names else with_column(plan, "timestamp", rdd_id, make)


def with_column(plan: Any, name: str, rdd_id: int, make: Catalyst) -> Any:
    """Return a narrow plan that passes a column of the records on to its output.

    Raises `QueryError` if that is not possible.
    """
    column = input_column(plan, name, rdd_id)
    if plan.outputSet().contains(column):
        return plan
    if kind(plan) in _OPAQUE and not (_gives_windows(plan) or _gives_sets(plan)):
        raise QueryError(
            f"{kind(plan)} hides which record a row stems from: let the result have a column "
            "timestamp"
        )
    step = step_to_input(plan, rdd_id)
    assert step is not None, "a narrow plan reads input"
    carried = with_column(step.child, name, rdd_id, make)
    if kind(plan) == "Project":
        return make.project([*items(plan.projectList()), column], carried)
    if kind(plan) == "Expand":
        rows = [make.seq([*items(row), column]) for row in items(plan.projections())]
        output = make.seq([*items(plan.output()), column])
        return make.logical.Expand(make.seq(rows), output, carried)
    return step.over(carried, make)


def input_column(plan: Any, name: str, rdd_id: int) -> Any:
    """Return a column of the records that a plan reads."""
    records = _input_below(plan, rdd_id)
    assert records is not None, "the plan reads input"
    return records.output().apply(records.schema().fieldIndex(name))


def is_window(column: Any) -> bool:
    """Whether a column is what `window(…)` gives."""
    return WINDOW_MARK in str(column.metadata().json())


@dataclass(frozen=True, slots=True)
class PlanStep:
    """An operator on the path to the input, and the index of the child that leads there."""

    node: Any
    children: Sequence[Any]
    index: int

    @property
    def child(self) -> Any:
        """The child that leads to the input."""
        return self.children[self.index]

    def over(self, child: Any, make: Catalyst) -> Any:
        """Return the operator with another child on the path."""
        children = [*self.children]
        children[self.index] = child
        return make.with_children(self.node, children)


def in_one_partition(plan: Any, rdd_id: int, make: Catalyst, *, is_sorted: bool = False) -> Any:
    """Return a physical plan without shuffles for the numbers of rows: there is one partition.

    Spark adds them above operators whose partitions it does not know, as those of hopping windows.
    `is_sorted` says that the operator above `plan` is one that numbers rows, or sorts for it.
    """
    step = step_to_input(plan, rdd_id)
    if step is None:
        return plan
    if kind(plan) == "ShuffleExchangeExec" and is_sorted:
        return in_one_partition(step.child, rdd_id, make)
    is_below = kind(plan) == "WindowExec" or (is_sorted and kind(plan) in _OVER_SORTED)
    made = in_one_partition(step.child, rdd_id, make, is_sorted=is_below)
    return plan if made is step.child else step.over(made, make)


def require_by_record(plan: Any, rdd_id: int, others: Sequence[str]) -> None:
    """Raise `QueryError` unless a physical plan works record by record on the way from `input`.

    Its operators there may also be of the kinds `others`.
    """
    require_rows(plan, rdd_id)
    for step in steps_to_input(plan, rdd_id):
        if kind(step.node) not in (*_MAY_BE_ON_THE_WAY, *others):
            raise QueryError(
                f"Spark plans a {step.node.nodeName()}, which does not work record by record"
            )


def used_places(plan: Any, rdd_id: int, make: Catalyst) -> list[int]:
    """Return the places of the columns of `input` that a physical plan gives, or makes others of.

    Raises `QueryError` if it does not read `input`.
    """
    require_rows(plan, rdd_id)
    records = _input_below(plan, rdd_id)
    assert records is not None, "it has rows"
    ids, used = make.questions.ids(records.output()), make.questions.used(plan)
    return [place for place, id_ in enumerate(ids) if id_ in used]


def require_rows(plan: Any, rdd_id: int) -> None:
    """Raise `QueryError` if Spark has found that a plan does not need to read its input."""
    if not reads_input(plan, rdd_id):
        raise QueryError("it gives no row, whatever the input: look at its conditions")


def is_input(node: Any, rdd_id: int) -> bool:
    """Whether a node is `input`, the RDD with this id."""
    return kind(node) in ("LogicalRDD", "RDDScanExec") and node.rdd().id() == rdd_id


def step_to_input(node: Any, rdd_id: int) -> PlanStep | None:
    """Return a node that reads input as a step to its first child that does; `None` for `input`.

    Each question to a node is a call to the JVM, so an only child is not asked.
    """
    children = items(node.children())
    if len(children) == 1:
        return PlanStep(node, children, 0)
    for index, child in enumerate(children):
        if reads_input(child, rdd_id):
            return PlanStep(node, children, index)
    return None


def steps_to_input(plan: Any, rdd_id: int) -> Iterator[PlanStep]:
    """Yield the operators from a plan that reads input down to that, without the input itself."""
    while (step := step_to_input(plan, rdd_id)) is not None:
        yield step
        plan = step.child


def nodes_to_input(plan: Any, rdd_id: int) -> Iterator[Any]:
    """Yield the nodes from a plan down to the RDD with this id; if it is not there, the plan."""
    yield plan
    if reads_input(plan, rdd_id):
        yield from (step.child for step in steps_to_input(plan, rdd_id))


def _gives_windows(plan: Any) -> bool:
    """Whether a plan puts each row into several windows that overlap."""
    return kind(plan) == "Expand" and any(is_window(column) for column in items(plan.output()))


def _gives_sets(plan: Any) -> bool:
    """Whether a plan puts each row into several grouping sets."""
    names = {str(column.name()) for column in items(plan.output())}
    return kind(plan) == "Expand" and "spark_grouping_id" in names


def all_nodes(plan: Any) -> Iterator[Any]:
    """Yield the nodes of a plan and of its subqueries."""
    waiting = [plan, *items(plan.subqueriesAll())]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += items(node.children())


def expressions(roots: Sequence[Any]) -> Iterator[Any]:
    """Yield expressions and those in them, the outer ones first."""
    waiting = [*roots]
    while waiting:
        expression = waiting.pop()
        yield expression
        waiting += items(expression.children())


def conjuncts(condition: Any) -> Iterator[Any]:
    """Yield the parts of a condition, which are all demanded."""
    waiting = [condition]
    while waiting:
        expression = waiting.pop()
        if kind(expression) == "And":
            waiting += [expression.left(), expression.right()]
        else:
            yield expression


def demands(join: Any) -> list[Any]:
    """Return the parts of the condition of a join, which are all demanded."""
    condition = join.condition()
    return [*conjuncts(condition.get())] if condition.isDefined() else []


def compared(condition: Any) -> Iterator[tuple[Any, Comparing, Any]]:
    """Yield the comparisons that a condition consists of; none if it is something else."""
    if kind(condition) == "Between":
        yield condition.input(), ">=", condition.lower()
        yield condition.input(), "<=", condition.upper()
    elif kind(condition) in _COMPARISONS:
        yield condition.left(), _COMPARISONS[kind(condition)], condition.right()


def require_lookup(join: Any, rdd_id: int) -> None:
    """Raise `QueryError` unless a join looks records up in a table."""
    sides = [reads_input(child, rdd_id) for child in items(join.children())]
    how = str(join.joinType().toString())
    if all(sides):
        raise QueryError(f"JOIN of input with itself would miss rows, as {_BATCH}: {_ADVICE}")
    if how not in (_STREAM_IS_LEFT if sides[0] else _STREAM_IS_RIGHT):
        place = "left" if sides[0] else "right"
        raise QueryError(
            f"{how} JOIN with input on the {place} gives rows of the table for every batch: put "
            "input on the left of an INNER, LEFT, LEFT SEMI or LEFT ANTI JOIN"
        )


def refusal(node: Any) -> QueryError:
    """Return the error that says why a node of an analyzed plan cannot run batch by batch."""
    name = kind(node)
    if name in _PYTHON_GROUPS:
        return QueryError(f"{_IN_PYTHON} ({name})")
    return QueryError(
        f"{_REFUSED.get(name, 'it is none of the operators that work record by record')} ({name})"
    )


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
