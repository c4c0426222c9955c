"""What one call says of a plan, or moves to and from the JVM, is what many calls do."""

from __future__ import annotations

import gc
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import JavaObject
from py4j.protocol import GATEWAY_SERVER_OBJECT_ID, Py4JNetworkError
from pyspark.sql import SparkSession

from kafka_pipeline.streams.sql import java_objects
from kafka_pipeline.streams.sql.java_objects import JavaObjects, items
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.plan import all_nodes, expressions, id_of, kind
from kafka_pipeline.streams.sql.plan_questions import PlanQuestions
from kafka_pipeline.streams.sql.spec import QuerySpec

pytestmark = pytest.mark.integration

QUERY = """
    SELECT id + 1 AS n, CASE WHEN id > 2 THEN to_json(struct(id)) ELSE from_json('1', 'a INT').a END
    FROM range(3) JOIN range(4) AS other USING (id)
    WHERE id IN (SELECT id FROM range(5) WHERE to_csv(struct(id)) = '3')
"""


@pytest.fixture(scope="module")
def session(local: LocalQueries) -> SparkSession:
    local.open(QuerySpec("SELECT key, value FROM input")).close()
    session = SparkSession.getActiveSession()
    assert session is not None, "a query was opened in this thread"
    return session.newSession()


@pytest.fixture(scope="module")
def plan(session: SparkSession) -> Any:
    return session.sql(QUERY)._jdf.queryExecution().analyzed()


@pytest.fixture(scope="module")
def questions(session: SparkSession) -> PlanQuestions:
    return PlanQuestions(session._jvm)


def test_names_are_those_of_the_nodes(questions: PlanQuestions, plan: Any) -> None:
    own = items(plan.subqueriesAll())
    walked = sorted(kind(node) for node in all_nodes(plan))
    named = sorted(name for each in (plan, *own) for name in questions.names(each))
    assert named == walked
    assert named.count("Range") == 3


def test_names_of_columns_are_in_their_order(questions: PlanQuestions, plan: Any) -> None:
    columns = plan.projectList()
    assert questions.names(columns) == [kind(each) for each in items(columns)]


def test_ids_are_in_the_order_of_columns(questions: PlanQuestions, plan: Any) -> None:
    columns = plan.projectList()
    found = questions.ids(columns)
    assert found == [id_of(column) for column in items(columns)]
    assert len({*found}) == 2


@pytest.mark.parametrize("name", ["StructsToJson", "JsonToStructs", "AttributeReference", "Gone"])
def test_expressions_are_found_wherever_they_are(
    name: str, questions: PlanQuestions, plan: Any
) -> None:
    walked = [
        each
        for node in all_nodes(plan)
        for each in expressions(items(node.expressions()))
        if kind(each) == name
    ]
    found = [
        each
        for part in (plan, *items(plan.subqueriesAll()))
        for named, each in questions.found_in(part, [name])
        if named == name
    ]
    assert sorted(str(each.toString()) for each in found) == sorted(
        str(each.toString()) for each in walked
    )
    assert bool(found) is (name != "Gone")


def test_an_expression_in_a_subquery_is_not_one_of_the_plan(
    questions: PlanQuestions, plan: Any
) -> None:
    (subquery,) = items(plan.subqueriesAll())
    assert questions.found_in(plan, ["StructsToCsv"]) == []
    assert [name for name, _ in questions.found_in(subquery, ["StructsToCsv"])] == ["StructsToCsv"]


def test_sequence_has_its_objects_in_their_order(plan: Any) -> None:
    columns = items(plan.projectList())
    objects = JavaObjects.near(plan)
    again = objects.seq([*reversed(columns), columns[0]])
    places = [columns.index(each) for each in items(again)]
    assert places == [*reversed(range(len(columns))), 0]
    assert items(objects.seq(columns).take(0)) == []


def test_objects_that_python_no_longer_uses_are_released(plan: Any) -> None:
    """Otherwise, the JVM would keep all plans, and the rows of its tables."""
    gateway = JavaObject(GATEWAY_SERVER_OBJECT_ID, plan._gateway_client).getGateway()
    columns = items(plan.projectList())
    ids = [each._get_object_id() for each in columns]
    kept = gateway.getObject(ids[1])
    assert [gateway.getObject(id_) is None for id_ in ids] == [False, False]
    del columns[0]
    gc.collect()
    deadline_s = time.monotonic() + 30
    while gateway.getObject(ids[0]) is not None:
        assert time.monotonic() < deadline_s, "the JVM still has it"
        time.sleep(0.05)
    assert gateway.getObject(ids[1]) == kept


@pytest.mark.parametrize("error", [ConnectionRefusedError, ConnectionResetError, Py4JNetworkError])
def test_objects_of_a_jvm_that_has_ended_need_no_release(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker of py4j goes on: it showed the error, and ended."""
    monkeypatch.setattr(java_objects, "_RELEASE_INTERVAL_S", 0)
    asked = []

    def release(ids: str) -> None:
        asked.append(ids)
        raise error

    releases = java_objects._Releases(deque(), SimpleNamespace(release=release))
    releases.appendleft((None, "o7"))
    releases.garbage_collect_object("", False)
    assert asked == ["o7"]
