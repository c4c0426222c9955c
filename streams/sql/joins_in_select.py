"""Where one SELECT joins inputs, and what its other parts read of them.

A SELECT that joins more than two inputs, or that also groups records, is cut behind each join: see
`query_stages.py`. What is joined then comes from another stage, which gives a column for each
table: a struct with the name of that table. So `a.id` is the same on both sides of the cut.

It is imported late: loading sqlglot takes a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp
from sqlglot.optimizer.scope import Scope, traverse_scope, walk_in_scope

from kafka_pipeline.common.suggest import did_you_mean
from kafka_pipeline.streams.sql.join_tree import inputs_of, is_bare
from kafka_pipeline.streams.sql.known_columns import KnownColumns
from kafka_pipeline.streams.sql.query_parts import Query, Subquery
from kafka_pipeline.streams.sql.query_tree import NUMBERING, is_grouped, sources_of
from kafka_pipeline.streams.sql.spec import CALENDAR_WINDOW, QueryError, quoted

OF_JOINS = frozenset(
    {
        TokenType.INNER,
        TokenType.LEFT,
        TokenType.RIGHT,
        TokenType.FULL,
        TokenType.OUTER,
        TokenType.CROSS,
        TokenType.SEMI,
        TokenType.ANTI,
        TokenType.NATURAL,
    }
)
"""The words that may stand before JOIN."""
_ENDS = frozenset(
    {
        TokenType.WHERE,
        TokenType.GROUP_BY,
        TokenType.HAVING,
        TokenType.QUALIFY,
        TokenType.WINDOW,
        TokenType.ORDER_BY,
        TokenType.SORT_BY,
        TokenType.CLUSTER_BY,
        TokenType.DISTRIBUTE_BY,
        TokenType.LIMIT,
        TokenType.OFFSET,
        TokenType.SEMICOLON,
    }
)
"""What may come after FROM."""
_OTHERS = frozenset({TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.PIVOT})
"""With one of these, a SELECT is not cut."""
_BEFORE_STAR = (TokenType.SELECT, TokenType.DISTINCT, TokenType.ALL, TokenType.COMMA)
"""The words in front of a `*` that gives all columns. Another one multiplies."""
_WINDOWS = ("window", "session_window", CALENDAR_WINDOW)
"""The functions that give windows of a time, which is their first argument."""

_BEFORE_SELECT = ("joins", "laterals", "where")
"""The parts of a SELECT in which nothing has the name that it gives."""

_ONE_SIDED = ("SEMI", "ANTI")
"""The kinds of joins whose right side is not seen after them."""

WINDOW_COLUMNS = ("window", "session_window")
"""What the columns with windows are called."""


@dataclass(frozen=True, slots=True)
class FromClause:
    """The places of tokens in a SELECT.

    `items` are where each thing that is read begins, with the comma or the words of its join; the
    first one comes after `opening`, the FROM. The LATERAL VIEWs begin at `views`, and `end` is
    after the last one. `where` has the places of what WHERE demands, each from its first token to
    after its last one; `rest` is after it.
    """

    opening: int
    items: Sequence[int]
    views: int
    end: int
    where: Sequence[tuple[int, int]]
    rest: int


def find_from(tokens: Sequence[Token], query: Query) -> FromClause | None:
    """Return the FROM of a SELECT; `None` without one, and for a SELECT that is never cut."""
    at = [*_outside_parentheses(tokens, query.body, query.end)]
    types = {place: tokens[place].token_type for place in at}
    starts = [
        place for place in at if types[place] == TokenType.FROM and not is_test(tokens, place)
    ]
    after = [place for place in at if starts and place > starts[0]]
    if len(starts) != 1 or any(types[place] in _OTHERS for place in after):
        return None
    (opening,) = starts
    end = next((place for place in after if types[place] in _ENDS), query.end)
    laterals = [place for place in after if types[place] == TokenType.LATERAL]
    if any(tokens[place + 1].token_type != TokenType.VIEW for place in laterals):
        return None
    views = min([*laterals, end])
    items = [opening + 1]
    for place in after:
        if place < views and types[place] in (TokenType.COMMA, TokenType.JOIN):
            while tokens[place - 1].token_type in OF_JOINS:
                place -= 1
            items.append(place)
    where, rest = list[tuple[int, int]](), end
    if types.get(end) == TokenType.WHERE:
        behind = (place for place in after if place > end and types[place] in _ENDS)
        rest = next(behind, query.end)
        where = _demands(tokens, end + 1, rest)
    return FromClause(opening, items, views, end, where, rest)


def place_of_star(tokens: Sequence[Token], query: Query, clause: FromClause) -> int | None:
    """Return the place of `*` in a SELECT; `None` without one, and for `* EXCEPT …`."""
    for place in _outside_parentheses(tokens, query.body, clause.opening):
        before, after = tokens[place - 1].token_type, tokens[place + 1].token_type
        if tokens[place].token_type == TokenType.STAR and before in _BEFORE_STAR:
            return place if after in (TokenType.COMMA, TokenType.FROM) else None
    return None


def window_times(tokens: Sequence[Token], query: Query) -> list[tuple[int, int]]:
    """Return the places of the times that windows in a SELECT are of; see `FromClause`."""
    inner = [range(read.at, read.closing) for read in query.reads if isinstance(read, Subquery)]
    found = []
    for place in range(query.body, query.end - 2):
        is_called = tokens[place + 1].token_type == TokenType.L_PAREN
        if not is_called or tokens[place].text.lower() not in _WINDOWS:
            continue
        if any(place in each for each in inner):
            continue
        arguments = _outside_parentheses(tokens, place + 2, query.end)
        stop = next((at for at in arguments if tokens[at].token_type == TokenType.COMMA), None)
        if stop is not None:
            found.append((place + 2, stop))
    return found


def is_test(tokens: Sequence[Token], place: int) -> bool:
    """Whether a FROM belongs to IS DISTINCT FROM."""
    return tokens[place - 1].token_type == TokenType.DISTINCT


def _outside_parentheses(tokens: Sequence[Token], start: int, end: int) -> Iterator[int]:
    depth = 0
    for place in range(start, end):
        type_ = tokens[place].token_type
        depth -= type_ in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
        if not depth:
            yield place
        depth += type_ in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)


def _demands(tokens: Sequence[Token], start: int, end: int) -> list[tuple[int, int]]:
    """Return the places of what a condition demands, which is joined by AND."""
    found, first, cases, betweens = list[tuple[int, int]](), start, 0, 0
    for place in _outside_parentheses(tokens, start, end):
        type_ = tokens[place].token_type
        cases += (type_ == TokenType.CASE) - (type_ == TokenType.END)
        betweens += type_ == TokenType.BETWEEN
        if type_ == TokenType.OR and not cases:
            return [(start, end)]
        if type_ == TokenType.AND and not cases:
            if betweens:
                betweens -= 1
                continue
            found.append((first, place))
            first = place + 1
    return [*found, (first, end)]


class JoinsOfSelect:
    """The joins of the outermost SELECT of a tree.

    `names` are what its items in FROM are called, and `meeting` the numbers of those of them that
    read inputs.
    """

    def __init__(self, tree: exp.Query, clause: FromClause, columns: KnownColumns) -> None:
        self._scope: Scope = traverse_scope(tree)[-1]
        select = self._scope.expression
        assert isinstance(select, exp.Select), "it has a FROM"
        self._joins: list[exp.Join] = [*(select.args.get("joins") or ())]
        first = select.args.get("from_")
        items = [] if first is None else [first, *self._joins]
        self.names: list[str] = [item.alias_or_name for item in items]
        self._select = select
        self._views = [each for each in self._scope.find_all(exp.Lateral) if each.args.get("view")]
        self._demands: list[exp.Expr] = []
        where = select.args.get("where")
        if where is not None:
            self._demands = [*_conjuncts(where.this)]
        sources = sources_of(self._scope) if len(items) == len(clause.items) else {}
        self._columns = [
            columns.of(sources[name][1]) if name in sources else None for name in self.names
        ]
        self.meeting = [
            number
            for number, name in enumerate(self.names)
            if name in sources and inputs_of(sources[name][1])
        ]
        if len(self._demands) != len(clause.where):
            self._demands = []

    @property
    def is_too_much(self) -> bool:
        """Whether the SELECT cannot be one stage, though each thing that it reads could be read."""
        return len(self.meeting) > 2 or (len(self.meeting) > 1 and self.groups)

    @property
    def groups(self) -> bool:
        """Whether the SELECT has a GROUP BY, DISTINCT or OVER."""
        calls = self._scope.find_all(exp.Window)
        return is_grouped(self._scope) or any(
            call.args.get("over") or isinstance(call.this, NUMBERING) for call in calls
        )

    def without_table(self) -> Iterator[tuple[exp.Identifier, str]]:
        """Yield the names of columns that are written without their table, each with that table.

        These are all where more than two inputs are joined, and otherwise those that might also be
        what SELECT calls something. Raises `QueryError` for one that several tables have.
        """
        merged, (tables, of_views) = self._merged(), self._of_views()
        for column in self._all_columns():
            name, *fields = (part.name for part in column.parts)
            if fields and name in (*self.names, *tables):
                continue
            if name in (*of_views, *merged, *WINDOW_COLUMNS):
                continue
            named = self._alias_of(column, name)
            if named is not None and _is_of_having(column):
                continue
            if len(self.meeting) < 3 and (named is None or _is_column(named, name)):
                continue
            table = self._table_of(column, name)
            if table is not None:
                first = column.parts[0]
                assert isinstance(first, exp.Identifier), "a column has a name"
                yield first, table

    def _table_of(self, column: exp.Column, name: str) -> str | None:
        """Return the one table that has a column; `None` if there is none, or it is not known.

        Raises `QueryError` if several have it.
        """
        seen = self._seen_by(column)
        having = [self.names[at] for at in seen if name in (self._columns[at] or ())]
        if len(having) > 1:
            raise QueryError(
                f'"{name}" is a column of {_all_of(having)}: write the name of the table in '
                f"front of it, such as {having[0]}.{name}"
            )
        return having[0] if having and self._knows(seen) else None

    def _seen_by(self, column: exp.Column) -> list[int]:
        """Return which items a column may be of: in ON, those up to the join."""
        join = column.find_ancestor(exp.Join)
        last = next((at for at, each in enumerate(self._joins, 1) if each is join), None)
        return self._seen(last)

    def _seen(self, last: int | None = None) -> list[int]:
        """Return which items are seen in the ON of the `last` one, or else after all joins."""
        hidden = {
            at for at, each in enumerate(self._joins, 1) if at != last and each.kind in _ONE_SIDED
        }
        items = range(len(self.names) if last is None else last + 1)
        return [at for at in items if at not in hidden]

    def _knows(self, items: Collection[int]) -> bool:
        return all(self._columns[at] is not None for at in items)

    def name(self, end: int) -> str:
        """Return what the join of all items in front of an `end` is called."""
        return "_".join(self.names[:end])

    def demands_of(self, end: int) -> list[int]:
        """Return which parts of WHERE a join of all items before `end` needs as its condition.

        Those are the ones that read nothing else, if an item has no condition of its own.
        """
        joins = self._joins[: end - 1]
        if not any(map(is_bare, joins)) or any(join.side for join in joins):
            return []
        return self._demands_on(end)

    def all_demands(self, count: int) -> list[int]:
        """Return which of the `count` parts of WHERE a join of all items can have.

        With LATERAL VIEW, those are the ones that show that they read nothing of it.
        """
        return self._demands_on(len(self.names)) if self._views else [*range(count)]

    @property
    def keeps_rows(self) -> bool:
        """Whether a side of a join may be missing."""
        return any(join.side for join in self._joins)

    def of_star(self) -> str | None:
        """Return what `*` gives; `None` if that depends on the columns of the items."""
        using = [[each.name for each in join.args.get("using") or ()] for join in self._joins]
        if any(join.method for join in self._joins) or any(each != using[0] for each in using):
            return None
        merged = ", ".join(map(quoted, using[0]))
        others = f" EXCEPT ({merged})" if merged else ""
        tables = [f"{quoted(self.names[at])}.*{others}" for at in self._seen()]
        views = [f"{quoted(each.alias)}.*" for each in self._views]
        return ", ".join([*([merged] if merged else []), *tables, *views])

    def _demands_on(self, end: int) -> list[int]:
        """Return which parts of WHERE name tables that are before `end`, and no others."""
        known = set(self.names[:end])
        return [
            number
            for number, demand in enumerate(self._demands)
            if (read := {*_tables_read(demand)}) and read <= known
        ]

    def given(self, end: int, demands: Collection[int], others: Collection[str] = ()) -> list[str]:
        """Return what a stage must give that joins all items before `end` and meets some `demands`.

        These are columns with a name, as text, but for columns without a table that are called as
        `others`. Raises `QueryError` if it depends on the columns of
        the items what that would be.
        """
        inside = {id(node) for join in self._joins[: end - 1] for node in join.walk()}
        if self._demands:
            inside |= {id(node) for each in demands for node in self._demands[each].walk()}
        elif demands:
            inside |= {id(node) for node in self._select.args["where"].walk()}
        known, is_last = self.names[:end], end == len(self.names)
        merged = self._merged()
        fields: dict[str, set[str] | None] = {}
        plain = set[str]()
        if any(isinstance(each, exp.Star) for each in self._select.selects):
            raise QueryError(
                "a stage joins what the SELECT reads, so it cannot have *: write "
                f"{', '.join(f'{name}.*' for name in self.names)}, or the columns"
            )
        for star in self._scope.stars:
            if star.text("table") in known and id(star) not in inside:
                fields[star.text("table")] = None
        tables, of_views = self._of_views()
        for column in self._all_columns():
            if id(column) in inside:
                continue
            table, *names = (part.name for part in column.parts)
            if table in (tables if names else of_views) or table in others:
                continue
            if table in self.names and names:
                of_table = fields.setdefault(table, set()) if table in known else None
                if of_table is not None:
                    of_table.add(names[0])
            elif not self._is_alias(column, table):
                if not is_last and table not in merged:
                    raise self._not_found(column, table)
                plain.add(table)
        for join in self._joins[end - 1 :]:
            for each in join.args.get("using") or ():
                plain.add(each.name)
        return [*_structs(known, fields), *map(quoted, sorted(plain))] or ["true AS joined"]

    def _not_found(self, column: exp.Column, name: str) -> QueryError:
        """Return what is wrong with a column without a table, where its table must be known."""
        seen = self._seen_by(column)
        having = [self.names[at] for at in seen if name in (self._columns[at] or ())]
        unknown = [self.names[at] for at in seen if self._columns[at] is None]
        if having or unknown:
            why = f", as the columns of {_all_of(unknown)} are not known here" if unknown else ""
            return QueryError(
                f'a SELECT that joins more than two inputs says which of them has "{name}": write '
                f"the name of the table in front of it{why}"
            )
        known = sorted(frozenset[str]().union(*(self._columns[at] or () for at in seen)))
        tables = _all_of([self.names[at] for at in seen])
        return QueryError(f'"{name}" is not a column of {tables}{did_you_mean(name, known)}')

    def _all_columns(self) -> list[exp.Column]:
        """Return the columns that the SELECT reads, also in its LATERAL VIEWs, each once.

        Those without a table in a subquery are taken for columns of what that reads.
        """
        own = (each for each in walk_in_scope(self._select) if isinstance(each, exp.Column))
        read = (each for each in own if not each.is_star and not each.find_ancestor(exp.Star))
        in_views = (column for each in self._views for column in each.find_all(exp.Column))
        of_tables = (each for each in self._scope.columns if each.table)
        return [*{id(each): each for each in (*of_tables, *read, *in_views)}.values()]

    def _merged(self) -> set[str]:
        """Return the names of USING."""
        return {each.name for join in self._joins for each in join.args.get("using") or ()}

    def _of_views(self) -> tuple[set[str], set[str]]:
        """Return the names of LATERAL VIEWs, and those of their columns.

        Raises `QueryError` for one whose columns have no names.
        """
        aliases = [each.args.get("alias") or exp.TableAlias() for each in self._views]
        columns = [[column.name for column in alias.columns] for alias in aliases]
        if not all(columns):
            raise QueryError(
                "LATERAL VIEW over a join: name its columns, as in LATERAL VIEW explode(a.items) v "
                "AS item"
            )
        return {alias.name for alias in aliases}, {name for each in columns for name in each}

    def _is_alias(self, column: exp.Column, name: str) -> bool:
        """Whether a column without a table is what SELECT calls something.

        Raises `QueryError` if it may be either.
        """
        selected = self._alias_of(column, name)
        if selected is None:
            return False
        given = selected.unalias()
        if _is_column(given, name):
            return bool(given.text("table"))
        if _is_of_having(column) or self._knows(self._seen_by(column)):
            return True
        raise QueryError(
            f'"{name}" may be a column of what is joined, or what SELECT calls so: write the name '
            "of the table in front of it, or repeat the expression"
        )

    def _alias_of(self, column: exp.Column, name: str) -> exp.Expr | None:
        """Return what SELECT calls by the name of a column without a table, if it may be that."""
        part: exp.Expr = column
        while part.parent not in (self._select, None):
            part = part.parent
        if part.arg_key in _BEFORE_SELECT:
            return None
        # In SELECT, an expression can use what those before it are called.
        before = part.index if part.arg_key == "expressions" else None
        called = (each for each in self._select.selects[:before] if each.alias_or_name == name)
        return None if len(column.parts) > 1 else next(called, None)


def _all_of(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), *names[-1:]] if len(names) > 1 else names)


def _is_column(given: exp.Expr, name: str) -> bool:
    """Whether SELECT gives a column under its own name."""
    return isinstance(given.unalias(), exp.Column) and given.unalias().name == name


def _is_of_having(column: exp.Column) -> bool:
    """Whether a column is one of HAVING that is not in an aggregate."""
    return bool(column.find_ancestor(exp.Having)) and not column.find_ancestor(exp.AggFunc)


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(condition, exp.And):
        yield from _conjuncts(condition.left)
        yield from _conjuncts(condition.right)
    else:
        yield condition


def _tables_read(demand: exp.Expr) -> Iterator[str]:
    """Yield the tables of the columns in a condition; "" for a column that names none."""
    for column in demand.find_all(exp.Column):
        table, *names = (part.name for part in column.parts)
        yield table if names else ""


def _structs(tables: Sequence[str], fields: Mapping[str, set[str] | None]) -> Iterator[str]:
    """Yield a column for each table with `fields`: these, or all of them if there is `None`."""
    for table in (each for each in tables if each in fields):
        names, known = fields[table], quoted(table)
        if names is None:
            yield f"struct({known}.*) AS {known}"
        else:
            given = [f"{known}.{quoted(name)}" for name in sorted(names)]
            yield f"struct({', '.join(given)}) AS {known}"
