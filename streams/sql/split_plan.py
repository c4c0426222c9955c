"""Finds the columns that a query passes on, and leaves only the others to Spark."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import BooleanType, IntegralType, StringType

from kafka_pipeline.common.spark_types import OF_RECORDS
from kafka_pipeline.streams.sql.catalyst import Catalyst
from kafka_pipeline.streams.sql.output import headers_of, json_of, key_of, milliseconds_of
from kafka_pipeline.streams.sql.plan import id_of, kind, nodes_to_input
from kafka_pipeline.streams.sql.spec import RECORD, QuerySpec
from kafka_pipeline.streams.sql.split_results import ESCAPED, Member, SplitResults

_GIVES_EACH = ("Project", "View", "SubqueryAlias", "ResolvedHint")
"""Operators that make a row of each row, in the same order."""

_PASSES = (*_GIVES_EACH, "Filter", "Generate", "Join")
"""Operators whose rows have the columns of the row that they stem from, as they are."""


@dataclass(frozen=True, slots=True)
class Passed:
    """The columns of records that a query passes on, by their names in its result.

    `gives_each` says that each record gives one row.
    """

    names: Mapping[str, str]
    gives_each: bool


def passed_columns(plan: Any, rdd_id: int, make: Catalyst) -> Passed:
    """Return which columns of an analyzed plan are columns of the records, in each row."""
    *operators, records = nodes_to_input(plan, rdd_id)
    kinds = {*map(kind, operators)}
    if not kinds <= {*_PASSES}:
        return Passed({}, gives_each=False)
    renamed: dict[int, int] = {}
    for operator in operators:
        if kind(operator) != "Project":
            continue
        columns = operator.projectList()
        for index, name in enumerate(make.questions.names(columns)):
            if name != "Alias":
                continue
            column = columns.apply(index)
            if kind(column.child()) == "AttributeReference":
                renamed[id_of(column)] = id_of(column.child())
    known = _by_id(records.output(), make)
    names = {}
    for id_, name in _by_id(plan.output(), make).items():
        while id_ in renamed:
            id_ = renamed[id_]
        if id_ in known:
            names[name] = known[id_]
    return Passed(names, kinds <= {*_GIVES_EACH})


def split_results(
    frame: DataFrame, spec: QuerySpec, passed: Passed, fields: Collection[str]
) -> tuple[SplitResults | None, DataFrame | None]:
    """Return how results are made, and what Spark gives for that; `None` if that gains nothing.

    The last column of `frame` is `RECORD`; the others are those of a result, as `shaped` takes
    them. `fields` are the columns of records that are read from JSON. The columns that Spark needs
    are left to the caller.
    """
    names = {name.lower(): name for name in frame.columns[:-1]}
    output: list[Column] = []
    members: list[Member] | None = None
    if spec.is_inner or spec.format == "json":
        others = [name for low, name in names.items() if low not in OF_RECORDS]
        members = _members(frame, spec, others, passed, fields, output)
        if not any(member.name for member in members):
            return None, None
    elif passed.names.get(names["value"]) != "value":
        return None, None
    passes_key = "key" in names and passed.names.get(names["key"]) == "key"
    if "key" in names and not passes_key:
        output.append(key_of(frame, names["key"]))
    passes_time = passed.names.get(names["timestamp"]) == "timestamp"
    if not passes_time:
        output.append(milliseconds_of(frame, names["timestamp"]))
    if "headers" in names:
        output.append(headers_of(names["headers"]))
    made = None if members is None else tuple(members)
    results = SplitResults(made, passes_key, passes_time)
    if passed.gives_each and not output:
        return results, None
    return results, frame.select(*output, RECORD)


def _members(
    frame: DataFrame,
    spec: QuerySpec,
    names: Collection[str],
    passed: Passed,
    fields: Collection[str],
    output: list[Column],
) -> list[Member]:
    """Return the members of the value; those that Spark computes are added to its `output`."""
    members: list[Member] = []
    computed: list[str] = []

    def end_run() -> None:
        if computed:
            column = f"__members_{len(members)}"
            output.append(json_of(frame, computed, spec).alias(column))
            members.append(Member(column))
            computed.clear()

    for name in names:
        field, type_ = passed.names.get(name), frame.schema[name].dataType
        is_written = isinstance(type_, BooleanType | IntegralType) or type_ == StringType()
        if field in fields and is_written and not ESCAPED.search(name):
            end_run()
            members.append(Member(str(field), name))
        else:
            computed.append(name)
    end_run()
    return members


def _by_id(columns: Any, make: Catalyst) -> dict[int, str]:
    return {
        id_: str(columns.apply(index).name())
        for index, id_ in enumerate(make.questions.ids(columns))
    }
