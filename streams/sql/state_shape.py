"""What a query with GROUP BY keeps and gives, as values that cross processes."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import (
    CalendarSpec,
    SessionSpec,
    WindowSpec,
    WindowsSpec,
)
from kafka_pipeline.common.typed_json import as_json, from_json
from kafka_pipeline.streams.sql.arrow_bytes import packed, read, unpacked, write
from kafka_pipeline.streams.sql.columns import with_items
from kafka_pipeline.streams.sql.spec import Prepared

if TYPE_CHECKING:
    from kafka_pipeline.streams.sql.json_fields import JsonFields

HAS_RESULT = "has_result"
"""The column of a merge that says whether HAVING keeps a group, or WHERE one of its best rows."""

PLACE = "__place"
"""The column of a merge with the place of one of the best rows; 0 for the first one of a group."""

MARK = "__mark"
"""The column of a merge with a hash of one of the best rows."""

IS_FORMER = "__is_former"
"""The column of a merge of ranks that tells rows as they were from those that are kept now."""

OPEN_FROM = "__open_from"
"""A column of records: the start of the first window that is still open for the record."""

PERIOD = "__period"
"""A column of records: the period of a calendar that each is in, a struct of `start` and `end`."""

ORDER = "__order"
"""A column of records in sessions: a number that grows from record to record, or stays the same.

Records with one number come in the order of their times.
"""

ROUTES = {"whole": "by their key", "groups": "through an internal topic"}
"""How the records of a group meet, by the stage of the processor that keeps it."""

Reading = Literal["first", "last", "ends", "changes", "list", "set", "versions", "moments"]
"""Which values of a group functions over a changelog see.

| reading | values |
| --- | --- |
| `first`, `last`, `ends` | the smallest one, the largest one, both |
| `changes` | those that the group gets or loses, with 1 or -1 |
| `list`, `set` | all of them, all that differ |
| `versions` | all of them, as they were before the batch and as they are |
| `moments` | none: sums of them are kept |
"""

LIST = "list"
"""What a buffer has that is filled with all values of a group."""

IS_THERE = "true"
"""What a buffer has that says that there is such a list."""

_SCHEMAS = ("groups", "buffers", "values", "output")
_OF_ROWS = ("groups", "window", "functions", "distinct", "best", "ranked", "spark")
"""The parts of a content that rows on their way to another processor are of."""


@dataclass(frozen=True, slots=True)
class StateShape:
    """What a query keeps for each group.

    `groups` are the grouping columns, and `buffers` the aggregation buffers; all names differ.
    `values` are columns of rows that are not kept with a group: lists of distinct values, structs
    of arguments and, at last, a number whose bits say which functions are to see the value.
    `output` are the columns of a result: `value`, `timestamp` (ms), and `key` and `headers` if the
    query gives them. `is_distinct` says that a group has one result, which does not change: that
    of its first record. Over a changelog, it is deleted with the group's last row.

    The following are names of columns, or "" without such a column. `key_column` is the grouping
    column that is the key of the records. `window_column` is the one with the `window`, a struct of
    `start` and `end`. With sessions, rows for records have the one that a record would be alone:
    from its time to the gap later. `order_column` has their `ORDER` then, and 0 in rows that are
    merged. With other windows, `last_time` is the buffer that has the largest timestamp of a
    group's records.

    `best` is how many rows a `row_number()` keeps of a group, and 0 without one. `ranked` is the
    function if the query ranks rows, `rank`, `dense_rank` or a `row_number` that keeps all of them,
    and otherwise "". `loses_rows` says that a result may go while the key to delete is unknown.

    `empty` is a row of buffers: those of a group without records. Over a changelog, `row_count` is
    the buffer with the number of rows of a group; otherwise it is "". There, a value in `values`
    has, at last, its change: 1 or -1 for a row that the group gets or loses. `readings` say which
    values functions see. `fills` has the buffers that the caller fills, by the column of the values
    that they are made of: central moments by their names in `Moments`, or a `LIST` of all values
    and `IS_THERE`. Buffers of functions that see kept values are `computed` each time, and `empty`
    in rows that are kept.

    `content` is JSON that says what bytes are kept: the types of groups, the window, the functions
    with the types of their arguments and buffers, and the version of Spark. It also has, for each
    function, its expression, the number of its buffers (`sizes`), and the type of decimals that it
    takes as whole numbers (`unscaled`). `distinct` has the number of the `values` that each
    function with DISTINCT sees; functions share those of the same arguments. `state_change` says
    whether a query can use a state.

    Over a changelog, `fields_of_json` are the names of the fields of values.
    """

    groups: pa.Schema
    buffers: pa.Schema
    values: pa.Schema
    output: pa.Schema
    window: WindowsSpec | None
    window_column: str
    order_column: str
    last_time: str
    key_column: str
    is_distinct: bool
    best: int
    ranked: str
    loses_rows: bool
    empty: pa.Table
    content: str
    row_count: str = ""
    readings: Mapping[str, Reading] = field(default_factory=dict)
    fills: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    computed: Sequence[str] = field(default_factory=list)
    fields_of_json: Sequence[str] = field(default_factory=list)

    @property
    def has_key(self) -> bool:
        """Whether the records of a group have the same key."""
        return bool(self.key_column)

    @property
    def keys(self) -> pa.Schema:
        """The grouping columns that a group's key in a store has: all but the window and order."""
        others = {self.window_column, self.order_column} - {""}
        return pa.schema([each for each in self.groups if each.name not in others])

    @property
    def kept(self) -> pa.Schema:
        """The types of rows with groups and their buffers."""
        return pa.schema([*self.groups, *self.buffers])

    @property
    def rows(self) -> pa.Schema:
        """The types of rows of a batch, and of those that are merged: with the `values`."""
        return pa.schema([*self.kept, *self.values])

    def without_computed(self, rows: pa.Table) -> pa.Table:
        """Return rows as they are kept, from those that a merge gives."""
        for name in self.computed:
            rows = with_items(rows, name, pa.repeat(self.empty[name][0], len(rows)))
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        schemas = {name: packed(values[name]) for name in _SCHEMAS}
        return {
            **values,
            **schemas,
            "window": as_json(self.window),
            "empty": base64.b64encode(write(self.empty)).decode(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> StateShape:
        """Read what `to_json` gave."""
        schemas = {name: unpacked(values[name]) for name in _SCHEMAS}
        window = from_json(WindowsSpec | None, values["window"], "window")
        empty = read(base64.b64decode(values["empty"]))
        return cls(**{**values, **schemas, "window": window, "empty": empty})


def limit_of(content: str) -> int:
    """Return how many best rows of a group a state with this content keeps; 0 without such rows."""
    best = json.loads(content).get("best")
    return int(best[0]) if best else 0


def row_mark(content: Mapping[str, Any]) -> bytes:
    """Return what rows begin with that a processor sends: 8 bytes of a hash of what they are."""
    parts = {name: content[name] for name in _OF_ROWS if name in content}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).digest()[:8]


def window_content(window: WindowsSpec | None) -> list[int | str]:
    """Return the windows as the content of a state has them."""
    match window:
        case WindowSpec():
            return [1000 * ms for ms in (window.size_ms, window.slide_ms, window.start_ms)]
        case CalendarSpec():
            return [window.period, window.zone]
        case SessionSpec():
            return ["sessions", 1000 * window.gap_ms]
    return []


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge gives.

    `rows` have groups and buffers, to be kept: one row a group. `results` have the columns of a
    result, one row a group, or one for each of its best rows, in the order of groups and places.
    Where `has_result` is false, HAVING leaves the group out, or WHERE the row: `value` and
    `headers` are null, and so is `key` unless it is made of grouping columns and the place.

    `places` are those of results in their group, which begin with 0. `marks` tell the best row of a
    place from others. They are 0 where there is no result, and 1 for groups that have one result.
    `is_former` tells results that ranked rows had before the merge from those that they have now,
    which follow in each group.
    """

    rows: pa.Table
    results: pa.Table
    has_result: npt.NDArray[np.bool_]
    places: npt.NDArray[np.int64]
    marks: npt.NDArray[np.int64]
    is_former: npt.NDArray[np.bool_]

    @property
    def group_of(self) -> npt.NDArray[np.int64]:
        """The index of the group of each result in `rows`."""
        return np.cumsum(self.places == 0) - 1

    @classmethod
    def of(cls, shape: StateShape, merged: pa.Table) -> Merged:
        """Take the table apart that a merge gives."""
        rows = merged.select(range(len(shape.kept)))
        results = merged.select(shape.output.names)
        # HAVING may be null, which is None here.
        has_result = np.asarray(merged[HAS_RESULT]).astype(np.bool_)
        marks = has_result.astype(np.int64)
        places, is_former = np.zeros(len(marks), np.int64), np.zeros(len(marks), np.bool_)
        if shape.ranked:
            is_former = np.asarray(merged[IS_FORMER])
        if shape.best or shape.ranked:
            places = np.asarray(merged[PLACE]).astype(np.int64)
            # An even hash counts as the next odd one, so that none is 0.
            marks *= np.asarray(merged[MARK]) | 1
            rows = rows.filter(pa.array(places == 0))
        return cls(rows, results, has_result, places, marks, is_former)


class PreparedAggregation(Prepared, Protocol):
    """A query with GROUP BY, ready to run."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of records that the query needs.

        With sessions, `ORDER` is one of them; with other windows, `OPEN_FROM` is, and with those of
        a calendar `PERIOD` too.
        """

    @property
    def fields(self) -> JsonFields | None:
        """See `SparkQuery`."""

    @property
    def shape(self) -> StateShape:
        """What the query keeps; it stays the same when lookup tables are read again."""

    def partial(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        """Return the groups of these records with their buffers and values, one row a group.

        `lookups` are those of `SparkQuery.run`.

        With sessions, there is a row for each group, time and `ORDER`. With other windows, a record
        is in none that starts before its `OPEN_FROM`. Raises `QueryError` if a record may be to
        blame, otherwise `SparkLostError`.
        """

    def merge(self, rows: pa.Table) -> pa.Table:
        """Merge rows with groups and buffers, any number of them a group; see `Merged.of`.

        Their `values` are new to their groups, each for the functions that its bits say. Over a
        changelog, they are those of `readings`.
        Rows that were kept come before those of a newer batch: `first`, `last` and the lists depend
        on the order. Raises as `partial` does.
        """
