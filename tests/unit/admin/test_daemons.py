"""Daemons as the quickstart and the integration tests start them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafka_pipeline.admin.daemons import Daemon
from kafka_pipeline.admin.signals import Signals

SHOW = "import os; print(os.environ.get('INHERITED'), os.environ.get('ADDED'))"


def shown(log_file: Path, environment: dict[str, str] | None) -> str:
    daemon = Daemon("show", [sys.executable, "-c", SHOW], log_file, environment)
    daemon.start(Signals())
    assert daemon.wait(timeout_s=20)
    return log_file.read_text()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (None, "here None\n"),
        ({"ADDED": "more"}, "here more\n"),
        ({"INHERITED": "other"}, "other None\n"),
    ],
)
def test_environment_adds_to_that_of_this_process(
    environment: dict[str, str] | None,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("INHERITED", "here")
    assert shown(tmp_path / "log", environment) == expected
