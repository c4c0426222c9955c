"""`type: sql` with a join of two inputs in pipeline.yaml: what it becomes, and what is refused."""

from __future__ import annotations

import pytest
from msgspec import structs

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import JoinSpec, SqlSpec
from kafka_pipeline.common.protocol.messages import ProcessorReplica, replicas
from kafka_pipeline.streams.pipeline.partitions import with_counts
from kafka_pipeline.streams.pipeline.units import settings_of
from tests.unit.streams.pipeline.loading import load, problems_in
from tests.unit.streams.sql.join_pipeline import ON, pipeline

INNER = f"SELECT o.key, p.n FROM orders o JOIN payments p {ON}"
LEFT = INNER.replace("JOIN", "LEFT JOIN")
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
            INNER + " GROUP BY o.key, p.n",
            "",
            "cannot be in the SELECT that joins two inputs",
        ),
        (INNER.split(" AND ")[0], "", "must limit how much older"),
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
