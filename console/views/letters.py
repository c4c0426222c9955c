"""Dead letters: their number by processor and error, and the newest ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.operations.dead_letters import DeadLetter, Wanted
from kafka_pipeline.operations.faults import faults
from kafka_pipeline.operations.latest_letters import LetterList


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
        "errors": faults(matching),
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
