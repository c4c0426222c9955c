"""The transactions of a database as a connector passes them on, and the state after each one."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.change_data.connector import TRANSACTIONS, Connector, Given

Rows = list[dict[str, Any]]


class State(NamedTuple):
    """What the database says after a transaction: the rows of the table, and a SELECT over them."""

    rows: Rows
    totals: Rows


class Passed(NamedTuple):
    """The records of a transaction that were passed on, and the state of the table after it.

    A transaction that comes again has the state after the newest one that has come.
    """

    records: Sequence[Given]
    state: State


@dataclass
class Transactions:
    """The states of a database after each of its transactions, by their numbers.

    `number_of` returns the number of a transaction from the id that a connector gives it.
    """

    number_of: Callable[[str], str]
    states: dict[str, State] = field(default_factory=dict)
    numbers: list[str] = field(default_factory=list)
    newest: int = -1

    def add(self, number: str, state: State) -> None:
        """Add the state after a transaction."""
        self.states[number] = state
        self.numbers.append(number)

    def snapshot(self, records: Sequence[Given]) -> Passed:
        """Return the records of a snapshot, and the state now."""
        self.newest = len(self.numbers) - 1
        return Passed(records, self.states[self.numbers[-1]])

    def passed(self, connector: Connector, until: str | None = None) -> Iterator[Passed]:
        """Yield what a connector gives, until it has given a transaction: the newest by default."""
        until = until or self.numbers[-1]
        records: list[Given] = []
        for given in connector.records(120):
            if given.topic != TRANSACTIONS:
                records.append(given)
                continue
            assert given.value is not None
            marker = json.loads(given.value)
            marker = marker.get("payload", marker)
            number = self.number_of(marker["id"])
            if marker["status"] != "END" or number not in self.states:
                continue
            self.newest = max(self.newest, self.numbers.index(number))
            yield Passed(records, self.states[self.numbers[self.newest]])
            records = []
            if number == until:
                return


def rows_read(connector: Connector, topic: str, size: int) -> list[Given]:
    """Return the records of a snapshot, until it has given so many rows of a topic."""
    records = connector.records(120)
    found: list[Given] = []
    while size:
        found.append(next(records))
        size -= found[-1].topic == topic
    return found


def record(file: Path, story: Iterable[Passed]) -> None:
    """Write a story to a file."""
    with gzip.open(file, "wt", encoding="utf-8") as lines:
        for records, state in story:
            texts = [
                [each.topic, *(part and part.decode() for part in each[1:])] for each in records
            ]
            lines.write(json.dumps({"records": texts, **state._asdict()}) + "\n")


def recorded(file: Path) -> Iterator[Passed]:
    """Yield a story that was written to a file."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            found = json.loads(line)
            records = [
                Given(topic, *(None if each is None else each.encode() for each in rest))
                for topic, *rest in found["records"]
            ]
            yield Passed(records, State(found["rows"], found["totals"]))
