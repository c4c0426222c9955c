"""Which topics of the user are made, and which changes of them are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.deployment.desired_state import Deployment, PipelineVersion, Wish, records
from kafka_pipeline.operations import topic_changes
from kafka_pipeline.operations.topic_changes import TopicChange, TopicOptions, missing_topics
from tests.unit.streams.pipeline.loading import CONFIG, load

JOB = replace(CONFIG, job_name="job")
READ = """
sources:
  orders: orders_topic
  news: {topic: news_topic, auto_offset_reset: latest}
sinks: {out: out_topic}
processors:
- {id: Read, type: forward, from: [orders], to: [out], on_error: dead_letter}
- {id: News, type: forward, from: [news], to: [out]}
"""
COUNT = READ + "- {id: Count, type: count, from: [orders], to: [out]}\n"
DEAD = "Read_dead_letter_job"


class FakeAdmin:
    """Has topics, of which some have records, and remembers what it was asked for."""

    def __init__(self, topics: Mapping[str, int], filled: tuple[str, ...] = ()) -> None:
        self._topics = dict(topics)
        self._filled = filled
        self.asked: list[object] = []

    def topics(self) -> dict[str, int]:
        return self._topics

    def oldest_offsets(self, places: list[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(places, 0)

    def high_watermarks(self, places: list[Partition]) -> dict[Partition, int]:
        return {place: int(place[0] in self._filled) for place in places}

    def add_partitions(self, topic: str, count: int) -> None:
        self.asked.append((topic, count))

    def alter_settings(self, topic: str, settings: Mapping[str, str | None]) -> None:
        self.asked.append((topic, settings))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Pipeline]:
    """Return a list for what the job runs."""
    found: list[Pipeline] = []

    def deployment(*_: object) -> Deployment:
        made = Deployment(JOB.topic_names)
        versions = [PipelineVersion(1, pipeline, "", 0, "ada") for pipeline in found]
        for record in records(JOB.topic_names, Wish(version=1), *versions) if versions else ():
            made.take(record)
        return made

    monkeypatch.setattr(topic_changes, "read_deployment", deployment)
    return found


def made(text: str, admin: FakeAdmin, *names: str, **options: Any) -> dict[str, tuple[int, int]]:
    wanted: Any = admin
    specs = missing_topics(JOB, load(text, JOB), wanted, names, TopicOptions(**options))
    return {spec.name: (spec.partitions, spec.replication_factor) for spec in specs}


def change(text: str, admin: FakeAdmin, *names: str, **options: Any) -> TopicChange:
    wanted: Any = admin
    return TopicChange(JOB, load(text, JOB), wanted, names, TopicOptions(**options))


def test_what_is_missing_is_made_as_config_yaml_says() -> None:
    own = (JOB.parallelism, JOB.replication_factor)
    found = made(READ, FakeAdmin({"news_topic": 1}))
    assert found == {"orders_topic": own, DEAD: own, "out_topic": own}


def test_only_the_named_topics_are_made_with_what_is_given() -> None:
    found = made(READ, FakeAdmin({}), "orders_topic", partitions=5, replication_factor=3)
    assert found == {"orders_topic": (5, 3)}


def test_given_settings_are_added_to_those_of_the_job() -> None:
    pipeline = load(READ, JOB)
    admin: Any = FakeAdmin({})
    options = TopicOptions(settings={"retention.ms": "1000"})
    (dead,) = missing_topics(JOB, pipeline, admin, [DEAD], options)
    assert dead.config["retention.ms"] == "1000"
    assert dead.config["cleanup.policy"] == "delete"


def test_topics_that_the_pipeline_does_not_have_are_refused() -> None:
    with pytest.raises(ConfigError, match='"order_topic", did you mean "orders_topic"'):
        made(READ, FakeAdmin({}), "order_topic")
    with pytest.raises(ConfigError, match="no source, sink or dead-letter topic"):
        change(COUNT, FakeAdmin({}), "state_topic_Count_job", partitions=9)


def test_topics_whose_records_meet_are_not_made_with_different_counts() -> None:
    both = READ.replace("from: [news]", "from: [news, orders]").replace(
        "News, type: forward", "News, type: count"
    )
    with pytest.raises(ConfigError, match="different numbers of partitions"):
        made(both, FakeAdmin({"news_topic": 2}), partitions=3)


def test_a_source_of_processors_without_state_gets_more_partitions(runs: list[Pipeline]) -> None:
    runs.append(load(READ, JOB))
    admin = FakeAdmin({"orders_topic": JOB.parallelism})
    found = change(READ, admin, "orders_topic", partitions=9, settings={"retention.ms": None})
    assert (found.counts, found.cautions) == ({"orders_topic": 9}, [])
    assert admin.asked == []
    found.make()
    assert admin.asked == [("orders_topic", 9), ("orders_topic", {"retention.ms": None})]


def test_keys_that_move_are_told_if_there_are_records(runs: list[Pipeline]) -> None:
    admin = FakeAdmin({"orders_topic": JOB.parallelism}, filled=("orders_topic",))
    (caution,) = change(READ, admin, "orders_topic", partitions=9).cautions
    assert caution.startswith("orders_topic: keys go to other partitions from now on")


def test_partitions_that_nobody_would_read_are_told(runs: list[Pipeline]) -> None:
    runs.append(load(READ, JOB))
    admin = FakeAdmin({"news_topic": JOB.parallelism})
    (caution,) = change(READ, admin, "news_topic", partitions=9).cautions
    assert caution == (
        "news_topic: nobody reads the new partitions until `pipeline apply` with the same file. "
        "News would skip what comes before that"
    )


@pytest.mark.parametrize("is_running", [True, False], ids=["what runs", "the file"])
def test_a_source_of_a_processor_with_state_keeps_its_partitions(
    runs: list[Pipeline], *, is_running: bool
) -> None:
    runs.append(load(COUNT if is_running else READ, JOB))
    counts = {"orders_topic": JOB.parallelism, "state_topic_Count_job": JOB.parallelism}
    with pytest.raises(ConfigError) as raised:
        change(READ if is_running else COUNT, FakeAdmin(counts), "orders_topic", partitions=9)
    assert str(raised.value).startswith(
        'orders_topic cannot get more partitions: "Count" keeps state by key '
        "(state_topic_Count_job), and keys would move to partitions where their state is not"
    )


def test_state_that_was_never_made_cannot_be_lost(runs: list[Pipeline]) -> None:
    admin = FakeAdmin({"orders_topic": JOB.parallelism})
    assert change(COUNT, admin, "orders_topic", partitions=9).counts == {"orders_topic": 9}


def test_partitions_cannot_be_taken_away(runs: list[Pipeline]) -> None:
    with pytest.raises(ConfigError, match="has 9 partitions: Kafka cannot take partitions away"):
        change(READ, FakeAdmin({"orders_topic": 9}), "orders_topic", partitions=8)


def test_a_topic_that_does_not_exist_is_not_changed(runs: list[Pipeline]) -> None:
    with pytest.raises(ConfigError, match="does not exist: `pipeline topic create` makes it"):
        change(READ, FakeAdmin({}), "orders_topic", settings={"retention.ms": "1"})
