"""What a join of two inputs keeps and gives, as values that cross processes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, get_args

import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import JoinSide, JoinSpec
from kafka_pipeline.common.typed_json import as_json, from_json
from kafka_pipeline.streams.sql.arrow_bytes import packed, unpacked
from kafka_pipeline.streams.sql.spec import Prepared, StateChange
from kafka_pipeline.streams.sql.state_change import is_wider, widened

if TYPE_CHECKING:
    from kafka_pipeline.streams.sql.json_fields import JsonFields

RECORD = "__record"
"""A column of records, and of the rows that stem from them: the number of the record."""

PAIR = "__pair"
"""A column of pairs, and of their results: the number of the pair."""

EQUAL = "__equal"
"""What the columns of a side's rows begin with that must be equal on both sides of a join."""

MATCHES = "matches"
"""The one column of what says which pairs meet the condition of a join."""

EMPTY = pa.schema([])

SIDES: tuple[JoinSide, ...] = get_args(JoinSide)


@dataclass(frozen=True, slots=True)
class JoinShape:
    """What a join keeps of a record of each side, and how Spark reads the query.

    `rows` has the types of the rows of both sides. If `is_checked`, pairs with the same key and
    times within the bounds may still not meet the condition, and `PreparedJoin.matches` says which
    do. `columns` says what is kept, for each side: two queries can use the same state if it is the
    same. `equal` has the types of the columns by which the rows of a regular join meet, and
    `equal_columns` says which they are; none if these meet by key alone. If they meet by key and
    columns, its first is `key`, which `equal` does not have. Where sides change, `reading` has all
    that decides which rows and results a record gives: a row is taken out as it is computed then.
    There, `fields_of_json` are the names of the fields of each side's values.
    """

    rows: tuple[pa.Schema, pa.Schema]
    join: JoinSpec
    is_checked: bool
    columns: tuple[Sequence[str], Sequence[str]]
    equal: pa.Schema = EMPTY
    equal_columns: Sequence[str] = ()
    reading: Sequence[Any] = ()
    fields_of_json: tuple[Sequence[str], Sequence[str]] = ((), ())

    @property
    def pairs(self) -> pa.Schema:
        """The types of pairs: the rows of both sides, the later time and the number."""
        left, right = self.rows
        time = pa.field("timestamp", pa.timestamp("us", tz="UTC"))
        return pa.schema([*left, *right, time, pa.field(PAIR, pa.int64())])

    @property
    def content(self) -> str:
        """JSON that says what is kept."""
        content: dict[str, Any] = {"keeps": self.join.keeps}
        for side, columns in zip(SIDES, self.columns, strict=True):
            content[side] = list(columns)
        if self.join.regular is not None:
            content["regular"] = [self.join.regular.only or "", *self.equal_columns]
        if self.join.changing:
            content["changing"] = list(self.join.changing)
            content["reading"] = list(self.reading)
        return json.dumps(content, sort_keys=True)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "rows": [packed(each) for each in self.rows],
            "join": as_json(self.join),
            "is_checked": self.is_checked,
            "columns": [list(each) for each in self.columns],
            "equal": packed(self.equal),
            "equal_columns": list(self.equal_columns),
            "reading": list(self.reading),
            "fields_of_json": [list(each) for each in self.fields_of_json],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> JoinShape:
        """Read what `to_json` gave."""
        left, right = map(unpacked, values["rows"])
        of_left, of_right = map(tuple, values["fields_of_json"])
        join = from_json(JoinSpec, values["join"], "join")
        return cls(
            (left, right),
            join,
            values["is_checked"],
            tuple(values["columns"]),
            unpacked(values["equal"]),
            tuple(values["equal_columns"]),
            tuple(values["reading"]),
            (of_left, of_right),
        )


def join_change(join: JoinSpec, kept: str, wanted: str) -> StateChange:
    """Compare the content of a state with that of a query; decimals may get more digits."""
    before, now = json.loads(kept), json.loads(wanted)
    changed = declared_join_difference(join, kept)
    if any(side not in before for side in SIDES):
        return StateChange(changed)
    names = {"left": join.left, "right": join.right}
    meet_by = before.get("regular", [])[1:], now.get("regular", [])[1:]
    if not changed and meet_by[0] != meet_by[1]:
        changed = f"its rows met by {_by(meet_by[0])}, and now meet by {_by(meet_by[1])}"
    if not changed and before.get("reading") != now.get("reading"):
        changed = (
            "its inputs are updates, so the text of the query, the schema, the types of a stage "
            "and the time zone must stay: rows that were kept under the former ones could not be "
            "taken out again"
        )
    columns = [
        f"of {names[side]}, it has the columns {', '.join(before[side])}, and now "
        f"{', '.join(now[side])} are needed"
        for side in SIDES
        if len(before[side]) != len(now[side])
        or not all(is_wider(*both, "row") for both in zip(before[side], now[side], strict=True))
    ]
    if different := "; ".join(filter(None, [*columns, changed])):
        return StateChange(different)
    pairs = [both for side in SIDES for both in zip(before[side], now[side], strict=True)]
    return StateChange(converted=widened(pairs))


def _by(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "the keys of both"


def declared_join_difference(join: JoinSpec, kept: str) -> str:
    """Return what pipeline.yaml alone shows to differ from a content that was kept; "" if nothing.

    The rest, such as the columns that are kept, only Spark knows.
    """
    before = json.loads(kept)
    if any(side not in before for side in SIDES):
        return "it was kept for groups, and not for a join"
    if ("regular" in before) != (join.regular is not None):
        return f"the join was one {'without' if 'regular' in before else 'with'} bounds of time"
    only = before.get("regular", [""])[0]
    wanted = "" if join.regular is None else join.regular.only or ""
    if tuple(before["keeps"]) != tuple(join.keeps) or only != wanted:
        return "the kind of the join (INNER, LEFT, RIGHT, FULL, SEMI or ANTI) was another one"
    if tuple(before.get("changing", ())) != tuple(join.changing):
        return (
            f"it was kept for a join in which {_changing(join, before.get('changing', ()))}, and "
            f"now {_changing(join, join.changing)}"
        )
    return ""


def _changing(join: JoinSpec, sides: Sequence[str]) -> str:
    names = {"left": join.left, "right": join.right}
    found = dict.fromkeys(names[side] for side in sides)
    return f"{' and '.join(found) or 'no input'} had updates, each in place of a former record"


class PreparedJoin(Prepared, Protocol):
    """A query with a join of two inputs, ready to run.

    All calls raise `QueryError` if a record may be to blame, otherwise `SparkLostError`.
    """

    @property
    def columns(self) -> tuple[Sequence[str], Sequence[str]]:
        """The columns of records that the query needs of each side; `RECORD` is among them."""

    @property
    def fields(self) -> tuple[JsonFields | None, JsonFields | None]:
        """See `SparkQuery`, for each side."""

    @property
    def shape(self) -> JoinShape:
        """What the query keeps; it stays the same when lookup tables are read again."""

    def left(self, records: pa.Table) -> pa.Table:
        """Return the rows of records of the left input: the columns of the shape, and `RECORD`.

        They also have those of `JoinShape.equal`.
        """

    def right(self, records: pa.Table) -> pa.Table:
        """Return the rows of records of the right input."""

    def matches(self, pairs: pa.Table) -> pa.Table:
        """Return `MATCHES` for each pair."""

    def results(self, pairs: pa.Table) -> pa.Table:
        """Return what `SparkQuery.run` returns, and the `PAIR` that each result stems from.

        A query that `gives_columns` returns those of the next stage instead, with a time as its
        `timestamp`, unless they must be JSON. The columns of a side are null for a row without a
        partner there.
        """
