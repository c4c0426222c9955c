"""One run of a query over all events: how fast it is, what it costs, and whether it is right.

The measurement begins when a quarter of the events are processed, which leaves out the start, and
ends with the last change of the sink or of the positions in the source. Then the committed results
are compared with those of the oracle.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.bench import STALL_S, Bench, JobRun
from benchmarks.contender import Contender
from benchmarks.nexmark.catalog import Query
from benchmarks.nexmark.oracle import Oracle, Results
from benchmarks.records import WrongOutputError
from benchmarks.resources import PeakMemory, cpu_s
from kafka_pipeline.common.errors import PipelineError
from kafka_pipeline.common.kafka.bulk import read_committed

_WARM_UP = 0.25
"""The share of the events that is processed before the measurement begins."""
_KILL_AT = 0.5
_RESTORE_S = 60.0
"""How long results may pause after a kill: other tasks first restore what the killed one kept."""
_POLL_S = 0.1
_START_S = 300.0
"""How long a job may take until it has processed something."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What had been done and spent at a moment."""

    at_s: float
    processed: int
    """The events of the query's first topic whose positions are committed."""
    written: int
    """The offsets of the sink."""
    cpu_s: float
    broker_cpu_s: float


class _Watch:
    """Follows a run until it rests."""

    def __init__(self, bench: Bench, run: JobRun, query: Query, *, is_killing: bool) -> None:
        """Watch a job that has started; `is_killing` ends its second instance in the middle."""
        self._bench = bench
        self._run = run
        self._quiet_s = max(query.quiet_s, _RESTORE_S) if is_killing else query.quiet_s
        self._is_killing = is_killing
        self._sessions = run.running.sessions
        self._committed = bench.committed(run.running.group, query.topics[0])
        self.backlog = bench.written(query.topics[0])
        self.began: Moment | None = None
        """When the warm-up was processed."""
        self.killed_at = 0.0
        """The share of the events that was processed when the instance was killed."""
        self.last = self._look()

    def rest(self) -> None:
        """Wait until all events are processed, and nothing has changed for a while.

        Raises `WrongOutputError` if the job stands still before.
        """
        changed_s = time.monotonic()
        while True:
            time.sleep(_POLL_S)
            self._run.require_alive()
            now = self._look()
            if (now.processed, now.written) != (self.last.processed, self.last.written):
                self.last, changed_s = now, now.at_s
                self._pass(now)
            quiet_s = now.at_s - changed_s
            if now.processed >= self.backlog and quiet_s > self._quiet_s:
                return
            if quiet_s > (STALL_S if now.processed else _START_S):
                raise WrongOutputError(
                    f"{now.processed:,} of {self.backlog:,} events were processed, then no more"
                )

    def _pass(self, now: Moment) -> None:
        share = now.processed / self.backlog
        if self.began is None and share >= _WARM_UP:
            self.began = now
        if self._is_killing and not self.killed_at and share >= _KILL_AT:
            self._run.running.kill(1)
            self.killed_at = share

    def _look(self) -> Moment:
        return Moment(
            time.monotonic(),
            self._committed(),
            self._bench.written(self._run.job.sink),
            cpu_s(self._sessions),
            self._bench.broker_cpu_s(),
        )


def measure(
    bench: Bench, contender: Contender, results: Results, oracle: Oracle
) -> dict[str, float]:
    """Run the query of empty `results` on two threads; return its figures.

    Raises `WrongOutputError` if the results are wrong, and `PipelineError` if there are too few
    events to measure.
    """
    query = results.query
    with bench.run(contender, query.name, query.topics[0]) as run:
        running = run.start()
        with PeakMemory(running.sessions) as memory:
            watch = _Watch(bench, run, query, is_killing=False)
            watch.rest()
        _require_right(bench, run, results, oracle)
    began, ended = watch.began, watch.last
    if began is None or began.processed >= watch.backlog:
        raise PipelineError("the events were processed before they were measured: raise --events")
    share = 1 - began.processed / watch.backlog
    events = share * sum(oracle.counts[topic] for topic in query.topics)
    return {
        "records_per_s": events / (ended.at_s - began.at_s),
        "cpu_s_per_million": (ended.cpu_s - began.cpu_s) / events * 1e6,
        "broker_cpu_s_per_million": (ended.broker_cpu_s - began.broker_cpu_s) / events * 1e6,
        "peak_mb": memory.mb,
    }


def survive(bench: Bench, contender: Contender, results: Results, oracle: Oracle) -> float:
    """Run the query of empty `results` on two TaskManagers with a thread each, and kill one.

    Returns the share of the events that was processed by then. Raises as `measure`.
    """
    query = results.query
    with bench.run(contender, query.name, query.topics[0], instances=2, threads=1) as run:
        run.start()
        watch = _Watch(bench, run, query, is_killing=True)
        watch.rest()
        if not 0 < watch.killed_at < 1:
            raise PipelineError("the events were processed before the kill: raise --events")
        _require_right(bench, run, results, oracle)
    return watch.killed_at


def _require_right(bench: Bench, run: JobRun, results: Results, oracle: Oracle) -> None:
    run.stop()
    batches = read_committed(bench.config, run.job.sink, bench.partitions)
    for batch in sorted(batches, key=lambda each: each.offsets[0]):
        results.add(zip(batch.keys, batch.values, strict=True))
    results.require(oracle.answer(results.query))
