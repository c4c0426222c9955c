"""The messages of the driver channel, as values and as JSON.

Each message is named like its type on the wire, so import the module and write
`channel_messages.Closed`. `events.py` and `thread_events.py` have similar names for the inputs of
the cores, but those are different values. An event of the TaskManager's core names the thread; a
message need not, since the connection identifies it. The core of a PipelineThread sees what its
shell made of commands, such as all revocations that arrived together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.common.errors import shorten
from kafka_pipeline.common.messages import MalformedMessageError, ProcessorReplica
from kafka_pipeline.common.monitoring.times import Times
from kafka_pipeline.common.reports import dump
from kafka_pipeline.common.status import TaskStatus
from kafka_pipeline.common.suspects import Death, Suspect
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.typed_json import as_json, from_json
from kafka_pipeline.common.wire import JsonObject

_LONGEST_REASON = 200


@dataclass(frozen=True, slots=True)
class Assign:
    """Run a task; `epoch` is the JobManager's epoch, for the log."""

    replica: ProcessorReplica
    epoch: int


@dataclass(frozen=True, slots=True)
class Revoke:
    """Commit and close a task."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class Stop:
    """Commit and close all tasks, and end."""


@dataclass(frozen=True, slots=True)
class Die:
    """End at once, without a commit, because the worker hangs."""


@dataclass(frozen=True, slots=True)
class Ping:
    """The driver is alive."""


@dataclass(frozen=True, slots=True)
class Dump:
    """Write the stacks of all Python threads to the log."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Answer a query of state; `number` is that of the `Answer`.

    `kind` is `stores`, `get` or `scan`. `stores` asks for all stores of the thread; its `task` is
    `None`, and its `store` is "". `parameters` come from the URL, unchecked.
    """

    number: int
    kind: str
    task: TaskId | None
    store: str
    parameters: Mapping[str, str]


Command = Assign | Revoke | Stop
"""The commands for the loop of a PipelineThread; the channel handles the other messages."""

ToWorker = Command | Die | Ping | Dump | Ask


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a worker: it is up and accepts tasks.

    `place` is the same for two processes only if they see the same process ids.
    """

    thread: int
    pid: int
    place: str


@dataclass(frozen=True, slots=True)
class Status:
    """The worker is alive; `tasks` holds those that have changed since its last status."""

    tasks: tuple[TaskStatus, ...]


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """How long the turns and the commits of a task took since it came to the thread."""

    turns: Times
    commits: Times


@dataclass(frozen=True, slots=True)
class Measured:
    """What only metrics show: the memory of the worker, 0 if unknown, and the times of tasks.

    `tasks` holds those whose times have changed since the last message.
    """

    resident_bytes: int
    tasks: Mapping[TaskId, TaskTimes]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to the `Ask` with this number: a status of HTTP, and a JSON object."""

    number: int
    status: int
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Closed:
    """The thread no longer has a task: it was revoked, or lost (lease, fence)."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class Ending:
    """The worker ends itself now, without closing anything."""

    reason: str


@dataclass(frozen=True, slots=True)
class Died:
    """A worker process has ended; the parent process says so, which connects for that.

    If it `goes_on`, the parent starts another process in its place at once.
    """

    thread: int
    pid: int
    death: Death
    goes_on: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    """The thread has carried out `Stop`: all tasks are committed and closed."""


ToDriver = Hello | Status | Measured | Answer | Closed | Ending | Died | Stopped

ChannelMessage = ToWorker | ToDriver


def encode(message: ChannelMessage) -> bytes:
    """Return a message as JSON."""
    match message:
        case Assign(replica, epoch):
            parts = {"replica": replica.to_json(), "parameters": replica.parameters()}
            return _dump("assign", **parts, epoch=epoch)
        case Revoke(task):
            return _dump("revoke", task=str(task))
        case Stop():
            return _dump("stop")
        case Die():
            return _dump("die")
        case Ping():
            return _dump("ping")
        case Dump():
            return _dump("dump")
        case Ask(number, kind, task, store, parameters):
            return _dump(
                "ask",
                number=number,
                query=kind,
                task=None if task is None else str(task),
                store=store,
                parameters=dict(parameters),
            )
        case Hello(thread, pid, place):
            return _dump("hello", thread=thread, pid=pid, place=place)
        case Status(tasks):
            return _dump("status", tasks=[task.to_json() for task in tasks])
        case Measured(resident_bytes, times):
            return _dump(
                "measured",
                resident_bytes=resident_bytes,
                tasks={
                    str(task): [of.turns.to_json(), of.commits.to_json()]
                    for task, of in times.items()
                },
            )
        case Answer(number, status, body):
            return _dump("answer", number=number, status=status, body=dict(body))
        case Closed(task):
            return _dump("closed", task=str(task))
        case Ending(reason):
            return _dump("ending", reason=reason)
        case Died(thread, pid, death, goes_on):
            return _dump(
                "died",
                thread=thread,
                pid=pid,
                how=death.how,
                calls=_calls(death),
                goes_on=goes_on,
            )
        case Stopped():
            return _dump("stopped")


def decode(data: bytes) -> ChannelMessage:
    """Return the message that `encode` serialized.

    Raises `MalformedMessageError` for anything else. The error names the problem and, if there is
    one, the type of the message.
    """
    about = "message"
    try:
        fields = JsonObject(json.loads(data))
        kind = fields.text("type")
        about = shorten(kind, 20)
        return _read(kind, fields)
    except (ValueError, RecursionError) as error:
        reason = shorten(str(error), _LONGEST_REASON)
        raise MalformedMessageError(f"{about}: {reason}") from error


def _dump(kind: str, **fields: Any) -> bytes:
    return dump({"type": kind, **fields})


def _read(kind: str, fields: JsonObject) -> ChannelMessage:
    match kind:
        case "assign":
            replica = ProcessorReplica.from_json(fields.raw("replica"), fields.raw("parameters"))
            return Assign(replica, fields.integer("epoch"))
        case "revoke":
            return Revoke(TaskId.parse(fields.text("task")))
        case "stop":
            return Stop()
        case "die":
            return Die()
        case "ping":
            return Ping()
        case "dump":
            return Dump()
        case "ask":
            task = None if fields.raw("task") is None else TaskId.parse(fields.text("task"))
            parameters = JsonObject(fields.object("parameters"))
            return Ask(
                fields.integer("number"),
                fields.text("query"),
                task,
                fields.text("store"),
                {name: parameters.text(name) for name in fields.object("parameters")},
            )
        case "hello":
            # The driver sends signals to this id, and 0 would mean the driver and its children.
            pid = fields.integer("pid", low=1)
            return Hello(fields.integer("thread"), pid, fields.text("place"))
        case "status":
            return Status(tuple(TaskStatus.from_json(task) for task in fields.items("tasks")))
        case "measured":
            times = {TaskId.parse(t): _times(of) for t, of in fields.object("tasks").items()}
            return Measured(fields.integer("resident_bytes"), times)
        case "answer":
            status = fields.integer("status", low=100)
            return Answer(fields.integer("number"), status, fields.object("body"))
        case "closed":
            return Closed(TaskId.parse(fields.text("task")))
        case "ending":
            return Ending(fields.text("reason"))
        case "died":
            calls = tuple(map(_call, fields.items("calls")))
            death = Death(fields.text("how"), calls)
            pid, goes_on = fields.integer("pid", low=1), fields.boolean("goes_on")
            return Died(fields.integer("thread"), pid, death, goes_on)
        case "stopped":
            return Stopped()
    raise ValueError("unknown type")


def _calls(death: Death) -> list[dict[str, Any]]:
    return [{"task": str(task), "call": as_json(call)} for task, call in death.calls]


def _call(data: Any) -> tuple[TaskId, Suspect]:
    fields = JsonObject(data)
    call = from_json(Suspect, fields.object("call"), "call")
    return TaskId.parse(fields.text("task")), call


def _times(data: Any) -> TaskTimes:
    if not isinstance(data, list) or len(data) != 2:
        raise ValueError("times of turns and of commits are missing")
    return TaskTimes(*map(Times.from_json, data))
