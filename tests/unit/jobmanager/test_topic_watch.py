"""The JobManager's findings when topics change while a pipeline runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.config_keys import OnNewPartitions
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.deployment.prepare import with_partitions, with_topics_of_patterns
from kafka_pipeline.jobmanager.topic_watch import OPEN_FOR_S, TopicWatch
from tests.unit.deployment.test_patterns import CONFIG, FakeAdmin, pipeline
from tests.unit.streams.pipeline.loading import load

COUNTS = (
    "sources: {clicks: clicks, views: views}\nprocessors:\n"
    "- {id: F, type: forward, from: [clicks], to: [Count]}\n"
    "- {id: Count, type: count, to: [sink]}\n"
    "- {id: S, type: count, from: [views], to: [sink]}\n"
)
SOURCES = ("clicks", "views")
NO_LIMITS = {"retention.ms": "-1", "retention.bytes": "-1"}


class Watched:
    """A watch of topics that were as they are in `counts` when the version began."""

    def __init__(self, loaded: Pipeline, counts: dict[str, int], config: Config = CONFIG) -> None:
        self.counts = counts
        self.kafka = FakeAdmin(counts, of_engine=["A_B_job"])
        admin = cast(Admin, self.kafka)
        found = with_partitions(with_topics_of_patterns(loaded, config, admin), admin)
        for spec in found.data_topics(1):
            counts.setdefault(spec.name, spec.partitions)
            self.kafka.settings[spec.name] = {**NO_LIMITS, **spec.config}
        self.now_s = 0.0
        self._watch = TopicWatch(found, config, admin, lambda: self.now_s)

    def look(self) -> tuple[list[str], tuple[str, ...]]:
        """Look; return what was logged, and the findings."""
        with capture_logs() as logs:
            self._watch.look()
        assert all(entry["log_level"] == "warning" for entry in logs)
        logged = [entry.get("finding") or f"new: {entry['topics']}" for entry in logs]
        return logged, self._watch.findings

    @property
    def unread(self) -> dict[str, int]:
        return dict(self._watch.unread)

    def partitions_to_read(self) -> dict[str, int]:
        """The partitions of the sources in the version that the JobManager is to begin."""
        successor = self._watch.successor
        return {topic: successor.partitions_of(topic) for topic in SOURCES} if successor else {}


@pytest.fixture
def watched() -> Watched:
    return Watched(load(COUNTS, CONFIG), {"clicks": 2, "views": 1})


@pytest.mark.parametrize("way", ["read", "report"])
def test_partitions_that_tasks_without_state_take_up_are_no_finding(way: OnNewPartitions) -> None:
    watched = Watched(
        load(COUNTS, CONFIG), {"clicks": 2, "views": 1}, replace(CONFIG, on_new_partitions=way)
    )
    watched.look()
    assert watched.partitions_to_read() == {}
    watched.counts |= {"clicks": 3, "views": 3}
    findings = watched.look()[1]
    if way == "read":
        assert [finding.partition(" ")[0] for finding in findings] == ["views"]
        assert watched.partitions_to_read() == {"clicks": 3, "views": 1}
    else:
        assert [finding.partition(" ")[0] for finding in findings] == ["clicks", "views"]
        assert watched.partitions_to_read() == {}


def test_all_as_it_was(watched: Watched) -> None:
    assert [watched.look(), watched.look()] == [([], ()), ([], ())]


def test_partitions_that_nobody_reads_are_a_finding_until_the_next_version(
    watched: Watched,
) -> None:
    watched.counts["views"] = 3
    logged, (finding,) = watched.look()
    assert finding.startswith("views has 3 partitions, and S reads 1. `pipeline apply` the ")
    assert "When a source gets more partitions" in finding
    assert finding.endswith(". Waiting in the others: 14 records")
    assert logged == [finding]
    assert watched.look() == ([], (finding,))
    assert watched.unread == {"S": 14}
    watched.counts["views"] = 4
    logged, (finding,) = watched.look()
    assert logged == [finding]
    assert finding.endswith("21 records")
    assert watched.unread == {"S": 21}
    watched.counts["views"] = 1
    assert watched.look() == ([], ())
    assert watched.unread == {}


@pytest.mark.parametrize("topic", ["F_Count_job", "state_topic_Count_job"])
def test_what_does_not_suit_topics_of_the_job_is_a_finding(topic: str, watched: Watched) -> None:
    watched.counts[topic] = 4
    grown, (finding,) = watched.look()
    assert grown == [finding]
    assert finding.startswith(f"topic {topic} has 4 partitions, the pipeline needs 2; what to do: ")
    settings = watched.kafka.settings[topic]
    right = settings["cleanup.policy"]
    settings["cleanup.policy"] = "delete,compact"
    (changed,), findings = watched.look()
    assert changed.startswith(f"topic {topic}: cleanup.policy is delete,compact, and must be ")
    assert findings == (finding, changed)
    watched.counts[topic] = 2
    settings["cleanup.policy"] = right
    assert watched.look() == ([], ())


@pytest.mark.parametrize("topic", ["out", "dead_letters_Count_job", "other"])
def test_topics_of_which_any_number_of_partitions_will_do_may_grow(
    topic: str, watched: Watched
) -> None:
    watched.counts[topic] = 4
    assert watched.look() == ([], ())


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        (
            "out",
            "out does not exist any more (Count, S write it): make it again with 2 partitions, "
            "or take it out of the pipeline",
        ),
        ("views", "views does not exist any more (S read it): make it again with 1 partition, "),
        (
            "state_topic_Count_job",
            "state_topic_Count_job does not exist any more, a topic of this job. What was in it is "
            "lost; ",
        ),
    ],
)
def test_topic_that_is_missing_twice_is_a_finding(topic: str, text: str, watched: Watched) -> None:
    """A broker that starts answers before it knows all topics."""
    count = watched.counts.pop(topic)
    assert watched.look() == ([], ())
    logged, (finding,) = watched.look()
    assert logged == [finding]
    assert finding.startswith(text)
    watched.counts[topic] = count
    assert watched.look() == ([], ())


def test_sink_that_was_recreated_with_fewer_partitions_is_a_finding(watched: Watched) -> None:
    """Brokers that create topics by themselves do so as soon as a producer asks."""
    watched.counts["out"] = 1
    _, (finding,) = watched.look()
    assert finding.startswith("out has 1 partition, and had 2 when this version began: ")
    assert "Count, S wrote before is gone" in finding


def test_topic_of_the_job_that_was_created_again_is_a_finding(watched: Watched) -> None:
    """The producers of tasks write on, and notice nothing."""
    watched.look()
    watched.kafka.ids["state_topic_Count_job"] = "second"
    logged, (finding,) = watched.look()
    assert logged == [finding]
    assert finding.startswith("state_topic_Count_job was deleted and created again, a topic of ")
    assert watched.look() == ([], (finding,))


@pytest.mark.parametrize("place", [("clicks", 1), ("F_Count_job", 0)])
def test_transaction_that_stays_open_is_a_finding(place: tuple[str, int], watched: Watched) -> None:
    """The tasks of the partition look idle: their lag ends where the transaction begins."""
    watched.kafka.open = {place: 4}
    for watched.now_s in (0.0, OPEN_FOR_S - 1):
        assert watched.look() == ([], ())
    watched.kafka.open = {place: 7}
    for watched.now_s in (OPEN_FOR_S, 2 * OPEN_FOR_S - 1):
        assert watched.look() == ([], ()), "another one has begun"
    watched.now_s = 2 * OPEN_FOR_S
    logged, (finding,) = watched.look()
    assert logged == [finding]
    assert finding.startswith(f"a transaction has been open in {place[0]}[{place[1]}] for 5 min")
    watched.kafka.open = {}
    assert watched.look() == ([], ())


def test_too_few_copies_are_one_finding(watched: Watched) -> None:
    watched.kafka.short = [f"F_Count_job[{n}]" for n in range(7)]
    _, (finding,) = watched.look()
    assert "min.insync.replicas: F_Count_job[0], " in finding
    assert "F_Count_job[4] and 2 more" in finding


def test_topics_that_come_later_are_warned_of_once(tmp_path: Path) -> None:
    watched = Watched(pipeline(tmp_path), {"clicks": 1})
    watched.look()
    watched.counts |= {"views": 1, "A_B_job": 1}
    assert [watched.look()[0], watched.look()[0]] == [["new: ['views']"], []]
