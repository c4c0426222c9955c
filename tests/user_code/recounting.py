"""A class that counts like `count`, with a store of another format, for the chaos harness."""

from __future__ import annotations

from kafka_pipeline import Processor, ProcessorContext, Record, RecordRejectedError


class Recounting(Processor):
    """Forwards how many records of a key there were, as `count` does.

    What it keeps in the store `Recounted` begins with nothing, whatever `count` has kept. So its
    results go on only if its state was computed again.
    """

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self._recounted = context.get_state_store("Recounted")

    def process(self, record: Record) -> None:
        if record.key is None:
            raise RecordRejectedError("a record without a key")
        found: dict[str, int] = self._recounted.get(record.key) or {"count": 0}
        number = found["count"] + 1
        self._recounted.put(record.key, {"count": number})
        self.context.forward(record.with_value(b"%d" % number))
