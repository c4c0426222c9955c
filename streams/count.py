"""`type: count`: counts the records of each key."""

from __future__ import annotations

from common.record_batch import RecordBatch
from streams.results import Results
from streams.stores.rocksdb import KeyValueStore


class CountProcessor:
    """Emits, for each record, how many records its key has had so far, itself included.

    The count starts at 1 and ignores the record's value, so a null value counts too. It is kept
    in the store as decimal text under the record's key. A record with a null key is rejected:
    there is nothing to count it under.
    """

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store

    def process(self, batch: RecordBatch, start: int) -> Results:
        """Return the counts from `start` on, up to the first record without a key."""
        counts: dict[bytes, int] = {}
        values: list[bytes | None] = []
        append = values.append
        rejection = None
        for key in batch.keys[start:] if start else batch.keys:
            if key is None:
                rejection = "the record has no key to count it under"
                break
            count = counts.get(key)
            if count is None:
                count = int(self._store.get(key) or 0)
            counts[key] = count = count + 1
            append(b"%d" % count)
        for key, count in counts.items():
            self._store.put(key, b"%d" % count)
        return Results(values, rejection)
