"""The turns of a TaskManager's main loop, without a Kafka and without a Spark."""

from __future__ import annotations

from queue import SimpleQueue
from types import SimpleNamespace

from taskmanager.daemon import TaskManagerDaemon


def test_errors_of_reports_are_looked_for_in_each_turn() -> None:
    polls: list[str] = []
    daemon = TaskManagerDaemon.__new__(TaskManagerDaemon)
    parts = {
        "_reader": SimpleNamespace(read=lambda _: []),
        "_writer": SimpleNamespace(poll=lambda: polls.append("reports")),
        "_leases": SimpleNamespace(show_life=lambda: None),
        "_state": SimpleNamespace(handle=lambda _: []),
        "_events": SimpleQueue(),
    }
    for name, part in parts.items():
        setattr(daemon, name, part)
    daemon._tick()
    daemon._tick()
    assert polls == ["reports", "reports"]
