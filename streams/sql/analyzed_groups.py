"""Recognises the queries with GROUP BY that can keep state, on Spark's analyzed plans.

Such a query has one Aggregate, one Window, which numbers rows, or what groups by all columns: a
Distinct, or a Deduplicate in a function of a DataFrame. Below it, operators work record by record;
above it are only the SELECT and HAVING. Anything else is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.common.pipelines.specs import CalendarSpec, SessionSpec, WindowSpec, WindowsSpec
from kafka_pipeline.streams.sql.best_rows import BestRows, best_rows, numbering
from kafka_pipeline.streams.sql.catalyst import Catalyst
from kafka_pipeline.streams.sql.distinct_plan import collecting, with_arguments
from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.plan import (
    PlanStep,
    expressions,
    id_of,
    input_column,
    is_column,
    is_window,
    kind,
    nodes_to_input,
    refusal,
    require_lookup,
    require_narrow,
    require_one_input,
    steps_to_input,
    with_column,
)
from kafka_pipeline.streams.sql.ranked_rows import over_ranks
from kafka_pipeline.streams.sql.retraction import CHANGE_TIME, retracting
from kafka_pipeline.streams.sql.spec import NO_NUMBERED_SESSIONS, QueryError
from kafka_pipeline.streams.sql.stage_rows import WRITING
from kafka_pipeline.streams.sql.window_plan import (
    is_session,
    require_one_window,
    window_of,
    with_open_windows,
    with_order,
    with_periods,
)

KEY = "key"
TIME = "timestamp"
LAST_TIME = "__last_time"
"""A column with the time of the last record of a group, where `timestamp` is another time."""

_AFTER_GROUPS = ("Project", "Filter", "View", "SubqueryAlias", "ResolvedHint")
_GROUPING = ("Aggregate", "Distinct", "Deduplicate", "Window")
_BEFORE_GROUPS = ("Join", "Generate", "Expand", "MapInPandas", "MapInArrow")


@dataclass(frozen=True, slots=True)
class QueryGroups:
    """What an analyzed query groups by; `above` are the operators above the Aggregate.

    `record_time_id` and `record_key_id` are the ids of the `timestamp` and the `key` of records.
    `window_column` is the grouping column with the `window`. `key_column` is the one that is the
    key of the records, if one is, and `is_distinct` says that the query removes duplicates. `best`
    describes the rows of a `row_number()` or a rank.
    """

    above: list[PlanStep]
    aggregate: Any
    record_time_id: int
    record_key_id: int
    window: WindowsSpec | None
    window_column: Any
    key_column: Any | None
    is_distinct: bool
    best: BestRows | None


@dataclass(frozen=True, slots=True)
class GroupedQuery:
    """An analyzed query with one Aggregate, whose output has a column `timestamp`.

    Rows of windows that start before the `OPEN_FROM` of their record are left out. With sessions,
    the last grouping column is the `ORDER` of records instead. `time_id` is the id of
    the `timestamp` of a group, if the query gives none, or else of its last record's time. `added`
    are columns that are not part of the result. `arguments` are the ids of the columns whose values
    the caller keeps; see `with_arguments`.
    """

    groups: QueryGroups
    plan: Any
    time_id: int | None
    added: Sequence[str]
    arguments: Collection[int]


def is_grouped(analyzed: Any, rdd_id: int) -> bool:
    """Whether a query groups its records."""
    return any(kind(node) in _GROUPING for node in nodes_to_input(analyzed, rdd_id))


def groups_of(
    analyzed: Any,
    rdd_id: int,
    max_collected: int,
    make: Catalyst,
    calendar: Sequence[str] = (),
    least_best: int = 0,
    *,
    is_changelog: bool = False,
) -> QueryGroups:
    """Return what an analyzed query groups by.

    It keeps `least_best` best rows of a group, or as many as it says if that is more. With a
    `calendar`, which is a period and a zone, its window has these periods. Raises `QueryError` with
    the reason if no state can be kept for the query.
    """
    require_one_input(analyzed, rdd_id)
    above, aggregate = _way_to_aggregate(analyzed, rdd_id)
    is_distinct = kind(aggregate) in ("Distinct", "Deduplicate")
    if is_distinct:
        aggregate = _as_aggregate(aggregate, make)
    is_numbered = kind(aggregate) == "Window"
    if is_numbered:
        numbering(aggregate)
    child = items(aggregate.children())[0]
    _require_one_aggregate(child, rdd_id)
    require_narrow(child, rdd_id)
    best = None
    if is_numbered:
        sizes = (least_best, max_collected)
        best = best_rows(above, aggregate, rdd_id, sizes, make, is_changelog=is_changelog)
        above, aggregate = best.above, best.aggregate
        child = items(aggregate.children())[0]
    grouping = items(aggregate.groupingExpressions())
    _require_groups(grouping, "PARTITION BY" if is_numbered else "GROUP BY")
    if is_numbered and any(map(is_session, grouping)):
        raise QueryError(NO_NUMBERED_SESSIONS)
    _require_functions(items(aggregate.aggregateExpressions()))
    key, time = (id_of(input_column(analyzed, name, rdd_id)) for name in ("key", TIME))
    attributes = [column for column in grouping if kind(column) == "AttributeReference"]
    windows = [column for column in attributes if is_window(column) or is_session(column)]
    if is_changelog:
        windows = []  # those of a table never close: they are columns like others
    if calendar:
        require_one_window(analyzed)
    return QueryGroups(
        above=above,
        aggregate=aggregate,
        record_time_id=time,
        record_key_id=key,
        window=window_of(windows[0], child, time, rdd_id, make, calendar) if windows else None,
        window_column=windows[0] if windows else None,
        key_column=next((c for c in grouping if is_column(c, key, child, rdd_id)), None),
        is_distinct=is_distinct,
        best=best,
    )


def grouped_query(
    analyzed: Any,
    rdd_id: int,
    max_collected: int,
    make: Catalyst,
    calendar: Sequence[str],
    least_best: int,
    *,
    keeps_distinct: bool,
    is_changelog: bool,
    is_inner: bool,
) -> GroupedQuery:
    """Return an analyzed query, with the time of the last record of a group if it gives no time.

    It gives an error for a group with more than `max_collected` values in a collection. Over a
    changelog, it takes rows out again. If it `is_inner` and gives no key, the grouping columns are
    the key of its results, so that these are upserts. Raises `QueryError` with the reason if no
    state can be kept for the query. See `groups_of` for the `calendar` and `least_best`, and
    `QuerySpec` for `keeps_distinct`.
    """
    groups = groups_of(
        analyzed, rdd_id, max_collected, make, calendar, least_best, is_changelog=is_changelog
    )
    window, is_distinct, above = groups.window, groups.is_distinct, groups.above
    aggregate = groups.aggregate
    arguments: Collection[int] = ()
    if is_changelog:
        aggregate, above, arguments = retracting(
            aggregate, above, rdd_id, max_collected, make, groups.best
        )
    elif groups.best is None:
        aggregate = collecting(aggregate, max_collected, make, keeps_distinct=keeps_distinct)
    given = {column.name().lower() for column in items(analyzed.output())}
    has_time, added = TIME in given, list[Any]()
    gives_once = is_distinct and not is_changelog
    if is_inner and KEY not in given and groups.best is None and not gives_once:
        aggregate, column = _with_key(aggregate, make)
        added.append(column)
    if isinstance(window, SessionSpec):
        aggregate = with_order(aggregate, rdd_id, make)
    elif window is not None:
        child = items(aggregate.children())[0]
        if isinstance(window, CalendarSpec):
            child = with_periods(child, rdd_id, make)
        child = with_open_windows(groups.window_column, child, rdd_id, make)
        aggregate = make.with_children(aggregate, [child])
    if groups.best is not None and groups.best.ranking is not None and not is_changelog:
        aggregate = over_ranks(groups.best.ranking, aggregate, make)
    times = list[Any]()
    if not has_time:
        # A row that is given once has the time of its first record.
        function = "First" if gives_once else "Max"
        of_record = CHANGE_TIME if is_changelog else TIME
        aggregate, column = _with_time(aggregate, TIME, (function, of_record), rdd_id, make)
        times.append(column)
    if isinstance(window, WindowSpec | CalendarSpec) and (has_time or is_distinct):
        aggregate, column = _with_time(aggregate, LAST_TIME, ("Max", TIME), rdd_id, make)
        times.append(column)
    if not is_changelog:
        aggregate, arguments = with_arguments(aggregate, make)
    return GroupedQuery(
        groups=groups,
        plan=_over(above, aggregate, [*added, *times], make),
        time_id=id_of(times[0]) if times else None,
        added=[LAST_TIME for column in times if column.name() == LAST_TIME],
        arguments=arguments,
    )


def _as_aggregate(distinct: Any, make: Catalyst) -> Any:
    """Return an Aggregate by all columns for an operator that removes duplicates."""
    child = distinct.child()
    if any(map(is_session, items(child.output()))):
        raise QueryError("SELECT DISTINCT with session_window(…): use GROUP BY")
    if kind(distinct) == "Deduplicate":
        keys = {id_of(column) for column in items(distinct.keys())}
        if keys != {id_of(column) for column in items(child.output())}:
            raise QueryError(
                "dropDuplicates by some of the columns keeps any one of their rows: select these "
                "columns first, or use groupBy(…) with an aggregate such as F.first(…)"
            )
    return make.logical.Aggregate(child.output(), child.output(), child, make.none)


def _way_to_aggregate(plan: Any, rdd_id: int) -> tuple[list[PlanStep], Any]:
    """Return the operators above the one that groups, from the result down, and that one."""
    way = list[PlanStep]()
    for step in steps_to_input(plan, rdd_id):
        if kind(step.node) in _GROUPING:
            return way, step.node
        if kind(step.node) not in _AFTER_GROUPS:
            _require_follows(step.node, rdd_id)
        way.append(step)
    raise QueryError("there is no GROUP BY, so there is no state to keep: leave group_by out")


def _require_follows(plan: Any, rdd_id: int) -> None:
    """Raise the error for an operator that cannot follow GROUP BY, if it does at all."""
    if kind(plan) == "Join":
        require_lookup(plan, rdd_id)
    if kind(plan) not in _BEFORE_GROUPS:
        raise refusal(plan)
    if any(kind(node) in _GROUPING for node in nodes_to_input(plan, rdd_id)):
        raise QueryError(
            f"only SELECT, HAVING and WHERE can follow GROUP BY or row_number() ({kind(plan)}): "
            "put the rest into a processor after this one"
        )


def _require_one_aggregate(child: Any, rdd_id: int) -> None:
    for node in nodes_to_input(child, rdd_id):
        if kind(node) == "Window":
            numbering(node)
        if kind(node) in _GROUPING:
            raise QueryError(
                f"a second GROUP BY, DISTINCT or row_number() below the first ({kind(node)}) needs "
                "results that change later: put the inner one into a subquery of FROM or, in a "
                "function, the outer one into a processor after this one"
            )


def _require_groups(grouping: list[Any], clause: str) -> None:
    if not grouping:
        raise QueryError(
            "aggregates without GROUP BY would be those of a partition, not of the whole topic: "
            "add GROUP BY"
        )
    for column in grouping:
        type_ = str(column.dataType().json())
        if '"map"' in type_:
            raise QueryError(f"{clause} {column.sql()}: a map cannot be the key of a group")
        if "collat" in type_:
            raise QueryError(
                f"{clause} {column.sql()}: different bytes are equal under its collation, and "
                "groups are found by their bytes: use lower(…) or another function"
            )


def _require_functions(columns: list[Any]) -> None:
    for expression in expressions(columns):
        if kind(expression) == "PythonUDAF":
            raise QueryError(
                f"{expression.name()}: buffers of an aggregate function in Python cannot be "
                "merged: use Spark's functions, or a class with a store"
            )


def _with_time(
    aggregate: Any, name: str, made_of: tuple[str, str], rdd_id: int, make: Catalyst
) -> tuple[Any, Any]:
    """Return an aggregate with the time of the first or last record of each group, and the column.

    It is `made_of` a function, which is First, the first one that was read, or Max, and of a column
    of the records.
    """
    function, of_record = made_of
    child = with_column(items(aggregate.children())[0], of_record, rdd_id, make)
    record_time, found = input_column(child, of_record, rdd_id), getattr(make.aggregates, function)
    made = found(record_time, False) if function == "First" else found(record_time)
    time = make.alias(made.toAggregateExpression(), name)
    groups, columns = items(aggregate.groupingExpressions()), aggregate.aggregateExpressions()
    with_time = make.aggregate(groups, [*items(columns), time], child, aggregate.hint())
    return with_time, time.toAttribute()


def _with_key(aggregate: Any, make: Catalyst) -> tuple[Any, Any]:
    """Return an aggregate with the grouping columns of each group as JSON, and that column."""
    groups, columns = items(aggregate.groupingExpressions()), aggregate.aggregateExpressions()
    options = make.jvm.PythonUtils.toScalaMap(dict(WRITING))
    text = make.expressions.StructsToJson(options, make.struct(groups), make.some("UTC"))
    key = make.alias(text, KEY)
    with_key = make.aggregate(groups, [*items(columns), key], aggregate.child(), aggregate.hint())
    return with_key, key.toAttribute()


def _over(above: list[PlanStep], aggregate: Any, added: list[Any], make: Catalyst) -> Any:
    """Return operators over an aggregate; they pass the columns on that were added to it."""
    plan = aggregate
    for step in reversed(above):
        if kind(step.node) == "Project":
            plan = make.project([*items(step.node.projectList()), *added], plan)
        else:
            plan = step.over(plan, make)
    return plan
