"""Encodes reports as JSON, in parts that fit into records, with display-only facts apart.

The JobManager acts on the state and the version of each task, and reads thousands of reports. All
other facts are for people, in a separate document that the JobManager does not read. A document
contains the name of each field once, not once per task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, TypeVar

from msgspec import DecodeError, Meta, Struct, structs
from msgspec.json import Decoder

from kafka_pipeline.common.errors import shorten
from kafka_pipeline.common.protocol.key_warnings import KeyWarning
from kafka_pipeline.common.protocol.messages import JobManagerBeat, Report
from kafka_pipeline.common.protocol.status import FIGURES, TaskState, TaskStatus, ThreadState
from kafka_pipeline.common.protocol.suspects import Suspect
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.typed_json import (
    LARGEST,
    Count,
    Name,
    Positive,
    dump,
    from_json,
    in_words,
    parsed_text,
)

PART_BYTES = 500_000
"""The maximum size of both documents of a part: half of what control topics accept."""
_MOST_FINDINGS = 10
_LONGEST_FINDING = 1_000

_LONGEST_REASON = 500
_ALL_REASONS = 30_000
_KNOWN_STATUSES = 2**18
_LONGEST_FINGERPRINT = 64
"""Statuses are cached, and long fingerprints could fill the memory."""
_OWNER_BYTES = 10
"""The typical size of an owner in JSON, with its punctuation."""
_ACTED_ON = ("task", "state", "fingerprint")
_SHOWN = ("thread", "reason", "activity", "dropped")
"""The first columns of the table of figures; the figures that any task has follow."""
_NEXT_TO_ROWS = ("dropped_lately", "rejected", "held_by", "key_warnings")
"""Columns outside of the rows, written only if any task has a value in them."""
_SOMETIMES = ("code", "state_address", "engine", "interval_ms")
"""Fields of a report that are left out if empty."""

T = TypeVar("T")


class _Columns(Struct, frozen=True):
    task: tuple[str, ...]
    state: tuple[str, ...]
    fingerprint: tuple[Annotated[str, Meta(max_length=_LONGEST_FINGERPRINT)], ...]


class _OfManager(Struct, frozen=True, kw_only=True):
    tm_id: Count
    incarnation: str
    threads: Positive
    beat: Count
    base: Count | None
    epoch: Annotated[int, Meta(ge=-1, le=LARGEST)]
    sequence: Count
    leaving: bool
    host: str
    pid: Count
    thread_states: tuple[ThreadState, ...]
    code: Mapping[str, str] = {}
    state_address: str = ""
    engine: str = ""
    interval_ms: Count = 0


class _ActedOn(_OfManager, frozen=True, kw_only=True):
    tasks: _Columns
    closed: tuple[TaskId, ...]
    suspects: Mapping[TaskId, tuple[Suspect, ...]] = {}
    reasons: Mapping[TaskId, str] = {}


class _Figures(Struct, frozen=True):
    """A row for each task; the other columns are empty if no task has a value in them."""

    names: tuple[str, ...]
    rows: list[list[Any]]
    dropped_lately: Sequence[Mapping[str, Count]] = ()
    rejected: Sequence[Mapping[str, Count]] = ()
    held_by: Sequence[str] = ()
    key_warnings: Sequence[tuple[KeyWarning, ...]] = ()


class _Beat(Struct, frozen=True, kw_only=True):
    epoch: Count
    leaving: bool = False
    held: frozenset[Name] = frozenset()
    held_tasks: frozenset[TaskId] = frozenset()
    findings: tuple[str, ...] = ()
    unread: Mapping[Name, Count] = {}
    number: Count = 0
    engine: str = ""


class _BeatWithOwners(_Beat, frozen=True, kw_only=True):
    owners: Mapping[TaskId, Count | None]


def encode_report(report: Report) -> list[tuple[bytes, bytes]]:
    """Return the facts to act on and the figures of each part. Long reasons are shortened."""
    # Readers of earlier versions ignore fields that they do not know.
    facts = {name: getattr(report, name) for name in _OfManager.__struct_fields__}
    facts = {name: fact for name, fact in facts.items() if fact or name not in _SOMETIMES}
    return _encode_parts(facts, _with_short_reasons(report.tasks), report.closed)


def _with_short_reasons(tasks: Sequence[TaskStatus]) -> list[TaskStatus]:
    failing = sum(bool(task.reason) for task in tasks)
    longest = min(_LONGEST_REASON, _ALL_REASONS // max(failing, 1))
    return [
        replace(task, reason=shorten(task.reason, longest)) if task.reason else task
        for task in tasks
    ]


def _encode_parts(
    facts: Mapping[str, Any], tasks: Sequence[TaskStatus], closed: Sequence[TaskId]
) -> list[tuple[bytes, bytes]]:
    columns = {
        "task": [task.task for task in tasks],
        "state": [task.state for task in tasks],
        "fingerprint": [task.fingerprint for task in tasks],
    }
    content = {**facts, "tasks": columns, "closed": closed}
    if suspects := {str(task.task): task.suspects for task in tasks if task.suspects}:
        content["suspects"] = suspects
    if reasons := {str(task.task): task.reason for task in tasks if task.reason}:
        content["reasons"] = reasons
    acted_on = dump(content)
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
            # The reason is among the facts to act on; earlier versions read it here.
            *(task.thread, "", task.activity, task.dropped),
            *(task.figures.get(name, value) for name, value in absent.items()),
        ]
        for task in tasks
    ]
    table = {"names": [*_SHOWN, *absent], "rows": rows}
    # Readers of earlier versions ignore fields that they do not know.
    for name in _NEXT_TO_ROWS:
        column = [getattr(task, name) for task in tasks]
        if any(column):
            table[name] = ["" if each is None else each for each in column]
    return dump(table)


def decode_report(acted_on: bytes, figures: bytes | None) -> Report:
    """Read a part of a report; without `figures`, all figures of the tasks keep their defaults.

    Raises ValueError on anything that `encode_report` did not write.
    """
    facts = structs.asdict(_decoded(_read_acted_on, acted_on))
    known, suspects = structs.astuple(facts.pop("tasks")), facts.pop("suspects")
    reasons = facts.pop("reasons")
    if figures is None:
        tasks = tuple([_status(*entry) for entry in zip(*known, strict=True)])
    else:
        tasks = _decode_statuses(known, _decoded(_read_figures, figures))
    if reasons:
        tasks = tuple(
            replace(each, reason=reasons[each.task]) if each.task in reasons else each
            for each in tasks
        )
    if suspects:
        tasks = tuple(
            replace(each, suspects=suspects[each.task]) if each.task in suspects else each
            for each in tasks
        )
    return Report(tasks=tasks, **facts)


def _decoded(decoder: Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except DecodeError as error:
        raise ValueError(in_words(error)) from error
    except RecursionError as error:
        raise ValueError(str(error)) from error


@lru_cache(_KNOWN_STATUSES)
def _status(task: str, state: str, fingerprint: str) -> TaskStatus:
    """Return a status without figures; cached, since most statuses recur in the next report."""
    return TaskStatus(TaskId.parse(task), TaskState(state), fingerprint=fingerprint)


def _decode_statuses(acted_on: Sequence[Sequence[str]], table: _Figures) -> tuple[TaskStatus, ...]:
    names, size = table.names, len(_SHOWN)
    if names[:size] != _SHOWN:
        raise ValueError("other columns than those of this version")
    statuses = []
    # Tables of earlier versions, and tables without values for them, lack these columns.
    found = {name: column for name in _NEXT_TO_ROWS if (column := getattr(table, name))}
    for *known, row, others in zip(
        *acted_on, table.rows, _rows(found, len(table.rows)), strict=True
    ):
        values = {**dict(zip(_ACTED_ON, known, strict=True)), **others}
        values.update(zip(_SHOWN, row[:size], strict=True))
        values["held_by"] = values.get("held_by") or None
        figures = zip(names[size:], row[size:], strict=True)
        values["figures"] = {
            name: value for name, value in figures if value is not None and name in FIGURES
        }
        statuses.append(from_json(TaskStatus, values, "a task"))
    return tuple(statuses)


def _rows(columns: Mapping[str, Sequence[Any]], size: int) -> list[dict[str, Any]]:
    """Return columns as `size` rows."""
    if not columns:
        return [{}] * size
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def encode_owners(beat: JobManagerBeat) -> list[bytes]:
    """Return the document of each part of the JobManager's heartbeat."""
    # Readers of earlier versions ignore fields that they do not know.
    facts: dict[str, Any] = {"epoch": beat.epoch, "number": beat.number}
    if beat.leaving:
        facts["leaving"] = True
    if beat.held:
        facts["held"] = sorted(beat.held)
    if beat.held_tasks:
        facts["held_tasks"] = sorted(beat.held_tasks)
    if beat.findings:
        facts["findings"] = [
            shorten(finding, _LONGEST_FINDING) for finding in beat.findings[:_MOST_FINDINGS]
        ]
    if beat.unread:
        facts["unread"] = dict(beat.unread)
    if beat.engine:
        facts["engine"] = beat.engine
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
    if reads_owners:
        beat: _Beat = _decoded(_read_beat_with_owners, document)
    else:
        beat = _decoded(_read_beat, document)
    return JobManagerBeat(sent_at_ms=sent_at_ms, **{"owners": {}, **structs.asdict(beat)})


_read_acted_on = Decoder(_ActedOn, dec_hook=parsed_text)
_read_figures = Decoder(_Figures)
_read_beat = Decoder(_Beat, dec_hook=parsed_text)
_read_beat_with_owners = Decoder(_BeatWithOwners, dec_hook=parsed_text)
