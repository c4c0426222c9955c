"""Reads from the text of a join with updates whether its key says which row of the result is which.

Rows that change take results back, by their keys. So a key must tell which row of each such side a
result is of. All results with one key must also be given by one task: otherwise, the deletion of a
former one could come after the new one. Where rows meet by columns, these say which task it is.

All that the key of a stage which joins is made of is as good as that key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlglot.errors import SqlglotError

from kafka_pipeline.common.pipelines.specs import JoinSide, RegularJoinSpec, SqlSpec
from kafka_pipeline.streams.sql.join_columns import KEY, UNKNOWN, Columns, JoinText
from kafka_pipeline.streams.sql.join_shape import SIDES
from kafka_pipeline.streams.sql.query_tree import quiet
from kafka_pipeline.streams.sql.spec import QueryError, quoted
from kafka_pipeline.streams.sql.stage import THERE

_PLACE = ("partition", "offset")
"""The columns that tell the records of an input apart."""

_EXACT = (
    "map('timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSSX', "
    "'timestampNTZFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
)
"""The options of `to_json` with which different times are different text."""


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
            wanted = [*keys.wanted(), *keys.times_of_records()]
            if keys.not_given(wanted):
                return None
            columns = [text.written(*each) for each in wanted]
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
        self.text = JoinText(spec)
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
        lacking = self.not_given([*self.wanted(), *self.times_of_records()])
        if key is None and self._of_records and lacking:
            return lacking
        if key is None:
            return f"gives no column key. {self._advice()}"
        key |= {(side, KEY) for side in self._sides if self._has_parts(side, key)}
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
        parts = self.text.parts(side) if names == [KEY] else {}
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
        never_null = ({KEY}, {*_PLACE})
        return len(self._alone) < 2 or any(
            {*(self._names_of(side) or ())} in never_null for side in self._sides
        )

    def wanted(self) -> list[tuple[int, str]]:
        """Return the columns that the key must have: the side, and the name."""
        found = [(side, name) for side in self._sides for name in self._names_of(side) or ()]
        for side in (self._alone or self._sides[-1:]) if self._stage == "pairs" else ():
            columns = [each for both in self.text.equal for each in sorted(both[side] - UNKNOWN)]
            found += [(side, name) for _, name in columns]
        return [*dict.fromkeys(found)]

    def not_given(self, columns: Sequence[tuple[int, str]]) -> str:
        """Return what is wrong with a subquery that lacks some columns of its side; "" if none."""
        for side in self._sides:
            names = [name for of, name in columns if of == side]
            names = [name for name in names if self.text.called(side, name) is None]
            if names:
                alias = self.text.aliases[side]
                return (
                    f"joins {alias}, which does not give {' and '.join(names)}, and the rows are "
                    f"told apart by these: add them to what {alias} selects"
                )
        return ""

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
            parts = self.text.parts(side) if name == KEY else {}
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
