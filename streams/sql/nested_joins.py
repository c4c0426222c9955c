"""Writes joins in parentheses in FROM without these, as stages join two things at a time.

`(a JOIN b ON …) JOIN c ON …` means the same without, `a LEFT JOIN (b JOIN c ON …) ON …` is
`b JOIN c ON … RIGHT JOIN a ON …`, and with an alias, it is a subquery. It is imported late: loading
sqlglot takes a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sqlglot import TokenType
from sqlglot.dialects.spark import Spark

from kafka_pipeline.streams.sql.joins_in_select import OF_JOINS, is_test
from kafka_pipeline.streams.sql.query_parts import Group, Query, QueryReader, Reference, Subquery
from kafka_pipeline.streams.sql.rewritten import Rewritten, Text
from kafka_pipeline.streams.sql.spec import QueryError

_MIRRORED = {TokenType.LEFT: "RIGHT", TokenType.RIGHT: "LEFT"}
_ONE_WAY = (TokenType.SEMI, TokenType.ANTI, TokenType.NATURAL)
"""Joins whose sides cannot change places."""
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET)


def without_nested_joins(query: str, tables: Collection[str]) -> Rewritten:
    """Return a query without parentheses around joins of inputs.

    `tables` are the names of the lookup tables. Raises `QueryError` for joins that cannot be
    written without them.
    """
    found, known = Rewritten(query, [(query, 0)]), {name.lower() for name in tables}
    while (text := _Nested(found, known).without_the_first()) is not None:
        found = Rewritten(query, text)
    return found


class _Nested:
    """The groups of joins in a query."""

    def __init__(self, given: Rewritten, tables: Collection[str]) -> None:
        self._given, self._tables = given, tables
        self._tokens = Spark().tokenize(given.query)
        self._places = [0, *(token.start for token in self._tokens[1:]), len(given.query)]

    def without_the_first(self) -> Text | None:
        """Return the text without its first, innermost group; `None` if there is none."""
        for query in _queries(QueryReader(self._tokens).query(0, len(self._tokens))):
            for group in query.groups:
                text = self._without(query, group)
                if text is not None:
                    return text
        return None

    def _without(self, query: Query, group: Group) -> Text | None:
        """Return the text without a group; `None` if Spark alone needs to know of it."""
        opening, closing = group.opening, group.closing
        before, inner = self._text(0, opening), self._text(opening + 1, closing)
        rest = self._text(closing + 1, len(self._tokens))
        inputs = self._inputs(query, opening, closing)
        if not inputs:
            return None
        if group.has_alias:
            return [*before, ("(SELECT * FROM ", None), *inner, (") ", None), *rest]
        if self._tokens[opening - 1].token_type != TokenType.JOIN:
            return [*before, *inner, (" ", None), *rest]
        join = opening - 1
        while self._tokens[join - 1].token_type in OF_JOINS:
            join -= 1
        start, is_join = self._left_of(join)
        if inputs < 2 and not self._inputs(query, start, join):
            return None
        words = self._tokens[join:opening]
        if is_join or any(word.token_type in _ONE_WAY for word in words):
            raise QueryError(
                f"{' '.join(word.text.upper() for word in words)} (…): put the join in these "
                "parentheses into a subquery that names its columns, as in (SELECT b.id, c.name "
                "FROM b JOIN c ON b.id = c.id) AS bc"
            )
        how = " ".join(_MIRRORED.get(word.token_type, word.text) for word in words)
        left = self._text(start, join)
        return [*self._text(0, start), *inner, (f" {how} ", None), *left, *rest]

    def _left_of(self, join: int) -> tuple[int, bool]:
        """Return where the left side of a join begins, and whether that is a join itself."""
        at, depth, is_join = join, 0, False
        while at > 0:
            type_ = self._tokens[at - 1].token_type
            depth += (type_ in _CLOSING) - (type_ in _OPENING)
            is_from = type_ == TokenType.FROM and not is_test(self._tokens, at - 1)
            if depth < 0 or (not depth and (is_from or type_ == TokenType.COMMA)):
                break
            is_join |= not depth and type_ == TokenType.JOIN
            at -= 1
        return at, is_join

    def _inputs(self, query: Query, start: int, end: int) -> int:
        """Return how many things that a query reads between two tokens read inputs."""
        return sum(start <= read.at < end and self._is_input(read) for read in query.reads)

    def _is_input(self, read: Subquery | Reference) -> bool:
        """Whether something in FROM is an input, or reads one."""
        if isinstance(read, Subquery):
            return any(map(self._is_input, read.query.reads))
        if read.cte is not None:
            return any(map(self._is_input, read.cte.query.reads))
        return self._tokens[read.at].text.lower() not in self._tables

    def _text(self, start: int, end: int) -> Text:
        """Return the text from a token up to another one, with what is between the two."""
        return self._given.between(self._places[start], self._places[end])


def _queries(query: Query) -> Iterator[Query]:
    """Yield the queries in a query, the inner ones first."""
    inner = [read.query for read in query.reads if isinstance(read, Subquery)]
    for each in (*(cte.query for cte in query.ctes), *inner):
        yield from _queries(each)
    yield query
