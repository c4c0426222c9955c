"""`type: sql` with a join of two inputs in pipeline.yaml: what it becomes, and what is refused."""

from __future__ import annotations

import pytest
from msgspec import structs

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import JoinSpec, RegularJoinSpec, SqlSpec
from kafka_pipeline.common.protocol.messages import ProcessorReplica, replicas
from kafka_pipeline.streams.pipeline.kinds.sql import Sql
from kafka_pipeline.streams.pipeline.partitions import with_counts
from kafka_pipeline.streams.pipeline.units import settings_of
from tests.unit.streams.pipeline.loading import load, problems_in
from tests.unit.streams.sql.join_pipeline import ON, pipeline

DAY_MS = 86_400_000
INNER = f"SELECT o.key, p.n FROM orders o JOIN payments p {ON}"
LEFT = INNER.replace("JOIN", "LEFT JOIN")
REGULAR = "SELECT o.key, p.n FROM orders o JOIN payments p ON o.n = p.n"
SPEC = JoinSpec(
    left="orders",
    right="payments",
    keeps=(),
    before_ms=300_000,
    after_ms=600_000,
    grace_ms=86_400_000,
)


def join_of(made: Pipeline) -> JoinSpec | None:
    spec = made.processor("P").spec
    assert isinstance(spec, SqlSpec)
    assert spec.grouping is None
    return spec.join


def test_join_has_a_store_for_each_side() -> None:
    made = load(pipeline(INNER))
    assert join_of(made) == SPEC
    assert list(made.state_topics(made.processor("P"))) == ["left", "right", "join-times", "shape"]


def test_outer_join_also_keeps_what_has_no_partner() -> None:
    made = load(pipeline(LEFT, "grace: 1 min"))
    assert join_of(made) == structs.replace(SPEC, keeps=("left",), grace_ms=60_000)
    stores = ["left", "right", "unmatched", "join-times", "shape"]
    assert list(made.state_topics(made.processor("P"))) == stores


def test_late_records_are_one_more_target() -> None:
    made = load(pipeline(INNER, "late_to: late"))
    assert join_of(made) == structs.replace(SPEC, late_to="late")
    assert made.processor("P").to == ("sink", "late")
    assert made.out_topics(made.processor("P")) == ("out", "late")


def test_inputs_come_in_the_order_of_time() -> None:
    (found, *_) = (settings_of(unit) for unit in replicas(load(pipeline(INNER))))
    assert not found.takes_inputs_as_they_come
    waiting = replicas(load(pipeline(INNER, "max_task_idle_ms: 300")))
    assert settings_of(waiting[0]).max_task_idle_ms == 300


def test_assignment_carries_the_join() -> None:
    for unit in replicas(load(pipeline(LEFT, "grace: 1 min\n  late_to: late"))):
        assert ProcessorReplica.from_json(unit.to_json(), unit.parameters()) == unit


def test_regular_join_by_key_is_one_processor() -> None:
    made = load(pipeline(REGULAR.replace(".n = p.n", ".key = p.key"), "ttl: 7 d\n  late_to: late"))
    regular = RegularJoinSpec(ttl_ms=7 * DAY_MS)
    assert join_of(made) == structs.replace(
        SPEC, before_ms=0, after_ms=0, grace_ms=0, regular=regular, late_to="late"
    )
    assert [each.id for each in made.processors] == ["P"]
    assert made.processor("P").to == ("sink", "late")
    assert list(made.state_topics(made.processor("P"))) == ["left", "right", "join-times", "shape"]
    with pytest.raises(ConfigError, match="orders has 3, payments has 2"):
        with_counts(made, {"orders": 3, "payments": 2})


def test_rows_of_a_regular_join_by_columns_meet_in_an_internal_topic() -> None:
    made = load(pipeline(REGULAR, "ttl: 7 d\n  late_to: late"))
    front, back = made.processor("P-rows"), made.processor("P")
    assert front.to == ("join-repartition", "late")
    assert front.entry == back.entry == "P"
    assert back.from_ == ("join-repartition",)
    assert made.out_topics(front)[0] == made.in_topics(back)[0] == "P_join-repartition"
    assert not made.state_topics(front)
    assert list(made.state_topics(back)) == ["left", "right", "join-times", "shape"]
    counted = with_counts(made, {"orders": 3, "payments": 2})
    assert counted.task_count(counted.processor("P")) == 3
    for unit in replicas(counted):
        assert ProcessorReplica.from_json(unit.to_json(), unit.parameters()) == unit


def test_rows_may_be_kept_forever() -> None:
    made = load(pipeline(REGULAR, "ttl: none"))
    assert list(made.state_topics(made.processor("P"))) == ["left", "right", "shape"]
    spec = made.processor("P").spec
    assert Sql().keeps(spec) == ("the records of orders and payments, forever",)  # type: ignore[arg-type]
    with_time = load(pipeline(REGULAR, "ttl: 90 min")).processor("P").spec
    assert Sql().keeps(with_time) == ("the records of orders and payments, for 3 h",)  # type: ignore[arg-type]


def test_input_may_be_joined_with_itself() -> None:
    query = "SELECT a.key, b.n FROM orders a JOIN orders b ON a.n = b.n"
    text = pipeline(query, "ttl: none").replace("[orders, payments]", "[orders]")
    made = load(
        text.replace("sources: {orders: orders, payments: payments}", "sources: {orders: orders}")
    )
    assert made.processor("P-rows").from_ == ("orders",)


def test_inputs_must_have_as_many_partitions() -> None:
    made = load(pipeline(INNER))
    assert with_counts(made, {"orders": 3, "payments": 3}).task_count(made.processor("P")) == 3
    with pytest.raises(ConfigError, match="orders has 3, payments has 2"):
        with_counts(made, {"orders": 3, "payments": 2})


@pytest.mark.parametrize(
    ("query", "more", "problem"),
    [
        (LEFT, "", 'missing key "grace"'),
        (INNER, "grace: often", 'grace must be a time such as "30 s"'),
        (INNER, "emit: on_update", "emit belongs to a query with GROUP BY: leave it out in a join"),
        (INNER, "late_to: nowhere", '"P": late_to names no sink, got "nowhere"'),
        (
            INNER + " LATERAL VIEW explode(o.l) GROUP BY o.key, p.n",
            "",
            "name its columns",
        ),
        (INNER.split(" AND ")[0], "", "ttl: 7 d, or another time, or ttl: none, which keeps them"),
        (
            INNER,
            "ttl: 7 d",
            "ttl belongs to a join of two inputs without bounds of time, and these",
        ),
        ("SELECT key, n FROM input", "ttl: 7 d", "ttl belongs to a join of two inputs"),
        (
            REGULAR + " AND )",
            "ttl: 7 d",
            'the joins of the query cannot be read: reading stopped in line 1 at ")"',
        ),
        (REGULAR, "ttl: often", 'ttl must be a time such as "7 d", or none, got "often"'),
        (REGULAR, "ttl: 0 s", 'ttl must be a time such as "7 d", or none, got "0 s"'),
        (REGULAR, "ttl: 7 d\n  grace: 1 h", "grace belongs to windows and to joins with bounds"),
        (REGULAR, "ttl: none\n  late_to: late", "no record is late with ttl: none"),
        (REGULAR, "ttl: none\n  emit: on_update", "leave it out in a join"),
        (INNER.replace("orders", "refunds"), "", "refunds and payments, but the processor reads"),
        (INNER.replace("orders", "input"), "", "input has the records of all inputs: join two"),
        (
            INNER.replace("o.key, ", "o.key, c.value, ", 1) + " JOIN c ON c.key = o.key",
            "tables: {c: {topic: source}}",
            'table "c" follows a topic, which is not possible in a join of two inputs',
        ),
    ],
)
def test_mistakes_are_reported(query: str, more: str, problem: str) -> None:
    found = problems_in(pipeline(query, more))
    assert len(found) == 1, found
    assert problem in found[0]


def test_a_join_may_have_a_schema_for_each_input() -> None:
    schemas = '{orders: "n INT", payments: "n INT, m INT"}'
    spec = load(pipeline(INNER, schema=schemas)).processor("P").spec
    assert isinstance(spec, SqlSpec)
    assert spec.schemas == {"orders": "n INT", "payments": "n INT, m INT"}
    assert spec.schema == ""


@pytest.mark.parametrize(
    ("query", "schema", "problem"),
    [
        (
            INNER,
            "{orders: n INT}",
            '"P": schema has orders, but the inputs are orders and payments',
        ),
        (INNER, "{orders: n INT, payments: 5}", "the schema of payments must be a string"),
        ("SELECT key FROM input", "{orders: n INT, payments: n INT}", "schema is a map, which"),
    ],
)
def test_mistakes_in_schemas_are_reported(query: str, schema: str, problem: str) -> None:
    found = problems_in(pipeline(query, schema=schema))
    assert len(found) == 1, found
    assert problem in found[0]


def test_format_without_columns_has_no_schemas() -> None:
    text = pipeline(INNER, schema="{orders: n INT, payments: n INT}")
    (found,) = problems_in(text.replace("format: json", "format: string"))
    assert "schema belongs to format: json" in found
