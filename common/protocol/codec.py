"""Encodes control messages as Kafka records and decodes them.

Keys and values are the original's, byte for byte; additional facts are in these headers:

    version    protocol version, on every record
    sent_at    milliseconds since the epoch, on every record
    epoch, sequence, incarnation, action                  on JobManager commands
    parameters, fingerprint                               on assignments
    report     JSON, on what TaskManagers send, and on the JobManager's own heartbeat
    figures    JSON, on what TaskManagers send: facts that are only displayed
    part       number and count, such as 0/3, on the parts of a message too long for one record
    signature  HMAC-SHA256 of the record, if the job has a key; always the last header
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from msgspec import Struct

from kafka_pipeline.common.engine_version import RUNNING_VERSION
from kafka_pipeline.common.errors import shorten
from kafka_pipeline.common.protocol.messages import (
    JOB_MANAGER,
    MAX_RECORD_BYTES,
    ControlRecord,
    Heartbeat,
    HeartbeatEvent,
    JobManagerBeat,
    MalformedMessageError,
    Message,
    OtherProtocolError,
    ProcessorReplica,
    Processors,
    Refused,
    Report,
    ReportRequest,
    Sos,
    TaskNumber,
    Threads,
    WrittenTask,
)
from kafka_pipeline.common.protocol.reports import (
    decode_owners,
    decode_report,
    encode_owners,
    encode_report,
)
from kafka_pipeline.common.protocol.signing import require_signed, signed
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.security.control_key import ControlKey
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.common.typed_json import dump, from_json, parse

PROTOCOL_VERSION = 6
"""Managers with the same number understand each other; docs/how-to/upgrade.md has the rules."""
MOST_ASSIGNMENT_BYTES = MAX_RECORD_BYTES * 9 // 10
"""The most that an assignment may have before suspects, a signature and the like are added."""
_MAX_BATCHES = 8
_MAX_BATCH_BYTES = 32_000_000
"""A larger batch is rejected."""
_RECORD_BYTES = 1000
"""The approximate memory of a record in addition to its content."""
_MAX_WAITING_BYTES = 32_000_000
"""When the parts of incomplete messages exceed this, a reader drops the oldest message."""
_NUMBER = re.compile(rb"0|[1-9][0-9]{0,18}")
_LONGEST_PROBLEM = 200
_FINGERPRINT = re.compile(rb"[0-9a-f]{1,64}")

ControlHeaders = tuple[tuple[str, bytes], ...]

_ASSIGN, _REVOKE, _REFUSE, _END = b"assign", b"revoke", b"refuse", b"eos"
_REPORT = b"report"

_Part = Heartbeat | Threads | JobManagerBeat


@dataclass(slots=True)
class _Waiting:
    """The parts of an incomplete message that have come, from the first one on."""

    number: int
    parts: list[_Part]
    size: int


@dataclass(slots=True)
class _Batch:
    """The commands of a batch that have come; dropped once they are too large."""

    records: list[tuple[bytes, ControlRecord]] = field(default_factory=list)
    size: int = 0

    @property
    def is_too_large(self) -> bool:
        return self.size > _MAX_BATCH_BYTES

    def add(self, action: bytes, record: ControlRecord) -> None:
        self.records.append((action, record))
        self.size += _RECORD_BYTES + _size(record)
        if self.is_too_large:
            self.records.clear()


class Codec:
    """Encodes messages for the topics of one job, and decodes records of these topics.

    Decoding keeps the commands of a batch until its `eos`, and the parts of a report until the
    last one, so use one codec per reader. A message with a missing part is never returned.
    """

    def __init__(
        self, names: TopicNames, reads_figures: bool = True, key: ControlKey | None = None
    ) -> None:
        """Without `reads_figures`, leave out the facts that are only displayed.

        These are the figures of tasks, and the owners in the JobManager's heartbeat. With a `key`,
        all records are signed, and records without a signature are malformed.
        """
        self._names = names
        self._key = key
        self._reads_figures = reads_figures
        self._batches: dict[tuple[int, str, int, int], _Batch] = {}
        self._waiting: dict[tuple[str, bytes, str], _Waiting] = {}
        self._waiting_bytes = 0

    @property
    def is_signed(self) -> bool:
        """Whether it signs records, and accepts only signed ones."""
        return self._key is not None

    def encode(self, message: Message, sent_at_ms: int) -> list[ControlRecord]:
        """Return the records of a message, in the order to write them."""
        records = self._encode(message, sent_at_ms)
        return records if self._key is None else [signed(each, self._key) for each in records]

    def _encode(self, message: Message, sent_at_ms: int) -> list[ControlRecord]:
        base: ControlHeaders = (
            ("version", b"%d" % PROTOCOL_VERSION),
            ("sent_at", b"%d" % sent_at_ms),
        )
        names = self._names
        match message:
            case Sos(_, incarnation):
                headers = (*base, ("incarnation", incarnation.encode()))
                return [ControlRecord(names.threads_jm, b"", b"sos", headers)]
            case Threads(report):
                return self._report(names.threads_tm, report, b"%d" % report.threads, base)
            case Heartbeat(report):
                return self._report(names.heartbeat, report, b"ping", base)
            case JobManagerBeat():
                key = JOB_MANAGER.encode()
                parts = [(("report", part),) for part in encode_owners(message)]
                return [
                    ControlRecord(names.heartbeat, key, b"ping", (*base, *headers))
                    for headers in _numbered(parts)
                ]
            case HeartbeatEvent(tm_id, is_up):
                value = b"up" if is_up else b"down"
                return [ControlRecord(names.heartbeat_events, b"%d" % tm_id, value, base)]
            case Refused(tm_id, incarnation, epoch, reason):
                headers = (*base, *_command(epoch, 0, incarnation, _REFUSE))
                return [self._to_task_manager(tm_id, reason.encode(), headers)]
            case ReportRequest(tm_id, incarnation, epoch):
                headers = (*base, *_command(epoch, 0, incarnation, _REPORT))
                return [self._to_task_manager(tm_id, _REPORT, headers)]
            case Processors():
                return self._processors(message, base)

    def decode(self, record: ControlRecord) -> Message | None:
        """Return the message of a record, or `None` while its batch or its parts are incomplete.

        Raises `MalformedMessageError` for anything that no encoder of this protocol version wrote,
        and `BadSignatureError` for a record without a signature of the key. The caller counts the
        record and goes on.
        """
        try:
            return self._decode(record)
        except MalformedMessageError:
            raise
        except (ValueError, KeyError) as error:
            raise MalformedMessageError(f"{record.topic}: {type(error).__name__}") from error

    def _report(
        self, topic: str, report: Report, value: bytes, base: ControlHeaders
    ) -> list[ControlRecord]:
        key = b"%d" % report.tm_id
        parts = [
            (("report", acted_on), ("figures", figures))
            for acted_on, figures in encode_report(report)
        ]
        return [ControlRecord(topic, key, value, (*base, *headers)) for headers in _numbered(parts)]

    def _to_task_manager(self, tm_id: int, value: bytes, headers: ControlHeaders) -> ControlRecord:
        return ControlRecord(self._names.processors(str(tm_id)), b"%d" % tm_id, value, headers)

    def _processors(self, message: Processors, base: ControlHeaders) -> list[ControlRecord]:
        records = []
        facts = (message.epoch, message.sequence, message.incarnation)
        for task in message.revoke:
            copy = {"standby": task.standby} if task.standby else {}
            value = dump({"pipelineID": task.partition, "ID": task.processor, **copy})
            headers = (*base, *_command(*facts, _REVOKE))
            records.append(self._to_task_manager(message.tm_id, value, headers))
        for replica in message.assign:
            headers = (
                *base,
                *_command(*facts, _ASSIGN),
                ("parameters", dump(replica.parameters())),
                ("fingerprint", replica.fingerprint.encode()),
            )
            records.append(self._to_task_manager(message.tm_id, dump(replica.to_json()), headers))
        headers = (*base, *_command(*facts, _END))
        records.append(self._to_task_manager(message.tm_id, b"eos", headers))
        return records

    def _decode(self, record: ControlRecord) -> Message | None:
        if _size(record) > MAX_RECORD_BYTES:
            raise MalformedMessageError(f"{record.topic}: over {MAX_RECORD_BYTES} bytes")
        if self._key is not None:
            require_signed(record, self._key)
        headers = dict(record.headers)
        if (found := _number(headers["version"])) != PROTOCOL_VERSION:
            raise OtherProtocolError(f"{record.topic}: {_other_protocol(found)}")
        names = self._names
        if record.topic == names.threads_jm and record.value == b"sos":
            return Sos(record.offset, headers["incarnation"].decode())
        if record.topic == names.threads_tm:
            report = self._read_report(record, headers)
            sender = (report.incarnation, report.beat)
            return self._collect(Threads(report), sender, record, headers)
        if record.topic == names.heartbeat and record.value == b"ping":
            if record.key == JOB_MANAGER.encode():
                sent_at_ms = _number(headers["sent_at"])
                beat = decode_owners(headers["report"], sent_at_ms, self._reads_figures)
                return self._collect(beat, (str(beat.epoch), sent_at_ms), record, headers)
            report = self._read_report(record, headers)
            sender = (report.incarnation, report.beat)
            return self._collect(Heartbeat(report), sender, record, headers)
        if record.topic == names.heartbeat_events and record.value in (b"up", b"down"):
            return HeartbeatEvent(_number(record.key), record.value == b"up")
        if record.topic == names.processors(str(_number(record.key))):
            return self._decode_command(record, headers)
        raise MalformedMessageError(f"{record.topic}: unknown message")

    def _read_report(self, record: ControlRecord, headers: dict[str, bytes]) -> Report:
        figures = headers["figures"]
        report = decode_report(headers["report"], figures if self._reads_figures else None)
        if report.tm_id != _number(record.key):
            raise MalformedMessageError(f"{record.topic}: the key is not the report's id")
        return report

    def _collect(
        self,
        part: _Part,
        sender: tuple[str, int],
        record: ControlRecord,
        headers: dict[str, bytes],
    ) -> _Part | None:
        """Return a message once all its parts have come, in order; `sender` includes its number."""
        number, count = (_number(text) for text in headers.get("part", b"0/1").split(b"/"))
        if not 0 <= number < count:
            raise MalformedMessageError(f"{record.topic}: part {number} of {count}")
        key = (record.topic, record.key, sender[0])
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            self._waiting_bytes -= waiting.size
        if number == 0:
            waiting = _Waiting(sender[1], [], 0)
        elif waiting is None or (waiting.number, len(waiting.parts)) != (sender[1], number):
            return None
        waiting.parts.append(part)
        if number + 1 == count:
            return _joined(waiting.parts)
        waiting.size += sum(len(value) for _, value in record.headers)
        self._waiting_bytes += waiting.size
        self._waiting[key] = waiting
        while self._waiting_bytes > _MAX_WAITING_BYTES:
            self._waiting_bytes -= self._waiting.pop(next(iter(self._waiting))).size
        return None

    def _decode_command(self, record: ControlRecord, headers: dict[str, bytes]) -> Message | None:
        tm_id, incarnation = _number(record.key), headers["incarnation"].decode()
        epoch, sequence = _number(headers["epoch"]), _number(headers["sequence"])
        action = headers["action"]
        if action == _REFUSE:
            return Refused(tm_id, incarnation, epoch, record.value.decode())
        if action == _REPORT:
            return ReportRequest(tm_id, incarnation, epoch)
        key = (tm_id, incarnation, epoch, sequence)
        batch = self._batches.setdefault(key, _Batch())
        while len(self._batches) > _MAX_BATCHES:
            # The oldest batch will never end: a JobManager writes each batch in one piece.
            del self._batches[next(iter(self._batches))]
        if action in (_ASSIGN, _REVOKE):
            batch.add(action, record)
            return None
        if action != _END:
            raise MalformedMessageError(f"{record.topic}: unknown action")
        # Batches to one process end in order, so its older ones will never be completed.
        self._batches = {
            other: records
            for other, records in self._batches.items()
            if other[:2] != key[:2] or other[2:] > key[2:]
        }
        if batch.is_too_large:
            raise MalformedMessageError(f"{record.topic}: a batch over {_MAX_BATCH_BYTES} bytes")
        records = batch.records
        assigned = [_read_assignment(entry) for action, entry in records if action == _ASSIGN]
        return Processors(
            tm_id,
            incarnation,
            epoch,
            sequence,
            assign=tuple(each for each in assigned if not isinstance(each, TaskStatus)),
            revoke=tuple(_read_task(entry) for action, entry in records if action == _REVOKE),
            unreadable=tuple(each for each in assigned if isinstance(each, TaskStatus)),
        )


def assignment_bytes(replica: ProcessorReplica) -> int:
    """Return how much of a record the assignment of a task takes."""
    return len(dump(replica.to_json())) + len(dump(replica.parameters()))


def _size(record: ControlRecord) -> int:
    headers = sum(len(name) + len(value) for name, value in record.headers)
    return len(record.key) + len(record.value) + headers


def _command(epoch: int, sequence: int, incarnation: str, action: bytes) -> ControlHeaders:
    return (
        ("epoch", b"%d" % epoch),
        ("sequence", b"%d" % sequence),
        ("incarnation", incarnation.encode()),
        ("action", action),
    )


def _numbered(parts: Sequence[ControlHeaders]) -> list[ControlHeaders]:
    """Add the header `part`, if there are several parts."""
    if len(parts) == 1:
        return [*parts]
    return [(*part, ("part", b"%d/%d" % (n, len(parts)))) for n, part in enumerate(parts)]


def _number(data: bytes) -> int:
    """Return the whole number (0..) that `b"%d"` wrote. Raises ValueError for anything else.

    `int` would also accept signs, blanks and underscores.
    """
    if _NUMBER.fullmatch(data) is None:
        raise ValueError("not a number from 0 up")
    return int(data)


def _joined(parts: Sequence[_Part]) -> _Part:
    """Return the message that was split into these parts."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, JobManagerBeat):
        beats = [part for part in parts if isinstance(part, JobManagerBeat)]
        owners = {task: owner for beat in beats for task, owner in beat.owners.items()}
        return replace(first, owners=owners)
    reports = [part.report for part in parts if not isinstance(part, JobManagerBeat)]
    tasks = tuple(status for report in reports for status in report.tasks)
    closed = tuple(task for report in reports for task in report.closed)
    return replace(first, report=replace(first.report, tasks=tasks, closed=closed))


def _other_protocol(found: int) -> str:
    it = "a newer" if found > PROTOCOL_VERSION else "an older"
    return (
        f"{it} version of the engine wrote the message: protocol {found}, and this one "
        f"({RUNNING_VERSION}) reads {PROTOCOL_VERSION}. These two versions cannot run together: "
        "stop all managers of the job, and start all of them with one version"
    )


def _read_assignment(record: ControlRecord) -> ProcessorReplica | TaskStatus:
    """Return an assignment, or its task as FAILED if a newer JobManager has written more.

    Earlier JobManagers write no fingerprint, and nothing that this version cannot read.
    """
    headers = dict(record.headers)
    value, parameters = parse(record.value), parse(headers["parameters"])
    fingerprint = headers.get("fingerprint")
    if fingerprint is None:
        return ProcessorReplica.from_json(value, parameters)
    if _FINGERPRINT.fullmatch(fingerprint) is None:
        raise ValueError("not a fingerprint")
    try:
        replica = ProcessorReplica.from_json(value, parameters)
    except ValueError as error:
        copy: _Copy = from_json(_Copy, parameters, "the parameters")
        written: WrittenTask = from_json(WrittenTask, value, "the task")
        task = TaskId(written.processor, written.partition, copy.standby)
        reason = (
            f"this TaskManager's version of the engine ({RUNNING_VERSION}) cannot read the "
            f"assignment: {shorten(str(error), _LONGEST_PROBLEM)}. Install the version of the "
            "JobManager on this host too"
        )
        return TaskStatus(task, TaskState.FAILED, reason, fingerprint=fingerprint.decode())
    return replace(replica, assigned_as=fingerprint.decode())


class _Copy(Struct, frozen=True):
    """The only parameter of an assignment that is a part of the task's id."""

    standby: TaskNumber = 0


def _read_task(record: ControlRecord) -> TaskId:
    task: WrittenTask = from_json(WrittenTask, parse(record.value), "the task")
    return TaskId(task.processor, task.partition, task.standby)
