"""A processor that rejects records until somebody lets them pass, as after a fix elsewhere."""

from __future__ import annotations

from pathlib import Path

from kafka_pipeline import Processor, Record, RecordRejectedError


class Gate(Processor):
    """Passes records on; those whose value begins with "shut" only once a file exists."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def process(self, record: Record) -> None:
        """Pass the record on, or reject it."""
        if record.value.startswith(b"shut") and not self._file.exists():
            raise RecordRejectedError("the gate is shut")
        self.context.forward(record)
