"""What is asked of processors and tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.deployment import wishes
from kafka_pipeline.deployment.desired_state import (
    Deployment,
    PipelineVersion,
    StopOrder,
    Wish,
    records,
)
from kafka_pipeline.deployment.job import Chosen, choose
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.small_config import SMALL_CONFIG

BUSY = Wish(version=3, paused=("A",), drains=True, restarts={"A": 1})
FILE = """
- {id: A, type: forward, to: [B]}
- {id: B, type: count, to: [sink]}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Two processors with three tasks each."""
    config, file = tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    config.write_text(SMALL_CONFIG.replace("parallelism: 1", "parallelism: 3"))
    file.write_text(FILE)
    return load_pipeline(file, load_config(config))


def chosen(pipeline: Pipeline, *ids: str) -> Chosen:
    deployment = Deployment(pipeline.names)
    version = PipelineVersion(1, pipeline, FILE, wall_clock_ms(), "ada@alpha")
    for record in records(pipeline.names, Wish(version=1), version):
        deployment.take(record)
    return choose(deployment, ids)


def test_an_id_is_that_of_a_processor_or_of_a_task(pipeline: Pipeline) -> None:
    assert chosen(pipeline).ids == ["A", "B"]
    found = chosen(pipeline, "B_2", "A", "A_0", "B_2")
    assert (found.ids, found.task_count) == (["A", "B_2"], 4)
    for unknown, hint in (("C", "it has"), ("B_3", 'did you mean "B_'), ("B_0.standby1", "")):
        with pytest.raises(ConfigError, match=f'no processor or task "{unknown}"') as caught:
            chosen(pipeline, unknown)
        assert hint in str(caught.value)
    with pytest.raises(ConfigError, match="no pipeline yet"):
        choose(Deployment(pipeline.names), [])


def test_paused_processors_stay_paused_when_others_are(pipeline: Pipeline) -> None:
    assert wishes.paused(BUSY, chosen(pipeline, "B")).paused == ("A", "B")


def test_task_is_paused_unless_its_processor_is(pipeline: Pipeline) -> None:
    found = wishes.paused(BUSY, chosen(pipeline, "A_0", "B_1"))
    assert (found.paused, found.paused_tasks) == (("A",), ("B_1",))
    found = wishes.paused(found, chosen(pipeline, "B"))
    assert (found.paused, found.paused_tasks) == (("A", "B"), ())


def test_task_is_resumed_and_the_others_of_its_processor_stay_paused(pipeline: Pipeline) -> None:
    found = wishes.resumed(BUSY, chosen(pipeline, "A_1"))
    assert (found.paused, found.paused_tasks) == ((), ("A_0", "A_2"))
    found = wishes.resumed(found, chosen(pipeline, "A_0"))
    assert found.paused_tasks == ("A_2",)
    assert wishes.resumed(found, chosen(pipeline, "A")).paused_tasks == ()


def test_a_processor_that_is_resumed_does_not_end_a_drain(pipeline: Pipeline) -> None:
    both = Wish(version=3, paused=("A", "B"), drains=True)
    found = wishes.resumed(both, chosen(pipeline, "B"))
    assert (found.paused, found.drains) == (("A",), True)


def test_all_that_are_resumed_end_a_drain(pipeline: Pipeline) -> None:
    busy = BUSY.with_paused(["A"], ["B_0"])
    found = wishes.all_resumed(busy, chosen(pipeline))
    assert (found.paused, found.paused_tasks, found.drains) == ((), (), False)


def test_all_that_are_resumed_give_a_savepoint_up_but_no_restore(pipeline: Pipeline) -> None:
    savepoint = StopOrder(purpose="savepoint", token="t", by="ada@alpha")
    assert wishes.all_resumed(BUSY.with_stop(savepoint), chosen(pipeline)).stop is None
    restore = structs.replace(savepoint, purpose="restore")
    with pytest.raises(ConfigError, match="is restoring the state of this job"):
        wishes.all_resumed(BUSY.with_stop(restore), chosen(pipeline))


def test_a_restart_is_counted_for_each_processor_and_task(pipeline: Pipeline) -> None:
    found = wishes.restarted(BUSY, chosen(pipeline, "A", "B_1"))
    assert found.restarts == {"A": 2, "B_1": 1}


def test_a_drain_pauses_nothing(pipeline: Pipeline) -> None:
    found = wishes.drained(Wish(version=3), chosen(pipeline))
    assert (found.paused, found.drains) == ((), True)


def test_what_a_version_has_no_more_is_not_paused(pipeline: Pipeline) -> None:
    """Nobody could resume it, and the console would show it forever."""
    wish = structs.replace(BUSY, next=4).with_paused(["A", "gone"], ["B_2", "gone_0", "B_3"])
    found = wish.running(PipelineVersion(4, pipeline, FILE, 0, "ada@alpha"))
    assert (found.version, found.next, found.drains) == (4, None, True)
    assert (found.paused, found.paused_tasks) == (("A",), ("B_2",))
