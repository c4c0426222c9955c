"""Errors that end a task for good, on a real Kafka: FAILED, with a reason, without skipping."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from kafka_pipeline.common.kafka import admin, topic_watch
from kafka_pipeline.common.kafka.clients import NonRetriableError, client_config
from kafka_pipeline.common.kafka.guarded_producer import GuardedProducer
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.pipelines.specs import CountSpec, ForwardSpec
from kafka_pipeline.common.process.spare_threads import SpareThreads
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager import offset_doubt
from tests.secured import only
from tests.tasks import Job, Record, Thread, run_once, step_until
from tests.tiers import long_but_the_first

pytestmark = pytest.mark.integration


@pytest.fixture
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic is taken for deleted after two seconds instead of ten."""
    monkeypatch.setattr(admin, "GONE_AFTER_S", 2.0)
    monkeypatch.setattr(topic_watch, "GONE_AFTER_S", 2.0)
    monkeypatch.setattr(topic_watch, "INTERVAL_S", 0.5)


@pytest.fixture
def job(job: Job) -> Job:
    """The usual configuration, but the open transaction of a failed task is soon aborted."""
    job.config = replace(job.config, transaction_timeout_ms=2_000)
    return job


@pytest.fixture
def guarded(job: Job) -> Job:
    """The same, on brokers that check rights."""
    anonymous = job.config.sink_topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*"
    rules = AclBindingFilter(
        ResourceType.TOPIC, *anonymous, AclOperation.ANY, AclPermissionType.ANY
    )
    try:
        job.admin_client.describe_acls(rules).result(10)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.SECURITY_DISABLED:
            raise
        pytest.skip("these brokers check no rights")
    return job


def status(thread: Thread, partition: int = 0) -> TaskStatus:
    return thread.status(TaskId("P", partition))


def run_until_committed(job: Job, thread: Thread, offset: int, partition: int = 0) -> None:
    step_until(lambda: job.committed(partition) == offset, thread)


def run_until_failed(thread: Thread) -> str:
    """Step until the task of partition 0 has FAILED; return its reason."""
    thread.step()
    step_until(lambda: status(thread).state is TaskState.FAILED, thread, timeout_s=60)
    return status(thread).reason


def started(job: Job, *replicas: ProcessorReplica) -> Thread:
    """Return a PipelineThread that runs these tasks; three records of partition 0 are done."""
    job.write(*(Record(b"k", b"1", n + 1) for n in range(3)))
    thread = Thread(job, 0)
    for replica in replicas:
        thread.assign(replica)
    run_until_committed(job, thread, 3)
    return thread


def assert_goes_on(job: Job, thread: Thread, partition: int = 1) -> None:
    """The other task of the thread works as before."""
    job.write(Record(b"k", b"1", 1, partition=partition))
    run_until_committed(job, thread, 1, partition)
    assert status(thread, partition).state is TaskState.RUNNING


# Offsets.


@pytest.mark.parametrize("has_started", [True, False], ids=["running", "new"])
def test_committed_offset_whose_record_was_deleted(job: Job, has_started: bool) -> None:
    """If retention overtook a task, records are lost: the task fails instead of skipping."""
    replicas = [job.replica(ForwardSpec(), partition=number) for number in (0, 1)]
    thread = started(job, *replicas)
    if not has_started:
        thread.close()
        thread = Thread(job, 1)
    else:
        thread.thread._consumers._consumers[0].reader.unassign([(job.config.source_topic, 0)])
    job.write(*(Record(b"k", b"1", n + 1) for n in range(5)))
    job.admin.delete_before({(job.config.source_topic, 0): 6})
    if has_started:
        thread.thread._consumers._consumers[0].reader.assign({(job.config.source_topic, 0): 3})
    else:
        for replica in replicas:
            thread.assign(replica)
    reason = run_until_failed(thread)
    assert reason.startswith(f"{job.config.source_topic}[0]: ")
    assert "the offset to continue from is not in the topic: its record was deleted" in reason
    assert job.committed() == 3
    assert_goes_on(job, thread)


def test_committed_offset_behind_the_end(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """This happens after the loss of the newest records, or in a topic created again."""
    monkeypatch.setattr(offset_doubt, "SURE_AFTER_S", 1)
    monkeypatch.setattr(offset_doubt, "SURE_ANSWERS", 3)
    job.write(*(Record(b"k", b"1", n + 1) for n in range(3)))
    offset = TopicPartition(job.config.source_topic, 0, 1_000)
    wanted = [ConsumerGroupTopicPartitions(job.names.consumer_group("P"), [offset])]
    for answer in job.admin_client.alter_consumer_group_offsets(wanted).values():
        answer.result(10)
    thread = Thread(job, 0)
    for number in (0, 1):
        thread.assign(job.replica(ForwardSpec(), partition=number))
    assert "or the topic has lost its end" in run_until_failed(thread)
    assert (job.committed(), job.read(job.config.sink_topic)) == (1_000, [])
    assert_goes_on(job, thread)


# Topics.


@pytest.mark.usefixtures("short_timeout")
def test_deleted_input_topic(job: Job) -> None:
    """librdkafka does not report it to a consumer."""
    other = job.make_topic("other")
    replica = job.replica(ForwardSpec(), partition=1)
    thread = started(job, job.replica(ForwardSpec()), replace(replica, in_topics=(other,)))
    job.delete_topic(job.config.source_topic)
    assert run_until_failed(thread) == f"{job.config.source_topic}[0]: the topic was deleted"
    step_until(lambda: status(thread, 1).state is TaskState.RUNNING, thread)


@pytest.mark.usefixtures("short_timeout")
def test_input_topic_that_was_made_anew(job: Job) -> None:
    """librdkafka goes on at the old offset, and so may skip records: the task reports it."""
    thread = started(job, job.replica(ForwardSpec()))
    for _ in range(100):
        thread.step()
    job.delete_topic(job.config.source_topic)
    job.make_topic_again(job.config.source_topic)
    job.write(*(Record(b"k", b"2", n + 1) for n in range(5)))
    assert "the topic was deleted and created again" in run_until_failed(thread)


@pytest.mark.usefixtures("short_timeout")
@pytest.mark.parametrize("which", long_but_the_first(["sink", "state", "dead letters"]))
def test_deleted_topic_that_the_task_writes(job: Job, which: str) -> None:
    thread = started(job, job.replica(CountSpec(), OnError.DEAD_LETTER))
    topic = {
        "sink": job.config.sink_topic,
        "state": job.names.state("P"),
        "dead letters": job.names.dead_letter("P"),
    }[which]
    job.delete_topic(topic)
    # The one that needs the topic is the first: the other may be fetched, and committed, alone.
    counted, rejected = Record(b"k", b"1", 1), Record(None, b"1", 1)
    job.write(*((rejected, counted) if which == "dead letters" else (counted, rejected)))
    assert run_until_failed(thread) == (
        f"topic {topic} does not exist (any more): "
        "the JobManager makes missing topics, empty ones, when it starts"
    )
    assert (job.committed(), status(thread).count("restarts")) == (3, 1)


# Refused records.


def refused(job: Job, timestamp: int) -> list[Record]:
    """Write a record that the sink is to refuse, between two that it takes."""
    source = job.config.source_topic
    job.set_topic_config(source, "message.timestamp.after.max.ms", "86400000")
    records = [Record(b"k", b"%d" % n, at) for n, at in enumerate((10, timestamp, 20), 1)]
    job.write(*records)
    return records


def letters(job: Job) -> list[tuple[bytes | None, bytes | None]]:
    """Return the values of the dead letters, each with its reason."""
    found = job.read(job.names.dead_letter("P"))
    return [(r.value, dict(r.headers or [])["__streams.errors.message"]) for r in found]


def test_record_of_a_time_that_the_output_topic_refuses_is_rejected(job: Job) -> None:
    sink = job.config.sink_topic
    job.set_topic_config(sink, "message.timestamp.after.max.ms", "3600000")
    ahead = int(time.time() * 1000) + 7_200_000
    one, two, three = refused(job, ahead)
    run_once(job.task(job.replica(ForwardSpec(), OnError.DEAD_LETTER)))
    assert job.read(sink) == [one, three]
    (letter,) = letters(job)
    assert letter[0] == two.value
    assert f"topic {sink} does not take the timestamp of the output" in str(letter[1])
    assert job.committed() == 3


def test_record_without_a_key_is_rejected_if_the_output_topic_is_compacted(job: Job) -> None:
    job.set_topic_config(job.config.sink_topic, "cleanup.policy", "compact")
    job.write(Record(None, b"1", 1), Record(b"k", b"2", 1))
    run_once(job.task(job.replica(ForwardSpec(), OnError.DEAD_LETTER)))
    assert [record.value for record in job.read(job.config.sink_topic)] == [b"2"]
    assert [value for value, _ in letters(job)] == [b"1"]


def test_topic_with_times_of_the_broker_takes_any_time(job: Job) -> None:
    job.set_topic_config(job.config.sink_topic, "message.timestamp.type", "LogAppendTime")
    job.set_topic_config(job.config.sink_topic, "message.timestamp.after.max.ms", "1000")
    refused(job, int(time.time() * 1000) + 7_200_000)
    run_once(job.task(job.replica(ForwardSpec())))
    assert len(job.read(job.config.sink_topic)) == 3


def test_record_without_a_key_into_a_topic_that_is_compacted_meanwhile(job: Job) -> None:
    """The broker does not say which record it was; the next start does."""
    sink = job.config.sink_topic
    thread = started(job, job.replica(ForwardSpec()))
    job.set_topic_config(sink, "cleanup.policy", "compact")
    job.write(Record(None, b"1", 1))
    reason = run_until_failed(thread)
    assert sink in reason
    assert "the topic refuses a record: it is compacted, or the brokers check" in reason
    assert (job.committed(), status(thread).count("restarts")) == (3, 0)
    thread.revoke(TaskId("P", 0))
    thread.step()
    thread.assign(job.replica(ForwardSpec()))
    reason = run_until_failed(thread)
    assert (
        f"record {job.config.source_topic}[0]@3: the output has no key, and topic {sink}" in reason
    )


def test_time_that_the_output_topic_refuses_from_now_on(job: Job) -> None:
    """The task starts again, reads the settings, and names the record."""
    sink = job.config.sink_topic
    thread = started(job, job.replica(ForwardSpec()))
    job.set_topic_config(sink, "message.timestamp.before.max.ms", "1000")
    job.write(Record(b"k", b"1", 1))
    reason = run_until_failed(thread)
    assert f"record {job.config.source_topic}[0]@3: topic {sink} does not take the" in reason
    assert (job.committed(), status(thread).count("restarts")) == (3, 1)


# Rights.

Right = tuple[ResourceType, str, AclOperation]


def rights(job: Job) -> dict[str, Right]:
    topic, transactional_id = ResourceType.TOPIC, job.names.transactional_id(TaskId("P", 0))
    return {
        "input": (topic, job.config.source_topic, AclOperation.READ),
        "output": (topic, job.config.sink_topic, AclOperation.WRITE),
        "state": (topic, job.names.state("P"), AclOperation.WRITE),
        "group": (ResourceType.GROUP, job.names.consumer_group("P"), AclOperation.READ),
        "transactions": (ResourceType.TRANSACTIONAL_ID, transactional_id, AclOperation.WRITE),
    }


def deny(job: Job, right: Right) -> AclBinding:
    """Take a right away and no other; return what `allow` gives back."""
    kind, name, operation = right
    everybody = kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*"
    # Where there is any ACL, what is not allowed is denied.
    others = AclBinding(*everybody, AclOperation.ALL, AclPermissionType.ALLOW)
    denied = AclBinding(*everybody, operation, AclPermissionType.DENY)
    for answer in job.admin_client.create_acls([others, denied]).values():
        answer.result(10)
    while not job.admin_client.describe_acls(only(denied)).result(10):
        time.sleep(0.01)
    return denied


def allow(job: Job, denied: AclBinding) -> None:
    for answer in job.admin_client.delete_acls([only(denied)]).values():
        answer.result(10)
    while job.admin_client.describe_acls(only(denied)).result(10):
        time.sleep(0.01)


@pytest.mark.parametrize(
    "which", long_but_the_first(["input", "output", "state", "group", "transactions"], 2)
)
def test_right_that_is_taken_away_while_the_task_runs(guarded: Job, which: str) -> None:
    """The task reports it at once; once it has the right, it goes on where it was."""
    thread = started(guarded, guarded.replica(CountSpec()))
    kind, name, operation = rights(guarded)[which]
    denied = deny(guarded, (kind, name, operation))
    guarded.write(*(Record(b"k", b"", n + 1) for n in range(3)))
    reason = run_until_failed(thread)
    assert "authorization failed" in reason
    right = f"{operation.name.capitalize()} of {kind.name.lower().replace('_', ' ')} {name}"
    assert f"(a right is missing, {right} (`pipeline acls` lists them): grant it, then" in reason
    assert status(thread).count("restarts") == 0
    allow(guarded, denied)
    assert guarded.committed() == 3
    thread.revoke(TaskId("P", 0))
    step_until(lambda: not thread.thread.tasks, thread)
    thread.assign(guarded.replica(CountSpec()))
    run_until_committed(guarded, thread, 6)
    found = [record.value for record in guarded.read(guarded.config.sink_topic)]
    assert found == [b"%d" % n for n in range(1, 7)]


def test_record_for_a_producer_that_a_missing_right_has_ended_is_refused_with_that_reason(
    guarded: Job,
) -> None:
    """librdkafka tells only that an error was fatal, when nobody has polled since."""
    ended = f"ended_{guarded.config.job_name}"
    settings = client_config(guarded.config, "producer", transactional_id=ended)
    producer = GuardedProducer(settings, 10, SpareThreads("offsets"))
    producer.fence(10)
    deny(guarded, (ResourceType.TRANSACTIONAL_ID, ended, AclOperation.WRITE))
    producer.begin()

    def send_for_ever() -> None:
        while True:
            producer.client.produce(guarded.config.sink_topic, b"1")
            time.sleep(0.01)

    with pytest.raises(KafkaException) as refused:
        send_for_ever()
    assert refused.value.args[0].code() == KafkaError._FATAL
    cause = producer.cause(refused.value)
    assert isinstance(cause, NonRetriableError)
    assert "a right is missing" in str(cause)
    producer.close()


def test_right_to_write_as_one_task_is_of_no_concern_to_others(guarded: Job) -> None:
    replicas = [guarded.replica(ForwardSpec(), partition=number) for number in (0, 1)]
    thread = started(guarded, *replicas)
    deny(guarded, rights(guarded)["transactions"])
    guarded.write(Record(b"k", b"", 1))
    run_until_failed(thread)
    assert_goes_on(guarded, thread)


def test_right_to_see_the_limits_of_topics_that_is_missing_is_named(guarded: Job) -> None:
    sink = guarded.config.sink_topic
    deny(guarded, (ResourceType.TOPIC, sink, AclOperation.DESCRIBE_CONFIGS))
    thread = Thread(guarded, 0)
    thread.assign(guarded.replica(ForwardSpec()))
    reason = run_until_failed(thread)
    assert f"a right is missing, DescribeConfigs of topic {sink} " in reason


def test_topic_that_takes_larger_records_than_before_gets_them(job: Job) -> None:
    """A record too large for the limit that the task knows makes it start again, and learn."""
    job.set_size_limit(job.config.sink_topic, 2000)
    thread = started(job, job.replica(ForwardSpec(), OnError.SKIP))
    job.set_size_limit(job.config.sink_topic, 20_000)
    job.write(Record(b"k", b"1", 4), Record(b"k", b"9" * 10_000, 5), Record(b"k", b"2", 6))
    run_until_committed(job, thread, 6)
    values = [record.value for record in job.read(job.config.sink_topic)]
    assert values == [b"1", b"1", b"1", b"1", b"9" * 10_000, b"2"]
    assert status(thread).count("restarts") == 1
