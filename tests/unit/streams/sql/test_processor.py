"""The processor of queries, with a query that needs no Spark."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest

from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.sql.processor import SparkProcessor
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec, SparkLostError
from tests.unit.streams.nodes import Tasks, batch, chain

SKIPS = GroupSettings(on_error=OnError.SKIP, takes_inputs_as_they_come=True, accumulates=True)


class Failing:
    """A query that returns its records, and fails on `bad` ones, or the next few times."""

    columns = ("value", "timestamp")
    fields = split = None

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.sizes: list[int] = []

    def open(self, spec: QuerySpec) -> Failing:
        return self

    def run(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        self.sizes.append(len(table))
        if self.failures:
            self.failures -= 1
            raise QueryError("no free something")
        values = table["value"].to_pylist()
        if "bad" in values:
            raise QueryError("no good")
        return pa.table({"value": pa.array(values, pa.binary()), "timestamp": [0] * len(values)})

    def parts(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        raise AssertionError("its results are whole")

    def replace(self, name: str, rows: pa.Table) -> None:
        raise AssertionError("it has no tables")

    def close(self) -> None:
        """Nothing to release."""


def processed(query: Failing, *values: bytes) -> list[bytes | None]:
    task = Tasks(chain(lambda: SparkProcessor(QuerySpec(), query.open)), SKIPS)
    task.task.add(batch(values))
    while task.task.step(0, task.partitions).has_more:
        pass
    return [value for _, _, value, _ in task.taken()]


def test_record_on_which_spark_fails_twice_alone_is_rejected() -> None:
    query = Failing()
    assert processed(query, b"1", b"bad") == [b"1"]
    assert query.sizes == [2, 1, 1, 0, 1]


def test_record_on_which_spark_fails_once_is_not_rejected() -> None:
    assert processed(Failing(failures=1), b"1") == [b"1"]
    assert processed(Failing(failures=1), b"1", b"2") == [b"1", b"2"]


@pytest.mark.parametrize("values", [(b"1",), (b"1", b"2", b"3")])
def test_no_record_is_rejected_where_spark_fails_on_no_records(values: tuple[bytes, ...]) -> None:
    with pytest.raises(SparkLostError, match="Spark fails on no records: no free something"):
        processed(Failing(failures=100), *values)
