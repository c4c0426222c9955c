"""The word count of KIP-28, and what else users write, for tests of the driver and the cluster."""

from __future__ import annotations

from kafka_pipeline import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    TopologyBuilder,
    serdes,
    stores,
)


class WordCount(Processor):
    """Counts words, and forwards all counts once per second of stream time."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.counts = context.get_state_store("Counts")
        context.schedule(1_000, PunctuationType.STREAM_TIME, self.punctuate)

    def process(self, record: Record) -> None:
        for word in record.value.lower().split():
            self.counts.put(word, (self.counts.get(word) or 0) + 1)

    def punctuate(self, timestamp: int) -> None:
        with self.counts.all() as entries:
            for word, count in entries:
                self.context.forward(Record(word, str(count), timestamp))


def word_count(lines: str, words: str) -> TopologyBuilder:
    """Return the topology between two topics."""
    builder = TopologyBuilder()
    builder.add_source("Source", lines, key_serde=serdes.string, value_serde=serdes.string)
    builder.add_processor("Count", WordCount, parents=["Source"])
    builder.add_state_store(
        stores.key_value("Counts", key_serde=serdes.string, value_serde=serdes.int64), ["Count"]
    )
    builder.add_sink("Sink", words, ["Count"], key_serde=serdes.string, value_serde=serdes.string)
    return builder


class RunningSum(Processor):
    """Adds the values of each key up, over all inputs."""

    def __init__(self, start: int = 0) -> None:
        self._start = start

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.sums = context.get_state_store("Sums")

    def process(self, record: Record) -> None:
        total = self.sums.get(record.key)
        total = (self._start if total is None else total) + record.value
        self.sums.put(record.key, total)
        self.context.forward(record.with_value(total))
