"""A processor that changes nothing, for tests of what is compared."""

from __future__ import annotations

from kafka_pipeline import Processor, ProcessorContext, Record


class Echo(Processor):
    """Forwards records as they are, and keeps the last value of each key."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.last = context.get_state_store("Last")

    def process(self, record: Record) -> None:
        self.last.put(record.key, record.value)
        self.context.forward(record)
