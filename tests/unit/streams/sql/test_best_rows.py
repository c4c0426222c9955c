"""`row_number()` with a limit: what it gives, keeps and refuses."""

from __future__ import annotations

import json

import pytest

from kafka_pipeline.common.pipelines.specs import WindowSpec
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec
from kafka_pipeline.streams.sql.state_change import state_change
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import SCHEMA, Folding, opened, records
from tests.unit.streams.sql.grouped_job import MINUTE_MS, Job, OpenedOnce, best_of

pytestmark = pytest.mark.integration

HOUR = "window(timestamp, '1 hour')"


def best(
    select: str = "customer AS key, place, n",
    groups: str = "customer",
    where: str = "WHERE place <= 2",
    order: str = "n DESC",
    source: str = "input",
) -> str:
    """Return a query for the best rows of groups."""
    return (
        f"SELECT {select} FROM (SELECT *, row_number() OVER (PARTITION BY {groups} ORDER BY "
        f"{order}) AS place FROM {source}) {where}"
    )


BY_KEY = best("concat(key, '-', place) AS key, n", "key")


def test_only_places_that_changed_are_given(shared: OpenedOnce) -> None:
    job = Job(best_of(BY_KEY), shared)
    job.send([{"key": "a", "n": 5, "at": 0}, {"key": "a", "n": 7, "at": 1}])
    job.send([{"key": "b", "n": 1, "at": 2}])
    assert [each[1:4] for each in job.take()] == [
        ("a-1", {"n": 7}, MINUTE_MS),
        ("a-2", {"n": 5}, MINUTE_MS),
        ("b-1", {"n": 1}, 2 * MINUTE_MS),
    ]
    # None of the best, and then the second best.
    job.send([{"key": "a", "n": 4, "at": 3}])
    assert job.take() == []
    job.restart()
    job.send([{"key": "a", "n": 6, "at": 4}, {"key": "b", "n": 0, "at": 3}])
    assert sorted(each[1:4] for each in job.take()) == [
        ("a-2", {"n": 6}, 4 * MINUTE_MS),
        ("b-2", {"n": 0}, 3 * MINUTE_MS),
    ]
    # The others move down.
    job.send([{"key": "a", "n": 8, "at": 5}, {"key": None, "n": 9, "at": 5}])
    assert [each[1:4] for each in job.take()] == [
        ("a-1", {"n": 8}, 5 * MINUTE_MS),
        ("a-2", {"n": 7}, 5 * MINUTE_MS),
    ]
    assert job.dropped == {"null key": 1}
    job.close()


@pytest.mark.parametrize(
    ("former", "later"),
    [
        ({"customer": None, "other": "x"}, {"customer": "x", "other": None}),
        ({"tags": None}, {"tags": []}),
        ({"tags": ["x", None]}, {"tags": [None, "x"]}),
        ({"tags": [["x"], ["y"]]}, {"tags": [["x", "y"]]}),
        ({"o": None}, {"o": {"a": None, "b": None}}),
        ({"o": {"a": "x", "b": None}}, {"o": {"a": None, "b": "x"}}),
    ],
    ids=["columns", "no-array", "items", "arrays", "no-struct", "fields"],
)
def test_row_of_a_table_that_differs_in_nulls_is_another_one(
    shared: OpenedOnce, former: dict[str, object], later: dict[str, object]
) -> None:
    tags = "ARRAY<ARRAY<STRING>>" if any(map(_is_nested, (former, later))) else "ARRAY<STRING>"
    schema = f"n INT, customer STRING, other STRING, tags {tags}, o STRUCT<a: STRING, b: STRING>"
    names = ("customer", "other", "tags", "o")
    table = "(SELECT key AS id, max(n) AS n, {}, 'a' AS g FROM input GROUP BY key)".format(
        ", ".join(f"max({name}) AS {name}" for name in names)
    )
    query = best("concat(g, place) AS key, customer, other, tags, o", "g", source=table)
    job = Job(best_of(query).replace("customer STRING, n INT", f'"{schema}"'), shared)
    empty: dict[str, object] = dict.fromkeys(names)
    for number, row in enumerate((former, later)):
        job.send([{"key": number, "n": 1, "at": number, **row}])
    found = job.latest()
    assert found == {"a1": found["a1"], "a2": found["a2"]}
    assert [*found.values()] in ([empty | former, empty | later], [empty | later, empty | former])
    job.send([{"key": 2, "n": 2, "at": 2}])
    assert job.latest() == {"a1": empty, "a2": found["a1"]}


def _is_nested(row: dict[str, object]) -> bool:
    tags = row.get("tags")
    return isinstance(tags, list) and any(isinstance(each, list) for each in tags)


def test_row_of_the_earlier_record_wins_a_tie_whenever_it_comes(shared: OpenedOnce) -> None:
    job = Job(best_of(best("concat(key, '-', place) AS key, customer", "key")), shared)
    job.send([{"key": "a", "n": 5, "customer": "x", "at": 2}])
    job.send([{"key": "a", "n": 5, "customer": "a", "at": 2}])
    assert {each.key: each.value["customer"] for each in job.take()} == {"a-1": "x", "a-2": "a"}
    job.send([{"key": "a", "n": 5, "customer": "y", "at": 1}])
    assert {each.key: each.value["customer"] for each in job.take()} == {"a-1": "y", "a-2": "x"}
    job.close()


def test_structs_are_kept_with_the_best_rows(shared: OpenedOnce) -> None:
    source = "(SELECT *, named_struct('n', n, 'of', customer) AS o FROM input)"
    query = best("concat(key, '-', place) AS key, o", "key", "WHERE place <= 1", "o", source)
    job = Job(best_of(query), shared)
    job.send([{"key": "a", "n": 5, "customer": "x", "at": 0}])
    job.restart()
    job.send([{"key": "a", "n": 5, "customer": "b", "at": 1}])
    assert [each.value["o"] for each in job.take()] == [{"n": 5, "of": "x"}, {"n": 5, "of": "b"}]
    job.close()


def test_row_that_where_leaves_out_is_deleted(shared: OpenedOnce) -> None:
    query = best("concat(key, '-', place) AS key, customer", "key").replace(
        "place <= 2", "place <= 2 AND customer <> 'hidden'"
    )
    job = Job(best_of(query), shared)
    job.send([{"key": "a", "n": 5, "customer": "x", "at": 0}])
    job.send([{"key": "a", "n": 7, "customer": "hidden", "at": 1}])
    assert [each[1:4] for each in job.take()] == [
        ("a-1", {"customer": "x"}, 0),
        ("a-1", None, MINUTE_MS),
        ("a-2", {"customer": "x"}, MINUTE_MS),
    ]
    job.close()


def test_window_gives_its_best_rows_once_and_late_records_are_sent_on(shared: OpenedOnce) -> None:
    query = best("customer AS key, w.start AS hour, place, n", "customer, w").replace(
        "FROM input", f"FROM (SELECT *, {HOUR} AS w FROM input)"
    )
    job = Job(best_of(query, "grace: 10 min\n  emit: on_close\n  late_to: late"), shared)
    job.send([{"customer": "b", "n": 1, "at": 5}, {"customer": "a", "n": 2, "at": 6}])
    job.send([{"customer": "a", "n": 4, "at": 69}, {"customer": "a", "n": 3, "at": 59}])
    job.send([{"customer": "a", "n": 1, "at": 8}])
    assert job.take() == []
    job.restart()
    job.send([{"customer": "c", "n": 5, "at": 71}, {"customer": "a", "n": 9, "at": 7}])
    late, *results = sorted(job.take(), key=lambda each: each.topic != "late_records")
    assert (late.topic, late.value) == ("late_records", {"customer": "a", "n": 9})
    hour = "1970-01-01T00:00:00.000Z"
    assert [each[1:4] for each in results] == [
        ("a", {"hour": hour, "place": 1, "n": 3}, 59 * MINUTE_MS),
        ("a", {"hour": hour, "place": 2, "n": 2}, 59 * MINUTE_MS),
        ("b", {"hour": hour, "place": 1, "n": 1}, 5 * MINUTE_MS),
    ]
    job.close()


def test_rows_that_were_kept_for_the_close_are_given_when_emit_is_changed(
    shared: OpenedOnce,
) -> None:
    query = best("concat(key, '-', place) AS key, n", f"key, {HOUR}")
    kept = "grace: 10 min\n  emit: "
    job = Job(best_of(query, f"{kept}on_close"), shared)
    job.send([{"key": "a", "n": 9, "at": 5}, {"key": "a", "n": 7, "at": 6}])
    job.close()
    job = Job(best_of(query, f"{kept}on_update"), shared, job.stores)
    job.send([{"key": "a", "n": 1, "at": 7}])
    assert [each[1:3] for each in job.take()] == [("a-1", {"n": 9}), ("a-2", {"n": 7})]
    job.close()
    # Then, only what changed meanwhile is given.
    job = Job(best_of(query, f"{kept}on_close"), shared, job.stores)
    job.send([{"key": "a", "n": 8, "at": 8}])
    assert job.take() == []
    job.close()
    job = Job(best_of(query, f"{kept}on_update"), shared, job.stores)
    job.send([{"key": "a", "n": 0, "at": 9}])
    assert [each[1:3] for each in job.take()] == [("a-2", {"n": 8})]
    job.close()


@pytest.mark.parametrize(
    ("where", "size", "places"),
    long_but_the_first(
        [
            ("WHERE place <= 2", 2, [1, 2]),
            ("WHERE place < 3", 2, [1, 2]),
            ("WHERE 3 > place AND n > 0", 2, [1, 2]),
            ("WHERE 2 >= place", 2, [1, 2]),
            ("WHERE place = 1", 1, [1]),
            ("WHERE 2 = place", 2, [2]),
            ("WHERE place <=> 1", 1, [1]),
            ("WHERE place BETWEEN 2 AND 3", 3, [2, 3]),
            ("WHERE place IN (3, 1)", 3, [1, 3]),
            ("WHERE place <= 1 + 1 AND place < 9", 2, [1, 2]),
            ("WHERE place <= 2L", 2, [1, 2]),
            ("WHERE place <= 2.5", 2, [1, 2]),
            ("WHERE place <= '2'", 2, [1, 2]),
        ],
        2,
    ),
)
def test_limits(local: LocalQueries, where: str, size: int, places: list[int]) -> None:
    query = opened(local, best(where=where))
    assert query.shape.best == size
    folding = Folding(query)
    for n in (3, 1, 5, 2):
        folding.add(records([{"customer": "a", "n": n}], start=n))
    found = [(value["place"], value["n"]) for _, value, _ in folding.results()]
    assert found == [(place, (5, 3, 2)[place - 1]) for place in places]


@pytest.mark.parametrize(
    "query",
    long_but_the_first(
        [
            "SELECT customer, n, row_number() OVER (PARTITION BY customer ORDER BY n DESC) AS "
            "place FROM input QUALIFY place <= 2",
            "SELECT customer, n, row_number() OVER w AS place FROM input "
            "WINDOW w AS (PARTITION BY customer ORDER BY n DESC) QUALIFY place <= 2",
            "WITH best AS (SELECT customer, n, row_number() OVER (PARTITION BY customer, 'x' "
            "ORDER BY n DESC, 1) AS p FROM input) SELECT customer, n, p AS place FROM "
            "(SELECT *, p AS q FROM best) WHERE q < 3",
        ]
    ),
)
def test_forms_of_a_query(local: LocalQueries, query: str) -> None:
    folding = Folding(opened(local, query))
    for n in (3, 1, 5):
        folding.add(records([{"customer": "a", "n": n}]))
    found = [value for _, value, _ in folding.results()]
    assert found == [
        {"customer": "a", "n": 5, "place": 1},
        {"customer": "a", "n": 3, "place": 2},
    ]


def test_shape_says_what_is_kept(local: LocalQueries) -> None:
    """Only columns that are used are kept, and the start of the window only with the group."""
    query = opened(
        local,
        "SELECT concat(key, place, hour) AS key, price, n FROM (SELECT *, window.start AS hour, "
        f"row_number() OVER (PARTITION BY key, {HOUR} ORDER BY amount DESC, tags) AS place "
        "FROM input) WHERE place <= 3 AND n > 0",
    )
    shape = query.shape
    assert query.columns[:2] == ("key", "value")
    assert shape.groups.names == ["key 2", "window"]
    assert shape.window == WindowSpec(size_ms=3_600_000, slide_ms=3_600_000)
    assert (shape.has_key, shape.best, shape.loses_rows) == (True, 3, False)
    content = json.loads(shape.content)
    assert content["best"] == [3, "double DESC NULLS LAST", "array<string> ASC NULLS FIRST"]
    assert content["functions"][0] == (
        "collect_top_k(struct<_0:boolean,_1:boolean,_2:double,_3:array<string>,_4:timestamp,"
        "_5:int,_6:bigint,n:int,price:decimal(10,2)>) in (binary)"
    )


@pytest.mark.parametrize(
    ("changed", "found"),
    long_but_the_first(
        [
            (best("concat(customer, place) AS key, n, place"), ""),
            (best(order="n NULLS LAST"), "were int DESC NULLS LAST, now int ASC NULLS LAST"),
            (best(where="WHERE place <= 2 AND customer <> 'x'"), ""),
            (best(source="(SELECT * FROM input WHERE n > 1)"), ""),
            (best(where="WHERE place <= 3"), ""),
            (
                best(groups="customer, n"),
                "the types of the grouping columns were string, now string, i",
            ),
            (best("customer AS key, place, price"), "the aggregate functions were collect_top_k("),
        ],
        2,
    ),
)
def test_content_changes_with_what_is_kept(local: LocalQueries, changed: str, found: str) -> None:
    before = opened(local, best()).shape.content
    text = state_change(before, opened(local, changed).shape.content).different
    assert found in text
    assert bool(found) is bool(text)


REFUSED = [
    (best(where="WHERE place < 1"), "row_number() begins with 1, so no row has place <= 0"),
    (
        best(where="WHERE place <= 10001"),
        "place <= 10001 keeps more rows of a group than max_collected allows, which is 10000",
    ),
    (
        best().replace("row_number()", "ntile(2)"),
        "OVER (…) needs the rows around a row, and a batch holds just the records that came "
        "together: use row_number() with a limit, a frame of a sql processor over timestamp, "
        "or a class with a store",
    ),
    (
        best().replace("row_number()", "sum(n) OVER (PARTITION BY n) AS s, row_number()"),
        "OVER (…) needs the rows around a row",
    ),
    (
        best().replace(
            "row_number()",
            "row_number() OVER (PARTITION BY customer ORDER BY n DESC) AS p, row_number()",
        ),
        "a query can number rows once: leave out the other row_number()",
    ),
    (
        best().replace("PARTITION BY customer ", ""),
        "row_number() without a column in PARTITION BY would number the rows of a partition of "
        "the topic, not those of the whole topic: add PARTITION BY",
    ),
    (best(groups="'x'"), "row_number() without a column in PARTITION BY"),
    (
        best(order="tags DESC"),
        "DESC: rows are kept in ascending order, and values of the type array<string> cannot "
        "be inverted: order by numbers, timestamps, dates, booleans or strings",
    ),
    (best(order="customer COLLATE UTF8_LCASE DESC"), "values of the type string collate"),
    (
        best("customer AS key, m", source="(SELECT *, map(n, n) AS m FROM input)"),
        "m is of the type map<int,int>, which cannot be kept with the best rows, as its values "
        "cannot be compared: make text or an array of it below the numbering, such as "
        "to_json(m) or map_entries(m)",
    ),
    (
        best(groups="customer COLLATE UTF8_LCASE"),
        "different bytes are equal under its collation",
    ),
    (
        best(source="(SELECT customer, max(n) AS n FROM input GROUP BY customer)"),
        "a second GROUP BY, DISTINCT or row_number() below the first (Aggregate)",
    ),
    (
        f"SELECT customer, count(*) AS c FROM ({best('customer, n')}) GROUP BY customer",
        "a second GROUP BY, DISTINCT or row_number() below the first (Window)",
    ),
    (
        best("explode(tags) AS t"),
        "only SELECT, HAVING and WHERE can follow GROUP BY or row_number() (Generate)",
    ),
    (best() + " LIMIT 1", "LIMIT counts the rows"),
    (best(order="rand()"), "random numbers"),
    (
        best(
            "customer AS key, what, place",
            "customer",
            order="x",
            source="(SELECT * FROM (SELECT customer, n, n + 1 AS m FROM input) "
            "UNPIVOT (x FOR what IN (n, m)))",
        ),
        "an operator below row_number() hides which record a row stems from, which decides "
        "between rows that tie: put that part into a sql processor before this one",
    ),
    (
        best(
            groups="customer, w",
            source="(SELECT *, window(timestamp + INTERVAL 1 HOUR, '1 hour') AS w FROM input)",
        ),
        "it must be over timestamp, the time of the record",
    ),
]


@pytest.mark.parametrize(
    ("query", "reason"),
    long_but_the_first(REFUSED, 5),
)
def test_query_is_refused(local: LocalQueries, query: str, reason: str) -> None:
    with pytest.raises(QueryError) as caught:
        opened(local, query)
    assert reason in str(caught.value)


def test_limit_is_max_collected(local: LocalQueries) -> None:
    spec = QuerySpec(best(), format="json", schema=SCHEMA, max_collected=1)
    with pytest.raises(QueryError, match="max_collected allows, which is 1"):
        local.open_aggregation(spec)


@pytest.mark.parametrize(
    ("select", "where", "loses_rows"),
    long_but_the_first(
        [
            ("customer, place, n", "place <= 2 AND n > 1", True),
            ("customer AS key, place, n", "place <= 2", False),
            ("customer AS key, place, n", "place <= 2 AND customer <> 'x' AND place <> 1", False),
            ("concat(customer, place) AS key, n", "place <= 2 AND n > 1", False),
            ("customer AS key, n", "place = 1 AND n > 1", False),
            ("concat(customer, place, n) AS key", "place <= 2 AND n > 1", True),
        ]
    ),
)
def test_rows_that_cannot_be_deleted_need_on_close(
    shared: OpenedOnce, local: LocalQueries, select: str, where: str, loses_rows: bool
) -> None:
    source = f"(SELECT *, {HOUR} AS w FROM input)"
    query = best(f"{select}, 1 AS x", "customer, w", f"WHERE {where}", source=source)
    assert opened(local, query).shape.loses_rows is loses_rows
    Job(best_of(query, "emit: on_close\n  grace: 1 h"), shared).close()
    if loses_rows:
        with pytest.raises(QueryError, match="its key must be deleted then: give a key that is"):
            Job(best_of(query), shared)


def test_window_that_is_not_in_partition_by_is_refused(shared: OpenedOnce) -> None:
    query = best(source=f"(SELECT *, {HOUR} AS w FROM input)")
    with pytest.raises(QueryError, match="must be one of the columns of GROUP BY, PARTITION BY or"):
        Job(best_of(query), shared)


def test_time_of_the_query_is_that_of_the_row(local: LocalQueries) -> None:
    source = f"(SELECT *, {HOUR} AS w FROM input)"
    query = best("timestamp, place", "w", order="n", source=source)
    folding = Folding(opened(local, query))
    folding.add(records([{"n": 3, "at": 7}, {"n": 2, "at": 9}, {"n": 1, "at": 8}]))
    assert [(value, time) for _, value, time in folding.results()] == [
        ({"place": 1}, 8 * MINUTE_MS),
        ({"place": 2}, 9 * MINUTE_MS),
    ]


def test_rows_may_have_no_columns_but_their_group_and_place(local: LocalQueries) -> None:
    folding = Folding(opened(local, best("customer, place", order="n")))
    for n in (3, 2, 1):
        folding.add(records([{"customer": "a", "n": n}]))
    assert [value for _, value, _ in folding.results()] == [
        {"customer": "a", "place": 1},
        {"customer": "a", "place": 2},
    ]


def test_rows_of_one_record_that_tie_follow_their_columns(local: LocalQueries) -> None:
    source = "(SELECT customer, explode(tags) AS n FROM input)"
    folding = Folding(opened(local, best("n, place", order="customer", source=source)))
    folding.add(records([{"customer": "a", "tags": ["y", "x", "z"]}]))
    assert [value["n"] for _, value, _ in folding.results()] == ["x", "y"]


def test_lookup_tables_below_are_those_of_the_records_time(shared: OpenedOnce) -> None:
    query = (
        "SELECT concat(key, place) AS key, n, name FROM (SELECT o.key, n, name, row_number() OVER "
        "(PARTITION BY o.key ORDER BY n DESC) AS place FROM orders o LEFT JOIN names t "
        "ON o.key = t.key) WHERE place <= 2"
    )
    job = Job(
        "sources: {orders: in, names: names_topic}\nprocessors:\n- id: Best\n  type: sql\n"
        "  from: [orders]\n  format: json\n  schema: n INT\n"
        "  tables: {names: {topic: names, schema: name STRING}}\n"
        f"  query: {json.dumps(query)}\n  to: [sink]\n",
        shared,
    )
    job.send([{"key": "a", "name": "Ada", "at": 1}], topic="names_topic")
    job.send([{"key": "a", "n": 5, "at": 2}])
    job.send([{"key": "a", "name": "Bob", "at": 3}], topic="names_topic")
    job.send([{"key": "a", "n": 7, "at": 4}])
    assert [(each.key, each.value) for each in job.take()] == [
        ("a1", {"n": 5, "name": "Ada"}),
        ("a1", {"n": 7, "name": "Bob"}),
        ("a2", {"n": 5, "name": "Ada"}),
    ]
    job.close()
