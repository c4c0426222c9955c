"""The JobManager hands records over without waiting, whatever its console does."""

from __future__ import annotations

from kafka_pipeline.common.protocol.messages import ControlRecord
from kafka_pipeline.console.board import Tap


def record(number: int) -> ControlRecord:
    return ControlRecord("heartbeat_topic", b"0", b"%d" % number)


def test_records_are_taken_in_order_and_once() -> None:
    tap = Tap(2)
    tap.put(record(1), 10)
    tap.put(record(2), 20)
    assert tap.take() == [(record(1), 10), (record(2), 20)]
    assert tap.take() == []


def test_a_console_that_takes_nothing_costs_a_bounded_number_of_records() -> None:
    tap = Tap(2)
    for number in range(1000):
        tap.put(record(number), 0)
    kept = tap.take()
    assert len(kept) == 32
    assert kept[-1] == (record(999), 0)
