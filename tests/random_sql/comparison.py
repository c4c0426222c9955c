"""One query over one input on both sides."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.streams.sql.access import Readable
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.spec import QuerySpec
from tests.random_sql.engine_side import EngineSide, RefusedError
from tests.random_sql.inputs import Inputs
from tests.random_sql.judge import Difference, Judge, Row, UnjudgedError, difference, folded
from tests.random_sql.queries import Query
from tests.unit.streams.sql.grouped_job import OpenedOnce


@dataclass(frozen=True)
class Case:
    """A query, its inputs, and what was found.

    `refused` is the engine's message for a query that it does not take and Spark does, `unjudged`
    that of Spark, and `broken` any other error.
    """

    query: Query
    inputs: Inputs
    rows: int = 0
    difference: Difference | None = None
    refused: str = ""
    unjudged: str = ""
    broken: str = ""

    @property
    def kind(self) -> str:
        """Return what is wrong in a word, or nothing."""
        if self.broken:
            return "error"
        return "difference" if self.difference is not None else ""

    def __str__(self) -> str:
        """Show all that is needed to look into it."""
        found = self.difference or self.broken or self.refused
        shown = f"{self.query.pipeline('FOLDER')}\n\n{self.query.text}\n\n{self.inputs}\n\n{found}"
        return shown + "".join(f"\n{name}: {rows}" for name, rows in self.query.files.items())


class Comparison:
    """Compares both sides on one Spark."""

    def __init__(self, ours: EngineSide, judge: Judge) -> None:
        """Take both sides."""
        self.ours, self.judge = ours, judge

    def compare(self, query: Query, inputs: Inputs) -> Case:
        """Run both sides, and return what was found."""
        return self.compare_all(query, [inputs])[0]

    def compare_all(self, query: Query, runs: Sequence[Inputs]) -> list[Case]:
        """Run both sides with each of some inputs; the query is planned once."""
        expected = self.judge.expected(query, runs)
        try:
            return [
                Case(query, inputs, unjudged=str(rows))
                if isinstance(rows, UnjudgedError)
                else self._case(query, inputs, rows)
                for inputs, rows in zip(runs, expected, strict=True)
            ]
        finally:
            self.ours.forget()

    def _case(self, query: Query, inputs: Inputs, expected: Sequence[Row]) -> Case:
        try:
            found = folded(query, self.ours.run(query, inputs))
        except RefusedError as error:
            return Case(query, inputs, refused=str(error))
        except Exception as error:
            return Case(query, inputs, broken=f"{type(error).__name__}: {error}")
        return Case(query, inputs, len(expected), difference(expected, found))


@contextmanager
def opened() -> Iterator[Comparison]:
    """Start a Spark in this process, and return what compares on it."""
    with tempfile.TemporaryDirectory(prefix="random_sql_") as folder:
        local = LocalQueries(UserCode(), Readable(TableSettings(paths=(folder,))))
        local.open(QuerySpec("SELECT value FROM input")).close()  # starts Spark as users have it
        queries = OpenedOnce(local)
        yield Comparison(EngineSide(queries, Path(folder)), Judge())
