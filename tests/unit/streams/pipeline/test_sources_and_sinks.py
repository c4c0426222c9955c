"""pipeline.yaml as a map: sources and sinks with names, and the errors for mistakes in them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_pipeline.common.pipelines.processors import SINK, SOURCE
from kafka_pipeline.common.pipelines.specs import FieldTime, SourceSpec
from tests.unit.streams.pipeline.loading import CONFIG, load, problems_in

SHOP = """\
sources: {deposits: deposits_topic, withdrawals: withdrawals_topic}
sinks: {balances: balances_topic, audit: audit_topic}
processors:
- {id: Balance, type: "shop:Balance", from: [withdrawals, deposits], to: [Audit, balances]}
- {id: Audit, type: forward, to: [audit, sink]}
"""
ANY_SERDE = (
    '"boolean", "bytes", "debezium", "debezium_changes", "debezium_key", "float32", '
    '"float64", "int32", "int64", "integer", "json", "json_decimals", "string", "uuid"'
    ', "avro" or "json_schema", or a map such as {avro: {subject: …}}'
)
CHARACTERS = 'which Kafka refuses in topic names: use letters, digits, ".", "_" and "-"'
KEYS = (
    "the keys are topic, key, value, schema, timestamp, auto_offset_reset, feedback, changelog, "
    "format, history"
)


def with_source(source: str) -> str:
    """Return a pipeline with one source `a`, given on line 1 from column 14 on."""
    return f"sources: {{a: {source}}}\n" + reading("[a]")


def reading(from_: str) -> str:
    """Return processors `A`, which reads what is given, and `B`; `from` begins at column 44."""
    return (
        f'processors: [{{id: A, type: "shop:A", from: {from_}, to: [sink], '
        "serdes: {value: json}},\n"
        "{id: B, type: forward, to: [sink]}]\n"
    )


def sending(to: str) -> str:
    """Return processors `A`, which sends to what is given, and `B`; `to` begins at column 42."""
    return (
        f'processors: [{{id: A, type: "shop:A", to: {to}}},\n'
        "{id: B, type: forward, to: [sink]}]\n"
    )


# --- what is read ---


def test_a_map_with_processors_alone_is_the_same_as_a_list() -> None:
    entries = "\n- {id: A, type: sum, to: [B]}\n- {id: B, type: count, to: [sink]}"
    assert load(f"processors:{entries}") == load(entries)


def test_names_of_sources_and_sinks_stand_for_their_topics() -> None:
    loaded = load(SHOP)
    balance, audit = loaded.processors
    assert (balance.from_, balance.to) == (("withdrawals", "deposits"), ("Audit", "balances"))
    assert loaded.in_topics(balance) == ("withdrawals_topic", "deposits_topic")
    assert loaded.out_topics(balance) == ("Balance_Audit", "balances_topic")
    assert (audit.from_, audit.to) == (("Balance",), ("audit", SINK))
    assert loaded.in_topics(audit) == ("Balance_Audit",)
    assert loaded.out_topics(audit) == ("audit_topic", "out")


def test_topics_of_sources_and_sinks_are_the_users_and_do_not_carry_the_job_name() -> None:
    config = replace(CONFIG, job_name="job")
    loaded = load(SHOP, config)
    users = ["withdrawals_topic", "deposits_topic", "balances_topic", "audit_topic", "out"]
    assert loaded.user_topics == tuple(users)
    specs = {spec.name: spec for spec in loaded.data_topics(config.replication_factor)}
    assert sorted(specs) == sorted([*users, "Balance_Audit_job"])
    # The broker's defaults, since only the user knows how long to keep them.
    assert [dict(specs[name].config) for name in users] == [{}] * 5


def test_processors_that_send_come_besides_the_sources_in_from() -> None:
    loaded = load(
        """
sources: {a: a_topic}
processors:
- {id: Sum, type: sum, from: [a], to: [Join]}
- {id: Join, type: "shop:Join", from: [source, a], to: [sink]}
- {id: Last, type: forward, to: [Join]}
"""
    )
    assert loaded.processor("Join").from_ == (SOURCE, "a", "Sum", "Last")
    assert loaded.processor("Last").from_ == (SOURCE,)
    assert loaded.in_topics(loaded.processor("Join")) == (
        "in",
        "a_topic",
        "Sum_Join",
        "Last_Join",
    )


def test_two_processors_may_read_one_source_and_write_one_sink() -> None:
    loaded = load(
        """
sources: {a: a_topic, also_a: a_topic}
sinks: {b: b_topic}
processors:
- {id: One, type: sum, from: [a], to: [b]}
- {id: Two, type: sum, from: [a], to: [b, sink]}
- {id: Three, type: sum, from: [also_a], to: [b]}
"""
    )
    assert [loaded.in_topics(node) for node in loaded.processors] == [("a_topic",)] * 3
    assert loaded.user_topics == ("a_topic", "b_topic", "out")


def test_one_processor_may_read_what_another_one_writes_to_a_sink() -> None:
    loaded = load(
        """
sources: {again: middle}
sinks: {between: middle}
processors:
- {id: First, type: sum, to: [between]}
- {id: Second, type: sum, from: [again], to: [sink]}
"""
    )
    assert loaded.user_topics == ("in", "middle", "out")


def test_a_pipeline_that_sends_to_sinks_of_its_own_needs_no_sink_of_config_yaml() -> None:
    (node,) = load("{sinks: {b: t}, processors: [{id: A, type: sum, to: [b]}]}").processors
    assert (node.from_, node.to, node.topics) == ((SOURCE,), ("b",), {"b": "t"})


def test_a_source_as_a_name_has_no_options_and_one_as_a_map_has_defaults() -> None:
    loaded = load(
        """
sources: {plain: t1, map: {topic: t2}, unused: {topic: t3, key: string}}
processors: [{id: A, type: "shop:A", from: [plain, map], to: [sink]}]
"""
    )
    node = loaded.processor("A")
    assert node.topics == {"plain": "t1", "map": "t2"}
    assert node.sources == {"map": SourceSpec()}


def test_all_options_of_a_source_are_read() -> None:
    loaded = load(
        """
sources:
  orders:
    topic: orders_topic
    key: string
    value: json
    auto_offset_reset: latest
    timestamp: {field: at, unit: iso8601, on_invalid: partition_time}
  short: {topic: t, timestamp: {field: time}}
processors:
- {id: A, type: "shop:A", from: [orders], to: [sink]}
- {id: B, type: "shop:B", from: [short], to: [sink], serdes: {value: json}}
"""
    )
    assert loaded.processor("A").sources == {
        "orders": SourceSpec(
            auto_offset_reset="latest",
            key="string",
            value="json",
            timestamp=FieldTime(field="at", unit="iso8601", on_invalid="partition_time"),
        )
    }
    assert loaded.processor("B").sources == {"short": SourceSpec(timestamp=FieldTime(field="time"))}


def test_a_built_in_type_may_begin_at_the_end_of_a_source() -> None:
    loaded = load(
        """
sources: {a: {topic: t, auto_offset_reset: latest}}
processors: [{id: A, type: count, from: [a], to: [sink]}]
"""
    )
    assert loaded.processor("A").sources == {"a": SourceSpec(auto_offset_reset="latest")}


# --- mistakes, each alone ---


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sources: {a: t}", '1:1: missing key "processors" (a list of processors (`- id: …`))'),
        ("processors: []", "1:13: the pipeline is empty: it needs at least one processor"),
        (
            "processors: {id: A}",
            "1:13: must be a list of processors (`- id: …`), got a map",
        ),
        (
            "sourcs: {a: t}\n" + sending("[sink]"),
            '1:1: unknown key "sourcs", did you mean "sources"?',
        ),
        ("sources: [a]\n" + sending("[sink]"), "1:10: sources must be a map, got a list"),
        ("sinks: b\n" + sending("[sink]"), '1:8: sinks must be a map, got the text "b"'),
        (
            "sources: {a: t, a: u}\n" + reading("[a]"),
            '1:17: key "a" is given twice (first at line 1)',
        ),
        (
            "sources: {a: t}\nsinks: {b: u, a: u}\n" + reading("[a]"),
            '2:15: sinks: "a" is the name of a source, too: choose another name',
        ),
        (
            "sources: {a: t, A: u}\n" + reading("[a]"),
            '1:17: sources: "A" is the id of a processor, too: choose another name',
        ),
        (
            "sinks: {a: t, B: u}\n" + sending("[a]"),
            '1:15: sinks: "B" is the id of a processor, too: choose another name',
        ),
        (
            "sources: {source: t}\n" + sending("[sink]"),
            '1:11: "source" is the source_topic of config.yaml',
        ),
        (
            "sinks: {sink: t}\n" + sending("[sink]"),
            '1:9: "sink" is the sink_topic of config.yaml',
        ),
        (
            "sinks: {b c: t}\n" + sending("[sink]"),
            f'1:9: the name of sink "b c" has the character " ", {CHARACTERS}',
        ),
        (
            "sinks: {b: {topic: t}}\n" + sending("[b]"),
            "1:12: b must be the name of a topic, got a map",
        ),
        (
            "sinks: {b: 1}\n" + sending("[b]"),
            "1:12: b must be the name of a topic, got the number 1",
        ),
    ],
)
def test_a_mistake_in_the_map_is_reported_once_with_its_place(text: str, problem: str) -> None:
    assert problems_in(text) == [problem]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("", "1:13: a must be the name of a topic, got nothing"),
        ("7", "1:14: a must be the name of a topic, got the number 7"),
        ("[t]", "1:14: a must be the name of a topic, got a list"),
        ("t t", f'1:14: the topic "t t" of "a" has the character " ", {CHARACTERS}'),
        ("''", '1:14: the topic "" of "a" is empty'),
        ("{key: string}", '1:14: missing key "topic" (the topic that is read)'),
        ("{}", '1:14: missing key "topic" (the topic that is read)'),
        ("{topic: 7}", "1:22: a must be the name of a topic, got the number 7"),
        ("{topic: t t}", f'1:22: the topic "t t" of "a" has the character " ", {CHARACTERS}'),
        ("{topic: t, keys: json}", '1:25: unknown key "keys", did you mean "key"?'),
        ("{topic: t, zzz: 1}", f'1:25: unknown key "zzz": {KEYS}'),
        (
            "{topic: t, key: jsn}",
            f'1:30: key must be {ANY_SERDE}, got the text "jsn", did you mean "json"?',
        ),
        ("{topic: t, value: 1}", f"1:32: value must be {ANY_SERDE}, got the number 1"),
        (
            "{topic: t, auto_offset_reset: last}",
            '1:44: auto_offset_reset must be "earliest" or "latest", got the text "last", '
            'did you mean "latest"?',
        ),
        (
            "{topic: t, timestamp: at}",
            '1:36: timestamp must be wall_clock or a map, got the text "at"',
        ),
        ("{topic: t, timestamp: {}}", '1:14: missing key "field" (the key in the value)'),
        ("{topic: t, timestamp: {unit: s}}", '1:14: missing key "field" (the key in the value)'),
        (
            "{topic: t, timestamp: {field: at, units: s}}",
            '1:48: unknown key "units", did you mean "unit"?',
        ),
        (
            "{topic: t, timestamp: {field: at, unit: h}}",
            '1:54: unit must be "ms", "s", "us" or "iso8601", got the text "h"',
        ),
        (
            "{topic: t, timestamp: {field: at, on_invalid: drop}}",
            '1:60: on_invalid must be "fail", "skip" or "partition_time", got the text "drop"',
        ),
    ],
)
def test_a_mistake_in_a_source_is_reported_once_with_its_place(source: str, problem: str) -> None:
    assert problems_in(with_source(source)) == [problem]


IN_A_FIELD = "the time is in a field, which only values with the serde json have"


@pytest.mark.parametrize(
    ("source", "serdes", "problem"),
    [
        ("value: string, timestamp: {field: at}", "json", f"1:51: {IN_A_FIELD}"),
        ("timestamp: {field: at}", "bytes", f'2:45: source "a": {IN_A_FIELD}, not bytes'),
        ("timestamp: {field: at}", "string", f'2:45: source "a": {IN_A_FIELD}, not string'),
        (
            "value: jsn, timestamp: {field: at}",
            "json",
            f'1:32: value must be {ANY_SERDE}, got the text "jsn", did you mean "json"?',
        ),
    ],
)
def test_a_time_in_a_field_needs_values_that_have_fields(
    source: str, serdes: str, problem: str
) -> None:
    text = (
        f"sources: {{a: {{topic: t, {source}}}}}\n"
        "processors: [{id: A, type: 'shop:A', from: [a], to: [sink], "
        f"serdes: {{value: {serdes}}}}}]"
    )
    assert problems_in(text) == [problem]


def test_a_source_with_times_in_a_field_is_read_by_whoever_reads_json() -> None:
    text = """
sources: {a: {topic: t, timestamp: {field: at}}, b: {topic: u, value: json, timestamp: {field: at}}}
processors:
- {id: A, type: "shop:A", from: [a, b], to: [sink], serdes: {value: json}}
- {id: B, type: "shop:B", from: [b], to: [sink]}
"""
    assert len(load(text).processors) == 2


@pytest.mark.parametrize(
    ("from_", "problem"),
    [
        ("a", '1:44: from must be a list, got the text "a": write ["a"]'),
        ("", "1:43: from must be a list, got nothing"),
        ("[]", '1:44: from is empty: name at least one source, or "source"'),
        ("[1]", "1:45: from must hold names of sources, got the number 1"),
        ("[a, a]", '1:48: source "a" is given twice'),
        ("[first]", '1:45: unknown source "first"'),
        ("[aa]", '1:45: unknown source "aa", did you mean "a"?'),
        ("[Source]", '1:45: unknown source "Source", did you mean "source"?'),
        ("[b]", '1:45: unknown source "b"'),
        ("[B]", '1:45: "B" is a processor: name "A" in its `to` instead'),
    ],
)
def test_a_mistake_in_from_is_reported_once_with_its_place(from_: str, problem: str) -> None:
    assert problems_in(reading(from_) + "sources: {a: t}\nsinks: {b: u}") == [problem]


@pytest.mark.parametrize(
    ("to", "problem"),
    [
        ("[balance]", '1:43: unknown target "balance", did you mean "balances"?'),
        ("[a]", '1:43: "a" cannot be a target: the pipeline only reads it'),
        ("[balances, balances]", '1:53: target "balances" is given twice'),
    ],
)
def test_a_mistake_in_to_is_reported_once_with_its_place(to: str, problem: str) -> None:
    assert problems_in(sending(to) + "sources: {a: t}\nsinks: {balances: u}") == [problem]


def test_a_source_or_sink_that_nothing_names_does_no_harm() -> None:
    assert len(load(sending("[sink]") + "sources: {a: t}\nsinks: {b: u}").processors) == 2


@pytest.mark.parametrize("key", ["key", "value", "timestamp"])
@pytest.mark.parametrize("type_", ["forward", "sum", "count"])
def test_a_built_in_type_cannot_follow_how_a_source_is_to_be_understood(
    type_: str, key: str
) -> None:
    value = "{field: at}" if key == "timestamp" else "string"
    text = (
        f"processors: [{{id: A, type: {type_}, from: [a], to: [sink]}}]\n"
        f"sources: {{a: {{topic: t, {key}: {value}}}}}"
    )
    assert problems_in(text) == [
        f'1:{37 + len(type_)}: {type_} takes records as they are: source "a" must not say {key}'
    ]


def test_all_mistakes_of_a_file_are_reported_at_once_from_top_to_bottom() -> None:
    text = """\
sources:
  a: {topic: t, key: strin}
  A: t
sinks: {b: [t]}
processors:
- {id: A, type: "shop:A", from: [c], to: [b, d]}
"""
    assert problems_in(text) == [
        f'2:22: key must be {ANY_SERDE}, got the text "strin", did you mean "string"?',
        '3:3: sources: "A" is the id of a processor, too: choose another name',
        "4:12: b must be the name of a topic, got a list",
        '6:34: unknown source "c"',
        '6:46: unknown target "d"',
    ]


# --- graphs ---


def test_a_processor_behind_a_cycle_that_reads_a_source_can_be_reached() -> None:
    text = """\
- {id: A, type: sum, to: [B]}
- {id: B, type: sum, to: [A, C]}
- {id: C, type: sum, from: [source], to: [sink]}
"""
    assert problems_in(text) == ["2:27: the processors form a cycle: A -> B -> A"]


# --- topics ---


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "sources: {a: heartbeat_topic}\n" + reading("[a]"),
            '1:11: source "a" needs the topic "heartbeat_topic", which is the control topic '
            '"heartbeat_topic": rename it',
        ),
        (
            "sinks: {a: __consumer_offsets}\n" + sending("[a]"),
            '1:9: sink "a" needs the topic "__consumer_offsets", which is Kafka\'s own topic '
            '"__consumer_offsets": rename it',
        ),
        (
            "sources: {a: x.y}\nsinks: {b: x_y}\n" + reading("[a]"),
            '2:9: sink "b" needs the topic "x_y", and source "a" (line 1) "x.y": '
            'they differ only in "." and "_", which Kafka refuses',
        ),
        (
            "sources: {a: i.n}\n" + reading("[a]"),
            '1:11: source "a" needs the topic "i.n", and the source_topic "i_n": '
            'they differ only in "." and "_", which Kafka refuses',
        ),
        (
            "sources: {a: A_B}\n" + reading("[a]").replace("[sink]", "[B]", 1),
            '2:54: the arc A -> B needs the topic "A_B", which is that of source "a" (line 1): '
            "rename one",
        ),
        (
            "sinks: {a: A_dead_letter}\n" + sending("[a], on_error: dead_letter"),
            '2:19: on_error of "A" needs the topic "A_dead_letter", which is that of sink "a" '
            "(line 1): rename one",
        ),
        (
            "sinks: {a: state_topic_A_S}\n" + sending("[a], stores: [{name: S}]"),
            '2:19: the state of store "S" of "A" needs the topic "state_topic_A_S", which is that '
            'of sink "a" (line 1): rename one',
        ),
    ],
)
def test_topics_of_the_user_that_collide_are_refused(text: str, problem: str) -> None:
    assert problems_in(text, replace(CONFIG, source_topic="i_n")) == [problem]


@pytest.mark.parametrize(
    ("from_", "problem"),
    [
        ("[a, b]", '2:48: "A" reads the topic "t" twice, as "a" and as "b": name one of them'),
        (
            "[source, c]",
            '2:53: "A" reads the topic "in" twice, as "source" and as "c": name one of them',
        ),
    ],
)
def test_a_processor_cannot_have_one_topic_as_two_inputs(from_: str, problem: str) -> None:
    assert problems_in("sources: {a: t, b: t, c: in}\n" + reading(from_)) == [problem]


def test_upserts_with_times_in_a_field_need_a_time_for_deletions() -> None:
    source = "{topic: t, changelog: true, timestamp: {field: at}}"
    (problem,) = problems_in(with_source(source))
    assert "a null value deletes a key, and has no field with a time" in problem
    good = source.replace("at}", "at, on_invalid: partition_time}")
    assert len(load(with_source(good)).processors) == 2
