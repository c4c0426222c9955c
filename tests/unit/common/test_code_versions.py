"""Fingerprints of users' code: from a TaskManager's report to what people are shown."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from kafka_pipeline.admin.status import overview
from kafka_pipeline.common.cluster.cluster_status import Beat, ClusterStatus, snapshot
from kafka_pipeline.common.cluster.code_versions import (
    CodeChange,
    code_changes,
    differing,
    versions_line,
)
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import (
    ClassSpec,
    DataFrameSpec,
    ForwardSpec,
    TopologySpec,
)
from kafka_pipeline.common.protocol.messages import Heartbeat, JobManagerBeat, Report
from kafka_pipeline.common.protocol.reported_tasks import ReportedTasks
from kafka_pipeline.common.tick import Tick
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.jobmanager.events import LeadershipBegan, Reported
from kafka_pipeline.jobmanager.state import JobManagerState
from kafka_pipeline.taskmanager.reporter import Reporter
from tests.unit.common.wire import REPORT, decode, encode, is_malformed, with_headers

CODE = {"shop": "0a1b", "pay.ment": "2c3d"}
NOW_MS = 100_000


def test_a_report_has_the_fingerprints_and_one_without_is_as_it_was() -> None:
    report = replace(REPORT, code=CODE)
    assert decode(encode(Heartbeat(report))) == Heartbeat(report)
    (record,) = encode(Heartbeat(REPORT))
    assert "code" not in json.loads(dict(record.headers)["report"])


@pytest.mark.parametrize("code", [[], {"shop": 1}, {"shop": None}, "shop"])
def test_other_values_are_malformed(code: object) -> None:
    (record,) = encode(Heartbeat(REPORT))
    document = json.loads(dict(record.headers)["report"]) | {"code": code}
    assert is_malformed(with_headers(record, report=json.dumps(document).encode()))


def test_only_full_reports_have_them_and_readers_keep_them() -> None:
    reporter, reader = Reporter(1000), ReportedTasks()
    everything = Report(1, "me", 2, 0, code=CODE)
    first, second = (reporter.heartbeat(everything, now_ms) for now_ms in (0, 1000))
    assert (first.base, first.code) == (None, CODE)
    assert (second.base, second.code) == (first.beat, {})
    assert reader.take(first)
    assert reader.take(second)
    assert reader.code == CODE


def test_the_job_manager_knows_the_code_of_those_that_take_part() -> None:
    state = JobManagerState((), 2, 1000)
    state.handle(LeadershipBegan(0))
    state.handle(Tick(0))
    for tm_id, fingerprint in enumerate(("a", "b")):
        state.handle(Reported(Report(tm_id, f"i{tm_id}", 1, 1, code={"shop": fingerprint})))
    assert state.code == {0: {"shop": "a"}, 1: {"shop": "b"}}
    state.handle(Reported(Report(1, "i1", 1, 2, leaving=True)))
    assert state.code == {0: {"shop": "a"}}


def test_modules_of_which_there_are_several_versions_are_found() -> None:
    code = {0: {"a": "1", "b": "1"}, 1: {"a": "2", "b": "1"}, 2: {"a": "1"}, 3: {}}
    assert differing(code) == {"a": {"1": (0, 2), "2": (1,)}}
    assert versions_line("a", differing(code)["a"]) == (
        'the TaskManagers run different code of the module "a" (0, 2: 1; 1: 2)'
    )
    assert differing({0: {"a": "1"}, 1: {"a": "1"}}) == {}


def cluster(*code: dict[str, str], silent_ms: int = 0) -> ClusterStatus:
    beats = [
        Beat(NOW_MS - silent_ms * tm_id, Report(tm_id, f"i{tm_id}", 1, 1, code=each))
        for tm_id, each in enumerate(code)
    ]
    return snapshot([Beat(NOW_MS, JobManagerBeat(0, NOW_MS, {})), *beats], NOW_MS, 1000, len(code))


def shown(status: ClusterStatus) -> str:
    text = io.StringIO()
    Console(file=text, width=200).print(overview(status))
    return text.getvalue()


def test_the_status_warns_of_different_code_in_task_managers_that_are_up() -> None:
    status = cluster({"shop": "old"}, {"shop": "new"})
    assert 'different code of the module "shop" (0: old; 1: new)' in shown(status)
    assert [each["code"] for each in status.to_json()["task_managers"]] == [
        {"shop": "old"},
        {"shop": "new"},
    ]
    assert "different code" not in shown(cluster({"shop": "old"}, {"shop": "old"}))
    assert "different code" not in shown(cluster({"shop": "old"}, {"shop": "new"}, silent_ms=9000))


PIPELINE = Pipeline(
    (
        PipelineProcessor("A", ClassSpec(code="shop.orders:Total"), ("B",), (SOURCE,)),
        PipelineProcessor("B", DataFrameSpec(code="shopping:frame"), ("C",), ("A",)),
        PipelineProcessor("C", ForwardSpec(), (SINK,), ("B",)),
    ),
    TopicNames("job", "in", "out"),
    1,
)


def test_a_plan_says_to_restart_before_a_topology_is_applied() -> None:
    """Its stores and topics are those of the code here, which TaskManagers do not have yet."""
    topology = PipelineProcessor("T", TopologySpec(code="shop:build"), (SINK,), (SOURCE,))
    pipeline = replace(PIPELINE, processors=(topology,))
    (found,) = code_changes({"shop": "2"}, {0: {"shop": "1"}}, pipeline)
    assert str(found).endswith("is restarted. It has a topology, so restart before you apply")


def test_a_plan_names_modules_that_differ_from_what_runs_and_their_processors() -> None:
    here = {"shop": "2", "shopping": "1", "helpers": "2", "unknown": "1"}
    runs = {"shop": "1", "shopping": "1", "helpers": "1"}
    found = code_changes(here, {0: runs, 1: here, 2: {}}, PIPELINE)
    assert found == [CodeChange("shop", ("A",), (0,)), CodeChange("helpers", (), (0,))]
    assert [str(each) for each in found] == [
        "shop, which has the code of A: takes effect once TaskManager 0 is restarted",
        "helpers: takes effect once TaskManager 0 is restarted",
    ]
    assert found[0].to_json() == {"module": "shop", "processors": ["A"], "task_managers": [0]}
    assert code_changes(here, {}, PIPELINE) == []
