"""The JobManager's warnings when inputs change while a pipeline runs."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipeline import Pipeline
from kafka_pipeline.jobmanager.input_watch import InputWatch
from kafka_pipeline.jobmanager.partitions import with_partitions
from kafka_pipeline.jobmanager.patterns import with_topics_of_patterns
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.unit.jobmanager.test_patterns import CONFIG, FakeAdmin, pipeline

COUNTS = (
    "sources: {clicks: clicks, views: views}\nprocessors:\n"
    "- {id: F, type: forward, from: [clicks], to: [Count]}\n"
    "- {id: Count, type: count, to: [sink]}\n"
    "- {id: S, type: sum, from: [views], to: [sink]}\n"
)


def load(text: str, folder: Path, config: Config = CONFIG) -> Pipeline:
    path = folder / "pipeline.yaml"
    path.write_text(text, encoding="utf-8")
    return load_pipeline(path, config)


def watch(loaded: Pipeline, counts: MutableMapping[str, int]) -> InputWatch:
    """Return the watch of a JobManager that starts when topics have so many partitions."""
    admin = cast(Admin, FakeAdmin(counts, of_engine=["A_B_job"]))
    found = with_topics_of_patterns(loaded, CONFIG, admin)
    return InputWatch(with_partitions(found, admin), CONFIG, admin)


def warnings(watch: InputWatch) -> list[tuple[object, object, object]]:
    """Look; return what was warned of: topic, its partitions, and those before."""
    with capture_logs() as logs:
        watch.look()
    assert all(entry["log_level"] == "warning" for entry in logs)
    return [(entry["topic"], entry["partitions"], entry["before"]) for entry in logs]


def test_new_partitions_of_an_input_are_warned_of_once(tmp_path: Path) -> None:
    counts = {"clicks": 2, "views": 3, "out": 1}
    inputs = watch(load(COUNTS, tmp_path), counts)
    assert warnings(inputs) == []
    counts |= {"views": 4}
    assert [warnings(inputs), warnings(inputs)] == [[("views", 4, 3)], []]
    counts |= {"clicks": 8, "views": 5}
    assert warnings(inputs) == [("clicks", 8, 2), ("views", 5, 4)]


def test_warning_says_what_to_do(tmp_path: Path) -> None:
    counts = {"clicks": 2, "views": 3}
    inputs = watch(load(COUNTS, tmp_path), counts)
    counts |= {"views": 4}
    with capture_logs() as logs:
        inputs.look()
    assert "`pipeline apply` the pipeline again" in logs[0]["event"]
    assert "When a source gets more partitions" in logs[0]["event"]


@pytest.mark.parametrize("topic", ["F_Count_job", "state_topic_Count_job"])
def test_new_partitions_of_the_topics_of_a_job_are_warned_of_once(
    topic: str, tmp_path: Path
) -> None:
    counts = {"clicks": 2, "views": 2, topic: 2}
    inputs = watch(load(COUNTS, tmp_path), counts)
    assert warnings(inputs) == []
    counts |= {topic: 4}
    with capture_logs() as logs:
        inputs.look()
        inputs.look()
    assert [(log["topic"], log["partitions"], log["before"]) for log in logs] == [(topic, 4, 2)]
    assert "A topic has the wrong number of partitions" in logs[0]["event"]


@pytest.mark.parametrize("topic", ["out", "dead_letters_Count_job", "other"])
def test_topics_of_which_any_number_of_partitions_will_do_may_grow(
    topic: str, tmp_path: Path
) -> None:
    counts = {"clicks": 2, "views": 2, topic: 2}
    inputs = watch(load(COUNTS, tmp_path), counts)
    counts |= {topic: 4}
    assert warnings(inputs) == []


def test_topic_that_is_gone_or_smaller_is_not_warned_of(tmp_path: Path) -> None:
    """Tasks notice by themselves that a topic was deleted, or created again."""
    counts = {"clicks": 2, "views": 3}
    inputs = watch(load(COUNTS, tmp_path), counts)
    counts |= {"views": 1}
    del counts["clicks"]
    assert warnings(inputs) == []


def test_topics_that_come_later_are_warned_of_once(tmp_path: Path) -> None:
    counts = {"clicks": 1}
    inputs = watch(pipeline(tmp_path), counts)
    with capture_logs() as logs:
        inputs.look()
        counts |= {"views": 1, "A_B_job": 1}
        for _ in range(2):
            inputs.look()
    assert [(entry["log_level"], entry["topics"]) for entry in logs] == [("warning", ["views"])]


def watched_findings(watch: InputWatch) -> tuple[str, ...]:
    return watch.findings


def test_findings_say_what_waits_in_the_new_partitions_until_it_is_mended(tmp_path: Path) -> None:
    counts = {"clicks": 2, "views": 1, "state_topic_Count_job": 2}
    inputs = watch(load(COUNTS, tmp_path), counts)
    inputs.look()
    assert inputs.findings == ()
    counts |= {"views": 3, "state_topic_Count_job": 4}
    inputs.look()
    inputs.look()
    state, views = watched_findings(inputs)
    assert state.startswith("state_topic_Count_job has 4 partitions, the job made it with 2: ")
    assert views.startswith(
        "views has 3 partitions, and S reads 1; waiting in the others: 14 records. `pipeline apply`"
    )
    del counts["views"], counts["state_topic_Count_job"]
    inputs.look()
    assert inputs.findings == ()
