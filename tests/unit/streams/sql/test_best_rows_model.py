"""The n best rows of groups in random batches, compared with Spark on all records at once."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from kafka_pipeline.streams.sql.local import LocalQueries
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import SCHEMA, Folding, all_at_once, frame_at_once, opened
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce, Row
from tests.unit.streams.sql.random_rows import (
    GRACE_MIN,
    by_key,
    closed,
    pipeline,
    random_rows,
    rounded,
    run,
    table_of,
    without_late,
)
from tests.user_code.grouped_frames import best as best_of

pytestmark = pytest.mark.integration

HOUR = "window(timestamp, '1 hour')"
AT = "date_format(w.start, 'HH:mm')"
OF_CUSTOMER = "coalesce(customer, '-')"

DOUBLES = "double('NaN'), -0.0D, 0.0D, double('-Infinity'), NULL, 1.5D"
LONGS = "bigint('-9223372036854775808'), 9223372036854775807L, 0L, NULL, -1L, 1L"
TEXTS = "'a', 'ab', '', NULL, 'é', 'a\\\\u0000'"
ORDERS = [
    "amount DESC, n",
    "amount ASC NULLS LAST, n DESC NULLS FIRST",
    "price DESC, customer DESC",
    "customer DESC NULLS FIRST, amount DESC NULLS FIRST",
    "customer COLLATE UTF8_LCASE, tags, struct(n, amount)",
    "n > 2 DESC, n % 2 = 0 NULLS LAST, timestamp DESC",
    "date_trunc('HOUR', timestamp) DESC, date(timestamp) DESC",
    "CAST(timestamp AS TIMESTAMP_NTZ) DESC, smallint(n) DESC",
    f"element_at(array({DOUBLES}), n + 1) DESC, amount",
    f"element_at(array({DOUBLES}), n + 1) DESC NULLS FIRST",
    f"float(element_at(array({DOUBLES}), n + 1)) NULLS LAST, n",
    f"element_at(array({LONGS}), n + 1) DESC",
    f"element_at(array({TEXTS}), n + 1) DESC, n",
    f"encode(element_at(array({TEXTS}), n + 1), 'utf-8') DESC NULLS FIRST",
    "CASE WHEN n > 1 THEN date '1969-12-31' WHEN n > 2 THEN date '0001-01-01' END DESC",
]


def best(key: str, groups: str, order: str, where: str, columns: str = "n, amount") -> str:
    """Return a query for the best rows of groups of records with the window `w`."""
    return (
        f"SELECT {key} AS key, place, {columns}{{last_2}} FROM (SELECT *, row_number() OVER ("
        f"PARTITION BY {groups} ORDER BY {order}{{ties}}) AS place{{last}} FROM {{records}}) "
        f"WHERE {where}"
    )


def of_engine(query: str, source: str) -> str:
    """Return a query as it is in pipeline.yaml."""
    names = ("last", "last_2", "ties")
    return query.format(records=source, **dict.fromkeys(names, ""))


def expected(query: str, source: str, groups: str, table: Any) -> dict[str | None, Any]:
    """Return the value and the time of each key that Spark gives for all records at once."""
    last = f", unix_millis(max(timestamp) OVER (PARTITION BY {groups})) AS `last time`"
    ties = ", timestamp, partition, offset"
    text = query.format(records=source, ties=ties, last=last, last_2=", `last time`")
    found = all_at_once(text, table)
    assert len({key for key, _, _ in found}) == len(found), "each row has a key of its own"
    return by_key(found)


@pytest.mark.parametrize("order", long_but_the_first(ORDERS))
def test_rows_are_in_the_order_of_spark(local: LocalQueries, seeds: list[int], order: str) -> None:
    query = best("concat(key, '-', place)", "key", order, "place <= 4", "n, customer")
    folding = Folding(opened(local, of_engine(query, "input")))
    for seed in seeds:
        chance = random.Random(f"{seed} {order}")
        rows = [row for row in random_rows(chance, spread=20) if "raw" not in row]
        table = table_of(rows)
        folding.state = {}
        start = 0
        while start < len(rows):
            size = chance.choice([1, 5, 30])
            folding.add(table.slice(start, size))
            start += size
        found = by_key(folding.results())
        assert found == expected(query, "input", "key", table), f"seed {seed}"


@pytest.mark.parametrize(
    ("slide", "planned"), long_but_the_first([("1 hour", "60 min"), ("20 minutes", "20 min")])
)
def test_a_function_ends_with_the_best_of_all_records(
    shared: OpenedOnce, seeds: list[int], slide: str, planned: str
) -> None:
    """Its keys are made by a UDF of the group."""
    text = (
        "- {id: P, type: dataframe, function: 'tests.user_code.grouped_frames:best', to: [sink], "
        f"config: {{slide: {slide}}}, group_by: {{window: 1 h, slide: {planned}}}, "
        f"format: json, schema: '{SCHEMA}', on_error: skip}}"
    )
    for seed in seeds:
        chance = random.Random(f"{seed} {slide}")
        rows = random_rows(chance, spread=100)
        job = Job(text, shared)
        run(job, rows, chance)
        wanted = by_key(frame_at_once(best_of, table_of(rows), slide=slide, ties=True))
        found = {key: rounded(value) for key, value in job.latest().items()}
        assert found == {key: value for key, (value, _) in wanted.items()}, f"seed {seed}"
        job.close()


@pytest.mark.parametrize("group", long_but_the_first(["key", "customer"]))
def test_each_window_is_emitted_once_with_the_best_of_its_records(
    shared: OpenedOnce, seeds: list[int], group: str
) -> None:
    key = f"concat(coalesce({group}, '-'), {AT}, place)"
    groups = f"{group}, w"
    query = best(key, groups, "amount DESC, n", "place <= 3 AND n > 0")
    source = f"(SELECT *, {HOUR} AS w FROM input)"
    for seed in seeds:
        chance = random.Random(f"{seed} {query}")
        rows: list[Row] = random_rows(chance, spread=50)
        # In front of a topic, time is that of the task.
        in_time, late = without_late(rows, with_rejected=group == "customer")
        more = f"grace: {GRACE_MIN} min\n  emit: on_close"
        job = Job(pipeline(of_engine(query, source), more), shared)
        found = closed(job, rows, chance, seed)
        assert found == expected(query, source, groups, table_of(in_time)), f"seed {seed}"
        assert job.dropped["expired"] == late > 0, f"seed {seed}"
        job.close()


def test_ties_do_not_depend_on_when_rows_of_partitions_meet(
    shared: OpenedOnce, seeds: list[int]
) -> None:
    key = f"concat({OF_CUSTOMER}, '-', place)"
    query = best(key, "customer", "n % 2", "place <= 3", "key AS k, n, amount")
    for seed in seeds:
        chance = random.Random(f"{seed} {query}")
        some = [row for row in random_rows(chance, spread=15) if "raw" not in row]
        rows: list[Row] = [{**row, "at": row["at"] // 20} for row in some]
        job = Job(pipeline(of_engine(query, "input"), ""), shared, partitions=2)
        partitions: list[int] = []
        while len(partitions) < len(rows):
            part, at = chance.randrange(2), len(partitions)
            taken = rows[at : at + chance.choice([1, 5])]
            job.send(taken, part)
            partitions += [part] * len(taken)
        offsets = [partitions[:at].count(part) for at, part in enumerate(partitions)]
        table = table_of(rows)
        for name, values in (("partition", partitions), ("offset", offsets)):
            place = table.column_names.index(name)
            column = pa.array(values, table.schema.field(name).type)
            table = table.set_column(place, name, column)
        wanted = expected(query, "input", "customer", table)
        found = {key: rounded(value) for key, value in job.latest().items()}
        assert found == {key: value for key, (value, _) in wanted.items()}, f"seed {seed}"
        job.close()
