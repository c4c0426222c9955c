"""The required content of the sink, computed without the engine, and its observed content.

The writer numbers the records of each key: the n-th has the value `BASE + n`. The pipeline derives
four results from each record: `count` emits `n`; `sum`, which adds 1, emits `BASE + n + 1`; the
auditor, a second reader of the source, adds `BASE` again; and the pairer joins count and sum and
emits `3 * BASE + n`. So every result identifies the record from which it stems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from tests.chaos.dsl_ledger import PREFIXES, DslLedger
from tests.chaos.event_times import EventTimes
from tests.chaos.numbered_results import NumberedResults, Tally

BASE = 10**12


def value_of(number: int) -> int:
    """Return the value of the n-th record of a key."""
    return BASE + number


def sum_of(number: int) -> int:
    """Return the result of `sum` for the n-th record of a key."""
    return value_of(number) + 1


def audit_of(number: int) -> int:
    """Return the auditor's result for the n-th record of a key."""
    return value_of(number) + BASE


def pair_of(number: int) -> int:
    """Return the pairer's result for the n-th record of a key."""
    return 3 * BASE + number


class Ledger:
    """Checks the records of the sink, in the order of each partition.

    While the pipeline is being edited, it may lack an Adder. Then sums and pairs are missing,
    from `suspend_sums` to `resume_sums`.

    With `times`, the pipeline also has windows and joins, whose results, of these kinds,
    `DslLedger` checks.
    """

    def __init__(
        self,
        keys: Iterable[bytes],
        times: EventTimes | None = None,
        kinds: Collection[bytes] = (),
    ) -> None:
        self._counts = {key: NumberedResults() for key in keys}
        self._sums = {key: NumberedResults() for key in self._counts}
        self._audits = {key: NumberedResults() for key in self._counts}
        self._pairs = {key: NumberedResults() for key in self._counts}
        self._dsl = None if times is None else DslLedger(self._counts, times, kinds)
        self._wrong = 0
        self.results = 0
        self.others: Counter[tuple[bytes | None, bytes | None]] = Counter()
        """Results whose keys the writer does not number, each with how often it came."""
        self.excused: list[tuple[dict[bytes, int], dict[bytes, int]]] = []
        """Per key, the number after which, and up to which, there must be no sums and pairs."""
        self._suspended: dict[bytes, int] | None = None

    def note(self, key: bytes | None, value: bytes | None) -> None:
        """Process a record of the sink."""
        if self._dsl is not None and value is not None and value.startswith(PREFIXES):
            self.results += 1
            self._dsl.note(key, value)
            return
        if key is None or key not in self._counts:
            self.others[key, value] += 1
            return
        self.results += 1
        try:
            number = int(value or b"")
        except ValueError:
            self._wrong += 1
            return
        if 0 < number < BASE:
            self._counts[key].note(number)
        elif sum_of(0) < number < audit_of(0):
            self._sums[key].note(number - sum_of(0))
        elif audit_of(0) < number < pair_of(0):
            self._audits[key].note(number - audit_of(0))
        elif number > pair_of(0):
            self._pairs[key].note(number - pair_of(0))
        else:
            self._wrong += 1

    def suspend_sums(self, written: Mapping[bytes, int]) -> None:
        """Expect no sums and no pairs for records that are written from now on."""
        self._suspended = dict(written)

    def resume_sums(self, written: Mapping[bytes, int]) -> None:
        """Expect sums and pairs again for records that are written from now on."""
        assert self._suspended is not None, "suspend_sums comes first"
        low, self._suspended = self._suspended, None
        self.excuse(low, dict(written))

    def excuse(self, low: dict[bytes, int], high: dict[bytes, int]) -> None:
        """Expect no sums and pairs for the numbers after `low`, up to `high`.

        Call it when all other results for these numbers have come.
        """
        self.excused.append((low, high))
        for kind in (self._sums, self._pairs):
            for key, stream in kind.items():
                stream.excuse(low[key], high[key])

    def begin_after(self, numbers: Mapping[bytes, int], audited: Mapping[bytes, int]) -> None:
        """Expect only results of records after these numbers: another job had the others.

        The auditor reads the source by itself, and so may have begun at other records.
        """
        for kind in (self._counts, self._sums, self._pairs):
            for key, stream in kind.items():
                stream.excuse(0, numbers[key])
        for key, stream in self._audits.items():
            stream.excuse(0, audited[key])

    def tally(self, written: Mapping[bytes, int]) -> Tally:
        """Compare the results with the number of records written for each key."""
        kinds = (self._counts, self._sums, self._audits, self._pairs)
        streams = [(written[key], stream) for kind in kinds for key, stream in kind.items()]
        found = Tally(
            sum(
                s.lost(written[key]) for kind in self._required.values() for key, s in kind.items()
            ),
            sum(stream.repeated for _, stream in streams)
            + sum(count - 1 for count in list(self.others.values())),
            sum(stream.reordered for _, stream in streams),
            self._wrong + sum(stream.highest > number for number, stream in streams),
        )
        return found if self._dsl is None else found.plus(self._dsl.tally(written))

    def losses(self, written: Mapping[bytes, int]) -> list[str]:
        """Return the lost results: for each key, how many, and the first number."""
        of_dsl = [] if self._dsl is None else self._dsl.losses(written)
        return of_dsl + [
            f"{kind} of {key!r}: {lost} lost of {written[key]}, the first is {stream.first_lost()}"
            for kind, streams in self._required.items()
            for key, stream in streams.items()
            if (lost := stream.lost(written[key]))
        ]

    @property
    def _required(self) -> dict[str, dict[bytes, NumberedResults]]:
        kinds = {"count": self._counts, "audit": self._audits}
        if self._suspended is not None:
            return kinds
        return kinds | {"sum": self._sums, "pair": self._pairs}

    def has_passed(self, marks: Mapping[bytes, int]) -> bool:
        """Whether a result later than its mark has come for every key and kind."""
        is_ahead = self._reaches({key: mark + 1 for key, mark in marks.items()})
        return is_ahead and (self._dsl is None or not self._dsl.behind(marks))

    def behind(self, marks: Mapping[bytes, int]) -> list[str]:
        """Return the keys and kinds for which no result later than the mark has come."""
        of_dsl = [] if self._dsl is None else self._dsl.behind(marks)
        return of_dsl + [
            f"{kind} of {key!r}: {stream.highest} of {marks[key] + 1}"
            for kind, streams in self._required.items()
            for key, stream in streams.items()
            if stream.highest <= marks[key]
        ]

    def is_complete(self, written: Mapping[bytes, int]) -> bool:
        """Whether the last results of all keys have come."""
        return self._reaches(written) and (self._dsl is None or self._dsl.is_complete(written))

    def _reaches(self, numbers: Mapping[bytes, int]) -> bool:
        return all(
            kind[key].highest >= number
            for kind in self._required.values()
            for key, number in numbers.items()
        )
