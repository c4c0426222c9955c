"""The pipeline topic: what is written there is read back as it was, and nothing else is."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.pipelines.specs import SPECS
from kafka_pipeline.common.protocol.messages import ControlRecord, MalformedMessageError, replicas
from kafka_pipeline.deployment.desired_state import (
    Deployment,
    PipelineVersion,
    UnreadableDeploymentError,
    Wish,
    is_same,
    records,
)
from kafka_pipeline.streams.pipeline.load import load_pipeline
from kafka_pipeline.streams.pipeline.partitions import with_counts
from kafka_pipeline.streams.pipeline.patterns import with_matching_topics
from tests.unit.common.wire import json_values, mutate
from tests.unit.streams.pipeline.loading import CONFIG, load

TABLES_OF_JOB = replace(CONFIG.tables, write_paths=("/lake",), write_urls=("postgresql://h/",))
JOB = replace(CONFIG, job_name="job", tables=TABLES_OF_JOB)
NAMES = JOB.topic_names
FORMAT_1 = (("format", b"1"),)
TOPOLOGY = "- {id: W, type: topology, builder: 'tests.user_code.%s', config: {%s}}"
SQL = '- {id: P, type: sql, query: "%s", to: [sink]%s}'
LATE = "sinks: {late: late_topic}\nprocessors:\n"
TABLES = ", tables: {c: {topic: names, schema: city STRING, history: 2 h}, d: {topic: more}}"
WITHIN = (
    "p.timestamp BETWEEN o.timestamp - INTERVAL 5 MINUTES AND o.timestamp + INTERVAL 10 MINUTES"
)

PIPELINES: Mapping[str, str] = {
    "built_in": """
- {id: F, type: forward, to: [S, C]}
- {id: S, type: sum, config: {constant: -3}, to: [C]}
- {id: C, type: count, to: [sink], on_error: skip}
""",
    "class": """
sources:
  deposits: deposits_topic
  withdrawals: {topic: w_topic, value: json, timestamp: {field: at, unit: s, on_invalid: skip}}
  clock: {topic: clock_topic, key: string, timestamp: wall_clock, auto_offset_reset: latest}
sinks: {balances: balances_topic}
processors:
- id: Balance
  type: shop.bank:Balance
  from: [deposits, withdrawals, clock]
  to: [balances, Next]
  serdes: {key: string, value: integer, out_value: string}
  stores:
  - {name: Balances, key: string, value: int64}
  - {name: Cache, logged: false, persistent: false}
  - {name: Fast, persistent: false}
  - {name: Windows, type: window, retention_ms: 60000, window_size_ms: 1000}
  config: {start: 100, limits: {low: -1.5, high: null}, tags: [a, 2, true], "é": "ü\\n"}
  on_error: {dead_letter: all}
  max_dead_letters_per_minute: 100
  max_task_idle_ms: 500
- {id: Next, type: forward, to: [sink]}
""",
    "async_class": '- {id: A, type: "shop:A", to: [sink], max_in_flight: 9, ordered: key}',
    "topology": TOPOLOGY % ("topologies:chain", "lines: a, words: c, partitions: 3"),
    "dsl": TOPOLOGY % ("topologies:counted_words", "lines: a, words: c"),
    "dsl_with_meetings": TOPOLOGY % ("topologies:enriched", "stream: a, table: b, rows: d, out: c"),
    "dsl_that_reads_what_it_writes": TOPOLOGY
    % ("joins:with_own_repartition", "left: a, joined: c"),
    "dsl_that_chooses_topics": TOPOLOGY % ("topologies:by_size", "orders: a"),
    "global_store": TOPOLOGY % ("lookups:lookup", "orders: a, names: b, named: c"),
    "pattern": TOPOLOGY % ("lookups:gather", 'pattern: "lines_.*", gathered: c'),
    "sql": """
- id: P
  type: sql
  query: SELECT * FROM input JOIN airports USING (code)
  format: json
  schema: code STRING, n INT
  tables: {airports: {format: csv, path: a.csv, options: {sep: ";"}, refresh_interval: 10 min}}
  to: [sink]
""",
    "sql_with_tables": "sources: {names: names_topic, more: more_topic}\nprocessors:\n"
    + SQL % ("SELECT i.key, city AS value FROM input i LEFT JOIN c ON i.key = c.key", TABLES),
    "sql_group_by": LATE
    + SQL
    % (
        "SELECT value AS key, count(*) AS value FROM input "
        "GROUP BY value, window(timestamp, '1 hour')",
        ", grace: 1 min, late_to: late",
    ),
    "sql_sessions": SQL
    % (
        "SELECT key, count(*) AS value FROM input "
        "GROUP BY key, session_window(timestamp, '1 hour')",
        ", emit: on_close, grace: 1 min",
    ),
    "sql_join": f"""
sources: {{orders: orders, payments: payments}}
sinks: {{late: late_topic}}
processors:
- id: P
  type: sql
  from: [orders, payments]
  format: json
  schema: n INT
  query: SELECT o.key, p.n FROM orders o LEFT JOIN payments p ON o.key = p.key AND {WITHIN}
  grace: 1 min
  late_to: late
  to: [sink]
""",
    "dataframe": '- {id: P, type: dataframe, function: "shop:f", config: {n: 1}, to: [sink]}',
    "grouped_dataframe": '- {id: P, type: dataframe, function: "shop:f", to: [sink],'
    " group_by: {window: 1 h}, schema: n INT, format: json}",
    "table": "- {id: T, type: table, format: delta, path: /lake/t, schema: 'n INT, day DATE',"
    " partition_by: [day], record_columns: {key: k, offset: at}, commit_interval_ms: 500}",
    "table_in_database": "- {id: T, type: table, format: postgres, url: postgresql://h/shop,"
    " user: ann, table: t, mode: upsert, key: n, schema: n INT NOT NULL}",
}


@pytest.fixture(params=PIPELINES)
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Pipeline:
    """A pipeline.yaml, as the JobManager completes it with what Kafka has."""
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINES[request.param], encoding="utf-8")
    loaded = with_matching_topics(load_pipeline(path, JOB), ["lines_1", "lines_2", "other"])
    return with_counts(loaded, dict.fromkeys(loaded.user_topics, 3))


def version(number: int = 1, pipeline: Pipeline | None = None, text: str = "") -> PipelineVersion:
    made = pipeline or load("[{id: A, type: forward, to: [sink]}]", JOB)
    return PipelineVersion(number, made, text, 1_700_000_000_123, "ada@host")


def deployment(written: Iterable[ControlRecord]) -> Deployment:
    """Return what somebody who reads these records from Kafka knows."""
    found = Deployment(NAMES)
    for offset, record in enumerate(written):
        found.take(replace(record, offset=offset))
    return found


def written(wish: Wish, *versions: PipelineVersion) -> list[ControlRecord]:
    return [record for each in versions for record in records(NAMES, wish, each)]


# What is written is read back.


def test_each_kind_of_processor_is_read_back_as_it_was(pipeline: Pipeline) -> None:
    made = version(7, pipeline, text="# Größe: \U0001f600\n")
    found = deployment(records(NAMES, Wish(version=7), made)).version(7)
    assert found == made
    assert is_same(found.pipeline, pipeline)
    assert found.pipeline.tasks == pipeline.tasks
    assert found.pipeline.data_topics(1) == pipeline.data_topics(1)
    assert [each.fingerprint for each in replicas(found.pipeline, 1)] == [
        each.fingerprint for each in replicas(pipeline, 1)
    ]


def test_these_pipelines_have_all_types_and_set_all_fields() -> None:
    """Otherwise, a field that is not read back could be missed."""
    processors = [
        processor
        for text in PIPELINES.values()
        for processor in with_matching_topics(load(text, JOB), ["lines_1"]).processors
    ]
    assert {processor.spec.type for processor in processors} == set(SPECS)
    for field in fields(PipelineProcessor):
        values = [getattr(processor, field.name) for processor in processors]
        factory = field.default_factory
        default = field.default if factory is MISSING else factory()
        assert any(value != default for value in values), field.name


def test_the_job_name_is_that_of_the_reader() -> None:
    made = version(pipeline=load("[{id: A, type: count, to: [B]}, {id: B, type: sum, to: [sink]}]"))
    found = deployment(records(NAMES, Wish(version=1), made)).version(1).pipeline
    assert found.names == NAMES
    assert list(found.arcs) == ["A_B_job"]


def test_source_and_sink_are_those_of_the_version() -> None:
    """The config.yaml of the reader may already have others."""
    elsewhere = replace(JOB, source_topic="former_in", sink_topic="former_out", parallelism=5)
    made = version(pipeline=load("[{id: A, type: forward, to: [sink]}]", elsewhere))
    found = deployment(records(NAMES, Wish(version=1), made)).version(1).pipeline
    (processor,) = found.processors
    assert (found.in_topics(processor), found.out_topics(processor)) == (
        ("former_in",),
        ("former_out",),
    )
    assert found.parallelism == 5


def test_records_go_to_the_topic_of_the_job_with_their_format() -> None:
    made = records(NAMES, Wish(version=3), version(3))
    assert [(r.topic, r.key, r.headers) for r in made] == [
        ("pipeline_topic_job", b"version-3", FORMAT_1),
        ("pipeline_topic_job", b"wish", FORMAT_1),
    ]
    assert [r.key for r in records(NAMES, Wish(version=3))] == [b"wish"]


def test_file_is_kept_as_text_that_people_can_read() -> None:
    text = "- {id: A, type: forward, to: [sink]}  # Größe\n"
    (record, _) = records(NAMES, Wish(version=1), version(text=text))
    assert json.loads(record.value)["text"] == text


# Which pipelines do the same.


ADDS = "- {id: B, type: sum, config: {constant: 2}, to: [sink]}"
FORWARDS = f"- {{id: A, type: forward, to: [B]}}\n{ADDS}"


@pytest.mark.parametrize(
    "other",
    [
        f"{ADDS}\n- {{id: A, type: forward, to: [B]}}",
        "# What it is for.\nprocessors:\n- {to: [B], type: forward, id: A}\n"
        "- {id: B, type: sum, config: {constant: 2}, to: [sink], on_error: fail}",
    ],
    ids=["in another order", "in other words"],
)
def test_pipelines_that_are_only_written_differently_are_the_same(other: str) -> None:
    assert is_same(load(FORWARDS, JOB), load(other, JOB))


@pytest.mark.parametrize(
    "other",
    [
        FORWARDS.replace("constant: 2", "constant: 3"),
        FORWARDS.replace("id: A", "id: Z"),
        FORWARDS.replace("[sink]", "[sink], on_error: skip"),
        FORWARDS.replace("type: forward", "type: count"),
        FORWARDS + "\n- {id: C, type: forward, to: [sink]}",
        "sources: {a: a_topic}\nprocessors:\n" + FORWARDS.replace("to: [B]", "to: [B], from: [a]"),
    ],
)
def test_pipelines_that_do_something_else_are_not_the_same(other: str) -> None:
    assert not is_same(load(FORWARDS, JOB), load(other, JOB))


@pytest.mark.parametrize(
    "changed", [{"source_topic": "x"}, {"sink_topic": "x"}, {"parallelism": 3}]
)
def test_pipelines_on_other_topics_are_not_the_same(changed: dict[str, Any]) -> None:
    assert not is_same(load(FORWARDS, JOB), load(FORWARDS, replace(JOB, **changed)))


def test_an_input_that_has_grown_makes_another_pipeline() -> None:
    one = load(FORWARDS, JOB)
    assert not is_same(one, with_counts(one, {"in": 5}))


# Versions and wishes.


def test_nothing_is_wished_before_the_first_record() -> None:
    empty = Deployment(NAMES)
    assert (empty.wish, empty.current, empty.coming, empty.numbers) == (None, None, None, [])


def test_last_wish_wins() -> None:
    found = deployment(
        [
            *written(Wish(version=1), version(1), version(2)),
            *records(NAMES, Wish(version=1, next=2)),
            *records(NAMES, Wish(version=2)),
        ]
    )
    assert found.wish == Wish(version=2)
    assert found.current == version(2)
    assert found.coming is None


def test_change_in_progress_has_a_current_and_a_coming_version() -> None:
    found = deployment(written(Wish(version=1, next=2), version(1), version(2)))
    assert (found.current, found.coming) == (version(1), version(2))


def test_versions_are_found_by_number() -> None:
    numbers = [3, 1, 12, 2]
    found = deployment(written(Wish(version=12), *map(version, numbers)))
    assert found.numbers == [1, 2, 3, 12]
    assert [found.version(number).number for number in numbers] == numbers
    assert found.current == version(12)


def test_former_version_can_be_wished_again() -> None:
    found = deployment(
        [*written(Wish(version=2), version(1), version(2)), *records(NAMES, Wish(version=1))]
    )
    assert found.current == version(1)


def test_version_that_does_not_exist_is_reported() -> None:
    found = deployment(records(NAMES, Wish(version=2, next=9), version(2)))
    assert found.current == version(2)
    with pytest.raises(UnreadableDeploymentError, match="is missing"):
        found.version(1)
    with pytest.raises(UnreadableDeploymentError, match="is missing"):
        _ = found.coming


def test_wish_that_follows_what_was_read_is_seen() -> None:
    found = deployment(records(NAMES, Wish(version=1), version(1)))
    assert found.current == version(1)
    for record in records(NAMES, Wish(version=2), version(2)):
        found.take(record)
    assert found.current == version(2)


# What this engine cannot read.


def damaged(value: bytes, key: bytes = b"wish") -> ControlRecord:
    return ControlRecord(NAMES.pipeline, key, value, FORMAT_1, offset=41)


def read_all(record: ControlRecord) -> None:
    """Take a record, and read all that it may have brought."""
    found = Deployment(NAMES)
    found.take(record)
    for number in found.numbers:
        found.version(number)


def require_unreadable(record: ControlRecord) -> str:
    """Return the message of the error, which names the place."""
    with pytest.raises(UnreadableDeploymentError) as caught:
        read_all(record)
    message = str(caught.value)
    assert "topic pipeline_topic_job, offset 41" in message
    return message


@pytest.mark.parametrize("format_", [b"2", b"0", b"", b"one", b"01"])
@pytest.mark.parametrize("key", [b"wish", b"version-1", b"something new"])
def test_record_of_another_format_is_not_read(format_: bytes, key: bytes) -> None:
    record = replace(damaged(b'{"version": 1}', key), headers=(("format", format_),))
    with pytest.raises(UnreadableDeploymentError, match="another version of the engine") as caught:
        Deployment(NAMES).take(record)
    assert "topic pipeline_topic_job, offset 41" in str(caught.value)


@pytest.mark.parametrize("key", [b"wish", b"version-1", b"something new"])
def test_record_that_no_engine_wrote_does_not_count(key: bytes) -> None:
    found = deployment(records(NAMES, Wish(version=1), version(1)))
    with pytest.raises(MalformedMessageError, match="no engine wrote the record"):
        found.take(replace(damaged(b"", key), headers=()))
    assert (found.wish, found.numbers) == (Wish(version=1), [1])


NO_JSON = [b"", b"{", b"\xff\xfe", b'{"version": 1} x', b"9" * 5000, b'"\\ud800"', b"nul"]


@pytest.mark.parametrize("key", [b"wish", b"version-1"])
@pytest.mark.parametrize("value", [*NO_JSON, b"[]", b"null", b"{}", b"1"])
def test_broken_json_is_reported_with_its_place(key: bytes, value: bytes) -> None:
    assert key.decode() in require_unreadable(damaged(value, key))


@pytest.mark.parametrize("key", [b"wish", b"version-1"])
def test_json_that_is_nested_too_deeply_is_reported_too(key: bytes) -> None:
    require_unreadable(damaged(b"[" * 200_000, key))


@pytest.mark.parametrize(
    "wish",
    [
        {"version": 0},
        {"version": "1"},
        {"version": True},
        {"version": 1.0},
        {"version": None},
        {"version": 1, "next": 0},
        {"version": 1, "next": "2"},
        {"version": 1, "pause": True},
        {"next": 1},
    ],
    ids=str,
)
def test_wish_with_other_types_or_fields_is_reported(wish: object) -> None:
    require_unreadable(damaged(json.dumps(wish).encode()))


def version_as_json() -> Any:
    text = f"- {{id: A, type: count, to: [B]}}\n{ADDS}"
    (record, _) = records(NAMES, Wish(version=1), version(pipeline=load(text, JOB)))
    return json.loads(record.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("number", 0),
        ("number", "1"),
        ("made_at_ms", None),
        ("made_by", 5),
        ("source", "../in"),
        ("sink", ""),
        ("parallelism", 0),
        ("partitions", {"in": 0}),
        ("partitions", []),
        ("processors", {}),
        ("processors", [1]),
        ("text", None),
        ("text", "\ud800"),
    ],
)
def test_version_with_other_types_is_reported(field: str, value: object) -> None:
    body = {**version_as_json(), field: value}
    assert "version-1" in require_unreadable(damaged(json.dumps(body).encode(), b"version-1"))


@pytest.mark.parametrize("field", ["number", "made_at_ms", "made_by", "source", "text", "sink"])
def test_version_without_a_field_is_reported(field: str) -> None:
    body = version_as_json()
    del body[field]
    message = require_unreadable(damaged(json.dumps(body).encode(), b"version-1"))
    assert f"missing required field `{field}`" in message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "a/b"),
        ("id", None),
        ("type", "pickle"),
        ("type", ["sum"]),
        ("spec", None),
        ("spec", {"constant": "2"}),
        ("spec", {"eval": "1"}),
        ("to", "sink"),
        ("to", [1]),
        ("from_", None),
        ("on_error", "retry"),
        ("max_dead_letters_per_minute", 0),
        ("max_dead_letters_per_minute", "5"),
        ("topics", {"x": "../y"}),
        ("stores", [{"name": 1}]),
        ("sources", {"in": {"auto_offset_reset": "none"}}),
        ("meetings", [{"step": "s"}]),
        ("gives", {"Price": "rows"}),
    ],
)
def test_processor_with_other_types_is_reported(field: str, value: object) -> None:
    body = version_as_json()
    body["processors"][1][field] = value
    require_unreadable(damaged(json.dumps(body).encode(), b"version-1"))


def test_unreadable_version_does_not_stop_the_others_from_being_read() -> None:
    found = deployment(records(NAMES, Wish(version=1), version(1)))
    found.take(damaged(b"{", b"version-2"))
    assert found.current == version(1)
    assert found.numbers == [1, 2]
    with pytest.raises(UnreadableDeploymentError):
        found.version(2)


def require_read_or_reported(record: ControlRecord) -> None:
    with contextlib.suppress(UnreadableDeploymentError, MalformedMessageError):
        read_all(record)


KEYS = st.sampled_from([b"wish", b"version-1", b"version-0", b"version-01"]) | st.binary()


@given(KEYS, st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_raise_nothing_else(key: bytes, value: bytes) -> None:
    require_read_or_reported(damaged(value, key))


@given(st.data())
def test_damaged_versions_raise_nothing_else(data: st.DataObject) -> None:
    body = mutate(version_as_json(), data)
    require_read_or_reported(damaged(json.dumps(body).encode(), b"version-1"))


@given(st.lists(st.tuples(st.text(), st.binary())).map(tuple), st.binary(), st.binary())
def test_any_headers_raise_nothing_else(
    headers: tuple[tuple[str, bytes], ...], key: bytes, value: bytes
) -> None:
    require_read_or_reported(replace(damaged(value, key), headers=headers))
