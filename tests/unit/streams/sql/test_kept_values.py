"""The values of the rows of a changelog, in a store and in their order."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from kafka_pipeline.common.pipelines.specs import GroupingSpec
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.sql.group_codec import Groups
from kafka_pipeline.streams.sql.kept_values import KeptValues
from kafka_pipeline.streams.sql.moments import Moments, products_for
from kafka_pipeline.streams.sql.sort_keys import SortKeys
from kafka_pipeline.streams.sql.state_shape import Reading
from kafka_pipeline.streams.sql.state_stores import VALUES, state_stores
from tests.unit.streams.sql.folding import rows_with_values, shape_of_values

NUMBERS = pa.list_(pa.struct([("_0", pa.int64()), ("_1", pa.int64())]))
PAIRS = pa.list_(pa.struct([("_0", pa.int64()), ("_1", pa.string()), ("_2", pa.int64())]))
SHAPE = shape_of_values({"numbers": NUMBERS, "pairs": PAIRS}, {"numbers": "ends", "pairs": "last"})

Row = tuple[str, Sequence[tuple[Any, ...]], Sequence[tuple[Any, ...]]]


def changed(kept: KeptValues, rows: Sequence[Row]) -> list[Row]:
    """Change values; return the rows of groups with their numbers and pairs."""
    table = rows_with_values(SHAPE, rows)
    keys = [group.encode() for group, *_ in rows]
    found = kept.changed(table, Groups(keys, [0] * len(keys), [b""] * len(keys)))
    return [
        (
            row["g"],
            [tuple(value.values()) for value in row["numbers"]],
            [tuple(value.values()) for value in row["pairs"]],
        )
        for row in found.to_pylist()
    ]


def opened(readings: Mapping[str, Reading] = SHAPE.readings) -> tuple[KeptValues, Any]:
    """Return what keeps values, and its store."""
    builders = state_stores(GroupingSpec(keeps_values=True))
    (builder,) = (each for each in builders if each.name == VALUES)
    store: Any = builder.build(builder.open_in_memory())
    context = SimpleNamespace(get_state_store={VALUES: store}.__getitem__)
    shape = replace(SHAPE, readings=readings)
    return KeptValues(shape, cast("ProcessorContext", context)), store


def test_ends_are_in_the_first_row_of_each_group() -> None:
    kept, _ = opened()
    assert changed(
        kept,
        [("a", [(5, 1), (3, 1)], [(1, "x", 1)]), ("b", [], []), ("a", [(4, 1)], [(9, "w", 1)])],
    ) == [("a", [(3, 1), (5, 1)], [(1, "x", 1)]), ("b", [], []), ("a", [], [])]
    assert changed(kept, [("a", [(5, -1), (3, -1), (3, 1)], [(1, "x", -1)])]) == [
        ("a", [(3, 1), (4, 1)], [(9, "w", 1)])
    ]


def test_a_value_may_be_taken_out_before_it_comes_in() -> None:
    kept, store = opened()
    assert changed(kept, [("a", [(5, -1), (3, 1)], [])]) == [("a", [(3, 1), (3, 1)], [])]
    assert changed(kept, [("a", [(5, 1)], [])]) == [("a", [(3, 1), (3, 1)], [])]
    assert changed(kept, [("a", [(3, -1)], [])]) == [("a", [], [])]
    with store.all() as entries:
        assert [*entries] == []


def test_the_store_is_searched_only_if_an_end_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search from the beginning passes what RocksDB has left of all values that are gone."""
    kept, store = opened()
    searched: list[str] = []
    for name in ("range", "reverse_range", "prefix_scan"):
        search = getattr(store, name)

        def seen(*bounds: Any, name: str = name, search: Any = search) -> Any:
            searched.append(name)
            return search(*bounds)

        monkeypatch.setattr(store, name, seen)
    changed(kept, [("a", [(5, 1), (9, 1), (7, 1)], [])])
    for number in range(4, 0, -1):
        changed(kept, [("a", [(number, 1), (number + 1, -1)], [])])
    assert searched == []
    assert changed(kept, [("a", [(1, -1), (8, 1)], [])]) == [("a", [(7, 1), (9, 1)], [])]
    assert searched == ["range"]
    assert changed(kept, [("a", [(9, -1)], [])]) == [("a", [(7, 1), (8, 1)], [])]
    assert searched == ["range", "reverse_range"]


DOUBLES = [0.1, -0.3, 5e-324, 1e308, -1.5e300, 3.0, 2.0**60, float("nan"), float("-inf"), 0.0]


def test_moments_are_those_of_the_rows_that_are_left() -> None:
    """Correctly rounded, whatever was taken out."""
    products = products_for(["0000", "01", "11"])
    chance = random.Random(2)
    rows, stored = list[tuple[float, float]](), None
    for _ in range(400):
        sums = Moments(products, stored)
        if rows and chance.random() < 0.48:
            sums.add(rows.pop(chance.randrange(len(rows))), -1)
        else:
            rows.append((chance.choice(DOUBLES), chance.choice(DOUBLES)))
            sums.add(rows[-1], 1)
        stored = sums.stored()
        assert (stored is None) == (not rows)
        for moment in ("00", "01", "11", "000", "0000"):
            wanted = exactly(rows, [int(each) for each in moment])
            found = sums.central(moment)
            assert found == wanted or (math.isnan(found) and math.isnan(wanted))
        assert sums.central("") == len(rows)


def exactly(rows: Sequence[tuple[float, ...]], factors: Sequence[int]) -> float:
    if not all(math.isfinite(value) for row in rows for value in row):
        return math.nan
    total = Fraction(0)
    means = [sum((Fraction(row[at]) for row in rows), Fraction(0)) for at in (0, 1)]
    for row in rows:
        total += math.prod(Fraction(row[at]) - means[at] / len(rows) for at in factors)
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def test_functions_with_distinct_see_what_a_group_gets_and_loses() -> None:
    kept, _ = opened({"numbers": "changes", "pairs": "last"})
    new, twice = [(5, 1), (3, 1), (3, 1)], [(3, -1), (5, -1), (7, -1)]
    assert changed(kept, [("a", new, []), ("b", [(3, 1)], []), ("a", [(5, 1), (4, -1)], [])]) == [
        ("a", [(5, 1), (3, 1)], []),
        ("b", [(3, 1)], []),
        ("a", [], []),
    ]
    assert changed(kept, [("a", twice, [])]) == [("a", [], [])]
    assert changed(kept, [("a", [*twice[:2], (7, 1), (4, 1), (4, 1)], [])]) == [
        ("a", [(3, -1), (5, -1), (4, 1)], [])
    ]
    assert [kept.has_some(key) for key in (b"a", b"b", b"")] == [True, True, False]
    assert changed(kept, [("a", [(4, -1)], [])]) == [("a", [(4, -1)], [])]
    assert [kept.has_some(key) for key in (b"a", b"b")] == [False, True]


def test_ends_are_those_of_the_rows_that_are_left() -> None:
    """Whatever the bytes of groups and values are."""
    kept, _ = opened()
    chance = random.Random(1)
    numbers, pairs = (defaultdict[str, Counter[Any]](Counter) for _ in range(2))
    for _ in range(300):
        group = "".join(chance.choices("\0\1a", k=chance.randrange(3)))
        number = chance.randrange(-300, 300, 7)
        pair = chance.randrange(3), "".join(chance.choices("\0\1aÿ", k=chance.randrange(4)))
        rows = [(number, 1)], [(*pair, 1)]
        numbers[group][number] += 1
        pairs[group][pair] += 1
        for model, given in ((numbers, rows[0]), (pairs, rows[1])):
            if chance.random() < 0.9:
                lost = chance.choice([*model[group]])
                model[group][lost] -= 1
                model[group] += Counter()
                given.append((*lost, -1) if isinstance(lost, tuple) else (lost, -1))
        ((_, ends, last),) = changed(kept, [(group, *rows)])
        own = numbers[group]
        assert ends == ([(min(own), 1), (max(own), 1)] if own else [])
        greatest = max((text for _, text in pairs[group]), default=None)
        assert [text for _, text, _ in last] == ([] if greatest is None else [greatest])


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.bool_(), [False, True]),
        (pa.int8(), [-128, -1, 0, 1, 127]),
        (pa.int64(), [-(2**63), -256, -255, -1, 0, 255, 256, 2**63 - 1]),
        (pa.float32(), [float("-inf"), -1e30, -0.5, 0.0, 1e-40, 2.0, float("inf"), float("nan")]),
        (pa.float64(), [float("-inf"), -1e300, -0.5, 0.0, 2.0, float("inf"), float("nan")]),
        (pa.decimal128(38, 2), [*map(Decimal, ("-1e30", "-0.01", "0", "2.55", "2.56", "1e30"))]),
        (pa.date32(), [date(1969, 12, 31), date(1970, 1, 1), date(2026, 1, 1)]),
        (pa.timestamp("us", "UTC"), [-1, 0, 1, 2**40]),
        (pa.string(), ["", "\0", "\0\0", "\0a", "a", "a\0", "a\0b", "aa", "b", "ÿ", "\U0001f600"]),
        (pa.binary(), [b"", b"\0", b"\0\xff", b"\0\xff\0", b"\1", b"\xff", b"\xff\xff"]),
    ],
    ids=str,
)
def test_bytes_sort_as_values_do(type_: pa.DataType, values: list[Any]) -> None:
    keys = SortKeys(type_)
    found = keys.of(pa.array([None, *values], type_).slice(1))
    assert [len(each) for each in found] == [keys.end(each + b"\0\0", 0) for each in found]
    followed = [each + chr(127 - at).encode() for at, each in enumerate(found)]
    assert sorted(followed) == followed
    assert len({*found}) == len(values)
