"""User topologies in pipeline.yaml: their node groups become processors."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.pipelines.processors import LoggedStore, OnError
from kafka_pipeline.common.pipelines.specs import RecordSerdes, TopologySpec
from kafka_pipeline.common.pipelines.spreading import Spreading
from kafka_pipeline.common.protocol.messages import ProcessorReplica, replicas
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.pipeline.units import group_of
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.nodes import Nodes
from tests.unit.streams.pipeline.loading import CONFIG, READ_AS_FEEDBACK, load, problems_in

MODULE = "tests.user_code.topologies"
JOB = replace(CONFIG, job_name="job")
WEEK_MS = 7 * 86_400_000
CHARACTERS = 'which Kafka refuses in topic names: use letters, digits, ".", "_" and "-"'


def entry(builder: str, config: str = "", more: str = "", id_: str = "W") -> str:
    """Return a line with a topology; its id begins in column 8."""
    keys = f'id: {id_}, type: topology, builder: "{MODULE}:{builder}", config: {{{config}}}'
    return f"- {{{keys}{more}}}"


CHAIN = entry("chain", "lines: lines_topic, words: words_topic")


# --- what is read ---


def test_each_node_group_becomes_a_processor_called_after_its_first_source() -> None:
    first, second = load(CHAIN).processors
    assert (first.id, second.id) == ("W-Split", "W-Count")
    spec = TopologySpec(
        code=f"{MODULE}:chain",
        config={"lines": "lines_topic", "words": "words_topic"},
        group="Split",
        serdes={"middle": RecordSerdes(key="bytes", value="json")},
    )
    assert first.spec == spec
    assert second.spec == structs.replace(
        spec,
        group="Count",
        internal={"middle": None},
        serdes={"middle": RecordSerdes(key="string", value="bytes")},
    )
    assert [str(task) for task in load(CHAIN, JOB).tasks] == [
        "W-Split_0",
        "W-Split_1",
        "W-Count_0",
        "W-Count_1",
    ]


def test_a_function_may_return_a_builder_of_the_dsl() -> None:
    loaded = load(entry("counted_words", "lines: lines_topic, words: words_topic"), JOB)
    assert [processor.id for processor in loaded.processors] == ["W-Lines", "W-ByWord"]
    first, second = loaded.processors
    assert loaded.out_topics(first) == ("W_ByWord-repartition_job",)
    assert loaded.out_topics(second) == ("words_topic",)
    assert [store.name for store in second.stores] == ["Counts"]


def test_internal_topics_carry_the_id_and_the_job_name_and_others_do_not() -> None:
    loaded = load(CHAIN, JOB)
    first, second = loaded.processors
    assert (loaded.in_topics(first), loaded.out_topics(first)) == (
        ("lines_topic",),
        ("W_middle_job",),
    )
    assert (loaded.in_topics(second), loaded.out_topics(second)) == (
        ("W_middle_job",),
        ("words_topic",),
    )
    assert (first.internal_topics, second.internal_topics) == ({}, {"middle": None})
    assert loaded.arcs == {"W_middle_job": "W-Count"}
    assert loaded.user_topics == ("lines_topic", "words_topic")


def test_internal_topics_keep_records_until_they_are_processed_whatever_their_age() -> None:
    (spec,) = (s for s in load(CHAIN, JOB).data_topics(1) if s.name == "W_middle_job")
    assert (spec.config["cleanup.policy"], spec.config["retention.ms"]) == ("delete", "-1")
    assert spec.partitions == 2


def test_an_internal_topic_has_as_many_partitions_as_the_builder_says() -> None:
    text = entry("chain", "lines: l, words: w, partitions: 5")
    loaded = load(text, JOB)
    assert loaded.partitions == {"W_middle_job": 5}
    specs = {spec.name: spec.partitions for spec in loaded.data_topics(JOB.replication_factor)}
    assert (specs["W_middle_job"], specs["state_topic_W-Count_Kept_job"]) == (5, 5)
    assert [loaded.task_count(node) for node in loaded.processors] == [2, 5]


def test_state_topics_are_those_of_the_group_whose_stores_are_logged() -> None:
    loaded = load(CHAIN, JOB)
    first, second = loaded.processors
    assert first.stores == ()
    windows_policy = {"cleanup.policy": "compact,delete", "retention.ms": str(60_000 + WEEK_MS)}
    windows = LoggedStore("Windows", windows_policy, spreading=Spreading(time="window"))
    assert [structs.replace(store, content=None) for store in second.stores] == [
        LoggedStore("Kept"),
        windows,
    ]
    assert loaded.state_topics(second) == {
        "Kept": "state_topic_W-Count_Kept_job",
        "Windows": "state_topic_W-Count_Windows_job",
    }


def test_a_group_with_two_sources_is_one_processor_that_reads_both() -> None:
    (node,) = load(entry("join", "left: l, right: r, joined: j")).processors
    assert (node.id, node.from_, node.to) == ("W-Left", ("l", "r"), ("j",))


def test_topics_may_be_names_of_sources_and_sinks_and_those_of_config_yaml() -> None:
    text = "sources: {left: left_topic}\nsinks: {joined: joined_topic}\nprocessors:\n"
    loaded = load(
        text
        + entry("join", "left: left, right: source, joined: joined")
        + "\n"
        + entry("join", "left: other, right: left, joined: sink", id_="V")
    )
    assert [loaded.in_topics(node) for node in loaded.processors] == [
        ("left_topic", "in"),
        ("other", "left_topic"),
    ]
    assert [loaded.out_topics(node) for node in loaded.processors] == [("joined_topic",), ("out",)]
    assert loaded.user_topics == ("left_topic", "in", "joined_topic", "other", "out")


def test_one_builder_makes_two_topologies_with_topics_of_their_own() -> None:
    loaded = load(f"{CHAIN}\n{entry('chain', 'lines: lines_topic, words: more', id_='V')}")
    assert [node.id for node in loaded.processors] == ["W-Split", "W-Count", "V-Split", "V-Count"]
    assert loaded.arcs == {"W_middle": "W-Count", "V_middle": "V-Count"}


def test_settings_of_the_entry_are_those_of_each_of_its_groups() -> None:
    text = entry(
        "chain",
        "lines: l, words: w",
        ", on_error: dead_letter, max_task_idle_ms: -1, buffered_records_per_partition: 7",
    )
    loaded = load(text, JOB)
    for node in loaded.processors:
        assert node.on_error is OnError.DEAD_LETTER
        assert (node.spec.max_task_idle_ms, node.spec.buffered_records) == (-1, 7)
    dead = [loaded.dead_letter_topic(node) for node in loaded.processors]
    assert dead == ["W-Split_dead_letter_job", "W-Count_dead_letter_job"]


def test_a_topology_runs_beside_other_processors() -> None:
    loaded = load(CHAIN + "\n- {id: A, type: sum, to: [B]}\n- {id: B, type: count, to: [sink]}")
    assert [node.id for node in loaded.processors] == ["W-Split", "W-Count", "A", "B"]
    assert loaded.arcs == {"W_middle": "W-Count", "A_B": "B"}


def test_replicas_of_groups_travel_as_json() -> None:
    units = replicas(load(CHAIN, JOB))
    assert [(u.in_topics, u.out_topics) for u in units[1:3]] == [
        (("lines_topic",), ("W_middle_job",)),
        (("W_middle_job",), ("words_topic",)),
    ]
    for unit in units:
        data, parameters = json.dumps(unit.to_json()), json.dumps(unit.parameters())
        read = ProcessorReplica.from_json(json.loads(data), json.loads(parameters))
        assert (read, read.fingerprint) == (unit, unit.fingerprint)
    assert len({unit.fingerprint for unit in units}) == 4


def test_code_with_other_serdes_than_its_version_is_refused() -> None:
    """The records that wait were written by those of the version."""
    units = replicas(load(CHAIN))
    for unit in (units[0], units[-1]):
        assert isinstance(unit.spec, TopologySpec)
        had = structs.replace(unit.spec.serdes["middle"], value="int64")
        spec = structs.replace(unit.spec, serdes={"middle": had})
        with pytest.raises(TopologyError, match="internal topic middle, but this version"):
            group_of(replace(unit, spec=spec), UserCode.of(CONFIG))


def test_the_test_driver_runs_a_group_once_whatever_the_partitions_of_its_topic(
    tmp_path: Path,
) -> None:
    config, pipeline = tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    config.write_text(
        "{server_ip: 127.0.0.1, server_port: 9092, tm_number: 1, parallelism: 2, "
        "replication_factor: 1, source_topic: in, sink_topic: out, modules: [tests.user_code]}"
    )
    pipeline.write_text(entry("chain", "lines: l, words: w, partitions: 3"))
    with TopologyTestDriver.of_pipeline(config, pipeline) as driver:
        lines, words = driver.create_input_topic("l"), driver.create_output_topic("w")
        lines.pipe_input(b"k", b"1", timestamp=1)
        assert words.read_key_values() == [(b"k", b"1")]


# --- mistakes, each alone ---


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            entry("failing", "reason: no luck"),
            f'1:8: "W": {MODULE}:failing fails: LookupError: no luck '
            "(tests/user_code/topologies.py:96 in failing)",
        ),
        (entry("silent"), '1:8: "W": StreamsError'),
        (
            entry("chain", "lines: l"),
            f'1:8: "W": {MODULE}:chain fails: TypeError: chain() missing 1 required positional '
            "argument: 'words'",
        ),
        (
            entry("chain", "lines: l, words: w, parts: 2"),
            f'1:8: "W": {MODULE}:chain fails: TypeError: chain() got an unexpected keyword '
            "argument 'parts'",
        ),
        (
            entry("forgetful"),
            f'1:8: "W": {MODULE}:forgetful returns a NoneType: it must return a StreamsBuilder, '
            "a TopologyBuilder, or what its build() returns",
        ),
        (
            entry("Passing"),
            f'1:8: "W": {MODULE}:Passing returns a Passing: it must return a StreamsBuilder, '
            "a TopologyBuilder, or what its build() returns",
        ),
        (entry("chian"), f'1:8: "W": module "{MODULE}" has no "chian"'),
        (
            entry("serdes"),
            f'1:8: "W": "serdes" is not defined in module "{MODULE}", only imported there',
        ),
        (
            '- {id: W, type: topology, builder: "os:system"}',
            '1:8: "W": module "os" is not on the list modules: of config.yaml, which has '
            "shop, tests.user_code, _a: add it if its code may run",
        ),
        (
            '- {id: W, type: topology, builder: "word_count"}',
            '1:36: "word_count" names no code: write it as package.module:Name',
        ),
        (
            "- {id: W, type: topology}",
            '1:3: missing key "builder" (package.module:function)',
        ),
        (
            "- {id: W, type: topology, builder: 1}",
            "1:36: builder must be a string, got the number 1: put it in quotes",
        ),
        (
            entry("join", "left: l, right: r, joined: j", ", max_task_idle_ms: -7"),
            "1:129: max_task_idle_ms must be -1 to 2147483647, got -7",
        ),
        (
            entry("chain", "lines: l, words: w, partitions: 0"),
            '1:8: "W": internal topic "middle": partitions must be 1 or more, not 0',
        ),
        (
            entry("chain", "lines: l, words: w, first: My Source"),
            f'1:8: "W": the id "W-My Source" of a node group has the character " ", {CHARACTERS}',
        ),
        (
            entry("chain", "lines: l l, words: w"),
            f'1:8: "W": source "Split": the topic "l l" has the character " ", {CHARACTERS}',
        ),
        (
            entry("chain", "lines: l, words: w, middle: sink"),
            '1:8: "W": internal topic "sink" has a reserved name: choose another one',
        ),
        (
            entry("chain", "lines: l, words: l"),
            '1:8: "W": topic "l" is read and written: give its source feedback=True if its records '
            "are to come back, or add_internal_topic if they only pass; in a StreamsBuilder, go on "
            "with the stream or table that is written there",
        ),
    ],
)
def test_a_mistake_in_a_topology_is_reported_once_with_its_place(text: str, problem: str) -> None:
    assert problems_in(text) == [problem]


@pytest.mark.parametrize("key", ["to: [sink]", "from: [source]", "serdes: {}", "stores: [{}]"])
def test_a_topology_takes_nothing_that_its_builder_says(key: str) -> None:
    (problem,) = problems_in(entry("join", "left: l, right: r, joined: j", f", {key}"))
    assert problem.startswith(f'1:111: unknown key "{key.partition(":")[0]}": the keys are id, ')


@pytest.mark.parametrize("option", ["timestamp: wall_clock", "auto_offset_reset: latest"])
def test_a_topology_refuses_a_source_with_options_that_it_would_not_follow(option: str) -> None:
    sources = f"sources: {{l: {{topic: lines, {option}}}, m: lines}}\n"
    text = sources + "processors:\n" + entry("chain", "lines: %s, words: w")
    assert problems_in(text % "l") == [
        '3:8: "W": source "l" has options, and a topology says itself how it reads its sources: '
        "give them to add_source, or name the topic once more without options"
    ]
    assert [node.id for node in load(text % "m").processors] == ["W-Split", "W-Count"]


def test_everything_that_is_wrong_with_a_topology_is_reported_a_line_each() -> None:
    assert problems_in(entry("impossible")) == [
        '1:8: "W": "Out" has an unknown parent "Im"',
        '1:8: "W": "Other" has the sink "Out" as parent: sinks forward nothing',
    ]


def test_a_module_that_is_not_found_is_reported_with_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    config = replace(CONFIG, modules=("no_such_shop",), python_path=(tmp_path,))
    text = '- {id: W, type: topology, builder: "no_such_shop:build"}'
    (problem,) = problems_in(text, config)
    assert problem.startswith('1:8: "W": module "no_such_shop" of the list modules: in config.yaml')
    assert str(tmp_path) in problem


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (
            "- {id: A, type: sum, to: [W, sink]}",
            '1:27: "W" is a topology: name a topic that it reads under `sinks:`',
        ),
        (
            "- {id: A, type: sum, from: [W], to: [sink]}",
            '1:29: "W" is a topology: name the topic that it writes under `sources:`',
        ),
        ("- {id: A, type: sum, to: [W-Split, sink]}", '1:27: unknown target "W-Split"'),
    ],
)
def test_processors_cannot_be_tied_to_a_topology_but_by_topics(other: str, problem: str) -> None:
    assert problems_in(f"{other}\n{CHAIN}") == [problem]


# --- ids and topics that collide ---


def test_an_id_that_a_node_group_has_cannot_be_that_of_another_processor() -> None:
    wrong = (
        'two processors have the id "W-Split", as those of a topology are called '
        "<id>-<first source>: rename one"
    )
    assert problems_in(CHAIN + "\n- {id: W-Split, type: sum, to: [sink]}") == [f"2:8: {wrong}"]


def test_an_id_that_begins_like_that_of_a_topology_is_another_one() -> None:
    other = entry("chain", "lines: l, words: w", id_="W-Split")
    more = "- {id: W-Other, type: count, to: [sink], on_error: dead_letter}"
    loaded = load(f"{CHAIN}\n{other}\n{more}")
    assert [node.id for node in loaded.processors][2:] == [
        "W-Split-Split",
        "W-Split-Count",
        "W-Other",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            entry("chain", "lines: l, words: w, middle: x_y")
            + "\n- {id: W_x, type: sum, to: ['y']}\n- {id: 'y', type: sum, to: [sink]}",
            '2:29: the arc W_x -> y needs the topic "W_x_y", which is that of the internal topic '
            '"x_y" of "W" (line 1): rename one',
        ),
        (
            entry("chain", "lines: l, words: w, middle: x.y")
            + "\n"
            + entry("chain", "lines: l, words: w, middle: 'y'", id_="W_x"),
            '2:8: the internal topic "y" of "W_x" needs the topic "W_x_y", and the internal topic '
            '"x.y" of "W" (line 1) "W_x.y": they differ only in "." and "_", which Kafka refuses',
        ),
        (
            "sinks: {b: W_middle}\nprocessors:\n" + CHAIN,
            '3:8: the internal topic "middle" of "W" needs the topic "W_middle", which is that of '
            'sink "b" (line 1): rename one',
        ),
        (
            entry("chain", "lines: l, words: state_topic_W-Count_Kept"),
            '1:8: the state of store "Kept" of "W-Count" needs the topic '
            '"state_topic_W-Count_Kept", which is that of "W-Count" (line 1): rename one',
        ),
        (
            entry("chain", "lines: heartbeat_topic, words: w"),
            '1:8: "W-Split" needs the topic "heartbeat_topic", which is the control topic '
            '"heartbeat_topic": rename it',
        ),
        (
            entry("chain", "lines: a.b, words: a_b"),
            '1:8: "W-Count" needs the topic "a_b", and "W-Split" (line 1) "a.b": they differ only '
            'in "." and "_", which Kafka refuses',
        ),
        (
            entry("chain", f"lines: l, words: w, middle: {'m' * 248}"),
            f'1:8: the internal topic "{"m" * 248}" of "W" needs a topic name of 250 '
            "characters, Kafka takes at most 249: shorten the ids",
        ),
        (
            entry("join", "left: source, right: in, joined: j"),
            '1:8: "W-Left" reads the topic "in" twice, as "source" and as "in": name one of them',
        ),
        (
            entry("join", "left: source, right: r, joined: in"),
            f'1:8: "W-Left" sends to the topic "in", which it reads itself: {READ_AS_FEEDBACK}',
        ),
    ],
)
def test_topics_that_collide_are_reported_with_both_of_their_owners(
    text: str, problem: str
) -> None:
    assert problem in problems_in(text)


def test_topics_that_a_function_chooses_are_sinks_if_they_are_named() -> None:
    text = "sinks: {large: large_topic}\nprocessors:\n"
    pipeline = load(text + entry("by_size", "orders: source, topics: [large, small]"))
    (processor,) = pipeline.processors
    assert pipeline.out_topics(processor) == ("large_topic", "small")
    assert {"large_topic", "small"} <= {each.name for each in pipeline.data_topics(1)}
    assert not processor.chooses_topics
    group = group_of(replicas(pipeline)[0], UserCode.of(CONFIG))
    (sink,) = group.sinks
    assert (sink.names, sink.topics) == (("large", "small"), ("large_topic", "small"))
    nodes = Nodes(group)
    nodes.process(
        RecordBatch(group.in_topics[0], 0, [b"a", b"b"], [b"1", b"10"], [1, 2], [0, 1], None)
    )
    assert [each[0] for each in nodes.sent] == ["small", "large_topic"]


def test_a_table_is_only_looked_up_by_records_of_a_pattern_too() -> None:
    given = "pattern: 'lines_.*', names: source, found: sink"
    text = entry("found_by_pattern", given).replace(MODULE, "tests.user_code.joins")
    (processor,) = load(text).processors
    assert (processor.from_, processor.looked_up) == (("source",), ("source",))


def test_nobody_knows_the_topics_that_a_function_chooses_on_its_own() -> None:
    (processor,) = load(entry("by_size", "orders: source")).processors
    assert processor.to == ()
    assert processor.chooses_topics
