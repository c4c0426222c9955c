"""Processors that are added, edited and removed, for tests of what the JobManager then commands."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kafka_pipeline.common.pipelines.specs import SumSpec
from kafka_pipeline.common.protocol.messages import Message, ProcessorReplica, Processors
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.tasks import TaskId
from tests.unit.jobmanager.leader import EPOCH, Leader


def unit(name: str, partition: int, version: int = 1, number: int = 0) -> ProcessorReplica:
    """Return a task, or a standby with its number, of a processor in this version."""
    task_id = TaskId(name, partition, number)
    return ProcessorReplica(
        task_id, SumSpec(constant=version), ("source",), ("sink",), ("in",), ("out",)
    )


def tasks(partitions: int = 2, standbys: int = 0, **versions: int) -> list[ProcessorReplica]:
    """Return the tasks of processors, each in its version; as the shell does, standbys last."""
    return [
        unit(name, partition, version, number)
        for number in range(standbys + 1)
        for name, version in versions.items()
        for partition in range(partitions)
    ]


def running(
    pipeline: list[ProcessorReplica], tm_number: int = 2, present: Iterable[int] | None = None
) -> Leader:
    """Return a leader whose TaskManagers (all, by default) run a pipeline."""
    leader = Leader(0, tm_number)
    leader.change(pipeline)
    leader.settle(*(range(tm_number) if present is None else present))
    return leader


def given(messages: Iterable[Message], tm_id: int | None = None) -> list[str]:
    """Return the tasks that are assigned, in order; by default to anybody."""
    return [
        str(replica.task)
        for message in messages
        if isinstance(message, Processors) and tm_id in (None, message.tm_id)
        for replica in message.assign
    ]


def taken(messages: Iterable[Message], tm_id: int | None = None) -> list[str]:
    """Return the tasks that are revoked, in order; by default from anybody."""
    return [
        str(task_id)
        for message in messages
        if isinstance(message, Processors) and tm_id in (None, message.tm_id)
        for task_id in message.revoke
    ]


def versions_run(leader: Leader) -> dict[str, str]:
    """Return the fingerprint of each task that a TaskManager runs, by its name."""
    return {
        name: leader.versions[tm_id, TaskId.parse(name)] for name, tm_id in homes(leader).items()
    }


def homes(leader: Leader) -> dict[str, int]:
    """Return the TaskManager that runs each task; a task that two run fails the test."""
    found = [(str(task_id), tm_id) for tm_id, runs in leader.runs.items() for task_id in runs]
    assert len(found) == len(dict(found))
    return dict(found)


def fail(leader: Leader, name: str) -> None:
    """Let a task stop for good, where it runs."""
    task_id = TaskId.parse(name)
    leader.runs[homes(leader)[name]][task_id] = TaskState.FAILED


def fingerprints(pipeline: Iterable[ProcessorReplica]) -> dict[str, str]:
    """Return the fingerprint of each task of a pipeline, by its name."""
    return {str(replica.task): replica.fingerprint for replica in pipeline}


def change(
    leader: Leader, pipeline: list[ProcessorReplica], held: Collection[str] = ()
) -> list[Message]:
    """Change the pipeline, and have what is commanded carried out at once."""
    said = leader.change(pipeline, held)
    leader.carry_out(said)
    return said


def silent_for_three_beats(leader: Leader, *others: int) -> list[Message]:
    """Let time pass in which only the others report and carry commands out."""
    all_said: list[Message] = []
    for _ in range(4):
        said = leader.tick(1000)
        for tm_id in others:
            said += leader.report(tm_id)
        leader.carry_out(said)
        all_said += said
    return all_said


def reported(leader: Leader, tm_id: int, *units: tuple[str, int, int]) -> list[Message]:
    """Report that a TaskManager runs tasks: name, partition and version of each."""
    leader.runs[tm_id] = {}
    for name, partition, version in units:
        replica = unit(name, partition, version)
        leader.runs[tm_id][replica.task] = TaskState.RUNNING
        leader.versions[tm_id, replica.task] = replica.fingerprint
    return leader.report(tm_id, epoch=EPOCH - 1)
