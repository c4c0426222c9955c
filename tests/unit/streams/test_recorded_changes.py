"""What real connectors gave of real databases, recorded by the stories of tests.change_data."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline.streams.debezium import read_change, read_key
from kafka_pipeline.streams.kept_changes import Kept, step
from tests.change_data import binlog_story, story
from tests.change_data.transactions import recorded

_STORIES = {
    "PostgreSQL": story.RECORDED,
    **binlog_story.RECORDED,
    "MySQL-compressed": binlog_story.COMPRESSED,
}


@pytest.mark.parametrize(("database", "file"), _STORIES.items(), ids=_STORIES)
def test_the_rows_equal_those_of_the_database_after_each_transaction(
    database: str, file: Path
) -> None:
    kept: dict[bytes, Kept | None] = {}
    table: dict[bytes, dict[str, Any]] = {}
    counts: Counter[str] = Counter()
    for number, (records, state) in enumerate(recorded(file)):
        for _, key_data, value in records:
            assert key_data is not None
            key, change = read_key(key_data), read_change(value)
            if change is None:
                counts["about no row"] += 1
                continue
            found = step(kept.get(key), change)
            kept[key] = found.kept
            counts["repeated"] += found.is_repeated
            counts["read"] += change.is_read
            counts["missing"] += bool(change.missing) and found.is_passed
            if found.is_passed:
                table.pop(key, None)
                if found.row is not None:
                    table[key] = json.loads(found.row)
        rows = sorted(table.values(), key=lambda row: (row["id"], row["line"]))
        of_database = [set(row) for row in state.rows]
        shown = [
            {name: _comparable(name, row.get(name)) for name in names}
            for row, names in zip(rows, of_database, strict=True)
        ]
        assert shown == state.rows, f"transaction {number}"
    assert counts["repeated"] > 5
    assert counts["read"] > 5
    assert counts["missing"] == (2 if database == "PostgreSQL" else 0)
    # MySQL and MariaDB have a topic of schemas.
    assert (counts["about no row"] > 5) is (database != "PostgreSQL")


def _comparable(name: str, value: Any) -> Any:
    """Return a value as the database writes it, whatever the settings of the connector."""
    if value is None:
        return None
    match name:
        case "price":
            return float(value)
        case "day":
            return value[:10]
        case "at" | "placed":
            whole, _, fraction = value.removesuffix("Z").partition(".")
            digits = fraction.rstrip("0")
            return f"{whole}.{digits}" if digits else whole
    return value
