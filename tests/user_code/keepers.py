"""A processor that keeps values in stores of all kinds."""

from __future__ import annotations

from typing import Any

from kafka_pipeline import Processor, ProcessorContext, Record, stores


class Keeper(Processor):
    """Puts each value into each of its stores, and forwards nothing."""

    def init(self, context: ProcessorContext) -> None:
        names = ("Timed", "Windows", "Sessions", "Versions")
        self.timed, self.windows, self.sessions, self.versions = map(context.get_state_store, names)

    def process(self, record: Record) -> None:
        key: Any = record.key
        time = record.timestamp
        self.timed.put(key, (record.value, time))
        self.windows.put(key, record.value, time)
        self.sessions.put(stores.Windowed(key, stores.Window(time, time)), record.value)
        self.versions.put(key, record.value, time)
