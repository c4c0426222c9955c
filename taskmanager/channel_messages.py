"""The messages of the driver channel, as values and as JSON.

Each message has the name of its type on the wire, so import the module and write
`channel_messages.Closed`. `events.py` and `thread_events.py` use similar names for the inputs of
the cores, which are different values. An event of the TaskManager's core names the thread, while
the connection identifies it for a message. The core of a PipelineThread gets what its shell makes
of commands, such as all revocations that arrived together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Struct

from kafka_pipeline.common.errors import shorten
from kafka_pipeline.common.monitoring.times import Times
from kafka_pipeline.common.protocol.messages import MalformedMessageError, ProcessorReplica
from kafka_pipeline.common.protocol.status import TaskStatus
from kafka_pipeline.common.protocol.suspects import Death
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.typed_json import Count, Positive, as_json, dump, from_json
from kafka_pipeline.common.user_series import UserSeries

_LONGEST_REASON = 200


class _Message(Struct, frozen=True, tag_field="type", tag=str.lower):
    """Base of messages; `type` in JSON is the name of the class."""


class Assign(_Message, frozen=True):
    """Run a task; `epoch` is the JobManager's epoch, for the log."""

    replica: ProcessorReplica
    epoch: Count


class Revoke(_Message, frozen=True):
    """Commit and close a task."""

    task: TaskId


class Stop(_Message, frozen=True):
    """Commit and close all tasks, and end."""


class Die(_Message, frozen=True):
    """End at once, without a commit, because the worker hangs."""


class Ping(_Message, frozen=True):
    """The driver is alive; `is_sure` tells whether tasks may fence others (`Contact`)."""

    is_sure: bool


class Dump(_Message, frozen=True):
    """Write the stacks of all Python threads to the log."""


class Ask(_Message, frozen=True):
    """A query of state to answer; the `Answer` has the same `number`.

    `kind` is `stores`, `get` or `scan`. `stores` asks for all stores of the thread; its `task` is
    `None`, and its `store` is "". `parameters` come from the URL, unchecked.
    """

    number: Count
    kind: str = msgspec.field(name="query")
    task: TaskId | None
    store: str
    parameters: Mapping[str, str]


Command = Assign | Revoke | Stop
"""The commands for the loop of a PipelineThread; the channel handles the other messages."""

ToWorker = Command | Die | Ping | Dump | Ask


class Hello(_Message, frozen=True):
    """The first message of a worker: it is up and accepts tasks.

    `place` is equal for two processes only if they see the same process ids.
    """

    thread: Count
    # The driver sends signals to this id, and 0 would mean the driver and its children.
    pid: Positive
    place: str


class Status(_Message, frozen=True):
    """The worker is alive; `tasks` are those that have changed since its last status."""

    tasks: tuple[TaskStatus, ...]


class TaskMeasures(NamedTuple):
    """The durations of a task's turns and commits, and the counters and gauges of its user code.

    All of it since the thread took the task over.
    """

    turns: Times
    commits: Times
    counted: tuple[tuple[UserSeries, float], ...] = ()
    gauges: tuple[tuple[UserSeries, float], ...] = ()


class Measured(_Message, frozen=True):
    """Measurements for metrics only: the worker's memory (0 if unknown), and measures of tasks.

    `tasks` holds those that have changed since the last message.
    """

    resident_bytes: Count
    tasks: Mapping[TaskId, TaskMeasures]


class Answer(_Message, frozen=True):
    """The answer to the `Ask` with this number: an HTTP status, and a JSON object."""

    number: Count
    status: Annotated[int, Meta(ge=100)]
    body: Mapping[str, Any]


class Closed(_Message, frozen=True):
    """The thread has closed a task, since it was revoked, or lost (lease, fence)."""

    task: TaskId


class Ending(_Message, frozen=True):
    """The worker ends itself now, without closing anything."""

    reason: str


class Died(_Message, frozen=True):
    """A worker process has ended; its parent process sends this over a connection of its own.

    If it `goes_on`, the parent starts another process in its place at once.
    """

    thread: Count
    pid: Positive
    death: Death
    goes_on: bool


class Stopped(_Message, frozen=True):
    """The thread has carried out `Stop`: all tasks are committed and closed."""


ToDriver = Hello | Status | Measured | Answer | Closed | Ending | Died | Stopped

ChannelMessage = ToWorker | ToDriver


class _Assign(Struct, frozen=True, tag_field="type", tag="assign"):
    replica: dict[str, Any]
    parameters: dict[str, Any]
    fingerprint: str
    epoch: Count


class _Measured(Struct, frozen=True, tag_field="type", tag="measured"):
    resident_bytes: Count
    tasks: dict[str, TaskMeasures]


_READ = (
    _Assign
    | Revoke
    | Stop
    | Die
    | Ping
    | Dump
    | Ask
    | Hello
    | Status
    | _Measured
    | Answer
    | Closed
    | Ending
    | Died
    | Stopped
)


def encode(message: ChannelMessage) -> bytes:
    """Return a message as JSON."""
    fields = as_json(message)
    match message:
        case Assign(replica, epoch):
            fields = {
                "replica": replica.to_json(),
                "parameters": replica.parameters(),
                "fingerprint": replica.fingerprint,
                "epoch": epoch,
            }
        case Status(tasks):
            always = ("thread", "fingerprint")
            fields = {
                "tasks": [{n: getattr(each, n) for n in always} | as_json(each) for each in tasks]
            }
    return dump({"type": type(message).__name__.lower(), **fields})


def decode(data: bytes) -> ChannelMessage:
    """Return the message that `encode` wrote.

    Raises `MalformedMessageError` for anything else. The error names the problem and, if known, the
    type of the message.
    """
    about = "message"
    try:
        # Not `parse`: the content of stores may be nested deeply, and may not be valid UTF-8.
        found = json.loads(data)
        kind = found.get("type") if isinstance(found, dict) else None
        if kind != "answer":
            json.dumps(found, ensure_ascii=False).encode()
        if isinstance(kind, str):
            about = shorten(kind, 20)
        return _message(from_json(_READ, found, "the JSON"))
    except (ValueError, RecursionError) as error:
        reason = shorten(str(error), _LONGEST_REASON)
        raise MalformedMessageError(f"{about}: {reason}") from error


def _message(read: Any) -> ChannelMessage:
    match read:
        case _Assign(replica, parameters, fingerprint, epoch):
            made = ProcessorReplica.from_json(replica, parameters)
            return Assign(replace(made, assigned_as=fingerprint), epoch)
        case _Measured(resident_bytes, tasks):
            # msgspec reads the names of a parsed object only as strings.
            return Measured(resident_bytes, {TaskId.parse(task): tasks[task] for task in tasks})
    found: ChannelMessage = read
    return found
