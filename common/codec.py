"""Control messages to Kafka records and back.

Keys and values are the original's, byte for byte; its extra facts ride in these headers:

    version    protocol version, on every record
    sent_at    milliseconds since the epoch, on every record
    epoch, sequence, incarnation, action, parameters      on JobManager commands
    report     JSON, on what TaskManagers send, and on the JobManager's own heartbeat
"""

from __future__ import annotations

import json
import re
from typing import Any

from common.messages import (
    JOB_MANAGER,
    ControlRecord,
    Heartbeat,
    HeartbeatEvent,
    JobManagerBeat,
    MalformedMessageError,
    Message,
    ProcessorReplica,
    Processors,
    Refused,
    Report,
    Sos,
    Threads,
    read_task,
)
from common.nodes import TaskId
from common.topics import TopicNames
from common.wire import JsonObject

PROTOCOL_VERSION = 1
MAX_RECORD_BYTES = 1_000_000
_MAX_BATCHES = 8
_NUMBER = re.compile(rb"0|[1-9][0-9]{0,18}")

Headers = tuple[tuple[str, bytes], ...]

_ASSIGN, _REVOKE, _REFUSE, _END = b"assign", b"revoke", b"refuse", b"eos"


class Codec:
    """Encodes messages for the topics of one job, and decodes records of these topics.

    Decoding keeps the commands of a batch until its `eos`, so use one codec per reader.
    """

    def __init__(self, names: TopicNames) -> None:
        self._names = names
        self._batches: dict[tuple[int, str, int, int], list[tuple[bytes, ControlRecord]]] = {}

    def encode(self, message: Message, sent_at_ms: int) -> list[ControlRecord]:
        """Return the records of a message, in the order to write them."""
        base: Headers = (("version", b"%d" % PROTOCOL_VERSION), ("sent_at", b"%d" % sent_at_ms))
        names = self._names
        match message:
            case Sos(_, incarnation):
                headers = (*base, ("incarnation", incarnation.encode()))
                return [ControlRecord(names.threads_jm, b"", b"sos", headers)]
            case Threads(report):
                value = b"%d" % report.threads
                return [self._report(names.threads_tm, report, value, base)]
            case Heartbeat(report):
                return [self._report(names.heartbeat, report, b"ping", base)]
            case JobManagerBeat(epoch, _, owners):
                body = {"epoch": epoch, "owners": {str(t): tm for t, tm in owners.items()}}
                headers = (*base, ("report", _dump(body)))
                return [ControlRecord(names.heartbeat, JOB_MANAGER.encode(), b"ping", headers)]
            case HeartbeatEvent(tm_id, is_up):
                value = b"up" if is_up else b"down"
                return [ControlRecord(names.heartbeat_events, b"%d" % tm_id, value, base)]
            case Refused(tm_id, incarnation, epoch, reason):
                headers = (*base, *_command(epoch, 0, incarnation, _REFUSE))
                return [self._to_task_manager(tm_id, reason.encode(), headers)]
            case Processors():
                return self._processors(message, base)

    def decode(self, record: ControlRecord) -> Message | None:
        """Return the message of a record, `None` while its batch goes on.

        Raises `MalformedMessageError` for anything that no encoder of this protocol version
        wrote: the caller counts it and goes on.
        """
        try:
            return self._decode(record)
        except MalformedMessageError:
            raise
        except (ValueError, KeyError, RecursionError) as error:
            raise MalformedMessageError(f"{record.topic}: {type(error).__name__}") from error

    def _report(self, topic: str, report: Report, value: bytes, base: Headers) -> ControlRecord:
        headers = (*base, ("report", _dump(report.to_json())))
        return ControlRecord(topic, b"%d" % report.tm_id, value, headers)

    def _to_task_manager(self, tm_id: int, value: bytes, headers: Headers) -> ControlRecord:
        return ControlRecord(self._names.processors(str(tm_id)), b"%d" % tm_id, value, headers)

    def _processors(self, message: Processors, base: Headers) -> list[ControlRecord]:
        records = []
        facts = (message.epoch, message.sequence, message.incarnation)
        for task in message.revoke:
            copy = {"standby": task.standby} if task.standby else {}
            value = _dump({"pipelineID": task.partition, "ID": task.processor, **copy})
            headers = (*base, *_command(*facts, _REVOKE))
            records.append(self._to_task_manager(message.tm_id, value, headers))
        for replica in message.assign:
            parameters = ("parameters", _dump(replica.parameters()))
            headers = (*base, *_command(*facts, _ASSIGN), parameters)
            records.append(self._to_task_manager(message.tm_id, _dump(replica.to_json()), headers))
        headers = (*base, *_command(*facts, _END))
        records.append(self._to_task_manager(message.tm_id, b"eos", headers))
        return records

    def _decode(self, record: ControlRecord) -> Message | None:
        if len(record.value) + sum(len(value) for _, value in record.headers) > MAX_RECORD_BYTES:
            raise MalformedMessageError(f"{record.topic}: over {MAX_RECORD_BYTES} bytes")
        headers = dict(record.headers)
        if _number(headers["version"]) != PROTOCOL_VERSION:
            raise MalformedMessageError(f"{record.topic}: protocol version {headers['version']!r}")
        names = self._names
        if record.topic == names.threads_jm and record.value == b"sos":
            return Sos(record.offset, headers["incarnation"].decode())
        if record.topic == names.threads_tm:
            return Threads(_read_report(record, headers))
        if record.topic == names.heartbeat and record.value == b"ping":
            if record.key == JOB_MANAGER.encode():
                body = JsonObject(json.loads(headers["report"]))
                owners = JsonObject(body.object("owners"))
                return JobManagerBeat(
                    body.integer("epoch"),
                    _number(headers["sent_at"]),
                    {TaskId.parse(t): owners.integer_or_none(t) for t in body.object("owners")},
                )
            return Heartbeat(_read_report(record, headers))
        if record.topic == names.heartbeat_events and record.value in (b"up", b"down"):
            return HeartbeatEvent(_number(record.key), record.value == b"up")
        if record.topic == names.processors(str(_number(record.key))):
            return self._decode_command(record, headers)
        raise MalformedMessageError(f"{record.topic}: unknown message")

    def _decode_command(self, record: ControlRecord, headers: dict[str, bytes]) -> Message | None:
        tm_id, incarnation = _number(record.key), headers["incarnation"].decode()
        epoch, sequence = _number(headers["epoch"]), _number(headers["sequence"])
        action = headers["action"]
        if action == _REFUSE:
            return Refused(tm_id, incarnation, epoch, record.value.decode())
        key = (tm_id, incarnation, epoch, sequence)
        batch = self._batches.setdefault(key, [])
        while len(self._batches) > _MAX_BATCHES:
            # Whose end never comes. A JobManager writes a batch in one piece.
            del self._batches[next(iter(self._batches))]
        if action in (_ASSIGN, _REVOKE):
            batch.append((action, record))
            return None
        if action != _END:
            raise MalformedMessageError(f"{record.topic}: unknown action")
        # Batches to one process end in order; what is left of its older ones is never completed.
        self._batches = {
            other: records
            for other, records in self._batches.items()
            if other[:2] != key[:2] or other[2:] > key[2:]
        }
        return Processors(
            tm_id,
            incarnation,
            epoch,
            sequence,
            assign=tuple(_read_replica(entry) for action, entry in batch if action == _ASSIGN),
            revoke=tuple(_read_task(entry) for action, entry in batch if action == _REVOKE),
        )


def _command(epoch: int, sequence: int, incarnation: str, action: bytes) -> Headers:
    return (
        ("epoch", b"%d" % epoch),
        ("sequence", b"%d" % sequence),
        ("incarnation", incarnation.encode()),
        ("action", action),
    )


def _dump(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _number(data: bytes) -> int:
    """Return what `b"%d"` wrote of a number from 0 up. Raises ValueError for anything else.

    `int` takes signs, blanks and underscores too.
    """
    if _NUMBER.fullmatch(data) is None:
        raise ValueError("not a number from 0 up")
    return int(data)


def _read_report(record: ControlRecord, headers: dict[str, bytes]) -> Report:
    report = Report.from_json(json.loads(headers["report"]))
    if report.tm_id != _number(record.key):
        raise MalformedMessageError(f"{record.topic}: the key is not the report's id")
    return report


def _read_replica(record: ControlRecord) -> ProcessorReplica:
    parameters = json.loads(dict(record.headers)["parameters"])
    return ProcessorReplica.from_json(json.loads(record.value), parameters)


def _read_task(record: ControlRecord) -> TaskId:
    fields = JsonObject(json.loads(record.value), {"standby": 0})
    return read_task(fields, fields.integer("standby"))
