"""A join of two inputs that Python computes, in place of Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from msgspec import structs

from kafka_pipeline.common.pipelines.specs import JoinSpec
from kafka_pipeline.streams.sql.join_shape import EMPTY, EQUAL, MATCHES, PAIR, RECORD, JoinShape
from kafka_pipeline.streams.sql.over_shape import PreparedOver
from kafka_pipeline.streams.sql.query_text import read_join
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec, SparkQuery
from kafka_pipeline.streams.sql.state_shape import PreparedAggregation

NAMES = ("id", "n", "x")
TYPES = (pa.string(), pa.int32(), pa.int32())


class FakeJoin:
    """Joins inputs with the columns id, n and x.

    Rows meet by `n`, unless they meet by key alone. With a check, the `x` of the left side must be
    smaller. A pair has the ids of both as its key, or that of the left side, if the query says so,
    and perhaps `n`. A negative `x` fails in SELECT.
    """

    def __init__(self, spec: QuerySpec, join: JoinSpec) -> None:
        assert join.regular is not None
        self._by_columns = spec.joined_by != "key"
        by_key = ["key"] if spec.joined_by == "key and columns" else []
        self._only = join.regular.only
        self._key_is_left = "SELECT o.id AS key" in spec.query
        self._key_has_n = ".n) AS key" in spec.query
        is_checked = "p.x > o.x" in spec.query
        decides = bool(join.keeps) or self._only is not None
        self._filters = is_checked and not decides
        left, right = (
            pa.schema([(f"{side}_{name}", type_) for name, type_ in zip(NAMES, TYPES, strict=True)])
            for side in ("left", "right")
        )
        self.columns: tuple[Sequence[str], Sequence[str]] = (("value", RECORD), ("value", RECORD))
        self.fields = (None, None)
        self.shape = JoinShape(
            (left, right),
            structs.replace(join, changing=spec.changing),
            is_checked and decides,
            (NAMES, NAMES),
            pa.schema([(f"{EQUAL}0", pa.int32())]) if self._by_columns else EMPTY,
            [*by_key, "n = n int"] if self._by_columns else [],
        )
        self.calls = 0

    def left(self, records: pa.Table) -> pa.Table:
        rows = self._rows(records, 0)
        kept = [row["left_x"] is None or row["left_x"] < 4 for row in rows.to_pylist()]
        return rows.filter(pa.array(kept, pa.bool_()))

    def right(self, records: pa.Table) -> pa.Table:
        return self._rows(records, 1)

    def matches(self, pairs: pa.Table) -> pa.Table:
        self.calls += 1
        return pa.table({MATCHES: [_smaller(each) for each in pairs.to_pylist()]})

    def results(self, pairs: pa.Table) -> pa.Table:
        self.calls += 1
        rows = [each for each in pairs.to_pylist() if not self._filters or _smaller(each)]
        if any((each[f"{side}_x"] or 0) < 0 for each in rows for side in ("left", "right")):
            raise QueryError("x is negative")
        columns = {
            "key": pa.array([self._key(each) for each in rows], pa.binary()),
            "value": pa.array([self._value(each) for each in rows], pa.binary()),
            "timestamp": pa.array([_ms(each["timestamp"]) for each in rows], pa.int64()),
            PAIR: pa.array([each[PAIR] for each in rows], pa.int64()),
        }
        return pa.table(columns)

    def replace(self, name: str, rows: pa.Table) -> None:
        raise AssertionError("it has no tables")

    def close(self) -> None:
        """Nothing is held."""

    def _rows(self, records: pa.Table, side: int) -> pa.Table:
        schema = self.shape.rows[side]
        values = [json.loads(value) for value in records["value"].to_pylist()]
        columns = [
            pa.array([value.get(name) for value in values], field.type)
            for name, field in zip(NAMES, schema, strict=True)
        ]
        table = pa.Table.from_arrays(columns, schema=schema)
        if self._by_columns:
            table = table.append_column(f"{EQUAL}0", table[schema.names[1]])
        return table.append_column(RECORD, records[RECORD])

    def _key(self, pair: dict[str, Any]) -> bytes | None:
        ids = [pair["left_id"], pair["right_id"]][: 1 if self._key_is_left else 2]
        if self._key_has_n:
            ids += [None if n is None else str(n) for n in (pair["left_n"], pair["right_n"])]
        given = [each for each in ids if each is not None]
        return "-".join(given).encode() if given else None

    def _value(self, pair: dict[str, Any]) -> bytes:
        if self._only is not None:
            return json.dumps({"x": pair["left_x"]}).encode()
        return json.dumps({"x": pair["left_x"], "y": pair["right_x"]}).encode()


class FakeJoins:
    """Queries that are all joins of the inputs that their text names."""

    def __init__(self) -> None:
        self.opened: list[FakeJoin] = []

    def open_join(self, spec: QuerySpec) -> FakeJoin:
        join = read_join(spec.query)
        assert join is not None
        self.opened.append(FakeJoin(spec, join))
        return self.opened[-1]

    def open(self, spec: QuerySpec) -> SparkQuery:
        raise AssertionError("it joins")

    def open_aggregation(self, spec: QuerySpec) -> PreparedAggregation:
        raise AssertionError("it joins")

    def open_over(self, spec: QuerySpec) -> PreparedOver:
        raise AssertionError("it joins")


def _smaller(pair: dict[str, Any]) -> bool | None:
    left, right = pair["left_x"], pair["right_x"]
    return None if left is None or right is None else bool(left < right)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
