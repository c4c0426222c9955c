"""Views: queries by name, which others read like tables.

A query that reads views is run as if it began with a WITH of them, so what is said of CTEs holds
for views. It is imported late: loading sqlglot takes a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from kafka_pipeline.streams.sql.query_tree import find_tables, place_of, without_end
from kafka_pipeline.streams.sql.rewritten import Rewritten
from kafka_pipeline.streams.sql.spec import QueryError


def with_views(query: str, views: Mapping[str, str]) -> Rewritten:
    """Return a query behind those of the views that it reads, and those that these read.

    The names of views have small letters. Raises `QueryError` for a view that reads itself, and for
    one that cannot be read.
    """
    found = dict[str, str]()
    try:
        tables = find_tables(query)
    except (SqlglotError, RecursionError, QueryError):
        tables = frozenset[str]()  # what reads the query again reports why
    for name in sorted(tables & views.keys()):
        _add(name, views, (), found)
    if not found:
        return Rewritten(query, [(query, 0)])
    start = ", ".join(f"`{name}` AS ({text})" for name, text in found.items())
    first = Spark().tokenize(query)[0]
    is_with = first.token_type == TokenType.WITH
    skipped = first.end + 1 if is_with else 0
    start = f"WITH {start}{',' if is_with else ' '}"
    return Rewritten(query, [(start, None), (query[skipped:], skipped)])


def _add(
    name: str, views: Mapping[str, str], readers: tuple[str, ...], found: dict[str, str]
) -> None:
    """Add a view to those that are `found`, behind those that it reads."""
    if name in readers:
        raise QueryError(f"the view {name} reads itself: {' reads '.join((*readers, name))}")
    if name in found:
        return
    try:
        tables = find_tables(views[name])
    except QueryError as error:
        raise QueryError(f"the view {name} cannot be read: {error}") from error
    except (SqlglotError, RecursionError) as error:
        stopped = place_of(error, views[name])
        raise QueryError(f"the view {name} cannot be read: reading stopped {stopped}") from error
    for inner in sorted(tables & views.keys()):
        _add(inner, views, (*readers, name), found)
    found[name] = without_end(views[name]).lstrip()
