"""The queries in the text of a query: its subqueries in FROM, its CTEs, and who reads them.

It works on sqlglot's tokens, which know their places in the text. It is imported late: loading
sqlglot takes a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark

from kafka_pipeline.streams.sql.table_functions import NAMES

_CLAUSES = {
    TokenType.SELECT: False,
    TokenType.FROM: True,
    TokenType.JOIN: True,
    TokenType.ON: True,
    TokenType.USING: True,
    TokenType.WHERE: False,
    TokenType.GROUP_BY: False,
    TokenType.HAVING: False,
    TokenType.QUALIFY: False,
    TokenType.ORDER_BY: False,
    TokenType.SORT_BY: False,
    TokenType.CLUSTER_BY: False,
    TokenType.DISTRIBUTE_BY: False,
    TokenType.UNION: False,
    TokenType.EXCEPT: False,
    TokenType.INTERSECT: False,
    TokenType.WINDOW: False,
    TokenType.LATERAL: False,
}
"""The words that begin a clause, with whether a comma in it separates what is read."""
_QUERIES = (TokenType.SELECT, TokenType.WITH)
_READING = (TokenType.FROM, TokenType.JOIN)


@dataclass(slots=True, eq=False)
class Query:
    """A SELECT with its CTEs, as the tokens from `start` to `end`.

    `body` is the place of the SELECT itself, after WITH. `reads` are the subqueries in FROM and the
    references to tables, in order. `groups` are joins in parentheses, the inner ones first.
    """

    start: int
    end: int
    body: int
    ctes: list[Cte] = field(default_factory=list)
    reads: list[Subquery | Reference] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Cte:
    """A CTE; `head` are the tokens of its name and its columns."""

    name: str
    head: tuple[int, int]
    query: Query
    has_columns: bool


@dataclass(frozen=True, slots=True, eq=False)
class Subquery:
    """A subquery in FROM, with the places of its parentheses."""

    name: str
    at: int
    closing: int
    query: Query


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A table in FROM, and the CTE that it is, if it is one."""

    at: int
    has_alias: bool
    cte: Cte | None


@dataclass(frozen=True, slots=True)
class Group:
    """A join in parentheses in FROM, with the places of these."""

    opening: int
    closing: int
    has_alias: bool


class QueryReader:
    """Finds the queries in the tokens of a text."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self._closing: dict[int, int] = {}
        opened: list[int] = []
        for index, token in enumerate(tokens):
            if token.token_type == TokenType.L_PAREN:
                opened.append(index)
            elif token.token_type == TokenType.R_PAREN and opened:
                self._closing[opened.pop()] = index

    def query(self, start: int, end: int, known: Mapping[str, Cte] = {}) -> Query:
        """Return the query between two tokens, which may read the `known` CTEs."""
        found, at, known = Query(start, end, start), start, dict(known)
        if self._is(at, TokenType.WITH):
            at += 1
            while (cte := self._cte(at, known)) is not None:
                found.ctes.append(cte)
                known[cte.name.lower()] = cte
                at = cte.query.end + 1
                if not self._is(at, TokenType.COMMA):
                    break
                at += 1
            found.body = at
        self._read_clauses(found, at, end, known)
        return found

    def _cte(self, at: int, known: Mapping[str, Cte]) -> Cte | None:
        name, head = self.tokens[at].text, at
        at += 1
        has_columns = self._is(at, TokenType.L_PAREN)
        if has_columns:
            at = self._closing.get(at, at) + 1
        end = at
        if self._is(at, TokenType.ALIAS):
            at += 1
        if not self._is(at, TokenType.L_PAREN) or at not in self._closing:
            return None
        query = self.query(at + 1, self._closing[at], known)
        return Cte(name, (head, end), query, has_columns)

    def _read_clauses(
        self,
        found: Query,
        at: int,
        end: int,
        known: Mapping[str, Cte],
        before: TokenType = TokenType.SEMICOLON,
    ) -> None:
        lists_tables = before in _READING
        while at < end:
            type_, start = self.tokens[at].token_type, at
            if type_ == TokenType.FROM and before == TokenType.DISTINCT:
                type_ = TokenType.VAR  # of IS DISTINCT FROM
            lists_tables = _CLAUSES.get(type_, lists_tables)
            if before in _READING or (before == TokenType.COMMA and lists_tables):
                at = self._read_source(found, at, known)
            elif type_ == TokenType.L_PAREN:
                at = self._read_inside(found, at, known)
            before = type_ if at == start else self.tokens[at].token_type
            at += 1

    def _read_inside(self, found: Query, at: int, known: Mapping[str, Cte]) -> int:
        """Add the CTEs that expressions in parentheses read; return the closing one."""
        closing = self._closing.get(at, at)
        outer = {id(cte) for cte in known.values()}
        while at < closing:
            at += 1
            if self.tokens[at - 1].token_type == TokenType.L_PAREN and self._is(at, *_QUERIES):
                end = self._closing[at - 1]
                read = _all_references(self.query(at, end, known))
                found.reads += [each for each in read if id(each.cte) in outer]
                at = end
        return closing

    def _read_source(self, found: Query, at: int, known: Mapping[str, Cte]) -> int:
        """Add what is read at a place; return its last token."""
        token = self.tokens[at]
        if token.token_type == TokenType.L_PAREN and at in self._closing:
            closing = self._closing[at]
            if self._is(at + 1, *_QUERIES):
                query = self.query(at + 1, closing, known)
                found.reads.append(Subquery(self._alias(closing + 1), at, closing, query))
                return closing
            self._read_clauses(found, at + 1, closing, known, before=TokenType.FROM)
            if self._joins(at + 1, closing):
                found.groups.append(Group(at, closing, bool(self._alias(closing + 1))))
            return closing
        if self._is(at + 1, TokenType.L_PAREN) and at + 1 in self._closing:
            if token.token_type == TokenType.TABLE:
                self._read_source(found, at + 2, known)
            elif token.text.lower() in NAMES:
                self._read_data(found, at + 1, known)
            return self._closing[at + 1]
        if token.token_type in _NAMES and not self._is(at + 1, TokenType.L_PAREN, TokenType.DOT):
            cte = known.get(token.text.lower())
            found.reads.append(Reference(at, bool(self._alias(at + 1)), cte))
        return at

    def _read_data(self, found: Query, opening: int, known: Mapping[str, Cte]) -> None:
        """Add what a table function reads: `TABLE a`, or `TABLE (SELECT …)`."""
        places = range(opening + 1, self._closing[opening])
        table = next((at for at in places if self._is(at, TokenType.TABLE)), None)
        if table is not None:
            self._read_source(found, table + 1, known)

    def _joins(self, at: int, end: int) -> bool:
        """Whether something is joined between two tokens, outside of further parentheses."""
        while at < end:
            if self._is(at, TokenType.JOIN):
                return True
            at = self._closing.get(at, at) + 1
        return False

    def _alias(self, at: int) -> str:
        """Return the alias at a place; "" if there is none."""
        if self._is(at, TokenType.ALIAS):
            at += 1
        return self.tokens[at].text if self._is(at, *_ALIASES) else ""

    def _is(self, at: int, *types: TokenType) -> bool:
        return at < len(self.tokens) and self.tokens[at].token_type in types


_ALIASES = tuple(Spark.Parser.TABLE_ALIAS_TOKENS | {TokenType.VAR, TokenType.IDENTIFIER})
_NAMES = tuple(Spark.Parser.ID_VAR_TOKENS | {TokenType.VAR, TokenType.IDENTIFIER})


def _all_references(query: Query) -> Iterator[Reference]:
    """Yield the references of a query and of all queries in it."""
    yield from _references(query)
    subqueries = [read.query for read in query.reads if isinstance(read, Subquery)]
    for inner in (*(cte.query for cte in query.ctes), *subqueries):
        yield from _all_references(inner)


def _references(query: Query) -> Iterator[Reference]:
    return (read for read in query.reads if isinstance(read, Reference))
