"""Garbage on the control topics: what is made, and what the codec and the cores do with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_pipeline.common.protocol.codec import PROTOCOL_VERSION, Codec
from kafka_pipeline.common.protocol.messages import (
    ControlRecord,
    Heartbeat,
    MalformedMessageError,
    Message,
    Processors,
    Refused,
    Report,
    Sos,
    Threads,
)
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.tick import Tick
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.jobmanager.events import Reported
from kafka_pipeline.jobmanager.state import JobManagerState
from kafka_pipeline.taskmanager.events import ThreadConnected
from kafka_pipeline.taskmanager.state import TaskManagerState
from tests.chaos.garbage import HUGE_BYTES, messages
from tests.unit.jobmanager.leader import replica, settled

NAMES = TopicNames("job_1", "source", "sink")
TASK_MANAGERS = 2
TASKS = tuple(TaskId("P", number) for number in range(4))
TOPICS = (
    NAMES.threads_jm,
    NAMES.threads_tm,
    NAMES.heartbeat,
    NAMES.heartbeat_events,
    *(NAMES.processors(str(tm_id)) for tm_id in range(TASK_MANAGERS)),
)
EPOCH = 7
MANY = 1500


def garbage(seed: int, count: int = MANY) -> list[ControlRecord]:
    return list(islice(messages(Random(seed), NAMES, TASK_MANAGERS, TASKS), count))


def decoded(codec: Codec, record: ControlRecord) -> Message | None:
    try:
        return codec.decode(record)
    except MalformedMessageError:
        return None


def introduces(record: ControlRecord) -> bool:
    """Whether a record is a report that makes its sender a TaskManager, or keeps it one."""
    message = decoded(Codec(NAMES), record)
    if not isinstance(message, Threads | Heartbeat):
        return False
    return message.report.tm_id < TASK_MANAGERS and not message.report.leaving


def running_task_manager() -> TaskManagerState:
    """Return a TaskManager with id 1 that runs all tasks for the JobManager of `EPOCH`."""
    core = TaskManagerState(Report(1, "me", 2, beat=0, interval_ms=1000), 15_000)
    core.handle(Tick(0))
    for thread in range(2):
        core.handle(ThreadConnected(thread))
    assigned = tuple(replica(number) for number in range(len(TASKS)))
    core.handle(Processors(1, "me", EPOCH, 1, assign=assigned))
    core.handle(Tick(0))
    assert set(core.tasks) == set(TASKS)
    return core


def heartbeat() -> Heartbeat:
    """Return the messages of this TaskManager."""
    (beat,) = (c for c in running_task_manager().handle(Tick(1000)) if isinstance(c, Heartbeat))
    return beat


def settled_job_manager() -> JobManagerState:
    return settled(len(TASKS), TASK_MANAGERS).state


class Victims:
    """A codec and both cores, at work."""

    def __init__(self) -> None:
        self.codec = Codec(NAMES)
        self.job_manager = settled_job_manager()
        self.task_manager = running_task_manager()
        self.carried_out: list[object] = []
        """Commands that are more than an answer to the sender."""

    def take(self, record: ControlRecord) -> None:
        """Do what the daemons do with a record."""
        message = decoded(self.codec, record)
        said: list[object] = []
        if isinstance(message, Threads | Heartbeat):
            said += self.job_manager.handle(Reported(message.report))
        elif isinstance(message, Sos | Processors | Refused):
            said += self.task_manager.handle(message)
        for answer in said:
            if isinstance(answer, Refused | Threads):
                self.codec.encode(answer, 0)
            else:
                self.carried_out.append(answer)


# What is made.


def test_same_seed_gives_the_same_garbage() -> None:
    assert garbage(1) == garbage(1) != garbage(2)


def test_garbage_is_for_every_control_topic_and_fits_there() -> None:
    made = garbage(3)
    assert {record.topic for record in made} == set(TOPICS)
    sizes = [
        len(r.key) + len(r.value) + sum(len(name) + len(value) for name, value in r.headers)
        for r in made
    ]
    assert HUGE_BYTES < max(sizes) < 1_000_000


def test_garbage_is_of_many_kinds() -> None:
    made = garbage(4)
    codec = Codec(NAMES)
    kinds = Counter(type(decoded(codec, record)).__name__ for record in made)
    assert {"Sos", "Heartbeat", "Threads", "Processors", "Refused", "JobManagerBeat"} <= set(kinds)
    assert kinds["NoneType"] > MANY / 2
    repeated = sum(one == other for one, other in pairwise(made))
    assert repeated > MANY / 100
    versions = {dict(record.headers).get("version") for record in made}
    assert {None, b"%d" % PROTOCOL_VERSION, b"%d" % (PROTOCOL_VERSION + 1)} <= versions


def test_garbage_introduces_nobody() -> None:
    assert not any(introduces(record) for record in garbage(5))


def test_report_of_somebody_who_takes_part_would_be_found() -> None:
    (record,) = Codec(NAMES).encode(heartbeat(), 0)
    assert introduces(record)


# What it does.


@given(st.integers(0, 2**32))
@settings(max_examples=25)
def test_garbage_changes_neither_owners_nor_tasks(seed: int) -> None:
    victims = Victims()
    owners, live = victims.job_manager.owners, victims.job_manager.live
    tasks = victims.task_manager.tasks
    for record in garbage(seed, 150):
        victims.take(record)
    assert (victims.job_manager.owners, victims.job_manager.live) == (owners, live)
    assert victims.task_manager.tasks == tasks
    assert victims.carried_out == []


topics = st.sampled_from(TOPICS)
keys = st.sampled_from([b"0", b"1", b"jobmanager"]) | st.binary(max_size=10)
values = st.sampled_from([b"sos", b"ping", b"eos", b"up", b"{}"]) | st.binary()
header_names = st.sampled_from(
    ["version", "sent_at", "epoch", "sequence", "incarnation", "action", "parameters", "report"]
)
headers = st.lists(st.tuples(header_names | st.text(), st.binary()), max_size=8).map(tuple)
offsets = st.integers(0, 2**63 - 1)
records = st.builds(ControlRecord, topics, keys, values, headers, offsets)
versioned = records.map(
    lambda record: ControlRecord(
        record.topic,
        record.key,
        record.value,
        (*record.headers, ("version", b"%d" % PROTOCOL_VERSION)),
        record.offset,
    )
)


@given(st.lists(records | versioned, max_size=8))
def test_arbitrary_bytes_change_neither_owners_nor_tasks(written: list[ControlRecord]) -> None:
    victims = Victims()
    owners, tasks = victims.job_manager.owners, victims.task_manager.tasks
    for record in written:
        victims.take(record)
    assert victims.job_manager.owners == owners
    assert victims.task_manager.tasks == tasks
    assert victims.carried_out == []


def test_well_formed_report_is_what_changes_owners() -> None:
    victims = Victims()
    owners = victims.job_manager.owners
    report = replace(heartbeat().report, incarnation=victims.job_manager.live[1], beat=10**6)
    (record,) = victims.codec.encode(Heartbeat(replace(report, leaving=True)), 0)
    victims.take(record)
    assert victims.job_manager.owners != owners
