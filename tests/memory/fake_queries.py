"""The queries of `sql_plans`, computed by Python in the place of Spark, for thousands of batches.

What they are is taken from the plan. All else is the engine's: what is kept, and what time does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import JoinSpec, SessionSpec, WindowSpec
from kafka_pipeline.streams.sql.columns import MOMENT, moments, times_at
from kafka_pipeline.streams.sql.join_shape import EMPTY, EQUAL, PAIR, JoinShape
from kafka_pipeline.streams.sql.join_shape import RECORD as OF_RECORD
from kafka_pipeline.streams.sql.over_shape import IS_DUE, PLACE, OverShape
from kafka_pipeline.streams.sql.query_text import read_join
from kafka_pipeline.streams.sql.spec import VISIBLE_FROM, VISIBLE_UNTIL, QuerySpec
from kafka_pipeline.streams.sql.state_shape import (
    HAS_RESULT,
    MARK,
    OPEN_FROM,
    ORDER,
    StateShape,
)
from kafka_pipeline.streams.sql.state_shape import PLACE as PLACE_OF_BEST
from tests.memory.sql_plans import BEST, DROPPED, Grouping, Passing, SqlPlan
from tests.user_code.timed_windows import ROWS

_OUTPUT = pa.schema([("value", pa.binary()), ("timestamp", pa.int64()), ("key", pa.binary())])
_WINDOW = pa.struct([("start", MOMENT), ("end", MOMENT)])
_STAGE = re.compile(r"`[^`]*`(?: AS first)?")


class _Record(NamedTuple):
    key: str
    k: int
    ids: list[str]
    time_ms: int


class FakeQueries:
    """The queries of a plan."""

    def __init__(self, plan: SqlPlan) -> None:
        self._meanings = plan.meanings

    def while_waiting(self, _: Callable[[], None]) -> FakeQueries:
        """Return the queries: planning one takes no time."""
        return self

    def open(self, spec: QuerySpec) -> _FakeQuery:
        return _FakeQuery(self._meaning(spec))

    def open_aggregation(self, spec: QuerySpec) -> _FakeGroups:
        return _FakeGroups(self._meaning(spec))

    def open_join(self, spec: QuerySpec) -> _FakeJoin:
        join = read_join(spec.query)
        assert join is not None
        return _FakeJoin(join, has_columns=spec.joined_by is not None)

    def open_over(self, spec: QuerySpec) -> _FakeFrames:
        return _FakeFrames(self._meaning(spec))

    def _meaning(self, spec: QuerySpec) -> Any:
        return self._meanings[_STAGE.sub("input", spec.query)]


class _Fake:
    """The base of all of them."""

    columns: Any = ("key", "value", "timestamp")
    fields: Any = None
    split = None

    def replace(self, name: str, rows: pa.Table) -> None:
        raise AssertionError("it has no global tables")

    def close(self) -> None:
        """Nothing is held."""


class _FakeQuery(_Fake):
    """A query of single records."""

    def __init__(self, meaning: Passing) -> None:
        self._meaning = meaning

    def parts(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        raise AssertionError("its results are not split")

    def run(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        found = []
        for each in _records(table):
            k, ids = each.k, each.ids
            match self._meaning.name:
                case "filter" if int(ids[0]) % DROPPED == 0:
                    continue
                case "fewer":
                    k %= self._meaning.keys
                case "lookup":
                    ids = [f"{ids[0]}+{_row_of(each, lookups[ROWS])}"]
            found.append(_result(k, ids, each.time_ms))
        return _output(found)


def _row_of(record: _Record, rows: pa.Table) -> str:
    """Return the id of the row that a record finds."""
    for row in rows.to_pylist():
        since, until = (_ms(row.get(name)) for name in (VISIBLE_FROM, VISIBLE_UNTIL))
        is_visible = (since or 0) <= record.time_ms and (until is None or record.time_ms < until)
        if row["key"] == record.key and is_visible:
            found: str = json.loads(row["value"])["ids"][0]
            return found
    return "-"


class _Group(NamedTuple):
    """A group, and what its buffers have: lists of ids, and the last time."""

    key: str
    start: int
    end: int
    rows: list[list[str]]
    last: int
    order: int = 0


class _FakeGroups(_Fake):
    """A query with groups."""

    def __init__(self, meaning: Grouping) -> None:
        self._meaning = meaning
        window = meaning.window
        self._is_session = isinstance(window, SessionSpec)
        groups = [pa.field("g", pa.string())]
        if window is not None:
            groups.append(pa.field("window", _WINDOW))
        if self._is_session:
            groups.append(pa.field("order", pa.int64()))
        buffers = pa.schema([("rows", pa.string()), ("last", MOMENT)])
        self.columns = (*_Fake.columns, ORDER if self._is_session else OPEN_FROM)
        if window is None:
            self.columns = _Fake.columns
        content = {
            "groups": ["string"],
            "window": repr(window),
            "functions": ["ids", "last"],
            "expressions": ["ids", "last"],
            "sizes": [1, 1],
            "unscaled": ["", ""],
            "spark": "4.0",
            **({"best": [BEST]} if meaning.kind == "best" else {}),
        }
        self.shape = StateShape(
            groups=pa.schema(groups),
            buffers=buffers,
            values=pa.schema([]),
            output=_OUTPUT,
            window=window,
            window_column="" if window is None else "window",
            order_column="order" if self._is_session else "",
            last_time="last" if isinstance(window, WindowSpec) else "",
            key_column="g" if meaning.keyed else "",
            is_distinct=meaning.kind == "distinct",
            best=BEST if meaning.kind == "best" else 0,
            ranked="",
            loses_rows=False,
            empty=pa.table({"rows": ["[]"], "last": moments([0])}, schema=buffers),
            content=json.dumps(content),
        )

    def partial(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        extra = [0] * len(table)
        if ORDER in self.columns:
            extra = table[ORDER].to_pylist()
        elif OPEN_FROM in self.columns:
            extra = times_at(table[OPEN_FROM]).tolist()
        found: dict[tuple[str, int, int], _Group] = {}
        for each, known in zip(_records(table), extra, strict=True):
            g = each.key if self._meaning.keyed else str(each.k % self._meaning.keys)
            for start, end in self._windows(each.time_ms, known):
                order = known if self._is_session else 0
                _add(found, _Group(g, start, end, [each.ids], each.time_ms, order))
        return self._table(map(self._limited, found.values()))

    def merge(self, rows: pa.Table) -> pa.Table:
        found: dict[tuple[str, int, int], _Group] = {}
        for each in rows.to_pylist():
            start, end = 0, 0
            if self.shape.window is not None:
                start, end = (_ms(each["window"][name]) or 0 for name in ("start", "end"))
            last = _ms(each["last"]) or 0
            _add(found, _Group(each["g"], start, end, json.loads(each["rows"]), last))
        groups, results, places = list[_Group](), [], []
        for group in map(self._limited, found.values()):
            for place, result in enumerate(self._results(group)):
                groups.append(group)
                results.append(result)
                places.append(place)
        merged = self._table(groups)
        for name, column in zip(_OUTPUT.names, _output(results).columns, strict=True):
            merged = merged.append_column(name, column)
        merged = merged.append_column(HAS_RESULT, pa.array([True] * len(groups), pa.bool_()))
        if self.shape.best:
            merged = merged.append_column(PLACE_OF_BEST, pa.array(places, pa.int64()))
            marks = [hash(result[0]) >> 1 for result in results]
            merged = merged.append_column(MARK, pa.array(marks, pa.int64()))
        return merged

    def _windows(self, time: int, open_from: int) -> Iterator[tuple[int, int]]:
        match self.shape.window:
            case WindowSpec(size_ms=size, slide_ms=slide):
                start = time - time % slide
                while start >= open_from and start + size > time:
                    yield start, start + size
                    start -= slide
            case SessionSpec(gap_ms=gap):
                yield time, time + gap
            case _:
                yield 0, 0

    def _limited(self, group: _Group) -> _Group:
        if self._meaning.kind == "distinct":
            return group._replace(rows=[])
        if self._meaning.kind == "best":
            return group._replace(rows=sorted(group.rows)[:BEST])
        return group

    def _results(self, group: _Group) -> Iterator[tuple[bytes, int, bytes]]:
        k = int(group.key)
        ids = sorted(id_ for row in group.rows for id_ in row)
        match self._meaning.kind:
            case "best":
                for row in group.rows:
                    yield _result(k, row, group.last)
            case "distinct":
                yield _result(k, [group.key], group.start)
            case "updates":
                yield _result(k, ids, group.last, f"{k}|{group.start}")
            case _:
                yield _result(k, ids, group.last)

    def _table(self, groups: Iterable[_Group]) -> pa.Table:
        found = list(groups)
        starts, ends = moments([g.start for g in found]), moments([g.end for g in found])
        columns = {
            "g": pa.array([g.key for g in found], pa.string()),
            "window": pa.StructArray.from_arrays([starts, ends], ["start", "end"]),
            "order": pa.array([g.order for g in found], pa.int64()),
            "rows": pa.array([json.dumps(g.rows) for g in found], pa.string()),
            "last": moments([g.last for g in found]),
        }
        return pa.Table.from_arrays(
            [columns[name] for name in self.shape.kept.names], schema=self.shape.kept
        )


def _add(found: dict[tuple[str, int, int], _Group], group: _Group) -> None:
    place = group.key, group.start, group.order or group.end
    known = found.get(place)
    if known is not None:
        rows, last = known.rows + group.rows, max(known.last, group.last)
        group = group._replace(rows=rows, last=last)
    found[place] = group


class _FakeFrames(_Fake):
    """A query with the ids of the rows before each record."""

    columns = ("key", "value", "timestamp", "partition", "offset")

    def __init__(self, meaning: Grouping) -> None:
        self._meaning = meaning
        rows = pa.schema([("g", pa.string()), ("ids", pa.string())])
        key = "g" if meaning.keyed else None
        self.shape = OverShape(rows, 1, 0, meaning.size_ms, ["g string", "ids string"], key)

    def rows(self, records: pa.Table) -> pa.Table:
        found = list(_records(records))
        keys = [
            each.key if self._meaning.keyed else str(each.k % self._meaning.keys) for each in found
        ]
        ids = pa.array([json.dumps(each.ids) for each in found], pa.string())
        table = pa.table({"g": pa.array(keys, pa.string()), "ids": ids})
        for name in ("timestamp", "partition", "offset"):
            table = table.append_column(name, records[name])
        return table

    def results(self, rows: pa.Table) -> pa.Table:
        given = [(each["g"], _ms(each["timestamp"]) or 0, each) for each in rows.to_pylist()]
        results, places = [], []
        for g, time, each in given:
            if not each[IS_DUE]:
                continue
            frame = sorted(
                id_
                for other, at, row in given
                if other == g and time - self._meaning.size_ms <= at <= time
                for id_ in json.loads(row["ids"])
            )
            results.append(_result(int(g), frame, time))
            places.append(each[PLACE])
        return _output(results).append_column(PLACE, pa.array(places, pa.int64()))


class _FakeJoin(_Fake):
    """A join by key, or by the column `k`."""

    columns = (("value", OF_RECORD), ("value", OF_RECORD))
    fields = (None, None)

    def __init__(self, join: JoinSpec, *, has_columns: bool) -> None:
        left, right = (
            pa.schema([(f"{side}_k", pa.int32()), (f"{side}_id", pa.string())]) for side in "lr"
        )
        names = ("k int", "id string")
        self._has_columns = has_columns
        equal = pa.schema([(f"{EQUAL}0", pa.int32())]) if has_columns else EMPTY
        shape = (left, right), join, False, (names, names), equal
        self.shape = JoinShape(*shape, ["k = k int"] if has_columns else [])
        self._gives_pair_as_key = join.regular is not None and bool(join.keeps)

    def left(self, records: pa.Table) -> pa.Table:
        return self._rows(records, 0)

    def right(self, records: pa.Table) -> pa.Table:
        return self._rows(records, 1)

    def matches(self, pairs: pa.Table) -> pa.Table:
        raise AssertionError("there are no further conditions")

    def results(self, pairs: pa.Table) -> pa.Table:
        results = []
        for each in pairs.to_pylist():
            k = each["r_k"] if each["l_k"] is None else each["l_k"]
            id_ = f"{each['l_id'] or '-'}+{each['r_id'] or '-'}"
            key = id_ if self._gives_pair_as_key else None
            results.append(_result(k, [id_], _ms(each["timestamp"]) or 0, key))
        return _output(results).append_column(PAIR, pairs[PAIR])

    def _rows(self, records: pa.Table, side: int) -> pa.Table:
        values = [json.loads(value) for value in records["value"].to_pylist()]
        columns = [
            pa.array([each["k"] for each in values], pa.int32()),
            pa.array([each["ids"][0] for each in values], pa.string()),
        ]
        table = pa.Table.from_arrays(columns, schema=self.shape.rows[side])
        if self._has_columns:
            table = table.append_column(f"{EQUAL}0", columns[0])
        return table.append_column(OF_RECORD, records[OF_RECORD])


def _records(table: pa.Table) -> Iterator[_Record]:
    times = times_at(table["timestamp"]).tolist()
    for key, value, time in zip(
        table["key"].to_pylist(), table["value"].to_pylist(), times, strict=True
    ):
        found = json.loads(value)
        yield _Record(key, found["k"], found["ids"], time)


def _result(
    k: int, ids: Sequence[str], time: int, key: str | None = None
) -> tuple[bytes, int, bytes]:
    value = json.dumps({"k": k, "ids": list(ids)})
    return value.encode(), time, (str(k) if key is None else key).encode()


def _output(results: Sequence[tuple[bytes, int, bytes]]) -> pa.Table:
    columns = zip(*results, strict=True) if results else ([], [], [])
    arrays = [pa.array(c, f.type) for c, f in zip(columns, _OUTPUT, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_OUTPUT)


def _ms(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)
