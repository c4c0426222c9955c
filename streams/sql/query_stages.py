"""Cuts a query into stages, each of which meets the records of a group, or of two inputs, once.

A subquery in FROM or a CTE becomes a stage of its own if it groups or joins records, and if what
reads it does so too, or if several parts of the query read it. Everything else stays where it is.

The query is cut as text, so that Spark gets what was written. It is imported late: loading sqlglot
takes a quarter of a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from kafka_pipeline.common.names import name_problem
from kafka_pipeline.streams.sql.join_tree import find_join
from kafka_pipeline.streams.sql.over_text import find_over
from kafka_pipeline.streams.sql.query_parts import Cte, Query, QueryReader, Reference, Subquery
from kafka_pipeline.streams.sql.query_tree import (
    find_groups,
    is_grouped,
    parsed,
    quiet,
    reading_scopes,
)
from kafka_pipeline.streams.sql.spec import QueryError
from kafka_pipeline.streams.sql.stage import Stage

MOST_STAGES = 16
"""What travels to the task of a stage has all stages that it reads, one in the other."""


def cut_query(query: str, tables: Collection[str], reading: str) -> list[Stage]:
    """Return the stages of a query, each after those that it reads; the last one gives the result.

    A stage reads another one as the table `<reading>.<name>`. `tables` are the names of the lookup
    tables. A query that needs no stages, or that cannot be read, is one stage. Raises `QueryError`
    for names of stages that are not possible, and for more than `MOST_STAGES`.
    """
    whole = [Stage.of_all(query)]
    try:
        with quiet():
            parsed(query, tables)
    except (SqlglotError, RecursionError, QueryError):
        return whole  # what reads it again reports why
    tokens = Spark().tokenize(query)
    if any(token.token_type == TokenType.RECURSIVE for token in tokens):
        return whole
    cutting = _Cutting(query, tables, reading)
    root = QueryReader(tokens).query(0, len(tokens))
    cutting.count(root)
    last = cutting.piece(root)
    if not cutting.stages:
        return whole
    if len(cutting.stages) >= MOST_STAGES:
        raise QueryError(
            f"the query groups or joins records {len(cutting.stages) + 1} times, and may do so "
            f"{MOST_STAGES} times: put a part of it into a processor of its own"
        )
    return [*cutting.stages, Stage("", query, cutting.composed(last))]


_Text = list[tuple[str, int | None]]


@dataclass(frozen=True, slots=True)
class _Piece:
    """The text of a query without the CTEs around it, which it `needs`.

    It `meets` records if it groups or joins them.
    """

    text: _Text
    needs: tuple[Cte, ...]
    meets: bool


class _Cutting:
    """Makes the stages of one query, from the inside out."""

    def __init__(self, whole: str, tables: Collection[str], reading: str) -> None:
        self.stages: list[Stage] = []
        self._whole = whole
        self._tokens = Spark().tokenize(whole)
        self._tables = tables
        self._reading = reading
        self._readers: Counter[int] = Counter()
        self._pieces: dict[int, _Piece] = {}
        self._stage_of: dict[int, str] = {}
        self._unnamed = 0

    def count(self, query: Query) -> None:
        """Count how often each CTE is read."""
        for cte in query.ctes:
            self.count(cte.query)
        for read in query.reads:
            if isinstance(read, Subquery):
                self.count(read.query)
            elif read.cte is not None:
                self._readers[id(read.cte)] += 1

    def piece(self, query: Query) -> _Piece:
        """Return the text of a query in which everything that must be a stage is one."""
        for cte in query.ctes:
            self._pieces[id(cte)] = self.piece(cte.query)
            if self._pieces[id(cte)].meets and self._readers[id(cte)] > 1:
                self._cut_cte(cte)
        inner = {
            id(read): self.piece(read.query) for read in query.reads if isinstance(read, Subquery)
        }
        meeting = [read for read in query.reads if self._meets(read, inner)]
        if meeting:
            # With a table in place of what meets records, does this part do so, too?
            names = {id(read): f"`{self._reading}`" for read in meeting}
            probe = self._written(query, inner, names)
            if len(meeting) > 1 or self._meets_records(self.composed(probe)):
                for read in meeting:
                    if isinstance(read, Subquery):
                        names[id(read)] = self._cut(read.name, self.composed(inner[id(read)]))
                    elif read.cte is not None:
                        names[id(read)] = self._cut_cte(read.cte)
                found = self._written(query, inner, names)
                return replace(found, meets=self._meets_records(self.composed(found)))
            found = self._written(query, inner, {})
            return replace(found, meets=True)
        found = self._written(query, inner, {})
        return replace(found, meets=self._meets_records(self.composed(found)))

    def composed(self, piece: _Piece) -> _Text:
        """Return the text of a query with the CTEs around it that it needs."""
        needed = dict[int, Cte]()
        self._add_needs(piece, needed)
        if not needed:
            return piece.text
        text = self._with([*needed.values()])
        if piece.text[0][0][:4].lower() == "with":
            first, place = piece.text[0]
            rest: _Text = [(first[4:], None if place is None else place + 4), *piece.text[1:]]
            return [*text, (",", None), *rest]
        return [*text, (" ", None), *piece.text]

    def _add_needs(self, piece: _Piece, needed: dict[int, Cte]) -> None:
        for cte in piece.needs:
            self._add_needs(self._pieces[id(cte)], needed)
            needed.setdefault(id(cte), cte)

    def _meets(self, read: Subquery | Reference, inner: Mapping[int, _Piece]) -> bool:
        if isinstance(read, Subquery):
            return inner[id(read)].meets
        return (
            read.cte is not None
            and id(read.cte) not in self._stage_of
            and self._pieces[id(read.cte)].meets
        )

    def _meets_records(self, text: _Text) -> bool:
        query = "".join(part for part, _ in text)
        try:
            return (
                find_join(query, self._tables) is not None
                or find_groups(query, self._tables) is not None
                or find_over(query, self._tables) is not None
            )
        except QueryError:  # the stage with this text is refused with the reason
            return any(map(is_grouped, reading_scopes(parsed(query, self._tables))))

    def _cut_cte(self, cte: Cte) -> str:
        """Make a stage of a CTE, once; return the table that has its rows."""
        if id(cte) not in self._stage_of:
            text = self.composed(self._pieces[id(cte)])
            if cte.has_columns:
                first, end = cte.head
                head = self._part(self._tokens[first].start, self._tokens[end - 1].end + 1)
                text = [("SELECT * FROM (", None), *text, (") AS ", None), head]
            self._stage_of[id(cte)] = self._cut(cte.name, text)
        return self._stage_of[id(cte)]

    def _cut(self, name: str, text: _Text) -> str:
        """Add a stage; return the table that has its rows."""
        if not name:
            self._unnamed += 1
            name = str(self._unnamed)
        if wrong := name_problem(name):
            raise QueryError(
                f'"{name}" groups or joins records for a further part of the query, so it becomes '
                f"a processor of that name, which {wrong}"
            )
        if name.lower() in (stage.name.lower() for stage in self.stages):
            raise QueryError(
                f"two parts of the query are called {name}, and both become a processor of that "
                "name: rename one"
            )
        self.stages.append(Stage(name, self._whole, text))
        return f"`{self._reading}.{name}`"

    def _written(
        self, query: Query, inner: Mapping[int, _Piece], names: Mapping[int, str]
    ) -> _Piece:
        """Return a query with the tables of `names` in place of what is read."""
        needed = dict[int, Cte]()
        # The first and the last token of what is replaced, and what is there instead.
        edits: list[tuple[int, int, _Text]] = []
        for read in query.reads:
            table = names.get(id(read))
            if isinstance(read, Subquery) and table is not None:
                edits.append((read.opening, read.closing, [(table, None)]))
            elif isinstance(read, Subquery):
                piece = inner[id(read)]
                edits.append((read.opening + 1, read.closing - 1, piece.text))
                self._add_needs(piece, needed)
            elif read.cte is not None:
                table = table or self._stage_of.get(id(read.cte))
                if table is None:
                    self._add_needs(self._pieces[id(read.cte)], needed)
                    needed.setdefault(id(read.cte), read.cte)
                else:
                    alias = "" if read.has_alias else f" AS {self._text_of(read.at)}"
                    edits.append((read.at, read.at, [(table + alias, None)]))
        text, own = self._edited(query, edits), [cte for cte in query.ctes if id(cte) in needed]
        outer = [cte for cte in needed.values() if cte not in own]
        if own:
            text = [*self._with(own), (" ", None), *text]
        return _Piece(text, tuple(outer), meets=False)

    def _with(self, ctes: Sequence[Cte]) -> _Text:
        """Return the clause that defines CTEs."""
        text: _Text = []
        for cte in ctes:
            first, end = cte.head
            head = self._part(self._tokens[first].start, self._tokens[end - 1].end + 1)
            text += [(", " if text else "WITH ", None), head, (" AS (", None)]
            text += [*self._pieces[id(cte)].text, (")", None)]
        return text

    def _edited(self, query: Query, edits: Sequence[tuple[int, int, _Text]]) -> _Text:
        """Return the SELECT of a query with other text in place of some tokens."""
        if query.body >= query.end:
            return [("", None)]
        at, text = self._tokens[query.body].start, _Text()
        for first, last, instead in sorted(edits, key=lambda edit: edit[0]):
            text += [self._part(at, self._tokens[first].start), *instead]
            at = self._tokens[last].end + 1
        return [*text, self._part(at, self._tokens[query.end - 1].end + 1)]

    def _part(self, start: int, end: int) -> tuple[str, int]:
        return self._whole[start:end], start

    def _text_of(self, at: int) -> str:
        token = self._tokens[at]
        return self._whole[token.start : token.end + 1]
