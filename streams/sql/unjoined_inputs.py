"""Finds what reads records in a way that no state can be kept for: subqueries in conditions, UNION.

It is imported late: loading sqlglot takes a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope

from kafka_pipeline.streams.sql.join_tree import inputs_of
from kafka_pipeline.streams.sql.query_tree import parsed, quiet
from kafka_pipeline.streams.sql.spec import QueryError

_SETS = {
    "union": "read each in a processor of its own, and let both send to the one that goes on",
    "intersect": "join them in FROM by LEFT SEMI JOIN",
    "except": "join them in FROM by LEFT ANTI JOIN",
}
"""What to write in place of an operator on sets."""


def require_joined(query: str, tables: Collection[str]) -> None:
    """Raise `QueryError` if an expression or a UNION reads inputs.

    `tables` are the names of the lookup tables. A text that sqlglot cannot read is left to others.
    """
    try:
        with quiet():
            scopes = traverse_scope(parsed(query, tables))
            for scope in scopes:
                read = sorted(inputs_of(scope))
                if scope.is_subquery and read:
                    raise QueryError(_instead(scope.expression, read))
                if isinstance(scope.expression, exp.SetOperation) and len(read) > 1:
                    how = scope.expression.key
                    raise QueryError(f"{how.upper()} of {' and '.join(read)}: {_SETS[how]}")
    except (SqlglotError, RecursionError):
        return


def _instead(subquery: exp.Expr, read: Sequence[str]) -> str:
    """Say what is wrong with a subquery that reads inputs, and what to write."""
    name = " and ".join(read)
    around = subquery.parent
    while isinstance(around, exp.Subquery | exp.Paren):
        around = around.parent
    if isinstance(around, exp.Lateral):
        return (
            f"LATERAL (SELECT …) reads {name} for each row: to keep the best rows of each group, "
            "number them by row_number() OVER (PARTITION BY …)"
        )
    if not isinstance(around, exp.Exists | exp.In):
        return (
            f"a subquery gives one value of {name}, which changes with each record: join it in "
            "FROM, as in FROM a JOIN (SELECT id, max(n) AS n FROM b GROUP BY id) b ON a.id = b.id"
        )
    is_not = isinstance(around.find_ancestor(exp.Not, exp.Select), exp.Not)
    called = f"{'NOT ' if is_not else ''}{'EXISTS' if isinstance(around, exp.Exists) else 'IN'}"
    kind = "ANTI" if is_not else "SEMI"
    return (
        f"{called} reads {name}: join it in FROM, as in FROM a LEFT {kind} JOIN {read[0]} ON "
        f"a.id = {read[0]}.id"
        + (", which also gives rows whose id is null" if called == "NOT IN" else "")
    )
