"""Transactional producers that are dropped in the middle of a transaction, on a real Kafka."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

COUNT = 600
"""librdkafka ended the process within 50 to 300, as long as nothing was done about it."""


@pytest.mark.long
def test_a_producer_that_registers_partitions_can_be_dropped(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    command = [sys.executable, "-m", "tests.dropped_producers"]
    arguments = [str(tmp_path), bootstrap_servers, str(COUNT)]
    done = subprocess.run(
        command + arguments, stderr=subprocess.PIPE, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
