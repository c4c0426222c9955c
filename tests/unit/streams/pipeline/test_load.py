"""How pipeline.yaml is read, and the error for each mistake in it."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.processors import (
    SINK,
    SOURCE,
    LoggedStore,
    OnError,
    PipelineProcessor,
    StoreContent,
)
from kafka_pipeline.common.pipelines.specs import CountSpec, ForwardSpec, SumSpec
from kafka_pipeline.common.pipelines.spreading import Spreading
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.unit.streams.pipeline.loading import CONFIG, load, problems_in

COUNTS = (
    LoggedStore(
        "counts",
        spreading=Spreading(rule="key"),
        content=StoreContent(family="key-value", key="bytes", value="integer"),
    ),
)
TYPES = (
    '"forward", "sum", "count", "sql", "dataframe", "topology" or "table", or package.module:Class'
)


def test_the_three_types_are_read_with_defaults_filled_in() -> None:
    loaded = load(
        """
- {id: Forwarder, type: forward, to: [Adder]}
- {id: Adder, type: sum, to: [Counter], on_error: dead_letter}
- {id: Counter, type: count, to: [sink], on_error: skip}
"""
    )
    assert loaded.processors == (
        PipelineProcessor("Forwarder", ForwardSpec(), ("Adder",), (SOURCE,)),
        PipelineProcessor(
            "Adder",
            SumSpec(),
            ("Counter",),
            ("Forwarder",),
            OnError.DEAD_LETTER,
        ),
        PipelineProcessor("Counter", CountSpec(), (SINK,), ("Adder",), OnError.SKIP, stores=COUNTS),
    )
    assert [node.is_stateful for node in loaded.processors] == [False, False, True]


def test_parameters_are_read() -> None:
    loaded = load("[{id: A, type: sum, to: [sink], config: {constant: -5}}]")
    assert loaded.processor("A").spec == SumSpec(constant=-5)


def test_a_node_is_found_by_its_id_only() -> None:
    loaded = load("[{id: A, type: forward, to: [sink]}]")
    assert loaded.processor("A").id == "A"
    with pytest.raises(KeyError):
        loaded.processor("B")


def test_branches_split_join_and_keep_file_order() -> None:
    loaded = load(
        """
- {id: Join, type: count, to: [sink]}
- {id: Right, type: sum, to: [Join]}
- {id: Left, type: forward, to: [Join, sink]}
- {id: Split, type: forward, to: [Left, Right]}
- {id: Other, type: forward, to: [Join]}
"""
    )
    assert [node.id for node in loaded.processors] == ["Split", "Right", "Left", "Other", "Join"]
    assert loaded.processor("Join").from_ == ("Right", "Left", "Other")
    assert loaded.processor("Left").to == ("Join", "sink")
    assert loaded.processor("Other").from_ == (SOURCE,)


def test_tasks_are_every_processor_times_every_partition() -> None:
    loaded = load("[{id: A, type: forward, to: [B]}, {id: B, type: forward, to: [sink]}]")
    assert [str(task) for task in loaded.tasks] == [
        "A_0",
        "A_1",
        "B_0",
        "B_1",
    ]


# --- mistakes, each alone ---

END = "\n- {id: End, type: count, to: [sink]}"
"""A line that makes the rest of a pipeline complete."""

CHARACTERS = 'which Kafka refuses in topic names: use letters, digits, ".", "_" and "-"'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        # The shape of the file.
        ("[]", "1:1: the pipeline is empty: it needs at least one processor"),
        ("1", "1:1: must be a list of processors (`- id: …`), got the number 1"),
        (
            "- Forwarder" + END,
            '1:3: a processor must be a map with id, type and to, got the text "Forwarder"',
        ),
        # Keys.
        (
            "- {id: A, typ: sum, type: sum, to: [End]}" + END,
            '1:11: unknown key "typ", did you mean "type"?',
        ),
        (
            "- {id: A, zzz: 1, type: sum, to: [End]}" + END,
            '1:11: unknown key "zzz": the keys are id, was, type, from, to, on_error, '
            "max_dead_letters_per_minute, config",
        ),
        (
            "- {id: A, type: sum, type: count, to: [End]}" + END,
            '1:22: key "type" is given twice (first at line 1)',
        ),
        ("- {type: sum, to: [End]}" + END, '1:3: missing key "id" (the processor\'s name)'),
        (
            "- {id: A, to: [End]}" + END,
            f'1:3: missing key "type" ({TYPES})',
        ),
        (
            "- {id: A, type: sum}" + END,
            '1:3: missing key "to" (a list of processor ids, or of "sink")',
        ),
        # Ids.
        (
            "- {id: 1, type: sum, to: [End]}" + END,
            "1:8: id must be a string, got the number 1: put it in quotes",
        ),
        ("- {id: '', type: sum, to: [End]}" + END, "1:8: id is empty"),
        (
            "- {id: End, type: sum, to: [sink]}" + END,
            '2:8: id "End" is given twice (first at line 1)',
        ),
        (
            "- {id: sink, type: sum, to: [End]}" + END,
            '1:8: id "sink" is reserved for the sink topic: choose another one',
        ),
        (
            "- {id: source, type: sum, to: [End]}" + END,
            '1:8: id "source" is reserved for the source topic: choose another one',
        ),
        (
            "- {id: a b, type: sum, to: [End]}" + END,
            f'1:8: id "a b" has the character " ", {CHARACTERS}',
        ),
        # Types.
        (
            "- {id: A, type: cuont, to: [End]}" + END,
            f'1:17: type must be {TYPES}, got the text "cuont", did you mean "count"?',
        ),
        (
            "- {id: A, type: average, to: [End]}" + END,
            f'1:17: type must be {TYPES}, got the text "average"',
        ),
        (
            "- {id: A, type: [sum], to: [End]}" + END,
            f"1:17: type must be {TYPES}, got a list",
        ),
        # Targets.
        (
            "- {id: A, type: sum, to: sink}",
            '1:26: to must be a list, got the text "sink": write ["sink"]',
        ),
        ("- {id: A, type: sum, to: {sink: 1}}", "1:26: to must be a list, got a map"),
        ("- {id: A, type: sum, to: }", "1:25: to must be a list, got nothing"),
        (
            "- {id: A, type: sum, to: []}" + END,
            '1:26: to is empty: name at least one processor, or "sink"',
        ),
        (
            "- {id: A, type: sum, to: [End, 1]}" + END,
            "1:32: to must hold processor ids, got the number 1",
        ),
        ("- {id: A, type: sum, to: [End, End]}" + END, '1:32: target "End" is given twice'),
        (
            "- {id: A, type: sum, to: [end]}" + END,
            '1:27: unknown target "end", did you mean "End"?',
        ),
        (
            "- {id: A, type: sum, to: [Sink]}" + END,
            '1:27: unknown target "Sink", did you mean "sink"?',
        ),
        ("- {id: A, type: sum, to: [Zulu]}" + END, '1:27: unknown target "Zulu"'),
        ("- {id: A, type: sum, to: [A, End]}" + END, '1:27: "A" sends to itself'),
        (
            "- {id: A, type: sum, to: [source, End]}" + END,
            '1:27: "source" cannot be a target: the pipeline only reads it',
        ),
        # on_error and config.
        (
            "- {id: A, type: sum, to: [End], on_error: dead-letter}" + END,
            '1:43: on_error must be "fail", "skip" or "dead_letter", '
            "or {skip: all}, or {dead_letter: all}, "
            'got the text "dead-letter", did you mean "dead_letter"?',
        ),
        (
            "- {id: A, type: sum, to: [End], on_error: {dead_leter: all}}" + END,
            '1:43: on_error must be "fail", "skip" or "dead_letter", '
            "or {skip: all}, or {dead_letter: all}, got a map",
        ),
        (
            "- {id: A, type: sum, to: [End], on_error: skip, max_dead_letters_per_minute: 9}" + END,
            "1:78: max_dead_letters_per_minute has no effect without on_error: dead_letter",
        ),
        (
            "- {id: A, type: sum, to: [End], config: {konstant: 1}}" + END,
            '1:42: unknown key "konstant", did you mean "constant"?',
        ),
        (
            "- {id: A, type: sum, to: [End], config: {constant: one}}" + END,
            '1:52: constant must be a whole number, got the text "one"',
        ),
        (
            "- {id: A, type: sum, to: [End], config: {constant: true}}" + END,
            "1:52: constant must be a whole number, got the truth value true",
        ),
        (
            "- {id: A, type: sum, to: [End], config: {constant: 9223372036854775808}}" + END,
            "1:52: constant must be -9223372036854775808 to 9223372036854775807, "
            "got 9223372036854775808",
        ),
        (
            "- {id: A, type: sum, to: [End], config: [1]}" + END,
            "1:41: config must be a map, got a list",
        ),
        (
            "- {id: A, type: forward, to: [End], config: {x: 1}}" + END,
            "1:45: forward takes no config",
        ),
        (
            "- {id: A, type: count, to: [End], config: {x: 1}}" + END,
            "1:43: count takes no config",
        ),
    ],
)
def test_a_mistake_in_an_entry_is_reported_once_with_its_place(text: str, problem: str) -> None:
    assert problems_in(text) == [problem]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            "- {id: A, type: sum, to: [B]}\n- {id: B, type: sum, to: [A, sink]}",
            ["2:27: the processors form a cycle: A -> B -> A"],
        ),
        (
            "- {id: A, type: sum, to: [B]}\n- {id: B, type: sum, to: [A]}",
            [
                '1:1: no processor sends to the sink: put "sink" into a `to`',
                "2:27: the processors form a cycle: A -> B -> A",
            ],
        ),
        (
            "- {id: A, type: sum, to: [B]}\n- {id: B, type: sum, to: [C, D]}\n"
            "- {id: C, type: sum, to: [D]}\n- {id: D, type: sum, to: [B, sink]}",
            [
                "4:27: the processors form a cycle: B -> D -> B",
                "2:27: the processors form a cycle: C -> D -> B -> C",
            ],
        ),
        (
            "- {id: A, type: sum, to: [B]}\n- {id: B, type: sum, to: [A, C]}\n"
            "- {id: C, type: sum, to: [sink]}",
            [
                "2:27: the processors form a cycle: A -> B -> A",
                '3:8: "C" cannot be reached from the source',
            ],
        ),
    ],
)
def test_graphs_that_do_not_lead_from_source_to_sink_are_refused(
    text: str, problems: list[str]
) -> None:
    assert sorted(problems_in(text)) == sorted(problems)


def test_all_mistakes_of_a_file_are_reported_at_once_from_top_to_bottom() -> None:
    text = """\
- id: A
  type: sumo
  to: [B, Nowhere]
- id: B
  typ: count
  to: sink
"""
    assert problems_in(text) == [
        f'2:9: type must be {TYPES}, got the text "sumo", did you mean "sum"?',
        '3:11: unknown target "Nowhere"',
        f'4:3: missing key "type" ({TYPES})',
        '5:3: unknown key "typ", did you mean "type"?',
        '6:7: to must be a list, got the text "sink": write ["sink"]',
    ]


def test_the_message_is_one_line_per_problem_with_file_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("- {id: A, type: x, to: [A, sink]}")
    with pytest.raises(ConfigError) as caught:
        load_pipeline(path, CONFIG)
    assert str(caught.value).splitlines() == [
        f'{path}:1:17: type must be {TYPES}, got the text "x"',
        f'{path}:1:25: "A" sends to itself',
    ]


# --- topics ---


def chain(*ids: str, type_: str = "forward", on_error: str = "fail") -> str:
    """Return processors one after the other, the last one to the sink, one per line."""
    return "\n".join(
        f"- {{id: {id_}, to: [{to}], type: {type_}, on_error: {on_error}}}"
        for id_, to in zip(ids, [*ids[1:], "sink"], strict=True)
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            chain("a_b", "c") + "\n" + chain("a", "b_c"),
            '3:16: the arc a -> b_c needs the topic "a_b_c", '
            "which is that of the arc a_b -> c (line 1): rename one",
        ),
        (
            chain("a.b", "c") + "\n" + chain("a", "b_c"),
            '3:16: the arc a -> b_c needs the topic "a_b_c", and the arc a.b -> c (line 1) '
            '"a.b_c": they differ only in "." and "_", which Kafka refuses',
        ),
        (
            chain("state", "topic_x") + "\n" + chain("x", type_="count"),
            '3:8: the state of "x" needs the topic "state_topic_x", '
            "which is that of the arc state -> topic_x (line 1): rename one",
        ),
        (
            chain("a", "b_dead_letter") + "\n" + chain("a_b", on_error="dead_letter"),
            '3:8: on_error of "a_b" needs the topic "a_b_dead_letter", '
            "which is that of the arc a -> b_dead_letter (line 1): rename one",
        ),
        (
            chain("heartbeat", "topic"),
            '1:24: the arc heartbeat -> topic needs the topic "heartbeat_topic", '
            'which is the control topic "heartbeat_topic": rename it',
        ),
        (
            chain("processors", "topic.7"),
            '1:25: the arc processors -> topic.7 needs the topic "processors_topic.7", '
            'which is one of the control topics "processors_topic_<id>": rename it',
        ),
        (
            chain("in", "put"),
            '1:17: the arc in -> put needs the topic "in_put", '
            "which is that of the source_topic: rename one",
        ),
        (
            chain("out", "put"),
            '1:18: the arc out -> put needs the topic "out_put", and the sink_topic "out.put": '
            'they differ only in "." and "_", which Kafka refuses',
        ),
        (
            chain("a" * 125, "b" * 125),
            f"1:140: the arc {'a' * 125} -> {'b' * 125} needs a topic name of 251 characters, "
            "Kafka takes at most 249: shorten the ids",
        ),
        (
            chain("a" * 240, type_="count"),
            f'1:8: the state of "{"a" * 240}" needs a topic name of 252 characters, '
            "Kafka takes at most 249: shorten the ids",
        ),
    ],
)
def test_topics_that_kafka_cannot_hold_side_by_side_are_refused(text: str, problem: str) -> None:
    config = replace(CONFIG, source_topic="in_put", sink_topic="out.put")
    assert problems_in(text, config) == [problem]


def test_the_job_name_counts_for_the_length_and_the_collisions_of_topics() -> None:
    text = chain("a" * 120, "b" * 120)
    load(text)
    (problem,) = problems_in(text, replace(CONFIG, job_name="c" * 10))
    assert "needs a topic name of 252 characters" in problem
    load(chain("in", "put"), replace(CONFIG, source_topic="in_put", job_name="x"))


WORDS = ("a", "b", "c", "a_b", "b_c", "a.b", "b.c", "state", "topic_a", "state.topic", "topic")
MORE = ("dead_letter", "b_dead_letter", "heartbeat", "processors", "topic_a.b", "threads_jm", "in")


@st.composite
def pipelines(draw: st.DrawFn) -> list[dict[str, object]]:
    """Return entries without a mistake, but perhaps with topics that collide."""
    ids = draw(st.lists(st.sampled_from(WORDS + MORE), min_size=1, max_size=6, unique=True))
    entries: list[dict[str, object]] = []
    for index, id_ in enumerate(ids):
        later = [*ids[index + 1 :], SINK]
        to = draw(st.lists(st.sampled_from(later), min_size=1, max_size=3, unique=True))
        entry = {
            "id": id_,
            "type": draw(st.sampled_from(["forward", "count"])),
            "on_error": draw(st.sampled_from(["fail", "dead_letter"])),
            "to": to,
        }
        entries.append(entry)
    return draw(st.permutations(entries))


def all_topics(entries: list[dict[str, object]], config: Config) -> list[str]:
    """Return all topic names, straight from their definition."""
    end = f"_{config.job_name}" if config.job_name else ""
    topics = [config.source_topic, config.sink_topic]
    for entry in entries:
        assert isinstance(entry["to"], list)
        topics += [f"{entry['id']}_{to}{end}" for to in entry["to"] if to != SINK]
        topics += [f"state_topic_{entry['id']}{end}"] if entry["type"] == "count" else []
        topics += [f"{entry['id']}_dead_letter{end}"] if entry["on_error"] == "dead_letter" else []
    control = ["threads_jm_topic", "threads_tm_topic", "heartbeat_topic", "heartbeat_events_topic"]
    return [*topics, *(f"{name}{end}" for name in control)]


@given(
    pipelines(), st.sampled_from([None, "j", "a_b"]), st.sampled_from(["in", "a.b_c", "in_a", "s"])
)
def test_a_pipeline_loads_exactly_if_no_two_topics_are_the_same_to_kafka(
    entries: list[dict[str, object]], job_name: str | None, source: str
) -> None:
    config = replace(CONFIG, job_name=job_name, source_topic=source)
    topics = all_topics(entries, config)
    commands = config.topic_names.processors("").replace(".", "_")
    assume(not any(topic.replace(".", "_").startswith(commands[:17]) for topic in topics))

    collide = any(a.replace(".", "_") == b.replace(".", "_") for a, b in combinations(topics, 2))

    if collide:
        assert all(
            "needs the topic" in problem for problem in problems_in(yaml.dump(entries), config)
        )
    else:
        load(yaml.dump(entries), config)


@given(pipelines())
def test_the_order_of_nodes_is_the_first_in_the_file_that_can_come_next(
    entries: list[dict[str, object]],
) -> None:
    config = replace(CONFIG, job_name="j")
    try:
        loaded = load(yaml.dump(entries), config)
    except ConfigError:
        assume(False)
    in_file = [str(entry["id"]) for entry in entries]
    waiting = list(in_file)
    for node in loaded.processors:
        ready = [i for i in waiting if not set(loaded.processor(i).from_) & set(waiting)]
        assert node.id == ready[0]
        waiting.remove(node.id)
    assert waiting == []


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
words = st.sampled_from(["A", "B", "sink", "source", "sum", "count", "forward", "skip"])
keys = st.sampled_from(["id", "type", "to", "on_error", "config", "constant", "x"])
values = st.recursive(
    scalars | words | st.lists(words, max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=8,
)
almost = st.lists(st.dictionaries(keys, values, max_size=5) | values, max_size=4)


@given(almost.map(yaml.safe_dump) | values.map(yaml.safe_dump) | st.text())
def test_nonsense_is_a_config_error_and_never_a_crash(text: str) -> None:
    try:
        loaded = load(text)
    except ConfigError:
        assert problems_in(text)
    else:
        assert all(node.to and node.from_ for node in loaded.processors)


@pytest.mark.parametrize(
    "text", ["server_ip: here\nsource_topic: in", "- server_ip: here\n- tables: {}"]
)
def test_a_config_yaml_is_named_as_one(text: str) -> None:
    assert problems_in(text) == [
        "1:1: this is a config.yaml, and pipeline.yaml is expected here: are the two files swapped?"
    ]


def test_a_processor_with_a_key_of_config_yaml_does_not_make_the_file_one() -> None:
    (problem,) = problems_in("- {id: A, type: sum, to: [sink], parallelism: 2}")
    assert problem.startswith('1:34: unknown key "parallelism"')


def test_a_line_of_hundreds_of_processors_is_read() -> None:
    count = 350
    names = [f"P{number}" for number in range(count)]
    lines = [
        f"- {{id: {id_}, type: {'count' if to == 'sink' else 'forward'}, to: [{to}]}}"
        for id_, to in zip(names, [*names[1:], "sink"], strict=True)
    ]
    assert [each.id for each in load("\n".join(lines)).processors] == names
