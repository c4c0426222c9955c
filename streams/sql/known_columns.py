"""The columns of what a SELECT reads, as far as the text of a query and the file show them.

It is imported late: loading sqlglot takes a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from kafka_pipeline.streams.sql.query_tree import sources_of
from kafka_pipeline.streams.sql.schema_columns import Columns


class KnownColumns:
    """The columns of tables, of `stages` by the names of their tables, and of subqueries."""

    def __init__(self, given: Columns, stages: Mapping[str, exp.Query]) -> None:
        self._given, self._stages = given, stages

    def of(self, source: exp.Table | Scope) -> frozenset[str] | None:
        """Return the columns of what a scope reads; `None` if they are not known."""
        if isinstance(source, exp.Table):
            named = source.alias_column_names
            if named:
                return frozenset(named)
            stage = self._stages.get(source.name)
            return self._given(source.name) if stage is None else self._of_query(stage)
        if source.outer_columns:
            return frozenset(source.outer_columns)
        if isinstance(source.expression, exp.Values):
            return frozenset(source.expression.alias_column_names) or None
        return self._of_scope(source)

    def _of_query(self, tree: exp.Query) -> frozenset[str] | None:
        return self._of_scope(traverse_scope(tree)[-1])

    def _of_scope(self, scope: Scope) -> frozenset[str] | None:
        select = scope.expression
        if not isinstance(select, exp.Select):
            return None
        found = set[str]()
        for given in select.selects:
            columns = self._of_star(given, scope) if given.is_star else {given.alias_or_name}
            if columns is None:
                return None
            found |= columns
        return frozenset(found - {""})

    def _of_star(self, star: exp.Expr, scope: Scope) -> frozenset[str] | None:
        if next(scope.find_all(exp.Lateral), None) is not None:
            return None
        table, found = star.text("table"), frozenset[str]()
        for alias, (_, source) in sources_of(scope).items():
            if table in ("", alias):
                columns = self.of(source)
                if columns is None:
                    return None
                found |= columns
        left_out = (star.this if isinstance(star, exp.Column) else star).args.get("except_") or ()
        return found - {each.name for each in left_out}
