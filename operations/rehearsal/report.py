"""What a rehearsal has found, as a value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.common.clock import shown_moment
from kafka_pipeline.common.typed_json import as_json
from kafka_pipeline.operations.rehearsal.comparer import Example, Kind, Result, Side, Tally
from kafka_pipeline.operations.rehearsal.report_json import (
    ExampleJson,
    OutputJson,
    ReportJson,
    ResultJson,
    SpeedJson,
    Verdict,
)

_MOST_TEXT = 200
_MOST_FIELDS = 10


@dataclass(frozen=True, slots=True)
class Figures:
    """How a version did: offsets of sources that it read in how many seconds, and what waits."""

    read: int
    seconds: float
    lag: int

    @property
    def per_s(self) -> float:
        """Offsets per second."""
        return self.read / self.seconds if self.seconds else 0.0

    def shown(self) -> SpeedJson:
        """Return it as it is shown."""
        return SpeedJson(
            read=self.read,
            seconds=round(self.seconds, 1),
            per_s=round(self.per_s, 1),
            lag=self.lag,
        )


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a rehearsal.

    All results of records before `compared_until_ms` were compared, None if that is no moment yet.
    `rested_ms` is how long the job rested for its savepoint. `catching_up` says how the shadow did
    until it was where the job is, None if it never was. `waiting` results came later, and were not
    judged. `failed` has tasks and reasons. `notes` are sentences.
    """

    job: str
    old_version: int
    rested_ms: int
    compared_until_ms: int | None
    tallies: Mapping[str, Tally]
    waiting: Mapping[Side, int]
    judged_early: int
    figures: Mapping[Side, Figures]
    catching_up: Figures | None
    failed: Mapping[Side, Sequence[str]]
    notes: Sequence[str]

    @property
    def verdict(self) -> Verdict:
        """What the results show. A shadow whose tasks fail is different."""
        counts = [tally.differences.values() for tally in self.tallies.values()]
        if any(map(sum, counts)) or self.failed[Side.NEW]:
            return Verdict.DIFFERENT
        if not any(tally.equal for tally in self.tallies.values()):
            return Verdict.NOTHING
        return Verdict.EQUAL

    def to_json(self, *, with_values: bool) -> dict[str, Any]:
        """Return plain values for `json.dumps`, with keys and values of records only if allowed."""
        found: dict[str, Any] = as_json(self.shown(with_values=with_values))
        return found

    def shown(self, *, with_values: bool) -> ReportJson:
        """Return it as it is shown, with keys and values of records only if allowed."""
        return ReportJson(
            verdict=self.verdict,
            job=self.job,
            old_version=self.old_version,
            rested_ms=self.rested_ms,
            compared_until_ms=self.compared_until_ms,
            outputs={
                name: _output(tally, with_values=with_values)
                for name, tally in self.tallies.items()
            },
            not_judged=self.waiting,
            judged_early=self.judged_early,
            figures={side: its.shown() for side, its in self.figures.items()},
            catching_up=None if self.catching_up is None else self.catching_up.shown(),
            failed={side: tuple(lines) for side, lines in self.failed.items()},
            notes=tuple(self.notes),
        )


def _output(tally: Tally, *, with_values: bool) -> OutputJson:
    return OutputJson(
        results=dict(tally.results),
        equal=tally.equal,
        different=tally.differences[Kind.DIFFERENT],
        reordered=tally.differences[Kind.REORDERED],
        only_old=tally.differences[Kind.ONLY_OLD],
        only_new=tally.differences[Kind.ONLY_NEW],
        examples=tuple(_example(each, with_values=with_values) for each in tally.examples),
    )


def _example(example: Example, *, with_values: bool) -> ExampleJson:
    some = example.old or example.new
    assert some is not None
    return ExampleJson(
        kind=example.kind,
        key=shown(some.key) if with_values else None,
        differs=tuple(differing(example, with_values=with_values)),
        old=_result(example.old, with_values=with_values),
        new=_result(example.new, with_values=with_values),
    )


def _result(result: Result | None, *, with_values: bool) -> ResultJson | None:
    if result is None:
        return None
    return ResultJson(
        partition=result.partition,
        offset=result.offset,
        timestamp_ms=result.timestamp_ms,
        value=shown(result.value) if with_values else None,
    )


def lines_of(example: Example, *, with_values: bool) -> Iterator[str]:
    """Yield an example as lines for people: what it is, then the result of each version."""
    some = example.old or example.new
    assert some is not None
    key = f" of key {shown(some.key)}" if with_values else ""
    differs = differing(example, with_values=with_values)
    where = f" in {', '.join(differs)}" if differs else ""
    yield f"{example.output}: {example.kind}{where}{key}"
    for side, result in ((Side.OLD, example.old), (Side.NEW, example.new)):
        if result is not None:
            value = f"  {shown(result.value)}" if with_values else ""
            place = f"{result.partition}@{result.offset}"
            yield f"  {side}  {place}  {shown_moment(result.timestamp_ms)}{value}"


def shown(data: bytes | None) -> str:
    """Return a key or a value as text of limited length; bytes that are not UTF-8 are escaped."""
    if data is None:
        return "null"
    text = data[: 4 * _MOST_TEXT].decode(errors="backslashreplace")
    return f"{text[:_MOST_TEXT]}…" if len(text) > _MOST_TEXT else text


def differing(example: Example, *, with_values: bool) -> list[str]:
    """Return what differs in a pair: timestamp, headers, and the value or fields of its JSON.

    The names of fields may be data, too, so they are values.
    """
    old, new = example.old, example.new
    if example.kind is not Kind.DIFFERENT or old is None or new is None:
        return []
    found = ["timestamp"] if old.timestamp_ms != new.timestamp_ms else []
    found += ["headers"] if old.headers != new.headers else []
    if old.value != new.value:
        found += _fields(old.value, new.value) if with_values else ["value"]
    return found


def _fields(old: bytes | None, new: bytes | None) -> list[str]:
    try:
        before, after = json.loads(old or b""), json.loads(new or b"")
    except (ValueError, RecursionError):
        return ["value"]
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return ["value"]
    names = [name for name in {**before, **after} if _lacks(before, after, name)]
    if not names:
        return ["value (the same JSON, in other bytes)"]
    more = [f"{len(names) - _MOST_FIELDS} more fields"] if len(names) > _MOST_FIELDS else []
    return [f"value.{name}" for name in names[:_MOST_FIELDS]] + more


def _lacks(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> bool:
    return (name in before) != (name in after) or before.get(name) != after.get(name)
