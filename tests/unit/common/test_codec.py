"""Control messages as Kafka records: the original's bytes, and no record that can do harm."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, LoggedStore, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import (
    COUNT_STORE,
    ClassSpec,
    CountSpec,
    ForwardSpec,
    SumSpec,
)
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.messages import (
    MAX_RECORD_BYTES,
    ControlRecord,
    Heartbeat,
    HeartbeatEvent,
    JobManagerBeat,
    MalformedMessageError,
    Message,
    ProcessorReplica,
    Processors,
    Refused,
    Report,
    ReportRequest,
    Sos,
    Threads,
    replicas,
)
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.tick import Tick
from kafka_pipeline.common.typed_json import as_json
from kafka_pipeline.taskmanager import events as taskmanager
from kafka_pipeline.taskmanager.state import TaskManagerState
from tests.unit.common.wire import (
    NAMES,
    REPLICA,
    REPORT,
    SENT_AT_MS,
    decode,
    encode,
    is_malformed,
    json_values,
    messages,
    mutate,
    replica_values,
    texts,
    with_headers,
)

# The bytes of the original.
COUNTS = (LoggedStore("counts"),)


def test_processor_has_the_fields_of_the_original_in_its_order() -> None:
    assign, end = encode(Processors(0, "i", 5, 1, assign=(REPLICA,)))
    assert assign.value == (
        b'{"pipelineID":0,"ID":"Counter","type":"COUNT","from":["Adder"],"to":["sink"],'
        b'"inTopics":["Adder_Counter_job_1"],"outTopics":["sink_topic_job_1"],'
        b'"stateTopic":"state_topic_Counter_job_1"}'
    )
    assert end.value == b"eos"
    assert (assign.topic, assign.key) == ("processors_topic_0_job_1", b"0")
    assert (end.topic, end.key) == ("processors_topic_0_job_1", b"0")


def test_a_store_of_a_class_that_is_called_counts_has_no_field_of_the_original() -> None:
    """Its topic is another one than that of a `count`, which has the field."""
    states = {COUNT_STORE: "state_topic_Counter_counts_job_1"}
    replica = replace(REPLICA, spec=ClassSpec(code="shop:A"), state_topics=states)
    assert "stateTopic" not in replica.to_json()
    assert decode(encode(Processors(0, "i", 5, 1, assign=(replica,)))) == Processors(
        0, "i", 5, 1, assign=(replica,)
    )


def test_pipeline_of_the_original_gives_its_processors() -> None:
    pipeline = Pipeline(
        (
            PipelineProcessor("Forwarder", ForwardSpec(), ("Adder",), (SOURCE,)),
            PipelineProcessor("Adder", SumSpec(), ("Counter",), ("Forwarder",)),
            PipelineProcessor("Counter", CountSpec(), (SINK,), ("Adder",), stores=COUNTS),
        ),
        NAMES,
        2,
    )
    entries = replicas(pipeline)
    assert [str(entry.task) for entry in entries] == [
        "Forwarder_0",
        "Forwarder_1",
        "Adder_0",
        "Adder_1",
        "Counter_0",
        "Counter_1",
    ]
    assert entries[4] == REPLICA
    assert entries[0].in_topics == ("source_topic_job_1",)
    assert "stateTopic" not in entries[0].to_json()


@pytest.mark.parametrize(
    ("message", "topic", "key", "value"),
    [
        (Sos(0), "threads_jm_topic_job_1", b"", b"sos"),
        (Threads(REPORT), "threads_tm_topic_job_1", b"1", b"4"),
        (Heartbeat(REPORT), "heartbeat_topic_job_1", b"1", b"ping"),
        (JobManagerBeat(2, 0, {}), "heartbeat_topic_job_1", b"jobmanager", b"ping"),
        (HeartbeatEvent(1, False), "heartbeat_events_topic_job_1", b"1", b"down"),
        (HeartbeatEvent(1, True), "heartbeat_events_topic_job_1", b"1", b"up"),
        (Processors(1, "i", 2, 3), "processors_topic_1_job_1", b"1", b"eos"),
        (Refused(1, "i", 2, "no"), "processors_topic_1_job_1", b"1", b"no"),
        (ReportRequest(1, "i", 2), "processors_topic_1_job_1", b"1", b"report"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str | bytes) else "",
)
def test_topic_key_and_value(message: Message, topic: str, key: bytes, value: bytes) -> None:
    (record,) = encode(message)
    assert (record.topic, record.key, record.value) == (topic, key, value)


def test_every_record_tells_version_and_time() -> None:
    message = Processors(1, "i", 2, 3, assign=(REPLICA,), revoke=(TaskId("P", 1),))
    for record in encode(message):
        headers = dict(record.headers)
        assert (headers["version"], headers["sent_at"]) == (b"6", b"%d" % SENT_AT_MS)


def test_command_headers_tell_epoch_sequence_incarnation_and_action() -> None:
    message = Processors(1, "i", 2, 3, assign=(REPLICA,), revoke=(TaskId("P", 1),))
    told = [dict(record.headers) for record in encode(message)]
    assert [headers["action"] for headers in told] == [b"revoke", b"assign", b"eos"]
    for headers in told:
        assert (headers["epoch"], headers["sequence"]) == (b"2", b"3")
        assert headers["incarnation"] == b"i"


def test_report_is_json_of_what_is_acted_on_and_of_what_is_shown() -> None:
    (record,) = encode(Heartbeat(REPORT))
    headers = dict(record.headers)
    assert headers["report"] == (
        b'{"tm_id":1,"incarnation":"a1b2","threads":4,"beat":7,"base":null,"epoch":2,"sequence":3,'
        b'"leaving":false,"host":"host","pid":99,"thread_states":["RUNNING"],'
        b'"tasks":{"task":["Counter_0"],"state":["RUNNING"],"fingerprint":["f00d"]},"closed":[]}'
    )
    assert headers["figures"] == (
        b'{"names":["thread","reason","activity","dropped","records_in"],"rows":[[0,"","",{},3]]}'
    )


def test_figures_that_say_nothing_are_not_sent() -> None:
    task = TaskStatus(TaskId("P", 0), TaskState.RUNNING, figures={"records_in": 0, "lag": 0})
    assert as_json(task)["figures"] == {"lag": 0}
    assert task == TaskStatus(TaskId("P", 0), TaskState.RUNNING, figures={"lag": 0})


def test_figure_without_a_name_of_its_own_is_refused() -> None:
    with pytest.raises(ValueError, match="no figures of a task: lags"):
        TaskStatus(TaskId("P", 0), TaskState.RUNNING, figures={"lags": 1})


# There and back.


@given(messages)
def test_every_message_comes_back_as_it_was(message: Message) -> None:
    assert decode(encode(message)) == message


@given(st.lists(messages, max_size=6))
def test_one_reader_understands_messages_in_a_row(said: list[Message]) -> None:
    codec = Codec(NAMES)
    decoded = [codec.decode(record) for message in said for record in encode(message)]
    assert [message for message in decoded if message is not None] == said


def test_batch_that_was_cut_off_does_not_leak_into_the_next() -> None:
    codec = Codec(NAMES)
    cut = encode(Processors(1, "i", 2, 3, assign=(REPLICA,)))[:1]
    whole = encode(Processors(1, "i", 2, 4, revoke=(TaskId("P", 1),)))
    decoded = [codec.decode(record) for record in (*cut, *whole)]
    assert decoded[-1] == Processors(1, "i", 2, 4, revoke=(TaskId("P", 1),))


def test_batch_that_was_cut_off_and_said_again_later_is_whole() -> None:
    codec = Codec(NAMES)
    third = encode(Processors(1, "i", 2, 3, assign=(REPLICA,)))
    fourth = encode(Processors(1, "i", 2, 4))
    decoded = [codec.decode(record) for record in (third[0], *fourth, *third)]
    assert decoded[-1] == Processors(1, "i", 2, 3, assign=(REPLICA,))


def test_batches_of_others_neither_end_nor_outgrow_the_one_that_goes_on() -> None:
    codec = Codec(NAMES)
    assign, end = encode(Processors(1, "i", 2, 3, assign=(REPLICA,)))
    assert codec.decode(assign) is None
    (stranger,) = encode(Processors(1, "stranger", 9, 9))
    codec.decode(stranger)
    assert codec.decode(end) == Processors(1, "i", 2, 3, assign=(REPLICA,))
    for sequence in range(1000):
        codec.decode(encode(Processors(1, "stranger", 9, sequence, assign=(REPLICA,)))[0])
    assert len(codec._batches) < 10


# Whatever else is on a topic.


topics = st.sampled_from(
    [
        NAMES.threads_jm,
        NAMES.threads_tm,
        NAMES.heartbeat,
        NAMES.heartbeat_events,
        NAMES.processors("0"),
        NAMES.processors("1"),
    ]
)
keys = st.sampled_from([b"0", b"1", b"jobmanager", b""]) | st.binary(max_size=10)
values = st.sampled_from([b"sos", b"ping", b"eos", b"up", b"{}", b"[]"]) | st.binary(max_size=30)
header_names = st.sampled_from(
    [
        "version",
        "sent_at",
        "epoch",
        "sequence",
        "incarnation",
        "action",
        "parameters",
        "report",
        "figures",
        "part",
    ]
)
header_values = (
    st.sampled_from([b"1", b"0", b"-1", b"assign", b"revoke", b"refuse", b"eos", b"{}", b"1e999"])
    | st.sampled_from([b"0/1", b"0/2", b"1/2", b"2/1", b"0/0", b"-1/2", b"/", b"report"])
    | st.binary(max_size=10)
    | json_values.map(lambda value: json.dumps(value).encode())
)
headers = st.lists(st.tuples(header_names | texts, header_values), max_size=9).map(
    lambda drawn: (("version", b"5"), *drawn)
)


@given(st.lists(st.builds(ControlRecord, topics, keys, values, headers), max_size=4))
def test_random_records_raise_nothing_but_malformed(records: list[ControlRecord]) -> None:
    codec = Codec(NAMES)
    for record in records:
        is_malformed(record, codec)


@given(topics, st.binary(), st.binary(), st.lists(st.tuples(texts, st.binary())).map(tuple))
def test_random_bytes_are_malformed(
    topic: str, key: bytes, value: bytes, headers: tuple[tuple[str, bytes], ...]
) -> None:
    assert is_malformed(ControlRecord(topic, key, value, headers))


@pytest.mark.parametrize("version", [b"1", b"2", b"3", b"4", b"5", b"0", b"", b"one", b"6.0", None])
def test_other_protocol_version_is_malformed(version: bytes | None) -> None:
    for message in (Sos(0), Heartbeat(REPORT), Processors(1, "i", 2, 3), HeartbeatEvent(1, True)):
        assert is_malformed(with_headers(encode(message)[0], version=version))


def test_record_that_is_too_large_is_malformed() -> None:
    (record,) = encode(Refused(1, "i", 2, ""))
    used = len(record.key) + sum(len(name) + len(value) for name, value in record.headers)
    at_the_limit = replace(record, value=b"x" * (MAX_RECORD_BYTES - used))
    assert decode([at_the_limit]) == Refused(1, "i", 2, "x" * (MAX_RECORD_BYTES - used))
    assert is_malformed(replace(at_the_limit, value=at_the_limit.value + b"x"))


def test_large_headers_count_too() -> None:
    (record,) = encode(Heartbeat(REPORT))
    assert is_malformed(with_headers(record, report=b" " * MAX_RECORD_BYTES))


def test_deeply_nested_json_is_malformed() -> None:
    (record,) = encode(Heartbeat(REPORT))
    assert is_malformed(with_headers(record, report=b"[" * 200_000))


@pytest.mark.parametrize("key", [b"2", b"", b"x", b"-1", b"1.0", b"+1", b" 1", b"01", b"1_"])
def test_report_under_a_foreign_key_is_malformed(key: bytes) -> None:
    assert is_malformed(replace(encode(Heartbeat(REPORT))[0], key=key))


def test_command_on_the_topic_of_another_taskmanager_is_malformed() -> None:
    (record,) = encode(Processors(1, "i", 2, 3))
    assert is_malformed(replace(record, topic=NAMES.processors("2")))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pipelineID", float("inf")),
        ("pipelineID", -1),
        ("pipelineID", "0"),
        ("ID", None),
    ],
)
def test_processor_of_no_task_is_malformed(field: str, value: object) -> None:
    assign, end = encode(Processors(1, "i", 2, 3, assign=(REPLICA,)))
    body = json.dumps({**REPLICA.to_json(), field: value}).encode()
    codec = Codec(NAMES)
    assert is_malformed(replace(assign, value=body), codec) or is_malformed(end, codec)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("type", "PICKLE"),
        ("from", "Adder"),
        ("inTopics", [1]),
        ("stateTopic", 5),
    ],
)
def test_processor_with_a_field_of_another_kind_is_not_assigned(field: str, value: object) -> None:
    assign, end = encode(Processors(1, "i", 2, 3, assign=(REPLICA,)))
    body = json.dumps({**REPLICA.to_json(), field: value}).encode()
    found = decode([replace(assign, value=body), end])
    assert isinstance(found, Processors)
    assert found.assign == ()
    assert [status.task for status in found.unreadable] == [REPLICA.task]


@given(replica_values, st.data())
def test_command_that_decodes_can_do_no_harm(
    replica: ProcessorReplica, data: st.DataObject
) -> None:
    assign, end = encode(Processors(1, "me", 2, 3, assign=(replica,)))
    codec = Codec(NAMES)
    try:
        codec.decode(replace(assign, value=json.dumps(mutate(replica.to_json(), data)).encode()))
        decoded = codec.decode(end)
    except MalformedMessageError:
        return
    assert isinstance(decoded, Processors)
    core = TaskManagerState(Report(1, "me", 1, beat=0, interval_ms=1000), 15_000)
    core.handle(Tick(0))
    core.handle(taskmanager.ThreadConnected(0))
    for command in core.handle(decoded):
        if isinstance(command, Heartbeat):
            assert decode(encode(command)) == command


def test_a_job_manager_says_in_its_last_heartbeat_that_it_leaves() -> None:
    (beat,), (last,) = (
        Codec(NAMES).encode(JobManagerBeat(2, 0, {}, leaving=leaving, number=7), 0)
        for leaving in (False, True)
    )
    assert dict(beat.headers)["report"] == b'{"epoch":2,"number":7,"owners":{}}'
    assert dict(last.headers)["report"] == b'{"epoch":2,"number":7,"leaving":true,"owners":{}}'
