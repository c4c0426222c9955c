"""Counts dead letters by what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from kafka_pipeline.operations.dead_letters import DeadLetter

_MOST_FAULTS = 100
_NUMBER = re.compile(r"[0-9]+")


def faults(newest_first: Iterable[DeadLetter]) -> list[dict[str, Any]]:
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
