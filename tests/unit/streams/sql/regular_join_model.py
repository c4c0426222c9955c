"""Random records for joins without bounds of time, and a plain model of these joins."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.unit.streams.sql.grouped_job import Result, Row

SIZE = 24
SCHEMA = "id STRING, n INT, x INT"
SIDES = ("orders", "payments")
KINDS = ("FULL", "", "LEFT", "RIGHT", "LEFT SEMI", "LEFT ANTI")
PAIRS = (
    "SELECT concat_ws('-', o.id, p.id) AS key, o.x, p.x AS y FROM "
    "(SELECT * FROM orders WHERE x IS NULL OR x < 4) o {} JOIN payments p ON {}"
)
ROWS = PAIRS.replace("concat_ws('-', o.id, p.id) AS key, o.x, p.x AS y", "o.id AS key, o.x")
ON = {
    "columns": "o.n = p.n",
    "key": "o.key = p.key",
    "key and columns": "o.key = p.key AND o.n = p.n",
    "checked columns": "p.n = o.n AND o.key = p.key || '' AND o.x >= p.x",
    "checked key": "o.key = p.key AND (p.x > o.x OR o.n = p.n)",
}


def query_of(how: str, on: str) -> str:
    return (ROWS if how in ("LEFT SEMI", "LEFT ANTI") else PAIRS).format(how, ON[on])


def random_rows(chance: random.Random) -> dict[str, list[Row]]:
    """Return records with an id, some of which come twice; some are not JSON."""

    def row(topic: str, index: int) -> Row:
        at = 100 + index + chance.choice([0, 0.5, -0.5, chance.randint(-12, 12)])
        if chance.random() < 0.05:
            return {"key": "a", "at": at, "raw": chance.choice([b"\xff", b"{"])}
        return {
            "key": chance.choice(["a", "b", "c", None]),
            "at": at,
            "id": f"{topic[0]}{index}",
            "n": chance.choice([None, 0, 1, 2]),
            "x": chance.choice([None, *range(5)]),
        }

    found: dict[str, list[Row]] = {}
    for topic in SIDES:
        rows = [row(topic, index) for index in range(SIZE)]
        twice = [{**each, "at": each["at"] + 3} for each in chance.sample(rows, 3)]
        found[topic] = sorted([*rows, *twice], key=lambda each: each["at"] // 4)
    return found


def steps(
    rows: Mapping[str, Sequence[Row]], chance: random.Random
) -> Iterator[dict[str, list[Row]]]:
    """Yield batches of the rows of both topics; one topic may be far ahead of the other."""
    left = {topic: [*each] for topic, each in rows.items()}
    pace = {topic: chance.choice([0.2, 0.6, 1]) for topic in rows}
    while any(left.values()):
        size = chance.choice([1, 4, 15])
        parts = {
            topic: each[:size] for topic, each in left.items() if chance.random() < pace[topic]
        }
        for topic, part in parts.items():
            left[topic] = left[topic][len(part) :]
        if parts := {topic: part for topic, part in parts.items() if part}:
            yield parts


def in_order(parts: Mapping[str, Sequence[Row]]) -> list[tuple[str, Row]]:
    """Return rows by the rule of tasks: the smallest head is next, and then the first topic."""
    left = {topic: [*parts[topic]] for topic in SIDES if topic in parts}
    ordered: list[tuple[str, Row]] = []
    while any(left.values()):
        topic = min((each for each in left if left[each]), key=lambda t: left[t][0]["at"])
        ordered.append((topic, left[topic].pop(0)))
    return ordered


def folded(results: Sequence[Result]) -> dict[str | None, Any]:
    """Return the last value of each key, without those that were deleted."""
    table = {each.key: each.value for each in results}
    return {key: value for key, value in table.items() if value is not None}


def counted(results: Sequence[Result]) -> Counter[Any]:
    assert all(each.value is not None for each in results), "nothing was deleted"
    return Counter((each.key, json.dumps(each.value), each.timestamp) for each in results)


KEEPS: Mapping[str, Sequence[str]] = {
    "LEFT": ["orders"],
    "LEFT ANTI": ["orders"],
    "RIGHT": ["payments"],
    "FULL": SIDES,
}


def _smaller(left: int | None, right: int | None) -> bool:
    return left is not None and right is not None and left < right


class Model:
    """A join by the rule, row by row: rows of both sides, and the results that are valid."""

    def __init__(self, how: str, ttl_min: float, *, is_checked: bool) -> None:
        """With `is_checked`, the `x` of the left side must be smaller."""
        self.how, self.ttl_min, self.is_checked = how, ttl_min, is_checked
        self.rows: dict[str, list[dict[str, Any]]] = {topic: [] for topic in SIDES}
        self.results: dict[str, Any] = {}
        self.late = 0
        self._now = -1.0

    def add(self, topic: str, row: Row) -> None:
        if row["at"] + self.ttl_min < self._now:
            self.late += 1
            return
        self._now = max(self._now, row["at"])
        keeps = topic in KEEPS.get(self.how, ())
        if topic == "orders" and (row["x"] or 0) >= 4:
            return
        new = {**row, "met": False}
        for other in self.rows[next(each for each in SIDES if each != topic)]:
            is_near = abs(other["at"] - row["at"]) <= self.ttl_min
            if is_near and row["n"] is not None and row["n"] == other["n"]:
                order, payment = (new, other) if topic == "orders" else (other, new)
                if not self.is_checked or _smaller(order["x"], payment["x"]):
                    self._pair(order, payment)
        self.rows[topic].append(new)
        if keeps and not new["met"]:
            self.results[row["id"]] = self._value(
                *((row, None) if topic == "orders" else (None, row))
            )

    def _pair(self, order: dict[str, Any], payment: dict[str, Any]) -> None:
        for row in (order, payment):
            if not row["met"] and self.how != "LEFT SEMI":
                self.results.pop(row["id"], None)
            row["met"] = True
        if self.how == "LEFT SEMI":
            self.results[order["id"]] = {"x": order["x"]}
        elif self.how != "LEFT ANTI":
            key = f"{order['id']}-{payment['id']}"
            self.results[key] = self._value(order, payment)

    def _value(self, order: Row | None, payment: Row | None) -> dict[str, Any]:
        x = None if order is None else order["x"]
        if self.how == "LEFT ANTI":
            return {"x": x}
        return {"x": x, "y": None if payment is None else payment["x"]}


def cut(ordered: Sequence[tuple[str, Row]], size: int) -> Iterator[dict[str, list[Row]]]:
    """Yield batches that tasks take in the order of these rows."""
    batch: list[tuple[str, Row]] = []
    for each in ordered:
        if len(batch) == size or in_order(by_topic([*batch, each])) != [*batch, each]:
            yield by_topic(batch)
            batch = []
        batch.append(each)
    yield by_topic(batch)


def by_topic(rows: Sequence[tuple[str, Row]]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for topic, row in rows:
        found.setdefault(topic, []).append(row)
    return found
