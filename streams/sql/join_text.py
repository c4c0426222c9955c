"""What the text of a query says about a join of two inputs, without Spark.

As with groups, the JobManager needs to know the stores, and each task compares what was read here
with Spark's analyzed plan.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from kafka_pipeline.streams.sql.join_bounds import bounds_of, said
from kafka_pipeline.streams.sql.joined import JoinText
from kafka_pipeline.streams.sql.spec import QueryError

_MAY_JOIN = re.compile(r"\bjoin\b|\bfrom\b[^()]*,", re.IGNORECASE)


def read_join(query: str, tables: Collection[str] = ()) -> JoinText | None:
    """Return the join of two inputs in a query; `None` if there is none, or none can be read.

    `tables` are the names of its lookup tables. Raises `QueryError` for joins that cannot run.
    """
    if not _MAY_JOIN.search(query):
        return None
    from kafka_pipeline.streams.sql.join_tree import find_join

    found = find_join(query, tables)
    if found is None:
        return None
    try:
        before_ms, after_ms = bounds_of(found.comparisons)
    except QueryError as error:
        raise QueryError(f"{said(found.left, found.right)}: {error}") from error
    return JoinText(found.left, found.right, found.keeps, before_ms, after_ms)
