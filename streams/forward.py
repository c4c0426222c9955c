"""`type: forward`: passes every record on as it is."""

from __future__ import annotations

from common.record_batch import RecordBatch
from streams.results import Results


class ForwardProcessor:
    """Emits each record with its key and value unchanged, null keys and null values included."""

    def process(self, batch: RecordBatch, start: int) -> Results:
        """Return the values from `start` on; never rejects a record."""
        values = batch.values
        return Results(list(values[start:] if start else values))
