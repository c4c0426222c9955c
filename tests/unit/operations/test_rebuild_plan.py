"""Whose state a rebuild computes again, from which offsets, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.operations.savepoints.rebuild_plan import RebuildPlan
from kafka_pipeline.streams.pipeline.partitions import with_counts
from tests.history import ROOT
from tests.small_config import SMALL_CONFIG
from tests.unit.streams.pipeline.loading import load

CHAIN = """
- {id: Forwarder, type: forward, to: [Counter, Totals]}
- {id: Counter, type: count, to: [sink]}
- {id: Totals, type: count, to: [sink]}
"""
GROUPS = """
- {id: Q, type: sql, query: "SELECT key, count(*) AS value FROM source GROUP BY key", to: [sink]}
"""
NAMED_GROUPS = """
- {id: Q, type: sql, query: "SELECT value AS key, count(*) AS value FROM input GROUP BY value",
   to: [sink]}
"""
JOINED = """
sources: {others: others}
processors:
- {id: Forwarder, type: forward, to: [Q]}
- id: Q
  type: sql
  from: [others]
  query: >-
    SELECT o.key, f.value FROM others o JOIN Forwarder f ON o.key = f.key
    AND f.timestamp BETWEEN o.timestamp AND o.timestamp + INTERVAL 1 MINUTE
  to: [sink]
"""
NAMES = """
- {id: Shop, type: topology, builder: "tests.user_code.rebuilt:count_names"}
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "config.yaml"
    code = f'modules: [tests.user_code]\npython_path: ["{ROOT}"]\n'
    path.write_text(f"{SMALL_CONFIG}{code}job_name: job\n")
    return load_config(path)


def test_what_feeds_a_processor_runs_as_well(config: Config) -> None:
    found = load(CHAIN, config)
    plan = RebuildPlan(found, found, "Counter")
    assert plan.processors == ("Counter",)
    assert plan.feeders == ["Forwarder"]
    assert [stage[0].name for stage in plan.stages] == ["Forwarder", "Counter"]
    assert plan.internal == {"Forwarder_Counter_job"}
    assert [*plan.sources()] == [("Forwarder", "in", "Forwarder")]


def test_a_topology_is_rebuilt_with_all_its_groups(config: Config) -> None:
    found = load(NAMES, config)
    plan = RebuildPlan(found, found, "Shop")
    assert plan.processors == tuple(each.id for each in found.processors)
    assert len(plan.processors) == 2
    assert plan.feeders == []


def test_a_group_with_another_name_goes_on_where_the_only_reader_of_its_source_was(
    config: Config,
) -> None:
    before = load("- {id: Shop, type: count, to: [sink]}\n", config)
    plan = RebuildPlan(before, load(NAMES, config), "Shop")
    assert [*plan.sources()] == [("Shop-Names", "in", "Shop")]


def test_a_query_is_rebuilt_with_the_processor_in_front_of_its_groups(config: Config) -> None:
    """Whether its records have met in a topic before does not matter."""
    whole, grouped = (load(text, config) for text in (GROUPS, NAMED_GROUPS))
    found = RebuildPlan(whole, grouped, "Q")
    assert found.processors == ("Q-rows", "Q")
    assert [*found.sources()] == [("Q-rows", "in", "Q")]
    back = RebuildPlan(grouped, whole, "Q")
    assert back.processors == ("Q",)
    assert [*back.sources()] == [("Q", "in", "Q-rows")]


def test_times_of_steps_behind_other_processors_are_those_of_the_job(config: Config) -> None:
    text = '- {id: Shop, type: topology, builder: "tests.user_code.rebuilt:names_in_windows"}'
    windows, names = (load(each, config) for each in (text, NAMES))
    found = RebuildPlan(windows, windows, "Shop")
    assert [*found.clocks()] == [("Shop-ByName", "Counted-times")]
    assert found.state_topic("Shop-ByName", "Counted-times") == (
        "state_topic_Shop-ByName_Counted-times_job"
    )
    assert [*RebuildPlan(names, windows, "Shop").clocks()] == []


@pytest.mark.parametrize(
    ("before", "after", "entry", "why"),
    [
        (CHAIN, CHAIN, "Nobody", 'the pipeline has no processor "Nobody"'),
        (CHAIN, CHAIN, "Forwarder", "it has no store with a state topic"),
        (
            "- {id: Other, type: count, to: [sink]}",
            "- {id: Counter, type: count, to: [sink]}",
            "Counter",
            "Counter does not read in in the running pipeline",
        ),
        (
            "- {id: Other, type: count, to: [sink]}",
            "- {id: Counter, was: Other, type: count, to: [sink]}",
            "Counter",
            "rename processors first",
        ),
        (
            JOINED,
            None,
            "Q",
            "Q has windows or joins by time, and reads sources along with other processors",
        ),
    ],
)
def test_what_cannot_be_computed_is_refused(
    config: Config, before: str, after: str | None, entry: str, why: str
) -> None:
    former = load(before, config)
    target = former if after is None else load(after, config)
    with pytest.raises(ConfigError, match=why):
        RebuildPlan(former, target, entry)


def test_other_partitions_are_refused(config: Config) -> None:
    found = load(CHAIN, config)
    with pytest.raises(ConfigError, match="in has other partitions than before"):
        RebuildPlan(found, with_counts(found, {"in": 5}), "Counter")


def test_what_reads_feedback_cannot_be_rebuilt(config: Config) -> None:
    text = """
- {id: W, type: topology, builder: "tests.user_code.topologies:circle",
   config: {lines: source, back: loop, out: sink}}
"""
    found = load(text, config)
    with pytest.raises(ConfigError, match="read what they write"):
        RebuildPlan(found, found, "W")
    text = """
sources: {back: {topic: loop, feedback: true}}
sinks: {again: loop}
processors:
- {id: A, type: count, from: [source, back], to: [B]}
- {id: B, type: forward, to: [again, sink]}
"""
    found = load(text, config)
    with pytest.raises(ConfigError, match="--rebuild: A reads feedback"):
        RebuildPlan(found, found, "A")
