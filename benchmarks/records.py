"""The records of the benchmarks, and models that check the outputs at the sink.

Record number n has the key `n * STRIDE % keys`, in decimal digits, and a value of 16 digits: n
itself, or the time at which it was written. So an engine's output identifies the record, and any
number of outputs can be checked as they arrive, without a copy of the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kafka_pipeline.common.errors import PipelineError
from kafka_pipeline.common.kafka.bulk import Row
from kafka_pipeline.common.record_batch import RecordBatch

KEYS = 10_000
STRIDE = 7919
"""A prime: its multiples visit all keys before any repeats, unless it divides their number."""

Numbers = npt.NDArray[np.int64]


class WrongOutputError(PipelineError):
    """An engine did not emit what it should, so its figures do not count."""


def rows(first: int, stop: int, keys: int = KEYS) -> Iterator[Row]:
    """Yield the records from `first` up to, but not including, `stop`; values are their numbers."""
    for number in range(first, stop):
        yield b"%d" % (number * STRIDE % keys), b"%016d" % number


def table_rows(keys: int = KEYS) -> Iterator[Row]:
    """Yield a row for each key of the records, and for each number of two digits."""
    for number in range(keys):
        yield b"%d" % number, b"row %d" % number
    for number in range(10):
        yield b"%02d" % number, b"row %d" % number


Reading = Callable[[Numbers, Numbers, int], Numbers]
"""Returns the numbers of records from the keys and values of an engine's outputs.

The third argument is the number of keys.
"""


def unchanged(_keys: Numbers, values: Numbers, _num_keys: int) -> Numbers:
    """Read the outputs of `forward`, and of a query that only drops records."""
    return values


def one_more(_keys: Numbers, values: Numbers, _num_keys: int) -> Numbers:
    """Read the outputs of `sum`, which adds 1 to each value."""
    return values - 1


def counted(keys: Numbers, values: Numbers, num_keys: int) -> Numbers:
    """Read the outputs of `count`: the count of a key identifies one of the key's records."""
    return (values - 1) * num_keys + first_numbers(keys, num_keys)


def first_numbers(keys: Numbers, num_keys: int) -> Numbers:
    """Return the number of the first record of each key."""
    return keys * pow(STRIDE, -1, num_keys) % num_keys


class Check(Protocol):
    """Checks the outputs of an engine as they are read from the sink."""

    def add(self, batch: RecordBatch) -> Numbers:
        """Return the numbers of the records; raises `WrongOutputError` for a wrong output."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether all expected outputs have come."""
        ...

    def missing(self) -> str:
        """Return a description of the outputs that have not come yet."""
        ...


class EachOnce:
    """One output per record, or per record that ends in a digit, in the order of the source."""

    def __init__(
        self, total: int, read: Reading, keys: int = KEYS, *, last_digit: int | None = None
    ) -> None:
        """Expect the records up to, but not including, `total`, which may be lowered later."""
        self.total = total
        self._read = read
        self._keys = keys
        self._last_digit = last_digit
        self._seen = np.zeros(total, np.bool_)
        self._largest: dict[int, int] = {}
        """The largest number so far in each partition."""
        self.found = 0

    @property
    def expected(self) -> int:
        """The number of expected outputs."""
        if self._last_digit is None:
            return self.total
        return len(range(self._last_digit, self.total, 10))

    @property
    def is_complete(self) -> bool:
        return self.found == self.expected

    def missing(self) -> str:
        return f"{self.found:,} of {self.expected:,} outputs came"

    def add(self, batch: RecordBatch) -> Numbers:
        keys = _integers(batch, batch.keys)
        numbers = self._numbers(batch, keys)
        _require(batch, numbers, (numbers >= 0) & (numbers < self.total), "is of no record")
        _require(batch, numbers, numbers * STRIDE % self._keys == keys, "has another key")
        if self._last_digit is not None:
            wanted = numbers % 10 == self._last_digit
            _require(batch, numbers, wanted, "should have been left out")
        before = np.concatenate(([self._largest.get(batch.partition, -1)], numbers[:-1]))
        _require(batch, numbers, before < numbers, "came twice or out of order")
        _require(batch, numbers, ~self._seen[numbers], "came in another partition too")
        self._seen[numbers] = True
        self._largest[batch.partition] = int(numbers[-1])
        self.found += len(numbers)
        return numbers

    def _numbers(self, batch: RecordBatch, keys: Numbers) -> Numbers:
        return self._read(keys, _integers(batch, batch.values), self._keys)


class EachOnceByKey(EachOnce):
    """One output per record, whose number follows from the order of keys and not from its value.

    This works as long as no partition lacks as many consecutive records as there are keys. Missing
    records show at the end.
    """

    def __init__(self, total: int, keys: int = KEYS) -> None:
        super().__init__(total, unchanged, keys)

    def _numbers(self, batch: RecordBatch, keys: Numbers) -> Numbers:
        places = first_numbers(keys, self._keys)
        last = self._largest.get(batch.partition, -1)
        before = np.concatenate(([last % self._keys if last >= 0 else -1], places[:-1]))
        rounds = max(last, 0) // self._keys + np.cumsum(places <= before)
        return rounds * self._keys + places


class EachOnceInAnyOrder(EachOnceByKey):
    """The same if only the outputs of one key are in order: the n-th is that of its n-th record."""

    def __init__(self, total: int, keys: int = KEYS) -> None:
        super().__init__(total, keys)
        self._counts = np.zeros(keys, np.int64)

    def add(self, batch: RecordBatch) -> Numbers:
        keys = _integers(batch, batch.keys)
        order = np.argsort(keys, kind="stable")
        _, starts, sizes = np.unique(keys[order], return_index=True, return_counts=True)
        earlier = np.empty_like(keys)
        earlier[order] = np.arange(len(keys)) - np.repeat(starts, sizes)
        rounds = self._counts[keys] + earlier
        np.add.at(self._counts, keys, 1)
        numbers = rounds * self._keys + first_numbers(keys, self._keys)
        _require(batch, numbers, numbers < self.total, "is of no record")
        self.found += len(numbers)
        return numbers


class LastOfEachKey:
    """Outputs of which some are left out: those of a key ascend, and its last one comes.

    A cache in front of a store leaves out outputs, and so does a join by a foreign key whose left
    side has changed again before the answer came.
    """

    def __init__(self, total: int, keys: int = KEYS, read: Reading = counted) -> None:
        self._keys = keys
        self._read = read
        self._last = np.full(keys, -1, np.int64)
        """The number of the last record of each key for which an output came."""
        firsts = first_numbers(np.arange(keys), keys)
        """The number of the first record of each key."""
        self._expected = np.where(
            firsts < total, firsts + (total - 1 - firsts) // keys * keys, np.int64(-1)
        )

    @property
    def is_complete(self) -> bool:
        return bool((self._last == self._expected).all())

    def missing(self) -> str:
        behind = int((self._last != self._expected).sum())
        return f"the last outputs of {behind:,} keys have not come"

    def add(self, batch: RecordBatch) -> Numbers:
        keys = _integers(batch, batch.keys)
        _require(batch, keys, (keys >= 0) & (keys < self._keys), "is the key of no record")
        numbers = self._read(keys, _integers(batch, batch.values), self._keys)
        # Sorted by key, with each key's outputs in order: neighbours with the same key must ascend.
        order = np.argsort(keys, kind="stable")
        sorted_keys, sorted_numbers = keys[order], numbers[order]
        is_first = np.concatenate(([True], sorted_keys[1:] != sorted_keys[:-1]))
        before = np.concatenate(([0], sorted_numbers[:-1]))
        before[is_first] = self._last[sorted_keys[is_first]]
        _require(batch, sorted_numbers, before < sorted_numbers, "came twice or out of order")
        in_range = sorted_numbers <= self._expected[sorted_keys]
        _require(batch, sorted_numbers, in_range, "is of no record")
        is_last = np.concatenate((is_first[1:], [True]))
        self._last[sorted_keys[is_last]] = sorted_numbers[is_last]
        return numbers


def _integers(batch: RecordBatch, column: Sequence[bytes | None]) -> Numbers:
    try:
        return np.array(column, np.bytes_).astype(np.int64)
    except (TypeError, ValueError) as error:
        raise WrongOutputError(
            f"{batch.topic}[{batch.partition}] at {batch.offsets[0]}: not decimal digits ({error})"
        ) from error


def _require(
    batch: RecordBatch, numbers: Numbers, is_right: npt.NDArray[np.bool_], what: str
) -> None:
    if not is_right.all():
        number = int(numbers[int(np.argmin(is_right))])
        raise WrongOutputError(
            f"{batch.topic}[{batch.partition}], offsets {batch.offsets[0]} to "
            f"{batch.offsets[-1]}: the output with number {number} {what}"
        )
