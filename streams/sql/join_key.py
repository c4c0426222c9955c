"""Reads from the text of a join with updates whether its key says which row of the result is which.

Rows that change take results back, by their keys. So a key must tell which row of each such side a
result is of. All results with one key must also be given by one task: otherwise, the deletion of a
former one could come after the new one. Where rows meet by columns, these say which task it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from kafka_pipeline.common.pipelines.specs import JoinSide, JoinSpec
from kafka_pipeline.streams.sql.join_shape import SIDES
from kafka_pipeline.streams.sql.join_tree import equalities, is_bare, joins_of
from kafka_pipeline.streams.sql.query_tree import parsed, quiet, sources_of
from kafka_pipeline.streams.sql.spec import QueryError, quoted

_KEY = "key"
_PLACE = ("partition", "offset")
"""The columns that tell the records of an input apart."""

_EXACT = (
    "map('timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSSX', "
    "'timestampNTZFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
)
"""The options of `to_json` with which different times are different text."""

Columns = frozenset[tuple[int, str]]
"""Columns of the inputs: the number of the side, and the name."""

_UNKNOWN: Columns = frozenset({(-1, "?")})
"""A column of which the text does not show whose it is: the key never has it."""
_NOTHING: Columns = frozenset()


def join_key_problem(
    query: str,
    tables: Collection[str],
    join: JoinSpec,
    identities: Mapping[JoinSide, Collection[str] | None],
    *,
    is_inner: bool = False,
) -> str:
    """Return what the key of a join's results lacks, and what to do; "" if it lacks nothing.

    `identities` has, for each side that changes, the columns that tell its rows apart; `None` if
    nothing shows them. The words follow the name of the query. The key of rows of other sides is up
    to the user: results with one key are one row of a table. Of an inner query, all rows count, so
    the key needs the place of such records.
    """
    try:
        with quiet():
            found = _JoinText(query, tables)
            return _Keys(found, join, identities, is_inner=is_inner).problem()
    except (SqlglotError, RecursionError, QueryError):
        return "has a text that cannot be read, so it is not known what its key is made of"


def made_key(
    query: str,
    tables: Collection[str],
    join: JoinSpec,
    identities: Mapping[JoinSide, Collection[str] | None],
) -> str | None:
    """Return the expression of a key for an inner query whose SELECT joins; see `join_key_problem`.

    `None` if the query gives a key, if its outermost SELECT is not the one that joins, or if the
    key would not tell rows without a partner apart: where both sides have them, a row of nulls
    could be of either.
    """
    try:
        with quiet():
            found = _JoinText(query, tables)
            keys = _Keys(found, join, identities, is_inner=True)
            if found.key is not None or not found.is_outermost or not keys.tell_sides_apart:
                return None
            wanted = [*keys.wanted(), *keys.times_of_records()]
    except (SqlglotError, RecursionError, QueryError):
        return None  # what reads it again reports why
    fields = (
        f"'{number}', {quoted(alias)}.{quoted(name)}" for number, (alias, name) in enumerate(wanted)
    )
    return f"to_json(named_struct({', '.join(fields)}), {_EXACT})"


class _Keys:
    """Compares the key of a join with what it must have."""

    def __init__(
        self,
        text: _JoinText,
        join: JoinSpec,
        identities: Mapping[JoinSide, Collection[str] | None],
        *,
        is_inner: bool,
    ) -> None:
        self._text = text
        self._of_records = _PLACE if is_inner else ()
        assert join.regular is not None, "it has no bounds of time"
        self._only, self._stage = join.regular.only, join.regular.stage
        self._names = join.left, join.right
        self._identities = {SIDES.index(side): names for side, names in identities.items()}
        alone = ("left",) if self._only else join.keeps
        self._alone = [SIDES.index(side) for side in alone]
        """The sides whose rows have results of their own, with nulls for the other side."""
        self._sides = (0,) if self._only else (0, 1)
        """The sides whose rows the results are of."""

    def problem(self) -> str:
        """See `join_key_problem`."""
        key = self._text.key
        if key is None:
            return f"gives no column key. {self._advice()}"
        known = self._text.known(key, [side for side in (0, 1) if self._is_of_record(side, key)])
        for side in self._sides:
            names = self._names_of(side)
            if names is None:
                return (
                    f"joins {self._names[side]}, whose rows are told apart by grouping columns "
                    "that it does not give: let it give all of them"
                )
            if not {(side, name) for name in names} <= (key if side in self._alone else known):
                lacking = " and ".join(names)
                return (
                    f"has a key that does not have {lacking} of {self._names[side]}, so it does "
                    f"not say which row of that a result is of. {self._advice()}"
                )
        if self._stage == "pairs" and not self._is_of_one_task(key, known):
            return (
                "has a key without the columns by which rows meet. When an update changes them, "
                "the former result is deleted by another task than the one that gives the new one, "
                f"in any order. {self._advice()}"
            )
        return ""

    def _is_of_one_task(self, key: Columns, known: Columns) -> bool:
        """Whether all results with one key are given by the task where rows with it meet."""
        equal = self._text.equal
        stays = [self._stays(side, key) for side in (0, 1)]
        of_pairs = any(stays) or all(left <= known or right <= known for left, right in equal)
        return (of_pairs or self._only is not None) and all(
            stays[side] or all(both[side] <= key for both in equal) for side in self._alone
        )

    def _stays(self, side: int, key: Columns) -> bool:
        """Whether the rows of a side that a key tells apart always meet others in one task."""
        names = self._identities.get(side)
        if names is None:
            return self._is_of_record(side, key)
        return all(both[side] <= {(side, name) for name in names} for both in self._text.equal)

    def _is_of_record(self, side: int, key: Columns) -> bool:
        """Whether a key says which record of a side a result is of, whose rows never change.

        It is up to the user that what the key has of such a side identifies the record.
        """
        return side not in self._identities and any(of == side for of, _ in key)

    @property
    def tell_sides_apart(self) -> bool:
        """Whether one side has no row alone, or has columns in the key that are never null."""
        never_null = ({_KEY}, {*_PLACE})
        return len(self._alone) < 2 or any(
            {*(self._names_of(side) or ())} in never_null for side in self._sides
        )

    def wanted(self) -> list[tuple[str, str]]:
        """Return the columns that the key must have: the alias of the side, and the name."""
        found = list[tuple[str, str]]()
        for side in self._sides:
            alias = self._text.aliases[side]
            found += [(alias, name) for name in self._names_of(side) or ()]
        for side in (self._alone or self._sides[-1:]) if self._stage == "pairs" else ():
            alias = self._text.aliases[side]
            columns = [each for both in self._text.equal for each in sorted(both[side] - _UNKNOWN)]
            found += [(alias, name) for _, name in columns]
        return [*dict.fromkeys(found)]

    def times_of_records(self) -> list[tuple[str, str]]:
        """Return the times of plain records: a topic that is made again has the former offsets."""
        sides = (side for side in self._sides if side not in self._identities)
        return [(self._text.aliases[side], "timestamp") for side in sides]

    def _names_of(self, side: int) -> Sequence[str] | None:
        """Return the columns that tell the rows of a side apart; `None` if nothing shows them."""
        if side not in self._identities:
            return self._of_records
        names = self._identities[side]
        return None if names is None else sorted(names)

    def _advice(self) -> str:
        parts = [f"{alias}.{name}" for alias, name in self.wanted()]
        others = [
            f", and of what identifies a record of {self._names[side]}"
            for side in self._sides
            if side not in self._identities and not self._of_records
        ]
        if not parts:
            return "Give a key that identifies a row of the result"
        shown = f"{' and '.join(parts)}{''.join(others)}"
        return f"Give a key that is made of {shown}, such as {_example(parts, bool(others))}"


def _example(parts: list[str], has_more: bool) -> str:
    parts = [*parts, *["…"] * has_more]
    return f"concat_ws('|', {', '.join(parts)}) AS key" if len(parts) > 1 else f"{parts[0]} AS key"


@dataclass(frozen=True)
class _JoinText:
    """A query that joins two inputs."""

    query: str
    tables: Collection[str]

    @cached_property
    def _scopes(self) -> list[Scope]:
        return list(traverse_scope(parsed(self.query, self.tables)))

    @cached_property
    def _joined(self) -> tuple[Scope, exp.Join]:
        found = [join for scope in self._scopes for join in joins_of(scope)]
        if len(found) != 1:
            raise QueryError("it does not join two inputs")
        scope, join, _, _ = found[0]
        return scope, join

    @property
    def is_outermost(self) -> bool:
        """Whether the SELECT that joins is the outermost one, and its text begins with it."""
        scope, _ = self._joined
        return scope is self._scopes[-1] and self.query[:6].upper() == "SELECT"

    @property
    def aliases(self) -> tuple[str, str]:
        """What the query calls both sides."""
        scope, join = self._joined
        left = next(name for name in sources_of(scope) if name != join.alias_or_name)
        return left, join.alias_or_name

    @cached_property
    def key(self) -> Columns | None:
        """What the key of the results is made of; `None` without one."""
        root = self._scopes[-1]
        found = self._given(_KEY, root)
        return None if found is None else self._made_of(*found)

    @cached_property
    def equal(self) -> list[tuple[Columns, Columns]]:
        """What both sides of each equality are made of that the join demands."""
        return [(left, right) for left, right, _ in self._equalities]

    def known(self, key: Columns, given: Collection[int]) -> Columns:
        """Return the columns whose values follow from the key of a pair.

        Of the sides that are `given`, the key tells the row, and so all columns.
        """
        known, before = set(key), -1
        while len(known) > before:
            before = len(known)
            for left, right, (bare_left, bare_right) in self._equalities:
                known |= bare_right if 0 in given or left <= known else _NOTHING
                known |= bare_left if 1 in given or right <= known else _NOTHING
        return frozenset(known)

    @cached_property
    def _equalities(self) -> list[tuple[Columns, Columns, tuple[Columns, Columns]]]:
        """The equalities; the last of each has the columns that one of its sides is, as they are.

        Of an equality that compares other things than the two sides, nothing follows.
        """
        scope, join = self._joined
        found = []
        for name in join.args.get("using") or ():
            sides = [self._of_source(alias, name.name, scope) for alias in self.aliases]
            found.append((sides[0], sides[1], (sides[0], sides[1])))
        on, where = join.args.get("on"), scope.expression.args.get("where")
        if is_bare(join) and where is not None:
            on = where.this
        for equality in equalities(on) if on is not None else ():
            both = (equality.left.unnest(), equality.right.unnest())
            made = [self._made_of(each, scope) for each in both]
            if made[0] and made[1] and {side for side, _ in made[0]} == {1}:
                both, made = (both[1], both[0]), [made[1], made[0]]
            if (made[0] | made[1]) & _UNKNOWN:
                found.append((_UNKNOWN, _UNKNOWN, (_NOTHING, _NOTHING)))
            if [{side for side, _ in each} for each in made] != [{0}, {1}]:
                continue
            left, right = (
                each if self._is_bare(expression, scope) else _NOTHING
                for expression, each in zip(both, made, strict=True)
            )
            found.append((made[0], made[1], (left, right)))
        return found

    def _made_of(self, expression: exp.Expr, scope: Scope) -> Columns:
        """Return the columns of inputs that an expression over a scope's sources is made of."""
        found = _NOTHING
        for column in expression.find_all(exp.Column):
            aliases = self._aliases_of(column, scope)
            for alias in aliases:
                found |= self._of_source(alias, column.name, scope)
            found |= _NOTHING if aliases else _UNKNOWN
        return found

    def _of_source(self, alias: str, name: str, scope: Scope) -> Columns:
        """Return what a column of a source of a scope is made of."""
        _, source = sources_of(scope)[alias]
        join_scope, join = self._joined
        made: Columns = frozenset({(0, name)})
        if isinstance(source, Scope):
            found = self._given(name, source)
            made = _UNKNOWN if found is None else self._made_of(*found)
        is_right = scope is join_scope and alias == join.alias_or_name
        return frozenset((1, each) for _, each in made) if is_right else made

    def _aliases_of(self, column: exp.Column, scope: Scope) -> list[str]:
        """Return the sources of a scope that a column may be of: several with USING."""
        sources = sources_of(scope)
        if column.table:
            return [column.table] if column.table in sources else []  # a struct, perhaps
        join_scope, join = self._joined
        if scope is join_scope:
            if column.name in [each.name for each in join.args.get("using") or ()]:
                return [*self.aliases]
            if join.kind in ("SEMI", "ANTI"):
                return [self.aliases[0]]
        giving = [
            name
            for name, (_, source) in sources.items()
            if not isinstance(source, Scope) or self._given(column.name, source) is not None
        ]
        return giving if len(giving) == 1 else []

    def _given(self, name: str, scope: Scope) -> tuple[exp.Expr, Scope] | None:
        """Return the expression of a scope's column, and the scope that it is over."""
        select = scope.expression
        if not isinstance(select, exp.Select) or scope.outer_columns:
            return None
        for given in select.selects:
            if not given.is_star and given.alias_or_name == name:
                return given.unalias(), scope
        for given in select.selects:
            if given.is_star:
                table = given.args.get("table")
                return exp.column(name, table), scope
        return None

    def _is_bare(self, expression: exp.Expr, scope: Scope) -> bool:
        """Whether an expression is a column of an input as it is."""
        if not isinstance(expression, exp.Column):
            return False
        aliases = self._aliases_of(expression, scope)
        if len(aliases) != 1:
            return False
        _, source = sources_of(scope)[aliases[0]]
        if not isinstance(source, Scope):
            return True
        found = self._given(expression.name, source)
        return found is not None and self._is_bare(*found)
