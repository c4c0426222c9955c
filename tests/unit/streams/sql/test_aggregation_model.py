"""Random batches through queries with GROUP BY, compared with Spark on all records at once."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from kafka_pipeline.streams.sql.local import LocalQueries
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import Folding, Row, all_at_once, opened, records
from tests.unit.streams.sql.random_rows import without_last_digits

pytestmark = pytest.mark.integration

SIZE = 150

# Where the other side asks for the time that the engine adds, and passes it on.
QUERIES = [
    "SELECT customer AS key, count(*) AS c, sum(n) AS s{last} FROM input GROUP BY customer",
    "SELECT customer AS key, window.start AS hour, count(*) AS c, sum(amount) AS s{last} "
    "FROM input GROUP BY customer, window(timestamp, '1 hour') HAVING sum(amount) > 10",
    "SELECT window AS w, avg(n) AS a, max(customer) AS m{last} FROM input "
    "GROUP BY window(timestamp, '1 hour', '20 minutes', '5 minutes')",
    "SELECT n AS key, min(customer) AS low, max(price) AS high, avg(price) AS a{last} "
    "FROM input WHERE amount > 0 GROUP BY n",
    "SELECT concat(customer, n) AS key, first(amount) AS f, last(customer) AS l, "
    "last(n, true) AS ln{last} FROM input GROUP BY customer, n",
    "SELECT customer AS key, max_by(n, at) AS m, min_by(price, at) AS p{last} FROM "
    "(SELECT *, struct(timestamp, n, price) AS at FROM input) GROUP BY customer",
    "SELECT customer AS key, stddev(amount) AS sd, var_pop(n) AS v, corr(n, amount) AS c{last} "
    "FROM input GROUP BY customer HAVING count(*) > 5",
    "SELECT customer AS key, collect_list(n) AS l, array_sort(collect_set(price)) AS s{last} "
    "FROM input GROUP BY customer",
    "SELECT tags AS t, approx_count_distinct(n) AS d, count(half) AS c{last} FROM "
    "(SELECT *, n % 2 AS half FROM input) GROUP BY tags",
    "SELECT customer AS key, approx_percentile(n, array(0.1, 0.5)) AS p, median(n) AS m{last} "
    "FROM input GROUP BY customer HAVING median(n) >= 2",
    "SELECT tag AS key, sum(price) AS s, count_if(n > 2) AS c{last} FROM "
    "(SELECT explode(tags) AS tag, price, n, timestamp FROM input) GROUP BY tag",
    "SELECT to_json(g) AS key, c * 2 AS c, s{last_2} FROM (SELECT g, count(*) AS c, "
    "sum(price) AS s{last} FROM (SELECT struct(amount, n > 2 AS big) AS g, price, timestamp "
    "FROM input) GROUP BY g) WHERE c > 1 AND s IS NOT NULL",
    "SELECT price AS key, bool_or(n > 3) AS o, bit_xor(n) AS x, any_value(price) AS v{last} "
    "FROM input GROUP BY price",
    "SELECT date_trunc('HOUR', timestamp) AS hour, count(n) FILTER (WHERE customer <> 'a') AS c, "
    "sum(n * amount) / count(*) AS mean{last} FROM input GROUP BY ALL",
    "SELECT customer AS key, count(DISTINCT n) AS c, count(DISTINCT n, amount) AS p, "
    "sum(DISTINCT amount) AS s, avg(DISTINCT price) FILTER (WHERE n > 1) AS a, "
    "max(DISTINCT n) + count(*) AS m{last} FROM input GROUP BY customer "
    "HAVING count(DISTINCT n % 3) > 1",
    "SELECT n AS key, count(DISTINCT tags) AS t, sum(DISTINCT price) AS s, "
    "stddev(DISTINCT amount) AS d{last} FROM input GROUP BY ROLLUP (n)",
    "SELECT customer AS key, grouping_id() AS g, sum(n) AS s, max(tags) AS t{last} FROM input "
    "GROUP BY CUBE (customer, n)",
]


def random_rows(chance: random.Random) -> list[Row]:
    def row() -> Row:
        return {
            "customer": chance.choice(["a", "b", "é", "", None]),
            # Sums of quarters are exact, in any order.
            "amount": chance.choice([None, 0.0, -0.0, chance.randint(-20, 40) / 4]),
            "n": chance.choice([None, *range(6)]),
            "price": chance.choice([None, 1.25, 2.5, -3.75]),
            "tags": chance.choice([None, [], ["x"], ["x", "y"], ["y", None]]),
            "at": chance.randint(-60, 180),
        }

    return [row() for _ in range(SIZE)]


def rounded(value: Any) -> Any:
    """Return a JSON value as something that can be counted; the last digits of numbers vary."""
    match value:
        case float():
            return without_last_digits(value)
        case list():
            return tuple(rounded(each) for each in value)
        case dict():
            return tuple(sorted((name, rounded(each)) for name, each in value.items()))
    return value


def counted(rows: list[tuple[bytes | None, Any, int]]) -> Counter[Any]:
    return Counter((key, rounded(value), last) for key, value, last in rows)


@pytest.mark.parametrize("query", long_but_the_first(QUERIES))
def test_batches_give_what_all_records_at_once_give(
    local: LocalQueries, seeds: list[int], query: str
) -> None:
    running = opened(local, query.replace("{last}", "").replace("{last_2}", ""))
    for seed in seeds:
        chance = random.Random(f"{seed} {query}")
        table = records(random_rows(chance))
        folding = Folding(running)
        cuts = sorted(chance.choices(range(SIZE + 1), k=chance.randint(0, 4)))
        for start, end in zip([0, *cuts], [*cuts, SIZE], strict=True):
            folding.add(table.slice(start, end - start))
        expected = counted(all_at_once(query, table))
        assert expected, f"seed {seed}: nothing is compared"
        assert counted(folding.results()) == expected, f"seed {seed}"
