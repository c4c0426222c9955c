"""State: which stores there are, and entries of one of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.operations.state import shown

LONGEST_TEXT = 20_000

_ABOUT = ("type", "key_serde", "value_serde", "keys_readable", "values_readable")
_PLACE = ("partition", "task_manager", "standby", "lag")
_TIMES = ("window", "timestamp_ms", "valid_from_ms", "valid_to_ms")


def stores(rows: Iterable[dict[str, Any]], silent: UnavailableError | None) -> dict[str, Any]:
    """Return each store once, with who has its partitions, from a list of `StateClient`.

    `problem` is the error of a TaskManager that does not answer, if there is one.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        key = (row["processor"], row["store"])
        about = {
            "processor": row["processor"],
            "store": row["store"],
            **{name: row[name] for name in _ABOUT},
            "partitions": [],
        }
        partitions = found.setdefault(key, about)["partitions"]
        partitions.append({name: row[name] for name in _PLACE})
    return {"stores": list(found.values()), "problem": None if silent is None else str(silent)}


def entries(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a TaskManager with keys and values as text of a limited length."""
    rows = [
        {
            "key": shown(row, "key", LONGEST_TEXT),
            "value": shown(row, "value", LONGEST_TEXT),
            **{name: row[name] for name in _TIMES if name in row},
        }
        for row in answer["entries"]
    ]
    return {**answer, "entries": rows}
