"""The state of a task between rounds: what all of its stores have, as runs in its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.backfill.outputs import SortedRuns, runs_of
from kafka_pipeline.streams.backfill.sorted_runs import batches, run_table
from kafka_pipeline.streams.stores.bytes_store import NO_TIMESTAMP, BytesStore, Change

_ENTRIES_AT_ONCE = 50_000
_MARK = "@"
"""In front of a store's name among the topics of a folder. No topic has it in its name."""


def saved_state(folder: Path, store: str, number: int) -> Iterator[RecordBatch]:
    """Yield what task `number` left of a store in its folder, as records of a state topic."""
    name = f"{_MARK}{store}"
    yield from batches(runs_of([folder], name, number), name, number, False, folder)


class KeptState:
    """The stores of a task that goes on from a former round, and leaves its state to the next."""

    def __init__(self, stores: Mapping[str, BytesStore], number: int) -> None:
        self._stores = stores
        self._number = number
        self._deleted: dict[str, bytes] = {}
        """The deleted key with the latest time, by store. What a store takes for late depends on
        the latest time that it has ever seen, which a restore finds in the keys."""

    def restore(self, folder: Path) -> None:
        """Bring new stores to where the former round left them, in a folder of the task."""
        for name, store in self._stores.items():
            for batch in saved_state(folder, name, self._number):
                changes = {
                    key or b"": value for key, value in zip(batch.keys, batch.values, strict=True)
                }
                self._note_deleted(name, [key for key, value in changes.items() if value is None])
                store.restore(changes, 0)

    def commit(self) -> None:
        """Commit the stores."""
        for name, store in self._stores.items():
            changes = store.uncommitted
            self._note_deleted(name, [key for key, value in changes.items() if value is None])
            store.commit(0)

    def write(self, runs: SortedRuns) -> None:
        """Commit the stores, and write all that they have."""
        self.commit()
        for name, store in self._stores.items():
            position = 0
            for part in self._parts(name, store):
                keys, values = zip(*part, strict=True)
                size = len(part)
                table = run_table(
                    pa.array(keys, pa.binary()),
                    values,
                    np.zeros(size, np.int64).tolist(),
                    None,
                    np.arange(position, position + size),
                )
                position += size
                runs.write(f"{_MARK}{name}", table, np.full(size, self._number, np.int32))

    def _parts(self, name: str, store: BytesStore) -> Iterator[list[Change]]:
        if name in self._deleted:
            # First: a later entry with this key replaces it.
            yield [(self._deleted[name], None)]
        entries = store.entries()
        while part := list[Change](islice(entries, _ENTRIES_AT_ONCE)):
            yield part

    def _note_deleted(self, name: str, keys: Sequence[bytes]) -> None:
        if not keys:
            return
        time_of = self._stores[name].time_of
        latest = max(keys, key=time_of)
        known = self._deleted.get(name)
        before = NO_TIMESTAMP if known is None else time_of(known)
        if time_of(latest) > before:
            self._deleted[name] = latest
