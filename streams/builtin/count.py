"""`type: count`: counts the records of each key."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_pipeline.common.pipelines.specs import COUNT_STORE
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.processor import BatchProcessor, ProcessorContext, RecordRejectedError
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.stores import KeyValueStore, key_value

COUNTS = key_value(COUNT_STORE, key_serde=serdes.bytes, value_serde=serdes.integer).spread()
"""The processor's store, which maps each record key to its count as decimal text."""

_NUM_TEXTS = 10_000
_TEXTS = [b"%d" % count for count in range(_NUM_TEXTS)]
"""Small counts, which are the most frequent: a lookup takes a third of the time of formatting."""

KNOWN_KEYS = 50_000
"""How many counts the processor caches outside the store."""


class CountProcessor(BatchProcessor):
    """Emits, for each record, how many records its key has had so far, itself included.

    The count starts at 1 and ignores the record's value, so a null value counts too. A record
    with a null key is rejected: there is nothing to count it under.
    """

    def init(self, context: ProcessorContext) -> None:
        """Find the store."""
        self.context = context
        self._store: KeyValueStore[bytes, int] = context.get_state_store(COUNTS.name)
        self._known: dict[bytes, int] = {}
        """Counts cached from the store; valid until a change to the store is undone."""
        self._generation = self._store.generation

    def process(self, batch: Batch) -> None:
        """Emit the counts, up to the first record without a key."""
        keys: Sequence[bytes] = batch.keys
        size = len(keys)
        if None in keys:
            size = next(index for index, key in enumerate(keys) if key is None)
            keys = keys[:size]
        if size:
            values = self._count(keys)
            self._store.put_serialized(dict(zip(keys, values, strict=True)))
            self.context.forward(batch.head(size).with_values(values))
        if size < len(batch):
            reason = "the record has no key to count it under"
            raise RecordRejectedError(reason, batch, size)

    def _count(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the count of each record; the caller puts each key's last count into the store."""
        known = self._known
        if self._generation != self._store.generation or len(known) > KNOWN_KEYS:
            self._generation = self._store.generation
            known.clear()
        if not all(map(known.__contains__, keys)):
            unknown = set(keys).difference(known)
            for key, count in zip(unknown, self._store.get_all(unknown), strict=True):
                known[key] = count or 0
        values: list[bytes] = []
        append = values.append
        for key in keys:
            known[key] = count = known[key] + 1
            append(_TEXTS[count] if count < _NUM_TEXTS else b"%d" % count)
        return values
