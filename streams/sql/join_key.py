"""Reads from the text of a join with updates whether its key says which row of the result is which.

Rows that change take results back, by their keys. So a key must tell which row of each such side a
result is of. All results with one key must also be given by one task: otherwise, the deletion of a
former one could come after the new one. Where rows meet by columns, these say which task it is.

A stage that joins gives a struct for each table, and a key that the engine makes of their columns.
So a column of such a struct is a column of that side, as in `a.id`, and all that the key of the
stage is made of is as good as that key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from kafka_pipeline.common.pipelines.specs import JoinSide, RegularJoinSpec, SqlSpec
from kafka_pipeline.streams.sql.join_shape import SIDES
from kafka_pipeline.streams.sql.join_tree import equalities, is_bare, joins_of
from kafka_pipeline.streams.sql.known_columns import KnownColumns
from kafka_pipeline.streams.sql.query_tree import parsed, quiet, sources_of
from kafka_pipeline.streams.sql.result_key import identity_columns
from kafka_pipeline.streams.sql.schema_columns import OF_JSON, columns_of_schema
from kafka_pipeline.streams.sql.spec import QueryError, quoted
from kafka_pipeline.streams.sql.stage import THERE

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


def join_key_problem(spec: SqlSpec, identities: Mapping[JoinSide, Collection[str] | None]) -> str:
    """Return what the key of a join's results lacks, and what to do; "" if it lacks nothing.

    `identities` has, for each side that changes, the columns that tell its rows apart; `None` if
    nothing shows them. The words follow the name of the query. The key of rows of other sides is up
    to the user: results with one key are one row of a table. Of an inner query, all rows count, so
    the key needs the place of such records.
    """
    try:
        with quiet():
            return _Keys(spec, identities).problem()
    except (SqlglotError, RecursionError, QueryError):
        return "has a text that cannot be read, so it is not known what its key is made of"


@dataclass(frozen=True, slots=True)
class MadeKey:
    """The expression of a key, and the tables that must have a column `THERE` for it."""

    expression: str
    marked: Collection[str] = ()


def made_key(
    spec: SqlSpec, identities: Mapping[JoinSide, Collection[str] | None]
) -> MadeKey | None:
    """Return a key for an inner query whose SELECT joins; see `join_key_problem`.

    Where both sides have rows without a partner, a row of nulls could be of either. So the key says
    which sides are there, unless they have columns that are never null.

    `None` if the query gives a key, or if its outermost SELECT is not the one that joins.
    """
    try:
        with quiet():
            keys = _Keys(spec, identities)
            text = keys.text
            if text.key is not None or not text.is_outermost:
                return None
            columns = [text.written(*each) for each in (*keys.wanted(), *keys.times_of_records())]
            marked = () if keys.tell_sides_apart else text.tables
            if marked and (text.has_stars or {"", *text.aliases} & {*marked}):
                # The column would be among all others, or the table would lose its name.
                return None
            columns += [f"{quoted(alias)}.{THERE}" for alias in text.aliases if marked]
    except (SqlglotError, RecursionError, QueryError):
        return None  # what reads it again reports why
    fields = (f"'{number}', {column}" for number, column in enumerate(columns))
    return MadeKey(f"to_json(named_struct({', '.join(fields)}), {_EXACT})", marked)


class _Keys:
    """Compares the key of a join with what it must have."""

    def __init__(
        self, spec: SqlSpec, identities: Mapping[JoinSide, Collection[str] | None]
    ) -> None:
        self.text = _JoinText(spec)
        self._of_records = _PLACE if spec.is_inner else ()
        join = spec.join
        assert join is not None, "it joins"
        regular = join.regular or RegularJoinSpec()
        self._only, self._stage = regular.only, regular.stage
        self._names = join.left, join.right
        self._identities = {SIDES.index(side): names for side, names in identities.items()}
        alone = ("left",) if self._only else join.keeps
        self._alone = [SIDES.index(side) for side in alone]
        """The sides whose rows have results of their own, with nulls for the other side."""
        self._sides = (0,) if self._only else (0, 1)
        """The sides whose rows the results are of."""

    def problem(self) -> str:
        """See `join_key_problem`."""
        key = self.text.key
        if key is None and self._of_records and not self.tell_sides_apart and self.text.has_stars:
            both = " and ".join(self.text.aliases)
            return f"takes all columns of {both}: write their names in place of *"
        if key is None:
            return f"gives no column key. {self._advice()}"
        key |= {(side, _KEY) for side in self._sides if self._has_parts(side, key)}
        known = self.text.known(key, [side for side in (0, 1) if self._is_of_record(side, key)])
        for side in self._sides:
            names = self._names_of(side)
            if names is None:
                return (
                    f"joins {self._names[side]}, whose rows are told apart by grouping columns "
                    "that it does not give: let it give all of them"
                )
            if not {(side, name) for name in names} <= (key if side in self._alone else known):
                return (
                    f"has a key that does not have {self._lacking(side, names)}, so it does "
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
        equal = self.text.equal
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
        return all(both[side] <= {(side, name) for name in names} for both in self.text.equal)

    def _is_of_record(self, side: int, key: Columns) -> bool:
        """Whether a key says which record of a side a result is of, whose rows never change.

        It is up to the user that what the key has of such a side identifies the record.
        """
        return side not in self._identities and any(of == side for of, _ in key)

    def _has_parts(self, side: int, key: Columns) -> bool:
        """Whether a key has all that the key of a side is made of that is a stage which joins.

        What it has of tables with plain records is up to the user, as elsewhere.
        """
        parts = self.text.parts(side)
        return bool(parts) and all(
            any(of == side and name.startswith(f"{table}.") for of, name in key)
            if self._is_of_user(names)
            else {(side, f"{table}.{name}") for name in self._required(names)} <= key
            for table, names in parts.items()
        )

    def _is_of_user(self, names: Sequence[str]) -> bool:
        """Whether it is up to the user what the key has of a table with these parts."""
        return {*_PLACE} <= {*names} and not self._of_records

    def _required(self, names: Sequence[str]) -> list[str]:
        """Return the parts of a table that a key must have; see `times_of_records`."""
        is_of_records = {*_PLACE} <= {*names}
        return [name for name in names if not (is_of_records and name == "timestamp")]

    def _lacking(self, side: int, names: Sequence[str]) -> str:
        """Return what a key lacks of a side, and whose that is."""
        parts = self.text.parts(side) if names == [_KEY] else {}
        if not parts:
            return f"{' and '.join(names)} of {self._names[side]}"
        columns = [
            f"a column of {table}"
            if self._is_of_user(own)
            else " and ".join(f"{table}.{name}" for name in self._required(own))
            for table, own in parts.items()
        ]
        return f"{' and '.join(columns)} of the join of {' and '.join(parts)}"

    @property
    def tell_sides_apart(self) -> bool:
        """Whether one side has no row alone, or has columns in the key that are never null."""
        never_null = ({_KEY}, {*_PLACE})
        return len(self._alone) < 2 or any(
            {*(self._names_of(side) or ())} in never_null for side in self._sides
        )

    def wanted(self) -> list[tuple[int, str]]:
        """Return the columns that the key must have: the side, and the name."""
        found = [(side, name) for side in self._sides for name in self._names_of(side) or ()]
        for side in (self._alone or self._sides[-1:]) if self._stage == "pairs" else ():
            columns = [each for both in self.text.equal for each in sorted(both[side] - _UNKNOWN)]
            found += [(side, name) for _, name in columns]
        return [*dict.fromkeys(found)]

    def times_of_records(self) -> list[tuple[int, str]]:
        """Return the times of plain records: a topic that is made again has the former offsets."""
        return [
            (side, "timestamp")
            for side in self._sides
            if side not in self._identities and not self.text.is_stage(side)
        ]

    def _names_of(self, side: int) -> Sequence[str] | None:
        """Return the columns that tell the rows of a side apart; `None` if nothing shows them."""
        if side in self._identities:
            names = self._identities[side]
        elif self._of_records and self.text.is_stage(side):
            names = self.text.identity(side)
        else:
            return self._of_records
        return None if names is None else sorted(names)

    def _advice(self) -> str:
        columns, tables = list[str](), list[str]()
        for side in self._sides:
            if side not in self._identities and not self._of_records:
                tables += self.text.tables_of(side) or [self._names[side]]
        for side, name in self.wanted():
            parts = self.text.parts(side) if name == _KEY else {}
            for table, names in parts.items():
                if self._is_of_user(names):
                    tables.append(table)
                else:
                    columns += [f"{table}.{each}" for each in self._required(names)]
            columns += [] if parts else [self.text.shown(side, name)]
        columns = [*dict.fromkeys(columns)]
        others = [f", and of what identifies a record of {name}" for name in tables]
        if not columns:
            return "Give a key that identifies a row of the result"
        shown = f"{' and '.join(columns)}{''.join(others)}"
        example = self._of_either() if not others else None
        example = example or _example([*columns, *["…"] * len(others)], has_nulls=self._has_nulls)
        return f"Give a key that is made of {shown}, such as {example} AS key"

    @property
    def _has_nulls(self) -> bool:
        """Whether a result may have nulls in place of one row or another."""
        missing = [1 - side for side in self._alone if self._only is None]
        return len(missing) + sum(map(self.text.missing_in, (0, 1))) > 1

    def _of_either(self) -> str | None:
        """Return a key of what both sides have, where rows with the same always meet."""
        equal = self.text.only_equal if len(self._alone) > 1 else None
        if not equal:
            return None
        for side in (0, 1):
            if {*(self._names_of(side) or ())} != {both[side] for both in equal}:
                return None
        parts = [
            f"coalesce({', '.join(self.text.shown(*each) for each in enumerate(both))})"
            for both in equal
        ]
        return _example(parts)


def _example(parts: list[str], *, has_nulls: bool = False) -> str:
    if has_nulls:
        # The place of a value says whose it is.
        named = (f"'{place}', {part}" for place, part in enumerate(parts, 1))
        return f"to_json(named_struct({', '.join(named)}))"
    return f"concat_ws('|', {', '.join(parts)})" if len(parts) > 1 else parts[0]


@dataclass(frozen=True)
class _JoinText:
    """A query that joins two inputs."""

    spec: SqlSpec

    @cached_property
    def _scopes(self) -> list[Scope]:
        return list(traverse_scope(_tree_of(self.spec)))

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
        return scope is self._scopes[-1] and self.spec.query[:6].upper() == "SELECT"

    @property
    def has_stars(self) -> bool:
        """Whether a part of the query takes all columns of something."""
        return next(_tree_of(self.spec).find_all(exp.Star), None) is not None

    @property
    def tables(self) -> list[str]:
        """The names of the tables of both sides; "" for a subquery."""
        scope, _ = self._joined
        sources = [sources_of(scope)[alias][1] for alias in self.aliases]
        return [each.name if isinstance(each, exp.Table) else "" for each in sources]

    @property
    def aliases(self) -> tuple[str, str]:
        """What the query calls both sides."""
        scope, join = self._joined
        left = next(name for name in sources_of(scope) if name != join.alias_or_name)
        return left, join.alias_or_name

    @cached_property
    def _structs(self) -> dict[str, str]:
        """The alias of the stage that has joined a table, and may give a struct of it, by table.

        Such a stage comes from a SELECT that joins more, and has no other alias than its name.
        """
        found = dict[str, str]()
        for side, (alias, name) in enumerate(zip(self.aliases, self.tables, strict=True)):
            stage = self._stage(side)
            if stage is not None and alias == name:
                found |= dict.fromkeys(_tables_in(stage), alias)
        return {name: alias for name, alias in found.items() if name not in self.aliases}

    def tables_of(self, side: int) -> list[str]:
        """Return the tables that a side has joined, in a stage before."""
        return [name for name, alias in self._structs.items() if alias == self.aliases[side]]

    def is_stage(self, side: int) -> bool:
        """Whether a side is a stage of the same query."""
        return self._stage(side) is not None

    def identity(self, side: int) -> Collection[str] | None:
        """Return the columns that tell the rows of a stage apart; `None` if nothing shows them."""
        stage = self._stage(side)
        assert stage is not None, "the side is a stage"
        if any(each.alias_or_name == _KEY for each in _tree_of(stage).selects):
            return (_KEY,)
        return identity_columns(stage.query, [*stage.tables, *stage.topic_tables])

    def _stage(self, side: int) -> SqlSpec | None:
        """Return the stage that a side is, if it is one."""
        scope, _ = self._joined
        return _stage_of(sources_of(scope)[self.aliases[side]][1], self.spec)

    def missing_in(self, side: int) -> int:
        """Return how many tables rows of a side may lack, which is a stage that joins them."""
        stage = self._stage(side)
        joins = [] if stage is None else _tree_of(stage).find_all(exp.Join)
        outer = [each.side for each in joins if each.side and each.kind not in ("SEMI", "ANTI")]
        return len(outer) + outer.count("FULL")

    def parts(self, side: int) -> Mapping[str, Sequence[str]]:
        """Return the columns that the key of a stage which joins is made of, by table.

        It is empty for other sides.
        """
        stage = self._stage(side)
        found = dict[str, list[str]]()
        for table, name in [] if stage is None else dict.fromkeys(_parts_of_key(stage)):
            found.setdefault(table, []).append(name)
        return found if {*found} <= {*self.tables_of(side)} else {}

    def written(self, side: int, name: str) -> str:
        """Return the SQL of a column of a side."""
        return ".".join(map(quoted, self._path(side, name)))

    def shown(self, side: int, name: str) -> str:
        """Return a column of a side as one writes it."""
        return ".".join(self._path(side, name))

    def _path(self, side: int, name: str) -> list[str]:
        table, _, field = name.partition(".")
        is_field = bool(field) and table in self.tables_of(side)
        return [table, field] if is_field else [self.aliases[side], name]

    @cached_property
    def only_equal(self) -> list[tuple[str, str]] | None:
        """The pairs of columns that must be equal; `None` if the join demands anything else."""
        _, join = self._joined
        on = join.args.get("on")
        count = len(join.args.get("using") or ())
        if on is not None:
            on = on.unnest()
            count = sum(1 for _ in on.flatten()) if isinstance(on, exp.And) else 1
        pairs = [bare for *_, bare in self._equalities]
        if len(pairs) != count or any(len(each) != 1 for both in pairs for each in both):
            return None
        return [(next(iter(left))[1], next(iter(right))[1]) for left, right in pairs]

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
            if (field := self._field(column, scope)) is not None:
                found |= self._of_source(*field, scope)
                continue
            aliases = self._aliases_of(column, scope)
            for alias in aliases:
                found |= self._of_source(alias, column.name, scope)
            found |= _NOTHING if aliases else _UNKNOWN
        return found

    def _field(self, column: exp.Column, scope: Scope) -> tuple[str, str] | None:
        """Return the alias of a side and the name of a column of a table that it has joined."""
        table, *names = (part.name for part in column.parts)
        if scope is not self._joined[0] or len(names) != 1 or table not in self._structs:
            return None
        return self._structs[table], f"{table}.{names[0]}"

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
            if column.name in (self._columns.of(source) or {column.name})
        ]
        return giving if len(giving) == 1 else []

    @cached_property
    def _columns(self) -> KnownColumns:
        """What the sides have, as far as it is known: not of inputs in Avro."""
        spec = self.spec
        schemas = {name.lower(): schema for name, schema in spec.schemas.items()}
        schemas |= {name.lower(): "" for name in (*spec.tables, *spec.topic_tables)}

        def columns_of(name: str) -> frozenset[str] | None:
            schema = schemas.get(name, spec.schema)
            return OF_JSON | columns_of_schema(schema) if schema else None

        return KnownColumns(
            columns_of, {name: _tree_of(stage) for name, stage in _stages(spec).items()}
        )

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
        if self._field(expression, scope) is not None:
            return True
        aliases = self._aliases_of(expression, scope)
        if len(aliases) != 1:
            return False
        _, source = sources_of(scope)[aliases[0]]
        if not isinstance(source, Scope):
            return True
        found = self._given(expression.name, source)
        return found is not None and self._is_bare(*found)


def _tree_of(spec: SqlSpec) -> exp.Query:
    return parsed(spec.query, [*spec.tables, *spec.topic_tables])


def _stage_of(source: exp.Table | Scope, spec: SqlSpec) -> SqlSpec | None:
    """Return the stage of a query that a source is, if it is one."""
    return _stages(spec).get(source.name) if isinstance(source, exp.Table) else None


def _stages(spec: SqlSpec) -> dict[str, SqlSpec]:
    return {name.lower(): stage for name, stage in spec.stages.items()}


def _tables_in(stage: SqlSpec) -> list[str]:
    """Return what a stage and those in front of it join: the aliases of one SELECT of the user."""
    found = list[str]()
    for alias, (_, source) in sources_of(traverse_scope(_tree_of(stage))[-1]).items():
        inner = _stage_of(source, stage)
        is_cut = inner is not None and isinstance(source, exp.Table) and source.name == alias
        found += _tables_in(inner) if inner is not None and is_cut else [alias]
    return found


def _parts_of_key(stage: SqlSpec) -> list[tuple[str, str]]:
    """Return what the key of a stage is made of: tables and columns that stages have joined."""
    key = next((each for each in _tree_of(stage).selects if each.alias_or_name == _KEY), None)
    found, stages = list[tuple[str, str]](), _stages(stage)
    for column in [] if key is None else key.find_all(exp.Column):
        if column.name == THERE:
            continue  # what a row of nulls is of is up to the user
        inner = stages.get(column.table) if column.name == _KEY else None
        found += [(column.table, column.name)] if inner is None else _parts_of_key(inner)
    return found
