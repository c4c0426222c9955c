"""The columns of the two sides of a join, as the text of its query shows them.

A stage that joins gives a struct for each table, and a key that the engine makes of their columns.
So a column of such a struct is a column of that side, as in `a.id`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from kafka_pipeline.common.pipelines.specs import SqlSpec
from kafka_pipeline.streams.sql.join_tree import equalities, is_bare, joins_of
from kafka_pipeline.streams.sql.known_columns import KnownColumns
from kafka_pipeline.streams.sql.query_tree import parsed, sources_of
from kafka_pipeline.streams.sql.result_key import identity_columns
from kafka_pipeline.streams.sql.schema_columns import OF_JSON, columns_of_schema
from kafka_pipeline.streams.sql.spec import QueryError, quoted
from kafka_pipeline.streams.sql.stage import THERE

KEY = "key"

Columns = frozenset[tuple[int, str]]
"""Columns of the inputs: the number of the side, and the name."""

UNKNOWN: Columns = frozenset({(-1, "?")})
"""A column of which the text does not show whose it is: the key never has it."""
NOTHING: Columns = frozenset()


@dataclass(frozen=True)
class JoinText:
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
        if any(each.alias_or_name == KEY for each in _tree_of(stage).selects):
            return (KEY,)
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
        alias = self.aliases[side]
        return [table, field] if is_field else [alias, self.called(side, name) or name]

    def called(self, side: int, name: str) -> str | None:
        """Return what a side calls a column of its input; `None` if it does not give it."""
        scope, _ = self._joined
        _, source = sources_of(scope)[self.aliases[side]]
        if not isinstance(source, Scope) or not isinstance(source.expression, exp.Select):
            return name
        for given, alias in zip(
            source.expression.selects,
            source.outer_columns or [each.alias_or_name for each in source.expression.selects],
            strict=False,
        ):
            if given.is_star:
                return name
            made = given.unalias()
            if self._is_bare(made, source) and {of for _, of in self._made_of(made, source)} == {
                name
            }:
                return alias
        return None

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
        found = self._given(KEY, root)
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
                known |= bare_right if 0 in given or left <= known else NOTHING
                known |= bare_left if 1 in given or right <= known else NOTHING
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
            if (made[0] | made[1]) & UNKNOWN:
                found.append((UNKNOWN, UNKNOWN, (NOTHING, NOTHING)))
            if [{side for side, _ in each} for each in made] != [{0}, {1}]:
                continue
            left, right = (
                each if self._is_bare(expression, scope) else NOTHING
                for expression, each in zip(both, made, strict=True)
            )
            found.append((made[0], made[1], (left, right)))
        return found

    def _made_of(self, expression: exp.Expr, scope: Scope) -> Columns:
        """Return the columns of inputs that an expression over a scope's sources is made of."""
        found = NOTHING
        for column in expression.find_all(exp.Column):
            if (field := self._field(column, scope)) is not None:
                found |= self._of_source(*field, scope)
                continue
            aliases = self._aliases_of(column, scope)
            for alias in aliases:
                found |= self._of_source(alias, column.name, scope)
            found |= NOTHING if aliases else UNKNOWN
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
            made = UNKNOWN if found is None else self._made_of(*found)
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
    key = next((each for each in _tree_of(stage).selects if each.alias_or_name == KEY), None)
    found, stages = list[tuple[str, str]](), _stages(stage)
    for column in [] if key is None else key.find_all(exp.Column):
        if column.name == THERE:
            continue  # what a row of nulls is of is up to the user
        inner = stages.get(column.table) if column.name == KEY else None
        found += [(column.table, column.name)] if inner is None else _parts_of_key(inner)
    return found
