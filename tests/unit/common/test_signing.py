"""Signed control records: what a writer without the key, or with recorded records, can do."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
import structlog
from structlog.testing import capture_logs

from kafka_pipeline.common.control.control_inbox import ControlInbox
from kafka_pipeline.common.control.heartbeat_log import HeartbeatLog
from kafka_pipeline.common.pipelines.specs import ForwardSpec
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.messages import (
    ControlRecord,
    Heartbeat,
    HeartbeatEvent,
    JobManagerBeat,
    Message,
    ProcessorReplica,
    Processors,
    Refused,
    Report,
    ReportRequest,
    Sos,
    Threads,
)
from kafka_pipeline.common.protocol.signing import BadSignatureError
from kafka_pipeline.common.security.control_key import ControlKey
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.taskmanager.events import AssignTask, TaskClosed, ThreadConnected
from kafka_pipeline.taskmanager.state import TaskManagerState
from tests.chaos.garbage import messages
from tests.unit.common.test_heartbeat_log import CONFIG

NAMES = TopicNames("job", "in", "out")
KEY = ControlKey((b"k" * 32,))
OTHER_KEY = ControlKey((b"o" * 32,))
REPLICA = ProcessorReplica(
    TaskId("Shop", 0), ForwardSpec(), ("source",), ("sink",), ("in",), ("out",)
)
ALL: tuple[Message, ...] = (
    Sos(-1, "jm"),
    Threads(Report(0, "a", 1, 1)),
    Heartbeat(Report(0, "a", 1, 2)),
    JobManagerBeat(1, 7, {TaskId("Shop", 0): 0}),
    HeartbeatEvent(0, is_up=True),
    Refused(0, "a", 1, "the id is taken"),
    ReportRequest(0, "a", 1),
    Processors(0, "a", 1, 1, assign=(REPLICA,), revoke=(TaskId("Shop", 1),)),
)
EACH = pytest.mark.parametrize("message", ALL, ids=lambda message: type(message).__name__)


def codec(key: ControlKey | None = KEY, names: TopicNames = NAMES) -> Codec:
    return Codec(names, key=key)


def is_accepted(record: ControlRecord, reader: Codec | None = None) -> bool:
    try:
        (reader or codec()).decode(record)
    except BadSignatureError:
        return False
    return True


def last(records: list[ControlRecord], reader: Codec) -> Message | None:
    return [reader.decode(record) for record in records][-1]


@EACH
def test_signed_records_are_read_by_those_with_the_key_and_by_those_without(
    message: Message,
) -> None:
    records = codec().encode(message, 5)
    assert last(records, codec()) == last(codec(None).encode(message, 5), codec(None))
    assert last(records, codec(None)) == last(records, codec())


@EACH
def test_every_record_that_is_not_signed_with_the_key_is_rejected(message: Message) -> None:
    for writer in (codec(None), codec(OTHER_KEY)):
        assert not any(map(is_accepted, writer.encode(message, 5)))


CHANGES: tuple[Callable[[ControlRecord], ControlRecord], ...] = (
    lambda r: replace(r, topic=f"{r.topic}_other"),
    lambda r: replace(r, key=r.key + b"1"),
    lambda r: replace(r, value=r.value + b" "),
    lambda r: replace(r, headers=r.headers[1:]),
    lambda r: replace(r, headers=(*r.headers[1::-1], *r.headers[2:])),
    lambda r: replace(r, headers=(*r.headers, ("epoch", b"9"))),
    lambda r: replace(r, headers=(*r.headers[:-1], ("epoch", b"9"), r.headers[-1])),
    lambda r: replace(r, headers=(*r.headers[:-1], r.headers[-1], r.headers[-1])),
    lambda r: replace(r, headers=(*r.headers[:-1], ("signature", r.headers[-1][1][:-1]))),
    lambda r: replace(r, headers=(*r.headers[:-1], ("signature", b""))),
    # The border between a header's name and its value moves.
    lambda r: replace(r, headers=((r.headers[0][0] + "3", r.headers[0][1][1:]), *r.headers[1:])),
)


@EACH
@pytest.mark.parametrize("change", CHANGES)
def test_no_part_of_a_signed_record_can_be_changed(
    message: Message, change: Callable[[ControlRecord], ControlRecord]
) -> None:
    for record in codec().encode(message, 5):
        assert is_accepted(record)
        assert not is_accepted(change(record))


def test_a_record_of_another_job_with_the_same_key_is_rejected() -> None:
    (record,) = codec(names=TopicNames("else", "in", "out")).encode(ALL[2], 5)
    assert not is_accepted(replace(record, topic=NAMES.heartbeat))


def test_the_former_key_is_accepted_while_it_is_in_the_file_and_the_first_one_signs() -> None:
    both = ControlKey((*OTHER_KEY.accepted, *KEY.accepted))
    (new,), (old,) = codec(both).encode(ALL[2], 5), codec(KEY).encode(ALL[2], 5)
    assert is_accepted(old, codec(both))
    assert is_accepted(new, codec(OTHER_KEY))
    assert not is_accepted(new, codec(KEY))


def test_a_key_is_not_shown() -> None:
    assert "kkkk" not in f"{KEY!r} {KEY} {replace(CONFIG, control_key=KEY)!r}"
    assert pickle.loads(pickle.dumps(KEY)) == KEY


@pytest.mark.parametrize("seed", range(20))
def test_garbage_is_rejected_and_counted_with_a_key_and_nothing_of_it_is_a_message(
    seed: int,
) -> None:
    records = list(itertools.islice(messages(Random(seed), NAMES), 200))
    with capture_logs() as logs:
        inbox = ControlInbox(codec(), structlog.get_logger())
        assert [inbox.take(record) for record in records] == [None] * len(records)
    assert inbox.rejected == len(records)
    assert len(logs) < len(records) / 2, "the log says each reason a few times only"


def test_the_log_of_one_with_a_key_says_what_to_set_where() -> None:
    with capture_logs() as logs:
        inbox = ControlInbox(codec(), structlog.get_logger())
        for record in codec(None).encode(ALL[2], 5) * 25:
            assert inbox.take(record) is None
    assert [(entry["count"], entry["total"]) for entry in logs] == [
        (n, n) for n in (1, 2, 4, 8, 16)
    ]
    assert "not signed. Set control_key_file in the config.yaml of all" in logs[0]["reason"]


def test_the_log_of_one_without_a_key_says_once_that_the_others_have_one() -> None:
    with capture_logs() as logs:
        inbox = ControlInbox(codec(None), structlog.get_logger())
        for record in codec().encode(ALL[2], 5) * 3:
            assert isinstance(inbox.take(record), Heartbeat)
    (entry,) = logs
    assert "this daemon has no key" in entry["event"]
    assert inbox.rejected == 0


def test_a_flood_of_reasons_fills_neither_the_log_nor_the_memory() -> None:
    plain = codec(None).encode(ALL[2], 5)[0]
    with capture_logs() as logs:
        inbox = ControlInbox(codec(None), structlog.get_logger())
        for number in range(1000):
            version = b"x%d" % number + b"9" * 10_000
            inbox.take(replace(plain, headers=(("version", version), *plain.headers[1:])))
    assert inbox.rejected == 1000
    assert len(logs) <= 100
    assert max(len(entry["reason"]) for entry in logs) <= 500


def test_status_rejects_what_is_not_signed_and_says_why() -> None:
    config = replace(CONFIG, control_key=KEY)
    names = config.topic_names
    log = HeartbeatLog(config)
    (forged,) = Codec(names).encode(JobManagerBeat(9, 0, {}), 0)
    (genuine,) = Codec(names, key=KEY).encode(Heartbeat(Report(0, "a", 1, 2)), 0)
    log.take(replace(forged, timestamp_ms=1000))
    log.take(replace(genuine, timestamp_ms=1000))
    status = log.status(1100)
    assert status.job_manager.epoch is None
    assert [info.state_address for info in status.task_managers] == [""]
    (why,) = status.to_json()["unsigned"]
    assert "control_key_file" in why
    assert log.status(1_000_000).unsigned == ()


# Recorded and repeated records, which have valid signatures.


def told(state: TaskManagerState, records: list[ControlRecord], reader: Codec) -> list[object]:
    decoded = [reader.decode(record) for record in records]
    known = (Sos, Processors, Refused, ReportRequest)
    return [c for m in decoded if isinstance(m, known) for c in state.handle(m)]


def test_a_repeated_command_is_not_carried_out_again() -> None:
    state = TaskManagerState(Report(0, "a", 1, beat=0, interval_ms=1000), 15_000)
    reader = codec()
    command = codec().encode(ALL[-1], 5)
    state.handle(ThreadConnected(0))
    assert AssignTask(0, REPLICA, 1) in told(state, command, reader)
    revoke = Processors(0, "a", 1, 2, revoke=(REPLICA.task,))
    told(state, codec().encode(revoke, 6), reader)
    state.handle(TaskClosed(0, REPLICA.task))
    assert state.tasks == {}
    assert told(state, command, reader) == []
    assert told(state, command[::-1], reader) == []
    assert state.tasks == {}


@pytest.mark.parametrize(
    ("incarnation", "epoch"), [("a", 1), ("former", 7)], ids=["former epoch", "former process"]
)
def test_commands_of_a_former_epoch_or_to_a_former_process_are_ignored(
    incarnation: str, epoch: int
) -> None:
    state = TaskManagerState(Report(0, "a", 1, beat=0, interval_ms=1000), 15_000)
    state.handle(Sos(epoch=5))
    command = Processors(0, incarnation, epoch, 99, assign=(REPLICA,))
    assert told(state, codec().encode(command, 5), codec()) == []
    assert state.tasks == {}
