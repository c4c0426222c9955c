"""What the text of a query says about its groups, or its join of two inputs, without Spark.

The JobManager has no Spark, and a command may run where the lookup tables of a query cannot be
read. Yet both must know which stores and topics it needs. So its text is looked at: by what it
groups records, or which inputs it joins. When Spark has analyzed the query, each task checks that
this is so, and refuses the query if not. A mistake here can therefore not make a wrong result.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from kafka_pipeline.common.pipelines.specs import JoinSpec, OverSpec
from kafka_pipeline.streams.sql.schema_columns import Columns, no_columns
from kafka_pipeline.streams.sql.spec import CALENDAR_WINDOW, GroupBy
from kafka_pipeline.streams.sql.stage import Stage

_MAY_GROUP = re.compile(
    rf"group\s*(by|--|/\*)|distinct|(row_number|rank)`?\s*\(|{CALENDAR_WINDOW}", re.IGNORECASE
)
_MAY_CALL_WINDOWS = re.compile(
    rf"{CALENDAR_WINDOW}|\b(tumble|hop|cumulate|session)\s*\(", re.IGNORECASE
)
_MAY_HAVE_FRAMES = re.compile(r"\bover\b", re.IGNORECASE)
_MAY_JOIN = re.compile(
    r"\bjoin\b|\bfrom\b([^()]*|.*\)\s*(as\s+)?[`\w]*\s*),", re.IGNORECASE | re.DOTALL
)
_SELECT = re.compile(r"\bselect\b", re.IGNORECASE)
_MAY_BE_OF_OTHERS = re.compile(
    r"->|\b(unnest|system_time|within|emit|window\s+(tumbling|hopping|session)|distinct\s+on"
    r"|(earliest|latest)_by_offset)\b",
    re.IGNORECASE,
)


def read_groups(query: str, tables: Collection[str] = ()) -> GroupBy | None:
    """Return what a query groups its records by; `None` if it does not group them.

    `tables` are the names of its lookup tables. Whatever else it reads are its inputs.

    Raises `QueryError` for windows that it cannot read, or that are not possible. Also raises it
    for a text that cannot be read at all, if it has GROUP BY, DISTINCT or `row_number()`.
    """
    if not _MAY_GROUP.search(query):
        return None
    # Imported late: sqlglot takes a quarter of a second to load.
    from kafka_pipeline.streams.sql.query_tree import find_groups

    return find_groups(query, tables)


def read_over(query: str, tables: Collection[str] = ()) -> OverSpec | None:
    """Return the frames of the `OVER (…)` over the records of a query; `None` if there is none.

    How late records may be is not in the text. `tables` are the names of its lookup tables. Raises
    `QueryError` for frames that cannot be kept.
    """
    if not _MAY_HAVE_FRAMES.search(query):
        return None
    from kafka_pipeline.streams.sql.over_text import find_over

    return find_over(query, tables)


def read_join(
    query: str, tables: Collection[str] = (), *, may_have_bounds: bool = True
) -> JoinSpec | None:
    """Return the join of two inputs in a query; `None` if there is none, or none can be read.

    How long rows are kept, and where late records go, is not in the text. `tables` are the names
    of its lookup tables. Unless it `may_have_bounds`, bounds of time are conditions like others.
    Raises `QueryError` for joins that cannot run.
    """
    if not _MAY_JOIN.search(query):
        return None
    from kafka_pipeline.streams.sql.join_tree import find_join

    return find_join(query, tables, may_have_bounds=may_have_bounds)


def require_readable(query: str, tables: Collection[str]) -> None:
    """Raise `QueryError` with the place if the text of a query that joins cannot be read."""
    from kafka_pipeline.streams.sql.query_tree import require_readable as require

    require(query, tables)


def require_joined(query: str, tables: Collection[str] = ()) -> None:
    """Raise `QueryError` if a subquery in an expression, or a UNION, reads inputs.

    `tables` are the names of the lookup tables of the query.
    """
    if len(_SELECT.findall(query)) > 1:
        from kafka_pipeline.streams.sql.unjoined_inputs import require_joined as require

        require(query, tables)


def as_spark_reads(query: str) -> str:
    """Return a query with what Spark knows in place of calendar windows and table functions.

    Raises `QueryError` for table functions that are not possible.
    """
    if not _MAY_CALL_WINDOWS.search(query):
        return query
    from kafka_pipeline.streams.sql.query_tree import with_plain_windows

    return with_plain_windows(query)


def without_end(query: str) -> str:
    """Return a query without the semicolons and comments that may follow it."""
    if ";" not in query:
        return query
    from kafka_pipeline.streams.sql.query_tree import without_end as without

    return without(query)


def require_one_statement(query: str) -> None:
    """Raise `QueryError` if semicolons separate statements in a query that Spark cannot read."""
    if ";" in query:
        from kafka_pipeline.streams.sql.query_tree import require_one_statement as require

        require(query)


def read_stages(
    query: str,
    tables: Collection[str],
    reading: str,
    views: Mapping[str, str] = {},
    columns: Columns = no_columns,
) -> list[Stage]:
    """Return the stages of a query, each after those that it reads; the last one gives the result.

    A stage reads another one as the table `<reading>.<name>`. `tables` are the names of the lookup
    tables, `views` the queries of views by their names in small letters, and `columns` says what
    inputs and lookup tables have. A query that needs no stages, or that cannot be read, is one
    stage. Raises `QueryError` for names of stages that are not possible, for views that are not,
    for columns of which it cannot tell the table, and for SQL of other stream processors.
    """
    if _MAY_BE_OF_OTHERS.search(query):
        from kafka_pipeline.streams.sql.other_dialects import require_spark_sql

        require_spark_sql(query)
    if views:
        from kafka_pipeline.streams.sql.views import with_views

        found = with_views(query, views)
        stages = read_stages(found.query, tables, reading, {}, columns)
        return [found.placed(each) for each in stages]
    may_join, has_one = _MAY_JOIN.search(query), len(_SELECT.findall(query)) < 2
    may_meet = may_join or _MAY_GROUP.search(query) or _MAY_HAVE_FRAMES.search(query)
    if not may_meet or (has_one and not may_join):
        return [Stage.of_all(query)]
    from kafka_pipeline.streams.sql.query_stages import cut_query

    return cut_query(query, tables, reading, columns)


def tables_of(query: str) -> frozenset[str]:
    """Return the names of all tables that a query reads, in small letters.

    The query must be one that `read_stages` has cut.
    """
    from kafka_pipeline.streams.sql.query_tree import find_tables

    return find_tables(query)
