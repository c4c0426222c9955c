"""Encodes reports as JSON, in parts that fit into records, with display-only facts apart.

The JobManager acts on the state and the version of each task, and reads thousands of reports. All
other facts are for people: they are in a document of their own, which the JobManager does not read.
A document has the name of each field once, not once per task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from kafka_pipeline.common.errors import shorten
from kafka_pipeline.common.messages import JobManagerBeat, Report
from kafka_pipeline.common.status import FIGURES, TaskState, TaskStatus, ThreadState
from kafka_pipeline.common.suspects import Suspect
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.typed_json import as_json, from_json
from kafka_pipeline.common.wire import JsonObject

PART_BYTES = 500_000
"""The maximum size of a part's documents together: half of what control topics accept."""
_MOST_FINDINGS = 10
_LONGEST_FINDING = 1_000

_LONGEST_REASON = 500
_ALL_REASONS = 30_000
_KNOWN_STATUSES = 2**18
_LONGEST_FINGERPRINT = 64
"""Statuses are kept, so that a flood of long ones would fill the memory."""
_OWNER_BYTES = 10
"""The typical size of an owner in JSON, with its punctuation."""
_ACTED_ON = ("task", "state", "fingerprint")
_SHOWN = ("thread", "reason", "activity", "dropped")
"""The first columns of the table of figures; the figures that any task has follow."""
_NO_COLUMNS: Mapping[str, Any] = {
    "dropped_lately": [],
    "rejected": [],
    "held_by": [],
    "key_warnings": [],
}
"""What is next to the table, if any task has it."""


def dump(body: Any) -> bytes:
    """Return JSON without blanks."""
    return json.dumps(body, separators=(",", ":")).encode()


def encode_report(report: Report) -> list[tuple[bytes, bytes]]:
    """Return the facts to act on and the figures of each part. Long reasons are shortened."""
    facts: dict[str, Any] = {
        "tm_id": report.tm_id,
        "incarnation": report.incarnation,
        "threads": report.threads,
        "beat": report.beat,
        "base": report.base,
        "epoch": report.epoch,
        "sequence": report.sequence,
        "leaving": report.leaving,
        "host": report.host,
        "pid": report.pid,
        "thread_states": report.thread_states,
    }
    # Readers of earlier versions ignore the fields that they do not know.
    if report.code:
        facts["code"] = dict(report.code)
    if report.state_address:
        facts["state_address"] = report.state_address
    closed = [str(task) for task in report.closed]
    return _encode_parts(facts, _with_short_reasons(report.tasks), closed)


def _with_short_reasons(tasks: Sequence[TaskStatus]) -> list[TaskStatus]:
    failing = sum(bool(task.reason) for task in tasks)
    longest = min(_LONGEST_REASON, _ALL_REASONS // max(failing, 1))
    return [
        replace(task, reason=shorten(task.reason, longest)) if task.reason else task
        for task in tasks
    ]


def _encode_parts(
    facts: Mapping[str, Any], tasks: Sequence[TaskStatus], closed: Sequence[str]
) -> list[tuple[bytes, bytes]]:
    columns = {
        "task": [str(task.task) for task in tasks],
        "state": [task.state for task in tasks],
        "fingerprint": [task.fingerprint for task in tasks],
    }
    suspects = {str(task.task): as_json(task.suspects) for task in tasks if task.suspects}
    extra = {"suspects": suspects} if suspects else {}
    acted_on = dump({**facts, "tasks": columns, "closed": closed, **extra})
    figures = _encode_figures(tasks)
    if len(acted_on) + len(figures) <= PART_BYTES or max(len(tasks), len(closed)) <= 1:
        return [(acted_on, figures)]
    some, gone = len(tasks) // 2, len(closed) // 2
    first = _encode_parts(facts, tasks[:some], closed[:gone])
    return first + _encode_parts(facts, tasks[some:], closed[gone:])


def _encode_figures(tasks: Sequence[TaskStatus]) -> bytes:
    told = {name for task in tasks for name in task.figures}
    absent = {name: value for name, value in FIGURES.items() if name in told}
    rows = [
        [
            *(task.thread, task.reason, task.activity, dict(task.dropped)),
            *(task.figures.get(name, value) for name, value in absent.items()),
        ]
        for task in tasks
    ]
    table = {"names": [*_SHOWN, *absent], "rows": rows}
    # Readers of earlier versions ignore the fields that they do not know.
    if any(task.dropped_lately for task in tasks):
        table["dropped_lately"] = [dict(task.dropped_lately) for task in tasks]
    if any(task.rejected for task in tasks):
        table["rejected"] = [dict(task.rejected) for task in tasks]
    if any(task.held_by for task in tasks):
        table["held_by"] = [str(task.held_by or "") for task in tasks]
    if any(task.key_warnings for task in tasks):
        table["key_warnings"] = [[each.to_json() for each in t.key_warnings] for t in tasks]
    return dump(table)


def decode_report(acted_on: bytes, figures: bytes | None) -> Report:
    """Read a part of a report; without `figures`, all figures of the tasks keep their defaults.

    Raises ValueError on anything that `encode_report` did not write.
    """
    optional = {"code": {}, "state_address": "", "suspects": {}}
    fields = JsonObject(json.loads(acted_on), optional)
    columns = JsonObject(fields.object("tasks"))
    known = [columns.texts(name) for name in _ACTED_ON]
    if any(len(fingerprint) > _LONGEST_FINGERPRINT for fingerprint in known[-1]):
        raise ValueError("a fingerprint is too long")
    if figures is None:
        tasks = tuple([_status(*entry) for entry in zip(*known, strict=True)])
    else:
        tasks = _decode_statuses(known, JsonObject(json.loads(figures), _NO_COLUMNS))
    if suspects := fields.object("suspects"):
        found = from_json(Mapping[str, tuple[Suspect, ...]], suspects, "suspects")
        tasks = tuple(replace(each, suspects=found.get(str(each.task), ())) for each in tasks)
    base = fields.integer_or_none("base")
    return Report(
        tm_id=fields.integer("tm_id"),
        incarnation=fields.text("incarnation"),
        threads=fields.integer("threads", low=1),
        beat=fields.integer("beat"),
        epoch=fields.integer("epoch", low=-1),
        sequence=fields.integer("sequence"),
        leaving=fields.boolean("leaving"),
        host=fields.text("host"),
        pid=fields.integer("pid"),
        thread_states=tuple(ThreadState(state) for state in fields.texts("thread_states")),
        tasks=tasks,
        base=base,
        closed=tuple(TaskId.parse(task) for task in fields.texts("closed")),
        code=_code(fields.object("code")),
        state_address=fields.text("state_address"),
    )


def _code(data: dict[str, Any]) -> dict[str, str]:
    fields = JsonObject(data)
    "".join(data).encode()
    return {module: fields.text(module) for module in data}


@lru_cache(_KNOWN_STATUSES)
def _status(task: str, state: str, fingerprint: str) -> TaskStatus:
    """Return a status without figures, cached: the next report repeats nearly all of them."""
    return TaskStatus(TaskId.parse(task), TaskState(state), fingerprint=fingerprint)


def _decode_statuses(
    acted_on: Sequence[Sequence[str]], table: JsonObject
) -> tuple[TaskStatus, ...]:
    names, rows = table.texts("names"), table.items("rows")
    # Tables of earlier versions, and those without any, do not have them.
    lately = table.items("dropped_lately") or [{}] * len(rows)
    rejected = table.items("rejected") or [{}] * len(rows)
    holders = table.items("held_by") or [""] * len(rows)
    warnings = table.items("key_warnings") or [[]] * len(rows)
    size = len(_SHOWN)
    if names[:size] != _SHOWN:
        raise ValueError("other columns than those of this version")
    statuses = []
    columns = zip(*acted_on, rows, lately, rejected, holders, warnings, strict=True)
    for *known, row, dropped, each, holder, of_keys in columns:
        if not isinstance(row, list):
            raise ValueError("a row is not a list")
        values = dict(zip(_ACTED_ON, known, strict=True))
        values.update(zip(_SHOWN, row[:size], strict=True))
        values |= {"dropped_lately": dropped, "rejected": each, "held_by": holder}
        values["key_warnings"] = of_keys
        figures = zip(names[size:], row[size:], strict=True)
        values["figures"] = {
            name: value for name, value in figures if value is not None and name in FIGURES
        }
        statuses.append(TaskStatus.from_json(values))
    return tuple(statuses)


def encode_owners(beat: JobManagerBeat) -> list[bytes]:
    """Return the document of each part of the JobManager's heartbeat."""
    # Readers of earlier versions ignore the fields that they do not know.
    facts: dict[str, Any] = {"epoch": beat.epoch}
    if beat.leaving:
        facts["leaving"] = True
    if beat.held:
        facts["held"] = sorted(beat.held)
    if beat.held_tasks:
        facts["held_tasks"] = [str(task) for task in sorted(beat.held_tasks)]
    if beat.findings:
        facts["findings"] = [
            shorten(finding, _LONGEST_FINDING) for finding in beat.findings[:_MOST_FINDINGS]
        ]
    pairs = [(str(task), tm_id) for task, tm_id in beat.owners.items()]
    size = sum(len(task) + _OWNER_BYTES for task, _ in pairs)
    some = max(len(pairs) * PART_BYTES // max(size, 1), 1)
    documents = [_encode_owners(facts, pairs[n : n + some]) for n in range(0, len(pairs), some)]
    return [part for parts in documents for part in parts] or _encode_owners(facts, ())


def _encode_owners(
    facts: Mapping[str, Any], owners: Sequence[tuple[str, int | None]]
) -> list[bytes]:
    document = dump({**facts, "owners": dict(owners)})
    if len(document) <= PART_BYTES or len(owners) <= 1:
        return [document]
    half = len(owners) // 2
    return _encode_owners(facts, owners[:half]) + _encode_owners(facts, owners[half:])


def decode_owners(document: bytes, sent_at_ms: int, reads_owners: bool) -> JobManagerBeat:
    """Return the heartbeat in a part, without owners unless `reads_owners`.

    Raises ValueError on anything that `encode_owners` did not write.
    """
    defaults = {"leaving": False, "held": [], "held_tasks": [], "findings": []}
    body = JsonObject(json.loads(document), defaults)
    found = body.object("owners")
    if not reads_owners:
        found = {}
    owners = JsonObject(found)
    return JobManagerBeat(
        body.integer("epoch"),
        sent_at_ms,
        {TaskId.parse(task): owners.integer_or_none(task) for task in found},
        body.boolean("leaving"),
        frozenset(body.names("held")),
        frozenset(map(TaskId.parse, body.names("held_tasks"))),
        body.texts("findings"),
    )
