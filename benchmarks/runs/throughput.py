"""How fast an engine works off a backlog, and what that costs.

The source holds records for warming up, followed by those that are measured. The measurement begins
when the sink has the outputs of the former, and ends when it has nearly all outputs. This leaves
out starting, stopping, and the work of one partition after another has ended. Then the whole sink
is checked.

Where some records have no output, the measurement begins when the positions committed in the source
reach the end of the warm-up, and ends when the sink has the last output of each key. The first step
of a job may be far ahead of its last one, so positions do not tell when its work is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.bench import STALL_S, Bench, JobRun
from benchmarks.contender import Contender
from benchmarks.dsl_jobs import CLOSING_MS
from benchmarks.records import (
    KEYS,
    Check,
    EachOnce,
    LastOfEachKey,
    WrongOutputError,
    counted,
    one_more,
    unchanged,
)
from benchmarks.resources import PeakMemory, cpu_s
from kafka_pipeline.common.errors import PipelineError

_LEFT_OUT = 0.05
"""The share of the measured records, at the end of the backlog, that is left out."""
_POLL_S = 0.05


def closed_windows(total: int) -> Check:
    """Expect the last value of each key and closed window of the `suppressed` job."""
    closed = (total - 1) // CLOSING_MS * CLOSING_MS
    if total - closed < KEYS or not closed:
        raise PipelineError(
            f"{total:,} records end where some partitions have closed a window and others have "
            f"not: give a multiple of {CLOSING_MS:,} records in all"
        )
    return LastOfEachKey(closed, read=unchanged)


def of_two_topics(total: int) -> Check:
    """Expect ascending counts of each key, up to those of two topics with the same records."""
    if total % KEYS:
        raise PipelineError(f"not all keys have as many records: give a multiple of {KEYS:,}")
    return LastOfEachKey(2 * total)


CHECKS: dict[str, Callable[[int], Check]] = {
    "forward": partial(EachOnce, read=unchanged),
    "sum": partial(EachOnce, read=one_more),
    "sql": partial(EachOnce, read=unchanged, last_digit=1),
    "count": partial(EachOnce, read=counted),
    "chain": partial(EachOnce, read=counted),
    "processor": partial(EachOnce, read=counted),
    "batch": partial(EachOnce, read=counted),
    "cached-count": LastOfEachKey,
    "sql-windowed-count": LastOfEachKey,
    "sql-stream-table": partial(EachOnce, read=unchanged),
    "filter-map-columns": partial(EachOnce, read=unchanged, last_digit=1),
    "filter-map": partial(EachOnce, read=unchanged, last_digit=1),
    "windowed-count": partial(EachOnce, read=counted),
    "stream-table": partial(EachOnce, read=unchanged),
    "stream-stream": partial(EachOnce, read=unchanged),
    "foreign-key": partial(LastOfEachKey, read=unchanged),
    "hopping": partial(EachOnce, read=unchanged),
    "sliding": partial(EachOnce, read=unchanged),
    "session": partial(EachOnce, read=unchanged),
    "suppressed": closed_windows,
    "cogroup": of_two_topics,
    "table-table": partial(EachOnce, read=unchanged),
    "table-sum": partial(EachOnce, read=unchanged),
}


@dataclass(frozen=True, slots=True)
class Window:
    """The measured part of a backlog: from one number of processed records to another."""

    start: int
    stop: int


def window_of(warm_up: int, records: int) -> Window:
    """Return the measured part of a backlog of `warm_up + records` records."""
    return Window(warm_up, warm_up + records - int(records * _LEFT_OUT))


def measure(
    bench: Bench, contender: Contender, kind: str, source: str, warm_up: int, records: int
) -> dict[str, float]:
    """Run a job over the backlog in `source`; return its figures.

    Raises `WrongOutputError` if the sink differs from the model.
    """
    total = warm_up + records
    check = CHECKS[kind](total)
    window = window_of(warm_up, records)
    with bench.run(contender, kind, source) as run, run.sink(check) as sink:
        running = run.start()
        sessions = running.sessions
        progress = (
            _outputs(run, check)
            if isinstance(check, EachOnce)
            else bench.committed(running.group, source)
        )
        with PeakMemory(sessions) as memory:
            began_s, first = _wait_for(run, progress, window.start)
            began_cpu_s, began_broker_s = cpu_s(sessions), bench.broker_cpu_s()
            if isinstance(check, EachOnce):
                ended_s, last = _wait_for(run, progress, window.stop)
            else:
                sink.read_complete()
                ended_s, last = time.monotonic(), float(total)
            used_s = cpu_s(sessions) - began_cpu_s
            broker_s = bench.broker_cpu_s() - began_broker_s
        sink.read_complete()
        sink.stop_and_read_rest()
    millions = (last - first) / 1e6
    return {
        "records_per_s": (last - first) / (ended_s - began_s),
        "cpu_s_per_million": used_s / millions,
        "broker_cpu_s_per_million": broker_s / millions,
        "peak_mb": memory.mb,
    }


def _outputs(run: JobRun, check: EachOnce) -> Callable[[], float]:
    """Return a function that returns how many records have been processed, by their outputs."""
    per_output = check.total / check.expected
    return lambda: run.bench.written(run.job.sink) * per_output


def _wait_for(run: JobRun, progress: Callable[[], float], records: int) -> tuple[float, float]:
    """Wait until so many records are processed; return when this was seen, and the number."""
    before, moved_s = progress(), time.monotonic()
    if before >= records:
        raise PipelineError("the backlog was processed before it was measured: raise --records")
    while True:
        time.sleep(_POLL_S)
        now, now_s = progress(), time.monotonic()
        if now != before:
            if now >= records:
                return now_s, now
            before, moved_s = now, now_s
        elif now_s - moved_s > STALL_S:
            raise WrongOutputError(f"{now:,.0f} records were processed, then no more")
        run.require_alive()
