"""Random queries give what Spark gives for all records at once.

`python -m tests.random_sql` runs more of them, and replays one by its seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal

import pytest

from tests.random_sql.comparison import Case, Comparison
from tests.random_sql.drawing import SHAPES, draw_query
from tests.random_sql.engine_side import EngineSide
from tests.random_sql.expressions import Expression, column
from tests.random_sql.inputs import DISORDER_MIN, MINUTE_MS, Inputs, Record, draw_inputs
from tests.random_sql.judge import Difference, difference
from tests.random_sql.queries import Item, Query, Shape
from tests.random_sql.shrinking import shrink
from tests.seeds import parametrize
from tests.unit.streams.pipeline.loading import load
from tests.unit.streams.sql.grouped_job import Result

QUERIES, SHORT, CHUNK = 360, 0, 6
GIVES_NOTHING = "it gives no row, whatever the input"
"""Why a query is refused whose conditions exclude each other."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SHORT, QUERIES, CHUNK)


@pytest.mark.integration
def test_queries_give_what_spark_gives_for_all_records_at_once(
    seeds: range, comparison: Comparison
) -> None:
    results = 0
    for seed in seeds:
        query = draw_query(seed)
        case = comparison.compare(query, draw_inputs(query, seed))
        results += case.rows
        if case.kind:
            small = shrink(case, comparison.compare)
            pytest.fail(
                f"{small}\n\nreplay: python -m tests.random_sql --query {seed} --seed {seed}"
            )
        if case.refused:
            assert GIVES_NOTHING in case.refused, f"seed {seed}: {case.refused}\n{query.text}"
    assert results


ODD_COUNTS = Query(
    Shape.GROUPS,
    "input",
    {"in": {"n": "INT"}},
    items=(Item("c", Expression("count(*)", "BIGINT")), Item("s", Expression("sum(n)", "BIGINT"))),
    key=column("key", "STRING"),
    groups=(column("key", "STRING"),),
    having=("count(*) % 2 = 1",),
)
"""Its groups come, change and go."""


def records(keys: str) -> tuple[Record, ...]:
    return tuple(
        Record("in", 0, key, b'{"n": %d}' % number, number * MINUTE_MS)
        for number, key in enumerate(keys)
    )


INPUTS = Inputs(1, (records("ab"), records("aabc"), records("cab")), frozenset({2}))


class Broken(EngineSide):
    """The engine with a fault in what it reads or gives."""

    def __init__(
        self,
        ours: EngineSide,
        reads: Callable[[Inputs], Inputs] = lambda inputs: inputs,
        gives: Callable[[list[Result]], list[Result]] = lambda results: results,
    ) -> None:
        self._ours, self._reads, self._gives = ours, reads, gives

    def run(self, query: Query, inputs: Inputs) -> list[Result]:
        return self._gives(self._ours.run(query, self._reads(inputs)))

    def forget(self) -> None:
        self._ours.forget()


def counted_twice(inputs: Inputs) -> Inputs:
    """Take the first record of the second batch twice."""
    first, second, *others = inputs.batches
    return Inputs(inputs.partitions, (first, (second[0], *second), *others), inputs.restarts)


def lost_batch(inputs: Inputs) -> Inputs:
    return Inputs(inputs.partitions, inputs.batches[:-1])


def without_deletions(results: list[Result]) -> list[Result]:
    return [each for each in results if each.value is not None]


def without_the_last(results: list[Result]) -> list[Result]:
    return results[:-1]


def in_another_order(results: list[Result]) -> list[Result]:
    return results[::-1]


def a_minute_later(results: list[Result]) -> list[Result]:
    return [each._replace(timestamp=each.timestamp + MINUTE_MS) for each in results]


@pytest.mark.integration
def test_faults_are_found(comparison: Comparison) -> None:
    ours, judge = comparison.ours, comparison.judge

    def kind(**fault: Callable[..., object]) -> str:
        broken = Broken(ours, **fault)  # type: ignore[arg-type]
        return Comparison(broken, judge).compare(ODD_COUNTS, INPUTS).kind

    assert kind() == ""
    assert kind(reads=counted_twice) == "difference"
    assert kind(reads=lost_batch) == "difference"
    for gives in (without_deletions, without_the_last, in_another_order, a_minute_later):
        assert kind(gives=gives) == "difference", gives.__name__


@pytest.mark.integration
def test_query_that_spark_cannot_read_is_not_right(comparison: Comparison) -> None:
    unreadable = replace(ODD_COUNTS, having=("count(*) >",))
    assert "PARSE_SYNTAX_ERROR" in comparison.compare(unreadable, INPUTS).unjudged


def test_a_seed_draws_the_same_again() -> None:
    query = draw_query(8)
    assert query == draw_query(8)
    assert query.text != draw_query(8 + len(SHAPES)).text
    assert draw_inputs(query, 1) == draw_inputs(query, 1) != draw_inputs(query, 2)


@pytest.mark.parametrize("shape", SHAPES)
def test_pipelines_of_all_shapes_can_be_read(shape: str) -> None:
    """Without Spark, only the text is checked; a text that is refused would find nothing."""
    for seed in range(12):
        load(draw_query(seed, (shape,)).pipeline("."))


def test_queries_have_all_that_they_should() -> None:
    queries = [draw_query(seed) for seed in range(QUERIES)]
    text = " ".join(query.text for query in queries)
    for part in (
        *("LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI", "LEFT ANTI", "explode", "WITH src"),
        *("session_window", "'1 hour', '20 minutes'", "FILTER (WHERE", "(DISTINCT", "HAVING"),
        *("row_number", "SELECT DISTINCT", "SELECT *", "CASE WHEN", "NULLS LAST", "customers"),
        *("collect_list", "collect_set", "percentile", "stddev", "max_by", "first("),
        *("dense_rank()", " rank()", "ROWS BETWEEN", "RANGE BETWEEN", "lag(", "WITH t AS"),
        *("calendar_window", "TUMBLE(", "HOP(", "SESSION(TABLE", "products"),
        "timestamp - o.timestamp",
        *("nullif(sum(", "nullif(avg(", "ifnull(", "IN (count("),
    ):
        assert part in text, part
    joined = " ".join(draw_query(seed, ("joined",)).text for seed in range(QUERIES))
    for part in (" JOIN (orders", "FROM (orders o JOIN"):
        assert part in joined, part
    assert {query.changelog for query in queries} == {True, False}
    assert {query.upserts for query in queries if query.changes} >= {("orders",), ("payments",)}
    assert {query.ttl for query in queries} == {"", "none", "20000 d"}
    assert {query.again.processors for query in queries if query.again is not None} == {1, 2, 3}
    assert {query.on_close for query in queries if query.window is not None} == {True, False}


def test_inputs_have_all_that_they_should_and_no_record_is_late() -> None:
    runs = [draw_inputs(draw_query(seed), seed) for seed in range(60)]
    found = [record for run in runs for record in run.records]
    assert any(record.key is None for record in found)
    assert any(record.value is None for record in found)
    assert any(record.is_bad for record in found)
    assert {run.partitions for run in runs} == {1, 2, 3}
    assert any(run.restarts for run in runs)
    assert any({r.partition for r in run.records} != {*range(run.partitions)} for run in runs)
    assert max(map(behind, runs)) > 0
    assert max(map(behind, runs)) <= DISORDER_MIN * MINUTE_MS


def behind(inputs: Inputs) -> int:
    """Return by how much a record is older at most than one before it in its partition."""
    newest, most = dict[int, int](), 0
    for record in inputs.records:
        newest[record.partition] = max(newest.get(record.partition, 0), record.time_ms)
        most = max(most, newest[record.partition] - record.time_ms)
    return most


@pytest.mark.parametrize(
    ("expected", "found", "is_equal"),
    [
        (
            [("a", {"x": Decimal("0.3")}, 1)],
            [("a", {"x": Decimal("0.30000000000000004")}, 1)],
            True,
        ),
        ([("a", {"x": Decimal("0.3")}, 1)], [("a", {"x": Decimal("0.3000001")}, 1)], False),
        ([("a", {"x": 2}, 1)], [("a", {"x": Decimal("2.0")}, 1)], True),
        ([("a", {"x": 1}, 1)], [("a", {"x": True}, 1)], False),
        ([("a", {"x": "1"}, 1)], [("a", {"x": 1}, 1)], False),
        ([("a", {"x": None}, 1)], [("a", {}, 1)], False),
        ([("a", {}, 1)], [(None, {}, 1)], False),
        ([("a", {}, 1)], [("a", {}, 2)], False),
        ([("a", {}, 1)] * 2, [("a", {}, 1)], False),
        ([("a", {}, 1), ("b", {}, 1)], [("b", {}, 1), ("a", {}, 1)], True),
    ],
)
def test_rows_are_equal_up_to_the_last_digits(
    expected: list[tuple[str, object, int]], found: list[tuple[str, object, int]], is_equal: bool
) -> None:
    assert (difference(expected, found) is None) == is_equal


def test_a_case_is_shrunk_to_what_makes_it_wrong() -> None:
    wrong = Difference([], [("a", {}, 0)])

    def compared(query: Query, inputs: Inputs) -> Case:
        """Be wrong if there is a null and more than one column."""
        nulls: Sequence[Record] = [each for each in inputs.records if each.value is None]
        is_wrong = nulls and len(query.items) > 1
        return Case(query, inputs, difference=wrong if is_wrong else None)

    query, inputs = next(
        (query, inputs)
        for query, inputs in ((draw_query(s), draw_inputs(draw_query(s), s)) for s in range(60))
        if compared(query, inputs).kind and len(query.items) > 2
    )
    small = shrink(compared(query, inputs), compared)
    assert len(small.query.items) == 2
    assert [record.value for record in small.inputs.records] == [None]
    assert small.query.text in str(small)
