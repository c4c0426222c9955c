"""The required results of `tests/user_code/numbered.py`, and of queries that say the same in SQL.

They are computed without the engine. So are those of `lanes.py` (`lane_ledger.py`), and sums of
counts (`total_ledger.py`).

| result | what must hold |
| --- | --- |
| `count`, on update, per key and window | each count once, from 1 on, in ascending order |
| `sum`, on close, per key and window | once, the sum of all its numbers, windows in order |
| `bucket`, on close, after a repartition | the same for the keys of a bucket |
| `lane`, on close without grace, after a repartition | the same, with how many numbers there are |
| `join`, with a partner | once for each number that has one, in order |
| `join`, without one | once for each number of former epochs that has none, in order |
| `rate`, by foreign key | never an older order or rate; the last one is of the last of both |
| `table`, a lookup in one of two tables | once for each number, with a row that is never older |
| `best`, on close, per key and window | each of the last numbers once, windows in order |
| `total`, on update, per bucket | the sum of the counts of its keys, in ascending order |
| `paired`, a join without bounds of time | once for each number that has a partner |

Queries have no `count` and no `rate`, and they alone have `table`, `best`, `total` and `paired`.
The tables hold the same numbers: even numbers look up the last row, and odd ones that of their own
time, in a history. The rows of `paired` meet by key and number, so several tasks have the numbers
of a key, and the order of its results is open.

Which of the rates an order meets on its way is open, and so is how many of its results come: that
depends on which task is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.chaos.event_times import EventTimes
from tests.chaos.lane_ledger import Lane
from tests.chaos.lanes import lane_of
from tests.chaos.numbered_results import NumberedResults, Tally
from tests.chaos.total_ledger import Total
from tests.user_code.numbered import (
    ORDERS_EVERY,
    PARTNERLESS,
    RATES_EVERY,
    WINDOW_MS,
    bucket_of,
    rate_of,
)

OF_DSL = {b"count", b"sum", b"bucket", b"lane", b"join", b"rate"}
OF_SQL = {b"sum", b"bucket", b"lane", b"join", b"table", b"best", b"total", b"paired"}
BEST = 3
"""How many numbers of each window are among the best."""
PREFIXES = (b"dsl ", b"sql ")


def paired_up_to(number: int) -> int:
    """Return how many numbers from 1 to `number` have a partner in the join."""
    return number - unpaired_up_to(number)


def unpaired_up_to(number: int) -> int:
    """Return how many numbers from 1 to `number` have no partner in the join."""
    return number // PARTNERLESS


def rate_key(rate: int) -> bytes:
    """Return the writer's key whose numbers a rate has."""
    return b"k%02d" % rate


@dataclass(slots=True)
class _Closed:
    """The results of windows that have closed, of one key or bucket."""

    keys: list[bytes]
    times: EventTimes
    latest: int = -1
    repeated: int = 0
    reordered: int = 0
    seen: dict[int, set[int]] = field(default_factory=dict)
    """The starts of windows by epoch."""

    def note(self, start: int, total: int) -> None:
        """Process a result; raises `ValueError` if it is not what the window has."""
        epoch = self.times.epoch_at(start)
        wanted = self._total(start)
        if start % WINDOW_MS or total != wanted or not wanted:
            raise ValueError(f"the sum is {wanted}")
        seen = self.seen.setdefault(epoch, set())
        is_new = start not in seen
        self.repeated += not is_new
        self.reordered += is_new and start < self.latest
        self.latest = max(self.latest, start)
        seen.add(start)

    def _total(self, start: int) -> int:
        return sum(sum(self.times.numbers_in(key, start, WINDOW_MS)) for key in self.keys)

    def lost(self, epoch: int) -> int:
        """Return how many windows of a former epoch have no result."""
        wanted = self.times.windows_in(self.keys, epoch, WINDOW_MS)
        return wanted - len(self.seen.get(epoch, ()))


@dataclass(slots=True)
class _Best:
    """The best numbers of the windows of one key, the largest first."""

    key: bytes
    times: EventTimes
    latest: tuple[int, int] = (-1, 0)
    repeated: int = 0
    reordered: int = 0
    seen: dict[int, set[int]] = field(default_factory=dict)
    """The numbers by epoch."""

    def note(self, start: int, number: int) -> None:
        """Process a result; raises `ValueError` if the number is not among the best."""
        epoch = self.times.epoch_at(start)
        best = self.times.numbers_in(self.key, start, WINDOW_MS)[-BEST:]
        if start % WINDOW_MS or number not in best:
            raise ValueError(f"the best are {list(best)}")
        seen = self.seen.setdefault(epoch, set())
        is_new = number not in seen
        place = (start, -number)
        self.repeated += not is_new
        self.reordered += is_new and place < self.latest
        self.latest = max(self.latest, place)
        seen.add(number)

    def lost(self, epoch: int) -> int:
        """Return how many numbers of a former epoch have not come."""
        most = self.times.most_in(self.key, epoch, WINDOW_MS)
        full, rest = divmod(self.times.count_in(self.key, epoch), most)
        return full * min(most, BEST) + min(rest, BEST) - len(self.seen.get(epoch, ()))


@dataclass(slots=True)
class _Rated:
    """The results of the join by a foreign key for one key: the last one, and the highest rate."""

    order: int = 0
    rate: int = 0
    highest_rates: dict[int, int] = field(default_factory=dict)
    """The highest number that each rate had in a result."""
    repeated: int = 0
    reordered: int = 0

    def note(self, order: int, rate: int) -> None:
        """Process a result; raises `ValueError` if there is no such order or rate."""
        if order % ORDERS_EVERY or rate % RATES_EVERY or order <= 0 or rate < 0:
            raise ValueError("no such order or rate")
        which = rate_of(order)
        self.repeated += (order, rate) == (self.order, self.rate)
        self.reordered += order < self.order or rate < self.highest_rates.get(which, 0)
        self.highest_rates[which] = max(rate, self.highest_rates.get(which, 0))
        self.order, self.rate = order, rate

    def is_final(self, key: bytes, written: Mapping[bytes, int]) -> bool:
        """Whether the last result is that of the last order and the last rate."""
        order = written[key] // ORDERS_EVERY * ORDERS_EVERY
        if order == 0:
            return self.order == 0
        rate = written[rate_key(rate_of(order))] // RATES_EVERY * RATES_EVERY
        return (self.order, self.rate) == (order, rate)

    def is_ahead(self, key: bytes, written: Mapping[bytes, int]) -> bool:
        """Whether a result has an order or a rate that nobody has written."""
        # The reader may note a result meanwhile.
        rates = list(self.highest_rates.items())
        return self.order > written[key] or any(
            number > written[rate_key(rate)] for rate, number in rates
        )


class DslLedger:
    """Checks the results of these kinds, in the order of each partition of the sink."""

    def __init__(self, keys: Iterable[bytes], times: EventTimes, kinds: Collection[bytes]) -> None:
        self._times = times
        keys = list(keys)
        self._counts = _numbered_results(keys if b"count" in kinds else ())
        self._looked_up = _numbered_results(keys if b"table" in kinds else ())
        self._rows = {(key, table): 0 for key in self._looked_up for table in (0, 1)}
        """The last row of each key that a record has met, by whether the table has a history."""
        self._paired = _numbered_results(keys)
        self._unpaired = _numbered_results(keys)
        self._met = _numbered_results(keys if b"paired" in kinds else ())
        self._rated = {key: _Rated() for key in (keys if b"rate" in kinds else ())}
        self._sums = {key: _Closed([key], times) for key in keys}
        in_buckets, in_lanes = _grouped(keys, bucket_of), _grouped(keys, lane_of)
        self._buckets = {bucket: _Closed(own, times) for bucket, own in in_buckets.items()}
        self._lanes = {lane: Lane(own, times) for lane, own in in_lanes.items() if b"lane" in kinds}
        self._totals = {own: Total(of) for own, of in in_buckets.items() if b"total" in kinds}
        self._best = {key: _Best(key, times) for key in (keys if b"best" in kinds else ())}
        self._wrong: list[str] = []
        notes: dict[bytes, Callable[..., None]] = {
            b"count": self._note_count,
            b"table": self._note_lookup,
            b"sum": lambda key, start, total: self._sums[key].note(start, total),
            b"bucket": lambda key, start, total: self._buckets[key].note(start, total),
            b"lane": lambda key, *result: self._lanes[key].note(*result),
            b"best": lambda key, start, number: self._best[key].note(start, number),
            b"join": self._note_join,
            b"paired": self._note_met,
            b"total": lambda bucket, total, counts: self._totals[bucket].note(total, counts),
            b"rate": lambda key, order, rate: self._rated[key].note(order, rate),
        }
        self._notes = {kind: notes[kind] for kind in kinds}

    def note(self, key: bytes | None, value: bytes) -> None:
        """Process a record of the sink whose value begins with one of `PREFIXES`."""
        try:
            _, what, *numbers = value.split()
            note = self._notes[what]
            if len(numbers) != (3 if what == b"lane" else 2):
                raise ValueError("no such result")
            note(key or b"", *map(int, numbers))
        except (KeyError, ValueError) as error:
            self._wrong.append(f"{key!r}: {value!r} ({error})")

    def _note_count(self, key: bytes, start: int, count: int) -> None:
        most = self._times.most_in(key, self._times.epoch_at(start), WINDOW_MS)
        if not 1 <= count <= most or start % WINDOW_MS:
            raise ValueError("no such count or window")
        self._counts[key].note(self._times.number_at(key, start) + count - 1)

    def _note_lookup(self, key: bytes, number: int, found: int) -> None:
        has_history = number % 2
        place = key, has_history
        if number <= 0 or found < self._rows[place] or (has_history and found > number):
            raise ValueError(f"the row was {self._rows[place]} before")
        self._rows[place] = found
        self._looked_up[key].note(number)

    def _note_join(self, key: bytes, left: int, right: int) -> None:
        has_partner = left % PARTNERLESS != 0
        if left <= 0 or right != (left if has_partner else 0):
            raise ValueError("no such pair")
        if has_partner:
            self._paired[key].note(paired_up_to(left))
        else:
            self._unpaired[key].note(unpaired_up_to(left))

    def _note_met(self, key: bytes, left: int, right: int) -> None:
        if left <= 0 or left % PARTNERLESS == 0 or right != left:
            raise ValueError("no such pair")
        self._met[key].note_in_any_order(paired_up_to(left))

    def tally(self, written: Mapping[bytes, int]) -> Tally:
        """Compare the results with the number of records written for each key."""
        numbered = list(self._numbered(written))
        ordered: list[NumberedResults | _Closed | _Best | _Rated | Lane | Total] = [
            *(results for _, _, results, _ in numbered),
            *(each for _, _, each in self._windowed()),
            *self._lanes.values(),
            *self._totals.values(),
            *self._rated.values(),
        ]
        return Tally(
            sum(lost for _, lost in self._losses(written)),
            sum(each.repeated for each in ordered),
            sum(each.reordered for each in ordered),
            len(self._wrong)
            + sum(results.highest > wanted for _, _, results, wanted in numbered)
            + sum(rated.is_ahead(key, written) for key, rated in self._rated.items())
            + sum(total.is_ahead(written) for total in self._totals.values())
            # Without a history, a late record may have a newer row, but one that was written.
            + sum(row > written[key] for (key, _), row in self._rows.items()),
        )

    def losses(self, written: Mapping[bytes, int]) -> list[str]:
        """Return the results that are wrong, then the lost ones, and how many there are."""
        lost = [f"{what}: {number} lost" for what, number in self._losses(written)]
        return [f"wrong: {each}" for each in self._wrong] + lost

    def behind(self, marks: Mapping[bytes, int]) -> list[str]:
        """Return what has no result later than its mark, of those that come record by record."""
        wanted = {key: mark + 1 for key, mark in marks.items()}
        return [
            f"{what} of {key!r}: {results.highest} of {least}"
            for what, key, results, least in self._numbered(wanted)
            if what != "join without a partner" and results.highest < least
        ] + [
            f"total of {bucket!r}: {total.sum} of {total.wanted(wanted)}"
            for bucket, total in self._totals.items()
            if total.lost(wanted)
        ]

    def is_complete(self, written: Mapping[bytes, int]) -> bool:
        """Whether the last results have come that need no later record."""
        former = self._times.epoch - 1
        return (
            all(results.highest >= wanted for _, _, results, wanted in self._numbered(written))
            and all(rated.is_final(key, written) for key, rated in self._rated.items())
            and not any(total.lost(written) for total in self._totals.values())
            and (former < 0 or all(each.lost(former) <= 0 for _, _, each in self._windowed()))
            and (former < 0 or all(lane.missing(former) <= 0 for lane in self._lanes.values()))
        )

    def _numbered(
        self, written: Mapping[bytes, int]
    ) -> Iterator[tuple[str, bytes, NumberedResults, int]]:
        """Yield all numbered results, with the last number that must have come."""
        for what, found in (("count", self._counts), ("table", self._looked_up)):
            for key, results in found.items():
                yield what, key, results, written[key]
        for key, number in written.items():
            yield "join", key, self._paired[key], paired_up_to(number)
            if key in self._met:
                yield "paired", key, self._met[key], paired_up_to(number)
            former = self._times.before_epoch(key)
            yield "join without a partner", key, self._unpaired[key], unpaired_up_to(former)

    def _windowed(self) -> Iterator[tuple[str, bytes, _Closed | _Best]]:
        """Yield the results of windows that close."""
        for what, of_keys in (("sum", self._sums), ("bucket", self._buckets), ("best", self._best)):
            for key, results in of_keys.items():
                yield what, key, results

    def _losses(self, written: Mapping[bytes, int]) -> Iterator[tuple[str, int]]:
        for what, key, results, wanted in self._numbered(written):
            if lost := results.lost(wanted):
                yield f"{what} of {key!r}, the first is {results.first_lost()}", lost
        for what, key, closed in self._windowed():
            for epoch in range(self._times.epoch):
                if lost := closed.lost(epoch):
                    yield f"{what} of {key!r} in epoch {epoch}", lost
        for key, lane in self._lanes.items():
            if lane.left_out:
                yield f"lane of {key!r}, left out of windows, {lane.first_short}", lane.left_out
            for epoch in range(self._times.epoch):
                if lost := lane.lost(epoch):
                    yield f"lane of {key!r} in epoch {epoch}, in windows without a result", lost
        for bucket, total in self._totals.items():
            if lost := total.lost(written):
                yield f"total of {bucket!r}, whose last is {total.sum} of {total.counts} keys", lost
        for key, rated in self._rated.items():
            if not rated.is_final(key, written):
                yield f"rate of {key!r}, whose last is {rated.order} with {rated.rate}", 1


def _numbered_results(keys: Iterable[bytes]) -> dict[bytes, NumberedResults]:
    return {key: NumberedResults() for key in keys}


def _grouped(keys: Iterable[bytes], group_of: Callable[[bytes], bytes]) -> dict[bytes, list[bytes]]:
    groups: dict[bytes, list[bytes]] = {}
    for key in keys:
        groups.setdefault(group_of(key), []).append(key)
    return groups
