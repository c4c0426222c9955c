"""Cuts a query into stages, each of which meets the records of a group, or of two inputs, once.

A subquery in FROM or a CTE becomes a stage of its own if it groups or joins records, and if what
reads it does so too, or if several parts of the query read it. So do the joins of a SELECT that
joins more than two inputs, or that groups what it joins. Everything else stays where it is.

The query is cut as text, so that Spark gets what was written. It is imported late: loading sqlglot
takes a quarter of a second.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from kafka_pipeline.common.names import name_problem
from kafka_pipeline.streams.sql.join_tree import find_join, joins_inputs
from kafka_pipeline.streams.sql.joins_in_select import (
    WINDOW_COLUMNS,
    FromClause,
    JoinsOfSelect,
    find_from,
    place_of_star,
    window_times,
)
from kafka_pipeline.streams.sql.known_columns import KnownColumns
from kafka_pipeline.streams.sql.nested_joins import without_nested_joins
from kafka_pipeline.streams.sql.over_text import find_over
from kafka_pipeline.streams.sql.query_parts import Cte, Query, QueryReader, Reference, Subquery
from kafka_pipeline.streams.sql.query_tree import (
    find_groups,
    is_grouped,
    parsed,
    quiet,
    reading_scopes,
)
from kafka_pipeline.streams.sql.schema_columns import Columns, no_columns
from kafka_pipeline.streams.sql.spec import QueryError, quoted
from kafka_pipeline.streams.sql.stage import Stage
from kafka_pipeline.streams.sql.table_functions import expanded

MOST_STAGES = 16
"""What travels to the task of a stage has all stages that it reads, one in the other."""


def cut_query(
    query: str, tables: Collection[str], reading: str, columns: Columns = no_columns
) -> list[Stage]:
    """Return the stages of a query, each after those that it reads; the last one gives the result.

    A stage reads another one as the table `<reading>.<name>`. `tables` are the names of the lookup
    tables, and `columns` says what those and the inputs have. A query that needs no stages, or that
    cannot be read, is one stage. Raises `QueryError` for names of stages that are not possible, for
    more than `MOST_STAGES`, and for columns of which it cannot tell the table.
    """
    try:
        with quiet():
            parsed(query, tables)
    except (SqlglotError, RecursionError, QueryError):
        return [Stage.of_all(query)]  # what reads it again reports why
    if any(token.token_type == TokenType.RECURSIVE for token in Spark().tokenize(query)):
        return [Stage.of_all(query)]
    plain = without_nested_joins(query, tables)
    return [plain.placed(stage) for stage in _cut(plain.query, tables, reading, columns)]


def _cut(query: str, tables: Collection[str], reading: str, columns: Columns) -> list[Stage]:
    """Return the stages of a query without joins in parentheses."""
    cutting, tokens = _Cutting(query, tables, reading, columns), Spark().tokenize(query)
    root = QueryReader(tokens).query(0, len(tokens))
    cutting.count(root)
    last = cutting.piece(root)
    if not cutting.stages:
        return [Stage.of_all(query)]
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


@dataclass(frozen=True, slots=True)
class _Edit:
    """The text in place of the tokens from the `first` to the `last`, and the CTEs it `needs`."""

    first: int
    last: int
    text: _Text
    needs: tuple[Cte, ...] = ()


class _Cutting:
    """Makes the stages of one query, from the inside out."""

    def __init__(self, whole: str, tables: Collection[str], reading: str, columns: Columns) -> None:
        self.stages: list[Stage] = []
        self._columns = columns
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
            probe = self._written(query, self._edits(query, inner, names))
            if len(meeting) > 1 or self._meets_records(self.composed(probe)):
                for read in meeting:
                    if isinstance(read, Subquery):
                        names[id(read)] = self._cut(read.name, self.composed(inner[id(read)]))
                    elif read.cte is not None:
                        names[id(read)] = self._cut_cte(read.cte)
                return self._with_joins_apart(query, self._edits(query, inner, names))
            return replace(self._written(query, self._edits(query, inner, {})), meets=True)
        return self._with_joins_apart(query, self._edits(query, inner, {}))

    def composed(self, piece: _Piece) -> _Text:
        """Return the text of a query with the CTEs around it that it needs."""
        needed = self._all_needs(piece.needs)
        if not needed:
            return piece.text
        text = self._with([*needed.values()])
        if piece.text[0][0][:4].lower() == "with":
            first, place = piece.text[0]
            rest: _Text = [(first[4:], None if place is None else place + 4), *piece.text[1:]]
            return [*text, (",", None), *rest]
        return [*text, (" ", None), *piece.text]

    def _all_needs(self, ctes: Iterable[Cte]) -> dict[int, Cte]:
        """Return CTEs and those that they need, these first."""
        needed = dict[int, Cte]()
        for cte in ctes:
            needed |= self._all_needs(self._pieces[id(cte)].needs) | {id(cte): cte}
        return needed

    def _meets(self, read: Subquery | Reference, inner: Mapping[int, _Piece]) -> bool:
        if isinstance(read, Subquery):
            return inner[id(read)].meets
        return (
            read.cte is not None
            and id(read.cte) not in self._stage_of
            and self._pieces[id(read.cte)].meets
        )

    def _meets_records(self, text: _Text) -> bool:
        query = _as_string(text)
        try:
            return (
                find_join(query, self._tables) is not None
                or find_groups(query, self._tables) is not None
                or find_over(query, self._tables) is not None
            )
        except QueryError:  # the stage with this text is refused with the reason
            scopes = reading_scopes(parsed(query, self._tables))
            return any(is_grouped(scope) or joins_inputs(scope) for scope in scopes)

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

    def _with_joins_apart(self, query: Query, edits: Sequence[_Edit]) -> _Piece:
        """Return a query. If it cannot be one stage, others have joined what it reads."""
        whole, clause = self._written(query, edits), find_from(self._tokens, query)
        text = self.composed(whole)
        if clause is not None:
            joins = self._joins(text, clause)
            if joins.is_too_much:
                named = [
                    *self._with_tables(text, joins),
                    *self._with_aliases(query, edits, clause, joins),
                    *self._without_star(query, clause, joins),
                ]
                if named:
                    edits = sorted([*edits, *named], key=lambda edit: edit.first)
                    joins = self._joins(self.composed(self._written(query, edits)), clause)
                return self._over_joins(query, edits, clause, joins)
        return replace(whole, meets=self._meets_records(text))

    def _joins(self, text: _Text, clause: FromClause) -> JoinsOfSelect:
        stages = {
            f"{self._reading}.{stage.name}".lower(): parsed(stage.query, self._tables)
            for stage in self.stages
        }
        tree = parsed(_as_string(text), self._tables)
        return JoinsOfSelect(tree, clause, KnownColumns(self._columns, stages))

    def _with_aliases(
        self, query: Query, edits: Sequence[_Edit], clause: FromClause, joins: JoinsOfSelect
    ) -> Iterator[_Edit]:
        """Yield edits that write what subqueries without an alias are called.

        Otherwise, nothing could name their columns. Those that have become stages have a name.
        """
        stages = {edit.first for edit in edits}
        for read in query.reads:
            if isinstance(read, Subquery) and not read.name and read.at not in stages:
                alias = joins.names[bisect_right(clause.items, read.at) - 1]
                closing = self._tokens[read.closing]
                text: _Text = [self._part(closing.start, closing.end + 1)]
                yield _Edit(read.closing, read.closing, [*text, (f" AS {quoted(alias)}", None)])

    def _without_star(
        self, query: Query, clause: FromClause, joins: JoinsOfSelect
    ) -> Iterator[_Edit]:
        """Yield an edit that writes what `*` gives: stages in between give a column for a table."""
        place = place_of_star(self._tokens, query, clause)
        columns = None if place is None else joins.of_star()
        if place is not None and columns is not None:
            yield _Edit(place, place, [(columns, None)])

    def _with_tables(self, text: _Text, joins: JoinsOfSelect) -> list[_Edit]:
        """Return edits that write the table in front of each column that has none.

        There are none in a text with table functions: its tree has other places.
        """
        found, places = list[_Edit](), [token.start for token in self._tokens]
        if expanded(_as_string(text)).calls:
            return found
        for name, table in joins.without_table():
            at = _place_in_whole(text, name.meta["start"])
            if at is not None:
                first = bisect_left(places, at)
                token = self._tokens[first]
                own = self._part(token.start, token.end + 1)
                found.append(_Edit(first, first, [(f"{quoted(table)}.", None), own]))
        return found

    def _over_joins(
        self, query: Query, edits: Sequence[_Edit], clause: FromClause, joins: JoinsOfSelect
    ) -> _Piece:
        """Make stages of the joins of a SELECT; return it with the last of them in FROM.

        It keeps its last join if it does nothing else with records.
        """
        places, read = (*clause.items, clause.views), _joined("FROM")
        demands = {number: self._edited(edits, *at) for number, at in enumerate(clause.where)}
        left, first, last = dict(demands), places[0], len(clause.items)
        time, in_windows = self._time_of_windows(query) if joins.groups else (None, [])
        for end in (*joins.meeting[2:], *([last] if joins.groups else [])):
            is_last = end == last
            wanted = joins.all_demands(len(demands)) if is_last else joins.demands_of(end)
            here = [left.pop(number) for number in wanted if number in left]
            met = demands.keys() - left.keys()
            columns = joins.given(end, met, () if time is None else WINDOW_COLUMNS)
            given = _joined(f"SELECT {', '.join(columns)}")
            if is_last and time is not None:
                given = _joined(given, ",", time, "AS timestamp")
                here += [_joined(time, "IS NOT NULL")] * joins.keeps_rows
            read = _joined(read, self._edited(edits, first, places[end]))
            table = self._cut(joins.name(end), self.composed(_joined(given, read, *_where(here))))
            read, first = _joined("FROM", table), places[end]
        edits = sorted([*edits, *in_windows], key=lambda edit: edit.first)
        select = _joined(
            self._edited(edits, query.body, clause.opening),
            read,
            self._edited(edits, first, clause.end),
            *_where([*left.values()]),
            self._edited(edits, clause.rest, query.end),
        )
        return replace(self._with_own(query, select), meets=True)

    def _time_of_windows(self, query: Query) -> tuple[_Piece | None, list[_Edit]]:
        """Return the time that windows of a SELECT are of, and edits that write `timestamp` for it.

        A stage that joins gives it as the time of its rows. Raises `QueryError` for several times.
        """
        places = window_times(self._tokens, query)
        times = {
            tuple(token.text.lower() for token in self._tokens[first:end]): (first, end)
            for first, end in places
        }
        if len(times) > 1:
            shown = " and ".join(sorted("".join(words) for words in times))
            raise QueryError(
                f"the windows of a SELECT that joins inputs are of {shown}: a row has one time, so "
                "write the same in each of them"
            )
        if not times:
            return None, []
        (time,) = times.values()
        return self._edited([], *time), [
            _Edit(first, end - 1, [("timestamp", None)]) for first, end in places
        ]

    def _edits(
        self, query: Query, inner: Mapping[int, _Piece], names: Mapping[int, str]
    ) -> list[_Edit]:
        """Return what a query has in place of what it reads: the tables of `names`, or `inner`."""
        edits = list[_Edit]()
        for read in query.reads:
            table = names.get(id(read))
            if isinstance(read, Subquery) and table is not None:
                edits.append(_Edit(read.at, read.closing, [(table, None)]))
            elif isinstance(read, Subquery):
                piece = inner[id(read)]
                edits.append(_Edit(read.at + 1, read.closing - 1, piece.text, piece.needs))
            elif read.cte is not None:
                table = table or self._stage_of.get(id(read.cte))
                text = self._text_of(read.at)
                if table is None:
                    edits.append(_Edit(read.at, read.at, [(text, None)], (read.cte,)))
                else:
                    alias = "" if read.has_alias else f" AS {text}"
                    edits.append(_Edit(read.at, read.at, [(table + alias, None)]))
        return sorted(edits, key=lambda edit: edit.first)

    def _written(self, query: Query, edits: Sequence[_Edit]) -> _Piece:
        return self._with_own(query, self._edited(edits, query.body, query.end))

    def _with_own(self, query: Query, select: _Piece) -> _Piece:
        """Return a SELECT behind those CTEs of its query that it needs."""
        needed = self._all_needs(select.needs)
        own = [cte for cte in query.ctes if id(cte) in needed]
        outer = [cte for cte in needed.values() if cte not in own]
        text = [*self._with(own), (" ", None), *select.text] if own else select.text
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

    def _edited(self, edits: Sequence[_Edit], start: int, end: int) -> _Piece:
        """Return the text from one token up to another one, with other text in some places."""
        if start >= end:
            return _Piece([], (), meets=False)
        at, text, needs = self._tokens[start].start, _Text(), list[Cte]()
        for edit in (each for each in edits if start <= each.first < end):
            text += [self._part(at, self._tokens[edit.first].start), *edit.text]
            needs += edit.needs
            at = self._tokens[edit.last].end + 1
        text.append(self._part(at, self._tokens[end - 1].end + 1))
        return _Piece(text, tuple(needs), meets=False)

    def _part(self, start: int, end: int) -> tuple[str, int]:
        return self._whole[start:end], start

    def _text_of(self, at: int) -> str:
        token = self._tokens[at]
        return self._whole[token.start : token.end + 1]


def _as_string(text: _Text) -> str:
    return "".join(part for part, _ in text)


def _place_in_whole(text: _Text, at: int) -> int | None:
    """Return the place in the whole query of a place in a text; `None` if it is not from there."""
    for part, start in text:
        if at < len(part):
            return None if start is None else start + at
        at -= len(part)
    return None


def _joined(*parts: str | _Piece) -> _Piece:
    """Return text and parts of queries, one behind the other."""
    text, needs = _Text(), list[Cte]()
    for part in parts:
        added = [(part, None)] if isinstance(part, str) else part.text
        text += [(" ", None), *added] if text and added else added
        needs += () if isinstance(part, str) else part.needs
    return _Piece(text, tuple(needs), meets=False)


def _where(demands: Sequence[_Piece]) -> list[str | _Piece]:
    """Return the clause that demands something."""
    found: list[str | _Piece] = []
    for demand in demands:
        found += ["AND" if found else "WHERE", demand]
    return found
