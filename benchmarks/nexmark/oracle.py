"""What the right results of each query are: DuckDB runs `answers.sql` over the same events."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.compute as pc

from benchmarks.nexmark.catalog import FOLDER, Query, sections
from benchmarks.nexmark.generator import TOPICS, Events
from benchmarks.records import WrongOutputError

ANSWERS = sections(FOLDER / "answers.sql")

Rows = Counter[tuple[Any, ...]]
Result = tuple[bytes | None, bytes | None]
"""The key and the value of a record in the sink."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a right result, each with its number, and the names of their columns."""

    columns: tuple[str, ...]
    rows: Rows


class Oracle:
    """The events in a database, which may be larger than memory if it is in a file."""

    def __init__(self, file: Path | None = None) -> None:
        self._connection = duckdb.connect(str(file) if file else ":memory:")
        self._answers: dict[str, Answer] = {}
        self.counts = dict.fromkeys(TOPICS, 0)
        """The number of events of each topic."""
        self.last_ms = 0
        """The largest time of an event, which is that of the closing ones."""

    def add(self, events: Events) -> None:
        """Take events in; all must be there before the first `answer`."""
        for topic, table in events.items():
            self._connection.register("added", table)
            verb = "INSERT INTO" if self.counts[topic] else "CREATE TABLE"
            word = "" if self.counts[topic] else "AS"
            self._connection.execute(f"{verb} {topic} {word} SELECT * FROM added")
            self._connection.unregister("added")
            self.counts[topic] += table.num_rows
            self.last_ms = max(self.last_ms, pc.max(table["dateTime"]).as_py() or 0)

    def answer(self, query: Query) -> Answer:
        """Return the right result of a query."""
        if query.name not in self._answers:
            found = self._connection.execute(ANSWERS[query.name].text)
            columns = tuple(column[0] for column in found.description)
            self._answers[query.name] = Answer(columns, Counter(found.fetchall()))
        return self._answers[query.name]

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


@dataclass(slots=True)
class Results:
    """The results of a run so far: all of them or, of a table, the last one of each key.

    Rows of windows that begin at `until_ms` or later are left out.
    """

    query: Query
    is_table: bool
    until_ms: float = inf
    _last: dict[bytes | None, bytes] = field(default_factory=dict)
    _all: list[bytes] = field(default_factory=list)

    def add(self, records: Iterable[Result]) -> None:
        """Take records from the sink, those of a partition in their order."""
        if self.is_table:
            for key, value in records:
                if value is None:
                    self._last.pop(key, None)
                else:
                    self._last[key] = value
        else:
            self._all.extend(value for _, value in records if value is not None)

    def rows(self, columns: tuple[str, ...]) -> Rows:
        """Return the rows of these columns; a row with other columns has a mark at its end."""
        values = self._last.values() if self.is_table else self._all
        decoded: Callable[[bytes], dict[str, Any]] = json.loads
        rows = Rows()
        for row in self.query.reading(map(decoded, values)):
            if self.until_ms < inf and row[self.query.window_time] >= self.until_ms:
                continue
            others = () if row.keys() == set(columns) else (tuple(sorted(row.keys())),)
            rows[(*(row.get(name) for name in columns), *others)] += 1
        return rows

    def require(self, answer: Answer) -> None:
        """Raise `WrongOutputError` if these are not the right results; it shows an example."""
        found = self.rows(answer.columns)
        if found == answer.rows:
            return
        missing, wrong = answer.rows - found, found - answer.rows
        parts = [
            f"{rows.total():,} {what}, such as {_shown(answer.columns, rows)}"
            for what, rows in (("rows are missing", missing), ("rows are wrong", wrong))
            if rows
        ]
        raise WrongOutputError(f"{self.query.name}: {'; '.join(parts)}")


def _shown(columns: tuple[str, ...], rows: Rows) -> Mapping[str, Any]:
    row = min(rows, key=repr)
    return dict(zip((*columns, "all columns"), row, strict=False))
