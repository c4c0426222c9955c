"""Classes that write and read numbers as text or as JSON, and refuse the other form."""

from __future__ import annotations

from kafka_pipeline.streams.api import Processor, Record


class Writes(Processor):
    """Writes numbers in a form: `string` or `json`."""

    def __init__(self, form: str) -> None:
        self._is_text = form == "string"

    def process(self, record: Record) -> None:
        value = str(record.value) if self._is_text else {"number": record.value}
        self.context.forward(record.with_value(value))


class Reads(Processor):
    """Reads numbers in that form."""

    def __init__(self, form: str) -> None:
        self._is_text = form == "string"

    def process(self, record: Record) -> None:
        number = int(record.value) if self._is_text else record.value["number"]
        self.context.forward(record.with_value(number))
