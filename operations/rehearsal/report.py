"""What a rehearsal has found, as a value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kafka_pipeline.common.clock import shown_moment
from kafka_pipeline.operations.rehearsal.comparer import Example, Kind, Result, Side, Tally

_MOST_TEXT = 200
_MOST_FIELDS = 10


class Verdict(StrEnum):
    """What a rehearsal shows."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOTHING = "nothing compared"


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

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`."""
        return {
            "read": self.read,
            "seconds": round(self.seconds, 1),
            "per_s": round(self.per_s, 1),
            "lag": self.lag,
        }


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
        return {
            "verdict": str(self.verdict),
            "job": self.job,
            "old_version": self.old_version,
            "rested_ms": self.rested_ms,
            "compared_until_ms": self.compared_until_ms,
            "outputs": {
                name: _tally_to_json(tally, with_values=with_values)
                for name, tally in self.tallies.items()
            },
            "not_judged": {str(side): count for side, count in self.waiting.items()},
            "judged_early": self.judged_early,
            "figures": {str(side): its.to_json() for side, its in self.figures.items()},
            "catching_up": self.catching_up and self.catching_up.to_json(),
            "failed": {str(side): list(lines) for side, lines in self.failed.items()},
            "notes": list(self.notes),
        }


def _tally_to_json(tally: Tally, *, with_values: bool) -> dict[str, Any]:
    return {
        "results": {str(side): count for side, count in tally.results.items()},
        "equal": tally.equal,
        **{str(kind).replace(" ", "_"): count for kind, count in tally.differences.items()},
        "examples": [_example_to_json(each, with_values=with_values) for each in tally.examples],
    }


def _example_to_json(example: Example, *, with_values: bool) -> dict[str, Any]:
    some = example.old or example.new
    assert some is not None
    return {
        "kind": str(example.kind),
        **({"key": shown(some.key)} if with_values else {}),
        "differs": differing(example, with_values=with_values),
        "old": example.old and _result_to_json(example.old, with_values=with_values),
        "new": example.new and _result_to_json(example.new, with_values=with_values),
    }


def _result_to_json(result: Result, *, with_values: bool) -> dict[str, Any]:
    return {
        "partition": result.partition,
        "offset": result.offset,
        "timestamp_ms": result.timestamp_ms,
        **({"value": shown(result.value)} if with_values else {}),
    }


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
