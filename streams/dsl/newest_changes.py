"""Leaves out updates of a table that others of the same batch replace, as a record cache does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafka_pipeline.streams.dsl.change import ChangeColumn, column_of_latest
from kafka_pipeline.streams.dsl.stateless import selected
from kafka_pipeline.streams.engine.either_way import EitherWay
from kafka_pipeline.streams.record import Batch, Record, items_of


class NewestChanges(EitherWay):
    """Forwards one change of each key of a batch: from its first old value to its last new one.

    Keys are the same if their bytes are. A row that comes and goes within the batch is left out
    where old values are known. Batches with changes that are not the latest of their keys stay as
    they are: history has all versions.
    """

    def __init__(self, write_key: Callable[[Any], bytes], sends_old: bool) -> None:
        self._write_key = write_key
        self._sends_old = sends_old

    def process(self, batch: Batch) -> None:
        changes = column_of_latest(batch.values)
        if changes is not None:
            batch = self._newest(batch, changes)
        if len(batch):
            self.context.forward(batch)

    def process_record(self, record: Record) -> None:
        self.context.forward(record)

    def _newest(self, batch: Batch, changes: ChangeColumn) -> Batch:
        ids = self._ids(items_of(batch.keys))
        last = {each: index for index, each in enumerate(ids)}
        if len(last) == len(ids):
            return batch
        before: dict[Any, Any] = {}
        for each, old in zip(ids, changes.old, strict=True):
            before.setdefault(each, old)
        news, olds = changes.new, [before[each] for each in ids]
        kept = [last[each] == index for index, each in enumerate(ids)]
        if self._sends_old:
            kept = [
                is_last and not (new is None and old is None)
                for is_last, new, old in zip(kept, news, olds, strict=True)
            ]
        return selected(batch.with_values(ChangeColumn(news, olds)), kept)

    def _ids(self, keys: Sequence[Any]) -> Sequence[Any]:
        """Return what tells keys apart: strings themselves, which is faster, or bytes."""
        if all(key.__class__ is str for key in keys):
            return keys
        return list(map(self._write_key, keys))
