"""Queries of pipeline.yaml that become several processors."""

from __future__ import annotations

import json

import pytest

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.pipelines.specs import (
    DEFAULT_MAX_COLLECTED,
    SqlSpec,
    WindowSpec,
)
from kafka_pipeline.common.typed_json import as_json, from_json, parse
from kafka_pipeline.streams.sql.query_stages import MOST_STAGES
from tests.unit.streams.pipeline.loading import load, problems_in

HOURS = (
    "SELECT customer AS key, count(*) AS n, window.start AS timestamp FROM input "
    "GROUP BY customer, window(timestamp, '1 hour')"
)
SPREAD = f"SELECT n AS key, count(*) AS c FROM ({HOURS}) hours GROUP BY n"
VISITS = (
    "SELECT page AS key, count(*) AS n FROM (SELECT DISTINCT page, user FROM input) v GROUP BY page"
)
PAID = (
    "SELECT product AS key, sum(paid) AS paid FROM (SELECT o.product, p.paid FROM orders o JOIN "
    "payments p ON o.key = p.key AND p.timestamp BETWEEN o.timestamp AND o.timestamp + INTERVAL 1 "
    "HOUR) pairs GROUP BY product"
)
LATE = "sinks: {late: late_records}"


def pipeline(query: str, more: str = "", top: str = "", schema: str = "customer STRING") -> str:
    return f"""
{top}
processors:
- id: Final
  type: sql
  format: json
  schema: {schema}
  query: {json.dumps(query)}
  to: [sink]
  {more}
"""


def found(pipeline: Pipeline) -> dict[str, PipelineProcessor]:
    """Return the processors by id, without those that only keep groups."""
    return {each.id: each for each in pipeline.processors}


def spec_of(pipeline: Pipeline, id_: str) -> SqlSpec:
    spec = found(pipeline)[id_].spec
    assert isinstance(spec, SqlSpec)
    return spec


def test_stages_are_processors_with_an_arc_between_them() -> None:
    made = load(pipeline(SPREAD, "emit: on_close\n  grace: 1 min"))
    first, *_ = [each for each in made.processors if each.id.startswith("Final.hours")]
    assert first.from_ == ("source",)
    last = [each for each in made.processors if each.id.startswith("Final.hours")][-1]
    assert last.to == ("Final",)
    names = [each.id for each in made.processors]
    assert names == ["Final.hours-rows", "Final.hours", "Final-rows", "Final"]
    assert made.in_topics(found(made)["Final-rows"]) == made.out_topics(last)
    assert found(made)["Final"].to == ("sink",)


def test_keys_hold_for_the_stages_that_they_are_about() -> None:
    more = "emit: on_close\n  grace: 1 min\n  late_to: late\n  max_task_idle_ms: 5"
    made = load(pipeline(SPREAD, more, LATE))
    hours, last = (spec_of(made, id_) for id_ in ("Final.hours", "Final"))
    assert hours.grouping is not None
    assert last.grouping is not None
    assert hours.grouping.window == WindowSpec(size_ms=3_600_000, slide_ms=3_600_000)
    assert (hours.grouping.emit, hours.grouping.grace_ms) == ("on_close", 60_000)
    assert (hours.grouping.late_to, hours.max_task_idle_ms) == ("late", 5)
    assert (last.grouping.emit, last.grouping.window) == ("on_update", None)
    assert (last.grouping.late_to, last.max_task_idle_ms) == (None, 0)
    assert last.grouping.max_collected == DEFAULT_MAX_COLLECTED


def test_key_that_no_stage_has_a_use_for_is_reported_once() -> None:
    text = pipeline(VISITS, "emit: on_close\n  grace: 1 min")
    assert problems_in(text) == [
        "10:9: emit belongs to a query with window(…) in GROUP BY: leave it out",
        "11:10: grace belongs to a query with window(…) in GROUP BY: leave it out",
    ]


def test_stage_has_the_lookup_tables_that_it_reads() -> None:
    query = (
        "SELECT city AS key, count(*) AS n FROM (SELECT DISTINCT user, page FROM input JOIN pages "
        "USING (page)) v JOIN cities USING (user) GROUP BY city"
    )
    tables = (
        "{pages: {format: csv, path: pages.csv}, "
        "cities: {topic: c, global: true, schema: city STRING}}"
    )
    made = load(pipeline(query, f"tables: {tables}", "sources: {c: cities}"))
    visits, last = spec_of(made, "Final.v"), spec_of(made, "Final-rows")
    assert (list(visits.tables), list(visits.topic_tables)) == (["pages"], [])
    assert (list(last.tables), list(last.topic_tables)) == ([], ["cities"])


def test_schemas_and_inputs_go_to_the_stages_that_read_them() -> None:
    text = f"""
sources: {{orders: o, payments: p}}
processors:
- {{id: Paid, type: forward, from: [payments], to: [Final, sink]}}
- id: Final
  type: sql
  from: [orders]
  format: json
  schema: {{orders: product STRING, Paid: paid DOUBLE}}
  query: {json.dumps(PAID.replace("payments p", "Paid p"))}
  grace: 1 min
  to: [sink]
"""
    made = load(text)
    pairs, last = spec_of(made, "Final.pairs"), spec_of(made, "Final")
    assert found(made)["Final.pairs"].from_ == ("orders", "Paid")
    assert found(made)["Paid"].to == ("Final.pairs", "sink")
    assert pairs.schemas == {"orders": "product STRING", "Paid": "paid DOUBLE"}
    assert (last.schema, last.schemas, last.inputs) == ("", {}, ("Final.pairs",))
    assert last.stages["Final.pairs"].query == pairs.query
    assert (pairs.is_inner, last.is_inner) == (True, False)
    assert from_json(SqlSpec, as_json(last), "spec") == last


def test_former_id_is_that_of_each_stage() -> None:
    made = load(pipeline(VISITS, "was: Former"))
    assert made.renames["Final.v"] == "Former.v"
    assert made.renames["Final"] == "Former"


REFUSED = {
    "a count of updates": (
        f"SELECT n AS key, count(*) AS c FROM ({HOURS}) hours GROUP BY n",
        '"Final": its records are updates of "Final.hours"',
    ),
    "a join of updates": (
        f"SELECT h.n FROM source s JOIN ({HOURS}) h ON s.key = h.key AND s.timestamp = h.timestamp",
        '"Final": it reads updates of "Final.h", and a join with bounds of time would',
    ),
    "groups of a join that takes results back": (
        "SELECT n AS key, count(*) AS c FROM (SELECT l.key, l.n FROM source l LEFT JOIN source r "
        "ON l.n = r.a) j GROUP BY n",
        '"Final": its records are updates of "Final.j": "Final.j" takes back what a row without a '
        "partner gave, and two rows may have one key",
    ),
    "groups of results with a key of their own": (
        "SELECT n AS key, count(*) AS c FROM (SELECT customer AS key, count(*) AS n FROM input "
        "GROUP BY customer) t GROUP BY n",
        '"Final": its records are updates of "Final.t": "Final.t" gives a key, which two of its '
        "groups may have: leave it out",
    ),
    "groups of best rows without a key": (
        "SELECT n AS key, count(*) AS c FROM (SELECT n FROM (SELECT n, row_number() OVER "
        "(PARTITION BY customer ORDER BY timestamp DESC) AS place FROM input) WHERE place = 1) t "
        "GROUP BY n",
        '"Final": its records are updates of "Final.t": "Final.t" gives no column key. Let that '
        "part of the query give a key that identifies its rows: one of all columns of PARTITION BY",
    ),
    "a table that is not there": (
        "SELECT n AS key, count(*) AS c FROM (SELECT DISTINCT n FROM inputs) GROUP BY n",
        '"Final": the query reads "inputs", which is neither an input nor a table: the inputs are '
        "source",
    ),
}


@pytest.mark.parametrize(("query", "reason"), REFUSED.values(), ids=REFUSED)
def test_query_with_stages_is_refused(query: str, reason: str) -> None:
    (problem,) = problems_in(pipeline(query, "ttl: none" if "LEFT JOIN" in query else ""))
    assert problem.startswith("4:7: " + reason)


def test_late_records_of_a_stage_do_not_go_where_the_results_go() -> None:
    query = (
        "SELECT s AS key, count(*) AS c FROM (SELECT a, sum(n) OVER (PARTITION BY key ORDER BY "
        "timestamp ROWS 2 PRECEDING) AS s FROM input) sums GROUP BY s"
    )
    more = "grace: 1 min\n  late_to: out"
    text = pipeline(query, more, "sinks: {out: out}").replace("[sink]", "[out]")
    assert any("late_to" in each for each in problems_in(text))


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT max(n) AS n FROM (SELECT DISTINCT n FROM a) GROUP BY n", 'does not read "b"'),
        (
            "SELECT max(n) AS n FROM (SELECT DISTINCT n FROM input) GROUP BY n",
            "schema has a and c, but the inputs are a and b",
        ),
    ],
)
def test_inputs_and_schemas_must_be_those_of_the_query(query: str, reason: str) -> None:
    schema = "{a: n INT, c: n INT}" if "schema" in reason else "n INT"
    (problem,) = problems_in(pipeline(query, "from: [a, b]", "sources: {a: a, b: b}", schema))
    assert problem.startswith('4:7: "Final": ')
    assert problem.endswith(reason)


def test_other_processors_name_the_query_and_not_its_stages() -> None:
    text = pipeline(VISITS) + "- {id: Other, type: forward, to: [Final.v]}\n"
    (problem,) = problems_in(text)
    assert '"Final.v" is a stage of the query "Final": send to "Final"' in problem
    text = pipeline(VISITS) + "- {id: Final.v, type: forward, to: [sink]}\n"
    assert any(
        '"Final.v" is also the id of a stage of the query "Final": rename one' in each
        for each in problems_in(text)
    )


def test_join_in_the_select_that_groups_is_a_stage() -> None:
    query = PAID.replace("(SELECT o.product, p.paid FROM ", "").replace(") pairs", "")
    top = "sources: {orders: o, payments: p}"
    loaded = load(pipeline(query, "from: [orders, payments]", top))
    assert [*found(loaded)] == ["Final.o_p", "Final-rows", "Final"]
    assert spec_of(loaded, "Final.o_p").join is not None


TOTALS = (
    "SELECT o.product AS key, sum(p.paid) AS paid FROM orders o JOIN payments p ON o.n = p.n "
    "GROUP BY o.product"
)
OF_TOTALS = "from: [orders, payments]\n  ttl: 1 h"
TOPICS = "sources: {orders: o, payments: p, c: c}\nsinks: {late: late_records}"


def test_rows_of_groups_are_made_in_the_tasks_of_the_join_that_they_are_of() -> None:
    made = load(pipeline(TOTALS, f"{OF_TOTALS}\n  late_to: late", TOPICS))
    assert [*found(made)] == ["Final.o_p-rows", "Final.o_p", "Final"]
    join, last = found(made)["Final.o_p"], found(made)["Final"]
    assert made.out_topics(join) == made.in_topics(last) == ("Final_groups-repartition",)
    spec = spec_of(made, "Final.o_p")
    assert spec.parameters == {"joins": "orders and payments", "gives": "rows of groups"}
    assert found(made)["Final.o_p-rows"].to == ("join-repartition", "late")
    assert spec.join is not None
    assert spec.join.late_to is None
    assert (made.query_of_stage(join), join.entry) == ("Final", "Final.o_p")
    assert from_json(SqlSpec, as_json(spec), "spec") == spec


APART = {
    "a rejected result is not a whole row": (TOTALS, "on_error: skip", ""),
    "windows": (
        "SELECT o.product AS key, sum(p.paid) AS paid FROM orders o JOIN payments p ON o.n = p.n "
        "GROUP BY o.product, window(o.timestamp, '1 hour')",
        "emit: on_update\n  grace: 1 h",
        "",
    ),
    "a table that tasks keep": (
        "SELECT t.name AS key, sum(j.paid) AS paid FROM (SELECT o.product, p.paid FROM orders o "
        "JOIN payments p ON o.n = p.n) j JOIN names t ON j.product = t.key GROUP BY t.name",
        "tables: {names: {topic: c, global: true, schema: name STRING}}",
        "",
    ),
    "a join of two readers": (
        "WITH j AS (SELECT o.product, p.paid FROM orders o JOIN payments p ON o.n = p.n) SELECT "
        "a.n AS key, count(*) AS c FROM (SELECT DISTINCT product AS n FROM j) a JOIN (SELECT "
        "DISTINCT paid AS n FROM j) b ON a.n = b.n GROUP BY a.n",
        "",
        "Final.a-rows",
    ),
}


@pytest.mark.parametrize(("query", "more", "front"), APART.values(), ids=APART)
def test_rows_of_groups_are_made_apart_from_a_join(query: str, more: str, front: str) -> None:
    made = load(pipeline(query, f"{OF_TOTALS}\n  {more}", TOPICS))
    front = front or "Final-rows"
    assert spec_of(made, front).gives_rows
    (sender,) = (each for each in made.processors if front.removesuffix("-rows") in each.to)
    assert spec_of(made, sender.id).front is None


def test_wrong_join_is_the_only_thing_reported() -> None:
    query = "SELECT o.key FROM orders o JOIN payments p ON o.key = p.key"
    text = pipeline(
        query,
        "from: [orders, payments]",
        "sources: {orders: o, payments: p}",
        "{orders: n INT, payments: n INT}",
    )
    (problem,) = problems_in(text)
    assert problem.startswith("8:10: the query joins orders with payments")


def test_edit_of_the_last_stage_leaves_the_others_as_they_are() -> None:
    before, after = load(pipeline(VISITS)), load(pipeline(VISITS.replace("count(*)", "max(user)")))
    for id_ in ("Final.v-rows", "Final.v"):
        assert found(before)[id_] == found(after)[id_]
        assert before.state_topics(found(before)[id_]) == after.state_topics(found(after)[id_])
    assert spec_of(before, "Final") != spec_of(after, "Final")


def test_late_records_do_not_go_where_the_results_go() -> None:
    text = pipeline(SPREAD, "emit: on_close\n  grace: 1 min\n  late_to: late", LATE)
    (problem,) = problems_in(text.replace("to: [sink]", "to: [late, sink]"))
    assert problem.startswith('4:7: "Final": late_to is "late", where the results go')


def test_longest_chain_of_stages_can_travel() -> None:
    query = "input"
    for _ in range(MOST_STAGES):
        query = f"(SELECT DISTINCT n FROM {query})"
    last = spec_of(load(pipeline(query[1:-1])), "Final")
    assert from_json(SqlSpec, parse(json.dumps([[[as_json(last)]]]).encode())[0][0][0], "") == last
