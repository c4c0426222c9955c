"""The columns window_start and window_end of table functions, in the clauses that group by them.

The state of groups is kept by window, and a session has no bounds before its group is complete. So
GROUP BY and PARTITION BY get the column of windows in place of its bounds, and a SELECT with GROUP
BY reads the bounds from it. Subqueries in between pass the column on; the result does not have it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

from sqlglot import Token, exp
from sqlglot.dialects.spark import Spark
from sqlglot.optimizer.scope import Scope, traverse_scope

from kafka_pipeline.streams.sql.table_functions import (
    PARTS,
    SESSION,
    Call,
    Edit,
    edited,
    expanded,
)

_BOUNDS = {"window_start", "window_end"}


def without_table_functions(query: str, tree_of: Callable[[str], exp.Query]) -> str:
    """Return a query that has `window(…)` and `session_window(…)` in place of table functions.

    `tree_of` returns the tree of a query, with names in small letters and an alias for each table.
    Raises `QueryError` for calls that are not possible, and what `tree_of` raises.
    """
    found = expanded(query)
    if not found.calls:
        return query
    rewriting = _Rewriting(found.text, found.calls)
    for scope in traverse_scope(tree_of(found.text)):  # what a scope reads comes before it
        rewriting.visit(scope)
    for call in rewriting.sessions():
        raise call.error(
            "only GROUP BY makes sessions of records: write GROUP BY window_start, window_end, and "
            "the columns of PARTITION BY, into the SELECT that reads it"
        )
    return edited(found.text, rewriting.edits)


class _Rewriting:
    """Collects the edits of a query, from the innermost SELECT to the outermost one."""

    def __init__(self, text: str, calls: Sequence[Call]) -> None:
        self.edits: list[Edit] = []
        self._tokens: list[Token] = Spark().tokenize(text)
        self._starts = [token.start for token in self._tokens]
        self._calls = {call.windows: call for call in calls}
        self._giving: dict[int, Call] = {}
        """The calls whose windows are columns of a scope, by its id."""
        self._grouped: set[str] = set()

    def sessions(self) -> Iterator[Call]:
        """Yield the calls of SESSION by whose windows nothing is grouped."""
        for name, call in self._calls.items():
            if call.function == SESSION and name not in self._grouped:
                yield call

    def visit(self, scope: Scope) -> None:
        """Add the edits of a scope; those of the scopes that it reads are known."""
        select = scope.expression
        if not isinstance(select, exp.Select) or not select.selects:
            return
        made = select.selects[-1]
        if made.alias in self._calls and isinstance(made.unalias(), exp.Anonymous):
            self._giving[id(scope)] = self._calls[made.alias]
            return
        read = {
            name: self._giving[id(source)]
            for name, (_, source) in scope.selected_sources.items()
            if id(source) in self._giving
        }
        if not read:
            return
        if select.args.get("distinct"):
            raise _first(read).error(
                "SELECT DISTINCT cannot follow it: write GROUP BY window_start, window_end and the "
                "other columns"
            )
        group = select.args.get("group")
        if group is not None:
            self._group_by(group.expressions, "GROUP BY", read)
            self._read_bounds(scope, read)
            return
        partitions = [each.args.get("partition_by") for each in scope.find_all(exp.Window)]
        for listed in filter(None, partitions):
            self._group_by(listed, "PARTITION BY", read)
        if any(partitions) or scope.is_root or scope.is_set_operation:
            self._leave_out(select, read)
        else:
            self._pass_on(scope, select, read)

    def _group_by(self, listed: Sequence[exp.Expr], clause: str, read: Mapping[str, Call]) -> None:
        """Put the windows into a list of grouping columns, in place of their bounds."""
        bounds = [each for each in listed if _call_of(each, read) is not None]
        if not {each.name for each in bounds} >= _BOUNDS:
            raise _first(read).error(
                f"{clause} must name window_start and window_end, both and as they are, in the "
                "SELECT that reads it"
            )
        call = _call_of(bounds[0], read) or _first(read)
        self._replace(bounds[0], _windows(bounds[0], call))
        for bound in bounds[1:]:
            start, end = _span(bound)
            comma = self._tokens[bisect_left(self._starts, start) - 1]
            self.edits.append((comma.start, end, ""))
        self._grouped.add(call.windows)
        keys = {each.name for each in listed if each not in bounds}
        if call.function == SESSION and keys != {*call.keys}:
            keys_of_call = "".join(f", {key}" for key in call.keys)
            raise call.error(
                f"a session is that of the columns in its PARTITION BY, so {clause} must have "
                f"window_start, window_end{keys_of_call}, and nothing else"
            )

    def _read_bounds(self, scope: Scope, read: Mapping[str, Call]) -> None:
        """Read the bounds of windows from the column of windows, except in the grouping columns."""
        select = scope.expression
        for column in scope.find_all(exp.Column):
            call = _call_of(column, read)
            if call is None or column.find_ancestor(exp.Group, exp.Select) is not select:
                continue
            bound = call.part(column.name, _windows(column, call))
            is_given = column.parent is select
            self._replace(column, f"{bound} AS {column.name}" if is_given else f"({bound})")

    def _leave_out(self, select: exp.Select, read: Mapping[str, Call]) -> None:
        """Leave the windows out of what a star in SELECT gives."""
        for star, calls in _stars(select, read):
            names = ", ".join(call.windows for call in calls)
            others = star.args.get("except_")
            start, end = _span(others[0]) if others else _span(star)
            edit = (start, start, f"{names}, ") if others else (end, end, f" EXCEPT ({names})")
            self.edits.append(edit)

    def _pass_on(self, scope: Scope, select: exp.Select, read: Mapping[str, Call]) -> None:
        """Have a subquery give the windows too, if it gives when they start."""
        for _, calls in _stars(select, read):
            self._giving[id(scope)] = calls[0]
            return
        for each in select.selects:
            call = _call_of(each, read)
            if call is not None and each.name == "window_start":
                end = _span(each)[1]
                self.edits.append((end, end, f", {_windows(each, call)}"))
                self._giving[id(scope)] = call
                return

    def _replace(self, node: exp.Expr, text: str) -> None:
        self.edits.append((*_span(node), text))


def _first(read: Mapping[str, Call]) -> Call:
    return next(iter(read.values()))


def _call_of(node: exp.Expr, read: Mapping[str, Call]) -> Call | None:
    """Return the call whose windows begin or end in a column, if it is such a column."""
    if not isinstance(node, exp.Column) or node.name not in PARTS:
        return None
    return read.get(node.table) if node.table else _first(read)


def _windows(column: exp.Expr, call: Call) -> str:
    """Return the column of windows in the same table as a column with one of their bounds."""
    table = column.args.get("table")
    return call.windows if table is None else f"{table.sql('spark')}.{call.windows}"


def _stars(
    select: exp.Select, read: Mapping[str, Call]
) -> Iterator[tuple[exp.Star, Sequence[Call]]]:
    """Yield the stars in SELECT that give windows, each with the calls of these."""
    for each in select.selects:
        star = each.this if isinstance(each, exp.Column) else each
        calls = [call for name, call in read.items() if each.text("table") in ("", name)]
        if isinstance(star, exp.Star) and calls:
            yield star, calls


def _span(node: exp.Expr) -> tuple[int, int]:
    """Return where a node starts and ends in the text of the query."""
    places = [each.meta for each in node.find_all(exp.Identifier, exp.Star) if "start" in each.meta]
    return min(place["start"] for place in places), max(place["end"] for place in places) + 1
