"""A leading JobManager with TaskManagers that carry commands out, for tests event by event."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from kafka_pipeline.common.pipelines.specs import ForwardSpec
from kafka_pipeline.common.protocol.messages import (
    JobManagerBeat,
    Message,
    ProcessorReplica,
    Processors,
    Report,
)
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.tick import Tick
from kafka_pipeline.jobmanager.events import Echoed, LeadershipBegan, PipelineChanged, Reported
from kafka_pipeline.jobmanager.state import JobManagerState

EPOCH = 40
START_MS = 500_000


def task(partition: int) -> TaskId:
    return TaskId("P", partition)


def replica(partition: int) -> ProcessorReplica:
    return ProcessorReplica(
        task(partition), ForwardSpec(), ("source",), ("sink",), ("in",), ("out",)
    )


def standby(partition: int, number: int) -> ProcessorReplica:
    copied = replica(partition)
    return replace(copied, task=copied.task.copy(number))


def status(partition: int, state: TaskState = TaskState.RUNNING, number: int = 0) -> TaskStatus:
    """Return a TaskManager's status of a task, or a standby, that it runs as it should."""
    runs = standby(partition, number)
    return TaskStatus(runs.task, state, fingerprint=runs.fingerprint)


class Leader:
    """A leading JobManager's core, and the reports of its TaskManagers.

    TaskManagers carry commands out at once, unless a test says otherwise.
    """

    def __init__(self, tasks: int, tm_number: int, epoch: int = EPOCH, standbys: int = 0) -> None:
        replicas = [standby(n, number) for number in range(standbys + 1) for n in range(tasks)]
        self.state = JobManagerState(replicas, tm_number, 1000)
        self.now_ms = START_MS
        self.epoch = epoch
        self.runs: dict[int, dict[TaskId, TaskState]] = {}
        self.versions: dict[tuple[int, TaskId], str] = {}
        """The fingerprints of what TaskManagers were given; otherwise, it is that of `replica`."""
        self.sequences: dict[int, int] = {}
        self.beats = 0
        self.tick(0)
        self.state.handle(LeadershipBegan(epoch))

    def change(
        self,
        replicas: Sequence[ProcessorReplica],
        held: Collection[str] = (),
        held_tasks: Collection[str] = (),
    ) -> list[Message]:
        """Have other tasks run, or hold others."""
        tasks = frozenset(map(TaskId.parse, held_tasks))
        return commands(self.state.handle(PipelineChanged(replicas, frozenset(held), tasks)))

    def tick(self, after_ms: int = 250) -> list[Message]:
        """Let time pass; the JobManager's own heartbeats are left out."""
        self.now_ms += after_ms
        said = self.state.handle(Tick(self.now_ms))
        for message in said:
            if isinstance(message, JobManagerBeat):
                self.state.handle(Echoed(message.number))
        return commands(said)

    def report(
        self,
        tm_id: int,
        tasks: Iterable[int] | None = None,
        *,
        incarnation: str = "",
        sequence: int | None = None,
        leaving: bool = False,
        epoch: int | None = None,
        threads: int = 1,
        beat: int | None = None,
    ) -> list[Message]:
        """Report; by default with the tasks and the sequence that the commands amount to."""
        self.beats += 1
        runs = self.runs.get(tm_id, {})
        if tasks is not None:
            runs = {task(n): TaskState.RUNNING for n in tasks}
        return self.send(
            Report(
                tm_id,
                incarnation or f"tm{tm_id}",
                threads,
                self.beats if beat is None else beat,
                self.epoch if epoch is None else epoch,
                self.sequences.get(tm_id, 0) if sequence is None else sequence,
                leaving,
                tasks=tuple(
                    TaskStatus(task_id, state, fingerprint=self._version(tm_id, task_id))
                    for task_id, state in runs.items()
                ),
            )
        )

    def _version(self, tm_id: int, task_id: TaskId) -> str:
        known = self.versions.get((tm_id, task_id))
        return known or standby(task_id.partition, task_id.standby).fingerprint

    def send(self, report: Report) -> list[Message]:
        """Report exactly this."""
        return commands(self.state.handle(Reported(report)))

    def carry_out(self, messages: list[Message]) -> None:
        """Carry commands out."""
        for message in messages:
            if isinstance(message, Processors):
                self.sequences[message.tm_id] = message.sequence
                runs = self.runs.setdefault(message.tm_id, {})
                for task_id in message.revoke:
                    runs.pop(task_id, None)
                for given in message.assign:
                    if given.task not in runs:
                        runs[given.task] = TaskState.RUNNING
                        self.versions[message.tm_id, given.task] = given.fingerprint

    def settle(self, *tm_ids: int) -> None:
        """Let these TaskManagers report until nothing more is commanded."""
        for _ in range(20):
            said = self.tick(1000)
            self.carry_out(said)
            for tm_id in tm_ids:
                answer = self.report(tm_id)
                self.carry_out(answer)
                said += answer
            if not said and None not in self.state.owners.values():
                return
        raise AssertionError("the JobManager does not come to rest")

    def come_to_rest(self, *tm_ids: int) -> list[Message]:
        """Let these TaskManagers report until nothing was commanded for a while; return all."""
        all_said: list[Message] = []
        quiet = 0
        for _ in range(100):
            said = self.tick(1000)
            self.carry_out(said)
            for tm_id in tm_ids:
                answer = self.report(tm_id)
                self.carry_out(answer)
                said += answer
            all_said += said
            quiet = 0 if said else quiet + 1
            if quiet > 4:
                return all_said
        raise AssertionError("the JobManager does not come to rest")

    def owned_by(self, tm_id: int | None) -> list[int]:
        """Return the partitions of the tasks that a TaskManager owns."""
        return [t.partition for t, owner in self.state.owners.items() if owner == tm_id]


def commands(messages: list[Message]) -> list[Message]:
    return [message for message in messages if not isinstance(message, JobManagerBeat)]


def assigned(messages: list[Message], tm_id: int) -> list[int]:
    return [
        entry.task.partition
        for message in messages
        if isinstance(message, Processors) and message.tm_id == tm_id
        for entry in message.assign
    ]


def revoked(messages: list[Message], tm_id: int) -> list[int]:
    return [
        task_id.partition
        for message in messages
        if isinstance(message, Processors) and message.tm_id == tm_id
        for task_id in message.revoke
    ]


def settled(tasks: int, tm_number: int, present: Iterable[int] | None = None) -> Leader:
    """Return a leader with these TaskManagers (all, by default), which run all tasks."""
    leader = Leader(tasks, tm_number)
    leader.settle(*(range(tm_number) if present is None else present))
    return leader
