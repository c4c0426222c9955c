"""The values that functions with DISTINCT have seen, in stores."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from kafka_pipeline.common.pipelines.specs import GroupingSpec, WindowSpec
from kafka_pipeline.streams.sql import kept_distinct
from kafka_pipeline.streams.sql.group_codec import Groups
from kafka_pipeline.streams.sql.kept_distinct import (
    DistinctOfTable,
    DistinctOfWindows,
    KeptDistinct,
    in_parts,
)
from tests.unit.streams.sql.folding import distinct_store, rows_with_values, shape_of_values

NUMBER = pa.list_(pa.struct([("_0", pa.int64()), ("_1", pa.int64())]))
TEXTS = pa.list_(pa.struct([("_0", pa.string()), ("_1", pa.string()), ("_2", pa.int64())]))
SHAPE = shape_of_values({"numbers": NUMBER, "texts": TEXTS})
HOUR_MS = 3_600_000

Row = tuple[str, Sequence[tuple[Any, ...]], Sequence[tuple[Any, ...]]]


def rows_of(rows: Sequence[Row]) -> pa.Table:
    """Return rows of groups, each with its numbers and its texts."""
    return rows_with_values(SHAPE, rows)


def groups_of(rows: pa.Table, start: int = 0) -> Groups:
    keys = [key.encode() for key in rows["g"].to_pylist()]
    return Groups(keys, [start] * len(keys), [b""] * len(keys))


def values_in(rows: pa.Table) -> list[Row]:
    return [
        (
            row["g"],
            [tuple(value.values()) for value in row["numbers"]],
            [tuple(value.values()) for value in row["texts"]],
        )
        for row in rows.to_pylist()
    ]


def kept(grouping: GroupingSpec) -> tuple[KeptDistinct, Any]:
    """Return what keeps the values, and its store."""
    context, store = distinct_store(grouping)
    if grouping.window is None:
        return DistinctOfTable(SHAPE, context), store
    return DistinctOfWindows(SHAPE, context), store


TABLE = GroupingSpec(keeps_distinct=True)
HOURS = GroupingSpec(
    window=WindowSpec(size_ms=HOUR_MS, slide_ms=HOUR_MS), grace_ms=HOUR_MS, keeps_distinct=True
)


@pytest.mark.parametrize("grouping", [TABLE, HOURS], ids=["table", "windows"])
def test_each_function_of_a_group_sees_a_value_once(grouping: GroupingSpec) -> None:
    found, _ = kept(grouping)
    rows = rows_of(
        [
            ("a", [(1, 0b01), (1, 0b10), (2, 0b11)], [("x", "y", 1), ("x", None, 1)]),
            ("b", [(1, 0b01)], []),
            ("a", [(1, 0b11), (3, 0b01)], [("xy", "", 1)]),
        ]
    )
    assert values_in(found.unseen(rows, groups_of(rows))) == [
        ("a", [(1, 0b01), (1, 0b10), (2, 0b11)], [("x", "y", 1), ("x", None, 1)]),
        ("b", [(1, 0b01)], []),
        ("a", [(3, 0b01)], [("xy", "", 1)]),
    ]
    later = rows_of([("b", [(1, 0b11), (None, 0b01)], []), ("a", [(3, 0b01)], [("x", "y", 1)])])
    assert values_in(found.unseen(later, groups_of(later))) == [
        ("b", [(1, 0b10), (None, 0b01)], []),
        ("a", [], []),
    ]


def test_no_rows_are_no_rows() -> None:
    found, _ = kept(TABLE)
    rows = rows_of([("a", [], [])]).slice(0, 0)
    assert found.unseen(rows, groups_of(rows)) == rows


def test_groups_are_told_apart_whatever_their_bytes() -> None:
    found, _ = kept(TABLE)
    chance, model = random.Random(1), defaultdict[tuple[str, int], set[Any]](set)
    for _ in range(50):
        rows = rows_of(
            [
                (
                    "".join(chance.choices("\0\1a", k=chance.randrange(3))),
                    [(chance.randrange(4), 1) for _ in range(2)],
                    [(chance.choice(["", "\0", "a"]), chance.choice(["", "a"]), 1)],
                )
                for _ in range(3)
            ]
        )
        for (key, *new), (_, *given) in zip(
            values_in(found.unseen(rows, groups_of(rows))), values_in(rows), strict=True
        ):
            for number, (some, every) in enumerate(zip(new, given, strict=True)):
                seen = model[key, number]
                wanted = []
                for each in every:
                    if each not in seen:
                        wanted.append(each)
                        seen.add(each)
                assert some == wanted


def test_values_of_a_window_go_with_it() -> None:
    """Not those of another window of the group."""
    found, store = kept(HOURS)
    rows = rows_of([("a", [(1, 1)], [])])
    assert values_in(found.unseen(rows, groups_of(rows, 0)))[0][1] == [(1, 1)]
    assert values_in(found.unseen(rows, groups_of(rows, HOUR_MS)))[0][1] == [(1, 1)]
    assert values_in(found.unseen(rows, groups_of(rows, HOUR_MS)))[0][1] == []
    with store.all() as entries:
        assert [key.window.start for key, _ in entries] == [0, HOUR_MS]
    late_ms = 100 * HOUR_MS
    found.unseen(rows, groups_of(rows, late_ms))
    with store.all() as entries:
        assert [key.window.start for key, _ in entries] == [late_ms]


def test_rows_with_many_values_become_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_distinct, "MOST_VALUES", 2)
    numbers = [(number, 1) for number in range(5)]
    rows = rows_of([("a", numbers, [("x", "y", 1)]), ("b", [], []), ("c", numbers[:2], [])])
    parts, of_row = in_parts(rows, SHAPE)
    assert values_in(parts) == [
        ("a", numbers[:2], [("x", "y", 1)]),
        ("a", numbers[2:4], []),
        ("a", numbers[4:], []),
        ("b", [], []),
        ("c", numbers[:2], []),
    ]
    assert parts["c"].to_pylist() == [1, 0, 0, 1, 1]
    assert of_row.tolist() == [0, 0, 0, 1, 2]
