"""Topics that lose records, vanish or may no longer be used: the end of a task, with a reason.

Each round runs a separate small job next to the large one, since nothing repairs its tasks.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kafka_pipeline.admin.daemons import Daemon, command_path
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.protocol.status import TaskState
from tests.chaos.catalog import Where, fault
from tests.chaos.rig import HEARTBEAT_S, Rig
from tests.engine import Engine, all_run, engine, signal_session

PIPELINE = """
- {id: First, type: forward, to: [Second]}
- {id: Second, type: count, to: [sink]}
- {id: Other, type: forward, to: [sink]}
"""
FAILURE_TIMEOUT_S = 90.0
OTHERS_TIMEOUT_S = 60.0
_REQUEST_TIMEOUT_S = 30


@contextmanager
def _small_job(rig: Rig) -> Iterator[tuple[Engine, Daemon]]:
    """Run a job with one TaskManager and one partition, and process ten records."""
    name = f"side{rig.random.randrange(10**9)}"
    folder = rig.folder / name
    folder.mkdir()
    servers = rig.cluster.bootstrap_servers
    heartbeat_ms = int(HEARTBEAT_S * 1000)
    with engine(
        folder,
        servers,
        name,
        PIPELINE,
        tm_number=1,
        parallelism=1,
        heartbeat_interval_ms=heartbeat_ms,
    ) as job:
        job.start_job_manager()
        task_manager = job.start_task_manager(0, 1)
        job.wait_until(all_run([0]))
        job.write([(b"k", b"%d" % number) for number in range(10)])
        job.wait_until_done({job.config.sink_topic: 20})
        yield job, task_manager


def _expect_failed(job: Engine, failed: set[str], *words: str, writes: bool = True) -> str:
    """Wait until exactly these processors are FAILED; return a reason that contains the words.

    Meanwhile, records are written unless the source is what is broken: some tasks only notice then.
    """
    deadline_s = time.monotonic() + FAILURE_TIMEOUT_S

    def is_as_wanted(status: ClusterStatus) -> bool:
        states = {task.task.processor: task.status.state for task in status.tasks if task.status}
        return {name for name, state in states.items() if state is TaskState.FAILED} == failed

    while True:
        if writes:
            job.write([(b"k", b"1")])
        status = job.wait_until(lambda _: True, 10)
        if is_as_wanted(status):
            break
        assert time.monotonic() < deadline_s, f"wanted {failed} FAILED, got {status}"
        time.sleep(0.5)
    time.sleep(3 * HEARTBEAT_S)
    if writes:
        job.wait_until(lambda status: _others_go_on(status, failed), OTHERS_TIMEOUT_S)
    status = job.wait_until(lambda _: True, 10)
    assert is_as_wanted(status), f"wanted {failed} FAILED for good, got {status}"
    reasons = [task.reason for task in status.tasks if task.task.processor in failed]
    for reason in reasons:
        assert all(word in reason for word in words), f"the reason is {reason!r}"
    shown = subprocess.run(
        [command_path("pipeline"), "status", str(job.config_file)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert shown.stdout.count("FAILED") >= len(failed), shown.stdout + shown.stderr
    return reasons[0]


def _others_go_on(status: ClusterStatus, failed: set[str]) -> bool:
    others = [task for task in status.tasks if task.task.processor not in failed]
    return all(
        task.status and task.status.state is TaskState.RUNNING and task.status.gauge("lag") == 0
        for task in others
    )


@fault("retention-passed")
def retention_passed(rig: Rig) -> None:
    """Records are deleted before they are processed: FAILED, nothing is skipped."""
    with _small_job(rig) as (job, task_manager):
        signal_session(task_manager, signal.SIGSTOP)
        # A fetch that waits at the broker, for up to 500 ms, would get the records.
        time.sleep(2)
        job.write([(b"k", b"%d" % number) for number in range(10, 20)])
        Admin(job.config).delete_before({(job.config.source_topic, 0): 15})
        signal_session(task_manager, signal.SIGCONT)
        source = job.config.source_topic
        reason = _expect_failed(job, {"First", "Other"}, source, writes=False)
        assert len(job.read(job.config.sink_topic)) == 20, "records were skipped"
        rig.say(f"records deleted before they were read: {reason}")


@fault("deleted-topic")
def deleted_topic(rig: Rig) -> None:
    """A topic is deleted while tasks use it: they are FAILED, the others go on."""
    with _small_job(rig) as (job, _):
        names = job.names
        topic, failed = rig.random.choice(
            [
                (names.source, {"First", "Other"}),
                (names.arc("First", "Second"), {"First", "Second"}),
                (names.state("Second"), {"Second"}),
                (names.sink, {"Second", "Other"}),
            ]
        )
        client = AdminClient({"bootstrap.servers": job.config.bootstrap_servers})
        for future in client.delete_topics([topic]).values():
            future.result(_REQUEST_TIMEOUT_S)
        reason = _expect_failed(job, failed, writes=topic != names.source)
        rig.say(f"{topic} deleted: {reason}")


@fault("denied-access", where=Where.ONE_HOST)
def denied_access(rig: Rig) -> None:
    """A right is taken away while tasks need it: they are FAILED, the others go on."""
    with _small_job(rig) as (job, _):
        names = job.names
        kind, name, operation, failed = rig.random.choice(
            [
                (ResourceType.TOPIC, names.source, AclOperation.READ, {"First", "Other"}),
                (
                    ResourceType.TOPIC,
                    names.arc("First", "Second"),
                    AclOperation.WRITE,
                    # If a resource has any rule, everything that the rules do not allow is denied.
                    {"First", "Second"},
                ),
                (ResourceType.TOPIC, names.sink, AclOperation.WRITE, {"Second", "Other"}),
                (
                    ResourceType.GROUP,
                    names.consumer_group("Other"),
                    AclOperation.READ,
                    {"Other"},
                ),
            ]
        )
        client = AdminClient({"bootstrap.servers": job.config.bootstrap_servers})
        acl = AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            "User:ANONYMOUS",
            "*",
            operation,
            AclPermissionType.DENY,
        )
        for future in client.create_acls([acl]).values():
            future.result(_REQUEST_TIMEOUT_S)
        reason = _expect_failed(job, failed, writes=name != names.source)
        rig.say(f"{operation.name} of {name} denied: {reason}")
