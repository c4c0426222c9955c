"""CPU time and memory of a session, and the latency of records."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.bench import Outputs
from benchmarks.resources import PeakMemory, cpu_s, memory_mb
from benchmarks.runs.latency import latencies_ms
from kafka_pipeline.common.record_batch import RecordBatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# Uses CPU time in itself and in a child that it collects. Reports memory that it shares with two
# children, then all three wait.
_BUSY = """
import os, sys
pid = os.fork()
while sum(os.times()[:2]) < 0.2: pass
if not pid: os._exit(0)
os.waitpid(pid, 0)
memory = bytearray(50_000_000)
if os.fork() and os.fork(): print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _BUSY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def test_cpu_time_has_that_of_children_that_ended(busy: subprocess.Popen[str]) -> None:
    assert cpu_s([busy.pid]) >= 0.35


def test_shared_memory_counts_once(busy: subprocess.Popen[str]) -> None:
    assert 50 < memory_mb([busy.pid]) < 100
    assert memory_mb([]) == 0


def test_the_peak_is_sampled_at_once(busy: subprocess.Popen[str]) -> None:
    with PeakMemory([busy.pid], interval_s=3600) as memory:
        pass

    assert memory.mb > 50


def test_a_session_that_is_gone_has_used_nothing_more() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    gone.wait()

    assert gone.pid != os.getpid()
    assert cpu_s([gone.pid]) == 0


def test_latency_is_from_the_stamp_to_the_arrival() -> None:
    batch = RecordBatch("sink", 0, [b"1"] * 2, [b"%016d" % 1_000, b"%016d" % 3_500], [0, 0], [0, 1])
    outputs = Outputs(batch, np.array([0, 1]), arrived_ns=11_000_000)

    assert list(latencies_ms(outputs)) == [10.0, 7.5]
