"""The latency of one hop at a fixed rate, from the writer's call to the reader's hand.

A writer outside the engine puts the time into each value. A `read_committed` reader outside the
engine notes the time when the record arrives at the sink. So the figure includes the writer's send,
the engine's transaction and the reader's fetch, all on one machine. Records during the engine's
warm-up do not count.
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from benchmarks.bench import Bench, Outputs
from benchmarks.contender import Contender
from benchmarks.records import EachOnceByKey, EachOnceInAnyOrder, rows
from benchmarks.resources import PeakMemory, cpu_s
from benchmarks.steady_writer import stamped, steady_writer

PROBES = 100
"""Records that come first, enough for all partitions; their outputs show that the engine runs."""
_SPARE_S = 60
_MEMORY_INTERVAL_S = 5


def measure(
    bench: Bench, contender: Contender, kind: str, rate: int, warm_up_s: float, seconds: float
) -> dict[str, float]:
    """Run `forward` or a similar job at a rate; return its figures, with latencies in ms.

    Raises `WrongOutputError` if the sink differs from the model.
    """
    make_check = EachOnceInAnyOrder if kind == "sql-windowed-last" else EachOnceByKey
    check = make_check(PROBES + int(rate * (warm_up_s + seconds + _SPARE_S)))
    found: list[npt.NDArray[np.float64]] = []
    with bench.run(contender, kind) as run:
        bench.write(run.job.source, rows(0, PROBES))
        sessions = run.start().sessions
        with run.sink(check) as sink:
            sink.read_until(lambda: check.found == PROBES)
            with steady_writer(run.job.servers, run.job.source, PROBES, rate, stamped) as writer:
                warm_s = time.monotonic() + warm_up_s
                sink.read_until(lambda: time.monotonic() >= warm_s)
                before = check.found
                began_cpu_s, began_broker_s = cpu_s(sessions), bench.broker_cpu_s()
                with PeakMemory(sessions, _MEMORY_INTERVAL_S) as memory:
                    sink.read_until(
                        lambda: time.monotonic() >= warm_s + seconds,
                        lambda outputs: found.append(latencies_ms(outputs)),
                    )
                millions = (check.found - before) / 1e6
                used_s = cpu_s(sessions) - began_cpu_s
                broker_s = bench.broker_cpu_s() - began_broker_s
                check.total = writer.stop()
            sink.read_complete()
            sink.stop_and_read_rest()
    p50, p99, largest = np.percentile(np.concatenate(found), (50, 99, 100))
    return {
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "max_ms": float(largest),
        "cpu_s_per_million": used_s / millions,
        "broker_cpu_s_per_million": broker_s / millions,
        "peak_mb": memory.mb,
    }


def latencies_ms(outputs: Outputs) -> npt.NDArray[np.float64]:
    """Return the latency of each record, whose value is the time of writing in µs."""
    stamps_us = np.array(outputs.batch.values, np.bytes_).astype(np.int64)
    return (outputs.arrived_ns / 1000 - stamps_us) / 1000
