"""Classes that cannot start, for versions of a pipeline that have to be rolled back."""

from __future__ import annotations

from kafka_pipeline.streams.api import Processor, ProcessorContext, Record
from tests.user_code.pairing import Pairing


class NeverStarts(Processor):
    """Raises when its tasks start."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        raise RuntimeError("no table of prices")

    def process(self, record: Record) -> None:
        self.context.forward(record)


class StartsInPart(Pairing):
    """Starts and works like `Pairing`, but raises in the task of the first partition."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        if context.task_id.endswith("_0"):
            raise RuntimeError("no table of prices")
