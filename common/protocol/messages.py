"""The control messages that travel between JobManager and TaskManagers, as values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from kafka_pipeline.common.pipelines.event_time import EventTimeSpec, event_times
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import OnError, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import SPECS, ProcessorSpec, SourceSpec
from kafka_pipeline.common.protocol.status import TaskStatus, ThreadState
from kafka_pipeline.common.protocol.suspects import Suspect
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.typed_json import Count, Name, Positive, as_json, from_json

JOB_MANAGER = "jobmanager"

MAX_RECORD_BYTES = 1_000_000
"""The largest record of a control topic: librdkafka's default for `message.max.bytes`."""

MISSED_BEATS = 3
"""A daemon counts as down after so many missed heartbeats, and PipelineThreads' leases end."""

FULL_BEATS = 5
"""The number of heartbeats from one full report of a TaskManager to the next.

A reader that cannot ask for a full report waits for at most that many.
"""


class MalformedMessageError(Exception):
    """A control record, or a message of the driver channel, that this version cannot read.

    The daemons log it and go on; a PipelineThread ends and starts again.
    """


class OtherProtocolError(MalformedMessageError):
    """A control record has another protocol version: its writer is of another engine's version.

    Views of the cluster also show the reason.
    """


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A record of a control topic; `offset` and `timestamp_ms` are set on records that were read.

    The timestamp is from the brokers' clock if the topic has `LogAppendTime`.
    """

    topic: str
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()
    offset: int = -1
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class ProcessorReplica:
    """A serialized processor: everything a TaskManager needs to run one task. Data, not code."""

    task: TaskId
    spec: ProcessorSpec
    from_: tuple[str, ...]
    to: tuple[str, ...]
    in_topics: tuple[str, ...]
    out_topics: tuple[str, ...]
    state_topics: Mapping[str, str] = field(default_factory=dict, hash=False)
    """State topics by store name."""
    dead_letter_topic: str | None = None
    on_error: OnError = OnError.FAIL
    max_dead_letters_per_minute: int | None = None
    sources: Mapping[str, SourceSpec] = field(default_factory=dict, hash=False)
    """How to read the sources that have settings, by their names in `from_`."""
    arcs: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Partition counts of the arcs among `out_topics`; no further partitions are read."""
    generation: int = 0
    """The number of restarts that were requested; a change makes another version of the task."""
    event_time: EventTimeSpec | None = None
    """The writers of its internal inputs, if it or a processor downstream needs event time."""
    former_inputs: tuple[str, ...] = ()
    """Topics that a processor with state read in other versions of the pipeline, but not in this
    one.

    An offset in one of them shows that the task has run before, and that its inputs are new.
    """
    suspects: tuple[Suspect, ...] = ()
    """The calls of this task that were in progress when worker processes ended."""
    assigned_as: str = field(default="", compare=False)
    """The fingerprint that the JobManager has assigned it with; "" in the JobManager."""

    @property
    def name(self) -> str:
        """The processor's id."""
        return self.task.processor

    def to_json(self) -> dict[str, Any]:
        """Return the original's fields, in its order; only a `COUNT` has a `stateTopic`."""
        fields: dict[str, Any] = {
            "pipelineID": self.task.partition,
            "ID": self.task.processor,
            "type": self.spec.type.upper(),
            "from": list(self.from_),
            "to": list(self.to),
            "inTopics": list(self.in_topics),
            "outTopics": list(self.out_topics),
        }
        sole = self.spec.sole_store
        if sole is not None and sole in self.state_topics:
            fields["stateTopic"] = self.state_topics[sole]
        return fields

    def parameters(self) -> dict[str, Any]:
        """Return the fields that the original does not have; they travel in a header."""
        sole = self.spec.sole_store
        optional: dict[str, Any] = {
            "spec": as_json(self.spec),
            "sources": as_json(self.sources),
            "state_topics": {name: t for name, t in self.state_topics.items() if name != sole},
            "standby": self.task.standby,
            "arcs": as_json(self.arcs),
            "generation": self.generation,
            "max_dead_letters_per_minute": self.max_dead_letters_per_minute,
            "former_inputs": list(self.former_inputs),
            "suspects": as_json(self.suspects),
        }
        if self.event_time is not None:
            # Without fields, all inputs are sources; that differs from no event time at all.
            optional["event_time"] = {"writers": {}} | as_json(self.event_time)
        return {
            "on_error": str(self.on_error),
            "dead_letter_topic": self.dead_letter_topic,
        } | {name: value for name, value in optional.items() if value}

    @property
    def fingerprint(self) -> str:
        """A short hash, equal for replicas that do the same to the same topics.

        A TaskManager reports the one that it was assigned with: its own version of the engine might
        compute another one, and the JobManager would take the task for one of another pipeline.
        """
        if self.assigned_as:
            return self.assigned_as
        parameters = replace(self, former_inputs=(), suspects=()).parameters()
        content = json.dumps([self.to_json(), parameters], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    @classmethod
    def from_json(cls, data: Any, parameters: Any) -> ProcessorReplica:
        """Read the results of `to_json` and `parameters`.

        Raises ValueError on anything else, also on a field of a later version: a task that ignores
        what it does not know would compute something else.
        """
        processor: _Processor = from_json(_Processor, data, "the processor")
        read: _Parameters = from_json(_Parameters, parameters, "the parameters")
        type_ = SPECS.get(processor.type.lower())
        if type_ is None or type_.type.upper() != processor.type:
            raise ValueError("unknown processor type")
        from_, in_topics = processor.from_, processor.in_topics
        to, out_topics = processor.to, processor.out_topics
        if len(from_) != len(in_topics) or len(to) != len(out_topics):
            raise ValueError("from and to must have a topic each")
        extra = msgspec.structs.asdict(read)
        if processor.state_topic is not None:
            if type_.sole_store is None:
                raise ValueError("stateTopic belongs to another type")
            extra["state_topics"] = {**read.state_topics, type_.sole_store: processor.state_topic}
        return cls(
            task=TaskId(processor.processor, processor.partition, extra.pop("standby")),
            spec=from_json(type_, extra.pop("spec"), "the parameters: spec"),
            from_=from_,
            to=to,
            in_topics=in_topics,
            out_topics=out_topics,
            **extra,
        )


TaskNumber = Annotated[int, Meta(ge=0, le=9_999_999_999)]
"""The range of numbers in a task id."""


class WrittenTask(Struct, frozen=True, kw_only=True):
    """A task in the original's form; a standby has a number in addition."""

    partition: TaskNumber = msgspec.field(name="pipelineID")
    processor: Name = msgspec.field(name="ID")
    standby: TaskNumber = 0


class _Processor(WrittenTask, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    from_: tuple[Name, ...] = msgspec.field(name="from")
    to: tuple[Name, ...]
    in_topics: tuple[Name, ...] = msgspec.field(name="inTopics")
    out_topics: tuple[Name, ...] = msgspec.field(name="outTopics")
    state_topic: Name | None = msgspec.field(name="stateTopic", default=None)


class _Parameters(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    on_error: OnError
    dead_letter_topic: Name | None
    spec: Any = {}
    sources: Mapping[str, SourceSpec] = {}
    state_topics: Mapping[Name, Name] = {}
    standby: TaskNumber = 0
    arcs: Mapping[Name, Positive] = {}
    generation: Count = 0
    max_dead_letters_per_minute: Positive | None = None
    event_time: EventTimeSpec | None = None
    former_inputs: tuple[Name, ...] = ()
    suspects: tuple[Suspect, ...] = ()


def replicas(
    pipeline: Pipeline,
    standbys: int = 0,
    generations: Mapping[str, int] = {},
    former_inputs: Mapping[str, Collection[str]] = {},
) -> list[ProcessorReplica]:
    """Return the tasks of a pipeline, processor by processor, partition by partition.

    They are followed by `standbys` (0..) copies of each task that keeps state on disk.
    `generations` are by processor or by task, and add up; missing ones are 0. `former_inputs` has
    the topics that processors read in other versions of the pipeline.
    """
    counts = {topic: pipeline.partitions_of(topic) for topic in pipeline.arcs}
    times = event_times(pipeline)
    tasks = [
        (
            processor,
            replace(
                _replica(processor, pipeline, partition, counts, generations, times),
                former_inputs=_former(processor, pipeline, former_inputs),
            ),
        )
        for processor in pipeline.processors
        for partition in range(pipeline.task_count(processor))
    ]
    copies = [
        replace(replica, task=replica.task.copy(number + 1))
        for number in range(standbys)
        for processor, replica in tasks
        if processor.has_standbys
    ]
    return [*(replica for _, replica in tasks), *copies]


def _former(
    processor: PipelineProcessor, pipeline: Pipeline, former_inputs: Mapping[str, Collection[str]]
) -> tuple[str, ...]:
    found = former_inputs.get(processor.id, ()) if processor.is_stateful else ()
    return tuple(sorted(set(found).difference(pipeline.in_topics(processor))))


def _replica(
    processor: PipelineProcessor,
    pipeline: Pipeline,
    partition: int,
    counts: Mapping[str, int],
    generations: Mapping[str, int],
    times: Mapping[str, EventTimeSpec],
) -> ProcessorReplica:
    task = TaskId(processor.id, partition)
    # Topics with fewer partitions are not read by the last tasks.
    inputs = [
        (from_, topic)
        for from_, topic in pipeline.inputs(processor).items()
        if partition < pipeline.partitions_of(topic)
    ]
    out_topics = pipeline.out_topics(processor)
    return ProcessorReplica(
        task=task,
        spec=processor.spec,
        from_=tuple(from_ for from_, _ in inputs),
        to=processor.to,
        in_topics=tuple(topic for _, topic in inputs),
        out_topics=out_topics,
        state_topics=pipeline.state_topics(processor),
        dead_letter_topic=pipeline.dead_letter_topic(processor),
        on_error=processor.on_error,
        max_dead_letters_per_minute=processor.max_dead_letters_per_minute,
        sources=processor.sources,
        arcs={topic: counts[topic] for topic in out_topics if topic in counts},
        generation=generations.get(processor.id, 0) + generations.get(str(task), 0),
        event_time=times.get(processor.id),
    )


@dataclass(frozen=True, slots=True)
class Sos:
    """JobManager to all: it leads from now on. The offset is the epoch of all its later commands.

    `incarnation` identifies the process, so that each JobManager recognises its own `sos`.
    """

    epoch: int
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """A TaskManager's report, sent with every heartbeat, and in full when it introduces itself.

    `incarnation` distinguishes processes with the same id. `beat` counts the reports of one
    incarnation. `epoch` and `sequence` identify the last command that was carried out; the report
    describes the state after that command. `leaving` marks the last report of a TaskManager that
    stops on purpose.

    A full report has no `base`; its `tasks` are all tasks that the TaskManager runs. Any other
    report adds to a full one, whose `beat` is its `base`. Its `tasks` are those that are new or
    have changed their state or version since the base, and those whose figures have changed since
    the previous report; `closed` are the tasks that have ended since the base.
    `common/protocol/reported_tasks.py` puts the reports together.

    `code` maps the user's modules to their fingerprints. Only full reports have it.
    """

    tm_id: int
    incarnation: str
    threads: int
    beat: int
    epoch: int = -1
    sequence: int = 0
    leaving: bool = False
    host: str = ""
    pid: int = 0
    thread_states: tuple[ThreadState, ...] = ()
    tasks: tuple[TaskStatus, ...] = ()
    base: int | None = None
    closed: tuple[TaskId, ...] = ()
    code: Mapping[str, str] = field(default_factory=dict, hash=False)
    state_address: str = ""
    """The host and port at which it answers queries of state; "" if it does not."""
    engine: str = ""
    """The version of the engine; "" if unknown: earlier versions do not report it."""
    interval_ms: int = 0
    """The time between its heartbeats; 0 if unknown: earlier versions do not report it."""


@dataclass(frozen=True, slots=True)
class Threads:
    """TaskManager to JobManager: the answer to `sos`, also sent on start-up."""

    report: Report


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """TaskManager to JobManager: it is alive, and this is the state of its tasks."""

    report: Report


@dataclass(frozen=True, slots=True)
class JobManagerBeat:
    """JobManager to any observer: the owner of each task (`None`: no owner right now).

    `number` counts the heartbeats of a process. The JobManager reads them back among the reports,
    and so learns which reports were written after which heartbeat.
    `leaving` marks the last heartbeat of a JobManager that stops on purpose. The tasks of the
    processors in `held`, and the `held_tasks`, have no owner on purpose. `findings` are sentences
    about what no longer suits the job, such as partitions that no task reads. `unread` maps
    processors to the number of records in partitions that they should read, but that no task reads.
    `engine` is as in a `Report`.
    """

    epoch: int
    sent_at_ms: int
    owners: Mapping[TaskId, int | None] = field(hash=False)
    leaving: bool = False
    held: frozenset[str] = frozenset()
    held_tasks: frozenset[TaskId] = frozenset()
    findings: tuple[str, ...] = ()
    unread: Mapping[str, int] = field(default_factory=dict, hash=False)
    number: int = 0
    engine: str = ""


@dataclass(frozen=True, slots=True)
class Processors:
    """JobManager to one TaskManager: tasks to run and tasks to give back, ended by `eos`.

    `sequence` grows by one with each command from one JobManager to one TaskManager. A command is
    for one incarnation only: if that process has died, its successor must not carry it out.
    `unreadable` has the tasks whose assignments the reader does not understand, since a newer
    JobManager wrote them, as FAILED.
    """

    tm_id: int
    incarnation: str
    epoch: int
    sequence: int
    assign: tuple[ProcessorReplica, ...] = ()
    revoke: tuple[TaskId, ...] = ()
    unreadable: tuple[TaskStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """JobManager to a TaskManager that may not take part; `reason` is a sentence for its log."""

    tm_id: int
    incarnation: str
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """JobManager to a TaskManager whose last full report it has missed: send another one."""

    tm_id: int
    incarnation: str
    epoch: int


@dataclass(frozen=True, slots=True)
class HeartbeatEvent:
    """HeartbeatController to JobManager: a TaskManager is `down`, or `up` again."""

    tm_id: int
    is_up: bool


Message = (
    Sos
    | Threads
    | Heartbeat
    | JobManagerBeat
    | Processors
    | Refused
    | ReportRequest
    | HeartbeatEvent
)
