"""Records that are made to do harm: none has an effect, and none makes a reader fail or grow."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.control.control_inbox import ControlInbox
from kafka_pipeline.common.control.heartbeat_log import HeartbeatLog
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import ClassSpec, CountSpec
from kafka_pipeline.common.protocol import reports
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
)
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus, ThreadState
from kafka_pipeline.common.security.control_key import ControlKey
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.common.typed_json import LARGEST, MOST_LEVELS
from kafka_pipeline.deployment.desired_state import (
    Deployment,
    PipelineVersion,
    UnreadableDeploymentError,
    Wish,
)
from tests.small_config import small_config

NAMES = TopicNames("shop", "orders", "totals")
KEY = ControlKey((b"k" * 64,))
TASK = TaskId("Counter", 0)
REPLICA = ProcessorReplica(
    TASK,
    ClassSpec(code="shop:Counter", config={"a": 1}),
    ("source",),
    ("sink",),
    ("orders",),
    ("totals",),
    {"counts": "state_topic_Counter_counts_shop"},
)
REPORT = Report(
    0,
    "process",
    1,
    3,
    epoch=7,
    sequence=2,
    host="alpha",
    pid=17,
    thread_states=(ThreadState.RUNNING,),
    tasks=(TaskStatus(TASK, TaskState.FAILED, reason="why", figures={"lag": 3}),),
    code={"shop": "abc"},
)
MESSAGES: list[Message] = [
    Sos(-1, "leader"),
    Threads(REPORT),
    Heartbeat(REPORT),
    JobManagerBeat(7, 1, {TASK: 0}, held=frozenset({"Adder"})),
    HeartbeatEvent(0, is_up=True),
    Refused(0, "process", 7, "another one has this id"),
    ReportRequest(0, "process", 7),
    Processors(0, "process", 7, 2, assign=(REPLICA,), revoke=(TaskId("Adder", 1),)),
]
PIPELINE = Pipeline(
    (PipelineProcessor("Counter", CountSpec(), (SINK,), (SOURCE,)),), NAMES, 1, {"orders": 1}
)
VERSION = PipelineVersion(1, PIPELINE, "text", 1, "ada@alpha")
TOPICS = (
    NAMES.threads_jm,
    NAMES.threads_tm,
    NAMES.processors("0"),
    NAMES.heartbeat,
    NAMES.heartbeat_events,
    NAMES.pipeline,
)
LEVELS = 10_000
CONFIG = small_config(server_port=1, job_name="shop", source_topic="orders", sink_topic="totals")


def control_records(key: ControlKey | None = None) -> list[ControlRecord]:
    """Return the records of one message of each kind, and those of a wish with a version."""
    codec = Codec(NAMES, key=key)
    records = [record for message in MESSAGES for record in codec.encode(message, 1)]
    return [*records, *Deployment(NAMES, key).records(Wish(version=1), VERSION)]


RECORDS = control_records()


class Readers:
    """All that reads control topics; whatever it raises, it raises to a daemon."""

    def __init__(self, key: ControlKey | None = None) -> None:
        self.inbox = ControlInbox(Codec(NAMES, key=key), structlog.get_logger())
        self.log = HeartbeatLog(replace(CONFIG, control_key=key))
        self.deployment = Deployment(NAMES, key)

    def take(self, record: ControlRecord) -> Message | None:
        """Give a record to the reader of its topic; return the message, if it is one."""
        if record.topic == NAMES.pipeline:
            try:
                self.deployment.take(record)
                for number in self.deployment.numbers:
                    self.deployment.version(number)
            except (MalformedMessageError, UnreadableDeploymentError):
                pass
            return None
        self.log.take(record)
        message = self.inbox.take(record)
        json.dumps(self.log.status(1).to_json())
        return message


# What may be made of a record.


def nested(brackets: str) -> bytes:
    return (brackets * LEVELS).encode()


PIECES: list[bytes] = [
    b"",
    b"\x00",
    b"\xff\xfe",
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"1e999",
    b"-1",
    b"9" * 30,
    b"9" * 5000,
    b"\\ud800",
    b'"\\ud800"',
    b"\xed\xa0\x80",
    b"../../../etc/passwd",
    b"\x1b[2J\x07",
    "\u202e\u200b".encode(),
    nested("["),
    nested('{"a":'),
    nested("[") + nested("]"),
    b'{"epoch":1,"epoch":2}',
    b"null",
    b"{}",
    b"[[]]",
]


def changed(data: bytes, draw: Random) -> bytes:
    """Return bytes with one of them flipped, a part cut out or doubled, or a piece put in."""
    at = draw.randrange(len(data) + 1)
    to = draw.randrange(at, len(data) + 1)
    kind = draw.randrange(5)
    if kind == 0 and data:
        at %= len(data)
        return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]
    if kind == 1:
        return data[:at] + data[to:]
    if kind == 2:
        return data[:to] + data[at:]
    piece = draw.choice(PIECES)
    return piece if kind == 3 else data[:at] + piece + data[to:]


def mutated(record: ControlRecord, draw: Random) -> ControlRecord:
    """Return the record with one to three changes of its topic, key, value or headers."""
    for _ in range(draw.randrange(1, 4)):
        headers = list(record.headers)
        match draw.randrange(7):
            case 0:
                record = replace(record, topic=draw.choice(TOPICS))
            case 1:
                record = replace(record, key=changed(record.key, draw))
            case 2:
                record = replace(record, value=changed(record.value, draw))
            case 3 if headers:
                headers.append(draw.choice(headers))
            case 4 if headers:
                headers.remove(draw.choice(headers))
            case _ if headers:
                at = draw.randrange(len(headers))
                name, value = headers[at]
                headers[at] = (name, changed(value, draw))
        record = replace(record, headers=tuple(headers), offset=draw.randrange(2**63))
    return record


@given(st.integers(0, 2**63))
def test_no_change_of_a_record_makes_a_reader_fail(seed: int) -> None:
    draw, readers = Random(seed), Readers()
    for _ in range(20):
        readers.take(mutated(draw.choice(RECORDS), draw))


@given(st.integers(0, 2**63))
def test_with_a_key_no_change_of_a_record_is_taken_for_a_message(seed: int) -> None:
    """A changed record is rejected, counted, and has no part in what the job is to run."""
    draw, readers = Random(seed), Readers(KEY)
    signed, taken = control_records(KEY), 0
    for _ in range(20):
        record = draw.choice(signed)
        forged = mutated(record, draw)
        same = replace(forged, offset=record.offset) == record
        if forged.topic != NAMES.pipeline and not same:
            taken += 1
        if not same:
            assert readers.take(forged) is None
    assert readers.inbox.rejected == taken
    assert readers.deployment.wish is None
    assert readers.log.status(1).tasks == ()


@given(st.integers(0, 2**63))
def test_with_a_key_records_in_another_order_carry_out_nothing_twice(seed: int) -> None:
    """Numbers of changes only grow, and a batch ends once."""
    draw, readers = Random(seed), Readers(KEY)
    changes = [Wish(version=1), Wish(version=1, drains=True), Wish(version=1, paused=("Counter",))]
    writer, written = Deployment(NAMES, KEY), []
    for wish in changes:
        records = writer.records(wish, VERSION)
        written.append(records[-1])
        for record in records:
            writer.take(record)
    seen = [0]
    for _ in range(30):
        readers.take(draw.choice(written))
        seen.append(readers.deployment.change)
    assert seen == sorted(seen)


# Single attacks.


def with_header(record: ControlRecord, name: str, value: bytes) -> ControlRecord:
    headers = {**dict(record.headers), name: value}
    return replace(record, headers=tuple(headers.items()))


def heartbeat(**changes: Any) -> ControlRecord:
    """Return a heartbeat with other facts in its report."""
    (record,) = Codec(NAMES).encode(Heartbeat(REPORT), 1)
    facts = json.loads(dict(record.headers)["report"])
    return with_header(record, "report", json.dumps(facts | changes).encode())


def is_rejected(*records: ControlRecord) -> bool:
    readers = Readers()
    return [readers.take(record) for record in records][-1] is None and readers.inbox.rejected > 0


@pytest.mark.parametrize("field", ["beat", "epoch", "sequence", "pid", "threads", "tm_id", "base"])
@pytest.mark.parametrize(
    "number",
    [LARGEST + 1, 10**400, -(10**400), float("nan"), float("inf")],
    ids=["too large", "huge", "far below zero", "not a number", "infinite"],
)
def test_a_number_that_no_clock_and_no_metric_can_hold_is_rejected(field: str, number: Any) -> None:
    assert is_rejected(heartbeat(**{field: number}))


def test_the_largest_number_is_one_that_metrics_can_hold() -> None:
    (taken,) = [Readers().take(heartbeat(beat=LARGEST))]
    assert isinstance(taken, Heartbeat)
    assert float(taken.report.beat) == 2.0**63


@pytest.mark.parametrize("text", ["\ud800", "\udfff a"], ids=["half of a pair", "the other half"])
@pytest.mark.parametrize(
    "changes",
    [
        lambda text: {"host": text},
        lambda text: {"incarnation": text},
        lambda text: {"code": {"shop": text}},
        lambda text: {"code": {text: "abc"}},
        lambda text: {"state_address": text},
    ],
)
def test_half_of_a_surrogate_pair_is_rejected_wherever_text_is(changes: Any, text: str) -> None:
    assert is_rejected(heartbeat(**changes(text)))


def test_a_fingerprint_that_would_fill_the_memory_is_rejected() -> None:
    """Statuses are kept for the next report."""
    table = {"task": ["Counter_0"], "state": ["RUNNING"], "fingerprint": ["f" * 100_000]}
    before = reports._status.cache_info().currsize
    assert is_rejected(heartbeat(tasks=table))
    assert reports._status.cache_info().currsize == before


@pytest.mark.parametrize("levels", [MOST_LEVELS, 400, 900, LEVELS])
def test_what_a_class_is_given_may_not_be_nested_too_deeply(levels: int) -> None:
    """Python reads a thousand levels, and then fails where it walks them."""
    assign, end = Codec(NAMES).encode(Processors(0, "process", 7, 2, assign=(REPLICA,)), 1)
    nest = b"[" * levels + b"]" * levels
    parameters = dict(assign.headers)["parameters"].replace(
        b'"config":{"a":1}', b'"config":{"a":' + nest + b"}"
    )
    assert nest in parameters
    assert is_rejected(with_header(assign, "parameters", parameters), end)


def test_a_megabyte_of_header_names_counts_too() -> None:
    many = tuple((f"{n:06}" * 10, b"") for n in range(20_000))
    record = replace(RECORDS[0], headers=(*RECORDS[0].headers, *many))
    assert is_rejected(record)
    assert is_rejected(replace(RECORDS[0], key=b"k" * MAX_RECORD_BYTES))


def commands(sequence: int, count: int) -> Iterator[ControlRecord]:
    """Yield commands of one batch, without its end."""
    (record, _) = Codec(NAMES).encode(Processors(0, "process", 7, sequence, assign=(REPLICA,)), 1)
    large = replace(record, value=b" " * 900_000 + record.value)
    for _ in range(count):
        yield large


def kept_bytes(codec: Codec) -> int:
    return sum(
        len(record.value) for batch in codec._batches.values() for _, record in batch.records
    )


def test_a_batch_that_never_ends_does_not_fill_the_memory_and_is_not_carried_out() -> None:
    codec = Codec(NAMES)
    for record in commands(3, 100):
        assert codec.decode(record) is None
        assert kept_bytes(codec) < 40_000_000
    assert kept_bytes(codec) == 0
    (end,) = Codec(NAMES).encode(Processors(0, "process", 7, 3), 1)
    with pytest.raises(MalformedMessageError, match="a batch over 32000000 bytes"):
        codec.decode(end)
    whole = Processors(0, "process", 7, 4, assign=(REPLICA,))
    assert [codec.decode(record) for record in Codec(NAMES).encode(whole, 1)][-1] == whole


def test_many_small_commands_count_with_what_they_take_in_memory() -> None:
    codec = Codec(NAMES)
    (record, _) = Codec(NAMES).encode(Processors(0, "process", 7, 3, assign=(REPLICA,)), 1)
    for _ in range(40_000):
        codec.decode(record)
    assert kept_bytes(codec) == 0


def test_processes_that_are_made_up_do_not_fill_the_memory_of_those_who_watch() -> None:
    log = Readers().log
    for number in range(15):
        for tm_id in range(100):
            report = replace(REPORT, tm_id=number * 100 + tm_id, incarnation=f"p{number}", tasks=())
            (record,) = Codec(NAMES).encode(Heartbeat(report), 1)
            log.take(replace(record, timestamp_ms=number))
        log.status(number)
    assert len(log._beats) == len(log._reported) == 1_000
    assert max(beat.content.tm_id for beat in log._beats) == 1_499  # type: ignore[union-attr]


def test_times_far_in_the_future_or_the_past_are_read() -> None:
    readers = Readers()
    for ms in (2**63 - 1, -(2**63), -1):
        readers.take(replace(heartbeat(), timestamp_ms=ms))
    for text in (b"9" * 19, b"0"):
        (beat,) = Codec(NAMES).encode(MESSAGES[3], 1)
        readers.take(with_header(beat, "sent_at", text))
    json.dumps(readers.log.status(sys.maxsize).to_json())


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("key", [None, KEY], ids=["without a key", "with a key"])
def test_empty_records_and_those_without_headers_are_rejected_on_each_topic(
    topic: str, key: ControlKey | None
) -> None:
    readers = Readers(key)
    for value in (b"", b"null", b"sos", b"ping", b"\xff" * 1000, nested("[")):
        readers.take(ControlRecord(topic, b"", value))
        assert readers.take(ControlRecord(topic, b"0", value)) is None
    assert readers.deployment.wish is None
    assert readers.inbox.rejected == (0 if topic == NAMES.pipeline else 12)
