"""`type: count`: counts the records of each key."""

from __future__ import annotations

from common.nodes import COUNT_STORE
from streams import serdes
from streams.processor import BatchProcessor, ProcessorContext, RecordRejectedError
from streams.record import Batch
from streams.stores import KeyValueStore, key_value

COUNTS = key_value(COUNT_STORE, key_serde=serdes.bytes, value_serde=serdes.integer)
"""The store that it needs: the counts as decimal text under the records' keys."""


class CountProcessor(BatchProcessor):
    """Emits, for each record, how many records its key has had so far, itself included.

    The count starts at 1 and ignores the record's value, so a null value counts too. A record
    with a null key is rejected: there is nothing to count it under.
    """

    def init(self, context: ProcessorContext) -> None:
        """Find the store."""
        self.context = context
        self._counts: KeyValueStore[bytes, int] = context.get_state_store(COUNTS.name)

    def process(self, batch: Batch) -> None:
        """Emit the counts, up to the first record without a key."""
        counts: dict[bytes, int] = {}
        values: list[bytes] = []
        append = values.append
        get = self._counts.get
        for key in batch.keys:
            if key is None:
                break
            count = counts.get(key)
            if count is None:
                count = get(key) or 0
            counts[key] = count = count + 1
            append(b"%d" % count)
        self._counts.put_all(counts.items())
        if values:
            self.context.forward(batch.head(len(values)).with_values(values))
        if len(values) < len(batch):
            reason = "the record has no key to count it under"
            raise RecordRejectedError(reason, batch, len(values))
