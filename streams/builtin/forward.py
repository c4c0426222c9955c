"""`type: forward`: passes every record on as it is."""

from __future__ import annotations

from kafka_pipeline.streams.processor import BatchProcessor
from kafka_pipeline.streams.record import Batch


class ForwardProcessor(BatchProcessor):
    """Emits each record with its key and value unchanged, null keys and null values included."""

    def process(self, batch: Batch) -> None:
        """Pass the batch on; never rejects a record."""
        self.context.forward(batch)
