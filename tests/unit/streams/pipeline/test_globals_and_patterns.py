"""User topologies with global stores and with sources that read a pattern."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_pipeline import serdes
from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.protocol.messages import ProcessorReplica, replicas
from kafka_pipeline.streams.pipeline.patterns import with_matching_topics
from kafka_pipeline.streams.pipeline.units import group_of, sharing_key
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.pipeline.loading import CONFIG, load, problems_in

MODULE = "tests.user_code.lookups"
JOB = replace(CONFIG, job_name="job")
NAMES = JOB.topic_names
LOOKUP = "orders: orders_topic, names: names_topic, named: named_topic"
GATHER = 'pattern: "lines_.*", gathered: all_lines'


def entry(builder: str, config: str, id_: str = "W") -> str:
    return f'- {{id: {id_}, type: topology, builder: "{MODULE}:{builder}", config: {{{config}}}}}\n'


def unit(text: str) -> ProcessorReplica:
    """Return the first task that a pipeline makes, as it arrives at a TaskManager."""
    made = replicas(load(text, JOB))[0]
    data, parameters = json.dumps(made.to_json()), json.dumps(made.parameters())
    return ProcessorReplica.from_json(json.loads(data), json.loads(parameters))


def found(text: str, *existing: str) -> Pipeline:
    return with_matching_topics(load(text, JOB), existing)


# Global stores


def test_the_topic_of_a_global_store_is_no_input_of_the_tasks() -> None:
    loaded = load(entry("lookup", LOOKUP), JOB)
    (node,) = loaded.processors
    assert (loaded.in_topics(node), loaded.out_topics(node)) == (
        ("orders_topic",),
        ("named_topic",),
    )
    assert node.global_stores == {"Names": "names_topic"}
    assert (node.stores, node.is_stateful) == ((), False)
    assert loaded.user_topics == ("orders_topic", "names_topic", "named_topic")


def test_its_topic_is_made_compacted_if_it_is_missing_and_others_are_not() -> None:
    specs = {spec.name: spec for spec in load(entry("lookup", LOOKUP), JOB).data_topics(1)}
    assert list(specs) == ["orders_topic", "names_topic", "named_topic"]
    assert specs["names_topic"].config == {"cleanup.policy": "compact"}
    assert specs["orders_topic"].config == {}


def test_a_topic_that_another_processor_reads_as_a_source_is_not_made_compacted() -> None:
    text = "sources: {n: names_topic}\nprocessors:\n" + entry("lookup", LOOKUP)
    text += "- {id: F, type: forward, from: [n], to: [sink]}"
    specs = {spec.name: spec for spec in load(text, JOB).data_topics(1)}
    assert specs["names_topic"].config == {}


@pytest.mark.parametrize(
    ("topic", "in_kafka"),
    [("names_topic", "names_topic"), ("n", "aliased"), ("source", "in"), ("sink", "out")],
)
def test_its_topic_may_be_a_name_of_pipeline_yaml(topic: str, in_kafka: str) -> None:
    config = LOOKUP.replace("names_topic", topic)
    text = "sources: {n: aliased}\nprocessors:\n" + entry("lookup", config)
    read = unit(text)
    (group,) = [group_of(read, UserCode.of(JOB))]
    assert [store.topic for store in group.global_stores] == [in_kafka]
    assert group.in_topics == ("orders_topic",)


def test_tasks_share_it_if_code_and_config_and_topics_are_the_same() -> None:
    one, two = replicas(load(entry("lookup", LOOKUP), JOB))
    other = unit(entry("lookup", LOOKUP.replace("names_topic", "more_names")))
    assert sharing_key(one) == sharing_key(two)
    assert sharing_key(one) != sharing_key(other)


def test_topologies_without_one_say_nothing_of_it_to_taskmanagers() -> None:
    """Otherwise all their tasks would start again with this version."""
    other = unit(
        '- {id: W, type: topology, builder: "tests.user_code.topologies:join", '
        "config: {left: l, right: r, joined: j}}"
    )
    assert other.parameters()["spec"].keys() == {"code", "config", "group"}


@pytest.mark.parametrize(
    ("topic", "problem"),
    [
        (
            "n n",
            '1:8: "W": source "Name source" of global store "Names": the topic "n n" has the '
            'character " ", which Kafka refuses in topic names: use letters, digits, ".", "_" and '
            '"-"',
        ),
        (
            "heartbeat_topic",
            '1:8: the global store "Names" of "W" needs the topic "heartbeat_topic", which is the '
            'control topic "heartbeat_topic": rename it',
        ),
        (
            "orders.topic",
            '1:8: the global store "Names" of "W" needs the topic "orders.topic", and "W-Orders" '
            '(line 1) "orders_topic": they differ only in "." and "_", which Kafka refuses',
        ),
        (
            "orders_topic",
            '1:8: "W": topic "orders_topic" of global store "Names" is read by source "Orders" '
            "too: give each its own",
        ),
    ],
)
def test_a_topic_that_cannot_be_is_reported_with_its_place(topic: str, problem: str) -> None:
    assert problems_in(entry("lookup", LOOKUP.replace("names_topic", topic))) == [problem]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    config = tmp_path / "config.yaml"
    config.write_text(
        "{server_ip: 127.0.0.1, server_port: 9092, tm_number: 1, parallelism: 2, "
        "replication_factor: 1, source_topic: in, sink_topic: out, modules: [tests.user_code]}"
    )
    return config, tmp_path / "pipeline.yaml"


def test_the_driver_runs_a_pipeline_with_a_global_store(files: tuple[Path, Path]) -> None:
    """Two topologies that are the same share it; one with another topic has its own."""
    config, pipeline = files
    pipeline.write_text(
        entry("lookup", LOOKUP)
        + entry("lookup", LOOKUP.replace("names_", "other_").replace("named_", "more_"), "V")
    )
    with TopologyTestDriver.of_pipeline(str(config), str(pipeline)) as driver:
        driver.create_input_topic("names_topic").pipe_input(b"a", b"Ann")
        driver.create_input_topic("orders_topic").pipe_input(b"1", b"a")
        assert driver.create_output_topic("named_topic").read_key_values() == [(b"1", b"Ann")]
        assert driver.create_output_topic("more_topic").read_key_values() == [(b"1", b"?")]


# Patterns


def test_what_a_pattern_matches_is_known_when_the_cluster_is() -> None:
    loaded = load(entry("gather", GATHER), JOB)
    (node,) = loaded.processors
    assert [pattern.pattern for pattern in node.patterns] == ["lines_.*"]
    assert loaded.in_topics(node) == ()
    assert loaded.tasks == ()


def test_topics_that_match_as_a_whole_become_inputs_in_the_order_of_their_names() -> None:
    existing = ("lines_b", "lines_a", "my_lines_c", "lines", "other")
    loaded = found(entry("gather", GATHER), *existing)
    (node,) = loaded.processors
    assert loaded.in_topics(node) == ("lines_a", "lines_b")
    assert loaded.user_topics == ("lines_a", "lines_b", "all_lines")
    assert [str(task) for task in loaded.tasks] == ["W-All_0", "W-All_1"]


def test_the_flags_of_a_pattern_count() -> None:
    text = entry("gather", GATHER + ", ignore_case: true")
    pipeline = found(text, "LINES_a")
    assert pipeline.in_topics(pipeline.processors[0]) == ("LINES_a",)
    with pytest.raises(ConfigError):
        found(entry("gather", GATHER), "LINES_a")


def test_tasks_get_the_topics_that_were_found() -> None:
    first = replicas(found(entry("gather", GATHER), "lines_a", "lines_b"))[0]
    group = group_of(first, UserCode.of(JOB))
    assert first.in_topics == ("lines_a", "lines_b")
    (source,) = group.sources
    assert source.pattern is not None
    assert source.pattern.pattern == "lines_.*"


def test_a_pattern_that_matches_nothing_is_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        found(entry("gather", GATHER), "other", "all_lines")
    assert str(raised.value) == (
        '"W-All": no topic matches the pattern "lines_.*" of a source. Create one first, or '
        "correct the pattern"
    )


@pytest.mark.parametrize(
    ("topic", "why"),
    [("all_lines", "its topology writes"), ("source", "has a reserved name")],
)
def test_a_pattern_must_not_match_what_cannot_be_read(topic: str, why: str) -> None:
    """A topic that the topology writes under another name of pipeline.yaml is found only now."""
    text = "sinks: {gathered: all_lines}\nprocessors:\n"
    text += entry("gather", 'pattern: "(.*_)?(lines|source).*", gathered: gathered')
    with pytest.raises(ConfigError) as raised:
        found(text, "lines_a", topic)
    assert str(raised.value) == (
        f'"W-All": the pattern "(.*_)?(lines|source).*" of a source matches the topic "{topic}", '
        f"which {why}: narrow the pattern"
    )


def test_the_driver_reads_the_topics_that_it_is_told_of(files: tuple[Path, Path]) -> None:
    config, pipeline = files
    pipeline.write_text(entry("gather", GATHER))
    topics = {"lines_a": 1, "lines_b": 3}
    with TopologyTestDriver.of_pipeline(config, pipeline, partitions=topics) as driver:
        for topic in topics:
            driver.create_input_topic(topic, serdes.string).pipe_input(topic, b"x")
        gathered = driver.create_output_topic("all_lines", serdes.string)
        assert gathered.read_key_values() == [("lines_a", b"x"), ("lines_b", b"x")]
    with pytest.raises(ConfigError, match="no topic matches the pattern"):
        TopologyTestDriver.of_pipeline(config, pipeline)
