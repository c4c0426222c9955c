"""Makes rows of change events, in front of the processors of a query and of its tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

import msgspec

from kafka_pipeline.streams.debezium import Change, EnvelopeError, read_change, read_key
from kafka_pipeline.streams.dsl.global_table import GlobalFiller
from kafka_pipeline.streams.dsl.stateless import selected
from kafka_pipeline.streams.engine.mixed import LookupTable, MixedProcessor
from kafka_pipeline.streams.event_time.step_time import FollowsTime
from kafka_pipeline.streams.kept_changes import REPEATED, Kept, Step, step
from kafka_pipeline.streams.processor import (
    BatchProcessor,
    ProcessorContext,
    RecordRejectedError,
)
from kafka_pipeline.streams.record import Batch, Record
from kafka_pipeline.streams.stores import KeyValueStore

NO_ROW = "no change of a row"
"""The reason under which events about no row are counted, such as markers of transactions."""

_NO_KEY = (
    "the record has no key, so it is not known which row it changes: the table needs a primary "
    "key, or the connector message.key.columns"
)


@dataclass(slots=True)
class _Rows:
    """The rows that the first records of a batch change, and what becomes of these records."""

    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    is_passed: list[bool] = field(default_factory=list)
    """Whether a record gives a row or deletes one."""
    kept: list[tuple[bytes, Kept] | None] = field(default_factory=list)
    """What is kept of the key of each record from then on, if that has changed."""
    dropped: list[str] = field(default_factory=list)
    """The reason why each record gives nothing, or ""."""
    wrong: str = ""
    """Why the record after these is none that can be read."""

    def add(self, key: bytes, found: Step | None, known: dict[bytes, Kept | None]) -> None:
        """Add what a record of a key comes to; `None` if it is about no row."""
        self.is_passed.append(found is not None and found.is_passed)
        if found is None:
            self.kept.append(None)
            self.dropped.append(NO_ROW)
            return
        kept, former = found.kept, known[key]
        self.kept.append(None if kept is None or kept is former else (key, kept))
        self.dropped.append(REPEATED if found.is_repeated else "")
        known[key] = kept
        if found.is_passed:
            self.keys.append(key)
            self.values.append(found.row)

    def of(self, batch: Batch) -> Batch:
        """Return the rows as records of the `batch`."""
        mask = self.is_passed + [False] * (len(batch) - len(self.is_passed))
        rows = selected(batch, mask)
        return rows.with_columns(self.keys, self.values)


class ChangeRows(BatchProcessor, FollowsTime):
    """Gives another processor the rows that change events make, as upserts by key.

    The store has what is kept of each key. A repeated change is dropped and counted. The other
    processor, the only one that knows what rows are for, runs within this one.
    """

    def __init__(self, store: str, make: Callable[[], BatchProcessor]) -> None:
        self._name = store
        self._inner = make()

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store: KeyValueStore[bytes, Kept] = context.get_state_store(self._name)
        self._inner.init(context)

    def process(self, batch: Batch) -> None:
        """Give the rows of a batch on; rejects a record that is no change of a row."""
        rows = self._rows(batch)
        if rows.keys:
            passed = rows.of(batch)
            try:
                self._inner.process(passed)
            except RecordRejectedError as error:
                if error.batch is not passed:
                    raise
                places = [at for at, is_passed in enumerate(rows.is_passed) if is_passed]
                index = places[error.index]
                self._finish(rows, index)
                raise RecordRejectedError(error.reason, batch, index) from error
        size = len(rows.is_passed)
        self._finish(rows, size)
        if rows.wrong:
            raise RecordRejectedError(rows.wrong, batch, size)

    def time_passed(self, time: int) -> None:
        if isinstance(self._inner, FollowsTime):
            self._inner.time_passed(time)

    def close(self) -> None:
        """Close the other processor."""
        self._inner.close()

    def _rows(self, batch: Batch) -> _Rows:
        rows, read = _Rows(), list[tuple[bytes, Change | None]]()
        try:
            for key, value in zip(batch.keys, batch.values, strict=True):
                read.append(_read(key, value))
        except EnvelopeError as error:
            rows.wrong = str(error)
        keys = dict.fromkeys(key for key, change in read if change is not None)
        known = dict(zip(keys, self._store.get_all(keys), strict=True))
        try:
            for key, change in read:
                rows.add(key, None if change is None else step(known[key], change), known)
        except EnvelopeError as error:
            rows.wrong = str(error)
        return rows

    def _finish(self, rows: _Rows, size: int) -> None:
        """Keep what the first `size` records have changed, and count those that gave nothing."""
        changed = dict(filter(None, rows.kept[:size]))
        if changed:
            self._store.put_all(changed)
        for reason in filter(None, rows.dropped[:size]):
            self.context.drop(reason)


class ChangesOfQuery(ChangeRows, MixedProcessor):
    """Gives a query the rows of its input."""


class ChangesOfTable(ChangeRows, LookupTable):
    """Gives a table that follows a topic the rows of that topic."""

    def __init__(self, store: str, make: Callable[[], BatchProcessor]) -> None:
        super().__init__(store, make)
        self.history_ms = self._inner.history_ms if isinstance(self._inner, LookupTable) else inf


class GlobalChanges(GlobalFiller):
    """Puts the rows of a topic of change events into a global store.

    It keeps nothing but the rows: repeated changes are repeated in the store.
    """

    def process(self, record: Record) -> None:
        """Put a row, or delete it. Raises `RecordRejectedError` for what is no change of a row."""
        try:
            key, change = _read(record.key, record.value)
            if change is None:
                self.context.drop(NO_ROW)
                return
            found = self._store.get(key) if change.missing else None
            row = msgspec.Raw(b"null" if found is None else found.value)
            row_now = step(Kept(is_there=True, row=row), change).row
        except EnvelopeError as error:
            raise RecordRejectedError(str(error)) from error
        super().process(Record(key, row_now, record.timestamp))


def _read(key: bytes | None, value: bytes | None) -> tuple[bytes, Change | None]:
    """Return the key of a row and what a record does to it; `None` if it is about no row."""
    change = read_change(value)
    if change is None:
        return b"", None
    if key is None:
        raise EnvelopeError(_NO_KEY)
    return read_key(key), change
