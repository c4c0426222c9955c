"""Batches that go to a JVM and come back over a socket, which may break at any byte."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kafka_pipeline.streams.sql.compiled_plan import INPUT, CompiledPlan
from kafka_pipeline.streams.sql.plan_calls import (
    MOST_INTERPRETED,
    BatchSocket,
    JavaError,
    PlanInJvm,
)
from kafka_pipeline.streams.sql.spec import SparkLostError
from tests.fake_jvm import CANCELLED, DONE, FAILED, FAILED_IN_PYTHON, FakeJvm, answered

ROWS = pa.table({"n": pa.array(range(1000))})


@pytest.fixture
def jvm(tmp_path: Path) -> Iterator[FakeJvm]:
    fake = FakeJvm()
    with fake.listen(tmp_path / "batches"):
        yield fake


@pytest.fixture
def batches(jvm: FakeJvm, tmp_path: Path) -> Iterator[BatchSocket]:
    connected = BatchSocket(str(tmp_path / "batches"))
    yield connected
    connected.close()


def plan(batches: BatchSocket) -> CompiledPlan:
    leaves = {INPUT: ROWS.schema, "names": ROWS.schema}
    return CompiledPlan(("n",), leaves, ROWS.schema, PlanInJvm("o7", batches.ask))


@pytest.mark.parametrize("size", [0, 1, 1000, 1_000_000])
def test_results_are_those_that_the_jvm_sends(
    jvm: FakeJvm, batches: BatchSocket, size: int
) -> None:
    rows = pa.table({"n": pa.array(range(size), pa.int64())})
    for _ in range(2):
        assert plan(batches).run(rows).equals(pa.concat_tables([rows, rows]))
    is_small = 8 * size <= MOST_INTERPRETED
    assert jvm.asked == [("o7", is_small, [int(size > 0), 0])] * 2


def test_all_leaves_have_rows(jvm: FakeJvm, batches: BatchSocket) -> None:
    plan(batches).run(ROWS, {"names": ROWS.slice(0, 3)})
    assert jvm.asked == [("o7", True, [1, 1])]


def test_columns_of_results_begin_where_eight_bytes_do(batches: BatchSocket) -> None:
    (first, second) = plan(batches).run(ROWS)["n"].chunks
    assert [chunk.buffers()[1].address % 8 for chunk in (first, second)] == [0, 0]


@pytest.mark.parametrize(("status", "is_of_python"), [(FAILED, False), (FAILED_IN_PYTHON, True)])
def test_an_error_of_the_jvm_is_one_of_that_batch(
    jvm: FakeJvm, batches: BatchSocket, status: int, is_of_python: bool
) -> None:
    text = "a.B: [C] ü"
    jvm.instead = lambda batch: answered(status, text.encode())
    with pytest.raises(JavaError) as raised:
        plan(batches).run(ROWS)
    assert (str(raised.value), raised.value.is_of_python) == (text, is_of_python)
    jvm.instead = lambda batch: None
    assert len(plan(batches).run(ROWS)) == 2000


def test_a_query_that_was_cancelled_is_not_a_records_fault(
    jvm: FakeJvm, batches: BatchSocket
) -> None:
    jvm.instead = lambda batch: answered(CANCELLED, b"a.B: interrupted")
    with pytest.raises(SparkLostError, match="the query was cancelled"):
        plan(batches).run(ROWS)


@pytest.mark.parametrize("share", [0, 0.001, 0.1, 0.5, 0.999])
def test_results_that_break_off_are_an_error(tmp_path: Path, share: float) -> None:
    """As if the JVM had ended in the middle."""
    parts = (batch.serialize().to_pybytes() for batch in ROWS.to_batches(100))
    answer = answered(DONE, *parts)

    def serve() -> None:
        accepted, _ = listener.accept()
        with accepted:
            accepted.recv(100_000)
            accepted.sendall(answer[: round(len(answer) * share)])

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "batches"))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        connected = BatchSocket(str(tmp_path / "batches"))
        with pytest.raises(SparkLostError, match="Spark's JVM is gone"):
            plan(connected).run(ROWS)
        connected.close()
        thread.join()


def test_a_jvm_that_does_not_listen_is_gone(tmp_path: Path) -> None:
    with pytest.raises(SparkLostError, match="Spark's JVM is gone"):
        BatchSocket(str(tmp_path / "batches"))
