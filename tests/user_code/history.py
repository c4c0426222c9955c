"""What the tests of backfills run over history."""

from __future__ import annotations

import time
from pathlib import Path

from kafka_pipeline import Processor, ProcessorContext, PunctuationType, Record


class Sieve(Processor):
    """Drops what is empty, refuses `bad`, and gives the rest a header and maybe another key."""

    def process(self, record: Record) -> None:
        if record.value == b"bad":
            raise ValueError("no good")
        if not record.value:
            return
        key = b"other" if record.value.endswith(b"7") else record.key
        headers = [*record.headers, ("offset", b"%d" % (self.context.offset or 0))]
        self.context.forward(Record(key, record.value, record.timestamp, headers))


class Totals(Processor):
    """Adds up what each key got, and forwards all totals once in 100 ms of stream time."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.totals = context.get_state_store("Totals")
        context.schedule(100, PunctuationType.STREAM_TIME, self.tell)

    def process(self, record: Record) -> None:
        key = record.key or "nobody"
        self.totals.put(key, (self.totals.get(key) or 0) + int(record.value))
        self.context.forward(Record(record.key, self.totals.get(key), record.timestamp))

    def tell(self, timestamp: int) -> None:
        with self.totals.all() as entries:
            for key, total in entries:
                self.context.forward(Record(f"all {key}", total, timestamp))


class Gate(Processor):
    """Passes everything on, as soon as there is a file."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        deadline_s = time.monotonic() + 120
        while not self._file.exists() and time.monotonic() < deadline_s:
            time.sleep(0.01)

    def process(self, record: Record) -> None:
        self.context.forward(record)
