"""Dead letters: their number by processor and error, and the newest ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.operations.dead_letters import DeadLetter, Wanted
from kafka_pipeline.operations.latest_letters import LetterList

_MOST_FAULTS = 100
_NUMBER = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class LetterQuery:
    """The dead letters to list; handled ones only if `handled`."""

    wanted: Wanted
    handled: bool
    limit: int


def letters(found: LetterList, query: LetterQuery, read_at_ms: int) -> dict[str, Any]:
    """Return the letters that match a query, newest records first, and figures of all letters."""
    matching = [
        letter
        for letter in found.letters
        if (query.handled or not letter.handled) and query.wanted.has(letter)
    ]
    matching.sort(key=lambda letter: (letter.timestamp_ms, letter.id.offset), reverse=True)
    return {
        "read_at_ms": read_at_ms,
        "processors": _processors(found),
        "errors": _errors(matching),
        "matching": len(matching),
        "waiting": sum(not letter.handled for letter in matching),
        "letters": [_listed(letter) for letter in matching[: query.limit]],
    }


def letter(found: DeadLetter, *, with_record: bool) -> dict[str, Any]:
    """Return one letter; its key, value and own headers only `with_record`."""
    shown = {**found.to_json(), "with_record": with_record}
    return shown if with_record else {**shown, "key": None, "value": None, "headers": []}


def _processors(found: LetterList) -> list[dict[str, Any]]:
    counts = Counter((each.id.processor, bool(each.handled)) for each in found.letters)
    return [
        {
            "id": id_,
            "topic": topic,
            "waiting": counts[id_, False],
            "handled": counts[id_, True],
            "older_offsets": found.older.get(id_, 0),
        }
        for id_, topic in found.topics.items()
    ]


def _errors(newest_first: Iterable[DeadLetter]) -> list[dict[str, Any]]:
    """Return each fault of each processor, the most frequent first, with its newest reason.

    Reasons that differ only in numbers are one fault. If there are more than `_MOST_FAULTS`, the
    rarest are combined into one row.
    """
    together: dict[tuple[str, str, str], list[DeadLetter]] = {}
    for each in newest_first:
        fault = _NUMBER.sub("0", each.reason)
        together.setdefault((each.id.processor, each.error, fault), []).append(each)
    rows: list[dict[str, Any]] = [
        {
            "processor": processor,
            "error": error,
            "reason": same[0].reason,
            "count": len(same),
            "oldest_ms": same[-1].timestamp_ms,
            "newest_ms": same[0].timestamp_ms,
        }
        for (processor, error, _), same in together.items()
    ]
    rows.sort(key=lambda row: -int(row["count"]))
    if len(rows) > _MOST_FAULTS:
        rare = rows[_MOST_FAULTS - 1 :]
        rows[_MOST_FAULTS - 1 :] = [_rare(rare)]
    return rows


def _rare(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return faults combined into one row."""
    return {
        "processor": "",
        "error": "",
        "reason": f"{len(rows):,} other reasons",
        "count": sum(row["count"] for row in rows),
        "oldest_ms": min(row["oldest_ms"] for row in rows),
        "newest_ms": max(row["newest_ms"] for row in rows),
    }


def _listed(letter: DeadLetter) -> dict[str, Any]:
    origin = letter.came_from
    return {
        "id": str(letter.id),
        "processor": letter.id.processor,
        "error": letter.error,
        "reason": letter.reason,
        "topic": origin and origin[0],
        "partition": origin and origin[1],
        "offset": origin and origin[2],
        "timestamp_ms": letter.timestamp_ms,
        "handled": letter.handled or None,
    }
