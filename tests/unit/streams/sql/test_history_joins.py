"""Joins with tables that have a history: which version a record finds, and what nobody sees."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest

from kafka_pipeline.common.pipelines.specs import Format
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.sql.columns import batch_of, table_of, versions_schema
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec
from kafka_pipeline.streams.sql.state_shape import OPEN_FROM
from tests.tiers import long_but_the_first

pytestmark = pytest.mark.integration

Version = tuple[str, str, int, int | None]
"""A key, a value, and the times from which and until which it is visible."""

BATCH = Batch([b"a", b"a", b"b", None], [b"1", b"2", b"3", b"4"], [10, 20, 20, 20], None, [0] * 4)
TABLES = {"c": "city STRING, level INT", "d": ""}
ULM, BONN = '{"city": "Ulm", "level": 1}', '{"city": "Bonn", "level": 2}'
CITIES: Sequence[Version] = (("a", ULM, 5, 20), ("a", BONN, 20, None), ("b", ULM, 7, 20))


def versions(rows: Sequence[Version], format_: Format = "string") -> pa.Table:
    schema = versions_schema(format_)
    columns = [[row[place] for row in rows] for place in (0, 1, 2, 2, 3)]
    arrays = [pa.array(column, pa.string()).cast(schema.types[0]) for column in columns[:2]]
    arrays += [
        pa.array(column, pa.timestamp("ms", tz="UTC")).cast(schema.types[2])
        for column in columns[2:]
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def results(local: LocalQueries, spec: QuerySpec, **rows: pa.Table) -> Batch:
    query = local.open(spec)
    try:
        table, _ = table_of(BATCH, 0, query.columns, spec.format)
        return batch_of(query.run(table, rows))
    finally:
        query.close()


def values(local: LocalQueries, query: str, **rows: pa.Table) -> list[bytes | None]:
    spec = QuerySpec(query, topic_tables=TABLES, versioned_tables=("c",))
    found = results(local, spec, **{"c": versions(CITIES), **rows})
    return [value if isinstance(value, bytes) else None for value in found.values]


FOUND = {
    "SELECT c.city AS value FROM input i LEFT JOIN c ON i.key = c.key": [
        b"Ulm",
        b"Bonn",
        None,
        None,
    ],
    "SELECT c.city AS value FROM c RIGHT JOIN input i ON i.key = c.key": [
        b"Ulm",
        b"Bonn",
        None,
        None,
    ],
    "SELECT i.value FROM input i JOIN c USING (key) WHERE c.level = 2": [b"2"],
    "SELECT i.value FROM input i LEFT SEMI JOIN c ON i.key = c.key": [b"1", b"2"],
    "SELECT i.value FROM input i LEFT ANTI JOIN c ON i.key = c.key AND c.level = 1": [
        b"2",
        b"3",
        b"4",
    ],
    # The filter holds for the version that is valid, and another one does not take its place.
    "SELECT i.value FROM input i JOIN (SELECT key AS k FROM c WHERE level = 1) d ON i.key = d.k": [
        b"1"
    ],
    "SELECT concat(c.city, e.level) AS value FROM input i JOIN c ON i.key = c.key "
    "JOIN c AS e ON i.key = e.key": [b"Ulm1", b"Bonn2"],
    # It is the time of the record that counts, whatever the query makes of it.
    "SELECT c.city AS value FROM (SELECT key, timestamp - INTERVAL 1 DAY AS timestamp FROM input) "
    "i JOIN c ON i.key = c.key": [b"Ulm", b"Bonn"],
    "SELECT c.city AS value FROM (SELECT key FROM input) i JOIN c ON i.key = c.key": [
        b"Ulm",
        b"Bonn",
    ],
    "SELECT concat(c.city, w.start) AS value FROM (SELECT key, window(timestamp, '2 days', "
    "'1 day') AS w FROM input) i JOIN c ON i.key = c.key WHERE w.start < '1970-01-01'": [
        b"Ulm1969-12-31 00:00:00",
        b"Bonn1969-12-31 00:00:00",
    ],
}


@pytest.mark.parametrize("query", long_but_the_first(FOUND, 2))
def test_each_record_finds_the_version_of_its_time(local: LocalQueries, query: str) -> None:
    assert values(local, query) == FOUND[query]


def test_tables_with_and_without_a_history_in_one_query(local: LocalQueries) -> None:
    query = (
        "SELECT concat_ws(',', c.city, d.value) AS value FROM input i "
        "LEFT JOIN d ON i.key = d.key LEFT JOIN c ON i.key = c.key"
    )
    latest = versions([("a", "x", 5, None)]).select(["key", "value", "timestamp"])
    assert values(local, query, d=latest) == [b"Ulm,x", b"Bonn,x", b"", b""]


def test_without_versions_nothing_is_found(local: LocalQueries) -> None:
    query = "SELECT c.city AS value FROM input i LEFT JOIN c ON i.key = c.key"
    assert values(local, query, c=versions([])) == [None] * 4


@pytest.mark.parametrize(
    "query",
    long_but_the_first(
        [
            "SELECT to_json(struct(*)) AS value FROM input i JOIN c ON i.key = c.key",
            "SELECT to_json(struct(c.*)) AS value FROM input i JOIN c ON i.key = c.key",
            "SELECT to_json(struct(*)) AS value FROM input JOIN c USING (key)",
        ]
    ),
)
def test_nobody_sees_the_times_at_which_a_version_is_visible(
    local: LocalQueries, query: str
) -> None:
    spec = QuerySpec(query, topic_tables=TABLES)
    wanted = results(local, spec, c=versions(CITIES[1:2]).select(["key", "value", "timestamp"]))
    seen = values(local, query)
    assert seen[-1] == wanted.values[-1]
    assert b"visible" not in b"".join(each or b"" for each in seen)
    with pytest.raises(QueryError, match="__visible_from"):
        values(local, "SELECT c.__visible_from AS value FROM input i JOIN c ON i.key = c.key")


def test_binary_keys_find_their_versions_too(local: LocalQueries) -> None:
    spec = QuerySpec(
        "SELECT c.value FROM input i JOIN c ON i.key = c.key",
        format="binary",
        topic_tables={"c": ""},
        versioned_tables=("c",),
    )
    rows = versions([("a", "old", 5, 20), ("a", "new", 20, 21)], "binary")
    assert results(local, spec, c=rows).values == [b"old", b"new"]


def test_functions_of_data_frames_join_the_version_of_the_time(local: LocalQueries) -> None:
    spec = QuerySpec(
        function="tests.user_code.grouped_frames:with_cities",
        topic_tables=TABLES,
        versioned_tables=("c",),
        format="json",
        schema="n INT",
    )
    query = local.open(spec)
    batch = Batch([b"a", b"a"], [b'{"n": 1}', b'{"n": 2}'], [10, 20], None, [0, 1])
    table, _ = table_of(batch, 0, query.columns, "json")
    found = batch_of(query.run(table, {"c": versions(CITIES, "json")})).values
    assert [json.loads(value or b"") for value in found] == [
        {"n": 1, "place": "a", "city": "Ulm", "level": 1},
        {"n": 2, "place": "a", "city": "Bonn", "level": 2},
    ]


def test_where_the_time_of_records_is_hidden_the_join_is_refused(local: LocalQueries) -> None:
    query = (
        "SELECT i.key, i.v AS value FROM (SELECT key, value FROM input) "
        "UNPIVOT (v FOR n IN (value)) i JOIN c ON i.key = c.key"
    )
    with pytest.raises(QueryError, match=r"is joined by the time of the records, .* below that"):
        values(local, query)


def test_groups_are_made_of_the_versions_of_the_times(local: LocalQueries) -> None:
    query = local.open_aggregation(
        QuerySpec(
            "SELECT city AS key, count(*) AS value FROM input i JOIN c ON i.key = c.key "
            "GROUP BY city, window(i.timestamp, '1 hour')",
            topic_tables=TABLES,
            versioned_tables=("c",),
        )
    )
    names = [name for name in query.columns if name != OPEN_FROM]
    table, _ = table_of(BATCH, 0, names, "string")
    opened = pa.array([0] * len(table), pa.timestamp("us", tz="UTC"))
    table = table.append_column(OPEN_FROM, opened)
    rows = query.partial(table, {"c": versions(CITIES)})
    assert sorted(rows[0].to_pylist()) == ["Bonn", "Ulm"]
