"""Ranks the rows of groups that were kept together with new ones; see `ranked_rows`.

Unlike the buffers of Spark's functions, the array of a group is a plain column: only an operator
over all rows of a group can say which of them are within the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kafka_pipeline.streams.sql.catalyst import Catalyst
from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.ranked_rows import KEPT, NUMBER, RANKS, ROW, SORTED_BY, Ranking
from kafka_pipeline.streams.sql.spec import quoted
from kafka_pipeline.streams.sql.split_aggregate import AggregateParts

SORTING = ("SortExec", "WindowExec")
"""The operators of plans that rank rows which others do not have."""

_EACH, _VERSIONS = "__each", "__versions"


def ranked_parts(parts: AggregateParts, make: Catalyst) -> AggregateParts:
    """Return the parts of an aggregation whose buffers are what its functions give."""
    given = [
        make.alias(column, column.name()).toAttribute()
        for column in items(parts.final.aggregateAttributes())
    ]
    return replace(parts, buffers=given)


def ranked_partial(parts: AggregateParts, make: Catalyst) -> Any:
    """Return the physical plan that turns records into groups, and arrays of their rows."""
    final = parts.final
    given = [
        make.alias(column, buffer.name(), buffer.exprId())
        for column, buffer in zip(items(final.aggregateAttributes()), parts.buffers, strict=True)
    ]
    return make.hashed(
        make.none,
        final.groupingExpressions(),
        final.aggregateExpressions(),
        final.aggregateAttributes(),
        final.initialInputBufferOffset(),
        make.seq([*parts.groups, *given]),
        parts.partial,
    )


def ranked_merge(parts: AggregateParts, ranking: Ranking, rows: DataFrame, make: Catalyst) -> Any:
    """Return the physical plan that ranks `rows` of groups and buffers.

    It gives the groups, the buffers to keep, and what the functions give. In the array of versions
    that is the rows that were kept, with their former places, and then those that are kept now.
    """
    kept_at = next(
        place for place, each in enumerate(parts.functions) if each.prettyName() == "collect_list"
    )
    names = [quoted(name) for name in rows.columns]
    groups, buffers = names[: len(parts.groups)], names[len(parts.groups) :]
    found = _ranked(rows, groups, buffers, kept_at, ranking)
    node = found._jdf.queryExecution().sparkPlan()
    output = items(node.output())
    wanted = [*parts.groups, *parts.buffers]
    given = [*output[: len(wanted)]]
    for place, column in enumerate(items(parts.final.aggregateAttributes())):
        wanted.append(column)
        given.append(output[-1] if place == kept_at else output[len(groups) + place])
    columns = [
        make.alias(value, column.name(), column.exprId())
        for value, column in zip(given, wanted, strict=True)
    ]
    return make.spark.execution.ProjectExec(make.seq(columns), node)


def _ranked(
    rows: DataFrame,
    groups: Sequence[str],
    buffers: Sequence[str],
    kept_at: int,
    ranking: Ranking,
) -> DataFrame:
    """Return groups, buffers, and an array of versions of rows, one row a group."""
    times = [name for place, name in enumerate(buffers) if place != kept_at]
    each = rows.select(*groups, *times, F.explode(buffers[kept_at]).alias(_EACH))
    by_group = Window.partitionBy(*groups)
    row = F.col(f"{_EACH}.{ROW}").alias(ROW)
    if ranking.function in RANKS:
        rank = {"rank": F.rank, "dense_rank": F.dense_rank}[ranking.function]
        place = rank().over(by_group.orderBy(F.col(f"{_EACH}.{ROW}.{SORTED_BY}")))
    else:
        # The columns that order rows which tie follow in the struct.
        place = F.row_number().over(by_group.orderBy(row))
    ranked = each.withColumn(NUMBER, place)
    is_within = F.col(NUMBER) <= ranking.size

    def collected(condition: Column, version: Column) -> Column:
        return F.sort_array(F.collect_list(F.when(condition, version)))

    def version_of(*, kept: bool) -> Column:
        return F.struct(F.lit(kept).alias(KEPT), F.col(NUMBER), row)

    to_keep = collected(is_within, version_of(kept=True))
    now = collected(is_within, version_of(kept=False))
    before = collected(F.col(f"{_EACH}.{KEPT}"), F.col(_EACH))
    return ranked.groupBy(*groups).agg(
        *(
            _bounded(to_keep, groups, ranking) if place == kept_at else F.max(name)
            for place, name in enumerate(buffers)
        ),
        F.concat(before, now).alias(_VERSIONS),
    )


def _bounded(kept: Column, groups: Sequence[str], ranking: Ranking) -> Column:
    """Return the rows of a group, which are an error if there are too many."""
    said = F.concat(
        F.lit(f"{ranking.function}() keeps more than {ranking.max_rows} rows of the group "),
        F.struct(*groups).cast("string"),
        F.lit(": see max_collected"),
    )
    return F.when(F.size(kept) > ranking.max_rows, F.raise_error(said)).otherwise(kept)
