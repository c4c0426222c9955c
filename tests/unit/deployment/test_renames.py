"""Processors that get other ids: what counts as a rename, and what a plan says about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.deployment.plan import Effect, plan
from kafka_pipeline.deployment.renames import renames, with_new_ids
from kafka_pipeline.deployment.store_contents import StateEffect
from kafka_pipeline.operations.savepoints.sharding import spread_processors
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.small_config import SMALL_CONFIG

BEFORE = """
- {id: Forwarder, type: forward, to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""
AFTER = """
- {id: Forwarder, type: forward, to: [Total]}
- {id: Total, was: Counter, type: count, to: [sink]}
"""
BY_VALUE = "type: sql, query: 'SELECT value, count(*) AS n FROM input GROUP BY value'"
UPDATES = "type: sql, query: 'SELECT key, count(*) AS value FROM input GROUP BY key'"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(SMALL_CONFIG)
    return tmp_path


def loaded(folder: Path, text: str) -> Pipeline:
    path = folder / "pipeline.yaml"
    path.write_text(text)
    return load_pipeline(path, load_config(folder / "config.yaml"))


def test_former_id_counts_while_the_job_has_it(folder: Path) -> None:
    before, after = loaded(folder, BEFORE), loaded(folder, AFTER)
    assert renames(before, after) == {"Total": "Counter"}
    # Once renamed, for a job that never had it, and without any job, `was` has no effect.
    assert renames(after, after) == {}
    assert renames(loaded(folder, AFTER.replace("Total", "Sum")), after) == {}
    assert renames(None, after) == {}


def test_plan_takes_nothing_away(folder: Path) -> None:
    before, after = loaded(folder, BEFORE), loaded(folder, AFTER)
    existing = [spec.name for spec in before.data_topics(1)]
    found = plan(before, after, existing)
    assert found.renamed == {"Total": "Counter"}
    assert (found.losses, found.arcs, found.inputs) == ((), (), ())
    assert not found.changes_nothing
    assert found.counts[Effect.REMOVED] == 0
    assert [store.effect for store in found.stores] == [StateEffect.KEPT]
    assert found.orphaned == ("Forwarder_Counter", "state_topic_Counter")
    # Without `was`, the state is left behind.
    lost = plan(before, loaded(folder, AFTER.replace("was: Counter, ", "")), existing)
    assert lost.renamed == {}
    assert any('"Counter" is removed, and its state' in loss for loss in lost.losses)


def test_state_without_an_input_that_was_read_is_refused_before_the_job_stops(
    folder: Path,
) -> None:
    before = loaded(folder, BEFORE)
    others = f"sources: {{other: elsewhere}}\nprocessors:{AFTER}".replace(
        "to: [Total]", "to: [sink]"
    ).replace("type: count,", "type: count, from: [%s],")
    found = plan(before, loaded(folder, others % "other"), ())
    assert 'reads none of the topics that "Counter" read' in found.impossible["Total"]
    assert plan(before, loaded(folder, others % "other"), (), lost=["Total"]).impossible == {}
    both = others.replace("to: [sink]", "to: [Total, sink]", 1)
    assert plan(before, loaded(folder, both % "other"), ()).impossible == {}


@pytest.mark.parametrize(
    ("first", "second"), [("type: forward", "type: count"), (UPDATES, "type: forward")]
)
def test_former_pipeline_gets_the_new_ids_everywhere(folder: Path, first: str, second: str) -> None:
    before, after = (
        loaded(folder, text.replace("type: forward", first).replace("type: count", second))
        for text in (BEFORE, AFTER)
    )
    assert with_new_ids(before, after).processors == after.processors
    assert with_new_ids(before, before) is before


def test_internal_topics_of_what_is_renamed_keep_their_partitions(folder: Path) -> None:
    """By another number, its tasks would seem to be others, and its state to be spread."""
    text = BEFORE.replace("type: count", BY_VALUE)
    renamed = text.replace("Counter", "New").replace("id: New,", "id: New, was: Counter,")
    before, after = (
        replace(loaded(folder, each), partitions={f"{id_}_groups-repartition": 5})
        for each, id_ in ((text, "Counter"), (renamed, "New"))
    )
    assert with_new_ids(before, after).partitions == after.partitions
    assert spread_processors(before, after) == []


@pytest.mark.parametrize("was", ["Forwarder", "Counter"])
def test_query_of_two_processors_and_those_that_send_to_it_are_renamed(
    folder: Path, was: str
) -> None:
    text = BEFORE.replace("type: count", BY_VALUE)
    renamed = text.replace(was, "New").replace("id: New,", f"id: New, was: {was},")
    before, after = loaded(folder, text), loaded(folder, renamed)
    found = with_new_ids(before, after)
    assert found.arcs == after.arcs
    assert [*map(found.in_topics, found.processors)] == [*map(after.in_topics, after.processors)]
    planned = plan(before, after, [spec.name for spec in before.data_topics(1)])
    assert (planned.losses, planned.arcs, planned.inputs) == ((), (), ())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (AFTER.replace("was: Counter", "was: Forwarder"), "there is a processor with that id"),
        (AFTER.replace("was: Counter", "was: Total"), "there is a processor with that id"),
        (
            AFTER.replace("id: Forwarder,", "id: Forwarder, was: Counter,"),
            'both "Forwarder" and "Total" were "Counter"',
        ),
        (AFTER.replace("was: Counter", "was: sink"), 'was: "sink" cannot have been the id'),
        (AFTER.replace("was: Counter", "was: a b"), 'was: "a b" cannot have been the id'),
        (AFTER.replace("was: Counter", "was: 5"), "was must be a string"),
    ],
)
def test_former_ids_that_cannot_be_are_refused(folder: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        loaded(folder, text)


TOPOLOGY = """
from kafka_pipeline import StreamsBuilder


def build():
    builder = StreamsBuilder()
    stream = builder.stream("in")
    counts = stream.group_by(lambda key, value: value, name="ByValue").count(name="Counts")
    counts.to_stream().to("out")
    return builder
"""


def test_topology_is_renamed_with_its_groups_and_internal_topics(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "renamed_topology.py").write_text(TOPOLOGY)
    monkeypatch.syspath_prepend(folder)
    config = folder / "config.yaml"
    config.write_text(f"{SMALL_CONFIG}modules: [renamed_topology]\npython_path: [{folder}]\n")
    text = """
sources: {in: in}
sinks: {out: out}
processors:
- {id: Shop, type: topology, builder: "renamed_topology:build"}
"""
    before = loaded(folder, text)
    after = loaded(folder, text.replace("id: Shop", "id: Store, was: Shop"))
    assert with_new_ids(before, after).processors == after.processors
    found = plan(before, after, [spec.name for spec in before.data_topics(1)])
    assert found.losses == ()
    assert set(found.renamed.values()) == {processor.id for processor in before.processors}
