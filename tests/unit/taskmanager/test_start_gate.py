"""A start that waits for the driver's word before it fences."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from kafka_pipeline.common.kafka.clients import TransactionFailedError
from kafka_pipeline.taskmanager import start_gate
from kafka_pipeline.taskmanager.start_gate import GRACE_S, StartGate


def test_start_waits_until_the_gate_opens() -> None:
    gate, looked = StartGate(), threading.Event()
    gate.set(False)
    start = threading.Thread(target=gate.wait, args=(looked.set,), daemon=True)
    start.start()
    assert looked.wait(10)
    assert start.is_alive()
    gate.set(True)
    start.join(10)
    assert not start.is_alive()


def test_start_that_is_cancelled_does_not_wait() -> None:
    gate = StartGate()
    gate.set(False)

    def require_wanted() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gate.wait(require_wanted)


def test_fence_under_way_is_given_up_once_the_gate_has_been_closed_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr(start_gate, "time", SimpleNamespace(monotonic=lambda: now_s))
    gate = StartGate()
    gate.set(False)
    now_s += GRACE_S
    gate.set(False)
    gate.require_open()
    now_s += 0.1
    with pytest.raises(TransactionFailedError, match="others may own the task"):
        gate.require_open()
    gate.set(True)
    gate.require_open()
