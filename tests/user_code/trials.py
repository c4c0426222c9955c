"""A class that cannot start, for versions of a pipeline that have to be rolled back."""

from __future__ import annotations

from kafka_pipeline.streams.api import Processor, ProcessorContext, Record


class NeverStarts(Processor):
    """Raises when its tasks start."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        raise RuntimeError("no table of prices")

    def process(self, record: Record) -> None:
        self.context.forward(record)
