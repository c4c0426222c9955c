"""The node group that a task runs, built from the JobManager's message."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from kafka_pipeline import serdes, stores
from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.pipelines.specs import ClassSpec, ProcessorSpec, TopologySpec
from kafka_pipeline.common.protocol.messages import ProcessorReplica, replicas
from kafka_pipeline.streams.builtin.count import COUNTS
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.nodes import ProcessorNode, Sink, Source
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.pipeline.load import load_pipeline
from kafka_pipeline.streams.pipeline.units import group_of, settings_of
from kafka_pipeline.streams.timestamps import (
    FailOnInvalidTimestamp,
    FieldTimestampExtractor,
    LogAndSkipOnInvalidTimestamp,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
    record_timestamp,
)
from tests.small_config import small_config
from tests.unit.streams.nodes import Nodes, batch

CODE = UserCode(["tests.user_code"])
CONFIG = small_config(job_name="job", parallelism=2, modules=("tests.user_code",))
SUMS = """
sources:
  plain: plain_topic
  late: {topic: late_topic, auto_offset_reset: latest}
  timed:
    topic: timed_topic
    key: uuid
    value: json
    timestamp: {field: at, unit: s, on_invalid: skip}
sinks: {totals: totals_topic}
processors:
- id: Sum
  type: tests.user_code.word_count:RunningSum
  from: [plain, late, timed, source]
  to: [totals, Next, sink]
  serdes: {key: string, value: integer, out_value: int64}
  stores:
  - {name: Sums, key: string, value: int64}
  - {name: Other, type: session, retention_ms: 9000, logged: false}
  config: {start: 100}
- {id: Next, type: count, to: [sink]}
"""
CHAIN = """
- id: W
  type: topology
  builder: tests.user_code.topologies:chain
  config: {lines: lines_topic, words: words_topic}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def units_of(
    text: str, folder: Path, *, parallelism: int = 1, partitions: dict[str, int] | None = None
) -> dict[str, ProcessorReplica]:
    """Return what TaskManagers get of a pipeline.yaml, by the texts of the tasks."""
    path = folder / "pipeline.yaml"
    path.write_text(text, encoding="utf-8")
    loaded = replace(
        load_pipeline(path, CONFIG), partitions=partitions or {}, parallelism=parallelism
    )
    units = replicas(loaded)
    sent = [(json.dumps(unit.to_json()), json.dumps(unit.parameters())) for unit in units]
    read = [ProcessorReplica.from_json(json.loads(one), json.loads(two)) for one, two in sent]
    return {str(unit.task): unit for unit in read}


def unit_of(entry: str, folder: Path) -> ProcessorReplica:
    """Return the first task of a processor without others."""
    return next(iter(units_of(f"[{entry}]", folder).values()))


def sums(more: str, folder: Path) -> ProcessorReplica:
    """Return the task of a class that reads `source`, with other keys."""
    return unit_of(
        f'{{id: Sum, type: "tests.user_code.word_count:RunningSum", to: [sink], {more}}}', folder
    )


# --- built-in types and classes ---


@pytest.mark.parametrize(("type_", "stores_"), [("forward", ()), ("sum", ()), ("count", (COUNTS,))])
def test_a_built_in_type_is_one_node_on_bytes_between_its_topics(
    type_: str, stores_: Sequence[object], folder: Path
) -> None:
    text = f"""
sources: {{a: a_topic}}
processors:
- {{id: P, type: {type_}, from: [a, source], to: [P2, sink]}}
- {{id: P2, type: forward, to: [sink]}}
"""
    group = group_of(units_of(text, folder)["P_0"], CODE)
    assert [node.name for node in group.nodes] == ["a of P", "source of P", "P", "P2", "sink"]
    assert (group.in_topics, group.out_topics) == (("a_topic", "in"), ("P_P2_job", "out"))
    assert group.stores == stores_
    of_sources = [(node.key_serde, node.value_serde) for node in group.sources]
    of_sinks = [(node.key_serde, node.value_serde) for node in group.sinks]
    assert of_sources == of_sinks == [(serdes.bytes, serdes.bytes)] * 2


def test_a_class_is_one_node_between_a_source_for_each_input_and_its_sinks(folder: Path) -> None:
    group = group_of(units_of(SUMS, folder)["Sum_0"], CODE)
    inputs = ("plain of Sum", "late of Sum", "timed of Sum", "source of Sum")
    processor = next(node for node in group.nodes if isinstance(node, ProcessorNode))
    assert (processor.name, processor.parents) == ("Sum", inputs)
    assert [source.topics for source in group.sources] == [
        ("plain_topic",),
        ("late_topic",),
        ("timed_topic",),
        ("in",),
    ]
    assert [(sink.name, sink.topics, sink.parents) for sink in group.sinks] == [
        ("totals", ("totals_topic",), ("Sum",)),
        ("Next", ("Sum_Next_job",), ("Sum",)),
        ("sink", ("out",), ("Sum",)),
    ]


def test_serdes_are_those_of_the_source_or_else_of_the_class(folder: Path) -> None:
    group = group_of(units_of(SUMS, folder)["Sum_0"], CODE)
    assert [(source.key_serde, source.value_serde) for source in group.sources] == [
        (serdes.string, serdes.integer),
        (serdes.string, serdes.integer),
        (serdes.uuid, serdes.json),
        (serdes.string, serdes.integer),
    ]
    assert {(sink.key_serde, sink.value_serde) for sink in group.sinks} == {
        (serdes.string, serdes.int64)
    }


def test_a_source_that_names_one_serde_has_the_other_one_of_the_class(folder: Path) -> None:
    text = """
sources: {a: {topic: a_topic, value: json}}
processors:
- id: Sum
  type: tests.user_code.word_count:RunningSum
  from: [a]
  to: [sink]
  serdes: {key: string, value: integer}
"""
    (source,) = group_of(units_of(text, folder)["Sum_0"], CODE).sources
    assert (source.key_serde, source.value_serde) == (serdes.string, serdes.json)


def test_each_source_begins_where_it_says(folder: Path) -> None:
    group = group_of(units_of(SUMS, folder)["Sum_0"], CODE)
    assert [source.auto_offset_reset for source in group.sources] == [
        "earliest",
        "latest",
        "earliest",
        "earliest",
    ]
    assert [group.begins_at_end(topic) for topic in group.in_topics] == [False, True, False, False]


def test_times_are_those_of_kafka_unless_a_source_names_a_field(folder: Path) -> None:
    group = group_of(units_of(SUMS, folder)["Sum_0"], CODE)
    plain, late, timed, source = (source.timestamp_extractor for source in group.sources)
    assert plain is late is source is record_timestamp
    assert isinstance(timed, FieldTimestampExtractor)
    assert (timed.field, timed.unit) == ("at", "s")
    assert isinstance(timed.on_invalid, LogAndSkipOnInvalidTimestamp)


def test_a_source_may_take_the_time_at_which_it_is_read(folder: Path) -> None:
    text = """
sources: {a: {topic: t, timestamp: wall_clock}}
processors:
- {id: Sum, type: "tests.user_code.word_count:RunningSum", from: [a], to: [sink]}
"""
    (source,) = group_of(units_of(text, folder)["Sum_0"], CODE).sources
    assert source.timestamp_extractor == WallclockTimestampExtractor()


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ("", FailOnInvalidTimestamp),
        (", on_invalid: fail", FailOnInvalidTimestamp),
        (", on_invalid: skip", LogAndSkipOnInvalidTimestamp),
        (", on_invalid: partition_time", UsePartitionTimeOnInvalidTimestamp),
    ],
)
@pytest.mark.parametrize("unit", ["ms", "s", "us", "iso8601"])
def test_a_field_has_a_unit_and_a_policy_for_what_is_no_time(
    unit: str, given: str, policy: type, folder: Path
) -> None:
    text = f"""
sources: {{a: {{topic: t, value: json, timestamp: {{field: at, unit: {unit}{given}}}}}}}
processors:
- {{id: Sum, type: "tests.user_code.word_count:RunningSum", from: [a], to: [sink]}}
"""
    (source,) = group_of(units_of(text, folder)["Sum_0"], CODE).sources
    extractor = source.timestamp_extractor
    assert isinstance(extractor, FieldTimestampExtractor)
    assert (extractor.unit, type(extractor.on_invalid)) == (unit, policy)


def test_stores_are_those_of_the_class_and_only_it_uses_them(folder: Path) -> None:
    group = group_of(units_of(SUMS, folder)["Sum_0"], CODE)
    assert group.stores == (
        stores.key_value("Sums", serdes.string, serdes.int64),
        stores.session("Other", serdes.bytes, serdes.bytes, retention_ms=9_000, logged=False),
    )
    users = [node for node in group.nodes if isinstance(node, ProcessorNode)]
    assert [(node.name, node.stores) for node in users] == [("Sum", ("Sums", "Other"))]


def test_config_goes_to_the_class_as_keyword_arguments(folder: Path) -> None:
    more = """
      serdes: {key: string, value: integer}, config: {start: 100},
      stores: [{name: Sums, key: string, value: int64}]
    """
    nodes = Nodes(group_of(sums(more, folder), CODE))
    assert nodes.process(batch([b"5", b"7"], keys=[b"k", b"k"])) == []
    assert [(topic, key, value) for topic, key, value, _ in nodes.sent] == [
        ("out", b"k", b"105"),
        ("out", b"k", b"112"),
    ]


def test_each_task_has_an_instance_of_the_class_of_its_own(folder: Path) -> None:
    group = group_of(sums("config: {start: 1}", folder), CODE)
    node = next(node for node in group.nodes if isinstance(node, ProcessorNode))
    assert node.supplier() is not node.supplier()


def test_a_task_that_reads_fewer_topics_has_fewer_sources(folder: Path) -> None:
    text = """
sources: {few: few_topic, many: many_topic}
processors: [{id: P, type: forward, from: [few, many, source], to: [sink]}]
"""
    units = units_of(text, folder, partitions={"few_topic": 1, "many_topic": 3, "in": 2})
    assert {name: group_of(unit, CODE).in_topics for name, unit in units.items()} == {
        "P_0": ("few_topic", "many_topic", "in"),
        "P_1": ("many_topic", "in"),
        "P_2": ("many_topic",),
    }
    last = group_of(units["P_2"], CODE)
    assert [node.name for node in last.nodes] == ["many of P", "P", "sink"]
    assert last.out_topics == ("out",)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (
            "tests.user_code.word_count:word_count",
            "tests.user_code.word_count:word_count is not a subclass of Processor, BatchProcessor "
            "or AsyncProcessor",
        ),
        (
            "tests.user_code.word_count:Missing",
            'module "tests.user_code.word_count" has no "Missing"',
        ),
        (
            "tests.user_code.word_count:Processor",
            '"Processor" is not defined in module "tests.user_code.word_count"',
        ),
        ("tests.user_code.missing:A", 'module "tests.user_code.missing" of the list modules:'),
    ],
)
def test_code_that_is_no_class_for_records_is_refused_with_the_reason(
    reference: str, message: str, folder: Path
) -> None:
    unit = unit_of(f'{{id: A, type: "{reference}", to: [sink]}}', folder)
    with pytest.raises(ConfigError) as raised:
        group_of(unit, CODE)
    assert message in str(raised.value)


def test_a_class_that_is_not_allowed_here_is_refused_though_the_jobmanager_allowed_it(
    folder: Path,
) -> None:
    with pytest.raises(ConfigError, match=r'"tests\.user_code\.word_count" is not on the list'):
        group_of(sums("config: {start: 1}", folder), UserCode(["other"]))


def test_a_class_that_does_not_take_its_config_is_refused(folder: Path) -> None:
    message = "RunningSum does not take this config: got an unexpected keyword argument 'begin'"
    with pytest.raises(ConfigError, match=message):
        group_of(sums("config: {begin: 1}", folder), CODE)


# --- topologies ---


def test_a_group_of_a_topology_has_its_nodes_with_the_topics_in_kafka(folder: Path) -> None:
    units = units_of(CHAIN, folder)
    first, second = (group_of(units[name], CODE) for name in ("W-Split_0", "W-Count_0"))
    assert [node.name for node in first.nodes] == ["Split", "Splitter", "To middle"]
    assert [node.name for node in second.nodes] == ["Count", "Counter", "Out"]
    assert (first.in_topics, first.out_topics) == (("lines_topic",), ("W_middle_job",))
    assert (second.in_topics, second.out_topics) == (("W_middle_job",), ("words_topic",))


def test_a_group_of_a_topology_keeps_all_else_as_the_builder_has_it(folder: Path) -> None:
    units = units_of(CHAIN, folder)
    first, second = (group_of(units[name], CODE) for name in ("W-Split_0", "W-Count_0"))
    assert [store.name for store in second.stores] == ["Kept", "Windows", "Scratch"]
    assert first.stores == ()
    (source,), (sink,) = first.sources, first.sinks
    assert (source.key_serde, source.value_serde) == (serdes.bytes, serdes.json)
    assert (sink.key_serde, sink.value_serde) == (serdes.bytes, serdes.json)
    assert second.sources[0].key_serde == serdes.string
    assert (first.begins_at_end("lines_topic"), second.begins_at_end("W_middle_job")) == (
        False,
        True,
    )
    for node in (*first.nodes, *second.nodes):
        assert isinstance(node, Source) == (node.parents == ())


def test_names_of_sources_and_sinks_in_a_topology_are_their_topics_in_kafka(folder: Path) -> None:
    text = """
sources: {left: left_topic}
processors:
- id: J
  type: topology
  builder: tests.user_code.topologies:join
  config: {left: left, right: source, joined: sink}
"""
    group = group_of(units_of(text, folder)["J-Left_0"], CODE)
    assert (group.in_topics, group.out_topics) == (("left_topic", "in"), ("out",))
    assert [node.topics for node in group.nodes if isinstance(node, Sink)] == [("out",)]


def test_records_go_through_a_group_of_a_topology(folder: Path) -> None:
    nodes = Nodes(group_of(units_of(CHAIN, folder)["W-Split_0"], CODE))
    records = batch([b'{"a": 1}', b"{"], keys=[b"k", b"k"])
    rejected = nodes.process(replace(records, topic="lines_topic"))
    assert [(topic, key, value) for topic, key, value, _ in nodes.sent] == [
        ("W_middle_job", b"k", b'{"a":1}')
    ]
    assert [rejection.index for rejection in rejected] == [1]


def test_a_group_that_the_builder_here_does_not_make_is_refused(folder: Path) -> None:
    unit = units_of(CHAIN, folder)["W-Split_0"]
    assert isinstance(unit.spec, TopologySpec)
    other = replace(unit, spec=structs.replace(unit.spec, group="Older"))
    with pytest.raises(TopologyError) as raised:
        group_of(other, CODE)
    assert str(raised.value) == (
        'tests.user_code.topologies:chain builds no node group with the first source "Older" any '
        "more: the code here is not that of the JobManager"
    )


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        ("forgetful", ConfigError, "topologies:forgetful returns a NoneType: it must return a"),
        ("failing", ConfigError, "topologies:failing fails: TypeError: failing() missing 1"),
        ("missing", ConfigError, 'module "tests.user_code.topologies" has no "missing"'),
        ("impossible", TopologyError, '"Out" has an unknown parent "Im"'),
    ],
)
def test_a_builder_that_fails_on_the_taskmanager_is_reported(
    function: str, error: type[Exception], message: str, folder: Path
) -> None:
    unit = units_of(CHAIN, folder)["W-Split_0"]
    spec = TopologySpec(code=f"tests.user_code.topologies:{function}", group="Split")
    other = replace(unit, spec=spec)
    with pytest.raises(error) as raised:
        group_of(other, CODE)
    assert message in str(raised.value)


# --- settings ---


@pytest.mark.parametrize("type_", ["forward", "sum", "count"])
def test_built_in_types_take_inputs_as_they_come(type_: str, folder: Path) -> None:
    unit = unit_of(f"{{id: P, type: {type_}, to: [sink], on_error: skip}}", folder)
    assert settings_of(unit) == GroupSettings(
        OnError.SKIP, max_task_idle_ms=0, buffered_records=1000, takes_inputs_as_they_come=True
    )


def test_a_class_takes_the_record_with_the_smallest_timestamp_first(folder: Path) -> None:
    assert settings_of(sums("", folder)) == GroupSettings(
        OnError.FAIL, None, max_task_idle_ms=0, buffered_records=1000
    )
    assert not settings_of(sums("", folder)).takes_inputs_as_they_come


@pytest.mark.parametrize("type_", [ClassSpec, TopologySpec])
def test_settings_of_an_entry_are_those_of_its_tasks(
    type_: type[ProcessorSpec], folder: Path
) -> None:
    more = "on_error: dead_letter, max_task_idle_ms: -1, buffered_records_per_partition: 3"
    if type_ is ClassSpec:
        unit, name = sums(more, folder), "Sum"
    else:
        entry = CHAIN.strip().removeprefix("- ").replace("\n  ", ", ")
        unit, name = unit_of(f"{{{entry}, {more}}}", folder), "W-Split"
    assert type(unit.spec) is type_
    assert settings_of(unit) == GroupSettings(
        OnError.DEAD_LETTER,
        f"{name}_dead_letter_job",
        max_task_idle_ms=-1,
        buffered_records=3,
    )
