"""Joins without bounds of time whose inputs are updates: what they become, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import ArcKind, OnError
from kafka_pipeline.common.pipelines.specs import SqlSpec
from tests.unit.streams.pipeline.loading import load, problems_in

GROUPS = "(SELECT a, b, count(*) AS c FROM orders GROUP BY a, b)"
ONE_GROUP = "(SELECT a AS g, sum(n) AS s FROM orders GROUP BY a)"


def pipeline(query: str, *, upserts: str = "orders payments", more: str = "") -> str:
    """Return a pipeline whose processor P joins orders and payments."""
    names = [each for each in ("orders", "payments") if each in query]
    inputs = ", ".join(names)
    sources = "".join(
        f"  {name}: {{topic: {name}, changelog: {str(name in upserts.split()).lower()}}}\n"
        for name in names
    )
    return f"""
sources:
{sources}
processors:
- id: P
  type: sql
  from: [{inputs}]
  format: json
  schema: a STRING, b STRING, n INT
  query: "{query}"
  ttl: none
  on_error: skip
  to: [sink]
  {more}
"""


def spec_of(made: Pipeline, id_: str) -> SqlSpec:
    spec = made.processor(id_).spec
    assert isinstance(spec, SqlSpec)
    return spec


def changing(made: Pipeline, id_: str) -> tuple[str, ...]:
    join = spec_of(made, id_).join
    assert join is not None
    return join.changing


def stores(made: Pipeline) -> Mapping[str, set[str]]:
    return {each.id: {store.name for store in each.stores} for each in made.processors}


def test_the_processor_in_front_of_the_topic_keeps_the_newest_records() -> None:
    made = load(
        pipeline(
            "SELECT concat_ws('|', o.key, p.key, o.n) AS key, o.a FROM orders o "
            "LEFT JOIN payments p ON o.n = p.n"
        )
    )
    assert stores(made) == {
        "P-rows": {"changelog-left", "changelog-right"},
        "P": {"left", "right", "shape"},
    }
    assert changing(made, "P-rows") == changing(made, "P") == ("left", "right")
    parameters = [spec_of(made, id_).parameters for id_ in ("P-rows", "P")]
    assert parameters == [
        {"reads": "upserts", "gives": "rows to join"},
        {"joins": "orders and payments"},
    ]
    found = {each.id: each.on_error is OnError.FAIL for each in made.processors}
    assert found == {"P-rows": False, "P": True}
    assert made.processor("P").gives == {"sink": ArcKind.UPSERTS}


def test_a_join_by_keys_keeps_them_itself() -> None:
    query = "SELECT o.key, o.a FROM orders o LEFT SEMI JOIN payments p ON o.key = p.key"
    made = load(pipeline(query, upserts="payments"))
    assert stores(made) == {"P": {"changelog-right", "left", "right", "shape"}}
    assert made.processor("P").on_error is OnError.SKIP
    assert made.processor("P").gives == {"sink": ArcKind.UPSERTS}
    made = load(pipeline(query, upserts=""))
    assert changing(made, "P") == ()
    assert made.processor("P").gives == {}


def test_an_input_that_is_joined_with_itself_is_kept_once() -> None:
    key = "concat_ws('|', o.key, p.key, o.n) AS key"
    made = load(pipeline(f"SELECT {key} FROM orders o JOIN orders p ON o.n = p.n"))
    assert stores(made)["P-rows"] == {"changelog-left"}
    assert changing(made, "P") == ("left", "right")


def test_deletions_pass_through_what_is_in_front_of_a_join() -> None:
    text = pipeline("SELECT o.key, o.a, p.b FROM Passed o JOIN payments p ON o.key = p.key")
    text = text.replace("sources:\n", "sources:\n  orders: {topic: orders, changelog: true}\n")
    text = text.replace("topic: payments, changelog: true", "topic: payments")
    text += """
- {id: Passed, type: sql, from: [orders], format: json, schema: a STRING,
   query: "SELECT key, a FROM orders WHERE a > 'b'", to: [P]}
"""
    made = load(text)
    assert spec_of(made, "Passed").changelog
    assert changing(made, "P") == ("left",)


ACCEPTED = {
    "the table is found by its key": (
        "SELECT o.a AS key, p.b FROM orders o JOIN payments p ON o.n = p.key",
        "payments",
        False,
    ),
    "the key has what rows meet by": (
        "SELECT o.key || o.n AS key, p.a FROM orders o LEFT JOIN payments p ON o.n = p.n AND "
        "p.key = o.key || ''",
        "orders payments",
        False,
    ),
    "groups by what rows meet by": (
        f"SELECT o.key, t.s FROM {ONE_GROUP} t RIGHT JOIN payments o ON t.g = o.key",
        "payments",
        True,
    ),
    "groups of which the key has all columns": (
        f"SELECT concat(t.a, '|', t.b) AS key, p.n FROM {GROUPS} t LEFT JOIN payments p USING (a)",
        "",
        True,
    ),
    "rows that have a partner": (
        f"SELECT g AS key, s FROM {ONE_GROUP} t LEFT SEMI JOIN payments p ON p.a = t.g",
        "",
        True,
    ),
    "columns with other names above the join": (
        "SELECT k AS key, b FROM (SELECT o.key AS k, p.b FROM orders o JOIN (SELECT upper(a) AS "
        "u, b FROM payments) p ON o.key = p.u)",
        "orders",
        False,
    ),
    "a condition in WHERE": (
        "SELECT p.key, o.n FROM orders o, payments p WHERE o.a = p.key",
        "payments",
        False,
    ),
}


@pytest.mark.parametrize(("query", "upserts", "has_stage"), ACCEPTED.values(), ids=ACCEPTED)
def test_a_key_that_tells_results_apart_is_accepted(
    query: str, upserts: str, has_stage: bool
) -> None:
    made = load(pipeline(query, upserts=upserts))
    assert changing(made, "P")
    assert made.processor("P").gives == {"sink": ArcKind.UPSERTS}
    assert any(id_.startswith("P.t") for id_ in stores(made)) == has_stage


REFUSED = {
    "no key": (
        "SELECT o.a FROM orders o JOIN payments p ON o.n = p.key",
        "payments",
        "gives no column key. Give a key that is made of p.key, and of what identifies a record of "
        "orders, such as concat_ws('|', p.key, …) AS key",
    ),
    "a key of the other side": (
        "SELECT o.key, p.a FROM orders o JOIN payments p ON o.n = p.n",
        "payments",
        "has a key that does not have key of payments, so it does not say which row of that a "
        "result is of. Give a key that is made of p.key and p.n, and of what identifies a record "
        "of orders, such as concat_ws('|', p.key, p.n, …) AS key",
    ),
    "rows that move": (
        "SELECT o.key, p.a FROM orders o LEFT JOIN payments p ON o.n = p.key",
        "orders payments",
        "has a key that does not have key of payments",
    ),
    "rows that move, next to a side that does not count": (
        "SELECT o.key, o.a FROM orders o LEFT ANTI JOIN payments p ON o.n = p.n",
        "orders payments",
        "has a key without the columns by which rows meet. When an update changes them, the former "
        "result is deleted by another task than the one that gives the new one, in any order. Give "
        "a key that is made of o.key and o.n",
    ),
    "both sides move": (
        "SELECT concat(o.key, '|', p.key) AS key FROM orders o JOIN payments p ON o.n = p.n",
        "orders payments",
        "has a key without the columns by which rows meet",
    ),
    "records whose rows the key does not have": (
        "SELECT p.key, o.a FROM orders o JOIN payments p ON o.n = p.n",
        "payments",
        "has a key without the columns by which rows meet",
    ),
    "a column of which it is not clear whose it is": (
        "SELECT concat(o.key, '|', p.key) AS key, n FROM orders o JOIN payments p ON o.n = b",
        "orders payments",
        "has a key without the columns by which rows meet",
    ),
    "groups that do not give their columns": (
        "SELECT t.c AS key FROM (SELECT a, count(*) AS c FROM orders GROUP BY a, b) t JOIN "
        "payments p ON t.a = p.key",
        "payments",
        "joins p.t, whose rows are told apart by grouping columns that it does not give",
    ),
    "a table": (
        "SELECT p.key, o.a FROM orders o JOIN payments p ON o.key = p.key JOIN names s ON s.a = "
        "p.a",
        "payments",
        "the rows of a table may be others by then: join the table in a query before or after it",
    ),
}


@pytest.mark.parametrize(("query", "upserts", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_join_that_could_not_take_results_back_is_refused(
    query: str, upserts: str, reason: str
) -> None:
    tables = "tables: {names: {topic: names, schema: 'a STRING', global: true}}"
    text = pipeline(query, upserts=upserts, more=tables if "names" in query else "")
    (problem,) = problems_in(text.replace("sources:\n", "sources:\n  names: names\n"))
    assert '"P": it joins updates of ' in problem
    assert reason in problem


def test_updates_without_a_key_cannot_be_joined() -> None:
    first = "SELECT max(n) AS key, a FROM orders GROUP BY a"
    text = pipeline("SELECT p.key, f.a FROM First f JOIN payments p ON f.a = p.key", upserts="")
    text = text.replace("sources:\n", "sources:\n  orders: orders\n")
    text += f"""
- {{id: First, type: sql, from: [orders], format: json, schema: "a STRING, n INT",
   query: "{first}", to: [P]}}
"""
    (problem,) = problems_in(text)
    assert 'nothing tells which former one each of them replaces: "First" gives a key' in problem


def test_best_rows_without_a_key_cannot_be_joined() -> None:
    newest = (
        "SELECT a, n FROM (SELECT a, n, row_number() OVER (PARTITION BY a ORDER BY timestamp DESC) "
        "AS place FROM orders) WHERE place = 1"
    )
    query = f"SELECT p.key, f.a FROM ({newest}) f JOIN payments p ON f.a = p.key"
    (problem,) = problems_in(pipeline(query, upserts=""))
    assert (
        'Let "P.f" give a key that identifies its rows: one of all columns of PARTITION BY'
        in problem
    )


def test_a_query_may_group_a_join_whose_key_tells_all_rows_apart() -> None:
    inner = (
        "SELECT concat_ws('|', o.key, p.key, o.n) AS key, o.a, p.b FROM orders o JOIN payments p "
        "ON o.n = p.n"
    )
    query = f"SELECT b AS key, count(*) AS c FROM ({inner}) j GROUP BY b"
    made = load(pipeline(query))
    assert spec_of(made, "P-rows").changelog
    assert made.processor("P.j").gives == {"P": ArcKind.UPSERTS}
    (problem,) = problems_in(pipeline(query, upserts="orders"))
    assert "has a key that does not have partition and offset of payments" in problem
    assert "made of o.key and p.partition and p.offset and p.n, such as concat_ws(" in problem
    query = query.replace("p.key,", "p.partition, p.offset, p.n,")
    made = load(pipeline(query, upserts="orders"))
    assert made.processor("P.j").gives == {"P": ArcKind.UPSERTS}


OF_ONE_SELECT = {
    "records": (
        "orders o JOIN payments p ON o.n = p.n",
        "payments",
        "o.partition o.offset p.key p.n o.timestamp",
    ),
    "records without a partner": (
        "orders o LEFT JOIN payments p ON o.key = p.key",
        "payments",
        "o.partition o.offset p.key o.timestamp",
    ),
    "rows that move": (
        "orders o JOIN payments p ON o.n = p.n",
        "orders payments",
        "o.key p.key p.n",
    ),
    "groups": (
        f"{GROUPS} o JOIN payments p ON o.b = p.key",
        "payments",
        "o.a o.b p.key",
    ),
    "one side": ("orders o LEFT SEMI JOIN payments p ON o.key = p.key", "orders", "o.key"),
}


@pytest.mark.parametrize(("joined", "upserts", "wanted"), OF_ONE_SELECT.values(), ids=OF_ONE_SELECT)
def test_a_select_that_groups_what_it_joins_makes_the_key_itself(
    joined: str, upserts: str, wanted: str
) -> None:
    made = load(
        pipeline(f"SELECT o.b AS key, count(*) AS c FROM {joined} GROUP BY o.b", upserts=upserts)
    )
    stage = spec_of(made, "P").stages["P.o_p"]
    fields = re.findall(r"'\d+', `(\w)`.`(\w+)`", stage.query.partition(" AS key,")[0])
    assert [".".join(each) for each in fields] == wanted.split()
    assert made.processor("P.o_p").gives == {"P": ArcKind.UPSERTS}
    assert spec_of(made, "P.o_p").query == stage.query
    assert spec_of(made, "P-rows").changelog


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT o.a AS key, count(*) AS c FROM {GROUPS} o FULL JOIN {GROUPS} p ON o.a = p.a "
        "GROUP BY o.a",
        f"SELECT a AS key, count(*) AS c FROM (SELECT o.a FROM {GROUPS} o FULL JOIN {GROUPS} p ON "
        "o.a = p.a) o_p GROUP BY a",
        f"WITH o AS {GROUPS}, p AS {GROUPS} SELECT p.a AS key, count(*) AS c FROM o FULL JOIN p ON "
        "o.a = p.a AND o.c > p.c GROUP BY p.a",
    ],
    ids=["one SELECT", "a subquery", "CTEs"],
)
def test_a_key_says_which_side_is_there_if_both_may_be_rows_of_nulls(text: str) -> None:
    """A group of nulls without a partner would have the key of one on the other side."""
    made = load(pipeline(text))
    (stage,) = (each for name, each in spec_of(made, "P").stages.items() if name == "P.o_p")
    key, _, rest = stage.query.partition(" AS key,")
    assert "'4', `o`.__there, '5', `p`.__there)" in key
    for side in "op":
        assert f"(SELECT *, true AS __there FROM `P.{side}`)" in rest
    assert made.processor("P.o_p").gives == {"P": ArcKind.UPSERTS}


def test_such_a_key_needs_the_names_of_columns() -> None:
    joined = f"{GROUPS} o FULL JOIN {GROUPS} p ON o.a = p.a JOIN payments i ON o.b = i.key"
    (problem,) = problems_in(
        pipeline(f"SELECT concat_ws('|', o.a, o.b, p.b) AS key, o.* FROM {joined}")
    )
    assert '"P.o_p": it joins updates of ' in problem
    assert "It takes all columns of o and p: write their names in place of *" in problem
    text = f"SELECT a AS key, count(*) AS c FROM (SELECT * FROM {GROUPS} o FULL JOIN {GROUPS} p "
    (problem,) = problems_in(pipeline(text + "USING (a)) j GROUP BY a"))
    assert "such as to_json(named_struct('1', o.a, '2', o.b, '3', p.a, '4', p.b)) AS key" in problem


ADVICE = {
    "groups that always meet": (
        f"{ONE_GROUP} t FULL JOIN {ONE_GROUP} u ON t.g = u.g",
        "coalesce(t.g, u.g) AS key",
    ),
    "groups of two columns": (
        f"{GROUPS} t FULL JOIN {GROUPS} u USING (b, a)",
        "concat_ws('|', coalesce(t.b, u.b), coalesce(t.a, u.a)) AS key",
    ),
    "groups of which some do not meet": (
        f"{ONE_GROUP} t FULL JOIN {ONE_GROUP} u ON t.g = u.g AND t.s > u.s",
        "to_json(named_struct('1', t.g, '2', u.g)) AS key",
    ),
    "groups that are matched by others": (
        f"{ONE_GROUP} t FULL JOIN {GROUPS} u ON t.g = u.a",
        "to_json(named_struct('1', t.g, '2', u.a, '3', u.b)) AS key",
    ),
}


@pytest.mark.parametrize(("joined", "key"), ADVICE.values(), ids=ADVICE)
def test_the_key_of_groups_on_two_sides_is_the_one_to_write(joined: str, key: str) -> None:
    (problem,) = problems_in(pipeline(f"SELECT t.g AS x FROM {joined}"))
    assert problem.endswith(f"such as {key}")
    load(pipeline(f"SELECT {key}, 1 AS x FROM {joined}"))


def of_three(query: str, upserts: str) -> str:
    """Return a pipeline whose processor P joins orders, payments and items."""
    text = pipeline(query, upserts=upserts).replace("payments]", "payments, items]")
    is_changelog = str("items" in upserts.split()).lower()
    return text.replace(
        "sources:\n", f"sources:\n  items: {{topic: i, changelog: {is_changelog}}}\n"
    )


THREE = "orders o {}JOIN payments p ON o.n = p.n {}JOIN items i ON o.b = i.{}"
OF_THREE = {
    "rows that move, and a table": (
        THREE.format("", "", "key"),
        "orders payments items",
        "concat_ws('|', o.key, p.key, p.n, i.key)",
    ),
    "rows that move twice": (
        THREE.format("", "", "b"),
        "orders payments items",
        "concat_ws('|', o.key, p.key, p.n, i.key, i.b)",
    ),
    "records that are joined with two tables": (
        THREE.format("", "", "key").replace("p.n", "p.key"),
        "payments items",
        "concat_ws('|', p.key, i.key, …)",
    ),
    "a table that is joined with records of another join": (
        THREE.format("", "", "key"),
        "items",
        "concat_ws('|', i.key, …, …)",
    ),
    "a join of records that takes results back": (
        THREE.format("LEFT ", "", "key"),
        "",
        "concat_ws('|', i.key, …, …, …)",
    ),
    "groups of two inputs": (
        f"{ONE_GROUP} o FULL JOIN {GROUPS.replace('orders', 'payments')} p ON o.g = p.a "
        "JOIN items i ON o.g = i.key",
        "items",
        "to_json(named_struct('1', o.g, '2', p.a, '3', p.b, '4', i.key))",
    ),
    "rows without partners": (
        THREE.format("LEFT ", "LEFT ", "key"),
        "orders payments items",
        "to_json(named_struct('1', o.key, '2', o.n, '3', p.key, '4', i.key, '5', o.b))",
    ),
}


@pytest.mark.parametrize(("joined", "upserts", "key"), OF_THREE.values(), ids=OF_THREE)
def test_the_key_of_a_join_of_three_is_the_one_to_write(
    joined: str, upserts: str, key: str
) -> None:
    (problem,) = problems_in(of_three(f"SELECT i.a FROM {joined}", upserts))
    assert '"P": it joins updates of ' in problem
    assert f"such as {key} AS key" in problem
    key = key.replace("…", "o.b", 1).replace("…", "p.b", 1).replace("…", "i.b", 1)
    made = load(of_three(f"SELECT {key} AS key, i.a FROM {joined}", upserts))
    assert made.processor("P").gives == {"sink": ArcKind.UPSERTS}
    made = load(of_three(f"SELECT i.a AS key, count(*) AS c FROM {joined} GROUP BY i.a", upserts))
    assert made.processor("P.o_p_i").gives == {"P": ArcKind.UPSERTS}


def test_a_key_that_lacks_a_table_of_a_join_before_is_refused() -> None:
    text = of_three(f"SELECT i.key, o.a FROM {THREE.format('', '', 'key')}", "payments items")
    (problem,) = problems_in(text)
    assert (
        "has a key that does not have a column of o and p.key and p.n of the join of o and p, so "
        "it does not say which row of that a result is of. Give a key that is made of p.key and "
        "p.n and i.key, and of what identifies a record of o, such as concat_ws("
    ) in problem


def test_a_join_of_records_that_takes_results_back_can_be_grouped() -> None:
    joined = "orders o LEFT JOIN payments p ON o.n = p.n"
    made = load(
        pipeline(f"SELECT p.b AS key, count(*) AS c FROM {joined} GROUP BY p.b", upserts="")
    )
    key, _, _ = spec_of(made, "P").stages["P.o_p"].query.partition(" AS key,")
    for name in ("partition", "offset", "timestamp"):
        assert f"`o`.`{name}`" in key
        assert f"`p`.`{name}`" in key
    assert made.processor("P.o_p").gives == {"P": ArcKind.UPSERTS}
    assert spec_of(made, "P-rows").changelog


RENAMED = (
    "SELECT x AS key, count(*) AS c FROM (SELECT {} n AS m, a AS x FROM orders) o {} JOIN (SELECT "
    "{} n AS k FROM payments) p ON m = k GROUP BY x"
)


@pytest.mark.parametrize(
    "first",
    [
        "orders o JOIN payments p ON o.n = p.n",
        "orders o JOIN payments p ON o.key = p.key AND p.timestamp BETWEEN o.timestamp AND "
        "o.timestamp + INTERVAL 1 HOUR",
        "(SELECT DISTINCT n, b FROM orders) o JOIN payments p ON o.n = p.n",
    ],
)
def test_records_that_are_joined_before_a_side_that_changes_get_a_key(first: str) -> None:
    query = f"SELECT i.a AS key, count(*) AS c FROM {first} LEFT JOIN items i ON o.b = i.key"
    made = load(of_three(f"{query} GROUP BY i.a", "items").replace("ttl: none", "ttl: 9 d"))
    stage = spec_of(made, "P.o_p_i").stages["P.o_p"].query
    assert " AS key, struct(" in stage
    assert made.processor("P.o_p").gives == {}
    assert "`p.o_p`.`key`" in spec_of(made, "P").stages["P.o_p_i"].query
    assert made.processor("P.o_p_i").gives == {"P": ArcKind.UPSERTS}


def test_a_key_of_subqueries_has_the_names_that_these_give() -> None:
    query = RENAMED.format("key AS id,", "", "offset AS o, partition, timestamp AS at,")
    made = load(pipeline(query, upserts="orders"))
    key, _, _ = spec_of(made, "P").stages["P.o_p"].query.partition(" AS key,")
    assert [
        each for each in ("`o`.`id`", "`p`.`o`", "`p`.`at`", "`p`.`k`") if each not in key
    ] == []


@pytest.mark.parametrize(
    ("kind", "upserts", "lacking"),
    [
        ("", "orders payments", "joins o, which does not give key"),
        ("LEFT", "", "joins o, which does not give partition and offset and timestamp"),
    ],
)
def test_a_subquery_that_lacks_what_tells_its_rows_apart_is_named(
    kind: str, upserts: str, lacking: str
) -> None:
    problem = "\n".join(problems_in(pipeline(RENAMED.format("", kind, ""), upserts=upserts)))
    assert lacking in problem
    assert "add them to what o selects" in problem


@pytest.mark.parametrize("bound", ["window.start", "window.end", "window"])
def test_a_bound_tells_the_windows_of_a_group_apart(bound: str) -> None:
    sides = [
        f"(SELECT a, {bound} AS w, count(*) AS c FROM {each} GROUP BY a, window(timestamp, '1 h'))"
        for each in ("orders", "payments")
    ]
    joined = f"{sides[0].replace('1 h', '1 hour')} o JOIN {sides[1].replace('1 h', '1 hour')} p"
    query = f"SELECT to_json(struct(o.a, o.w)) AS key, o.c FROM {joined} ON o.a = p.a AND o.w = p.w"
    made = load(pipeline(query, upserts=""))
    assert made.processor("P").gives == {"sink": ArcKind.UPSERTS}


def test_a_bound_of_sessions_does_not_tell_them_apart() -> None:
    groups = "GROUP BY a, session_window(timestamp, '9 hours')"
    side = f"(SELECT a, session_window.start AS w FROM {{}} {groups})"
    joined = (
        f"{side.format('orders')} o JOIN {side.format('payments')} p ON o.a = p.a AND o.w = p.w"
    )
    query = f"SELECT to_json(struct(o.a, o.w)) AS key, p.w FROM {joined}"
    problem = "\n".join(problems_in(pipeline(query, upserts="")))
    assert "whose rows are told apart by grouping columns that it does not give" in problem


BOUNDED = (
    "SELECT o.key, p.a FROM orders o {}JOIN payments p ON o.key = p.key AND p.timestamp BETWEEN "
    "o.timestamp - INTERVAL 1 HOUR AND o.timestamp"
)


@pytest.mark.parametrize("how", ["", "LEFT "])
def test_bounds_of_time_are_conditions_where_results_change(how: str) -> None:
    query = BOUNDED.format(how)
    made = load(pipeline(query, upserts="payments"))
    plain = query.partition(" AND")[0]
    assert spec_of(made, "P").join == spec_of(load(pipeline(plain, upserts="payments")), "P").join
    assert stores(made) == {"P": {"changelog-right", "left", "right", "shape"}}
    (problem,) = problems_in(pipeline(query, upserts=""))
    assert "these bounds say how long rows are kept: leave it out" in problem
    text = pipeline(query, upserts="payments", more="grace: 1 h").replace("ttl: none", "")
    (problem,) = problems_in(text)
    assert 'it reads updates of "payments", and a join with bounds of time would give' in problem
    assert "Say how long rows are kept, with ttl: none or ttl: 7 d" in problem
    text = pipeline(query, upserts="payments", more="late_to: late")
    (problem,) = problems_in(text.replace("processors:", "sinks: {late: late}\nprocessors:"))
    assert "no record is late with ttl: none: leave late_to out" in problem


def test_bounds_of_time_count_in_joins_of_records_next_to_those_that_change() -> None:
    bounded = BOUNDED.format("").replace("o.key, p.a", "o.key AS k, p.a")
    query = f"SELECT i.key, i.n FROM ({bounded}) j JOIN items i ON j.k = i.key"
    made = load(of_three(query, "items"))
    inner, last = spec_of(made, "P.j").join, spec_of(made, "P").join
    assert inner is not None
    assert last is not None
    assert (inner.regular, inner.before_ms, inner.over_updates) == (None, 3_600_000, None)
    assert last.changing == ("right",)
    text = of_three(query.replace("JOIN payments", "LEFT JOIN payments"), "items")
    (problem,) = problems_in(text)
    assert '"P.j": missing key "grace"' in problem
    load(text.replace("ttl: none", "ttl: none\n  grace: 1 h"))


def test_what_a_join_of_results_that_change_gives_changes_too() -> None:
    """The processors are not in the order of their arcs."""
    text = pipeline(BOUNDED.format("").replace("orders o", "First o"), upserts="payments")
    text = text.replace("sources:\n", "sources:\n  orders: {topic: orders}\n")
    text += f"""
- {{id: First, type: sql, from: [orders, others], format: json, schema: "a STRING, b STRING, n INT",
   query: "{BOUNDED.format("").replace("payments", "others")}", ttl: none, to: [P]}}
"""
    text = text.replace("sources:\n", "sources:\n  others: {topic: others, changelog: true}\n", 1)
    made = load(text)
    assert (changing(made, "First"), changing(made, "P")) == (("right",), ("left", "right"))


def test_change_events_are_joined_behind_a_query_of_their_own() -> None:
    query = "SELECT o.key, p.a FROM orders o JOIN payments p ON o.key = p.key"
    text = pipeline(query).replace("changelog: true", "format: debezium", 1)
    (problem,) = problems_in(text)
    assert "Read that in a query of its own, such as SELECT * FROM its name" in problem
