"""The `OVER (…)` of a query over its records, found by sqlglot in its text.

It is imported late, and only for queries that may have one: loading sqlglot takes a quarter of a
second.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope

from kafka_pipeline.common.pipelines.specs import OverSpec, OverStage
from kafka_pipeline.streams.sql.over_shape import EXAMPLE, UNBOUNDED
from kafka_pipeline.streams.sql.query_tree import (
    NUMBERING,
    definition_of,
    is_column_of_records,
    is_grouped,
    microseconds,
    parsed,
    quiet,
    reading_scopes,
)
from kafka_pipeline.streams.sql.spec import QueryError


def find_over(query: str, tables: Collection[str]) -> OverSpec | None:
    """Return the frames of a query; `None` if no `OVER (…)` is over its records, or none is read.

    One that only numbers rows is left to `find_groups`. Raises `QueryError` for frames that are not
    possible.
    """
    try:
        with quiet():
            scopes = reading_scopes(parsed(query, tables))
    except (SqlglotError, RecursionError):
        return None  # Spark refuses it if it has one
    calls = [(call, scope) for scope in scopes for call in _calls(scope)]
    if all(isinstance(call.this, NUMBERING) for call, _ in calls):
        return None
    if any(isinstance(call.this, NUMBERING) for call, _ in calls):
        raise QueryError(
            "row_number(), rank() and dense_rank() keep the best rows of a group, and other OVER "
            "(…) gives each record: put one of them into a subquery"
        )
    if any(map(is_grouped, scopes)):
        raise QueryError(
            "GROUP BY and DISTINCT cannot be in one SELECT with OVER (…): put one of them into a "
            "subquery"
        )
    range_ms, counts_rows, has_key = 0, False, True
    for call, scope in calls:
        window = definition_of(call, scope)
        columns = [each for each in window.args.get("partition_by") or () if each.find(exp.Column)]
        if not columns:
            raise QueryError(
                "OVER (…) without a column in PARTITION BY would have all records in one task: "
                f"write {EXAMPLE}"
            )
        has_key &= any(is_column_of_records(column, "key", scope) for column in columns)
        frame = call.args.get("spec") or window.args.get("spec")
        if _offset_of(call):
            counts_rows = True
        elif frame is None:
            raise QueryError(UNBOUNDED)
        elif str(frame.args.get("kind")).upper() == "ROWS":
            counts_rows = True
        else:
            range_ms = max(range_ms, _milliseconds(frame.args.get("start")))
    stage: OverStage = "whole" if has_key else "frames"
    return OverSpec(range_ms=range_ms, counts_rows=counts_rows, stage=stage)


def _calls(scope: Scope) -> list[exp.Window]:
    """Return the functions of a SELECT with `OVER`, without the windows that it names."""
    return [call for call in scope.find_all(exp.Window) if call.args.get("over")]


def _offset_of(call: exp.Window) -> bool:
    """Whether a function takes the row that is some rows away, and has no frame."""
    return next(call.this.find_all(exp.Lag, exp.Lead), None) is not None


def _milliseconds(start: object) -> int:
    """Return how far a frame by time reaches back, in whole ms."""
    match start:
        case "UNBOUNDED":
            raise QueryError(UNBOUNDED)
        case "CURRENT ROW":
            return 0
        case exp.Add(this=first, expression=second):
            return _milliseconds(first) + _milliseconds(second)
        case exp.Interval(this=exp.Literal() as count):
            unit = start.args.get("unit")
            found = microseconds(f"{count.name} {'' if unit is None else unit.name}")
            if found is not None and found >= 0:
                return -(-found // 1000)
    raise QueryError(
        "the time of RANGE BETWEEN cannot be read: write it as an interval of days or smaller "
        f"units, as in {EXAMPLE}"
    )
