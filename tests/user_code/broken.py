"""A processor that fails on demand, for tests of the errors."""

from __future__ import annotations

from kafka_pipeline import Processor, ProcessorContext, Record


class Broken(Processor):
    """Raises in its constructor, in `init` or in `close`."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._fail_in("constructor")

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._fail_in("init")

    def process(self, record: Record) -> None:
        self.context.forward(record)

    def close(self) -> None:
        self._fail_in("close")

    def _fail_in(self, place: str) -> None:
        if self.place == place:
            raise ValueError("no")
