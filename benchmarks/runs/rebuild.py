"""How long it takes to rebuild state from its topic.

A job counts records with distinct keys, and ends. Then it starts twice more, with a few more
records waiting: once with its state intact on disk, once without any. The time from the start to
the results of these records covers only starting in the first case, and starting and reading the
whole state in the second. Every count must be right, which proves that the state was rebuilt
correctly.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.bench import Bench, JobRun, Sink
from benchmarks.contender import Contender
from benchmarks.records import EachOnce, counted, rows
from benchmarks.resources import PeakMemory, cpu_s
from benchmarks.runs.latency import PROBES

_STARTS = 2


def measure(bench: Bench, contender: Contender, records: int) -> dict[str, float]:
    """Count `records` records, then start again with and without the state; return the figures.

    Raises `WrongOutputError` if the sink differs from the model.
    """
    check = EachOnce(records + _STARTS * PROBES, counted, keys=records)
    with bench.run(contender, "count") as run, run.sink(check) as sink:
        bench.write(run.job.source, rows(0, records, records))
        run.start()
        sink.read_until(lambda: check.found == records)
        run.stop()
        kept = _start_again(run, sink, check, records)
        run.stop()
        run.job.wipe_state()
        wiped = _start_again(run, sink, check, records)
        sink.stop_and_read_rest()
    rebuild_s = wiped.seconds - kept.seconds
    return {
        "start_s": kept.seconds,
        "start_without_state_s": wiped.seconds,
        "rebuild_s": rebuild_s,
        "state_records_per_s": records / rebuild_s,
        "start_cpu_s": kept.cpu_s,
        "start_without_state_cpu_s": wiped.cpu_s,
        "peak_mb": wiped.peak_mb,
    }


@dataclass(frozen=True, slots=True)
class _Start:
    seconds: float
    cpu_s: float
    peak_mb: float


def _start_again(run: JobRun, sink: Sink, check: EachOnce, keys: int) -> _Start:
    """Start the job with a few records waiting; return the time and cost until their results."""
    first = check.found
    run.bench.write(run.job.source, rows(first, first + PROBES, keys))
    started_s = time.monotonic()
    sessions = run.start().sessions
    with PeakMemory(sessions) as memory:
        sink.read_until(lambda: check.found == first + PROBES)
        took_s = time.monotonic() - started_s
        used_s = cpu_s(sessions)
    return _Start(took_s, used_s, memory.mb)
