"""Seeded garbage for the control topics; no part of it may be carried out or do harm."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from kafka_pipeline.common.pipelines.specs import ForwardSpec
from kafka_pipeline.common.protocol.codec import PROTOCOL_VERSION, Codec
from kafka_pipeline.common.protocol.messages import (
    JOB_MANAGER,
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
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus, ThreadState
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topic_names import TopicNames

HUGE_BYTES = 900_000

_ABSURD: tuple[Any, ...] = (
    -1,
    -(10**30),
    10**30,
    2**63,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "\ud800",
    "x" * 10_000,
    None,
    True,
    [],
    {},
    [[]],
)
_WORDS = (b"sos", b"ping", b"up", b"down", b"eos", b"", b"0", b"PING", b"sos\n", b"{}", b"null")
_KEYS = (b"", b"-1", b"0", b"1", b" 1", b"1.0", b"01", b"\xff", b"9" * 5000, JOB_MANAGER.encode())
_SHAPES = (b"null", b"0", b'""', b"[]", b"{}", b"[{}]", b'{"tm_id":{}}', b"NaN", b"{", b"\xff\xfe")


def messages(
    random: Random,
    names: TopicNames,
    task_managers: int = 2,
    tasks: Sequence[TaskId] = (TaskId("Counter", 0), TaskId("Counter", 1)),
) -> Iterator[ControlRecord]:
    """Yield records without end, the same ones for the same state of `random`.

    `task_managers` and `tasks` are those of the pipeline, whose ids are also used. No record is
    larger than 1 MB. No record is meant to be carried out. Reports come from TaskManagers that are
    leaving but never existed, or whose id is out of range. Commands are addressed to incarnations
    that do not exist. A forged `sos` only makes the JobManager lead under a new epoch.
    """
    forger = _Forger(random, names, task_managers, tasks)
    forged = [forger.noise()]
    while True:
        yield from forged
        forged = forged[-1:] if random.random() < 0.1 else forger.forge()


class _Forger:
    """Creates records of one kind each; the kinds are the methods that `forge` names."""

    def __init__(
        self, random: Random, names: TopicNames, task_managers: int, tasks: Sequence[TaskId]
    ) -> None:
        self._random = random
        self._names = names
        self._codec = Codec(names)
        self._task_managers = task_managers
        self._tasks = tasks
        ids = range(task_managers)
        self._topics = (
            names.threads_jm,
            names.threads_tm,
            names.heartbeat,
            names.heartbeat_events,
            *(names.processors(str(tm_id)) for tm_id in ids),
        )

    def forge(self) -> list[ControlRecord]:
        """Return a record, or the records of a command, of a random kind."""
        kind = self._random.randrange(80)
        if kind == 0:
            return [self.huge()]
        if kind < 3:
            return self.encoded(Sos(-1, self._text()))
        if kind < 10:
            return self.encoded(self._message())
        singles = (
            self.noise,
            self.wrong_shape,
            self.truncated,
            self.mutated,
            self.other_version,
            self.other_headers,
            self.nonsense,
            self.absurd,
        )
        return [singles[kind % len(singles)]()]

    def encoded(self, message: Message) -> list[ControlRecord]:
        """A message as its encoder writes it, but from or to a process that does not exist."""
        return self._codec.encode(message, self._random.randrange(2**41))

    def noise(self) -> ControlRecord:
        """Random bytes everywhere."""
        headers = [(self._text(), self._bytes(40)) for _ in range(self._random.randrange(5))]
        return ControlRecord(self._topic(), self._bytes(8), self._bytes(200), tuple(headers))

    def wrong_shape(self) -> ControlRecord:
        """Valid headers with JSON (or almost JSON) of another shape."""
        record = self._single()
        shape = self._random.choice(_SHAPES)
        if self._random.random() < 0.5:
            record = replace(record, value=shape)
        return _with_headers(record, {"report": shape, "figures": shape, "parameters": shape})

    def truncated(self) -> ControlRecord:
        """A record with a truncated header, and in half of all cases a truncated value."""
        record = self._single()
        name, value = self._random.choice(record.headers)
        cut = _with_headers(record, {name: value[: self._random.randrange(len(value) + 1)]})
        if self._random.random() < 0.5:
            return cut
        return replace(cut, value=record.value[: self._random.randrange(len(record.value) + 1)])

    def mutated(self) -> ControlRecord:
        """A record with flipped, doubled or dropped bytes in one of its parts."""
        record = self._single()
        part = self._random.randrange(len(record.headers) + 2)
        if part == 0:
            return replace(record, value=self._mutated(record.value))
        if part == 1:
            return replace(record, key=self._mutated(record.key))
        name, value = record.headers[part - 2]
        return _with_headers(record, {name: self._mutated(value)})

    def other_version(self) -> ControlRecord:
        """A record of a future version, or of another kind of program."""
        versions = (PROTOCOL_VERSION + 1, 0, -1, 10**30)
        texts = (*(b"%d" % version for version in versions), b"", b"one", b"1.0", b"\xff")
        return _with_headers(self._single(), {"version": self._random.choice(texts)})

    def other_headers(self) -> ControlRecord:
        """A record with missing, doubled or reordered headers."""
        record = self._single()
        headers = list(record.headers)
        self._random.shuffle(headers)
        if self._random.random() < 0.5:
            headers.pop()
        else:
            name, _ = self._random.choice(headers)
            headers.insert(self._random.randrange(len(headers) + 1), (name, self._bytes(20)))
        return replace(record, headers=tuple(headers))

    def nonsense(self) -> ControlRecord:
        """Words of the protocol where they have no meaning."""
        record = replace(self._single(), topic=self._topic(), value=self._random.choice(_WORDS))
        return replace(record, key=self._random.choice(_KEYS))

    def absurd(self) -> ControlRecord:
        """A report, or the JobManager's heartbeat, with absurd values somewhere in it."""
        record = self.encoded(Heartbeat(self._report()))[0]
        if self._random.random() < 0.2:
            record = self.encoded(self._job_manager_beat())[0]
        elif self._random.random() < 0.3:
            record = replace(record, topic=self._names.threads_tm)
        if self._random.random() < 0.1:
            opening = self._random.choice((b"[", b'{"tasks":'))
            return _with_headers(record, {"report": opening * self._random.choice((50, 50_000))})
        headers = dict(record.headers)
        name = self._random.choice([name for name in ("report", "figures") if name in headers])
        body = self._with_absurd(json.loads(headers[name]))
        return _with_headers(record, {name: json.dumps(body).encode()})

    def huge(self) -> ControlRecord:
        """A record of almost the largest size that a topic accepts."""
        record = self._single()
        if self._random.random() < 0.5:
            return replace(record, value=self._random.choice((b"x", b"[", b"9")) * HUGE_BYTES)
        return self.encoded(Heartbeat(replace(self._report(), host="x" * HUGE_BYTES)))[0]

    def _single(self) -> ControlRecord:
        return self._random.choice(self.encoded(self._message()))

    def _message(self) -> Message:
        epoch = self._random.choice((-1, 0, 1, 2, 10**30))
        facts = (self._random.randrange(self._task_managers), self._text(), epoch)
        sequence = self._random.choice((0, 1, 100, 10**30))
        tasks = tuple(self._random.sample(self._tasks, min(len(self._tasks), 2)))
        return self._random.choice(
            (
                Threads(self._report()),
                Heartbeat(self._report()),
                self._job_manager_beat(),
                HeartbeatEvent(facts[0], self._random.random() < 0.5),
                Refused(*facts, "garbage"),
                ReportRequest(*facts),
                Processors(*facts, sequence, revoke=tasks),
                Processors(*facts, sequence, assign=tuple(self._replica(t) for t in tasks)),
            )
        )

    def _report(self) -> Report:
        """Return a report of a TaskManager that leaves but never existed, or has an invalid id."""
        leaving = self._random.random() < 0.5
        # Few ids, since a broker may create a topic for each one that is answered.
        strangers = (self._task_managers, self._task_managers + 7, 10**30)
        known = self._random.randrange(self._task_managers)
        return Report(
            known if leaving else self._random.choice(strangers),
            self._text(),
            threads=self._random.choice((1, 4, 10**30)),
            beat=self._random.choice((0, 1, 10**30)),
            epoch=self._random.choice((-1, 0, 10**30)),
            sequence=self._random.choice((0, 5, 10**30)),
            leaving=leaving,
            thread_states=(ThreadState.RUNNING,),
            tasks=tuple(TaskStatus(task, TaskState.FAILED) for task in self._tasks),
            base=self._random.choice((None, 0, 10**30)),
            closed=tuple(self._tasks),
        )

    def _job_manager_beat(self) -> JobManagerBeat:
        return JobManagerBeat(self._random.choice((0, 10**30)), 0, {TaskId("Nobody", 0): None})

    def _replica(self, task: TaskId) -> ProcessorReplica:
        source, sink = (self._names.source,), (self._names.sink,)
        return ProcessorReplica(task, ForwardSpec(), ("source",), ("sink",), source, sink)

    def _with_absurd(self, body: Any) -> Any:
        """Return a JSON document with one thing replaced, anywhere in it."""
        if isinstance(body, dict) and body and self._random.random() < 0.9:
            name = self._random.choice(sorted(body))
            return {**body, name: self._with_absurd(body[name])}
        if isinstance(body, list) and body and self._random.random() < 0.9:
            return [self._with_absurd(body[0]), *body[1:]]
        return self._random.choice(_ABSURD)

    def _mutated(self, data: bytes) -> bytes:
        start = self._random.randrange(len(data) + 1)
        stop = min(start + self._random.randrange(1, 9), len(data))
        how = self._random.randrange(3)
        if how == 0:
            flipped = bytes(byte ^ (1 << self._random.randrange(8)) for byte in data[start:stop])
            return data[:start] + flipped + data[stop:]
        return data[:start] + data[start:stop] * (2 if how == 1 else 0) + data[stop:]

    def _topic(self) -> str:
        return self._random.choice(self._topics)

    def _bytes(self, at_most: int) -> bytes:
        return self._random.randbytes(self._random.randrange(at_most + 1))

    def _text(self) -> str:
        return f"{self._random.getrandbits(48):x}"


def _with_headers(record: ControlRecord, changes: Mapping[str, bytes]) -> ControlRecord:
    """Return a copy in which some of the existing headers have other values."""
    headers = tuple((name, changes.get(name, value)) for name, value in record.headers)
    return replace(record, headers=headers)
