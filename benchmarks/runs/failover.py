"""How long results are interrupted when one of two instances is lost under load.

Two instances with one thread each count the records of a writer. One of them, with all processes
that it started, gets SIGKILL, and nothing replaces it. The figure is the time from then until every
partition has emitted a result for a record that was written afterwards. Every count must come once,
and in order.
"""

from __future__ import annotations

import time

from benchmarks.bench import PARTITIONS, Bench, Outputs
from benchmarks.contender import Contender
from benchmarks.records import EachOnce, counted, rows
from benchmarks.resources import PeakMemory
from benchmarks.runs.latency import PROBES
from benchmarks.steady_writer import numbered, steady_writer

RATE = 1_000
_SETTLE_S = 20.0
"""How long both instances run before one is killed, since the second one may join late."""
_MAX_OUTAGE_S = 180.0
_AFTERWARDS_S = 5.0


def measure(bench: Bench, contender: Contender) -> dict[str, float]:
    """Kill an instance of a counting job; return how long results were interrupted, in seconds.

    Raises `WrongOutputError` if the sink differs from the model.
    """
    check = EachOnce(PROBES + int(RATE * (_SETTLE_S + 2 * _MAX_OUTAGE_S)), counted)
    recovered_s: dict[int, float] = {}
    with bench.run(contender, "count", instances=2, threads=1) as run:
        bench.write(run.job.source, rows(0, PROBES))
        running = run.start()
        with (
            PeakMemory(running.sessions) as memory,
            run.sink(check) as sink,
            steady_writer(run.job.servers, run.job.source, PROBES, RATE, numbered) as writer,
        ):
            sink.read_until(lambda: check.found > PROBES)
            settled_s = time.monotonic() + _SETTLE_S
            sink.read_until(lambda: time.monotonic() >= settled_s)
            killed_ns = time.time_ns()
            running.kill(1)
            first_after = writer.written

            def look(outputs: Outputs) -> None:
                if outputs.numbers[-1] >= first_after:
                    outage_s = (outputs.arrived_ns - killed_ns) / 1e9
                    recovered_s.setdefault(outputs.batch.partition, outage_s)

            sink.read_until(lambda: len(recovered_s) == PARTITIONS, look, _MAX_OUTAGE_S)
            end_s = time.monotonic() + _AFTERWARDS_S
            sink.read_until(lambda: time.monotonic() >= end_s)
            check.total = writer.stop()
            sink.read_complete()
            sink.stop_and_read_rest()
    return {
        "outage_s": max(recovered_s.values()),
        "other_outage_s": min(recovered_s.values()),
        "peak_mb": memory.mb,
    }
