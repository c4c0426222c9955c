"""A class whose totals were numbers at first, and have a count since then."""

from __future__ import annotations

from typing import Any

from kafka_pipeline import Processor, Record


class Totals(Processor):
    """Adds numbers up, and forwards each total with its count."""

    def process(self, record: Record) -> None:
        totals = self.context.get_state_store("Totals")
        had = totals.get(record.key) or {"sum": 0, "count": 0}
        total = {"sum": had["sum"] + record.value, "count": had["count"] + 1}
        totals.put(record.key, total)
        self.context.forward(record.with_value(total))


def upgrade(value: Any, version: int) -> Any:
    """Return a total for the number that it was in format 1; its count is not known."""
    assert version == 1
    if value < 0:
        raise ValueError(f"{value} is no total")
    return {"sum": value, "count": 1}
